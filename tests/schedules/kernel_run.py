"""Runs one task under one schedule on `host`: guarded inputs, outputs and scratch poisoned, in ascending and in shuffled order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from taskc.codegen.emit import emit
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host
from taskc.fuse.stitch import stitch
from taskc.ir.dtype import from_numpy
from taskc.ir.expr import Index, evaluate
from taskc.ir.graph import Op, TensorType
from taskc.ir.program import Program
from taskc.ir.task import Task
from taskc.ir.value import Tensor
from taskc.targets import TARGETS

Array = npt.NDArray[Any]
HOST = TARGETS["host"]
SHUFFLED = 5


@dataclass(frozen=True)
class Case:
    """A task under a schedule, its inputs by tensor name, what its outputs must be, and the values of symbolic dims."""

    label: str
    template: ModuleType
    schedule: Any
    task: Task
    arrays: Mapping[str, Array]
    expected: Mapping[str, Array]
    tolerance: float
    sizes: Mapping[str, int] = field(default_factory=dict)


def operator_case(template: ModuleType, schedule: Any, op: Op, arrays: Sequence[Array], tolerance: float, label: str) -> Case:
    """An operator's own task against its reference in float64 (integers: in their own type)."""
    tensors = [Tensor(f"x{i}", from_numpy(a.dtype) or _unknown(a), a.shape) for i, a in enumerate(arrays)]
    kind = op.infer([TensorType(t.dtype, t.shape) for t in tensors])[0]
    y = Tensor("y", kind.dtype, kind.shape)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    expected = op.reference(*wide)[0]
    task = op.task(tensors, [y])
    return Case(label, template, schedule, task, dict(zip([t.name for t in tensors], arrays, strict=True)), {"y": expected}, tolerance)


def _unknown(a: Array) -> Any:
    raise TypeError(f"no element type for {a.dtype}")


def built(case: Case, name: str) -> Program:
    reason = case.template.why_not(case.task, HOST)
    assert reason is None, reason
    return stitch(case.template.build(case.task, case.schedule, HOST, name), case.task)


@dataclass(frozen=True)
class Compiled:
    programs: list[Program]
    library: HostLibrary


def compile_cases(cases: Sequence[Case], folder: Path) -> Compiled:
    programs = [built(c, f"kernel_{i}") for i, c in enumerate(cases)]
    path = folder / "kernels.so"
    compile_host({p.name: emit(p) for p in programs}, path)
    return Compiled(programs, HostLibrary(path))


def _at(e: Index, sizes: Mapping[str, int]) -> int:
    return e if isinstance(e, int) else evaluate(e, sizes)


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.full(shape, np.nan if dtype.kind == "f" else 85, dtype)


def launch(compiled: Compiled, index: int, case: Case, order: int) -> dict[str, Array]:
    p, library = compiled.programs[index], compiled.library
    library.set_order(order)
    arrays = {name: library.guarded(a, 16) for name, a in case.arrays.items()}
    for t in p.tensors:
        if t.name in p.written:
            arrays[t.name] = library.guarded(poison(tuple(_at(d, case.sizes) for d in t.shape), t.dtype.numpy), 16)
    args: list[Any] = [arrays[t.name] for t in p.tensors]
    counters: list[Array] = []
    for w in p.workspaces:
        size = _at(w.elements, case.sizes)
        scratch = poison((size,), w.dtype.numpy) if w.kind == "scratch" else np.zeros(size, np.int32)
        args.append(library.guarded(scratch, 16))
        if w.kind == "counter":
            counters.append(args[-1])
    args += [case.sizes[s.name] for s in p.symbols]
    grid = [_at(d, case.sizes) for d in p.grid]
    library.launch(p.name, args, grid, p.threads, p.shared_bytes)
    assert all(not c.any() for c in counters), "a counter was left above zero"
    return {name: arrays[name] for name in p.written}


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
