"""Units -> groups: each anchor takes up what can join it, before (prologues) and after (epilogues).

An injective Map joins the one unit that made its input, as an epilogue, when its index map inverts; where that input is an output of
the graph too, the group stores both. What is left joins its readers as a prologue when that does not repeat work. A refusal keeps its
reason. The order of decisions is fixed, so the
same graph gives the same groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod as int_prod

from taskc.fuse.inverse import Refusal, invert
from taskc.fuse.units import Unit, with_source
from taskc.fuse.width import vector_width
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Var
from taskc.ir.task import Contraction, Map, Rows, Store, Task, inputs, map_values, outputs, reach
from taskc.ir.value import Call, Choose, Guard, Let, Load, Names, Reduce, Tensor, Value, at, is_view, rewrite, walk

# Functions cheap enough to repeat for each block that reads a tile; the others are computed once by an epilogue or alone.
CHEAP = frozenset({"add", "sub", "mul", "neg", "relu", "abs", "min", "max", "where", "eq", "ne", "lt", "le", "gt", "ge", "not", "and", "or"})

# Elements from which a tensor is worth a kernel of its own that lays it out for its reader; reading fewer takes less than a launch.
WORTH_A_COPY = 4096


def partition(units: Sequence[Unit], kept: frozenset[str]) -> list[Unit]:
    """The groups in execution order. `kept` names the tensors that must exist (graph outputs)."""
    groups = _join_light(list(units), kept)
    groups = _join_epilogues(groups, kept)
    groups = _join_prologues(groups, kept)
    return in_order(groups)


# ---- elementwise chains ---------------------------------------------------------------------------------------------


def _join_light(units: list[Unit], kept: frozenset[str]) -> list[Unit]:
    """An injective Map whose only reader is one too disappears into it; readers first, so that diamonds close.

    Where its result is kept it takes up the reader instead, unless that reads what another kernel might take it up for."""
    for unit in reversed(units):
        if not is_light(unit.task):
            continue
        reader = _only_reader(unit, [u for u in units if u is not unit], kept)
        if reader is None or not is_light(reader.task):
            continue
        out = unit.task.stores[-1].tensor
        if out.name in kept:
            made = {t for u in units if u is not unit for t in outputs(u.task)}
            joined = join_epilogue(unit, reader, keep=True)
            if isinstance(joined, Refusal) or made & ({*inputs(reader.task)} - {out}):
                continue
        elif len(unit.task.stores) == 1 and _repeats_work(unit, reader) is None:
            joined = _inline(reader, unit)
        else:
            continue
        units = [joined if u is reader else u for u in units if u is not unit]
    return units


def _repeats_work(unit: Unit, reader: Unit) -> str | None:
    """Why computing the unit's elements inside the reader costs more than it saves, or None."""
    own, store = unit.task, unit.task.stores[0]
    assert isinstance(own, Map) and isinstance(reader.task, Map)
    if len(own.stores) != 1 or _axes_of(own, store) is None:
        return "it writes only a part of its tensor"
    if is_view(store.value):
        return None
    costly = sorted({v.function for v in walk(store.value) if isinstance(v, Call)} - CHEAP)
    read = {v for s in reader.task.stores for v in walk(s.value) if isinstance(v, Load) and v.tensor == store.tensor}
    for load in read:
        solved = invert(reader.task.axes, load.index, load.tensor.shape, [0] * len(load.index))
        if isinstance(solved, Refusal) and costly:
            return f"{', '.join(costly)} would be computed again: {solved.reason}"
    return None


# ---- epilogues ------------------------------------------------------------------------------------------------------


def _join_epilogues(units: list[Unit], kept: frozenset[str]) -> list[Unit]:
    """Each anchor takes up the single reader of its result, again and again."""
    done: list[Unit] = []
    left = units
    while left:
        unit, left = left[0], left[1:]
        if is_light(unit.task):
            done.append(unit)
            continue
        while True:
            reader = _only_reader(unit, done + left, kept)
            if reader is None:
                break
            joined = join_epilogue(unit, reader, keep=unit.task.stores[-1].tensor.name in kept)
            if isinstance(joined, Refusal):
                unit = replace(unit, refused=(*unit.refused, f"{' + '.join(reader.source)} as epilogue: {joined.reason}"))
                break
            unit = joined
            done = [u for u in done if u is not reader]
            left = [u for u in left if u is not reader]
        done.append(unit)
    return done


def is_light(task: Task) -> bool:
    """Whether the task is injective: computed anywhere at the cost of its own loads."""
    return isinstance(task, Map) and not any(isinstance(v, Reduce) for s in task.stores for v in walk(s.value))


def _only_reader(unit: Unit, others: Sequence[Unit], kept: frozenset[str]) -> Unit | None:
    """The one unit that reads the unit's last result, all before it being outputs of the graph, which groups only store."""
    *before, last = unit.task.stores
    out = last.tensor
    if any(s.tensor.name not in kept or s.tensor == out for s in before):
        return None
    readers = [u for u in others if out in inputs(u.task)]
    writers = [u for u in others if out in outputs(u.task)]
    return readers[0] if len(readers) == 1 and not writers else None


def join_epilogue(unit: Unit, reader: Unit, keep: bool = False) -> Unit | Refusal:
    """The unit with `reader` computed in place of storing its last result, or where that is to `keep`, behind it."""
    if not is_light(reader.task):
        return Refusal("it reduces: it anchors a kernel of its own")
    assert isinstance(reader.task, Map)
    task = unit.task
    *kept, before = task.row_stores or task.element if isinstance(task, Rows) else task.stores
    if before != task.stores[-1] or len(task.stores) != len(kept) + 1:
        return Refusal("rows and elements of rows are stored")
    stores: list[Store] = [*kept, before] if keep else list(kept)
    for after in reader.task.stores:
        new = _compose(before, reader.task, after)
        if isinstance(new, Refusal):
            return new
        stores.append(new)
    if isinstance(task, Rows):
        joined: Task = replace(task, element=tuple(stores)) if task.element else replace(task, row_stores=tuple(stores))
    else:
        joined = replace(task, stores=tuple(stores))
    kept_too = f", {before.tensor.name} stored too" if keep else ""
    return with_source(replace(unit, task=joined), reader, f"epilogue {' + '.join(reader.source)}{kept_too}")


def _compose(before: Store, reader: Map, after: Store) -> Store | Refusal:
    """after's store, at the points where before stores, with before's value in place of the load of its tensor."""
    found = {v for v in walk(after.value) if isinstance(v, Load) and v.tensor == before.tensor}
    if len(found) != 1:
        return Refusal("it reads several elements of the result for one of its own")
    (load,) = found
    if any(isinstance(v, (Let, Reduce)) and load in list(walk(v)) for v in walk(after.value)):
        return Refusal("it picks elements of the result by data")
    if _conditional(after.value, load):
        return Refusal("it uses the result only in places (padding or concatenation)")
    solved = invert(reader.axes, load.index, load.tensor.shape, before.index)
    if isinstance(solved, Refusal):
        return solved
    value = rewrite(at(after.value, solved), lambda v: before.value if isinstance(v, Load) and v.tensor == before.tensor else None)
    return Store(after.tensor, tuple(substitute(i, solved) for i in after.index), value)


def _conditional(v: Value, load: Load) -> bool:
    return any(load in list(walk(x)) for x in walk(v) if isinstance(x, (Choose, Guard)))


# ---- prologues ------------------------------------------------------------------------------------------------------


def _join_prologues(units: list[Unit], kept: frozenset[str]) -> list[Unit]:
    """Light units disappear into their readers, the last ones first, when every reader agrees."""
    for unit in reversed(units):
        if not is_light(unit.task) or len(unit.task.stores) != 1:
            continue
        out = unit.task.stores[0].tensor
        readers = [u for u in units if out in inputs(u.task)]
        if out.name in kept or not readers or sum(out in outputs(u.task) for u in units) != 1:
            continue
        reasons = {r: why for r in readers if (why := _why_not_prologue(unit, r, len(readers))) is not None}
        if reasons:
            notes = tuple(f"{' + '.join(unit.source)} as prologue: {why}" for why in dict.fromkeys(reasons.values()))
            units = [replace(u, refused=(*u.refused, *notes)) if u in reasons else u for u in units]
            continue
        units = [_inline(u, unit) if u in readers else u for u in units if u is not unit]
    return units


def _why_not_prologue(unit: Unit, reader: Unit, readers: int) -> str | None:
    """Why the reader should not compute the unit's elements where it loads them."""
    assert isinstance(unit.task, Map)
    store = unit.task.stores[0]
    if _axes_of(unit.task, store) is None:
        return "it writes only a part of its tensor"
    view = is_view(store.value)
    if is_light(reader.task):
        return _repeats_work(unit, reader) if view or readers == 1 else f"{readers} readers would each compute it"
    if isinstance(reader.task, Map):
        return None if view else "each element would be computed for every window it is in"
    if isinstance(reader.task, Rows):
        return None if view or readers == 1 else f"{readers} readers would each compute it"
    narrow = _narrows(unit, reader)
    if view or narrow is not None:
        return narrow
    if readers > 1:
        return f"{readers} readers would each compute it"
    if any(isinstance(v, (Choose, Let)) for v in walk(store.value)):
        return "its loads depend on the position or on data, so they cannot be copied ahead"
    costly = sorted({v.function for v in walk(store.value) if isinstance(v, Call)} - CHEAP)
    return f"{', '.join(costly)} would be computed again for every tile" if costly else None


def _narrows(unit: Unit, reader: Unit) -> str | None:
    """Why the reader is better off with a copy of a tensor of some size: it could read that in wider vectors. None if it could not."""
    store = unit.task.stores[0]
    known = [d for d in store.tensor.shape if isinstance(d, int)]
    if not isinstance(reader.task, Contraction) or int_prod(known) < WORTH_A_COPY:
        return None
    task, inlined = reader.task, _inline(reader, unit).task
    assert isinstance(inlined, Contraction)
    for before, after, other in ((task.a, inlined.a, task.m), (task.b, inlined.b, task.n)):
        wide, narrow = (vector_width(v, [(task.k.var, task.k.extent), (other.var, reach(v, other))]) for v in (before, after))
        if before != after and narrow < wide:
            return f"the loads would be {narrow} elements wide in place of {wide}"
    return None


def _axes_of(task: Map, store: Store) -> dict[str, int] | None:
    """axis name -> position in the store's index, when the store's index is just the axes; else None."""
    places: dict[str, int] = {}
    for d, i in enumerate(store.index):
        if isinstance(i, Var):
            places[i.name] = d
        elif i != 0 or store.tensor.shape[d] != 1:
            return None
    extents = {a.var.name: a.extent for a in task.axes}
    full = all(extents.get(name) == store.tensor.shape[d] for name, d in places.items())
    return places if full and all(name in places or e == 1 for name, e in extents.items()) else None


def _inline(reader: Unit, unit: Unit) -> Unit:
    """The reader with every load of the unit's result replaced by the computation."""
    own = unit.task
    assert isinstance(own, Map)
    store = own.stores[0]
    places = _axes_of(own, store)
    assert places is not None
    names = Names()

    def replaced(v: Value) -> Value | None:
        if not (isinstance(v, Load) and v.tensor == store.tensor):
            return None
        bound = {a.var.name: v.index[places[a.var.name]] if a.var.name in places else 0 for a in own.axes}
        return _fresh(at(store.value, bound), names)

    task = map_values(reader.task, lambda v: rewrite(v, replaced))
    return with_source(replace(reader, task=task), unit, f"prologue {' + '.join(unit.source)}")


def _fresh(v: Value, names: Names) -> Value:
    """Let variables renamed, so that two copies of one gather in one value do not meet."""

    def renamed(x: Value) -> Value | None:
        if not isinstance(x, Let):
            return None
        var = Var(names.new(f"{x.var.name}x"), x.var.lo, x.var.hi, x.var.div, x.var.below)
        return Let(var, _fresh(x.value, names), _fresh(at(x.body, {x.var.name: var}), names))

    return rewrite(v, renamed)


# ---- order ----------------------------------------------------------------------------------------------------------


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """Units sorted so that every tensor is written before it is read; ties keep their order."""
    writers: dict[Tensor, list[Unit]] = {}
    for u in units:
        for t in outputs(u.task):
            writers.setdefault(t, []).append(u)
    done: list[Unit] = []
    placed: set[int] = set()

    def place(u: Unit) -> None:
        if id(u) in placed:
            return
        placed.add(id(u))
        for t in inputs(u.task):
            for w in writers.get(t, ()):
                place(w)
        done.append(u)

    for u in units:
        place(u)
    return done

