"""The GPU as the tuner uses it: random operands in device memory, trial libraries run and timed. The only home of pycuda."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taskc.artifact import loader
from taskc.errors import NoDevice
from taskc.ir.dtype import BF16, F16
from taskc.tune.trial import Operand

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
        self.kept: dict[Operand, Any] = {}

    def operand(self, o: Operand) -> _DeviceTensor:
        """Random contents for an input, NaN bytes for an output."""
        if o not in self.kept:
            self.context.push()
            try:
                data = np.full(_bytes(o), 0xFF, np.uint8) if o.output else random_contents(o).reshape(-1).view(np.uint8)
                memory = self.driver.mem_alloc(max(256, data.nbytes))
                self.driver.memcpy_htod(memory, data)
                self.kept[o] = memory
            finally:
                self.context.pop()
        return _DeviceTensor(int(self.kept[o]), o)

    def forget(self) -> None:
        """Frees the kept operands."""
        self.context.push()
        try:
            self.kept.clear()
        finally:
            self.context.pop()

    def time(self, library: Path, operands: Sequence[Operand], copies: int, best: float) -> float:
        """Median microseconds a launch. Raises loader.ModelError with the driver's words."""
        model = loader.load(library, device=f"cuda:{self.ordinal}")
        bound = model.bind({o.name: self.operand(o) for o in operands if not o.output}, {o.name: self.operand(o) for o in operands if o.output})
        bound.run()
        first = min(model.time_device(2)) / copies
        return first if first > WORST * best else float(np.median(model.time_device(REPEATS))) / copies


class _DeviceTensor:
    """A view of device memory for the loader."""

    def __init__(self, pointer: int, o: Operand) -> None:
        self.__cuda_array_interface__ = {
            "shape": o.shape, "typestr": o.dtype.numpy.str, "data": (pointer, False), "version": 3, "strides": None}


def random_contents(o: Operand) -> np.ndarray[Any, Any]:
    """Seeded random elements: normal floats, small integers (they may be indices)."""
    rng = np.random.default_rng(sum(map(ord, o.name)))
    if o.dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, o.shape)).astype(np.bool_)
    if o.dtype.is_integer:
        return np.asarray(rng.integers(0, 8, o.shape)).astype(o.dtype.numpy)
    values = np.asarray(rng.standard_normal(o.shape, dtype=np.float32), np.float32)
    if o.dtype == BF16:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(np.float16 if o.dtype == F16 else o.dtype.numpy)


def _bytes(o: Operand) -> int:
    return int(np.prod(o.shape, dtype=np.int64)) * o.dtype.bytes


def _pycuda() -> Any:
    try:
        import pycuda.driver as driver  # pyright: ignore[reportMissingImports]
    except ImportError as e:
        raise NoDevice("tuning on a GPU needs pycuda: pip install 'taskc-compiler[gpu]' (it builds from source against the CUDA toolkit)") from e
    return driver
