"""Every operator's reader and reference against onnxruntime on one-node models; and what is refused, with its reason."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import taskc.ops
from taskc.errors import BadModel, TaskcError, Unsupported
from taskc.ir.graph import Array

sys.path.insert(0, str(Path(__file__).parent))
from cases import ALL, Case, f, n, s  # noqa: E402
from eager_reading import evaluate  # noqa: E402

for _module in pkgutil.iter_modules(taskc.ops.__path__):
    importlib.import_module(f"taskc.ops.{_module.name}")

TOLERANCE = {"float16": 2e-3, "float32": 2e-5}


def _node(case: Case, outputs: int = 1) -> tuple[onnx.NodeProto, dict[str, Array]]:
    names = ["" if v is None else f"in{i}" for i, v in enumerate(case.inputs)]
    values = {name: np.asarray(v) for name, v in zip(names, case.inputs, strict=True) if name}
    out = [f"out{i}" for i in range(outputs)]
    return onnx.helper.make_node(case.op, names, out, domain=case.domain, **case.attributes), values


def _onnxruntime(case: Case) -> Array:
    node, values = _node(case)
    fixed = {f"in{i}" for i in case.constant}
    kind = onnx.helper.np_dtype_to_tensor_dtype
    graph = onnx.helper.make_graph(
        [node], "one_node",
        [onnx.helper.make_tensor_value_info(k, kind(v.dtype), v.shape) for k, v in values.items() if k not in fixed],
        [onnx.ValueInfoProto(name="out0")], [onnx.numpy_helper.from_array(values[k], k) for k in values if k in fixed])
    opsets = [onnx.helper.make_opsetid("", case.opset), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {k: v for k, v in values.items() if k not in fixed})[0])


@pytest.mark.parametrize("case", ALL, ids=str)
def test_reference_agrees_with_onnxruntime(case: Case) -> None:
    wanted = _onnxruntime(case)
    node, values = _node(case)
    (found,) = evaluate(node, case.opset, values, {f"in{i}" for i in case.constant})
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    tolerance = case.tolerance + TOLERANCE.get(str(found.dtype), 0)
    exact = np.float64 if found.dtype.kind == "f" else found.dtype
    np.testing.assert_allclose(found.astype(exact), wanted.astype(exact), rtol=tolerance, atol=tolerance)


X = f(1, 2, 5, 6)
REFUSED: list[tuple[Case, type[TaskcError], str, int]] = [
    (Case("MaxPool", (X,), {"kernel_shape": [2, 2]}), Unsupported, "indices", 2),
    (Case("MaxPool", (X,), {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}), Unsupported, "see no element", 1),
    (Case("MaxPool", (X,), {"kernel_shape": [2]}), BadModel, "does not fit", 1),
    (Case("Conv", (X, f(3, 2, 2, 2)), {"auto_pad": "SAME"}), BadModel, "auto_pad", 1),
    (Case("Conv", (X, f(3, 2, 2, 2)), {"strides": [0, 1]}), BadModel, "positive", 1),
    (Case("ReduceSum", (X, n(1)), {}), Unsupported, "compile time", 1),
    (Case("ReduceSum", (X, n(4)), {}, (1,)), BadModel, "rank 4", 1),
    (Case("Softmax", (X,), {"axis": 4}), BadModel, "axis 4", 1),
    (Case("LayerNormalization", (X, f(6)), {}), Unsupported, "outputs", 3),
    (Case("BatchNormalization", (X, f(2), f(2), f(2), f(2)), {"training_mode": 1}), Unsupported, "training", 1),
    (Case("Attention", (X, X, X), {"softcap": 2.0}, opset=23), Unsupported, "softcap", 1),
    (Case("Attention", (f(2, 5, 6), f(2, 5, 6), f(2, 5, 6)), {"q_num_heads": 2}, opset=23), Unsupported, "heads", 1),
    (Case("MultiHeadAttention", (f(1, 5, 6),), {"num_heads": 2}, domain="com.microsoft"), Unsupported, "fusion", 1),
    (Case("Resize", (X, f(8), s(1, 1, 2, 2)), {"coordinate_transformation_mode": "tf_crop_and_resize"}, (2,)), Unsupported, "tf_crop", 1),
    (Case("Resize", (X, None, s(1, 1, 2, 2)), {}), Unsupported, "compile time", 1),
    (Case("Resize", (X, None, s(1, 2, 2)), {}, (2,)), BadModel, "3 scales", 1),
    (Case("Einsum", (X, X, X), {"equation": "abcd,abcd,abcd->a"}), Unsupported, "steps of two", 1),
    (Case("Einsum", (X, X), {"equation": "abc,abcd->a"}), BadModel, "labels", 1),
    (Case("QuantizeLinear", (X, f(1, 2, 5, 1)), {"block_size": 6}), Unsupported, "blocks", 1),
    (Case("LSTM", (f(3, 1, 4), f(1, 8, 4), f(1, 8, 2)), {"hidden_size": 2}), Unsupported, "recurrent over time", 1),
    (Case("TopK", (X, n(2)), {}), Unsupported, "sorting", 1),
    (Case("GridSample", (X, f(1, 3, 3, 2)), {}), Unsupported, "depend on data", 1),
]


@pytest.mark.parametrize(("case", "error", "reason", "outputs"), REFUSED, ids=lambda v: str(v) if isinstance(v, Case) else "")
def test_refusals_say_why(case: Case, error: Any, reason: str, outputs: int) -> None:
    node, values = _node(case, outputs)
    with pytest.raises(error, match=reason):
        evaluate(node, case.opset, values, {f"in{i}" for i in case.constant})
