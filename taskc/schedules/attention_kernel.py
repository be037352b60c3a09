"""The program of one-pass attention, and where its tiles lie; how the two products are taken is left to subclasses.

A block keeps `bm` rows of q in shared memory and streams tiles of `bj` keys and values past them. Scores live in the registers
of the threads that own their rows, which keep the running maximum and sum; older results are scaled down when the maximum
grows. Cells of a thread: units of `rows` x `neighbours`, repeated along the columns; `lanes` neighbouring lanes share a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskc.ir.arithmetic import ceildiv, maximum, minimum
from taskc.ir.dtype import F32
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Index, prod
from taskc.ir.facts import mentions
from taskc.ir.mapping import Layout, tile_mapping
from taskc.ir.positions import unravel
from taskc.ir.program import (
    Bind,
    Buffer,
    Commit,
    Fetch,
    FetchTile,
    LoadPort,
    Program,
    Set,
    StoreTile,
    TilePort,
    VectorStore,
    block_vars,
    thread_var,
)
from taskc.ir.task import Attention, Axis
from taskc.ir.value import Const, Element, Value, call, choose
from taskc.schedules.contraction import fill, staging_layout
from taskc.schedules.pipeline import Steps, pipeline

_MINUS_INFINITY = Const(float("-inf"), F32)


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


def power_of_two(n: int) -> int:
    """The largest power of two that divides n."""
    return n & -n


class FlashKernel:
    lanes: int  # that share a row
    rows: int  # R
    neighbours: int  # C
    unit: tuple[int, int]
    workers: int  # threads that share a unit
    step: int  # what a product takes of a head at once

    def __init__(self, task: Attention, bm: int, bj: int, stages: int, threads: int, name: str) -> None:
        self.task, self.bm, self.bj, self.stages, self.threads = task, bm, bj, stages, threads
        self.kd, self.nd = self._padded(task.k), self._padded(task.n)
        q, k, v = self.tiles()
        self.tile_q, self.tile_k, self.tile_v = q, k, v
        dtype = task.operand
        place = 0
        buffers: list[Buffer] = []
        for label, tile, slots in (("Qs", q, 1), ("Ks", k, self.stages), ("Vs", v, self.stages)):
            buffers.append(Buffer(label, dtype, tile.count * tile.size * slots, "shared", place))
            place += -(-buffers[-1].bytes // 128) * 128
        self.qs, self.ks, self.vs = buffers
        self.spare = place  # where a body's own buffers begin
        self.staging_layout, row = staging_layout(self.nd, F32)
        self.staging = Buffer("Os", F32, self.bm * row, "shared", 0)
        self.tiles_m, self.tiles_j = ceildiv(task.m.extent, self.bm), ceildiv(task.j.extent, self.bj)
        grid = (prod((task.batch.extent, self.tiles_m)), 1, 1)
        self.p = Program(name, grid, self.threads, max(self.spare + self.extra_bytes(), self.staging.bytes))
        self.block, self.tid = block_vars(grid)[0], thread_var(self.threads)
        self.score_units, self.out_units = self.bj // self.unit[1], self.nd // self.unit[1]
        cells = self.rows * self.neighbours
        self.scores = Buffer("score", F32, self.score_units * cells)
        self.out = Buffer("out", F32, self.out_units * cells)
        self.top, self.total = Buffer("top", F32, self.rows), Buffer("total", F32, self.rows)

    def _padded(self, head: Axis) -> int:
        """A head size rounded up to what the products take at once."""
        if not isinstance(head.extent, int):
            raise ValueError(f"a head of symbolic size {head.extent}")
        return -(-head.extent // self.step) * self.step

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
        p, t = self.p, self.task
        for b in (self.qs, self.ks, self.vs, self.staging):
            p.declare(b)
        batch, tile_m = unravel(self.block, (t.batch.extent, self.tiles_m))
        self.batch, self.m0 = p.let("batch", batch), p.let("m0", tile_m * self.bm)
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
        steps = Steps(
            lambda jt, slot: self._fetch(jt, slot, begin), lambda jt, slot: self._commit(jt, slot, begin), self._step,
            ready=lambda: p.do("grid_dependency_wait"),
        )
        pipeline(p, "async", self.stages, begin, end, steps)
        p.do("grid_dependency_launch")
        self._finish()
        return p

    def _make_ports(self) -> None:
        t = self.task

        def port(name: str, tile: Pieces, buffer: Buffer, first: Axis, second: Axis) -> LoadPort:
            if tile.down:
                first, second = second, first
            limits = (first.extent, second.extent)
            return LoadPort(name, tile.shape, limits, self._bind(first, second), "async", self.threads, buffer, tile.layout)

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

    def _fetch(self, jt: Index, slot: Index, begin: Index) -> None:
        j0 = jt * self.bj
        if jt == begin:  # the pipeline's first copies: q goes with them
            self._pieces(Fetch, self.port_q, self.tile_q, self._across(self.tile_q, self.m0), 0)
        self._pieces(Fetch, self.port_k, self.tile_k, self._across(self.tile_k, j0), slot)
        self._pieces(Fetch, self.port_v, self.tile_v, self._across(self.tile_v, j0), slot)

    def _commit(self, jt: Index, slot: Index, begin: Index) -> None:
        """q has landed with the first tile."""
        j0 = jt * self.bj
        with self.p.when(begin - jt + 1):
            self._pieces(Commit, self.port_q, self.tile_q, self._across(self.tile_q, self.m0), 0)
        self._pieces(Commit, self.port_k, self.tile_k, self._across(self.tile_k, j0), slot)
        self._pieces(Commit, self.port_v, self.tile_v, self._across(self.tile_v, j0), slot)

    def _key_tiles(self) -> tuple[Index, Index]:
        """The tiles of keys that some row of the block sees: masks m - j + c and j - m + c leave out the rest."""
        t = self.task
        m, j = t.m.var, t.j.var
        begin: Index = 0
        end = self.tiles_j
        for condition in t.mask:
            last, first = condition - m + j, condition + m - j
            if not mentions(last, m.name) and not mentions(last, j.name):  # j < m + last
                reach = self.m0 + (self.bm - 1) + substitute(last, {t.batch.var.name: self.batch})
                end = minimum(end, ceildiv(maximum(reach, 0), self.bj))
            elif not mentions(first, m.name) and not mentions(first, j.name):  # j > m - first
                begin = maximum(begin, maximum(self.m0 - substitute(first, {t.batch.var.name: self.batch}) + 1, 0) // self.bj)
        return self.p.let("jt_begin", begin), self.p.let("jt_end", end)

    def _step(self, jt: Index, slot: Index) -> None:
        p = self.p
        p.declare(self.scores)
        fill(p, self.scores)
        self.score_products(slot)
        self._mask_and_bias(jt * self.bj)
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
        with p.loop("uq", 0, self.score_units) as uq:
            bias = Buffer("bias_cells", F32, self.rows * self.neighbours)
            if t.bias is not None:
                p.declare(bias)
                limits, bind = (t.m.extent, t.j.extent), self._bind(t.m, t.j)
                port = TilePort("bias", self.unit, limits, bind, self.workers, self.worker, bias, self.neighbours, 1)
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
        p, t = self.p, self.task
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
        width = power_of_two(self.nd)
        for column in range(0, self.nd, width):
            p.put(StoreTile("out", "stores", (self.bm, width), (t.m.extent, t.n.extent), self._bind(t.m, t.n), self.threads, self.tid,
                            (self.m0, column), {"acc": (self.staging, self._staged_from(column))}))

    def _staged_from(self, first: int) -> Layout:
        """Where the results from column `first` on are staged."""
        return lambda i, j: self.staging_layout(i, j + first)

    def _bind(self, first: Axis, second: Axis) -> Bind:
        batch = self.task.batch.var.name
        return lambda i, j: {batch: self.batch, first.var.name: i, second.var.name: j}
