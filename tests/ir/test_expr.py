"""Index expressions: every fact they state, fuzzed against integers; the rules of the normal form; the C text they become."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from taskc.codegen.device import INCLUDE
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host
from taskc.codegen.text import condition_text, index_text
from taskc.ir.arithmetic import ceildiv, floor_div, floor_mod, maximum, minimum
from taskc.ir.evaluation import evaluate, substitute
from taskc.ir.expr import Index, Sum, Var, linear, prod
from taskc.ir.facts import bounds, divisor, mentions, variables
from taskc.ir.positions import ravel, unravel
from taskc.ir.proofs import divides, exact_div, is_below, positive
from tests.ir import expression_fuzz as fuzz

SECONDS = 3.5  # a seed
# Another seed every run, the same in all of a run's workers; it is in the test's name, so that a failure can be repeated.
RANDOM_SEED = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID") or time.time_ns()).randrange(1 << 30)


@pytest.mark.parametrize("seed", [1, 2, 3, RANDOM_SEED])
def test_every_fact_holds_for_integers(seed: int) -> None:
    rng = random.Random(seed)
    end, made = time.monotonic() + SECONDS, 0
    while made < 50 or time.monotonic() < end:
        env = fuzz.variables(rng)
        e, meaning = fuzz.Fuzz(rng, env).pair(rng.choice([3, 4, 5]))
        _check_facts(e, meaning, env, rng)
        made += 1


def _check_facts(e: Index, meaning: fuzz.Meaning, env: list[Var], rng: random.Random) -> None:
    symbols = {v.name: v for v in env}
    c: Index = rng.choice([1, 4, 8, symbols["S"], symbols["B"], symbols["S"] * symbols["T"], symbols["S"] * 4])
    lo, hi = bounds(e)
    d, condition, below, quotient = divisor(e), positive(e), is_below(e, c), exact_div(e, c)
    for _ in range(8):
        at = fuzz.assignment(rng, env)
        want = meaning(at)
        told = f"{e} at {at}"
        assert evaluate(e, at) == want, told
        assert (evaluate(condition, at) > 0) == (want > 0), f"positive gives {condition}: {told}"
        assert (lo is None or lo <= want) and (hi is None or want <= hi), f"bounds {lo}..{hi} miss {want}: {told}"
        assert want == 0 if d == 0 else want % d == 0, f"divisor {d} of {want}: {told}"
        assert not below or 0 <= want < evaluate(c, at), f"is_below {c}: {told}"
        assert quotient is None or evaluate(quotient, at) * evaluate(c, at) == want, f"exact_div by {c} gives {quotient}: {told}"
        lane = rng.randrange(8)
        moved = substitute(e, {"l": lane})
        assert evaluate(moved, at) == meaning({**at, "l": lane}), f"substitute l = {lane} gives {moved}: {told}"


def test_the_fuzzer_reaches_every_kind_of_fact() -> None:
    """The property test above is worth nothing if its facts are never claimed."""
    rng, claimed = random.Random(9), dict.fromkeys(("below", "exact", "positive", "never", "divisor", "bounds"), 0)
    for _ in range(3000):
        env = fuzz.variables(rng)
        e, _ = fuzz.Fuzz(rng, env).pair(4)
        if isinstance(e, int):
            continue
        s = env[7]
        claimed["below"] += is_below(e, s * 4)
        claimed["exact"] += exact_div(e, s) is not None
        claimed["positive"] += positive(e) == 1
        claimed["never"] += positive(e) == 0
        claimed["divisor"] += divisor(e) > 1
        claimed["bounds"] += bounds(e)[1] is not None
    assert min(claimed.values()) >= 15, claimed


@pytest.mark.parametrize("seed", range(4))
def test_unravel_undoes_ravel(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        dims: list[Index] = [1, 2, 3, 8, 64, Var("S", 1), Var("T", 1, None, 8), Var("S", 1) * 4]
        shape = [rng.choice(dims) for _ in range(rng.randint(1, 4))]
        index = [Var(f"i{d}", below=e) if e != 1 else 0 for d, e in enumerate(shape)]
        assert list(unravel(ravel(index, shape), shape)) == index
        flat = Var("f", below=prod(shape))
        if not isinstance(prod(shape), int) or prod(shape) != 1:
            assert ravel(unravel(flat, shape), shape) == flat, shape


@pytest.mark.parametrize("seed", range(3))
def test_reshapes_between_flat_positions_leave_no_trace(seed: int) -> None:
    """[a, b, c] -> [a, b*c] -> [a*b, c]: the index of the flat position comes back whatever the way."""
    rng = random.Random(seed)
    for _ in range(60):
        a, b, c = (rng.choice([2, 3, 5, 8, Var("S", 1), Var("T", 1)]) for _ in range(3))
        flat = Var("f", below=a * b * c)
        first = ravel(unravel(flat, [a, b * c]), [a, b * c])
        again = ravel(unravel(first, [a * b, c]), [a * b, c])
        assert again == flat


# ---- the normal form -------------------------------------------------------------------------------------------------

S, T = Var("S", 1), Var("T", 1, None, 8)
X, LANE = Var("x"), Var("lane", 0, 7)


def test_terms_meet_and_cancel() -> None:
    assert X + X == X * 2
    assert X - X == 0
    assert (X + 3) - (X + 1) == 2
    assert 2 * (X + S) == X * 2 + S * 2
    assert (X + 1) * (S + 1) == X * S + X + S + 1
    assert X * S == S * X
    assert -(X - 1) == 1 - X
    assert isinstance(X * 2, Sum) and linear(X * 2 + 5)[1] == 5


def test_quotient_and_remainder_recombine() -> None:
    for n in (3, 8, S, S * T):
        assert (X // n) * n + X % n == X
        assert (X % n) * 4 + (X // n) * n * 4 == X * 4
        assert (X // n) * n + X % n + LANE == X + LANE
    assert (X // 8) * 8 + X % 4 != X
    assert (X // 8) * 16 + X % 8 != X


def test_lanes_split_out_of_divisions() -> None:
    base = Var("base", 0, None, 8)
    assert (base + LANE) // 8 == base // 8
    assert (base + LANE) % 8 == LANE
    assert (base + LANE) % 16 == base % 16 + LANE
    assert (base * 3 + LANE) // 24 == base * 3 // 24
    assert mentions((base + LANE + 1) // 8, "lane")  # may carry
    assert ((base + LANE) // S * S + (base + LANE) % S) == base + LANE


def test_lanes_split_out_of_symbolic_rows() -> None:
    row, column = Var("row", below=S), Var("column", below=T)
    flat = row * T + column
    assert flat // T == row and flat % T == column
    assert (flat + T) // T == row + 1
    assert (flat % (T * S)) == flat  # proven below


def test_division_by_parts_of_a_product() -> None:
    assert exact_div(S * T * 6, S * 2) == T * 3
    assert exact_div(S * 3, 2) is None
    assert exact_div(T * 3, 8) is not None and divides(8, T * 3)
    assert exact_div(S + 1, S) is None
    assert S * T // S == T and (S * T) % S == 0
    assert X // 4 // 8 == X // 32 and X // S // T == X // (S * T)


def test_floor_of_negatives() -> None:
    w = Var("w", -5)
    for value in range(-5, 9):
        assert evaluate(floor_div(w, 4), {"w": value}) == value // 4
        assert evaluate(floor_mod(w, 4), {"w": value}) == value % 4
    assert bounds(w % 4) == (0, 3) and bounds(w // 4)[0] == -2


def test_positive_drops_what_cannot_change_the_outcome() -> None:
    base = Var("base", 0, None, 8)
    assert positive(S * 8 - base - LANE) == S * 8 - base
    assert mentions(positive(S - base - LANE), "lane")
    below = Var("i", below=S)
    assert positive(S - below) == 1 and positive(below - S + 1) == 0 and positive(below + 1) == 1
    assert mentions(positive(below - S + 2), "i")


def test_extremes_fold_where_the_order_is_known() -> None:
    assert minimum(X + 1, X) == X and maximum(X + 1, X) == X + 1
    assert minimum(S, X) == minimum(X, S)
    assert bounds(minimum(X, 7)) == (0, 7) and bounds(maximum(X, 7))[0] == 7
    assert ceildiv(16, 5) == 4 and evaluate(ceildiv(X, 5), {"x": 11}) == 3


def test_variables_and_substitution() -> None:
    e = (X + S * 2) // 3 + minimum(X, LANE) * S
    assert list(variables(e)) and set(variables(e)) == {"x", "S", "lane"}
    assert substitute(e, {"x": 4, "S": 5, "lane": 9}) == (4 + 10) // 3 + 4 * 5
    with pytest.raises(KeyError):
        evaluate(e, {"x": 1})
    grid = np.arange(6)
    one_by_one = [evaluate(e, {"x": x, "S": 2, "lane": 3}) for x in range(6)]
    np.testing.assert_array_equal(evaluate(e, {"x": grid, "S": 2, "lane": 3}), one_by_one)  # type: ignore[dict-item]


# ---- C text ----------------------------------------------------------------------------------------------------------

_EACH = 12


def _cases(seed: int, count: int) -> list[tuple[Index, list[Var], list[dict[str, int]]]]:
    """Expressions with assignments under which every part of them fits 31 bits."""
    rng = random.Random(seed)
    out: list[tuple[Index, list[Var], list[dict[str, int]]]] = []
    while len(out) < count:
        env = fuzz.variables(rng)
        e, _ = fuzz.Fuzz(rng, env).pair(rng.choice([3, 4, 5]))
        if isinstance(e, int):
            continue
        some = [a for a in (fuzz.assignment(rng, env) for _ in range(4 * _EACH)) if _magnitude(e, a) < 2**31][:_EACH]
        if len(some) == _EACH:
            out.append((e, env, some))
    return out


def _magnitude(e: Index, at: dict[str, int]) -> int:
    """No smaller than any number that computing `e` meets."""
    if isinstance(e, int):
        return abs(e)
    if isinstance(e, Var):
        return abs(at[e.name])
    if isinstance(e, Sum):
        return abs(e.const) + sum(abs(c) * _magnitude(t, at) for t, c in e.terms.values())
    parts = getattr(e, "factors", None)
    if parts is not None:
        return max(1, int(np.prod([float(max(1, _magnitude(f, at))) for f in parts])))
    return max(_magnitude(e.a, at), _magnitude(e.b, at)) if hasattr(e, "a") else 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("index", ["int", "i64"])
def test_c_text_means_the_same(index: str, tmp_path: Path) -> None:
    """One kernel; each expression is a function of its variables' values, negative floors among them."""
    cases = _cases(21, 220)
    functions, calls, size = [], [], len(cases[0][1])
    for k, (e, env, _) in enumerate(cases):
        named = " ".join(f"const {index} {v.name} = v[{n}];" for n, v in enumerate(env))
        functions.append(f"DEV i64 value_{k}(const int* v) {{ typedef {index} index_t; {named} return {index_text(e)}; }}\n"
                         f"DEV i64 condition_{k}(const int* v) {{ typedef {index} index_t; {named} return {condition_text((e,))}; }}")
        calls.append(f"for (int n = 0; n < {_EACH}; ++n) {{ const int* v = in + {k * _EACH * size} + n * {size}; "
                     f"out[{k * _EACH} + n] = value_{k}(v); yes[{k * _EACH} + n] = condition_{k}(v); }}")
    head = 'extern "C" __global__ void __launch_bounds__(1) all(const int* in, i64* out, i64* yes) {'
    kernel = "\n".join([head, *calls, "}", "HOST_ENTRY(all)\n"])
    compile_host({"all": "\n".join([INCLUDE, *functions, kernel])}, tmp_path / "expr.so", opt="-O0")
    library = HostLibrary(tmp_path / "expr.so")
    given = np.array([[at[v.name] for v in env] for _, env, some in cases for at in some], np.int32)
    out, yes = np.full((2, len(given)), -77, np.int64)
    library.launch("all", [given, out, yes], [1], 1)
    want = [evaluate(e, at) for e, _, some in cases for at in some]
    wrong = [k for k, (a, b) in enumerate(zip(out, want, strict=True)) if a != b]
    assert not wrong, f"{cases[wrong[0] // _EACH][0]} as {index_text(cases[wrong[0] // _EACH][0])}: {out[wrong[0]]} for {want[wrong[0]]}"
    np.testing.assert_array_equal(yes, [w > 0 for w in want])
    assert sum("floordiv" in index_text(e) or "floormod" in index_text(e) for e, _, _ in cases) > 20
    assert sum(w < 0 for w in want) > 100


def test_c_text_of_wide_constants() -> None:
    assert index_text(2**31) == f"{2**31}ll" and index_text(-(2**31) + 1) == str(-(2**31) + 1)
    assert condition_text((1, X)) == "(x > 0)" and condition_text((0, X)) == "false" and condition_text(()) == "true"
    assert condition_text((S - X - 3,)) == "(S > x + 3)"
