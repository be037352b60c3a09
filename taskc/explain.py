"""How a model would be compiled: its groups, what fusion refused and why, the schedule of each and the ones that came close."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskc.check import find_target
from taskc.fuse.partition import partition
from taskc.fuse.units import Unit, make_units
from taskc.importer import import_model
from taskc.importer.source import Source
from taskc.importer.symbols import Shape
from taskc.ir.expr import Var, variables
from taskc.ir.task import inputs, outputs
from taskc.passes.pipeline import default_passes, run_passes
from taskc.targets.target import Target
from taskc.tune.choose import NoTemplate, choose, default_sizes, rank

NEAR = 3  # how many schedules are shown


@dataclass(frozen=True)
class GroupFacts:
    """One kernel to be: the user's nodes, what joined them, refusals with reasons, and schedules by predicted microseconds."""

    nodes: tuple[str, ...]
    kind: str
    joined: tuple[str, ...]
    refused: tuple[str, ...]
    template: str
    schedules: tuple[tuple[str, float], ...]
    templates_refused: tuple[str, ...]


def explain(source: Source, target: str = "sm_90a", *, shapes: Mapping[str, Shape] | None = None, dims: Mapping[str, int] | None = None,
            sizes: Mapping[str, int] | None = None) -> list[GroupFacts]:
    """The groups in execution order. Raises as compile_model does before it builds kernels; a group that no template
    computes is in the list, with an empty template and each one's reason."""
    chosen = find_target(target)
    graph = run_passes(import_model(source, shapes=shapes, dims=dims), default_passes())
    units, _ = make_units(graph)
    return [_facts(u, chosen, sizes or {}) for u in partition(units, graph.output_values())]


def _facts(unit: Unit, target: Target, known: Mapping[str, int]) -> GroupFacts:
    dims: dict[str, Var] = {}
    for tensor in (*inputs(unit.task), *outputs(unit.task)):
        for extent in tensor.shape:
            dims.update(variables(extent))
    sizes = default_sizes(dims, known)
    kind = type(unit.task).__name__
    try:
        choice = choose(unit.task, target, sizes)
    except NoTemplate as e:
        return GroupFacts(unit.source, kind, unit.joined, unit.refused, "", (), (str(e),))
    near = rank(choice.template, unit.task, target, sizes)[:NEAR]
    return GroupFacts(unit.source, kind, unit.joined, unit.refused, choice.template.NAME,
                      tuple((str(s), seconds * 1e6) for seconds, s in near), choice.refused)
