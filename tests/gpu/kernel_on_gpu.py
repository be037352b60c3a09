"""One task under one schedule on the GPU: compiled by NVRTC, outputs and scratch poisoned, against its NumPy meaning in float64."""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from cuda.bindings import driver

from bench.machines import check as driver_check
from bench.machines import load_function
from bench.report import target_here
from taskc.codegen.emit import emit
from taskc.codegen.nvrtc import compile_cuda
from taskc.fuse.stitch import stitch
from taskc.ir.expr import evaluate
from taskc.ir.graph import Array
from taskc.ir.interpret import evaluate_task
from taskc.ir.task import inputs, outputs
from taskc.schedules import Template
from taskc.targets import TARGETS
from tests.schedules.running import Case, check, poison

GUARD = 256  # bytes behind every output that must stay as they were


def run_on_gpu(template: Template, case: Case, name: str) -> None:
    """Compiles the case for the GPU present and checks it at every point, twice: the second result must equal the first."""
    target = TARGETS[target_here()]
    program = stitch(template.build(case.task, case.schedule, target, name), case.task)
    program.pdl = False  # launched alone
    compiled = compile_cuda(emit(program), target.architecture.name, name)
    function = load_function(compiled.cubin, name, program.shared_bytes)
    for symbols, arrays in case.points:
        want = evaluate_task(case.task, arrays, symbols, np.float64)
        first = _launch(function, program, case, arrays, symbols)
        again = _launch(function, program, case, arrays, symbols)
        for t in outputs(case.task):
            what = f"{case.label} {case.schedule} {dict(symbols)} {t.name}"
            check(case, t.dtype, first[t.name], want[t.name], what)
            assert first[t.name].tobytes() == again[t.name].tobytes(), f"{what}: two runs differ"


def _launch(function: Any, program: Any, case: Case, arrays: Mapping[str, Array], symbols: Mapping[str, int]) -> dict[str, Array]:
    import torch

    def on_gpu(a: Array) -> Any:
        return torch.frombuffer(bytearray(np.ascontiguousarray(a).tobytes() + b"\xff" * GUARD), dtype=torch.uint8).cuda()

    blank = {t.name: poison(t.dtype, tuple(evaluate(d, symbols) for d in t.shape)) for t in outputs(case.task)}
    memory = {t.name: on_gpu(arrays[t.name]) for t in inputs(case.task)} | {name: on_gpu(a) for name, a in blank.items()}
    work = [on_gpu(np.zeros(evaluate(w.elements, symbols), w.dtype.numpy) if w.kind == "counter" else poison(w.dtype, (evaluate(w.elements, symbols),)))
            for w in program.workspaces]
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
    for name, a in blank.items():
        raw = memory[name].cpu().numpy()
        assert (raw[a.nbytes :] == 0xFF).all(), f"{name}: a store past its end"
        found[name] = raw[: a.nbytes].copy().view(a.dtype).reshape(a.shape)
    return found
