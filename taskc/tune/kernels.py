"""Groups -> kernels: a schedule for each, the template's program, stitched, as text. Equal texts are one kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskc.codegen.emit import emit
from taskc.errors import Unsupported
from taskc.fuse.stitch import stitch, task_dims
from taskc.fuse.units import Unit
from taskc.ir.expr import Index, Var, prod, variables
from taskc.ir.program import Program
from taskc.ir.task import Rows, Store, Task, inputs, map_values, outputs
from taskc.ir.value import Load, Tensor, Value, rewrite
from taskc.ir.verify import verify
from taskc.schedules import TEMPLATES
from taskc.targets.target import Target
from taskc.tune.choose import Choice, NoTemplate, choose, default_sizes

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


Build = Callable[[Unit, Target, Mapping[str, int]], BuiltKernel]


def build_kernels(units: Sequence[Unit], target: Target, sizes: Mapping[str, int], done: Callable[[str], None] | None = None,
                  build: Build | None = None) -> list[BuiltKernel]:
    """A kernel for every unit, in order; `build` chooses its schedule (by default the analytic model does).

    Raises Unsupported with every unit that no template computes."""
    build = build or build_kernel
    built: list[BuiltKernel] = []
    problems: list[str] = []
    for unit in units:
        try:
            built.append(build(unit, target, sizes))
        except NoTemplate as e:
            problems.append(f"{' + '.join(unit.source)}: {e}")
        if done is not None:
            done(" + ".join(unit.source))
    if problems:
        raise Unsupported(f"no kernel template for target {target.name} computes:\n  " + "\n  ".join(problems))
    return built


def build_kernel(unit: Unit, target: Target, sizes: Mapping[str, int]) -> BuiltKernel:
    """The unit's best-ranked schedule as a kernel; raises NoTemplate."""
    task, original = canonical(unit.task)
    dims: dict[str, Var] = {}
    for e in (*task_dims(task), *(d for t in original for d in t.shape)):
        dims.update(variables(e))
    return _build(unit, task, original, target, choose(task, target, default_sizes(dims, sizes)))


def build_scheduled(unit: Unit, target: Target, template: str, schedule: Any) -> BuiltKernel:
    """The unit with a given template and schedule as a kernel."""
    task, original = canonical(unit.task)
    found = next(t for t in TEMPLATES if template == t.NAME)
    return _build(unit, task, original, target, Choice(found, schedule, 0.0))


def _build(unit: Unit, task: Task, original: tuple[Tensor, ...], target: Target, choice: Choice) -> BuiltKernel:
    program = stitch(choice.template.build(task, choice.schedule, target, PLACEHOLDER), task)
    program.wide_index = any(_is_large(t) for t in original)
    program.pdl = target.has("pdl")
    verify(program)
    text = emit(program)
    symbol = f"{choice.template.NAME}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    by_name = {f"t{i}": t for i, t in enumerate(original)}
    return BuiltKernel(unit, choice, program, symbol, text.replace(PLACEHOLDER, symbol), tuple(by_name[t.name] for t in program.tensors))


def _is_large(t: Tensor) -> bool:
    """Whether a 32-bit index may overflow; symbolic shapes are checked when they are bound."""
    n: Index = prod(t.shape)
    return isinstance(n, int) and n >= 2**31


def canonical(task: Task) -> tuple[Task, tuple[Tensor, ...]]:
    """The task with its tensors named t0, t1, … in order of use, and the tensors they stand for."""
    originals = tuple(dict.fromkeys((*inputs(task), *outputs(task))))
    new = {t: replace(t, name=f"t{i}") for i, t in enumerate(originals)}

    def value(v: Value) -> Value:
        return rewrite(v, lambda x: Load(new[x.tensor], x.index) if isinstance(x, Load) else None)

    def stores(ss: Sequence[Store]) -> tuple[Store, ...]:
        return tuple(replace(s, tensor=new[s.tensor]) for s in ss)

    renamed = map_values(task, value)
    if isinstance(renamed, Rows):
        return replace(renamed, element=stores(renamed.element), row_stores=stores(renamed.row_stores)), originals
    return replace(renamed, stores=stores(renamed.stores)), originals

