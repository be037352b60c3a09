"""Times of all schedules of one convolution, with the tuned and the top-ranked one marked -> JSON and a histogram in text.

    python -m bench.quality --out bench/results/quality-h200.json --seconds 300

28 x 28 pixels, 256 channels in and out, 3 x 3, stride 2, padding 1, batch 1, float16, channels last. The whole space of every
template that can compute it is compiled and measured by the tuner; *tuned* is the fastest of the --top ones that the analytic
model ranks first, *first* the one it ranks at the top, *best* the fastest of all. A candidate over three times slower than the
best so far is timed twice instead of a dozen times. --from FILE.json prints a result again without a GPU;
`python -m bench.plots` makes the picture.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.regret import WHOLE, Name, ranking
from bench.report import heading, short_name, target_here, unit_of, write_json
from taskc.compile import Options, read_groups
from taskc.ir.task import Contraction
from taskc.observe import Observer
from taskc.targets import TARGETS, Target
from taskc.tune.cache import Cache, Entry
from taskc.tune.problem import Problem, make_problem
from taskc.tune.processes import GpuMeasurer, MakeCompilers, MakeMeasurer, ProcessCompilers
from taskc.tune.tuner import Progress, TuneOptions, tune

PIXELS, CHANNELS = 28, 256
BINS = 24
WIDTH = 60  # characters of the longest bar


def convolution(pixels: int = PIXELS, channels: int = CHANNELS) -> onnx.ModelProto:
    """The convolution with seeded weights."""
    values = np.random.default_rng(0).standard_normal((channels, channels, 3, 3)) / math.sqrt(9 * channels)
    weight = numpy_helper.from_array(values.astype(np.float16), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, channels, pixels, pixels])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1, channels, (pixels + 1) // 2, (pixels + 1) // 2])
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="convolution", strides=[2, 2], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "convolution", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def problem_of(model: onnx.ModelProto, target: Target) -> Problem:
    """The convolution's own kernel; what brings the image into channels-last order is another."""
    units = [u for u in read_groups(model, Options(), Observer()).groups if isinstance(u.task, Contraction)]
    if len(units) != 1:
        raise RuntimeError(f"the convolution became {len(units)} products, not one")
    return make_problem(units[0], target, {})


def measure(problem: Problem, folder: Path, seconds: float, compilers: MakeCompilers = ProcessCompilers,
            measurer: MakeMeasurer = GpuMeasurer) -> Entry:
    """The whole space, measured. Raises RuntimeError when nothing was."""
    cache = Cache(folder, lambda m: print(m, file=sys.stderr))

    def listen(p: Progress) -> None:
        if p.measured % 20 == 0:
            print(f"{p.measured + p.failed} of {p.candidates}, best {p.best.us if p.best else math.nan:.2f} us", file=sys.stderr, flush=True)

    tune([problem.unit], problem.target, dict(problem.sizes), cache, TuneOptions(WHOLE, seconds), listen, compilers=compilers, measurer=measurer)
    entry = cache.find(problem.key)
    if entry is None or not entry.measured:
        raise RuntimeError("no schedule was measured within the time")
    return entry


def distribution(ranked: Sequence[Name], times: Mapping[Name, float], top: int) -> dict[str, Any]:
    """Rows sorted by time, each with its rank, and the marked ones. The share of schedules that are slower than the tuned one by a
    factor of 1.25, 2 and 5 is under 'slower'."""
    known = [name for name in ranked if name in times]
    tried = [name for name in ranked[:top] if name in times]
    if not tried:
        raise RuntimeError(f"none of the {top} first-ranked schedules has a time")
    tuned, best = min(tried, key=lambda n: times[n]), min(known, key=lambda n: times[n])
    marks: dict[Name, list[str]] = {}
    for mark, name in (("best", best), ("tuned", tuned), ("first", ranked[0])):
        marks.setdefault(name, []).append(mark)
    rows = [{"us": times[n], "template": n[0], "schedule": n[1], "rank": ranked.index(n), "mark": " ".join(marks.get(n, []))}
            for n in sorted(known, key=lambda n: times[n])]
    return {
        "schedules": len(ranked), "measured": len(known), "best_us": times[best], "tuned_us": times[tuned], "first_us": times.get(ranked[0]),
        "median_us": float(np.median([times[n] for n in known])), "worst_us": max(times[n] for n in known),
        "slower": {f"{f:g}x": round(sum(times[n] > f * times[tuned] for n in known) / len(known), 3) for f in (1.25, 2, 5)}, "rows": rows,
    }  # fmt: skip


def histogram(rows: Sequence[Mapping[str, Any]], bins: int = BINS) -> str:
    """A bar a range of times; ranges grow by a constant factor. What is marked is named at its range."""
    low, high = math.log(rows[0]["us"]), math.log(rows[-1]["us"])
    step = (high - low) / bins or 1.0
    place = [min(bins - 1, int((math.log(r["us"]) - low) / step)) for r in rows]
    most = max(place.count(b) for b in range(bins))
    lines: list[str] = []
    for b in range(max(place) + 1):
        count, marks = place.count(b), " ".join(r["mark"] for r, p in zip(rows, place, strict=True) if p == b and r["mark"])
        lines.append(f"{math.exp(low + b * step):9.2f} us {count:4d} {'#' * -(-count * WIDTH // most)} {'<- ' + marks if marks else ''}".rstrip())
    return "\n".join(lines)


def main() -> int:
    args = _arguments()
    if args.source:
        result: dict[str, Any] = json.loads(args.source.read_text())
    else:
        name = target_here()
        if name == "host":
            print("this measures on a GPU, and there is none here: run it on a machine with one, or name a result with --from", file=sys.stderr)
            return 8
        problem = problem_of(convolution(), TARGETS[name])
        with tempfile.TemporaryDirectory(prefix="taskc-quality-") as folder:
            entry = measure(problem, Path(folder), args.seconds)
        times = {(m.template, m.schedule): m.us for m in entry.measured}
        result = {**heading(args.commit), "target": name, "unit": unit_of(__doc__), "top": args.top,
                  "complete": entry.complete, "failed": entry.failed, **distribution(ranking(problem), times, args.top)}
        write_json(args.out or Path("bench/results", f"quality-{short_name()}.json"), result)
    print(histogram(result["rows"]))
    print({k: v for k, v in result.items() if k not in ("rows", "failed", "unit")})
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The distribution of one convolution's schedules.")
    parser.add_argument("--top", type=int, default=10, help="how many of the first-ranked a tuner would measure")
    parser.add_argument("--seconds", type=float, default=300, help="time budget of the measuring")
    parser.add_argument("--from", dest="source", type=Path, help="show an earlier result")
    parser.add_argument("--out", type=Path, help="by default bench/results/quality-GPU.json")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
