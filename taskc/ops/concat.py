"""Concat along one dim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Index
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Tensor, Value, choose
from taskc.ops.known import normal_axis
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Concat(Op):
    """The inputs one after the other along dim `axis` (counted from the front); their other dims agree."""

    axis: int

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        given = [t for t in ins if t is not None]
        if not given or len(given) != len(ins):
            raise OpError("an input is absent")
        first = given[0]
        total: Index = 0
        for t in given:
            if t.dtype != first.dtype or t.rank != first.rank:
                raise OpError(f"{first} and {t} do not go together")
            if any(a != b for d, (a, b) in enumerate(zip(first.shape, t.shape, strict=True)) if d != self.axis):
                raise OpError(f"{first} and {t} differ outside of dim {self.axis}")
            total = total + t.shape[self.axis]
        return (TensorType(first.dtype, (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        return (np.concatenate([np.asarray(a) for a in ins], self.axis),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        along = index[self.axis]
        pieces: list[tuple[Index, Value]] = []  # (end, element)
        start: Index = 0
        for t in ins:
            assert t is not None
            if t.shape[self.axis] == 0:
                continue
            here = (*index[: self.axis], along - start, *index[self.axis + 1 :])
            start = start + t.shape[self.axis]
            pieces.append((start, t.at(*here)))
        if not pieces:
            assert ins[0] is not None
            return Map(axes, (Store(outs[0], index, ins[0].at(*index)),))
        value = pieces[-1][1]
        for end, element in reversed(pieces[:-1]):
            value = choose(end - along, element, value)
        return Map(axes, (Store(outs[0], index, value),))


@onnx_reader("Concat")
def _read_concat(r: Reading) -> str:
    rank = r.type(r.inputs[0]).rank
    if rank == 0:
        r.bad("its inputs have no dims")
    at = normal_axis(r, r.int_("axis", 1), rank)
    return r.inputs[0] if len(r.inputs) == 1 else r.add(Concat(at), *r.inputs)


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(17)
    parts = [rng.standard_normal((3, n, 5)).astype(np.float32) for n in (2, 0, 7, 1)]
    return [
        Example(Concat(1), tuple(parts), "four pieces, one empty"),
        Example(Concat(0), (np.arange(3), np.arange(5)), "integers"),
        Example(Concat(0), (np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)), "nothing"),
    ]
