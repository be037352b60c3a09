"""Worker: makes a case's files (onnxruntime's CPU provider gives the reference) and compiles it with taskc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from bench.cases import Array, Case, make_files
from bench.worker import serve
from taskc.compile import Options, compile_model


def run_reference(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    """onnxruntime on the CPU, without reordering optimisations of its own beyond the basic ones."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = min(4, os.cpu_count() or 1)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outs: Any = session.run(None, dict(feed))  # pyright: ignore[reportUnknownMemberType]
    return {o.name: np.asarray(a) for o, a in zip(model.graph.output, outs, strict=True)}


def prepare(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("ask") == "versions":
        return {"onnx": onnx.__version__, "onnxruntime (reference)": onnxruntime.__version__, "nvrtc": version("nvidia-cuda-nvrtc")}
    case = Case(**request["case"])
    start = time.perf_counter()
    make_files(case, run_reference)
    built = time.perf_counter() - start
    if request["target"] is None:  # a run of the peers alone
        return {"build_s": round(built, 2)}
    start = time.perf_counter()
    cache = request.get("cache")
    options = Options(targets=(request["target"],), jobs=request["jobs"], cache=None if cache is None else Path(cache))
    plan = compile_model(str(case.path("model.onnx")), case.path("model.so"), options=options)
    target = plan.targets[0]
    return {
        "build_s": round(built, 2), "compile_s": round(time.perf_counter() - start, 2), "kernels": len(target.kernels),
        "launches": len(target.steps), "spilling": [k.symbol for k in target.kernels if k.spill_bytes],
    }  # fmt: skip


if __name__ == "__main__":
    serve(prepare)
