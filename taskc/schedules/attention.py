"""acc[b, m, n] = softmax over j (scale * q k' + bias, masked) * v in one pass over the keys: scores never reach memory.

A block keeps `bm` rows of q in shared memory and streams tiles of `bj` keys and values past them. Scores live in the registers of the
threads that own their rows, which keep the running maximum and sum; older results are scaled down when the maximum grows.
Two bodies share all of this: tensor cores (16-bit operands) and CUDA cores (float32). Each says who owns which cells, and how the two
products are taken.

Cells of a thread: units of `rows` x `neighbours` (R x C), repeated along the columns; `lanes` neighbouring lanes share a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from taskc.ir.dtype import BF16, F16, F32, U32, DType
from taskc.ir.expr import Index, ceildiv, maximum, mentions, minimum, prod, substitute, unravel
from taskc.ir.mapping import LDMATRIX_ROW, Layout, padded, swizzled, tile_mapping
from taskc.ir.program import (
    Bind, Buffer, Commit, Fetch, FetchTile, LoadPort, Program, Set, StoreTile, TilePort, VectorLoad, VectorStore, block_vars, thread_var,
)
from taskc.ir.task import Attention, Axis, Task
from taskc.ir.value import Const, Element, Value, call, choose
from taskc.schedules.contraction import fill, staging_layout
from taskc.schedules.pipeline import pipeline
from taskc.schedules.template import Traits, concrete
from taskc.targets.target import Target

NAME = "attention"
INSTRUCTION = {F16: "mma_m16n8k16_f16", BF16: "mma_m16n8k16_bf16"}
WIDEST_HEAD = 256
_SIMT_THREADS, _SIMT_COLUMNS = 128, 32
_MINUS_INFINITY = Const(float("-inf"), F32)


@dataclass(frozen=True)
class Schedule:
    """Rows of q a block, keys a step, ring length."""

    bm: int
    bj: int
    stages: int

    def threads(self, operand: DType) -> int:
        return self.bm * 2 if operand in INSTRUCTION else _SIMT_THREADS

    def __str__(self) -> str:
        return f"{self.bm}x{self.bj} stages {self.stages}"


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every schedule; which of them fit a head size is the estimate's to say."""
    rows = (16, 32, 64, 128) if traits.operand in INSTRUCTION else (16, 32, 64) if traits.operand == F32 else ()
    keys = (32, 64) if traits.operand in INSTRUCTION else (32,)
    return tuple(Schedule(bm, bj, stages) for bm in rows for bj in keys for stages in (2, 3))


def _shape(task: Attention) -> tuple[int, int]:
    """Head sizes of q and of v, rounded up to what the products take at once."""
    k, n = task.k.extent, task.n.extent
    assert isinstance(k, int) and isinstance(n, int)
    step = 16 if task.operand in INSTRUCTION else _SIMT_COLUMNS
    return -(-k // step) * step, -(-n // step) * step


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    if not isinstance(task, Attention):
        return "not attention"
    if task.operand not in INSTRUCTION and task.operand != F32:
        return f"no attention kernel for {task.operand}"
    if task.operand in INSTRUCTION and not (target.has("mma_f16") and target.has("ldmatrix")):
        return f"{target.name} has no mma.sync"
    for a in (task.k, task.n):
        if not isinstance(a.extent, int) or a.extent > WIDEST_HEAD:
            return f"head size {a.extent}; at most {WIDEST_HEAD}, known when the model is compiled"
    least = space(target, Traits(task.operand, task.operand))[0]
    return illegal(least, target, task)


def illegal(s: Schedule, target: Target, task: Attention) -> str | None:
    """Why the schedule does not fit the task's head sizes, or None."""
    needed = _kernel(task, s, "size").p.shared_bytes
    if needed > target.architecture.max_shared_bytes:
        return f"{needed} bytes of shared memory"
    if _registers(task, s) > 250:
        return "more results than registers"
    return None


def _registers(task: Attention, s: Schedule) -> int:
    _, nd = _shape(task)
    return (nd + s.bj) * s.bm // s.threads(task.operand) + 70


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Waves of blocks, each bound by its products, by the exponentials, by L2 traffic or by latency a step."""
    assert isinstance(task, Attention)
    if illegal(s, target, task) is not None:
        return float("inf")
    m, j, batch = (concrete(a.extent, sizes) for a in (task.m, task.j, task.batch))
    kd, nd = _shape(task)
    d, threads, size = target.device, s.threads(task.operand), task.operand.bytes
    blocks = -(-m // s.bm) * batch
    resident = max(1, min(d.architecture.shared_bytes_per_sm // (_kernel(task, s, "size").p.shared_bytes + 1024),
                          d.architecture.max_threads_per_sm // threads, d.architecture.registers_per_sm // (threads * _registers(task, s))))
    waves = -(-blocks // (d.multiprocessors * resident))
    busy = min(resident, -(-blocks // d.multiprocessors))
    steps = -(-j // s.bj) * (0.5 + 0.5 * s.bm / max(m, s.bm) if task.mask else 1.0)
    rate = (d.mma_f16_rate * 0.55 if task.operand in INSTRUCTION else d.fp32_rate * 0.45) / d.multiprocessors
    products = busy * 2 * s.bm * s.bj * (kd + nd) / rate
    exponentials = busy * s.bm * s.bj * 20 / (d.fp32_rate / d.multiprocessors / 2)
    traffic = busy * s.bj * (kd + nd) * size / (d.l2_rate / d.multiprocessors)
    seconds = waves * (steps * max(products + exponentials, traffic, 1.2e-6 / (s.stages - 1)) + 2.5e-6)
    return seconds + d.launch_seconds


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """The anchor alone."""
    assert isinstance(task, Attention)
    reason = illegal(s, target, task)
    if reason is not None:
        raise ValueError(f"schedule {s} for {name}: {reason}")
    return _kernel(task, s, name).build()


def _kernel(task: Attention, s: Schedule, name: str) -> _Kernel:
    return (_TensorCores if task.operand in INSTRUCTION else _CudaCores)(task, s, name)


@dataclass(frozen=True)
class Pieces:
    """A tile in shared memory as pieces of a power-of-two width, which any number of threads can share evenly.

    `rows` x `columns` elements, pieces of `width` columns one after another, or of `width` rows where `down`."""

    rows: int
    columns: int
    width: int
    layout: Layout  # of one piece
    size: int  # elements of one piece
    down: bool = False

    @property
    def count(self) -> int:
        return (self.rows if self.down else self.columns) // self.width

    @property
    def shape(self) -> tuple[int, int]:
        return (self.width, self.columns) if self.down else (self.rows, self.width)

    def origin(self, piece: Index, row: Index, column: Index) -> tuple[Index, Index]:
        return (row + piece * self.width, column) if self.down else (row, column + piece * self.width)

    def place(self, row: Index, column: Index) -> Index:
        if self.down:
            return row // self.width * self.size + self.layout(row % self.width, column)
        return column // self.width * self.size + self.layout(row, column % self.width)


def _power_of_two(n: int) -> int:
    """The largest power of two that divides n."""
    return n & -n


class _Kernel:
    lanes: int  # that share a row
    rows: int  # R
    neighbours: int  # C
    unit: tuple[int, int]
    workers: int  # threads that share a unit

    def __init__(self, task: Attention, s: Schedule, name: str) -> None:
        self.task, self.s = task, s
        self.kd, self.nd = _shape(task)
        self.threads = s.threads(task.operand)
        q, k, v = self.tiles()
        self.tile_q, self.tile_k, self.tile_v = q, k, v
        dtype = task.operand
        place = 0
        buffers: list[Buffer] = []
        for label, tile, slots in (("Qs", q, 1), ("Ks", k, s.stages), ("Vs", v, s.stages)):
            buffers.append(Buffer(label, dtype, tile.count * tile.size * slots, "shared", place))
            place += -(-buffers[-1].bytes // 128) * 128
        self.qs, self.ks, self.vs = buffers
        self.spare = place  # where a body's own buffers begin
        self.staging_layout, row = staging_layout(self.nd, F32)
        self.staging = Buffer("Os", F32, s.bm * row, "shared", 0)
        self.tiles_m, self.tiles_j = ceildiv(task.m.extent, s.bm), ceildiv(task.j.extent, s.bj)
        grid = (prod((task.batch.extent, self.tiles_m)), 1, 1)
        self.p = Program(name, grid, self.threads, max(self.spare + self.extra_bytes(), self.staging.bytes))
        self.block, self.tid = block_vars(grid)[0], thread_var(self.threads)
        self.score_units, self.out_units = s.bj // self.unit[1], self.nd // self.unit[1]
        cells = self.rows * self.neighbours
        self.scores = Buffer("score", F32, self.score_units * cells)
        self.out = Buffer("out", F32, self.out_units * cells)
        self.top, self.total = Buffer("top", F32, self.rows), Buffer("total", F32, self.rows)

    # ---- what a body says --------------------------------------------------------------------------------------------

    def tiles(self) -> tuple[Pieces, Pieces, Pieces]:
        """q, key and v in shared memory."""
        raise NotImplementedError

    def extra_bytes(self) -> int:
        """Shared memory of the body's own."""
        return 0

    def prepare(self) -> None:
        """Names a thread's coordinates."""

    def score_products(self, slot: Index) -> None:
        """score += q key'."""
        raise NotImplementedError

    def value_products(self, slot: Index) -> None:
        """out += score v, the scores being weights by now."""
        raise NotImplementedError

    # ---- what both share ---------------------------------------------------------------------------------------------

    def cell(self, unit: Index, r: Index, c: Index) -> Index:
        return (unit * self.rows + r) * self.neighbours + c

    def at(self, unit: Index, r: Index, c: Index) -> tuple[Index, Index]:
        """(row, column) of a cell in the tile of scores or of results."""
        row, column = tile_mapping(self.unit, 1, self.neighbours, self.workers).at(self.worker, r)
        return self.group * self.unit[0] + row, unit * self.unit[1] + column + c

    def build(self) -> Program:
        p, s, t = self.p, self.s, self.task
        p.do("grid_dependency_launch")
        for b in (self.qs, self.ks, self.vs, self.staging):
            p.declare(b)
        batch, tile_m = unravel(self.block, (t.batch.extent, self.tiles_m))
        self.batch, self.m0 = p.let("batch", batch), p.let("m0", tile_m * s.bm)
        self.group, self.worker = p.let("group", self.tid // self.workers), p.let("worker", self.tid % self.workers)
        self.prepare()
        self._make_ports()
        for buffer in (self.out, self.total):
            p.declare(buffer)
            fill(p, buffer)
        p.declare(self.top)
        with p.loop("e", 0, self.rows) as e:
            p.put(Set(self.top[e], _MINUS_INFINITY))
        begin, end = self._key_tiles()
        p.do("grid_dependency_wait")
        self._pieces(Fetch, self.port_q, self.tile_q, self._across(self.tile_q, self.m0), 0)
        p.do("cp_async_commit")
        pipeline(p, "async", s.stages, begin, end, self._fetch, lambda jt, slot: self._commit(jt, slot, begin), self._step)
        self._finish()
        return p

    def _make_ports(self) -> None:
        t, batch = self.task, self.task.batch.var.name

        def port(name: str, tile: Pieces, buffer: Buffer, first: Axis, second: Axis) -> LoadPort:
            if tile.down:
                first, second = second, first
            bind: Bind = lambda i, j: {batch: self.batch, first.var.name: i, second.var.name: j}
            return LoadPort(name, tile.shape, (first.extent, second.extent), bind, "async", self.threads, buffer, tile.layout)

        self.port_q = port("q", self.tile_q, self.qs, t.m, t.k)
        self.port_k = port("key", self.tile_k, self.ks, t.j, t.k)
        self.port_v = port("v", self.tile_v, self.vs, t.j, t.n)

    @staticmethod
    def _across(tile: Pieces, position: Index) -> tuple[Index, Index]:
        """The tile's origin where its rows of q or keys begin at `position`."""
        return (0, position) if tile.down else (position, 0)

    def _pieces(self, access: type[Fetch] | type[Commit], port: LoadPort, tile: Pieces, origin: tuple[Index, Index], slot: Index) -> None:
        for piece in range(tile.count):
            self.p.put(access(port, tile.origin(piece, *origin), slot * (tile.count * tile.size) + piece * tile.size))

    def _fetch(self, jt: Index, slot: Index) -> None:
        j0 = jt * self.s.bj
        self._pieces(Fetch, self.port_k, self.tile_k, self._across(self.tile_k, j0), slot)
        self._pieces(Fetch, self.port_v, self.tile_v, self._across(self.tile_v, j0), slot)

    def _commit(self, jt: Index, slot: Index, begin: Index) -> None:
        """q has landed by the first tile's wait: its copies are older."""
        j0 = jt * self.s.bj
        with self.p.when(begin - jt + 1):
            self._pieces(Commit, self.port_q, self.tile_q, self._across(self.tile_q, self.m0), 0)
        self._pieces(Commit, self.port_k, self.tile_k, self._across(self.tile_k, j0), slot)
        self._pieces(Commit, self.port_v, self.tile_v, self._across(self.tile_v, j0), slot)

    def _key_tiles(self) -> tuple[Index, Index]:
        """The tiles of keys that some row of the block sees: masks m - j + c and j - m + c leave out the rest."""
        t, s = self.task, self.s
        m, j = t.m.var, t.j.var
        begin: Index = 0
        end = self.tiles_j
        for condition in t.mask:
            last, first = condition - m + j, condition + m - j
            if not mentions(last, m.name) and not mentions(last, j.name):  # j < m + last
                reach = self.m0 + (s.bm - 1) + substitute(last, {t.batch.var.name: self.batch})
                end = minimum(end, ceildiv(maximum(reach, 0), s.bj))
            elif not mentions(first, m.name) and not mentions(first, j.name):  # j > m - first
                begin = maximum(begin, maximum(self.m0 - substitute(first, {t.batch.var.name: self.batch}) + 1, 0) // s.bj)
        return self.p.let("jt_begin", begin), self.p.let("jt_end", end)

    def _step(self, jt: Index, slot: Index) -> None:
        p = self.p
        p.declare(self.scores)
        fill(p, self.scores)
        self.score_products(slot)
        self._mask_and_bias(jt * self.s.bj)
        alpha = self._weigh()
        with p.loop("uq", 0, self.out_units) as uq, p.loop("ur", 0, self.rows) as ur, p.loop("uc", 0, self.neighbours) as uc:
            self._scale(self.out[self.cell(uq, ur, uc)], alpha[ur])
        self.value_products(slot)

    def _scale(self, x: Element, factor: Value) -> None:
        self.p.put(Set(x, call("mul", x, factor)))

    def _mask_and_bias(self, j0: Index) -> None:
        """score = scale * score + bias, minus infinity where a row does not see a key."""
        p, t = self.p, self.task
        batch, m, j = t.batch.var.name, t.m.var.name, t.j.var.name
        bind: Bind = lambda i, jj: {batch: self.batch, m: i, j: jj}
        with p.loop("uq", 0, self.score_units) as uq:
            bias = Buffer("bias_cells", F32, self.rows * self.neighbours)
            if t.bias is not None:
                p.declare(bias)
                port = TilePort("bias", self.unit, (t.m.extent, t.j.extent), bind, self.workers, self.worker, bias, self.neighbours, 1)
                p.put(FetchTile(port, (self.m0 + self.group * self.unit[0], j0 + uq * self.unit[1])))
            with p.loop("ur", 0, self.rows) as ur, p.loop("uc", 0, self.neighbours) as uc:
                row, column = self.at(uq, ur, uc)
                x = self.scores[self.cell(uq, ur, uc)]
                value: Value = call("mul", x, Const(t.scale, F32))
                if t.bias is not None:
                    value = call("add", value, bias[ur * self.neighbours + uc])
                here = {batch: self.batch, m: self.m0 + row, j: j0 + column}
                for condition in (t.j.extent - t.j.var, *t.mask):
                    value = choose(substitute(condition, here), value, _MINUS_INFINITY)
                p.put(Set(x, value))

    def _weigh(self) -> Buffer:
        """Scores become exp(score - the row's maximum so far); the factors by which older results shrink.

        A row that has seen nothing has the maximum minus infinity: 0 in its place makes its weights 0, not NaN."""
        p = self.p
        highest, alpha = p.declare(Buffer("highest", F32, self.rows)), p.declare(Buffer("alpha", F32, self.rows))
        with p.loop("ur", 0, self.rows) as ur:
            p.put(Set(highest[ur], self.top[ur]))
            with p.loop("uq", 0, self.score_units) as uq, p.loop("uc", 0, self.neighbours) as uc:
                p.put(Set(highest[ur], call("max", highest[ur], self.scores[self.cell(uq, ur, uc)])))
        self._among_lanes(highest, "max")
        with p.loop("ur", 0, self.rows) as ur:
            base = p.declare(Buffer("base", F32, 1))
            p.put(Set(base[0], call("where", call("eq", highest[ur], _MINUS_INFINITY), Const(0.0, F32), highest[ur])),
                  Set(alpha[ur], call("exp", call("sub", self.top[ur], base[0]))), Set(self.top[ur], highest[ur]))
            self._scale(self.total[ur], alpha[ur])
            with p.loop("uq", 0, self.score_units) as uq, p.loop("uc", 0, self.neighbours) as uc:
                x = self.scores[self.cell(uq, ur, uc)]
                p.put(Set(x, call("exp", call("sub", x, base[0]))), Set(self.total[ur], call("add", self.total[ur], x)))
        return alpha

    def _among_lanes(self, x: Buffer, function: str) -> None:
        """Combines each row's element over the lanes that share the row."""
        p = self.p
        with p.loop("ur", 0, x.size) as ur:
            other = p.declare(Buffer("other", F32, 1))
            mask = self.lanes // 2
            while mask:
                p.do("exchange_xor", other.pointer(), x.pointer(ur), mask)
                p.put(Set(x[ur], call(function, x[ur], other[0])))
                mask //= 2

    def _finish(self) -> None:
        p, s, t = self.p, self.s, self.task
        self._among_lanes(self.total, "add")
        with p.loop("ur", 0, self.rows) as ur:
            inverse = p.declare(Buffer("inverse", F32, 1))
            nothing = call("eq", self.total[ur], Const(0.0, F32))
            p.put(Set(inverse[0], call("where", nothing, Const(0.0, F32), call("div", Const(1.0, F32), self.total[ur]))))
            with p.loop("uq", 0, self.out_units) as uq:
                with p.loop("uc", 0, self.neighbours) as uc:
                    self._scale(self.out[self.cell(uq, ur, uc)], inverse[0])
                place = self.staging_layout(*self.at(uq, ur, 0))
                p.put(VectorStore(F32, self.neighbours, self.staging.pointer(place), self.out.pointer(self.cell(uq, ur, 0))))
        p.do("barrier")
        batch, m, n = t.batch.var.name, t.m.var.name, t.n.var.name
        bind: Bind = lambda i, j: {batch: self.batch, m: i, n: j}
        width = _power_of_two(self.nd)
        for piece in range(self.nd // width):
            layout: Layout = lambda i, j, piece=piece: self.staging_layout(i, j + piece * width)
            p.put(StoreTile("out", "stores", (s.bm, width), (t.m.extent, t.n.extent), bind, self.threads, self.tid,
                            (self.m0, piece * width), {"acc": (self.staging, layout)}))


class _TensorCores(_Kernel):
    """A warp owns 16 rows; a unit is the accumulator tile of one instruction."""

    lanes, rows, neighbours, unit, workers = 4, 2, 2, (16, 8), 32

    def tiles(self) -> tuple[Pieces, Pieces, Pieces]:
        def tile(rows: int, columns: int) -> Pieces:
            width = _power_of_two(columns)
            return Pieces(rows, columns, width, swizzled(width, 8), rows * width)

        return tile(self.s.bm, self.kd), tile(self.s.bj, self.kd), tile(self.s.bj, self.nd)

    def score_products(self, slot: Index) -> None:
        """Keys lie as rows of k, which is the instruction's B as it stands: lane -> (8 keys, 8 of k) of four 8 x 8 tiles."""
        p, lane = self.p, self.worker
        row, chunk = LDMATRIX_ROW.at(lane, 0)
        with p.loop("ks", 0, self.kd // 16) as ks:
            a, b = p.declare(Buffer("fq", U32, 4)), p.declare(Buffer("fk", U32, 4))
            p.do("ldmatrix_x4", a.pointer(), self.qs.pointer(self.tile_q.place(self.group * 16 + row, ks * 16 + chunk * 8)))
            with p.loop("jj", 0, self.s.bj // 16) as jj:
                place = self.tile_k.place(jj * 16 + lane // 16 * 8 + lane % 8, ks * 16 + lane // 8 % 2 * 8)
                p.do("ldmatrix_x4", b.pointer(), self.ks.pointer(place + slot * (self.tile_k.count * self.tile_k.size)))
                for half in (0, 1):
                    p.do(INSTRUCTION[self.task.operand], self.scores.pointer((jj * 2 + half) * 4), a.pointer(), b.pointer(half * 2))

    def value_products(self, slot: Index) -> None:
        p = self.p
        row, chunk = LDMATRIX_ROW.at(self.worker, 0)
        with p.loop("jj", 0, self.s.bj // 16) as jj:
            a, b = p.declare(Buffer("fw", U32, 4)), p.declare(Buffer("fv", U32, 4))
            p.do("accumulators_as_a", a.pointer(), self.scores.pointer(jj * 8), self.scores.pointer(jj * 8 + 4), template=(self.task.operand.name,))
            with p.loop("nn", 0, self.nd // 16) as nn:
                place = self.tile_v.place(jj * 16 + row, nn * 16 + chunk * 8)
                p.do("ldmatrix_x4_trans", b.pointer(), self.vs.pointer(place + slot * (self.tile_v.count * self.tile_v.size)))
                for half in (0, 1):
                    p.do(INSTRUCTION[self.task.operand], self.out.pointer((nn * 2 + half) * 4), a.pointer(), b.pointer(half * 2))


class _CudaCores(_Kernel):
    """Eight lanes share a row; all threads share a unit of bm x 32. q and keys lie with k outermost, weights with j outermost."""

    lanes, neighbours, workers = 8, 4, _SIMT_THREADS

    def __init__(self, task: Attention, s: Schedule, name: str) -> None:
        self.unit = (s.bm, _SIMT_COLUMNS)
        self.rows = s.bm * self.lanes // self.workers
        super().__init__(task, s, name)
        self.weights = Buffer("Ws", F32, s.bj * (s.bm + 4), "shared", self.spare)

    def extra_bytes(self) -> int:
        return self.s.bj * (self.s.bm + 4) * 4

    def tiles(self) -> tuple[Pieces, Pieces, Pieces]:
        def k_outermost(columns: int) -> Pieces:
            width = _power_of_two(self.kd)
            return Pieces(self.kd, columns, width, padded(columns, 4), width * (columns + 4), down=True)

        width = _power_of_two(self.nd)
        v = Pieces(self.s.bj, self.nd, width, padded(width, 4), self.s.bj * (width + 4))
        return k_outermost(self.s.bm), k_outermost(self.s.bj), v

    def prepare(self) -> None:
        self.p.declare(self.weights)
        self.row0, self.column0 = self.p.let("row0", self.worker // self.lanes), self.p.let("column0", self.worker % self.lanes * 4)

    def score_products(self, slot: Index) -> None:
        p = self.p
        with p.loop("k8", 0, self.kd // 8, unroll=False) as k8, p.loop("k1", 0, 8) as k1:
            k = k8 * 8 + k1
            q = self._rows_of(self.qs, self.tile_q.place(k, 0))
            base = self.tile_k.place(k, 0) + slot * (self.tile_k.count * self.tile_k.size)
            self._outer_product(self.scores, self.score_units, q, self.ks, lambda column: base + column)

    def value_products(self, slot: Index) -> None:
        """A row's weights are written and read by the lanes of one warp."""
        p = self.p
        with p.loop("uq", 0, self.score_units) as uq, p.loop("ur", 0, self.rows) as ur, p.loop("uc", 0, self.neighbours) as uc:
            row, column = self.at(uq, ur, uc)
            p.put(Set(self.weights[column * (self.s.bm + 4) + row], self.scores[self.cell(uq, ur, uc)]))
        p.do("syncwarp")
        with p.loop("j8", 0, self.s.bj // 8, unroll=False) as j8, p.loop("j1", 0, 8) as j1:
            j = j8 * 8 + j1
            weights = self._rows_of(self.weights, j * (self.s.bm + 4))
            offset = slot * (self.tile_v.count * self.tile_v.size)
            self._outer_product(self.out, self.out_units, weights, self.vs, lambda column: self.tile_v.place(j, column) + offset)

    def _rows_of(self, shared: Buffer, base: Index) -> Buffer:
        """The elements at this thread's rows."""
        p = self.p
        mine = p.declare(Buffer("fa", F32, self.rows))
        with p.loop("ur", 0, self.rows) as ur:
            p.put(VectorLoad(F32, 1, mine.pointer(ur), shared.pointer(base + self.row0 + ur * (self.workers // self.lanes))))
        return mine

    def _outer_product(self, into: Buffer, units: int, a: Buffer, shared: Buffer, place: Callable[[Index], Index]) -> None:
        p = self.p
        with p.loop("uq", 0, units) as uq:
            b = p.declare(Buffer("fb", F32, self.neighbours))
            p.put(VectorLoad(F32, self.neighbours, b.pointer(), shared.pointer(place(uq * _SIMT_COLUMNS + self.column0))))
            with p.loop("ur", 0, self.rows) as ur, p.loop("uc", 0, self.neighbours) as uc:
                x = into[self.cell(uq, ur, uc)]
                p.put(Set(x, call("add", x, call("mul", a[ur], b[uc]))))
