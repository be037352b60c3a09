"""Constants that readers make, and the arithmetic types of references."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from taskc.ir.dtype import BF16, DType
from taskc.ir.expr import Index
from taskc.ir.graph import Array
from taskc.ir.value import Const, Number, Value, call
from taskc.ops.elementwise import Elementwise
from taskc.ops.registry import Reading


def stored(values: ArrayLike, dtype: DType) -> Array:
    """`values` rounded once to `dtype`, in the NumPy type that holds it (bfloat16: its bits in uint16)."""
    if dtype != BF16:
        return np.asarray(values).astype(dtype.numpy)
    single = np.asarray(values).astype(np.float32)
    bits = single.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded)


def numbers(array: Array, dtype: DType) -> Array:
    """The values of a stored float or integer constant, exact in float64 (64-bit integers aside)."""
    if dtype == BF16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def known_floats(r: Reading, value: str) -> Array | None:
    """The contents of a float value as float64, or None where they are not known at compile time."""
    array = r.contents(value)
    return None if array is None or array.dtype == object else numbers(array, r.type(value).dtype)


def known_ints(r: Reading, value: str) -> tuple[int, ...] | None:
    """The contents of an integer value as a flat tuple, or None where some are not plain numbers at compile time."""
    array = r.contents(value)
    if array is None:
        return None
    flat: list[object] = list(array.reshape(-1))
    return tuple(int(x) for x in flat if isinstance(x, (int, np.integer))) if all(
        isinstance(x, (int, np.integer)) for x in flat) else None


def scalar(r: Reading, value: float, dtype: DType) -> str:
    """A constant without dims, rounded to `dtype`."""
    return r.constant(stored(value, dtype), dtype)


def widened(array: Array | None) -> Array:
    """float16 as float32, the type its arithmetic runs in; everything else as it is."""
    known = np.asarray(array)
    return known.astype(np.float32) if known.dtype == np.float16 else known


def apply(r: Reading, function: str, *inputs: str | float) -> str:
    """Adds an elementwise node; numbers become constants of the first value's dtype."""
    dtype = next(r.type(i).dtype for i in inputs if isinstance(i, str))
    return r.add(Elementwise(function), *(i if isinstance(i, str) else scalar(r, i, dtype) for i in inputs))


def number(index: Index, dtype: DType) -> Value:
    """An index as a number of `dtype`: a plain constant where it is known."""
    if isinstance(index, int):
        return Const(float(index) if dtype.is_float else index, dtype)
    return Number(index, dtype)


def fold(function: str, values: Sequence[Value]) -> Value:
    """function(function(v0, v1), v2) …"""
    out = values[0]
    for v in values[1:]:
        out = call(function, out, v)
    return out
