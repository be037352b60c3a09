"""What runs in the tuner's other processes: building and compiling candidates, and measuring them on the GPU."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from taskc.codegen.nvrtc import compile_cuda
from taskc.errors import TaskcError
from taskc.fuse.units import Unit
from taskc.ir.program import Program
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
    spill_bytes: int = 0
    error: str = ""


def compile_candidate(c: Candidate) -> CompiledCandidate:
    """Builds and compiles one candidate; failures come back as text."""
    try:
        built = build_scheduled(c.unit, c.target, c.template, c.schedule)
        code = compile_cuda(built.text, c.target.architecture.name, built.symbol)
    except TaskcError as e:
        return CompiledCandidate(error=str(e)[-400:])
    except Exception:  # a template's bug must not end the session: it is recorded with the schedule
        return CompiledCandidate(error=traceback.format_exc(limit=-3)[-600:])
    shell = replace(built.program, body=[], notes={})
    return CompiledCandidate(built.symbol, built.symbol.rsplit("_", 1)[1], code.cubin, shell, code.spill_bytes)


@dataclass(frozen=True)
class Trial:
    """A library to time."""

    library: Path
    operands: tuple[Operand, ...]
    copies: int
    best: float
    fresh: bool  # the first of its problem: operands of the one before are not needed any more


def measure_loop(pipe: Connection, ordinal: int) -> None:
    """Answers trials with (microseconds, '') or (None, reason) until the pipe closes."""
    try:
        gpu = Gpu(ordinal)
    except TaskcError as e:
        pipe.send((None, f"fatal: {e}"))
        return
    pipe.send((0.0, ""))
    while True:
        try:
            trial: Trial = pipe.recv()
        except EOFError:
            return
        try:
            if trial.fresh:
                gpu.forget()
            pipe.send((gpu.time(trial.library, trial.operands, trial.copies, trial.best), ""))
        except Exception as e:  # whatever it is, it is this candidate's failure; the parent decides what goes on
            pipe.send((None, f"{type(e).__name__}: {e}"[:400]))


