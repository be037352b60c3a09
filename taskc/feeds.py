"""Inputs for a run, from short texts: `x.npy`, `random`, `random:0:1000`, `1x3x224x224xf32=0`; seeded."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskc.artifact.loader import TensorInfo
from taskc.errors import UsageError

Array = NDArray[Any]

_SHORT = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "b8": "bool",
}  # fmt: skip
_FILLED = re.compile(r"((?:\d+x)*)([a-z]+\d+)=(.+)")
_RANDOM = re.compile(r"random(?::(-?\d+(?:\.\d+)?):(-?\d+(?:\.\d+)?))?")
_FORMS = "FILE.npy, random, random:LOW:HIGH or 1x3x224x224xf32=0"


@dataclass(frozen=True)
class Request:
    """What to feed. `dims` are sizes of symbolic dims by name (others count as `default_dim`); `ranges` are the values
    that integer inputs may take, [low, high)."""

    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    seed: int = 0
    default_dim: int = 1
    fill_all: bool = False  # inputs that are not named are random


def make_feed(ports: Sequence[TensorInfo], request: Request) -> dict[str, Array]:
    """An array for each port. UsageError names the input, what was given, and what is wanted."""
    names = [p.name for p in ports]
    wanted = ", ".join(f"{p.name}: {p}" for p in ports)
    for name in request.inputs:
        if name not in names:
            raise UsageError(f"--input {name}: the model has no input of that name; it wants {wanted or 'no inputs'}")
    missing = [n for n in names if n not in request.inputs]
    if missing and not request.fill_all:
        raise UsageError(f"no value for input {missing[0]!r}: add --input {missing[0]}=random (or a FILE.npy); the model wants {wanted}")
    unknown = set(request.dims) - {d for p in ports for d in p.shape if isinstance(d, str)}
    if unknown:
        known = sorted({d for p in ports for d in p.shape if isinstance(d, str)})
        raise UsageError(f"--dim {min(unknown)}: no input has a symbolic dim of that name; there is {', '.join(known) or 'none'}")
    return {p.name: _array(p, request.inputs.get(p.name, "random"), request) for p in ports}


def _array(port: TensorInfo, text: str, request: Request) -> Array:
    if found := _RANDOM.fullmatch(text):
        limits = (float(found[1]), float(found[2])) if found[1] is not None else None
        return random_array(port, request, limits)
    if found := _FILLED.fullmatch(text):
        return _filled(port, found[1], found[2], found[3])
    path = Path(text)
    if path.suffix != ".npy":
        raise UsageError(f"--input {port.name}={text}: not understood; wanted {_FORMS}")
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"--input {port.name}: there is no file {path}") from None
    except (OSError, ValueError, EOFError) as e:
        raise UsageError(f"--input {port.name}: {path} is not a readable .npy array: {e}") from e


def _filled(port: TensorInfo, dims: str, dtype: str, value: str) -> Array:
    if dtype not in _SHORT:
        raise UsageError(f"--input {port.name}: no element type {dtype!r}; there are {', '.join(_SHORT)}")
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"--input {port.name}: {value!r} is not a number") from None
    shape = [int(d) for d in dims.split("x") if d]
    return _stored(np.full(shape, number), _SHORT[dtype])


def random_array(port: TensorInfo, request: Request, limits: tuple[float, float] | None = None) -> Array:
    """Seeded by the request and the input's name: normal floats, uniform integers in [low, high)."""
    shape = [d if isinstance(d, int) else request.dims.get(d, request.default_dim) for d in port.shape]
    rng = np.random.default_rng([request.seed, zlib.crc32(port.name.encode())])
    if port.dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if "float" in port.dtype:
        return _stored(rng.standard_normal(shape) if limits is None else rng.uniform(*limits, shape), port.dtype)
    low, high = request.ranges.get(port.name, (0, 2)) if limits is None else (int(limits[0]), int(limits[1]))
    if low >= high:
        raise UsageError(f"--input {port.name}=random:{low}:{high}: the first limit must be below the second")
    return rng.integers(low, high, shape).astype(port.dtype)


def _stored(values: Array, dtype: str) -> Array:
    """The values in an element type; bfloat16 as its bits, rounded to nearest even."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
