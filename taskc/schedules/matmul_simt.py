"""acc[b, m, n] = sum over k of a * b on CUDA cores: any element types, any size and any fusion.

Both operands lie in shared memory with k outermost, so a thread reads its rows and columns as vectors and sums tm x tn products
in order, one multiply-add a step of k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from taskc.ir.dtype import BOOL, F32, F64, DType
from taskc.ir.expr import Index
from taskc.ir.mapping import TaskMapping, padded, repeat, spatial
from taskc.ir.program import Buffer, Program, Set, VectorLoad, VectorStore
from taskc.ir.task import Contraction, Task
from taskc.ir.value import Cast, call
from taskc.schedules.contraction import ContractionKernel, SharedTile, Tiling
from taskc.schedules.template import Traits, concrete
from taskc.targets.target import Target

NAME = "matmul_simt"


@dataclass(frozen=True)
class Schedule:
    """Tile of a block (bm, bn, bk) and of a thread (tm, tn), ring length, how operands travel, blocks along k."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    stages: int
    copy: str  # 'async' or 'register'
    split: int = 1

    @property
    def threads(self) -> int:
        return (self.bm // self.tm) * (self.bn // self.tn)

    def __str__(self) -> str:
        split = f" split{self.split}" if self.split > 1 else ""
        return f"{self.bm}x{self.bn}x{self.bk} thread {self.tm}x{self.tn} {self.copy}{self.stages}{split}"


_TILES = (
    (128, 128, 8, 8), (128, 64, 8, 8), (128, 64, 8, 4), (64, 128, 8, 8), (64, 64, 8, 4), (64, 64, 4, 4), (64, 32, 4, 4), (32, 64, 4, 4),
    (32, 32, 4, 2), (32, 128, 4, 8), (16, 128, 2, 8), (16, 64, 2, 4), (32, 32, 2, 2), (128, 32, 8, 4),
)


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every legal schedule; the same for every size."""
    out: list[Schedule] = []
    for bm, bn, tm, tn in _TILES:
        for bk in (8, 16) if bm * bn > 32 * 64 else (16, 32):
            for copy, stages in (("async", 3), ("register", 2)):
                for split in (1, 2, 4, 8):
                    s = Schedule(bm, bn, bk, tm, tn, stages, copy, split)
                    if illegal(s, target, traits.operand) is None:
                        out.append(s)
    return tuple(out)


def _pad(dtype: DType) -> int:
    """Keeps rows aligned for 16-byte copies and apart in their banks."""
    return max(4, 16 // dtype.bytes)


def shared_bytes(s: Schedule, operand: DType) -> int:
    """Of the ring, or of the results that take its place."""
    total = max(4, operand.bytes)
    ring = s.stages * s.bk * (s.bm + s.bn + 2 * _pad(operand)) * operand.bytes
    return max(ring, s.bm * (s.bn + max(4, 16 // total)) * total)


def illegal(s: Schedule, target: Target, operand: DType = F32) -> str | None:
    """Why the schedule cannot be, or None."""
    if shared_bytes(s, operand) > target.architecture.max_shared_bytes:
        return f"{shared_bytes(s, operand)} bytes of shared memory"
    if s.tm * s.tn * max(1, operand.bytes // 4) > 64:
        return "more accumulators than registers"
    if s.threads % 32 or (s.bm // s.tm) % (32 // min(8, s.bn // s.tn)):
        return "threads do not form warps of 32"
    if (s.bm * s.bk) % s.threads or (s.bk * s.bn) % s.threads:
        return "threads do not divide the tiles"
    if s.split > 1 and s.bm * s.bn > 64 * 64:
        return "split-k serves small grids, which want small tiles"
    return None


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    if not isinstance(task, Contraction):
        return "not a contraction"
    if BOOL in (task.operand, task.accumulate):
        return "products of booleans"
    return None


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Waves of blocks, each bound by arithmetic, by shared memory, by L2 traffic or by latency a k step; plus the sum over parts."""
    assert isinstance(task, Contraction)
    if task.operand.bytes == 2 and target.has("mma_f16"):
        return inf  # measured on an H200: with 16-bit operands tensor cores won every one of the spaces measured whole
    m, n, k, batch = (concrete(a.extent, sizes) for a in (task.m, task.n, task.k, task.batch))
    d, size = target.device, task.operand.bytes
    blocks = -(-m // s.bm) * -(-n // s.bn) * batch * s.split
    steps = -(-k // (s.bk * s.split))
    registers = min(255, s.tm * s.tn * max(1, task.accumulate.bytes // 4) + 2 * (s.tm + s.tn) + 48)
    resident = max(1, min(d.architecture.shared_bytes_per_sm // (shared_bytes(s, task.operand) + 1024),
                          d.architecture.max_threads_per_sm // s.threads, d.architecture.registers_per_sm // (s.threads * registers)))
    waves = -(-blocks // (d.multiprocessors * resident))
    busy = min(resident, -(-blocks // d.multiprocessors))
    c = d.cores
    half = 0.5 if task.accumulate == F64 or not task.accumulate.is_float else 1.0
    peak = busy * 2 * s.bm * s.bn * s.bk * d.multiprocessors / (d.fp32_rate * half)
    compute = peak * (c.arithmetic + c.shared * (s.tm + s.tn) / (s.tm * s.tn))
    traffic = busy * (s.bm + s.bn) * s.bk * size / (d.l2_rate / d.multiprocessors)
    latency = c.latency / (s.stages - 1) if s.copy == "async" else c.register_latency
    seconds = waves * (steps * (max(compute, traffic, latency) + c.step) + 1.5e-6)
    if s.split > 1:
        part = s.bm * s.bn * task.accumulate.bytes
        seconds += c.split + 2 * blocks * part / d.l2_rate + c.split_sum * s.split * part / (d.l2_rate / d.multiprocessors)
    return seconds


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """The anchor alone. Port accesses are logical; everything they turn into is stitching's business."""
    assert isinstance(task, Contraction)
    return _Kernel(task, s, name).build()


class _Kernel(ContractionKernel):
    def __init__(self, task: Contraction, s: Schedule, name: str) -> None:
        pad = _pad(task.operand)
        a = SharedTile((s.bk, s.bm), 0, padded(s.bm, pad), s.bk * (s.bm + pad))
        b = SharedTile((s.bk, s.bn), 0, padded(s.bn, pad), s.bk * (s.bn + pad))
        super().__init__(task, Tiling(s.bm, s.bn, s.bk, s.threads, s.stages, s.copy, s.split), name, a, b, s.tm * s.tn)
        self.s = s
        widest = 16 // max(task.operand.bytes, task.accumulate.bytes)
        self.vm, self.vn = min(s.tm, 4, widest), min(s.tn, 4, widest)  # rows and columns that lie together
        self.mapping = self._mapping()

    def _mapping(self) -> TaskMapping:
        """Which cells of the tile a thread sums: vectors apart by what a block covers, so that a warp's reads do not collide."""
        s = self.s
        lanes_n = min(8, s.bn // s.tn)
        lanes_m = 32 // lanes_n
        warps = spatial(s.bm // s.tm // lanes_m, s.bn // s.tn // lanes_n)
        return repeat(s.tm // self.vm, s.tn // self.vn) * warps * spatial(lanes_m, lanes_n) * repeat(self.vm, self.vn)

    def _cell(self, i: Index, j: Index) -> Index:
        """The accumulator of the thread's row i and column j; it is the mapping's repetition."""
        outer = i // self.vm * (self.s.tn // self.vn) + j // self.vn
        return outer * (self.vm * self.vn) + i % self.vm * self.vn + j % self.vn

    def _at(self, i: Index, j: Index) -> tuple[Index, Index]:
        row, column = self.mapping.at(self.tid, self._cell(i, j))
        return row, column

    def prepare(self) -> None:
        self.row0, self.column0 = self.p.let("row0", self._at(0, 0)[0]), self.p.let("column0", self._at(0, 0)[1])
        self.row_stride = self.s.bm // (self.s.tm // self.vm)
        self.column_stride = self.s.bn // (self.s.tn // self.vn)
        if self.s.threads * self.s.tm * self.s.tn >= 128 * 128:
            self.p.minimum_blocks = 2  # 128 registers a thread at 256 threads: two blocks hide each other's barriers

    def compute(self, slot: Index) -> None:
        p, s = self.p, self.s
        with p.loop("kk", 0, s.bk) as kk:
            a = self._operand("fa", self.smem_a, self.a_tile, slot, kk, self.row0, s.tm, self.vm, self.row_stride)
            b = self._operand("fb", self.smem_b, self.b_tile, slot, kk, self.column0, s.tn, self.vn, self.column_stride)
            with p.loop("i", 0, s.tm) as i, p.loop("j", 0, s.tn) as j:
                cell = self.acc[self._cell(i, j)]
                p.put(Set(cell, call("add", cell, call("mul", a[i], b[j]))))

    def _operand(self, name: str, shared: Buffer, tile: SharedTile, slot: Index, k: Index, first: Index, count: int, width: int,
                 stride: int) -> Buffer:
        """A thread's values of one step of k, in the type they are summed in."""
        p, operand = self.p, self.task.operand
        raw = p.declare(Buffer(name, operand, count))
        with p.loop("v", 0, count // width) as v:
            place = tile.place(k, first + v * stride) + slot * tile.size
            p.put(VectorLoad(operand, width, raw.pointer(v * width), shared.pointer(place)))
        if operand == self.task.accumulate:
            return raw
        wide = p.declare(Buffer(f"{name}w", self.task.accumulate, count))
        with p.loop("v", 0, count) as v:
            p.put(Set(wide[v], Cast(raw[v], self.task.accumulate)))
        return wide

    def stage(self) -> None:
        p, s = self.p, self.s
        with p.loop("i", 0, s.tm) as i, p.loop("j", 0, s.tn // self.vn) as v:
            j = v * self.vn
            row = self.row0 + i // self.vm * self.row_stride + i % self.vm
            place = self.staging_layout(row, self.column0 + v * self.column_stride)
            p.put(VectorStore(self.task.accumulate, self.vn, self.staging.pointer(place), self.acc.pointer(self._cell(i, j))))
