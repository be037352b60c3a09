"""The weights of a zoo model's .onnx file -> the torch module it was exported from.

The exporter keeps parameters' names, but for the matrices of Linear layers, which it writes transposed and under a number
of its own: those are found through the bias that is added to their product.
"""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import numpy as np
import onnx
import torch
from onnx import numpy_helper

# Parts that the exported function does not use.
UNUSED = ("pooler.", "AuxLogits.", "num_batches_tracked", "position_ids", "token_type_ids", ".attn.bias", "masked_bias")


def load_weights(module: torch.nn.Module, model: onnx.ModelProto) -> None:
    """Copies the file's weights into the module, in place. LookupError names a tensor that the file does not have."""
    values = {t.name: t for t in model.graph.initializer}
    transposed = _linear_matrices(model, values)
    missing: list[str] = []
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if name in values:
                array = numpy_helper.to_array(values[name])
            elif name in transposed:
                array = numpy_helper.to_array(values[transposed[name]]).T
            elif any(part in name for part in UNUSED):
                continue
            else:
                missing.append(name)
                continue
            if tuple(array.shape) != tuple(tensor.shape):
                raise LookupError(f"{name}: the file has shape {array.shape}, the module {tuple(tensor.shape)}")
            tensor.copy_(torch.from_numpy(np.array(array, dtype=np.float32 if array.dtype.kind == "f" else array.dtype)))
    if missing:
        raise LookupError(f"the file has no {', '.join(missing[:8])} ({len(missing)} in all)")


def _linear_matrices(model: onnx.ModelProto, values: dict[str, onnx.TensorProto]) -> dict[str, str]:
    """'X.weight' -> the initializer W of Add(MatMul(_, W), X.bias)."""
    makers = {o: n for n in model.graph.node for o in n.output}
    found: dict[str, str] = {}
    for node in model.graph.node:
        biases = [i for i in node.input if i in values and i.endswith(".bias")]
        if node.op_type != "Add" or not biases:
            continue
        product = makers.get(next(i for i in node.input if i != biases[0]))
        if product is not None and product.op_type == "MatMul" and product.input[1] in values:
            found[biases[0].removesuffix("bias") + "weight"] = product.input[1]
    return found
