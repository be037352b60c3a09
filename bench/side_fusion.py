"""Worker: one model compiled with fusion, with fusion but without early launches, and without fusion; timed in turns."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.cases import TOLERANCE, Array, Case, feeds, relative_error
from bench.timing import summary
from bench.worker import serve
from taskc.artifact import loader
from taskc.artifact.library import write_library
from taskc.artifact.plan import ModelPlan
from taskc.compile import Options, compile_model

TURNS = 2


def measure(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _measure(Case(**request["case"]), request)
    finally:
        gc.collect()  # the models' memory, before the next ones are loaded


def _measure(case: Case, request: Mapping[str, Any]) -> dict[str, Any]:
    target, cache = request["target"], request["cache"]
    options = Options(targets=(target,), cache=None if cache is None else Path(cache), warn=lambda _: None)
    source, paths = str(case.path("model.onnx")), {k: case.path(f"{k}.so") for k in ("us", "no_pdl_us", "unfused_us")}
    plan = compile_model(source, paths["us"], options=options)
    write_library(without_early_launches(plan), paths["no_pdl_us"])
    compile_model(source, paths["unfused_us"], options=replace(options, fuse=False, branches=False))
    feed = feeds(onnx.load(str(case.path("model.onnx"))), 1)
    models = {k: loader.load(path, device="host" if target == "host" else "cuda:0") for k, path in paths.items()}
    outputs = {k: model.run(feed) for k, model in models.items()}  # on the host the timed runs write there again
    verdict = agree(outputs, TOLERANCE[case.precision])
    times: dict[str, list[float]] = {k: [] for k in models}
    for _ in range(TURNS):
        for k, model in models.items():
            model.time_device(min(20, request["count"]))
            times[k] += model.time_device(request["count"])
    edges = {k: model.statistics()["programmatic_edges"] for k, model in models.items()}
    found = {k: summary(us)[0] for k, us in times.items()} | {f"{k}_min": summary(us)[1] for k, us in times.items()}
    return {**found, **verdict, "programmatic_edges": edges["us"], "no_pdl_edges": edges["no_pdl_us"]}


def without_early_launches(plan: ModelPlan) -> ModelPlan:
    """The plan with the same images, each launch after the end of its predecessors."""
    targets = tuple(replace(t, kernels=tuple(replace(k, pdl=False) for k in t.kernels)) for t in plan.targets)
    return replace(plan, targets=targets)


def agree(outputs: Mapping[str, Mapping[str, Array]], tolerance: float) -> dict[str, Any]:
    """Whether the unfused library's outputs are those of the fused one within the tolerance, and those without early launches bit by bit."""
    fused, waiting, unfused = (outputs[k] for k in ("us", "no_pdl_us", "unfused_us"))
    difference = relative_error(unfused, fused)
    same = all(np.array_equal(waiting[n], a, equal_nan=True) for n, a in fused.items())
    return {"right": bool(difference <= tolerance and same), "difference": difference, "same_without_pdl": bool(same)}


if __name__ == "__main__":
    serve(measure)
