"""Worker: builds a model under a policy of launching, or times its libraries of all policies in turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

from bench.cases import Case, feeds
from bench.timing import summary
from bench.worker import serve
from taskc.artifact import loader
from taskc.codegen.emit import emit
from taskc.compile import Options, compile_model
from taskc.ir.program import For, If, Program, Scope, Stmt
from taskc.targets import Target
from taskc.tune.kernels import TRIGGER

TURNS = 3
KERNELS, LAUNCHES = "taskc.tune.kernels", "taskc.tune.launches"


def _without_trigger(body: Sequence[Stmt]) -> list[Stmt]:
    """The statements but for those that let the kernel's successors start."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, (For, If, Scope)):
            out.append(replace(s, body=_without_trigger(s.body)))
        elif s != TRIGGER:
            out.append(s)
    return out


def _triggered(first: Sequence[Stmt]) -> Any:
    """Kernels that let their successors start as their first act, or never."""
    return patch(f"{KERNELS}.emit", lambda p: emit(replace(p, body=[*first, *_without_trigger(p.body)])))


def _unspread(p: Program, _target: Target, _sizes: Mapping[str, int], _beside: bool) -> Program:
    return p


def _everywhere(beside: bool) -> Callable[[object, Sequence[object]], list[bool]]:
    return lambda _after, batches: [beside] * len(batches)


def _as_it_is() -> Any:
    return patch(f"{KERNELS}.emit", emit)


POLICIES: dict[str, Callable[[], Any]] = {
    "us": _as_it_is,
    "late_us": lambda: patch(f"{KERNELS}.starts_successors_at_once", lambda _: False),
    "at_once_us": lambda: _triggered([TRIGGER]),
    "never_us": lambda: _triggered([]),
    "no_shares_us": lambda: patch(f"{LAUNCHES}.spread", _unspread),
    "one_share_us": lambda: patch(f"{LAUNCHES}._side_by_side", _everywhere(False)),
    "two_shares_us": lambda: patch(f"{LAUNCHES}._side_by_side", _everywhere(True)),
}
BRANCHES = "no_branches_us"
NAMES = (*POLICIES, BRANCHES)


def handle(request: dict[str, Any]) -> dict[str, Any]:
    case = Case(**request["case"])
    if request["do"] == "build":
        return build(case, request)
    try:
        return measure(case, request)
    finally:
        gc.collect()  # the models' memory, before the next ones are loaded


def build(case: Case, request: Mapping[str, Any]) -> dict[str, Any]:
    cache, name = request["cache"], request["policy"]
    options = Options(targets=(request["target"],), cache=None if cache is None else Path(cache), warn=lambda _: None, jobs=2)
    with POLICIES.get(name, _as_it_is)():
        plan = compile_model(str(case.path("model.onnx")), case.path(f"{name}.so"), options=replace(options, branches=name != BRANCHES))
    return {"launches": len(plan.targets[0].steps)}


def measure(case: Case, request: Mapping[str, Any]) -> dict[str, Any]:
    device = "host" if request["target"] == "host" else "cuda:0"
    models = {name: loader.load(case.path(f"{name}.so"), device=device) for name in NAMES}
    feed = feeds(onnx.load(str(case.path("model.onnx"))), 1)
    outputs = {k: {n: a.copy() for n, a in model.run(feed).items()} for k, model in models.items()}
    same = all(np.array_equal(o[n], a, equal_nan=True) for o in outputs.values() for n, a in outputs["us"].items())
    times: dict[str, list[float]] = {k: [] for k in models}
    for _ in range(TURNS):
        for k, model in models.items():
            model.time_device(min(20, request["count"]))
            times[k] += model.time_device(request["count"])
    return {"same": bool(same), **{k: summary(us)[0] for k, us in times.items()}, **{f"{k}_min": summary(us)[1] for k, us in times.items()}}


if __name__ == "__main__":
    serve(handle)
