"""A graph while rules rewrite it: who makes a value, who uses it, and new nodes in place of old ones.

Invariant: `uses` counts the readers of every value among living nodes and the graph's outputs; a node that nobody reads
any more is removed at once, and its name goes into the label of what replaced it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from taskc.ir.convert import stored_as, values_of
from taskc.ir.dtype import DType
from taskc.ir.graph import Array, Graph, Node, Op, TensorType


@dataclass
class Editor:
    """One sweep over a graph, first node to last. `done` holds the nodes before the current one."""

    graph: Graph
    types: dict[str, TensorType] = field(init=False)
    constants: dict[str, Array] = field(init=False)
    uses: Counter[str] = field(init=False)
    done: dict[int, Node] = field(default_factory=dict[int, Node])
    maker: dict[str, int] = field(default_factory=dict[str, int])
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    fresh: list[Node] = field(default_factory=list[Node])  # made by the edit under way
    dead: list[str] = field(default_factory=list[str])  # labels of nodes that the edit under way has freed
    serial: int = 0
    position: int = 0

    def __post_init__(self) -> None:
        self.types, self.constants = dict(self.graph.types), dict(self.graph.constants)
        self.uses = Counter(i for n in self.graph.nodes for i in n.inputs if i)
        self.uses.update(v for _, v in self.graph.outputs)

    # ---- what rules ask

    def node(self, value: str) -> Node | None:
        """The node that makes a value; None for inputs, constants and absent values."""
        at = self.maker.get(value)
        return None if at is None else self.done[at]

    def made_by(self, value: str, kind: type[Op]) -> Node | None:
        """The node that makes a value, if its operator is of `kind`."""
        n = self.node(value)
        return n if n is not None and isinstance(n.op, kind) else None

    def once(self, value: str) -> bool:
        """Whether a value has a single reader (a graph output counts as one)."""
        return self.uses[value] == 1

    def type(self, value: str) -> TensorType:
        return self.types[value]

    def stored(self, value: str) -> Array | None:
        """A constant's bytes."""
        return self.constants.get(value)

    def numbers(self, value: str) -> Array | None:
        """A constant's values: floats in double, others in their own type."""
        found = self.constants.get(value)
        if found is None:
            return None
        plain = values_of(found, self.types[value].dtype)
        return plain.astype(np.float64) if plain.dtype.kind == "f" else plain

    def number(self, value: str) -> float | None:
        """The value of a constant whose elements are all the same, else None."""
        found = self.constants.get(value)
        if found is None or found.size == 0:
            return None
        if found.size > 1 and not np.all(found.ravel()[1:] == found.ravel()[0]):
            return None
        return float(values_of(found.ravel()[:1], self.types[value].dtype)[0])

    # ---- what rules make

    def add(self, op: Op, *inputs: str) -> str:
        """A new node with one output."""
        (out,) = op.infer([self.types[i] if i else None for i in inputs])
        name = self._name()
        self.types[name] = out
        self.fresh.append(Node(op, inputs, (name,)))
        return name

    def constant(self, numbers: Array, dtype: DType) -> str:
        """A new constant, rounded to `dtype` once."""
        return self.constant_stored(stored_as(np.asarray(numbers), dtype), dtype)

    def constant_stored(self, array: Array, dtype: DType) -> str:
        name = self._name()
        self.types[name], self.constants[name] = TensorType(dtype, tuple(array.shape)), array
        return name

    def _name(self) -> str:
        while (name := f"t{self.serial}") in self.types:
            self.serial += 1
        return name

    # ---- the sweep

    def current(self, n: Node) -> Node:
        """The node with values that have been replaced since."""
        if not any(i in self.renamed for i in n.inputs):
            return n
        return replace(n, inputs=tuple(self.renamed.get(i, i) for i in n.inputs))

    def keep(self, n: Node) -> None:
        """The node stays as it is."""
        at = self.position
        self.position += 1
        self.done[at] = n
        self.maker.update((o, at) for o in n.outputs)

    def put(self, n: Node, value: str) -> list[Node]:
        """`value` takes the place of the node's output; returns the new nodes, to be looked at next."""
        (old,) = n.outputs
        made = [f for f in self.fresh if value in f.outputs]
        for f in self.fresh:
            self.uses.update(i for i in f.inputs if i)
        if made and self.types[value] != self.types[old]:
            raise AssertionError(f"a rule turns {old}: {self.types[old]} into {self.types[value]}")
        self.dead = []
        if made:
            self.fresh = [replace(f, inputs=tuple(old if i == value else i for i in f.inputs),
                                  outputs=tuple(old if o == value else o for o in f.outputs)) for f in self.fresh]
            self.uses[old] += self.uses.pop(value, 0)
        else:
            self.uses[value] += self.uses.pop(old, 0)
            self._substitute(old, value)
        self._release(n.inputs)
        label = " + ".join(dict.fromkeys(part for s in (*self.dead, n.source) for part in s.split(" + ") if part))
        out = [replace(f, source=label) for f in self.fresh]
        self.fresh = []
        return out

    def _substitute(self, old: str, new: str) -> None:
        self.renamed.update({k: new for k, v in self.renamed.items() if v == old})
        self.renamed[old] = new

    def _release(self, inputs: Iterable[str]) -> None:
        """One reader less for each value; nodes that nobody reads are removed."""
        for i in inputs:
            if not i:
                continue
            self.uses[i] -= 1
            at = self.maker.get(i)
            if self.uses[i] <= 0 and at is not None and not any(self.uses[o] > 0 for o in self.done[at].outputs):
                gone = self.done.pop(at)
                for o in gone.outputs:
                    del self.maker[o]
                self.dead.append(gone.source)
                self._release(gone.inputs)

    def finish(self) -> Graph:
        outputs = tuple((name, self.renamed.get(v, v)) for name, v in self.graph.outputs)
        return self.graph.with_nodes(self.done.values(), self.types, self.constants, outputs)


def queue_of(graph: Graph) -> deque[Node]:
    return deque(graph.nodes)
