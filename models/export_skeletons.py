"""torch modules -> committed graph skeletons (`skeletons/NAME.onnx`).  Run once; needs torch, unlike the rest.

    python -m models.export_skeletons [NAME ...]

The graphs are those of the current torch exporter.  For convolutional nets its last step, which folds BatchNorm into
the convolutions, is left out, so that the files hold BatchNormalization nodes for a compiler to fold.
"""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxscript.optimizer
import torch
from onnx import numpy_helper
from torchvision.models.mobilenetv2 import InvertedResidual
from torchvision.models.resnet import Bottleneck

from models.architectures import SOURCES, Source
from models.recipes import Calibrated, Normal, Recipe, Uniform, placeholder

SKELETONS = Path(__file__).parent / "skeletons"

# An attention mask holds two values; a trained matrix does not.
_MASK_VALUES = 2


def export(name: str) -> onnx.ModelProto:
    """The skeleton of one architecture: exporter's graph, weights replaced by recipes, no source locations."""
    source = SOURCES[name]()
    _make_distinct(source.module)
    model = _exported(source)
    _drop_origins(model)
    _drop_zero_conv_biases(model)
    _strip_weights(model, _residual_gains(source.module))
    model.graph.name = name
    return model


def _make_distinct(module: torch.nn.Module) -> None:
    """Equal tensors (fresh biases, norms) would be merged or optimised away by the exporter: make every one unique."""
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5)


def _exported(source: Source) -> onnx.ModelProto:
    has_batch_norm = any(isinstance(m, torch.nn.BatchNorm2d) for m in source.module.modules())
    axes = {axis: torch.export.Dim(name) for axis, name in source.dynamic.items()}
    with torch.no_grad():
        program = torch.onnx.export(
            source.module,
            (source.example,),
            dynamo=True,
            optimize=not has_batch_norm,
            input_names=[source.input_name],
            output_names=[source.output_name],
            dynamic_shapes=(axes,) if axes else None,
        )
    assert program is not None
    model = program.model_proto
    return _fold_constants(model) if has_batch_norm else model


def _fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """The exporter's own constant folding, without its rewrite rules (one of them folds BatchNorm)."""
    onnxscript.optimizer.fold_constants(model)
    onnxscript.optimizer.remove_unused_nodes(model)
    return model


def _drop_origins(model: onnx.ModelProto) -> None:
    """Drop where in the sources every value came from: long, and full of local paths."""
    del model.metadata_props[:]
    graph = model.graph
    for item in [graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        del item.metadata_props[:]
        item.ClearField("doc_string")


def _drop_zero_conv_biases(model: onnx.ModelProto) -> None:
    """Conv(x, w, 0) -> Conv(x, w)"""
    values = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        has_bias = node.op_type == "Conv" and len(node.input) == 3 and node.input[2] in values
        if has_bias and not numpy_helper.to_array(values[node.input[2]]).any():
            del node.input[2]
    used = {name for node in model.graph.node for name in node.input}
    kept = [t for t in model.graph.initializer if t.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _residual_gains(module: torch.nn.Module) -> set[str]:
    """Names of the scales of the last BatchNorm of each residual branch: kept small, so that sums stay moderate."""
    gains: set[str] = set()
    for path, block in module.named_modules():
        if isinstance(block, Bottleneck):
            gains.add(f"{path}.bn3.weight")
        elif isinstance(block, InvertedResidual) and block.use_res_connect:
            gains.add(f"{path}.conv.{len(block.conv) - 1}.weight")
    return gains


def _strip_weights(model: onnx.ModelProto, residual_gains: set[str]) -> None:
    uses: dict[str, tuple[str, int]] = {}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            uses.setdefault(name, (node.op_type, position))
    width = _width(model)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        is_mask = values.ndim > 1 and len(np.unique(values)) <= _MASK_VALUES
        if values.dtype != np.float32 or values.ndim == 0 or is_mask:
            continue
        recipe = _recipe(tensor.name, values.shape, uses[tensor.name], residual_gains, width)
        tensor.CopyFrom(placeholder(tensor.name, values.shape, recipe))


def _width(model: onnx.ModelProto) -> int | None:
    """The hidden size of a transformer, None for other nets."""
    norms = [n for n in model.graph.node if n.op_type == "LayerNormalization"]
    shapes = {t.name: t.dims for t in model.graph.initializer}
    return shapes[norms[0].input[1]][0] if norms else None


def _recipe(
    name: str, shape: tuple[int, ...], use: tuple[str, int], residual_gains: set[str], width: int | None
) -> Recipe:
    match use:
        case ("Conv", 1):
            return Normal(0.0, math.sqrt(2 / math.prod(shape[1:])))
        case ("BatchNormalization", 1):
            return Uniform(0.1, 0.3) if name in residual_gains else Uniform(0.5, 1.5)
        case ("BatchNormalization", 2):
            # Above zero: in front of a ReLU centred at zero, every normalised layer amplifies differences by a fifth,
            # and 47 of them in a row without a shortcut (Inception) bring float16 rounding into the first digit.
            return Uniform(0.1, 0.5) if residual_gains else Uniform(0.6, 1.4)
        case ("BatchNormalization", 3):
            return Calibrated(0.0)
        case ("BatchNormalization", 4):
            return Calibrated(1.0)
        case ("LayerNormalization", 1):
            return Normal(1.0, 0.1)
        case ("LayerNormalization", 2) | ("Add", _) | ("Gemm", 2):
            return Normal(0.0, 0.02)
        case ("Gather", 0):
            return Normal(0.0, 0.02)
        case ("MatMul", 1) | ("Gemm", 1):
            # Transformers start from 0.02 at width 768; narrow twins keep the same gain.  A classifier keeps variance.
            return Normal(0.0, 0.02 * math.sqrt(768 / width) if width else math.sqrt(1 / shape[1]))
        case _:
            raise ValueError(
                f"initializer {name!r} of shape {shape} is input {use[1]} of {use[0]}: add a recipe for it"
            )


def main(names: list[str]) -> None:
    SKELETONS.mkdir(exist_ok=True)
    for name in names or SOURCES:
        model = export(name)
        path = SKELETONS / f"{name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        counts = Counter(node.op_type for node in model.graph.node)
        print(
            name, f"{path.stat().st_size} bytes", ", ".join(f"{op} {n}" for op, n in sorted(counts.items())), flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
