"""The graph: nodes in execution order over named values, with types and constants. Frozen; passes build new graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from taskc.ir.dtype import DType
from taskc.ir.task import Task
from taskc.ir.value import Dim, Tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class TensorType:
    """Element type and shape; a dim is an int or an expression over the model's symbols."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Op(ABC):
    """An operator: a frozen dataclass whose fields are its attributes. One output unless `infer` says otherwise."""

    @abstractmethod
    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """The outputs' types; raises `OpError` with the reason when the inputs do not fit."""

    @abstractmethod
    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        """The NumPy meaning: float inputs keep their type (float64 in, float64 out). Movement and integer operators
        also accept object arrays of index expressions, which is how shape computations fold."""

    @abstractmethod
    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Task:
        """The scalar definition, reading `ins` and writing `outs`; raises `OpError` when there is none yet."""

    @property
    def name(self) -> str:
        return type(self).__name__


class OpError(Exception):
    """Why an operator cannot take its inputs; the caller adds the node's name."""


@dataclass(frozen=True)
class Node:
    """outputs = op(inputs); an absent optional input is ''. `source` names the user's nodes this came from."""

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True)
class Graph:
    """Nodes are in execution order; every value name has a type; `outputs` pairs the public name with a value name."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]

    def type_of(self, value: str) -> TensorType | None:
        """The type of a node input; None for an absent one."""
        return self.types[value] if value else None

    def producers(self) -> dict[str, Node]:
        return {o: n for n in self.nodes for o in n.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        out: dict[str, list[Node]] = {}
        for n in self.nodes:
            for i in dict.fromkeys(n.inputs):
                out.setdefault(i, []).append(n)
        return out

    def output_values(self) -> frozenset[str]:
        return frozenset(v for _, v in self.outputs)

    def with_nodes(self, nodes: Iterable[Node], types: Mapping[str, TensorType] | None = None,
                   constants: Mapping[str, Array] | None = None, outputs: tuple[tuple[str, str], ...] | None = None) -> Graph:
        """A graph with other nodes; types and constants of values that nothing mentions any more are dropped."""
        nodes = tuple(nodes)
        outputs = self.outputs if outputs is None else outputs
        types = self.types if types is None else types
        constants = self.constants if constants is None else constants
        used = {i for n in nodes for i in n.inputs} | {v for _, v in outputs}
        made = {o for n in nodes for o in n.outputs}
        keep = used | made | set(self.inputs)
        return replace(self, nodes=nodes, outputs=outputs, types={k: t for k, t in types.items() if k in keep},
                       constants={k: c for k, c in constants.items() if k in used})
