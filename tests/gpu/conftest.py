"""Everything here needs a GPU (and torch, for its memory): skipped with a clear word where there is none."""

from __future__ import annotations

import ctypes
import functools
from importlib.util import find_spec
from pathlib import Path

import pytest


@functools.cache
def _why_not() -> str | None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver on this machine (libcuda.so.1 not found)"
    count = ctypes.c_int(0)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver sees no GPU on this machine"
    return None if find_spec("torch") else "torch is not installed: the GPU tests use its memory and streams"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            why = _why_not()
            if why is not None:
                item.add_marker(pytest.mark.skip(reason=why))
