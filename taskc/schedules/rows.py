"""Statistics over the columns of each row, and what is computed from them: reductions, softmax, normalisations.

Two forms. Along columns: `threads` threads share a row, its vectors run along the columns, and partial results meet through
warp shuffles, then shared memory. Along rows (x contiguous from row to row): each thread owns `width` neighbouring rows, groups
of threads take different columns, and meet in shared memory. A row that fits stays in registers (`keep` vectors a thread), so
that x is read and computed once; keep = 0 streams over rows of any length, once a pass. With split > 1 several blocks share
a row, and the last to arrive combines their results. Every order is fixed: equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from taskc.ir.facts import bounds
from taskc.ir.partial import ARG, COMBINE
from taskc.ir.program import Program
from taskc.ir.task import Rows, Task
from taskc.schedules import rows_model
from taskc.schedules.rows_program import Builder
from taskc.schedules.rows_schedule import Schedule, passes, shared_bytes
from taskc.schedules.template import Traits
from taskc.targets.target import Target

NAME = "rows"

_COLUMNS = ((8, 16), (32, 4), (128, 1), (256, 1), (512, 1), (1024, 1))
_ROWS = ((128, 1), (8, 16), (32, 8), (32, 32))
_SPLITS = (8, 64)


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every legal schedule; the same for every size."""
    found: list[Schedule] = []
    for width in (1, 2, 4, 8):
        found += [Schedule("columns", t, g, width, keep) for t, g in _COLUMNS for keep in (0, 1, 2, 4, 8)]
        found += [Schedule("rows", t, g, width, keep) for t, g in _ROWS for keep in (0, 1, 4)]
        found += [Schedule("columns", t, 1, width, 0, split) for t in (256, 1024) for split in _SPLITS]
        found += [Schedule("rows", 32, g, width, 0, split) for g in (8, 32) for split in _SPLITS]
    return tuple(s for s in found if illegal(s, traits) is None)


def illegal(s: Schedule, traits: Traits) -> str | None:
    """Why the schedule cannot be, or None."""
    element = traits.operand.compute.bytes
    if s.width * traits.operand.bytes > 32:
        return "a vector is more than two accesses of 16 bytes"
    words = max(1, element // 4)
    # Double-precision functions are inlined for every element held, and take about as many registers again.
    registers = words * words * s.width * (s.vectors + (2 if s.along == "rows" else 0)) + 40 * words
    if s.block_threads * registers > 65536 or registers > 200:
        return f"{registers} registers for each of {s.block_threads} threads"
    if s.keep and s.width == 1 and s.keep == 1 and s.threads < 32 and s.along == "columns":
        return "a thread has next to nothing to do"
    return None


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    if not isinstance(task, Rows):
        return "not statistics over rows"
    unknown = [s.kind for s in task.statistics if s.kind not in COMBINE and s.kind not in ARG]
    return f"no statistic is called {unknown[0]}" if unknown else None


def fits(task: Rows, s: Schedule) -> str | None:
    """Why the schedule would be wrong or impossible for the task at some size, or None."""
    most = bounds(task.column.extent)[1]
    if s.keep and (most is None or most > s.step):
        return f"rows of up to {'any number of' if most is None else most} columns do not fit {s.step}"
    if s.split > 1 and (task.element or len(passes(task)) != 1):
        return "blocks that share a row see its statistics only at the end"
    if shared_bytes(task, s) > 96 * 1024:
        return f"{shared_bytes(task, s)} bytes of shared memory"
    return None


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Seconds by the model of `rows_model`; infinite where the schedule does not fit the task."""
    assert isinstance(task, Rows)
    return inf if fits(task, s) else rows_model.seconds(task, s, len(passes(task)), target, sizes)


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """The anchor alone. Raises ValueError where the schedule does not fit the task."""
    assert isinstance(task, Rows)
    reason = fits(task, s)
    if reason:
        raise ValueError(f"{s} does not fit {name}: {reason}")
    return Builder(task, s, name).build()
