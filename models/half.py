"""A float32 model -> the same model in float16, as an exporter writes a module that was converted with `.half()`.

Every float32 tensor becomes float16: initializers, constants, graph inputs and outputs, value infos, and the targets of
Cast.  Values beyond float16's range, such as the float32 minimum of an attention mask, become its largest finite value.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

# Operators of which an operand must stay float32, or that choose a dtype themselves: none occurs in the zoo so far.
_NOT_CONVERTIBLE = frozenset(
    {"Resize", "QuantizeLinear", "DequantizeLinear", "RandomNormal", "RandomUniform", "EyeLike"}
)


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert `model` in place and return it.

    Raises ValueError, naming the node, for subgraphs and for operators that this conversion does not know.
    """
    graph = model.graph
    _halve_tensors(graph.initializer)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        if node.op_type in _NOT_CONVERTIBLE:
            raise ValueError(f"cannot convert node {node.name!r} ({node.op_type}) to float16: teach models/half.py")
        _halve_attributes(node)
    return model


def _halve_tensors(tensors: Iterable[TensorProto]) -> None:
    for tensor in tensors:
        if tensor.data_type == TensorProto.FLOAT:
            limits = np.finfo(np.float16)
            values: npt.NDArray[np.float32] = numpy_helper.to_array(tensor)
            finite = values.clip(limits.min, limits.max)
            tensor.CopyFrom(numpy_helper.from_array(finite.astype(np.float16), tensor.name))


def _halve_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise ValueError(f"cannot convert node {node.name!r} ({node.op_type}) to float16: it has a subgraph")
        if attribute.type == AttributeProto.TENSOR:
            _halve_tensors([attribute.t])
        elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.FLOAT16
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            raise ValueError(f"cannot convert node {node.name!r} (Constant) to float16: write it as a tensor")
