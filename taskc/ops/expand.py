"""Expand (broadcast to a shape) and Tile (repeat)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Index
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Dim, Tensor
from taskc.ops.broadcast import broadcast_load, broadcast_shapes
from taskc.ops.known import known_indices, plain_shape
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Expand(Op):
    """The input broadcast to `shape`."""

    shape: tuple[Dim, ...]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None or broadcast_shapes(x.shape, self.shape) != self.shape:
            raise OpError(f"{x} does not broadcast to {list(self.shape)}")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        return (np.broadcast_to(np.asarray(ins[0]), plain_shape(self.shape)).copy(),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        return Map(axes, (Store(outs[0], index, broadcast_load(x, index)),))


@dataclass(frozen=True)
class Tile(Op):
    """The input repeated `repeats[d]` times along dim d."""

    repeats: tuple[Dim, ...]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None or x.rank != len(self.repeats):
            raise OpError(f"{len(self.repeats)} repeats do not fit {x}")
        return (TensorType(x.dtype, tuple(d * n for d, n in zip(x.shape, self.repeats, strict=True))),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        return (np.tile(np.asarray(ins[0]), plain_shape(self.repeats)),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        source: list[Index] = [0 if d == 1 or d == 0 else a.var if n == 1 else a.var % d
                               for a, d, n in zip(axes, x.shape, self.repeats, strict=True)]
        return Map(axes, (Store(outs[0], tuple(a.var for a in axes), x.at(*source)),))


@onnx_reader("Expand")
def _read_expand(r: Reading) -> str:
    shape = known_indices(r, 1, "shape")
    if any(isinstance(d, int) and d < 0 for d in shape):
        r.bad(f"its shape {list(shape)} has a negative dim")
    x = r.type(r.inputs[0]).shape
    rank = max(len(x), len(shape))
    left, right = (1,) * (rank - len(x)) + x, (1,) * (rank - len(shape)) + shape
    whole = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    return r.inputs[0] if whole == x else r.add(Expand(whole if broadcast_fits(left, right) else shape), r.inputs[0])


def broadcast_fits(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes of one rank broadcast together."""
    return all(x == 1 or y == 1 or x == y for x, y in zip(a, b, strict=True))


@onnx_reader("Tile", since=6)
def _read_tile(r: Reading) -> str:
    repeats = known_indices(r, 1, "repeats")
    if any(isinstance(n, int) and n < 0 for n in repeats):
        r.bad(f"its repeats {list(repeats)} are negative")
    return r.inputs[0] if all(n == 1 for n in repeats) else r.add(Tile(repeats), r.inputs[0])


@examples
def _examples() -> list[Example]:
    x = np.arange(15, dtype=np.float32).reshape(5, 1, 3)
    return [
        Example(Expand((2, 5, 7, 3)), (x,), "a new dim and a wide one"),
        Example(Expand((4, 0)), (np.zeros((1, 1), np.int32),), "to no elements"),
        Example(Tile((2, 3, 1)), (x,), "two dims"),
        Example(Tile((0, 1, 2)), (x,), "to no elements"),
    ]
