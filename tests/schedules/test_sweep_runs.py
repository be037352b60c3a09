"""bench.sweep itself, on host: a run, a run out of time, a child that dies, a wrong kernel, the result file, the GPU's driver calls."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import sweep as bench_sweep
from bench.sweep import Report, choose, main, sweep
from bench.worker import WorkerFailed
from taskc.codegen.host_library import HostFault, HostLibrary
from taskc.targets import TARGETS
from tests.host_kernels import build_library
from tests.schedules import sweep_machines
from tests.schedules.sweep import find, program_of, text_of
from tests.schedules.sweep_machines import Gpu, checked_in_memory

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


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class Driver:
    """The driver's calls that a sweep makes, over `host`: device memory is a guarded array, a launch runs the library's kernel."""

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(self, library: HostLibrary) -> None:
        self.library, self.memory = library, dict[int, Any]()
        self.unloaded: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("cuInit", "cuDeviceGet", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain", "cuFuncSetAttribute", "cuCtxSynchronize"):
            return lambda *_: (Status.CUDA_SUCCESS, 0)
        raise AttributeError(name)

    def cuModuleLoadData(self, image: bytes) -> tuple[Status, bytes]:
        return Status.CUDA_SUCCESS, image

    def cuModuleUnload(self, module: bytes) -> tuple[Status]:
        self.unloaded.append(module)
        return (Status.CUDA_SUCCESS,)

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Status, str]:
        return Status.CUDA_SUCCESS, name.decode()

    def cuMemAlloc(self, size: int) -> tuple[Status, int]:
        array = self.library.guarded(np.zeros(size, np.uint8), 256)
        self.memory[array.ctypes.data] = array
        return Status.CUDA_SUCCESS, array.ctypes.data

    def cuMemFree(self, address: int) -> tuple[Status]:
        del self.memory[address]
        return (Status.CUDA_SUCCESS,)

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> tuple[Status]:
        ctypes.memmove(to, source, size)
        return (Status.CUDA_SUCCESS,)

    cuMemcpyDtoH = cuMemcpyHtoD

    def cuLaunchKernel(self, function: str, gx: int, gy: int, gz: int, threads: int, _y: int, _z: int, shared: int, _stream: int,
                       parameters: tuple[tuple[int, ...], tuple[Any, ...]], _extra: int) -> tuple[Status]:
        arguments = [np.uint64(v) if t is ctypes.c_void_p else np.int32(v) for v, t in zip(*parameters, strict=True)]
        try:
            self.library.launch(function, arguments, (gx, gy, gz), threads, shared, cores=1)
        except HostFault:
            return (Status.CUDA_ERROR_ILLEGAL_ADDRESS,)
        return (Status.CUDA_SUCCESS,)


def test_driver_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory grows, modules are unloaded, a fault is a RuntimeError that names CUDA: a worker then takes a new process."""
    keys = (("matmul_simt f32 product", "32x32x16 thread 4x2 async3 split2"), ("attention bf16 heads of 16", "16x32 stages 2"),
            ("rows f32 softmax", "columns 128x1 width8 stream"))
    cases = [find(key, HOST) for key in keys]
    programs = [program_of(c, HOST, f"k{n}") for n, c in enumerate(cases)]
    driver = Driver(build_library({p.name: text_of(p) for p in programs}, tmp_path))
    monkeypatch.setattr(sweep_machines, "driver", driver)
    gpu = Gpu()
    for case, program in zip(cases, programs, strict=True):
        gpu.load(program.name.encode(), program)
        assert checked_in_memory(case, program, gpu, long=True) is None, case
    assert len(driver.unloaded) == 2 and len(driver.memory) == 1
    missing = program_of(cases[0], HOST, "nowhere")
    gpu.load(b"", missing)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        checked_in_memory(cases[0], missing, gpu, long=False)
