"""A tuning session with stand-ins for compilers and GPU: whatever candidates do, the cache holds what was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taskc.errors import NoDevice
from taskc.ir.expr import Var
from taskc.targets import TARGETS
from taskc.tune.cache import Cache
from taskc.tune.problem import make_problem, toolchain
from taskc.tune.processes import Measurer
from taskc.tune.tuner import Progress, TuneOptions, TuneResult, candidates_of, tune
from taskc.tune.worker import Candidate, CompiledCandidate, Trial
from tests.tune.tune_support import Died, FakeCompilers, FakeMeasurer, Outcome, built, product, sums

TARGET = TARGETS["sm_90a"]
UNITS = [product(source="first"), product(names=("p", "q", "r"), source="twin"), sums(source="second")]
TOP = TuneOptions(top=4)


def cache_in(folder: Path) -> Cache:
    def fail(message: str) -> None:
        raise AssertionError(message)

    return Cache(folder, fail)


def session(folder: Path, measurer: FakeMeasurer, options: TuneOptions = TOP, outcome: Outcome | None = None,
            events: list[Progress] | None = None) -> tuple[TuneResult, FakeCompilers]:
    compilers = FakeCompilers(outcome)
    result = tune(UNITS, TARGET, {}, cache_in(folder), options, None if events is None else events.append,
                  compilers=lambda jobs: compilers, measurer=lambda ordinal: measurer)
    assert (compilers.closed and measurer.closed) or not compilers.submitted
    return result, compilers


def test_the_fastest_is_stored(tmp_path: Path) -> None:
    times = [9.0, 5.0, 7.0, 6.0]
    measurer = FakeMeasurer(lambda n, t: (times[n % 4], ""))
    result, compilers = session(tmp_path, measurer)
    assert (result.problems, result.tuned, result.compiled, result.measured, result.failed) == (2, 2, 8, 8, 0)
    assert result.complete and not result.interrupted and not result.hopeless
    stored = cache_in(tmp_path).entries
    problem = make_problem(UNITS[0], TARGET, {})
    e = stored[problem.key]
    names = [(t, str(s)) for t, s in candidates_of(problem, 4)]
    assert e.best and (e.best.template, e.best.schedule) == names[1] and e.best.us == 5.0
    assert [(m.template, m.schedule) for m in e.measured] == names and e.toolchain == toolchain() and e.complete
    assert e.kernel == built(Candidate(UNITS[0], TARGET, *candidates_of(problem, 4)[1])).text_hash
    assert e.nodes == "first" and e.device == TARGET.device.name and result.entries == list(stored.values())
    assert [c.unit.source for c in compilers.submitted] == [("first",)] * 4 + [("second",)] * 4, "everything compiles while the first is measured"
    assert [t.fresh for t in measurer.trials] == [True, False, False, False] * 2
    assert [t.best for t in measurer.trials[:4]] == [float("inf"), 9.0, 5.0, 5.0]


def test_resume_and_again(tmp_path: Path) -> None:
    session(tmp_path, FakeMeasurer())
    result = tune(UNITS, TARGET, {}, cache_in(tmp_path), TOP, compilers=_never, measurer=_never)
    assert (result.cached, result.tuned) == (2, 0) and len(result.entries) == 2
    again, _ = session(tmp_path, FakeMeasurer(lambda n, t: (1.0, "")), replace(TOP, again=True))
    assert again.tuned == 2 and all(e.best and e.best.us == 1.0 for e in again.entries)


def _never(_: int) -> Any:
    raise AssertionError("nothing is to be compiled or measured")


def test_another_toolchain_is_tuned_again(tmp_path: Path) -> None:
    session(tmp_path, FakeMeasurer())
    cache = cache_in(tmp_path)
    for e in list(cache.entries.values()):
        cache.add(replace(e, toolchain="nvrtc 1.0"))
    assert session(tmp_path, FakeMeasurer())[0].tuned == 2


def test_progress(tmp_path: Path) -> None:
    events: list[Progress] = []
    session(tmp_path, FakeMeasurer(lambda n, t: (None, "slow") if n == 1 else (5.0 - n / 2, "")), events=events)
    assert [(e.problem, e.done) for e in events] == [(1, False)] * 4 + [(1, True)] + [(2, False)] * 4 + [(2, True)]
    assert {(e.problems, e.candidates) for e in events} == {(2, 8)}
    assert [e.measured for e in events[:5]] == [1, 1, 2, 3, 3] and events[4].failed == 1 and events[4].nodes == "first"
    assert [e.best.us if e.best else None for e in events[:5]] == [5.0, 5.0, 4.0, 3.5, 3.5]


# ---- the end comes early --------------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass only when something is measured."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("budget", "tuned", "measured"), [(1.5, 1, 2), (3.5, 1, 4), (4.5, 2, 5), (100.0, 2, 8)])
def test_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: float, tuned: int, measured: int) -> None:
    clock = Clock()
    monkeypatch.setattr("taskc.tune.tuner.time", clock)

    def times(n: int, trial: Trial) -> tuple[float, str]:
        clock.now += 1.0
        return 5.0 - n / 10, ""

    result, _ = session(tmp_path, FakeMeasurer(times), replace(TOP, budget=budget))
    stored = cache_in(tmp_path).entries
    assert (result.tuned, result.measured, result.complete) == (tuned, measured, budget == 100)
    assert len(stored) == tuned and sum(len(e.measured) for e in stored.values()) == measured
    monkeypatch.undo()
    later, _ = session(tmp_path, FakeMeasurer())
    assert later.complete and later.cached == sum(e.complete for e in stored.values()), "what was cut short is tuned again"
    assert all(e.complete for e in later.entries) and len(later.entries) == 2


def test_budget_ends_while_a_candidate_compiles(tmp_path: Path) -> None:
    result, _ = session(tmp_path, FakeMeasurer(), TuneOptions(top=4, budget=0.3), lambda c: None)
    assert not result.complete and result.measured == 0 and not cache_in(tmp_path).entries and result.seconds < 5


@pytest.mark.parametrize("at", [0, 2, 4, 6])
def test_interrupt(tmp_path: Path, at: int) -> None:
    """Everything measured before it is kept, that of the problem under way too."""

    def times(n: int, trial: Trial) -> tuple[float, str]:
        if n == at:
            raise KeyboardInterrupt
        return 10.0 - n, ""

    measurer = FakeMeasurer(times)
    result, _ = session(tmp_path, measurer)
    stored = cache_in(tmp_path).entries
    assert result.interrupted and not result.complete and result.measured == at
    assert [len(e.measured) for e in stored.values()] == [n for n in (min(at, 4), max(0, at - 4)) if n]
    assert [e.complete for e in stored.values()] == [n == 4 for n in (min(at, 4), max(0, at - 4)) if n]
    assert all(e.best and e.best.us == min(m.us for m in e.measured) for e in stored.values())
    assert len(measurer.checks) == len(stored), "a winner is checked even then"


def test_interrupted_again_keeps_the_whole_result(tmp_path: Path) -> None:
    session(tmp_path, FakeMeasurer())
    before = cache_in(tmp_path).entries

    def times(n: int, trial: Trial) -> tuple[float, str]:
        if n == 2:
            raise KeyboardInterrupt
        return 99.0, ""

    session(tmp_path, FakeMeasurer(times), replace(TOP, again=True))
    assert cache_in(tmp_path).entries == before


def test_no_device(tmp_path: Path) -> None:
    compilers = FakeCompilers()

    def nothing(ordinal: int) -> Measurer:
        raise NoDevice("there is no GPU 3")

    with pytest.raises(NoDevice, match="GPU 3"):
        tune(UNITS, TARGET, {}, cache_in(tmp_path), TOP, compilers=lambda jobs: compilers, measurer=nothing)
    assert compilers.closed
    assert not cache_in(tmp_path).entries


# ---- candidates that fail -------------------------------------------------------------------------------------------


def test_failing_candidates(tmp_path: Path) -> None:
    """One does not compile, one hangs, one faults; the fourth wins."""
    answers = iter([(None, "no result within 10 seconds"), (None, "ModelError: CUDA_ERROR_ILLEGAL_ADDRESS"), (3.0, "")] + [(4.0, "")] * 4)
    bad = str(candidates_of(make_problem(UNITS[0], TARGET, {}), 1)[0][1])
    result, _ = session(tmp_path, FakeMeasurer(lambda n, t: next(answers)),
                        outcome=lambda c: CompiledCandidate(error="ptxas: too much shared data") if str(c.schedule) == bad else built(c))
    first = result.entries[0]
    assert [reason for _, _, reason in first.failed] == ["ptxas: too much shared data", "no result within 10 seconds",
                                                         "ModelError: CUDA_ERROR_ILLEGAL_ADDRESS"]
    assert first.best and first.best.us == 3.0 and len(first.measured) == 1 and first.complete
    assert result.failed == 3 and result.tuned == 2 and result.compiled == 7


def test_wrong_winner(tmp_path: Path) -> None:
    """It is recorded as failed, and the next best is checked."""
    measurer = FakeMeasurer(lambda n, t: (10.0 - n, ""), lambda n, check: "wrong result: 3 of 256 elements; t2[0, 0] is nan, should be 1" if n < 2 else "")
    result, _ = session(tmp_path, measurer)
    e = result.entries[0]
    assert e.best and e.best.us == 9.0 and [m.us for m in e.measured] == [10.0, 9.0]
    assert [reason[:12] for _, _, reason in e.failed] == ["wrong result", "wrong result"] and result.failed == 2
    assert [c.trial.library.name for c in measurer.checks[:3]] == [t.library.name for t in measurer.trials[3:0:-1]]
    assert measurer.checks[0].task == make_problem(UNITS[0], TARGET, {}).task


def test_nothing_works(tmp_path: Path) -> None:
    """The problem is recorded, reported, and tried again next time."""
    result, _ = session(tmp_path, FakeMeasurer(lambda n, t: (None, "fault") if n < 4 else (2.0, "")))
    assert result.hopeless == ["first"] and result.tuned == 1 and result.complete
    stored = cache_in(tmp_path).entries
    e = stored[make_problem(UNITS[0], TARGET, {}).key]
    assert e.best is None and len(e.failed) == 4 and not e.measured and e.complete
    assert session(tmp_path, FakeMeasurer())[0].tuned == 1


def test_hanging_compiler(tmp_path: Path) -> None:
    hung = str(candidates_of(make_problem(UNITS[0], TARGET, {}), 1)[0][1])
    result, _ = session(tmp_path, FakeMeasurer(), TuneOptions(top=4, compile_limit=0.1), lambda c: None if str(c.schedule) == hung else built(c))
    assert result.entries[0].failed[0][2] == "not compiled within 0.1 seconds" and len(result.entries[0].measured) == 3


@pytest.mark.parametrize("times", [1, 2])
def test_compiler_that_dies(tmp_path: Path, times: int) -> None:
    """A crash takes other candidates' futures with it: each is tried once more."""
    bad = str(candidates_of(make_problem(UNITS[0], TARGET, {}), 1)[0][1])
    left = [times]

    def outcome(c: Candidate) -> CompiledCandidate | Exception:
        if str(c.schedule) == bad and c.unit is UNITS[0] and left[0]:
            left[0] -= 1
            return Died()
        return built(c)

    result, _ = session(tmp_path, FakeMeasurer(), outcome=outcome)
    assert len(result.entries[0].measured) == (4 if times == 1 else 3)
    assert [reason for *_, reason in result.entries[0].failed] == ([] if times == 1 else ["the compiling process died"])


def test_a_bug_in_a_template_is_recorded(tmp_path: Path) -> None:
    unit = product()
    broken = Candidate(unit, TARGET, "matmul_mma", "not a schedule")
    assert "AttributeError" in built(broken).error


# ---- symbolic sizes -------------------------------------------------------------------------------------------------


def test_two_sizes_are_two_entries(tmp_path: Path) -> None:
    unit = product(m=Var("d_batch", 1))
    for size in (1, 512):
        measurer = FakeMeasurer()
        tune([unit], TARGET, {"d_batch": size}, cache_in(tmp_path), TOP, compilers=lambda jobs: FakeCompilers(), measurer=lambda o, m=measurer: m)
        shapes = {o.name: o.shape for o in measurer.trials[0].operands}
        assert shapes["t0_0"] == (size, 40) and shapes["t2_0"] == (size, 65)
    stored = cache_in(tmp_path).entries
    assert len(stored) == 2 and {e.problem.splitlines()[1] for e in stored.values()} == {"size d_batch = 1", "size d_batch = 512"}
