"""ONNX -> library: the path, as one function; each step is a function of the layers below and knows nothing of the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taskc import __version__
from taskc.artifact.library import write_library
from taskc.artifact.plan import ModelPlan, TargetPlan
from taskc.importer import Source, import_model
from taskc.ir.graph import Graph
from taskc.kernels import KernelSet, build_kernels
from taskc.observe import Observer
from taskc.passes.pipeline import default_passes, run_passes
from taskc.plan import plan_ports, plan_target, plan_weights
from taskc.targets import TARGETS
from taskc.toolchain import compile_kernels
from taskc.errors import UsageError
from taskc.fuse.partition import partition
from taskc.fuse.units import Unit, make_units


@dataclass(frozen=True)
class Options:
    """How to compile. `sizes` are what symbolic dims are tuned for; `jobs` counts compilers at once."""

    targets: tuple[str, ...] = ("sm_90a",)
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict[str, "Sequence[int | None]"])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    jobs: int = 0
    header: bool = False


STEPS = ("import", "passes", "partition", "kernels", "compile", "write")


def compile_model(source: Source, out: str | Path | None = None, target: str | Sequence[str] = "sm_90a", *,
                  options: Options | None = None, observe: Observer | None = None) -> ModelPlan | None:
    """Compiles an .onnx file (path, bytes or ModelProto) to the library `out` and the loader beside it.

    Returns the plan; None when the observer stopped after an earlier step. Raises a `TaskcError` that names the node, the
    cause and the next step."""
    options = options or Options(targets=(target,) if isinstance(target, str) else tuple(target))
    observe = observe or Observer()
    targets = [_target(name) for name in options.targets]
    graph: Graph | None = observe.step("import", lambda: import_model(source, shapes=options.shapes, dims=options.dims))
    graph = observe.step("passes", lambda: run_passes(_need(graph), default_passes(), observe.passed)) if graph else None
    if graph is None:
        return None
    whole = graph
    units, derived = make_units(whole)
    groups: list[Unit] | None = observe.step("partition", lambda: partition(units, whole.output_values()))
    if groups is None:
        return None
    plans: list[TargetPlan] = []
    for t in targets:
        kernels: KernelSet | None = observe.step("kernels", lambda: build_kernels(groups, t, options.sizes, observe.kernel))
        images = observe.step("compile", lambda: compile_kernels(_need(kernels), t, options.jobs, observe.compiled)) if kernels else None
        if kernels is None or images is None:
            return None
        plans.append(plan_target(whole, groups, kernels, images, t, derived))
    symbols, inputs, outputs = plan_ports(whole)
    plan = ModelPlan(whole.name, symbols, inputs, outputs, tuple(plans), plan_weights(whole, groups), _metadata(options))
    if out is not None:
        observe.step("write", lambda: write_library(plan, Path(out), header=options.header) or Path(out))
    return plan


def _target(name: str):  # noqa: ANN202
    if name not in TARGETS:
        raise UsageError(f"unknown target {name!r}: taskc compiles for {', '.join(TARGETS)}")
    return TARGETS[name]


def _need(x):  # noqa: ANN001, ANN202
    assert x is not None
    return x


def _metadata(options: Options) -> str:
    return json.dumps({"producer": f"taskc {__version__}", "targets": list(options.targets)}, sort_keys=True)
