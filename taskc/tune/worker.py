"""What runs in the tuner's other processes: building and compiling candidates, and measuring them on the GPU."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from taskc.codegen.nvrtc import compile_cuda
from taskc.errors import TaskcError
from taskc.fuse.units import Unit
from taskc.ir.program import Program
from taskc.ir.task import Task
from taskc.targets.target import Target
from taskc.tune.device import Gpu
from taskc.tune.kernels import build_scheduled
from taskc.tune.trial import Operand


@dataclass(frozen=True)
class Candidate:
    """A schedule to try for a unit; `template` by name."""

    unit: Unit
    target: Target
    template: str
    schedule: Any


@dataclass(frozen=True)
class CompiledCandidate:
    """The kernel's symbol, cubin and shape (a program without its body); or why there is none."""

    symbol: str = ""
    text_hash: str = ""
    cubin: bytes = b""
    program: Program | None = None
    error: str = ""


def ignore_interrupts() -> None:
    """In a compiling process: the parent decides what an interrupt ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def cubin_of(text: str, arch: str, name: str) -> bytes:
    """The machine code of a kernel's text."""
    return compile_cuda(text, arch, name).cubin


def compile_candidate(c: Candidate, compile_text: Callable[[str, str, str], bytes] = cubin_of) -> CompiledCandidate:
    """Builds and compiles one candidate; failures come back as text."""
    try:
        built = build_scheduled(c.unit, c.target, c.template, c.schedule)
        cubin = compile_text(built.text, c.target.architecture.name, built.symbol)
    except TaskcError as e:
        return CompiledCandidate(error=str(e)[-400:])
    except Exception:  # a template's bug must not end the session: it is recorded with the schedule
        return CompiledCandidate(error=traceback.format_exc(limit=-3)[-600:])
    shell = replace(built.program, body=[], notes={})
    return CompiledCandidate(built.symbol, built.symbol.rsplit("_", 1)[1], cubin, shell)


@dataclass(frozen=True)
class Trial:
    """A library to time."""

    library: Path
    operands: tuple[Operand, ...]
    copies: int
    best: float
    fresh: bool  # the first of its problem: operands of the one before are not needed any more


@dataclass(frozen=True)
class Check:
    """A trial whose outputs are to be compared with what its task says."""

    trial: Trial
    task: Task
    sizes: Mapping[str, int]


Answer = tuple["float | None", str]  # (microseconds, ''), (None, why not); for a Check (0.0, '') or (None, what is wrong)
READY: Answer = (0.0, "")


def measure_loop(pipe: Connection, ordinal: int) -> None:
    """Says READY or why it cannot; then answers each (number, Trial or Check) until the pipe closes or the GPU has faulted.

    A message is (the request's number, Answer, whether more can be asked)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    try:
        gpu = Gpu(ordinal)
    except Exception as e:  # no driver, no GPU, no pycuda, no memory: the parent says so
        pipe.send((0, (None, str(e) if isinstance(e, TaskcError) else f"{type(e).__name__}: {e}"), False))
        return
    pipe.send((0, READY, True))
    while True:
        try:
            number, request = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send((number, _answer(gpu, request), True))
        except Exception as e:  # whatever it is, it is this candidate's failure; the parent decides what goes on
            usable = gpu.usable()
            pipe.send((number, (None, f"{type(e).__name__}: {e}"[:400]), usable))
            if not usable:
                return


def _answer(gpu: Gpu, request: Trial | Check) -> Answer:
    if isinstance(request, Check):
        t = request.trial
        wrong = gpu.why_wrong(t.library, t.operands, t.copies, request.task, request.sizes)
        return (None, f"wrong result: {wrong}") if wrong else (0.0, "")
    if request.fresh:
        gpu.forget()
    return gpu.time(request.library, request.operands, request.copies, request.best), ""
