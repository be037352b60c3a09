"""Values: guards and choices that are decided vanish, loads carry their conditions, names stay unique."""

from __future__ import annotations

import itertools

from taskc.ir.dtype import F16, F32, I64
from taskc.ir.expr import Var
from taskc.ir.value import (
    Choose,
    Const,
    Guard,
    Let,
    Load,
    Names,
    Reduce,
    Tensor,
    at,
    call,
    choose,
    guard,
    inside,
    is_view,
    loads,
    rewrite,
    walk,
)

S, I = Var("S", 1), Var("i", below=Var("S", 1))
X = Tensor("x", F16, (S,))


def test_decided_guards_vanish_and_nested_ones_merge() -> None:
    v = X.at(I)
    assert guard((S - I, 3), v) == v
    j = Var("j")
    once = guard((S - j,), Load(X, (j,)))
    assert guard((j - 2, S - j), once) == Guard((j - 2, S - j), Load(X, (j,)))
    assert at(once, {"j": I}) == v
    assert is_view(once) and not is_view(call("neg", once))


def test_decided_choices_take_their_side() -> None:
    yes, no = Const(1.0, F32), Const(2.0, F32)
    assert choose(S, yes, no) == yes and choose(S - S, yes, no) == no
    assert isinstance(choose(I - 3, yes, no), Choose)
    assert at(choose(I - 3, yes, no), {"i": 7}) == yes and at(choose(I - 3, yes, no), {"i": 3}) == no


def test_loads_carry_the_conditions_on_their_path() -> None:
    a, b = Load(X, (I,)), Load(X, (I - 1,))
    low, high = inside(0, I - 1, S)
    v = Guard((low, high), Choose(I - 5, a, b))
    assert list(loads(v)) == [(a, (low, high, I - 5)), (b, (low, high, 6 - I))]


def test_rewriting_reaches_every_subvalue() -> None:
    k = Var("k", 0, 2)
    inner = Load(X, (k,))
    v = call("add", Let(k, Const(1, I64), inner), Reduce("sum", (k,), (3,), call("mul", inner, Guard((I,), inner))))
    assert sum(isinstance(x, Load) for x in walk(v)) == 3
    gone = rewrite(v, lambda x: Const(0.0, F32) if isinstance(x, Load) else None)
    assert not any(isinstance(x, Load) for x in walk(gone))
    assert [x.dtype for x in (v, inner)] == [F32, F32]  # float16 computes in float32


def test_names_never_meet() -> None:
    """Stems that end in numbers themselves, in every order."""
    for stems in itertools.product(("a", "a_1", "a_1_1", "a_2"), repeat=5):
        names = Names()
        made = [names.new(s) for s in stems]
        assert len(set(made)) == len(made), (stems, made)
