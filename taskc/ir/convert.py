"""Conversions between element types with ONNX's meaning, and bfloat16 bits <-> values. NumPy has no bfloat16.

Outside of storage a bfloat16 tensor is an array of float32 values that lie on bfloat16's grid; stored, it is uint16 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskc.ir.dtype import BF16, BOOL, DType

Array = NDArray[Any]


def bf16_bits(values: Array) -> Array:
    """The bits of `values` rounded to bfloat16, ties to even; NaN stays NaN."""
    x = np.asarray(values, np.float32)
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), ((bits >> 16) | 0x40).astype(np.uint16), rounded)


def bf16_values(bits: Array) -> Array:
    """The float32 values of bfloat16 bits."""
    wide = np.asarray(bits, np.uint16).astype(np.uint32) << 16
    return np.ascontiguousarray(wide).view(np.float32).reshape(wide.shape)


def values_of(stored: Array, dtype: DType) -> Array:
    """Stored bytes as an array of values."""
    return bf16_values(stored) if dtype == BF16 else stored


def stored_as(values: Array, dtype: DType) -> Array:
    """Values as they are stored: rounded to `dtype`, bfloat16 as bits."""
    return bf16_bits(values) if dtype == BF16 else convert(values, dtype)


def convert(x: Array, to: DType) -> Array:
    """`x` as `to`: to bool is `!= 0`, float to int truncates and saturates (NaN becomes 0), int to int wraps.

    bfloat16 gives float32 values on its grid."""
    if to == BF16:
        return bf16_values(bf16_bits(x.astype(np.float32)))
    if to == BOOL:
        return x != 0
    if x.dtype.kind == "f" and to.is_integer:
        return _float_to_int(x, to)
    with np.errstate(all="ignore"):
        return x.astype(to.numpy, copy=False)


def _float_to_int(x: Array, to: DType) -> Array:
    info = np.iinfo(to.numpy_name)
    whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    low, high = whole <= float(info.min), whole >= float(info.max)
    inner = np.where(low | high, 0.0, whole).astype(to.numpy)
    return np.where(high, to.numpy.type(info.max), np.where(low, to.numpy.type(info.min), inner))
