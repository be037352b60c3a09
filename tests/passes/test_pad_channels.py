"""A first convolution of three channels reads vectors, from a kernel that pads; and when it stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taskc.fuse.units import Unit
from taskc.ir.dtype import F16, F32, DType
from taskc.ir.expr import Var
from taskc.ir.graph import Array, Graph
from taskc.ir.task import Contraction, Map
from taskc.ir.value import Dim
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.pad import Pad
from taskc.passes.layout import put_channels_last
from taskc.passes.rule import Refusal, Rule, apply_rules
from taskc.passes.rules.pad_channels import PadChannels
from taskc.schedules import matmul_mma
from taskc.schedules.template import traits_of
from taskc.targets import TARGETS
from taskc.tune.kernels import build_scheduled
from tests.graphs import GraphBuilder, groups_of
from tests.passes.meaning import keeps_meaning, operators

RNG = np.random.default_rng(8)
STEM = Conv((2, 2), (3, 3, 3, 3), (1, 1))


def weights(*shape: int) -> Array:
    return RNG.standard_normal(shape)


def stem(channels: int = 3, size: Dim = 40, dtype: DType = F32, scaled: bool = False) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, channels, size, 40), dtype)
    if scaled:
        x = b.add(Elementwise("mul"), x, b.constant(weights(channels, 1, 1), dtype))
    return put_channels_last(b.graph(b.add(STEM, x, b.constant(weights(16, channels, 7, 7), dtype))))


def pad(graph: Graph, unit: int = 4, told: list[Refusal] | None = None) -> Graph:
    rules: tuple[Rule[Any], ...] = (PadChannels(unit),)
    return apply_rules(graph, rules, None if told is None else told.append)


def width_of_loads(unit: Unit) -> int:
    """Elements of each copy of the convolution's input, with the first schedule on tensor cores."""
    target = TARGETS["sm_80"]
    kernel = build_scheduled(unit, target, matmul_mma.NAME, matmul_mma.space(target, traits_of(unit.task))[0])
    return int(kernel.program.notes["a"].split()[1])


def kinds(groups: list[Unit]) -> list[type]:
    return [type(u.task) for u in groups]


@pytest.mark.parametrize("channels, padded", [(1, 4), (2, 4), (3, 4)])
def test_zeros_change_nothing(channels: int, padded: int) -> None:
    graph = keeps_meaning(stem(channels), pad)
    (op,) = [n.op for n in graph.nodes if isinstance(n.op, Pad)]
    assert op.after == (0, 0, 0, padded - channels)


@pytest.mark.parametrize("dtype, unit, width", [(F16, 4, 4), (F16, 8, 8), (F32, 4, 4), (F32, 8, 4)])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_convolution_reads_vectors(dtype: DType, unit: int, width: int, scaled: bool) -> None:
    groups, _ = groups_of(pad(stem(dtype=dtype, scaled=scaled), unit))
    assert kinds(groups) == [Map, Contraction]
    assert width_of_loads(groups[1]) == width
    assert any(f"the loads would be 1 elements wide in place of {width}" in r for r in groups[1].refused)


def test_without_padding_loads_are_single_elements() -> None:
    groups, _ = groups_of(stem(dtype=F16))
    assert kinds(groups) == [Contraction]
    assert width_of_loads(groups[0]) == 1


def test_symbolic_height() -> None:
    keeps_meaning(stem(size=Var("h", 8)), pad, {"h": 11})


def test_a_tensor_too_small_for_a_kernel_is_padded_where_it_is_read() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8))
    graph = keeps_meaning(put_channels_last(b.graph(b.add(STEM, x, b.constant(weights(8, 3, 7, 7), F32)))), pad)
    assert kinds(groups_of(graph)[0]) == [Contraction]


def test_stays_as_it_is() -> None:
    told: list[Refusal] = []
    for channels, unit in ((4, 4), (8, 4), (5, 5), (6, 6)):
        assert "Pad" not in operators(pad(stem(channels), unit, told))
    assert told == []
    b = GraphBuilder()
    first = b.add(STEM, b.input("x", (1, 4, 20, 20)), b.constant(weights(3, 4, 7, 7), F32))
    second = b.add(STEM, b.add(Elementwise("relu"), first), b.constant(weights(8, 3, 7, 7), F32))
    data = b.add(STEM, b.input("y", (1, 3, 20, 20)), b.input("w", (8, 3, 7, 7)))
    groups = b.add(Conv((1, 1), (0, 0, 0, 0), (1, 1), groups=3), b.input("z", (1, 3, 6, 6)), b.constant(weights(6, 1, 3, 3), F32))
    assert "Pad" not in operators(pad(put_channels_last(b.graph(second, data, groups)), told=told))
    assert [r.reason for r in told] == ["Conv0 makes its input and would not write the zeros", "the weight is not constant",
                                        "its channels are in 3 groups"]
