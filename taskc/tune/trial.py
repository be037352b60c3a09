"""A candidate kernel as a small library of its own, so that what is measured runs through the runtime that ships.

The library launches the kernel several times in one graph, each with its own copy of the weights: in a model, other layers'
weights pass through the cache in between, so a repetition must not find its own still there. Activations stay warm, as they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskc.artifact.library import write_library
from taskc.artifact.plan import (
    Arg,
    CounterArg,
    Image,
    InputMemory,
    IntArg,
    Kernel,
    Launch,
    ModelPlan,
    OutputMemory,
    PlanTensor,
    Port,
    ScratchArg,
    TargetPlan,
    TensorArg,
)
from taskc.ir.dtype import DType
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index
from taskc.ir.program import Program
from taskc.ir.value import Tensor

COPIES = 16  # launches a graph
COLD_BYTES = 96 << 20  # rotated weights together exceed any L2 cache of today


@dataclass(frozen=True)
class Operand:
    """A tensor of the trial: how to fill it. Outputs are poisoned instead."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    output: bool


def operand_name(t: Tensor, copy: int) -> str:
    """The operand that stands for a kernel's tensor in its launch number `copy`: constants have one each."""
    return f"{t.name}_{copy if t.constant else 0}"


def write_trial(program: Program, symbol: str, image: Image, sizes: Mapping[str, int], out: Path) -> tuple[int, tuple[Operand, ...]]:
    """Writes the library; returns (launches in it, its operands in the order of inputs, then outputs)."""

    def value(e: Index) -> int:
        return e if isinstance(e, int) else evaluate(e, sizes)

    shapes = {t.name: tuple(value(d) for d in t.shape) for t in program.tensors}
    sizes_of = {t.name: t.dtype.bytes * _elements(shapes[t.name]) for t in program.tensors}
    cold = sum(sizes_of[t.name] for t in program.tensors if t.constant)
    copies = max(2, min(COPIES, COLD_BYTES // max(1, cold) + 2)) if cold else COPIES
    ins: list[Operand] = []
    outs: list[Operand] = []
    tensors: list[PlanTensor] = []
    place: dict[tuple[str, int], int] = {}
    for t in program.tensors:
        for c in range(copies if t.constant else 1):
            written = t.name in program.written
            group = outs if written else ins
            memory = OutputMemory(len(group)) if written else InputMemory(len(group))
            name = operand_name(t, c)
            place[t.name, c] = len(tensors)
            tensors.append(PlanTensor(name, t.dtype, shapes[t.name], memory))
            group.append(Operand(name, t.dtype, shapes[t.name], written))
    steps: list[Launch] = []
    arena = 0
    for c in range(copies):
        args: list[Arg] = [TensorArg(place[t.name, c if t.constant else 0]) for t in program.tensors]
        arena = 0
        for w in program.workspaces:
            size = value(w.elements) * w.dtype.bytes
            args.append(CounterArg(size) if w.kind == "counter" else ScratchArg(arena, size))
            arena += -(-size // 256) * 256 if w.kind == "scratch" else 0
        args += [IntArg(sizes[s.name]) for s in program.symbols]
        x, y, z = (value(g) for g in program.grid)
        steps.append(Launch(0, (x, y, z), tuple(args), (c - 1,) if c else (), f"copy {c}"))
    kernel = Kernel(symbol, program.threads, program.shared_bytes, pdl=program.pdl)
    plan = TargetPlan(image.arch, (image,), (kernel,), tuple(tensors), tuple(steps), arena)
    ports = tuple(tuple(Port(o.name, o.dtype, o.shape, ("",) * len(o.shape)) for o in group) for group in (ins, outs))
    write_library(ModelPlan("trial", (), ports[0], ports[1], (plan,)), out)
    return copies, (*ins, *outs)


def _elements(shape: tuple[int, ...]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n
