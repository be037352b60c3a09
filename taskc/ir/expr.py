"""Integer index expressions in normal form; the same operators work on ints.

An `Index` is an int or an `Expr`. `//` and `%` are floor division and its remainder, as in Python; divisors are positive.
A linear expression is always a `Sum` of coefficient * atom; everything else is an atom. Here are the nodes, sums and products; `facts`,
`proofs`, `arithmetic` (division, min, max) and `evaluation` (substitution, evaluation) build on them. All of it is fuzzed against plain
integers: it is part of correctness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Union


@dataclass(frozen=True)
class Division:
    """What `//` and `%` do. Simplifying a quotient takes facts and proofs about nodes, so it stands above them and is given to them."""

    floor_div: Callable[[Index, Index], Index]
    floor_mod: Callable[[Index, Index], Index]


class Expr:
    """An expression; equal when structurally equal (variables by name)."""

    __slots__ = ("_bounds", "_divisor", "_names", "key")
    key: str
    division: ClassVar[Division]  # set by taskc.ir.arithmetic

    def _clear(self) -> None:
        """Nothing is known yet; what is asked for is kept, because expressions are asked the same again and again."""
        self._bounds: tuple[int | None, int | None] | None = None
        self._divisor: int | None = None
        self._names: frozenset[str] | None = None

    def _set(self, key: str) -> None:
        self.key = key
        self._clear()

    def __add__(self, other: Index) -> Index:
        return _add(self, other, 1)

    def __radd__(self, other: Index) -> Index:
        return _add(other, self, 1)

    def __sub__(self, other: Index) -> Index:
        return _add(self, other, -1)

    def __rsub__(self, other: Index) -> Index:
        return _add(other, self, -1)

    def __mul__(self, other: Index) -> Index:
        return _mul(self, other)

    def __rmul__(self, other: Index) -> Index:
        return _mul(self, other)

    def __neg__(self) -> Index:
        return _mul(self, -1)

    def __floordiv__(self, other: Index) -> Index:
        return self.division.floor_div(self, other)

    def __rfloordiv__(self, other: Index) -> Index:
        return self.division.floor_div(other, self)

    def __mod__(self, other: Index) -> Index:
        return self.division.floor_mod(self, other)

    def __rmod__(self, other: Index) -> Index:
        return self.division.floor_mod(other, self)

    def __hash__(self) -> int:
        return hash(self.key)  # not kept: it would go stale when unpickled in another process

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.key == other.key

    def __str__(self) -> str:
        return self.key

    def __repr__(self) -> str:
        return self.key


Index = Union[int, Expr]


class Var(Expr):
    """An integer variable with facts: lo <= v, v <= hi where known, v < below where known, div divides v."""

    __slots__ = ("below", "div", "hi", "lo", "name")

    def __init__(self, name: str, lo: int = 0, hi: int | None = None, div: int = 1, below: Index | None = None) -> None:
        self.name, self.lo, self.div = name, lo, div
        self.below: Expr | None = below if isinstance(below, Expr) else None
        if isinstance(below, int):
            hi = below - 1 if hi is None else min(hi, below - 1)
        self.hi = hi
        self._set(name)


Terms = dict[str, tuple[Expr, int]]


class Sum(Expr):
    """constant + the sum of coefficient * atom; `terms` maps an atom's key to (atom, coefficient)."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: Terms, const: int) -> None:
        self.terms, self.const = terms, const
        self._clear()

    def __getattr__(self, name: str) -> str:
        """The key, when first asked for: most sums are only steps on the way to another."""
        if name != "key":
            raise AttributeError(name)
        text = " + ".join(k if c == 1 else f"{c}*{k}" for k, (_, c) in sorted(self.terms.items()))
        self.key = f"({text} + {self.const})" if self.const else f"({text})"
        return self.key


class Product(Expr):
    """A product of two or more atoms, sorted by key."""

    __slots__ = ("factors",)

    def __init__(self, factors: tuple[Expr, ...]) -> None:
        self.factors = factors
        self._set("(" + "*".join(f.key for f in factors) + ")")


class Binary(Expr):
    """`//`, `%`, `min` or `max` of two indices that did not fold."""

    __slots__ = ("_whole", "a", "b", "op")

    def __init__(self, op: str, a: Index, b: Index) -> None:
        self.op, self.a, self.b = op, a, b
        self._whole: tuple[Terms, int] | None = None
        self._set(f"({a} {op} {b})" if op in ("//", "%") else f"{op}({a}, {b})")


def linear(e: Index) -> tuple[Terms, int]:
    """(terms, constant) of `e` as a linear combination of atoms."""
    if isinstance(e, int):
        return {}, e
    return (e.terms, e.const) if isinstance(e, Sum) else ({e.key: (e, 1)}, 0)


def from_terms(terms: Terms, const: int) -> Index:
    """The index whose `linear` this is: an int, an atom or a Sum."""
    for _, c in terms.values():
        if not c:
            terms = {k: v for k, v in terms.items() if v[1]}
            break
    if not terms:
        return const
    if len(terms) == 1 and not const:
        ((atom, c),) = terms.values()
        if c == 1:
            return atom
    return Sum(terms, const)


def _add(a: Index, b: Index, sign: int) -> Index:
    if isinstance(b, int):
        if isinstance(a, int):
            return a + sign * b
        if not b:
            return a
        terms, const = linear(a)
        return from_terms(terms, const + sign * b)  # the terms of one index have nothing to recombine
    (ta, ca), (tb, cb) = linear(a), linear(b)
    if not ta:
        return from_terms(tb if sign == 1 else {k: (t, -c) for k, (t, c) in tb.items()}, ca + sign * cb)
    return recombine(merged(ta, tb, sign), ca + sign * cb)


def merged(ta: Terms, tb: Terms, sign: int) -> Terms:
    """The terms of a + sign * b, without those that cancel."""
    out = dict(ta)
    for k, (atom, c) in tb.items():
        have = out.get(k)
        total = sign * c if have is None else have[1] + sign * c
        if total:
            out[k] = (atom, total)
        else:
            del out[k]
    return out


def recombine(terms: Terms, const: int) -> Index:
    """n*(x // n) + x % n -> x, so that taking an index apart and putting it together again leaves no trace."""
    if len(terms) > 1:
        for key, (atom, c) in terms.items():
            if not (isinstance(atom, Binary) and atom.op == "%"):
                continue
            wanted, rest = _whole_part(atom)
            if wanted and all(k in terms and terms[k][1] == v[1] * c for k, v in wanted.items()):
                left = {k: v for k, v in terms.items() if k not in wanted and k != key}
                return _add(from_terms(left, const - rest * c), _mul(atom.a, c), 1)
    return from_terms(terms, const)


def _whole_part(remainder: Binary) -> tuple[Terms, int]:
    """n * (x // n) of the remainder x % n, as terms and a constant."""
    if remainder._whole is None:  # pyright: ignore[reportPrivateUsage]
        remainder._whole = linear(_mul(remainder.a // remainder.b, remainder.b))  # pyright: ignore[reportPrivateUsage]
    return remainder._whole  # pyright: ignore[reportPrivateUsage]


def _mul(a: Index, b: Index) -> Index:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int):
        return a * b if isinstance(b, int) else 0  # the second case cannot happen: both are ints here
    if isinstance(b, int):
        terms, const = linear(a)
        return from_terms({k: (t, c * b) for k, (t, c) in terms.items()}, const * b)
    if isinstance(a, Sum) or isinstance(b, Sum):  # distribute, so that a lane stays visible as a term
        (ta, ca), (tb, cb) = linear(a), linear(b)
        out: Index = ca * cb
        for x, cx in ta.values():
            out = out + _mul(x, cb * cx)
            for y, cy in tb.values():
                out = out + _mul(_product(x, y), cx * cy)
        for y, cy in tb.values():
            out = out + _mul(y, ca * cy)
        return out
    return _product(a, b)


def factors_of(e: Expr) -> tuple[Expr, ...]:
    """The atoms whose product an atom is: itself alone, unless it is a Product."""
    return e.factors if isinstance(e, Product) else (e,)


def _product(a: Expr, b: Expr) -> Expr:
    return Product(tuple(sorted(factors_of(a) + factors_of(b), key=lambda f: f.key)))


def prod(xs: Sequence[Index]) -> Index:
    """The product, 1 for none."""
    out: Index = 1
    for x in xs:
        out = out * x
    return out
