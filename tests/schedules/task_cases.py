"""Runs tasks on the `host` machine through a template and compares them with their NumPy meaning in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from taskc.codegen.emit import emit
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host
from taskc.fuse.stitch import stitch
from taskc.ir.convert import values_of
from taskc.ir.dtype import DType
from taskc.ir.evaluation import evaluate
from taskc.ir.graph import Array
from taskc.ir.interpret import evaluate_task
from taskc.ir.program import Program
from taskc.ir.task import Task, inputs, outputs
from taskc.ir.verify import verify
from taskc.targets import TARGETS


@dataclass(frozen=True)
class Case:
    """A task under a schedule, at one or more (symbols, stored arrays by tensor name)."""

    task: Task
    schedule: Any
    points: Sequence[tuple[Mapping[str, int], Mapping[str, Array]]]
    tolerance: float = 0.0  # 0: what the output's type allows
    label: str = ""
    exact: bool = field(default=False)


TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 4e-6, "f64": 1e-13}


def program(template: ModuleType, case: Case, name: str) -> Program:
    """The stitched program, verified."""
    reason = template.why_not(case.task, TARGETS["host"])
    assert reason is None, reason
    p = stitch(template.build(case.task, case.schedule, TARGETS["host"], name), case.task)
    verify(p)
    return p


def run(template: ModuleType, cases: Sequence[Case], folder: Path, seeds: Sequence[int] = (0, 7)) -> None:
    """Compiles every case into one library and checks each at every point, in each order of threads and blocks."""
    programs = {f"k{i}": program(template, c, f"k{i}") for i, c in enumerate(cases)}
    compile_host({n: emit(p) for n, p in programs.items()}, folder / "kernels.so")
    library = HostLibrary(folder / "kernels.so")
    for case, (name, p) in zip(cases, programs.items(), strict=True):
        for symbols, arrays in case.points:
            want = evaluate_task(case.task, arrays, symbols, np.float64)
            for seed in seeds:
                library.set_order(seed)
                got = launch(library, name, p, case.task, arrays, symbols)
                for t in outputs(case.task):
                    check(case, t.dtype, got[t.name], want[t.name], f"{case.label} {case.schedule} {dict(symbols)} {t.name} order {seed}")
    library.set_order(0)


def launch(library: HostLibrary, name: str, p: Program, task: Task, arrays: Mapping[str, Array],
           symbols: Mapping[str, int]) -> dict[str, Array]:
    """One launch; every tensor ends at an unreadable page, outputs and scratch start as NaN, counters must return to zero."""
    mine: dict[str, Array] = {t.name: library.guarded(np.ascontiguousarray(arrays[t.name]), 16 if t.dtype.bytes < 16 else 1)
                              for t in inputs(task)}
    out = {t.name: library.guarded(poison(t.dtype, tuple(evaluate(d, symbols) for d in t.shape)), 16) for t in outputs(task)}
    mine.update(out)
    work = [np.zeros(evaluate(w.elements, symbols), w.dtype.numpy) if w.kind == "counter"
            else poison(w.dtype, (evaluate(w.elements, symbols),)) for w in p.workspaces]
    args = [*(mine[t.name] for t in p.tensors), *work, *(symbols[s.name] for s in p.symbols)]
    grid = [evaluate(g, symbols) for g in p.grid]
    library.launch(name, args, grid, p.threads, p.shared_bytes)
    for w, a in zip(p.workspaces, work, strict=True):
        assert w.kind != "counter" or not a.any(), f"{w.name} is not zero again"
    return out


def poison(dtype: DType, shape: tuple[int, ...]) -> Array:
    """NaN, or a value no test produces."""
    if dtype.name == "bf16":
        return np.full(shape, 0x7FFF, np.uint16)
    if dtype.is_float:
        return np.full(shape, np.nan, dtype.numpy)
    return np.full(shape, True if dtype.kind == "bool" else 77, dtype.numpy)


def check(case: Case, dtype: DType, got: Array, want: Array, what: str) -> None:
    if not dtype.is_float or case.exact:
        np.testing.assert_array_equal(values_of(got, dtype), want.astype(dtype.numpy) if dtype.is_float else want, err_msg=what)
        return
    found = np.asarray(values_of(got, dtype), np.float64)
    with np.errstate(over="ignore"):
        want = np.asarray(want.astype(dtype.numpy), np.float64) if dtype.name in ("f16", "f32") else np.asarray(want)
    tolerance = case.tolerance or TOLERANCE[dtype.name]
    finite = want[np.isfinite(want)]
    scale = float(np.max(np.abs(finite))) if finite.size else 1.0
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance * max(scale, 1e-30) * 0.25, err_msg=what)
