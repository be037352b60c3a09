"""Small ONNX models for the tests: a model from nodes, feeds and constants, and the importer's answer to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from taskc.importer import import_model
from taskc.ir.interpret import evaluate_graph

Array = Any


def node(op: str, inputs: str, outputs: str, domain: str = "", name: str = "", **attributes: Any) -> NodeProto:
    """A node; names are separated by blanks, '-' is an absent input."""
    names = ["" if i == "-" else i for i in inputs.split()]
    return helper.make_node(op, names, outputs.split(), domain=domain, name=name, **attributes)


def info(name: str, array: Array, dims: Sequence[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape if dims is None else dims)


def branch(nodes: Sequence[NodeProto], output: str, constants: Mapping[str, Array] | None = None) -> GraphProto:
    """A subgraph without inputs."""
    kept = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    return helper.make_graph(list(nodes), "branch", [], [helper.make_tensor_value_info(output, 1, None)], kept)


def model(nodes: Sequence[NodeProto], feeds: Mapping[str, Array], outputs: str, constants: Mapping[str, Array] | None = None,
          opset: int = 17, dims: Mapping[str, Sequence[Any]] | None = None, ir: int = 8, **more: Any) -> ModelProto:
    """A model whose inputs are the feeds (with symbolic `dims` where given); output types are left open."""
    inputs = [info(k, np.asarray(v), (dims or {}).get(k)) for k, v in feeds.items()]
    outs = [helper.make_tensor_value_info(o, 1, None) for o in outputs.split()]
    kept = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "case", inputs, outs, kept)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in more.pop("domains", ()))]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, **more)


def results(m: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Imported from bytes, run by the operators' references."""
    return evaluate_graph(import_model(m.SerializeToString()), {k: np.asarray(v) for k, v in feeds.items()})


def check(nodes: Sequence[NodeProto], feeds: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float = 1e-6,
          **options: Any) -> None:
    """The model's outputs are the expected ones, in dtype, shape and value."""
    found = results(model(nodes, feeds, " ".join(expected), **options), feeds)
    for name, want in expected.items():
        have, want = found[name], np.asarray(want)
        assert (have.dtype, have.shape) == (want.dtype, want.shape), name
        if want.dtype.kind == "f":
            np.testing.assert_allclose(have.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(have, want, err_msg=name)
