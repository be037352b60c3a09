"""Whether a model compiles, without compiling it: every node that cannot, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from taskc.errors import Unsupported, UsageError
from taskc.fuse.units import Unit, make_units
from taskc.importer import import_model
from taskc.importer.source import Source
from taskc.importer.symbols import Shape
from taskc.ir.graph import Graph
from taskc.passes.pipeline import default_passes, run_passes
from taskc.schedules import TEMPLATES
from taskc.targets import TARGETS, Target


@dataclass(frozen=True)
class CheckReport:
    """A model that compiles: its nodes by operator, its tensors as text, and how many kernels it is before fusion."""

    name: str
    operators: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    units: int
    targets: tuple[str, ...] = field(default=())


def check_model(source: Source, targets: Sequence[str] = ("sm_90a",), *, shapes: Mapping[str, Shape] | None = None,
                dims: Mapping[str, int] | None = None) -> CheckReport:
    """Reads the model and asks every operator for its task and every template for each task.

    Raises BadModel, UsageError, or Unsupported with every node that cannot be compiled, grouped by reason."""
    chosen = [find_target(t) for t in targets]
    graph = import_model(source, shapes=shapes, dims=dims)
    units, _ = make_units(run_passes(graph, default_passes()))  # passes put other operators in the place of some
    problems = [p for t in chosen for p in _without_template(units, t)]
    if problems:
        raise Unsupported(f"{graph.name} uses what taskc has no kernel for:\n  " + "\n  ".join(problems))
    operators = Counter(n.op.name for n in graph.nodes)
    return CheckReport(graph.name, dict(operators.most_common()), _ports(graph, [(i, i) for i in graph.inputs]),
                       _ports(graph, graph.outputs), len(units), tuple(t.name for t in chosen))


def find_target(name: str) -> Target:
    """The target of that name. UsageError lists the names there are."""
    if name not in TARGETS:
        raise UsageError(f"unknown target {name!r}: taskc compiles for {', '.join(TARGETS)} (and 'native': the GPU here)")
    return TARGETS[name]


def _without_template(units: Sequence[Unit], target: Target) -> list[str]:
    """A line for each reason for which no template computes a unit, with the nodes it holds for."""
    nodes: dict[str, list[str]] = {}
    for unit in units:
        reasons = [f"{t.NAME}: {why}" for t in TEMPLATES if (why := t.why_not(unit.task, target)) is not None]
        if len(reasons) == len(TEMPLATES):
            nodes.setdefault("; ".join(reasons), []).append(" + ".join(unit.source))
    return [f"target {target.name}: {', '.join(names)}: {reason}" for reason, names in nodes.items()]


def _ports(graph: Graph, values: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{name}: {graph.types[v]}" for name, v in values)
