"""Batches of launches: what may be one, what may not and why, and that the order stays possible."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from taskc.fuse.branches import Batches, Kind, find_batches

MOST = 8
WAIT = "they wait for different launches"


def batches(after: list[tuple[int, ...]], kinds: str, most: int = MOST) -> Batches:
    """`kinds`: a letter a launch; capitals stay alone."""
    return find_batches(after, [Kind(k.lower(), most, "it is large" if k.isupper() else "") for k in kinds])


def reach(after: list[tuple[int, ...]]) -> list[set[int]]:
    out: list[set[int]] = []
    for needs in after:
        out.append(set(needs).union(*(out[n] for n in needs)))
    return out


def longest(after: list[tuple[int, ...]], found: tuple[tuple[int, ...], ...]) -> int:
    """Launches in the longest chain of the batches, which must stand in a possible order."""
    batch = {n: b for b in found for n in b}
    length: dict[tuple[int, ...], int] = {}
    for b in found:
        needs = {batch[m] for n in b for m in after[n]}
        assert b not in needs, "a batch waits for itself"
        assert needs <= length.keys(), "a batch stands before what it waits for"
        length[b] = 1 + max((length[x] for x in needs), default=0)
    return max(length.values(), default=0)


def test_two_towers_and_a_join() -> None:
    after = [(), (0,), (1,), (), (3,), (4,), (2, 5)]
    assert batches(after, "abcabcd") == Batches(((0, 3), (1, 4), (2, 5), (6,)), {})


def test_one_after_the_other_is_never_one() -> None:
    after = [(), (0,), (1,)]
    assert batches(after, "aaa") == Batches(((0,), (1,), (2,)), {})


def test_nothing_alike_keeps_the_order() -> None:
    after = [(), (), (0,), (1,), (0,)]
    assert batches(after, "abcde").batches == ((0,), (1,), (2,), (3,), (4,))


def test_branches_that_cross() -> None:
    """a -> b in one branch and b -> a in the other: each b would hold up the other's branch."""
    found = batches([(), (0,), (), (2,), (1, 3)], "abbaj")
    assert found.batches == ((0,), (1,), (2,), (3,), (4,))
    assert found.apart == {n: (m, f"{WAIT}: one would hold up the other") for n, m in ((0, 3), (1, 2), (2, 1), (3, 0))}


def test_behind_one_batch_is_together() -> None:
    """The second pair waits for different launches, which are one batch; the third waits for one of them only."""
    found = batches([(), (), (0,), (1,), (2, 3)], "aabbc")
    assert found.batches == ((0, 1), (2, 3), (4,))


def test_ends_that_differ_stay_apart() -> None:
    """The first pair begins together, but another launch waits for each; the towers behind them cannot be one either."""
    found = batches([(), (), (0,), (1,), (2, 3)], "aabcd")
    assert found.batches == ((0,), (1,), (2,), (3,), (4,))
    assert found.apart == {n: (1 - n, "different launches wait for them: one would hold up what waits for the other") for n in (0, 1)}
    assert batches([(), (), (0,), (1,), (2,), (3,)], "aabbcd").batches == ((0,), (1,), (2,), (3,), (4,), (5,))


def test_one_that_waits_for_more_stays_alone() -> None:
    found = batches([(), (), (0,), (0, 1), (0,), (2, 3, 4)], "abcccd")
    assert found.batches == ((0,), (1,), (2, 4), (3,), (5,))
    assert found.apart == {3: (2, f"{WAIT}: one would hold up the other")}


@pytest.mark.parametrize(("count", "sizes"), [(5, [5]), (8, [8]), (9, [8, 1]), (16, [8, 8])])
def test_at_most(count: int, sizes: list[int]) -> None:
    found = batches([()] * count, "a" * count)
    assert sorted(map(len, found.batches), reverse=True) == sizes
    assert found.apart == ({8: (0, "a launch has at most 8 branches of this kernel")} if count == 9 else {})


def test_large_ones_stay_alone() -> None:
    found = batches([(), ()], "AA")
    assert found == Batches(((0,), (1,)), {0: (1, "it is large"), 1: (0, "it is large")})
    assert not batches([(), ()], "AB").apart


@pytest.mark.parametrize("seed", range(150))
def test_random_orders(seed: int) -> None:
    """Every launch once; batches alike, independent, and small enough; the order possible and its longest chain as long as before."""
    rng = random.Random(seed)
    count, most = rng.randint(0, 24), rng.choice([1, 2, 3, 8])
    after = [tuple(sorted(rng.sample(range(n), min(n, rng.choice([0, 1, 1, 2, 3]))))) for n in range(count)]
    kinds = "".join(rng.choice("abC" if seed % 3 else "a") for _ in range(count))
    found = batches(after, kinds, most)
    assert sorted(n for b in found.batches for n in b) == list(range(count))
    known = reach(after)
    for b in found.batches:
        assert len(b) <= most and (len(b) == 1 or {kinds[n] for n in b} in ({"a"}, {"b"}))
        assert not any(i in known[j] for i, j in combinations(sorted(b), 2))
    assert longest(after, found.batches) == longest(after, tuple((n,) for n in range(count)))
    assert found == batches(after, kinds, most)
    batch = {n: b for b in found.batches for n in b}
    for b in found.batches:
        assert len({frozenset(batch[m] for m in after[n]) for n in b}) == 1, "a branch waits for more than it did"
        assert len({frozenset(batch[m] for m in range(count) if n in after[m]) for n in b}) == 1, "something waits for more than it did"
    alone = {b[0] for b in found.batches if len(b) == 1}
    for n, (other, why) in found.apart.items():
        assert n in alone and kinds[n] == kinds[other] and n not in known[other] and other not in known[n] and why
    candidates = {n for i, j in combinations(range(count), 2) if kinds[i] == kinds[j] and i not in known[j] for n in (i, j)}
    assert candidates & alone == set(found.apart), "who stays alone with a candidate has a reason"


def test_many_launches_are_quick() -> None:
    """Two towers of 400 layers: each layer a pair."""
    tower = [(n - 1,) if n else () for n in range(400)]
    after = [*tower, *(tuple(m + 400 for m in needs) for needs in tower)]
    assert all(len(b) == 2 for b in find_batches(after, [Kind(n % 4, MOST) for n in range(800)]).batches)
