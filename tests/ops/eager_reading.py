"""Reads one ONNX node and evaluates the operators it becomes at once, by their references; checks `infer` on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import onnx

from taskc.errors import BadModel, Unsupported
from taskc.ir.dtype import DType, from_numpy
from taskc.ir.graph import Array, Op, TensorType
from taskc.ops.registry import find_reader


class EagerReading:
    """The `Reading` of one node whose inputs have values; those in `constants` are known at compile time."""

    def __init__(self, node: onnx.NodeProto, opset: int, values: dict[str, Array], constants: set[str]) -> None:
        self.node, self.opset, self.values, self.constants = node, opset, dict(values), set(constants)
        self.attributes: dict[str, Any] = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.op_type, self.output_count = node.op_type, len(node.output)
        names = list(node.input)
        while names and not names[-1]:
            names.pop()
        self.inputs: tuple[str, ...] = tuple(names)

    def has_input(self, position: int) -> bool:
        return position < len(self.inputs) and bool(self.inputs[position])

    def type(self, value: str) -> TensorType:
        array = self.values[value]
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        return TensorType(dtype, array.shape)

    def contents(self, value: str) -> Array | None:
        return self.values[value] if value in self.constants else None

    def add(self, op: Op, *inputs: str) -> str:
        (out,) = self.add_many(op, *inputs)
        return out

    def add_many(self, op: Op, *inputs: str) -> tuple[str, ...]:
        types = op.infer([self.type(i) if i else None for i in inputs])
        results = op.reference(*(self.values[i] if i else None for i in inputs))
        names: list[str] = []
        for t, result in zip(types, results, strict=True):
            assert (t.dtype.numpy, t.shape) == (result.dtype, result.shape), f"{op}: infer says {t}, reference {result.dtype}{result.shape}"
            names.append(f"value{len(self.values)}")
            self.values[names[-1]] = result
        return tuple(names)

    def constant(self, array: Array, dtype: DType | None = None) -> str:
        assert dtype is None or dtype.numpy == array.dtype
        name = f"value{len(self.values)}"
        self.values[name] = array
        self.constants.add(name)
        return name

    def has(self, attribute: str) -> bool:
        return attribute in self.attributes

    def _get(self, attribute: str, default: Any) -> Any:
        value = self.attributes.get(attribute, default)
        assert value is not None, f"attribute {attribute} is missing"
        return value

    def int_(self, attribute: str, default: int | None = None) -> int:
        return int(self._get(attribute, default))

    def float_(self, attribute: str, default: float | None = None) -> float:
        return float(self._get(attribute, default))

    def string(self, attribute: str, default: str | None = None) -> str:
        value = self._get(attribute, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def ints(self, attribute: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        return tuple(int(i) for i in self._get(attribute, default))

    def floats(self, attribute: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        return tuple(float(f) for f in self._get(attribute, default))

    def tensor(self, attribute: str) -> Array:
        return np.asarray(onnx.numpy_helper.to_array(self._get(attribute, None)))

    def unsupported(self, reason: str) -> NoReturn:
        raise Unsupported(reason)

    def bad(self, reason: str) -> NoReturn:
        raise BadModel(reason)


def evaluate(node: onnx.NodeProto, opset: int, values: dict[str, Array], constants: set[str]) -> list[Array]:
    """The node's outputs by the references of what it is read as."""
    read = find_reader(node.op_type, opset, node.domain)
    assert read is not None, f"no reader of {node.op_type}"
    reading = EagerReading(node, opset, values, constants)
    names = read(reading)
    return [reading.values[n] for n in ([names] if isinstance(names, str) else names)]
