"""A benchmark's result -> its picture (SVG) and its table (Markdown): tuning, spaces, and single kernels."""

from __future__ import annotations

from bench.charts import BLUE, GREEN, GREY, LOG, ORANGE, PURPLE, RED, ROOT, Bar, Mark, Panel, bars, ordered
from bench.figures import TYPES, Result, Row, case_name, failure, fixed, markdown, model_name
from bench.svg import INK

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
    note = "Square float16 products n × n × n, operands and result not left in cache. In brackets: cuBLAS's time over taskc's; red: taskc is slower."
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
    first_too = " (and the very first)" if result["first_us"] == result["tuned_us"] else ""
    marks = [Mark(f"tuned, the fastest of the {result['top']} ranked first{first_too}", result["tuned_us"], BLUE)]
    if result["first_us"] is not None and not first_too:
        marks.append(Mark("ranked first", result["first_us"], RED))
    note = f"3 × 3, stride 2, 256 channels, 28 × 28, float16: {result['measured']} of {result['schedules']} schedules measured."
    return ordered("All schedules of one convolution", note, [("schedules", GREY, [r["us"] for r in result["rows"]])],
                   ("schedules, the fastest first", "time (µs)"), LOG, marks, " µs")


def quality_table(result: Result) -> str:
    head = ["schedules", "measured", "best µs", "tuned µs", "ranked first µs", "median µs", "worst µs",
            *(f"slower than tuned by {k.removesuffix('x')} ×" for k in result["slower"])]
    us = [fixed(result[k], 2) for k in ("best_us", "tuned_us", "first_us", "median_us", "worst_us")]
    return markdown(head, [[result["schedules"], result["measured"], *us, *(f"{100 * s:.0f} %" for s in result["slower"].values())]])


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


def sweep_table(result: Result) -> str:
    rows = [[g["group"], g["schedules"], g["cases"], g["run"], g["wrong"]] for g in result["groups"]]
    total = [sum(r[k] for r in result["groups"]) for k in ("schedules", "cases", "run", "wrong")]
    return markdown(["template, type", "schedules", "kernels", "run", "wrong"], [*rows, ["all", *total]])


def spaces_table(result: Result) -> str:
    """Schedules of each template for one target, by element type."""
    spaces = [s for s in result["spaces"] if s["target"] == result["target"]]
    columns = list(dict.fromkeys((s["operand"], s["precision"]) for s in spaces))
    counts = {(s["template"], s["operand"], s["precision"]): s["schedules"] for s in spaces}
    head = ["template", *(o if p == "native" else f"{o} by {p}" for o, p in columns)]
    return markdown(head, [[t, *(counts.get((t, *c)) for c in columns)] for t in dict.fromkeys(s["template"] for s in spaces)])
