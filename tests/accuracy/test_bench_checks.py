"""The benchmarks' own judgements: what counts as right, as live, as clean, and that a failing worker costs one answer."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from bench.cases import Case, feeds, judge, make_files, relative_error, vocabulary, widen
from bench.latency import best
from bench.report import dumps, write_json
from bench.sanitize import verdict
from bench.side_prepare import run_reference
from bench.worker import Worker, WorkerFailed, pool
from models import zoo


def test_relative_error() -> None:
    want = {"y": np.array([3.0, 4.0], np.float32)}
    assert relative_error({"y": np.array([3.0, 4.5])}, want) == pytest.approx(0.1)
    assert relative_error({"y": np.array([3.0, np.nan])}, want) == math.inf
    assert relative_error({"y": np.array([3.0, 4.0, 5.0])}, want) == math.inf
    assert relative_error({}, want) == math.inf


def test_judgement_of_outputs(tmp_path: Path) -> None:
    case = Case("matmul_gelu", "fp16", str(tmp_path))
    make_files(case, run_reference)
    want, other = case.arrays("want.npz"), case.arrays("want_other.npz")
    assert judge(case, want, other)["right"] and judge(case, want, other)["live"]
    assert not judge(case, want, want)["live"]
    assert not judge(case, want, want)["right"]  # the second output belongs to the second input
    assert not judge(case, {k: v * 1.1 for k, v in want.items()}, other)["right"]


def test_widened_model_keeps_the_half_model_s_weights() -> None:
    half = zoo.build("bert_tiny", half=True)
    wide = widen(half)
    onnx.checker.check_model(wide)
    kept = {t.name: onnx.numpy_helper.to_array(t) for t in half.graph.initializer}
    for t in wide.graph.initializer:
        a = onnx.numpy_helper.to_array(t)
        assert a.dtype != np.float16
        np.testing.assert_array_equal(a, kept[t.name])


def test_tokens_stay_inside_the_vocabulary() -> None:
    model = zoo.build("gpt2_tiny")
    ids = next(iter(feeds(model, 1).values()))
    assert vocabulary(model) == 1000
    assert ids.min() >= 0 and ids.max() < 1000 and len(np.unique(ids)) > 5


def test_best_of_a_peer_s_tries() -> None:
    wrong = {"options": "a", "us": 1.0, "right": False, "live": True, "rel_err": 1.0}
    slow = {"options": "b", "us": 9.0, "right": True, "live": True, "rel_err": 1e-7}
    failed = {"options": "c", "error": "no"}
    assert best({"tried": [wrong, failed, slow]})["options"] == "b"
    assert best({"tried": [wrong, failed]})["right"] is False
    assert best({"tried": [failed]}) == {"error": "c: no"}


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        (0, "========= ERROR SUMMARY: 0 errors\n", "clean"),
        (9, "========= Invalid __global__ read\n========= ERROR SUMMARY: 3 errors\n", "errors"),
        (0, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", "clean"),
        (9, "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n", "errors"),
        (5, "========= ERROR SUMMARY: 0 errors\n", "failed"),  # the outputs were wrong
        (0, "nothing was checked\n", "no summary"),
        (None, "", "not finished"),
    ],
)
def test_verdict_of_a_sanitizer_s_words(code: int | None, text: str, status: str) -> None:
    assert verdict(code, text)["status"] == status


WORKER = """
import os, time
from bench.worker import serve
def handle(request):
    print("a library talks")
    if request["do"] == "die": os._exit(3)
    if request["do"] == "hang": time.sleep(60)
    if request["do"] == "raise": raise ValueError("bad")
    return {"pid": os.getpid()}
serve(handle)
"""


def test_a_failing_worker_costs_one_answer(tmp_path: Path) -> None:
    (tmp_path / "bench_test_worker.py").write_text(WORKER)
    worker = Worker("bench_test_worker", path=f"{tmp_path}:{Path(__file__).parents[2]}")
    try:
        first = worker.ask({"do": "work"}, 60)
        for what, message in (("raise", "ValueError: bad"), ("die", "ended with 3"), ("hang", "no answer")):
            with pytest.raises(WorkerFailed, match=message):
                worker.ask({"do": what}, 60 if what != "hang" else 2)
        assert worker.ask({"do": "work"}, 60) != first  # another process
        answers = pool([worker], [{"do": "raise"}, {"do": "work"}], time.monotonic() + 60)
        assert "error" in answers[0] and "pid" in answers[1]
        with pytest.raises(WorkerFailed, match="no time left"):
            worker.ask({"do": "work"}, 0)
    finally:
        worker.stop()


def test_results_are_plain_json(tmp_path: Path) -> None:
    value = {"a": 1, "rows": [{"x": math.inf}, {"x": 1.5}]}
    assert json.loads(dumps(value)) == {"a": 1, "rows": [{"x": None}, {"x": 1.5}]}
    write_json(tmp_path / "sub" / "r.json", value)
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["r.json"]
