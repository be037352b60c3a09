"""A task at chosen points equals the same elements of the whole, for every operator's examples and with every argument."""

from __future__ import annotations

import numpy as np
import pytest

from taskc.ir.convert import bf16_bits, stored_as
from taskc.ir.dtype import BF16, F16, F32, DType, from_numpy
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Var
from taskc.ir.graph import Array, OpError, TensorType
from taskc.ir.interpret import evaluate_task
from taskc.ir.points import evaluate_points, point_axes
from taskc.ir.task import Map, Rows, Task, outputs
from taskc.ir.value import Tensor
from taskc.ops.matmul import MatMul
from taskc.ops.registry import EXAMPLES, Example, load_operators

load_operators()
_ALL = [e for make in EXAMPLES for e in make()]


def task_of(example: Example) -> tuple[Task, dict[str, Array]]:
    kinds = [None if a is None else (from_numpy(a.dtype), a.shape) for a in example.inputs]
    types = [None if k is None or k[0] is None else TensorType(k[0], k[1]) for k in kinds]
    ins = [None if t is None else Tensor(f"in{k}", t.dtype, t.shape) for k, t in enumerate(types)]
    outs = [Tensor(f"out{k}", t.dtype, t.shape) for k, t in enumerate(example.op.infer(types))]
    return example.op.task(ins, outs), {f"in{k}": a for k, a in enumerate(example.inputs) if a is not None}


@pytest.mark.parametrize("example", _ALL, ids=[f"{e.op.name}-{e.name}" for e in _ALL])
def test_points_of_the_whole(example: Example) -> None:
    try:
        task, feeds = task_of(example)
    except OpError as error:
        pytest.skip(f"no task: {error}")
    rng = np.random.default_rng(3)
    extents = {a.var.name: evaluate(a.extent, {}) for a in point_axes(task)}
    if not all(extents.values()):
        pytest.skip("nothing to compute")
    points = {name: np.unique([0, n - 1, *rng.integers(0, n, 3)]) for name, n in extents.items()}
    for wide in (True, False):
        whole = evaluate_task(task, feeds, {}, np.float64 if wide else None)
        found = evaluate_points(task, feeds, points, wide=wide)
        assert [s.tensor for s in found] == list(outputs(task))
        for store, s in zip(task.stores, found, strict=True):
            count = len(points[task.row.var.name]) if isinstance(task, Rows) and store in task.row_stores else np.prod([len(p) for p in points.values()])
            assert s.values.shape == (count,) and not s.spread.any()
            got = s.values if wide and s.tensor.dtype.is_float else stored_as(s.values, s.tensor.dtype)
            want = whole[s.tensor.name][s.index] if s.index else whole[s.tensor.name].reshape(1)
            if not s.tensor.dtype.is_float or isinstance(task, Map):
                np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))
            else:
                eps = 1e-12 if wide else 4 * float(np.finfo(want.dtype).eps)
                finite = want[np.isfinite(want)]
                np.testing.assert_allclose(got, want, rtol=eps, atol=eps * float(np.max(np.abs(finite), initial=1.0)))


def product(dtype: DType, m: int, n: int, k: int, symbolic: bool = False) -> tuple[Task, dict[str, Array]]:
    rng = np.random.default_rng(11)
    shape = (Var("rows", 1) if symbolic else m, k)
    x, w, y = Tensor("x", dtype, shape), Tensor("w", dtype, (k, n), True), Tensor("y", dtype, (shape[0], n))
    data = {"x": rng.standard_normal((m, k), np.float32), "w": rng.standard_normal((k, n), np.float32)}
    return MatMul().task([x, w], [y]), {name: stored_as(a, dtype) for name, a in data.items()}


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_stored_operands(dtype: DType) -> None:
    """Tensors come as they are stored: bfloat16 as bits."""
    task, feeds = product(dtype, 9, 7, 33)
    b, m, n = (a.var.name for a in point_axes(task))
    (s,) = evaluate_points(task, feeds, {b: np.array([0]), m: np.array([8, 3]), n: np.array([1])})
    x, w = ({k: (a.astype(np.uint32) << 16).view(np.float32) if dtype == BF16 else a for k, a in feeds.items()}[name].astype(np.float64) for name in "xw")
    np.testing.assert_allclose(s.values, (x @ w)[[8, 3], 1], rtol=1e-12)
    assert [list(i) for i in s.index] == [[8, 3], [1, 1]]


def test_symbols() -> None:
    task, feeds = product(F32, 5, 3, 8, symbolic=True)
    b, m, n = (a.var.name for a in point_axes(task))
    (s,) = evaluate_points(task, feeds, {b: np.array([0]), m: np.array([4]), n: np.arange(3)}, {"rows": 5})
    np.testing.assert_allclose(s.values, (feeds["x"].astype(np.float64) @ feeds["w"])[4])


def test_spread() -> None:
    """The error asked about moves a product's elements by itself times their root mean square."""
    task, feeds = product(F32, 50, 60, 100)
    points = dict(zip((a.var.name for a in point_axes(task)), (np.array([0]), np.arange(50), np.arange(60)), strict=True))
    (s,) = evaluate_points(task, feeds, points, error=1e-3)
    np.testing.assert_allclose(s.spread, 1e-3 * np.sqrt(np.mean(s.values**2)), rtol=1e-9)


def test_a_load_outside_is_an_error() -> None:
    task, feeds = product(F32, 5, 3, 8)
    b, m, n = (a.var.name for a in point_axes(task))
    with pytest.raises(IndexError, match=r"leaves 0\.\.4"):
        evaluate_points(task, feeds, {b: np.array([0]), m: np.array([5]), n: np.array([0])})


def test_bits_round_trip() -> None:
    assert bf16_bits(np.array([1.0, -2.0], np.float32)).tolist() == [0x3F80, 0xC000]
