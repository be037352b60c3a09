"""Products of one value become one with slices; and when they stay alone."""

from __future__ import annotations

import numpy as np
import pytest

from taskc.codegen.emit import emit
from taskc.fuse.units import Unit
from taskc.ir.dtype import BF16, F16, F32, DType
from taskc.ir.expr import Var
from taskc.ir.graph import Array, Graph
from taskc.ir.task import Attention as AttentionTask
from taskc.ir.task import Contraction
from taskc.ops.attention import Attention
from taskc.ops.concat import Concat
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.reduce import Reduce
from taskc.ops.reshape import Reshape
from taskc.ops.transpose import Transpose
from taskc.passes.rule import Refusal
from taskc.passes.rules.merge_products import MergeProducts
from taskc.targets import TARGETS
from taskc.tune.kernels import build_kernel
from tests.graphs import GraphBuilder, groups_of
from tests.passes.meaning import keeps_meaning, operators

RNG = np.random.default_rng(5)


def weights(*shape: int) -> Array:
    return RNG.standard_normal(shape)


def self_attention(dtype: DType = F32, heads: int = 2, size: int = 8, length: int | Var = 5, biases: bool = True) -> Graph:
    """q, k and v of one value, each a product, a bias, and its heads moved forward."""
    b = GraphBuilder()
    width = heads * size
    x = b.input("x", (1, length, width), dtype)
    parts: list[str] = []
    for _ in range(3):
        y = b.add(MatMul(), x, b.constant(weights(width, width), dtype))
        if biases:
            y = b.add(Elementwise("add"), b.constant(weights(width), dtype), y)
        parts.append(b.add(Transpose((0, 2, 1, 3)), b.add(Reshape((1, length, heads, size)), y)))
    return b.graph(b.add(Transpose((0, 2, 1, 3)), b.add(Attention(size**-0.5), *parts)))


def refused(graph: Graph, most: int = 16384) -> list[str]:
    """The reasons of a graph that stays as it is."""
    told: list[Refusal] = []
    assert MergeProducts(told.append, most)(graph) is graph
    return [r.reason for r in told]


@pytest.mark.parametrize("biases", [True, False])
def test_queries_keys_and_values_are_one_product(biases: bool) -> None:
    graph = keeps_meaning(self_attention(biases=biases), MergeProducts())
    assert operators(graph)[:5] == ["MatMul", *["add"] * biases, "Slice", "Slice", "Slice", *["Reshape"] * (not biases)]
    assert graph.nodes[0].source == ("MatMul0 + MatMul4 + MatMul8" if biases else "MatMul0 + MatMul3 + MatMul6")
    groups, _ = groups_of(graph)
    assert [type(u.task) for u in groups] == [Contraction, AttentionTask]


def test_slices_ride_on_wide_copies_of_attention() -> None:
    groups, _ = groups_of(MergeProducts()(self_attention(F16, 4, 32, 64)))
    attention: Unit = groups[1]
    kernel = build_kernel(attention, TARGETS["sm_80"], {})
    assert {p: kernel.program.notes[p] for p in ("q", "key", "v")} == dict.fromkeys(("q", "key", "v"), "width 8 along axis 1")
    assert len(kernel.tensors) == 2 and emit(kernel.program)


def test_symbolic_length() -> None:
    graph = keeps_meaning(self_attention(length=Var("length", 1)), MergeProducts(), {"length": 7})
    assert operators(graph).count("MatMul") == 1


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_transposed_weights_of_different_width_keep_their_bits(dtype: DType) -> None:
    b = GraphBuilder()
    x = b.input("x", (3, 7), dtype)
    wide = [b.constant(weights(n, 7), dtype) for n in (16, 8)]
    sums = [b.add(Reduce("sum", (1,), False), b.add(MatMul(transpose_b=True), x, w)) for w in wide]
    before = b.graph(*sums)
    after = MergeProducts()(before)
    merged = after.constants[after.nodes[0].inputs[1]]
    np.testing.assert_array_equal(merged, np.concatenate([before.constants[w] for w in wide]))
    assert after.types[after.nodes[0].inputs[1]].dtype == dtype
    if dtype == F32:
        keeps_meaning(before, MergeProducts())


def test_single_numbers_are_widened_unless_equal() -> None:
    b = GraphBuilder()
    x = b.input("x", (3, 4))
    ends: list[str] = []
    for low, top in ((np.float32(-1), np.float32(6)), (np.array([-2], np.float32), np.float32(6))):
        y = b.add(Elementwise("max"), b.add(MatMul(), x, b.constant(weights(4, 8), F32)), b.constant(np.asarray(low)))
        ends.append(b.add(Reduce("sum", (1,), False), b.add(Elementwise("min"), y, b.constant(np.asarray(top)))))
    after = keeps_meaning(b.graph(*ends), MergeProducts())
    assert operators(after)[:5] == ["MatMul", "max", "min", "Slice", "Slice"]
    low, top = (after.constants[n.inputs[1]] for n in after.nodes[1:3])
    np.testing.assert_array_equal(low, [-1] * 8 + [-2] * 8)
    assert top.shape == ()


def two(first: str, second: str, n: tuple[int, int] = (8, 8)) -> tuple[GraphBuilder, str, str]:
    """Two products of x, each followed by what its word says."""
    b = GraphBuilder()
    x = b.input("x", (3, 8))
    out: list[str] = []
    for word, width in zip((first, second), n, strict=True):
        y = b.add(MatMul(), x, b.constant(weights(8, width), F32))
        if "bias" in word:
            y = b.add(Elementwise("add"), y, b.constant(weights(width), F32))
        if "column" in word:
            y = b.add(Elementwise("add"), y, b.constant(weights(3, 1), F32))
        if "residual" in word:
            y = b.add(Elementwise("add"), y, x)
        if "swish" in word:
            y = b.add(Elementwise("mul"), y, b.add(Elementwise("sigmoid"), y))
        out.append(b.add(Reduce("sum", (1,), False), y) if "sum" in word else y)
    return b, out[0], out[1]


@pytest.mark.parametrize("first, second, reason", [
    ("bias", "bias sum", "it is an output of the graph"),
    ("residual sum", "sum", "add1 would no longer be computed in the product's own kernel"),
    ("swish sum", "sum", "sigmoid1, mul2 would no longer"),
    ("bias sum", "sum", "no other product of x has channels aligned like its 8 and add behind it"),
    ("column sum", "sum", "add1 would no longer"),
])
def test_stays_alone(first: str, second: str, reason: str) -> None:
    b, u, v = two(first, second)
    assert reason in " | ".join(refused(b.graph(u, v)))


def test_widths_that_would_break_alignment_stay_alone() -> None:
    b, u, v = two("sum", "sum", (8, 6))
    assert any("aligned like its 6" in r for r in refused(b.graph(u, v)))


def test_too_wide_together() -> None:
    b, u, v = two("sum", "sum")
    assert refused(b.graph(u, v), most=15) == ["together they would have 16 channels, more than 15"] * 2
    assert operators(keeps_meaning(b.graph(u, v), MergeProducts(most=16))).count("MatMul") == 1


def test_a_part_of_a_concatenation_is_written_in_place() -> None:
    b, u, v = two("bias", "bias")
    assert "Concat4 would no longer" in refused(b.graph(b.add(Concat(1), u, v)))[0]


def test_different_inputs_flags_or_data_as_weights() -> None:
    b = GraphBuilder()
    x, y, w = b.input("x", (8, 8)), b.input("y", (8, 8)), b.input("w", (8, 8))
    c = b.constant(weights(8, 8), F32)
    products = (b.add(MatMul(), x, c), b.add(MatMul(), y, c), b.add(MatMul(), x, w), b.add(MatMul(transpose_a=True), x, c))
    assert refused(b.graph(*(b.add(Reduce("sum", (1,), False), p) for p in products))) == []
