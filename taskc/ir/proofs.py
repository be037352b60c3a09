"""What is proven of two indices: exact division, `0 <= e < c`, `e > 0`. A proof that is not found is None, False or the question itself."""

from __future__ import annotations

from math import gcd

from taskc.ir.expr import Binary, Expr, Index, Product, Var, factors_of, from_terms, linear
from taskc.ir.facts import bounds, divisor


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
        factors = list(factors_of(atom))
    terms, const = linear(e)
    if const and (factors or const % scale):
        return None
    out: Index = const // scale
    for atom, k in terms.values():
        left = list(factors_of(atom))
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
        for f in factors_of(atom):
            others: Index = k
            seen = False
            for g in factors_of(atom):
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
    negative = from_terms({k: (t, -c) for k, (t, c) in terms.items() if c < 0}, 0)
    upper = from_terms({k: v for k, v in terms.items() if v[1] > 0}, 0)
    return not isinstance(upper, int) and not isinstance(negative, int) and is_below(negative, upper)


def _never_positive(e: Index) -> bool:
    """v - S >= 0 is impossible for a v proven below S, so v - S + 0 > 0 never holds."""
    terms, const = linear(e)
    if const > 1:
        return False
    lower = from_terms({k: (t, -c) for k, (t, c) in terms.items() if c < 0}, 0)
    upper = from_terms({k: v for k, v in terms.items() if v[1] > 0}, 0)
    return not isinstance(upper, int) and not isinstance(lower, int) and is_below(upper, lower)
