"""Child of bench.sweep: builds, compiles, runs and checks cases, on `host` many at once, on the GPU one by one."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from bench.worker import serve
from taskc.targets import TARGETS
from tests.schedules.sweep import find
from tests.schedules.sweep_machines import Gpu, run_on_gpu, run_on_host


@cache
def _gpu() -> Gpu:
    return Gpu()


def _handle(request: dict[str, Any]) -> dict[str, Any]:
    """{'target', 'cases': [[label, schedule], …]} -> {'wrong': [reason or None, …]}."""
    target = TARGETS[request["target"]]
    cases = [find((label, schedule), target) for label, schedule in request["cases"]]
    if target.name == "host":
        with tempfile.TemporaryDirectory(prefix="taskc-sweep-") as folder:
            return {"wrong": run_on_host(cases, Path(folder))}
    return {"wrong": [run_on_gpu(c, target, _gpu()) for c in cases]}


if __name__ == "__main__":
    serve(_handle)
