"""Schedule spaces: their sizes, and how much is lost by measuring only what the analytic model ranks first.

    python -m bench.spaces                                               # sizes, and the regret over the spaces measured before
    python -m bench.spaces FILE.jsonl … --measure 12 --seconds 400       # also measures the spaces of 12 kernels on this GPU

The *regret of the top n* is the time of the best among the n best-ranked schedules of a problem, over the best of its whole space,
minus 1. Times come from the tuner's cache files, by default `bench/results/spaces-*.jsonl`. A problem is found by its key in the
zoo's models as they are compiled now; where fusion has changed it since, by its operands, or by its extents (column `by`).
A template counts for a problem when 90 % of today's schedules of it have a time in the entry; `not measured` names the templates
that could compute the problem too and do not count. Both the ranking and the best are among the templates that count. A problem whose
first-ranked template does not count has no row.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.regret import TOPS, WHOLE, Regret, match, ranking, regret, shape_of, summary, times_of
from bench.report import heading, table, target_here, unit_of, write_json
from models import zoo
from taskc.compile import Options, read_groups
from taskc.ir.dtype import BF16, F16, F32, F64
from taskc.observe import Observer
from taskc.schedules import TEMPLATES, Traits
from taskc.targets import TARGETS, Target
from taskc.tune.cache import Cache, Entry, parse
from taskc.tune.problem import Problem
from taskc.tune.tuner import Progress, TuneOptions, problems_of, tune

MOST = 200  # schedules that a template may have on a target
COLUMNS = {
    "model": "<", "top1_%": ".1f", "top10_%": ".1f", "best_us": ".2f", "rank": "d", "known": "d", "by": "<", "source": "<", "not measured": "<",
    "problem": "<", "best": "<",
}  # fmt: skip


def sizes() -> list[dict[str, Any]]:
    """A row a template, target, element type and precision that has schedules."""
    rows: list[dict[str, Any]] = []
    for template in TEMPLATES:
        for target in TARGETS.values():
            for dtype in (F16, BF16, F32, F64):
                for precision in ("native", "tf32") if dtype == F32 else ("native",):
                    count = len(template.space(target, Traits(dtype, dtype, precision)))
                    if count:
                        rows.append({"template": template.NAME, "target": target.name, "operand": dtype.name, "precision": precision,
                                     "schedules": count, "within": count <= MOST})
    return rows


def zoo_problems(models: Sequence[str], precisions: Sequence[str], target: Target) -> dict[str, tuple[Problem, str]]:
    """The models' distinct problems by key, each with the first model that has it. A model that cannot be read is told of and left out."""
    found: dict[str, tuple[Problem, str]] = {}
    for precision in precisions:
        for name in models:
            try:
                front = read_groups(zoo.build(name, half=precision == "fp16"), Options(), Observer())
            except Exception as e:  # of whatever kind: the other models go on
                print(f"{name}-{precision}: {type(e).__name__}: {e}", file=sys.stderr)
                continue
            for p in problems_of(front.groups, target, front.sizes):
                found.setdefault(p.key, (p, f"{name}-{precision}"))
    return found


def read_entries(files: Sequence[Path]) -> list[tuple[Entry, str]]:
    """The entries of cache files that are complete, each with its file's name; damaged lines are told of and left out."""
    found: list[tuple[Entry, str]] = []
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            try:
                entry = parse(line)
            except (ValueError, KeyError, TypeError) as e:
                print(f"{file}:{number}: no entry of a cache ({e})", file=sys.stderr)
                continue
            if entry.complete:
                found.append((entry, file.name))
    return found


def regrets(problems: Mapping[str, tuple[Problem, str]], entries: Sequence[tuple[Entry, str]]) -> list[dict[str, Any]]:
    """A row a problem that has enough measured times: those of the entry with most, the later one of equals."""
    names = {id(entry): name for entry, name in entries}
    best: dict[str, dict[str, Any]] = {}
    ranked: dict[str, list[tuple[str, str]]] = {}
    for problem, entry, how in match([p for p, _ in problems.values()], [e for e, _ in entries]):
        if problem.key not in ranked:
            ranked[problem.key] = ranking(problem)
        found = regret(ranked[problem.key], times_of(entry))
        if found is not None and found.known >= best.get(problem.key, {"known": 0})["known"]:
            best[problem.key] = _row(problem, problems[problem.key][1], found, how, names[id(entry)])
    return list(best.values())


def _row(problem: Problem, model: str, found: Regret, how: str, source: str) -> dict[str, Any]:
    shape = shape_of(problem.text, False)
    text = shape.splitlines()[-1] if shape else problem.text.splitlines()[-1].strip()
    losses = {f"top{n}_%": round(100 * found.loss[n], 2) for n in TOPS}
    return {"model": model, **losses, "best_us": found.best_us, "rank": found.rank, "known": found.known,
            "covered": round(found.covered, 3), "templates": found.templates, "not measured": " ".join(found.missing), "by": how,
            "source": source, "problem": text, "best": " ".join(found.best), "first": " ".join(found.first), "nodes": problem.nodes,
            "key": problem.key}


def summaries(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each top: count, geometric mean and worst in percent, over all rows, and over those with every template measured."""
    found: dict[str, Any] = {}
    for which, some in (("all", list(rows)), ("every template measured", [r for r in rows if not r["not measured"]])):
        for n in TOPS:
            s = summary([r[f"top{n}_%"] / 100 for r in some])
            found[f"top {n}, {which}"] = None if s is None else {
                "count": len(some), "geomean_%": round(100 * s[0], 2), "worst_%": round(100 * s[1], 2)}
    return found


def sample(problems: Mapping[str, tuple[Problem, str]], count: int, seed: int) -> list[Problem]:
    """A seeded sample that does not depend on the order of the models."""
    keys = sorted(problems)
    return [problems[k][0] for k in random.Random(seed).sample(keys, min(count, len(keys)))]


def measure(chosen: Sequence[Problem], target: Target, folder: Path, seconds: float, jobs: int) -> list[tuple[Entry, str]]:
    """The entries of problems whose whole space was measured within the time; the others are in the folder's cache, incomplete."""
    cache = Cache(folder, lambda m: print(m, file=sys.stderr))
    known = {name: size for p in chosen for name, size in p.sizes}

    def listen(progress: Progress) -> None:
        if progress.done:
            best = f"{progress.best.us:.2f} us" if progress.best else "nothing worked"
            print(f"{progress.problem}/{progress.problems} {progress.nodes[:60]}: {best}; {progress.measured} measured", flush=True)

    result = tune([p.unit for p in chosen], target, known, cache, TuneOptions(WHOLE, seconds, jobs), listen)
    found = [e for p in chosen if (e := cache.find(p.key)) is not None and e.complete and e.best is not None]
    print(f"{len(found)} of {len(chosen)} spaces measured: {result.measured} schedules, {result.failed} failed, in {result.seconds:.0f} s")
    return [(e, "this run") for e in found]


def default_name(entries: Sequence[Entry]) -> str:
    """The result's file: named after the devices that were measured."""
    return "-".join(["spaces", *sorted({e.device.lower() for e in entries})]) + ".json"


def main() -> int:
    args = _arguments()
    target = TARGETS[args.target]
    spaces = sizes()
    result: dict[str, Any] = {**heading(args.commit), "target": target.name, "unit": unit_of(__doc__),
                              "files": [f.name for f in args.files], "spaces": spaces}
    print(table(spaces, {"template": "<", "target": "<", "operand": "<", "precision": "<", "schedules": "d", "within": "<"}))
    entries = read_entries(args.files)
    if entries or args.measure:
        problems = zoo_problems(args.models.split(","), args.precisions.split(","), target)
        if args.measure:
            with tempfile.TemporaryDirectory(prefix="taskc-spaces-") as temporary:
                chosen = sample(problems, args.measure, args.seed)
                entries += measure(chosen, target, args.keep or Path(temporary), args.seconds, args.jobs)
        rows = sorted(regrets(problems, entries), key=lambda r: -r["top10_%"])
        result |= {"problems": len(problems), "summary": summaries(rows), "regrets": rows}
        print(table([{**r, "problem": r["problem"][:60]} for r in rows], COLUMNS))
        print(f"{len(rows)} of {len(problems)} problems have measured spaces; regret:")
        print("\n".join(f"  {k}: {v}" for k, v in result["summary"].items()))
    write_json(args.out or Path("bench/results", default_name([e for e, _ in entries])), result)
    return 0 if all(s["within"] for s in spaces) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Sizes of schedule spaces and regret of their ranking.")
    parser.add_argument("files", nargs="*", type=Path, help="cache files with whole spaces; by default bench/results/spaces-*.jsonl")
    parser.add_argument("--models", default=",".join(zoo.FULL))
    parser.add_argument("--precisions", default="fp16,fp32")
    parser.add_argument("--target", help="by default what fits the GPU present, else sm_90a", choices=TARGETS)
    parser.add_argument("--measure", type=int, default=0, metavar="N", help="measure the spaces of N kernels of the models on this GPU")
    parser.add_argument("--seed", type=int, default=0, help="of which kernels are measured")
    parser.add_argument("--seconds", type=float, default=400, help="time budget of the measuring")
    parser.add_argument("--jobs", type=int, default=0, help="compiling processes; 0: as many as there are CPUs")
    parser.add_argument("--keep", type=Path, help="folder for the cache file with what was measured")
    parser.add_argument("--out", type=Path, help="by default bench/results/spaces-GPU.json, after the GPU that was measured")
    parser.add_argument("--commit", help="commit to note, where there is no git repository")
    args = parser.parse_args()
    here = target_here()
    if args.measure and here == "host":
        parser.error("--measure needs a GPU, and there is none here")
    args.target = args.target or (here if here != "host" else "sm_90a")
    args.files = args.files or sorted(Path("bench/results").glob("spaces-*.jsonl"))
    return args


if __name__ == "__main__":
    sys.exit(main())
