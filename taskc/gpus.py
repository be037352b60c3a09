"""The GPUs of this machine, asked of the driver alone (libcuda by ctypes), and the targets that fit them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from taskc.errors import NoDevice

DRIVER = "libcuda.so.1"
OLDEST_DRIVER = (13, 0)  # code of CUDA 13.x loads on drivers that offer 13.0 (release 580) or later
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True)
class Gpu:
    """A GPU: its number, name and compute capability."""

    ordinal: int
    name: str
    capability: tuple[int, int]

    @property
    def target(self) -> str:
        """The target to compile for. NoDevice for a GPU older than every target."""
        if self.capability < (8, 0):
            raise NoDevice(f"{self.name} has compute capability {self.capability[0]}.{self.capability[1]}; taskc needs 8.0 or newer")
        return "sm_90a" if self.capability == (9, 0) else "sm_80"


@dataclass(frozen=True)
class Machine:
    """What the driver says: its CUDA version (0, 0 without a driver), the GPUs, and the reason when there is none."""

    driver: tuple[int, int]
    gpus: tuple[Gpu, ...]
    reason: str = ""


def find_machine() -> Machine:
    """Asks the driver; never raises."""
    try:
        cuda = ctypes.CDLL(DRIVER)
    except OSError as e:
        return Machine((0, 0), (), f"no NVIDIA driver: {DRIVER} does not load ({e})")
    status = cuda.cuInit(0)
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    driver = (version.value // 1000, version.value % 1000 // 10)
    if status:
        return Machine(driver, (), f"the NVIDIA driver reports error {status} at cuInit: no GPU is usable here")
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return Machine(driver, (), "the NVIDIA driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?)")
    return Machine(driver, tuple(_gpu(cuda, i) for i in range(count.value)))


def _gpu(cuda: ctypes.CDLL, ordinal: int) -> Gpu:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cuda.cuDeviceGetName(name, len(name), device)
    found: list[int] = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        found.append(value.value)
    return Gpu(ordinal, name.value.decode("utf-8", "replace"), (found[0], found[1]))


def gpu_for(target: str, machine: Machine) -> Gpu:
    """The first GPU here whose own target is `target`: where that target is tuned. NoDevice says what there is instead."""
    if not machine.gpus:
        raise NoDevice(f"tuning measures kernels on a GPU, and there is none here: {machine.reason}. Run `taskc tune` on a machine with the GPU "
                       "you compile for and bring the cache's folder here; `taskc compile` without --cache needs no GPU")
    found = [g for g in machine.gpus if g.target == target]
    if not found:
        there = ", ".join(f"{g.name} ({g.target})" for g in machine.gpus)
        raise NoDevice(f"tuning for {target} needs such a GPU; this machine has {there}: use --target native, or tune elsewhere")
    return found[0]


def resolve_targets(names: Sequence[str], machine: Machine | None = None) -> tuple[str, ...]:
    """The names with `native` replaced by what fits the GPUs here, without repeats. NoDevice where there is no GPU."""
    out: list[str] = []
    for name in names:
        if name != "native":
            out.append(name)
            continue
        machine = machine or find_machine()
        if not machine.gpus:
            raise NoDevice(f"target 'native' needs a GPU here: {machine.reason}. Name a target instead: --target sm_90a, sm_80 or host")
        out += [gpu.target for gpu in machine.gpus]
    return tuple(dict.fromkeys(out))
