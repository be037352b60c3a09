"""Compile time, memory and library size of ResNet-50 (or another model of the zoo), untuned -> a table, and JSON with --out.

    python bench/compile_time.py [--model resnet50] [--half] [--target sm_90a]

Everything is measured in a fresh process: wall seconds from the start of Python to the written library; the peak resident
memory of that process and of its children; the library's bytes beyond its weights; and, where there is a GPU, the time
from loading the library to the first results. The limits are those that the project sets itself for ResNet-50 on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from bench.cases import Case, build, feeds
from bench.report import heading, table, target_here, write_json
from models import zoo
from taskc.artifact import loader
from taskc.compile import Options, compile_model
from taskc.observe import Observer

MB = 1 << 20


def compile_here(source: Path, out: Path, target: str, jobs: int) -> dict[str, Any]:
    """In the child: compiles, and says what it took."""
    observer = Observer()
    start = time.perf_counter()
    plan = compile_model(str(source), out, options=Options(targets=(target,), jobs=jobs), observe=observer)
    own, children = (resource.getrusage(who).ru_maxrss * 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    weights = sum(memoryview(data).nbytes for _, data in plan.weights)
    return {
        "inside_s": round(time.perf_counter() - start, 2), "steps_s": {k: round(v, 2) for k, v in observer.seconds.items()},
        "kernels": len(plan.targets[0].kernels), "launches": len(plan.targets[0].steps), "peak_bytes": max(own, children),
        "library_bytes": out.stat().st_size, "weights_bytes": weights,
    }  # fmt: skip


def first_result(library: Path, feed: Path, device: str) -> dict[str, Any]:
    """In the child: loads the library and runs it once. Python and NumPy are up already, as in a service."""
    with np.load(feed, allow_pickle=False) as file:
        inputs = {k: file[k] for k in file.files}
    start = time.perf_counter()
    model = loader.load(library, device=device)
    loaded = time.perf_counter()
    model.run(inputs)
    return {"load_s": round(loaded - start, 3), "first_result_s": round(time.perf_counter() - start, 3)}


def child(what: str, *arguments: str) -> tuple[dict[str, Any], float]:
    """A fresh process's answer, and its wall seconds. RuntimeError with what it printed where it fails."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, "--child", what, *arguments], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{what} failed with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1]), seconds


def measure(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    case = Case(args.model, "fp16" if args.half else "fp32", folder)
    model = build(case)
    case.path("").mkdir()
    source, library, feed = case.path("model.onnx"), case.path("model.so"), case.path("feed.npz")
    source.write_bytes(model.SerializeToString())
    np.savez(feed, **feeds(model, 1))  # type: ignore[arg-type]
    found, wall = child("compile", str(source), str(library), args.target, str(args.jobs))
    found = {"wall_s": round(wall, 2), **found, "model_bytes": source.stat().st_size}
    found["beyond_weights_bytes"] = found["library_bytes"] - found["weights_bytes"]
    device = "host" if args.target == "host" else "cuda:0" if target_here() != "host" else ""
    if device:
        found |= child("run", str(library), str(feed), device)[0]
    return {"model": args.model, "prec": case.precision, "target": args.target, "jobs": args.jobs or os.cpu_count(), **found}


def limits(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What is held to: name, value, limit."""
    rows = [
        ("compile, wall seconds", found["wall_s"], 15.0),
        ("peak memory, MB", found["peak_bytes"] / MB, 3 * found["model_bytes"] / MB + 1024),
        ("library beyond its weights, MB", found["beyond_weights_bytes"] / MB, 8.0),
    ]
    if "first_result_s" in found:
        rows.append(("load to first result, seconds", found["first_result_s"], 1.5))
    return [{"what": w, "value": v, "limit": limit, "within": v <= limit} for w, v, limit in rows]


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        what, *rest = sys.argv[2:]
        found = (
            compile_here(Path(rest[0]), Path(rest[1]), rest[2], int(rest[3]))
            if what == "compile"
            else first_result(Path(rest[0]), Path(rest[1]), rest[2])
        )
        print(json.dumps(found))
        return 0
    parser = argparse.ArgumentParser(description="Compile time, memory and library size.")
    parser.add_argument("--model", choices=zoo.names(), default="resnet50", metavar="MODEL")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--jobs", type=int, default=0, help="kernels compiled at once; 0: as many as there are CPUs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskc-compile-") as folder:
        found = measure(args, folder)
    print(json.dumps(found))
    print(table(limits(found), {"what": "<", "value": ".2f", "limit": ".2f", "within": "<"}))
    if args.out:
        write_json(args.out, {**heading(args.commit), **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
