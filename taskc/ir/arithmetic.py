"""Division, remainder, min and max of indices, simplified. Divisors are positive; rounding is towards minus infinity, as in Python.

An expression's `//` and `%` are given to it here: they take facts and proofs, and those take the nodes. `taskc.ir` imports this module, so
there is no expression without them.
"""

from __future__ import annotations

from math import gcd

from taskc.ir.expr import Binary, Division, Expr, Index, Terms, from_terms, linear
from taskc.ir.facts import bounds, divisor
from taskc.ir.proofs import exact_div, is_below


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
        return floor_mod(from_terms({key: (t, k // g) for key, (t, k) in terms.items()}, const // g), c // g) * g + small
    return Binary("%", rest, c) + small


def ceildiv(a: Index, b: Index) -> Index:
    """a / b rounded up."""
    return (a + (b - 1)) // b


def minimum(a: Index, b: Index) -> Index:
    """The smaller of two indices."""
    return extreme("min", a, b)


def maximum(a: Index, b: Index) -> Index:
    """The larger of two indices."""
    return extreme("max", a, b)


def extreme(op: str, a: Index, b: Index) -> Index:
    """min or max of two indices; one of them where their order is known."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b) if op == "min" else max(a, b)
    lo, hi = bounds(a - b)
    if lo is not None and lo >= 0:
        return a if op == "max" else b
    if hi is not None and hi <= 0:
        return b if op == "max" else a
    return Binary(op, *sorted((a, b), key=str))


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


def _upper(term: tuple[str, tuple[Expr, int]]) -> float:
    """The largest value of an atom times its coefficient."""
    atom, coeff = term[1]
    hi = bounds(atom)[1 if coeff > 0 else 0]
    return float("inf") if hi is None else hi * coeff


def _split_by(e: Index, c: int) -> tuple[Index, Index, Index]:
    """e = exact + rest + small: c divides exact; 0 <= small < some common divisor of c and rest."""
    terms, const = linear(e)
    whole: Terms = {}
    left: Terms = {}
    for k, v in terms.items():
        (left if v[1] * divisor(v[0]) % c else whole)[k] = v
    exact, const = from_terms(whole, const // c * c), const % c
    small: Terms = {}
    top = 0  # of what is small
    for k, (t, coeff) in sorted(left.items(), key=_upper):  # the smallest first, or an axis of extent 1 hides a lane
        lo, hi = bounds(t)
        if lo is None or hi is None or (lo if coeff > 0 else hi) * coeff < 0:
            continue
        most = top + max(lo * coeff, hi * coeff)
        if most < gcd(const, c, *(v[1] * divisor(v[0]) for other, v in left.items() if other != k)):
            small[k], top = left.pop(k), most
    if const and left and top + const < gcd(c, *(v[1] * divisor(v[0]) for v in left.values())):  # a constant can be small too
        return exact, from_terms(left, 0), from_terms(small, const)
    return exact, from_terms(left, const), from_terms(small, 0)


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
    return n, from_terms({key: (t, factor // n) for key, (t, factor) in ts.items()}, k // n), atom, small


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
        return floor_div(from_terms({key: (t, k // g) for key, (t, k) in terms.items()}, const // g), c // g)
    return Binary("//", rest, c)


Expr.division = Division(floor_div, floor_mod)
