"""The GPU as the tuner uses it: random operands in device memory, trial libraries run, timed and checked. The only home of pycuda."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from taskc.artifact import loader
from taskc.errors import NoDevice, ToolchainError
from taskc.ir.convert import bf16_bits
from taskc.ir.dtype import BF16, F16
from taskc.ir.task import Task, inputs, outputs
from taskc.tune.trial import Operand, operand_name
from taskc.tune.winner import why_wrong

REPEATS = 12  # graph launches a candidate
WORST = 3.0  # a candidate this many times slower than the best so far is not repeated


class Gpu:
    """Device memory and timing on one GPU; operands of equal name, shape and seed are kept and shared between trials."""

    def __init__(self, ordinal: int = 0) -> None:
        self.driver = _pycuda()
        self.driver.init()
        if ordinal >= self.driver.Device.count():
            raise NoDevice(f"there is no GPU {ordinal}")
        self.ordinal = ordinal
        self.context = self.driver.Device(ordinal).retain_primary_context()
        self.kept: dict[Operand, tuple[Any, np.ndarray[Any, Any]]] = {}  # device memory, and what was written there

    def operand(self, o: Operand) -> DeviceTensor:
        """Random contents for an input, NaN bytes for an output."""
        if o not in self.kept:
            self.context.push()
            try:
                data = poison(o) if o.output else random_contents(o)
                memory = self.driver.mem_alloc(max(256, data.nbytes))
                if data.nbytes:
                    self.driver.memcpy_htod(memory, data)
                self.kept[o] = (memory, data)
            finally:
                self.context.pop()
        return DeviceTensor(int(self.kept[o][0]), o)

    def forget(self) -> None:
        """Frees the kept operands."""
        self.context.push()
        try:
            self.kept.clear()
        finally:
            self.context.pop()

    def time(self, library: Path, operands: Sequence[Operand], copies: int, best: float) -> float:
        """Median microseconds a launch. Raises loader.ModelError with the driver's words."""
        model = self._run(library, operands)
        first = min(model.time_device(2)) / copies
        return first if first > WORST * best else float(np.median(model.time_device(REPEATS))) / copies

    def why_wrong(self, library: Path, operands: Sequence[Operand], copies: int, task: Task, sizes: Mapping[str, int]) -> str:
        """Runs once on poisoned outputs; what is wrong with them, or ''. The last launch is the one whose outputs stay."""
        named = {o.name: o for o in operands}
        written = {t.name: named[operand_name(t, copies - 1)] for t in outputs(task)}
        self._poison([o for o in written.values() if o in self.kept])
        self._run(library, operands)
        read = {t.name: self.kept[named[operand_name(t, copies - 1)]][1] for t in inputs(task)}
        return why_wrong(task, read, {name: self._contents(o) for name, o in written.items()}, sizes)

    def usable(self) -> bool:
        """Whether the context still works: a kernel's fault ends it."""
        try:
            self.context.push()
            try:
                self.driver.Context.synchronize()
            finally:
                self.context.pop()
        except self.driver.Error:
            return False
        return True

    def _run(self, library: Path, operands: Sequence[Operand]) -> loader.Model:
        model = loader.load(library, device=f"cuda:{self.ordinal}")
        model.bind({o.name: self.operand(o) for o in operands if not o.output}, {o.name: self.operand(o) for o in operands if o.output}).run()
        return model

    def _poison(self, operands: Sequence[Operand]) -> None:
        self.context.push()
        try:
            for o in operands:
                memory, data = self.kept[o]
                if data.nbytes:
                    self.driver.memcpy_htod(memory, data)
        finally:
            self.context.pop()

    def _contents(self, o: Operand) -> np.ndarray[Any, Any]:
        """What lies in an operand's device memory now."""
        self.context.push()
        try:
            memory, data = self.kept[o]
            found = np.empty_like(data)
            if found.nbytes:
                self.driver.memcpy_dtoh(found, memory)
            return found
        finally:
            self.context.pop()


class DeviceTensor:
    """A view of device memory for the loader."""

    def __init__(self, pointer: int, o: Operand) -> None:
        self.__cuda_array_interface__ = {
            "shape": o.shape, "typestr": o.dtype.numpy.str, "data": (pointer, False), "version": 3, "strides": None}


def random_contents(o: Operand) -> np.ndarray[Any, Any]:
    """Random elements as stored, seeded by the operand's name: normal floats, small integers (they may be indices)."""
    rng = np.random.default_rng(zlib.crc32(o.name.encode()))
    if o.dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, o.shape)).astype(np.bool_)
    if o.dtype.is_integer:
        return np.asarray(rng.integers(0, 8, o.shape)).astype(o.dtype.numpy)
    values = np.asarray(rng.standard_normal(o.shape, dtype=np.float32), np.float32)
    if o.dtype == BF16:
        return bf16_bits(values)
    return values.astype(np.float16 if o.dtype == F16 else o.dtype.numpy)


def poison(o: Operand) -> np.ndarray[Any, Any]:
    """Bytes of 0xFF: NaN in every float type."""
    size = int(np.prod(o.shape, dtype=np.int64)) * o.dtype.bytes
    return np.full(size, 0xFF, np.uint8).view(o.dtype.numpy).reshape(o.shape)


def require_pycuda() -> None:
    """Raises ToolchainError with what to install where pycuda is missing."""
    if find_spec("pycuda") is None:
        raise ToolchainError("tuning needs pycuda, which is not installed: pip install 'taskc-compiler[gpu]' (it builds from source, "
                             "against the CUDA toolkit)")


def _pycuda() -> Any:
    require_pycuda()
    try:
        import pycuda.driver as driver  # pyright: ignore[reportMissingImports]
    except ImportError as e:
        raise ToolchainError(f"pycuda does not load ({e}): install it again for this CUDA: pip install --force-reinstall pycuda") from e
    return driver
