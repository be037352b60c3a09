"""acc[b, m, n] = sum over k of a * b for few rows m: bound by the memory that b comes from, which is read once.

Threads read b in wide loads straight to registers, along whichever of its axes lies together in memory, and the few rows of a
through L1. Threads that differ in k meet in shared memory, blocks that differ in k in a workspace; both add in a fixed order.

  b with n together: thread (tk, tn) holds `vec` columns and `unroll` neighbouring rows of k a step
  b with k together: thread (tn, tk) holds `vec` neighbouring rows of k and `unroll` columns a step
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from taskc.ir.arithmetic import ceildiv
from taskc.ir.dtype import BOOL, F32, F64, DType
from taskc.ir.expr import Index, prod
from taskc.ir.program import Buffer, FetchTile, Program, Set, StoreTile, TilePort, block_vars, thread_var
from taskc.ir.task import Axis, Contraction, Task, reach
from taskc.ir.value import Cast, Value, call, is_constant, is_view
from taskc.schedules.contraction import add_to, bind_result, fill, k_range, place_of_block, staging_layout, sum_parts
from taskc.schedules.loads import first_load, is_plain, lies_along
from taskc.schedules.template import Traits, concrete
from taskc.targets.target import Target

NAME = "matmul_gemv"
FEW = 16  # rows, up to which the template is in its element


@dataclass(frozen=True)
class Schedule:
    """Rows of a (bm), threads of a block and those along b's contiguous axis, elements a load, loads in flight, blocks along k."""

    bm: int
    threads: int
    along: int
    vec: int
    unroll: int
    split: int = 1

    def tile(self, k_together: bool) -> tuple[int, int]:
        """(k a step, bn) of a block."""
        across = self.threads // self.along
        if k_together:
            return self.along * self.vec, across * self.unroll
        return across * self.unroll, self.along * self.vec

    def __str__(self) -> str:
        split = f" split{self.split}" if self.split > 1 else ""
        return f"rows {self.bm} threads {self.threads // self.along}x{self.along} {self.unroll}x{self.vec}{split}"


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every legal schedule; the same for every size."""
    out: list[Schedule] = []
    for bm in (1, 2, 4, 8, 16):
        vec = min(16 // traits.operand.bytes, 64 // bm)
        for threads, along in ((256, 32), (256, 8), (128, 32), (128, 16)):
            for unroll in (2, 4, 8):
                for split in (1, 2, 4):
                    s = Schedule(bm, threads, along, vec, unroll, split)
                    if illegal(s, target, traits.operand) is None:
                        out.append(s)
    return tuple(out)


def _shared_bytes(s: Schedule, total: DType, k_together: bool) -> int:
    bn = s.tile(k_together)[1]
    return _sharers(s, k_together) * (s.bm * bn + 4) * total.bytes + _staging_bytes(s, bn, total)


def _sharers(s: Schedule, k_together: bool) -> int:
    """Threads that differ in k only."""
    return s.along if k_together else s.threads // s.along


def _staging_bytes(s: Schedule, bn: int, total: DType) -> int:
    return s.bm * staging_layout(bn, total)[1] * total.bytes


def illegal(s: Schedule, target: Target, operand: DType) -> str | None:
    """Why the schedule cannot be, or None."""
    if s.vec * operand.bytes > 16:
        return f"loads of {s.vec * operand.bytes} bytes"
    words = max(1, operand.bytes // 4)
    if (s.bm * (s.vec + s.unroll) + s.vec * s.unroll) * words > 160:
        return "more values than registers"
    total = F64 if words > 1 else F32
    if max(_shared_bytes(s, total, together) for together in (False, True)) > target.architecture.max_shared_bytes:
        return "the partial sums do not fit shared memory"
    return None


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    if not isinstance(task, Contraction):
        return "not a contraction"
    if BOOL in (task.operand, task.accumulate):
        return "products of booleans"
    return None


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Waves of blocks, a step of which takes the loads' latency, their share of the memory's rate, or the arithmetic."""
    assert isinstance(task, Contraction)
    m, n, k, batch = (concrete(a.extent, sizes) for a in (task.m, task.n, task.k, task.batch))
    if m > FEW and ((task.operand.bytes == 2 and target.has("mma_f16")) or not is_plain(task.a, task.k)):
        # Measured on an H200: tensor cores win with 16-bit operands, and a window's index is too dear for each element of each row.
        return inf
    together = lies_along(task.b, task.k)
    bk, bn = s.tile(together)
    d, size = target.device, task.operand.bytes
    blocks = -(-m // s.bm) * -(-n // bn) * batch * s.split
    steps = -(-k // (bk * s.split))
    registers = min(255, s.bm * (s.vec + s.unroll) + s.vec * s.unroll + 40)
    resident = max(1, min(d.architecture.max_threads_per_sm // s.threads, d.architecture.registers_per_sm // (s.threads * registers),
                          d.architecture.shared_bytes_per_sm // (_shared_bytes(s, task.accumulate, together) + 1024)))
    waves = -(-blocks // (d.multiprocessors * resident))
    busy = min(resident, -(-blocks // d.multiprocessors))
    rate = d.memory_rate if n * k * batch * size > d.l2_bytes // 2 or -(-m // s.bm) == 1 else d.l2_rate
    c, full = d.cores, min(1.0, busy * s.threads / 32 / d.cores.row_full_warps)
    memory = busy * bk * bn * size / (rate / d.multiprocessors) * c.row_memory
    compute = busy * 2 * s.bm * bk * bn * d.multiprocessors / (d.fp32_rate * (1.0 if size < 8 else 0.5)) * c.row_arithmetic / full
    loads = busy * s.threads * s.bm * (s.unroll if not together else 1) / 32 * c.row_loads / full  # rows of a through L1
    seconds = waves * (steps * max(memory, compute + loads) + c.row_block)
    if s.split > 1:
        seconds += c.row_split + 2 * blocks * s.bm * bn * task.accumulate.bytes / d.l2_rate
    return seconds


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """The anchor alone."""
    assert isinstance(task, Contraction)
    return _Kernel(task, s, name).build()


class _Kernel:
    def __init__(self, task: Contraction, s: Schedule, name: str) -> None:
        self.task, self.s = task, s
        self.together = lies_along(task.b, task.k)
        self.bk, self.bn = s.tile(self.together)
        self.tiles_m, self.tiles_n = ceildiv(task.m.extent, s.bm), ceildiv(task.n.extent, self.bn)
        self.tiles = prod((task.batch.extent, self.tiles_m, self.tiles_n))
        grid = (self.tiles * s.split, 1, 1)
        total = task.accumulate
        self.sharers = _sharers(s, self.together)
        self.red_row = s.bm * self.bn + (1 if self.together else 4)  # lanes that share n, or that share k, in different banks
        self.red = Buffer("red", total, self.sharers * self.red_row, "shared", 0)
        self.layout, row = staging_layout(self.bn, total)
        self.staging = Buffer("Cs", total, s.bm * row, "shared", -(-self.red.bytes // 16) * 16)
        self.p = Program(name, grid, s.threads, self.staging.place + self.staging.bytes)
        self.block, self.tid = block_vars(grid)[0], thread_var(s.threads)
        self.per_row = s.unroll if self.together else s.vec  # columns of a thread
        self.deep = s.vec if self.together else s.unroll  # steps of k of a thread
        self.acc = Buffer("acc", total, s.bm * self.per_row)

    def _register_type(self, v: Value) -> DType:
        """Computed values are rounded to the operand's type; what lies in memory as such widens at once."""
        load = first_load(v)
        plain = is_view(v) and load is not None and load.tensor.dtype == self.task.operand
        return self.task.accumulate if plain else self.task.operand

    def build(self) -> Program:
        p, s, t = self.p, self.s, self.task
        p.declare(self.red)
        p.declare(self.staging)
        self.batch, part, tile_m, tile_n = place_of_block(p, self.block, (t.batch.extent, s.split, self.tiles_m, self.tiles_n))
        self.m0, self.n0 = p.let("m0", tile_m * s.bm), p.let("n0", tile_n * self.bn)
        cell = p.let("cell", (self.batch * self.tiles_m + tile_m) * self.tiles_n + tile_n) if s.split > 1 else 0
        self.inner, self.outer = p.let("inner", self.tid % s.along), p.let("outer", self.tid // s.along)
        self.tk = self.inner if self.together else self.outer
        p.declare(self.acc)
        fill(p, self.acc)
        begin, end = k_range(p, part, ceildiv(t.k.extent, self.bk), s.split)
        if is_constant(t.b):  # weights are on their way before the wait; an empty range of k adds zeros
            b = self._load_b(begin)
            p.do("grid_dependency_wait")
            self._add_products(begin, b)
            begin = begin + 1
        else:
            p.do("grid_dependency_wait")
        with p.loop("kt", begin, end, unroll=False) as kt:
            self._add_products(kt, self._load_b(kt))
        p.do("grid_dependency_launch")
        self._meet(cell, part)
        return p

    def _port(self, name: str, tile: tuple[int, int], axes: tuple[Axis, Axis], buffer: Buffer, width: int, axis: int,
              workers: int, worker: Index) -> TilePort:
        batch, (first, second) = self.task.batch.var.name, axes

        def bind(i: Index, j: Index) -> dict[str, Index]:
            return {batch: self.batch, first.var.name: i, second.var.name: j}

        value, k = (self.task.a if name == "a" else self.task.b), self.task.k
        limits = tuple(x.extent if x is k else reach(value, x) for x in axes)
        return TilePort(name, tile, (limits[0], limits[1]), bind, workers, worker, buffer, width, axis)

    def _load_b(self, kt: Index) -> list[Buffer]:
        """Starts the loads of a step, all in flight together: one buffer, or one a row of k."""
        p, s, t = self.p, self.s, self.task
        kind = self._register_type(t.b)
        if self.together:
            b = [p.declare(Buffer("rb", kind, s.unroll * s.vec))]
            port = self._port("b", (self.bk, self.bn), (t.k, t.n), b[0], s.vec, 0, s.threads, self.tid)
            p.put(FetchTile(port, (kt * self.bk, self.n0)))
            return b
        b = [p.declare(Buffer(f"rb{u}", kind, s.vec)) for u in range(s.unroll)]
        for u, row in enumerate(b):
            p.put(FetchTile(self._row_port(row, u), (kt * self.sharers, self.n0)))
        return b

    def _add_products(self, kt: Index, b: list[Buffer]) -> None:
        p, s, t = self.p, self.s, self.task
        with p.scope():
            a = p.declare(Buffer("ra", self._register_type(t.a), s.bm * self.deep))
            port = self._port("a", (s.bm, self.bk), (t.m, t.k), a, self.deep, 1, self.sharers, self.tk)
            p.put(FetchTile(port, (self.m0, kt * self.bk)))
            for u in range(self.deep):
                with p.loop("i", 0, s.bm) as i, p.loop("j", 0, self.per_row) as j:
                    x, y = a[i * self.deep + u], b[0][j * s.vec + u] if self.together else b[u][j]
                    product = call("mul", Cast(x, t.accumulate), Cast(y, t.accumulate))
                    p.put(add_to(self.acc[i * self.per_row + j], product))

    def _row_port(self, row: Buffer, u: int) -> TilePort:
        """Row i of this port is row i * unroll + u of k: a thread's rows are neighbours, so that it reads a in vectors."""
        s, t = self.s, self.task
        batch, k, n = t.batch.var.name, t.k.var.name, t.n.var.name

        def bind(i: Index, j: Index) -> dict[str, Index]:
            return {batch: self.batch, k: i * s.unroll + u, n: j}

        limits = (ceildiv(t.k.extent - u, s.unroll), reach(t.b, t.n))
        return TilePort("b", (self.sharers, self.bn), limits, bind, s.threads, self.tid, row, s.vec, 1)

    def _column(self, j: Index) -> Index:
        """The tile's column of a thread's column j."""
        return j * (self.s.threads // self.s.along) + self.outer if self.together else self.inner * self.s.vec + j

    def _meet(self, cell: Index, part: Index) -> None:
        """Sums over the threads, then over the blocks, that differ in k, and the stores."""
        p, s, t = self.p, self.s, self.task
        with p.loop("i", 0, s.bm) as i, p.loop("j", 0, self.per_row) as j:
            p.put(Set(self.red[self.tk * self.red_row + i * self.bn + self._column(j)], self.acc[i * self.per_row + j]))
        p.do("barrier")
        cells = s.bm * self.bn
        owners = min(s.threads, cells)
        total = p.declare(Buffer("total", t.accumulate, cells // owners))
        fill(p, total)
        with p.when(owners - self.tid), p.loop("i", 0, total.size) as i, p.loop("z", 0, self.sharers) as z:
            p.put(add_to(total[i], self.red[z * self.red_row + i * owners + self.tid]))
        if s.split > 1:
            sum_parts(p, total, cell, part, s.split, self.tiles, owners)
        with p.when(owners - self.tid), p.loop("i", 0, total.size) as i:
            here = i * owners + self.tid
            p.put(Set(self.staging[self.layout(here // self.bn, here % self.bn)], total[i]))
        p.do("barrier")
        bind = bind_result(t, self.batch)
        with p.when(owners - self.tid):
            p.put(StoreTile("out", "stores", (s.bm, self.bn), (t.m.extent, t.n.extent), bind, owners, self.tid, (self.m0, self.n0),
                            {"acc": (self.staging, self.layout)}))
