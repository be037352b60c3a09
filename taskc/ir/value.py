"""Scalar computations: what one element of a tensor is, as an expression over loads. The meaning of every task.

A value has the compute type of its tensor: a float16 load is a float32 value, and rounding happens where it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Union

from taskc.ir.dtype import DType
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Index, Var
from taskc.ir.functions import FUNCTIONS
from taskc.ir.positions import ravel
from taskc.ir.proofs import positive

Dim = Index


@dataclass(frozen=True)
class Tensor:
    """A dense row-major tensor in global memory. `constant`: its bytes are fixed when the model is compiled."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    constant: bool = False

    def address(self, index: tuple[Index, ...]) -> Index:
        """The element offset of `index`."""
        return ravel(index, self.shape)

    def at(self, *index: Index) -> Load:
        return Load(self, index)


@dataclass(frozen=True)
class Load:
    """tensor[index]."""

    tensor: Tensor
    index: tuple[Index, ...]

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype.compute


@dataclass(frozen=True)
class Const:
    """A number."""

    value: float | int | bool
    dtype: DType


@dataclass(frozen=True)
class Number:
    """The value of an index expression as a number."""

    index: Index
    dtype: DType


@dataclass(frozen=True)
class Call:
    """A function of `ir/functions.py` applied to values; `dtype` is the result's compute type."""

    function: str
    args: tuple[Value, ...]
    dtype: DType


@dataclass(frozen=True)
class Cast:
    """Conversion with ONNX's meaning; `to` may be a storage type (float16), then the value is rounded to it."""

    value: Value
    to: DType

    @property
    def dtype(self) -> DType:
        return self.to.compute


@dataclass(frozen=True)
class Guard:
    """`value` where every condition is positive, else 0; nothing inside is loaded elsewhere."""

    conditions: tuple[Index, ...]
    value: Value

    @property
    def dtype(self) -> DType:
        return self.value.dtype


@dataclass(frozen=True)
class Choose:
    """`yes` where `condition` is positive, else `no`; only the chosen side is loaded."""

    condition: Index
    yes: Value
    no: Value

    @property
    def dtype(self) -> DType:
        return self.yes.dtype


@dataclass(frozen=True)
class Let:
    """`body` with the index variable `var` bound to an integer value: indices that come from data (gather).

    The variable's facts (bounds) must hold for any data: clamp or wrap in `value`."""

    var: Var
    value: Value
    body: Value

    @property
    def dtype(self) -> DType:
        return self.body.dtype


@dataclass(frozen=True)
class Reduce:
    """A short reduction that one thread runs in order: `kind` over `axes` (each 0 <= axis < its extent).

    kind: 'sum', 'prod', 'max', 'min' (NaN propagates)."""

    kind: str
    axes: tuple[Var, ...]
    extents: tuple[Dim, ...]
    body: Value

    @property
    def dtype(self) -> DType:
        return self.body.dtype


@dataclass(frozen=True)
class Hole:
    """What the anchor computed: 'acc' of a contraction, 'x' and 's0', 's1', … of a rows task."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Element:
    """An element of a register or shared buffer; appears only in lowered programs."""

    buffer: str
    offset: Index
    storage: DType

    @property
    def dtype(self) -> DType:
        return self.storage.compute


Value = Union[Load, Const, Number, Call, Cast, Guard, Choose, Let, Reduce, Hole, Element]


def call(function: str, *args: Value) -> Value:
    """A Call with its result type; constants fold when they are floats or ints alike."""
    f = FUNCTIONS[function]
    if len(args) != f.arity:
        raise ValueError(f"{function} takes {f.arity} arguments, got {len(args)}")
    return Call(function, args, f.result_dtype(tuple(a.dtype for a in args)))


def guard(conditions: tuple[Index, ...], value: Value) -> Value:
    """Guard without the conditions that always hold; nested guards merge."""
    left: dict[Index, None] = {}
    for c in conditions:
        p = positive(c)
        if not (isinstance(p, int) and p > 0):
            left[p] = None
    if isinstance(value, Guard):
        left.update(dict.fromkeys(value.conditions))
        value = value.value
    return Guard(tuple(left), value) if left else value


def choose(condition: Index, yes: Value, no: Value) -> Value:
    p = positive(condition)
    return Choose(p, yes, no) if not isinstance(p, int) else yes if p > 0 else no


def inside(low: Index, e: Index, high: Index) -> tuple[Index, Index]:
    """The two conditions of low <= e < high."""
    return e - low + 1, high - e


def children(v: Value) -> tuple[Value, ...]:
    """The values directly inside `v`."""
    if isinstance(v, Call):
        return v.args
    if isinstance(v, (Cast, Guard)):
        return (v.value,)
    if isinstance(v, Choose):
        return v.yes, v.no
    if isinstance(v, Let):
        return v.value, v.body
    return (v.body,) if isinstance(v, Reduce) else ()


def walk(v: Value) -> Iterator[Value]:
    """`v` and everything inside it, outermost first."""
    yield v
    for c in children(v):
        yield from walk(c)


def loads(v: Value, conditions: tuple[Index, ...] = ()) -> Iterator[tuple[Load, tuple[Index, ...]]]:
    """The loads of `v`, each with the conditions on the path to it."""
    if isinstance(v, Load):
        yield v, conditions
    elif isinstance(v, Guard):
        yield from loads(v.value, conditions + v.conditions)
    elif isinstance(v, Choose):
        yield from loads(v.yes, (*conditions, v.condition))
        yield from loads(v.no, (*conditions, 1 - v.condition))
    else:
        for c in children(v):
            yield from loads(c, conditions)


def rewrite(v: Value, f: Callable[[Value], Value | None]) -> Value:
    """`v` with every subvalue x for which f(x) is not None replaced by f(x), outermost first, results not entered."""
    new = f(v)
    if new is not None:
        return new
    if isinstance(v, Call):
        return replace(v, args=tuple(rewrite(a, f) for a in v.args))
    if isinstance(v, (Cast, Guard)):
        return replace(v, value=rewrite(v.value, f))
    if isinstance(v, Choose):
        return replace(v, yes=rewrite(v.yes, f), no=rewrite(v.no, f))
    if isinstance(v, Let):
        return replace(v, value=rewrite(v.value, f), body=rewrite(v.body, f))
    return replace(v, body=rewrite(v.body, f)) if isinstance(v, Reduce) else v


def at(v: Value, values: Mapping[str, Index]) -> Value:
    """`v` with index variables replaced by name; guards simplify and vanish where they are decided."""
    if not values:
        return v
    if isinstance(v, Load):
        return Load(v.tensor, tuple(substitute(i, values) for i in v.index))
    if isinstance(v, Number):
        return Number(substitute(v.index, values), v.dtype)
    if isinstance(v, Guard):
        return guard(tuple(substitute(c, values) for c in v.conditions), at(v.value, values))
    if isinstance(v, Choose):
        return choose(substitute(v.condition, values), at(v.yes, values), at(v.no, values))
    if isinstance(v, Element):
        return replace(v, offset=substitute(v.offset, values))
    if isinstance(v, Call):
        return replace(v, args=tuple(at(a, values) for a in v.args))
    if isinstance(v, Cast):
        return replace(v, value=at(v.value, values))
    if isinstance(v, Let):
        return Let(v.var, at(v.value, values), at(v.body, values))
    if isinstance(v, Reduce):
        return replace(v, extents=tuple(substitute(d, values) for d in v.extents), body=at(v.body, values))
    return v


def is_view(v: Value) -> bool:
    """Whether `v` only moves one element: a load behind guards."""
    while isinstance(v, Guard):
        v = v.value
    return isinstance(v, Load)


def is_constant(v: Value) -> bool:
    """Whether everything `v` loads is fixed when the model is compiled."""
    return all(x.tensor.constant for x in walk(v) if isinstance(x, Load))


@dataclass(frozen=True)
class Names:
    """Makes names that are unique within one kernel."""

    taken: dict[str, int] = field(default_factory=dict[str, int])

    def new(self, stem: str) -> str:
        n = self.taken.get(stem, 0)
        name = f"{stem}_{n}" if n else stem
        while n and name in self.taken:  # a stem may end in a number itself
            n += 1
            name = f"{stem}_{n}"
        self.taken[name] = 1
        self.taken[stem] = n + 1
        return name

