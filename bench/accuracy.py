"""Accuracy against the float64 evaluation of the same file, and against what a careful evaluation reaches.

    python -m bench.accuracy --models resnet50,bert --out bench/results/accuracy-h200.json

The bar: for float32 at most twice the error of onnxruntime on the CPU; for float16 at most twice that of float32 arithmetic
which rounds each operator's result to float16. Errors are relative norms, the worst over the inputs and outputs.
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

import numpy as np
import onnx

from bench.cases import Array, Case, build, feeds, relative_error
from bench.report import heading, short_name, table, target_here, write_json
from bench.side_prepare import run_reference
from bench.worker import Worker, pool
from models import zoo
from taskc.artifact import loader
from taskc.compile import Options, compile_model
from taskc.importer import import_model
from taskc.ir.interpret import evaluate_graph

BAR = (
    "float32: at most twice the error of onnxruntime on the CPU; float16: at most twice that of float32 arithmetic which rounds each "
    "operator's result to float16; errors are relative norms against the float64 evaluation of the same file"
)
FACTOR = 2.0  # the bar, in errors of the careful evaluation
COLUMNS = {"model": "<", "prec": "<", "error": ".2e", "careful": ".2e", "ratio": ".2f", "within": "<", "seconds": ".0f", "note": "<"}


def errors(
    model: onnx.ModelProto, precision: str, run: Any, seeds: Sequence[int], sizes: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """error of `run` (feed -> outputs by name), `careful` of the evaluation that sets the bar, their ratio, and whether it is within."""
    graph = import_model(model)
    ours, careful = 0.0, 0.0
    for seed in seeds:
        feed = feeds(model, seed, sizes)
        exact = evaluate_graph(graph, feed, np.float64)
        plain: dict[str, Array] = run_reference(model, feed) if precision == "fp32" else evaluate_graph(graph, feed)
        ours = max(ours, relative_error(run(feed), exact))
        careful = max(careful, relative_error(plain, exact))
    return {"error": ours, "careful": careful, "ratio": round(ours / careful, 3) if careful else None, "within": ours <= FACTOR * careful}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """A worker's request: compiles the case, runs it and compares."""
    case = Case(**request["case"])
    start = time.perf_counter()
    model = build(case)
    case.path("").mkdir(parents=True, exist_ok=True)
    library = case.path("model.so")
    compile_model(model, library, options=Options(targets=(request["target"],), jobs=request["jobs"]))
    loaded = loader.load(library, device="host" if request["target"] == "host" else "cuda:0")
    found = errors(model, case.precision, loaded.run, request["seeds"], request["sizes"])
    return {**found, "device": loaded.device_name, "seconds": round(time.perf_counter() - start, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Accuracy of taskc's libraries against float64.")
    parser.add_argument("--models", default=",".join(zoo.FULL))
    parser.add_argument("--precisions", default="fp32,fp16")
    parser.add_argument("--target", help="by default what fits the GPU present")
    parser.add_argument("--seeds", default="1", help="of the inputs, with commas")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dim")
    parser.add_argument("--workers", type=int, default=4, help="cases at once")
    parser.add_argument("--seconds", type=float, default=540, help="time budget")
    parser.add_argument("--out", type=Path, help="by default bench/results/accuracy-GPU.json")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    target = args.target or target_here()
    sizes = {k: int(v) for k, v in (d.split("=") for d in args.dim)}
    with tempfile.TemporaryDirectory(prefix="taskc-accuracy-") as folder:
        cases = [Case(m, p, folder) for m in args.models.split(",") for p in args.precisions.split(",")]
        shared = {"target": target, "jobs": 0, "seeds": [int(s) for s in args.seeds.split(",")], "sizes": sizes}
        workers = [Worker("bench.side_accuracy") for _ in range(min(args.workers, len(cases)))]
        try:
            answers = pool(workers, [{"case": asdict(c), **shared} for c in cases], time.monotonic() + args.seconds)
        finally:
            for w in workers:
                w.stop()
    rows = [{"model": c.model, "prec": c.precision, **a} for c, a in zip(cases, answers, strict=True)]
    write_json(
        args.out or Path("bench/results", f"accuracy-{short_name()}.json"),
        {**heading(args.commit), "target": target, "bar": BAR, "rows": rows},
    )
    print(table([r if "within" in r else {"model": r["model"], "prec": r["prec"], "note": r["error"][-80:]} for r in rows], COLUMNS))
    return 0 if all(r.get("within") for r in rows) else 5


if __name__ == "__main__":
    sys.exit(main())
