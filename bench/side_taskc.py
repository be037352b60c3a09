"""Worker: a compiled case through taskc's loader, inputs and outputs on the GPU (torch tensors), and as host arrays."""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np

from bench.cases import Case, judge
from bench.timing import summary, wall
from bench.worker import serve
from taskc import __version__
from taskc.artifact import loader


def measure(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("ask") == "versions":
        return {"taskc": __version__}
    try:
        return _measure(Case(**request["case"]), request["device"], request["count"])
    finally:
        gc.collect()  # the model's memory, before the next one is loaded


def _measure(case: Case, device: str, count: int) -> dict[str, Any]:
    feed, other = case.arrays("feed.npz"), case.arrays("other.npz")
    start = time.perf_counter()
    model = loader.load(case.path("model.so"), device=device)
    got = model.run(feed)
    ready = time.perf_counter() - start
    row: dict[str, Any] = {"ready_s": round(ready, 3), **judge(case, got, model.run(other))}
    host_us, _ = summary(wall(lambda: model.run(feed), count))
    bound = _bind_on_device(model, feed) if device != "host" else model.bind(feed)
    bound.run()
    bound_got = {name: _numpy(a) for name, a in bound.outputs.items()}
    if any(not np.array_equal(bound_got[name], got[name]) for name in got):
        raise RuntimeError("a run on GPU tensors gives other bits than a run on host arrays")
    wall_us, _ = summary(wall(bound.run, count))
    model.time_device(20)
    us, us_min = summary(model.time_device(count))
    facts = model.statistics()
    row |= {"us": us, "us_min": us_min, "wall_us": wall_us, "wall_host_us": host_us, "graph": bool(facts["graph"])}
    return row | {"programmatic_edges": facts["programmatic_edges"], "arena_bytes": facts["arena_bytes"], "options": model.image}


def _bind_on_device(model: Any, feed: dict[str, Any]) -> Any:
    import torch  # the host's runs need none

    def on_gpu(info: Any) -> Any:
        return torch.empty(info.shape, dtype=getattr(torch, info.dtype), device=model.device)

    inputs = {name: torch.from_numpy(a).to(model.device) for name, a in feed.items()}
    outputs = {o.name: on_gpu(o) for o in model.outputs}
    torch.cuda.synchronize()
    return model.bind(inputs, outputs)


def _numpy(a: Any) -> Any:
    return a if isinstance(a, np.ndarray) else a.cpu().numpy()


if __name__ == "__main__":
    serve(measure)
