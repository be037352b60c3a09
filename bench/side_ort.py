"""Worker: onnxruntime's CUDA provider with a CUDA graph, each the best it can be told to be: layouts, convolution bias fused or not.

Run with the GPU build of onnxruntime first on the module path.
"""

# pyright: basic, reportMissingImports=false
# (torch and the GPU build are not among the development dependencies)

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import onnxruntime
import torch  # brings the CUDA libraries into the process

from bench.cases import Case, judge
from bench.timing import between_events, summary, wall
from bench.worker import serve


def measure(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("ask") == "versions":
        torch.cuda.init()
        return {"onnxruntime-gpu": onnxruntime.__version__}
    case = Case(**request["case"])
    gc.collect()  # the last model's sessions
    torch.cuda.synchronize()  # raises where an earlier try has lost the context: the caller starts a fresh process
    layouts = (1, 0) if case.convolutional else (0,)
    tried = [_try(case, nhwc, fused, request["count"]) for nhwc in layouts for fused in ((1, 0) if case.convolutional else (0,))]
    return {"tried": tried}


def _try(case: Case, nhwc: int, fused: int, count: int) -> dict[str, Any]:
    options = " ".join(w for w, on in (("prefer_nhwc", nhwc), ("fuse_conv_bias", fused)) if on) or "default"
    try:
        return {"options": options, **_session(case, nhwc, fused, count)}
    except Exception as e:  # the provider raises types of its own; some options fail on some models
        return {"options": options, "error": f"{type(e).__name__}: {e}"[:300]}


def _session(case: Case, nhwc: int, fused: int, count: int) -> dict[str, Any]:
    stream = torch.cuda.Stream()
    provider = {
        "device_id": 0, "use_tf32": 0, "enable_cuda_graph": "1", "cudnn_conv_algo_search": "EXHAUSTIVE", "prefer_nhwc": nhwc,
        "fuse_conv_bias": fused, "user_compute_stream": str(stream.cuda_stream),
    }  # fmt: skip
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(case.path("model.onnx")), settings, providers=[("CUDAExecutionProvider", provider)])
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise RuntimeError(f"it fell back to {session.get_providers()}")
    binding = session.io_binding()
    feed, other = case.arrays("feed.npz"), case.arrays("other.npz")
    inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(a, "cuda", 0) for name, a in feed.items()}
    wanted = case.arrays("want.npz")
    dtype = np.float16 if case.precision == "fp16" else np.float32
    outputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.full(a.shape, np.nan, dtype), "cuda", 0) for name, a in wanted.items()}
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    run_options = onnxruntime.RunOptions()
    run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def launch() -> None:
        session.run_with_iobinding(binding, run_options)

    def run(values: dict[str, Any]) -> dict[str, Any]:
        for name, a in values.items():
            inputs[name].update_inplace(a)
        torch.cuda.synchronize()
        launch()
        torch.cuda.synchronize()
        return {name: value.numpy().copy() for name, value in outputs.items()}

    for _ in range(3):  # eager, captured, replayed
        run(feed)
    ready = time.perf_counter() - start
    verdict = judge(case, run(feed), run(other))
    run(feed)
    us, us_min = summary(between_events(torch, stream, launch, count))

    def finish() -> None:
        launch()
        stream.synchronize()

    wall_us, _ = summary(wall(finish, count))
    return {"us": us, "us_min": us_min, "wall_us": wall_us, "ready_s": round(ready, 2), **verdict}


if __name__ == "__main__":
    serve(measure)
