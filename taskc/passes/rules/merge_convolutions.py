"""Convolutions of one value with equal windows (parallel 1x1 branches) in one."""

from __future__ import annotations

from taskc.ir.graph import Graph, Node
from taskc.ops.conv import Conv
from taskc.passes.rules.siblings import Kind, MergeSiblings


class MergeConvolutions(MergeSiblings):
    """conv(x, w1) + b1, conv(x, w2) + b2 -> slices of conv(x, [w1; w2]) + [b1; b2], for equal windows and no channel groups"""

    def kind(self, g: Graph, n: Node) -> Kind | None:
        if not isinstance(n.op, Conv) or n.op.groups != 1:
            return None
        shape = g.types[n.inputs[1]].shape
        if n.op.channels_last:
            return Kind((n.op, shape[:-2]), -1, len(shape) - 1)
        return Kind((n.op, shape[2:]), 1, 0)
