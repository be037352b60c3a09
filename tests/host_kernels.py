"""Kernels on the `host` machine in tests: many in one library, run with guard pages, NaN around and in every buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taskc.codegen.device import INCLUDE
from taskc.codegen.emit import emit_kernel
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host
from taskc.fuse.stitch import stitch
from taskc.ir.dtype import DType
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index
from taskc.ir.graph import Array
from taskc.ir.program import Program
from taskc.ir.task import Task
from taskc.targets import TARGETS

ORDERS = (0, 5)  # ascending, and one shuffled
_LEAD = 256  # bytes of NaN in front of every tensor


@dataclass(frozen=True)
class HostKernel:
    """A stitched program and its text (without the include line)."""

    program: Program
    text: str

    @property
    def name(self) -> str:
        return self.program.name


def make_kernel(task: Task, template: Any, schedule: Any, name: str) -> HostKernel:
    program = stitch(template.build(task, schedule, TARGETS["host"], name), task)
    return HostKernel(program, emit_kernel(program))


def build_library(texts: Mapping[str, str], folder: Path, files: int = 2) -> HostLibrary:
    """All kernels in one library, a few to a file, since a compiler's start costs more than a kernel."""
    names = sorted(texts)
    parts = {f"part{k}": INCLUDE + "\n" + "\n".join(texts[n] for n in names[k::files]) for k in range(files) if names[k::files]}
    path = folder / "kernels.so"
    compile_host(parts, path, opt="-O1")
    return HostLibrary(path)


def surrounded(library: HostLibrary, array: Array) -> tuple[Array, Array]:
    """(the bytes in front, a copy of the array): 0xFF bytes (NaN in every float type) before it, an unreadable page after it."""
    flat = library.guarded(np.full(_LEAD + array.nbytes, 255, np.uint8), align=16)
    inner = flat[_LEAD:].view(array.dtype).reshape(array.shape) if array.nbytes else array
    inner[...] = array
    return flat[:_LEAD], inner


def run_kernel(library: HostLibrary, program: Program, values: dict[str, Array], symbols: Mapping[str, int], order: int = 0) -> None:
    """Launches the program on `values` by tensor name, adds what it writes, and checks what lies around the tensors."""

    def number(e: Index) -> int:
        return evaluate(e, symbols)

    fronts: list[Array] = []
    args: list[Any] = []
    for t in program.tensors:
        given = values.get(t.name)
        if given is None:
            given = unwritten([number(d) for d in t.shape], t.dtype)
        if t.name not in values or t.name not in program.written:
            front, given = surrounded(library, given)
            fronts.append(front)
        values[t.name] = given
        args.append(given)
    work: list[Array] = []
    for w in program.workspaces:
        n = number(w.elements)
        work.append(library.guarded(np.zeros(n, np.int32) if w.kind == "counter" else unwritten([n], w.dtype), align=16))
    scalars = [np.int32(symbols[s.name]) for s in program.symbols]
    library.set_order(order)
    grid = [number(x) for x in program.grid]
    if all(grid):
        library.launch(program.name, [*args, *work, *scalars], grid, program.threads, program.shared_bytes, cores=1)
    assert all((f == 255).all() for f in fronts), f"{program.name} wrote in front of a tensor"
    for w, a in zip(program.workspaces, work, strict=True):
        assert w.kind != "counter" or not a.any(), f"{w.name} is not zero after the launch"


def unwritten(shape: Sequence[int], dtype: DType) -> Array:
    """An array of 0xFF bytes: NaN for floats."""
    return np.full(int(np.prod(shape)) * dtype.bytes, 255, np.uint8).view(dtype.numpy).reshape(tuple(shape))
