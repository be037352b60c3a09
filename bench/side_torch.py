"""Worker: the same live model in PyTorch, its weights taken from the .onnx file: eager in a CUDA graph, or torch.compile."""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import onnx
import torch

from bench.cases import Case, judge
from bench.timing import between_events, summary, wall
from bench.torch_weights import load_weights
from bench.worker import serve
from models.architectures import SOURCES

Run = Callable[[], Any]


def measure(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("ask") == "versions":
        return {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "cuda": str(torch.version.cuda)}
    case = Case(**request["case"])
    gc.collect()  # the last model
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    layouts = ("channels_last", "channels_first") if case.convolutional and request["mode"] == "eager" else ("channels_last",)
    if not case.convolutional:
        layouts = ("default",)
    return {"tried": [_try(case, layout, request["mode"], request["count"]) for layout in layouts]}


def _try(case: Case, layout: str, mode: str, count: int) -> dict[str, Any]:
    try:
        with torch.no_grad():
            return {"options": layout, **_measure(case, layout, mode, count)}
    except Exception as e:  # a compiler of its own: anything may be raised
        return {"options": layout, "error": f"{type(e).__name__}: {e}"[:300]}


def module_of(case: Case) -> tuple[torch.nn.Module, str, str]:
    """The case's module on the CPU with the file's weights, and its input's and output's names."""
    source = SOURCES[case.model]()
    load_weights(source.module, onnx.load(str(case.path("model.onnx"))))
    module = source.module.half() if case.precision == "fp16" else source.module
    return module.eval(), source.input_name, source.output_name


def _measure(case: Case, layout: str, mode: str, count: int) -> dict[str, Any]:
    module, input_name, output_name = module_of(case)
    module = module.cuda()
    x, other = (torch.from_numpy(case.arrays(name)[input_name]).cuda() for name in ("feed.npz", "other.npz"))
    if layout == "channels_last":
        module = module.to(memory_format=torch.channels_last)
        x, other = (t.contiguous(memory_format=torch.channels_last) for t in (x, other))
    start = time.perf_counter()
    static = x.clone(memory_format=torch.preserve_format)
    launch, result = _graph(module, static) if mode == "eager" else _compiled(module, static)
    ready = time.perf_counter() - start

    def run(values: torch.Tensor) -> dict[str, Any]:
        static.copy_(values)
        launch()
        torch.cuda.synchronize()
        return {output_name: result().float().cpu().numpy()}

    def finish() -> None:
        launch()
        torch.cuda.current_stream().synchronize()

    verdict = judge(case, run(x), run(other))
    run(x)
    us, us_min = summary(between_events(torch, torch.cuda.current_stream(), launch, count))
    wall_us, _ = summary(wall(finish, count))
    return {"us": us, "us_min": us_min, "wall_us": wall_us, "ready_s": round(ready, 2), **verdict}


def _graph(module: torch.nn.Module, x: torch.Tensor) -> tuple[Run, Run]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            module(x)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(x)
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, lambda: out


def _compiled(module: torch.nn.Module, x: torch.Tensor) -> tuple[Run, Run]:
    torch._dynamo.reset()
    compiled = torch.compile(module, mode="max-autotune")
    last: list[Any] = [None]

    def launch() -> None:
        last[0] = compiled(x)

    for _ in range(4):
        launch()
    torch.cuda.synchronize()
    return launch, lambda: last[0]


if __name__ == "__main__":
    serve(measure)
