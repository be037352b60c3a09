"""Checks one node against ONNX's own schema before it is read: operator, inputs, outputs, attributes, element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx.defs
from onnx import AttributeProto, NodeProto

from taskc.importer.problems import NodeProblem
from taskc.importer.types import TYPE_STRINGS
from taskc.ir.graph import TensorType

HIGHEST_OPSET = onnx.defs.onnx_opset_version()


def find_schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """The operator's schema at an opset version; None for operators that ONNX does not define."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def check_node(node: NodeProto, schema: onnx.defs.OpSchema) -> None:
    """NodeProblem (bad) when counts, required inputs or attributes break the schema."""
    counts = ((len(node.input), schema.min_input, schema.max_input, "inputs"),
              (len(node.output), schema.min_output, schema.max_output, "outputs"))
    for have, least, most, what in counts:
        if not least <= have <= most:
            raise NodeProblem(f"has {have} {what}, ONNX wants {least}{f' to {most}' if least < most else ''}", bad=True)
    for i, name in enumerate(node.input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if not name and formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
            raise NodeProblem(f"its input {formal.name} is required but absent", bad=True)
    _check_attributes(node, schema)


def _check_attributes(node: NodeProto, schema: onnx.defs.OpSchema) -> None:
    seen: set[str] = set()
    for a in node.attribute:
        if a.name in seen:
            raise NodeProblem(f"attribute {a.name!r} is there twice", bad=True)
        seen.add(a.name)
        known = schema.attributes.get(a.name)
        if known is None:
            raise NodeProblem(f"has an attribute {a.name!r}, which {schema.name} of opset {schema.since_version} lacks", bad=True)
        wanted: Any = known.type  # an enum whose stub has no members
        if a.type != int(wanted.value):
            have = AttributeProto.AttributeType.Name(a.type) if a.type in AttributeProto.AttributeType.values() else str(a.type)
            raise NodeProblem(f"attribute {a.name!r} is {have}, ONNX wants {wanted.name}", bad=True)
    missing = [n for n, a in schema.attributes.items() if a.required and n not in seen]
    if missing:
        raise NodeProblem(f"lacks the attribute {', '.join(missing)}", bad=True)


def check_types(schema: onnx.defs.OpSchema, types: Sequence[TensorType | None]) -> None:
    """NodeProblem (bad) when an input's element type is not one the schema allows, or inputs that must agree do not."""
    bound: dict[str, TensorType] = {}
    for i, t in enumerate(types):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if t is None:
            continue
        if TYPE_STRINGS[t.dtype] not in formal.types:
            raise NodeProblem(f"its input {formal.name} is {t.dtype}, which {schema.name} of opset {schema.since_version} "
                              "does not take", bad=True)
        if formal.is_homogeneous:
            first = bound.setdefault(formal.type_str, t)
            if first.dtype != t.dtype:
                raise NodeProblem(f"inputs that must have one element type are {first.dtype} and {t.dtype}", bad=True)
