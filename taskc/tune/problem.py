"""Problems: what a schedule is chosen for. Two kernels with the same problem share their schedule and their measurements."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from taskc.codegen.nvrtc import nvrtc_version
from taskc.fuse.stitch import task_dims
from taskc.fuse.units import Unit
from taskc.ir.expr import Var
from taskc.ir.facts import variables
from taskc.ir.printer import task_text
from taskc.ir.task import Contraction, Rows, Store, Task, inputs, map_values, outputs
from taskc.ir.value import Load, Tensor, Value, rewrite
from taskc.targets.target import Target
from taskc.tune.choose import default_sizes


@dataclass(frozen=True)
class Problem:
    """A fused task, the sizes it is tuned for, and for which target.

    `task` is canonical: its tensors are named in order of use, and stand for `tensors`. `text` says all that a time depends on."""

    unit: Unit
    target: Target
    sizes: tuple[tuple[str, int], ...]
    task: Task
    tensors: tuple[Tensor, ...]

    @cached_property
    def text(self) -> str:
        known = symbols(self.task)
        lines = [f"target {self.target.name} device {self.target.device.name}", *(f"size {k} = {v}{_facts(known[k])}" for k, v in self.sizes)]
        for t in dict.fromkeys((*inputs(self.task), *outputs(self.task))):
            lines.append(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]{' constant' if t.constant else ''}")
        if isinstance(self.task, Contraction) and self.task.precision != "native":
            lines.append(f"precision {self.task.precision}")
        return "\n".join(lines) + "\n" + task_text(self.task)

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]

    @property
    def nodes(self) -> str:
        """The user's nodes."""
        return " + ".join(self.unit.source)


def make_problem(unit: Unit, target: Target, known: Mapping[str, int]) -> Problem:
    """The problem a unit poses on a target with symbols at the sizes known, or middling ones."""
    task, tensors = canonical(unit.task)
    return Problem(unit, target, tuple(sorted(default_sizes(symbols(task), known).items())), task, tensors)


def _facts(v: Var) -> str:
    """What the compiler may rely on of a symbol: kernels differ by it."""
    facts = [f"at least {v.lo}"] if v.lo > 1 else []
    facts += [f"at most {v.hi}"] if v.hi is not None else []
    facts += [f"a multiple of {v.div}"] if v.div > 1 else []
    return "".join(f", {f}" for f in facts)


def symbols(task: Task) -> dict[str, Var]:
    """Every symbolic dim of the task's axes and tensors."""
    found: dict[str, Var] = {}
    for e in (*task_dims(task), *(d for t in (*inputs(task), *outputs(task)) for d in t.shape)):
        found.update(variables(e))
    return found


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


def toolchain() -> str:
    """What a cached time depends on besides the kernel's text."""
    return "nvrtc " + ".".join(map(str, nvrtc_version()))
