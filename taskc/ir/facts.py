"""What is known of an index: bounds, divisor, variables. Index -> fact; kept on the expression, which is asked again and again.

Every fact is fuzzed against plain integers: simplification, guards and vector widths rest on it."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Union

from taskc.ir.expr import Binary, Expr, Index, Product, Sum, Var


def divisor(e: Index) -> int:
    """The largest number known to divide `e`; 0 for the constant 0."""
    if isinstance(e, int):
        return abs(e)
    if e._divisor is None:  # pyright: ignore[reportPrivateUsage]
        e._divisor = _divisor(e)  # pyright: ignore[reportPrivateUsage]
    return e._divisor  # pyright: ignore[reportPrivateUsage]


def _divisor(e: Expr) -> int:
    if isinstance(e, Var):
        return e.div
    if isinstance(e, Sum):
        return gcd(e.const, *(c * divisor(t) for t, c in e.terms.values()))
    if isinstance(e, Product):
        out = 1
        for f in e.factors:
            out *= divisor(f)
        return out
    assert isinstance(e, Binary)
    if e.op in ("min", "max"):
        return gcd(divisor(e.a), divisor(e.b))
    if e.op == "%":
        return gcd(divisor(e.a), divisor(e.b)) or 1
    if not isinstance(e.b, int):
        return 1
    d = divisor(e.a)
    return d // e.b if d and d % e.b == 0 else 1


Bounds = tuple[Union[int, None], Union[int, None]]


def bounds(e: Index) -> Bounds:
    """(lowest, highest) value of `e`; None where unknown."""
    if isinstance(e, int):
        return e, e
    if e._bounds is None:  # pyright: ignore[reportPrivateUsage]
        e._bounds = _bounds(e)  # pyright: ignore[reportPrivateUsage]
    return e._bounds  # pyright: ignore[reportPrivateUsage]


def _bounds(e: Expr) -> Bounds:
    if isinstance(e, Var):
        if e.hi is None and e.below is not None:
            hi = bounds(e.below)[1]
            return e.lo, None if hi is None else hi - 1
        return e.lo, e.hi
    if isinstance(e, Sum):
        lo: int | None = e.const
        hi: int | None = e.const
        for t, c in e.terms.values():
            low, high = bounds(t)
            if c < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + low * c
            hi = None if hi is None or high is None else hi + high * c
        return lo, hi
    if isinstance(e, Product):
        return _product_bounds([bounds(f) for f in e.factors])
    assert isinstance(e, Binary)
    return _binary_bounds(e.op, bounds(e.a), bounds(e.b))


def _product_bounds(parts: list[Bounds]) -> Bounds:
    if all(lo is not None and lo >= 0 for lo, _ in parts):
        low, high = 1, 1
        unbounded = False
        for lo, hi in parts:
            low *= lo or 0
            if hi is None:
                unbounded = True
            else:
                high *= hi
        return low, None if unbounded else high
    least = most = 1
    for lo, hi in parts:
        if lo is None or hi is None:
            return None, None
        corners = [x * y for x in (least, most) for y in (lo, hi)]
        least, most = min(corners), max(corners)
    return least, most


def _binary_bounds(op: str, a: Bounds, b: Bounds) -> Bounds:
    (al, ah), (bl, bh) = a, b
    if op == "min":
        lo = None if al is None or bl is None else min(al, bl)
        return lo, min((x for x in (ah, bh) if x is not None), default=None)
    if op == "max":
        hi = None if ah is None or bh is None else max(ah, bh)
        return max((x for x in (al, bl) if x is not None), default=None), hi
    least = bl if bl is not None and bl > 1 else 1  # divisors are positive
    if op == "//":
        lo = None if al is None else al // least if al < 0 else al // bh if bh is not None else 0
        hi = None if ah is None else ah // least if ah >= 0 else ah // bh if bh is not None else -1
        return lo, hi
    top = None if bh is None else bh - 1
    if al is not None and al >= 0 and ah is not None:
        top = ah if top is None else min(top, ah)
    return 0, top


def variables(e: Index) -> dict[str, Var]:
    """The variables of `e` by name, in order of appearance."""
    if isinstance(e, int):
        return {}
    if isinstance(e, Var):
        return {e.name: e}
    parts: Sequence[Index]
    if isinstance(e, Sum):
        parts = [t for t, _ in e.terms.values()]
    elif isinstance(e, Product):
        parts = e.factors
    else:
        assert isinstance(e, Binary)
        parts = (e.a, e.b)
    out: dict[str, Var] = {}
    for p in parts:
        out.update(variables(p))
    return out


_NONE: frozenset[str] = frozenset()


def names(e: Index) -> frozenset[str]:
    """The names of the variables of `e`."""
    if isinstance(e, int):
        return _NONE
    if e._names is None:  # pyright: ignore[reportPrivateUsage]
        e._names = _names_in(e)  # pyright: ignore[reportPrivateUsage]
    return e._names  # pyright: ignore[reportPrivateUsage]


def _names_in(e: Expr) -> frozenset[str]:
    if isinstance(e, Var):
        return frozenset((e.name,))
    if isinstance(e, Sum):
        return _NONE.union(*(names(t) for t, _ in e.terms.values()))
    if isinstance(e, Product):
        return _NONE.union(*map(names, e.factors))
    assert isinstance(e, Binary)
    return names(e.a) | names(e.b)


def mentions(e: Index, name: str) -> bool:
    """Whether the variable `name` occurs in `e`."""
    return name in names(e)
