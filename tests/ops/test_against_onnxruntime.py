"""Each operator's reader and reference against onnxruntime on one-node models; what is refused, and the reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from taskc.errors import BadModel, TaskcError, Unsupported
from taskc.importer.importer import import_model
from taskc.ir.graph import Array, Graph

sys.path.insert(0, str(Path(__file__).parent))
from cases import ALL, Case, f, n, s

TOLERANCE = {"float16": 2e-3, "float32": 2e-5}


def _model(case: Case) -> tuple[bytes, dict[str, Array]]:
    """The one-node model and the values of its inputs."""
    names = ["" if v is None else f"in{i}" for i, v in enumerate(case.inputs)]
    values = {name: np.asarray(v) for name, v in zip(names, case.inputs, strict=True) if name}
    out = [f"out{i}" for i in range(case.outputs)]
    node = onnx.helper.make_node(case.op, names, out, domain=case.domain, **case.attributes)
    fixed = {f"in{i}" for i in case.constant}
    kind = onnx.helper.np_dtype_to_tensor_dtype
    feeds = {k: v for k, v in values.items() if k not in fixed}
    inputs = [onnx.helper.make_tensor_value_info(k, kind(v.dtype), v.shape) for k, v in feeds.items()]
    weights = [onnx.numpy_helper.from_array(values[k], k) for k in values if k in fixed]
    graph = onnx.helper.make_graph([node], "one_node", inputs, [onnx.ValueInfoProto(name=o) for o in out], weights)
    opsets = [onnx.helper.make_opsetid("", case.opset), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model.SerializeToString(), feeds


def _onnxruntime(model: bytes, feeds: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def _by_references(graph: Graph, feeds: dict[str, Array]) -> Array:
    """The graph's first output by the operators' references, each result checked against what `infer` says."""
    values = {**graph.constants, **feeds}
    for node in graph.nodes:
        types = [graph.types[o] for o in node.outputs]
        results = node.op.reference(*(values[i] if i else None for i in node.inputs))
        found = [(r.dtype, r.shape) for r in results]
        assert found == [(t.dtype.numpy, t.shape) for t in types], f"{node.op} infers {types}"
        values.update(zip(node.outputs, results, strict=True))
    return values[graph.outputs[0][1]]


def _known_fault(case: Case) -> str:
    """What onnxruntime itself gets wrong in the version that is here: the last for Python 3.10 has bugs that later ones have not."""
    old = tuple(int(x) for x in onnxruntime.__version__.split(".")[:2]) < (1, 24)
    if old and case.op == "AveragePool" and case.attributes.get("count_include_pad") and case.attributes.get("pads") == [1, 0, 2, 1]:
        return "onnxruntime before 1.24 counts too few elements in padded windows"
    if old and case.op == "Einsum" and case.attributes.get("equation") == "ijk->ki":
        return "onnxruntime before 1.24 fails on sums of an inner label"
    return ""


@pytest.mark.parametrize("case", ALL, ids=str)
def test_reference_agrees_with_onnxruntime(case: Case) -> None:
    if _known_fault(case):
        pytest.skip(_known_fault(case))
    model, feeds = _model(case)
    wanted, found = _onnxruntime(model, feeds), _by_references(import_model(model), feeds)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    tolerance = case.tolerance + TOLERANCE.get(str(found.dtype), 0)
    exact = np.float64 if found.dtype.kind == "f" else found.dtype
    np.testing.assert_allclose(found.astype(exact), wanted.astype(exact), rtol=tolerance, atol=tolerance)


X = f(1, 2, 5, 6)
REFUSED: list[tuple[Case, type[TaskcError], str]] = [
    (Case("MaxPool", (X,), {"kernel_shape": [2, 2]}, outputs=2), Unsupported, "indices"),
    (Case("MaxPool", (X,), {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}), Unsupported, "see no element"),
    (Case("MaxPool", (X,), {"kernel_shape": [2]}), BadModel, "does not fit"),
    (Case("Conv", (X, f(3, 2, 2, 2)), {"auto_pad": "SAME"}), BadModel, "auto_pad"),
    (Case("Conv", (X, f(3, 2, 2, 2)), {"strides": [0, 1]}), BadModel, "positive"),
    (Case("ReduceSum", (X, n(1)), {}), Unsupported, "compile time"),
    (Case("ReduceSum", (X, n(4)), {}, (1,)), BadModel, "rank 4"),
    (Case("Softmax", (X,), {"axis": 4}), BadModel, "axis 4"),
    (Case("LayerNormalization", (X, f(6)), {}, outputs=3), Unsupported, "outputs"),
    (Case("BatchNormalization", (X, f(2), f(2), f(2), f(2)), {"training_mode": 1}), Unsupported, "training"),
    (Case("Attention", (X, X, X), {"softcap": 2.0}, opset=23), Unsupported, "softcap"),
    (Case("Attention", (f(2, 5, 6), f(2, 5, 6), f(2, 5, 6)), {"q_num_heads": 4, "kv_num_heads": 4}, opset=23),
     BadModel, "4 heads"),
    (Case("MultiHeadAttention", (f(1, 5, 6),), {"num_heads": 2}, domain="com.microsoft"), Unsupported, "fusion"),
    (Case("Resize", (X, f(8), s(1, 1, 2, 2)), {"coordinate_transformation_mode": "tf_crop_and_resize"}, (2,)),
     Unsupported, "tf_crop"),
    (Case("Resize", (X, None, s(1, 1, 2, 2)), {}), Unsupported, "compile time"),
    (Case("Resize", (X, None, s(1, 2, 2)), {}, (2,)), BadModel, "3 scales"),
    (Case("Einsum", (X, X, X), {"equation": "abcd,abcd,abcd->a"}), Unsupported, "steps of two"),
    (Case("Einsum", (X, X), {"equation": "abc,abcd->a"}), BadModel, "labels"),
    (Case("QuantizeLinear", (X, f(1, 2, 5, 1)), {"block_size": 6}), Unsupported, "blocks"),
    (Case("LSTM", (f(3, 1, 4), f(1, 8, 4), f(1, 8, 2)), {"hidden_size": 2}), Unsupported, "recurrent over time"),
    (Case("TopK", (X, n(2)), {}, outputs=2), Unsupported, "sorting"),
    (Case("GridSample", (X, f(1, 3, 3, 2)), {}), Unsupported, "depend on data"),
]


@pytest.mark.parametrize(("case", "error", "reason"), REFUSED, ids=[str(r[0]) for r in REFUSED])
def test_refusals_say_why(case: Case, error: Any, reason: str) -> None:
    with pytest.raises(error, match=reason):
        import_model(_model(case)[0])
