"""Map tasks that read along one axis and write along another: a tile through shared memory, wide accesses on both sides.

The tile spans i, the axes along which the load is contiguous, and j, those along which the store is; neighbours such as (h, w)
are merged into one. All other axes are the batch. Only the load itself is turned around: the rest of the value, and its other
loads, follow the store. Shared memory keeps 16-byte chunks whole and rotates them by row, so that reads across rows hit
different banks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from math import prod as int_prod

from taskc.fuse.width import contiguous_width, lane
from taskc.ir.arithmetic import ceildiv
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Index, Var, prod
from taskc.ir.facts import mentions
from taskc.ir.mapping import Layout
from taskc.ir.positions import unravel
from taskc.ir.program import Buffer, Commit, Fetch, LoadPort, Program, StoreTile, block_vars, thread_var
from taskc.ir.task import Axis, Map, Store, Task
from taskc.ir.value import Hole, Let, Load, Reduce, guard, loads, rewrite, walk
from taskc.schedules.template import Traits, concrete
from taskc.targets.target import Target

NAME = "transpose"
_MOVED = "moved"  # the hole that stands for the load that goes through shared memory


@dataclass(frozen=True)
class Schedule:
    """A tile of j rows and i columns, threads a block, and how the load travels: 'async' or 'register'."""

    j: int
    i: int
    threads: int
    copy: str

    def __str__(self) -> str:
        return f"{self.j}x{self.i} {self.threads} threads {self.copy}"


@dataclass(frozen=True)
class Turn:
    """What is turned around: the load under its guards, and the axes by role, each in the task's order."""

    load: Load
    conditions: tuple[Index, ...]
    i: tuple[Axis, ...]
    j: tuple[Axis, ...]
    batch: tuple[Axis, ...]


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every legal schedule; the same for every size."""
    tiles = ((32, 32), (32, 64), (64, 32), (64, 64), (128, 32), (32, 128), (16, 128), (128, 16))
    return tuple(Schedule(j, i, threads, copy) for j, i in tiles for threads in (128, 256) for copy in ("async", "register"))


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    found = find_turn(task)
    return found if isinstance(found, str) else None


def find_turn(task: Task) -> Turn | str:
    """The load to turn around, or why there is none."""
    if not isinstance(task, Map):
        return "not a map"
    if len(task.stores) != 1:
        return f"{len(task.stores)} stores: a tile is turned around for one"
    if any(a.extent == 0 for a in task.axes):
        return "no elements"
    store = task.stores[0]
    if any(isinstance(v, (Let, Reduce)) for v in walk(store.value)):
        return "indices that come from data, or a reduction an element"
    written = store.tensor.address(store.index)
    j = _innermost(task.axes, written)
    if j is None:
        return f"{store.tensor.name} is contiguous along no axis"
    guards: dict[Load, set[tuple[Index, ...]]] = {}
    for load, conditions in loads(store.value):
        guards.setdefault(load, set()).add(conditions)
    reason = "nothing is loaded"
    for load, found in guards.items():
        read = load.tensor.address(load.index)
        i = _innermost(task.axes, read)
        if i is None:
            reason = f"{load.tensor.name} is contiguous along no axis"
        elif i == j:
            reason = f"{load.tensor.name} and {store.tensor.name} both run along {j.var.name}"
        elif not mentions(read, j.var.name):
            reason = f"{load.tensor.name} is the same along {j.var.name}"
        elif len(found) > 1:
            reason = f"{load.tensor.name} is loaded under different conditions"
        else:
            return _turned(task, load, next(iter(found)), (i, read), (j, written))
    return reason


def _turned(task: Map, load: Load, conditions: tuple[Index, ...], reading: tuple[Axis, Index], writing: tuple[Axis, Index]) -> Turn:
    """The turn along these (innermost axis, address) of the load and the store, with as many axes merged as go together."""
    i = _run(task.axes, reading[0], writing[0], reading[1], writing[1])
    j = _run(task.axes, writing[0], reading[0], writing[1], reading[1])
    return Turn(load, conditions, i, j, tuple(a for a in task.axes if a not in i and a not in j))


def _innermost(axes: tuple[Axis, ...], address: Index) -> Axis | None:
    """The axis that the address follows in steps of one."""
    found = [a for a in axes if a.extent != 1 and _step((a,), address) == 1]
    return found[-1] if found else None


def _run(axes: tuple[Axis, ...], last: Axis, end: Axis, address: Index, other: Index) -> tuple[Axis, ...]:
    """The neighbouring axes up to `last`, short of `end`, that are one axis to both addresses."""
    at = axes.index(last)
    run = (last,)
    for a in reversed(axes[:at]):
        longer = (a, *run)
        if a == end or _step(longer, address) != 1 or _step(longer, other) is None:
            break
        run = longer
    return run


def _step(run: tuple[Axis, ...], address: Index) -> Index | None:
    """How far the address moves with one step along the merged axes; None where that depends on the place."""
    merged = Var("merged_", below=prod([a.extent for a in run]))
    moved = substitute(address, _bind(run, merged))
    step = substitute(moved, {merged.name: merged + 1}) - moved
    return None if mentions(step, merged.name) else step


def _bind(axes: Sequence[Axis], position: Index) -> dict[str, Index]:
    """The axes' variables at a position of their merged range."""
    return dict(zip((a.var.name for a in axes), unravel(position, [a.extent for a in axes]), strict=True))


def rotated(columns: int, chunk: int) -> Layout:
    """Rows of `columns` elements whose chunks move on by one every `chunk` rows: a chunk of rows under one column is then spread
    over the banks as a chunk of columns is."""
    chunks = columns // chunk
    return lambda j, i: j * columns + (i // chunk + j // chunk) % chunks * chunk + i % chunk


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Traffic, a thread's instructions and two trips to memory a wave of blocks."""
    assert isinstance(task, Map)
    t, d = _turn(task), target.device
    size = t.load.tensor.dtype.bytes
    i, j, batch = (int_prod(concrete(a.extent, sizes) for a in axes) for axes in (t.i, t.j, t.batch))
    blocks = ceil(i / s.i) * ceil(j / s.j) * batch
    resident = max(1, min(d.architecture.max_threads_per_sm // s.threads, d.architecture.max_blocks_per_sm,
                          d.architecture.shared_bytes_per_sm // (s.i * s.j * size + 1024)))
    waves = ceil(blocks / (d.multiprocessors * resident))
    active = min(1.0, blocks / d.multiprocessors) or 1.0
    store = task.stores[0]
    total = i * j * batch * (store.tensor.dtype.bytes + sum(x.tensor.dtype.bytes for x, _ in loads(store.value)))
    traffic = total / (d.l2_rate if total < d.l2_bytes / 2 else d.memory_rate) / active
    each = s.i * s.j / s.threads
    read = _width(t.load.tensor.address(t.load.index), t.conditions, t.i, size)
    written = _width(store.tensor.address(store.index), (), t.j, store.tensor.dtype.bytes)
    work = each * (12 / read + 12 / written + 6)
    if s.copy == "async" and read * size < 4:
        work += each * 30  # copies of less than four bytes wait for one another
    lanes = d.fp32_rate / 2
    issue = blocks * s.threads * work / lanes / active
    serial = work * 1.5 * 128 * d.multiprocessors / lanes
    return d.launch_seconds + max(traffic, issue, waves * (1.2e-6 + serial)) + 0.2 * (traffic + issue)


def _width(address: Index, conditions: tuple[Index, ...], run: tuple[Axis, ...], size: int) -> int:
    """Elements of the widest access along the run."""
    limit = 16 // size
    extent = prod([a.extent for a in run])
    position = Var("vector_") * limit + lane(limit)
    bound = _bind(run, position)
    guards = tuple(substitute(c, bound) for c in conditions)
    return max(1, contiguous_width(substitute(address, bound), (*guards, extent - position), limit))


def _turn(task: Task) -> Turn:
    found = find_turn(task)
    if isinstance(found, str):
        raise ValueError(f"nothing to turn around: {found}")
    return found


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """One block a tile: fetch, meet, store. Raises ValueError where `why_not` has a reason."""
    t = _turn(task)
    assert isinstance(task, Map)
    i, j = prod([a.extent for a in t.i]), prod([a.extent for a in t.j])
    across, down = ceildiv(i, s.i), ceildiv(j, s.j)
    grid: tuple[Index, Index, Index] = (across * down * prod([a.extent for a in t.batch]), 1, 1)  # y and z end at 65535
    dtype = t.load.tensor.dtype
    p = Program(name, grid, s.threads, s.i * s.j * dtype.bytes)
    bx, tid = block_vars(grid)[0], thread_var(s.threads)
    z, y, x = unravel(bx, (prod([a.extent for a in t.batch]), down, across))
    origin = (p.let("j0", y * s.j), p.let("i0", x * s.i))
    fixed = {k: p.let(f"b_{k}", v) for k, v in _bind(t.batch, p.let("batch", z)).items()} if t.batch else {}

    def bind(row: Index, column: Index) -> dict[str, Index]:
        return {**fixed, **_bind(t.i, column), **_bind(t.j, row)}

    tile = p.declare(Buffer("tile", dtype, s.i * s.j, "shared", 0))
    layout = rotated(s.i, 16 // dtype.bytes)
    port = LoadPort(_MOVED, (s.j, s.i), (j, i), bind, s.copy, s.threads, tile, layout, guard(t.conditions, t.load))
    p.do("grid_dependency_wait")
    p.do("grid_dependency_launch")
    p.put(Fetch(port, origin, 0))
    p.do("cp_async_commit")
    p.do("cp_async_wait", template=(0,))
    p.put(Commit(port, origin, 0))
    p.do("barrier")
    store = task.stores[0]
    value = rewrite(store.value, lambda v: Hole(_MOVED, v.dtype) if v == t.load else None)
    stores = (Store(store.tensor, store.index, value),)
    p.put(StoreTile("out", stores, (s.j, s.i), (j, i), bind, s.threads, tid, origin, {_MOVED: (tile, layout)}))
    return p
