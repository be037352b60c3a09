"""Matrix products of one value (queries, keys and values) in one."""

from __future__ import annotations

from taskc.ir.graph import Graph, Node
from taskc.ops.matmul import MatMul
from taskc.passes.rules.siblings import Kind, MergeSiblings


class MergeProducts(MergeSiblings):
    """matmul(x, w1) + b1, matmul(x, w2) + b2 -> slices of matmul(x, [w1 w2]) + [b1 b2], for constant matrices w1 and w2"""

    def kind(self, g: Graph, n: Node) -> Kind | None:
        if not isinstance(n.op, MatMul) or g.types[n.inputs[1]].rank != 2:
            return None
        return Kind(n.op, -1, 0 if n.op.transpose_b else 1)
