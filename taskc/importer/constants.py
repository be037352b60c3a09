"""The Constant operator in all its forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import NodeProto

from taskc.importer.builder import Builder
from taskc.importer.problems import NodeProblem
from taskc.importer.tensors import read_sparse, read_tensor


def read_constant(node: NodeProto, builder: Builder, folder: Path | None) -> str:
    """The constant's value name; exactly one of the value attributes must be there."""
    if len(node.attribute) != 1:
        raise NodeProblem(f"has {len(node.attribute)} value attributes, ONNX wants exactly one", bad=True)
    (a,) = node.attribute
    stem = node.output[0]
    if a.name == "value":
        array, dtype = read_tensor(a.t, folder)
        return builder.constant(array, dtype, stem)
    if a.name == "sparse_value":
        array, dtype = read_sparse(a.sparse_tensor, folder)
        return builder.constant(array, dtype, stem)
    if a.name == "value_int":
        return builder.constant(np.array(a.i, np.int64), stem=stem)
    if a.name == "value_ints":
        return builder.constant(np.array(a.ints, np.int64), stem=stem)
    if a.name == "value_float":
        return builder.constant(np.array(a.f, np.float32), stem=stem)
    if a.name == "value_floats":
        return builder.constant(np.array(a.floats, np.float32), stem=stem)
    raise NodeProblem("strings are not handled", bad=False)
