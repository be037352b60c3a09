"""One ONNX node in its surroundings, as readers see it (`taskc.ops.registry.Reading`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from onnx import AttributeProto, NodeProto

from taskc.importer.builder import Builder
from taskc.importer.problems import NodeProblem
from taskc.importer.tensors import element_type, read_tensor
from taskc.ir.dtype import DType
from taskc.ir.graph import Array, Op, TensorType


@dataclass(frozen=True)
class NodeReading:
    """`inputs` are value names of the builder; attributes are those of `node`, references already replaced."""

    node: NodeProto
    opset: int
    inputs: tuple[str, ...]
    output_count: int
    builder: Builder
    folder: Path | None

    @property
    def op_type(self) -> str:
        return self.node.op_type

    @property
    def declared_outputs(self) -> int:
        return len(self.node.output)

    def has_input(self, position: int) -> bool:
        return position < len(self.inputs) and bool(self.inputs[position])

    def type(self, value: str) -> TensorType:
        if not value:
            self.bad("an input that it needs is absent")
        return self.builder.types[value]

    def contents(self, value: str) -> Array | None:
        return self.builder.contents(value)

    def add(self, op: Op, *inputs: str) -> str:
        (out,) = self.add_many(op, *inputs)
        return out

    def add_many(self, op: Op, *inputs: str) -> tuple[str, ...]:
        return self.builder.add(op, inputs)

    def constant(self, array: Array, dtype: DType | None = None) -> str:
        return self.builder.constant(array, dtype)

    def indices(self, values: Array, dtype: DType) -> str:
        return self.builder.indices(values, dtype)

    def has(self, attribute: str) -> bool:
        return self._find(attribute) is not None

    def _find(self, name: str) -> AttributeProto | None:
        return next((a for a in self.node.attribute if a.name == name), None)

    def _required(self, name: str, kind: AttributeProto.AttributeType.ValueType) -> AttributeProto:
        a = self._find(name)
        if a is None:
            self.bad(f"lacks the attribute {name!r}")
        if a.type != kind:
            self.bad(f"attribute {name!r} should be {AttributeProto.AttributeType.Name(kind)}")
        return a

    def int_(self, attribute: str, default: int | None = None) -> int:
        if default is not None and not self.has(attribute):
            return default
        return self._required(attribute, AttributeProto.INT).i

    def float_(self, attribute: str, default: float | None = None) -> float:
        if default is not None and not self.has(attribute):
            return default
        return self._required(attribute, AttributeProto.FLOAT).f

    def string(self, attribute: str, default: str | None = None) -> str:
        if default is not None and not self.has(attribute):
            return default
        return self._required(attribute, AttributeProto.STRING).s.decode("utf-8", "replace")

    def ints(self, attribute: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        if default is not None and not self.has(attribute):
            return tuple(default)
        return tuple(self._required(attribute, AttributeProto.INTS).ints)

    def floats(self, attribute: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        if default is not None and not self.has(attribute):
            return tuple(default)
        return tuple(self._required(attribute, AttributeProto.FLOATS).floats)

    def tensor(self, attribute: str) -> Array:
        return read_tensor(self._required(attribute, AttributeProto.TENSOR).t, self.folder)[0]

    def tensor_dtype(self, attribute: str) -> DType:
        return element_type(self._required(attribute, AttributeProto.TENSOR).t.data_type, f"attribute {attribute!r}")

    def dtype(self, attribute: str, default: DType | None = None) -> DType:
        if default is not None and not self.has(attribute):
            return default
        return element_type(self.int_(attribute), f"attribute {attribute!r}")

    def unsupported(self, reason: str) -> NoReturn:
        raise NodeProblem(reason, bad=False)

    def bad(self, reason: str) -> NoReturn:
        raise NodeProblem(reason, bad=True)
