"""Normalisations over rows: layer, root-mean-square, group, instance, mean-variance, Lp. Variance takes two passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.dtype import DType
from taskc.ir.expr import prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.positions import unravel
from taskc.ir.proofs import exact_div
from taskc.ir.task import Rows, Statistic, Store, axis
from taskc.ir.value import Const, Dim, Hole, Tensor, Value, call
from taskc.ops.broadcast import broadcast_load, broadcast_shapes
from taskc.ops.constants import apply, widened
from taskc.ops.known import normal_axes as axes_of
from taskc.ops.known import normal_axis
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.rows import mean_of, normal_axes, split_rows


def _centred(dtype: DType) -> Value:
    return call("sub", Hole("x", dtype), Hole("s0", dtype))


def _squared(x: Value) -> Value:
    return call("mul", x, x)


def _variance(columns: Dim, dtype: DType, epsilon: float) -> tuple[Statistic, ...]:
    """s0: the mean; s1: 1 / sqrt(variance + epsilon)."""
    spread = call("add", mean_of(columns, dtype), Const(epsilon, dtype))
    return (Statistic("sum", Hole("x", dtype), mean_of(columns, dtype)),
            Statistic("sum", _squared(_centred(dtype)), call("rsqrt", spread)))


@dataclass(frozen=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` (not negative) on.

    Scale and bias are optional and broadcast to x. Without `center` nothing is subtracted: root-mean-square norm."""

    axis: int
    epsilon: float
    center: bool = True

    @property
    def name(self) -> str:
        return "layer_norm" if self.center else "rms_norm"

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or not x.dtype.is_float or not 0 <= self.axis < x.rank:
            raise OpError(f"{self.name} over the axes from {self.axis} on does not fit {x}")
        for t in ins[1:]:
            if t is not None and (t.dtype != x.dtype or broadcast_shapes(x.shape, t.shape) != x.shape):
                raise OpError(f"{t} does not broadcast to the input {x}")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x = np.asarray(ins[0]).dtype, widened(ins[0])
        axes = tuple(range(self.axis, x.ndim))
        if self.center:
            x = x - np.mean(x, axis=axes, keepdims=True)
        out = x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + x.dtype.type(self.epsilon))
        if len(ins) > 1 and ins[1] is not None:
            out = out * widened(ins[1])
        if len(ins) > 2 and ins[2] is not None:
            out = out + widened(ins[2])
        return (out.astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Rows:
        x, scale, bias = (*ins, None, None)[:3]
        assert x is not None
        s, dtype = split_rows(x.shape, range(self.axis, len(x.shape))), x.dtype.compute
        if self.center:
            statistics = _variance(s.column.extent, dtype, self.epsilon)
            out = call("mul", _centred(dtype), Hole("s1", dtype))
        else:
            square = call("add", mean_of(s.column.extent, dtype), Const(self.epsilon, dtype))
            statistics = (Statistic("sum", _squared(Hole("x", dtype)), call("rsqrt", square)),)
            out = call("mul", Hole("x", dtype), Hole("s0", dtype))
        if scale is not None:
            out = call("mul", out, broadcast_load(scale, s.index))
        if bias is not None:
            out = call("add", out, broadcast_load(bias, s.index))
        return Rows(s.row, s.column, x.at(*s.index), statistics, element=(Store(outs[0], s.index, out),))


@dataclass(frozen=True)
class GroupNorm(Op):
    """x[n, c, …] normalised over each of `groups` blocks of channels and all of space; channels last: x[n, …, c].

    Scale and bias: [c], or [groups] (operator set 18). Instance norm has as many groups as channels."""

    groups: int
    epsilon: float
    channels_last: bool = False

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x, scale, bias = ins
        if x is None or scale is None or bias is None or x.rank < 2 or not x.dtype.is_float:
            raise OpError(f"group norm takes floats [n, c, …], a scale and a bias, got {x}")
        c = x.shape[-1 if self.channels_last else 1]
        if self.groups < 1 or exact_div(c, self.groups) is None:
            raise OpError(f"{c} channels do not divide into {self.groups} groups")
        for t in (scale, bias):
            if t.dtype != x.dtype or t.shape not in ((c,), (self.groups,)):
                raise OpError(f"scale or bias {t} has neither {c} channels nor {self.groups} groups of {x.dtype}")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x = np.asarray(ins[0]).dtype, widened(ins[0])
        if self.channels_last:
            x = np.moveaxis(x, -1, 1)
        n, c = x.shape[:2]
        rows = x.reshape(n, self.groups, -1)
        rows = rows - np.mean(rows, axis=2, keepdims=True)
        rows = rows / np.sqrt(np.mean(rows * rows, axis=2, keepdims=True) + x.dtype.type(self.epsilon))
        scale, bias = (np.repeat(v, c // v.shape[0]).reshape(c, *(1,) * (x.ndim - 2)) for v in map(widened, ins[1:]))
        out = (rows.reshape(x.shape) * scale + bias).astype(dtype)
        return (np.ascontiguousarray(np.moveaxis(out, 1, -1)) if self.channels_last else out,)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Rows:
        x, scale, bias = ins
        assert x is not None and scale is not None and bias is not None
        n, *rest = x.shape
        c, space = (rest[-1], rest[:-1]) if self.channels_last else (rest[0], rest[1:])
        per, dtype = exact_div(c, self.groups), x.dtype.compute
        assert per is not None
        row, column = axis("row", prod((n, self.groups))), axis("column", prod((per, *space)))
        image, group = unravel(row.var, (n, self.groups))
        if self.channels_last:  # columns in the order of memory
            *at, inner = unravel(column.var, (*space, per))
        else:
            inner, *at = unravel(column.var, (per, *space))
        channel = group * per + inner
        index = (image, *at, channel) if self.channels_last else (image, channel, *at)
        out = call("mul", _centred(dtype), Hole("s1", dtype))
        for function, t in (("mul", scale), ("add", bias)):
            out = call(function, out, t.at(channel if t.shape == (c,) else group))
        statistics = _variance(column.extent, dtype, self.epsilon)
        return Rows(row, column, x.at(*index), statistics, element=(Store(outs[0], index, out),))


@dataclass(frozen=True)
class MeanVarianceNorm(Op):
    """(x - mean) / (standard deviation + 1e-9) over `axes` (ascending, not negative)."""

    axes: tuple[int, ...]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or not x.dtype.is_float or normal_axes(self.axes, x.rank) != self.axes:
            raise OpError(f"mean-variance norm over axes {list(self.axes)} does not fit {x}")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x = np.asarray(ins[0]).dtype, widened(ins[0])
        x = x - np.mean(x, axis=self.axes, keepdims=True)
        return ((x / (np.sqrt(np.mean(x * x, axis=self.axes, keepdims=True)) + x.dtype.type(1e-9))).astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Rows:
        x = ins[0]
        assert x is not None
        s, dtype = split_rows(x.shape, self.axes), x.dtype.compute
        mean = mean_of(s.column.extent, dtype)
        deviation = call("add", call("sqrt", mean), Const(1e-9, dtype))
        statistics = (Statistic("sum", Hole("x", dtype), mean), Statistic("sum", _squared(_centred(dtype)), deviation))
        out = call("div", _centred(dtype), Hole("s1", dtype))
        return Rows(s.row, s.column, x.at(*s.index), statistics, element=(Store(outs[0], s.index, out),))


@dataclass(frozen=True)
class LpNorm(Op):
    """x / its p-norm along `axis`, p in 1, 2; a row of zeros stays zero."""

    axis: int
    p: int

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or not x.dtype.is_float or not 0 <= self.axis < x.rank or self.p not in (1, 2):
            raise OpError(f"Lp norm with p = {self.p} along axis {self.axis} does not fit {x}")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x = np.asarray(ins[0]).dtype, widened(ins[0])
        size = np.sum(np.abs(x) if self.p == 1 else x * x, axis=self.axis, keepdims=True)
        size = size if self.p == 1 else np.sqrt(size)
        return ((x / np.where(size == 0, np.ones_like(size), size)).astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Rows:
        x = ins[0]
        assert x is not None
        s, dtype = split_rows(x.shape, (self.axis,)), x.dtype.compute
        h = Hole("x", dtype)
        size = Hole("s", dtype) if self.p == 1 else call("sqrt", Hole("s", dtype))
        divisor = call("where", call("eq", size, Const(0.0, dtype)), Const(1.0, dtype), size)
        statistic = Statistic("sum", call("abs", h) if self.p == 1 else _squared(h), divisor)
        out = call("div", h, Hole("s0", dtype))
        return Rows(s.row, s.column, x.at(*s.index), (statistic,), element=(Store(outs[0], s.index, out),))


def _axis(r: Reading, default: int) -> int:
    return normal_axis(r, r.int_("axis", default), r.type(r.inputs[0]).rank)


def _one_output(r: Reading) -> None:
    if r.output_count > 1:
        r.unsupported("outputs after the first (statistics of training)")


@onnx_reader("LayerNormalization")
def _read_layer_norm(r: Reading) -> str:
    _one_output(r)
    return r.add(LayerNorm(_axis(r, -1), r.float_("epsilon", 1e-5)), *r.inputs)


@onnx_reader("RMSNormalization")
@onnx_reader("SimplifiedLayerNormalization")
@onnx_reader("SimplifiedLayerNormalization", domain="com.microsoft")
def _read_rms_norm(r: Reading) -> str:
    _one_output(r)
    return r.add(LayerNorm(_axis(r, -1), r.float_("epsilon", 1e-5), center=False), *r.inputs)


@onnx_reader("SkipLayerNormalization", domain="com.microsoft")
def _read_skip_layer_norm(r: Reading) -> str:
    """layer_norm(input + skip + bias) over the last axis; inputs are input, skip, gamma, beta, bias."""
    _one_output(r)
    total = apply(r, "add", r.inputs[0], r.inputs[1])
    if r.has_input(4):
        total = apply(r, "add", total, r.inputs[4])
    return r.add(LayerNorm(r.type(total).rank - 1, r.float_("epsilon", 1e-12)), total, *r.inputs[2:4])


@onnx_reader("InstanceNormalization")
def _read_instance_norm(r: Reading) -> str:
    x = r.type(r.inputs[0])
    channels = x.shape[1] if x.rank > 2 else r.bad(f"input {x} is not [n, c, …]")
    if not isinstance(channels, int):
        r.unsupported(f"a symbolic number of channels ({channels})")
    return r.add(GroupNorm(channels, r.float_("epsilon", 1e-5)), *r.inputs)


@onnx_reader("GroupNormalization")
def _read_group_norm(r: Reading) -> str:
    return r.add(GroupNorm(r.int_("num_groups"), r.float_("epsilon", 1e-5)), *r.inputs)


@onnx_reader("MeanVarianceNormalization")
def _read_mean_variance(r: Reading) -> str:
    axes = axes_of(r, r.ints("axes", (0, 2, 3)), r.type(r.inputs[0]).rank)
    return r.add(MeanVarianceNorm(tuple(sorted(axes))), r.inputs[0])


@onnx_reader("LpNormalization")
def _read_lp_norm(r: Reading) -> str:
    return r.add(LpNorm(_axis(r, -1), r.int_("p", 2)), r.inputs[0])


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(31)

    def v(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 3 + 2).astype(np.float32)

    x, image = v(3, 5, 7), v(2, 6, 3, 5)
    zeros: Array = np.array(x)
    zeros[1, 2] = 0
    return [
        Example(LayerNorm(2, 1e-5), (x, v(7), v(7)), "scale and bias"),
        Example(LayerNorm(1, 1e-5), (x + 20, v(5, 7), None), "two axes, away from zero"),
        Example(LayerNorm(2, 1e-5), (x.astype(np.float16), v(7).astype(np.float16), v(7).astype(np.float16)),
                "float16"),
        Example(LayerNorm(2, 1e-6, center=False), (x, v(7)), "root mean square"),
        Example(GroupNorm(3, 1e-5), (image, v(6), v(6)), "a scale a channel"),
        Example(GroupNorm(3, 1e-5, channels_last=True), (np.array(np.moveaxis(image, 1, 3)), v(6), v(6)),
                "channels last"),
        Example(GroupNorm(2, 1e-5), (image, v(2), v(2)), "a scale a group"),
        Example(GroupNorm(6, 1e-3), (image, v(6), v(6)), "instance"),
        Example(MeanVarianceNorm((0, 2, 3)), (image,), "batch and space"),
        Example(LpNorm(2, 2), (zeros,), "a row of zeros"),
        Example(LpNorm(1, 1), (x,), "first norm"),
    ]
