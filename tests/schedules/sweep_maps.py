"""Rows and maps for the sweep: statistics over rows of bounded and of any length, turned tensors, flat ones, and fused ends."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from taskc.ir.dtype import DType
from taskc.ir.expr import Index, Var
from taskc.ir.graph import Op, TensorType
from taskc.ir.task import Map, Rows, Store, axis
from taskc.ir.value import Reduce, Tensor, Value, call, guard, inside
from taskc.ops.arg import ArgExtreme
from taskc.ops.norm import LayerNorm
from taskc.ops.reduce import Reduce as ReduceOp
from taskc.ops.softmax import Softmax
from taskc.schedules import elementwise, rows, transpose
from tests.schedules.sweep_subject import Point, Points, Subject, activated, point, prologued, raised, shifted, up

BOUNDS = (1, 4, 16, 64, 256, 1024, 4096)  # columns that a kept row may have


def _rows_task(op: Op, dtype: DType, shape: tuple[Index, ...], vectors: int = 0) -> Rows:
    tensors = [Tensor("x", dtype, shape)] + [Tensor(f"weight{i}", dtype, shape[-1:], constant=True) for i in range(vectors)]
    kind = op.infer([TensorType(t.dtype, t.shape) for t in tensors])[0]
    task = op.task(tensors, [Tensor("y", kind.dtype, kind.shape)])
    assert isinstance(task, Rows)
    return task


def _fused_rows(task: Rows) -> Rows:
    """x / 2 + 1 in front; behind, a residual, an activation, and the dims of the result turned around."""
    dtype = task.stores[0].tensor.dtype

    def turned(s: Store) -> Store:
        shape, index = s.tensor.shape[::-1], s.index[::-1]
        value = call("add", s.value, Tensor("residual", dtype, shape).at(*index))
        return Store(Tensor("y", dtype, shape), index, activated(value, dtype))

    return replace(task, x=prologued(task.x, shifted, dtype), element=tuple(map(turned, task.element)),
                   row_stores=tuple(map(turned, task.row_stores)))


def _bound_of(s: Any) -> int | None:
    """The part of the bounds that a schedule belongs to; None: any number of columns."""
    return max(b for b in BOUNDS if b <= s.step) if s.keep else None


def _row_points(bound: int | None, inner: bool, wide: bool = False) -> Points:
    """Rows and columns: one, primes, the tile's, one past the tile. `inner`: rows lie together, in two dims. `wide`: what lies together
    is a multiple of 8."""
    by_row, by_column = 8 if wide and inner else 1, 8 if wide and not inner else 1

    def at(r: int, c: int, data: str = "normal") -> Point:
        outer = (("outer", 1 if r < 3 else 3),) if inner else ()
        found = (*outer, ("rows", up(r, by_row)))
        return Point((*found, ("columns", min(up(c, by_column), bound or up(c, 8)))) if bound != 1 else found, data)

    def points(s: Any) -> tuple[Point, ...]:
        most = bound or s.step + 1
        prime = max(p for p in (1, 3, 13, 61, 251, 1021) if p <= most)
        return (at(1, 1), at(7, min(37, prime)), at(5, prime, "special"), at(2, most), at(s.block_rows + 1, min(3, most)))

    return points


def row_subjects(dtype: DType) -> list[Subject]:
    out: list[Subject] = []
    for bound in (*BOUNDS, None):
        r, c, outer = Var("rows", 1), 1 if bound == 1 else Var("columns", 1, bound), Var("outer", 1)
        tasks: list[tuple[str, Rows, bool, bool]] = [
            ("softmax", _rows_task(Softmax(1), dtype, (r, c)), False, False),
            ("softmax of columns", _rows_task(Softmax(1), dtype, (outer, c, r)), True, False),
            ("layer norm", _rows_task(LayerNorm(1, 1e-5), dtype, (r, c), 2), False, False),
            ("mean", _rows_task(ReduceOp("mean", (1,)), dtype, (r, c)), False, False),
            ("argmax of columns", _rows_task(ArgExtreme("max", 1), dtype, (outer, c, r)), True, False),
        ]
        if bound is None or bound >= 16:
            r8, c8 = Var("rows", 1, None, 8), Var("columns", 1, bound, 8)
            tasks += [("layer norm wide", _rows_task(LayerNorm(1, 1e-5), dtype, (r, c8), 2), False, True),
                      ("softmax of columns wide", _rows_task(Softmax(1), dtype, (outer, c, r8)), True, True)]
        if bound is None:
            tasks += [("mean wide", _rows_task(ReduceOp("mean", (1,)), dtype, (r, Var("columns", 1, None, 8))), False, True)]
        made = partial(Subject, rows, dtype, part=f", at most {bound} columns" if bound else "", floor=0.1,
                       takes=lambda s, bound=bound: _bound_of(s) == bound)
        out += [made(kind, False, t, _row_points(bound, inner, wide)) for kind, t, inner, wide in tasks]
        out += [made(f"{kind}, fused", True, _fused_rows(t), _row_points(bound, inner, wide))
                for kind, t, inner, wide in tasks if t.stores[0].tensor.dtype == dtype]
    return out


def _turned_map(dtype: DType, div: int, fused: bool) -> Map:
    """y[b, j, i] = x[b, i, j]; fused: exp of x with padding around, a residual, an activation."""
    images, i, j = Var("images", 1), Var("height", 1, None, div), Var("width", 1, None, div)
    x, y = Tensor("x", dtype, (images, i, j)), Tensor("y", dtype, (images, j + 2 if fused else j, i))
    axes = tuple(axis(n, e) for n, e in zip(("b", "j", "i"), y.shape, strict=True))
    ab, aj, ai = (a.var for a in axes)
    value: Value = x.at(ab, ai, aj)
    if fused:
        padded = guard(inside(0, aj - 1, j), raised(x.at(ab, ai, aj - 1), dtype))
        value = activated(call("add", padded, Tensor("residual", dtype, y.shape).at(ab, aj, ai)), dtype)
    return Map(axes, (Store(y, (ab, aj, ai), value),))


def _turn_points(div: int) -> Points:
    def points(s: Any) -> tuple[Point, ...]:
        return (point(images=1, height=div, width=div), point(images=3, height=up(37, div), width=up(53, div)),
                point("special", images=2, height=up(13, div), width=up(29, div)), point(images=1, height=up(s.i, div), width=up(s.j, div)),
                point(images=1, height=up(s.i + 1, div), width=up(s.j + 1, div)))

    return points


def _flat(dtype: DType, div: int) -> Map:
    """y = exp(x), flat."""
    shape = (Var("rows", 1), Var("columns", 1, None, div))
    axes = tuple(axis(f"i{d}", e) for d, e in enumerate(shape))
    at = tuple(a.var for a in axes)
    return Map(axes, (Store(Tensor("y", dtype, shape), at, raised(Tensor("x", dtype, shape).at(*at), dtype)),))


def _mixed(dtype: DType) -> Map:
    """max over three taps of x inside of its padding, a turned operand, a row and a scalar, an activation; a second output."""
    r, c = Var("rows", 1), Var("columns", 1)
    ar, ac = axis("i", r), axis("j", c)
    x, turned, row, one = Tensor("x", dtype, (r, c)), Tensor("turned", dtype, (c, r)), Tensor("weights", dtype, (c,)), Tensor("one", dtype, ())
    tap = Var("tap", below=3)
    place = ac.var + tap - 1
    window = Reduce("max", (tap,), (3,), guard(inside(0, place, c), raised(x.at(ar.var, place), dtype)))
    total = call("add", window, call("add", turned.at(ac.var, ar.var), call("mul", row.at(ac.var), one.at())))
    at = (ar.var, ac.var)
    return Map((ar, ac), (Store(Tensor("y", dtype, (r, c)), at, activated(total, dtype)), Store(Tensor("second", dtype, (r, c)), at, x.at(*at))))


def _flat_points(div: int) -> Points:
    def points(s: Any) -> tuple[Point, ...]:
        tile = s.threads * s.elements
        return (point(rows=1, columns=div), point(rows=37, columns=up(53, div)), point("special", rows=5, columns=up(13, div)),
                point(rows=1, columns=up(tile, div)), point(rows=1, columns=up(tile + 1, div)), point(rows=3, columns=up(tile + 1, div)))

    return points


def maps(dtype: DType) -> list[Subject]:
    turn, flat = partial(Subject, transpose, dtype), partial(Subject, elementwise, dtype)
    return [turn("turn", False, _turned_map(dtype, 1, False), _turn_points(1)), turn("turn wide", False, _turned_map(dtype, 8, False), _turn_points(8)),
            turn("turn, fused", True, _turned_map(dtype, 1, True), _turn_points(1)),
            turn("turn wide, fused", True, _turned_map(dtype, 8, True), _turn_points(8)),
            flat("flat", False, _flat(dtype, 1), _flat_points(1)), flat("flat wide", False, _flat(dtype, 8), _flat_points(8)),
            flat("mixed, fused", True, _mixed(dtype), _flat_points(1))]
