"""Elementwise functions on arrays of index expressions: how shape computations fold. OpError where a sign is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taskc.ir.arithmetic import maximum, minimum
from taskc.ir.expr import Expr, Index
from taskc.ir.facts import bounds
from taskc.ir.graph import Array, OpError
from taskc.ir.proofs import exact_div


def _divide(a: Index, b: Index) -> Index:
    """ONNX truncates, `//` floors: the same where both are positive or the division is exact."""
    lo_a, lo_b = bounds(a)[0], bounds(b)[0]
    if isinstance(b, int) and b < 0:
        a, b, lo_a, lo_b = -a, -b, bounds(-a)[0], -b
    if lo_b is None or lo_b <= 0:
        raise OpError(f"{a} / {b}: the divisor may not be positive")
    exact = exact_div(a, b)
    if exact is not None:
        return exact
    if lo_a is None or lo_a < 0:
        raise OpError(f"{a} / {b}: the dividend may be negative")
    return a // b


def _modulo(a: Index, b: Index) -> Index:
    lo = bounds(b)[0]
    if lo is None or lo <= 0:
        raise OpError(f"{a} mod {b}: the divisor may not be positive")
    return a % b


def _absolute(a: Index) -> Index:
    return maximum(a, -a)


def _less(a: Index, b: Index) -> bool:
    lo, hi = bounds(a - b)
    if hi is not None and hi < 0:
        return True
    if lo is not None and lo >= 0:
        return False
    raise OpError(f"{a} < {b} is not decided for all sizes")


def _equal(a: Index, b: Index) -> bool:
    lo, hi = bounds(a - b)
    if lo == 0 and hi == 0:
        return True
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return False
    raise OpError(f"{a} = {b} is not decided for all sizes")


def _where(condition: Any, yes: Index, no: Index) -> Index:
    if isinstance(condition, Expr):
        raise OpError(f"{condition} is not decided for all sizes")
    return yes if condition else no


_MEANINGS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a,
    "div": _divide, "mod": _modulo, "min": minimum, "max": maximum, "abs": _absolute, "relu": lambda a: maximum(a, 0),
    "lt": _less, "gt": lambda a, b: _less(b, a), "le": lambda a, b: not _less(b, a), "ge": lambda a, b: not _less(a, b),
    "eq": _equal, "ne": lambda a, b: not _equal(a, b), "where": _where,
    "floor": lambda a: a, "ceil": lambda a: a, "round": lambda a: a,
}


def on_expressions(function: str, *arrays: Array) -> Array:
    """The function of every element, broadcast; an array of bools where all results are."""
    meaning = _MEANINGS.get(function)
    if meaning is None:
        raise OpError(f"{function} of symbolic dims")
    wide = np.broadcast_arrays(*arrays)
    results = [meaning(*args) for args in zip(*(w.ravel().tolist() for w in wide), strict=True)]
    if results and all(isinstance(v, bool) for v in results):
        return np.array(results, bool).reshape(wide[0].shape)
    out = np.empty(len(results), object)
    out[:] = results
    return out.reshape(wide[0].shape)
