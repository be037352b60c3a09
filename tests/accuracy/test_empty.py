"""Tensors without elements: what NumPy gives, from the whole path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from taskc.artifact import loader
from taskc.compile import compile_model

Shape = tuple[int, ...]
# operator, inputs (all ones), weights, attributes, what comes out
CASES: dict[str, tuple[str, dict[str, Shape], dict[str, np.ndarray], dict[str, int], np.ndarray]] = {
    "no images": ("Conv", {"x": (0, 3, 8, 8)}, {"w": np.ones((4, 3, 3, 3), np.float32)}, {}, np.empty((0, 4, 6, 6))),
    "nothing to sum": ("ReduceSum", {"x": (2, 0)}, {"a": np.array([1])}, {"keepdims": 0}, np.zeros(2)),
    "nothing to multiply": ("MatMul", {"x": (2, 0)}, {"w": np.ones((0, 3), np.float32)}, {}, np.zeros((2, 3))),
    "an empty part": ("Concat", {"x": (0, 3), "z": (2, 3)}, {}, {"axis": 0}, np.ones((2, 3))),
    "no elements": ("Add", {"x": (0, 3), "z": (0, 3)}, {}, {}, np.empty((0, 3))),
    "no columns": ("Softmax", {"x": (3, 0)}, {}, {}, np.empty((3, 0))),
}


@pytest.mark.parametrize("case", CASES)
def test_empty(tmp_path: Path, case: str) -> None:
    op, inputs, weights, attributes, wanted = CASES[case]
    node = helper.make_node(op, [*inputs, *weights], ["y"], **attributes)
    ins = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    graph = helper.make_graph([node], "g", ins, [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    compile_model(model, tmp_path / "m.so", "host")
    feed = {n: np.ones(s, np.float32) for n, s in inputs.items()}
    got = loader.load(tmp_path / "m.so", device="host").run(feed)["y"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, wanted)
