"""What fusion does for a model: kernels and bytes moved with and without it, and on a GPU the time of both -> JSON and a table.

    python -m bench.fusion --out bench/results/fusion-h200.json                # counts alone: no GPU needed
    python -m bench.fusion --device --seconds 500 --out bench/results/fusion-h200.json

Without fusion every task of the graph is a kernel of its own, from the same templates, after the same rewrites of the graph (folded
batch norms, merged products, layouts). `views` are those among them that only move elements, which some compilers leave out.
Bytes count each tensor of a kernel once, what is read of a table no more often than it is asked for. Times are of one run on one
library each, in turns; `no_pdl` is the fused library whose launches wait for the end of their predecessors instead of starting
early (programmatic dependent launch), its kernels the same to the byte. `per_layer`: kernels that each layer of a transformer has.
Gains are times before over times after.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import onnx

from bench.cases import Case, build
from bench.report import heading, short_name, table, target_here, unit_of, write_json
from bench.worker import Worker, WorkerFailed
from models import zoo
from taskc.compile import Front, Options, read_groups
from taskc.fuse.partition import is_light
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index, prod
from taskc.ir.task import Attention, Contraction, Map, Rows, Store, Task, inputs, outputs, task_loads
from taskc.ir.value import Tensor, is_view
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.problem import make_problem

COLUMNS = {
    "model": "<", "prec": "<", "kernels_before": "d", "views_before": "d", "kernels": "d", "per_layer": "d", "mb_before": ".1f", "mb": ".1f",
    "unfused_us": ".1f", "no_pdl_us": ".1f", "us": ".1f", "fusion_gain": ".2f", "pdl_gain": ".3f", "right": "<", "error": "<",
}  # fmt: skip
LAYERS = {"bert": 12, "gpt2": 12}
LEAST = 20.0  # seconds below which no model is measured


def traffic(task: Task, sizes: Mapping[str, int]) -> tuple[int, int]:
    """(bytes a kernel of the task must move, those of them that are weights)."""
    moved = weights = 0
    for t in inputs(task):
        nbytes = _nbytes(t, sizes)
        if is_light(task):  # it asks for single elements: perhaps not for all of them
            nbytes = min(nbytes, _points(task, sizes) * t.dtype.bytes * sum(load.tensor == t for load in task_loads(task)))
        moved += nbytes
        weights += nbytes if t.constant else 0
    stored = dict.fromkeys(outputs(task), 0)
    for s in task.stores:
        stored[s.tensor] += _points(task, sizes, s) * s.tensor.dtype.bytes
    return moved + sum(min(n, _nbytes(t, sizes)) for t, n in stored.items()), weights


def _nbytes(t: Tensor, sizes: Mapping[str, int]) -> int:
    return _size(prod([*t.shape]), sizes) * t.dtype.bytes


def _points(task: Task, sizes: Mapping[str, int], store: Store | None = None) -> int:
    """Elements that a store of the task writes."""
    if isinstance(task, Map):
        axes = task.axes
    elif isinstance(task, Rows):
        axes = (task.row,) if store in task.row_stores else (task.row, task.column)
    else:
        assert isinstance(task, (Contraction, Attention))
        axes = (task.batch, task.m, task.n)
    return _size(prod([a.extent for a in axes]), sizes)


def _size(e: Index, sizes: Mapping[str, int]) -> int:
    return e if isinstance(e, int) else evaluate(e, sizes)


def counts(front: Front) -> dict[str, int]:
    """kernels, views (kernels that only move elements), bytes moved and bytes of weights among them."""
    found = [traffic(u.task, front.sizes) for u in front.groups]
    views = sum(isinstance(u.task, Map) and all(is_view(s.value) for s in u.task.stores) for u in front.groups)
    return {"kernels": len(found), "views": views, "bytes": sum(n for n, _ in found), "weight_bytes": sum(w for _, w in found)}


def per_layer(keys: Sequence[str], layers: int) -> int:
    """Kernels that every layer has, by the keys of their problems: one that comes once a layer, or in all but the last, counts as one."""
    return sum(round(n / layers) for n in Counter(keys).values())


def compare(model: onnx.ModelProto, layers: int | None) -> dict[str, Any]:
    """A model's counts without and with fusion; kernels a layer where `layers` is given."""
    fronts = [read_groups(model, Options(fuse=fuse), Observer()) for fuse in (False, True)]
    before, after = map(counts, fronts)
    row: dict[str, Any] = {"kernels": after["kernels"], "views": after["views"], "bytes": after["bytes"], "weight_bytes": after["weight_bytes"]}
    row |= {f"{k}_before": v for k, v in before.items()}
    if layers:
        for name, front in zip(("per_layer_before", "per_layer"), fronts, strict=True):
            row[name] = per_layer([make_problem(u, TARGETS["sm_90a"], front.sizes).key for u in front.groups], layers)
    return row


def gains(us: float, no_pdl_us: float, unfused_us: float) -> dict[str, float]:
    return {"fusion_gain": round(unfused_us / us, 3), "pdl_gain": round(no_pdl_us / us, 4), "fusion_saved_us": round(unfused_us - us, 2)}


def measure(case: Case, worker: Worker | None, request: Mapping[str, Any], left: float) -> dict[str, Any]:
    """A case's row; without a worker the counts alone. What failed is its 'error', what was found before stays."""
    row: dict[str, Any] = {"model": case.model, "prec": case.precision}
    try:
        model = build(case)
        row |= compare(model, LAYERS.get(case.model))
        if worker is None:
            return row
        if left < LEAST:
            return {**row, "error": "no time left"}
        case.path("").mkdir(parents=True, exist_ok=True)
        case.path("model.onnx").write_bytes(model.SerializeToString())
        row |= worker.ask({**request, "case": asdict(case)}, left)
        row |= gains(row["us"], row["no_pdl_us"], row["unfused_us"])
    except Exception as e:  # one model's failure, of whatever kind, is that model's row
        row["error"] = str(e) if isinstance(e, WorkerFailed) else f"{type(e).__name__}: {e}"
    return row


def show(rows: Sequence[Mapping[str, Any]]) -> str:
    def mb(row: Mapping[str, Any], key: str) -> float | None:
        return row[key] / 1e6 if key in row else None

    return table([{**r, "mb": mb(r, "bytes"), "mb_before": mb(r, "bytes_before"), "error": str(r.get("error", ""))[-60:]} for r in rows], COLUMNS)


def main() -> int:
    args = _arguments()
    deadline = time.monotonic() + args.seconds
    out = args.out or Path("bench/results", f"fusion-{short_name()}.json")
    target = args.target or target_here()
    request = {"target": target, "count": args.count, "cache": None if args.cache is None else str(args.cache)}
    top = {**heading(args.commit), "target": target if args.device else None, "batch": 1, "unit": unit_of(__doc__),
           "schedules": "the analytic model's" if args.cache is None else "tuned where the cache has the kernel, else the analytic model's"}
    worker = Worker("bench.side_fusion") if args.device else None
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="taskc-fusion-") as folder:
        try:
            for precision in args.precisions.split(","):
                for name in args.models.split(","):
                    rows.append(measure(Case(name, precision, folder), worker, request, deadline - time.monotonic()))
                    write_json(out, {**top, "rows": rows})
        finally:
            if worker is not None:
                worker.stop()
    print(show(rows))
    return 0 if any("error" not in r for r in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kernels, bytes and time with and without fusion.")
    parser.add_argument("--models", default=",".join(zoo.FULL))
    parser.add_argument("--precisions", default="fp16", help="any of fp16, fp32")
    parser.add_argument("--device", action="store_true", help="also measure times")
    parser.add_argument("--cache", type=Path, help="compile with the schedules that `taskc tune` left in this folder")
    parser.add_argument("--count", type=int, default=100, help="timed runs of each library in each of two turns")
    parser.add_argument("--seconds", type=float, default=500, help="time budget of the whole run")
    parser.add_argument("--target", help="by default what fits the GPU present")
    parser.add_argument("--out", type=Path, help="by default bench/results/fusion-GPU.json")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    unknown = [m for m in args.models.split(",") if m not in zoo.names()]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
