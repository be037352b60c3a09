"""What the sweep computes: tasks of symbolic sizes for every template and element type, with unfused and with fused ends.

A fused prologue has f(0) != 0, so that it shows where padding or a tail is computed on; a fused epilogue adds a residual, applies an
activation and stores in another order. Plain symbols allow narrow accesses only; symbols that are multiples of 8 keep them wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any

from taskc.ir.dtype import BF16, F16, F32, F64, I8, I32, DType
from taskc.ir.expr import Index, Var
from taskc.ir.graph import Op, TensorType
from taskc.ir.task import Attention, Contraction, Map, Rows, Store, Task, axis
from taskc.ir.value import Const, Hole, Load, Reduce, Tensor, Value, call, guard, inside, rewrite
from taskc.ops.arg import ArgExtreme
from taskc.ops.attention import Attention as AttentionOp
from taskc.ops.conv import Conv
from taskc.ops.norm import LayerNorm
from taskc.ops.reduce import Reduce as ReduceOp
from taskc.ops.softmax import Softmax
from taskc.schedules import Template, attention, elementwise, matmul_gemv, matmul_mma, matmul_simt, rows, transpose
from taskc.targets import Target

LONG = (64, 512, 1000, 4096, 16384)  # k of the accuracy check


@dataclass(frozen=True)
class Point:
    """Values of the symbols, and what the data are: 'normal', 'special' (with NaN and infinities) or 'positive'.

    chain: the error is compared with that of a sequential float32 chain of multiply-adds."""

    sizes: tuple[tuple[str, int], ...]
    data: str = "normal"
    chain: bool = False

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.sizes) + (f" {self.data}" if self.data != "normal" else "")


def point(data: str = "normal", **sizes: int) -> Point:
    return Point(tuple(sizes.items()), data)


Points = Callable[[Any], "tuple[Point, ...]"]


@dataclass(frozen=True)
class Subject:
    """A task, and the points to run it at under a schedule. `part`: which of a family of bounds; not a choice of its own."""

    template: Template
    operand: DType
    kind: str
    fused: bool
    task: Task
    points: Points
    precision: str = "native"
    part: str = ""
    tolerance: float = 0.0  # relative to the largest value; 0: what the output's type allows
    floor: float = 0.0  # the largest value counts as at least this: sums may cancel
    takes: Callable[[Any], bool] = field(default=lambda _: True)

    @property
    def group(self) -> str:
        """The template with its element type: what a schedule space belongs to."""
        return f"{self.template.NAME} {'tf32' if self.precision == 'tf32' else self.operand.name}"

    @property
    def label(self) -> str:
        return f"{self.group} {self.kind}{self.part}"

    def why_not(self, schedule: Any, target: Target) -> str | None:
        """Why the schedule is not run on this subject. Only what would be wrong or impossible counts, not what would be slow."""
        if not self.takes(schedule):
            return "left to another part"
        least = {name: 1 for name, _ in self.points(schedule)[0].sizes}  # few rows: the estimate refuses what is slow for many
        reason = self.template.why_not(self.task, target)
        return reason or (None if isfinite(self.template.estimate(self.task, schedule, target, least)) else "does not fit the task")


# ---- contractions ------------------------------------------------------------------------------------------------------


def constant(x: float, dtype: DType) -> Const:
    return Const(float(x) if dtype.is_float else int(x), dtype.compute)


def shifted(x: Value, dtype: DType) -> Value:
    """x / 2 + 1 (integers: x + 1): 1 where x is 0."""
    half = call("mul", x, constant(0.5, dtype)) if dtype.is_float else x
    return call("add", half, constant(1, dtype))


def raised(x: Value, dtype: DType) -> Value:
    """exp(x), 1 where x is 0; integers: x + 1."""
    return call("exp", x) if dtype.is_float else shifted(x, dtype)


def activated(x: Value, dtype: DType) -> Value:
    return call("max", x, constant(0, dtype))


def prologued(v: Value, f: Callable[[Value, DType], Value], dtype: DType) -> Value:
    """f of what is loaded, inside of the guards: padding stays 0."""
    return rewrite(v, lambda x: f(x, dtype) if isinstance(x, Load) else None)


def _summed_in(dtype: DType) -> DType:
    return I32 if dtype == I8 else F64 if dtype == F64 else F32


def _result(dtype: DType) -> DType:
    return I32 if dtype == I8 else dtype


def _product(dtype: DType, div: int, turned: bool = False) -> Contraction:
    """a[m, k] * b[k, n]; turned: a[k, m] * b[n, k]. With wide symbols b is constant: its copies start before the wait.

    `div` divides what lies together in memory: n, k, and m where it is turned."""
    m, n, k = Var("rows", 1, None, div if turned else 1), Var("columns", 1, None, div), Var("depth", 1, None, div)
    a = Tensor("a", dtype, (k, m) if turned else (m, k))
    b = Tensor("b", dtype, (n, k) if turned else (k, n), constant=div > 1)
    y = Tensor("y", _result(dtype), (m, n))
    am, an, ak = axis("m", m), axis("n", n), axis("k", k)
    x = a.at(ak.var, am.var) if turned else a.at(am.var, ak.var)
    w = b.at(an.var, ak.var) if turned else b.at(ak.var, an.var)
    return Contraction(axis("b", 1), am, an, ak, x, w, dtype, _summed_in(dtype), (Store(y, (am.var, an.var), Hole("acc", _summed_in(dtype))),))


def _batched(dtype: DType) -> Contraction:
    """exp(a[b, m, k]) * (b[b, k, n] / 2 + 1), a residual, an activation, and a transposed store."""
    images, m, n, k = (Var(name, 1) for name in ("images", "rows", "columns", "depth"))
    a, b = Tensor("a", dtype, (images, m, k)), Tensor("b", dtype, (images, k, n))
    y, r = Tensor("y", _result(dtype), (images, n, m)), Tensor("residual", _result(dtype), (images, n, m))
    ab, am, an, ak = axis("b", images), axis("m", m), axis("n", n), axis("k", k)
    index, total = (ab.var, an.var, am.var), _summed_in(dtype)
    value = activated(call("add", Hole("acc", total), r.at(*index)), total)
    return Contraction(ab, am, an, ak, raised(a.at(ab.var, am.var, ak.var), dtype), shifted(b.at(ab.var, ak.var, an.var), dtype), dtype,
                       total, (Store(y, index, value),))


def _scaled(dtype: DType) -> Contraction:
    """max(a * s[k] + t[k] + 1, 0) * b, a bias, a residual, an activation: all accesses wide."""
    task = _product(dtype, 8)
    m, n, k = task.m, task.n, task.k
    s, t = Tensor("scales", dtype, (k.extent,)), Tensor("shifts", dtype, (k.extent,))
    bias, r = Tensor("bias", _result(dtype), (n.extent,)), Tensor("residual", _result(dtype), (m.extent, n.extent))
    value = call("add", call("mul", task.a, s.at(k.var)), call("add", t.at(k.var), constant(1, dtype)))
    total = task.accumulate
    out = activated(call("add", call("add", Hole("acc", total), bias.at(n.var)), r.at(m.var, n.var)), total)
    return replace(task, a=activated(value, dtype), stores=(replace(task.stores[0], value=out),))


def _convolution(dtype: DType, last: bool, fused: bool) -> Contraction:
    """3 x 3 with padding; channels last: 8 channels, wide. The prologue is computed inside of the padding."""
    images, height, width, out = (Var(name, 1) for name in ("images", "height", "width", "columns"))
    channels = 8 if last else 3
    if last:
        out = Var("columns", 1, None, 8)
    x = Tensor("a", dtype, (images, height, width, channels) if last else (images, channels, height, width))
    w = Tensor("b", dtype, (3, 3, channels, out) if last else (out, channels, 3, 3), constant=True)
    op = Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=last)
    shape = op.infer([TensorType(x.dtype, x.shape), TensorType(w.dtype, w.shape)])[0].shape
    task = op.task((x, w), (Tensor("y", dtype, shape),))
    assert isinstance(task, Contraction)
    if not fused:
        return task
    bias = Tensor("bias", dtype, (out,))
    total = call("add", Hole("acc", task.accumulate), bias.at(task.n.var))
    return replace(task, a=prologued(task.a, raised, dtype), stores=(replace(task.stores[0], value=activated(total, task.accumulate)),))


def _up(x: int, div: int) -> int:
    return -(-x // div) * div


def _product_points(shape: Callable[[Any], tuple[int, int, int, int]], div: int, batched: bool = False, turned: bool = False) -> Points:
    """One element, primes, primes with NaN, the tile, and one past the tile with a k that fills the ring and every part."""

    def at(m: int, n: int, k: int, data: str = "normal", images: int = 3) -> Point:
        batch = (("images", images if data == "normal" else 1),) if batched else ()
        return Point((*batch, ("rows", _up(m, div) if turned else m), ("columns", _up(n, div)), ("depth", _up(k, div))), data)

    def points(s: Any) -> tuple[Point, ...]:
        bm, bn, bk, tiles = shape(s)
        primes = (3 if bm <= 16 else 37, 53, 29)
        return (at(1, 1, 1, images=1), at(*primes), at(11 if bm <= 16 else 37, 53, 29, "special"), at(bm, bn, 2 * bk, images=1), at(bm + 1, bn + 1, tiles * bk + 1, images=1))

    return points


def _window_points(shape: Callable[[Any], tuple[int, int, int, int]], last: bool) -> Points:
    div = 8 if last else 1

    def points(s: Any) -> tuple[Point, ...]:
        bm, bn, _, _ = shape(s)
        return (point(images=1, height=1, width=1, columns=div), point(images=2, height=7, width=5, columns=_up(19, div)),
                point("special", images=1, height=5, width=7, columns=_up(5, div)),
                point(images=1, height=1, width=bm + 1, columns=_up(bn + 1, div)))

    return points


def _tiled(s: Any) -> tuple[int, int, int, int]:
    """(bm, bn, bk, k tiles that go around the ring and give every part something)."""
    return s.bm, s.bn, s.bk, s.stages + 2 if s.split == 1 else 3 * s.split


def _few_rows(together: bool) -> Callable[[Any], tuple[int, int, int, int]]:
    def shape(s: Any) -> tuple[int, int, int, int]:
        bk, bn = s.tile(together)
        return s.bm, bn, bk, 2 * s.split + 1

    return shape


def _contractions(template: Template, dtype: DType, precision: str = "native") -> list[Subject]:
    gemv = template is matmul_gemv
    made = partial(Subject, template, dtype, precision=precision, tolerance=4e-3 if precision == "tf32" else 0.0, floor=1.0)
    plain, turned = _few_rows(False) if gemv else _tiled, _few_rows(True) if gemv else _tiled

    def task(t: Contraction) -> Contraction:
        return replace(t, precision=precision)

    out = [
        made("product", False, task(_product(dtype, 1)), _product_points(plain, 1)),
        made("product wide", False, task(_product(dtype, 8)), _product_points(plain, 8)),
        made("product turned", False, task(_product(dtype, 8, turned=True)), _product_points(turned, 8, turned=True)),
        made("product batched, fused", True, task(_batched(dtype)), _product_points(plain, 1, batched=True)),
        made("product wide, fused", True, task(_scaled(dtype)), _product_points(plain, 8)),
    ]
    if dtype.is_float and not gemv:  # windows are not for few rows; integers are convolved by another operator
        out += [made("convolution", False, task(_convolution(dtype, False, False)), _window_points(plain, False)),
                made("convolution, fused", True, task(_convolution(dtype, True, True)), _window_points(plain, True))]
    return out


def long_points(subject: Subject) -> tuple[Point, ...]:
    """k up to 16384 for the float32 products, against a sequential chain; random and positive data."""
    if subject.fused or not subject.kind.startswith("product") or (subject.operand, subject.precision) != (F32, "native"):
        return ()
    rows_ = 8 if subject.template is matmul_gemv else 16
    return tuple(Point((("rows", rows_), ("columns", 24), ("depth", k)), data, chain=True) for k in LONG for data in ("normal", "positive"))


# ---- attention -----------------------------------------------------------------------------------------------------------


def _attention(dtype: DType, heads: tuple[int, int], causal: bool, fused: bool) -> Attention:
    m, j, (k, n) = Var("rows", 1), Var("keys", 1), heads
    q, key, v = Tensor("q", dtype, (2, 4, m, k)), Tensor("key", dtype, (2, 2, j, k)), Tensor("v", dtype, (2, 2, j, n))
    op = AttentionOp(k**-0.5, causal)
    if not fused:
        return op.task((q, key, v), (Tensor("y", dtype, (2, 4, m, n)),))
    bias = Tensor("bias", dtype, (2, 4, m, j))
    task = op.task((q, key, v, bias), (Tensor("out", dtype, (2, 4, m, n)),))
    y, r = Tensor("y", dtype, (2, m, 4 * n)), Tensor("residual", dtype, (2, m, 4 * n))
    index: tuple[Index, ...] = (task.batch.var // 4, task.m.var, task.batch.var % 4 * n + task.n.var)
    value = activated(call("add", Hole("acc", F32), r.at(*index)), F32)
    return replace(task, q=prologued(task.q, shifted, dtype), key=prologued(task.key, shifted, dtype), stores=(Store(y, index, value),))


def _attention_points(s: Any) -> tuple[Point, ...]:
    around = s.bj * (s.stages + 1) + 1  # keys that go around the ring; causal rows see them only if there are as many
    return (point(rows=1, keys=1), point(rows=37, keys=53), point("special", rows=19, keys=37), point(rows=s.bm, keys=s.bj),
            point(rows=s.bm + 1, keys=around), point(rows=around, keys=around))


def _attentions(dtype: DType) -> list[Subject]:
    made = partial(Subject, attention, dtype, points=_attention_points)
    return [made("heads of 16", False, _attention(dtype, (16, 16), False, False)),
            made("odd heads, causal", False, _attention(dtype, (5, 3), True, False)),
            made("wide heads", False, _attention(dtype, (80, 96), False, False)),
            made("bias, causal, fused", True, _attention(dtype, (16, 24), True, True))]


# ---- rows ----------------------------------------------------------------------------------------------------------------

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
        found = (*outer, ("rows", _up(r, by_row)))
        return Point((*found, ("columns", min(_up(c, by_column), bound or _up(c, 8)))) if bound != 1 else found, data)

    def points(s: Any) -> tuple[Point, ...]:
        most = bound or s.step + 1
        prime = max(p for p in (1, 3, 13, 61, 251, 1021) if p <= most)
        return (at(1, 1), at(7, min(37, prime)), at(5, prime, "special"), at(2, most), at(s.block_rows + 1, min(3, most)))

    return points


def _row_subjects(dtype: DType) -> list[Subject]:
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


# ---- maps ----------------------------------------------------------------------------------------------------------------


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
        return (point(images=1, height=div, width=div), point(images=3, height=_up(37, div), width=_up(53, div)),
                point("special", images=2, height=_up(13, div), width=_up(29, div)), point(images=1, height=_up(s.i, div), width=_up(s.j, div)),
                point(images=1, height=_up(s.i + 1, div), width=_up(s.j + 1, div)))

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
        return (point(rows=1, columns=div), point(rows=37, columns=_up(53, div)), point("special", rows=5, columns=_up(13, div)),
                point(rows=1, columns=_up(tile, div)), point(rows=1, columns=_up(tile + 1, div)), point(rows=3, columns=_up(tile + 1, div)))

    return points


def _maps(dtype: DType) -> list[Subject]:
    turn, flat = partial(Subject, transpose, dtype), partial(Subject, elementwise, dtype)
    return [turn("turn", False, _turned_map(dtype, 1, False), _turn_points(1)), turn("turn wide", False, _turned_map(dtype, 8, False), _turn_points(8)),
            turn("turn, fused", True, _turned_map(dtype, 1, True), _turn_points(1)),
            turn("turn wide, fused", True, _turned_map(dtype, 8, True), _turn_points(8)),
            flat("flat", False, _flat(dtype, 1), _flat_points(1)), flat("flat wide", False, _flat(dtype, 8), _flat_points(8)),
            flat("mixed, fused", True, _mixed(dtype), _flat_points(1))]


def subjects() -> tuple[Subject, ...]:
    """All of them; labels are unique."""
    out: list[Subject] = []
    for dtype in (F16, BF16, F32):
        out += _contractions(matmul_mma, dtype)
    out += _contractions(matmul_mma, F32, "tf32")
    for dtype in (F32, F16, F64, I8):
        out += _contractions(matmul_simt, dtype)
    for dtype in (F32, F16, BF16, F64):
        out += _contractions(matmul_gemv, dtype)
    for dtype in (F16, BF16, F32):
        out += _attentions(dtype)
    for dtype in (F32, F16, F64):
        out += _row_subjects(dtype)
    for dtype in (F32, F16, I8, F64):
        out += _maps(dtype)
    return tuple(out)
