"""A benchmark's result -> its picture (SVG) and its table (Markdown). Nothing is measured, chosen or rounded up here: a loss is shown as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts import BLUE, GREEN, GREY, LOG, ORANGE, PURPLE, RED, ROOT, Bar, Mark, Panel, bars, ordered
from bench.svg import INK

Result = Mapping[str, Any]  # a JSON file that a benchmark wrote
Row = Mapping[str, Any]

TYPES = {"fp16": "float16", "fp32": "float32", "bf16": "bfloat16", "tf32": "float32 by TF32"}
MODELS = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNet-v2", "inception_v3": "Inception-v3", "bert": "BERT", "gpt2": "GPT-2"}
MODES = {"taskc": ("taskc", BLUE), "ort": ("onnxruntime", ORANGE), "torch": ("PyTorch", GREY), "torch-compile": ("PyTorch max-autotune", GREEN)}


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
    note = "Batch 1, 128 tokens, one GPU, all systems in one run. In brackets: the best peer's time over taskc's; below 1 taskc is slower."
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


# ---- tuning -----------------------------------------------------------------------------------------------------------


def tuning_picture(result: Result, peers: Result) -> str | None:
    rows = [r for r in result["rows"] if "wall_s" in r]
    if not rows:
        return None
    groups: list[list[Bar]] = []
    for r in rows:
        text = f"{r['wall_s']:.1f} s: {r['problems']} problems, {r['measured']} candidates measured{'' if r['complete'] else ', not complete'}"
        theirs = [p for p in peers["rows"] if (p["model"], p["prec"]) == (r["model"], r["prec"])]
        groups.append([Bar(r["wall_s"], text, BLUE), *map(_peer_bar, theirs)])
    note = "From an empty cache to a tuned model. Peers: from the loaded model to its first steady run, in an earlier session."
    legend = [("taskc tune", BLUE), ("Hidet, its largest space", PURPLE), ("PyTorch max-autotune", GREEN)]
    return bars("Tuning time", note, legend, [case_name(r["model"], r["prec"]) for r in rows], [Panel("seconds", groups)])


def _peer_bar(p: Row) -> Bar:
    text = f"{p['seconds']:.0f} s" if p["finished"] else f"over {p['seconds']:.0f} s, not finished"
    return Bar(p["seconds"], text, PURPLE if p["system"].startswith("Hidet") else GREEN, open=not p["finished"])


def tuning_table(result: Result, peers: Result) -> str:
    head = ["model", "type", "seconds", "problems", "candidates compiled", "measured", "kernels tuned, µs", "model's first picks, µs",
            "compile with the cache, s", "peers, s"]
    rows: list[list[object]] = []
    for r in result["rows"]:
        theirs = [f"{p['system']} {'' if p['finished'] else '> '}{p['seconds']:.0f}" for p in peers["rows"]
                  if (p["model"], p["prec"]) == (r["model"], r["prec"])]
        seconds = failure(r) if "wall_s" not in r else f"{r['wall_s']:.1f}{'' if r['complete'] else ' (not complete)'}"
        rows.append([model_name(r["model"]), TYPES.get(r["prec"], r["prec"]), seconds, r.get("problems"), r.get("compiled"), r.get("measured"),
                     fixed(r.get("best_sum_us")), fixed(r.get("first_sum_us")), fixed(r.get("warm_wall_s"), 1), ", ".join(theirs) or None])
    return markdown(head, rows) + f"\nThe peers' numbers: {peers['machine']}, {peers['versions']}. {peers['note']}\n"


# ---- any size ---------------------------------------------------------------------------------------------------------


def any_size_picture(result: Result) -> str | None:
    rows = [r for r in result["rows"] if "us" in r and r.get("right") is not False]
    if not rows:
        return None
    groups = [[Bar(r["TFLOP/s"], f"{r['TFLOP/s']:.0f} ({r['ratio']:.2f}×)", BLUE, ink=RED if r["ratio"] < 1 else INK),
               Bar(r["cublas_TFLOP/s"], f"{r['cublas_TFLOP/s']:.0f}", GREY)] for r in rows]
    note = "Square float16 products n × n × n, operands and result not left in cache. In brackets: cuBLAS's time over taskc's."
    return bars("Products of any size", note, [("taskc, tuned", BLUE), ("cuBLAS", GREY)], [f"n = {r['n']}" for r in rows],
                [Panel("rate (TFLOP/s)", groups)])


def any_size_table(result: Result) -> str:
    head = ["n", "taskc µs", "cuBLAS µs", "cuBLAS / taskc", "relative error", "schedule"]
    rows: list[list[object]] = []
    for r in result["rows"]:
        known = "us" in r and r.get("right") is not False
        times = [f"{r['us']:.1f}", f"{r['cublas_us']:.1f}", f"{r['ratio']:.2f}", f"{r['rel_err']:.1e}"] if known else [failure(r), None, None, None]
        rows.append([r["n"], *times, f"`{r['schedule']}`"])
    t = result["tuning"]
    return markdown(head, rows) + f"\nTuned in one session of {t['tune_s']} s: {t['problems']} problems, {t['measured']} candidates measured.\n"


# ---- one convolution's schedules --------------------------------------------------------------------------------------


def quality_picture(result: Result) -> str:
    marks = [Mark(f"tuned, the fastest of the {result['top']} ranked first", result["tuned_us"], BLUE)]
    if result["first_us"] is not None:
        marks.append(Mark("ranked first", result["first_us"], RED))
    note = f"3 × 3, stride 2, 256 channels, 28 × 28, float16: {result['measured']} of {result['schedules']} schedules measured."
    return ordered("All schedules of one convolution", note, [("schedules", GREY, [r["us"] for r in result["rows"]])],
                   ("schedules, the fastest first", "time (µs)"), LOG, marks, " µs")


def quality_table(result: Result) -> str:
    head = ["schedules", "measured", "best µs", "tuned µs", "ranked first µs", "median µs", "worst µs",
            *(f"slower than tuned by {k.removesuffix('x')} ×" for k in result["slower"])]
    us = [fixed(result[k], 2) for k in ("best_us", "tuned_us", "first_us", "median_us", "worst_us")]
    return markdown(head, [[result["schedules"], result["measured"], *us, *(f"{100 * s:.0f} %" for s in result["slower"].values())]])


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
    note = "Without and with fusion, all else equal. Times: one run, in turns; early launches are programmatic dependent launch."
    return bars("What fusion does", note, legend, [case_name(r["model"], r["prec"]) for r in rows], panels)


def _fusion_times(r: Row) -> list[Bar]:
    if "us" not in r or r.get("right") is False:
        return [Bar(None, failure(r), GREY)]
    return [Bar(r["unfused_us"], f"{r['unfused_us']:.0f}", GREY),
            Bar(r["no_pdl_us"], f"{r['no_pdl_us']:.0f} ({r['unfused_us'] / r['no_pdl_us']:.2f}×)", ORANGE),
            Bar(r["us"], f"{r['us']:.0f} ({r['fusion_gain']:.2f}×)", BLUE, ink=RED if r["fusion_gain"] < 1 else INK)]  # fmt: skip


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


# ---- regret -----------------------------------------------------------------------------------------------------------


def regret_picture(result: Result) -> str | None:
    rows = result.get("regrets", [])
    if not rows:
        return None
    series = [(f"best of the {n} ranked first" if n > 1 else "ranked first", colour, [r[f"top{n}_%"] for r in rows])
              for n, colour in ((1, ORANGE), (10, BLUE))]
    note = f"{len(rows)} kernels of the models whose whole spaces were measured; 0 % is the best schedule there is."
    return ordered("What is lost by measuring only the first-ranked schedules", note, series,
                   ("kernels, each series in order of its loss", "loss against the best (%)"), ROOT, (), " %")


def regret_table(result: Result) -> str:
    rows = [[name, s["count"], f"{s['geomean_%']:.1f} %", f"{s['worst_%']:.1f} %"] for name, s in result.get("summary", {}).items() if s]
    worst = sorted(result.get("regrets", []), key=lambda r: -r["top10_%"])[:5]
    losses = [[r["model"], f"`{r['problem'][:70]}`", f"{r['best_us']:.2f}", f"{r['top1_%']:.1f} %", f"{r['top10_%']:.1f} %", r["rank"]]
              for r in worst if r["top10_%"] > 0]
    text = markdown(["regret of", "kernels", "geometric mean", "worst"], rows)
    if losses:
        text += "\nThe worst of the top 10 (rank: where the best schedule stood, from 0):\n\n"
        text += markdown(["model", "kernel", "best µs", "top 1", "top 10", "rank of the best"], losses)
    return text


def spaces_table(result: Result) -> str:
    """Schedules of each template for one target, by element type."""
    spaces = [s for s in result["spaces"] if s["target"] == result["target"]]
    columns = list(dict.fromkeys((s["operand"], s["precision"]) for s in spaces))
    counts = {(s["template"], s["operand"], s["precision"]): s["schedules"] for s in spaces}
    head = ["template", *(o if p == "native" else f"{o} by {p}" for o, p in columns)]
    return markdown(head, [[t, *(counts.get((t, *c)) for c in columns)] for t in dict.fromkeys(s["template"] for s in spaces)])


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
    status = {(r["model"], r["prec"], r["tool"]): r["status"] for r in result["rows"]}
    return markdown(["model", "type", *tools],
                    [[model_name(m), TYPES.get(p, p), *(status.get((m, p, t)) for t in tools)] for m, p in cases(result["rows"])])
