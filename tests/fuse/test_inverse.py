"""Inverse index maps, checked by enumeration: composing a map with its inverse gives every index back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations, product

import pytest

from taskc.fuse.inverse import Refusal, invert
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index, Var, prod
from taskc.ir.positions import ravel, unravel
from taskc.ir.task import Axis, axis

Map = tuple[list[Axis], list[Index], list[Index]]  # axes, image, shape
S, T = Var("S", 1), Var("T", 1)
SIZES = [{"S": s, "T": t} for s, t in ((1, 1), (3, 2), (5, 7), (8, 4))]


def axes_of(shape: Sequence[Index]) -> list[Axis]:
    return [axis(f"i{d}", e) for d, e in enumerate(shape)]


def reshaped(shape: Sequence[Index], into: Sequence[Index]) -> Map:
    axes = axes_of(shape)
    return axes, list(unravel(ravel([a.var for a in axes], list(shape)), list(into))), list(into)


def check(m: Map) -> None:
    """The inverse exists, and undoes the map at every index for several values of the symbols."""
    axes, image, shape = m
    at = [Var(f"o{d}", below=e) for d, e in enumerate(shape)]
    inverse = invert(axes, image, shape, at)
    assert not isinstance(inverse, Refusal), (inverse, image)
    assert set(inverse) == {a.var.name for a in axes}
    for symbols in SIZES if any(not isinstance(e, int) for e in shape) else SIZES[:1]:
        extents = [evaluate(a.extent, symbols) for a in axes]
        for index in product(*map(range, extents)):
            here = symbols | {a.var.name: i for a, i in zip(axes, index, strict=True)}
            there = symbols | {f"o{d}": evaluate(e, here) for d, e in enumerate(image)}
            assert [evaluate(inverse[a.var.name], there) for a in axes] == list(index), (image, inverse, here)


def factorisations(n: int, most: int = 3) -> list[tuple[int, ...]]:
    found = {(n,)}
    for cuts in range(1, most):
        found |= {c for c in product(range(1, n + 1), repeat=cuts + 1) if prod(c) == n}
    return sorted(found)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(2, 3), (1, 4), (2, 3, 4), (3, 1, 2), (2, 1, 1, 3)])
def test_permutations(shape: tuple[int, ...]) -> None:
    for perm in permutations(range(len(shape))):
        axes = axes_of(shape)
        check((axes, [axes[p].var if shape[p] != 1 else 0 for p in perm], [shape[p] for p in perm]))


@pytest.mark.parametrize("n", [1, 6, 8, 12])
def test_reshapes_where_digits_line_up(n: int) -> None:
    """Every split, every merge, and the mixed ones whose products meet."""
    inverted = 0
    for a, b in product(factorisations(n), repeat=2):
        axes, image, shape = reshaped(a, b)
        found = invert(axes, image, shape, [Var(f"o{d}", below=e) for d, e in enumerate(shape)])
        if isinstance(found, Refusal):
            assert not _lines_up(a, b), (a, b, found)
        else:
            check((axes, image, shape))
            inverted += 1
    assert inverted >= len(factorisations(n))


def _lines_up(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether the products of the last dims of one shape divide those of the other, one way or the other, all along."""
    ends = sorted({prod(a[d:]) for d in range(len(a) + 1)} | {prod(b[d:]) for d in range(len(b) + 1)})
    return all(isinstance(y, int) and isinstance(x, int) and y % x == 0 for x, y in combinations(ends, 2))


def test_split_permute_merge() -> None:
    """[6, 4] -> [2, 3, 2, 2] -> permuted -> merged: attention's heads, pixel shuffles."""
    axes = axes_of((6, 4))
    i, j = axes[0].var, axes[1].var
    digits: list[tuple[Index, int]] = [(i // 3, 2), (i % 3, 3), (j // 2, 2), (j % 2, 2)]
    for order in permutations(range(4)):
        picked = [digits[k] for k in order]
        check((axes, [e for e, _ in picked], [n for _, n in picked]))
        for cut in range(1, 4):
            parts = picked[:cut], picked[cut:]
            shape: list[Index] = [prod([n for _, n in p]) for p in parts]
            check((axes, [ravel([e for e, _ in p], [n for _, n in p]) for p in parts], shape))


@pytest.mark.parametrize("shapes", [
    ((S, 4), (4 * S,)), ((S * 4,), (S, 4)), ((S * 4,), (4, S)), ((S, T, 3), (S * T * 3,)), ((S * T,), (S, T)), ((S, T), (S * T,)),
    ((S * 6,), (S, 2, 3)), ((S, 2, 3), (S * 2, 3)), ((S, 6), (S, 2, 3)), ((2, S, T), (2 * S, T)), ((S * T, 4), (S, T * 4)),
], ids=str)
def test_symbolic_reshapes(shapes: tuple[tuple[Index, ...], tuple[Index, ...]]) -> None:
    check(reshaped(*shapes))


def test_symbolic_transposes_of_splits() -> None:
    axes = axes_of((S, T * 4))
    i, j = axes[0].var, axes[1].var
    check((axes, [j // 4, i, j % 4], [T, S, 4]))
    check((axes, [j % 4, (j // 4) * S + i], [4, T * S]))
    check((axes, [j, i], [T * 4, S]))


ROW, J = Var("i", below=4), Var("j", below=6)
AXES = [Axis(ROW, 4), Axis(J, 6)]


@pytest.mark.parametrize(("image", "shape", "reason"), [
    ([ROW, 0], [4, 1], "broadcast"),
    ([ROW, J, ROW], [4, 6, 4], "used twice"),
    ([ROW, J + 2], [4, 8], "shifted"),
    ([ROW, J], [4, 8], "covered only up to 6"),
    ([ROW, J * 2], [4, 12], "not a mixed-radix number"),
    ([ROW, J // 2], [4, 3], "do not join"),
    ([ROW, J % 3], [4, 3], "only part of j"),
    ([ROW + J], [9], "not a mixed-radix number"),
    ([ROW * J], [24], "product of axes"),
    ([ROW, J % 4, J // 4], [4, 4, 2], "does not divide"),
    ([ROW, 5 - J], [4, 6], "shifted"),
    ([ROW * 5 + J], [20], "not a mixed-radix number"),
    ([ROW, (J + ROW) % 6], [4, 6], "not a digit"),
    ([J, ROW * 6], [6, 24], "not a mixed-radix number"),
], ids=lambda x: str(x) if isinstance(x, str) else "")
def test_what_is_no_bijection_is_refused_with_its_reason(image: list[Index], shape: list[Index], reason: str) -> None:
    found = invert(AXES, image, shape, [Var(f"o{d}") for d in range(len(shape))])
    assert isinstance(found, Refusal) and reason in found.reason, found


def test_random_digit_maps_are_inverted_or_refused_rightly() -> None:
    """All maps [a, b] -> [x, y] built from pairs of small digits: inverted exactly when they are bijections onto the shape."""
    i, j = Var("i", below=4), Var("j", below=2)
    axes = [Axis(i, 4), Axis(j, 2)]
    terms: list[Index] = [0, i, j, i % 2, i // 2, i * 2 + j, j * 4 + i, (i % 2) * 2 + j, j * 2 + i // 2, i + j, i * 2, 3 - i]
    terms.append((i // 2) * 2 + j)
    agreed = 0
    for image in product(terms, repeat=2):
        for shape in ((4, 2), (2, 4), (8, 1), (1, 8)):
            points = {tuple(evaluate(e, {"i": a, "j": b}) for e in image) for a, b in product(range(4), range(2))}
            onto = points == set(product(*map(range, shape)))
            found = invert(axes, list(image), list(shape), [Var(f"o{d}", below=e) for d, e in enumerate(shape)])
            if isinstance(found, Refusal):
                assert not onto or "shifted" in found.reason, (image, shape, found)  # a reversal is a bijection outside the form
            else:
                assert onto, (image, shape)
                check((axes, list(image), list(shape)))
                agreed += 1
    assert agreed >= 10
