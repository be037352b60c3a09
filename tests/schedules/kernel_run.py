"""One task under one schedule on `host`, against what an operator's reference says in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from taskc.codegen.host_library import HostLibrary
from taskc.ir.dtype import from_numpy
from taskc.ir.graph import Array, Op, TensorType
from taskc.ir.task import Task
from taskc.ir.value import Tensor
from taskc.targets import TARGETS
from tests.host_kernels import ORDERS, HostKernel, build_library, make_kernel, run_kernel

__all__ = ["ORDERS", "Array", "Case", "Compiled", "check", "compile_cases", "launch", "operator_case"]


@dataclass(frozen=True)
class Case:
    """A task under a schedule, its inputs by tensor name, what its outputs must be, and the values of symbolic dims."""

    label: str
    template: ModuleType
    schedule: Any
    task: Task
    arrays: Mapping[str, Array]
    expected: Mapping[str, Array]
    tolerance: float  # of the largest expected value
    sizes: Mapping[str, int] = field(default_factory=dict)


def operator_case(template: ModuleType, schedule: Any, op: Op, arrays: Sequence[Array], tolerance: float, label: str) -> Case:
    """An operator's own task against its reference in float64 (integers: in their own type)."""
    tensors: list[Tensor] = []
    for i, a in enumerate(arrays):
        dtype = from_numpy(a.dtype)
        assert dtype is not None, a.dtype
        tensors.append(Tensor(f"x{i}", dtype, a.shape))
    kind = op.infer([TensorType(t.dtype, t.shape) for t in tensors])[0]
    y = Tensor("y", kind.dtype, kind.shape)
    expected = op.reference(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays))[0]
    named = {t.name: a for t, a in zip(tensors, arrays, strict=True)}
    return Case(label, template, schedule, op.task(tensors, [y]), named, {"y": expected}, tolerance)


@dataclass(frozen=True)
class Compiled:
    """The kernels of cases, in their order."""

    kernels: list[HostKernel]
    library: HostLibrary


def compile_cases(cases: Sequence[Case], folder: Path) -> Compiled:
    kernels: list[HostKernel] = []
    for i, c in enumerate(cases):
        reason = c.template.why_not(c.task, TARGETS["host"])
        assert reason is None, f"{c.label}: {reason}"
        kernels.append(make_kernel(c.task, c.template, c.schedule, f"kernel_{i}"))
    return Compiled(kernels, build_library({k.name: k.text for k in kernels}, folder))


def launch(compiled: Compiled, index: int, case: Case, order: int) -> dict[str, Array]:
    """The case's outputs; arrays are guarded, and poisoned where nothing has been written."""
    p = compiled.kernels[index].program
    values = dict(case.arrays)
    run_kernel(compiled.library, p, values, case.sizes, order)
    return {name: values[name] for name in p.written}


def check(compiled: Compiled, index: int, case: Case, order: int) -> None:
    """The outputs against what is expected: largest error relative to the largest value; integers exactly."""
    for name, got in launch(compiled, index, case, order).items():
        want = case.expected[name]
        assert got.shape == want.shape
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        finite = np.isfinite(want)
        np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, want))  # infinities and NaN where they belong
        error = np.max(np.abs(np.where(finite, got, 0).astype(np.float64) - np.where(finite, want, 0)), initial=0)
        scale = np.max(np.abs(np.where(finite, want, 0)), initial=0)
        assert error <= case.tolerance * max(scale, 1e-30), f"error {error} of {scale}"
