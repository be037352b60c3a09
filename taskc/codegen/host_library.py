"""A library of `host` kernels, loaded: launch by name with NumPy arrays, and arrays that end at an unreadable page."""
import _ctypes
import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from taskc.errors import TaskcError

Array = npt.NDArray[Any]
Scalar = TypeVar('Scalar', bound=np.generic)


class HostFault(TaskcError):
    """A kernel did on `host` what it must not; the message names the kernel, the block, the thread and the fault."""


class _Config(ctypes.Structure):
    _fields_ = (('grid', ctypes.c_int * 3), ('cluster', ctypes.c_int * 3), ('threads', ctypes.c_int),
                ('smem', ctypes.c_int), ('cores', ctypes.c_int), ('cooperative', ctypes.c_int))


class _Loaded:
    """The mapped library. Arrays from `guarded` hold it too, so it is unmapped after the last of them is gone."""

    def __init__(self, path: Path) -> None:
        self.dll = ctypes.CDLL(str(path))
        self.dll.taskc_host_error.restype = ctypes.c_char_p
        self.dll.taskc_host_alloc_aligned.restype = ctypes.c_void_p
        self.dll.taskc_host_alloc_aligned.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self.dll.taskc_host_free.argtypes = [ctypes.c_void_p]
        weakref.finalize(self, _ctypes.dlclose, self.dll._handle)


def _free(loaded: _Loaded, address: int) -> None:
    loaded.dll.taskc_host_free(address)


class HostLibrary:
    """path: what compile_host wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loaded = _Loaded(path.absolute())

    def launch(self, name: str, args: Sequence[Array | np.generic | int | float], grid: Sequence[int], threads: int,
               smem: int = 0, *, cluster: Sequence[int] = (1, 1, 1), cores: int = 0, cooperative: bool = False) -> None:
        """Runs one kernel to its end.

        args: in the kernel's order; an array passes its address, an int an i32, a float an f32, a NumPy scalar its own
        type. grid: blocks in x, y, z (missing ones are 1). threads: of a block. smem: bytes of shared memory of a
        block. cores: CPU threads, 0 for all. Raises HostFault.
        """
        try:
            entry = getattr(self._loaded.dll, f'taskc_launch_{name}')
        except AttributeError:
            raise HostFault(f'{self.path} has no kernel {name}') from None
        values = [_argument(value) for value in args]
        pointers = (ctypes.c_void_p * len(values))(*[value.ctypes.data for value in values])
        three = ctypes.c_int * 3
        config = _Config(three(*_three(grid)), three(*_three(cluster)), threads, smem, cores, int(cooperative))
        if entry(pointers, ctypes.byref(config)):
            raise HostFault(self._loaded.dll.taskc_host_error().decode(errors='replace'))

    def set_order(self, seed: int) -> None:
        """0: ascending order of threads and blocks; else the shuffled order of that seed.

        Even seeds keep warps about in step, odd ones let them drift apart; each shows races that the other hides.
        """
        self._loaded.dll.taskc_host_set_order(seed)

    def guarded(self, array: npt.NDArray[Scalar], align: int = 1) -> npt.NDArray[Scalar]:
        """A copy whose last byte is followed by an unreadable page (after at most align - 1 bytes that read as NaN);
        its start is a multiple of `align`."""
        address = self._loaded.dll.taskc_host_alloc_aligned(array.nbytes, align)
        if not address:
            raise MemoryError(f'{array.nbytes} bytes that end at a guard page')
        memory = (ctypes.c_char * array.nbytes).from_address(address)
        weakref.finalize(memory, _free, self._loaded, address)
        copy: npt.NDArray[Scalar] = np.ndarray(array.shape, array.dtype, memoryview(memory).cast('B'))
        copy[...] = array
        return copy


def _argument(value: Array | np.generic | int | float) -> Array:
    """-> a 0-d array that holds what the kernel receives."""
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise HostFault('an array argument must lie in memory in row-major order')
        return np.array(value.ctypes.data, np.uint64)
    if isinstance(value, np.generic):
        return np.array(value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, int):
        return np.array(value, np.int32)
    return np.array(value, np.float32)


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1, 1)[:3]
    return x, y, z
