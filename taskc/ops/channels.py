"""Values with one entry a channel, put beside the channel axis of [n, c, …] activations."""

from __future__ import annotations

from taskc.ops.elementwise import Elementwise
from taskc.ops.registry import Reading
from taskc.ops.reshape import Reshape


def per_channel(r: Reading, value: str, rank: int) -> str:
    """`value` of shape [c] as one that broadcasts along axis 1 of a tensor of `rank`."""
    shape = r.type(value).shape
    if len(shape) != 1:
        r.bad(f"its values a channel have shape {list(shape)}, not one dim")
    return r.add(Reshape((*shape, *(1,) * (rank - 2))), value) if rank > 2 else value


def add_per_channel(r: Reading, value: str, bias: str) -> str:
    """value[n, c, …] + bias[c]."""
    return r.add(Elementwise("add"), value, per_channel(r, bias, r.type(value).rank))
