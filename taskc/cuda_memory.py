"""GPU memory, a stream and events for benchmarks, through cuda-bindings' driver interface, in the primary context.

The runtime uses that context too, so its pointers and these work side by side."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskc.errors import NoDevice
from taskc.feeds import Array


@dataclass(frozen=True)
class DeviceTensor:
    """A dense tensor on the GPU, as `__cuda_array_interface__` shows it; freed with its `Cuda`."""

    pointer: int
    shape: tuple[int, ...]
    typestr: str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.pointer, False), "strides": None, "version": 3}


class Cuda:
    """The primary context of a GPU, made current for the time of a `with` block."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self._driver: Any = importlib.import_module("cuda.bindings.driver")
            self._call(self._driver.cuInit(0))
        except (ImportError, RuntimeError) as e:
            raise NoDevice(f"no GPU to measure on: {e}") from e
        self._device = self._call(self._driver.cuDeviceGet(ordinal))
        self._memory: list[int] = []

    def __enter__(self) -> Cuda:
        self._call(self._driver.cuCtxPushCurrent(self._call(self._driver.cuDevicePrimaryCtxRetain(self._device))))
        self.stream = int(self._call(self._driver.cuStreamCreate(1)))  # CU_STREAM_NON_BLOCKING
        return self

    def __exit__(self, *_: object) -> None:
        for pointer in self._memory:
            self._call(self._driver.cuMemFree(pointer))
        self._memory.clear()
        self._call(self._driver.cuStreamDestroy(self.stream))
        self._call(self._driver.cuCtxPopCurrent())
        self._call(self._driver.cuDevicePrimaryCtxRelease(self._device))

    def _call(self, result: tuple[Any, ...]) -> Any:
        status, *values = result
        if int(status):
            raise NoDevice(f"the GPU cannot be used for measuring: {status.name}")
        return values[0] if values else None

    def put(self, values: Array) -> DeviceTensor:
        """A copy of an array on the GPU."""
        values = np.ascontiguousarray(values)
        tensor = self.empty(values.shape, values.dtype.str, values.nbytes)
        if values.nbytes:
            self._call(self._driver.cuMemcpyHtoD(tensor.pointer, values.ctypes.data, values.nbytes))
        return tensor

    def empty(self, shape: tuple[int, ...], typestr: str, nbytes: int) -> DeviceTensor:
        """Uninitialised memory."""
        pointer = int(self._call(self._driver.cuMemAlloc(max(nbytes, 1))))
        self._memory.append(pointer)
        return DeviceTensor(pointer, shape, typestr)

    def like(self, values: Array) -> DeviceTensor:
        """Memory for an array of the same type and shape."""
        return self.empty(values.shape, values.dtype.str, values.nbytes)

    def event(self) -> Any:
        """An event recorded on the stream now."""
        event = self._call(self._driver.cuEventCreate(0))
        self._call(self._driver.cuEventRecord(event, self.stream))
        return event

    def microseconds(self, first: Any, last: Any) -> float:
        """Device time between two events, after waiting for the second; frees both."""
        self._call(self._driver.cuEventSynchronize(last))
        elapsed = float(self._call(self._driver.cuEventElapsedTime(first, last))) * 1e3
        for event in (first, last):
            self._call(self._driver.cuEventDestroy(event))
        return elapsed
