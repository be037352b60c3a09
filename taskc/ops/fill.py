"""Tensors made from nothing but numbers and dims: ConstantOfShape, Range, EyeLike, Shape, Size, and known contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir import value
from taskc.ir.arithmetic import ceildiv, maximum
from taskc.ir.convert import values_of
from taskc.ir.dtype import F32, I32, I64, DType
from taskc.ir.expr import Expr, Index, prod
from taskc.ir.graph import Array, Op, TensorType
from taskc.ir.positions import ravel
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Dim, Number, Tensor, Value, call, choose
from taskc.ops.known import known, known_indices, plain_shape
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Fill(Op):
    """out[…] = number, for a tensor of `shape`."""

    number: float | int | bool
    dtype: DType
    shape: tuple[Dim, ...]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        return (np.full(plain_shape(self.shape), self.number, self.dtype.compute.numpy),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(self.shape))
        return Map(axes, (Store(outs[0], tuple(a.var for a in axes), Const(self.number, self.dtype.compute)),))


@dataclass(frozen=True)
class SymbolicTensor(Op):
    """A small integer tensor whose elements are index expressions over the model's symbols (row-major `values`)."""

    values: tuple[Index, ...]
    shape: tuple[int, ...]
    dtype: DType

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        if any(isinstance(v, Expr) for v in self.values):
            out = np.empty(len(self.values), object)
            out[:] = self.values
            return (out.reshape(self.shape),)
        return (np.array(self.values, self.dtype.numpy).reshape(self.shape),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(self.shape))
        index = tuple(a.var for a in axes)
        if not self.values:
            return Map(axes, (Store(outs[0], index, Const(0, self.dtype)),))
        position = ravel(index, self.shape)
        chosen: Value = Number(self.values[-1], self.dtype)
        for k in range(len(self.values) - 2, -1, -1):
            chosen = choose(k + 1 - position, Number(self.values[k], self.dtype), chosen)
        return Map(axes, (Store(outs[0], index, chosen),))


@dataclass(frozen=True)
class Range(Op):
    """out[i] = start + i * step, for `size` elements. Integers may be index expressions; floats are numbers."""

    start: Index | float
    step: Index | float
    size: Dim
    dtype: DType

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, (self.size,)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        (size,) = plain_shape((self.size,))
        if isinstance(self.start, Expr) or isinstance(self.step, Expr):
            out = np.empty(size, object)
            out[:] = [self.start + i * self.step for i in range(size)]  # type: ignore[operator]
            return (out,)
        kind = self.dtype.compute.numpy.type
        return (kind(self.start) + np.arange(size).astype(kind) * kind(self.step),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        i, kind = axis("i0", self.size), self.dtype.compute
        if isinstance(self.start, float) or isinstance(self.step, float):
            scaled = call("mul", value.Cast(Number(i.var, I64), kind), Const(self.step if isinstance(self.step, (int, float)) else 0, kind))
            stored = call("add", Const(self.start if isinstance(self.start, (int, float)) else 0, kind), scaled)
        else:
            stored = Number(self.start + i.var * self.step, kind)
        return Map((i,), (Store(outs[0], (i.var,), stored),))


@dataclass(frozen=True)
class Eye(Op):
    """out[i, j] = 1 where j - i = k, else 0."""

    k: int
    dtype: DType
    shape: tuple[Dim, Dim]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        rows, columns = plain_shape(self.shape)
        return (np.eye(rows, columns, self.k, self.dtype.compute.numpy),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        i, j = axis("i0", self.shape[0]), axis("i1", self.shape[1])
        same = call("eq", Number(j.var - i.var, I64), Const(self.k, I64))
        return Map((i, j), (Store(outs[0], (i.var, j.var), value.Cast(same, self.dtype)),))


def _checked_shape(r: Reading, shape: tuple[Index, ...]) -> tuple[Index, ...]:
    if any(isinstance(d, int) and d < 0 for d in shape):
        r.bad(f"its shape {list(shape)} has a negative dim")
    return shape


@onnx_reader("ConstantOfShape")
def _read_constant_of_shape(r: Reading) -> str:
    shape = _checked_shape(r, known_indices(r, 0, "shape"))
    if not r.has("value"):
        return r.add(Fill(0.0, F32, shape))
    array, dtype = r.tensor("value"), r.tensor_dtype("value")
    if array.size != 1:
        r.bad(f"its value has {array.size} elements instead of one")
    return r.add(Fill(values_of(array, dtype).ravel()[0].item(), dtype, shape))


@onnx_reader("Shape")
def _read_shape(r: Reading) -> str:
    shape = r.type(r.inputs[0]).shape
    start, end = r.int_("start", 0), r.int_("end", len(shape))
    return _dims(r, shape[slice(start, end)])


@onnx_reader("Size")
def _read_size(r: Reading) -> str:
    out = np.empty((), object)
    out[()] = prod(r.type(r.inputs[0]).shape)
    return r.indices(out, I64)


def _dims(r: Reading, dims: tuple[Dim, ...]) -> str:
    out = np.empty(len(dims), object)
    out[:] = dims
    return r.indices(out, I64)


@onnx_reader("Range")
def _read_range(r: Reading) -> str:
    dtype = r.type(r.inputs[0]).dtype
    parts = [known(r, i, what) for i, what in enumerate(("start", "limit", "delta"))]
    if any(p.size != 1 for p in parts):
        r.bad("its inputs must be scalars")
    start, limit, step = (p.ravel().tolist()[0] for p in parts)
    if isinstance(step, Expr):
        r.unsupported("its step depends on symbolic dims; fix them with --dim NAME=SIZE")
    if step == 0 or step != step:
        r.bad(f"its step is {step}")
    if any(isinstance(v, float) for v in (start, limit, step)):
        if not np.isfinite([start, limit, step]).all():
            r.bad("its bounds are not finite")
        size = max(0, int(np.ceil((limit - start) / step)))
    else:
        size = maximum(ceildiv(limit - start, step) if step > 0 else ceildiv(start - limit, -step), 0)
    return r.add(Range(start, step, size, dtype))


@onnx_reader("EyeLike")
def _read_eye_like(r: Reading) -> str:
    t = r.type(r.inputs[0])
    if t.rank != 2:
        r.bad(f"its input {t} is not a matrix")
    return r.add(Eye(r.int_("k", 0), r.dtype("dtype", t.dtype), (t.shape[0], t.shape[1])))


@examples
def _examples() -> list[Example]:
    return [
        Example(Fill(2.5, F32, (3, 1, 5)), (), "three dims"),
        Example(Fill(True, I32, ()), (), "rank 0"),
        Example(SymbolicTensor((3, -1, 7, 2**40), (2, 2), I64), (), "four numbers"),
        Example(SymbolicTensor((5,), (), I64), (), "rank 0"),
        Example(Range(7, -3, 4, I64), (), "downwards"),
        Example(Range(0.25, 0.5, 5, F32), (), "floats"),
        Example(Eye(-1, F32, (3, 5)), (), "below the diagonal"),
    ]
