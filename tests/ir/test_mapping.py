"""Laws of task mappings and layouts: every task once, associativity, symbols equal to ints, banks without conflicts."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Var
from taskc.ir.facts import bounds
from taskc.ir.mapping import (
    LDMATRIX_ROW,
    MMA_M16N8_C,
    TaskMapping,
    column_repeat,
    covers,
    padded,
    repeat,
    row_major,
    spatial,
    swizzled,
    tile_mapping,
)

ATOMS = {"spatial": spatial, "repeat": repeat, "column_repeat": column_repeat}


@st.composite
def mappings(draw: st.DrawFn, rank: int = 2, most: int = 4) -> TaskMapping:
    kind = draw(st.sampled_from(sorted(ATOMS)))
    return ATOMS[kind](*draw(st.lists(st.integers(1, most), min_size=rank, max_size=rank)))


@st.composite
def triples(draw: st.DrawFn) -> tuple[TaskMapping, TaskMapping, TaskMapping]:
    rank = draw(st.integers(1, 3))
    return draw(mappings(rank)), draw(mappings(rank)), draw(mappings(rank, 3))


def assignments(m: TaskMapping) -> list[list[tuple[object, ...]]]:
    return [list(m.tasks(w)) for w in range(m.workers)]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(triples())
def test_composition_is_associative(fgh: tuple[TaskMapping, TaskMapping, TaskMapping]) -> None:
    f, g, h = fgh
    left, right = (f * g) * h, f * (g * h)
    assert (left.workers, left.shape, left.reps) == (right.workers, right.shape, right.reps)
    assert assignments(left) == assignments(right)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(triples())
def test_composition_is_the_papers_formula(fgh: tuple[TaskMapping, TaskMapping, TaskMapping]) -> None:
    f, g, _ = fgh
    for w in range((f * g).workers):
        want = [tuple(o * d + i for o, d, i in zip(t1, g.shape, t2, strict=True))
                for t1 in f.tasks(w // g.workers) for t2 in g.tasks(w % g.workers)]
        assert (f * g).tasks(w) == want


@settings(max_examples=80, deadline=None, derandomize=True)
@given(triples())
def test_every_task_exactly_once(fgh: tuple[TaskMapping, TaskMapping, TaskMapping]) -> None:
    m = fgh[0] * fgh[1] * fgh[2]
    done = Counter(t for tasks in assignments(m) for t in tasks)
    assert set(done) == set(product(*map(range, m.shape))) and set(done.values()) == {1}
    assert m.workers * m.reps == prod(m.shape)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(triples())
def test_symbols_equal_ints(fgh: tuple[TaskMapping, TaskMapping, TaskMapping]) -> None:
    m = fgh[0] * fgh[1] * fgh[2]
    worker, rep = Var("w", 0, m.workers - 1), Var("r", 0, m.reps - 1)
    place = m.at(worker, rep)
    for w, r in product(range(m.workers), range(m.reps)):
        assert tuple(evaluate(e, {"w": w, "r": r}) for e in place) == m.at(w, r)
    for e, extent in zip(place, m.shape, strict=True):
        lo, hi = bounds(e)
        assert lo is not None and hi is not None and lo >= 0 and hi < extent


def test_composition_does_not_commute() -> None:
    assert assignments(spatial(2) * repeat(3)) == [[(0,), (1,), (2,)], [(3,), (4,), (5,)]]
    assert assignments(repeat(3) * spatial(2)) == [[(0,), (2,), (4,)], [(1,), (3,), (5,)]]
    assert repeat(2, 2).tasks(0) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert column_repeat(2, 2).tasks(0) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    with pytest.raises(ValueError, match="zip"):
        _ = (spatial(2) * repeat(2, 2)).tasks(0)


@pytest.mark.parametrize("shape", [(64, 32), (32, 64), (16, 128), (1, 512), (128, 16)])
@pytest.mark.parametrize("threads", [32, 64, 128, 256])
def test_tile_mappings_cover_once_and_neighbours_run_along_the_axis(shape: tuple[int, int], threads: int) -> None:
    found = 0
    for axis, width in product((0, 1), (1, 2, 4, 8)):
        if not covers(shape, axis, width, threads):
            with pytest.raises(ValueError, match="thread"):
                tile_mapping(shape, axis, width, threads)
            continue
        found += 1
        m = tile_mapping(shape, axis, width, threads)
        done = Counter((i + (o if axis == 0 else 0), j + (o if axis == 1 else 0))
                       for w in range(threads) for i, j in m.tasks(w) for o in range(width))  # type: ignore[operator]
        assert set(done) == set(product(range(shape[0]), range(shape[1]))) and set(done.values()) == {1}
        moved = tuple(b - a for a, b in zip(m.at(0, 0), m.at(1, 0), strict=True))
        one_vector_long = shape[axis] == width
        assert moved == (step_along(1 - axis, 1) if one_vector_long else step_along(axis, width))
    assert found


def step_along(axis: int, by: int) -> tuple[int, int]:
    return (by, 0) if axis == 0 else (0, by)


@pytest.mark.parametrize("cols", [16, 32, 64, 128, 256])
def test_swizzled_rows_are_a_bijection_without_bank_conflicts(cols: int) -> None:
    """ldmatrix reads 16 bytes from each of 8 rows at a time: they must lie in 8 different 16-byte columns of 128 bytes."""
    chunk, layout = 8, swizzled(cols, 8)  # float16
    places = [layout(i, j) for i in range(32) for j in range(cols)]
    assert sorted(places) == list(range(32 * cols))  # type: ignore[type-var]
    for i, j in product(range(32), range(0, cols, chunk)):
        assert [layout(i, j + o) for o in range(chunk)] == [layout(i, j) + o for o in range(chunk)]
    for first, j in product(range(0, 32, 8), range(0, cols, chunk)):
        banks = {evaluate(layout(first + r, j), {}) * 2 % 128 // 16 for r in range(8)}
        assert len(banks) == 8, (cols, first, j)
    row, column = Var("i", 0, 31), Var("j", 0, cols - 1)
    place = layout(row, column)
    for i, j in product(range(0, 32, 3), range(0, cols, 5)):
        assert evaluate(place, {"i": i, "j": j}) == layout(i, j)


def test_plain_layouts() -> None:
    assert padded(10, 3)(2, 4) == 30
    assert row_major(3, 4, 5)(1, 2, 3) == 33


def test_accumulator_fragment_is_the_instructions() -> None:
    """mma.m16n8k16: registers 0 and 1 hold row lane / 4, registers 2 and 3 row lane / 4 + 8, columns 2 * (lane % 4) and the next."""
    for lane, register in product(range(32), range(4)):
        assert MMA_M16N8_C.at(lane, register) == (lane // 4 + 8 * (register // 2), lane % 4 * 2 + register % 2)
    assert (MMA_M16N8_C.workers, MMA_M16N8_C.shape, MMA_M16N8_C.reps) == (32, (16, 8), 4)


def test_ldmatrix_addresses_sixteen_rows_of_two_chunks() -> None:
    """.x4: lanes 0-7, 8-15, 16-23, 24-31 address the rows of matrices 0 to 3: rows 0-7 and 8-15 of the left, then the right chunk."""
    assert [LDMATRIX_ROW.at(lane, 0) for lane in range(32)] == [(lane % 16, lane // 16) for lane in range(32)]
    assert {LDMATRIX_ROW.at(lane, 0) for lane in range(32)} == set(product(range(16), range(2)))
