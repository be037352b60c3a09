"""A compiled plan, launch by launch: every tensor in memory of its own, so that a launch can be repeated on its true inputs."""

# pyright: basic
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import Array
from bench.machines import Argument, Call, Integer, Machine, Pointer
from taskc.artifact.plan import (
    Copy,
    CounterArg,
    Fill,
    InputMemory,
    IntArg,
    Launch,
    ModelPlan,
    OutputMemory,
    PlanTensor,
    ScratchArg,
    TensorArg,
    WeightMemory,
)  # fmt: skip
from taskc.compile import Options, compile_model
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index
from taskc.observe import Observer
from taskc.tune.launches import BuiltLaunch


@dataclass
class Listening(Observer):
    """An observer that keeps the built launches: the plan itself knows neither schedules nor tasks."""

    launches: list[BuiltLaunch] = field(default_factory=list[BuiltLaunch])

    def step(self, name: str, run: Any, text: Any = None) -> Any:
        result = super().step(name, run, text)
        if name == "launches":
            self.launches = list(result)
        return result


def compile_with_launches(source: str, out: Path, target: str) -> tuple[ModelPlan, list[BuiltLaunch], dict[str, float]]:
    """compile_model for one target, with the launches it built and the seconds of its steps."""
    observer = Listening()
    plan = compile_model(source, out, options=Options(targets=(target,)), observe=observer)
    return plan, observer.launches, observer.seconds


class Walk:
    """A plan's tensors on a machine. `sizes`: values of the plan's symbols."""

    def __init__(self, plan: ModelPlan, machine: Machine, feed: Mapping[str, Array]) -> None:
        self.plan, self.target, self.machine = plan, plan.targets[0], machine
        self.sizes = {s.name: feed[plan.inputs[s.input].name].shape[s.axis] for s in plan.symbols}
        self._weights = {offset: bytes(data) for offset, data in plan.weights}
        self.memory = [self._place(t, feed) for t in self.target.tensors]

    def at(self, e: Index) -> int:
        return e if isinstance(e, int) else evaluate(e, self.sizes)

    def nbytes(self, number: int) -> int:
        t = self.target.tensors[number]
        return int(np.prod([self.at(d) for d in t.shape], dtype=np.int64)) * t.dtype.bytes

    def is_weight(self, number: int) -> bool:
        return isinstance(self.target.tensors[number].memory, WeightMemory)

    def _place(self, t: PlanTensor, feed: Mapping[str, Array]) -> Any:
        size = int(np.prod([self.at(d) for d in t.shape], dtype=np.int64)) * t.dtype.bytes
        if isinstance(t.memory, WeightMemory):
            return self.machine.upload(self._weights[t.memory.offset])
        if isinstance(t.memory, InputMemory):
            return self.machine.upload(np.ascontiguousarray(feed[self.plan.inputs[t.memory.number].name]).tobytes())
        return self.machine.upload(b"\xff" * size)  # NaN, until a launch writes it

    def launches(self) -> list[tuple[int, Launch]]:
        return [(n, s) for n, s in enumerate(self.target.steps) if isinstance(s, Launch)]

    def arguments(self, step: Launch, instead: Mapping[int, Any] | None = None) -> list[Argument]:
        """The launch's arguments; `instead` replaces plan tensors' memory."""
        out: list[Argument] = []
        for a in step.args:
            if isinstance(a, TensorArg):
                memory = (instead or {}).get(a.tensor, self.memory[a.tensor])
                offset = self.at(a.offset)
                out.append(Pointer(memory[offset:] if offset else memory))
            elif isinstance(a, IntArg):
                out.append(Integer(self.at(a.value), a.bytes))
            elif isinstance(a, ScratchArg):
                out.append(Pointer(self.machine.upload(b"\xff" * self.at(a.size))))
            elif isinstance(a, CounterArg):
                out.append(Pointer(self.machine.upload(bytes(self.at(a.size)))))
            else:
                raise TypeError(f"a {type(a).__name__} argument cannot be walked yet: teach bench/walk.py")
        return out

    def call(self, step: Launch, instead: Mapping[int, Any] | None = None) -> Call:
        grid = [self.at(g) for g in step.grid]
        return self.machine.call(step.kernel, grid, self.arguments(step, instead))

    def run(self, calls: Sequence[Call]) -> None:
        """Every launch once, in order: afterwards every tensor holds its true value."""
        for c in calls:
            c()

    def output(self, number: int) -> Array:
        """An output after `run`, also where a step after the launches copies or fills it."""
        port = self.plan.outputs[number]
        shape = tuple(self.at(d) for d in port.shape)
        tensor = next(n for n, t in enumerate(self.target.tensors) if t.memory == OutputMemory(number))
        for s in self.target.steps:
            if isinstance(s, Copy) and s.target == tensor:
                tensor = s.source
                break
            if isinstance(s, Fill) and s.target == tensor:
                return np.frombuffer(bytes([s.byte]) * self.at(s.size), port.dtype.numpy).reshape(shape)
        raw = np.asarray(self.machine.download(self.memory[tensor]))
        return np.frombuffer(raw.tobytes(), port.dtype.numpy)[: int(np.prod(shape))].reshape(shape)
