"""acc[b, m, n] = sum over k of a * b on tensor cores (mma.sync m16n8k16): one template for any size and any fusion.

A block computes a bm x bn tile, its warps wm x wn each; operands arrive in bk-wide tiles through a ring of `stages` shared
buffers. With split > 1 several blocks share a tile's k range: each leaves its partial sums in float32, and the last to arrive
adds them in a fixed order and runs the stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskc.ir.dtype import BF16, F16, F32, I32, U32
from taskc.ir.expr import Index, Var, bounds, ceildiv, minimum
from taskc.ir.mapping import LDMATRIX_ROW, MMA_M16N8_C, padded, repeat, spatial, swizzled
from taskc.ir.program import (
    Assign, Bind, Buffer, Commit, Fetch, LoadPort, Pointer, Program, Query, Return, Set, StoreTile, Variable, VectorLoad, VectorStore,
    Workspace, block_vars, thread_var,
)
from taskc.ir.task import Contraction, Task
from taskc.ir.value import Const, call
from taskc.schedules.template import Traits, concrete
from taskc.targets.target import Target

NAME = "matmul_mma"
INSTRUCTION = {F16: "mma_m16n8k16_f16", BF16: "mma_m16n8k16_bf16"}


@dataclass(frozen=True)
class Schedule:
    """Tile of a block (bm, bn, bk) and of a warp (wm, wn), ring length, how operands travel, blocks along k."""

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    stages: int
    copy: str  # 'async' or 'register'
    split: int = 1

    @property
    def warps(self) -> tuple[int, int]:
        return self.bm // self.wm, self.bn // self.wn

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    @property
    def ring_bytes(self) -> int:
        return self.stages * self.bk * (self.bm + self.bn) * 2

    @property
    def shared_bytes(self) -> int:
        return max(self.ring_bytes, self.bm * (self.bn + 4) * 4)

    def __str__(self) -> str:
        return f"{self.bm}x{self.bn}x{self.bk} warp {self.wm}x{self.wn} {self.copy}{self.stages}" + (f" split{self.split}" if self.split > 1 else "")


_TILES = (
    (256, 128, 64, 64), (128, 256, 64, 64), (128, 128, 64, 64), (128, 128, 64, 32), (128, 64, 64, 32), (64, 128, 32, 64),
    (128, 64, 32, 32), (64, 64, 32, 32), (64, 64, 32, 16), (64, 32, 32, 16), (32, 64, 16, 32), (32, 32, 16, 16), (16, 64, 16, 16),
    (16, 128, 16, 32),
)


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every legal schedule; the same for every size."""
    if traits.operand not in INSTRUCTION:
        return ()
    out: list[Schedule] = []
    for bm, bn, wm, wn in _TILES:
        for bk in (32, 64):
            for copy, stages in (("async", 3), ("async", 4), ("register", 2)):
                for split in (1, 2, 4, 8) if copy == "async" else (1, 4):
                    s = Schedule(bm, bn, bk, wm, wn, stages, copy, split)
                    if illegal(s, target) is None:
                        out.append(s)
    return tuple(out)


def illegal(s: Schedule, target: Target) -> str | None:
    """Why the schedule cannot be, or None."""
    if s.shared_bytes > target.architecture.max_shared_bytes:
        return f"{s.shared_bytes} bytes of shared memory"
    if s.wm * s.wn > 64 * 64:
        return "more accumulators than registers"
    if (s.bm * s.bk // 8) % s.threads or (s.bk * s.bn // 8) % s.threads:
        return "threads do not divide the tiles' vectors"
    if s.split > 1 and s.bm * s.bn > 128 * 64:
        return "split-k serves small grids, which want small tiles"
    return None


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    if not isinstance(task, Contraction):
        return "not a contraction"
    dtype = task.operand
    if dtype not in INSTRUCTION or task.accumulate != F32:
        return f"no tensor-core instruction for {dtype} operands summed in {task.accumulate}"
    if not target.has("mma_f16") or not target.has("ldmatrix"):
        return f"{target.name} has no mma.sync"
    return None


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Waves of blocks, each bound by tensor cores, by L2 traffic or by latency a k step; plus the sum over parts."""
    assert isinstance(task, Contraction)
    m, n, k, batch = (concrete(a.extent, sizes) for a in (task.m, task.n, task.k, task.batch))
    d = target.device
    tiles = -(-m // s.bm) * -(-n // s.bn) * batch
    steps = -(-(-(-k // s.bk)) // s.split)
    blocks = tiles * s.split
    resident = max(1, min(d.architecture.shared_bytes_per_sm // (s.shared_bytes + 1024), d.architecture.max_threads_per_sm // s.threads,
                          d.architecture.registers_per_sm // (s.threads * min(255, s.wm * s.wn // 32 + 80))))
    waves = -(-blocks // (d.multiprocessors * resident))
    busy = min(resident, -(-blocks // d.multiprocessors))
    flops = 2 * s.bm * s.bn * s.bk
    reuse = s.wm * s.wn / (s.wm + s.wn) / 32  # shared-memory traffic a warp: 1 for 64x64 tiles
    compute = busy * flops / (d.mma_f16_rate / d.multiprocessors * min(1.0, 0.35 + 0.65 * reuse))
    traffic = busy * (s.bm + s.bn) * s.bk * 2 / (d.l2_rate / d.multiprocessors)
    latency = 7e-7 / (s.stages - 1) if s.copy == "async" else 8e-7
    seconds = waves * (steps * max(compute, traffic, latency) + 1.5e-6)
    if s.split > 1:
        seconds += 1.5e-6 + 2 * blocks * s.bm * s.bn * 4 / d.l2_rate + s.split * s.bm * s.bn * 4 / (d.l2_rate / d.multiprocessors)
    return seconds + d.launch_seconds


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """The anchor alone. Port accesses are logical; everything they turn into is stitching's business."""
    assert isinstance(task, Contraction)
    return _Builder(task, s, target, name).build()


class _Builder:
    def __init__(self, task: Contraction, s: Schedule, target: Target, name: str) -> None:
        self.task, self.s, self.target = task, s, target
        m, n, k = task.m.extent, task.n.extent, task.k.extent
        self.tiles_m, self.tiles_n, self.tiles_k = ceildiv(m, s.bm), ceildiv(n, s.bn), ceildiv(k, s.bk)
        grid = (self.tiles_n, self.tiles_m, task.batch.extent * s.split)
        self.p = Program(name, grid, s.threads, s.shared_bytes)
        self.bx, self.by, self.bz = block_vars(grid)
        self.tid = thread_var(s.threads)
        self.dtype = dtype = task.operand
        self.a_tile, self.b_tile = s.bm * s.bk, s.bk * s.bn
        self.smem_a = Buffer("As", dtype, s.stages * self.a_tile, "shared", 0)
        self.smem_b = Buffer("Bs", dtype, s.stages * self.b_tile, "shared", s.stages * self.a_tile * dtype.bytes)
        self.staging = Buffer("Cs", F32, s.bm * (s.bn + 4), "shared", 0)
        self.mi, self.nj = s.wm // 16, s.wn // 8  # fragments a warp holds
        self.acc = Buffer("acc", F32, self.mi * self.nj * 4)

    def build(self) -> Program:
        p, s = self.p, self.s
        p.do("grid_dependency_launch")
        for b in (self.smem_a, self.smem_b, self.staging):
            p.declare(b)
        self.lane, self.warp = p.let("lane", self.tid % 32), p.let("warp", self.tid // 32)
        self.m0, self.n0 = p.let("m0", self.by * s.bm), p.let("n0", self.bx * s.bn)
        self.part = p.let("part", self.bz % s.split)
        self.batch = p.let("batch", self.bz // s.split)
        self.wm0, self.wn0 = (spatial(*s.warps) * repeat(s.wm, s.wn)).at(self.warp, 0)  # this warp's corner of the tile
        self.port_a, self.port_b = self._ports()
        p.declare(self.acc)
        with p.loop("e", 0, self.acc.size) as e:
            p.put(Set(self.acc[e], Const(0.0, F32)))
        begin, end = self._k_range()
        p.do("grid_dependency_wait")
        (self._async_pipeline if s.copy == "async" else self._register_pipeline)(begin, end)
        if s.split > 1:
            self._sum_parts()
        self._store()
        return p

    def _ports(self) -> tuple[LoadPort, LoadPort]:
        t, s = self.task, self.s
        b, m, n, k = t.batch.var.name, t.m.var.name, t.n.var.name, t.k.var.name
        bind_a: Bind = lambda i, j: {b: self.batch, m: i, k: j}
        bind_b: Bind = lambda i, j: {b: self.batch, k: i, n: j}
        chunk = 16 // self.dtype.bytes
        a = LoadPort("a", (s.bm, s.bk), (t.m.extent, t.k.extent), bind_a, s.copy, s.threads, self.smem_a, swizzled(s.bk, chunk))
        return a, LoadPort("b", (s.bk, s.bn), (t.k.extent, t.n.extent), bind_b, s.copy, s.threads, self.smem_b, swizzled(s.bn, chunk))

    def _k_range(self) -> tuple[Index, Index]:
        """The k tiles of this block, [begin, end)."""
        if self.s.split == 1:
            return 0, self.tiles_k
        per = self.p.let("per", ceildiv(self.tiles_k, self.s.split))
        begin = self.p.let("kt_begin", self.part * per)
        return begin, self.p.let("kt_end", minimum(begin + per, self.tiles_k))

    def _fetch(self, kt: Index, slot: Index) -> None:
        s = self.s
        self.p.put(Fetch(self.port_a, (self.m0, kt * s.bk), slot * self.a_tile), Fetch(self.port_b, (kt * s.bk, self.n0), slot * self.b_tile))

    def _commit(self, kt: Index, slot: Index) -> None:
        s = self.s
        self.p.put(Commit(self.port_a, (self.m0, kt * s.bk), slot * self.a_tile), Commit(self.port_b, (kt * s.bk, self.n0), slot * self.b_tile))

    def _async_pipeline(self, begin: Index, end: Index) -> None:
        p, s = self.p, self.s
        last = bounds(self.tiles_k)[1]
        for stage in range(s.stages - 1):  # fill the ring
            with p.when(end - (begin + stage)):
                self._fetch(begin + stage, stage)
            p.do("cp_async_commit")
        slot = Var("slot", 0, s.stages - 1)
        p.put(Variable(slot, 0))
        with p.loop("kt", begin, end, unroll=False) as kt:
            p.do("cp_async_wait", template=(s.stages - 2,))
            self._commit(kt, slot)  # nothing for a view; a value prologue works in place on its own chunks
            p.do("barrier")
            ahead = kt + (s.stages - 1)
            with p.when(end - ahead):
                ahead_var = Var("kn", 0, None if last is None else last - 1)
                free = Var("sn", 0, s.stages - 1)
                p.put(Variable(ahead_var, ahead), Variable(free, (slot + (s.stages - 1)) % s.stages))
                self._fetch(ahead_var, free)
            p.do("cp_async_commit")
            self._compute(slot)
            p.put(Assign(slot, (slot + 1) % s.stages))
        p.do("cp_async_wait", template=(0,))
        p.do("barrier")

    def _register_pipeline(self, begin: Index, end: Index) -> None:
        p = self.p
        last = bounds(self.tiles_k)[1]
        with p.when(end - begin):
            self._fetch(begin, 0)
            self._commit(begin, 0)
        p.do("barrier")
        slot, ahead = Var("slot", 0, 1), Var("kn", 0, None if last is None else last)
        p.put(Variable(slot, 0))
        with p.loop("kt", begin, end, unroll=False) as kt:
            p.put(Variable(ahead, kt + 1))
            with p.when(end - ahead):
                self._fetch(ahead, 0)
            self._compute(slot)
            p.put(Assign(slot, 1 - slot))
            with p.when(end - ahead):
                self._commit(ahead, slot)
            p.do("barrier")

    def _compute(self, slot: Index) -> None:
        """One k tile: fragments through ldmatrix, then mi x nj instructions a step of 16."""
        p, s = self.p, self.s
        row, chunk = LDMATRIX_ROW.at(self.lane, 0)
        with p.loop("ks", 0, s.bk // 16) as ks:
            a, b = p.declare(Buffer("fa", U32, self.mi * 4)), p.declare(Buffer("fb", U32, self.nj * 2))
            with p.loop("i", 0, self.mi) as i:
                place = self.port_a.layout(self.wm0 + i * 16 + row, ks * 16 + chunk * 8) + slot * self.a_tile
                p.do("ldmatrix_x4", a.pointer(i * 4), self.smem_a.pointer(place))
            with p.loop("j", 0, self.nj // 2) as j:
                place = self.port_b.layout(ks * 16 + row, self.wn0 + j * 16 + chunk * 8) + slot * self.b_tile
                p.do("ldmatrix_x4_trans", b.pointer(j * 4), self.smem_b.pointer(place))
            with p.loop("i", 0, self.mi) as i, p.loop("j", 0, self.nj) as j:
                p.do(INSTRUCTION[self.dtype], self.acc.pointer((i * self.nj + j) * 4), a.pointer(i * 4), b.pointer(j * 2))

    def _sum_parts(self) -> None:
        """Partial sums in fragment order, so that the stores follow unchanged; the last block adds them, first part first."""
        p, s = self.p, self.s
        cells = self.acc.size * s.threads
        tiles = self.tiles_m * self.tiles_n * self.task.batch.extent
        p.workspaces = [Workspace("partial", F32, tiles * s.split * cells, "scratch"), Workspace("counter", I32, tiles, "counter")]
        cell = p.let("cell", (self.batch * self.tiles_m + self.by) * self.tiles_n + self.bx)
        mine = p.let("mine", cell * (s.split * cells) + self.tid * 4)
        with p.loop("e", 0, self.acc.size // 4) as e:
            p.put(VectorStore(F32, 4, Pointer("partial", mine + self.part * cells + e * (s.threads * 4)), self.acc.pointer(e * 4), cache="st_cg"))
        last, flag = Var("last", 0, 1), Buffer("flag", I32, 1, "shared", 0)
        p.declare(flag)
        p.put(Query(last, "last_block", (Pointer("counter", cell), s.split, flag.pointer())))
        with p.when(1 - last):
            p.put(Return())
        with p.loop("e", 0, self.acc.size) as e:
            p.put(Set(self.acc[e], Const(0.0, F32)))
        with p.loop("z", 0, s.split, unroll=False) as z, p.loop("e", 0, self.acc.size // 4) as e:
            piece = p.declare(Buffer("piece", F32, 4))
            p.put(VectorLoad(F32, 4, piece.pointer(), Pointer("partial", mine + z * cells + e * (s.threads * 4)), cache="ld_cg"))
            with p.loop("q", 0, 4) as q:
                p.put(Set(self.acc[e * 4 + q], call("add", self.acc[e * 4 + q], piece[q])))

    def _store(self) -> None:
        """The tile goes through shared memory, so that the final stores are wide along whichever axis stitching picks."""
        p, s, t = self.p, self.s, self.task
        layout = padded(s.bn, 4)
        with p.loop("i", 0, self.mi) as i, p.loop("j", 0, self.nj) as j:
            for half in (0, 2):
                row, column = MMA_M16N8_C.at(self.lane, half)
                place = layout(self.wm0 + i * 16 + row, self.wn0 + j * 8 + column)
                p.put(VectorStore(F32, 2, self.staging.pointer(place), self.acc.pointer((i * self.nj + j) * 4 + half)))
        p.do("barrier")
        b, m, n = t.batch.var.name, t.m.var.name, t.n.var.name
        bind: Bind = lambda i, j: {b: self.batch, m: i, n: j}
        p.put(StoreTile("out", "stores", (s.bm, s.bn), (t.m.extent, t.n.extent), bind, s.threads, self.tid, (self.m0, self.n0),
                        {"acc": (self.staging, layout)}))

