"""Zoo models as files for a benchmark: the .onnx, two seeded inputs, and the outputs that a careful evaluation gives.

The reference of a float16 model is the same file with its tensors widened to float32 (the weights keep their float16
values), run by onnxruntime on the CPU: what the file means, without the rounding of every intermediate result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

from models import zoo

Array = npt.NDArray[Any]

TOLERANCE = {"fp32": 2e-5, "fp16": 3e-2}  # relative norm; float32 frameworks differ by 5e-7 to 2e-6, float16 stores by up to 1e-2
ALIVE = 0.01  # how far two inputs' outputs must lie apart
CONVOLUTIONAL = ("resnet", "mobilenet", "inception", "cnn")


@dataclass(frozen=True)
class Case:
    """A zoo model in one precision ('fp16' or 'fp32') and the folder of its files."""

    model: str
    precision: str
    folder: str

    @property
    def label(self) -> str:
        return f"{self.model}-{self.precision}"

    def path(self, name: str) -> Path:
        """model.onnx, model.so, feed.npz, other.npz (a second input), want.npz, want_other.npz."""
        return Path(self.folder, self.label, name)

    @property
    def convolutional(self) -> bool:
        return self.model.startswith(CONVOLUTIONAL)

    def arrays(self, name: str) -> dict[str, Array]:
        with np.load(self.path(name), allow_pickle=False) as file:
            return {key: file[key] for key in file.files}


def build(case: Case) -> onnx.ModelProto:
    """The case's model."""
    return zoo.build(case.model, half=case.precision == "fp16")


def make_files(case: Case, run: Callable[[onnx.ModelProto, Mapping[str, Array]], dict[str, Array]]) -> onnx.ModelProto:
    """Writes the case's files; `run` evaluates a float32 model -> outputs by name."""
    model = build(case)
    case.path("").mkdir(parents=True, exist_ok=True)
    case.path("model.onnx").write_bytes(model.SerializeToString())
    wide = widen(model)
    for feed_name, want_name, seed in (("feed.npz", "want.npz", 1), ("other.npz", "want_other.npz", 2)):
        feed = feeds(model, seed)
        np.savez(case.path(feed_name), **feed)  # type: ignore[arg-type]
        np.savez(case.path(want_name), **run(wide, widened_feed(feed)))  # type: ignore[arg-type]
    return model


def feeds(model: onnx.ModelProto, seed: int, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Seeded inputs: normal values for floats, token numbers below the vocabulary for integers."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for i in model.graph.input:
        kind = i.type.tensor_type
        shape = [d.dim_value or (sizes or {}).get(d.dim_param, 1) for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            out[i.name] = rng.standard_normal(shape).astype(dtype)
        else:
            out[i.name] = rng.integers(0, vocabulary(model), shape).astype(dtype)
    return out


def vocabulary(model: onnx.ModelProto) -> int:
    """Rows of the largest table that a Gather reads."""
    rows = {t.name: t.dims[0] for t in model.graph.initializer if t.dims}
    return max((rows[n.input[0]] for n in model.graph.node if n.op_type == "Gather" and n.input[0] in rows), default=2)


def widened_feed(feed: Mapping[str, Array]) -> dict[str, Array]:
    return {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in feed.items()}


def widen(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float16 model -> a float32 copy with the same weights' values; a float32 model -> a copy."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for t in wide.graph.initializer:
        _widen_tensor(t)
    for value in [*wide.graph.input, *wide.graph.output, *wide.graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
    return wide


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def relative_error(got: Mapping[str, Any], want: Mapping[str, Array]) -> float:
    """The largest relative norm ‖got - want‖ / ‖want‖ over the outputs; infinite where a value is missing or no number."""
    worst = 0.0
    for name, w in want.items():
        if name not in got:
            return math.inf
        g, w64 = np.asarray(got[name]).astype(np.float64), w.astype(np.float64)
        if g.shape != w64.shape:
            return math.inf
        error = float(np.linalg.norm(g - w64) / max(float(np.linalg.norm(w64)), 1e-300))
        worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst


def judge(case: Case, got: Mapping[str, Any], got_other: Mapping[str, Any]) -> dict[str, Any]:
    """rel_err (of both inputs), whether it is within the precision's tolerance, and whether two inputs give different outputs."""
    error = max(relative_error(got, case.arrays("want.npz")), relative_error(got_other, case.arrays("want_other.npz")))
    apart = relative_error({k: np.asarray(v) for k, v in got.items()}, {k: np.asarray(v) for k, v in got_other.items()})
    return {"rel_err": error, "right": error <= TOLERANCE[case.precision], "live": ALIVE < apart < math.inf}
