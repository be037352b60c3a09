"""A seeded sample of every template's schedules on the GPU, at odd sizes, against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.report import target_here
from taskc.ir.dtype import F16, F32, DType, from_numpy
from taskc.ir.graph import Array, Op, TensorType
from taskc.ir.task import Contraction, Task
from taskc.ir.value import Tensor
from taskc.ops.conv import Conv
from taskc.ops.matmul import MatMul
from taskc.ops.norm import LayerNorm
from taskc.ops.reduce import Reduce
from taskc.ops.softmax import Softmax
from taskc.ops.transpose import Transpose
from taskc.schedules import Template, elementwise, matmul_gemv, matmul_mma, matmul_simt, rows, transpose
from taskc.schedules.template import traits_of
from taskc.targets import TARGETS
from tests.gpu.kernel_on_gpu import Case, run_on_gpu

SAMPLE = 10
Make = Callable[[np.random.Generator], "tuple[Op, tuple[Array, ...]]"]


def _normal(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(dtype.numpy)


def _matmul(dtype: DType, m: int, n: int, k: int) -> Make:
    return lambda rng: (MatMul(), (_normal(rng, dtype, m, k), _normal(rng, dtype, k, n)))


def _conv(dtype: DType) -> Make:
    op = Conv((2, 1), (1, 1, 1, 1), (1, 1), channels_last=True)
    return lambda rng: (op, (_normal(rng, dtype, 1, 13, 11, 24), _normal(rng, dtype, 3, 3, 24, 40)))


def _softmax(dtype: DType) -> Make:
    return lambda rng: (Softmax(1), (_normal(rng, dtype, 37, 1021),))


def _norm(dtype: DType) -> Make:
    return lambda rng: (LayerNorm(1, 1e-5), (_normal(rng, dtype, 13, 771), _normal(rng, dtype, 771), _normal(rng, dtype, 771)))


def _sum(dtype: DType) -> Make:
    return lambda rng: (Reduce("sum", (0,)), (_normal(rng, dtype, 211, 67),))


def _transpose(dtype: DType) -> Make:
    return lambda rng: (Transpose((0, 2, 1)), (_normal(rng, dtype, 3, 67, 131),))


PROBLEMS: list[tuple[str, Template, Make, str]] = [
    ("mma f16", matmul_mma, _matmul(F16, 131, 67, 97), "native"),
    ("mma f16 wide", matmul_mma, _matmul(F16, 67, 136, 1000), "native"),
    ("mma f32", matmul_mma, _matmul(F32, 131, 67, 97), "native"),
    ("mma tf32", matmul_mma, _matmul(F32, 67, 131, 100), "tf32"),
    ("mma conv", matmul_mma, _conv(F16), "native"),
    ("simt f32", matmul_simt, _matmul(F32, 131, 67, 97), "native"),
    ("simt f16", matmul_simt, _matmul(F16, 67, 136, 1000), "native"),
    ("simt conv", matmul_simt, _conv(F32), "native"),
    ("gemv f32", matmul_gemv, _matmul(F32, 1, 1003, 517), "native"),
    ("gemv f16", matmul_gemv, _matmul(F16, 1, 1000, 520), "native"),
    ("softmax f32", rows, _softmax(F32), "native"),
    ("softmax f16", rows, _softmax(F16), "native"),
    ("layer norm f16", rows, _norm(F16), "native"),
    ("sum f32", rows, _sum(F32), "native"),
    ("transpose f16", transpose, _transpose(F16), "native"),
    ("transpose f32", transpose, _transpose(F32), "native"),
    ("elementwise f16", elementwise, _transpose(F16), "native"),
]  # fmt: skip
TOLERANCE = {"tf32": 4e-3, "native": 0.0}  # relative; 0: what the output's type allows


def task_of(op: Op, arrays: tuple[Array, ...]) -> tuple[Task, dict[str, Array]]:
    tensors = [Tensor(f"x{i}", from_numpy(a.dtype) or F32, a.shape) for i, a in enumerate(arrays)]
    kind = op.infer([TensorType(t.dtype, t.shape) for t in tensors])[0]
    task = op.task(tensors, [Tensor("y", kind.dtype, kind.shape)])
    return task, {t.name: a for t, a in zip(tensors, arrays, strict=True)}


def sample(template: Template, task: Task, target: Any, seed: int) -> list[Any]:
    """Some of the space's schedules that can compute the task: those which the model cannot rank are unfit."""
    found = [s for s in template.space(target, traits_of(task)) if np.isfinite(template.estimate(task, s, target, {}))]
    rng = np.random.default_rng(seed)
    picked = rng.permutation(len(found))[:SAMPLE]
    return [found[int(i)] for i in sorted(picked)]


@pytest.mark.parametrize(("label", "template", "make", "precision"), PROBLEMS, ids=[p[0] for p in PROBLEMS])
def test_sampled_schedules(label: str, template: Template, make: Make, precision: str) -> None:
    op, arrays = make(np.random.default_rng(11))
    task, named = task_of(op, arrays)
    if isinstance(task, Contraction):
        task = replace(task, precision=precision)
    target = TARGETS[target_here()]
    assert template.why_not(task, target) is None
    schedules = sample(template, task, target, 7)
    assert len(schedules) > 3
    for i, s in enumerate(schedules):
        case = Case(task, s, named, TOLERANCE[precision], label)
        run_on_gpu(template, case, f"sweep_{label.replace(' ', '_')}_{i}")
