"""Kernel texts -> code images for a target: NVRTC for GPUs, the C++ compiler for `host`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from taskc.codegen.hostcc import compile_host
from taskc.codegen.nvrtc import CompileJob, compile_many
from taskc.errors import ToolchainError
from taskc.targets.target import Target

# A model that only passes values on has no kernel; its library still holds code, which says what machine it is for.
NOTHING = {"taskc_nothing": '#include "taskc_device.cuh"\nextern "C" __global__ void taskc_nothing() {}\nHOST_ENTRY(taskc_nothing)\n'}


@dataclass(frozen=True)
class KernelCode:
    """One kernel's facts from the compiler."""

    registers: int = 0
    spill_bytes: int = 0


@dataclass(frozen=True)
class CodeImage:
    """Machine code: kind 'cubin', 'ptx' or 'host'."""

    kind: str
    arch: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Compiled:
    """The images of a set of kernels and each kernel's facts, by symbol."""

    images: tuple[CodeImage, ...]
    kernels: Mapping[str, KernelCode]


def compile_kernels(texts: Mapping[str, str], target: Target, jobs: int = 0, done: Callable[[str], None] | None = None, *,
                    with_ptx: bool = False) -> Compiled:
    """Compiles every kernel (symbol -> text), `jobs` at a time (0: as many as there are CPUs), in an order that does not show.

    `with_ptx` adds PTX, which newer GPUs translate. Raises ToolchainError with the compiler's words."""
    report = done or (lambda _: None)
    texts = texts or NOTHING
    if target.is_host:
        return _host(texts, jobs, report)
    names = list(texts)
    work = [CompileJob(texts[n], target.architecture.name, n, ptx=with_ptx) for n in names]
    results = compile_many(work, jobs or os.cpu_count() or 1, lambda i, _: report(names[i]))
    images: list[CodeImage] = []
    facts: dict[str, KernelCode] = {}
    for name, r in zip(names, results, strict=True):
        if isinstance(r, ToolchainError):
            raise r
        images.append(CodeImage("cubin", target.architecture.name, r.cubin))
        if r.ptx is not None:
            images.append(CodeImage("ptx", target.architecture.name, r.ptx))
        facts[name] = KernelCode(r.registers, r.spill_bytes)
    return Compiled(tuple(images), facts)


def _host(texts: Mapping[str, str], jobs: int, report: Callable[[str], None]) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="taskc-") as folder:
        out = Path(folder, "kernels.so")
        compile_host(texts, out, jobs=jobs or None)
        for name in texts:
            report(name)
        return Compiled((CodeImage("host", "host", out.read_bytes()),), {n: KernelCode() for n in texts})
