"""Values with one entry a channel, put beside the channel axis of [n, c, …] activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Tensor
from taskc.ops.elementwise import Elementwise
from taskc.ops.registry import Example, Reading, examples


@dataclass(frozen=True)
class ChannelColumn(Op):
    """x[c] -> out[c, 1, …] with `spatial` ones: a view."""

    spatial: int

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or x.rank != 1:
            raise OpError(f"values a channel have one dim, got {x}")
        return (TensorType(x.dtype, (x.shape[0], *(1,) * self.spatial)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        return (np.asarray(ins[0]).reshape(-1, *(1,) * self.spatial),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        x, out = ins[0], outs[0]
        assert x is not None
        c = axis("c", out.shape[0])
        return Map((c,), (Store(out, (c.var, *(0,) * self.spatial), x.at(c.var)),))


def per_channel(r: Reading, value: str, rank: int) -> str:
    """`value` of shape [c] as one that broadcasts along axis 1 of a tensor of `rank`: a constant stays a constant."""
    known = r.contents(value)
    if known is not None and known.dtype != object:
        return r.constant(known.reshape(-1, *(1,) * (rank - 2)), r.type(value).dtype)
    return r.add(ChannelColumn(rank - 2), value) if rank > 2 else value


def add_per_channel(r: Reading, value: str, bias: str) -> str:
    """value[n, c, …] + bias[c]."""
    return r.add(Elementwise("add"), value, per_channel(r, bias, r.type(value).rank))


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(17)
    return [Example(ChannelColumn(2), (rng.standard_normal(7).astype(np.float32),), "values beside channels")]
