"""What every contraction template shares: the grid of tiles, the k range of a block, operands on their way to shared memory,
the sum over the blocks that share a tile's k range, and the staged stores.

A template subclasses `ContractionKernel` and says where operands lie in shared memory, what a thread accumulates, and how.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from taskc.ir.arithmetic import ceildiv, minimum
from taskc.ir.dtype import I32, DType
from taskc.ir.expr import Index, Var, prod
from taskc.ir.mapping import Layout, padded
from taskc.ir.positions import unravel
from taskc.ir.program import (
    Bind,
    Buffer,
    Commit,
    Fetch,
    LoadPort,
    Pointer,
    Program,
    Query,
    Return,
    Set,
    StoreTile,
    VectorLoad,
    VectorStore,
    Workspace,
    block_vars,
    thread_var,
)
from taskc.ir.task import Axis, Contraction, reach
from taskc.ir.value import Const, Element, Value, call, is_constant
from taskc.schedules.pipeline import Steps, pipeline


@dataclass(frozen=True)
class SharedTile:
    """One stage of an operand in shared memory: `size` elements, k running along `k_axis` of `shape`."""

    shape: tuple[int, int]
    k_axis: int
    layout: Layout
    size: int

    def place(self, k: Index, other: Index) -> Index:
        """The offset of the element at k and at `other` (m or n) of the tile."""
        return self.layout(k, other) if self.k_axis == 0 else self.layout(other, k)


def zero(dtype: DType) -> Const:
    return Const(0.0 if dtype.is_float else 0, dtype)


def staging_layout(columns: int, dtype: DType) -> tuple[Layout, int]:
    """(layout, elements a row) of a tile of results in shared memory: rows stay aligned for 16-byte vectors."""
    pad = max(4, 16 // dtype.bytes)
    return padded(columns, pad), columns + pad


@dataclass(frozen=True)
class Tiling:
    """Tile of a block, threads, ring length, how operands travel, and how many blocks share a tile's k range."""

    bm: int
    bn: int
    bk: int
    threads: int
    stages: int
    copy: str
    split: int


class ContractionKernel:
    """Builds one contraction kernel; `acc` are a thread's accumulators, in any order that `stage` knows."""

    def __init__(self, task: Contraction, t: Tiling, name: str, a: SharedTile, b: SharedTile, cells: int) -> None:
        self.task, self.tiling, self.a_tile, self.b_tile = task, t, a, b
        self.tiles_m, self.tiles_n = ceildiv(task.m.extent, t.bm), ceildiv(task.n.extent, t.bn)
        self.tiles_k = ceildiv(task.k.extent, t.bk)
        self.tiles = prod((task.batch.extent, self.tiles_m, self.tiles_n))
        dtype, total = task.operand, task.accumulate
        self.staging_layout, row = staging_layout(t.bn, total)
        self.staging = Buffer("Cs", total, t.bm * row, "shared", 0)
        self.smem_a = Buffer("As", dtype, t.stages * a.size, "shared", 0)
        self.smem_b = Buffer("Bs", dtype, t.stages * b.size, "shared", self.smem_a.bytes)
        self.acc = Buffer("acc", total, cells)
        grid = (self.tiles * t.split, 1, 1)
        self.p = Program(name, grid, t.threads, max(self.smem_a.bytes + self.smem_b.bytes, self.staging.bytes))
        self.block, self.tid = block_vars(grid)[0], thread_var(t.threads)

    def compute(self, slot: Index) -> None:
        """Adds the products of the k tile in ring slot `slot` to the accumulators."""
        raise NotImplementedError

    def stage(self) -> None:
        """Writes the accumulators to `staging`."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Names a thread's coordinates."""

    def build(self) -> Program:
        p, t = self.p, self.tiling
        for b in (self.smem_a, self.smem_b, self.staging):
            p.declare(b)
        self.batch, self.part, tile_m, tile_n = place_of_block(p, self.block, (self.task.batch.extent, t.split, self.tiles_m, self.tiles_n))
        self.m0, self.n0 = p.let("m0", tile_m * t.bm), p.let("n0", tile_n * t.bn)
        self.cell = p.let("cell", (self.batch * self.tiles_m + tile_m) * self.tiles_n + tile_n) if t.split > 1 else 0
        self.prepare()
        self.port_a = self._port("a", self.task.m, self.a_tile, self.smem_a)
        self.port_b = self._port("b", self.task.n, self.b_tile, self.smem_b)
        p.declare(self.acc)
        fill(p, self.acc)
        begin, end = k_range(p, self.part, self.tiles_k, t.split)
        steps = Steps(self._fetch, self._commit, lambda _, slot: self.compute(slot), self._early, lambda: p.do("grid_dependency_wait"))
        pipeline(p, t.copy, t.stages, begin, end, steps)
        p.do("grid_dependency_launch")
        if t.split > 1:
            sum_parts(p, self.acc, self.cell, self.part, t.split, self.tiles, t.threads)
        self.stage()
        p.do("barrier")
        bind = bind_result(self.task, self.batch)
        p.put(StoreTile("out", "stores", (t.bm, t.bn), (self.task.m.extent, self.task.n.extent), bind, t.threads, self.tid,
                        (self.m0, self.n0), {"acc": (self.staging, self.staging_layout)}))
        return p

    def _port(self, name: str, other: Axis, tile: SharedTile, buffer: Buffer) -> LoadPort:
        batch, k = self.task.batch.var.name, self.task.k

        def bind(i: Index, j: Index) -> dict[str, Index]:
            at_k, at_other = (i, j) if tile.k_axis == 0 else (j, i)
            return {batch: self.batch, k.var.name: at_k, other.var.name: at_other}

        end = reach(self.task.a if name == "a" else self.task.b, other)
        limits = (k.extent, end) if tile.k_axis == 0 else (end, k.extent)
        return LoadPort(name, tile.shape, limits, bind, self.tiling.copy, self.tiling.threads, buffer, tile.layout)

    def _origin(self, tile: SharedTile, kt: Index, other: Index) -> tuple[Index, Index]:
        k = kt * self.tiling.bk
        return (k, other) if tile.k_axis == 0 else (other, k)

    def _early(self, kt: Index, slot: Index) -> None:
        """Weights, as a rule: an operand that is constant."""
        self._fetch_where(kt, slot, constant=True)

    def _fetch(self, kt: Index, slot: Index) -> None:
        self._fetch_where(kt, slot, constant=False)

    def _fetch_where(self, kt: Index, slot: Index, constant: bool) -> None:
        if is_constant(self.task.a) == constant:
            self.p.put(Fetch(self.port_a, self._origin(self.a_tile, kt, self.m0), slot * self.a_tile.size))
        if is_constant(self.task.b) == constant:
            self.p.put(Fetch(self.port_b, self._origin(self.b_tile, kt, self.n0), slot * self.b_tile.size))

    def _commit(self, kt: Index, slot: Index) -> None:
        self.p.put(Commit(self.port_a, self._origin(self.a_tile, kt, self.m0), slot * self.a_tile.size),
                   Commit(self.port_b, self._origin(self.b_tile, kt, self.n0), slot * self.b_tile.size))


def place_of_block(p: Program, block: Index, shape: tuple[Index, Index, Index, Index]) -> tuple[Index, Index, Index, Index]:
    """(batch, part of k, tile of m, tile of n) of a block: neighbours share rows of the first operand.

    One grid dimension, because the other two end at 65535."""
    batch, part, tile_m, tile_n = unravel(block, shape)
    return p.let("batch", batch), p.let("part", part), p.let("tile_m", tile_m), p.let("tile_n", tile_n)


def bind_result(task: Contraction, batch: Index) -> Bind:
    """(i, j) -> the point of the result at row i and column j of matrix `batch`."""
    b, m, n = task.batch.var.name, task.m.var.name, task.n.var.name
    return lambda i, j: {b: batch, m: i, n: j}


def fill(p: Program, buffer: Buffer) -> None:
    """Sets every element of a register buffer to zero."""
    with p.loop("e", 0, buffer.size) as e:
        p.put(Set(buffer[e], zero(buffer.dtype)))


def k_range(p: Program, part: Index, tiles: Index, split: int) -> tuple[Index, Index]:
    """The k tiles of part `part` of `split`: [begin, end), empty where earlier parts have taken all."""
    if split == 1:
        return 0, tiles
    per = p.let("per", ceildiv(tiles, split))
    begin = p.let("kt_begin", part * per)
    return begin, p.let("kt_end", minimum(begin + per, tiles))


def sum_parts(p: Program, acc: Buffer, cell: Index, part: Index, split: int, tiles: Index, owners: int) -> None:
    """Adds the accumulators of the `split` blocks that share output tile `cell`, first part first; the last block to arrive goes on.

    `owners`: the threads of the block (the first ones) that have accumulators. Parts lie in accumulator order, so what follows
    sees no difference. Shared memory from byte 0 is used for a flag."""
    tid = thread_var(p.threads)
    width = gcd(acc.size, max(1, 16 // acc.dtype.bytes))
    cells = acc.size * owners
    p.workspaces = [Workspace("partial", acc.dtype, tiles * split * cells, "scratch"), Workspace("counter", I32, tiles, "counter")]
    mine = p.let("mine", cell * (split * cells) + tid * width)
    vectors = acc.size // width
    with p.when(owners - tid), p.loop("e", 0, vectors) as e:
        target = Pointer("partial", mine + part * cells + e * (owners * width))
        p.put(VectorStore(acc.dtype, width, target, acc.pointer(e * width), cache="st_cg"))
    last, flag = Var("last", 0, 1), Buffer("flag", I32, 1, "shared", 0)
    p.declare(flag)
    p.put(Query(last, "last_block", (Pointer("counter", cell), split, flag.pointer())))
    with p.when(1 - last):
        p.put(Return())
    fill(p, acc)
    with p.when(owners - tid), p.loop("z", 0, split, unroll=False) as z, p.loop("e", 0, vectors) as e:
        piece = p.declare(Buffer("piece", acc.dtype, width))
        p.put(VectorLoad(acc.dtype, width, piece.pointer(), Pointer("partial", mine + z * cells + e * (owners * width)), cache="ld_cg"))
        with p.loop("q", 0, width) as q:
            p.put(add_to(acc[e * width + q], piece[q]))


def add_to(target: Element, x: Value) -> Set:
    return Set(target, call("add", target, x))
