"""Tuning from an empty cache, then compiling with the warm one -> a JSON file and a table.

    python -m bench.tuning --precisions fp16 --out bench/results/tuning-h200.json --seconds 540

`wall_s` is from the start of a fresh Python to the finished cache, `tune_s` the tuner's part of it; `warm_wall_s` and `compile_s`
are the same two of a compile that takes every schedule from the cache. The sums count kernels alone, once for every launch:
`best_sum_us` with the winners, `first_sum_us` with what the analytic model picks unmeasured, both as the tuner timed them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.cases import Case, build
from bench.report import heading, short_name, table, target_here, unit_of, write_json
from bench.worker import Worker, WorkerFailed
from models import zoo
from taskc.tune.cache import FILE as CACHE_FILE

COLUMNS = {
    "model": "<", "prec": "<", "wall_s": ".1f", "tune_s": ".1f", "problems": "d", "compiled": "d", "measured": "d", "most_candidates": "d",
    "failed": "d", "wrong": "d", "complete": "<", "best_sum_us": ".1f", "first_sum_us": ".1f", "warm_wall_s": ".1f", "compile_s": ".1f",
    "error": "<",
}  # fmt: skip
LEAST = 20.0  # seconds below which no case is begun
WARM_LIMIT = 90.0  # of a compile with the warm cache
ENDING = 10.0  # seconds a session may take beyond its budget: a last check, a write


@dataclass(frozen=True)
class Plan:
    """How every case is tuned. `budget`: seconds a model; `deadline` on the monotonic clock."""

    target: str
    top: int
    jobs: int
    budget: float
    deadline: float
    keep: Path | None = None  # a folder whose cache gains what was measured

    def left(self) -> float:
        return self.deadline - time.monotonic()


def measure(case: Case, plan: Plan) -> dict[str, Any]:
    """A case's row; what failed is its 'error', what was found before stays."""
    row: dict[str, Any] = {"model": case.model, "prec": case.precision}
    if plan.left() < LEAST:
        return {**row, "error": "no time left"}
    try:
        model = build(case)
        case.path("").mkdir(parents=True, exist_ok=True)
        case.path("model.onnx").write_bytes(model.SerializeToString())
        common = {"source": str(case.path("model.onnx")), "cache": str(case.path("cache")), "target": plan.target, "jobs": plan.jobs}
        budget = min(plan.budget, plan.left() - ENDING)
        row |= timed({"do": "tune", "top": plan.top, "budget": budget, **common}, budget + ENDING, "wall_s")
        if plan.keep is not None:
            keep_cache(case.path("cache"), plan.keep)
        warm = {"do": "compile", "out": str(case.path("model.so")), "locked": row["complete"] and not row["hopeless"], **common}
        row |= timed(warm, min(WARM_LIMIT, plan.left()), "warm_wall_s")
    except Exception as e:  # one model's failure, of whatever kind, is that model's row
        return {**row, "error": str(e) if isinstance(e, WorkerFailed) else f"{type(e).__name__}: {e}"}
    return row


def keep_cache(folder: Path, kept: Path) -> None:
    """Appends a case's cache file to the kept one: cache files are merged by putting one after the other."""
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / CACHE_FILE).open("ab") as out:
        out.write((folder / CACHE_FILE).read_bytes())


def timed(request: dict[str, Any], limit: float, name: str) -> dict[str, Any]:
    """A fresh process's answer, with the wall seconds it took, its start included. Raises WorkerFailed."""
    worker = Worker("bench.side_tune")
    start = time.monotonic()
    try:
        answer = worker.ask(request, limit)
        return {name: round(time.monotonic() - start, 2), **answer}
    finally:
        worker.stop()


def main() -> int:
    args = _arguments()
    target = args.target or target_here()
    if target == "host":
        print("tuning measures on a GPU, and there is none here: run this on a machine with one", file=sys.stderr)
        return 8
    out = args.out or Path("bench/results", f"tuning-{short_name()}.json")
    plan = Plan(target, args.top, args.jobs, args.budget, time.monotonic() + args.seconds, args.keep)
    top = {**heading(args.commit), "target": target, "top": args.top, "jobs": args.jobs or "one a CPU", "unit": unit_of(__doc__)}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="taskc-tuning-") as folder:
        for precision in args.precisions.split(","):
            for name in args.models.split(","):
                rows.append(measure(Case(name, precision, folder), plan))
                write_json(out, {**top, "rows": rows})
    print(table([{**r, "error": str(r.get("error", ""))[-60:]} for r in rows], COLUMNS))
    return 0 if any("wall_s" in r for r in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds and counts of tuning from an empty cache.")
    parser.add_argument("--models", default=",".join(zoo.FULL))
    parser.add_argument("--precisions", default="fp16", help="any of fp16, fp32")
    parser.add_argument("--top", type=int, default=10, help="candidates a problem")
    parser.add_argument("--jobs", type=int, default=0, help="compiling processes; 0: as many as there are CPUs")
    parser.add_argument("--budget", type=float, default=120, help="seconds of tuning one model")
    parser.add_argument("--seconds", type=float, default=540, help="time budget of the whole run")
    parser.add_argument("--target", help="by default what fits the GPU present")
    parser.add_argument("--keep", type=Path, help="folder for a cache with everything that was measured")
    parser.add_argument("--out", type=Path, help="by default bench/results/tuning-GPU.json")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    unknown = [m for m in args.models.split(",") if m not in zoo.names()]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
