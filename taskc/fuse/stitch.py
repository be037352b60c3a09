"""Fusion after scheduling: a template's program with its port accesses replaced by the fused task's computation.

Three ideas carry it. (1) A port access is a whole tile; width, axis and thread mapping are decided here, once a port.
(2) Width comes from the address: lane + a multiple of the width, under guards that are free of the lane.
(3) Fetch moves raw data, Commit computes: a view rides on the copy itself, a value is computed when its data has landed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from taskc.fuse.lower import Lowering, no_holes
from taskc.fuse.width import LANE, choose_shape, contiguous_width, lane, main_load
from taskc.ir.dtype import I64
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Index, Var
from taskc.ir.facts import variables
from taskc.ir.mapping import TaskMapping, tile_mapping
from taskc.ir.partial import Partial
from taskc.ir.program import (
    Accumulate,
    Buffer,
    Commit,
    Declare,
    Do,
    Fetch,
    FetchTile,
    For,
    If,
    LoadPort,
    Pointer,
    Program,
    Scope,
    Set,
    Stmt,
    StoreTile,
    TilePort,
    VectorLoad,
    VectorStore,
)
from taskc.ir.proofs import positive
from taskc.ir.task import Store, Task, inputs, outputs, ports
from taskc.ir.value import Element, Hole, Let, Load, Names, Number, Reduce, Value, at, guard, is_view, walk


def stitch(program: Program, task: Task) -> Program:
    """The program with every port access replaced; its tensors, symbols and notes filled in."""
    s = _Stitcher(task, program)
    body = s.walk(program.body)
    written = outputs(task)
    program.body = [*s.hoisted, *body]
    program.tensors = tuple(dict.fromkeys((*inputs(task), *written)))
    program.written = frozenset(t.name for t in written)
    program.symbols = tuple(_symbols(program, task).values())
    program.notes.update(s.notes)
    return program


def _symbols(program: Program, task: Task) -> dict[str, Var]:
    """The symbolic dims the kernel needs as arguments: those of its tensors and of its grid."""
    found: dict[str, Var] = {}
    for e in (*program.grid, *(d for t in (*inputs(task), *outputs(task)) for d in t.shape), *task_dims(task)):
        found.update(variables(e))
    return dict(sorted(found.items()))


def task_dims(task: Task) -> tuple[Index, ...]:
    """Every extent of the task's axes."""
    out: list[Index] = []
    for name in ("axes", "batch", "m", "n", "k", "j", "row", "column"):
        a = getattr(task, name, None)
        out += [] if a is None else [x.extent for x in a] if isinstance(a, tuple) else [a.extent]
    return tuple(out)


def is_simple(v: Value) -> bool:
    """Whether the value has one load that can be moved first and computed on later."""
    return main_load(v) is not None and not any(isinstance(x, (Let, Reduce)) for x in walk(v))


Shape = tuple[int, int]


@dataclass
class _Stitcher:
    task: Task
    program: Program
    names: Names = field(default_factory=Names)
    shapes: dict[str, Shape] = field(default_factory=dict[str, Shape])
    hoisted: list[Stmt] = field(default_factory=list[Stmt])
    notes: dict[str, str] = field(default_factory=dict[str, str])

    def walk(self, body: list[Stmt]) -> list[Stmt]:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, If):
                out += self.decided(replace(s, body=self.walk(s.body)))
            elif isinstance(s, (For, Scope)):
                out.append(replace(s, body=self.walk(s.body)))
            elif isinstance(s, Fetch):
                out += self.fetch(s)
            elif isinstance(s, Commit):
                out += self.commit(s)
            elif isinstance(s, FetchTile):
                out += self.fetch_tile(s)
            elif isinstance(s, Accumulate):
                out += self.accumulate(s)
            elif isinstance(s, StoreTile):
                out += self.store(s)
            else:
                out.append(s)
        return out

    @staticmethod
    def decided(s: If) -> list[Stmt]:
        """The If without conditions that always hold; nothing when one never does."""
        conditions = tuple(positive(c) for c in s.conditions)
        if any(isinstance(c, int) and c <= 0 for c in conditions):
            return []
        left = tuple(c for c in conditions if not isinstance(c, int))
        return [If(left, s.body) if left else Scope(s.body)]

    # ---- loads to shared memory ------------------------------------------------------------------------------------

    def element(self, port: LoadPort | TilePort, origin: tuple[Index, Index], base: list[Index], axis: int, o: Index) -> Value:
        """The port's element at `base`, `o` further along the axis: zero outside the limits."""
        index = _position(origin, base, axis, o)
        return guard(_inside(index, port.limits), at(self.port_value(port), port.bind(*index)))

    def port_value(self, port: LoadPort | TilePort) -> Value:
        if isinstance(port, LoadPort) and port.value is not None:
            return port.value
        return ports(self.task)[port.name]

    def load_shape(self, port: LoadPort) -> Shape:
        """(width, axis), once a port and from no particular tile: Fetch and Commit must agree on which thread owns what."""
        if port.name not in self.shapes:
            origin = (Var("origin0_", 0, None, port.tile[0]), Var("origin1_", 0, None, port.tile[1]))

            def access(base: list[Index], axis: int, o: Index):
                found = main_load(self.element(port, origin, base, axis, o))
                return None if found is None else (found[0].tensor, found[0].tensor.address(found[0].index), found[1])

            # Async copies land as they lie, so a vector must run along shared memory's rows.
            axes = (1,) if self.is_async(port) else (1, 0)
            self.shapes[port.name] = choose_shape(port.tile, port.threads, access, axes, 16 // port.buffer.dtype.bytes)
            if self.is_async(port) and self.shapes[port.name][0] == 1:
                self.shapes[port.name] = choose_shape(port.tile, port.threads, access, (1, 0), 1)
            width, axis = self.shapes[port.name]
            self.notes[port.name] = f"width {width} along axis {axis}"
        return self.shapes[port.name]

    def is_async(self, port: LoadPort) -> bool:
        """Whether the port's data goes through asynchronous copies: it must be stored as it is needed."""
        v = self.port_value(port)
        found = main_load(v)
        return port.mode == "async" and is_simple(v) and found is not None and found[0].tensor.dtype == port.buffer.dtype

    def fetch(self, s: Fetch) -> list[Stmt]:
        p = s.port
        v = self.port_value(p)
        if not is_simple(v):
            return []
        w, axis = self.load_shape(p)
        m, r, base = self.tile(p.tile, axis, w, p.threads, self.thread())
        found = main_load(self.element(p, s.origin, base, axis, lane(w)))
        assert found is not None
        load, conditions = found
        out: list[Stmt] = []
        if self.is_async(p):
            first = {LANE: 0}
            source = Pointer(load.tensor.name, substitute(load.tensor.address(load.index), first))
            valid = tuple(positive(substitute(c, first)) for c in conditions)
            target = Pointer(p.buffer.name, p.layout(*_position((0, 0), base, axis, 0)) + s.stage)
            out.append(_copy(w * p.buffer.dtype.bytes, target, source, valid))
        elif p.mode == "register":
            raw = self.raw_registers(p, load, m.reps * w)
            Lowering(self.names, w, out).load_lanes(load, conditions, Pointer(raw.name, r * w))
        return _over(m, r, out)

    def raw_registers(self, p: LoadPort, load: Load, size: int) -> Buffer:
        raw = Buffer(f"{p.name}_raw", load.tensor.dtype, size)
        if p.name not in self.names.taken:
            self.names.new(p.name)
            self.hoisted.append(Declare(raw))
        return raw

    def commit(self, s: Commit) -> list[Stmt]:
        p = s.port
        v = self.port_value(p)
        if self.is_async(p) and is_view(v):
            return []
        w, axis = self.load_shape(p)
        m, r, base = self.tile(p.tile, axis, w, p.threads, self.thread())
        value = self.element(p, s.origin, base, axis, lane(w))
        out: list[Stmt] = []
        lower = Lowering(self.names, w, out)
        if is_simple(v) and (self.is_async(p) or p.mode == "register"):
            found = main_load(value)
            assert found is not None
            source = self._landed(p, s, found[0], m, r, base, axis, w, out)
            lower.ready[found] = source
        result = Buffer(self.names.new(f"{p.name}_c"), p.buffer.dtype, w)
        out.append(Declare(result))
        out += [Set(result[o], x) for o, x in enumerate(lower.values(value))]
        step = w if axis == 1 else 1
        for o in range(0, w, step):
            place = p.layout(*_position((0, 0), base, axis, o)) + s.stage
            out.append(VectorStore(p.buffer.dtype, step, Pointer(p.buffer.name, place), Pointer(result.name, o)))
        return _over(m, r, out)

    def _landed(self, p: LoadPort, s: Commit, load: Load, m: TaskMapping, r: Index, base: list[Index], axis: int, w: int,
                out: list[Stmt]) -> Value:
        """Where fetch put the main load: registers, or in place in shared memory, read by the thread that copied it."""
        if p.mode == "register":
            raw = self.raw_registers(p, load, m.reps * w)
            return Element(raw.name, r * w + lane(w), load.tensor.dtype)
        array = Buffer(self.names.new(f"{p.name}_landed"), p.buffer.dtype, w)
        place = p.layout(*_position((0, 0), base, axis, 0)) + s.stage
        out += [Declare(array), VectorLoad(p.buffer.dtype, w, Pointer(array.name), Pointer(p.buffer.name, place))]
        return array[lane(w)]

    # ---- tiles in registers ----------------------------------------------------------------------------------------

    def fetch_tile(self, s: FetchTile) -> list[Stmt]:
        p = s.port
        m, r, base = self.tile(p.tile, p.axis, p.width, p.workers, p.worker)
        out: list[Stmt] = []
        lower = Lowering(self.names, p.width, out)
        value = self.element(p, s.origin, base, p.axis, lane(p.width))
        out += [Set(p.buffer[r * p.width + o], x) for o, x in enumerate(lower.values(value))]
        widths = [x.width for x in out if isinstance(x, VectorLoad)]
        if widths:
            self.notes[p.name] = f"width {max(widths)} along axis {p.axis}"
        return _over(m, r, out)

    def accumulate(self, s: Accumulate) -> list[Stmt]:
        p = s.port
        m, r, base = self.tile(p.tile, p.axis, p.width, p.workers, p.worker)
        out: list[Stmt] = []
        index = _position(s.origin, base, p.axis, lane(p.width))
        lower = Lowering(self.names, p.width, out, _holes(self.tile_holes(p, r, s.holes)))
        limits = tuple(c for c in _inside(index, p.limits) if not (isinstance(c, int) and c > 0))
        value = lower.hoist(at(ports(self.task)[s.value], p.bind(*index)), limits)  # nothing is loaded outside the limits
        partial = Partial(s.kind, s.into, s.index)
        for o in range(p.width):
            lane_o = {LANE: o}
            taken = partial.take(o if p.axis == 0 else 0, at(value, lane_o), Number(substitute(index[1], lane_o), I64))
            valid = tuple(positive(substitute(c, lane_o)) for c in limits)
            needed = tuple(c for c in valid if not (isinstance(c, int) and c > 0))
            if needed and out and isinstance(out[-1], If) and out[-1].conditions == needed:
                out[-1].body.extend(taken)
            else:
                out += [If(needed, taken)] if needed else taken
        return _over(m, r, out)

    def tile_holes(self, p: TilePort, r: Index, statistics: tuple[Buffer, ...]) -> dict[str, Value]:
        """x in this thread's registers, and the statistics known so far (one a row this thread owns)."""
        row = lane(p.width) if p.axis == 0 else 0
        found: dict[str, Value] = {"x": p.buffer[r * p.width + lane(p.width)]}
        return found | {f"s{i}": b[row] for i, b in enumerate(statistics)}

    # ---- stores ----------------------------------------------------------------------------------------------------

    def store(self, s: StoreTile) -> list[Stmt]:
        out: list[Stmt] = []
        stores: tuple[Store, ...] = getattr(self.task, s.stores) if isinstance(s.stores, str) else s.stores
        for number, st in enumerate(stores):
            out += self._store_one(s, st, f"{s.name}{number}" if len(stores) > 1 else s.name)
        return out

    def _store_one(self, s: StoreTile, st: Store, name: str) -> list[Stmt]:
        w, axis = self.store_shape(s, st, name)
        m, r, base = self.tile(s.tile, axis, w, s.workers, s.worker)
        address, conditions, value = self._final(s, st, s.origin, base, axis, lane(w))
        out: list[Stmt] = []
        holes = self.tile_holes(s.tile_port, r, s.statistics) if s.tile_port else self._staged(s, base, axis, w, out)
        lower = Lowering(self.names, w, out, _holes(holes))
        hoisted = lower.hoist(value, conditions)  # the store is guarded, so the value needs no guard of its own
        result = Buffer(self.names.new(f"{name}_r"), st.tensor.dtype, w)
        out.append(Declare(result))
        out += [Set(result[o], at(hoisted, {LANE: o})) for o in range(w)]
        pieces = w if s.tile_port is None else self._store_width(st, address, conditions, w)
        for o in range(0, w, pieces):
            at_o = {LANE: o}
            out.append(VectorStore(st.tensor.dtype, pieces, Pointer(st.tensor.name, substitute(address, at_o)), Pointer(result.name, o),
                                   tuple(positive(substitute(c, at_o)) for c in conditions)))
        return _over(m, r, out)

    def _store_width(self, st: Store, address: Index, conditions: tuple[Index, ...], w: int) -> int:
        from_facts = contiguous_width(address, conditions, min(w, 16 // st.tensor.dtype.bytes)) if w > 1 else 1
        return max(1, from_facts)

    def store_shape(self, s: StoreTile, st: Store, name: str) -> Shape:
        if s.tile_port is not None:
            return s.tile_port.width, s.tile_port.axis
        if name not in self.shapes:
            origin = (Var("origin0_", 0, None, s.tile[0]), Var("origin1_", 0, None, s.tile[1]))

            def access(base: list[Index], axis: int, o: Index):
                address, conditions, _ = self._final(s, st, origin, base, axis, o)
                return st.tensor, address, conditions

            self.shapes[name] = choose_shape(s.tile, s.workers, access, (1, 0), 16 // st.tensor.dtype.bytes)
            width, axis = self.shapes[name]
            self.notes[name] = f"width {width} along axis {axis}"
        return self.shapes[name]

    def _final(self, s: StoreTile, st: Store, origin: tuple[Index, Index], base: list[Index], axis: int,
               o: Index) -> tuple[Index, tuple[Index, ...], Value]:
        """(address, conditions, value) of the store at a tile position."""
        index = _position(origin, base, axis, o)
        bound = s.bind(*index)
        address = st.tensor.address(tuple(substitute(i, bound) for i in st.index))
        conditions = tuple(c for c in _inside(index, s.limits) if not (isinstance(c, int) and c > 0))
        return address, conditions, at(st.value, bound)

    def _staged(self, s: StoreTile, base: list[Index], axis: int, w: int, out: list[Stmt]) -> dict[str, Value]:
        """The holes read from staging buffers, in vectors where the tile's rows run along the axis."""
        found: dict[str, Value] = {}
        for name, (buffer, layout) in s.holes.items():
            if buffer.scope == "register":
                found[name] = buffer[layout(*_position((0, 0), base, axis, lane(w)))]
                continue
            array = Buffer(self.names.new(name), buffer.dtype, w)
            out.append(Declare(array))
            step = min(w, 16 // buffer.dtype.bytes) if axis == 1 else 1
            for o in range(0, w, step):
                place = layout(*_position((0, 0), base, axis, o))
                out.append(VectorLoad(buffer.dtype, step, Pointer(array.name, o), Pointer(buffer.name, place)))
            found[name] = array[lane(w)]
        return found

    # ---- shared ----------------------------------------------------------------------------------------------------

    def thread(self) -> Index:
        return Var("tid", 0, self.program.threads - 1)

    def tile(self, tile: tuple[int, int], axis: int, width: int, workers: int, worker: Index) -> tuple[TaskMapping, Index, list[Index]]:
        """(mapping, repetition variable, tile position of this worker's vector)."""
        m = tile_mapping(tile, axis, width, workers)
        r: Index = Var(self.names.new("r"), 0, m.reps - 1) if m.reps > 1 else 0
        return m, r, list(m.at(worker, r))


def _position(origin: tuple[Index, Index], base: list[Index], axis: int, o: Index) -> tuple[Index, Index]:
    i, j = origin[0] + base[0], origin[1] + base[1]
    return (i + o, j) if axis == 0 else (i, j + o)


def _inside(index: tuple[Index, Index], limits: tuple[Index, Index]) -> tuple[Index, ...]:
    return tuple(positive(limit - x) for x, limit in zip(index, limits, strict=True))


def _over(m: TaskMapping, r: Index, out: list[Stmt]) -> list[Stmt]:
    """The statements for every repetition, in a scope of their own."""
    if not out:
        return []
    return [For(r, 0, m.reps, out)] if isinstance(r, Var) else [Scope(out)]


def _copy(size: int, target: Pointer, source: Pointer, conditions: tuple[Index, ...]) -> Stmt:
    return Do("cp_async", (target, source, conditions), (size,))


def _holes(values: dict[str, Value]) -> Callable[[Hole], Value]:
    def find(h: Hole) -> Value:
        return values[h.name] if h.name in values else no_holes(h)

    return find

