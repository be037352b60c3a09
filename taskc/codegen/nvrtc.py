"""Kernel text -> cubin through NVRTC, with what ptxas says of registers and spills. Needs no GPU and no CUDA toolkit.

The text's only include, taskc_device.cuh, is handed over in memory; no header of NVIDIA's is needed. Default flags keep
IEEE arithmetic: no fast-math, no flush to zero, exact division and square root.
"""
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from taskc.codegen.device import device_headers
from taskc.errors import ToolchainError

FLAGS = ('-std=c++17', '--ptxas-options=-v')
INSTALL = 'pip install "nvidia-cuda-nvrtc>=13.0,<13.1" "cuda-bindings>=13.0,<13.1"'


@dataclass(frozen=True)
class Usage:
    """What one kernel takes: registers of a thread, bytes of a thread (spills are stores plus loads, as ptxas counts
    them; stack is the frame), and bytes of static shared memory of a block."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class CompiledKernel:
    """One compiled text. The numbers are of the kernel `name`, or the largest of all where no kernel has that name;
    `usage` has them kernel by kernel. `ptx` only where asked for."""

    name: str
    arch: str
    cubin: bytes = field(repr=False)
    ptx: bytes | None = field(repr=False)
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    log: str = field(repr=False)
    usage: Mapping[str, Usage] = field(repr=False)


@dataclass(frozen=True)
class CompileJob:
    """The arguments of one compile_cuda."""

    text: str
    arch: str
    name: str
    ptx: bool = False
    extra: tuple[str, ...] = ()


def compile_cuda(text: str, arch: str, name: str, *, ptx: bool = False, extra: Sequence[str] = ()) -> CompiledKernel:
    """Compiles CUDA C for one architecture such as 'sm_90a' or 'sm_80'.

    text may hold several kernels; name is used in messages and picks whose numbers are reported. extra: more NVRTC
    options. Safe on several threads at once. Raises ToolchainError with NVRTC's log and the lines it points to.
    """
    nvrtc = _nvrtc()
    headers = device_headers()
    program = _call(nvrtc.nvrtcCreateProgram(
        text.encode(), f'{name}.cu'.encode(), len(headers),
        [body.encode() for body in headers.values()], [header.encode() for header in headers]))
    try:
        options = [option.encode() for option in (f'--gpu-architecture={arch}', *FLAGS, *extra)]
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        raw = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log = raw.rstrip(b'\0 \n').decode(errors='replace')
        if int(status):
            raise ToolchainError(
                f'NVRTC could not compile {name} for {arch} ({status.name}):\n{log}\n{excerpt(text, name, log)}')
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx_text = _bytes(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b'\0') if ptx else None
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    usage = parse_usage(log)
    shown = [usage[name]] if name in usage else list(usage.values())
    largest = {key: max((getattr(u, key) for u in shown), default=0) for key in Usage.__dataclass_fields__}
    return CompiledKernel(name=name, arch=arch, cubin=cubin, ptx=ptx_text, log=log, usage=usage, **largest)


Compiled = CompiledKernel | ToolchainError


def compile_many(jobs: Sequence[CompileJob], workers: int,
                 on_done: Callable[[int, Compiled], None] | None = None) -> list[Compiled]:
    """Compiles all jobs on `workers` threads (NVRTC runs without the interpreter's lock) -> results in the jobs' order.

    A job that fails gives its ToolchainError as its result and does not stop the others. on_done(index, result) is
    called on this thread as each one ends.
    """
    _nvrtc()  # a missing NVRTC is an error of the whole call, not of each job
    results: dict[int, Compiled] = {}
    pool = ThreadPoolExecutor(max(1, workers))
    try:
        futures = {pool.submit(_compile_job, job): index for index, job in enumerate(jobs)}
        for future in as_completed(futures):
            index = futures[future]
            results[index] = future.result()
            if on_done is not None:
                on_done(index, results[index])
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # after an interrupt only what has begun is waited for
    return [results[index] for index in range(len(jobs))]


def nvrtc_version() -> tuple[int, int]:
    """(major, minor) of the NVRTC in use, for cache keys."""
    major, minor = _version()
    return major, minor


def _compile_job(job: CompileJob) -> Compiled:
    try:
        return compile_cuda(job.text, job.arch, job.name, ptx=job.ptx, extra=job.extra)
    except ToolchainError as error:
        return error


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r'(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads')
_USED = re.compile(r'Used (\d+) registers(.*)')
_SHARED = re.compile(r'(\d+) bytes smem')


def parse_usage(log: str) -> dict[str, Usage]:
    """The lines of `ptxas -v` -> kernel name -> Usage."""
    usage: dict[str, Usage] = {}
    entry, stack, spill = '', 0, 0
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entry, stack, spill = found[1], 0, 0
        elif found := _FRAME.search(line):
            stack, spill = int(found[1]), int(found[2]) + int(found[3])
        elif (found := _USED.search(line)) and entry:
            shared = _SHARED.search(found[2])
            usage[entry] = Usage(int(found[1]), spill, stack, int(shared[1]) if shared else 0)
    return usage


def excerpt(text: str, name: str, log: str, around: int = 2) -> str:
    """The numbered lines of the text that the log's first messages point to."""
    lines = text.splitlines()
    wanted: set[int] = set()
    for number in list(dict.fromkeys(map(int, re.findall(rf'{re.escape(name)}\.cu\((\d+)\)', log))))[:4]:
        wanted |= set(range(max(1, number - around), min(len(lines), number + around) + 1))
    return '\n'.join(f'{number:5d} | {lines[number - 1]}' for number in sorted(wanted))


@lru_cache
def _nvrtc() -> ModuleType:
    """cuda-bindings' module, once it has found its library: imported here so that all else works without the wheels."""
    try:
        nvrtc = import_module('cuda.bindings.nvrtc')
    except ImportError as error:
        raise ToolchainError(f'compiling for a GPU needs cuda-bindings and NVRTC ({error}): {INSTALL}') from error
    try:
        nvrtc.nvrtcVersion()
    except (RuntimeError, OSError) as error:
        raise ToolchainError(f'the NVRTC library was not found ({error}): {INSTALL}') from error
    return nvrtc


@lru_cache
def _version() -> tuple[int, int]:
    nvrtc = _nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    if int(status):
        raise ToolchainError(f'NVRTC does not answer: {status.name}')
    return major, minor


def _call(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status):
        raise ToolchainError(f'NVRTC failed: {status.name}')
    return values[0] if values else None


def _bytes(size: Callable[[Any], tuple[Any, ...]], get: Callable[[Any, bytearray], tuple[Any, ...]], program: Any) -> bytes:
    # A bytearray, since NVRTC writes into it: Python shares bytes objects (every b' ' is one), and would change them all.
    buffer = bytearray(int(_call(size(program))))
    _call(get(program, buffer))
    return bytes(buffer)
