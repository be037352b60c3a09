"""Problems: what a schedule is chosen for. Two kernels with the same problem share their measurements."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from taskc.codegen.nvrtc import nvrtc_version
from taskc.fuse.stitch import task_dims
from taskc.fuse.units import Unit
from taskc.ir.expr import Var, variables
from taskc.ir.printer import task_text
from taskc.ir.task import Task, inputs, outputs
from taskc.targets.target import Target
from taskc.tune.choose import default_sizes
from taskc.tune.kernels import canonical


@dataclass(frozen=True)
class Problem:
    """A fused task, the sizes it is tuned for, and for which target. `text` is canonical: tensors are named in order of use."""

    unit: Unit
    target: Target
    sizes: tuple[tuple[str, int], ...]
    text: str

    @property
    def key(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]


def make_problem(unit: Unit, target: Target, known: Mapping[str, int]) -> Problem:
    """The problem a unit poses on a target with symbols at the sizes known, or middling ones."""
    task, _ = canonical(unit.task)
    sizes = default_sizes(symbols(task), known)
    used = dict(sizes)
    lines = [f"target {target.name} device {target.device.name}", *(f"size {k} = {v}" for k, v in sorted(used.items()))]
    for t in dict.fromkeys((*inputs(task), *outputs(task))):
        lines.append(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]{' constant' if t.constant else ''}")
    return Problem(unit, target, tuple(sorted(used.items())), "\n".join(lines) + "\n" + task_text(task))


def symbols(task: Task) -> dict[str, Var]:
    """Every symbolic dim of the task's axes and tensors."""
    found: dict[str, Var] = {}
    for e in (*task_dims(task), *(d for t in (*inputs(task), *outputs(task)) for d in t.shape)):
        found.update(variables(e))
    return found


def toolchain() -> str:
    """What a cached time depends on besides the kernel's text."""
    return "nvrtc " + ".".join(map(str, nvrtc_version()))
