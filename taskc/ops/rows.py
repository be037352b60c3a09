"""A tensor seen as rows: some axes are reduced (the columns), the others are kept; row-major in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskc.ir.dtype import DType
from taskc.ir.expr import Index, prod
from taskc.ir.graph import OpError
from taskc.ir.positions import unravel
from taskc.ir.task import Axis, axis
from taskc.ir.value import Dim, Hole, Value, call
from taskc.ops.constants import number


@dataclass(frozen=True)
class Split:
    """`index`: the element at (row, column); `kept`: the same with 0 at the reduced axes."""

    row: Axis
    column: Axis
    index: tuple[Index, ...]
    kept: tuple[Index, ...]


def split_rows(shape: Sequence[Dim], axes: Sequence[int]) -> Split:
    """Rows over the axes that are not in `axes` (ascending, not negative), columns over those that are."""
    others = [d for d in range(len(shape)) if d not in axes]
    row = axis("row", prod([shape[d] for d in others]))
    column = axis("column", prod([shape[d] for d in axes]))
    index: list[Index] = [0] * len(shape)
    kept: list[Index] = [0] * len(shape)
    for d, i in zip(others, unravel(row.var, [shape[d] for d in others]), strict=True):
        index[d] = kept[d] = i
    for d, i in zip(axes, unravel(column.var, [shape[d] for d in axes]), strict=True):
        index[d] = i
    return Split(row, column, tuple(index), tuple(kept))


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Ascending axes in 0 … rank - 1, each once; raises `OpError` for one out of range."""
    if any(not -rank <= a < rank for a in axes):
        raise OpError(f"axes {list(axes)} do not fit rank {rank}")
    return tuple(sorted({a % rank for a in axes}))


def mean_of(columns: Dim, dtype: DType) -> Value:
    """The `finish` that turns a row's sum into its mean."""
    return call("div", Hole("s", dtype), number(columns, dtype))
