"""Operands of the tensor-core matmul in every order of memory, and the accuracy of products of split float32 numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taskc.ir.dtype import BF16, F16, F32
from taskc.ir.expr import Var
from taskc.ir.value import Tensor
from taskc.ops.conv import Conv
from taskc.ops.matmul import MatMul
from taskc.schedules import matmul_mma
from taskc.schedules.matmul_mma import Schedule
from taskc.schedules.template import Traits
from taskc.targets import TARGETS
from tests.schedules.kernel_run import ORDERS, Array, Case, Compiled, check, compile_cases, launch, operator_case

SMALL = Schedule(32, 32, 32, 16, 16, 3, "async")
TILES = (SMALL, Schedule(64, 64, 32, 32, 32, 2, "register"), Schedule(16, 64, 32, 16, 16, 4, "async", 4))


def random(seed: int, *shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _symbolic(m: int, k: int) -> Case:
    rows, depth = Var("rows", 1), Var("depth", 1)
    a, b, y = Tensor("a", F16, (rows, depth)), Tensor("b", F16, (24, depth)), Tensor("y", F16, (rows, 24))
    arrays = {"a": random(1, m, k, dtype="float16"), "b": random(2, 24, k, dtype="float16")}
    want = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64).T
    task = MatMul(transpose_b=True).task((a, b), (y,))
    return Case(f"symbolic {m} {k}", matmul_mma, TILES[2], task, arrays, {"y": want}, 1e-3, {"rows": m, "depth": k})


def _cases() -> list[Case]:
    out: list[Case] = []

    def add(schedule: Schedule, label: str, op: MatMul | Conv, *arrays: Array) -> None:
        for dtype, tolerance in (("float16", 1e-3), ("float32", 1e-6)):
            given = [a.astype(dtype) for a in arrays]
            out.append(operator_case(matmul_mma, schedule, op, given, tolerance, f"{label} {dtype} {schedule}"))

    for s in TILES:
        add(s, "primes", MatMul(), random(3, 37, 29), random(4, 29, 53))
        add(s, "b k together", MatMul(transpose_b=True), random(5, 2, s.bm + 1, 72), random(6, s.bn + 1, 72))
        add(s, "a m together", MatMul(transpose_a=True), random(7, 72, s.bm + 8), random(8, 72, 40))
        add(s, "both", MatMul(transpose_a=True, transpose_b=True), random(9, 33, 17), random(10, 19, 33))
    add(SMALL, "one by one", MatMul(), random(11, 1, 1), random(12, 1, 1))
    add(SMALL, "conv 1x1", Conv((1, 1), (0, 0, 0, 0), (1, 1)), random(13, 2, 16, 4, 8), random(14, 24, 16, 1, 1))
    add(TILES[1], "conv", Conv((2, 1), (1, 0, 2, 1), (1, 2)), random(15, 2, 3, 9, 11), random(16, 5, 3, 3, 2))
    add(TILES[2], "conv nhwc", Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=True), random(17, 1, 7, 5, 8), random(18, 3, 3, 8, 16))
    infinite = random(19, 20, 24)
    infinite[3, 5], infinite[7, 0], infinite[7, 1], infinite[9, 2] = np.inf, np.inf, -np.inf, np.nan
    infinite[11, 3] = 3.4028e38  # rounding to TF32 must not make it infinite
    weights = np.abs(random(20, 24, 20))
    weights[3] = 0.25
    with np.errstate(invalid="ignore"):
        out.append(operator_case(matmul_mma, SMALL, MatMul(), (infinite, weights), 1e-6, "infinities"))
    loose = operator_case(matmul_mma, SMALL, MatMul(), (random(21, 33, 70), random(22, 70, 34)), 2e-3, "tf32")
    out.append(replace(loose, task=replace(loose.task, precision="tf32")))
    return [*out, _symbolic(33, 40), _symbolic(5, 133)]


CASES = _cases()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_cases(CASES, Path(tmp_path_factory.mktemp("mma")))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=[c.label for c in CASES])
def test_case(compiled: Compiled, index: int, order: int) -> None:
    check(compiled, index, CASES[index], order)


def _chain(a: Array, b: Array) -> Array:
    """float32 sums in the order of k, one rounding a step, as fused multiply-adds give them."""
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        out = (a[:, k, None].astype(np.float64) * b[None, k].astype(np.float64) + out).astype(np.float32)
    return out


@pytest.mark.parametrize("positive", [False, True])
def test_split_products_are_float32_accurate(tmp_path: Path, positive: bool) -> None:
    cases: list[Case] = []
    for k in (16, 96, 1024, 4096):
        a, b = random(k, 32, k), random(k + 1, k, 32)
        cases.append(operator_case(matmul_mma, SMALL, MatMul(), (np.abs(a), np.abs(b)) if positive else (a, b), 1, f"{k}"))
    compiled = compile_cases(cases, tmp_path)
    for i, case in enumerate(cases):
        want = case.expected["y"]
        error = launch(compiled, i, case, 0)["y"] - want
        chain = _chain(*case.arrays.values()) - want
        assert np.sqrt(np.mean(error**2)) <= 2 * np.sqrt(np.mean(chain**2)), case.label
        assert np.max(np.abs(error)) <= 2 * np.max(np.abs(chain)), case.label


def test_tf32_only_when_asked(tmp_path: Path) -> None:
    """The same task is a thousand times less accurate with precision 'tf32': neither is the other by mistake."""
    native = operator_case(matmul_mma, SMALL, MatMul(), (random(25, 32, 64), random(26, 64, 32)), 1, "native")
    cases = [native, replace(native, task=replace(native.task, precision="tf32"))]
    compiled = compile_cases(cases, tmp_path)
    errors = [np.max(np.abs(launch(compiled, i, c, 0)["y"] - c.expected["y"])) for i, c in enumerate(cases)]
    assert errors[0] * 200 < errors[1]


@pytest.mark.parametrize(("operand", "precision"), [(F16, "native"), (BF16, "native"), (F32, "native"), (F32, "tf32")])
def test_space_is_legal_and_small(operand: object, precision: str) -> None:
    for target in TARGETS.values():
        found = matmul_mma.space(target, Traits(operand, operand, precision))  # type: ignore[arg-type]
        assert 20 <= len(found) <= 200
        assert len({str(s) for s in found}) == len(found)
