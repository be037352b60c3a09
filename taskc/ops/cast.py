"""Cast and CastLike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir import value
from taskc.ir.convert import convert
from taskc.ir.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from taskc.ir.expr import Expr
from taskc.ir.facts import bounds
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Tensor
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Cast(Op):
    """out = input converted to `to`; see `taskc.ir.convert` for what that means."""

    to: DType

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None:
            raise OpError("a cast needs its input")
        return (TensorType(self.to, x.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x = np.asarray(ins[0])
        return (_cast_expressions(x, self.to) if x.dtype == object else convert(x, self.to),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        return Map(axes, (Store(outs[0], index, value.Cast(x.at(*index), self.to)),))


def _cast_expressions(x: Array, to: DType) -> Array:
    """Dims stay what they are as 32- or 64-bit integers; as bools, where their sign is known."""
    if to in (I32, I64, U32, U64):
        return x
    if to != BOOL:
        raise OpError(f"symbolic dims as {to}")
    for v in x.flat:
        lo = bounds(v)[0]
        if isinstance(v, Expr) and (lo is None or lo <= 0):
            raise OpError(f"{v} != 0 is not decided for all sizes")
    return np.array([bool(v) for v in x.flat], bool).reshape(x.shape)


_OLD_NAMES = {"FLOAT": F32, "DOUBLE": F64, "FLOAT16": F16, "INT8": I8, "INT16": I16, "INT32": I32, "INT64": I64,
              "UINT8": U8, "UINT16": U16, "UINT32": U32, "UINT64": U64, "BOOL": BOOL}


def _cast(r: Reading, to: DType) -> str:
    x = r.inputs[0]
    return x if r.type(x).dtype == to else r.add(Cast(to), x)


@onnx_reader("Cast", since=6)
def _read_cast(r: Reading) -> str:
    return _cast(r, r.dtype("to"))


@onnx_reader("Cast", since=1)
def _read_cast_1(r: Reading) -> str:
    """Before opset 6 the type is named by a string."""
    name = r.string("to").upper()
    if name not in _OLD_NAMES:
        r.unsupported(f"a cast to {name}")
    return _cast(r, _OLD_NAMES[name])


@onnx_reader("CastLike")
def _read_cast_like(r: Reading) -> str:
    return _cast(r, r.type(r.inputs[1]).dtype)


@examples
def _examples() -> list[Example]:
    x = np.array([[np.nan, np.inf, -np.inf], [2.75, -2.75, 3e9], [65519.9, 1e-8, 0.0]], np.float32)
    i = np.array([2**31 + 5, -1, 255, 256, 0], np.int64)
    return [
        *(Example(Cast(to), (x,), f"f32 to {to}") for to in (F16, BF16, F64, I32, I64, BOOL)),
        *(Example(Cast(to), (i,), f"i64 to {to}") for to in (F16, F32, I32, U8, I8, BOOL)),
        Example(Cast(F32), (np.array([True, False]),), "bool to f32"),
    ]
