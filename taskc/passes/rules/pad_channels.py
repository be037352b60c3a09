"""A convolution of few channels, such as a network's first, reads whole vectors when its channels are padded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskc.ir.graph import Node
from taskc.ops.cast import Cast
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.pad import Pad
from taskc.ops.reshape import Reshape
from taskc.ops.transpose import Transpose
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule

_VECTOR = 16  # bytes of the widest access


@dataclass(frozen=True)
class _Narrow:
    node: Node
    op: Conv
    channels: int
    more: int  # channels of zeros


def _maker(e: Editor, value: str) -> Node | None:
    """The node that anchors the kernel which makes the value; None when a kernel reads the graph's inputs and only rearranges them."""
    n = e.node(value)
    if n is None or not isinstance(n.op, (Transpose, Reshape, Cast, Elementwise)):
        return n
    return next((m for m in (_maker(e, i) for i in n.inputs) if m is not None), None)


@dataclass(frozen=True)
class PadChannels(Rule[_Narrow]):
    """conv(x, w) -> conv(x with channels of zeros, w with zeros), for x of fewer channels than a vector holds, channels last

    Only where x comes from the graph's inputs: laying them out takes a kernel anyway. Elsewhere it would be one more.
    `unit`: channels are padded to a multiple of it, or of a whole vector where that is less."""

    unit: int = 4

    def before(self, e: Editor, n: Node) -> _Narrow | None:
        if not isinstance(n.op, Conv) or not n.op.channels_last:
            return None
        t = e.type(n.inputs[0])
        channels, vector = t.shape[-1], _VECTOR // t.dtype.bytes
        if not isinstance(channels, int) or channels >= vector:
            return None
        more = -channels % min(self.unit, vector)
        return _Narrow(n, n.op, channels, more) if more else None

    def why_not(self, e: Editor, found: _Narrow) -> str | None:
        if found.op.groups != 1:
            return f"its channels are in {found.op.groups} groups"
        if e.stored(found.node.inputs[1]) is None:
            return "the weight is not constant"
        maker = _maker(e, found.node.inputs[0])
        return f"{maker.source or maker.op.name} makes its input and would not write the zeros" if maker is not None else None

    def after(self, e: Editor, found: _Narrow) -> str:
        x, w = found.node.inputs
        weight = e.stored(w)
        assert weight is not None
        before = (0,) * e.type(x).rank
        padded = e.add(Pad(before, (*before[:-1], found.more)), x)
        zeros = [(0, found.more) if d == weight.ndim - 2 else (0, 0) for d in range(weight.ndim)]
        return e.add(found.op, padded, e.constant_stored(np.pad(weight, zeros), e.type(w).dtype))
