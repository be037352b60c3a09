"""Softmax, its logarithm, and hardmax: two statistics a row, then one pass over the elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Rows, Statistic, Store
from taskc.ir.value import Hole, Tensor, call
from taskc.ops.constants import widened
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.rows import split_rows


@dataclass(frozen=True)
class Softmax(Op):
    """exp(x) / sum(exp(x)) over `axis` (not negative); `to_end`: over it and all later ones at once; `log`: its log."""

    axis: int
    log: bool = False
    to_end: bool = False

    @property
    def name(self) -> str:
        return "log_softmax" if self.log else "softmax"

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(self.axis, rank)) if self.to_end else (self.axis,)

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or not x.dtype.is_float:
            raise OpError(f"{self.name} is for floats, got {x}")
        if not 0 <= self.axis < max(x.rank, 1 + self.to_end):
            raise OpError(f"axis {self.axis} does not fit {x}")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x = np.asarray(ins[0]).dtype, widened(ins[0])
        axes = self._axes(x.ndim)
        with np.errstate(all="ignore"):
            x = x - np.max(x, axis=axes, keepdims=True)
            total = np.sum(np.exp(x), axis=axes, keepdims=True)
            out = x - np.log(total) if self.log else np.exp(x) / total
        return (out.astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Rows:
        x = ins[0]
        assert x is not None
        s, dtype = split_rows(x.shape, self._axes(len(x.shape))), x.dtype.compute
        shifted = call("sub", Hole("x", dtype), Hole("s0", dtype))
        total = Statistic("sum", call("exp", shifted), call("log", Hole("s", dtype)) if self.log else None)
        out = call("sub" if self.log else "div", shifted if self.log else call("exp", shifted), Hole("s1", dtype))
        return Rows(s.row, s.column, x.at(*s.index), (Statistic("max", Hole("x", dtype)), total),
                    element=(Store(outs[0], s.index, out),))


def _read(r: Reading, log: bool) -> str:
    """Before opset 13 the axes from `axis` (default 1) on form one row; since then `axis` (default: the last) alone."""
    rank, old = r.type(r.inputs[0]).rank, r.opset < 13
    given = r.int_("axis", 1 if old else -1)
    if not -rank <= given < rank + old:
        r.bad(f"axis {given} does not fit rank {rank}")
    axis = given if given >= 0 else given + rank
    return r.add(Softmax(axis, log, to_end=old and axis != rank - 1), r.inputs[0])


@onnx_reader("Softmax")
def _read_softmax(r: Reading) -> str:
    return _read(r, log=False)


@onnx_reader("LogSoftmax")
def _read_log_softmax(r: Reading) -> str:
    return _read(r, log=True)


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(29)
    x = (rng.standard_normal((3, 5, 7)) * 8).astype(np.float32)
    masked: Array = np.array(x)
    masked[0, 1, 2:] = -np.inf
    masked[1, 1] = -np.inf
    return [
        Example(Softmax(2), (masked,), "masked elements, one masked row"),
        Example(Softmax(1), (x,), "inner axis"),
        Example(Softmax(1, to_end=True), (x,), "two axes together"),
        Example(Softmax(0, log=True), (x.astype(np.float16),), "log, float16"),
        Example(Softmax(1), (x[:, :1],), "one column"),
    ]
