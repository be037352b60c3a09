"""Worker: tunes a model into a cache, or compiles it with one. A fresh process a request, so that its seconds are a user's."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.worker import serve
from taskc.artifact.format import serialize
from taskc.artifact.plan import ModelPlan
from taskc.compile import Options, compile_model, read_groups
from taskc.fuse.units import Unit
from taskc.observe import Observer
from taskc.targets import TARGETS, Target
from taskc.tune.cache import Cache, Entry, Measured
from taskc.tune.problem import Problem, make_problem
from taskc.tune.processes import GpuMeasurer, MakeCompilers, MakeMeasurer, ProcessCompilers
from taskc.tune.tuner import TuneOptions, TuneResult, candidates_of, tune

WRONG = "wrong result"  # how the reason of a candidate begins that ran, but not rightly


def handle(request: dict[str, Any]) -> dict[str, Any]:
    return tuned(request) if request["do"] == "tune" else compiled(request)


def tuned(request: Mapping[str, Any], compilers: MakeCompilers = ProcessCompilers, measurer: MakeMeasurer = GpuMeasurer) -> dict[str, Any]:
    """Tunes request['source'] into the folder request['cache']; counts, and sums of the kernels' times."""
    warnings: list[str] = []
    start = time.monotonic()
    front = read_groups(request["source"], Options(), Observer())
    read = time.monotonic() - start
    cache, target = Cache(Path(request["cache"]), warnings.append), TARGETS[request["target"]]
    options = TuneOptions(request["top"], request["budget"], request["jobs"])
    result = tune(front.groups, target, front.sizes, cache, options, compilers=compilers, measurer=measurer)
    found = {"read_s": round(read, 2), "tune_s": round(result.seconds, 2), **counts(result)}
    return found | sums(front.groups, target, front.sizes, cache) | ({"warnings": warnings} if warnings else {})


def counts(result: TuneResult) -> dict[str, Any]:
    """What a session did. `most_candidates`: of one problem; `wrong`: candidates that were fastest until their outputs were checked."""
    tried = [len(e.measured) + len(e.failed) for e in result.entries]
    reasons = [reason for e in result.entries for _, _, reason in e.failed]
    return {
        "problems": result.problems, "tuned": result.tuned, "compiled": result.compiled, "measured": result.measured,
        "most_candidates": max(tried, default=0), "failed": sum(not r.startswith(WRONG) for r in reasons),
        "wrong": sum(r.startswith(WRONG) for r in reasons), "hopeless": result.hopeless, "complete": result.complete,
    }  # fmt: skip


def sums(units: Sequence[Unit], target: Target, sizes: Mapping[str, int], cache: Cache) -> dict[str, Any]:
    """Over all launches of the model: `best_sum_us` of the winners, and `first_sum_us` of what the analytic model alone would have
    picked, where both are known; `without` counts the launches that have no winner, or whose first pick has no time."""
    firsts: dict[str, float | None] = {}
    best = first = 0.0
    without = 0
    for unit in units:
        problem = make_problem(unit, target, sizes)
        entry = cache.find(problem.key)
        if problem.key not in firsts:
            firsts[problem.key] = None if entry is None else first_time(entry, problem)
        untuned = firsts[problem.key]
        if entry is None or entry.best is None or untuned is None:
            without += 1
            continue
        best += entry.best.us
        first += untuned
    return {"launches": len(units), "best_sum_us": round(best, 1), "first_sum_us": round(first, 1), "without": without}


def first_time(entry: Entry, problem: Problem) -> float | None:
    """The time of the analytic model's first pick, or None when it failed or was not measured."""
    ((template, schedule), *_) = candidates_of(problem, 1) or [("", "")]
    return time_of(entry.measured, template, str(schedule))


def time_of(measured: Iterable[Measured], template: str, schedule: str) -> float | None:
    return next((m.us for m in measured if (m.template, m.schedule) == (template, schedule)), None)


def compiled(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles request['source'] to request['out'] with the cache's schedules, all of which it must have."""
    observer = Observer()
    start = time.monotonic()
    options = Options(targets=(request["target"],), jobs=request["jobs"], cache=Path(request["cache"]), locked=request["locked"])
    plan = compile_model(request["source"], request["out"], options=options, observe=observer)
    steps = {k: round(v, 2) for k, v in observer.seconds.items()}
    seconds = round(time.monotonic() - start, 2)
    return {"compile_s": seconds, "kernels": len(plan.targets[0].kernels), "steps_s": steps, "sha256": hashes(request["source"], plan)}


def hashes(source: str, plan: ModelPlan) -> dict[str, str]:
    """What two machines with one cache must agree on: the model's file, then the kernels' code, the constants, and all of the payload."""
    payload = (x for offset, data in serialize(plan).pieces for x in (offset.to_bytes(8, "little"), data))
    return {
        "model": _hash([Path(source).read_bytes()]), "code": _hash(i.data for t in plan.targets for i in t.images),
        "constants": _hash(data for _, data in plan.weights), "payload": _hash(payload),
    }  # fmt: skip


def _hash(pieces: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for p in pieces:
        digest.update(p)
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    serve(handle)
