"""Contractions and attention for the sweep: every operand order, narrow and wide, windows, and fused ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from taskc.ir.dtype import F32, F64, I8, I32, DType
from taskc.ir.expr import Index, Var
from taskc.ir.graph import TensorType
from taskc.ir.task import Attention, Contraction, Store, axis
from taskc.ir.value import Hole, Tensor, call
from taskc.ops.attention import Attention as AttentionOp
from taskc.ops.conv import Conv
from taskc.schedules import Template, attention, matmul_gemv
from tests.schedules.sweep_subject import Point, Points, Subject, activated, constant, point, prologued, raised, shifted, up

LONG = (64, 512, 1000, 4096, 16384)  # k of the accuracy check


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


def _product_points(shape: Callable[[Any], tuple[int, int, int, int]], div: int, batched: bool = False, turned: bool = False) -> Points:
    """One element, primes, primes with NaN, the tile, and one past the tile with a k that fills the ring and every part."""

    def at(m: int, n: int, k: int, data: str = "normal", images: int = 3) -> Point:
        batch = (("images", images if data == "normal" else 1),) if batched else ()
        return Point((*batch, ("rows", up(m, div) if turned else m), ("columns", up(n, div)), ("depth", up(k, div))), data)

    def points(s: Any) -> tuple[Point, ...]:
        bm, bn, bk, tiles = shape(s)
        primes = (3 if bm <= 16 else 37, 53, 29)
        return (at(1, 1, 1, images=1), at(*primes), at(11 if bm <= 16 else 37, 53, 29, "special"), at(bm, bn, 2 * bk, images=1), at(bm + 1, bn + 1, tiles * bk + 1, images=1))

    return points


def _window_points(shape: Callable[[Any], tuple[int, int, int, int]], last: bool) -> Points:
    div = 8 if last else 1

    def points(s: Any) -> tuple[Point, ...]:
        bm, bn, _, _ = shape(s)
        return (point(images=1, height=1, width=1, columns=div), point(images=2, height=7, width=5, columns=up(19, div)),
                point("special", images=1, height=5, width=7, columns=up(5, div)),
                point(images=1, height=1, width=bm + 1, columns=up(bn + 1, div)))

    return points


def _tiled(s: Any) -> tuple[int, int, int, int]:
    """(bm, bn, bk, k tiles that go around the ring and give every part something)."""
    return s.bm, s.bn, s.bk, s.stages + 2 if s.split == 1 else 3 * s.split


def _few_rows(together: bool) -> Callable[[Any], tuple[int, int, int, int]]:
    def shape(s: Any) -> tuple[int, int, int, int]:
        bk, bn = s.tile(together)
        return s.bm, bn, bk, 2 * s.split + 1

    return shape


def contractions(template: Template, dtype: DType, precision: str = "native") -> list[Subject]:
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


def attentions(dtype: DType) -> list[Subject]:
    made = partial(Subject, attention, dtype, points=_attention_points)
    return [made("heads of 16", False, _attention(dtype, (16, 16), False, False)),
            made("odd heads, causal", False, _attention(dtype, (5, 3), True, False)),
            made("wide heads", False, _attention(dtype, (80, 96), False, False)),
            made("bias, causal, fused", True, _attention(dtype, (16, 24), True, True))]
