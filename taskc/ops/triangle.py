"""Trilu (a triangle of a matrix) and CumSum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Index
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Reduce, Tensor, guard
from taskc.ops.known import known_ints, normal_axis
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Trilu(Op):
    """The last two dims' elements with column - row >= k (`upper`) or <= k, zeros elsewhere."""

    upper: bool
    k: int

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None or x.rank < 2:
            raise OpError(f"{x} has no matrix in its last two dims")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x = np.asarray(ins[0])
        at = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
        return (np.where(at >= self.k if self.upper else at <= self.k, x, np.zeros((), x.dtype)),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        above = index[-1] - index[-2] - self.k
        return Map(axes, (Store(outs[0], index, guard((above + 1 if self.upper else 1 - above,), x.at(*index))),))


@dataclass(frozen=True)
class CumSum(Op):
    """out[i] = sum of the input over j <= i along `axis` (`exclusive`: j < i; `reverse`: from the end)."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None or self.axis >= x.rank:
            raise OpError(f"dim {self.axis} does not exist in {x}")
        return (x,)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x = np.asarray(ins[0])
        wide = x.astype(np.float32) if x.dtype == np.float16 else x
        ordered = np.flip(wide, self.axis) if self.reverse else wide
        out = np.cumsum(ordered, self.axis, dtype=wide.dtype)
        if self.exclusive and out.shape[self.axis]:
            kept = [slice(None)] * x.ndim
            kept[self.axis] = slice(0, -1)
            pads = [(1 if d == self.axis else 0, 0) for d in range(x.ndim)]
            out = np.pad(out[tuple(kept)], pads)
        return ((np.flip(out, self.axis) if self.reverse else out).astype(x.dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        r = axis("r0", x.shape[self.axis])
        here = index[self.axis]
        distance: Index = r.var - here if self.reverse else here - r.var
        element = x.at(*index[: self.axis], r.var, *index[self.axis + 1 :])
        total = Reduce("sum", (r.var,), (r.extent,), guard((distance + (0 if self.exclusive else 1),), element))
        return Map(axes, (Store(outs[0], index, total),))


@onnx_reader("Trilu")
def _read_trilu(r: Reading) -> str:
    k = known_ints(r, 1, "k")[0] if r.has_input(1) else 0
    return r.add(Trilu(bool(r.int_("upper", 1)), k), r.inputs[0])


@onnx_reader("CumSum")
def _read_cumsum(r: Reading) -> str:
    axes = known_ints(r, 1, "axis")
    if len(axes) != 1:
        r.bad(f"has {len(axes)} axes")
    at = normal_axis(r, axes[0], r.type(r.inputs[0]).rank)
    return r.add(CumSum(at, bool(r.int_("exclusive", 0)), bool(r.int_("reverse", 0))), r.inputs[0])


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(23)
    x = rng.standard_normal((2, 7, 5)).astype(np.float32)
    return [
        Example(Trilu(True, 1), (x,), "upper"),
        Example(Trilu(False, -2), (x,), "lower"),
        *(Example(CumSum(1, e, b), (x,), f"exclusive={e}, reverse={b}") for e in (False, True) for b in (False, True)),
        Example(CumSum(0), (np.arange(6, dtype=np.int64),), "integers"),
    ]
