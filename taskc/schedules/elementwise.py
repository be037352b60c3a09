"""Map tasks over the flattened output: every thread computes vectors of consecutive elements. Any rank, any size, any value.

Flat positions go through the tasks' axes and back to addresses, where the index simplifier undoes the detour: contiguous
operands are read flat and wide, rows and scalars once a vector, and everything else element by element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskc.ir.arithmetic import ceildiv
from taskc.ir.expr import Index, prod
from taskc.ir.positions import unravel
from taskc.ir.program import Program, StoreTile, block_vars, thread_var
from taskc.ir.task import Map, Task, task_loads
from taskc.ir.value import Reduce, Tensor, walk
from taskc.schedules.template import Traits, concrete, stride
from taskc.targets.target import Target

NAME = "elementwise"


@dataclass(frozen=True)
class Schedule:
    """Threads a block and elements a thread."""

    threads: int
    elements: int

    def __str__(self) -> str:
        return f"{self.threads} threads x {self.elements}"


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every schedule; an element count below a vector's still allows wide accesses of that many elements."""
    return tuple(Schedule(t, e) for t in (64, 128, 256, 512) for e in (1, 2, 4, 8, 16))


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None: it computes any Map."""
    return None if isinstance(task, Map) else "not a map"


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Bytes over bandwidth, at a bandwidth that grows with the warps in flight."""
    assert isinstance(task, Map)
    d = target.device
    total = max(1, concrete(prod([a.extent for a in task.axes]), sizes))
    work = 1
    for st in task.stores:
        for v in walk(st.value):
            if isinstance(v, Reduce):
                work = max(work, concrete(prod(v.extents), sizes))
    width = 16 // max(st.tensor.dtype.bytes for st in task.stores)
    blocks = -(-total // (s.threads * s.elements))
    resident = min(d.architecture.max_threads_per_sm // s.threads, d.architecture.max_blocks_per_sm)
    warps = min(blocks, d.multiprocessors * resident) * s.threads / 32
    accesses = [(st.tensor, st.index) for st in task.stores] + [(x.tensor, x.index) for x in task_loads(task)]
    element_bytes = sum(t.dtype.bytes * _sectors(task, t, index, sizes) for t, index in accesses)
    narrow = 1.0 + 0.25 * max(0, (width // min(width, s.elements)) - 1)
    in_flight = warps * 32 * min(s.elements, width) * element_bytes
    rate = d.l2_rate * min(1.0, in_flight / (d.l2_rate * 8e-7))
    waves = -(-blocks // (d.multiprocessors * resident))
    serial = 4e-7 * max(1, s.elements // width) * (1 + work * 0.15)
    return d.launch_seconds + total * element_bytes * work**0.5 * narrow / rate + waves * serial


def _sectors(task: Map, tensor: Tensor, index: tuple[Index, ...], sizes: Mapping[str, int]) -> float:
    """Bytes moved over bytes needed: neighbours in the flat order that are far apart in memory each cost a 32-byte sector."""
    for a in reversed(task.axes):
        if concrete(a.extent, sizes) > 1:
            step = abs(stride(tensor.address(index), a.var.name, sizes))
            return 1.0 if step <= 1 else min(8.0, 32 / tensor.dtype.bytes, float(step))
    return 1.0


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """A grid of blocks over the flat index space."""
    assert isinstance(task, Map)
    shape = [a.extent for a in task.axes]
    total, tile = prod(shape), s.threads * s.elements
    grid: tuple[Index, Index, Index] = (ceildiv(total, tile), 1, 1)
    p = Program(name, grid, s.threads, 0)
    names = [a.var.name for a in task.axes]
    start = p.let("start", block_vars(grid)[0] * tile)
    p.do("grid_dependency_wait")
    p.do("grid_dependency_launch")
    p.put(StoreTile("out", "stores", (1, tile), (1, total), lambda _, f: dict(zip(names, unravel(f, shape), strict=True)), s.threads,
                    thread_var(s.threads), (0, start)))
    return p
