"""Inverse index maps by construction: a map made of permutations, mixed-radix splits and merges inverts digit by digit.

A digit is (v // n) % m of an axis v. A map is a bijection when each dim of its image is a mixed-radix number of digits, and the
digits of each axis make up that axis. What does not fit this form is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskc.ir.expr import Binary, Expr, Index, Product, Var, linear
from taskc.ir.facts import variables
from taskc.ir.proofs import exact_div
from taskc.ir.task import Axis


@dataclass(frozen=True)
class Refusal:
    """Why something is not done; shown by `taskc explain`."""

    reason: str


@dataclass(frozen=True)
class _Digit:
    """(axis // low) % size; `top` when there is no remainder to take."""

    axis: str
    low: Index
    size: Index


def invert(axes: Sequence[Axis], image: Sequence[Index], shape: Sequence[Index], at: Sequence[Index]) -> dict[str, Index] | Refusal:
    """The axes' values where the map `axes -> image` (onto `shape`) takes the value `at`."""
    extents = {a.var.name: a.extent for a in axes}
    found: dict[_Digit, Index] = {}
    for d, (e, size, value) in enumerate(zip(image, shape, at, strict=True)):
        digits = _digits(e, extents)
        if isinstance(digits, Refusal):
            return digits
        radix: Index = 1
        left = list(digits)
        while left:
            nxt = next((x for x in left if x[1] == radix), None)
            if nxt is None:
                return Refusal(f"dim {d} is {e}, which is not a mixed-radix number")
            left.remove(nxt)
            digit = nxt[0]
            if digit in found:
                return Refusal(f"{digit.axis} is used twice")
            found[digit] = value // radix % digit.size if left else value // radix
            radix = radix * digit.size
        if radix != size:
            return Refusal(f"dim {d} of extent {size} is covered only up to {radix}")
    return _assemble(axes, found)


def _assemble(axes: Sequence[Axis], found: dict[_Digit, Index]) -> dict[str, Index] | Refusal:
    out: dict[str, Index] = {}
    for a in axes:
        mine = {d.low: (d, v) for d, v in found.items() if d.axis == a.var.name}
        total: Index = 0
        low: Index = 1
        while low in mine:
            digit, value = mine.pop(low)
            total = total + value * low
            low = low * digit.size
        if mine:
            return Refusal(f"the digits of {a.var} do not join")
        if low != a.extent:
            return Refusal(f"an element is used for every value of {a.var} (broadcast)" if low == 1 else f"only part of {a.var} is determined")
        out[a.var.name] = total
    return out


def _digits(e: Index, extents: dict[str, Index]) -> list[tuple[_Digit, Index]] | Refusal:
    """The digits of a dim, each with its weight."""
    terms, const = linear(e)
    if const:
        return Refusal(f"{e} is shifted: it does not reach every element")
    out: list[tuple[_Digit, Index]] = []
    for atom, k in terms.values():
        factors = atom.factors if isinstance(atom, Product) else (atom,)
        own = [f for f in factors if any(v in extents for v in variables(f))]
        if len(own) != 1:
            return Refusal(f"{atom} is a product of axes")
        weight: Index = k
        for f in factors:
            if f is not own[0]:
                weight = weight * f
        digit = _digit(own[0], extents)
        if isinstance(digit, Refusal):
            return digit
        if digit.size != 1:
            out.append((digit, weight))
    return out


def _digit(e: Expr, extents: dict[str, Index]) -> _Digit | Refusal:
    low: Index = 1
    size: Index | None = None
    inner: Index = e
    if isinstance(inner, Binary) and inner.op == "%":
        size, inner = inner.b, inner.a
    if isinstance(inner, Binary) and inner.op == "//":
        low, inner = inner.b, inner.a
    if not isinstance(inner, Var) or inner.name not in extents:
        return Refusal(f"{e} is not a digit of an axis")
    rest = exact_div(extents[inner.name], low)
    if rest is None:
        return Refusal(f"{low} does not divide the extent of {inner}")
    if size is not None and exact_div(rest, size) is None:
        return Refusal(f"{size} does not divide the extent of {inner}")
    return _Digit(inner.name, low, rest if size is None else size)


