"""Time per launch of a taskc library: what to make faster next.

    python -m bench.kernels resnet50 --half [--marginal] [--out FILE.json] [--target host]

For every launch: `us`, its time alone, one of many repetitions in a CUDA graph on its true inputs (weights rotate among
copies, so that they come from memory and not from the L2 cache, as in a whole run; activations are warm; `warm_us`
without the rotation); bytes moved and floating-point operations, the rates they give, and how far the time is from the
floor that the card's rates set. The sum of all is compared with `graph_us`, a run of the whole library, and `chain_us`, all
launches one after the other in a graph. With --marginal also what the chain loses when the launch is left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from bench.cases import Case, build, feeds
from bench.machines import Cuda, Host, Machine
from bench.report import heading, table, target_here, write_json
from bench.timing import summary
from bench.walk import Walk, compile_with_launches
from models import zoo
from taskc.artifact import loader
from taskc.artifact.plan import Launch, TensorArg
from taskc.errors import TaskcError
from taskc.ir.dtype import F32
from taskc.ir.expr import Index
from taskc.ir.task import Attention, Contraction, Map, Task
from taskc.ir.value import Reduce, walk
from taskc.targets import TARGETS
from taskc.tune.launches import BuiltLaunch

COLUMNS = {
    "share": "5.1f", "us": "7.2f", "warm_us": "7.2f", "marginal_us": "7.2f", "x_floor": "6.1f", "GB/s": "6.0f", "TFLOP/s": "6.1f",
    "blocks": "d", "threads": "d", "regs": "d", "spill": "d", "template": "<", "schedule": "<", "problem": "<", "name": "<",
}  # fmt: skip
ROTATED_BYTES = 96 << 20  # beyond any L2 cache of today
MOST_COPIES, LEAST_ROTATED = 64, 1 << 16


def flops(task: Task, walked: Walk) -> int:
    """Floating-point operations of the products and sums that the task's definition asks for; 0 where they do not matter."""

    def size(*extents: Index) -> int:
        out = 1
        for e in extents:
            out *= walked.at(e)
        return out

    if isinstance(task, Contraction):
        return 2 * size(task.batch.extent, task.m.extent, task.n.extent, task.k.extent)
    if isinstance(task, Attention):
        rows = size(task.batch.extent, task.m.extent, task.j.extent)
        return 2 * rows * (size(task.k.extent) + size(task.n.extent))
    if isinstance(task, Map):
        points = size(*(a.extent for a in task.axes))
        return 2 * points * sum(size(*v.extents) for s in task.stores for v in walk(s.value) if isinstance(v, Reduce))
    return 0


def problem(task: Task, walked: Walk) -> str:
    """The task's extents in a few characters."""
    if isinstance(task, Contraction):
        axes = (task.batch, task.m, task.n, task.k)
    elif isinstance(task, Attention):
        axes = (task.batch, task.m, task.j, task.k, task.n)
    elif isinstance(task, Map):
        axes = task.axes
    else:
        axes = (task.row, task.column)
    return "x".join(str(walked.at(a.extent)) for a in axes)


def moved_bytes(step: Launch, task: Task, walked: Walk) -> int:
    """The fewest bytes a launch must move: each tensor once; of a table that a map gathers from, no more than the map's points."""
    total = 0
    uses = Counter(a.tensor for a in step.args if isinstance(a, TensorArg))  # branches may share one
    points = int(np.prod([walked.at(a.extent) for a in task.axes])) if isinstance(task, Map) else None
    gathers = isinstance(task, Map) and not any(isinstance(v, Reduce) for s in task.stores for v in walk(s.value))
    for n, times in uses.items():
        nbytes = walked.nbytes(n)
        total += min(nbytes, times * points * walked.target.tensors[n].dtype.bytes) if gathers and points is not None else nbytes
    return total


def repeated(walked: Walk, step: Launch, machine: Machine, repeat: int) -> tuple[float, float]:
    """(us with rotated weights, us without) of one launch."""
    weights = {a.tensor for a in step.args if isinstance(a, TensorArg) and walked.is_weight(a.tensor)}
    nbytes = sum(walked.nbytes(n) for n in weights)
    warm = machine.microseconds([walked.call(step)] * repeat) / repeat
    if nbytes < LEAST_ROTATED or isinstance(machine, Host):
        return warm, warm
    copies = min(MOST_COPIES, -(-ROTATED_BYTES // nbytes) + 1)
    calls = [walked.call(step, {n: walked.memory[n].clone() for n in weights}) for _ in range(copies)]
    rounds = max(1, repeat // copies)
    return machine.microseconds(calls * rounds) / (copies * rounds), warm


def measure_launch(walked: Walk, step: Launch, built: BuiltLaunch, repeat: int) -> dict[str, Any]:
    machine = walked.machine
    kernel = walked.target.kernels[step.kernel]
    device = TARGETS[walked.target.target].device
    us, warm = repeated(walked, step, machine, repeat)
    first, branches = built.kernels[0], len(built.kernels)
    task = first.unit.task
    work, nbytes = branches * flops(task, walked), moved_bytes(step, task, walked)
    wide = not isinstance(task, (Contraction, Attention)) or task.operand == F32
    floor = max(nbytes / device.memory_rate, work / (device.fp32_rate if wide else device.mma_f16_rate)) * 1e6
    return {
        "us": round(us, 3), "warm_us": round(warm, 3), "bytes": nbytes, "flops": work, "GB/s": round(nbytes / us / 1e3, 1),
        "TFLOP/s": round(work / us / 1e6, 2), "floor_us": round(floor, 3), "x_floor": round(us / floor, 2) if floor else None,
        "grid": [walked.at(g) for g in step.grid], "blocks": int(np.prod([walked.at(g) for g in step.grid])), "threads": kernel.threads,
        "shared_bytes": kernel.shared_bytes, "regs": kernel.registers, "spill": kernel.spill_bytes, "symbol": kernel.symbol,
        "template": first.choice.template.NAME, "schedule": str(first.choice.schedule),
        "predicted_us": round(sum(k.choice.seconds for k in built.kernels) * 1e6, 2), "branches": branches,
        "problem": (f"{branches} x " if branches > 1 else "") + problem(task, walked),
        "refused": [r for k in built.kernels for r in k.unit.refused], "joined": [j for k in built.kernels for j in k.unit.joined],
        "name": step.name,
    }  # fmt: skip


def profile(source: str, library: Path, target: str, feed: dict[str, Any], *, repeat: int = 32, marginal: bool = False) -> dict[str, Any]:
    """Compiles and measures a model -> {'graph_us', 'chain_us', 'sum_us', 'rows' (slowest first), …}.

    Raises RuntimeError where the launches one by one give other outputs than the library."""
    plan, launches, seconds = compile_with_launches(source, library, target)
    model = loader.load(library, device="host" if target == "host" else "cuda:0")
    expected = model.run(feed)
    model.time_device(5)
    graph_us, graph_least = summary(model.time_device(3 if target == "host" else 100))
    machine = Host(plan.targets[0]) if target == "host" else Cuda(plan.targets[0])
    walked = Walk(plan, machine, feed)
    steps = walked.launches()
    chain = [walked.call(s) for _, s in steps]
    walked.run(chain)
    for n, port in enumerate(plan.outputs):
        if not np.array_equal(walked.output(n), expected[port.name]):
            raise RuntimeError(f"launch by launch, output {port.name} differs from the library's: the tables are read wrongly")
    chain_us = machine.microseconds(chain)
    rows = [{"launch": n, **measure_launch(walked, s, b, repeat)} for (n, s), b in zip(steps, launches, strict=True)]
    if marginal:
        for i, row in enumerate(rows):
            row["marginal_us"] = round(chain_us - machine.microseconds(chain[:i] + chain[i + 1 :]), 3)
    total = sum(r["us"] for r in rows)
    for row in rows:
        row["share"] = round(100 * row["us"] / total, 2)
    rows.sort(key=lambda r: -r["us"])
    return {
        "graph_us": graph_us, "graph_us_min": graph_least, "chain_us": round(chain_us, 2), "sum_us": round(total, 2),
        "launches": len(steps),
        "other_steps": len(plan.targets[0].steps) - len(steps), "kernels": len(plan.targets[0].kernels),
        "arena_bytes": walked.at(plan.targets[0].arena_bytes),
        "compile_seconds": {k: round(v, 2) for k, v in seconds.items()}, "rows": rows,
    }  # fmt: skip


def by_template(rows: list[dict[str, Any]]) -> str:
    """Sums by template."""
    names = dict.fromkeys(r["template"] for r in rows)
    sums = [
        {"template": t, "launches": len(own), "us": sum(r["us"] for r in own), "floor_us": sum(r["floor_us"] for r in own)}
        for t in names if (own := [r for r in rows if r["template"] == t])
    ]  # fmt: skip
    return table(sorted(sums, key=lambda r: -r["us"]), {"template": "<", "launches": "d", "us": ".1f", "floor_us": ".1f"})


def main() -> int:
    parser = argparse.ArgumentParser(description="Time per launch of a model of the zoo.")
    parser.add_argument("model", choices=zoo.names(), metavar="MODEL")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--target", help="by default what fits the GPU present")
    parser.add_argument("--repeat", type=int, default=32, help="repetitions of a launch in a graph")
    parser.add_argument("--marginal", action="store_true", help="also what the chain loses without the launch")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dim")
    parser.add_argument("--top", type=int, default=40, help="rows of the printed table")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    target = args.target or target_here()
    sizes = {k: int(v) for k, v in (d.split("=") for d in args.dim)}
    with tempfile.TemporaryDirectory(prefix="taskc-kernels-") as folder:
        case = Case(args.model, "fp16" if args.half else "fp32", folder)
        model = build(case)
        case.path("").mkdir()
        case.path("model.onnx").write_bytes(model.SerializeToString())
        try:
            found = profile(
                str(case.path("model.onnx")),
                case.path("model.so"),
                target,
                feeds(model, 1, sizes),
                repeat=1 if target == "host" else args.repeat,
                marginal=args.marginal,
            )
        except TaskcError as e:
            print(f"{case.label}: {e}", file=sys.stderr)
            return e.exit_code
    result = {"model": args.model, "prec": case.precision, "target": target, **heading(args.commit), **found}
    if args.out:
        write_json(args.out, result)
    print(
        table(
            [{**r, "name": r["name"][:60]} for r in found["rows"][: args.top]],
            {k: f for k, f in COLUMNS.items() if args.marginal or k != "marginal_us"},
        )
    )
    print(by_template(found["rows"]))
    print({k: v for k, v in result.items() if k != "rows"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
