"""The NumPy meaning of tasks and graphs: what compiled programs are compared with.

`evaluate_task` is vectorised over the task's index grid; every load is checked against its tensor's bounds, every index
from data against its variable's facts, and every output element must be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from taskc.ir.convert import stored_as, values_of
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Expr, Var
from taskc.ir.graph import Array, Graph
from taskc.ir.meaning import Point, reduced, widened
from taskc.ir.reference import bind_graph, run_reference
from taskc.ir.task import Attention, Axis, Contraction, Map, Rows, Statistic, Store, Task, inputs, outputs
from taskc.ir.value import Tensor, Value

__all__ = ["evaluate_graph", "evaluate_task", "evaluate_tasks", "statistic_of", "symbols_of"]


class _Outputs:
    """The tensors that tasks write, and which of their elements are written."""

    def __init__(self, symbols: Mapping[str, int], wide: bool) -> None:
        self.symbols, self.wide = symbols, wide
        self.arrays: dict[str, Array] = {}
        self.written: dict[str, Array] = {}

    def add(self, task: Task) -> None:
        """Makes room for what the task writes, unless an earlier task wrote another part of it."""
        for t in outputs(task):
            if t.name not in self.arrays:
                shape = tuple(evaluate(d, self.symbols) for d in t.shape)
                self.arrays[t.name] = np.zeros(shape, np.float64 if self.wide and t.dtype.is_float else t.dtype.numpy)
                self.written[t.name] = np.zeros(shape, bool)

    def store(self, store: Store, at: Point) -> None:
        """Writes the store's value at every point of the grid."""
        value = np.broadcast_to(at.value(store.value), at.mask.shape)
        if not (self.wide and store.tensor.dtype.is_float):
            value = stored_as(value, store.tensor.dtype)
        out = self.arrays[store.tensor.name]
        place = tuple(np.broadcast_to(np.asarray(at.index(i)), at.mask.shape) for i in store.index)
        for i, (p, extent) in enumerate(zip(place, out.shape, strict=True)):
            if np.any((p < 0) | (p >= extent)):
                raise IndexError(f"a store to {store.tensor.name} leaves 0..{extent - 1} in dim {i}")
        out[place] = value if place else value.reshape(())
        self.written[store.tensor.name][place] = True

    def whole(self, name: str) -> Array:
        """The tensor's elements; ValueError where some are not written."""
        w = self.written[name]
        if not w.all():
            raise ValueError(f"{int((~w).sum())} of {w.size} elements of {name} are never written")
        return self.arrays[name]

    def done(self) -> dict[str, Array]:
        return {name: self.whole(name) for name in self.arrays}


def evaluate_task(task: Task, tensors: Mapping[str, Array], symbols: Mapping[str, int] | None = None,
                  dtype: type[np.float64] | None = None) -> dict[str, Array]:
    """The task's outputs by tensor name. `tensors` holds stored arrays (bfloat16 as bits) by tensor name.

    With `dtype=np.float64` all floats are computed and returned in double, unrounded.
    IndexError: a load or store outside of its tensor. ValueError: an output element that nothing writes."""
    return evaluate_tasks((task,), tensors, symbols, dtype)


def evaluate_tasks(tasks: Sequence[Task], tensors: Mapping[str, Array], symbols: Mapping[str, int] | None = None,
                   dtype: type[np.float64] | None = None) -> dict[str, Array]:
    """Everything that tasks in execution order write, by tensor name: the meaning of a partitioned graph.

    Several tasks may write parts of one tensor; a task that reads it must come after all of them (ValueError, as for
    elements that nothing writes; KeyError for a tensor that does not exist yet). Otherwise as `evaluate_task`."""
    known, wide = dict(symbols or {}), dtype is np.float64
    out = _Outputs(known, wide)
    for task in tasks:
        values = {t.name: _read(t, tensors, out) for t in inputs(task)}
        out.add(task)
        if isinstance(task, Map):
            at = _grid(task.axes, known, values, wide)
            for s in task.stores:
                out.store(s, at)
        elif isinstance(task, Contraction):
            _contraction(task, known, values, wide, out)
        elif isinstance(task, Rows):
            _rows(task, known, values, wide, out)
        else:
            _attention(task, known, values, wide, out)
    return out.done()


def _read(t: Tensor, tensors: Mapping[str, Array], out: _Outputs) -> Array:
    """The tensor as values: what a task wrote, else what was given."""
    if t.name not in out.arrays:
        return widened(values_of(tensors[t.name], t.dtype), out.wide)
    made = out.whole(t.name)
    return made if out.wide and t.dtype.is_float else widened(values_of(made, t.dtype), out.wide)


def _grid(axes: tuple[Axis, ...], symbols: Mapping[str, int], tensors: Mapping[str, Array], wide: bool,
          holes: Mapping[str, Array] | None = None) -> Point:
    sizes = [evaluate(a.extent, symbols) for a in axes]
    env: dict[str, Any] = dict(symbols)
    for d, (a, size) in enumerate(zip(axes, sizes, strict=True)):
        env[a.var.name] = np.arange(size).reshape([size if k == d else 1 for k in range(len(axes))])
    return Point(tensors, env, np.ones(tuple(sizes), bool), holes or {}, wide)


def _over(axes: tuple[Axis, ...], value: Value, at: Point) -> Array:
    """A value that ranges over `axes` alone, in full."""
    sizes = tuple(evaluate(a.extent, {k: v for k, v in at.env.items() if isinstance(v, int)}) for a in axes)
    grid = _grid(axes, {k: v for k, v in at.env.items() if isinstance(v, int)}, at.tensors, at.wide, at.holes)
    return np.broadcast_to(grid.value(value), sizes)


def _contraction(task: Contraction, symbols: Mapping[str, int], tensors: Mapping[str, Array], wide: bool, out: _Outputs) -> None:
    base = Point(tensors, dict(symbols), np.ones((), bool), {}, wide)
    a = _over((task.batch, task.m, task.k), task.a, base)
    b = _over((task.batch, task.k, task.n), task.b, base)
    kind = np.float64 if wide and task.accumulate.is_float else task.accumulate.numpy
    acc = np.matmul(a.astype(kind), b.astype(kind))
    at = _grid((task.batch, task.m, task.n), symbols, tensors, wide, {"acc": acc})
    for s in task.stores:
        out.store(s, at)


def statistic_of(s: Statistic, x: Array) -> Array:
    """The statistic of every row, kept as a column."""
    if s.kind in ("argmax", "argmin"):
        return np.asarray((np.argmax if s.kind == "argmax" else np.argmin)(x, axis=1))[:, None]
    return reduced(s.kind, x, (1,))[:, None]


def _rows(task: Rows, symbols: Mapping[str, int], tensors: Mapping[str, Array], wide: bool, out: _Outputs) -> None:
    axes = (task.row, task.column)
    at = _grid(axes, symbols, tensors, wide)
    holes: dict[str, Array] = {"x": np.broadcast_to(at.value(task.x), at.mask.shape)}
    for k, s in enumerate(task.statistics):
        here = replace(at, holes=dict(holes))
        found = statistic_of(s, np.broadcast_to(here.value(s.value), at.mask.shape))
        if s.finish is not None:
            column = _grid((task.row, Axis(Var("_one"), 1)), symbols, tensors, wide, {**holes, "s": found})
            found = np.broadcast_to(column.value(s.finish), found.shape)
        holes[f"s{k}"] = found
    for s in task.element:
        out.store(s, replace(at, holes=holes))
    row = _grid((task.row,), symbols, tensors, wide, {k: h[:, 0] for k, h in holes.items() if k != "x"})
    for s in task.row_stores:
        out.store(s, row)


def _attention(task: Attention, symbols: Mapping[str, int], tensors: Mapping[str, Array], wide: bool, out: _Outputs) -> None:
    base = Point(tensors, dict(symbols), np.ones((), bool), {}, wide)
    kind = np.float64 if wide else np.float32
    q = _over((task.batch, task.m, task.k), task.q, base).astype(kind)
    key = _over((task.batch, task.j, task.k), task.key, base).astype(kind)
    v = _over((task.batch, task.j, task.n), task.v, base).astype(kind)
    score = np.matmul(q, np.swapaxes(key, 1, 2)) * kind(task.scale)
    at = _grid((task.batch, task.m, task.j), symbols, tensors, wide)
    if task.bias is not None:
        score = score + at.value(task.bias)
    for c in task.mask:
        score = np.where(np.asarray(at.index(c)) > 0, score, -np.inf)
    with np.errstate(all="ignore"):
        top = np.max(score, axis=2, keepdims=True, initial=-np.inf)
        e = np.exp(score - np.where(np.isneginf(top), 0, top))
        total = e.sum(axis=2, keepdims=True)
        acc = np.matmul(e, v) / np.where(total == 0, 1, total)
    grid = _grid((task.batch, task.m, task.n), symbols, tensors, wide, {"acc": acc.astype(kind)})
    for s in task.stores:
        out.store(s, grid)


def symbols_of(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, int]:
    """The symbols' values that the feeds' shapes imply. ValueError: a feed does not fit its input."""
    out: dict[str, int] = {}
    shapes = [(name, d, size) for name in graph.inputs for d, size in zip(graph.types[name].shape, feeds[name].shape, strict=True)]
    for _, d, size in shapes:
        if isinstance(d, Var):
            out.setdefault(d.name, size)
    for name, d, size in shapes:
        want = evaluate(d, out) if isinstance(d, Expr) else d
        if want != size:
            raise ValueError(f"input {name!r} wants a dim of {want}, got {size}")
    return out


def evaluate_graph(graph: Graph, feeds: Mapping[str, Array], dtype: type[np.float64] | None = None) -> dict[str, Array]:
    """The graph's outputs by public name, node by node through `Op.reference`.

    With `dtype=np.float64` every float is computed and returned in double, and conversions between float types do not
    round: the reference that all accuracy is measured against."""
    graph = bind_graph(graph, symbols_of(graph, feeds))
    wide = dtype is np.float64
    values: dict[str, Array] = {name: np.asarray(feeds[name]) for name in graph.inputs} | dict(graph.constants)
    if wide:
        values = {k: widened(values_of(a, graph.types[k].dtype), True) for k, a in values.items()}
    left = {name: len(users) for name, users in graph.consumers().items()}
    kept = graph.output_values()
    for n in graph.nodes:
        ins = [values[i] if i else None for i in n.inputs]
        in_types, out_types = [graph.type_of(i) for i in n.inputs], [graph.types[o] for o in n.outputs]
        outs = _double(n.op, ins, in_types, out_types) if wide else run_reference(n.op, ins, in_types, out_types)
        for o, a, t in zip(n.outputs, outs, out_types, strict=True):
            if a.shape != t.shape:
                raise ValueError(f"{n.source or n.op.name}: {o} has shape {list(a.shape)}, inferred {t}")
            values[o] = a
        for i in set(n.inputs):
            left[i] = left.get(i, 0) - 1
            if i and left[i] == 0 and i not in kept:
                del values[i]
    return {name: values[v] for name, v in graph.outputs}


def _double(op: Any, ins: list[Array | None], in_types: list[Any], out_types: list[Any]) -> tuple[Array, ...]:
    """One node in double precision; a conversion between float types is the identity."""
    if len(in_types) == len(out_types) == 1 and in_types[0] is not None:
        a, b = in_types[0], out_types[0]
        if a.dtype.is_float and b.dtype.is_float and a.dtype != b.dtype and a.shape == b.shape:
            return (cast(Array, ins[0]),)
    outs = op.reference(*ins)
    return tuple(np.asarray(o).astype(np.float64 if t.dtype.is_float else t.dtype.numpy) for o, t in zip(outs, out_types, strict=True))
