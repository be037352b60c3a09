"""Latency of a model under other policies of launching its kernels, which stay as they are -> JSON and a table.

    python -m bench.launching --cache DIR --out bench/results/launching-h200.json

`us`: as taskc does it. Then one thing changed: kernels let their successors start as their first act (`at_once`), when their sums are
done (`late`) or not before they end (`never`); no kernel asks for more shared memory than it uses (`no_shares`), or all do for one even
share of blocks (`one_share`) or for two (`two_shares`), whether launches run side by side or not (taskc/tune/residency.py); no parallel
branches in one launch (`no_branches`). Times are medians of runs on one library each, in turns, in microseconds of one graph launch.
`same`: all libraries gave the same bits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.cases import Case, build
from bench.report import heading, short_name, table, target_here, unit_of, write_json
from bench.side_launching import NAMES
from bench.worker import Worker, pool
from models import zoo

COLUMNS = {
    "model": "<", "prec": "<", "us": ".1f", "late_us": ".1f", "at_once_us": ".1f", "never_us": ".1f", "no_shares_us": ".1f", "one_share_us": ".1f",
    "two_shares_us": ".1f", "no_branches_us": ".1f", "same": "<", "error": "<",
}  # fmt: skip


def prepare(cases: Sequence[Case], request: Mapping[str, Any], builders: int, deadline: float) -> list[str]:
    """Builds the libraries of all cases and policies, several at once; for each case what failed, or nothing."""
    for case in cases:
        case.path("").mkdir(parents=True, exist_ok=True)
        case.path("model.onnx").write_bytes(build(case).SerializeToString())
    workers = [Worker("bench.side_launching") for _ in range(builders)]
    try:
        requests = [{**request, "do": "build", "case": asdict(c), "policy": p} for c in cases for p in NAMES]
        answers = iter(pool(workers, requests, deadline))
    finally:
        for w in workers:
            w.stop()
    return ["; ".join(a["error"] for a in [next(answers) for _ in NAMES] if "error" in a) for _ in cases]


def main() -> int:
    args = _arguments()
    deadline = time.monotonic() + args.seconds
    target = args.target or target_here()
    request = {"target": target, "count": args.count, "cache": None if args.cache is None else str(args.cache)}
    top = {**heading(args.commit), "target": target, "batch": 1, "unit": unit_of(__doc__),
           "schedules": "the analytic model's" if args.cache is None else "tuned where the cache has the kernel, else the analytic model's"}
    rows: list[dict[str, Any]] = []
    worker = Worker("bench.side_launching")
    with tempfile.TemporaryDirectory(prefix="taskc-launching-") as folder:
        cases = [Case(m, p, folder) for p in args.precisions.split(",") for m in args.models.split(",")]
        failed = prepare(cases, request, args.builders, deadline)
        try:
            for case, error in zip(cases, failed, strict=True):
                timed = {**request, "do": "measure", "case": asdict(case)}
                found = {"error": error} if error else pool([worker], [timed], deadline)[0]
                rows.append({"model": case.model, "prec": case.precision, **found})
                write_json(args.out or Path("bench/results", f"launching-{short_name()}.json"), {**top, "rows": rows})
        finally:
            worker.stop()
    print(table([{**r, "error": str(r.get("error", ""))[-60:]} for r in rows], COLUMNS))
    return 0 if any("us" in r for r in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Latency under other policies of launching.")
    parser.add_argument("--models", default=",".join(zoo.FULL))
    parser.add_argument("--precisions", default="fp16,fp32")
    parser.add_argument("--cache", type=Path, help="compile with the schedules that `taskc tune` left in this folder")
    parser.add_argument("--count", type=int, default=60, help="timed runs of each library in each of three turns")
    parser.add_argument("--builders", type=int, default=8, help="libraries built at once")
    parser.add_argument("--seconds", type=float, default=300, help="time budget of the whole run")
    parser.add_argument("--target", help="by default what fits the GPU present")
    parser.add_argument("--out", type=Path, help="by default bench/results/launching-GPU.json")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    unknown = [m for m in args.models.split(",") if m not in zoo.names()]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
