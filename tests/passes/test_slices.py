"""Slices move in front of products, through what stands behind them, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from taskc.ir.dtype import F32
from taskc.ir.expr import Var
from taskc.ir.graph import Graph
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.norm import LayerNorm
from taskc.ops.slice import Slice
from taskc.ops.softmax import Softmax
from taskc.passes.pipeline import default_passes, run_passes
from taskc.passes.rule import apply_rules
from taskc.passes.rules.slices import MoveSlice
from tests.graphs import GraphBuilder
from tests.passes.meaning import keeps_meaning, operators

RNG = np.random.default_rng(17)


def weights(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RNG.standard_normal(shape).astype(np.float32)


def move(g: Graph) -> Graph:
    return apply_rules(g, (MoveSlice(),))


def cut(g: GraphBuilder, value: str, **dims: tuple[int, int]) -> str:
    """A slice: d0=(start, size), d1=…; other dims whole."""
    shape = [d for d in g.types[value].shape if isinstance(d, int)]
    picked = [dims.get(f"d{n}", (0, size)) for n, size in enumerate(shape)]
    return g.add(Slice(tuple(s for s, _ in picked), tuple(n for _, n in picked), (1,) * len(shape)), value)


def product_shapes(g: Graph) -> list[tuple[object, ...]]:
    return [g.types[n.outputs[0]].shape for n in g.nodes if isinstance(n.op, MatMul)]


@pytest.mark.parametrize("op", [MatMul(), MatMul(transpose_a=True), MatMul(transpose_b=True), MatMul(True, True)], ids=str)
def test_rows_and_columns_of_products(op: MatMul) -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 9, 12) if op.transpose_a else (2, 12, 9))
    w = b.constant(weights(14, 9) if op.transpose_b else weights(9, 14))
    y = b.add(op, x, w)
    moved = keeps_meaning(b.graph(cut(b, y, d0=(1, 1), d2=(3, 5))), move)
    assert product_shapes(moved) == [(1, 12, 5)]
    last_row = {"d1": (11, 1)}
    c = GraphBuilder()
    y = c.add(op, c.input("x", (2, 9, 12) if op.transpose_a else (2, 12, 9)), c.constant(weights(14, 9) if op.transpose_b else weights(9, 14)))
    moved = keeps_meaning(c.graph(cut(c, y, **last_row)), move)
    assert product_shapes(moved) == [(2, 12 if op.transpose_a else 1, 14)]  # a's rows lie apart, so a cut would move its vectors


def test_the_last_token_alone_goes_through_the_last_layer() -> None:
    """residual + product(gelu-like(product)), normalised, and only one row read: both products have one row, in the default passes too."""

    def layer() -> Graph:
        b = GraphBuilder()
        x = b.input("x", (1, 16, 8))
        h = b.add(Elementwise("tanh"), b.add(Elementwise("add"), b.add(MatMul(), x, b.constant(weights(8, 32))), b.constant(weights(32))))
        y = b.add(Elementwise("add"), b.add(MatMul(), h, b.constant(weights(32, 8))), x)
        y = b.add(LayerNorm(2, 1e-5), y, b.constant(weights(8)), b.constant(weights(8)))
        return b.graph(b.add(MatMul(), cut(b, y, d1=(15, 1)), b.constant(weights(8, 24))))

    passes: list[Callable[[Graph], Graph]] = [move, lambda g: run_passes(g, default_passes())]
    for change in passes:
        assert product_shapes(keeps_meaning(layer(), change)) == [(1, 1, 32), (1, 1, 8), (1, 1, 24)]


def test_softmax_takes_slices_of_other_dims_only() -> None:
    for dims, shape in (({"d0": (2, 3)}, (3, 12)), ({"d1": (2, 3)}, (7, 12))):
        b = GraphBuilder()
        y = b.add(Softmax(1), b.add(MatMul(), b.input("x", (7, 9)), b.constant(weights(9, 12))))
        assert product_shapes(keeps_meaning(b.graph(cut(b, y, **dims)), move)) == [shape]


def test_broadcast_operands_are_cut_where_they_have_the_dim() -> None:
    b = GraphBuilder()
    y = b.add(MatMul(), b.input("x", (6, 5)), b.constant(weights(5, 8)))
    y = b.add(Elementwise("add"), b.add(Elementwise("mul"), y, b.input("column", (6, 1))), b.input("row", (8,)))
    moved = keeps_meaning(b.graph(cut(b, y, d0=(1, 2), d1=(4, 3))), move)
    assert product_shapes(moved) == [(2, 3)]
    assert [moved.types[n.outputs[0]].shape for n in moved.nodes if isinstance(n.op, Slice)].count((2, 1)) == 1


def left_alone(b: GraphBuilder, *outputs: str) -> None:
    before = b.graph(*outputs)
    assert operators(move(before)) == operators(before)


def test_left_alone() -> None:
    b = GraphBuilder()  # two readers
    y = b.add(MatMul(), b.input("x", (6, 5)), b.constant(weights(5, 8)))
    left_alone(b, cut(b, y, d0=(0, 2)), cut(b, y, d0=(2, 2)))
    b = GraphBuilder()  # an output of the graph
    y = b.add(MatMul(), b.input("x", (6, 5)), b.constant(weights(5, 8)))
    left_alone(b, y, cut(b, y, d0=(0, 2)))
    b = GraphBuilder()  # no product: a convolution keeps its Relu, and the slice is a view of its reader
    y = b.add(Elementwise("relu"), b.add(Conv((1, 1), (0, 0, 0, 0), (1, 1)), b.input("x", (1, 4, 6, 6)), b.constant(weights(4, 4, 3, 3))))
    left_alone(b, cut(b, y, d2=(1, 2)))
    b = GraphBuilder()  # columns of an operand that is computed
    y = b.add(MatMul(), b.input("x", (6, 5)), b.input("y", (5, 8)))
    left_alone(b, cut(b, y, d1=(1, 3)))
    b = GraphBuilder()  # every second row
    y = b.add(MatMul(), b.input("x", (6, 5)), b.constant(weights(5, 8)))
    left_alone(b, b.add(Slice((0, 0), (3, 8), (2, 1)), y))


def test_symbolic_rows() -> None:
    b, n = GraphBuilder(), Var("n", 2)
    y = b.add(MatMul(), b.input("x", (n, 5), F32), b.constant(weights(5, 8)))
    last = b.add(Slice((n - 1, 0), (1, 8), (1, 1)), y)
    moved = keeps_meaning(b.graph(last), move, {"n": 7})
    assert product_shapes(moved) == [(1, 8)]
