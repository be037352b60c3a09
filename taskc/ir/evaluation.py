"""The value of an index: variables replaced by indices (`substitute`) or by integers (`evaluate`)."""

from __future__ import annotations

from collections.abc import Mapping

from taskc.ir.arithmetic import extreme
from taskc.ir.expr import Binary, Index, Product, Sum, Terms, Var, linear, merged, prod, recombine
from taskc.ir.facts import names


def substitute(e: Index, values: Mapping[str, Index]) -> Index:
    """`e` with variables replaced by name."""
    if isinstance(e, int):
        return e
    if isinstance(e, Var):
        return values.get(e.name, e)
    if names(e).isdisjoint(values):
        return e
    if isinstance(e, Sum):
        terms: Terms = {}
        const = e.const
        for k, (t, c) in e.terms.items():
            new = substitute(t, values)
            more, extra = ({k: (t, c)}, 0) if new is t else linear(new * c)
            terms, const = merged(terms, more, 1) if terms else dict(more), const + extra
        return recombine(terms, const)
    if isinstance(e, Product):
        return prod([substitute(f, values) for f in e.factors])
    assert isinstance(e, Binary)
    a, b = substitute(e.a, values), substitute(e.b, values)
    return a // b if e.op == "//" else a % b if e.op == "%" else extreme(e.op, a, b)


def evaluate(e: Index, values: Mapping[str, int]) -> int:
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
