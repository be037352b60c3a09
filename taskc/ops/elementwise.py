"""Elementwise operators: one scalar function over broadcast inputs. Their ONNX readers are in `arithmetic.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskc.ir.dtype import BF16, BOOL, F16, DType
from taskc.ir.functions import FUNCTIONS
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Tensor, call
from taskc.ops.broadcast import broadcast_load, broadcast_shapes
from taskc.ops.registry import Example, examples
from taskc.ops.symbolic import on_expressions


@dataclass(frozen=True)
class Elementwise(Op):
    """out[i] = function(inputs[i] …); the inputs broadcast. All inputs have one dtype (`where`: a bool and two alike).

    `to`: the inputs are floats of any types and the result has this one, so that float32 constants can stand beside 16-bit
    tensors without being rounded first."""

    function: str
    to: DType | None = None

    @property
    def name(self) -> str:
        return self.function

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        f = FUNCTIONS[self.function]
        given = [t for t in ins if t is not None]
        if len(given) != f.arity:
            raise OpError(f"{self.function} takes {f.arity} inputs, got {len(given)}")
        if self.to is not None:
            if not all(t.dtype.is_float for t in given):
                raise OpError(f"inputs are not all floats: {', '.join(str(t.dtype) for t in given)}")
            return (TensorType(self.to, broadcast_shapes(*(t.shape for t in given))),)
        alike = given[1:] if self.function == "where" else given
        if len({t.dtype for t in alike}) > 1:
            raise OpError(f"inputs have different dtypes: {', '.join(str(t.dtype) for t in alike)}")
        dtype = BOOL if f.result == "bool" else alike[-1].dtype
        return (TensorType(dtype, broadcast_shapes(*(t.shape for t in given))),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        arrays = [np.asarray(a) for a in ins if a is not None]
        if any(a.dtype == object for a in arrays):
            return (on_expressions(self.function, *arrays),)
        kept = arrays[-1].dtype if self.to is None else self._kept(arrays)
        wide = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]  # rounded once, when stored
        with np.errstate(all="ignore"):
            out = np.asarray(FUNCTIONS[self.function].meaning(*wide))
            return (out if FUNCTIONS[self.function].result == "bool" else out.astype(kept, copy=False),)

    def _kept(self, arrays: Sequence[Array]) -> np.dtype[Any]:
        """The result's NumPy type: `to`'s, bfloat16 values travelling as float32; float64 where a caller computes in it."""
        assert self.to is not None
        return np.dtype(np.float64 if any(a.dtype == np.float64 for a in arrays) else np.float32 if self.to == BF16 else self.to.numpy)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        value = call(self.function, *(broadcast_load(t, index) for t in ins if t is not None))
        return Map(axes, (Store(outs[0], index, value),))


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((3, 5, 7)).astype(np.float32)
    row = rng.standard_normal(7).astype(np.float32)
    inside = np.clip(x, -0.9, 0.9)
    i, j = np.array([7, -7, 9, 0], np.int64), np.array([2, 2, -4, 3], np.int64)
    hard = np.array([np.nan, -2, 3, -0.0, np.inf, -np.inf, 0.5, 1.5, 2.5], np.float32)
    b = np.array([True, False]), np.array([[True], [False]])
    out = [
        Example(Elementwise("add"), (x, row), "row broadcast"),
        Example(Elementwise("mul"), (x.astype(np.float16), row[:1].astype(np.float16)), "one element, float16"),
        Example(Elementwise("mul", F16), (x.astype(np.float16), row), "float32 beside float16"),
        Example(Elementwise("where"), (x > 0, x, row), "where"),
        Example(Elementwise("div"), (x, row), "float division"),
        Example(Elementwise("div"), (i, j), "truncates"),
        Example(Elementwise("mod"), (i, j), "floors"),
        Example(Elementwise("fmod"), (i, j), "truncates"),
        Example(Elementwise("fmod"), (x, row), "float remainder"),
        Example(Elementwise("sub"), (np.array([], np.float32).reshape(0, 3), row[:3]), "no elements"),
        Example(Elementwise("pow"), (np.abs(x), row), "float power"),
        Example(Elementwise("shl"), (np.array([1, 2, 200], np.uint8), np.array([1, 2, 3], np.uint8)), "bits leave"),
        Example(Elementwise("shr"), (np.array([16, 255], np.uint8), np.array([1, 7], np.uint8)), "right"),
    ]
    out += [Example(Elementwise(f), (hard, hard[::-1].copy()), f"{f}: NaN, infinities")
            for f in ("min", "max", "eq", "ne", "lt", "le", "gt", "ge")]
    out += [Example(Elementwise(f), (hard,), f"{f}: NaN, infinities, ties")
            for f in ("relu", "sign", "round", "floor", "ceil", "abs", "neg", "isnan", "isinf", "erf", "sigmoid", "tanh", "exp")]
    out += [Example(Elementwise(f), (inside,), f)
            for f in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "softplus")]
    out += [Example(Elementwise(f), (np.abs(x) + np.float32(1),), f) for f in ("sqrt", "rsqrt", "log", "acosh")]
    out += [Example(Elementwise(f), b, f) for f in ("and", "or", "xor")]
    out += [Example(Elementwise(f), (i, j), f) for f in ("bitand", "bitor", "bitxor", "min", "max")]
    return [*out, Example(Elementwise("not"), b[:1], "not"), Example(Elementwise("bitnot"), (i,), "bitnot")]
