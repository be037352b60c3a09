"""Normalisation by values a channel (batch norm at inference) and by neighbouring channels (local response)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.convert import stored_as
from taskc.ir.dtype import BF16, F16, F32
from taskc.ir.expr import Var
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Reduce, Tensor, call, guard, inside
from taskc.ops.channels import per_channel
from taskc.ops.constants import apply, known_floats, widened
from taskc.ops.elementwise import Elementwise
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@onnx_reader("BatchNormalization")
def _read_batch_norm(r: Reading) -> str:
    """x * (scale / sqrt(var + eps)) + (bias - mean * scale / sqrt(var + eps)); constants are folded in float64.

    For 16-bit inputs the folded constants are kept in float32: rounded, they would shift whole channels."""
    if r.output_count > 1 or r.int_("training_mode", 0):
        r.unsupported("training mode: the model updates its statistics; export it for inference")
    if r.int_("spatial", 1) != 1:
        r.unsupported("spatial = 0 (statistics an element)")
    x, epsilon = r.type(r.inputs[0]), r.float_("epsilon", 1e-5)
    if len(r.inputs) != 5 or x.rank < 2:
        r.bad(f"it takes [n, c, …] and four values a channel, got {x} and {len(r.inputs) - 1} more inputs")
    known = [known_floats(r, i) for i in r.inputs[1:]]
    scale, bias, mean, var = known
    if scale is not None and bias is not None and mean is not None and var is not None:
        factor = scale / np.sqrt(var + epsilon)
        shift = bias - mean * factor
        if x.dtype in (F16, BF16):
            mul, add = (per_channel(r, r.constant(v.astype(np.float32), F32), x.rank) for v in (factor, shift))
            return r.add(Elementwise("add", x.dtype), r.add(Elementwise("mul", x.dtype), r.inputs[0], mul), add)
        mul, add = (r.constant(stored_as(v, x.dtype), x.dtype) for v in (factor, shift))
    else:
        mul = apply(r, "div", r.inputs[1], apply(r, "sqrt", apply(r, "add", r.inputs[4], epsilon)))
        add = apply(r, "sub", r.inputs[2], apply(r, "mul", r.inputs[3], mul))
    return apply(r, "add", apply(r, "mul", r.inputs[0], per_channel(r, mul, x.rank)), per_channel(r, add, x.rank))


@dataclass(frozen=True)
class LocalResponseNorm(Op):
    """x / (bias + alpha / size * sum of squares over `size` channels around) ** beta, for x[n, c, …]."""

    size: int
    alpha: float
    beta: float
    bias: float

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or x.rank < 2 or not x.dtype.is_float or self.size < 1:
            raise OpError(f"local response norm over {self.size} channels does not fit {x}")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x = np.asarray(ins[0]).dtype, widened(ins[0])
        before = (self.size - 1) // 2
        squares = np.pad(x * x, [(0, 0), (before, self.size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
        total = sum(squares[:, t : t + x.shape[1]] for t in range(self.size))
        base = np.asarray(x.dtype.type(self.bias) + x.dtype.type(self.alpha / self.size) * total)
        return ((x / np.power(base, x.dtype.type(self.beta))).astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        x = ins[0]
        assert x is not None
        axes, dtype = tuple(axis(f"i{d}", e) for d, e in enumerate(x.shape)), x.dtype.compute
        index, tap = tuple(a.var for a in axes), Var("tap", below=self.size)
        channel = index[1] + tap - (self.size - 1) // 2
        near = x.at(index[0], channel, *index[2:])
        total = Reduce("sum", (tap,), (self.size,), guard(inside(0, channel, x.shape[1]), call("mul", near, near)))
        base = call("add", Const(self.bias, dtype), call("mul", Const(self.alpha / self.size, dtype), total))
        out = call("div", x.at(*index), call("pow", base, Const(self.beta, dtype)))
        return Map(axes, (Store(outs[0], index, out),))


@onnx_reader("LRN")
def _read_lrn(r: Reading) -> str:
    op = LocalResponseNorm(r.int_("size"), r.float_("alpha", 1e-4), r.float_("beta", 0.75), r.float_("bias", 1.0))
    return r.add(op, r.inputs[0])


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(37)
    x = rng.standard_normal((2, 7, 3, 4)).astype(np.float32)
    return [
        Example(LocalResponseNorm(3, 0.5, 0.75, 1.0), (x,), "odd size"),
        Example(LocalResponseNorm(4, 2.0, 0.5, 2.0), (x.astype(np.float16),), "even size, float16"),
    ]
