"""Whether a kernel's outputs are right, at sampled elements and along every border, against float64 from the task itself.

Tiles end at borders, and that is where kernels go wrong: besides a random grid the first and last rows are looked at in a
column of every tile, and the first and last columns in a row of every tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from taskc.ir.convert import values_of
from taskc.ir.dtype import BF16, F16, F64, DType
from taskc.ir.evaluation import evaluate
from taskc.ir.graph import Array
from taskc.ir.points import Positions, Sampled, evaluate_points, point_axes
from taskc.ir.task import Attention, Contraction, Map, Rows, Task, task_loads

SAMPLES = 256
SMALLEST_TILE = 16  # elements of a tile's side: a border is looked at that often
MOST_ALONG = 128  # but not more often than this
OPERANDS = 1 << 21  # elements of operands that one grid may read
STEP = {F16: 2.0**-10, BF16: 2.0**-7}  # of storing, relative to the largest value
MAY_DIFFER = 0.02  # of integers and booleans that floats decide: roundings fall to either side


def why_wrong(task: Task, tensors: Mapping[str, Array], got: Mapping[str, Array], sizes: Mapping[str, int], seed: int = 0) -> str:
    """What is wrong with outputs `got`, as stored, by tensor name; '' when they are right. `tensors` are the inputs, as stored."""
    error = _error(task, sizes)
    may = MAY_DIFFER if any(load.tensor.dtype.is_float for load in task_loads(task)) else 0.0
    for points in grids(task, sizes, seed):
        exact = evaluate_points(task, tensors, points, sizes, error=error)
        rough = evaluate_points(task, tensors, points, sizes, wide=False)
        for e, r in zip(exact, rough, strict=True):
            reason = _differs(e, r, got[e.tensor.name], error, may)
            if reason:
                return reason
    return ""


def grids(task: Task, sizes: Mapping[str, int], seed: int = 0) -> list[Positions]:
    """The grids of points: about SAMPLES elements at random with every corner, and the borders of the last two axes."""
    rng = np.random.default_rng(seed)
    extents = {a.var.name: evaluate(a.extent, sizes) for a in point_axes(task)}
    if not all(extents.values()):
        return []
    if isinstance(task, Map):
        some = max(2, round(SAMPLES ** (1 / max(1, sum(n > 1 for n in extents.values())))))
        return [{name: _some(n, some, rng) for name, n in extents.items()}]
    *outer, down, across = extents
    few = {name: _some(extents[name], 2, rng) for name in outer}
    side = 12 if outer and extents[outer[0]] > 1 else 16
    first, second = {down: _ends(extents[down])}, {across: _ends(extents[across])}
    deep = _depth(task, sizes)
    along = min(MOST_ALONG, max(SMALLEST_TILE, OPERANDS // max(1, deep)))
    one = {name: p[-1:] for name, p in few.items()}
    found: list[Positions] = [{**few, down: _some(extents[down], side, rng), across: _some(extents[across], side, rng)},
                              {**one, **second, down: _tiles(extents[down], along)}]
    # The columns of rows are one tile wide or read whole: only products have borders along them.
    return found if isinstance(task, Rows) else [*found, {**one, **first, across: _tiles(extents[across], along)}]


def _depth(task: Task, sizes: Mapping[str, int]) -> int:
    """Elements of operands that one row or column of the result takes."""
    if isinstance(task, Contraction):
        return evaluate(task.k.extent, sizes)
    if isinstance(task, Attention):
        return evaluate(task.j.extent, sizes) * 8
    return evaluate(task.column.extent, sizes) if isinstance(task, Rows) else 1


def _some(n: int, count: int, rng: Any) -> Array:
    """Up to `count` positions below n, the first and the last two among them."""
    if n <= count:
        return np.arange(n)
    if count < 4:
        return np.unique([0, n - 1, *rng.integers(0, n, count - 2)])
    return np.unique(np.concatenate([[0, n - 2, n - 1], rng.choice(n, count - 3, replace=False)]))


def _ends(n: int) -> Array:
    return np.unique([0, n - 1])


def _tiles(n: int, most: int) -> Array:
    """A position in every tile's side, the last one included."""
    step = max(SMALLEST_TILE, -(-n // most))
    return np.unique([*range(step // 2 if n > step else 0, n, step), n - 1])


def _error(task: Task, sizes: Mapping[str, int]) -> float:
    """Of sums of float32 in any order, of operands of lower precision, and of 16-bit operands that were computed on."""
    if isinstance(task, Map):
        return 2.0**-20
    deep = evaluate((task.column if isinstance(task, Rows) else task.k).extent, sizes)
    if isinstance(task, Attention):
        deep += evaluate(task.j.extent, sizes)
    sums = (2.0**-48 if isinstance(task, Contraction) and task.accumulate == F64 else 2.0**-22) * math.sqrt(max(1, deep))
    operand = None if isinstance(task, Rows) else task.operand
    low = 2.0**-10 if isinstance(task, Contraction) and task.precision == "tf32" else 0.0 if operand is None else STEP.get(operand, 0.0)
    return sums + low


def _differs(exact: Sampled, rough: Sampled, out: Array, error: float, may: float) -> str:
    """Why the elements of one store are wrong, or ''; `may`: the share of integers that may differ."""
    dtype = exact.tensor.dtype
    got = values_of(out, dtype)[exact.index] if exact.index else values_of(out, dtype).reshape(1)
    if not dtype.is_float:
        return _integers_differ(exact, rough, got, may)
    found, want, near = (np.asarray(x, np.float64) for x in (got, exact.values, rough.values))
    top = _largest(dtype)
    with np.errstate(all="ignore"):
        known = np.isfinite(want) & np.isfinite(near) & (np.abs(want) < top)  # elsewhere 32 bits may overflow where 64 do not
        scale = np.max(np.abs(want[known]), initial=0.0)
        allowed = exact.spread + 4 * np.abs(near - want) + (STEP.get(dtype, 0.0) + 4 * min(error, 2.0**-10 + 2.0**-22)) * scale
        off = np.where(np.isfinite(found), np.abs(found - want), np.inf)
        wrong = known & ~(off <= allowed)
    wrong |= np.isnan(want) & np.isnan(near) & ~np.isnan(found)
    if not wrong.any():
        return ""
    worst = int(np.argmax(np.where(wrong, np.where(np.isnan(want), np.inf, off), -1.0)))
    return _message(exact, int(wrong.sum()), worst, found[worst], want[worst])


def _integers_differ(exact: Sampled, rough: Sampled, got: Array, may: float) -> str:
    want, near, found = (np.asarray(x).astype(np.int64) for x in (exact.values, rough.values, got))
    wrong = (found != want) & (want == near)
    if wrong.mean() <= may:
        return ""
    worst = int(np.argmax(wrong))
    return _message(exact, int(wrong.sum()), worst, found[worst], want[worst])


def _largest(dtype: DType) -> float:
    return 65000.0 if dtype == F16 else float(np.finfo(np.float64 if dtype == F64 else np.float32).max) * 0.99


def _message(s: Sampled, count: int, worst: int, got: Any, want: Any) -> str:
    place = ", ".join(str(int(i[worst])) for i in s.index)
    return f"{count} of {s.values.size} elements; {s.tensor.name}[{place}] is {got:.6g}, should be {want:.6g}"
