"""Numbers in readers, tasks and references: constants of a value's type, indices as numbers, wide arithmetic types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskc.ir.convert import values_of
from taskc.ir.dtype import DType
from taskc.ir.expr import Index
from taskc.ir.graph import Array
from taskc.ir.value import Const, Number, Value, call
from taskc.ops.elementwise import Elementwise
from taskc.ops.known import scalar
from taskc.ops.registry import Reading


def known_floats(r: Reading, value: str) -> Array | None:
    """The contents of a float value as float64, or None where they are not known at compile time."""
    array = r.contents(value)
    return None if array is None or array.dtype == object else values_of(array, r.type(value).dtype).astype(np.float64)


def widened(array: Array | None) -> Array:
    """float16 as float32, the type its arithmetic runs in; everything else as it is."""
    known = np.asarray(array)
    return known.astype(np.float32) if known.dtype == np.float16 else known


def apply(r: Reading, function: str, *inputs: str | float) -> str:
    """Adds an elementwise node; numbers become constants of the last value's dtype (the first of `where` is a bool)."""
    dtype = [r.type(i).dtype for i in inputs if isinstance(i, str)][-1]
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
