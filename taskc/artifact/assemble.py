"""Launches over a graph's tensors -> the plan's tables: memory, arguments, dependencies, copies for outputs that need one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taskc.artifact.memory import Use, plan_memory
from taskc.artifact.plan import (
    ArenaMemory,
    Arg,
    Copy,
    CounterArg,
    Image,
    InputMemory,
    IntArg,
    Kernel,
    Launch,
    Memory,
    OutputMemory,
    PlanTensor,
    Port,
    ScratchArg,
    Step,
    Symbol,
    TargetPlan,
    TensorArg,
    WeightMemory,
)
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Index, Var, prod
from taskc.ir.graph import Graph
from taskc.ir.program import Program, Workspace

ALIGNMENT = 256


@dataclass(frozen=True)
class KernelLaunch:
    """A program to launch: its kernel's symbol, the values its tensor parameters stand for (of each branch in turn), the nodes it
    computes."""

    symbol: str
    program: Program
    values: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Facts:
    """What the compiler said of a kernel."""

    registers: int = 0
    spill_bytes: int = 0


def weight_offsets(graph: Graph, values: Sequence[str]) -> dict[str, int]:
    """A place in the weights blob for each constant among `values`, in order."""
    offsets: dict[str, int] = {}
    end = 0
    for v in dict.fromkeys(values):
        if v in graph.constants:
            offsets[v] = end
            end += -(-max(1, graph.constants[v].nbytes) // ALIGNMENT) * ALIGNMENT
    return offsets


def weight_pieces(graph: Graph, offsets: Mapping[str, int]) -> tuple[tuple[int, memoryview], ...]:
    """(offset, bytes) of each constant; the bytes are views, large ones stay in their file."""
    flat = {v: np.ascontiguousarray(graph.constants[v]).reshape(-1).view(np.uint8) for v in offsets}
    return tuple((offset, flat[v].data) for v, offset in offsets.items() if flat[v].size)


def plan_ports(graph: Graph) -> tuple[tuple[Symbol, ...], tuple[Port, ...], tuple[Port, ...]]:
    """The model's symbols (each from the first input dim that is just it), inputs and outputs."""
    symbols: dict[str, Symbol] = {}
    for n, name in enumerate(graph.inputs):
        for axis, d in enumerate(graph.types[name].shape):
            if isinstance(d, Var) and d.name not in symbols:
                symbols[d.name] = Symbol(d.name, n, axis, max(1, d.lo), d.div, 2**31 - 1 if d.hi is None else d.hi)
    return tuple(symbols.values()), tuple(_port(graph, v, v) for v in graph.inputs), tuple(_port(graph, n, v) for n, v in graph.outputs)


def _port(graph: Graph, name: str, value: str) -> Port:
    t = graph.types[value]
    return Port(name, t.dtype, t.shape, tuple(d.name.removeprefix("d_") if isinstance(d, Var) else "" for d in t.shape))


def plan_target(graph: Graph, target: str, launches: Sequence[KernelLaunch], images: tuple[Image, ...], facts: Mapping[str, Facts],
                derived: Mapping[str, Index], weights: Mapping[str, int]) -> TargetPlan:
    """The tables of one target."""
    return _Assembler(graph, derived, weights).plan(target, launches, images, facts)


class _Assembler:
    def __init__(self, graph: Graph, derived: Mapping[str, Index], weights: Mapping[str, int]) -> None:
        self.graph, self.derived, self.weights = graph, derived, weights
        self.tensors: list[PlanTensor] = []
        self.numbers: dict[str, int] = {}

    def plan(self, target: str, launches: Sequence[KernelLaunch], images: tuple[Image, ...], facts: Mapping[str, Facts]) -> TargetPlan:
        uses = [self.use(n, launch) for n, launch in enumerate(launches)]
        made = {v for u in uses for v in u.writes}
        direct = self.direct_outputs(made)
        values = dict.fromkeys(v for launch in launches for v in launch.values)
        sizes = {v: self.bytes_of(v) for v in values if v in made and v not in direct}
        memory = plan_memory(uses, sizes)
        for v in values:
            self.tensor(v, self.memory_of(v, direct, memory.offsets))
        kernels, number = self.kernels(launches, facts)
        steps: list[Step] = []
        for n, launch in enumerate(launches):
            grid = tuple(self.resolve(g) for g in launch.program.launch_grid)
            args = self.arguments(n, launch, memory.offsets)
            steps.append(Launch(number[launch.symbol], (grid[0], grid[1], grid[2]), args, memory.after[n], launch.name))
        steps += self.copies(direct, made, uses)
        return TargetPlan(target, images, tuple(kernels), tuple(self.tensors), tuple(steps), self.resolve(memory.arena_bytes))

    def resolve(self, e: Index) -> Index:
        """An expression over the model's own symbols."""
        return substitute(e, self.derived)

    def bytes_of(self, value: str) -> Index:
        t = self.graph.types[value]
        return self.resolve(prod(t.shape) * t.dtype.bytes)

    def use(self, n: int, launch: KernelLaunch) -> Use:
        p = launch.program
        pairs = list(zip(p.tensors * p.branches, launch.values, strict=True))
        scratch = {_scratch(n, b, w): self.resolve(w.elements * w.dtype.bytes)
                   for b in range(p.branches) for w in p.workspaces if w.kind == "scratch"}
        return Use(tuple(dict.fromkeys(v for t, v in pairs if t.name not in p.written)),
                   tuple(dict.fromkeys(v for t, v in pairs if t.name in p.written)), scratch)

    def direct_outputs(self, made: set[str]) -> dict[str, int]:
        """Values that are computed straight into an output's memory: value -> output number, the first of duplicates."""
        direct: dict[str, int] = {}
        for n, (_, v) in enumerate(self.graph.outputs):
            if v in made and v not in direct:
                direct[v] = n
        return direct

    def memory_of(self, v: str, direct: Mapping[str, int], offsets: Mapping[str, Index]) -> Memory:
        if v in direct:
            return OutputMemory(direct[v])
        if v in self.graph.inputs:
            return InputMemory(self.graph.inputs.index(v))
        return WeightMemory(self.weights[v]) if v in self.weights else ArenaMemory(self.resolve(offsets[v]))

    def tensor(self, v: str, memory: Memory) -> int:
        t = self.graph.types[v]
        self.tensors.append(PlanTensor(v, t.dtype, tuple(self.resolve(d) for d in t.shape), memory))
        return self.numbers.setdefault(v, len(self.tensors) - 1)

    def kernels(self, launches: Sequence[KernelLaunch], facts: Mapping[str, Facts]) -> tuple[list[Kernel], dict[str, int]]:
        kernels: list[Kernel] = []
        number: dict[str, int] = {}
        for launch in launches:
            if launch.symbol not in number:
                p, f = launch.program, facts.get(launch.symbol, Facts())
                notes = "; ".join(f"{k}: {v}" for k, v in p.notes.items())
                number[launch.symbol] = len(kernels)
                kernels.append(Kernel(launch.symbol, p.threads, p.shared_bytes, pdl=p.pdl, registers=f.registers,
                                      spill_bytes=f.spill_bytes, notes=notes))
        return kernels, number

    def arguments(self, n: int, launch: KernelLaunch, offsets: Mapping[str, Index]) -> tuple[Arg, ...]:
        p = launch.program
        args: list[Arg] = [TensorArg(self.numbers[v]) for v in launch.values]
        for b in range(p.branches):
            for w in p.workspaces:
                size = self.resolve(w.elements * w.dtype.bytes)
                args.append(CounterArg(size) if w.kind == "counter" else ScratchArg(self.resolve(offsets[_scratch(n, b, w)]), size))
        return tuple(args + [IntArg(self.resolve(s)) for s in p.symbols])

    def copies(self, direct: Mapping[str, int], made: set[str], uses: Sequence[Use]) -> list[Step]:
        """Outputs that are inputs, constants or duplicates of another output."""
        steps: list[Step] = []
        for n, (name, v) in enumerate(self.graph.outputs):
            if direct.get(v) == n:
                continue
            source = self.numbers[v] if v in self.numbers else self.tensor(v, self.memory_of(v, {}, {}))
            t = self.graph.types[v]
            self.tensors.append(PlanTensor(name, t.dtype, tuple(self.resolve(d) for d in t.shape), OutputMemory(n)))
            after = tuple(i for i, u in enumerate(uses) if v in u.writes)
            steps.append(Copy(source, len(self.tensors) - 1, self.bytes_of(v), after, f"output {name}"))
        return steps


def _scratch(launch: int, branch: int, w: Workspace) -> str:
    """The name in the memory plan of a branch's scratch."""
    return f"{launch}.{branch}.{w.name}"
