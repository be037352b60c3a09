"""Integer index expressions in normal form, with ranges and divisibility; the same operators work on ints.

An `Index` is an int or an `Expr`. `//` and `%` are floor division and its remainder, as in Python; divisors are positive.
A linear expression is always a `Sum` of coefficient * atom; everything else is an atom. Every fact stated here
(`bounds`, `divisor`, `positive`, simplification) is fuzzed against plain integers: it is part of correctness.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from collections.abc import Sequence
from math import gcd
from typing import Union

__all__ = [
    "Binary", "Expr", "Index", "Product", "Sum", "Var", "bounds", "ceildiv", "divides", "divisor", "evaluate", "exact_div",
    "floor_div", "floor_mod", "is_below", "linear", "maximum", "mentions", "minimum", "names", "positive", "prod", "ravel",
    "substitute", "unravel", "variables",
]


class Expr:
    """An expression; equal when structurally equal (variables by name)."""

    __slots__ = ("_bounds", "_divisor", "_names", "key")
    key: str

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
        return floor_div(self, other)

    def __rfloordiv__(self, other: Index) -> Index:
        return floor_div(other, self)

    def __mod__(self, other: Index) -> Index:
        return floor_mod(self, other)

    def __rmod__(self, other: Index) -> Index:
        return floor_mod(other, self)

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


class Sum(Expr):
    """constant + the sum of coefficient * atom; `terms` maps an atom's key to (atom, coefficient)."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: dict[str, tuple[Expr, int]], const: int) -> None:
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
        self._whole: tuple[dict[str, tuple[Expr, int]], int] | None = None
        self._set(f"({a} {op} {b})" if op in ("//", "%") else f"{op}({a}, {b})")


def linear(e: Index) -> tuple[dict[str, tuple[Expr, int]], int]:
    """(terms, constant) of `e` as a linear combination of atoms."""
    if isinstance(e, int):
        return {}, e
    return (e.terms, e.const) if isinstance(e, Sum) else ({e.key: (e, 1)}, 0)


def _from_terms(terms: dict[str, tuple[Expr, int]], const: int) -> Index:
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
        return _from_terms(terms, const + sign * b)  # the terms of one index have nothing to recombine
    (ta, ca), (tb, cb) = linear(a), linear(b)
    if not ta:
        return _from_terms(tb if sign == 1 else {k: (t, -c) for k, (t, c) in tb.items()}, ca + sign * cb)
    return _recombine(_merged(ta, tb, sign), ca + sign * cb)


def _merged(ta: dict[str, tuple[Expr, int]], tb: dict[str, tuple[Expr, int]], sign: int) -> dict[str, tuple[Expr, int]]:
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


def _recombine(terms: dict[str, tuple[Expr, int]], const: int) -> Index:
    """n*(x // n) + x % n -> x, so that taking an index apart and putting it together again leaves no trace."""
    if len(terms) > 1:
        for key, (atom, c) in terms.items():
            if not (isinstance(atom, Binary) and atom.op == "%"):
                continue
            wanted, rest = _whole_part(atom)
            if wanted and all(k in terms and terms[k][1] == v[1] * c for k, v in wanted.items()):
                left = {k: v for k, v in terms.items() if k not in wanted and k != key}
                return _add(_from_terms(left, const - rest * c), _mul(atom.a, c), 1)
    return _from_terms(terms, const)


def _whole_part(remainder: Binary) -> tuple[dict[str, tuple[Expr, int]], int]:
    """n * (x // n) of the remainder x % n, as terms and a constant."""
    if remainder._whole is None:  # pyright: ignore[reportPrivateUsage]
        remainder._whole = linear(_mul(floor_div(remainder.a, remainder.b), remainder.b))  # pyright: ignore[reportPrivateUsage]
    return remainder._whole  # pyright: ignore[reportPrivateUsage]


def _mul(a: Index, b: Index) -> Index:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int):
        return a * b if isinstance(b, int) else 0  # the second case cannot happen: both are ints here
    if isinstance(b, int):
        terms, const = linear(a)
        return _from_terms({k: (t, c * b) for k, (t, c) in terms.items()}, const * b)
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


def _factors(e: Expr) -> tuple[Expr, ...]:
    return e.factors if isinstance(e, Product) else (e,)


def _product(a: Expr, b: Expr) -> Expr:
    return Product(tuple(sorted(_factors(a) + _factors(b), key=lambda f: f.key)))


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


def divides(c: Index, e: Index) -> bool:
    """Whether c is known to divide every value of e."""
    return exact_div(e, c) is not None


def exact_div(e: Index, c: Index) -> Index | None:
    """e / c where every term of e is a multiple of c, else None."""
    if isinstance(c, int) and isinstance(e, int):
        return e // c if e % c == 0 else None
    ct, cc = linear(c)
    if len(ct) > 1 or (ct and cc):
        return 1 if c == e else None
    factors: list[Expr] = []
    scale = cc
    if ct:
        ((atom, scale),) = ct.values()
        factors = list(_factors(atom))
    terms, const = linear(e)
    if const and (factors or const % scale):
        return None
    out: Index = const // scale
    for atom, k in terms.values():
        left = list(_factors(atom))
        for f in factors:
            if f not in left:
                return None
            left.remove(f)
        rest: Index = 1
        for f in left:
            rest = rest * f
        if k % scale == 0:
            out = out + rest * (k // scale)
        elif not isinstance(rest, int) and k * divisor(rest) % scale == 0:
            g = gcd(k, scale)
            out = out + Binary("//", rest, scale // g) * (k // g) if divisor(rest) % (scale // g) == 0 else out
            if divisor(rest) % (scale // g):
                return None
        else:
            return None
    return out


def is_below(e: Index, c: Index) -> bool:
    """Whether 0 <= e < c is proven; recursive over mixed-radix forms u + T*v."""
    lo, hi = bounds(e)
    if lo is None or lo < 0:
        return False
    cl = bounds(c)[0]
    if hi is not None and cl is not None and hi < cl:
        return True
    if isinstance(c, int):
        return False
    if isinstance(e, Var) and e.below is not None and e.below == c:
        return True
    if isinstance(e, Binary) and e.op == "%" and e.b == c:
        return True
    terms, const = linear(e)
    if const or len(terms) < 1 or (len(terms) == 1 and next(iter(terms.values()))[1] == 1 and not isinstance(e, Product)):
        return False
    for atom, k in terms.values():  # e = u + T*v with c = T*U, v < U, u < T
        for f in _factors(atom):
            others: Index = k
            seen = False
            for g in _factors(atom):
                if g == f and not seen:
                    seen = True
                else:
                    others = others * g
            upper, least = exact_div(c, others), bounds(others)[0]
            if upper is not None and least is not None and least > 0 and is_below(f, upper):
                rest = e - atom * k
                if rest == 0 or is_below(rest, others):
                    return True
    return False


def _upper(term: tuple[str, tuple[Expr, int]]) -> float:
    """The largest value of an atom times its coefficient."""
    atom, coeff = term[1]
    hi = bounds(atom)[1 if coeff > 0 else 0]
    return float("inf") if hi is None else hi * coeff


def _split_by(e: Index, c: int) -> tuple[Index, Index, Index]:
    """e = exact + rest + small: c divides exact; 0 <= small < some common divisor of c and rest."""
    terms, const = linear(e)
    whole: dict[str, tuple[Expr, int]] = {}
    left: dict[str, tuple[Expr, int]] = {}
    for k, v in terms.items():
        (left if v[1] * divisor(v[0]) % c else whole)[k] = v
    exact, const = _from_terms(whole, const // c * c), const % c
    small: dict[str, tuple[Expr, int]] = {}
    top = 0  # of what is small
    for k, (t, coeff) in sorted(left.items(), key=_upper):  # the smallest first, or an axis of extent 1 hides a lane
        lo, hi = bounds(t)
        if lo is None or hi is None or (lo if coeff > 0 else hi) * coeff < 0:
            continue
        most = top + max(lo * coeff, hi * coeff)
        if most < gcd(const, c, *(v[1] * divisor(v[0]) for other, v in left.items() if other != k)):
            small[k], top = left.pop(k), most
    if const and left and top + const < gcd(c, *(v[1] * divisor(v[0]) for v in left.values())):  # a constant can be small too
        return exact, _from_terms(left, 0), _from_terms(small, const)
    return exact, _from_terms(left, const), _from_terms(small, 0)


def floor_div(a: Index, c: Index) -> Index:
    """a // c, rounded towards minus infinity; c > 0."""
    if isinstance(a, int) and isinstance(c, int):
        return a // c
    if c == 1 or a == 0:
        return a
    if isinstance(c, int):
        return _div_const(a, c)
    if a == c:
        return 1
    quotient, rest = _split_symbolic(a, c)
    if is_below(rest, c):
        return quotient
    parts = _split_scaled(rest, c)
    if parts is not None:  # (n*x + u) // (n*d) with u < n
        return quotient + floor_div(parts[1], parts[2])
    if isinstance(rest, Binary) and rest.op == "//":  # (x // n) // c
        return quotient + floor_div(rest.a, rest.b * c)
    return quotient + Binary("//", rest, c)


def _split_symbolic(a: Index, c: Index) -> tuple[Index, Index]:
    """a = c * quotient + rest, term by term."""
    terms, const = linear(a)
    quotient: Index = 0
    rest: Index = const
    for atom, k in terms.values():
        q = exact_div(atom * k, c)
        if q is None:
            rest = rest + atom * k
        else:
            quotient = quotient + q
    return quotient, rest


def _split_scaled(a: Index, c: Index) -> tuple[int, Index, Index, Index] | None:
    """(n, x, d, u) such that a = n*x + u and c = n*d for the number n > 1 in a product c, with 0 <= u < n; None where there is none."""
    terms, const = linear(c)
    if const or len(terms) != 1:
        return None
    ((atom, n),) = terms.values()
    if n < 2:
        return None
    exact, rest, small = _split_by(a, n)
    (ts, k) = linear(exact)
    if rest != 0 or any(factor % n for _, factor in ts.values()):  # an atom's own divisor would come back as x // n
        return None
    return n, _from_terms({key: (t, factor // n) for key, (t, factor) in ts.items()}, k // n), atom, small


def _div_const(a: Index, c: int) -> Index:
    exact, rest, _ = _split_by(a, c)
    terms, const = linear(exact)
    out: Index = const // c
    for t, k in terms.values():
        if k % c == 0:
            out = out + t * (k // c)
        else:  # the product is a multiple of c through the atom's own divisor
            g = gcd(k, c)
            out = out + _div_atom(t, c // g) * (k // g)
    if is_below(rest, c):
        return out
    if isinstance(rest, int):
        return out + rest // c
    if isinstance(rest, Binary):
        return out + _div_atom(rest, c)
    return out + _reduced_div(rest, c)


def _div_atom(atom: Expr, c: int) -> Index:
    if isinstance(atom, Binary) and atom.op == "//":  # (x // n) // c
        return floor_div(atom.a, atom.b * c)
    return Binary("//", atom, c)


def _reduced_div(rest: Expr, c: int) -> Index:
    """rest // c with the common divisor of all coefficients taken out."""
    terms, const = linear(rest)
    g = gcd(c, const, *(k for _, k in terms.values()))
    if g > 1:
        return floor_div(_from_terms({key: (t, k // g) for key, (t, k) in terms.items()}, const // g), c // g)
    return Binary("//", rest, c)


def floor_mod(a: Index, c: Index) -> Index:
    """a % c, in 0 .. c - 1; c > 0."""
    if isinstance(a, int) and isinstance(c, int):
        return a % c
    if c == 1 or a == 0:
        return 0
    if not isinstance(c, int):
        _, rest = _split_symbolic(a, c)
        if is_below(rest, c) or rest == 0:
            return rest
        parts = _split_scaled(rest, c)
        return Binary("%", rest, c) if parts is None else floor_mod(parts[1], parts[2]) * parts[0] + parts[3]
    _, rest, small = _split_by(a, c)
    if isinstance(rest, int):
        return rest % c + small
    if is_below(rest, c):
        return rest + small
    if isinstance(rest, Binary) and rest.op == "%" and isinstance(rest.b, int) and rest.b % c == 0:
        return floor_mod(rest.a, c) + small
    terms, const = linear(rest)
    g = gcd(c, const, *(k for _, k in terms.values()))
    if g > 1:  # (g*x) % (g*d), as in `_reduced_div`, so that the two recombine
        return floor_mod(_from_terms({key: (t, k // g) for key, (t, k) in terms.items()}, const // g), c // g) * g + small
    return Binary("%", rest, c) + small


def minimum(a: Index, b: Index) -> Index:
    """The smaller of two indices."""
    return _extreme("min", a, b)


def maximum(a: Index, b: Index) -> Index:
    """The larger of two indices."""
    return _extreme("max", a, b)


def _extreme(op: str, a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b) if op == "min" else max(a, b)
    lo, hi = bounds(a - b)
    if lo is not None and lo >= 0:
        return a if op == "max" else b
    if hi is not None and hi <= 0:
        return b if op == "max" else a
    return Binary(op, *sorted((a, b), key=str))


def ceildiv(a: Index, b: Index) -> Index:
    """a / b rounded up."""
    return (a + (b - 1)) // b


def prod(xs: Sequence[Index]) -> Index:
    """The product, 1 for none."""
    out: Index = 1
    for x in xs:
        out = out * x
    return out


def ravel(index: Sequence[Index], shape: Sequence[Index]) -> Index:
    """The row-major position of `index` in a tensor of `shape`."""
    out: Index = 0
    for i, d in zip(index, shape, strict=True):
        out = out * d + i
    return out


def unravel(position: Index, shape: Sequence[Index]) -> tuple[Index, ...]:
    """The index of a row-major position; the position is taken to lie inside the shape."""
    out: list[Index] = []
    for d in range(len(shape)):
        q = position // prod(shape[d + 1 :])
        outer = all(s == 1 for s in shape[:d])
        out.append(0 if shape[d] == 1 else q if outer else q % shape[d])
    return tuple(out)


def positive(e: Index) -> Index:
    """The condition e > 0 simplified: 1 (always), 0 (never), or an expression positive exactly when e is.

    Terms that cannot change the outcome are dropped: a vector's lanes, when its bound is aligned."""
    for atom, coeff in list(linear(e)[0].values()):
        rest, (lo, hi) = e - atom * coeff, bounds(atom)
        if hi is None or lo is None or lo < 0:
            continue
        if (coeff < 0 and hi * -coeff < divisor(rest)) or (coeff > 0 and hi * coeff < divisor(rest - 1)):
            e = rest
    lo, hi = bounds(e)
    if lo is not None and lo > 0:
        return 1
    if (hi is not None and hi <= 0) or _never_positive(e):
        return 0
    return 1 if _always_positive(e) else e


def _always_positive(e: Index) -> bool:
    """S - v > 0 for a v proven below the symbol S."""
    terms, const = linear(e)
    if const < 0:
        return False
    negative = _from_terms({k: (t, -c) for k, (t, c) in terms.items() if c < 0}, 0)
    upper = _from_terms({k: v for k, v in terms.items() if v[1] > 0}, 0)
    return not isinstance(upper, int) and not isinstance(negative, int) and is_below(negative, upper)


def _never_positive(e: Index) -> bool:
    """v - S >= 0 is impossible for a v proven below S, so v - S + 0 > 0 never holds."""
    terms, const = linear(e)
    if const > 1:
        return False
    lower = _from_terms({k: (t, -c) for k, (t, c) in terms.items() if c < 0}, 0)
    upper = _from_terms({k: v for k, v in terms.items() if v[1] > 0}, 0)
    return not isinstance(upper, int) and not isinstance(lower, int) and is_below(upper, lower)


def substitute(e: Index, values: MappingABC[str, Index]) -> Index:
    """`e` with variables replaced by name."""
    if isinstance(e, int):
        return e
    if isinstance(e, Var):
        return values.get(e.name, e)
    if names(e).isdisjoint(values):
        return e
    if isinstance(e, Sum):
        terms: dict[str, tuple[Expr, int]] = {}
        const = e.const
        for k, (t, c) in e.terms.items():
            new = substitute(t, values)
            more, extra = ({k: (t, c)}, 0) if new is t else linear(new * c)
            terms, const = _merged(terms, more, 1) if terms else dict(more), const + extra
        return _recombine(terms, const)
    if isinstance(e, Product):
        return prod([substitute(f, values) for f in e.factors])
    assert isinstance(e, Binary)
    a, b = substitute(e.a, values), substitute(e.b, values)
    return a // b if e.op == "//" else a % b if e.op == "%" else _extreme(e.op, a, b)


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


def names(e: Index) -> frozenset[str]:
    """The names of the variables of `e`."""
    if isinstance(e, int):
        return _NONE
    if e._names is None:  # pyright: ignore[reportPrivateUsage]
        e._names = _names_in(e)  # pyright: ignore[reportPrivateUsage]
    return e._names  # pyright: ignore[reportPrivateUsage]


_NONE: frozenset[str] = frozenset()


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


def evaluate(e: Index, values: MappingABC[str, int]) -> int:
    """The integer value of `e`; KeyError names a variable without a value. Works on NumPy integer arrays as well."""
    if isinstance(e, int):
        return e
    if isinstance(e, Var):
        return values[e.name]
    if isinstance(e, Sum):
        return e.const + sum(c * evaluate(t, values) for t, c in e.terms.values())
    if isinstance(e, Product):
        out = 1
        for f in e.factors:
            out = out * evaluate(f, values)
        return out
    assert isinstance(e, Binary)
    a, b = evaluate(e.a, values), evaluate(e.b, values)
    if e.op == "//":
        return a // b
    if e.op == "%":
        return a % b
    b_less = b < a
    return a + (b - a) * (b_less if e.op == "min" else 1 - b_less)  # arithmetic, so that arrays work too
