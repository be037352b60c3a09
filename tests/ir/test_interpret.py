"""The meaning of tasks: what it must notice, symbols, and the double-precision reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taskc.ir.convert import bf16_bits, bf16_values, convert
from taskc.ir.dtype import BF16, BOOL, F16, F32, I8, I32, I64
from taskc.ir.expr import Var
from taskc.ir.graph import Graph, Node, TensorType
from taskc.ir.interpret import evaluate_graph, evaluate_task, symbols_of
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Let, Tensor, Value, guard, inside
from taskc.ops.cast import Cast
from taskc.ops.elementwise import Elementwise
from taskc.ops.reshape import Reshape, matching_groups, reshaped_index

X = Tensor("x", F32, (4, 3))
Y = Tensor("y", F32, (4, 3))
ROW, COL = axis("i", 4), axis("j", 3)
DATA = {"x": np.random.default_rng(11).standard_normal((4, 3)).astype(np.float32)}


def task(value: Value, index: tuple[Any, ...] = (ROW.var, COL.var)) -> Map:
    return Map((ROW, COL), (Store(Y, index, value),))


def test_loads_outside_are_noticed_unless_guarded() -> None:
    shifted = X.at(ROW.var + 1, COL.var)
    with pytest.raises(IndexError, match=r"leaves 0\.\.3"):
        evaluate_task(task(shifted), DATA)
    out = evaluate_task(task(guard(inside(0, ROW.var + 1, 4), shifted)), DATA)["y"]
    np.testing.assert_array_equal(out, np.vstack([DATA["x"][1:], np.zeros((1, 3), np.float32)]))


def test_stores_outside_and_elements_never_written_are_noticed() -> None:
    with pytest.raises(IndexError, match="store to y"):
        evaluate_task(task(X.at(ROW.var, COL.var), (ROW.var + 1, COL.var)), DATA)
    with pytest.raises(ValueError, match="9 of 12 elements of y are never written"):
        evaluate_task(task(X.at(ROW.var, COL.var), (0, COL.var)), DATA)


def test_an_index_from_data_must_keep_its_promise() -> None:
    var = Var("g", below=4)
    indices = Tensor("n", I64, (4,))
    body = Let(var, indices.at(ROW.var), X.at(var, COL.var))
    good = np.array([3, 0, 1, 1])
    np.testing.assert_array_equal(evaluate_task(task(body), {**DATA, "n": good})["y"], DATA["x"][good])
    with pytest.raises(IndexError, match="facts promise"):
        evaluate_task(task(body), {**DATA, "n": np.array([3, 0, 4, 1])})


def test_symbols() -> None:
    n = Var("d_n", lo=1)
    x, y = Tensor("x", F32, (n, 3)), Tensor("y", F32, (3 * n,))
    i = axis("i0", 3 * n)
    t = Map((i,), (Store(y, (i.var,), x.at(i.var // 3, i.var % 3)),))
    np.testing.assert_array_equal(evaluate_task(t, DATA, {"d_n": 4})["y"], DATA["x"].ravel())


def test_graphs_bind_symbols_from_feeds() -> None:
    n = Var("d_n", lo=1)
    nodes = (Node(Reshape((3 * n,)), ("x",), ("y",)),)
    types = {"x": TensorType(F32, (n, 3)), "y": TensorType(F32, (3 * n,))}
    g = Graph("g", ("x",), (("out", "y"),), nodes, types, {})
    assert symbols_of(g, DATA) == {"d_n": 4}
    np.testing.assert_array_equal(evaluate_graph(g, DATA)["out"], DATA["x"].ravel())
    with pytest.raises(ValueError, match="wants a dim of 3, got 4"):
        evaluate_graph(g, {"x": np.zeros((2, 4), np.float32)})


def test_the_double_reference_does_not_round() -> None:
    nodes = (Node(Cast(F16), ("x",), ("h",)), Node(Elementwise("exp"), ("h",), ("e",)), Node(Cast(F32), ("e",), ("y",)))
    shape = TensorType(F32, (4, 3))
    types = {"x": shape, "h": TensorType(F16, (4, 3)), "e": TensorType(F16, (4, 3)), "y": shape}
    g = Graph("g", ("x",), (("out", "y"),), nodes, types, {})
    exact = np.exp(DATA["x"].astype(np.float64))
    np.testing.assert_array_equal(evaluate_graph(g, DATA, np.float64)["out"], exact)
    rounded = evaluate_graph(g, DATA)["out"]
    assert rounded.dtype == np.float32
    assert 1e-5 < np.abs(rounded / exact - 1).max() < 4e-3


def test_bfloat16_rounds_to_even_and_keeps_nan() -> None:
    x = np.array([1.0, 1.00390625, 1.01171875, -3.3e38, np.inf, np.nan, 1e-40], np.float32)
    back = bf16_values(bf16_bits(x))
    assert back[1] == 1.0 and back[2] == np.float32(1.015625) and np.isinf(back[4]) and np.isnan(back[5])
    finite = np.isfinite(x)
    assert np.all(np.abs(back[finite] - x[finite]) <= np.abs(x[finite]) * 2.0**-8 + 1e-40)
    y = evaluate_task(Map((ROW,), (Store(Tensor("y", BF16, (4,)), (ROW.var,), Const(1.00390625, F32)),)), {})["y"]
    np.testing.assert_array_equal(y, bf16_bits(np.full(4, 1.0, np.float32)))


def test_conversions_saturate_and_truncate() -> None:
    x = np.array([2.75, -2.75, 1e20, -1e20, np.nan], np.float32)
    np.testing.assert_array_equal(convert(x, I32), [2, -2, 2**31 - 1, -(2**31), 0])
    np.testing.assert_array_equal(convert(np.array([300, -1]), I8), [44, -1])
    np.testing.assert_array_equal(convert(x, BOOL), [True] * 5)


def test_reshapes_touch_only_the_dims_they_change() -> None:
    b, s = Var("d_b", lo=1), Var("d_s", lo=1)
    assert matching_groups((b, s, 768), (b, s, 12, 64)) == [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3))]
    assert matching_groups((b, s, 12, 64), (b * s, 768)) == [((0, 1), (0,)), ((2, 3), (1,))]
    assert matching_groups((2, 1, 6), (4, 3, 1)) == [((0, 2), (0, 1))]
    i = [Var(f"i{k}", below=e) for k, e in enumerate((b, s, 12, 64))]
    assert [str(e) for e in reshaped_index(i, (b, s, 12, 64), (b, s, 768))] == ["i0", "i1", "(64*i2 + i3)"]
