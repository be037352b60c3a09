"""Tunes the kernels of a model: candidates compile in many processes while one other measures them on the GPU.

The measuring process may die (a candidate can fault or hang the GPU): it is restarted and the candidate recorded with the
reason. Every finished problem is appended to the cache at once, so an interrupt or the end of the budget loses nothing.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskc.artifact.plan import Image
from taskc.errors import NoDevice
from taskc.fuse.units import Unit
from taskc.schedules import TEMPLATES
from taskc.targets.target import Target
from taskc.tune.cache import Cache, Entry, Measured
from taskc.tune.choose import rank
from taskc.tune.kernels import canonical
from taskc.tune.problem import Problem, make_problem, toolchain
from taskc.tune.trial import write_trial
from taskc.tune.worker import Candidate, CompiledCandidate, Trial, compile_candidate, measure_loop

TIME_LIMIT = 10.0  # seconds for one candidate before its process is given up


@dataclass(frozen=True)
class Progress:
    """Where tuning stands, for a live table."""

    problem: int
    problems: int
    nodes: str
    best: Measured | None
    compiled: int
    measured: int
    candidates: int


@dataclass(frozen=True)
class TuneOptions:
    """`top`: candidates a problem; `budget`: seconds or None; `jobs`: compiling processes; `again`: ignore what the cache has."""

    top: int = 10
    budget: float | None = None
    jobs: int = 0
    again: bool = False
    ordinal: int = 0


@dataclass
class TuneResult:
    """Counts of a tuning session."""

    problems: int = 0
    cached: int = 0
    tuned: int = 0
    compiled: int = 0
    measured: int = 0
    seconds: float = 0.0
    complete: bool = True
    entries: list[Entry] = field(default_factory=list[Entry])


def problems_of(units: Sequence[Unit], target: Target, sizes: Mapping[str, int]) -> list[Problem]:
    """The distinct problems, in order of first use."""
    return list({p.key: p for p in (make_problem(u, target, sizes) for u in units)}.values())


def tune(units: Sequence[Unit], target: Target, sizes: Mapping[str, int], cache: Cache, options: TuneOptions,
         listen: Callable[[Progress], None] | None = None) -> TuneResult:
    """Tunes every problem the cache does not have. Raises NoDevice when nothing can be measured."""
    start = time.monotonic()
    problems = problems_of(units, target, sizes)
    todo = [p for p in problems if options.again or not _known(cache, p)]
    result = TuneResult(len(problems), len(problems) - len(todo))
    if todo:
        with tempfile.TemporaryDirectory(prefix="taskc-tune-") as folder:
            _Session(todo, cache, options, Path(folder), start, listen or (lambda _: None), result).run()
    result.entries = [e for p in problems if (e := cache.find(p.key)) is not None]
    result.seconds = time.monotonic() - start
    return result


def _known(cache: Cache, p: Problem) -> bool:
    entry = cache.find(p.key)
    return entry is not None and entry.toolchain == toolchain()


def candidates_of(p: Problem, top: int) -> list[tuple[str, Any]]:
    """(template, schedule) of the best-ranked schedules over all templates that can compute the problem."""
    task, _ = canonical(p.unit.task)
    ranked = [(seconds, t.NAME, s) for t in TEMPLATES if t.why_not(task, p.target) is None
              for seconds, s in rank(t, task, p.target, dict(p.sizes))[:top]]
    return [(name, s) for _, name, s in sorted(ranked, key=lambda x: x[0])[:top]]


@dataclass
class _Session:
    problems: list[Problem]
    cache: Cache
    options: TuneOptions
    folder: Path
    start: float
    listen: Callable[[Progress], None]
    result: TuneResult

    def run(self) -> None:
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(["taskc.tune.worker"])
        gpu = _Measurer(context, self.options.ordinal)
        pool = ProcessPoolExecutor(self.options.jobs or os.cpu_count() or 1, mp_context=context)
        try:
            work: list[tuple[Problem, list[tuple[tuple[str, Any], Future[CompiledCandidate]]]]] = []
            for p in self.problems:
                picks = candidates_of(p, self.options.top)
                work.append((p, [(c, pool.submit(compile_candidate, Candidate(p.unit, p.target, *c))) for c in picks]))
            for number, (p, futures) in enumerate(work):
                if self.over():
                    self.result.complete = False
                    break
                self.problem(number, p, futures, gpu)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            gpu.close()

    def over(self) -> bool:
        return self.options.budget is not None and time.monotonic() - self.start > self.options.budget

    def problem(self, number: int, p: Problem, futures: list[tuple[tuple[str, Any], Future[CompiledCandidate]]], gpu: _Measurer) -> None:
        measured: list[Measured] = []
        failed: list[tuple[str, str, str]] = []
        best: tuple[Measured, str] | None = None
        fresh = True
        for (template, schedule), future in futures:
            if self.over() and best is not None:
                self.result.complete = False
                break
            candidate = future.result()
            self.result.compiled += 1
            us, reason = (None, candidate.error) if candidate.error else self.time(candidate, p, best, gpu, fresh)
            fresh = fresh and bool(candidate.error)
            if us is None:
                failed.append((template, str(schedule), reason))
                continue
            self.result.measured += 1
            m = Measured(template, str(schedule), round(us, 3))
            measured.append(m)
            if best is None or us < best[0].us:
                best = (m, candidate.text_hash)
            self.listen(Progress(number + 1, len(self.problems), " + ".join(p.unit.source), best[0], self.result.compiled,
                                 self.result.measured, len(futures)))
        if best is not None:
            self.result.tuned += 1
            self.cache.add(Entry(p.key, p.text, p.target.name, p.target.device.name, " + ".join(p.unit.source), best[0], best[1], toolchain(),
                                 tuple(measured), tuple(failed)))

    def time(self, c: CompiledCandidate, p: Problem, best: tuple[Measured, str] | None, gpu: _Measurer, fresh: bool) -> tuple[float | None, str]:
        assert c.program is not None
        library = self.folder / f"{c.symbol}.so"
        copies, operands = write_trial(c.program, c.symbol, Image("cubin", p.target.architecture.name, c.cubin), dict(p.sizes), library)
        try:
            return gpu.time(Trial(library, operands, copies, best[0].us if best else float("inf"), fresh))
        finally:
            library.unlink()
            library.with_suffix(".py").unlink(missing_ok=True)


class _Measurer:
    """The measuring process, restarted when it dies or hangs."""

    def __init__(self, context: Any, ordinal: int) -> None:
        self.context, self.ordinal = context, ordinal
        self.begin()

    def begin(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=measure_loop, args=(theirs, self.ordinal), daemon=True)
        self.process.start()
        theirs.close()
        ready, reason = self._answer(60.0)
        if ready is None:
            raise NoDevice(reason.removeprefix("fatal: "))

    def time(self, trial: Trial) -> tuple[float | None, str]:
        try:
            self.pipe.send(trial)
        except OSError:
            self.restart()
            self.pipe.send(trial)
        us, reason = self._answer(TIME_LIMIT)
        if us is None and ("ILLEGAL" in reason or "LAUNCH" in reason or "ended" in reason or "seconds" in reason or "illegal" in reason):
            self.restart()  # a fault leaves the context unusable
        return us, reason

    def _answer(self, seconds: float) -> tuple[float | None, str]:
        try:
            if not self.pipe.poll(seconds):
                return None, f"no result within {seconds:g} seconds"
            return self.pipe.recv()
        except (EOFError, OSError):
            return None, "the measuring process ended"

    def restart(self) -> None:
        self.close()
        self.begin()

    def close(self) -> None:
        self.pipe.close()
        self.process.join(0.5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
