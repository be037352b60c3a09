"""Every schedule of every template, run and compared with float64: on the GPU present, or on `host`.

    python -m bench.sweep --seconds 400                                # every schedule, unfused and fused, in a seeded order
    python -m bench.sweep --target host --sample --groups matmul_mma   # a pairwise sample of some templates, without a GPU

Counts are kernels: `cases` there are, `run` that were compiled, run and compared, `wrong` of those that failed, with reasons in `failures`.
Each runs twice at several sizes (1, primes, the tile's, one past the tile; NaN and infinities; float32 products also with k up to 16384
against a sequential chain), with NaN in all memory that nothing has written; both results must be right and equal bit by bit.

A run that the time ends is marked `complete: false` and says so; what it did not reach counts for nothing. Children compile and run; one
that dies costs its own case. Exit code 1: a failure, or not complete.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.report import heading, short_name, table, target_here, unit_of, write_json
from bench.worker import Worker, WorkerFailed
from taskc.targets import TARGETS, Target
from tests.schedules.sweep import Case, every_schedule, groups, legal, pairwise

LIMIT = 60.0  # seconds for one kernel: more is a deadlock
BATCH = 12  # kernels in one library, on host
COLUMNS = {"group": "<", "schedules": "d", "cases": "d", "run": "d", "wrong": "d"}


@dataclass(frozen=True)
class Outcome:
    """A case that ran: what is wrong, or None."""

    case: Case
    wrong: str | None


@dataclass(frozen=True)
class Report:
    """All outcomes, and how many cases there were to run."""

    cases: Sequence[Case]
    outcomes: Sequence[Outcome]
    seconds: float

    @property
    def complete(self) -> bool:
        return len(self.outcomes) == len(self.cases)

    @property
    def failures(self) -> list[Outcome]:
        return [o for o in self.outcomes if o.wrong is not None]

    def rows(self) -> list[dict[str, Any]]:
        """Counts by template and element type."""
        found: list[dict[str, Any]] = []
        for group in dict.fromkeys(sorted(c.subject.group for c in self.cases)):
            mine = [o for o in self.outcomes if o.case.subject.group == group]
            some = [c for c in self.cases if c.subject.group == group]
            found.append({"group": group, "schedules": len({c.schedule for c in some}), "cases": len(some), "run": len(mine),
                          "wrong": sum(o.wrong is not None for o in mine)})
        return found

    def verdict(self) -> str:
        """One line that does not claim more than was run."""
        part = "ALL" if self.complete else "NOT ALL: ONLY"
        return f"{part} {len(self.outcomes)} of {len(self.cases)} kernels were run in {self.seconds:.0f} s; {len(self.failures)} failed"


def choose(target: Target, only: Sequence[str] = (), sample: bool = False, every: bool = False, seed: int = 0) -> list[Case]:
    """The cases in a seeded order. only: parts of groups' names; sample: pairwise; every: each schedule on all of its subjects."""
    out: list[Case] = []
    for group in groups():
        if only and not any(o in group for o in only):
            continue
        out += pairwise(legal(group, target), seed) if sample else legal(group, target) if every else every_schedule(group, target, seed)
    random.Random(seed).shuffle(out)
    return out


def sweep(cases: Sequence[Case], target: Target, jobs: int, seconds: float, told: Callable[[str], None] = print) -> Report:
    """Runs the cases in their order on `jobs` children until they are done or the time is."""
    start = time.monotonic()
    waiting: queue.SimpleQueue[Sequence[Case]] = queue.SimpleQueue()
    size = BATCH if target.name == "host" else 1
    for n in range(0, len(cases), size):
        waiting.put(cases[n : n + size])
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=_work, args=(waiting, target, start + seconds, outcomes), daemon=True) for _ in range(jobs)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        for t in threads:
            t.join(timeout=20 / len(threads))
        told(f"{len(outcomes)} of {len(cases)} after {time.monotonic() - start:.0f} s, {sum(o.wrong is not None for o in outcomes)} wrong")
    return Report(cases, tuple(outcomes), time.monotonic() - start)


def _work(waiting: queue.SimpleQueue[Sequence[Case]], target: Target, deadline: float, outcomes: list[Outcome]) -> None:
    worker = Worker("bench.side_sweep", environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    try:
        while time.monotonic() < deadline:
            try:
                some = waiting.get_nowait()
            except queue.Empty:
                return
            outcomes += _asked(worker, some, target, deadline)
    finally:
        worker.stop()


def _asked(worker: Worker, some: Sequence[Case], target: Target, deadline: float) -> list[Outcome]:
    """What became of the cases; those that the deadline cuts off are left out. After a child's death each is asked alone."""
    left = deadline - time.monotonic()
    request = {"target": target.name, "cases": [list(c.key) for c in some]}
    try:
        answer = worker.ask(request, min(LIMIT * len(some), left))
        return [Outcome(c, wrong) for c, wrong in zip(some, answer["wrong"], strict=True)]
    except WorkerFailed as e:
        if time.monotonic() >= deadline:
            return []
        if len(some) > 1:
            return [o for c in some for o in _asked(worker, (c,), target, deadline)]
        return [Outcome(some[0], str(e))]


def document(report: Report, target: Target, seed: int, commit: str | None) -> dict[str, Any]:
    """The result file's contents."""
    failures = [{"template": o.case.subject.template.NAME, "case": o.case.subject.label, "schedule": str(o.case.schedule), "reason": o.wrong}
                for o in report.failures]
    return {**heading(commit), "unit": unit_of(__doc__), "target": target.name, "seed": seed, "seconds": round(report.seconds, 1),
            "complete": report.complete, "cases": len(report.cases), "run": len(report.outcomes), "wrong": len(report.failures),
            "groups": report.rows(), "failures": failures}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", choices=sorted(TARGETS), help="by default the one that fits the GPU here, else host")
    parser.add_argument("--seconds", type=float, default=400, help="the time for it all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="children at once")
    parser.add_argument("--groups", nargs="*", default=[], help="parts of names such as 'matmul_mma f16'")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", action="store_true", help="a pairwise sample")
    which.add_argument("--every", action="store_true", help="each schedule on every subject that it can compute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    args = parser.parse_args(argv)
    target = TARGETS[args.target or target_here()]
    cases = choose(target, args.groups, args.sample, args.every, args.seed)
    if not cases:
        parser.error(f"no group is called {' or '.join(args.groups)}; there are {', '.join(groups())}")
    report = sweep(cases, target, args.jobs, args.seconds)
    print(table(report.rows(), COLUMNS))
    for o in report.failures[:20]:
        print(f"WRONG {o.case}: {o.wrong}")
    print(report.verdict())
    write_json(args.out or Path("bench/results", f"schedules-{short_name() if target.name != 'host' else 'host'}.json"),
               document(report, target, args.seed, args.commit))
    return int(bool(report.failures) or not report.complete)


if __name__ == "__main__":
    sys.exit(main())
