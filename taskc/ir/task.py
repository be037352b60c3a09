"""Tasks: the scalar definition of an operator, or of a fused group of operators around one anchor.

A task says what each output element is; it says nothing of threads. Fusion substitutes values into a task's ports:
the prologues of `a`, `b`, `x`, … and the stores' values and indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Union

from taskc.ir.dtype import DType
from taskc.ir.expr import Index, Var
from taskc.ir.facts import mentions
from taskc.ir.value import Dim, Load, Tensor, Value, loads

_VECTOR = 16  # elements of the widest access, of the narrowest type


@dataclass(frozen=True)
class Axis:
    """An index variable and its extent: 0 <= var < extent."""

    var: Var
    extent: Dim


def axis(name: str, extent: Dim) -> Axis:
    """An axis whose variable carries the extent as a fact."""
    return Axis(Var(name, below=extent), extent)


def reach(v: Value, a: Axis) -> Index:
    """How far the axis may run with every load of the value inside its tensor: its extent, or up to a vector's end beyond it.

    What lies beyond the extent must not matter, as where a row or column of a product is computed and never stored."""
    ends: list[Index] = [a.extent]
    for load, conditions in loads(v):
        if any(mentions(c, a.var.name) for c in conditions):
            return a.extent
        here = [(i, d) for i, d in zip(load.index, load.tensor.shape, strict=True) if mentions(i, a.var.name)]
        if len(here) > 1 or any(i != a.var for i, _ in here):
            return a.extent
        ends += [d for _, d in here]
    if len(ends) == 1 or not all(isinstance(e, int) for e in ends):
        return a.extent
    stored = [e for e in ends if isinstance(e, int)]
    return min(*stored[1:], -(-stored[0] // _VECTOR) * _VECTOR)


@dataclass(frozen=True)
class Store:
    """tensor[index] = value, for every point of the task's axes that the value ranges over."""

    tensor: Tensor
    index: tuple[Index, ...]
    value: Value


@dataclass(frozen=True)
class Map:
    """Every point of `axes` (row-major) computes its stores on its own: elementwise, views, pooling, depthwise.

    `injective` when no store's value contains a Reduce."""

    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class Contraction:
    """acc[b, m, n] = sum over k of a(b, m, k) * b(b, k, n), accumulated in `accumulate`; stores see Hole('acc').

    `operand` is the type both values are rounded to before they are multiplied. Both operand values are zero outside their guards,
    never where 0 <= k < K fails.
    precision: 'native', or 'tf32' where float32 operands may be rounded to TF32 (10 bits) before they are multiplied."""

    batch: Axis
    m: Axis
    n: Axis
    k: Axis
    a: Value
    b: Value
    operand: DType
    accumulate: DType
    stores: tuple[Store, ...]
    precision: str = "native"


@dataclass(frozen=True)
class Statistic:
    """s = `kind` over the columns of `value`, which sees x and earlier statistics; `finish` maps it (sees Hole('s')).

    kind: 'sum', 'max', 'min', 'prod', 'argmax', 'argmin' (the first index; NaN wins)."""

    kind: str
    value: Value
    finish: Value | None = None


@dataclass(frozen=True)
class Rows:
    """Statistics over the columns of each row of x(row, column): reductions, softmax, normalisations.

    Values see Hole('x') and Hole('s0'), Hole('s1'), … `element` stores range over (row, column), `row` stores over row."""

    row: Axis
    column: Axis
    x: Value
    statistics: tuple[Statistic, ...]
    element: tuple[Store, ...] = ()
    row_stores: tuple[Store, ...] = ()

    @property
    def stores(self) -> tuple[Store, ...]:
        return self.element + self.row_stores


@dataclass(frozen=True)
class Attention:
    """acc[b, m, n] = sum over j of softmax over j (score(b, m, j)) * v(b, j, n).

    score = scale * (sum over k of q(b, m, k) * k(b, j, k)) + bias(b, m, j), or minus infinity where a `mask` condition
    (an index condition over b, m, j, such as causal: m - j + 1) is not positive; a fully masked row gives 0.
    Stores see Hole('acc'). `operand` is the type of q, key and v."""

    batch: Axis
    m: Axis
    j: Axis
    k: Axis
    n: Axis
    q: Value
    key: Value
    v: Value
    scale: float
    bias: Value | None
    mask: tuple[Index, ...]
    operand: DType
    stores: tuple[Store, ...]


Task = Union[Map, Contraction, Rows, Attention]


def ports(task: Task) -> dict[str, Value]:
    """The values a task loads through, by port name; stores are named 'store0', …"""
    if isinstance(task, Map):
        own: dict[str, Value] = {}
    elif isinstance(task, Contraction):
        own = {"a": task.a, "b": task.b}
    elif isinstance(task, Rows):
        own = {"x": task.x, **{f"s{i}": s.value for i, s in enumerate(task.statistics)}}
    else:
        own = {"q": task.q, "key": task.key, "v": task.v} | ({} if task.bias is None else {"bias": task.bias})
    return own | {f"store{i}": s.value for i, s in enumerate(task.stores)}


def task_loads(task: Task) -> Iterator[Load]:
    """Every load of the task, in port order."""
    for v in ports(task).values():
        yield from (load for load, _ in loads(v))


def inputs(task: Task) -> tuple[Tensor, ...]:
    """The tensors the task reads, in order of first use."""
    return tuple(dict.fromkeys(load.tensor for load in task_loads(task)))


def outputs(task: Task) -> tuple[Tensor, ...]:
    """The tensors the task writes."""
    return tuple(s.tensor for s in task.stores)


def map_values(task: Task, f: Callable[[Value], Value]) -> Task:
    """The task with f applied to every value it holds."""

    def stores(ss: Iterable[Store]) -> tuple[Store, ...]:
        return tuple(replace(s, value=f(s.value)) for s in ss)

    if isinstance(task, Map):
        return replace(task, stores=stores(task.stores))
    if isinstance(task, Contraction):
        return replace(task, a=f(task.a), b=f(task.b), stores=stores(task.stores))
    if isinstance(task, Rows):
        statistics = tuple(replace(s, value=f(s.value), finish=None if s.finish is None else f(s.finish)) for s in task.statistics)
        return replace(task, x=f(task.x), statistics=statistics, element=stores(task.element), row_stores=stores(task.row_stores))
    bias = None if task.bias is None else f(task.bias)
    return replace(task, q=f(task.q), key=f(task.key), v=f(task.v), bias=bias, stores=stores(task.stores))
