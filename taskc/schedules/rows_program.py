"""The program of a Rows task under a schedule: fetch, accumulate, meet, store."""

from __future__ import annotations

from collections.abc import Callable

from taskc.ir.arithmetic import ceildiv, minimum
from taskc.ir.dtype import I32, I64
from taskc.ir.expr import Index, Var
from taskc.ir.mapping import row_major
from taskc.ir.partial import ARG, Partial
from taskc.ir.program import (
    Accumulate,
    Bind,
    Buffer,
    FetchTile,
    Pointer,
    Program,
    Query,
    Return,
    Set,
    StoreTile,
    TilePort,
    VectorLoad,
    VectorStore,
    Workspace,
    block_vars,
    thread_var,
)
from taskc.ir.task import Rows, Statistic
from taskc.ir.value import Hole, Value, rewrite
from taskc.schedules.rows_schedule import Schedule, passes, region_bytes, shared_bytes, slot_bytes


class Builder:
    """Builds one program; `build` is called once."""

    def __init__(self, task: Rows, s: Schedule, name: str) -> None:
        self.task, self.s, self.passes = task, s, passes(task)
        self.rows, self.columns = task.row.extent, task.column.extent
        self.by_rows = s.along == "rows"
        self.blocks = ceildiv(self.rows, s.block_rows)
        grid = (self.blocks, s.split, 1)
        self.p = Program(name, grid, s.block_threads, shared_bytes(task, s))
        self.bx, self.part, _ = block_vars(grid)
        self.tid = thread_var(s.block_threads)
        self.region = region_bytes(task, s)
        self.results: list[Buffer] = []
        row, column = task.row.var.name, task.column.var.name
        self.bind: Bind = lambda i, j: {row: i, column: j}

    def build(self) -> Program:
        p, s = self.p, self.s
        self.worker, self.group = p.let("worker", self.tid % s.threads), p.let("group", self.tid // s.threads)
        first = self.bx * s.block_rows
        self.row = first if s.block_rows == 1 else p.let("row0", first if self.by_rows else first + self.group)
        p.do("grid_dependency_wait")
        p.do("grid_dependency_launch")
        self.port = self._port()
        p.declare(self.port.buffer)
        if s.keep:
            p.put(FetchTile(self.port, self._origin(0)))
        self.begin, self.end = self._steps()
        for number, statistics in enumerate(self.passes):
            self._pass(number, statistics)
        if self.task.element:
            self._tiles(self._store_elements)
        self._store_rows()
        return p

    def _port(self) -> TilePort:
        s = self.s
        tile = (s.threads * s.width, s.vectors) if self.by_rows else (1, s.threads * s.width * s.vectors)
        held = Buffer("held", self.task.x.dtype, s.vectors * s.width)
        return TilePort("x", tile, (self.rows, self.columns), self.bind, s.threads, self.worker, held, s.width, 0 if self.by_rows else 1)

    def _origin(self, step: Index) -> tuple[Index, Index]:
        """Of this thread's part of a tile."""
        s = self.s
        return self.row, (step * s.groups + self.group) * s.vectors if self.by_rows else step * s.step

    def _steps(self) -> tuple[Index, Index]:
        steps = ceildiv(self.columns, self.s.step)
        if self.s.split == 1:
            return 0, steps
        per = self.p.let("per", ceildiv(steps, self.s.split))
        begin = self.p.let("step_begin", self.part * per)
        return begin, self.p.let("step_end", minimum(begin + per, steps))

    def _tiles(self, work: Callable[[tuple[Index, Index]], None]) -> None:
        """`work` at the origin of every tile, x in registers."""
        if self.s.keep:
            work(self._origin(0))
            return
        with self.p.loop("step", self.begin, self.end, unroll=False) as step:
            self.p.put(FetchTile(self.port, self._origin(step)))
            work(self._origin(step))

    # ---- statistics ------------------------------------------------------------------------------------------------

    def _pass(self, number: int, statistics: range) -> None:
        known = tuple(self.results)
        partials = {i: self._partial(f"p{i}_", self.task.statistics[i], self.s.owned) for i in statistics}
        for q in partials.values():
            self.p.put(*q.start())

        def accumulate(origin: tuple[Index, Index]) -> None:
            for i, q in partials.items():
                self.p.put(Accumulate(self.port, origin, q.kind, f"s{i}", q.value, known, q.index))

        self._tiles(accumulate)
        place = number % 2 * self.region
        for q in partials.values():
            if not self.by_rows:
                self._butterfly(q, min(self.s.threads, 32))
        if self.s.slots:
            (self._meet_along_rows if self.by_rows else self._meet_along_columns)(list(partials.values()), place)
        if self.s.split > 1:
            self._meet_across_blocks(partials)
        for i, q in partials.items():
            self._finish(i, q)

    def _partial(self, stem: str, statistic: Statistic, rows: int) -> Partial:
        value = self.p.declare(Buffer(f"{stem}value", statistic.value.dtype, rows))
        index = self.p.declare(Buffer(f"{stem}column", I64, rows)) if statistic.kind in ARG else None
        return Partial(statistic.kind, value, index)

    def _peer(self, q: Partial, rows: int = 1) -> Partial:
        """Room for another thread's partial results."""
        value = self.p.declare(Buffer("peer_value", q.value.dtype, rows))
        return Partial(q.kind, value, self.p.declare(Buffer("peer_column", I64, rows)) if q.index else None)

    def _take(self, q: Partial, other: Partial, row: Index = 0, other_row: Index = 0) -> None:
        self.p.put(*q.take(row, other.value[other_row], other.result[other_row]))

    def _butterfly(self, q: Partial, lanes: int) -> None:
        """Every one of `lanes` neighbours gets the result of all: both sides of an exchange add the same two numbers."""
        mask = lanes // 2
        while mask:
            with self.p.scope():
                other = self._peer(q)
                for mine, theirs in zip(q.buffers, other.buffers, strict=True):
                    self.p.do("exchange_xor", theirs.pointer(), mine.pointer(), mask)
                self._take(q, other)
            mask //= 2

    def _slots(self, partials: list[Partial], place: int) -> list[Partial]:
        """The partials' places in shared memory."""
        out: list[Partial] = []
        for q in partials:
            found: list[Buffer] = []
            for b in q.buffers:
                found.append(self.p.declare(Buffer(f"{b.name}_at", b.dtype, self.s.slots, "shared", place)))
                place += slot_bytes(b.dtype, self.s)
            out.append(Partial(q.kind, found[0], found[1] if q.index else None))
        return out

    def _meet_along_columns(self, partials: list[Partial], place: int) -> None:
        """The warps of a row leave one result each; then every thread combines all of them."""
        p, warps = self.p, self.s.threads // 32
        shared = self._slots(partials, place)
        with p.when(1 - self.tid % 32):
            for q, slot in zip(partials, shared, strict=True):
                for a, b in zip(q.buffers, slot.buffers, strict=True):
                    p.put(Set(b[self.group * warps + self.worker // 32], a[0]))
        p.do("barrier")
        for q, slot in zip(partials, shared, strict=True):
            for a, b in zip(q.buffers, slot.buffers, strict=True):
                p.put(Set(a[0], b[self.group * warps + self.tid % warps]))
            self._butterfly(q, warps)

    def _meet_along_rows(self, partials: list[Partial], place: int) -> None:
        """Every group leaves its results; each row's are combined by one thread, first group first, and read back by all."""
        p, s = self.p, self.s
        layout = row_major(s.groups, s.block_rows)
        shared = self._slots(partials, place)
        for q, slot in zip(partials, shared, strict=True):
            self._copy(q, slot, layout(self.group, self.worker * s.width), to_shared=True)
        p.do("barrier")
        for q, slot in zip(partials, shared, strict=True):
            with p.loop("turn", 0, -(-s.block_rows // s.block_threads)) as turn:
                row = turn * s.block_threads + self.tid
                with p.when(s.block_rows - row):
                    total = self._peer(q)
                    for a, b in zip(total.buffers, slot.buffers, strict=True):
                        p.put(Set(a[0], b[row]))
                    for g in range(1, s.groups):
                        self._take(total, slot, 0, layout(g, row))
                    for a, b in zip(total.buffers, slot.buffers, strict=True):
                        p.put(Set(b[row], a[0]))
        p.do("barrier")
        for q, slot in zip(partials, shared, strict=True):
            self._copy(q, slot, layout(0, self.worker * s.width), to_shared=False)

    def _copy(self, q: Partial, slot: Partial, at: Index, to_shared: bool) -> None:
        """This thread's partial results to or from shared memory."""
        for a, b in zip(q.buffers, slot.buffers, strict=True):
            step = min(a.size, 16 // a.dtype.bytes)
            for o in range(0, a.size, step):
                mine, there = a.pointer(o), b.pointer(at + o)
                self.p.put(VectorStore(a.dtype, step, there, mine) if to_shared else VectorLoad(a.dtype, step, mine, there))

    def _meet_across_blocks(self, partials: dict[int, Partial]) -> None:
        """Each block leaves its results in memory; the last of a row's blocks combines them, first part first."""
        p, s = self.p, self.s
        mine = p.let("cell", self.worker * s.width if self.by_rows else self.group)
        places: dict[int, list[Workspace]] = {}
        size = self.blocks * (s.split * s.block_rows)
        with p.when(1 - (self.group if self.by_rows else self.worker)):
            for i, q in partials.items():
                places[i] = [Workspace(f"parts{i}_{b.name}", b.dtype, size, "scratch") for b in q.buffers]
                for b, w in zip(q.buffers, places[i], strict=True):
                    for o in range(s.owned):
                        target = Pointer(w.name, (self.bx * s.split + self.part) * s.block_rows + mine + o)
                        p.put(VectorStore(b.dtype, 1, target, b.pointer(o), cache="st_cg"))
        p.workspaces = [*(w for ws in places.values() for w in ws), Workspace("counter", I32, self.blocks, "counter")]
        flag = p.declare(Buffer("flag", I32, 1, "shared", self.p.shared_bytes - 16))
        last = Var("last", 0, 1)
        p.put(Query(last, "last_block", (Pointer("counter", self.bx), s.split, flag.pointer())))
        with p.when(1 - last):
            p.put(Return())
        for i, q in partials.items():
            p.put(*q.start())
            with p.loop("z", 0, s.split, unroll=False) as z:
                other = self._peer(q, s.owned)
                for b, w in zip(other.buffers, places[i], strict=True):
                    for o in range(s.owned):
                        source = Pointer(w.name, (self.bx * s.split + z) * s.block_rows + mine + o)
                        p.put(VectorLoad(b.dtype, 1, b.pointer(o), source, cache="ld_cg"))
                for o in range(s.owned):
                    self._take(q, other, o, o)

    def _finish(self, i: int, q: Partial) -> None:
        finish = self.task.statistics[i].finish
        if finish is None:
            self.results.append(q.result)
            return
        result = self.p.declare(Buffer(f"stat{i}", finish.dtype, self.s.owned))
        for o in range(self.s.owned):
            holes: dict[str, Value] = {"s": q.result[o], **{f"s{j}": b[o] for j, b in enumerate(self.results)}}
            self.p.put(Set(result[o], rewrite(finish, lambda v, h=holes: h[v.name] if isinstance(v, Hole) else None)))
        self.results.append(result)

    # ---- stores ----------------------------------------------------------------------------------------------------

    def _store_elements(self, origin: tuple[Index, Index]) -> None:
        t = self.port
        self.p.put(StoreTile("element", "element", t.tile, t.limits, self.bind, t.workers, self.worker, origin, tile_port=t,
                             statistics=tuple(self.results)))

    def _store_rows(self) -> None:
        """By the first group of threads (along rows) or the first thread of a row."""
        if not self.task.row_stores:
            return
        s, t = self.s, self.port
        tile, workers = ((s.block_rows, 1), s.threads) if self.by_rows else ((1, 1), 1)
        port = TilePort("x", tile, (self.rows, 1), self.bind, workers, self.worker, t.buffer, s.owned, t.axis)
        with self.p.when(1 - (self.group if self.by_rows else self.worker)):
            self.p.put(StoreTile("row", "row_stores", tile, port.limits, self.bind, workers, self.worker if self.by_rows else 0,
                                 (self.row, 0), tile_port=port, statistics=tuple(self.results)))
