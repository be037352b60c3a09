"""Statistics in the making: how the partial result of a reduction starts and how one more element joins it."""

from __future__ import annotations

from dataclasses import dataclass

from taskc.ir.dtype import BOOL, I64, DType
from taskc.ir.expr import Index
from taskc.ir.program import Buffer, Declare, Scope, Set, Stmt
from taskc.ir.value import Const, Element, Value, call

IDENTITY: dict[str, float] = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
COMBINE: dict[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
ARG = {"argmax": "max", "argmin": "min"}
NO_COLUMN = Const(2**63 - 1, I64)  # after every column, so that any column replaces it


def identity(kind: str, dtype: DType) -> Const:
    """The neutral element of a reduction; integers use their ends in place of infinities."""
    value = IDENTITY[kind]
    if dtype.is_float or value in (0.0, 1.0):
        return Const(value if dtype.is_float else int(value), dtype)
    bits = dtype.bytes * 8
    if dtype.kind == "bool":
        return Const(value > 0, dtype)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.kind == "int" else (0, 2**bits - 1)
    return Const(low if value < 0 else high, dtype)


@dataclass(frozen=True)
class Partial:
    """`kind` over what has been taken so far, once for each of `value.size` rows.

    `index` (argmax, argmin): the column the value came from. The first of equal columns is kept, and a NaN beats every number,
    so the order in which partial results meet does not matter to these kinds."""

    kind: str
    value: Buffer
    index: Buffer | None = None

    @property
    def result(self) -> Buffer:
        """What the statistic is: the value, or the column."""
        return self.value if self.index is None else self.index

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return (self.value,) if self.index is None else (self.value, self.index)

    def start(self) -> list[Stmt]:
        """Nothing taken yet."""
        first = identity(ARG.get(self.kind, self.kind), self.value.dtype)
        out: list[Stmt] = [Set(self.value[o], first) for o in range(self.value.size)]
        return out + ([] if self.index is None else [Set(self.index[o], NO_COLUMN) for o in range(self.index.size)])

    def take(self, row: Index, x: Value, column: Value) -> list[Stmt]:
        """One more element, or another partial result, for the row."""
        here = self.value[row]
        if self.index is None:
            return [Set(here, call(COMBINE[self.kind], here, x))]
        better = Buffer("better", BOOL, 1)
        place = self.index[row]
        return [Scope([
            Declare(better), Set(better[0], _wins(self.kind, x, column, here, place)),
            Set(here, call("where", better[0], x, here)), Set(place, call("where", better[0], column, place)),
        ])]


def _wins(kind: str, x: Value, column: Value, best: Element, place: Element) -> Value:
    ahead = call("gt" if kind == "argmax" else "lt", x, best)
    same, earlier = call("eq", x, best), call("lt", column, place)
    if not best.storage.is_float:
        return call("or", ahead, call("and", same, earlier))
    nan, best_nan = call("isnan", x), call("isnan", best)
    ahead = call("or", ahead, call("and", nan, call("not", best_nan)))
    same = call("or", same, call("and", nan, best_nan))
    return call("or", ahead, call("and", same, earlier))
