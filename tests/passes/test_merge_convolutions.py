"""Convolutions of one value become one with slices, channels first and last; and when they stay alone."""

from __future__ import annotations

import numpy as np
import pytest

from taskc.ir.graph import Array, Graph
from taskc.ir.task import Contraction
from taskc.ops.concat import Concat
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.slice import Slice
from taskc.passes.layout import put_channels_last
from taskc.passes.rule import Refusal
from taskc.passes.rules.merge_convolutions import MergeConvolutions
from tests.graphs import GraphBuilder, groups_of
from tests.passes.meaning import keeps_meaning, operators

RNG = np.random.default_rng(6)
POINT = Conv((1, 1), (0, 0, 0, 0), (1, 1))
AROUND = Conv((1, 1), (1, 1, 1, 1), (1, 1))


def weights(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def convolved(b: GraphBuilder, op: Conv, x: str, channels: int, kernel: int, steps: str = "bias relu") -> str:
    y = b.add(op, x, b.constant(weights(channels, int(b.types[x].shape[1]) // op.groups, kernel, kernel)))
    if "bias" in steps:
        y = b.add(Elementwise("add"), y, b.constant(weights(channels, 1, 1)))
    return b.add(Elementwise("relu"), y) if "relu" in steps else y


def branches(*first: tuple[Conv, int, int, str]) -> Graph:
    """Convolutions of x, each under another one, all concatenated."""
    b = GraphBuilder()
    x = b.input("x", (2, 5, 6, 7))
    tops = [convolved(b, AROUND, convolved(b, op, x, n, k, steps), 3, 3) for op, n, k, steps in first]
    return b.graph(b.add(Concat(1), *tops))


def refused(graph: Graph) -> str:
    told: list[Refusal] = []
    assert MergeConvolutions(told.append)(graph) is graph
    return " | ".join(r.reason for r in told)


@pytest.mark.parametrize("steps", ["bias relu", "relu", ""])
def test_parallel_branches_are_one_convolution(steps: str) -> None:
    graph = keeps_meaning(branches((POINT, 8, 1, steps), (POINT, 16, 1, steps), (POINT, 8, 1, steps)), MergeConvolutions())
    assert operators(graph).count("Conv") == 4
    slices = [n.op for n in graph.nodes if isinstance(n.op, Slice)]
    assert [s.starts for s in slices] == [(0, 0, 0, 0), (0, 8, 0, 0), (0, 24, 0, 0)]
    groups, _ = groups_of(graph)
    assert [type(u.task) for u in groups] == [Contraction] * 4


def test_slices_run_along_channels_last() -> None:
    graph = keeps_meaning(branches((POINT, 8, 1, "bias"), (POINT, 8, 1, "bias")), lambda g: put_channels_last(MergeConvolutions()(g)))
    assert [n.op.starts for n in graph.nodes if isinstance(n.op, Slice)] == [(0, 0, 0, 0), (0, 0, 0, 8)]
    late = keeps_meaning(branches((POINT, 8, 1, "bias"), (POINT, 8, 1, "bias")), lambda g: MergeConvolutions()(put_channels_last(g)))
    assert operators(late).count("Conv") == 3


@pytest.mark.parametrize("first, second, reason", [
    ((POINT, 8, 1, "bias relu"), (POINT, 8, 1, "bias"), "add then relu behind it"),
    ((POINT, 8, 1, "bias"), (POINT, 6, 1, "bias"), "aligned like its 6"),
    ((POINT, 8, 1, ""), (AROUND, 8, 3, ""), ""),
    ((Conv((2, 2), (0, 0, 0, 0), (1, 1)), 8, 1, ""), (Conv((2, 2), (0, 0, 0, 0), (2, 2)), 8, 1, ""), ""),
])
def test_stays_alone(first: tuple[Conv, int, int, str], second: tuple[Conv, int, int, str], reason: str) -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 5, 6, 7))
    ends = [convolved(b, AROUND, convolved(b, op, x, n, k, steps), 3, 3) for op, n, k, steps in (first, second)]
    told = refused(b.graph(*ends))
    assert reason in told and bool(reason) == bool(told)


def test_groups_stay_apart() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 5, 5))
    op = Conv((1, 1), (0, 0, 0, 0), (1, 1), groups=2)
    assert refused(b.graph(*(convolved(b, POINT, convolved(b, op, x, 8, 1), 3, 1) for _ in range(2)))) == ""


def test_a_residual_and_a_concatenation_stay_with_their_convolution() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 8, 5, 5))
    first = convolved(b, POINT, convolved(b, POINT, x, 8, 1), 8, 1, "bias")
    total = b.add(Elementwise("add"), first, convolved(b, POINT, x, 8, 1, "bias"))
    part = convolved(b, POINT, x, 8, 1, "bias relu")
    told = refused(b.graph(b.add(Concat(1), part, total)))
    assert "would no longer be computed in the product's own kernel" in told and "Concat" in told


def test_a_value_that_two_convolutions_read_is_merged() -> None:
    """Nothing is lost: it is in memory anyway."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 5, 5))
    u, v = convolved(b, POINT, x, 8, 1), convolved(b, POINT, x, 16, 1)
    ends = [convolved(b, AROUND, i, 8, 3) for i in (u, u, v)]
    graph = keeps_meaning(b.graph(*ends), MergeConvolutions())
    assert operators(graph).count("Conv") == 4


def test_one_part_of_a_concatenation_may_be_copied() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 8, 5, 5))
    parts = [convolved(b, POINT, x, 8, 1), convolved(b, AROUND, convolved(b, POINT, x, 16, 1), 8, 3), convolved(b, POINT, x, 8, 1)]
    told: list[Refusal] = []
    graph = keeps_meaning(b.graph(b.add(Concat(1), *parts)), MergeConvolutions(told.append, copy_parts=True))
    assert operators(graph).count("Conv") == 3 and operators(graph).count("Slice") == 2
    assert [r.reason for r in told] == ["another part of a concatenation is copied already"]
    groups, _ = groups_of(graph)
    assert sorted(type(u.task).__name__ for u in groups) == ["Contraction"] * 3 + ["Map"]
