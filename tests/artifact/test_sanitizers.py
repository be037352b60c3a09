"""The runtime built with Address- and UndefinedBehaviorSanitizer, run by a C program and by damaged payloads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from taskc.artifact.format import seal, serialize
from taskc.artifact.library import write_library
from taskc.artifact.runtime_build import build_runtime
from tests.artifact.artifact_plans import (
    chain_plan,
    counter_plan,
    fake_code,
    host_code,
    outputs_plan,
    peek_plan,
    symbolic_plan,
)
from tests.artifact.artifact_process import ROOT

SANITIZE = ["-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(runtime, the example program), both with sanitizers."""
    folder = tmp_path_factory.mktemp("sanitized")
    build_runtime(folder / "rt.so", extra=SANITIZE, defined=False)
    headers = ["-I", str(ROOT / "taskc/artifact/runtime")]
    source = str(ROOT / "examples/run.c")
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", *SANITIZE, *headers, "-o", str(folder / "run"), source, "-ldl"]
    subprocess.run(command, check=True)
    return folder / "rt.so", folder / "run"


def run(
    program: Path, library: Path, *args: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    # a damaged extent makes the example ask for absurd amounts of memory
    checks = {
        "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    command = [str(program), str(library), *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **checks, **(env or {})}
    )


def clean(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode in (0, 1, 2, 3, 8, 9) and "ERROR: " not in done.stderr and "runtime error" not in done.stderr


def test_every_plan_runs_clean(sanitized: tuple[Path, Path], tmp_path: Path) -> None:
    runtime, program = sanitized
    code = host_code()
    plans = [symbolic_plan(code), outputs_plan(code), chain_plan(code, 7), counter_plan(code), peek_plan(code)]
    for n, plan in enumerate(plans):
        path = tmp_path / f"m{n}.so"
        write_library(plan, path, runtime=runtime)
        for env in ({}, {"TASKC_HOST_ORDER": "5", "TASKC_POISON": "1"}):
            done = run(program, path, "host", "17", env=env)
            # the example's first random input may be negative, which the counter's kernel refuses
            assert clean(done) and done.returncode in (0, 1), done.stderr
    done = run(program, tmp_path / "m0.so", "cuda:0")
    assert clean(done), done.stderr


def test_the_cuda_side_runs_clean(sanitized: tuple[Path, Path], driver: dict[str, str], tmp_path: Path) -> None:
    """With the stand-in driver, which keeps its functions for good: leaks are not looked for."""
    runtime, program = sanitized
    code = fake_code()
    for n, plan in enumerate([symbolic_plan(code), outputs_plan(code), chain_plan(code, 7), peek_plan(code)]):
        path = tmp_path / f"m{n}.so"
        write_library(plan, path, runtime=runtime)
        for extra in ({}, {"TASKC_POISON": "1"}, {"TASKC_SYNC": "1"}, {"FAKE_REFUSE": "update"}):
            done = run(program, path, "cuda:0", "17", env={**driver, "ASAN_OPTIONS": "detect_leaks=0", **extra})
            assert clean(done) and done.returncode == 0, done.stderr


def test_damaged_payloads_run_clean(sanitized: tuple[Path, Path], tmp_path: Path) -> None:
    runtime, program = sanitized
    plan = symbolic_plan(host_code(), low=2)
    path, head = tmp_path / "m.so", serialize(plan).pieces[0][1]
    write_library(plan, path, runtime=runtime)
    whole = path.read_bytes()
    start = whole.index(bytes(head[:16]))
    codes: set[int] = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        data = bytearray(head)
        for _ in range(3):
            data[int(rng.integers(16, len(head)))] ^= 1 << int(rng.integers(8))
        damaged = bytearray(whole)
        damaged[start : start + len(head)] = seal(data)
        path.write_bytes(damaged)
        done = run(program, path, "host", "1")  # below `low`: everything is read and checked, no kernel runs
        assert clean(done), (seed, done.stderr)
        codes.add(done.returncode)
    assert 3 in codes
