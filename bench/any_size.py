"""Square float16 products of any size, both operands run-time inputs, against cuBLAS in the same run -> JSON and a table.

    python -m bench.any_size --out bench/results/any-size-h200.json --seconds 300

Each size is tuned from an empty cache (--top candidates), compiled, and every launch of the library counts. Both systems run on the
same operands: sets of buffers that together exceed the L2 cache take turns in one CUDA graph, and a product's time is the
graph's device time over the products in it (median of several replays). `ratio`: cuBLAS's time over ours.
"""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from onnx import TensorProto, helper

from bench.machines import Cuda, Machine
from bench.report import heading, short_name, table, target_here, unit_of, write_json
from bench.walk import Walk
from taskc.artifact.plan import InputMemory, ModelPlan, OutputMemory
from taskc.compile import Front, Options, compile_model, read_groups
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.cache import Cache
from taskc.tune.problem import make_problem
from taskc.tune.tuner import TuneOptions, tune

SIZES = (2048, 2047, 2046, 2045, 2044, 2043, 2042, 2039)
COLD_BYTES = 192 << 20  # of all sets of buffers: beyond any L2 cache of today
PRODUCTS = 48  # in a graph
TOLERANCE = 2e-3  # relative norm; storing float16 alone gives 3e-4
RESERVE = 60.0  # seconds kept from tuning for compiling and measuring
COLUMNS = {"n": "d", "us": ".2f", "cublas_us": ".2f", "ratio": ".3f", "TFLOP/s": ".0f", "cublas_TFLOP/s": ".0f", "rel_err": ".1e", "right": "<",
           "launches": "d", "schedule": "<", "error": "<"}


def product_model(n: int) -> onnx.ModelProto:
    """y = a @ b, all n x n of float16, a and b inputs."""
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, [n, n]) for name in "aby")
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"], name="product")], f"product_{n}", [a, b], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sets_of(nbytes: int) -> int:
    """How many sets of buffers of that size take turns: at least two, at most one a product."""
    return min(PRODUCTS, max(2, -(-COLD_BYTES // nbytes)))


def figures(n: int, us: float, cublas_us: float) -> dict[str, float]:
    work = 2.0 * n**3
    return {"us": round(us, 2), "cublas_us": round(cublas_us, 2), "ratio": round(cublas_us / us, 3), "TFLOP/s": round(work / us / 1e6, 1),
            "cublas_TFLOP/s": round(work / cublas_us / 1e6, 1)}


def buffers(machine: Machine, n: int) -> list[dict[str, Any]]:
    """Sets of a, b (seeded, of standard deviation 1 and 1/sqrt(n)) and room for y, as bytes on the machine."""
    rng = np.random.default_rng(n)
    found: list[dict[str, Any]] = []
    for _ in range(sets_of(6 * n * n)):
        a, b = rng.standard_normal((n, n), np.float32), rng.standard_normal((n, n), np.float32) / np.sqrt(n)
        found.append({"a": machine.upload(a.astype(np.float16).tobytes()), "b": machine.upload(b.astype(np.float16).tobytes()),
                      "y": machine.upload(b"\xff" * (2 * n * n))})
    return found


def our_calls(plan: ModelPlan, machine: Machine, sets: Sequence[Mapping[str, Any]]) -> list[list[Callable[[], None]]]:
    """For every set the calls of all the library's launches."""
    n = int(plan.inputs[0].shape[0])  # type: ignore[call-overload]
    walk = Walk(plan, machine, {p.name: np.zeros((n, n), np.float16) for p in plan.inputs})
    place = {t: plan.inputs[p.memory.number].name if isinstance(p.memory, InputMemory) else "y" for t, p in enumerate(walk.target.tensors)
             if isinstance(p.memory, (InputMemory, OutputMemory))}
    if len(walk.launches()) != len(walk.target.steps):
        raise RuntimeError("the library copies or fills memory besides its launches: that would not be counted")
    return [[walk.call(step, {t: s[name] for t, name in place.items()}) for _, step in walk.launches()] for s in sets]


def turns(per_set: Sequence[Sequence[Callable[[], None]]], products: int) -> tuple[list[Callable[[], None]], int]:
    """(calls of whole rounds over the sets, products in them), about `products` of them."""
    rounds = max(1, round(products / len(per_set)))
    return [call for _ in range(rounds) for calls in per_set for call in calls], rounds * len(per_set)


def measure(n: int, plan: ModelPlan) -> dict[str, Any]:
    import torch  # a GPU's machine has it

    machine = Cuda(plan.targets[0])
    sets = buffers(machine, n)
    ours = our_calls(plan, machine, sets)
    views = [{k: memory[: 2 * n * n].view(torch.float16).view(n, n) for k, memory in s.items()} for s in sets]
    for call in ours[0]:
        call()
    torch.cuda.synchronize()
    want = views[0]["a"].double() @ views[0]["b"].double()
    error = float((views[0]["y"].double() - want).norm() / want.norm())
    theirs = [[lambda v=v: torch.matmul(v["a"], v["b"], out=v["y"])] for v in views]
    with torch.cuda.stream(machine._stream):  # cuBLAS makes its workspace for the stream before a capture
        theirs[0][0]()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {"us": [], "cublas_us": []}
    for _ in range(2):
        for name, calls in (("us", ours), ("cublas_us", theirs)):
            graph, count = turns(calls, PRODUCTS)
            times[name].append(machine.microseconds(graph) / count)
    found = figures(n, *(sum(v) / len(v) for v in times.values()))
    each = {k: [round(x, 2) for x in v] for k, v in times.items()}
    return {**found, "rel_err": error, "right": bool(error <= TOLERANCE), "sets": len(sets), "turns": each}


def tune_all(fronts: Mapping[int, Front], target: str, cache: Cache, options: TuneOptions) -> dict[str, Any]:
    """Tunes every kernel of every size in one session."""
    units = [u for front in fronts.values() for u in front.groups]
    r = tune(units, TARGETS[target], {}, cache, options)
    return {"tune_s": round(r.seconds, 1), "problems": r.problems, "tuned": r.tuned, "compiled": r.compiled, "measured": r.measured,
            "failed": r.failed, "complete": r.complete}


def winners(front: Front, target: str, cache: Cache) -> str:
    found = [cache.find(make_problem(u, TARGETS[target], {}).key) for u in front.groups]
    return "; ".join("untuned" if e is None or e.best is None else f"{e.best.template} {e.best.schedule}" for e in found)


def main() -> int:
    args = _arguments()
    target = target_here()
    if target == "host":
        print("this measures on a GPU, and there is none here: run it on a machine with one", file=sys.stderr)
        return 8
    deadline = time.monotonic() + args.seconds
    out = args.out or Path("bench/results", f"any-size-{short_name()}.json")
    top = {**heading(args.commit), "target": target, "dtype": "float16", "top": args.top, "unit": unit_of(__doc__)}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="taskc-any-size-") as folder:
        cache = Cache(Path(folder), lambda m: print(m, file=sys.stderr))
        sizes = [int(n) for n in args.sizes.split(",")]
        models = {n: product_model(n) for n in sizes}
        fronts = {n: read_groups(m, Options(), Observer()) for n, m in models.items()}
        top["tuning"] = tune_all(fronts, target, cache, TuneOptions(args.top, max(1.0, args.seconds - RESERVE)))
        print(top["tuning"], flush=True)
        for n in sizes:
            row: dict[str, Any] = {"n": n, "schedule": winners(fronts[n], target, cache)}
            try:
                if time.monotonic() > deadline:
                    raise TimeoutError("no time left")
                plan = compile_model(models[n], Path(folder, f"{n}.so"), options=Options(targets=(target,), cache=Path(folder)))
                row |= {"launches": len(plan.targets[0].steps), **measure(n, plan)}
            except Exception as e:  # one size's failure, of whatever kind, is that size's row
                row["error"] = f"{type(e).__name__}: {e}"[:300]
            rows.append(row)
            write_json(out, {**top, "rows": rows})
    print(table(rows, COLUMNS))
    return 0 if any("us" in r for r in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Square float16 products of any size against cuBLAS.")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--top", type=int, default=10, help="candidates a size")
    parser.add_argument("--seconds", type=float, default=300, help="time budget of the whole run")
    parser.add_argument("--out", type=Path, help="by default bench/results/any-size-GPU.json")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
