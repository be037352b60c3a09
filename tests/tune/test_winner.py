"""The winner check: right outputs pass for every kind of task, and a fault in one tile, row or element does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from taskc.ir.convert import stored_as
from taskc.ir.dtype import BF16, BOOL, F16, F32, I64, DType
from taskc.ir.evaluation import evaluate
from taskc.ir.graph import Array, Op, TensorType
from taskc.ir.interpret import evaluate_task
from taskc.ir.points import point_axes
from taskc.ir.task import Task, inputs, outputs
from taskc.ir.value import Tensor
from taskc.ops.matmul import MatMul
from taskc.ops.norm import LayerNorm
from taskc.ops.softmax import Softmax
from taskc.tune.device import DeviceTensor, poison, random_contents
from taskc.tune.trial import Operand
from taskc.tune.winner import SAMPLES, grids, why_wrong
from tests.tune.tune_support import product, sums


def contents(task: Task) -> dict[str, Array]:
    return {t.name: random_contents(Operand(t.name, t.dtype, tuple(evaluate(d, {}) for d in t.shape), False)) for t in inputs(task)}


def results(task: Task, tensors: dict[str, Array]) -> dict[str, Array]:
    """What a kernel that is right stores."""
    exact = evaluate_task(task, tensors, {}, np.float64)
    return {t.name: stored_as(exact[t.name].astype(np.float32) if t.dtype.is_float else exact[t.name], t.dtype) for t in outputs(task)}


def task_of(op: Op, *shapes: tuple[DType, Sequence[int]]) -> Task:
    tensors = [Tensor(f"x{i}", d, tuple(s)) for i, (d, s) in enumerate(shapes)]
    kind = op.infer([TensorType(t.dtype, t.shape) for t in tensors])[0]
    return op.task(tensors, [Tensor("y", kind.dtype, kind.shape)])


TASKS: dict[str, Callable[[], Task]] = {
    "f16": lambda: product(97, 131, 300).task, "f32": lambda: product(97, 131, 300, dtype=F32).task, "bf16": lambda: product(97, 131, 300, dtype=BF16).task,
    "one": lambda: product(1, 1, 1).task, "vector": lambda: product(1, 1000, 64).task,
    "batch": lambda: task_of(MatMul(), (F16, (5, 33, 40)), (F16, (5, 40, 29))),
    "softmax": lambda: task_of(Softmax(1), (F16, (40, 333))), "norm": lambda: task_of(LayerNorm(1, 1e-5), (F32, (40, 333)), (F32, (333,)), (F32, (333,))),
    "map": lambda: sums(5000).task,
}


@pytest.mark.parametrize("name", TASKS)
def test_right_outputs_pass(name: str) -> None:
    task = TASKS[name]()
    tensors = contents(task)
    assert why_wrong(task, tensors, results(task, tensors), {}) == ""


@pytest.mark.parametrize("name", TASKS)
def test_poison_is_wrong(name: str) -> None:
    task = TASKS[name]()
    got = {t.name: poison(Operand(t.name, t.dtype, tuple(evaluate(d, {}) for d in t.shape), True)) for t in outputs(task)}
    reason = why_wrong(task, contents(task), got, {})
    assert "is nan, should be" in reason and outputs(task)[0].name in reason
    zeros = {name: np.zeros_like(a) for name, a in got.items()}
    assert why_wrong(task, contents(task), zeros, {}) != ""


FAULTS: dict[str, Callable[[Array], None]] = {
    "last row": lambda y: y[..., -1, :].fill(0), "last column": lambda y: y[..., -1].fill(0), "first column": lambda y: y[..., 0].fill(0),
    "a tile of the last rows": lambda y: y[..., -1, 64:80].fill(0), "a tile of the last columns": lambda y: y[..., 48:64, -1].fill(0),
    "a corner": lambda y: y[..., -1, -1:].fill(0), "a quarter": lambda y: y[..., : y.shape[-2] // 2, : y.shape[-1] // 2].fill(0),
    "a little off": lambda y: np.multiply(y, 1.02, out=y, casting="unsafe"), "rows exchanged": lambda y: np.copyto(y, y[..., ::-1, :].copy()),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["f16", "f32", "batch"])
def test_faults_are_found(name: str, fault: str) -> None:
    task = TASKS[name]()
    tensors = contents(task)
    got = results(task, tensors)
    FAULTS[fault](got[outputs(task)[0].name])
    if fault.startswith("a tile") and name == "batch":
        return  # it is smaller than that
    assert " elements; " in why_wrong(task, tensors, got, {})


def test_float32_is_held_to_float32() -> None:
    """An error that float16 would allow."""
    task = TASKS["f32"]()
    tensors = contents(task)
    rounded = {k: a.astype(np.float16).astype(np.float32) for k, a in results(task, tensors).items()}
    assert why_wrong(task, tensors, rounded, {}) != ""
    low = {k: a.astype(np.float16).astype(np.float32) for k, a in tensors.items()}
    assert why_wrong(task, tensors, results(task, low), {}) != "", "products of float16 operands"


def test_sums_of_float32_in_any_order_pass() -> None:
    task = product(20, 30, 16384, dtype=F32).task
    tensors = contents(task)
    x, w = tensors["x"], tensors["w"]
    y = np.zeros((20, 30), np.float32)
    for k in range(0, 16384, 4):  # one long chain
        y += x[:, k : k + 4] @ w[k : k + 4]
    assert why_wrong(task, tensors, {"y": y}, {}) == ""


def test_sampling() -> None:
    task = product(1000, 700, 64).task
    batch, m, n = (a.var.name for a in point_axes(task))
    first, columns, rows = grids(task, {})
    assert SAMPLES * 0.9 <= len(first[m]) * len(first[n]) * len(first[batch]) <= SAMPLES * 1.1
    assert {0, 998, 999} <= set(first[m]) and {0, 698, 699} <= set(first[n])
    assert {*range(1000 // 16)} <= {p // 16 for p in columns[m]} and {0, 699} == set(columns[n])
    assert {*range(700 // 16)} <= {p // 16 for p in rows[n]} and {0, 999} == set(rows[m])


@pytest.mark.parametrize("dtype", [F16, F32, BF16, I64, BOOL], ids=str)
def test_operands(dtype: DType) -> None:
    o = Operand("t0_1", dtype, (3, 50), False)
    data = random_contents(o)
    assert data.dtype == dtype.numpy and data.shape == (3, 50) and np.array_equal(data, random_contents(o)) and len(np.unique(data)) > 1
    assert not np.array_equal(data, random_contents(Operand("t1_0", dtype, (3, 50), False))), "copies differ, and so do tensors"
    assert poison(o).dtype == dtype.numpy and (poison(o).view(np.uint8) == 255).all()
    assert DeviceTensor(256, o).__cuda_array_interface__["typestr"] == dtype.numpy.str


def test_it_is_quick() -> None:
    """A product with k = 16384: seconds of processor time, the best of three."""
    task = product(512, 1024, 16384).task
    tensors = contents(task)
    x, w = (tensors[k].astype(np.float32) for k in ("x", "w"))
    got = {"y": (x @ w).astype(np.float16)}
    best = min(_seconds(lambda: why_wrong(task, tensors, got, {})) for _ in range(3))
    assert best < 0.5, best  # 0.1 on an idle machine


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    assert run() == ""
    return time.process_time() - start
