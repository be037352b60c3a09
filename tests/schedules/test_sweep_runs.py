"""bench.sweep itself, on host: a run, a run out of time, a child that dies, a wrong kernel, the result file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import sweep as bench_sweep
from bench.sweep import Report, choose, main, sweep
from bench.worker import WorkerFailed
from taskc.targets import TARGETS

HOST = TARGETS["host"]


class Child:
    """Answers like a child, by rules on what is asked; no process."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        assert module == "bench.side_sweep"

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        cases: Sequence[Sequence[str]] = request["cases"]
        if any("split2" in schedule for _, schedule in cases):
            raise WorkerFailed("the process ended with -11: ")
        return {"wrong": ["an error" if "register" in schedule else None for _, schedule in cases]}

    def stop(self) -> None:
        pass


def run(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Report:
    monkeypatch.setattr(bench_sweep, "Worker", Child)
    return sweep(choose(HOST, ["matmul_simt f32"], sample=True), HOST, 3, seconds, told=lambda _: None)


def test_a_child_s_death_costs_its_own_case(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, 60)
    assert report.complete
    wrong = {str(o.case.schedule): o.wrong for o in report.failures}
    assert all(("process ended" in (w or "")) == ("split2" in s) for s, w in wrong.items())
    assert {o.case for o in report.outcomes if o.wrong is None} == {c for c in report.cases if "split2" not in str(c.schedule) and c.schedule.copy == "async"}
    assert report.verdict().startswith(f"ALL {len(report.cases)} of {len(report.cases)}")
    assert report.rows()[0]["wrong"] == len(report.failures) > 0


def test_a_run_out_of_time_does_not_claim_all(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, 0)
    assert not report.complete and not report.outcomes
    assert report.verdict().startswith(f"NOT ALL: ONLY 0 of {len(report.cases)}")


def test_order_is_seeded() -> None:
    first, again, other = (choose(HOST, ["transpose"], seed=s) for s in (0, 0, 1))
    assert first == again != other
    assert len(choose(HOST, ["transpose"], every=True)) > len(first) > len(choose(HOST, ["transpose f32"]))


def test_the_script_writes_what_it_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a real child."""
    out = tmp_path / "s.json"
    arguments = ["--target", "host", "--groups", "elementwise i8", "--sample", "--jobs", "1", "--out", str(out), "--commit", "abc"]
    assert main([*arguments, "--seconds", "100"]) == 0
    found = json.loads(out.read_text())
    assert found["complete"] and found["run"] == found["cases"] == 20 and found["wrong"] == 0 and found["commit"] == "abc"
    assert found["groups"] == [{"group": "elementwise i8", "schedules": 20, "cases": 20, "run": 20, "wrong": 0}]
    assert "ALL 20 of 20" in capsys.readouterr().out
    assert main([*arguments, "--seconds", "0"]) == 1
    assert not json.loads(out.read_text())["complete"]
    with pytest.raises(SystemExit):
        main(["--target", "host", "--groups", "nothing"])
