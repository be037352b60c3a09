"""The measuring process is restarted after anything that may happen to it; the compiling processes survive a crash."""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

import pytest

from taskc.errors import NoDevice
from taskc.schedules import matmul_simt, traits_of
from taskc.targets import TARGETS
from taskc.tune.processes import GpuMeasurer, ProcessCompilers
from taskc.tune.worker import Candidate, Check, Trial
from tests.tune import fake_loop
from tests.tune.tune_support import product


def trial(name: str) -> Trial:
    return Trial(Path(name), (), 1, 1.0, True)


@pytest.fixture
def measurer() -> Iterator[GpuMeasurer]:
    m = GpuMeasurer(0, fake_loop.loop, 1.0)
    yield m
    m.close()
    assert not m.process.is_alive()


@pytest.mark.parametrize(("what", "reason", "restarts"), [
    ("hang", "no result within 1 seconds", 1), ("die", "the measuring process ended", 1), ("fault", "ModelError: an illegal memory access", 1),
    ("wrong", "ValueError: no", 0),
])
def test_restart(measurer: GpuMeasurer, what: str, reason: str, restarts: int) -> None:
    us, _ = measurer.time(trial("ok"))
    old = measurer.process
    assert us == 5.0 + (old.pid or 0)
    assert measurer.time(trial(what)) == (None, reason)
    assert measurer.restarts == restarts and (old.is_alive() != bool(restarts))
    assert measurer.time(trial("ok")) == (5.0 + (measurer.process.pid or 0), "")


def test_killed_between_two_trials(measurer: GpuMeasurer) -> None:
    measurer.process.kill()
    measurer.process.join()
    assert measurer.time(trial("ok"))[0] is None or measurer.restarts == 1
    assert measurer.time(trial("ok"))[0] == 5.0 + (measurer.process.pid or 0)


def test_answer_to_an_interrupted_request_is_dropped(measurer: GpuMeasurer) -> None:
    """The parent was interrupted while it waited: the late answer must not be taken for the next one."""
    measurer.number += 1
    measurer.pipe.send((measurer.number, trial("wrong")))
    time.sleep(0.2)
    assert measurer.time(trial("late"))[0] == 5.0 + (measurer.process.pid or 0)


def test_check(measurer: GpuMeasurer) -> None:
    assert measurer.check(Check(trial("ok"), product().task, {})) == "wrong result: all of it"


def test_no_such_gpu() -> None:
    with pytest.raises(NoDevice, match="there is no GPU 9"):
        GpuMeasurer(9, fake_loop.loop)


def test_compilers_compile_and_survive_a_crash() -> None:
    """Real processes and the real compiler: a good candidate, one that does not build, a killed process, a good one again."""
    unit, target = product(8, 16, 24), TARGETS["sm_90a"]
    first, second = (Candidate(unit, target, matmul_simt.NAME, s) for s in matmul_simt.space(target, traits_of(unit.task))[:2])
    before = {p.pid for p in mp.active_children()}
    compilers = ProcessCompilers(1)
    try:
        made = compilers.submit(first).result(60)
        assert not made.error and made.cubin[:4] == b"\x7fELF" and made.symbol.endswith(made.text_hash)
        assert made.program is not None and not made.program.body
        assert "AttributeError" in compilers.submit(Candidate(unit, target, matmul_simt.NAME, None)).result(60).error
        for p in mp.active_children():
            if p.pid not in before:
                p.kill()
                p.join()
        time.sleep(0.5)
        try:
            again = compilers.submit(second).result(60)
        except BrokenExecutor:  # noticed only now: the session submits it once more
            again = compilers.submit(second).result(60)
        assert not again.error and again.symbol != made.symbol
    finally:
        compilers.close()


class Sleeper:
    """A schedule that keeps the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[float]]:
        return time.sleep, (60.0,)


def test_hanging_compiler_is_killed() -> None:
    compilers = ProcessCompilers(1)
    future = compilers.submit(Candidate(product(), TARGETS["sm_90a"], matmul_simt.NAME, Sleeper()))
    with pytest.raises(FutureTimeout):
        future.result(3)
    start = time.monotonic()
    compilers.close()
    for p in compilers.workers:
        p.join(5)
    assert compilers.workers and not any(p.is_alive() for p in compilers.workers) and time.monotonic() - start < 5
