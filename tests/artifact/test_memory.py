"""Memory plans of random programs: what may live at once never overlaps, and every hazard is ordered by the edges."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from taskc.artifact.memory import ALIGNMENT, MemoryPlan, Use, order, plan_memory
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index, Var

S, T = Var("S", 1), Var("T", 1)
SIZES = [{"S": s, "T": t} for s, t in ((1, 1), (3, 400), (257, 2), (1000, 1000))]


def random_program(rng: random.Random, symbolic: bool) -> tuple[list[Use], dict[str, Index]]:
    """Steps that read earlier tensors and weights, write one or two new ones or another part of one, and use scratch."""
    made: list[str] = []
    read: set[str] = set()
    uses: list[Use] = []
    sizes: dict[str, Index] = {}
    for n in range(rng.randint(2, 14)):
        reads = rng.sample(made, min(len(made), rng.randint(0, 3))) + (["weight"] if rng.random() < 0.3 else [])
        read |= set(reads)
        parts = [m for m in made if m not in read]
        writes = [rng.choice(parts)] if parts and rng.random() < 0.2 else [f"v{n}_{k}" for k in range(rng.randint(1, 2))]
        for w in writes:
            if w not in made:
                made.append(w)
            if w not in sizes and rng.random() < 0.9:  # the others live outside of the arena: outputs
                sizes[w] = _size(rng, symbolic)
        scratch = {f"scratch{n}": _size(rng, symbolic)} if rng.random() < 0.3 else {}
        uses.append(Use(tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes)), scratch))
    return uses, sizes


def _size(rng: random.Random, symbolic: bool) -> Index:
    n = rng.choice([0, 1, 100, 256, 257, 4096, 10000])
    if symbolic and rng.random() < 0.6:
        return rng.choice([S * 4, S * T * 2, T * 300 + 7, S * 64 + T])
    return n


def reachable(after: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    """Every step's predecessors, through the edges alone."""
    out: list[set[int]] = []
    for direct in after:
        out.append(set(direct).union(*(out[p] for p in direct)))
    return out


def check_hazards(uses: list[Use], plan: MemoryPlan) -> None:
    before = reachable(plan.after)
    for i, j in combinations(range(len(uses)), 2):
        a, b = uses[i], uses[j]
        hazard = set(a.writes) & set(b.reads) or set(a.reads) & set(b.writes)
        assert not hazard or i in before[j], f"steps {i} and {j} share {hazard} without an order"
        assert j not in before[i]


def check_places(uses: list[Use], sizes: dict[str, Index], plan: MemoryPlan, symbols: dict[str, int]) -> None:
    """Two tensors whose bytes overlap: all users of one come before all writers of the other, in every order the edges allow."""
    before = reachable(plan.after)
    wanted = {**sizes, **{k: v for u in uses for k, v in u.scratch.items()}}
    users = {name: [n for n, u in enumerate(uses) if name in (*u.reads, *u.writes, *u.scratch)] for name in wanted}
    total = evaluate(plan.arena_bytes, symbols)
    spans: dict[str, tuple[int, int]] = {}
    for name in (n for n in wanted if users[n]):
        start = evaluate(plan.offsets[name], symbols)
        assert start % ALIGNMENT == 0 and start >= 0
        spans[name] = start, start + evaluate(wanted[name], symbols)
        assert spans[name][1] <= total, name
    for a, b in combinations(spans, 2):
        if max(spans[a][0], spans[b][0]) < min(spans[a][1], spans[b][1]):
            first = all(m in before[n] for m in users[a] for n in users[b])
            second = all(m in before[n] for m in users[b] for n in users[a])
            told = f"users {users[a]} and {users[b]}, edges {plan.after}"
            assert first or second, f"{a} {spans[a]} and {b} {spans[b]} may live at once: {told}"


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int, symbolic: bool) -> None:
    shared = 0
    for seed in range(part, 600, 4):
        rng = random.Random(seed)
        uses, sizes = random_program(rng, symbolic)
        plan = plan_memory(uses, sizes)
        check_hazards(uses, plan)
        for symbols in SIZES if symbolic else SIZES[:1]:
            check_places(uses, sizes, plan, symbols)
        alone = sum(evaluate(s, SIZES[1]) for s in sizes.values())
        shared += evaluate(plan.arena_bytes, SIZES[1]) < alone
    assert shared >= 5  # plans do share memory


def test_edges_are_reduced() -> None:
    """a -> b -> c, and c reads a too: the edge a -> c follows from the others."""
    uses = [Use((), ("a",), {}), Use(("a",), ("b",), {}), Use(("a", "b"), ("c",), {})]
    assert order(uses)[0] == ((), (0,), (1,))


def test_independent_branches_do_not_share_though_the_list_would_allow_it() -> None:
    uses = [Use((), ("x",), {}), Use(("x",), ("p",), {}), Use(("p",), ("q",), {}), Use(("x",), ("r",), {}), Use(("q", "r"), ("out",), {})]
    plan = plan_memory(uses, {"x": 256, "p": 256, "q": 256, "r": 256})
    assert len({plan.offsets[n] for n in ("p", "r")}) == 2  # p is dead before r in the list, not in the graph
    assert plan.offsets["x"] == plan.offsets["q"] or plan.arena_bytes >= 3 * 256


def test_chains_share() -> None:
    uses = [Use((), ("v0",), {}), *(Use((f"v{k}",), (f"v{k + 1}",), {}) for k in range(9))]
    assert plan_memory(uses, {f"v{k}": 1000 for k in range(10)}).arena_bytes == 2 * 1024


def test_a_part_written_after_a_read_waits_for_the_reader() -> None:
    uses = [Use((), ("a",), {}), Use(("a",), ("b",), {}), Use((), ("a",), {}), Use(("a",), ("c",), {})]
    after = order(uses)[0]
    assert 1 in reachable(after)[2] and 2 in reachable(after)[3]


def test_scratch_lives_for_one_step() -> None:
    uses = [Use((), ("a",), {"s0": 512}), Use(("a",), ("b",), {"s1": 512})]
    plan = plan_memory(uses, {"a": 256, "b": 256})
    assert plan.offsets["s0"] == plan.offsets["s1"] and plan.offsets["a"] != plan.offsets["s0"]


def test_nothing_to_place() -> None:
    plan = plan_memory([Use(("x",), ("y",), {})], {})
    assert plan.offsets == {} and plan.arena_bytes == 0 and plan.after == ((),)
    assert plan_memory([], {"unused": 100}).arena_bytes == 0
