"""Linear quantisation to 8- and 16-bit integers and back, with one scale or one along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.dtype import F32, I8, I16, I32, U8, U16, DType
from taskc.ir.expr import Index
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Axis, Map, Store, axis
from taskc.ir.value import Cast, Const, Dim, Load, Tensor, call
from taskc.ops.constants import widened
from taskc.ops.registry import Example, Reading, examples, onnx_reader

TARGETS = (U8, I8, U16, I16)


def _fits(x: TensorType | None, scale: TensorType | None, zero: TensorType | None, axis_: int) -> TensorType:
    """x, after a check that scale and zero point hold one value, or one a position of the axis."""
    if x is None or scale is None:
        raise OpError("quantisation takes an input and a scale")
    for t in (scale, zero):
        if t is not None and t.shape not in ((), (1,)) and (not 0 <= axis_ < x.rank or t.shape != (x.shape[axis_],)):
            raise OpError(f"scale or zero point {t} is neither one value nor one a position of axis {axis_} of {x}")
    if zero is not None and zero.shape != scale.shape and not {zero.shape, scale.shape} <= {(), (1,)}:  # both are one value
        raise OpError(f"zero point {zero} and scale {scale} differ in shape")
    return x


def _along(t: Tensor, index: Sequence[Index], axis_: int) -> Load:
    """The entry of a scale or zero point for the element at `index`."""
    if t.shape == ():
        return t.at()
    return t.at(index[axis_] if t.shape != (1,) else 0)


def _reshaped(a: Array, rank: int, axis_: int) -> Array:
    return a.reshape([-1 if d == axis_ else 1 for d in range(rank)]) if a.size > 1 else a.reshape(())


@dataclass(frozen=True)
class Quantize(Op):
    """clamp(round(x / scale) + zero) as `to`; halves round to even. The zero point may be absent: 0."""

    to: DType
    axis: int = 1

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x, scale, zero = (*ins, None)[:3]
        x = _fits(x, scale, zero, self.axis)
        if self.to not in TARGETS or not x.dtype.is_float or (zero is not None and zero.dtype != self.to):
            raise OpError(f"quantisation of {x} to {self.to} with zero point {zero}")
        if scale is not None and scale.dtype != x.dtype:
            raise OpError(f"the scale is {scale.dtype}, the input {x.dtype}")
        return (TensorType(self.to, x.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x, scale = widened(ins[0]), widened(ins[1])
        info = np.iinfo(self.to.numpy_name)
        with np.errstate(all="ignore"):
            out = np.round(x / _reshaped(scale, x.ndim, self.axis))
        if len(ins) > 2 and ins[2] is not None:
            out = out + _reshaped(ins[2], x.ndim, self.axis).astype(x.dtype)
        return (np.clip(out, info.min, info.max).astype(self.to.numpy),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        x, scale, zero = (*ins, None)[:3]
        assert x is not None and scale is not None
        axes, dtype, info = _axes(x.shape), x.dtype.compute, np.iinfo(self.to.numpy_name)
        index = tuple(a.var for a in axes)
        value = call("round", call("div", x.at(*index), _along(scale, index, self.axis)))
        if zero is not None:
            value = call("add", value, Cast(_along(zero, index, self.axis), dtype))
        value = call("max", call("min", value, Const(float(info.max), dtype)), Const(float(info.min), dtype))
        return Map(axes, (Store(outs[0], index, Cast(value, self.to)),))


@dataclass(frozen=True)
class Dequantize(Op):
    """(x - zero) * scale in the scale's type. The zero point may be absent: 0."""

    axis: int = 1

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x, scale, zero = (*ins, None)[:3]
        x = _fits(x, scale, zero, self.axis)
        wrong_zero = zero is not None and zero.dtype != x.dtype
        if x.dtype not in (*TARGETS, I32) or scale is None or not scale.dtype.is_float or wrong_zero:
            raise OpError(f"dequantisation of {x} with scale {scale} and zero point {zero}")
        return (TensorType(scale.dtype, x.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        whole, given, zero = (*ins, None)[:3]
        x, scale = np.asarray(whole).astype(np.int64), widened(given)
        if zero is not None:
            x = x - _reshaped(zero, x.ndim, self.axis).astype(np.int64)
        return ((x.astype(scale.dtype) * _reshaped(scale, x.ndim, self.axis)).astype(np.asarray(given).dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        x, scale, zero = (*ins, None)[:3]
        assert x is not None and scale is not None
        axes = _axes(x.shape)
        index = tuple(a.var for a in axes)
        value = Cast(x.at(*index), I32)
        if zero is not None:
            value = call("sub", value, Cast(_along(zero, index, self.axis), I32))
        out = call("mul", Cast(value, scale.dtype.compute), _along(scale, index, self.axis))
        return Map(axes, (Store(outs[0], index, out),))


def _axes(shape: Sequence[Dim]) -> tuple[Axis, ...]:
    return tuple(axis(f"i{d}", e) for d, e in enumerate(shape))


def _read_axis(r: Reading) -> int:
    rank, given = r.type(r.inputs[0]).rank, r.int_("axis", 1)
    scale = r.type(r.inputs[1])
    if r.int_("block_size", 0) or scale.rank > 1:
        r.unsupported(f"blocks that share a scale {scale}; one scale, or one along an axis, is handled")
    if scale.rank == 1 and scale.shape != (1,) and not -rank <= given < rank:
        r.bad(f"axis {given} does not fit rank {rank}")
    return given % rank if rank else 0


@onnx_reader("QuantizeLinear")
def _read_quantize(r: Reading) -> str:
    axis_, to = _read_axis(r), r.type(r.inputs[2]).dtype if r.has_input(2) else _to(r)
    if to not in TARGETS:
        r.unsupported(f"quantisation to {to}; {', '.join(map(str, TARGETS))} are handled")
    if r.type(r.inputs[0]).dtype != r.type(r.inputs[1]).dtype:
        r.unsupported(f"a scale of {r.type(r.inputs[1]).dtype} for an input of {r.type(r.inputs[0]).dtype}")
    return r.add(Quantize(to, axis_), *r.inputs)


def _to(r: Reading) -> DType:
    """The output type by the attribute output_dtype of opset 21 (ONNX's numbers), unsigned bytes by default."""
    number = r.int_("output_dtype", 0)
    known = {0: U8, 2: U8, 3: I8, 4: U16, 5: I16}
    return known[number] if number in known else r.unsupported(f"output_dtype {number}")


@onnx_reader("DequantizeLinear")
def _read_dequantize(r: Reading) -> str:
    if r.type(r.inputs[1]).dtype not in (F32, *(() if r.opset < 19 else (r.type(r.inputs[1]).dtype,))):
        r.bad(f"a scale of {r.type(r.inputs[1]).dtype}")
    return r.add(Dequantize(_read_axis(r)), *r.inputs)


@onnx_reader("QLinearConv")
@onnx_reader("QLinearMatMul")
@onnx_reader("ConvInteger")
@onnx_reader("MatMulInteger")
def _refuse(r: Reading) -> str:
    r.unsupported(f"{r.op_type}; export with QuantizeLinear and DequantizeLinear around float operators")


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(61)
    x = (rng.standard_normal((3, 5, 4)) * 40).astype(np.float32)
    scale = (rng.random(5) + 0.1).astype(np.float32)
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300], np.float32)
    whole = rng.integers(-128, 128, (3, 5, 4)).astype(np.int8)
    zero = rng.integers(-9, 9, 5).astype(np.int8)
    return [
        Example(Quantize(I8, 1), (x, scale, zero), "one scale a channel"),
        Example(Quantize(U8), (ties, np.array(1, np.float32), np.array(3, np.uint8)), "ties, saturation"),
        Example(Quantize(I16, 0), (x.astype(np.float16), np.array([0.25], np.float16), None), "float16, no zero point"),
        Example(Dequantize(1), (whole, scale, zero), "one scale a channel"),
        Example(Dequantize(), (whole.astype(np.int32) * 1000, np.array(0.01, np.float32)), "int32"),
    ]
