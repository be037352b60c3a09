"""Products that read the same value, side by side -> one wide product and a slice of it for each.

A branch is a product with constant weights and the elementwise steps behind it that have one number a channel. Branches of
one input whose steps are alike become one: weights and numbers are concatenated along the output channels. A branch stays
alone where that would cost more than a launch: an epilogue that a slice cannot have, or vectors that lose their alignment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from taskc.ir.graph import Array, Graph, Node, Op, TensorType
from taskc.ops.cast import Cast
from taskc.ops.concat import Concat
from taskc.ops.elementwise import Elementwise
from taskc.ops.reshape import Reshape
from taskc.ops.slice import Slice
from taskc.ops.transpose import Transpose
from taskc.passes.rule import Note, Refusal
from taskc.passes.rules.operands import along_axis

_VECTOR = 16  # bytes of the widest access


@dataclass(frozen=True)
class Kind:
    """What products must share to be merged (`same`), and where their channels lie: the axis of the result and of the weight."""

    same: Hashable
    axis: int
    weight_axis: int


@dataclass(frozen=True)
class _Branch:
    product: Node
    steps: tuple[Node, ...]
    channels: int

    @property
    def result(self) -> str:
        return (self.steps[-1] if self.steps else self.product).outputs[0]

    @property
    def values(self) -> tuple[str, ...]:
        """The product's result and each step's."""
        return tuple(n.outputs[0] for n in (self.product, *self.steps))

    @property
    def label(self) -> str:
        return self.product.source or self.product.op.name

    def shape_of_steps(self) -> tuple[Hashable, ...]:
        """What the steps do, without their numbers."""
        reads = (self.product.outputs[0], *self.values[1:])
        return tuple((n.op, tuple(i == v for i in n.inputs)) for n, v in zip(self.steps, reads, strict=False))


class MergeSiblings(ABC):
    """A pass that merges one kind of product; `note` gets the reason for every one that has siblings and stays alone.

    `most`: channels that a merged product may have. `copy_parts`: also merges one branch that only goes into a concatenation,
    which then takes a small copy in place of a product that writes there; it pays where launches cost more than memory."""

    def __init__(self, note: Note | None = None, most: int = 16384, copy_parts: bool = False) -> None:
        self.note, self.most, self.copy_parts = note, most, copy_parts

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def kind(self, g: Graph, n: Node) -> Kind | None:
        """The kind of product that the node is, or None."""

    def __call__(self, g: Graph) -> Graph:
        around = _Around(g)
        found: dict[tuple[str, Hashable], tuple[Kind, list[_Branch]]] = {}
        for n in g.nodes:
            kind = self.kind(g, n)
            if kind is not None and n.inputs[0] not in g.constants and n.inputs[1] in g.constants:
                found.setdefault((n.inputs[0], kind.same), (kind, []))[1].append(around.branch(n, kind))
        writer = _Writer(g)
        for kind, branches in found.values():
            for group in self._alike(around, branches) if len(branches) > 1 else ():
                writer.merge(kind, group)
        return writer.graph() if writer.instead else g

    def _alike(self, around: _Around, branches: list[_Branch]) -> Iterator[list[_Branch]]:
        """The groups of branches to merge; the others are told why not."""
        groups: dict[Hashable, list[_Branch]] = {}
        for b in branches:
            reason = around.why_alone(b, self.copy_parts)
            if reason is None:
                groups.setdefault((around.alignment(b), b.shape_of_steps()), []).append(b)
            else:
                self._tell(b, reason)
        for group in groups.values():
            for b in [b for b in group if around.is_part(b)][1:]:
                self._tell(b, "another part of a concatenation is copied already")
                group.remove(b)
            total = sum(b.channels for b in group)
            if len(group) > 1 and total <= self.most:
                yield group
                continue
            steps = " then ".join(n.op.name for n in group[0].steps) or "nothing"
            x, channels = group[0].product.inputs[0], group[0].channels
            alone = f"no other product of {x} has channels aligned like its {channels} and {steps} behind it"
            for b in group:
                self._tell(b, alone if len(group) == 1 else f"together they would have {total} channels, more than {self.most}")

    def _tell(self, b: _Branch, reason: str) -> None:
        if self.note is not None:
            self.note(Refusal(self.name, b.label, reason))


@dataclass
class _Around:
    """Who reads a graph's values."""

    graph: Graph
    readers: dict[str, list[Node]] = field(default_factory=dict[str, "list[Node]"])
    kept: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.kept = self.graph.output_values()
        for n in self.graph.nodes:
            for i in dict.fromkeys(n.inputs):
                self.readers.setdefault(i, []).append(n)

    def branch(self, product: Node, kind: Kind) -> _Branch:
        """The product with every step behind it that can be merged along the channels."""
        value, steps = product.outputs[0], list[Node]()
        channels = self.graph.types[product.inputs[1]].shape[kind.weight_axis]
        assert isinstance(channels, int)
        while (step := self._step(value, kind.axis)) is not None:
            steps.append(step)
            value = step.outputs[0]
        return _Branch(product, tuple(steps), channels)

    def _step(self, value: str, axis: int) -> Node | None:
        """The single reader of the value, where it is elementwise with constants along the axis."""
        readers, g = self.readers.get(value, []), self.graph
        if len(readers) != 1 or value in self.kept or not isinstance(readers[0].op, Elementwise):
            return None
        (n,) = readers
        rank = g.types[value].rank
        constants = [g.constants.get(i) for i in n.inputs if i != value]
        if any(c is None or along_axis(c, rank, axis) is None for c in constants):
            return None
        return n if g.types[n.outputs[0]] == g.types[value] else None

    def alignment(self, b: _Branch) -> int:
        """The elements that its channels can be read in at once; a sum of multiples keeps it."""
        return gcd(b.channels, _VECTOR // self.graph.types[b.result].dtype.bytes)

    def is_part(self, b: _Branch) -> bool:
        """Whether the branch only goes into concatenations."""
        ends = list(self._ends(b.result))
        return bool(ends) and all(n is not None and isinstance(n.op, Concat) for n in ends)

    def why_alone(self, b: _Branch, copy_parts: bool) -> str | None:
        """Why a slice in place of the branch would cost a kernel that is not wanted, or None."""
        if b.result in self.kept:
            return "it is an output of the graph, which a slice would have to be copied to"
        ends = list(self._ends(b.result))
        if copy_parts and self.is_part(b):
            return None
        if ends and all(n is None or isinstance(n.op, (Elementwise, Cast, Concat)) for n in ends):
            names = dict.fromkeys("a graph output" if n is None else n.source or n.op.name for n in ends)
            return f"{', '.join(names)} would no longer be computed in the product's own kernel"
        return None

    def _ends(self, value: str) -> Iterator[Node | None]:
        """Who reads the value, or a reshaped or transposed one; None for the graph's outputs."""
        if value in self.kept:
            yield None
        for n in self.readers.get(value, []):
            if isinstance(n.op, (Reshape, Transpose)):
                yield from self._ends(n.outputs[0])
            else:
                yield n


class _Writer:
    """The graph with merged products; each stands where the first of its branches stood, whose input is there already."""

    def __init__(self, graph: Graph) -> None:
        self.before = graph
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.instead: dict[str, list[Node]] = {}
        self.gone: set[str] = set()

    def graph(self) -> Graph:
        nodes: list[Node] = []
        for n in self.before.nodes:
            nodes += self.instead.get(n.outputs[0], [n] if n.outputs[0] not in self.gone else [])
        return self.before.with_nodes(nodes, self.types, self.constants)

    def merge(self, kind: Kind, group: Sequence[_Branch]) -> None:
        first = group[0]
        label = " + ".join(dict.fromkeys(b.label for b in group))
        weights = np.concatenate([self.constants[b.product.inputs[1]] for b in group], kind.weight_axis)
        weight = self._constant(weights, self.types[first.product.inputs[1]])
        made = [self._node(first.product.op, (first.product.inputs[0], weight), label)]
        for k, step in enumerate(first.steps):
            value, rank = first.values[k], self.types[first.result].rank
            inputs = [made[-1].outputs[0] if i == value else self._numbers([(b, b.steps[k].inputs[at]) for b in group], rank, kind.axis)
                      for at, i in enumerate(step.inputs)]
            labels = dict.fromkeys(b.steps[k].source for b in group if b.steps[k].source)
            made.append(self._node(step.op, tuple(inputs), " + ".join(labels)))
        start, whole = 0, made[-1].outputs[0]
        for b in group:
            t = self.types[b.result]
            starts = tuple(start if d == kind.axis % t.rank else 0 for d in range(t.rank))
            made.append(Node(Slice(starts, t.shape, (1,) * t.rank), (whole,), (b.result,), b.label))
            start += b.channels
        self.gone.update(v for b in group for v in b.values)
        self.instead[first.product.outputs[0]] = made

    def _numbers(self, constants: Sequence[tuple[_Branch, str]], rank: int, axis: int) -> str:
        """The branches' constants one after the other along the channels; the first where all are the same number."""
        arrays = [self.constants[c] for _, c in constants]
        if all(a.size == 1 and a.tobytes() == arrays[0].tobytes() for a in arrays):
            return constants[0][1]
        parts: list[Array] = []
        for (b, _), a in zip(constants, arrays, strict=True):
            vector = along_axis(a, rank, axis)
            assert vector is not None
            parts.append(np.broadcast_to(vector, (b.channels,)))
        behind = rank - 1 - axis % rank
        return self._constant(np.concatenate(parts).reshape(-1, *(1,) * behind), self.types[constants[0][1]])

    def _constant(self, array: Array, like: TensorType) -> str:
        name = self._name("merged")
        self.types[name], self.constants[name] = TensorType(like.dtype, tuple(array.shape)), np.ascontiguousarray(array)
        return name

    def _node(self, op: Op, inputs: tuple[str, ...], source: str) -> Node:
        name = self._name("merged")
        (self.types[name],) = op.infer([self.types[i] for i in inputs])
        return Node(op, inputs, (name,), source)

    def _name(self, stem: str) -> str:
        n = len(self.types)
        while (name := f"{stem}{n}") in self.types:
            n += 1
        return name
