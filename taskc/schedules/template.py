"""What a schedule template offers; each template is a module with these names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from taskc.ir.dtype import DType
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index
from taskc.ir.facts import variables
from taskc.ir.program import Program
from taskc.ir.task import Attention, Contraction, Map, Task, outputs
from taskc.ir.value import loads
from taskc.targets.target import Target


@dataclass(frozen=True)
class Traits:
    """All that a schedule space may depend on besides the target: never an extent.

    operand: the element type of the data that is computed on; result: that of the first output; precision: of a Contraction."""

    operand: DType
    result: DType
    precision: str = "native"


def traits_of(task: Task) -> Traits:
    """The traits of a task."""
    result = outputs(task)[0].dtype
    if isinstance(task, Contraction):
        return Traits(task.operand, result, task.precision)
    if isinstance(task, Attention):
        return Traits(task.operand, result)
    values = [s.value for s in task.stores] if isinstance(task, Map) else [task.x]
    found = [load.tensor.dtype for v in values for load, _ in loads(v)]
    return Traits(found[0] if found else result, result)


class Template(Protocol):
    """A schedule template. Schedules are frozen dataclasses of the template's own; `str` of one is short and unique."""

    @property
    def NAME(self) -> str: ...

    def space(self, target: Target, traits: Traits, /) -> tuple[Any, ...]:
        """Every legal schedule, the same for every size; at most about 200."""
        ...

    def why_not(self, task: Task, target: Target, /) -> str | None:
        """Why the template cannot compute the task, or None."""
        ...

    def estimate(self, task: Task, schedule: Any, target: Target, sizes: Mapping[str, int], /) -> float:
        """Predicted seconds on the target's device with the symbols at `sizes`: what ranks the space. Infinite: unfit."""
        ...

    def build(self, task: Task, schedule: Any, target: Target, name: str, /) -> Program:
        """The anchor's program; port accesses are logical."""
        ...


def concrete(e: Index, sizes: Mapping[str, int]) -> int:
    """An extent at the sizes a schedule is ranked for; an empty one ranks like one of 1, since any schedule does for nothing."""
    return max(1, e if isinstance(e, int) else evaluate(e, sizes))


def stride(address: Index, name: str, sizes: Mapping[str, int]) -> int:
    """How far the address moves when the variable goes from 0 to 1, all other variables that are not in `sizes` at 0."""
    at = {v: sizes.get(v, 0) for v in variables(address)}
    return evaluate(address, {**at, name: 1}) - evaluate(address, {**at, name: 0})
