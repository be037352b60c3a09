"""The CUDA-core matmul on `host`: every type, odd sizes, views, fused values, symbolic dims, split k."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isinf
from pathlib import Path

import numpy as np
import pytest

from taskc.ir.dtype import BF16, F16, F32, F64, I8, I32, DType
from taskc.ir.expr import Var
from taskc.ir.task import Contraction, Store, axis
from taskc.ir.value import Cast, Hole, Tensor, call
from taskc.ops.conv import Conv
from taskc.ops.matmul import MatMul
from taskc.schedules import matmul_simt
from taskc.schedules.matmul_simt import Schedule
from taskc.schedules.template import Traits
from taskc.targets import TARGETS
from tests.schedules.kernel_run import ORDERS, Array, Case, Compiled, check, compile_cases, operator_case

SMALL = Schedule(32, 32, 16, 4, 2, 3, "async")
TILES = (
    SMALL, replace(SMALL, split=4), Schedule(16, 64, 32, 2, 4, 2, "register"), Schedule(64, 64, 8, 8, 4, 2, "register", 2),
    Schedule(128, 64, 8, 8, 8, 3, "async"),
)


def random(seed: int, *shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _fused(schedule: Schedule) -> Case:
    """relu(2 a) @ b + residual, stored transposed."""
    m, n, k = 33, 21, 19
    a, b, r, y = Tensor("a", F32, (m, k)), Tensor("b", F32, (k, n)), Tensor("r", F32, (m, n)), Tensor("y", F32, (n, m))
    am, an, ak, ab = axis("m", m), axis("n", n), axis("k", k), axis("b", 1)
    doubled = call("relu", call("add", a.at(am.var, ak.var), a.at(am.var, ak.var)))
    value = call("add", Hole("acc", F32), r.at(am.var, an.var))
    task = Contraction(ab, am, an, ak, doubled, b.at(ak.var, an.var), F32, F32, (Store(y, (an.var, am.var), value),))
    arrays = {"a": random(1, m, k), "b": random(2, k, n), "r": random(3, m, n)}
    wide = {name: x.astype(np.float64) for name, x in arrays.items()}
    want = (np.maximum(2 * wide["a"], 0) @ wide["b"] + wide["r"]).T
    return Case("fused", matmul_simt, schedule, task, arrays, {"y": want}, 1e-6)


def _symbolic(schedule: Schedule, m: int, k: int) -> Case:
    rows, depth, n = Var("rows", 1), Var("depth", 1), 24
    a, b, y = Tensor("a", F32, (rows, depth)), Tensor("b", F32, (depth, n)), Tensor("y", F32, (rows, n))
    task = MatMul().task((a, b), (y,))
    arrays = {"a": random(4, m, k), "b": random(5, k, n)}
    want = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)
    return Case(f"symbolic {m} {k}", matmul_simt, schedule, task, arrays, {"y": want}, 1e-6, {"rows": m, "depth": k})


def _integers_summed_wider(schedule: Schedule) -> Case:
    """int8 products summed in int32."""
    m, n, k = 18, 35, 41
    a, b, y = Tensor("a", I8, (m, k)), Tensor("b", I8, (k, n)), Tensor("y", I32, (m, n))
    am, an, ak, ab = axis("m", m), axis("n", n), axis("k", k), axis("b", 1)
    task = Contraction(ab, am, an, ak, a.at(am.var, ak.var), b.at(ak.var, an.var), I8, I32, (Store(y, (am.var, an.var), Hole("acc", I32)),))
    rng = np.random.default_rng(6)
    arrays = {"a": rng.integers(-128, 128, (m, k), np.int8), "b": rng.integers(-128, 128, (k, n), np.int8)}
    return Case("int8 in int32", matmul_simt, schedule, task, arrays, {"y": arrays["a"].astype(np.int32) @ arrays["b"].astype(np.int32)}, 0)


def _rounded_operand(schedule: Schedule) -> Case:
    """A computed float16 operand is rounded to float16 before it is multiplied."""
    m, n, k = 17, 16, 24
    a, b, y = Tensor("a", F16, (m, k)), Tensor("b", F16, (k, n)), Tensor("y", F32, (m, n))
    am, an, ak, ab = axis("m", m), axis("n", n), axis("k", k), axis("b", 1)
    value = call("mul", a.at(am.var, ak.var), a.at(am.var, ak.var))
    task = Contraction(ab, am, an, ak, value, b.at(ak.var, an.var), F16, F32, (Store(y, (am.var, an.var), Cast(Hole("acc", F32), F32)),))
    arrays = {"a": random(7, m, k, dtype="float16"), "b": random(8, k, n, dtype="float16")}
    squared = (arrays["a"].astype(np.float32) ** 2).astype(np.float16).astype(np.float64)
    return Case("rounded operand", matmul_simt, schedule, task, arrays, {"y": squared @ arrays["b"].astype(np.float64)}, 1e-6)


def _cases() -> list[Case]:
    def op(schedule: Schedule, operator: MatMul | Conv, label: str, *arrays: Array, tolerance: float = 1e-6) -> Case:
        return operator_case(matmul_simt, schedule, operator, arrays, tolerance, f"{label} {schedule}")

    out = [op(s, MatMul(), "primes", random(11, 37, 29), random(12, 29, 53)) for s in TILES]
    for i, s in enumerate(TILES):
        shape = (s.bn + 1, 64) if i % 2 == 0 else (64, s.bn + 1)
        out.append(op(s, MatMul(transpose_b=i % 2 == 0), "one past", random(13, 2, s.bm + 1, 64), random(14, *shape)))
    out += [
        op(SMALL, MatMul(), "ones", random(15, 1, 1), random(16, 1, 1)),
        op(TILES[1], MatMul(transpose_a=True), "transposed a", random(17, 40, 36), random(18, 40, 20)),
        op(TILES[2], MatMul(), "float16", random(19, 20, 40, dtype="float16"), random(20, 40, 24, dtype="float16"), tolerance=1e-3),
        op(TILES[3], MatMul(), "float64", random(21, 33, 40, dtype="float64"), random(22, 40, 34, dtype="float64"), tolerance=1e-14),
        op(SMALL, Conv((2, 1), (1, 0, 2, 1), (1, 2)), "conv", random(23, 2, 3, 9, 11), random(24, 5, 3, 3, 2)),
        op(TILES[2], Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=True), "conv nhwc", random(25, 1, 7, 5, 8), random(26, 3, 3, 8, 16)),
        op(TILES[1], Conv((1,), (2, 2), (1,), groups=3), "groups", random(27, 2, 6, 13), random(28, 9, 2, 5)),
        _fused(SMALL), _fused(TILES[3]), _symbolic(SMALL, 33, 17), _symbolic(TILES[1], 5, 100), _integers_summed_wider(SMALL),
        _rounded_operand(SMALL), _rounded_operand(TILES[2]),
    ]
    rng = np.random.default_rng(29)
    ints = rng.integers(-1000, 1000, (19, 23)), rng.integers(-1000, 1000, (23, 31))
    out.append(op(SMALL, MatMul(), "int64", *(a.astype(np.int64) for a in ints)))
    out.append(op(SMALL, MatMul(), "uint8 wraps", *(a.astype(np.uint8) for a in ints)))
    infinite = random(30, 20, 24)
    infinite[3, 5], infinite[7, 0], infinite[7, 1], infinite[9, 2] = np.inf, np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        out.append(op(SMALL, MatMul(), "infinities", infinite, np.abs(random(31, 24, 20))))
    return out


CASES = _cases()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_cases(CASES, Path(tmp_path_factory.mktemp("simt")))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=[c.label for c in CASES])
def test_case(compiled: Compiled, index: int, order: int) -> None:
    check(compiled, index, CASES[index], order)


@pytest.mark.parametrize("operand", [F16, F32, F64, I8])
def test_space_is_legal_and_small(operand: object) -> None:
    for target in TARGETS.values():
        found = matmul_simt.space(target, Traits(operand, operand))  # type: ignore[arg-type]
        assert 20 <= len(found) <= 200
        assert len({str(s) for s in found}) == len(found)


def test_illegal_gives_a_reason() -> None:
    host = TARGETS["host"]
    assert matmul_simt.illegal(Schedule(256, 256, 8, 16, 16, 2, "register"), host) is not None
    assert matmul_simt.illegal(Schedule(128, 128, 8, 8, 8, 2, "register"), host) is None


def test_split_serves_long_sums() -> None:
    a, b, y = Tensor("a", F32, (32, 65536)), Tensor("b", F32, (65536, 32)), Tensor("y", F32, (32, 32))
    task, gpu = MatMul().task((a, b), (y,)), TARGETS["sm_90a"]
    one, many = (matmul_simt.estimate(task, replace(SMALL, split=s), gpu, {}) for s in (1, 8))
    assert many < one


def test_halves_are_left_to_tensor_cores() -> None:
    def seconds(dtype: DType) -> float:
        a, b, y = Tensor("a", dtype, (32, 64)), Tensor("b", dtype, (64, 32)), Tensor("y", dtype, (32, 32))
        return matmul_simt.estimate(MatMul().task((a, b), (y,)), SMALL, TARGETS["sm_90a"], {})

    assert isinf(seconds(F16)) and isinf(seconds(BF16)) and isfinite(seconds(F32)) and isfinite(seconds(I8))
