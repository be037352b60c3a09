"""Other element types than the file's, when asked: float32 tensors as float16 or bfloat16 inside, inputs and outputs as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from taskc.errors import Unsupported, UsageError
from taskc.ir.convert import stored_as, values_of
from taskc.ir.dtype import BF16, F16, F32, DType
from taskc.ir.graph import Array, Graph, Node, Op, OpError, TensorType
from taskc.ops.cast import Cast
from taskc.passes.cleanup import FoldConstants, remove_dead_nodes

PRECISIONS = ("keep", "tf32", "fp16", "bf16")
STORED: Mapping[str, DType] = {"fp16": F16, "bf16": BF16}


def in_precision(g: Graph, precision: str) -> Graph:
    """The graph with its float32 tensors stored as `precision` says; raises UsageError for a precision that there is not."""
    if precision not in PRECISIONS:
        raise UsageError(f"--precision {precision}: wanted one of {', '.join(PRECISIONS)}")
    if precision not in STORED:
        return g
    return remove_dead_nodes(FoldConstants()(store_floats_as(g, STORED[precision])))


def store_floats_as(g: Graph, to: DType) -> Graph:
    """float32 everywhere -> `to` between a Cast of each float32 input and a Cast back of each float32 output"""
    return _Conversion(g, to).run()


class _Conversion:
    def __init__(self, g: Graph, to: DType) -> None:
        self.g, self.to = g, to
        self.types = dict(g.types)
        self.constants: dict[str, Array] = dict(g.constants)
        self.names: dict[str, str] = {}  # a float32 input's name -> that of its converted value

    def run(self) -> Graph:
        nodes: list[Node] = []
        for name in self.g.inputs:
            if self.types[name].dtype == F32:
                nodes.append(self.cast(name, f"{name}.{self.to}", self.to))
                self.names[name] = nodes[-1].outputs[0]
        for name, array in self.g.constants.items():
            if self.types[name].dtype == F32:
                self.constants[name] = stored_as(values_of(array, F32), self.to)
                self.types[name] = replace(self.types[name], dtype=self.to)
        nodes += [self.node(n) for n in self.g.nodes]
        outputs: list[tuple[str, str]] = []
        for public, value in self.g.outputs:
            if self.g.types[value].dtype == F32 and value not in self.g.inputs:
                back = self.cast(value, f"{value}.{F32}", F32)
                nodes += [] if any(n.outputs == back.outputs for n in nodes) else [back]
                value = back.outputs[0]
            outputs.append((public, value))
        return self.g.with_nodes(nodes, self.types, self.constants, tuple(outputs))

    def cast(self, value: str, name: str, to: DType) -> Node:
        self.types[name] = replace(self.types[value], dtype=to)
        return Node(Cast(to), (value,), (name,), f"precision of {value}")

    def node(self, n: Node) -> Node:
        op = _converted(n.op, self.to)
        inputs = tuple(self.names.get(i, i) for i in n.inputs)
        try:
            found: tuple[TensorType, ...] = op.infer([self.types[i] if i else None for i in inputs])
        except OpError as e:
            where = f"node {n.source or n.outputs[0]} ({op.name})"
            raise Unsupported(f"--precision: {where} does not take {self.to}: {e}; keep the model's own types") from e
        self.types.update(zip(n.outputs, found, strict=True))
        return replace(n, op=op, inputs=inputs)


def _converted(op: Op, to: DType) -> Op:
    """The operator with `to` in place of every float32 among its fields."""
    if not is_dataclass(op):
        return op
    changed: dict[str, Any] = {f.name: to for f in fields(op) if getattr(op, f.name) == F32}
    return replace(op, **changed) if changed else op
