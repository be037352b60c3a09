"""The measuring side on the host: real trial libraries, real kernels and the shipped runtime; only the GPU's memory is a stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taskc.artifact import loader
from taskc.artifact.plan import Image
from taskc.codegen.backend import compile_kernels
from taskc.fuse.units import Unit
from taskc.ir.dtype import BF16, F16, F32
from taskc.ir.expr import Var
from taskc.ir.task import Contraction
from taskc.ir.value import call
from taskc.targets import TARGETS
from taskc.tune import device
from taskc.tune.device import Gpu
from taskc.tune.kernels import build_problem
from taskc.tune.problem import Problem, make_problem
from taskc.tune.trial import Operand, write_trial
from tests.tune.tune_support import product, sums

HOST = TARGETS["host"]


class Memory:
    """Device memory that lies in an array."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)

    def __int__(self) -> int:
        return self.bytes.ctypes.data


class Driver:
    """As much of pycuda.driver as is used. `lost`: the context no longer works."""

    class Error(Exception):
        pass

    class Device:
        def __init__(self, ordinal: int) -> None:
            self.depth = 0

        @staticmethod
        def count() -> int:
            return 1

        def retain_primary_context(self) -> Driver.Device:
            return self

        def push(self) -> None:
            self.depth += 1

        def pop(self) -> None:
            self.depth -= 1

    class Context:
        lost = False

        @classmethod
        def synchronize(cls) -> None:
            if cls.lost:
                raise Driver.Error("an illegal memory access")

    init = staticmethod(lambda: None)
    mem_alloc = staticmethod(Memory)

    @staticmethod
    def memcpy_htod(to: Memory, data: np.ndarray[Any, Any]) -> None:
        to.bytes[: data.nbytes] = data.reshape(-1).view(np.uint8)

    @staticmethod
    def memcpy_dtoh(to: np.ndarray[Any, Any], source: Memory) -> None:
        to.reshape(-1).view(np.uint8)[:] = source.bytes[: to.nbytes]


class HostGpu(Gpu):
    """Hands the runtime its memory as arrays."""

    def operand(self, o: Operand) -> Any:
        super().operand(o)
        memory, data = self.kept[o]
        return memory.bytes[: data.nbytes].view(data.dtype).reshape(data.shape)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    load = loader.load
    monkeypatch.setattr(device, "_pycuda", Driver)
    monkeypatch.setattr(device.loader, "load", lambda path, device: load(path, device="host"))
    return HostGpu(0)


def trial(unit: Unit, folder: Path, **sizes: int) -> tuple[Problem, Path, int, Sequence[Operand]]:
    problem = make_problem(unit, HOST, sizes)
    kernel = build_problem(problem)
    code = compile_kernels({kernel.symbol: kernel.text}, HOST, 1)
    image = code.images[0]
    copies, operands = write_trial(kernel.program, kernel.symbol, Image(image.kind, image.arch, image.data), dict(problem.sizes), folder / "trial.so")
    return problem, folder / "trial.so", copies, operands


UNITS = {"f16": product(33, 65, 40), "f32": product(20, 33, 50, dtype=F32, constant=False), "bf16": product(33, 65, 40, dtype=BF16), "map": sums(1000),
         "symbolic": product(Var("d_batch", 1), 33, 40, dtype=F16)}


@pytest.mark.parametrize("name", UNITS)
def test_right_kernels_pass(gpu: HostGpu, tmp_path: Path, name: str) -> None:
    problem, library, copies, operands = trial(UNITS[name], tmp_path, d_batch=17)
    assert gpu.time(library, operands, copies, float("inf")) > 0
    assert gpu.why_wrong(library, operands, copies, problem.task, dict(problem.sizes)) == ""
    assert gpu.context.depth == 0, "no context is left current"
    constants = sum(o.name.startswith("t1_") for o in operands)
    assert (copies, constants) == ((16, 1) if name in ("f32", "map") else (16, 16)), "weights are rotated, activations are not"
    gpu.forget()
    assert not gpu.kept


def test_a_kernel_of_another_task_is_wrong(gpu: HostGpu, tmp_path: Path) -> None:
    problem, library, copies, operands = trial(UNITS["f16"], tmp_path)
    task = problem.task
    assert isinstance(task, Contraction)
    (store,) = task.stores
    other = replace(task, stores=(replace(store, value=call("neg", store.value)),))
    assert " elements; t2[" in gpu.why_wrong(library, operands, copies, other, {})


def test_outputs_are_poisoned_before_the_check(gpu: HostGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that stores nothing does not pass on what an earlier candidate left."""
    problem, library, copies, operands = trial(UNITS["f16"], tmp_path)
    assert gpu.why_wrong(library, operands, copies, problem.task, {}) == ""
    monkeypatch.setattr(HostGpu, "_run", lambda *_: None)
    assert "is nan, should be" in gpu.why_wrong(library, operands, copies, problem.task, {})


def test_a_lost_context_is_noticed(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.usable()
    monkeypatch.setattr(Driver.Context, "lost", True)
    assert not gpu.usable() and gpu.context.depth == 0
