"""Latency at batch 1 of taskc and its peers, on the same live models in the same run -> a JSON file and a short table.

    python -m bench.latency --models resnet50,bert --precisions fp16,fp32 --peers ort,torch --out bench/results/latency-h200.json

`us` is the device time of one graph launch between events, synchronised each time (the median; `us_min` the least);
`wall_us` the host's time from the call to the result, inputs and outputs on the GPU; `wall_host_us` the same with host
arrays. taskc is measured before and after the peers, so that a drift of the machine shows (`us_again`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.cases import Case
from bench.report import heading, short_name, table, target_here, write_json
from bench.worker import Worker, WorkerFailed, pool
from models import zoo

UNIT = (
    "us: device time of one graph launch between events, synchronised each time (median; us_min: least); wall_us: host time from the "
    "call to the result, inputs and outputs on the GPU; wall_host_us: with host arrays; ready_s: from the file (taskc: the library) "
    "to the first results; rel_err: relative norm against float32 evaluation of the same file; live: two inputs give different outputs"
)
MODES = {"ort": "ort cuda+graph", "torch": "torch eager+graph", "torch-compile": "torch compile max-autotune"}
REQUEST = {"ort": {}, "torch": {"mode": "eager"}, "torch-compile": {"mode": "compile"}}
COLUMNS = {
    "model": "<", "prec": "<", "mode": "<", "us": ".1f", "us_min": ".1f", "wall_us": ".1f", "rel_err": ".1e", "right": "<", "live": "<",
    "launches": "d", "note": "<",
}  # fmt: skip


@dataclass
class Run:
    """One benchmark run: its workers, its clock, and what it has found so far."""

    out: Path
    target: str
    count: int
    deadline: float
    workers: dict[str, Worker]
    heading: dict[str, Any]
    cache: Path | None = None
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def left(self, most: float = 1e9) -> float:
        return min(most, self.deadline - time.monotonic())

    def ask(self, worker: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The worker's answer; where a CUDA context was lost, perhaps to the request before, once more in a fresh process."""
        error = ""
        for _ in range(2):
            try:
                return self.workers[worker].ask({"count": self.count, **request}, self.left(seconds))
            except WorkerFailed as e:
                error = str(e)
            if "CUDA" not in error:
                break
        return {"error": error}

    def add(self, case: Case, mode: str, answer: dict[str, Any]) -> None:
        row = {"model": case.model, "prec": case.precision, "mode": mode, **answer, "zoo": "live"}
        self.rows.append(row)
        print(f"{case.label:20s} {mode:28s} {answer.get('us', '-'):>9} us  {_last_line(answer.get('error', ''))}", flush=True)

    def save(self) -> None:
        write_json(self.out, {**self.heading, "rows": self.rows})


def best(answer: dict[str, Any]) -> dict[str, Any]:
    """The fastest right try of a peer's answer, with the others under 'tried'; the error, or the wrong tries, where none is right."""
    tried = answer.get("tried")
    if tried is None:
        return answer
    timed = [t for t in tried if "us" in t]
    right = [t for t in timed if t["right"] and t["live"]]
    if not timed:
        return {"error": "; ".join(f"{t['options']}: {t['error']}" for t in tried)}
    chosen = min(right or timed, key=lambda t: t["us"])
    others = [{k: t[k] for k in ("options", "us", "rel_err", "right", "error") if k in t} for t in tried if t is not chosen]
    return {**chosen, "tried": others} if others else dict(chosen)


def measure(run: Run, case: Case, prepared: dict[str, Any], peers: Sequence[str]) -> None:
    """taskc, the peers, taskc again."""
    request = {"case": asdict(case)}
    usable = "error" not in prepared
    ours: dict[str, Any] = prepared
    device = "host" if run.target == "host" else "cuda:0"
    if usable and run.target != "none":
        ours = {**run.ask("taskc", {**request, "device": device}, 90), **prepared}
    found = [(p, best(run.ask(p, {**request, **REQUEST[p]}, 120)) if case.path("want_other.npz").exists() else prepared) for p in peers]
    if "us" in ours:
        again = run.ask("taskc", {**request, "device": device}, 90)
        ours["us_again"], ours["wall_us_again"] = again.get("us"), again.get("wall_us")
    if run.target != "none":
        run.add(case, "taskc", ours)
    for peer, answer in found:
        run.add(case, MODES[peer], answer)


def start(args: argparse.Namespace, out: Path) -> Run:
    workers = {
        "taskc": Worker("bench.side_taskc"), "ort": Worker("bench.side_ort", path=args.ort_path), "torch": Worker("bench.side_torch"),
    }  # fmt: skip
    workers["torch-compile"] = workers["torch"]
    target = args.target or target_here()
    top = {**heading(args.commit), "target": target, "batch": 1, "sequence": 128, "count": args.count, "unit": UNIT,
           "schedules": "the analytic model's" if args.cache is None else "tuned"}
    return Run(out, target, args.count, time.monotonic() + args.seconds, workers, top, args.cache)


def prepare(run: Run, cases: Sequence[Case], builders: int) -> list[dict[str, Any]]:
    """Files and libraries of all cases, before anything is timed; several at once, so compile_s is not that of a machine alone."""
    workers = [Worker("bench.side_prepare") for _ in range(min(builders, len(cases)))]
    jobs = max(1, (os.cpu_count() or 1) // len(workers))
    target = None if run.target == "none" else run.target
    cache = None if run.cache is None else str(run.cache)
    requests = [{"case": asdict(c), "target": target, "jobs": jobs, "cache": cache} for c in cases]
    deadline = time.monotonic() + 0.6 * run.left()
    try:
        answers = pool(workers, requests, deadline)
        try:
            run.heading["versions"] = workers[0].ask({"ask": "versions"}, 30)
        except WorkerFailed as e:
            run.heading["versions"] = {"error": str(e)}
        return answers
    finally:
        for w in workers:
            w.stop()


def main() -> int:
    args = _arguments()
    run = start(args, args.out or Path("bench/results", f"latency-{short_name()}.json"))
    peers = [p for p in args.peers.split(",") if p]
    with tempfile.TemporaryDirectory(prefix="taskc-latency-") as folder:
        cases = [Case(m, p, folder) for m in args.models.split(",") for p in args.precisions.split(",")]
        try:
            prepared = prepare(run, cases, args.builders)
            print(f"prepared {sum('error' not in p for p in prepared)} of {len(cases)} cases, {run.left():.0f} s left", flush=True)
            for name in ["taskc", *(p for p in peers if p != "torch-compile")]:
                found = run.ask(name, {"ask": "versions"}, 60)
                run.heading["versions"] |= {name: _last_line(found["error"])} if "error" in found else found
            quick = [p for p in peers if p != "torch-compile"]
            for case, facts in zip(cases, prepared, strict=True):
                measure(run, case, facts, quick)
                run.save()
            for case in cases if "torch-compile" in peers else []:  # slow: last, with the time that is left
                request = {"case": asdict(case), **REQUEST["torch-compile"]}
                run.add(case, MODES["torch-compile"], best(run.ask("torch-compile", request, args.compile_seconds)))
                run.save()
        finally:
            for w in run.workers.values():
                w.stop()
            run.save()
    print(_table(run.rows))
    return 0 if any("us" in r for r in run.rows) else 1


def _table(rows: list[dict[str, Any]]) -> str:
    shown = [{**r, "note": _last_line(r.get("error", r.get("options", "")))} for r in rows]
    return table(shown, COLUMNS)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:60]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Latency of taskc and its peers on the zoo's models.")
    parser.add_argument("--models", default=",".join(zoo.FULL))
    parser.add_argument("--precisions", default="fp16,fp32")
    parser.add_argument("--peers", default="ort,torch", help="any of ort, torch, torch-compile; empty for none")
    parser.add_argument("--ort-path", help="folder with the GPU build of onnxruntime")
    parser.add_argument("--out", type=Path, help="by default bench/results/latency-GPU.json")
    parser.add_argument("--seconds", type=float, default=540, help="time budget of the whole run")
    parser.add_argument("--compile-seconds", type=float, default=120, help="of one model under torch-compile")
    parser.add_argument("--count", type=int, default=200, help="timed runs of each system")
    parser.add_argument("--builders", type=int, default=4, help="cases prepared at once")
    parser.add_argument("--target", help="taskc target; by default what fits the GPU present; 'none': peers only")
    parser.add_argument("--cache", type=Path, help="taskc compiles with the schedules that `taskc tune` left in this folder")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    unknown = [m for m in args.models.split(",") if m not in zoo.names()] + [p for p in args.peers.split(",") if p and p not in MODES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
