"""The tuner's other processes: a pool that compiles, and one process that measures and is restarted when it dies or hangs."""

from __future__ import annotations

import multiprocessing as mp
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Protocol

from taskc.errors import NoDevice
from taskc.tune.worker import Answer, Candidate, Check, CompiledCandidate, Trial, compile_candidate, ignore_interrupts, measure_loop

COMPILE_LIMIT = 60.0  # seconds for one candidate before its compiler is given up
MEASURE_LIMIT = 10.0
START_LIMIT = 60.0  # seconds until the measuring process is ready


class Compilers(Protocol):
    """Compiles candidates, several at a time, in the order they are given."""

    def submit(self, candidate: Candidate) -> Future[CompiledCandidate]:
        """Starts one; the future may raise BrokenExecutor when its process died, and is then submitted again once."""
        ...

    def close(self) -> None:
        """Ends everything, what is still compiling included."""
        ...


class Measurer(Protocol):
    """Times candidates on a device, one at a time."""

    def time(self, trial: Trial) -> Answer:
        """(microseconds, '') or (None, why not); never raises for what a candidate does."""
        ...

    def check(self, check: Check) -> str:
        """'' when the outputs are right, else why not."""
        ...

    def close(self) -> None: ...


def _context() -> ForkServerContext:
    """Processes from a server that has imported what they run: whoever asks first starts it."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["taskc.tune.worker"])
    return context


class ProcessCompilers:
    """A pool of processes; a new one when a compiler crashes."""

    def __init__(self, jobs: int = 0) -> None:
        self.jobs = jobs or os.cpu_count() or 1
        self.context = _context()
        self.workers: set[BaseProcess] = set()
        self.pool = self._pool()

    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.jobs, mp_context=self.context, initializer=ignore_interrupts)

    def submit(self, candidate: Candidate) -> Future[CompiledCandidate]:
        before = set(mp.active_children())
        try:
            return self.pool.submit(compile_candidate, candidate)
        except BrokenProcessPool:
            self.pool = self._pool()
            return self.pool.submit(compile_candidate, candidate)
        finally:
            self.workers |= set(mp.active_children()) - before

    def close(self) -> None:
        """Cancels what waits and kills what still compiles: a hung compiler would keep this process from ending."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        for p in self.workers:
            if p.is_alive():
                p.kill()


class GpuMeasurer:
    """The measuring process. `loop` is what it runs; `limit`: seconds for one request."""

    def __init__(self, ordinal: int = 0, loop: Callable[[Connection, int], None] = measure_loop, limit: float = MEASURE_LIMIT) -> None:
        self.ordinal, self.loop, self.limit = ordinal, loop, limit
        self.context = _context()
        self.restarts = -1
        self.begin()

    def begin(self) -> None:
        """Raises NoDevice when the process does not get ready."""
        self.restarts += 1
        self.number = 0
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=self.loop, args=(theirs, self.ordinal), daemon=True)
        self.process.start()
        theirs.close()
        (ready, reason), _ = self._answer(START_LIMIT)
        if ready is None:
            self.close()
            raise NoDevice(f"nothing can be measured on GPU {self.ordinal}: {reason}; `taskc doctor` looks at this machine")

    def time(self, trial: Trial) -> Answer:
        return self._ask(trial)

    def check(self, check: Check) -> str:
        return self._ask(check)[1]

    def _ask(self, request: Trial | Check) -> Answer:
        self.number += 1
        try:
            self.pipe.send((self.number, request))
        except OSError:
            self.restart()
            self.number = 1
            self.pipe.send((self.number, request))
        answer, usable = self._answer(self.limit)
        if not usable:
            self.restart()
        return answer

    def _answer(self, seconds: float) -> tuple[Answer, bool]:
        """(the answer to the last request, whether the process can go on). Answers to earlier requests, which an interrupt left
        in the pipe, are dropped."""
        try:
            while True:
                if not self.pipe.poll(seconds):
                    return (None, f"no result within {seconds:g} seconds"), False
                number, answer, usable = self.pipe.recv()
                if number == self.number:
                    return answer, usable
        except (EOFError, OSError):
            return (None, "the measuring process ended"), False

    def restart(self) -> None:
        self.close()
        self.begin()

    def close(self) -> None:
        """Ends the process; one that hangs is killed."""
        self.pipe.close()
        self.process.join(0.5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


MakeCompilers = Callable[[int], Compilers]
MakeMeasurer = Callable[[int], Measurer]
