"""Channels-last convolutions: layouts flow from them through operators that do not care, until one needs the old order.

Every value may exist in several layouts at once (`taskc.passes.relayout`); one is made when an operator asks for it. A
convolution asks for channels last and gives channels last. An indifferent operator takes the layout that most of its
inputs have. Any other operator, and every graph output, asks for the original order. A transpose is then no operation: its
output is its input in another layout. So a network of convolutions keeps one transpose at its input.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from taskc.ir.graph import Graph, Node, Op, TensorType
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.reshape import Reshape
from taskc.ops.transpose import Transpose
from taskc.passes.relayout import Perm, carriers, channels_last, identity, relay
from taskc.passes.rules.views import keeps_order


def put_channels_last(g: Graph) -> Graph:
    """conv(x, w) -> transpose(conv_last(transpose(x), transpose(w))), transposes moved down and cancelled"""
    if not any(isinstance(n.op, Conv) and not n.op.channels_last for n in g.nodes):
        return g
    return _Layouts(g).run()


@dataclass
class _Layouts:
    """`forms[v]` maps layouts of v to the values that hold it; `native[v]` is the layout it was computed in."""

    graph: Graph
    types: dict[str, TensorType] = field(init=False)
    forms: dict[str, dict[Perm, str]] = field(default_factory=dict[str, "dict[Perm, str]"])
    native: dict[str, Perm] = field(default_factory=dict[str, Perm])
    nodes: list[Node] = field(default_factory=list[Node])
    widened: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    source: str = ""

    def __post_init__(self) -> None:
        self.types, self.constants = dict(self.graph.types), dict(self.graph.constants)

    def run(self) -> Graph:
        for v in (*self.graph.inputs, *self.constants):
            self._has(v, identity(self.types[v].rank), v, native=True)
        for n in self.graph.nodes:
            self.source = n.source
            if isinstance(n.op, Conv) and not n.op.channels_last:
                self._conv(n, n.op)
            elif isinstance(n.op, Transpose):
                self._transpose(n, n.op)
            else:
                self._other(n)
        outputs = tuple((name, self.get(v, identity(self.types[v].rank))) for name, v in self.graph.outputs)
        return self.graph.with_nodes(_needed(self.nodes, outputs), self.types, self.constants, outputs)

    def _has(self, v: str, perm: Perm, holder: str, native: bool = False) -> None:
        self.forms.setdefault(v, {})[perm] = holder
        if native:
            self.native[v] = perm

    def get(self, v: str, perm: Perm) -> str:
        """The value that holds v in layout `perm`; made from another layout if need be."""
        forms = self.forms[v]
        if perm in forms:
            return forms[perm]
        have = self.native[v] if self.native[v] in forms else next(iter(forms))
        move = tuple(have.index(p) for p in perm)
        holder = forms[have]
        if holder in self.constants:
            name = self._name(v)
            self.constants[name] = np.ascontiguousarray(np.transpose(self.constants[holder], move))
        else:
            shape = tuple(self.types[holder].shape[m] for m in move)
            op: Op = Reshape(shape) if keeps_order(self.types[holder].shape, move) else Transpose(move)
            name = v if perm == identity(len(perm)) else self._name(v)
            self.nodes.append(Node(op, (holder,), (name,), self.source))
        self.types[name] = TensorType(self.types[holder].dtype, tuple(self.types[holder].shape[m] for m in move))
        forms[perm] = name
        return name

    def _name(self, v: str) -> str:
        name, n = f"{v}/moved", 1
        while name in self.types:
            name, n = f"{v}/moved{n}", n + 1
        return name

    def _emit(self, n: Node, op: Op, inputs: tuple[str, ...], out: Perm) -> None:
        """The node on stored inputs; its output is n's in layout `out`."""
        (v,) = n.outputs
        name = v if out == identity(len(out)) else self._name(v)
        (self.types[name],) = op.infer([self.types[i] if i else None for i in inputs])
        self.nodes.append(replace(n, op=op, inputs=inputs, outputs=(name,)))
        self._has(v, out, name, native=True)

    def _conv(self, n: Node, op: Conv) -> None:
        x, w = n.inputs
        rank = op.rank + 2
        stored = self.get(x, channels_last(rank)), self.get(w, (*range(2, rank), 1, 0))
        self._emit(n, replace(op, channels_last=True), stored, channels_last(rank))

    def _transpose(self, n: Node, op: Transpose) -> None:
        (x,), (v,) = n.inputs, n.outputs
        for perm, holder in dict(self.forms[x]).items():
            self._has(v, tuple(op.perm.index(p) for p in perm), holder)
        self.native[v] = tuple(op.perm.index(p) for p in self.native[x])
        if self.native[x] == identity(len(op.perm)) and identity(len(op.perm)) not in self.forms[v]:
            self.nodes.append(replace(n, inputs=(self.get(x, identity(len(op.perm))),)))
            self._has(v, identity(len(op.perm)), v, native=True)

    def _other(self, n: Node) -> None:
        types = [self.types[i] if i else None for i in n.inputs]
        decide = [n.inputs[i] for i in carriers(n.op, types) if n.inputs[i] not in self.constants]
        perm = self._best(decide) if decide and len(n.outputs) == 1 else None
        laid = relay(n.op, perm, types) if perm is not None and perm != identity(len(perm)) else None
        if laid is None or perm is None:
            inputs = tuple(self.get(i, identity(self.types[i].rank)) if i else "" for i in n.inputs)
            self.nodes.append(replace(n, inputs=inputs))
            for o in n.outputs:
                self._has(o, identity(self.types[o].rank), o, native=True)
            return
        stored = tuple(self._input(i, p, isinstance(n.op, Elementwise)) for i, p in zip(n.inputs, laid.inputs, strict=True))
        self._emit(n, laid.op, stored, laid.out)

    def _best(self, values: list[str]) -> Perm:
        """The layout that the most values have; then the one that the most of them were computed in; then a moved one."""
        have = Counter(p for v in values for p in self.forms[v])
        native = Counter(self.native[v] for v in values)
        rank = self.types[values[0]].rank
        return max(have, key=lambda p: (have[p], native[p], p != identity(rank)))

    def _input(self, v: str, perm: Perm | None, broadcasts: bool) -> str:
        if not v:
            return v
        rank = self.types[v].rank
        if perm is None:
            return self.get(v, identity(rank))
        if rank == len(perm):
            return self.get(v, perm)
        assert broadcasts and rank < len(perm)
        return v if rank == 0 else self.get(self._widen(v, len(perm)), perm)

    def _widen(self, v: str, rank: int) -> str:
        """v with dims of 1 in front, up to `rank`."""
        if (v, rank) not in self.widened:
            t = self.types[v]
            shape = (*(1,) * (rank - t.rank), *t.shape)
            name, holder = self._name(v), self.get(v, identity(t.rank))
            self.types[name] = TensorType(t.dtype, shape)
            if holder in self.constants:
                self.constants[name] = self.constants[holder].reshape((1,) * (rank - t.rank) + self.constants[holder].shape)
            else:
                self.nodes.append(Node(Reshape(shape), (holder,), (name,), self.source))
            self._has(name, identity(rank), name, native=True)
            self.widened[v, rank] = name
        return self.widened[v, rank]


def _needed(nodes: list[Node], outputs: tuple[tuple[str, str], ...]) -> list[Node]:
    """The nodes that the outputs depend on: transposes made for nobody go."""
    wanted = {v for _, v in outputs}
    kept: list[Node] = []
    for n in reversed(nodes):
        if wanted.intersection(n.outputs):
            kept.append(n)
            wanted.update(n.inputs)
    return kept[::-1]
