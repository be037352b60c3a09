"""Times of repeated calls on the host clock and between CUDA events."""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def summary(us: list[float]) -> tuple[float, float]:
    """(median, least), rounded to 10 ns."""
    return round(statistics.median(us), 2), round(min(us), 2)


def wall(call: Callable[[], object], count: int, warm: int = 5) -> list[float]:
    """Microseconds of each of `count` calls; a call returns when its result is there."""
    for _ in range(warm):
        call()
    out: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        out.append((time.perf_counter() - start) * 1e6)
    return out


def between_events(torch: Any, stream: Any, call: Callable[[], object], count: int, warm: int = 10) -> list[float]:
    """Device microseconds of each of `count` calls that put work on `stream`, synchronised each time."""
    out: list[float] = []
    for n in range(warm + count):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record(stream)
        call()
        last.record(stream)
        last.synchronize()
        if n >= warm:
            out.append(first.elapsed_time(last) * 1e3)
    return out
