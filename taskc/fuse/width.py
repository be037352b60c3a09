"""How wide a port's accesses can be, and along which axis: decided once a port, from divisibility facts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskc.ir.evaluation import substitute
from taskc.ir.expr import Index, Var
from taskc.ir.facts import divisor, mentions
from taskc.ir.mapping import covers
from taskc.ir.proofs import positive
from taskc.ir.value import Load, Tensor, Value, loads

LANE = "lane_"  # the variable that runs over the elements of one vector


def lane(width: int) -> Index:
    """The lane variable of a vector of `width` elements; 0 for a single element."""
    return Var(LANE, 0, width - 1) if width > 1 else 0


def contiguous_width(address: Index, conditions: Sequence[Index], limit: int) -> int:
    """The widest w <= limit such that every w consecutive lanes are one aligned vector under one guard.

    0 when the address is the same for all lanes."""
    if not mentions(address, LANE):
        return 0
    w = limit
    while w > 1:
        inner = Var("inner_", 0, w - 1)
        split = {LANE: Var("outer_", 0, max(0, limit // w - 1)) * w + inner}
        start = substitute(address, split) - inner
        aligned = not mentions(start, "inner_") and divisor(start) % w == 0
        if aligned and not any(mentions(positive(substitute(c, split)), "inner_") for c in conditions):
            return w
        w //= 2
    return 1


def main_load(v: Value) -> tuple[Load, tuple[Index, ...]] | None:
    """The load that a tile is made of, with its conditions: that of highest rank, the first of several; None without loads."""
    found = list(loads(v))
    return max(found, key=lambda x: len(x[0].tensor.shape)) if found else None


def vector_width(v: Value, axes: Sequence[tuple[Var, Index]]) -> int:
    """Elements of the widest access to the value's main load along any of the axes (variable, extent); 1 without loads."""
    found = main_load(v)
    if found is None:
        return 1
    load, conditions = found
    limit = 16 // load.tensor.dtype.bytes
    address = load.tensor.address(load.index)
    widest = 1
    for var, extent in axes:
        position = {var.name: Var("vector_") * limit + lane(limit)}
        guards = [substitute(c, position) for c in (*conditions, extent - var)]
        widest = max(widest, contiguous_width(substitute(address, position), guards, limit))
    return widest


Access = Callable[[list[Index], int, Index], "tuple[Tensor, Index, tuple[Index, ...]] | None"]
"""(base, axis, lane) -> (tensor, element address, conditions) of the access a port makes, or None when it makes none."""


def choose_shape(tile: tuple[int, int], workers: int, access: Access, axes: Sequence[int], most: int) -> tuple[int, int]:
    """(width, axis) of a tile's vectors: the widest access; among narrow ones, the axis along which addresses step by one."""
    best = (0, axes[0])
    for axis in axes:
        width = most
        while width > 1:
            if width > best[0] and _fits(tile, workers, access, axis, width):
                best = (width, axis)
            width //= 2
        if not best[0] and covers(tile, axis, 1, workers) and _steps_by_one(access, axis):
            best = (1, axis)
    width, axis = max(1, best[0]), best[1]
    if not covers(tile, axis, width, workers):
        raise ValueError(f"{workers} threads do not cover a {tile} tile along axis {axis}")
    return width, axis


def _fits(tile: tuple[int, int], workers: int, access: Access, axis: int, width: int) -> bool:
    if not covers(tile, axis, width, workers):
        return False
    base: list[Index] = [Var("row_", 0, tile[0] - 1, width if axis == 0 else 1), Var("col_", 0, tile[1] - 1, width if axis == 1 else 1)]
    found = access(base, axis, lane(width))
    if found is None:
        return True
    tensor, address, conditions = found
    return tensor.dtype.bytes * width <= 16 and contiguous_width(address, conditions, width) == width


def _steps_by_one(access: Access, axis: int) -> bool:
    here: list[Index] = [0, 0]
    there: list[Index] = [int(axis == 0), int(axis == 1)]
    first, second = access(here, axis, 0), access(there, axis, 0)
    return first is None or second is None or second[1] - first[1] == 1
