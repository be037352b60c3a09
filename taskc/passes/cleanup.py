"""Passes that only remove: dead nodes, common subexpressions, and nodes that can be computed now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Expr
from taskc.ir.graph import Array, Graph, Node, OpError, TensorType
from taskc.ir.reference import run_reference

_SMALL = 1 << 16  # bytes that a folded constant may always have
_SHARED = 1 << 16  # bytes up to which equal constants are found by content


def remove_dead_nodes(g: Graph) -> Graph:
    """y = f(x), z = h(x), output z -> z = h(x)"""
    needed = set(g.output_values())
    kept: list[Node] = []
    for n in reversed(g.nodes):
        if needed.intersection(n.outputs):
            kept.append(n)
            needed.update(n.inputs)
    return g.with_nodes(reversed(kept))


def make_empty_values_constant(g: Graph) -> Graph:
    """y = f(x) where y has no elements -> y is a constant without elements: nothing is left to compute"""
    constants = dict(g.constants)
    kept: list[Node] = []
    for n in g.nodes:
        types = [g.types[o] for o in n.outputs]
        if any(all(d != 0 for d in t.shape) for t in types):
            kept.append(n)
            continue
        for o, t in zip(n.outputs, types, strict=True):
            constants[o] = np.empty([d if isinstance(d, int) else 1 for d in t.shape], t.dtype.numpy)
    return g.with_nodes(kept, constants=constants) if len(kept) < len(g.nodes) else g


def share_equal_values(g: Graph) -> Graph:
    """y = f(x), z = f(x) -> y = f(x), z is y; equal constants become one"""
    same: dict[str, str] = {}
    constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    for name, array in g.constants.items():
        if array.nbytes <= _SHARED:
            same[name] = constants.setdefault((g.types[name].dtype.name, array.shape, array.tobytes()), name)
    known: dict[tuple[str, str, tuple[str, ...]], tuple[str, ...]] = {}
    nodes: list[Node] = []
    for n in g.nodes:
        inputs = tuple(same.get(i, i) for i in n.inputs)
        key = (type(n.op).__name__, repr(n.op), inputs)  # by text: 0.0 == -0.0, but they are different fills
        if key in known:
            same.update(zip(n.outputs, known[key], strict=True))
            continue
        known[key] = n.outputs
        nodes.append(Node(n.op, inputs, n.outputs, n.source))
    return g.with_nodes(nodes, outputs=tuple((name, same.get(v, v)) for name, v in g.outputs))


@dataclass(frozen=True)
class FoldConstants:
    """y = f(constants) -> constant y, where y is no larger than they are, or at most `cap` bytes."""

    cap: int = _SMALL

    def __call__(self, g: Graph) -> Graph:
        constants, nodes = dict(g.constants), list[Node]()
        for n in g.nodes:
            values = self._values(g, n, constants)
            if values is None:
                nodes.append(n)
            else:
                constants.update(zip(n.outputs, values, strict=True))
        return g.with_nodes(nodes, constants=constants)

    def _values(self, g: Graph, n: Node, constants: dict[str, Array]) -> tuple[Array, ...] | None:
        if not n.inputs or any(i and i not in constants for i in n.inputs):
            return None
        outs = [g.types[o] for o in n.outputs]
        if any(isinstance(d, Expr) for t in outs for d in t.shape):
            return None
        ins = [constants[i] if i else None for i in n.inputs]
        if sum(_bytes(t) for t in outs) > max(self.cap, sum(a.nbytes for a in ins if a is not None)):
            return None
        try:
            found = run_reference(n.op, ins, [g.type_of(i) for i in n.inputs], outs)
        except OpError:  # a field of the operator is symbolic
            return None
        return None if any(a.dtype == object for a in found) else tuple(np.ascontiguousarray(a).reshape(a.shape) for a in found)


def _bytes(t: TensorType) -> int:
    out = t.dtype.bytes
    for d in t.shape:
        assert isinstance(d, int)
        out *= d
    return out
