"""16-bit weights and constants are rounded once, in the file: nothing folds into them at compile time."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper

from models import zoo
from taskc.importer import import_model
from taskc.ir.dtype import F16, F32
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.passes.pipeline import default_passes, run_passes


def test_batch_norm_of_halves_stays_beside_the_convolution_in_float32() -> None:
    model = zoo.build("resnet_tiny", half=True)
    file = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    graph = run_passes(import_model(model), default_passes())
    convolutions = [n for n in graph.nodes if isinstance(n.op, Conv)]
    kept = {np.sort(w, axis=None).tobytes() for w in file.values() if w.ndim == 4}
    for n in convolutions:
        weight = graph.constants[n.inputs[1]]
        assert weight.dtype == np.float16
        values = np.sort(weight[weight != 0], axis=None)  # channels may have been padded with zeros
        assert any(np.frombuffer(k, np.float16)[np.frombuffer(k, np.float16) != 0].tobytes() == values.tobytes() for k in kept)
    scales = [n for n in graph.nodes if isinstance(n.op, Elementwise) and n.op.to == F16]
    assert len(scales) >= len(convolutions)
    assert all(F32 in {graph.types[i].dtype for i in n.inputs} for n in scales)


def test_batch_norm_of_floats_goes_into_the_weights() -> None:
    graph = run_passes(import_model(zoo.build("resnet_tiny")), default_passes())
    assert not [n for n in graph.nodes if isinstance(n.op, Elementwise) and n.op.function == "mul"]
