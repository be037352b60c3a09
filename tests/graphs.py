"""Small graphs for tests: a builder over taskc's own operators, feeds, and the meaning of a partitioned graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taskc.fuse.partition import partition
from taskc.fuse.units import Unit, make_units
from taskc.ir.convert import bf16_bits
from taskc.ir.dtype import BF16, F32, DType, from_numpy
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index
from taskc.ir.graph import Array, Graph, Node, Op, TensorType
from taskc.ir.interpret import evaluate_tasks, symbols_of
from taskc.ir.value import Dim


class GraphBuilder:
    """Adds nodes one by one; `graph` names the outputs."""

    def __init__(self) -> None:
        self.types: dict[str, TensorType] = {}
        self.inputs: list[str] = []
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []

    def input(self, name: str, shape: Sequence[Dim], dtype: DType = F32) -> str:
        self.inputs.append(name)
        self.types[name] = TensorType(dtype, tuple(shape))
        return name

    def constant(self, array: Array, dtype: DType | None = None) -> str:
        name = f"c{len(self.constants)}"
        kind = dtype or from_numpy(array.dtype)
        assert kind is not None
        self.constants[name] = bf16_bits(array) if kind == BF16 and array.dtype.kind == "f" else array.astype(kind.numpy)
        self.types[name] = TensorType(kind, array.shape)
        return name

    def add(self, op: Op, *inputs: str) -> str:
        """The name of the node's (first) output."""
        types = op.infer([self.types[i] for i in inputs])
        names = tuple(f"v{len(self.nodes)}" + (f"_{k}" if k else "") for k in range(len(types)))
        self.nodes.append(Node(op, inputs, names, f"{op.name}{len(self.nodes)}"))
        self.types.update(zip(names, types, strict=True))
        return names[0]

    def graph(self, *outputs: str) -> Graph:
        return Graph("test", tuple(self.inputs), tuple((f"out{k}", v) for k, v in enumerate(outputs)), tuple(self.nodes),
                     dict(self.types), dict(self.constants))


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> Array:
    """Stored values of the type: normal floats (bfloat16 as bits), small whole numbers, bools."""
    if dtype.is_float:
        x = rng.standard_normal(tuple(shape))
        return bf16_bits(x.astype(np.float32)) if dtype == BF16 else x.astype(dtype.numpy)
    if dtype.kind == "bool":
        return rng.random(tuple(shape)) > 0.5
    return rng.integers(-9 if dtype.kind == "int" else 0, 10, tuple(shape)).astype(dtype.numpy)


def random_feeds(graph: Graph, seed: int, symbols: Mapping[str, int] | None = None) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    known = dict(symbols or {})
    types = {name: graph.types[name] for name in graph.inputs}
    return {name: random_array(rng, [evaluate(d, known) for d in t.shape], t.dtype) for name, t in types.items()}


def groups_of(graph: Graph) -> tuple[list[Unit], Mapping[str, Index]]:
    """The partitioned graph and the definitions of its derived dims."""
    units, derived = make_units(graph)
    return partition(units, graph.output_values()), derived


def all_symbols(graph: Graph, derived: Mapping[str, Index], feeds: Mapping[str, Array]) -> dict[str, int]:
    known = symbols_of(graph, feeds)
    for name, e in derived.items():
        known[name] = evaluate(e, known)
    return known


def interpret(units: Sequence[Unit], graph: Graph, derived: Mapping[str, Index], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The graph's outputs in double precision, by running the units in order."""
    values = {**graph.constants, **feeds}
    made = evaluate_tasks([u.task for u in units], values, all_symbols(graph, derived, feeds), np.float64)
    return {name: made[v] if v in made else values[v].astype(np.float64) for name, v in graph.outputs}
