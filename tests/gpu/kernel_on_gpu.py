"""One task under one schedule on the GPU: compiled by NVRTC, outputs and scratch poisoned, against its NumPy meaning in float64."""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cuda.bindings import driver

from bench.machines import check as driver_check
from bench.machines import load_function
from bench.report import target_here
from taskc.codegen.emit import emit
from taskc.codegen.nvrtc import compile_cuda
from taskc.fuse.stitch import stitch
from taskc.ir.dtype import F16, F32, F64, DType
from taskc.ir.evaluation import evaluate
from taskc.ir.graph import Array
from taskc.ir.interpret import evaluate_task
from taskc.ir.program import Program
from taskc.ir.task import Task, inputs, outputs
from taskc.schedules import Template
from taskc.targets import TARGETS

GUARD = 256  # bytes behind every output that must stay as they were
TOLERANCE = {F16: 2e-3, F32: 4e-6, F64: 1e-13}  # relative to the largest value: a rounding, and sums in another order


@dataclass(frozen=True)
class Case:
    """A task under a schedule, its inputs by tensor name, and the values of its symbols."""

    task: Task
    schedule: Any
    arrays: Mapping[str, Array]
    tolerance: float = 0.0  # 0: what the output's type allows
    label: str = ""
    symbols: Mapping[str, int] = field(default_factory=dict)


def run_on_gpu(template: Template, case: Case, name: str) -> None:
    """Compiles the case for the GPU present and checks it, twice: the second result must equal the first."""
    target = TARGETS[target_here()]
    program = stitch(template.build(case.task, case.schedule, target, name), case.task)
    program.pdl = False  # launched alone
    compiled = compile_cuda(emit(program), target.architecture.name, name)
    function = load_function(compiled.cubin, name, program.shared_bytes)
    want = evaluate_task(case.task, case.arrays, case.symbols, np.float64)
    first = _launch(function, program, case)
    again = _launch(function, program, case)
    for t in outputs(case.task):
        what = f"{case.label} {case.schedule} {t.name}"
        check(first[t.name], want[t.name], case.tolerance or TOLERANCE[t.dtype], what)
        assert first[t.name].tobytes() == again[t.name].tobytes(), f"{what}: two runs differ"


def check(got: Array, want: Array, tolerance: float, what: str) -> None:
    """The largest error, in units of the largest value."""
    error = np.max(np.abs(got.astype(np.float64) - want))
    scale = np.max(np.abs(want))
    assert scale > 0
    assert error <= tolerance * scale, f"{what}: error {error} of {scale}"  # NaN is not below anything


def blank(shape: tuple[int, ...], dtype: DType) -> Array:
    """0xFF bytes: NaN for floats."""
    return np.full(int(np.prod(shape)) * dtype.bytes, 0xFF, np.uint8).view(dtype.numpy).reshape(shape)


def _launch(function: Any, program: Program, case: Case) -> dict[str, Array]:
    import torch  # skipped without it

    symbols = case.symbols

    def on_gpu(a: Array) -> Any:
        return torch.frombuffer(bytearray(np.ascontiguousarray(a).tobytes() + b"\xff" * GUARD), dtype=torch.uint8).cuda()

    unwritten = {t.name: blank(tuple(evaluate(d, symbols) for d in t.shape), t.dtype) for t in outputs(case.task)}
    memory = {t.name: on_gpu(case.arrays[t.name]) for t in inputs(case.task)} | {name: on_gpu(a) for name, a in unwritten.items()}
    sizes = [(evaluate(w.elements, symbols),) for w in program.workspaces]
    starts = [
        np.zeros(n, w.dtype.numpy) if w.kind == "counter" else blank(n, w.dtype) for w, n in zip(program.workspaces, sizes, strict=True)
    ]
    work = [on_gpu(a) for a in starts]
    pointers = [*(memory[t.name] for t in program.tensors), *work]
    values = tuple([p.data_ptr() for p in pointers] + [symbols[s.name] for s in program.symbols])
    types = tuple([ctypes.c_void_p] * len(pointers) + [ctypes.c_int32] * len(program.symbols))
    grid = [evaluate(g, symbols) for g in program.grid]
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    driver_check(driver.cuLaunchKernel(function, *grid, program.threads, 1, 1, program.shared_bytes, stream, (values, types), 0))
    torch.cuda.synchronize()
    for w, m in zip(program.workspaces, work, strict=True):
        assert w.kind != "counter" or not m[:-GUARD].any(), f"{w.name} is not zero again"
    found: dict[str, Array] = {}
    for name, a in unwritten.items():
        raw = memory[name].cpu().numpy()
        assert (raw[a.nbytes :] == 0xFF).all(), f"{name}: a store past its end"
        found[name] = raw[: a.nbytes].copy().view(a.dtype).reshape(a.shape)
    return found
