"""Tensor programs: what one thread of a kernel does, as structured statements with task mappings written into them.

A template builds a Program that touches global memory only through ports (`Fetch`, `Commit`, `FetchTile`, `Accumulate`, `StoreTile`).
Stitching replaces port accesses by statements of the other kinds; the emitter prints those and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Union

from taskc.ir.dtype import DType
from taskc.ir.expr import Index, Var
from taskc.ir.facts import bounds, divisor
from taskc.ir.mapping import Layout
from taskc.ir.task import Store
from taskc.ir.value import Element, Tensor, Value


@dataclass(frozen=True)
class Buffer:
    """An array of `size` elements: of a thread ('register') or of a block ('shared', at byte `place` of its shared memory)."""

    name: str
    dtype: DType
    size: int
    scope: str = "register"
    place: int = 0

    def __getitem__(self, offset: Index) -> Element:
        return Element(self.name, offset, self.dtype)

    def pointer(self, offset: Index = 0) -> Pointer:
        return Pointer(self.name, offset)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes


@dataclass(frozen=True)
class Pointer:
    """The address of element `offset` of a buffer, tensor or workspace."""

    name: str
    offset: Index = 0


@dataclass(frozen=True)
class Declare:
    """Makes a buffer known."""

    buffer: Buffer


@dataclass(frozen=True)
class Define:
    """A constant integer of the thread."""

    var: Var
    value: Index


@dataclass(frozen=True)
class Variable:
    """An integer that `Assign` changes."""

    var: Var
    value: Index


@dataclass(frozen=True)
class Assign:
    var: Var
    value: Index


@dataclass(frozen=True)
class DefineValue:
    """An integer index variable computed from data."""

    var: Var
    value: Value


@dataclass(frozen=True)
class Set:
    """target = value, converted to the target's type."""

    target: Element
    value: Value


Argument = Union[Pointer, Index, Value, "tuple[Index, ...]"]  # a tuple is a truth value: every condition is positive


@dataclass(frozen=True)
class Do:
    """Calls an intrinsic of the device headers: name<template…>(args…)."""

    intrinsic: str
    args: tuple[Argument, ...] = ()
    template: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Query:
    """var = intrinsic(args…), an integer."""

    var: Var
    intrinsic: str
    args: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class VectorLoad:
    """`width` elements from `source` into `target`; zeros where a condition is not positive."""

    dtype: DType
    width: int
    target: Pointer
    source: Pointer
    conditions: tuple[Index, ...] = ()
    cache: str = "ld"  # the intrinsic: ld, ld_nc (read-only data), ld_cg (L2 only)


@dataclass(frozen=True)
class VectorStore:
    """`width` elements from `source` to `target` where every condition is positive."""

    dtype: DType
    width: int
    target: Pointer
    source: Pointer
    conditions: tuple[Index, ...] = ()
    cache: str = "st"


@dataclass(frozen=True)
class For:
    """for var in begin … end - 1; unrolled completely or not at all."""

    var: Var
    begin: Index
    end: Index
    body: list[Stmt]
    unroll: bool = True


@dataclass(frozen=True)
class If:
    """The body runs where every condition is positive."""

    conditions: tuple[Index, ...]
    body: list[Stmt]


@dataclass(frozen=True)
class Scope:
    """A block of its own, so that names inside may repeat."""

    body: list[Stmt]


@dataclass(frozen=True)
class Return:
    pass


@dataclass(frozen=True)
class Note:
    """A comment in the emitted text."""

    text: str


# ---- port accesses: logical, above lowering -----------------------------------------------------------------------

Bind = Callable[[Index, Index], Mapping[str, Index]]


@dataclass(frozen=True)
class LoadPort:
    """Tiles of one of the task's values, brought to shared memory.

    `bind(i, j)` gives the task's index variables at tile-global position (i, j); elements at or past `limits` are zero.
    mode 'async': copies go straight to shared memory and land at the template's wait; 'register': through registers."""

    name: str
    tile: tuple[int, int]
    limits: tuple[Index, Index]
    bind: Bind
    mode: str
    threads: int
    buffer: Buffer
    layout: Layout
    value: Value | None = None  # in place of the task's value called `name`


@dataclass(frozen=True)
class Fetch:
    """Starts moving the tile at `origin` (a multiple of the tile's shape) to `stage` elements into the port's buffer."""

    port: LoadPort
    origin: tuple[Index, Index]
    stage: Index


@dataclass(frozen=True)
class Commit:
    """Finishes what Fetch started: computes where the value computes, writes registers to shared memory in register mode."""

    port: LoadPort
    origin: tuple[Index, Index]
    stage: Index


@dataclass(frozen=True)
class TilePort:
    """A tile that threads hold in registers: rows of a Rows task.

    `workers` threads share the tile in vectors of `width` along `axis`, this thread being number `worker`."""

    name: str
    tile: tuple[int, int]
    limits: tuple[Index, Index]
    bind: Bind
    workers: int
    worker: Index
    buffer: Buffer
    width: int
    axis: int


@dataclass(frozen=True)
class FetchTile:
    """Computes the port's value for every element this thread owns, into the port's register buffer."""

    port: TilePort
    origin: tuple[Index, Index]


@dataclass(frozen=True)
class Accumulate:
    """into[row] = kind(into[row], value) over the elements inside the limits that this thread owns; `value` is a port's name.

    A thread owns one row, or `width` rows where vectors run along axis 0. `holes` are the statistics before this one."""

    port: TilePort
    origin: tuple[Index, Index]
    kind: str
    value: str
    into: Buffer
    holes: tuple[Buffer, ...] = ()
    index: Buffer | None = None  # argmax, argmin: the columns of `into`


@dataclass(frozen=True)
class StoreTile:
    """Runs the task's stores over the tile at `origin`.

    The stores' holes are read from `holes`: name -> (buffer, layout of a tile position), or from the registers of `tile_port`
    (x) and the buffers of `statistics` (s0, s1, …)."""

    name: str
    stores: str | tuple[Store, ...]  # which of the task's: 'stores', 'element' or 'row_stores'; or stores in their place
    tile: tuple[int, int]
    limits: tuple[Index, Index]
    bind: Bind
    workers: int
    worker: Index
    origin: tuple[Index, Index]
    holes: Mapping[str, tuple[Buffer, Layout]] = field(default_factory=dict[str, tuple[Buffer, Layout]])
    tile_port: TilePort | None = None
    statistics: tuple[Buffer, ...] = ()


PortAccess = Union[Fetch, Commit, FetchTile, Accumulate, StoreTile]
Stmt = Union[Declare, Define, Variable, Assign, DefineValue, Set, Do, Query, VectorLoad, VectorStore, For, If, Scope, Return, Note, PortAccess]


@dataclass(frozen=True)
class Workspace:
    """Memory that belongs to a launch: 'scratch' (undefined contents) or 'counter' (zero before, zero after)."""

    name: str
    dtype: DType
    elements: Index
    kind: str


@dataclass
class Program:
    """A kernel: grid, threads a block, shared bytes, and the body of one thread. Built by templates through its methods.

    `branches`: how many independent computations of this shape a launch does. Everything else says what one of them is; each has
    tensors and workspaces of its own, and they are told apart by the grid's last dim, which templates leave at 1."""

    name: str
    grid: tuple[Index, Index, Index]
    threads: int
    shared_bytes: int
    body: list[Stmt] = field(default_factory=list[Stmt])
    tensors: tuple[Tensor, ...] = ()
    written: frozenset[str] = frozenset()
    symbols: tuple[Var, ...] = ()
    workspaces: list[Workspace] = field(default_factory=list[Workspace])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    pdl: bool = True
    wide_index: bool = False
    minimum_blocks: int = 0
    branches: int = 1

    def __post_init__(self) -> None:
        if self.branches > 1 and self.grid[2] != 1:
            raise ValueError(f"{self.name}: {self.branches} branches along a grid dim of {self.grid[2]} blocks")
        self._here = self.body

    @property
    def launch_grid(self) -> tuple[Index, Index, Index]:
        """The blocks of a launch: those of one branch, once for each."""
        return (*self.grid[:2], self.branches) if self.branches > 1 else self.grid

    def put(self, *statements: Stmt) -> None:
        self._here.extend(statements)

    def do(self, intrinsic: str, *args: Argument, template: tuple[int | str, ...] = ()) -> None:
        self.put(Do(intrinsic, args, template))

    def declare(self, buffer: Buffer) -> Buffer:
        self.put(Declare(buffer))
        return buffer

    def let(self, name: str, value: Index) -> Index:
        """Names a value; its range and divisor stay known."""
        if isinstance(value, int):
            return value
        lo, hi = bounds(value)
        var = Var(name, 0 if lo is None else lo, hi, max(divisor(value), 1))
        if lo is None:
            raise ValueError(f"{name} = {value} may be negative without bound")
        self.put(Define(var, value))
        return var

    @contextmanager
    def loop(self, name: str, begin: Index, end: Index, unroll: bool = True) -> Iterator[Index]:
        """for name in begin … end - 1; a single iteration of an unrolled loop is not a loop."""
        if unroll and begin == 0 and end == 1:
            yield 0
            return
        lo = bounds(begin)[0]
        hi = bounds(end)[1]
        var = Var(name, 0 if lo is None else lo, None if hi is None else hi - 1, below=end if begin == 0 else None)
        with self._inside([]) as body:
            yield var
        self.put(For(var, begin, end, body, unroll))

    @contextmanager
    def when(self, *conditions: Index) -> Iterator[None]:
        with self._inside([]) as body:
            yield
        self.put(If(conditions, body))

    @contextmanager
    def scope(self) -> Iterator[None]:
        with self._inside([]) as body:
            yield
        self.put(Scope(body))

    @contextmanager
    def _inside(self, body: list[Stmt]) -> Iterator[list[Stmt]]:
        outer, self._here = self._here, body
        try:
            yield body
        finally:
            self._here = outer


# Index variables that every program may use; the emitter defines those that occur.
def thread_var(threads: int) -> Var:
    return Var("tid", 0, threads - 1)


def block_vars(grid: tuple[Index, Index, Index]) -> tuple[Var, Var, Var]:
    return Var("bx", below=grid[0]), Var("by", below=grid[1]), Var("bz", below=grid[2])
