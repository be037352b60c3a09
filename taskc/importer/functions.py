"""Model-local functions: attributes passed by reference, and the functions by which ONNX itself defines some operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx.defs
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

from taskc.importer.problems import NodeProblem
from taskc.importer.types import FROM_ONNX
from taskc.ir.graph import TensorType

Attributes = Mapping[str, AttributeProto]
FunctionKey = tuple[str, str, str]  # domain, name, overload

DEPTH_LIMIT = 60


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


def expanded_size(functions: Mapping[FunctionKey, FunctionProto], key: FunctionKey, known: dict[FunctionKey, int],
                  calling: tuple[FunctionKey, ...] = ()) -> int:
    """How many nodes a call of the function becomes. NodeProblem (bad) for functions that call themselves, or too deeply.

    A file of a few kB can ask for billions of nodes, so this is counted before anything is inlined."""
    if key in known:
        return known[key]
    if key in calling:
        raise NodeProblem(f"function {key[1]!r} calls itself", bad=True)
    if len(calling) > DEPTH_LIMIT:
        raise NodeProblem(f"functions call each other more than {DEPTH_LIMIT} deep", bad=True)
    total = 1
    for n in functions[key].node:
        inner = ("" if n.domain == "ai.onnx" else n.domain, n.op_type, n.overload)
        total += expanded_size(functions, inner, known, (*calling, key)) if inner in functions else 1
    known[key] = total
    return total


def schema_function(schema: onnx.defs.OpSchema, node: NodeProto, opset: int, types: Sequence[TensorType | None]) -> FunctionProto | None:
    """The function by which ONNX defines an operator that taskc has no reader for, if it does."""
    known: Any = schema  # onnx's stubs leave these members out
    if not is_defined_by_function(schema):
        return None
    out = FunctionProto()
    if known.has_function:
        out.ParseFromString(known.function_body.SerializeToString())
    else:
        versions = [v for v in known.context_dependent_function_opset_versions if v <= opset]
        if not versions:
            return None
        text = known.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), [_type_proto(t).SerializeToString() for t in types])
        out.ParseFromString(text)
    if not out.node:
        return None
    del out.input[:]
    out.input.extend(i.name for i in schema.inputs)
    del out.output[:]
    out.output.extend(o.name for o in schema.outputs)
    return out


def is_defined_by_function(schema: onnx.defs.OpSchema) -> bool:
    """Whether ONNX itself says how the operator is made of others."""
    known: Any = schema
    return bool(known.has_function or known.has_context_dependent_function)


def _type_proto(t: TensorType | None) -> TypeProto:
    out = TypeProto()
    if t is not None:
        out.tensor_type.elem_type = next(number for number, dtype in FROM_ONNX.items() if dtype == t.dtype)
        for d in t.shape:
            dim = out.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
    return out
