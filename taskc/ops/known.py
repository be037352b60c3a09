"""What readers need of inputs that must be known at compile time: shapes, axes, scalars."""

from __future__ import annotations

import numpy as np

from taskc.ir.convert import stored_as, values_of
from taskc.ir.dtype import DType
from taskc.ir.expr import Expr, Index
from taskc.ir.graph import Array, OpError
from taskc.ops.registry import Reading


def known(r: Reading, position: int, what: str) -> Array:
    """The contents of an input, as values; refuses the node when they depend on the model's input data."""
    found = r.contents(r.inputs[position])
    if found is None:
        r.unsupported(f"its {what} depends on data; taskc needs it at compile time")
    return values_of(found, r.type(r.inputs[position]).dtype) if found.dtype != object else found


def known_indices(r: Reading, position: int, what: str) -> tuple[Index, ...]:
    """The elements of an integer input (rank 0 or 1) as ints and index expressions."""
    found = known(r, position, what)
    if found.ndim > 1 or found.dtype.kind not in "iuO":
        r.bad(f"its {what} must be a list of integers")
    return tuple(v if isinstance(v, Expr) else int(v) for v in found.ravel().tolist())


def known_ints(r: Reading, position: int, what: str) -> tuple[int, ...]:
    """The elements of an integer input, all of them numbers."""
    found = known_indices(r, position, what)
    plain = tuple(v for v in found if isinstance(v, int))
    if len(plain) != len(found):
        r.unsupported(f"its {what} depends on symbolic dims; fix them with --dim NAME=SIZE")
    return plain


def known_scalar(r: Reading, position: int, what: str) -> float | int | bool:
    """The single element of an input, as a Python number."""
    found = known(r, position, what)
    if found.size != 1:
        r.bad(f"its {what} must be one number, but has shape {list(found.shape)}")
    if found.dtype == object:
        r.unsupported(f"its {what} depends on symbolic dims; fix them with --dim NAME=SIZE")
    return found.ravel()[0].item()


def normal_axis(r: Reading, axis: int, rank: int) -> int:
    """`axis` counted from the front; refuses one outside of -rank .. rank - 1."""
    if not -rank <= axis < rank:
        r.bad(f"axis {axis} does not exist in {rank} dims")
    return axis % rank


def normal_axes(r: Reading, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """All axes counted from the front; refuses repeated ones."""
    out = tuple(normal_axis(r, a, rank) for a in axes)
    if len(set(out)) != len(out):
        r.bad(f"axes {list(axes)} name one dim twice")
    return out


def scalar(r: Reading, value: float | int | bool, dtype: DType) -> str:
    """A constant of rank 0."""
    return r.constant(stored_as(np.array(value), dtype), dtype)


def plain_integers(a: Array) -> Array:
    """An integer array whose object form holds numbers only; OpError when a symbol is in the way."""
    if a.dtype != object:
        return a
    if any(isinstance(v, Expr) for v in a.flat):
        raise OpError("an index depends on symbolic dims")
    return a.astype(np.int64)


def plain_shape(shape: tuple[Index, ...]) -> tuple[int, ...]:
    """A shape without symbols; OpError when there is one (bind the symbols first)."""
    out = tuple(d for d in shape if isinstance(d, int))
    if len(out) != len(shape):
        raise OpError(f"shape {list(shape)} is symbolic")
    return out
