"""Writes the README's table of numbers from bench/results/*.json; `--check` says whether it is up to date.

    python -m bench.readme_numbers [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- numbers: begin; made from bench/results/*.json, never by hand -->\n", "<!-- numbers: end -->"
HEAD = "| model | type | taskc µs | onnxruntime µs | PyTorch µs | error against float64, beside a careful evaluation's |\n|---|---|---|---|---|---|\n"


def table(latency: dict[str, Any], accuracy: dict[str, Any]) -> str:
    """One line a model and type; a peer that gave no answer is '-'."""
    errors = {(r["model"], r["prec"]): r for r in accuracy["rows"]}
    cases = dict.fromkeys((r["model"], r["prec"]) for r in latency["rows"])
    lines: list[str] = []
    for model, prec in cases:
        us = {r["mode"].split()[0]: r.get("us") for r in latency["rows"] if (r["model"], r["prec"]) == (model, prec)}
        error = errors.get((model, prec))
        accurate = "-" if error is None else f"{error['error']:.1e} ({error['ratio']:.2f} ×)"
        cells = [model, prec, *("-" if us.get(m) is None else f"{us[m]:.0f}" for m in ("taskc", "ort", "torch")), accurate]
        lines.append("| " + " | ".join(cells) + " |\n")
    return HEAD + "".join(lines) + _source("Latency", latency) + _source("Error", accuracy)


def _source(what: str, d: dict[str, Any]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in d.get("versions", {}).items() if k in ("onnxruntime-gpu", "torch", "cudnn"))
    return f"\n{what}: {d['machine']}, driver {d['driver']}, {d['date']}{', ' + versions if versions else ''}.\n"


def main() -> int:
    results = ROOT / "bench" / "results"
    made = table(json.loads((results / "latency-h200.json").read_text()), json.loads((results / "accuracy-h200.json").read_text()))
    readme = ROOT / "README.md"
    text = readme.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    new = text[:start] + made + text[end:]
    if "--check" in sys.argv[1:]:
        print("up to date" if new == text else "stale: run python -m bench.readme_numbers")
        return int(new != text)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
