"""ONNX -> library: the path, as one function. What happens around the steps is the observer's business."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taskc import __version__
from taskc.artifact.assemble import Facts, KernelLaunch, plan_ports, plan_target, weight_offsets, weight_pieces
from taskc.artifact.library import write_library
from taskc.artifact.plan import Image, ModelPlan, TargetPlan
from taskc.codegen.backend import Compiled, compile_kernels
from taskc.errors import UsageError
from taskc.fuse.partition import partition
from taskc.fuse.units import Unit, make_units
from taskc.importer import import_model
from taskc.importer.source import Source
from taskc.ir.expr import Index, Var
from taskc.ir.graph import Graph
from taskc.ir.printer import graph_text, task_text
from taskc.observe import Observer
from taskc.passes.pipeline import default_passes, run_passes
from taskc.passes.precision import in_precision
from taskc.targets import TARGETS, Target
from taskc.tune.cache import Cache
from taskc.tune.choose import all_sizes
from taskc.tune.kernels import build_kernels
from taskc.tune.launches import BuiltLaunch, kernels_text, launches_text, make_launches
from taskc.tune.pick import CachedSchedules
from taskc.tune.problem import toolchain

STEPS = ("import", "passes", "partition", "kernels", "launches", "compile", "write")


def _quiet(message: str) -> None:
    warnings.warn(message, stacklevel=2)


@dataclass(frozen=True)
class Options:
    """How to compile. `sizes` are what symbolic dims are ranked for; `jobs` counts compilers at once (0: all CPUs).

    `cache` is a folder of tuned schedules; `locked` refuses kernels it does not have or has for another toolchain.
    `precision`: 'keep' the file's types; 'tf32' lets float32 products round their operands to TF32; 'fp16' and 'bf16' store
    float32 tensors in 16 bits between the inputs and the outputs, which stay as they are.
    Without `fuse` every task is a kernel of its own, without `branches` every kernel a launch of its own: slower, to measure
    what is gained."""

    targets: tuple[str, ...] = ("sm_90a",)
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict[str, "Sequence[int | None]"])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    jobs: int = 0
    header: bool = False
    cache: Path | None = None
    locked: bool = False
    precision: str = "keep"
    warn: Callable[[str], None] = _quiet
    fuse: bool = True
    branches: bool = True


def compile_model(source: Source, out: str | Path, target: str | Sequence[str] = "sm_90a", *, options: Options | None = None,
                  observe: Observer | None = None) -> ModelPlan:
    """Compiles an .onnx file (path, bytes or ModelProto) to the library `out` and the loader beside it.

    Raises a `TaskcError` that names the node, the cause and the next step; `Stopped` after the observer's last step."""
    options = options or Options(targets=(target,) if isinstance(target, str) else tuple(target))
    observe = observe or Observer()
    targets = [_target(name) for name in options.targets]
    front = read_groups(source, options, observe)
    plan = _plan(front, targets, options, observe)
    observe.step("write", lambda: write_library(plan, Path(out), header=options.header))
    return plan


@dataclass(frozen=True)
class Front:
    """The front half's result, the same for every target: groups, what derived dims are, and the sizes to rank for."""

    graph: Graph
    groups: list[Unit]
    derived: Mapping[str, Index]
    sizes: Mapping[str, int]


def read_groups(source: Source, options: Options, observe: Observer) -> Front:
    """Import, passes and partition."""
    graph = observe.step("import", lambda: import_model(source, shapes=options.shapes, dims=options.dims), graph_text)
    graph = observe.step("passes", lambda: in_precision(run_passes(graph, default_passes()), options.precision), graph_text)
    units, derived = make_units(graph, "tf32" if options.precision == "tf32" else "native")
    groups = observe.step("partition", lambda: partition(units, graph.output_values()) if options.fuse else units, _groups_text)
    symbols = {d.name: d for v in graph.inputs for d in graph.types[v].shape if isinstance(d, Var)}
    return Front(graph, groups, derived, all_sizes(symbols, derived, options.sizes))


def _plan(front: Front, targets: Sequence[Target], options: Options, observe: Observer) -> ModelPlan:
    graph = front.graph
    built = {t.name: _launches(front, t, options, observe) for t in targets}
    constants = [v.name for launches, _ in built.values() for x in launches for v in x.tensors]
    weights = weight_offsets(graph, [*constants, *(v for _, v in graph.outputs)])
    plans = tuple(_target_plan(graph, t, *built[t.name], front.derived, weights) for t in targets)
    symbols, inputs, outputs = plan_ports(graph)
    return ModelPlan(graph.name, symbols, inputs, outputs, plans, weight_pieces(graph, weights), _metadata(options))


def _launches(front: Front, target: Target, options: Options, observe: Observer) -> tuple[list[BuiltLaunch], Compiled]:
    cached = None if options.cache is None else CachedSchedules(Cache(options.cache, options.warn), toolchain(), options.warn, options.locked)
    done = observe.counter("kernels", len(front.groups))
    kernels = observe.step("kernels", lambda: build_kernels(front.groups, target, front.sizes, done, cached), kernels_text)
    if cached is not None:
        cached.finish(target)
    launches = observe.step("launches", lambda: make_launches(kernels, target, front.sizes, options.branches), launches_text)
    texts = {x.symbol: x.text for x in launches}
    compiled = observe.counter("compile", len(texts))
    return launches, observe.step("compile", lambda: compile_kernels(texts, target, options.jobs, compiled, with_ptx=target.name == "sm_80"))


def _target_plan(graph: Graph, target: Target, built: Sequence[BuiltLaunch], code: Compiled, derived: Mapping[str, Index],
                 weights: Mapping[str, int]) -> TargetPlan:
    launches = [KernelLaunch(x.symbol, x.program, tuple(t.name for t in x.tensors), x.name) for x in built]
    images = tuple(Image(i.kind, i.arch, i.data) for i in code.images)
    facts = {name: Facts(c.registers, c.spill_bytes) for name, c in code.kernels.items()}
    return plan_target(graph, target.name, launches, images, facts, derived, weights)


def _target(name: str) -> Target:
    if name not in TARGETS:
        raise UsageError(f"unknown target {name!r}: taskc compiles for {', '.join(TARGETS)}")
    return TARGETS[name]


def _groups_text(groups: Sequence[Unit]) -> str:
    return "\n".join(f"# {' + '.join(g.source)}\n{task_text(g.task)}" + "".join(f"#   refused: {r}\n" for r in g.refused) for g in groups)


def _metadata(options: Options) -> str:
    facts = {"producer": f"taskc {__version__}", "targets": list(options.targets), "toolchain": toolchain(), "precision": options.precision}
    return json.dumps(facts, sort_keys=True)
