"""Schedules of Rows tasks, and what a schedule needs for a task."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from taskc.ir.dtype import I64, DType
from taskc.ir.partial import ARG
from taskc.ir.task import Rows
from taskc.ir.value import Hole, walk

STREAM = 4  # vectors of a thread in flight when a row does not stay in registers


@dataclass(frozen=True)
class Schedule:
    """`threads` along the vectors' axis; `groups`: rows of a block (along columns), or thread groups that share rows (along rows)."""

    along: str  # 'columns' or 'rows'
    threads: int
    groups: int
    width: int  # elements of a vector
    keep: int  # vectors a thread holds, 0: streaming
    split: int = 1  # blocks that share a row

    @property
    def block_threads(self) -> int:
        return self.threads * self.groups

    @property
    def vectors(self) -> int:
        """Vectors of a thread in one tile."""
        return self.keep or STREAM

    @property
    def owned(self) -> int:
        """Rows a thread works on."""
        return self.width if self.along == "rows" else 1

    @property
    def block_rows(self) -> int:
        return self.threads * self.width if self.along == "rows" else self.groups

    @property
    def step(self) -> int:
        """Columns a block advances at a time."""
        return self.groups * self.vectors if self.along == "rows" else self.threads * self.width * self.vectors

    @property
    def slots(self) -> int:
        """Values of shared memory that one statistic needs."""
        if self.along == "rows":
            return self.groups * self.block_rows if self.groups > 1 else 0
        return self.groups * (self.threads // 32) if self.threads > 32 else 0

    def __str__(self) -> str:
        held = f"keep{self.keep}" if self.keep else "stream"
        return f"{self.along} {self.threads}x{self.groups} width{self.width} {held}" + (f" split{self.split}" if self.split > 1 else "")


def passes(task: Rows) -> list[range]:
    """The statistics by pass over x: one that sees another comes in a later pass."""
    starts = [0]
    for i, s in enumerate(task.statistics):
        if any(isinstance(v, Hole) and v.name in {f"s{j}" for j in range(starts[-1], i)} for v in walk(s.value)):
            starts.append(i)
    return [range(a, b) for a, b in pairwise([*starts, len(task.statistics)])] if task.statistics else []


def slot_bytes(dtype: DType, s: Schedule) -> int:
    """Shared memory of one buffer of partial results; a multiple of 16."""
    return -(-dtype.bytes * s.slots // 16) * 16


def region_bytes(task: Rows, s: Schedule) -> int:
    """Shared memory in which the threads of one pass meet; passes take two regions in turn."""
    each = [slot_bytes(q.value.dtype, s) + (slot_bytes(I64, s) if q.kind in ARG else 0) for q in task.statistics]
    return max((sum(each[i] for i in p) for p in passes(task)), default=0)


def shared_bytes(task: Rows, s: Schedule) -> int:
    """Of a block: the regions, and the flag of `last_block`."""
    return region_bytes(task, s) * min(2, len(passes(task))) + (16 if s.split > 1 else 0)
