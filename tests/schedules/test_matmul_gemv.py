"""The matmul for few rows on `host`: both orders of the second operand, odd sizes, split k, fused values."""

from __future__ import annotations

from math import isfinite, isinf
from pathlib import Path

import numpy as np
import pytest

from taskc.ir.dtype import F16, F32, F64, I8, I32, DType
from taskc.ir.expr import Var
from taskc.ir.task import Contraction, Store, Task, axis
from taskc.ir.value import Hole, Tensor, call
from taskc.ops.conv import Conv
from taskc.ops.matmul import MatMul
from taskc.schedules import matmul_gemv, matmul_simt
from taskc.schedules.matmul_gemv import Schedule
from taskc.schedules.template import Traits
from taskc.targets import TARGETS
from tests.schedules.kernel_run import ORDERS, Array, Case, Compiled, check, compile_cases, operator_case

ROWS = Schedule(4, 128, 32, 4, 4)
ONE = Schedule(1, 256, 8, 4, 2, 4)
WIDE = Schedule(16, 128, 16, 4, 4, 2)
HALF = Schedule(2, 128, 32, 8, 4, 2)


def random(seed: int, *shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _fused(schedule: Schedule) -> Case:
    """relu(a + a) @ (b * b, rounded to float16) + bias."""
    m, n, k = 3, 37, 50
    a, b, c, y = Tensor("a", F16, (m, k)), Tensor("b", F16, (n, k)), Tensor("c", F32, (n,)), Tensor("y", F32, (m, n))
    am, an, ak, ab = axis("m", m), axis("n", n), axis("k", k), axis("b", 1)
    x, w = a.at(am.var, ak.var), b.at(an.var, ak.var)
    task = Contraction(ab, am, an, ak, call("relu", call("add", x, x)), call("mul", w, w), F16, F32,
                       (Store(y, (am.var, an.var), call("add", Hole("acc", F32), c.at(an.var))),))
    arrays = {"a": random(1, m, k, dtype="float16"), "b": random(2, n, k, dtype="float16"), "c": random(3, n)}
    squared = (arrays["b"].astype(np.float32) ** 2).astype(np.float16).astype(np.float64)
    want = np.maximum(2 * arrays["a"].astype(np.float64), 0) @ squared.T + arrays["c"]
    return Case(f"fused {schedule}", matmul_gemv, schedule, task, arrays, {"y": want}, 1e-6)


def _symbolic(schedule: Schedule, m: int, k: int) -> Case:
    rows, depth = Var("rows", 1), Var("depth", 1)
    a, b, y = Tensor("a", F32, (rows, depth)), Tensor("b", F32, (24, depth)), Tensor("y", F32, (rows, 24))
    arrays = {"a": random(4, m, k), "b": random(5, 24, k)}
    want = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64).T
    task = MatMul(transpose_b=True).task((a, b), (y,))
    return Case(f"symbolic {m} {k}", matmul_gemv, schedule, task, arrays, {"y": want}, 1e-6, {"rows": m, "depth": k})


def _weights(schedule: Schedule, k: int) -> Case:
    """A constant second operand: its first loads come before the wait. Some parts of k are empty."""
    a, b, y = Tensor("a", F32, (1, k)), Tensor("b", F32, (50, k), constant=True), Tensor("y", F32, (1, 50))
    arrays = {"a": random(31, 1, k), "b": random(32, 50, k)}
    want = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64).T
    return Case(f"weights {k}", matmul_gemv, schedule, MatMul(transpose_b=True).task((a, b), (y,)), arrays, {"y": want}, 1e-6)


def _int8() -> Case:
    m, n, k = 2, 35, 41
    a, b, y = Tensor("a", I8, (m, k)), Tensor("b", I8, (k, n)), Tensor("y", I32, (m, n))
    am, an, ak, ab = axis("m", m), axis("n", n), axis("k", k), axis("b", 1)
    task = Contraction(ab, am, an, ak, a.at(am.var, ak.var), b.at(ak.var, an.var), I8, I32, (Store(y, (am.var, an.var), Hole("acc", I32)),))
    rng = np.random.default_rng(6)
    arrays = {"a": rng.integers(-128, 128, (m, k), np.int8), "b": rng.integers(-128, 128, (k, n), np.int8)}
    want = {"y": arrays["a"].astype(np.int32) @ arrays["b"].astype(np.int32)}
    return Case("int8 in int32", matmul_gemv, Schedule(2, 128, 16, 16, 2), task, arrays, want, 0)


def _cases() -> list[Case]:
    out: list[Case] = []

    def add(schedule: Schedule, label: str, a: Array, b: Array, tolerance: float = 1e-6) -> None:
        out.append(operator_case(matmul_gemv, schedule, MatMul(), (a, b), tolerance, f"{label} n {schedule}"))
        transposed = np.ascontiguousarray(np.swapaxes(b, -1, -2))
        out.append(operator_case(matmul_gemv, schedule, MatMul(transpose_b=True), (a, transposed), tolerance, f"{label} k {schedule}"))

    for s in (ROWS, ONE, WIDE):
        add(s, "primes", random(11, 3, 127), random(12, 127, 131))
        add(s, "even", random(13, 2, s.bm, 512), random(14, 512, 256))
    add(ROWS, "ones", random(15, 1, 1), random(16, 1, 1))
    add(ROWS, "many rows", random(17, 9, 33), random(18, 33, 20))
    add(HALF, "float16", random(19, 2, 264, dtype="float16"), random(20, 264, 48, dtype="float16"), 1e-3)
    add(Schedule(1, 128, 16, 2, 4), "float64", random(21, 1, 99, dtype="float64"), random(22, 99, 50, dtype="float64"), 1e-14)
    out += [_fused(HALF), _fused(ROWS), _symbolic(ROWS, 5, 100), _symbolic(ONE, 1, 65), _int8()]
    return [*out, _weights(ONE, 70), _weights(ROWS, 257)]


CASES = _cases()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_cases(CASES, Path(tmp_path_factory.mktemp("gemv")))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=[c.label for c in CASES])
def test_case(compiled: Compiled, index: int, order: int) -> None:
    check(compiled, index, CASES[index], order)


@pytest.mark.parametrize("operand", [F16, F32, F64, I8])
def test_space_is_legal_and_small(operand: object) -> None:
    for target in TARGETS.values():
        found = matmul_gemv.space(target, Traits(operand, operand))  # type: ignore[arg-type]
        assert 20 <= len(found) <= 200
        assert len({str(s) for s in found}) == len(found)


def test_ranked_as_measured() -> None:
    """On an H200: for one row it must be first; for 128 x 768 x 768 in float32, 8.3 us against 13.3 for the tiled template."""
    gpu, traits = TARGETS["sm_90a"], Traits(F32, F32)

    def best(template: object, m: int, n: int, k: int) -> float:
        a, b, y = Tensor("a", F32, (m, k)), Tensor("b", F32, (k, n)), Tensor("y", F32, (m, n))
        task = MatMul().task((a, b), (y,))
        return min(template.estimate(task, s, gpu, {}) for s in template.space(gpu, traits))  # type: ignore[attr-defined]

    assert best(matmul_gemv, 1, 1000, 2048) < best(matmul_simt, 1, 1000, 2048)
    assert best(matmul_gemv, 128, 768, 768) < best(matmul_simt, 128, 768, 768)


def test_left_to_others_where_they_are_faster() -> None:
    """Many rows of halves belong on tensor cores, and a window's index is not computed for each element of each row."""
    gpu, s = TARGETS["sm_90a"], matmul_gemv.space(TARGETS["sm_90a"], Traits(F32, F32))[0]

    def seconds(task: Task) -> float:
        return matmul_gemv.estimate(task, s, gpu, {})

    def product(m: int, dtype: DType) -> Task:
        a, b, y = Tensor("a", dtype, (m, 64)), Tensor("b", dtype, (64, 32)), Tensor("y", dtype, (m, 32))
        return MatMul().task((a, b), (y,))

    def convolution(size: int) -> Task:
        x, w, y = Tensor("x", F32, (1, 9, 9, 8)), Tensor("w", F32, (size, size, 8, 32)), Tensor("y", F32, (1, 10 - size, 10 - size, 32))
        return Conv((1, 1), (0, 0, 0, 0), (1, 1), channels_last=True).task((x, w), (y,))

    assert isfinite(seconds(product(16, F16))) and isinf(seconds(product(17, F16))) and isfinite(seconds(product(17, F32)))
    assert isfinite(seconds(convolution(1))) and isinf(seconds(convolution(3)))
