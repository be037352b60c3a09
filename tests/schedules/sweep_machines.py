"""Where cases of the sweep run: `host`, many kernels a library, or a GPU, kernel by kernel. Everything around the inputs starts as NaN.

Both launch every kernel twice at every point; the results must be the same bit by bit.
"""

# pyright: basic
# (cuda-bindings has no complete types)

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from cuda.bindings import driver

from taskc.codegen.device import INCLUDE
from taskc.codegen.host_library import HostFault, HostLibrary
from taskc.codegen.nvrtc import compile_cuda
from taskc.errors import TaskcError
from taskc.ir.evaluation import evaluate
from taskc.ir.graph import Array
from taskc.ir.program import Program
from taskc.ir.task import outputs
from taskc.targets import TARGETS, Target
from tests.host_kernels import ORDERS, build_library, run_kernel
from tests.schedules.sweep import Case, Point, data_of, points_of, program_of, text_of, why_wrong

GUARD = 256  # bytes of NaN before and behind every tensor


# ---- host ----------------------------------------------------------------------------------------------------------------


def run_on_host(cases: Sequence[Case], folder: Path, long: bool = False) -> list[str | None]:
    """Compiles the cases into one library; for each what is wrong with it, or None."""
    programs: list[Program | str] = []
    for n, c in enumerate(cases):
        try:
            programs.append(program_of(c, TARGETS["host"], f"k{n}"))
        except (TaskcError, ValueError) as e:  # a template or stitching refuses: this case's failure
            programs.append(f"{type(e).__name__}: {e}")
    texts = {p.name: text_of(p) for p in programs if isinstance(p, Program)}
    library = build_library(texts, folder, files=1) if texts else None
    return [p if isinstance(p, str) else _checked_on_host(c, p, library, long) for c, p in zip(cases, programs, strict=True)]


def _checked_on_host(case: Case, program: Program, library: HostLibrary | None, long: bool) -> str | None:
    assert library is not None
    for point in points_of(case, long):
        results: list[dict[str, Array]] = []
        for order in ORDERS:
            values = dict(data_of(case.subject.label, point)[0])
            try:
                run_kernel(library, program, values, dict(point.sizes), order)
            except (HostFault, AssertionError) as e:
                return f"at {point}, order {order}: {e}"
            results.append({t.name: values[t.name] for t in outputs(case.subject.task)})
        reason = why_wrong(case, point, results[0]) or _unequal(results, point)
        if reason is not None:
            return reason
    library.set_order(0)
    return early_stores(case, program, library)


def _unequal(results: Sequence[Mapping[str, Array]], point: Point) -> str | None:
    for name, first in results[0].items():
        if any(first.tobytes() != r[name].tobytes() for r in results[1:]):
            return f"{name} at {point}: two runs differ"
    return None


# ---- one block of memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where each tensor and workspace of a launch lies in one block of memory, in bytes; all around it is 0xFF, NaN in every float type."""

    places: Mapping[str, tuple[int, int]]  # name -> (start, bytes)
    size: int


def layout_of(program: Program, symbols: Mapping[str, int]) -> Layout:
    places: dict[str, tuple[int, int]] = {}
    at = GUARD
    sized = [(t.name, t.dtype.bytes * int(np.prod([evaluate(d, symbols) for d in t.shape], dtype=np.int64))) for t in program.tensors]
    sized += [(w.name, w.dtype.bytes * evaluate(w.elements, symbols)) for w in program.workspaces]
    for name, size in sized:
        places[name] = at, size
        at += -(-size // 256) * 256 + GUARD
    return Layout(places, at)


def filled(program: Program, layout: Layout, given: Mapping[str, Array]) -> Array:
    """The block before a launch: inputs, zeros in counters, and NaN in everything else."""
    image = np.full(layout.size, 0xFF, np.uint8)
    for name, (start, size) in layout.places.items():
        if name in given:
            image[start : start + size] = np.frombuffer(np.ascontiguousarray(given[name]).tobytes(), np.uint8)
    for w in program.workspaces:
        start, size = layout.places[w.name]
        if w.kind == "counter":
            image[start : start + size] = 0
    return image


def stray(program: Program, layout: Layout, before: Array, after: Array) -> str | None:
    """What a launch changed that it must not: anything but its outputs and its scratch memory."""
    mine = np.zeros(layout.size, bool)
    for name in [*program.written, *(w.name for w in program.workspaces if w.kind != "counter")]:
        start, size = layout.places[name]
        mine[start : start + size] = True
    changed = np.flatnonzero((before != after) & ~mine)
    if not changed.size:
        return None
    at = int(changed[0])
    near = min(layout.places, key=lambda n: abs(at - layout.places[n][0]))
    return f"{changed.size} bytes changed outside of the outputs, the first {at - layout.places[near][0]} bytes from the start of {near}"


class Memory(Protocol):
    """Launches on one block of memory: uploads it, launches, and returns what is there then."""

    def launch(self, program: Program, image: Array, offsets: Sequence[int], scalars: Sequence[int], grid: Sequence[int]) -> Array: ...


def checked_in_memory(case: Case, program: Program, memory: Memory, long: bool) -> str | None:
    """Runs the case at its points in one block of memory; what is wrong, or None."""
    for point in points_of(case, long):
        symbols = dict(point.sizes)
        layout = layout_of(program, symbols)
        before = filled(program, layout, data_of(case.subject.label, point)[0])
        offsets = [layout.places[t.name][0] for t in program.tensors] + [layout.places[w.name][0] for w in program.workspaces]
        scalars, grid = [symbols[s.name] for s in program.symbols], [evaluate(g, symbols) for g in program.grid]
        results: list[dict[str, Array]] = []
        for _ in range(2):
            after = memory.launch(program, before, offsets, scalars, grid)
            reason = stray(program, layout, before, after)
            if reason is not None:
                return f"at {point}: {reason}"
            results.append({t.name: _part(after, layout, t.name).view(t.dtype.numpy).reshape([evaluate(d, symbols) for d in t.shape])
                            for t in outputs(case.subject.task)})
        reason = why_wrong(case, point, results[0]) or _unequal(results, point)
        if reason is not None:
            return reason
    return None


def _part(image: Array, layout: Layout, name: str) -> Array:
    start, size = layout.places[name]
    return image[start : start + size].copy()


class HostMemory:
    """The same block of memory on `host`: what the GPU's path does, without a GPU."""

    def __init__(self, library: HostLibrary) -> None:
        self.library = library

    def launch(self, program: Program, image: Array, offsets: Sequence[int], scalars: Sequence[int], grid: Sequence[int]) -> Array:
        here = self.library.guarded(image, 256)
        pointers = [here[o:] for o in offsets]
        self.library.launch(program.name, [*pointers, *(np.int32(s) for s in scalars)], grid, program.threads, program.shared_bytes, cores=1)
        return here.copy()


def early_stores(case: Case, program: Program, library: HostLibrary) -> str | None:
    """What is wrong where blocks share sums: without the grid's last block, the tile that lacks it must not be stored.

    Results alone cannot show this on `host`, where the last block stores last."""
    if not any(w.kind == "counter" for w in program.workspaces):
        return None
    point = points_of(case, False)[1]
    symbols = dict(point.sizes)
    layout = layout_of(program, symbols)
    grid = [evaluate(g, symbols) for g in program.grid]
    offsets = [layout.places[t.name][0] for t in program.tensors] + [layout.places[w.name][0] for w in program.workspaces]
    before = filled(program, layout, data_of(case.subject.label, point)[0])
    for w in program.workspaces:  # sums of what has not come are numbers then, which cannot be mistaken for what was never written
        start, size = layout.places[w.name]
        before[start : start + size] = 0
    grid[1 if grid[1] > 1 else 0] -= 1
    after = HostMemory(library).launch(program, before, offsets, [symbols[s.name] for s in program.symbols], grid)
    for name in program.written:
        if not np.any((_part(after, layout, name) == 0xFF).reshape(-1, _element(program, name)).all(axis=1)):
            return f"{name} at {point}: stored before the last block has come"
    return None


def _element(program: Program, name: str) -> int:
    return next(t.dtype.bytes for t in program.tensors if t.name == name)


# ---- GPU -----------------------------------------------------------------------------------------------------------------


def ask(result: tuple[Any, ...]) -> Any:
    """A driver call's result, or RuntimeError with the driver's name for what went wrong."""
    status, *values = result
    if int(status):
        raise RuntimeError(f"CUDA driver: {status.name}")
    return values[0] if values else None


class Gpu:
    """The first GPU. After a RuntimeError its context may be lost, and with it this process's use of the GPU."""

    def __init__(self) -> None:
        ask(driver.cuInit(0))
        device = ask(driver.cuDeviceGet(0))
        ask(driver.cuCtxSetCurrent(ask(driver.cuDevicePrimaryCtxRetain(device))))
        self._memory, self._size = 0, 0
        self._module: Any = None
        self._function: Any = None

    def load(self, cubin: bytes, program: Program) -> None:
        """Makes this the kernel that launches run."""
        if self._module is not None:
            ask(driver.cuModuleUnload(self._module))
            self._module = None
        self._module = ask(driver.cuModuleLoadData(cubin + b"\0"))
        self._function = ask(driver.cuModuleGetFunction(self._module, program.name.encode()))
        what = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ask(driver.cuFuncSetAttribute(self._function, what, program.shared_bytes))

    def launch(self, program: Program, image: Array, offsets: Sequence[int], scalars: Sequence[int], grid: Sequence[int]) -> Array:
        if image.nbytes > self._size:
            if self._memory:
                ask(driver.cuMemFree(self._memory))
            self._size = max(2 * image.nbytes, 1 << 24)
            self._memory = int(ask(driver.cuMemAlloc(self._size)))
        image = np.ascontiguousarray(image)
        ask(driver.cuMemcpyHtoD(self._memory, image.ctypes.data, image.nbytes))
        values = tuple([self._memory + o for o in offsets] + list(scalars))
        types = tuple([ctypes.c_void_p] * len(offsets) + [ctypes.c_int32] * len(scalars))
        ask(driver.cuLaunchKernel(self._function, *grid, program.threads, 1, 1, program.shared_bytes, 0, (values, types), 0))
        ask(driver.cuCtxSynchronize())
        after = np.empty_like(image)
        ask(driver.cuMemcpyDtoH(after.ctypes.data, self._memory, after.nbytes))
        return after


def compiled_for(case: Case, target: Target, name: str) -> tuple[Program, bytes]:
    """The program and its machine code."""
    program = program_of(case, target, name)
    return program, compile_cuda(INCLUDE + "\n" + text_of(program), target.architecture.name, name).cubin


def run_on_gpu(case: Case, target: Target, gpu: Gpu) -> str | None:
    """What is wrong with the case, or None. RuntimeError: the driver's, and the context may be lost."""
    try:
        program, cubin = compiled_for(case, target, "k")
    except (TaskcError, ValueError) as e:  # a template, stitching or NVRTC refuses: this case's failure
        return f"{type(e).__name__}: {e}"[:600]
    gpu.load(cubin, program)
    return checked_in_memory(case, program, gpu, long=True)
