"""compute-sanitizer over single runs of the zoo's models -> JSON and a table; several at once, inside a time budget."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import heading, table, target_here, write_json
from models import zoo

TWINS = tuple(t for t in zoo.TWINS if t != "bert_tiny_dyn")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK|SYNCCHECK) SUMMARY: (\d+)")
HAZARDS = re.compile(r"\((\d+) errors?, (\d+) warnings?\)")
# racecheck of all twelve equal layers would take many minutes; the first launches hold every kernel of the model.
FIRST_LAUNCHES = {"bert": 16, "gpt2": 16}
COLUMNS = {"model": "<", "prec": "<", "tool": "<", "status": "<", "errors": "d", "warnings": "d", "seconds": ".0f"}


@dataclass(frozen=True)
class Job:
    """One tool over one run of one model."""

    model: str
    precision: str
    tool: str

    def arguments(self, folder: str, target: str) -> list[str]:
        return [self.model, *(["--half"] if self.precision == "fp16" else []), "--folder", folder, "--target", target]


def command_line(command: list[str], seconds: float, log: Path, environment: dict[str, str] | None = None) -> tuple[int | None, float]:
    """(exit code, seconds) of a command with its output in `log`; None where it did not end in time: it and its children are ended."""
    start = time.monotonic()
    if seconds <= 0:
        return None, 0.0
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **(environment or {})}
        )
        try:
            code: int | None = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the group made for it above
            process.wait()
            code = None
    return code, time.monotonic() - start


def verdict(code: int | None, text: str) -> dict[str, Any]:
    """What a tool's output says. 'clean' only where the run itself was right and the tool printed a summary of no errors."""
    found = SUMMARY.search(text)
    hazards = HAZARDS.search(text)
    errors = int(hazards[1]) if hazards else int(found[1]) if found else None
    first = next(
        (
            line.removeprefix("========= ")
            for line in text.splitlines()
            if re.search(r"========= (Error|Invalid|Warning|Race|Barrier|Program)", line)
        ),
        "",
    )
    status = (
        "not finished" if code is None else "no summary" if errors is None else "errors" if errors else "clean" if code == 0 else "failed"
    )
    out: dict[str, Any] = {"status": status, "errors": errors, "warnings": int(hazards[2]) if hazards else None, "exit_code": code}
    if status != "clean":
        out["first"], out["tail"] = first, text[-800:]
    return out


def check(job: Job, sanitizer: str, folder: str, target: str, deadline: float) -> dict[str, Any]:
    row: dict[str, Any] = {"model": job.model, "prec": job.precision, "tool": job.tool}
    if not Path(folder, f"{job.model}-{job.precision}", "model.so").exists():
        return {**row, "status": "not compiled"}
    log = Path(folder, f"{job.model}-{job.precision}-{job.tool}.log")
    command = [sanitizer, "--tool", job.tool, "--error-exitcode", "9", "--print-limit", "10"]
    environment: dict[str, str] = {}
    launches = FIRST_LAUNCHES.get(job.model) if job.tool == "racecheck" else None
    if launches is not None:
        command += ["--launch-count", str(launches)]
        environment["TASKC_NO_GRAPH"] = "1"  # a graph counts as one launch
        row["launches"] = launches
    command += [sys.executable, "-m", "bench.run_once", "run", *job.arguments(folder, target), *(["--once"] if job.tool == "racecheck" else [])]
    code, seconds = command_line(command, deadline - time.monotonic(), log, environment)
    return {**row, **verdict(code, log.read_text(errors="replace") if log.exists() else ""), "seconds": round(seconds, 1)}


def jobs_of(args: argparse.Namespace) -> list[Job]:
    """Tool by tool, as given."""
    out: list[Job] = []
    for models, tools in ((args.full, args.full_tools), (args.twins, args.twin_tools)):
        out += [Job(m, p, t) for t in tools.split(",") if t for m in models.split(",") if m for p in args.precisions.split(",")]
    return out


def main() -> int:
    args = _arguments()
    sanitizer = (
        os.environ.get("COMPUTE_SANITIZER")
        or shutil.which("compute-sanitizer")
        or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    )
    target = args.target or target_here()
    if sanitizer is None or target == "host":
        print("sanitize needs a GPU and compute-sanitizer (part of the CUDA toolkit) on the PATH", file=sys.stderr)
        return 8
    deadline = time.monotonic() + args.seconds
    jobs = jobs_of(args)
    with tempfile.TemporaryDirectory(prefix="taskc-sanitize-") as folder, ThreadPoolExecutor(args.at_once) as threads:

        def compiled(job: Job) -> None:
            command = [sys.executable, "-m", "bench.run_once", "compile", *job.arguments(folder, target)]
            log = Path(folder, f"{job.model}-{job.precision}-compile.log")
            code, _ = command_line(command, deadline - time.monotonic(), log)
            if code:
                print(f"{job.model} {job.precision} does not compile: {log.read_text(errors='replace')[-400:]}", flush=True)

        def checked(job: Job) -> dict[str, Any]:
            row = check(job, sanitizer, folder, target, deadline)
            label = f"{row['model']:16s} {row['prec']} {row['tool']:10s} {row['status']:12s}"
            print(f"{label} {row.get('seconds', 0):6.0f} s  {row.get('first', '')[:120]}", flush=True)
            return row

        list(threads.map(compiled, {(j.model, j.precision): j for j in jobs}.values()))
        print(f"compiled, {deadline - time.monotonic():.0f} s left", flush=True)
        rows = list(threads.map(checked, jobs))
        for n, row in enumerate(rows):  # runs beside each other may end for want of memory, which is no verdict
            if row["status"] in ("failed", "no summary") and time.monotonic() < deadline:
                rows[n] = {**checked(jobs[n]), "alone": True}
    version = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=False).stdout.strip().splitlines()
    write_json(args.out, {**heading(args.commit), "target": target, "sanitizer": " ".join(version[-1:]), "rows": rows})
    print(table([r for r in rows if r["status"] != "clean"] or rows, COLUMNS))
    print({s: sum(r["status"] == s for r in rows) for s in dict.fromkeys(r["status"] for r in rows)})
    return 0 if all(r["status"] == "clean" for r in rows) else 5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/sanitize.sh", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results/sanitizer-h200.json"))
    parser.add_argument("--full", default=",".join(zoo.FULL), help="full models, with commas; empty for none")
    parser.add_argument("--full-tools", default="memcheck", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--twins", default=",".join(TWINS))
    parser.add_argument("--twin-tools", default="memcheck,racecheck,synccheck")
    parser.add_argument("--precisions", default="fp16,fp32")
    parser.add_argument("--at-once", type=int, default=4, help="runs at once on the GPU")
    parser.add_argument("--seconds", type=float, default=460, help="time budget of everything")
    parser.add_argument("--target", help="by default what fits the GPU present")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
