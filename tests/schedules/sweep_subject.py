"""What the sweep runs a schedule on: a task, the points it runs at, and parts that many of these tasks have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from taskc.ir.dtype import DType
from taskc.ir.task import Task
from taskc.ir.value import Const, Load, Value, call, rewrite
from taskc.schedules import Template
from taskc.targets import Target


@dataclass(frozen=True)
class Point:
    """Values of the symbols, and what the data are: 'normal', 'special' (with NaN and infinities) or 'positive'.

    chain: the error is compared with that of a sequential float32 chain of multiply-adds."""

    sizes: tuple[tuple[str, int], ...]
    data: str = "normal"
    chain: bool = False

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.sizes) + (f" {self.data}" if self.data != "normal" else "")


def point(data: str = "normal", **sizes: int) -> Point:
    return Point(tuple(sizes.items()), data)


Points = Callable[[Any], "tuple[Point, ...]"]


@dataclass(frozen=True)
class Subject:
    """A task, and the points to run it at under a schedule. `part`: which of a family of bounds; not a choice of its own."""

    template: Template
    operand: DType
    kind: str
    fused: bool
    task: Task
    points: Points
    precision: str = "native"
    part: str = ""
    tolerance: float = 0.0  # relative to the largest value; 0: what the output's type allows
    floor: float = 0.0  # the largest value counts as at least this: sums may cancel
    takes: Callable[[Any], bool] = field(default=lambda _: True)

    @property
    def group(self) -> str:
        """The template with its element type: what a schedule space belongs to."""
        return f"{self.template.NAME} {'tf32' if self.precision == 'tf32' else self.operand.name}"

    @property
    def label(self) -> str:
        return f"{self.group} {self.kind}{self.part}"

    def why_not(self, schedule: Any, target: Target) -> str | None:
        """Why the schedule is not run on this subject. Only what would be wrong or impossible counts, not what would be slow."""
        if not self.takes(schedule):
            return "left to another part"
        least = {name: 1 for name, _ in self.points(schedule)[0].sizes}  # few rows: the estimate refuses what is slow for many
        reason = self.template.why_not(self.task, target)
        return reason or (None if isfinite(self.template.estimate(self.task, schedule, target, least)) else "does not fit the task")


def constant(x: float, dtype: DType) -> Const:
    return Const(float(x) if dtype.is_float else int(x), dtype.compute)


def shifted(x: Value, dtype: DType) -> Value:
    """x / 2 + 1 (integers: x + 1): 1 where x is 0."""
    half = call("mul", x, constant(0.5, dtype)) if dtype.is_float else x
    return call("add", half, constant(1, dtype))


def raised(x: Value, dtype: DType) -> Value:
    """exp(x), 1 where x is 0; integers: x + 1."""
    return call("exp", x) if dtype.is_float else shifted(x, dtype)


def activated(x: Value, dtype: DType) -> Value:
    return call("max", x, constant(0, dtype))


def prologued(v: Value, f: Callable[[Value, DType], Value], dtype: DType) -> Value:
    """f of what is loaded, inside of the guards: padding stays 0."""
    return rewrite(v, lambda x: f(x, dtype) if isinstance(x, Load) else None)


def up(x: int, div: int) -> int:
    """The least multiple of div that is not below x."""
    return -(-x // div) * div
