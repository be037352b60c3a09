"""The meaning of a task at chosen points: what a kernel's result is checked against without evaluating all of it.

The points are a grid: positions along each axis. A contraction reads the rows and columns of its operands that they name,
rows read themselves, and nothing else is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Var
from taskc.ir.graph import Array
from taskc.ir.interpret import statistic_of
from taskc.ir.meaning import Point
from taskc.ir.task import Attention, Axis, Contraction, Map, Rows, Store, Task
from taskc.ir.value import Tensor, Value

Positions = Mapping[str, Array]


@dataclass(frozen=True)
class Sampled:
    """A store at the points of a grid, flattened: the elements it writes (one array a dim), their values, and how far these
    move when the anchor's sums move by the error that was asked about (zero where it was not, or where there are none)."""

    tensor: Tensor
    index: tuple[Array, ...]
    values: Array
    spread: Array


def point_axes(task: Task) -> tuple[Axis, ...]:
    """The axes that stores range over, which points are given for."""
    if isinstance(task, Map):
        return task.axes
    return (task.row, task.column) if isinstance(task, Rows) else (task.batch, task.m, task.n)


def evaluate_points(task: Task, tensors: Mapping[str, Array], points: Positions, symbols: Mapping[str, int] | None = None, *,
                    wide: bool = True, error: float = 0.0) -> list[Sampled]:
    """Every store of the task on the grid of `points` (axis -> positions, each inside its extent), in the task's order.

    `tensors` holds stored arrays (bfloat16 as bits) by tensor name. wide: all floats in double, unrounded; else as
    `evaluate_task` computes. `error` is relative to the root mean square of the anchor's sums. IndexError: a load outside of its tensor."""
    known = dict(symbols or {})
    base = Point(tensors, known, np.ones((), bool), {}, wide)
    with np.errstate(all="ignore"):
        if isinstance(task, Map):
            return _stores(task.stores, base, task.axes, points, {}, 0.0)
        if isinstance(task, Rows):
            return _rows(task, base, points)
        acc = _products(task, base, points) if isinstance(task, Contraction) else _attention(task, base, points)
        nudge = error * float(np.sqrt(np.mean(np.square(acc.astype(np.float64))))) if error and acc.size else 0.0
        return _stores(task.stores, base, (task.batch, task.m, task.n), points, {"acc": acc}, nudge)


def _at(base: Point, axes: Sequence[Axis], points: Positions, holes: Mapping[str, Array] | None = None) -> Point:
    """The grid of the axes' chosen positions; an axis that is not among the points is taken whole."""
    given = [points.get(a.var.name) for a in axes]
    sizes = {k: v for k, v in base.env.items() if isinstance(v, int)}
    chosen = [np.arange(evaluate(a.extent, sizes)) if p is None else np.asarray(p, np.int64) for a, p in zip(axes, given, strict=True)]
    env: dict[str, Any] = dict(base.env)
    for d, (a, p) in enumerate(zip(axes, chosen, strict=True)):
        env[a.var.name] = p.reshape([p.size if k == d else 1 for k in range(len(axes))])
    return replace(base, env=env, mask=np.ones(tuple(p.size for p in chosen), bool), holes=holes or {})


def _whole(v: Value, base: Point, axes: Sequence[Axis], points: Positions) -> Array:
    at = _at(base, axes, points)
    return np.broadcast_to(at.value(v), at.mask.shape)


def _stores(stores: Sequence[Store], base: Point, axes: Sequence[Axis], points: Positions, holes: Mapping[str, Array], nudge: float) -> list[Sampled]:
    out: list[Sampled] = []
    at = _at(base, axes, points, holes)
    for s in stores:
        values = np.broadcast_to(at.value(s.value), at.mask.shape).reshape(-1)
        spread = np.zeros(values.shape)
        for step in (nudge, -nudge) if nudge else ():
            moved = replace(at, holes={**holes, "acc": holes["acc"] + step})
            other = np.broadcast_to(moved.value(s.value), at.mask.shape).reshape(-1)
            spread = np.fmax(spread, np.abs(other.astype(np.float64) - values.astype(np.float64)))
        index = tuple(np.broadcast_to(np.asarray(at.index(i)), at.mask.shape).reshape(-1) for i in s.index)
        out.append(Sampled(s.tensor, index, values, spread))
    return out


def _products(task: Contraction, base: Point, points: Positions) -> Array:
    kind = np.float64 if base.wide and task.accumulate.is_float else task.accumulate.numpy
    a = _whole(task.a, base, (task.batch, task.m, task.k), points)
    b = _whole(task.b, base, (task.batch, task.k, task.n), points)
    return _multiply(a, b, kind)


def _multiply(a: Array, b: Array, kind: Any) -> Array:
    """a[b, m, k] @ b[b, k, n] on this thread: a BLAS would start one on every core, where compilers are at work."""
    across = np.ascontiguousarray(np.swapaxes(b, 1, 2), kind)
    return np.einsum("bmk,bnk->bmn", np.ascontiguousarray(a, kind), across, optimize=False)


def _attention(task: Attention, base: Point, points: Positions) -> Array:
    kind = np.float64 if base.wide else np.float32
    q, key = _whole(task.q, base, (task.batch, task.m, task.k), points), _whole(task.key, base, (task.batch, task.j, task.k), points)
    score = _multiply(q, np.swapaxes(key, 1, 2), kind) * kind(task.scale)
    at = _at(base, (task.batch, task.m, task.j), points)
    if task.bias is not None:
        score = score + at.value(task.bias)
    for c in task.mask:
        score = np.where(np.asarray(at.index(c)) > 0, score, -np.inf)
    top = np.max(score, axis=2, keepdims=True, initial=-np.inf)
    e = np.exp(score - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=2, keepdims=True)
    v = _whole(task.v, base, (task.batch, task.j, task.n), points)
    return np.asarray(_multiply(e, v, kind) / np.where(total == 0, 1, total)).astype(kind)


def _rows(task: Rows, base: Point, points: Positions) -> list[Sampled]:
    """Statistics need whole rows; the element stores are looked at in the chosen columns only."""
    row = {k: v for k, v in points.items() if k == task.row.var.name}
    whole = _at(base, (task.row, task.column), row)
    holes: dict[str, Array] = {"x": np.broadcast_to(whole.value(task.x), whole.mask.shape)}
    for k, s in enumerate(task.statistics):
        found = statistic_of(s, np.broadcast_to(replace(whole, holes=dict(holes)).value(s.value), whole.mask.shape))
        if s.finish is not None:
            column = _at(base, (task.row, Axis(Var("_one"), 1)), row, {**holes, "s": found})
            found = np.broadcast_to(column.value(s.finish), found.shape)
        holes[f"s{k}"] = found
    columns = np.asarray(points[task.column.var.name], np.int64)
    some = {k: h[:, columns] if k == "x" else h for k, h in holes.items()}
    out = _stores(task.element, base, (task.row, task.column), points, some, 0.0)
    return out + _stores(task.row_stores, base, (task.row,), row, {k: h[:, 0] for k, h in holes.items() if k != "x"}, 0.0)
