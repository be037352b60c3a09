"""Tunes the kernels of a model: candidates compile in many processes while one other measures them on the GPU.

What compiles and what measures are arguments. Every finished problem is appended to the cache at once, the one under way too when
an interrupt or the end of the budget comes, so nothing that was measured is lost. A winner is stored when its outputs are right.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskc.artifact.plan import Image
from taskc.fuse.units import Unit
from taskc.schedules import TEMPLATES
from taskc.targets.target import Target
from taskc.tune.cache import Cache, Entry, Measured
from taskc.tune.choose import rank
from taskc.tune.problem import Problem, make_problem, toolchain
from taskc.tune.processes import COMPILE_LIMIT, Compilers, GpuMeasurer, MakeCompilers, MakeMeasurer, Measurer, ProcessCompilers
from taskc.tune.residency import spread
from taskc.tune.trial import write_trial
from taskc.tune.worker import Candidate, Check, CompiledCandidate, Trial

Failure = tuple[str, str, str]  # template, schedule, reason


@dataclass(frozen=True)
class Progress:
    """Where tuning stands, for a live table: the problem under way and its best so far, and counts over all problems.

    `done`: the problem is finished; then `best` is its checked winner, or None where nothing worked."""

    problem: int
    problems: int
    nodes: str
    best: Measured | None
    compiled: int
    measured: int
    failed: int
    candidates: int
    done: bool = False


@dataclass(frozen=True)
class TuneOptions:
    """`top`: candidates a problem; `budget`: seconds or None; `jobs`: compiling processes (0: one a CPU); `again`: ignore what the
    cache has; `ordinal`: the GPU; `compile_limit`: seconds for one candidate."""

    top: int = 10
    budget: float | None = None
    jobs: int = 0
    again: bool = False
    ordinal: int = 0
    compile_limit: float = COMPILE_LIMIT


@dataclass
class TuneResult:
    """Counts of a tuning session. `complete`: every candidate of every problem was tried; `hopeless`: problems (their nodes) for
    which no candidate worked."""

    problems: int = 0
    cached: int = 0
    tuned: int = 0
    compiled: int = 0
    measured: int = 0
    failed: int = 0
    seconds: float = 0.0
    complete: bool = True
    interrupted: bool = False
    hopeless: list[str] = field(default_factory=list[str])
    entries: list[Entry] = field(default_factory=list[Entry])


def problems_of(units: Sequence[Unit], target: Target, sizes: Mapping[str, int]) -> list[Problem]:
    """The distinct problems, in order of first use."""
    found: dict[str, Problem] = {}
    for u in units:
        p = make_problem(u, target, sizes)
        found.setdefault(p.key, p)
    return list(found.values())


def tune(units: Sequence[Unit], target: Target, sizes: Mapping[str, int], cache: Cache, options: TuneOptions,
         listen: Callable[[Progress], None] | None = None, *, compilers: MakeCompilers = ProcessCompilers,
         measurer: MakeMeasurer = GpuMeasurer) -> TuneResult:
    """Tunes every problem for which the cache has no complete result of this toolchain.

    KeyboardInterrupt ends it early, as the budget does. Raises NoDevice when nothing can be measured."""
    start = time.monotonic()
    problems = problems_of(units, target, sizes)
    todo = [p for p in problems if options.again or not _known(cache, p)]
    result = TuneResult(len(problems), len(problems) - len(todo))
    if todo:
        try:
            with tempfile.TemporaryDirectory(prefix="taskc-tune-") as folder:
                _Session(todo, cache, options, Path(folder), start, listen or (lambda _: None), result, compilers, measurer).run()
        except KeyboardInterrupt:
            result.interrupted, result.complete = True, False
    result.entries = [e for p in problems if (e := cache.find(p.key)) is not None]
    result.seconds = time.monotonic() - start
    return result


def _known(cache: Cache, p: Problem) -> bool:
    entry = cache.find(p.key)
    return entry is not None and entry.best is not None and entry.complete and entry.toolchain == toolchain()


def candidates_of(p: Problem, top: int) -> list[tuple[str, Any]]:
    """(template, schedule) of the best-ranked schedules over all templates that can compute the problem."""
    ranked = [(seconds, t.NAME, s) for t in TEMPLATES if t.why_not(p.task, p.target) is None
              for seconds, s in rank(t, p.task, p.target, dict(p.sizes))[:top]]
    return [(name, s) for _, name, s in sorted(ranked, key=lambda x: x[0])[:top]]


Submitted = tuple[Candidate, "Future[CompiledCandidate]"]


@dataclass
class _Timed:
    """A candidate that ran: its time, and what is needed to run it again."""

    measured: Measured
    us: float
    text_hash: str
    trial: Trial


@dataclass
class _Session:
    problems: list[Problem]
    cache: Cache
    options: TuneOptions
    folder: Path
    start: float
    listen: Callable[[Progress], None]
    result: TuneResult
    make_compilers: MakeCompilers
    make_measurer: MakeMeasurer
    candidates: int = 0

    def run(self) -> None:
        """Compilers are at work before the measuring process is: its start takes a while."""
        compilers = self.make_compilers(self.options.jobs)
        try:
            todo = [(p, self.submit(p, compilers)) for p in self.problems]
            self.candidates = sum(len(submitted) for _, submitted in todo)
            measurer = self.make_measurer(self.options.ordinal)
            try:
                for number, (p, submitted) in enumerate(todo, 1):
                    if self.over():
                        self.result.complete = False
                        break
                    _ProblemSession(self, number, p, submitted, compilers, measurer).run()
            finally:
                measurer.close()
        finally:
            compilers.close()

    def submit(self, p: Problem, compilers: Compilers) -> list[Submitted]:
        candidates = [Candidate(p.unit, p.target, *c) for c in candidates_of(p, self.options.top)]
        return [(c, compilers.submit(c)) for c in candidates]

    def left(self) -> float:
        """Seconds of the budget."""
        return float("inf") if self.options.budget is None else self.options.budget - (time.monotonic() - self.start)

    def over(self) -> bool:
        return self.left() <= 0


@dataclass
class _ProblemSession:
    session: _Session
    number: int
    problem: Problem
    submitted: list[Submitted]
    compilers: Compilers
    measurer: Measurer
    timed: list[_Timed] = field(default_factory=list[_Timed])
    failed: list[Failure] = field(default_factory=list[Failure])

    def run(self) -> None:
        """Times every candidate, then stores the best that is right; also when an interrupt comes in between."""
        complete = False
        try:
            complete = self.time_all()
        finally:
            if self.timed or self.failed:
                self.store(complete)

    def time_all(self) -> bool:
        """Whether every candidate was tried."""
        for candidate, future in self.submitted:
            if self.session.over():
                self.session.result.complete = False
                return False
            compiled = self.compiled(candidate, future)
            if compiled is None:
                self.session.result.complete = False
                return False
            self.session.result.compiled += not compiled.error
            if compiled.error:
                self.fail(candidate.template, str(candidate.schedule), compiled.error)
            else:
                self.time(candidate, compiled)
            self.tell(self.best())
        return True

    def compiled(self, candidate: Candidate, future: Future[CompiledCandidate]) -> CompiledCandidate | None:
        """What compiling gave; None when the budget ended first. A candidate whose process died is tried once more, alone."""
        limit, left = self.session.options.compile_limit, self.session.left()
        for again in (False, True):
            try:
                return (self.compilers.submit(candidate) if again else future).result(min(limit, left))
            except FutureTimeout:
                return None if left < limit else CompiledCandidate(error=f"not compiled within {limit:g} seconds")
            except BrokenExecutor:
                continue
        return CompiledCandidate(error="the compiling process died")

    def time(self, candidate: Candidate, compiled: CompiledCandidate) -> None:
        assert compiled.program is not None
        p, best = self.problem, self.best()
        library = self.session.folder / f"{compiled.symbol}.so"
        image = Image("cubin", p.target.architecture.name, compiled.cubin)
        sizes = dict(p.sizes)
        program = spread(compiled.program, p.target, sizes, beside=False)
        copies, operands = write_trial(program, compiled.symbol, image, sizes, library)
        trial = Trial(library, operands, copies, best.us if best else float("inf"), not self.timed)
        us, reason = self.measurer.time(trial)
        if us is None:
            self.fail(candidate.template, str(candidate.schedule), reason)
            return
        self.session.result.measured += 1
        self.timed.append(_Timed(Measured(candidate.template, str(candidate.schedule), round(us, 3)), us, compiled.text_hash, trial))

    def fail(self, template: str, schedule: str, reason: str) -> None:
        self.session.result.failed += 1
        self.failed.append((template, schedule, reason))

    def best(self) -> Measured | None:
        return min(self.timed, key=lambda t: t.us).measured if self.timed else None

    def store(self, complete: bool) -> None:
        """Appends the fastest candidate whose outputs are right, with everything that was measured.

        A part does not replace a whole: of a problem tuned again, but not to the end, the earlier result stays."""
        p, winner = self.problem, self.winner()
        for file in self.session.folder.iterdir():
            file.unlink()
        if winner is not None:
            self.session.result.tuned += 1
        elif complete:
            self.session.result.hopeless.append(p.nodes)
        if complete or not _known(self.session.cache, p):
            self.session.cache.add(Entry(
                p.key, p.text, p.target.name, p.target.device.name, p.nodes, winner.measured if winner else None,
                winner.text_hash if winner else "", toolchain(), tuple(t.measured for t in self.timed), tuple(self.failed), complete))
        self.tell(winner.measured if winner else None, done=True)

    def winner(self) -> _Timed | None:
        while self.timed:
            fastest = min(self.timed, key=lambda t: t.us)
            wrong = self.measurer.check(Check(fastest.trial, self.problem.task, dict(self.problem.sizes)))
            if not wrong:
                return fastest
            self.timed.remove(fastest)
            self.fail(fastest.measured.template, fastest.measured.schedule, wrong)
        return None

    def tell(self, best: Measured | None, done: bool = False) -> None:
        s, r = self.session, self.session.result
        s.listen(Progress(self.number, len(s.problems), self.problem.nodes, best, r.compiled, r.measured, r.failed, s.candidates, done))
