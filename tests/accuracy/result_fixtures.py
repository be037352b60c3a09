"""Results as the benchmarks write them, for the pictures of those that were not measured yet; made by hand, with failures among the rows."""

from __future__ import annotations

import math
import random
from typing import Any

HEAD = {"machine": "one GPU", "driver": "1.2", "date": "2026-01-01 00:00 UTC", "commit": "abc"}


def tuning() -> dict[str, Any]:
    done = {"tune_s": 12.0, "problems": 31, "tuned": 31, "compiled": 310, "measured": 309, "most_candidates": 10, "failed": 1, "wrong": 0,
            "hopeless": 0, "complete": True, "launches": 57, "best_sum_us": 257.0, "first_sum_us": 299.0, "without": 0, "warm_wall_s": 5.5}
    return {**HEAD, "top": 10, "rows": [
        {"model": "resnet50", "prec": "fp16", "wall_s": 14.4, **done},
        {"model": "mobilenet_v2", "prec": "fp16", "wall_s": 20.25, **done, "problems": 40},
        {"model": "inception_v3", "prec": "fp16", "wall_s": 41.0, **done, "complete": False},
        {"model": "bert", "prec": "fp16", "error": "no time left"},
    ]}  # fmt: skip


def any_size() -> dict[str, Any]:
    rows = [{"n": n, "schedule": "matmul_mma 128x128", "launches": 1, "us": us, "cublas_us": theirs, "ratio": round(theirs / us, 3),
             "TFLOP/s": round(2e-6 * n**3 / us, 1), "cublas_TFLOP/s": round(2e-6 * n**3 / theirs, 1), "rel_err": 2e-4, "right": right}
            for n, us, theirs, right in ((2048, 42.0, 30.0, True), (2047, 47.0, 60.0, True), (2039, 47.0, 119.0, True), (2041, 9.0, 60.0, False))]
    session = {"tune_s": 50.1, "problems": 8, "tuned": 8, "compiled": 80, "measured": 80, "failed": 0, "complete": True}
    return {**HEAD, "dtype": "float16", "top": 10, "tuning": session, "rows": [*rows, {"n": 2042, "schedule": "untuned", "error": "no time left"}]}


def quality() -> dict[str, Any]:
    rng = random.Random(3)
    us = sorted(round(5 * math.exp(2.5 * rng.random() ** 2), 3) for _ in range(178))
    return {**HEAD, "top": 10, "schedules": 354, "measured": 178, "best_us": us[0], "tuned_us": us[1], "first_us": us[20], "median_us": us[89],
            "worst_us": us[-1], "slower": {"1.25x": 0.8, "2x": 0.45, "5x": 0.2},
            "rows": [{"us": t, "template": "matmul_mma", "schedule": str(n), "rank": n, "mark": ""} for n, t in enumerate(us)]}


def fusion(device: bool = True) -> dict[str, Any]:
    def row(model: str, kernels: tuple[int, int], nbytes: tuple[float, float], us: tuple[float, float, float]) -> dict[str, Any]:
        counted = {"model": model, "prec": "fp16", "kernels_before": kernels[0], "kernels": kernels[1], "views_before": 2, "views": 1,
                   "bytes_before": int(nbytes[0] * 1e6), "bytes": int(nbytes[1] * 1e6), "weight_bytes": 10**6}
        timed = {"unfused_us": us[0], "no_pdl_us": us[1], "us": us[2], "right": True, "fusion_gain": round(us[0] / us[2], 3),
                 "pdl_gain": round(us[1] / us[2], 4), "fusion_saved_us": round(us[0] - us[2], 2)}
        return counted | (timed if device else {})

    bert = {**row("bert", (290, 85), (420, 250), (800.0, 540.0, 476.0)), "per_layer_before": 22, "per_layer": 7}
    slower = row("mobilenet_v2", (155, 55), (40, 20), (200.0, 230.0, 224.0))
    failed = {"model": "gpt2", "prec": "fp16", "error": "CompileError: no"}
    return {**HEAD, "schedules": "the analytic model's", "rows": [row("resnet50", (174, 57), (210, 100), (520.0, 350.0, 320.0)), slower, bert, failed]}
