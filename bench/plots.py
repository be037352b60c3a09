"""Pictures and tables of the results: bench/results/*.json -> docs/plots/*.svg and the marked places of docs/experiments.md.

    python -m bench.plots [--check]

A place is what stands between `<!-- results: NAME -->` and `<!-- end -->`; it is never edited by hand. The same results give the same bytes
anywhere, so `--check` (exit code 1: stale) and a test compare what is committed with what the committed results give. A figure whose
result is not there yet says which command makes it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import figures, schedule_figures
from bench.figures import Figure, Result

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PLOTS, PAGE = Path("bench/results"), Path("docs/plots"), Path("docs/experiments.md")
PLACE = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)

FIGURES = (
    Figure("latency", ("latency-h200.json",), "python -m bench.latency", "Latency of taskc, onnxruntime and PyTorch",
           figures.latency_picture, figures.latency_table),
    Figure("accuracy", ("accuracy-h200.json",), "python -m bench.accuracy", "", None, figures.accuracy_table),
    Figure("sanitizer", ("sanitizer-h200.json",), "bench/sanitize.sh", "", None, figures.sanitizer_table),
    Figure("tuning", ("tuning-h200.json", "peers-tuning.json"), "python -m bench.tuning --precisions fp16", "Seconds of tuning",
           schedule_figures.tuning_picture, schedule_figures.tuning_table),
    Figure("spaces", ("spaces-h200.json",), "python -m bench.spaces", "", None, schedule_figures.spaces_table),
    Figure("regret", ("spaces-h200.json",), "python -m bench.spaces", "Regret of the analytic model's first and first ten",
           schedule_figures.regret_picture, schedule_figures.regret_table),
    Figure("any-size", ("any-size-h200.json",), "python -m bench.any_size", "Rates of products of any size beside cuBLAS",
           schedule_figures.any_size_picture, schedule_figures.any_size_table),
    Figure("quality", ("quality-h200.json",), "python -m bench.quality", "Times of all schedules of one convolution",
           schedule_figures.quality_picture, schedule_figures.quality_table),
    Figure("fusion", ("fusion-h200.json",), "python -m bench.fusion --device", "Kernels, bytes and time without and with fusion",
           figures.fusion_picture, figures.fusion_table),
    Figure("launching", ("launching-h200.json",), "python -m bench.launching", "", None, figures.launching_table),
    Figure("sweep", ("schedules-h200.json",), "python -m bench.sweep", "", None, schedule_figures.sweep_table),
)  # fmt: skip


def source_line(result: Result) -> str:
    """Where and when a result was made: machine, driver, time, commit and the versions of the peers."""
    versions = ", ".join(f"{k} {v}" for k, v in result.get("versions", {}).items() if k in ("onnxruntime-gpu", "torch", "cudnn"))
    driver = f", driver {result['driver']}" if result.get("driver") else ""
    schedules = f"; schedules: {result['schedules']}" if isinstance(result.get("schedules"), str) else ""
    times = f"; times from {', '.join(result['files'])}" if result.get("files") else ""
    versions = f"; {versions}" if versions else ""
    return f"{result['machine']}{driver}; {result['date']}, commit {result['commit']}{versions}{schedules}{times}."


def read(figure: Figure, root: Path) -> list[dict[str, Any]] | None:
    """The figure's results; None while the benchmark's own is missing."""
    paths = [root / RESULTS / name for name in figure.files]
    return [json.loads(p.read_text()) for p in paths] if paths[0].exists() else None


def place_text(figure: Figure, root: Path) -> tuple[str, str | None]:
    """(what stands in the figure's place, its picture)."""
    results = read(figure, root)
    if results is None:
        return f"Not measured yet: `{figure.command}` writes `{(RESULTS / figure.files[0]).as_posix()}`.\n", None
    picture = None if figure.picture is None else figure.picture(*results)
    image = "" if picture is None else f"![{figure.alt}](plots/{figure.name}.svg)\n\n"
    return f"Machine: {source_line(results[0])}\n\n{image}{figure.table(*results)}", picture


def made(root: Path) -> dict[Path, str]:
    """Every file that the results under `root` give, by path. ValueError: the page lacks a place, or has one too many."""
    texts: dict[str, str] = {}
    files: dict[Path, str] = {}
    for f in FIGURES:
        texts[f.name], picture = place_text(f, root)
        if picture is not None:
            files[PLOTS / f"{f.name}.svg"] = picture
    files[PAGE] = fill((root / PAGE).read_text(), texts)
    return files


def fill(page: str, texts: Mapping[str, str]) -> str:
    """The page with each place's text in it. ValueError: places and texts do not correspond."""
    places = [m[1] for m in PLACE.findall(page)]
    if sorted(places) != sorted(texts):
        raise ValueError(f"{PAGE}: its places are {sorted(places)}, the figures {sorted(texts)}")
    return PLACE.sub(lambda m: f"{m[1]}{texts[m[2]]}{m[3]}", page)


def stale(root: Path) -> list[str]:
    """Files that differ from what the results give, and pictures that nothing gives."""
    files = made(root)
    changed = [p.as_posix() for p, text in files.items() if not (root / p).exists() or (root / p).read_text() != text]
    left = [p.relative_to(root).as_posix() for p in sorted((root / PLOTS).glob("*.svg")) if p.relative_to(root) not in files]
    return changed + left


def main() -> int:
    parser = argparse.ArgumentParser(description="Pictures and tables of bench/results/*.json.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when something is stale")
    args = parser.parse_args()
    old = stale(ROOT)
    if args.check:
        print("stale, run python -m bench.plots: " + ", ".join(old) if old else "up to date")
        return int(bool(old))
    files = made(ROOT)
    (ROOT / PLOTS).mkdir(exist_ok=True)
    for name in old:
        path = Path(name)
        if path in files:
            (ROOT / path).write_text(files[path])
        else:
            (ROOT / path).unlink()
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
