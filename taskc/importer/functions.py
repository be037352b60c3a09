"""Model-local functions: attributes passed by reference, and the functions by which ONNX itself defines some operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx.defs
from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

from taskc.importer.types import FROM_ONNX
from taskc.ir.graph import TensorType

Attributes = Mapping[str, AttributeProto]


def bind_attributes(node: NodeProto, given: Attributes) -> NodeProto:
    """The node with `attr = @name` replaced by the caller's attribute; without one the attribute is absent."""
    out = NodeProto()
    out.CopyFrom(node)
    del out.attribute[:]
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name in given:
                new = out.attribute.add()
                new.CopyFrom(given[a.ref_attr_name])
                new.name = a.name
            continue
        new = out.attribute.add()
        new.CopyFrom(a)
        for g in [new.g] if new.type == AttributeProto.GRAPH else list(new.graphs):
            inner = [bind_attributes(n, given) for n in g.node]
            del g.node[:]
            g.node.extend(inner)
    return out


def attributes_of_call(function: FunctionProto, call: NodeProto) -> dict[str, AttributeProto]:
    """The call's attributes, with the function's defaults where the call has none."""
    return {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}


def schema_function(schema: onnx.defs.OpSchema, node: NodeProto, opset: int, types: Sequence[TensorType | None]) -> FunctionProto | None:
    """The function by which ONNX defines an operator that taskc has no reader for, if it does."""
    if schema.has_function:
        body = schema.function_body
        out = FunctionProto()
        out.ParseFromString(body.SerializeToString())
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if not versions:
            return None
        text = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), [_type_proto(t).SerializeToString() for t in types])
        out = FunctionProto()
        try:
            out.ParseFromString(text)
        except DecodeError:
            return None
    else:
        return None
    if not out.node:
        return None
    del out.input[:]
    out.input.extend(i.name for i in schema.inputs)
    del out.output[:]
    out.output.extend(o.name for o in schema.outputs)
    return out


def _type_proto(t: TensorType | None) -> TypeProto:
    out = TypeProto()
    if t is not None:
        out.tensor_type.elem_type = next(number for number, dtype in FROM_ONNX.items() if dtype == t.dtype)
        for d in t.shape:
            dim = out.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
    return out
