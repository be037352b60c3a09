"""How a model would be compiled: its groups, what was refused and why, each group's schedule and ports, and the ones that came close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from taskc.check import find_target
from taskc.errors import UsageError
from taskc.fuse.partition import partition
from taskc.fuse.units import Unit, make_units
from taskc.importer import import_model
from taskc.importer.source import Source
from taskc.importer.symbols import Shape
from taskc.ir.dtype import F16, F32
from taskc.ir.expr import Var
from taskc.passes.pipeline import default_passes, run_passes
from taskc.passes.rule import Refusal
from taskc.schedules import TEMPLATES
from taskc.schedules.template import Traits
from taskc.targets import TARGETS, Target
from taskc.tune.choose import NoTemplate, all_sizes, rank
from taskc.tune.kernels import BuiltKernel, build_problem
from taskc.tune.launches import make_launches, nodes
from taskc.tune.problem import make_problem

NEAR = 3  # how many schedules are shown


@dataclass(frozen=True)
class GroupFacts:
    """One kernel to be: the user's nodes, the kind of its anchor, what joined them, refusals of fusion with reasons, schedules by
    predicted microseconds, and each port's access (width, axis) under the first of them. `launch`: the number of its launch;
    `shares`: the other kernels in it; `apart`: one that is alike and independent, and why the two are not one launch."""

    nodes: tuple[str, ...]
    kind: str
    joined: tuple[str, ...]
    refused: tuple[str, ...]
    template: str
    schedules: tuple[tuple[str, float], ...]
    templates_refused: tuple[str, ...]
    ports: tuple[tuple[str, str], ...] = ()
    launch: int = 0
    shares: tuple[str, ...] = ()
    apart: str = ""


@dataclass(frozen=True)
class Explained:
    """A model for one target. `refusals`: rewrites that found their place in the graph and did not apply, with the reason."""

    target: str
    refusals: tuple[Refusal, ...]
    groups: tuple[GroupFacts, ...]

    @property
    def launches(self) -> int:
        """How many launches the groups are: branches share one."""
        return len({g.launch for g in self.groups})

    def about(self, node: str) -> Explained:
        """What concerns one of the user's nodes, by its name or a part of it. UsageError: there is none."""
        names = dict.fromkeys(n for g in self.groups for n in g.nodes)
        wanted = {node} if node in names else {n for n in names if node in n}
        if not wanted:
            near = ", ".join([*names][:8]) + (", …" if len(names) > 8 else "")
            raise UsageError(f"--node {node}: no kernel computes a node with that in its name; there are {near}")
        return Explained(self.target, tuple(r for r in self.refusals if any(w in r.node for w in wanted)),
                         tuple(g for g in self.groups if wanted & set(g.nodes)))


def explain(source: Source, target: str = "sm_90a", *, shapes: Mapping[str, Shape] | None = None, dims: Mapping[str, int] | None = None,
            sizes: Mapping[str, int] | None = None) -> Explained:
    """The groups in execution order. Raises as compile_model does before it builds kernels; a group that no template
    computes is in the list, with an empty template and each one's reason."""
    chosen = find_target(target)
    refusals: list[Refusal] = []
    graph = run_passes(import_model(source, shapes=shapes, dims=dims), default_passes(note=refusals.append))
    units, derived = make_units(graph)
    symbols = {d.name: d for v in graph.inputs for d in graph.types[v].shape if isinstance(d, Var)}
    known = all_sizes(symbols, derived, sizes or {})
    found = [_facts(u, chosen, known) for u in partition(units, graph.output_values())]
    return Explained(chosen.name, tuple(dict.fromkeys(refusals)), _with_launches(found, chosen, known))


Found = tuple[GroupFacts, "BuiltKernel | None"]


def _facts(unit: Unit, target: Target, sizes: Mapping[str, int]) -> Found:
    """(the group's facts, its kernel if a template computes it)."""
    problem = make_problem(unit, target, sizes)
    kind = type(unit.task).__name__
    try:
        built = build_problem(problem)
    except NoTemplate as e:
        return GroupFacts(unit.source, kind, unit.joined, unit.refused, "", (), (str(e),)), None
    near = rank(built.choice.template, problem.task, target, dict(problem.sizes))[:NEAR]
    return GroupFacts(unit.source, kind, unit.joined, unit.refused, built.choice.template.NAME, tuple((str(s), seconds * 1e6) for seconds, s in near),
                      built.choice.refused, tuple(sorted(built.program.notes.items()))), built


def _with_launches(found: Sequence[Found], target: Target, sizes: Mapping[str, int]) -> tuple[GroupFacts, ...]:
    """The groups with what shares their launch. A model with a group that has no kernel has no launches: each counts as one then."""
    kernels = [k for _, k in found if k is not None]
    if len(kernels) < len(found):
        return tuple(replace(facts, launch=n) for n, (facts, _) in enumerate(found))
    place = {id(k): (n, x) for n, x in enumerate(make_launches(kernels, target, sizes)) for k in x.kernels}
    out: list[GroupFacts] = []
    for facts, kernel in found:
        number, launch = place[id(kernel)]
        out.append(replace(facts, launch=number, shares=tuple(nodes(k) for k in launch.kernels if k is not kernel), apart=launch.apart))
    return tuple(out)


@dataclass(frozen=True)
class SpaceFacts:
    """The legal schedules of a template on a target for operands of one type."""

    template: str
    target: str
    operand: str
    schedules: tuple[str, ...]


def spaces() -> list[SpaceFacts]:
    """Every template's space on every target, for float16 and float32 operands; empty ones are left out."""
    found: list[SpaceFacts] = []
    for template in TEMPLATES:
        for target in TARGETS.values():
            for dtype in (F16, F32):
                schedules = tuple(str(s) for s in template.space(target, Traits(dtype, dtype)))
                if schedules:
                    found.append(SpaceFacts(template.NAME, target.name, dtype.name, schedules))
    return found
