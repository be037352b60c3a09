"""Where single launches of a plan run: a GPU (cuda-bindings' driver API with torch's memory and streams) or `host`.

Both load a target plan's code images and offer the same few functions; the GPU's times lie in CUDA graphs.
"""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from cuda.bindings import driver

from taskc.artifact.plan import Kernel, TargetPlan
from taskc.codegen.host_library import HostLibrary
from taskc.errors import NoDevice

Call = Callable[[], None]
REPLAYS = 7  # timed replays of a graph; their median counts


@dataclass(frozen=True)
class Pointer:
    """A kernel argument: device memory."""

    memory: Any


@dataclass(frozen=True)
class Integer:
    """A kernel argument: an integer of 4 or 8 bytes."""

    value: int
    bytes: int


Argument = Pointer | Integer


class Machine(Protocol):
    """Memory is an object of the machine's own; `call` makes a launch, `seconds_of` times a sequence of launches."""

    def upload(self, data: Any) -> Any: ...

    def download(self, memory: Any) -> Any: ...

    def call(self, kernel: int, grid: Sequence[int], args: Sequence[Argument]) -> Call: ...

    def microseconds(self, calls: Sequence[Call]) -> float: ...


class Host:
    """The `host` target: launches run at once, times are the CPU's."""

    def __init__(self, target: TargetPlan) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="taskc-bench-")
        path = Path(self._folder.name, "kernels.so")
        path.write_bytes(target.images[0].data)
        self._library, self._kernels = HostLibrary(path), target.kernels

    def upload(self, data: Any) -> Any:
        return self._library.guarded(np.frombuffer(data, np.uint8), 256)

    def download(self, memory: Any) -> Any:
        return memory

    def call(self, kernel: int, grid: Sequence[int], args: Sequence[Argument]) -> Call:
        k = self._kernels[kernel]
        values = [a.memory if isinstance(a, Pointer) else np.int64(a.value) if a.bytes == 8 else np.int32(a.value) for a in args]
        return lambda: self._library.launch(k.symbol, values, grid, k.threads, k.shared_bytes, cluster=k.cluster, cooperative=k.cooperative)

    def microseconds(self, calls: Sequence[Call]) -> float:
        start = time.perf_counter()
        for c in calls:
            c()
        return (time.perf_counter() - start) * 1e6


class Cuda:
    """A GPU. Functions are looked up in every image, as the runtime does; `pdl` kernels may start before their predecessor ends."""

    def __init__(self, target: TargetPlan, ordinal: int = 0) -> None:
        import torch  # the GPU's memory, streams and graphs; not needed on host

        if not torch.cuda.is_available():
            raise NoDevice("no GPU here that torch can use: run this on a machine with one, or with --target host")
        self.torch = torch
        torch.cuda.set_device(ordinal)
        torch.empty(1, device="cuda")  # makes the context current on this thread
        check(driver.cuInit(0))
        self._stream = torch.cuda.Stream()
        self._kernels = target.kernels
        modules = [check(driver.cuModuleLoadData(bytes(image.data) + b"\0")) for image in target.images if image.kind == "cubin"]
        self._functions = [_function(modules, n, k) for n, k in enumerate(target.kernels)]

    def upload(self, data: Any) -> Any:
        host = self.torch.frombuffer(bytearray(data), dtype=self.torch.uint8) if len(data) else self.torch.zeros(1, dtype=self.torch.uint8)
        return host.cuda()

    def download(self, memory: Any) -> Any:
        self.torch.cuda.synchronize()
        return memory.cpu().numpy()

    def call(self, kernel: int, grid: Sequence[int], args: Sequence[Argument]) -> Call:
        k = self._kernels[kernel]
        values = tuple(a.memory.data_ptr() if isinstance(a, Pointer) else a.value for a in args)
        types = tuple(ctypes.c_void_p if isinstance(a, Pointer) else ctypes.c_int64 if a.bytes == 8 else ctypes.c_int32 for a in args)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = k.threads, 1, 1
        config.sharedMemBytes = k.shared_bytes
        config.attrs = _attributes(k)
        config.numAttrs = len(_attributes(k))

        keep = tuple(args)  # scratch and rotated weights live as long as the call

        def launch(_: object = keep) -> None:
            config.hStream = driver.CUstream(self.torch.cuda.current_stream().cuda_stream)
            check(driver.cuLaunchKernelEx(config, self._functions[kernel], (values, types), 0))

        return launch

    def microseconds(self, calls: Sequence[Call]) -> float:
        """Device time of one replay of a graph of the calls, one after the other."""
        torch = self.torch
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):  # torch.cuda.graph would collect garbage around each of hundreds of captures
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for c in calls:
                    c()
            finally:
                graph.capture_end()
        graph.replay()
        graph.replay()
        times: list[float] = []
        for _ in range(REPLAYS):
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            graph.replay()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last) * 1e3)
        return statistics.median(times)


def check(result: tuple[Any, ...]) -> Any:
    """A driver call's result, or RuntimeError with the driver's name for what went wrong."""
    status, *values = result
    if int(status):
        raise RuntimeError(f"CUDA driver: {status.name}")
    return values[0] if values else None


def load_function(image: bytes, symbol: str, shared_bytes: int) -> Any:
    """A kernel of one cubin or PTX text, in the current context, allowed its dynamic shared memory."""
    return _function([check(driver.cuModuleLoadData(image + b"\0"))], 0, Kernel(symbol, 1, shared_bytes))


def _function(modules: Sequence[Any], number: int, kernel: Kernel) -> Any:
    """Image n usually holds kernel n: that one is asked first."""
    order = [*modules[number : number + 1], *modules]
    for module in order:
        status, function = driver.cuModuleGetFunction(module, kernel.symbol.encode())
        if not int(status):
            what = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(function, what, kernel.shared_bytes))
            return function
    raise RuntimeError(f"no image holds kernel {kernel.symbol}")


def _attributes(kernel: Kernel) -> list[Any]:
    ids = driver.CUlaunchAttributeID
    out: list[Any] = []
    if kernel.pdl:
        value = driver.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        out.append(_attribute(ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value))
    if kernel.cooperative:
        value = driver.CUlaunchAttributeValue()
        value.cooperative = 1
        out.append(_attribute(ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value))
    if max(kernel.cluster) > 1:
        value = driver.CUlaunchAttributeValue()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = kernel.cluster
        out.append(_attribute(ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value))
    return out


def _attribute(number: Any, value: Any) -> Any:
    attribute = driver.CUlaunchAttribute()
    attribute.id = number
    attribute.value = value
    return attribute
