"""A benchmark's result -> its picture (SVG) and its table (Markdown): what is shown of whole models.

Nothing is measured, chosen or rounded up here: a loss is shown as one. What is shown of schedules is in `schedule_figures.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts import BLUE, GREEN, GREY, ORANGE, RED, Bar, Panel, bars
from bench.svg import INK

Result = Mapping[str, Any]  # a JSON file that a benchmark wrote
Row = Mapping[str, Any]

TYPES = {"fp16": "float16", "fp32": "float32", "bf16": "bfloat16", "tf32": "float32 by TF32"}
MODELS = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNet-v2", "inception_v3": "Inception-v3", "bert": "BERT", "gpt2": "GPT-2"}
MODES = {"taskc": ("taskc", BLUE), "ort": ("onnxruntime", ORANGE), "torch": ("PyTorch", GREY), "torch-compile": ("PyTorch max-autotune", GREEN)}


POLICIES = {
    "us": "as it is, µs", "at_once_us": "successors at once", "late_us": "when sums are done", "never_us": "at the end", "no_shares_us": "no shares",
    "one_share_us": "one share", "two_shares_us": "two shares", "no_branches_us": "no branches",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """`files` in bench/results, the first one the benchmark's own; `picture` gives None where the result has nothing to show."""

    name: str
    files: tuple[str, ...]
    command: str
    alt: str
    picture: Callable[..., str | None] | None
    table: Callable[..., str]


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; None becomes a dash."""
    lines = [list(head), ["---"] * len(head), *(["–" if c is None else str(c).replace("|", "\\|") for c in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def model_name(name: str) -> str:
    return MODELS.get(name, name)


def fixed(x: float | None, digits: int = 0) -> str | None:
    return None if x is None else f"{x:.{digits}f}"


def cases(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """(model, precision) of rows, each once, in order."""
    return list(dict.fromkeys((r["model"], r["prec"]) for r in rows))


def case_name(model: str, prec: str) -> str:
    return f"{model_name(model)} {TYPES.get(prec, prec)}"


def failure(row: Row) -> str:
    """Why a row is no result, in few words."""
    if row.get("right") is False:
        return "wrong result"
    if row.get("live") is False:
        return "dead result"
    return "no time left" if "no time left" in str(row.get("error", "")) else "no result"


# ---- latency ----------------------------------------------------------------------------------------------------------


def latencies(result: Result) -> dict[tuple[str, str], dict[str, Row]]:
    """(model, precision) -> kind of system -> row."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for r in result["rows"]:
        found.setdefault((r["model"], r["prec"]), {})[_kind(r["mode"])] = r
    return found


def _kind(mode: str) -> str:
    return "torch-compile" if mode.startswith("torch compile") else mode.split()[0]


def time_of(row: Row | None) -> float | None:
    """µs of a row that is a result: there is a time, and the outputs were right and alive."""
    return None if row is None or row.get("right") is False or row.get("live") is False else row.get("us")


def ratio(systems: Mapping[str, Row]) -> float | None:
    """The best peer's time over taskc's; None where one of the two is missing."""
    ours, peers = time_of(systems.get("taskc")), [us for k, r in systems.items() if k != "taskc" and (us := time_of(r)) is not None]
    return min(peers) / ours if ours and peers else None


def latency_picture(result: Result) -> str:
    found = latencies(result)
    kinds = [k for k in MODES if any(k in systems for systems in found.values())]
    models = sorted({m for m, _ in found}, key=lambda m: (list(MODELS).index(m) if m in MODELS else len(MODELS), m))
    precisions = list(dict.fromkeys(p for _, p in found))
    panels = [Panel(f"{TYPES.get(p, p)}: device time of one inference (µs)", [_latency_bars(found.get((m, p), {}), kinds) for m in models])
              for p in precisions]
    note = "Batch 1, 128 tokens, one GPU, all systems in one run. In brackets: the best peer's time over taskc's; red: taskc is slower."
    return bars("Latency", note, [MODES[k] for k in kinds], [model_name(m) for m in models], panels)


def _latency_bars(systems: Mapping[str, Row], kinds: Sequence[str]) -> list[Bar]:
    made: list[Bar] = []
    for kind in kinds:
        row, us = systems.get(kind), time_of(systems.get(kind))
        if us is None:
            made.append(Bar(None, "" if row is None else f"{MODES[kind][0]}: {failure(row)}", MODES[kind][1]))
            continue
        gain = ratio(systems) if kind == "taskc" else None
        text = f"{us:.0f}" if gain is None else f"{us:.0f} ({gain:.2f}×)"
        made.append(Bar(us, text, MODES[kind][1], ink=RED if gain is not None and gain < 1 else INK))
    return made


def latency_table(result: Result) -> str:
    found = latencies(result)
    kinds = [k for k in MODES if any(k in systems for systems in found.values())]
    head = ["model", "type", *(f"{MODES[k][0]} µs" for k in kinds), "best peer / taskc", "launches"]
    rows: list[list[object]] = []
    for (model, prec), systems in found.items():
        us = [fixed(time_of(systems.get(k)), 1) or (failure(systems[k]) if k in systems else None) for k in kinds]
        rows.append([model_name(model), TYPES.get(prec, prec), *us, fixed(ratio(systems), 2), systems.get("taskc", {}).get("launches")])
    return markdown(head, rows)


# ---- fusion -----------------------------------------------------------------------------------------------------------


def fusion_picture(result: Result) -> str | None:
    rows = [r for r in result["rows"] if "kernels_before" in r]
    if not rows:
        return None
    kernels = [[Bar(r["kernels_before"], str(r["kernels_before"]), GREY), Bar(r["kernels"], str(r["kernels"]), BLUE)] for r in rows]
    moved = [[Bar(r["bytes_before"] / 1e6, f"{r['bytes_before'] / 1e6:.0f}", GREY), Bar(r["bytes"] / 1e6, f"{r['bytes'] / 1e6:.0f}", BLUE)]
             for r in rows]
    panels, legend = [Panel("kernels", kernels), Panel("bytes moved (MB)", moved)], [("not fused", GREY), ("fused", BLUE)]
    if any("us" in r for r in rows):
        panels.append(Panel("device time (µs)", [_fusion_times(r) for r in rows]))
        legend.insert(1, ("fused, launches not early", ORANGE))
    note = "Without and with fusion, all else equal; early launches are programmatic dependent launch. Red: slower than one of the others."
    return bars("What fusion does", note, legend, [case_name(r["model"], r["prec"]) for r in rows], panels)


def _fusion_times(r: Row) -> list[Bar]:
    if "us" not in r or r.get("right") is False:
        return [Bar(None, failure(r), GREY)]
    slower = r["us"] > min(r["unfused_us"], r["no_pdl_us"])
    return [Bar(r["unfused_us"], f"{r['unfused_us']:.0f}", GREY),
            Bar(r["no_pdl_us"], f"{r['no_pdl_us']:.0f} ({r['unfused_us'] / r['no_pdl_us']:.2f}×)", ORANGE),
            Bar(r["us"], f"{r['us']:.0f} ({r['fusion_gain']:.2f}×)", BLUE, ink=RED if slower else INK)]  # fmt: skip


def fusion_table(result: Result) -> str:
    head = ["model", "type", "kernels", "of them a layer", "MB moved", "not fused µs", "fused µs", "saved µs", "gain of fusion",
            "gain of early launches"]
    rows: list[list[object]] = []
    for r in result["rows"]:
        counted: list[object] = [failure(r), None, None]
        if "kernels_before" in r:
            layer = f"{r['per_layer_before']} → {r['per_layer']}" if "per_layer" in r else None
            counted = [f"{r['kernels_before']} → {r['kernels']}", layer, f"{r['bytes_before'] / 1e6:.1f} → {r['bytes'] / 1e6:.1f}"]
        rows.append([model_name(r["model"]), TYPES.get(r["prec"], r["prec"]), *counted, *_fusion_cells(r)])
    return markdown(head, rows)


def _fusion_cells(r: Row) -> list[object]:
    if "us" not in r or r.get("right") is False:
        return [failure(r) if "error" in r or "us" in r else None, None, None, None, None]
    times = [f"{us:.1f}" for us in (r["unfused_us"], r["us"], r["fusion_saved_us"])]
    return [*times, f"{r['fusion_gain']:.2f} ×", f"{r['no_pdl_us'] / r['us']:.3f} ×"]


def launching_table(result: Result) -> str:
    """Only the policies that the result has: later ones have come."""
    policies = [p for p in POLICIES if any(p in r for r in result["rows"])]
    rows = [[model_name(r["model"]), TYPES.get(r["prec"], r["prec"]), *(fixed(r.get(p), 1) for p in policies)] for r in result["rows"]]
    return markdown(["model", "type", *(POLICIES[p] for p in policies)], rows)


# ---- tables alone -----------------------------------------------------------------------------------------------------


def accuracy_table(result: Result) -> str:
    head = ["model", "type", "error", "a careful evaluation's", "ratio", "within the bar"]
    rows: list[list[object]] = []
    for r in result["rows"]:
        found = [f"{r['error']:.1e}", f"{r['careful']:.1e}", f"{r['ratio']:.2f}", "yes" if r["within"] else "**no**"] if "ratio" in r else [
            failure(r), None, None, None]
        rows.append([model_name(r["model"]), TYPES.get(r["prec"], r["prec"]), *found])
    return markdown(head, rows)


def sanitizer_table(result: Result) -> str:
    tools = list(dict.fromkeys(r["tool"] for r in result["rows"]))
    status = {(r["model"], r["prec"], r["tool"]): r["status"] + (f" (the first {r['launches']} launches)" if "launches" in r else "")
              for r in result["rows"]}
    return markdown(["model", "type", *tools],
                    [[model_name(m), TYPES.get(p, p), *(status.get((m, p, t)) for t in tools)] for m, p in cases(result["rows"])])
