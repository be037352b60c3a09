"""Groups -> kernels: a schedule for each, the template's program, stitched, as text. Equal problems are one kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskc.codegen.emit import emit
from taskc.errors import Unsupported
from taskc.fuse.stitch import stitch
from taskc.fuse.units import Unit
from taskc.ir.expr import Index, prod
from taskc.ir.program import Do, Program
from taskc.ir.task import Task
from taskc.ir.value import Tensor
from taskc.ir.verify import verify
from taskc.schedules import TEMPLATES
from taskc.targets.target import Target
from taskc.tune.choose import Choice, NoTemplate, choose
from taskc.tune.problem import Problem, canonical, make_problem

TRIGGER = Do("grid_dependency_launch")
PLACEHOLDER = "taskc_kernel"


@dataclass(frozen=True)
class BuiltKernel:
    """One launch: the kernel's symbol and text, its program, and the graph's tensors in the order of its parameters."""

    unit: Unit
    choice: Choice
    program: Program
    symbol: str
    text: str
    tensors: tuple[Tensor, ...]


Build = Callable[[Problem], BuiltKernel]


def build_kernels(units: Sequence[Unit], target: Target, sizes: Mapping[str, int], done: Callable[[str], None] | None = None,
                  build: Build | None = None) -> list[BuiltKernel]:
    """A kernel for every unit, in order; `build` makes that of a problem (by default with the analytic model's schedule).

    Raises Unsupported with every unit that no template computes."""
    build = build or build_problem
    built: list[BuiltKernel] = []
    known: dict[tuple[str, Task], BuiltKernel] = {}
    reasons: list[str] = []
    for unit in units:
        problem = make_problem(unit, target, sizes)
        posed = (problem.text, problem.task)
        try:
            if posed not in known:
                known[posed] = build(problem)
            built.append(_shared(known[posed], problem))
        except NoTemplate as e:
            reasons.append(f"{problem.nodes}: {e}")
        if done is not None:
            done(problem.nodes)
    if reasons:
        raise Unsupported(f"no kernel template for target {target.name} computes:\n  " + "\n  ".join(reasons))
    return built


def _shared(kernel: BuiltKernel, problem: Problem) -> BuiltKernel:
    """The kernel as another unit with the same problem launches it."""
    return replace(kernel, unit=problem.unit, tensors=_arguments(kernel.program, problem.tensors))


def build_kernel(unit: Unit, target: Target, sizes: Mapping[str, int]) -> BuiltKernel:
    """The unit's best-ranked schedule as a kernel; raises NoTemplate."""
    return build_problem(make_problem(unit, target, sizes))


def build_problem(problem: Problem, avoid: Collection[tuple[str, str]] = ()) -> BuiltKernel:
    """The best-ranked schedule as a kernel, but for those to avoid (template, schedule's text); raises NoTemplate."""
    choice = choose(problem.task, problem.target, dict(problem.sizes), avoid)
    return _build(problem.unit, problem.task, problem.tensors, problem.target, choice)


def build_scheduled(unit: Unit, target: Target, template: str, schedule: Any) -> BuiltKernel:
    """The unit with a given template and schedule as a kernel."""
    found = next(t for t in TEMPLATES if template == t.NAME)
    return _build(unit, *canonical(unit.task), target, Choice(found, schedule, 0.0))


def _build(unit: Unit, task: Task, tensors: tuple[Tensor, ...], target: Target, choice: Choice) -> BuiltKernel:
    program = stitch(choice.template.build(task, choice.schedule, target, PLACEHOLDER), task)
    program.wide_index = any(_is_large(t) for t in tensors)
    program.pdl = target.has("pdl")
    if starts_successors_at_once(tensors):
        program.body[:] = [TRIGGER, *(s for s in program.body if s != TRIGGER)]
    verify(program)
    text = emit(program)
    symbol = f"{choice.template.NAME}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return BuiltKernel(unit, choice, program, symbol, text.replace(PLACEHOLDER, symbol), _arguments(program, tensors))


def starts_successors_at_once(tensors: Sequence[Tensor]) -> bool:
    """Whether a kernel lets its successors start as its first act, and not where its template says (when its sums are done).

    Measured on an H200 (docs/experiments.md): with 16-bit tensors, whose kernels are short, that is 2 to 3 % of a model's time; with
    float32 the successors' blocks take memory bandwidth and places that the kernel itself still needs."""
    return any(t.dtype.bytes == 2 for t in tensors)


def _arguments(program: Program, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    by_name = {f"t{i}": t for i, t in enumerate(tensors)}
    return tuple(by_name[t.name] for t in program.tensors)


def _is_large(t: Tensor) -> bool:
    """Whether a 32-bit index may overflow; symbolic shapes are checked when they are bound."""
    n: Index = prod(t.shape)
    return isinstance(n, int) and n >= 2**31
