"""Every schedule of every template on the GPU, unfused and fused, against float64: see bench/sweep.py and tests/schedules/sweep.py."""

from __future__ import annotations

import os
import warnings

import pytest

from bench.report import target_here
from bench.sweep import choose, sweep
from taskc.targets import TARGETS

SECONDS = "TASKC_SWEEP_SECONDS"  # the time for all of it


def test_every_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that its time ends is no failure, and says loudly that not all were run."""
    target = TARGETS[target_here()]
    report = sweep(choose(target), target, os.cpu_count() or 1, float(os.environ.get(SECONDS, "600")), told=lambda _: None)
    with capsys.disabled():
        print(f"\n{report.verdict()}")
    assert not report.failures, "\n".join(f"{o.case}: {o.wrong}" for o in report.failures[:40])
    assert report.outcomes, "nothing was run"
    if not report.complete:
        warnings.warn(f"{report.verdict()}; {SECONDS} gives it more time", stacklevel=1)
