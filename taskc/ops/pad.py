"""Pad: constant, reflect, edge and wrap. Negative pads are read as a Slice before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from taskc.ir.arithmetic import floor_mod, maximum, minimum
from taskc.ir.expr import Expr, Index
from taskc.ir.facts import bounds
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Dim, Tensor, Value, choose, guard, inside
from taskc.ops.known import known_indices, known_ints, known_scalar, normal_axes, plain_shape
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.slice import Slice

Mode = Literal["constant", "reflect", "edge", "wrap"]


@dataclass(frozen=True)
class Pad(Op):
    """`before[d]` elements in front and `after[d]` behind along each dim (none negative); `number` fills in mode constant."""

    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    mode: Mode = "constant"
    number: float | int | bool = 0

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None or not x.rank == len(self.before) == len(self.after):
            raise OpError(f"{len(self.before)} pads do not fit {x}")
        for d, before, after in zip(x.shape, self.before, self.after, strict=True):
            for pad in (before, after):
                if self.mode == "reflect" and isinstance(pad, int) and isinstance(d, int) and pad >= d and pad:
                    raise OpError(f"reflects {pad} elements of a dim of {d}")
                if self.mode != "constant" and d == 0 and pad != 0:
                    raise OpError(f"mode {self.mode} needs elements, but {x} has none")
        return (TensorType(x.dtype, tuple(b + d + a for b, d, a in zip(self.before, x.shape, self.after, strict=True))),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x = np.asarray(ins[0])
        pads = list(zip(plain_shape(self.before), plain_shape(self.after), strict=True))
        if self.mode == "constant":
            return (np.pad(x, pads, constant_values=self.number) if x.ndim else x,)
        return (np.pad(x, pads, mode=self.mode),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        place = tuple(a.var - b for a, b in zip(axes, self.before, strict=True))
        if self.mode == "constant":
            value = self._filled(x, place)
        else:
            value = x.at(*(self._source(p, d, b, a) for p, d, b, a in zip(place, x.shape, self.before, self.after, strict=True)))
        return Map(axes, (Store(outs[0], tuple(a.var for a in axes), value),))

    def _filled(self, x: Tensor, place: tuple[Index, ...]) -> Value:
        conditions = tuple(c for p, d, b, a in zip(place, x.shape, self.before, self.after, strict=True)
                           if b != 0 or a != 0 for c in inside(0, p, d))
        if self.number == 0 and str(self.number)[0] != "-":
            return guard(conditions, x.at(*place))
        value: Value = x.at(*place)
        for c in conditions:
            value = choose(c, value, Const(self.number, x.dtype.compute))
        return value

    def _source(self, p: Index, d: Dim, before: Dim, after: Dim) -> Index:
        """Where position p (negative in front of the input) of a dim of d comes from."""
        if before == 0 and after == 0:
            return p
        if self.mode == "edge":
            return minimum(maximum(p, 0), d - 1)
        if self.mode == "wrap":
            return floor_mod(p + before * d, d)  # a multiple of d, which makes it positive
        p = maximum(p, -p) if before != 0 else p
        return minimum(p, 2 * (d - 1) - p) if after != 0 else p


def _pads(r: Reading, given: tuple[Index, ...], axes: tuple[int, ...] | None) -> tuple[list[Index], list[Index]]:
    rank = r.type(r.inputs[0]).rank
    axes = tuple(range(rank)) if axes is None else normal_axes(r, axes, rank)
    if len(given) != 2 * len(axes):
        r.bad(f"has {len(given)} pads for {len(axes)} dims")
    before: list[Index] = [0] * rank
    after: list[Index] = [0] * rank
    for k, d in enumerate(axes):
        before[d], after[d] = given[k], given[k + len(axes)]
    return before, after


def _pad(r: Reading, before: list[Index], after: list[Index], number: float | int | bool) -> str:
    mode = r.string("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        r.bad(f"mode {mode!r} does not exist")
    x, shape = r.inputs[0], r.type(r.inputs[0]).shape
    if any(isinstance(p, Expr) and (lo is None or lo < 0) for p in (*before, *after) for lo in (bounds(p)[0],)):
        r.unsupported("the sign of a pad depends on symbolic dims; fix them with --dim NAME=SIZE")
    cut = [minimum(p, 0) for p in before], [minimum(p, 0) for p in after]
    if any(c != 0 for side in cut for c in side):
        sizes = tuple(d + b + a for d, b, a in zip(shape, *cut, strict=True))
        if any(isinstance(s, int) and s < 0 for s in sizes):
            r.unsupported(f"its negative pads cut more than {list(shape)} has")
        x = r.add(Slice(tuple(-b for b in cut[0]), sizes, (1,) * len(shape)), x)
    wide = tuple(maximum(p, 0) for p in before), tuple(maximum(p, 0) for p in after)
    return x if all(p == 0 for side in wide for p in side) else r.add(Pad(*wide, mode, number), x)


@onnx_reader("Pad", since=11)
def _read_pad(r: Reading) -> str:
    axes = known_ints(r, 3, "axes") if r.has_input(3) else None
    number = known_scalar(r, 2, "constant value") if r.has_input(2) else 0
    return _pad(r, *_pads(r, known_indices(r, 1, "pads"), axes), number)


@onnx_reader("Pad", since=2)
def _read_pad_2(r: Reading) -> str:
    return _pad(r, *_pads(r, r.ints("pads"), None), r.float_("value", 0.0))


@onnx_reader("Pad", since=1)
def _read_pad_1(r: Reading) -> str:
    return _pad(r, *_pads(r, r.ints("paddings"), None), r.float_("value", 0.0))


@examples
def _examples() -> list[Example]:
    x = np.arange(1, 36, dtype=np.float32).reshape(5, 7)
    return [
        Example(Pad((1, 0), (2, 3)), (x,), "zeros"),
        Example(Pad((0, 2), (1, 0), number=-2.5), (x,), "a number"),
        Example(Pad((4, 0), (2, 6), "reflect"), (x,), "reflect"),
        Example(Pad((3, 1), (0, 9), "edge"), (x,), "edge"),
        Example(Pad((6, 1), (13, 0), "wrap"), (x,), "wrap, more than once around"),
        Example(Pad((2,), (1,)), (np.zeros(0, np.int64),), "around nothing"),
    ]
