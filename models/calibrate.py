"""Measures the BatchNorm statistics of the zoo's weights (seed 0) and writes `skeletons/NAME.npz`.

    python -m models.calibrate [NAME ...]

Random weights with made-up statistics make a deep network explode, or answer the same to every input.  Here every
BatchNormalization normalises by its own batch (training mode) while a batch of random images runs through onnxruntime
once, so that each layer is measured behind layers that are already normalised.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from models.recipes import FloatArray, fill
from models.zoo import calibrated_sizes, names, skeleton, statistics_path

# Images a batch: deep layers of the small twins have 1 to 4 pixels, so their statistics need more images.
SMALL_BATCH, LARGE_BATCH, SMALL_IMAGE = 8, 256, 100

# A channel that hardly varies must not be blown up by a tiny variance.
LEAST_VARIANCE = 1e-2


def measure(name: str) -> list[FloatArray]:
    """Means and variances of every BatchNorm of `name`, in the order of `calibrated_sizes`."""
    model = skeleton(name)
    wanted = list(calibrated_sizes(model))
    fill(model, 0, None)
    measured = _train_batch_norms(model)
    side = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    batch = LARGE_BATCH if side < SMALL_IMAGE else SMALL_BATCH
    _make_batch_free(model)
    images = np.random.default_rng(1).standard_normal((batch, 3, side, side), dtype=np.float32)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = session.run([measured[tensor] for tensor in wanted], {"image": images})
    results = {tensor: np.asarray(value, np.float32) for tensor, value in zip(wanted, outputs, strict=True)}
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            results[node.input[4]] = np.maximum(results[node.input[4]], LEAST_VARIANCE)
    return [results[tensor] for tensor in wanted]


def _train_batch_norms(model: onnx.ModelProto) -> dict[str, str]:
    """Switch every BatchNorm to training mode; returns statistic's initializer -> the graph output that measures it."""
    measured: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type != "BatchNormalization":
            continue
        kept = [a for a in node.attribute if a.name == "epsilon"]
        del node.attribute[:]
        node.attribute.extend(
            [*kept, helper.make_attribute("training_mode", 1), helper.make_attribute("momentum", 0.0)]
        )
        for statistic in node.input[3:5]:
            measured[statistic] = f"{statistic}.measured"
            node.output.append(measured[statistic])
            model.graph.output.append(helper.make_tensor_value_info(measured[statistic], TensorProto.FLOAT, None))
    return measured


def _make_batch_free(model: onnx.ModelProto) -> None:
    """Let the first axis of the image vary; drop what was inferred for batch 1, and the classifier behind it."""
    del model.graph.value_info[:]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    kept = [node for node in model.graph.node if node.op_type not in ("Reshape", "Flatten", "Gemm")]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    weights = [t for t in model.graph.initializer if t.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)
    outputs = [o for o in model.graph.output if o.name.endswith(".measured")]
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def main(chosen: list[str]) -> None:
    for name in chosen or names():
        if not calibrated_sizes(skeleton(name)):
            continue
        values = np.concatenate(measure(name))
        path = statistics_path(name)
        np.savez_compressed(path, values=values.astype(np.float16))
        print(f"{name}: {len(values)} values, {values.min():.3f} to {values.max():.3f}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
