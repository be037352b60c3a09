"""The NumPy meaning of a value: an expression over loads -> an array over a grid of points.

Every load is checked against its tensor's bounds, every index from data against its variable's facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taskc.ir.convert import convert, values_of
from taskc.ir.dtype import BF16, F64, DType
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index
from taskc.ir.functions import FUNCTIONS
from taskc.ir.graph import Array
from taskc.ir.value import Call, Cast, Choose, Const, Guard, Hole, Let, Load, Number, Reduce, Value

_REDUCTIONS: dict[str, tuple[Any, float]] = {
    "sum": (np.add, 0), "prod": (np.multiply, 1), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf),
}


@dataclass(frozen=True)
class Point:
    """A grid of points: the variables' values (arrays that broadcast to `shape`), where they count, and what holes hold."""

    tensors: Mapping[str, Array]
    env: Mapping[str, Any]
    mask: Array
    holes: Mapping[str, Array]
    wide: bool

    def index(self, e: Index) -> Any:
        return evaluate(e, self.env)

    def float_type(self, dtype: DType) -> DType:
        return F64 if self.wide and dtype.is_float else dtype

    def value(self, v: Value) -> Array:
        """The value at every point; where the mask is off it may be anything."""
        if isinstance(v, Load):
            return self._load(v)
        if isinstance(v, Const):
            return np.array(v.value, self.float_type(v.dtype.compute).numpy)
        if isinstance(v, Number):
            return np.asarray(self.index(v.index)).astype(self.float_type(v.dtype.compute).numpy)
        if isinstance(v, Call):
            return self._call(v)
        if isinstance(v, Cast):
            x = self.value(v.value)
            return x.astype(np.float64) if self.wide and v.to.is_float else convert(x, v.to).astype(v.to.compute.numpy)
        if isinstance(v, Guard):
            inside = self.mask
            for c in v.conditions:
                inside = inside & (np.asarray(self.index(c)) > 0)
            x = replace(self, mask=inside).value(v.value)
            return np.where(inside, x, np.zeros((), x.dtype))
        if isinstance(v, Choose):
            first = np.asarray(self.index(v.condition)) > 0
            yes, no = replace(self, mask=self.mask & first).value(v.yes), replace(self, mask=self.mask & ~first).value(v.no)
            return np.where(first, yes, no)
        if isinstance(v, Let):
            return self._let(v)
        if isinstance(v, Reduce):
            return self._reduce(v)
        if isinstance(v, Hole):
            return self.holes[v.name]
        raise TypeError(f"{v} has no meaning outside of a program")

    def _load(self, v: Load) -> Array:
        data = self.tensors[v.tensor.name]
        at: list[Array] = []
        for i, extent in zip(v.index, data.shape, strict=True):
            place = np.asarray(self.index(i))
            outside = (place < 0) | (place >= extent)
            if np.any(outside):  # seldom, so that a grid's axes stay as small as they are
                if np.any(self.mask & outside):
                    raise IndexError(f"{v.tensor.name}[{', '.join(map(str, v.index))}]: {i} leaves 0..{extent - 1}")
                place = np.where(self.mask, place, 0)
            at.append(place)
        if not at:
            return np.broadcast_to(self._loaded(data, v.tensor.dtype), self.mask.shape)
        return self._loaded(data[tuple(at)], v.tensor.dtype) if data.size else np.zeros(self.mask.shape, data.dtype)

    def _loaded(self, picked: Array, dtype: DType) -> Array:
        """What was loaded as values of the type that is computed in; a tensor may be given as it is stored."""
        if dtype == BF16 and picked.dtype == np.uint16:
            picked = values_of(picked, dtype)
        return widened(picked, self.wide)

    def _call(self, v: Call) -> Array:
        with np.errstate(all="ignore"):
            out = np.asarray(FUNCTIONS[v.function].meaning(*(self.value(a) for a in v.args)))
            return out.astype(self.float_type(v.dtype.compute).numpy, copy=False)

    def _let(self, v: Let) -> Array:
        bound = np.broadcast_to(self.value(v.value), self.mask.shape).astype(np.int64)
        low, high = v.var.lo, v.var.hi if v.var.below is None else self.index(v.var.below) - 1
        if np.any(self.mask & ((bound < low) | (False if high is None else bound > high))):
            raise IndexError(f"{v.var} leaves {low}..{high}, which its facts promise")
        return replace(self, env={**self.env, v.var.name: bound}).value(v.body)

    def _reduce(self, v: Reduce) -> Array:
        sizes = [int(self.index(e)) for e in v.extents]
        count, n = len(sizes), self.mask.ndim
        env: dict[str, Any] = {k: x[(..., *[None] * count)] if isinstance(x, np.ndarray) else x for k, x in self.env.items()}
        for d, (var, size) in enumerate(zip(v.axes, sizes, strict=True)):
            env[var.name] = np.arange(size).reshape([size if k == n + d else 1 for k in range(n + count)])
        grown = {k: h[(..., *[None] * count)] for k, h in self.holes.items()}
        mask = np.broadcast_to(self.mask[(..., *[None] * count)], (*self.mask.shape, *sizes))
        body = replace(self, env=env, mask=mask, holes=grown).value(v.body)
        return reduced(v.kind, np.broadcast_to(body, mask.shape), tuple(range(n, n + count)))


def reduced(kind: str, x: Array, axes: tuple[int, ...]) -> Array:
    """x reduced over axes by kind, in its own type; what is empty gives the neutral element."""
    ufunc, start = _REDUCTIONS[kind]
    if kind in ("max", "min") and x.dtype.kind in "iu":
        start = np.iinfo(x.dtype).min if kind == "max" else np.iinfo(x.dtype).max
    with np.errstate(all="ignore"):
        return np.asarray(ufunc.reduce(x, axis=axes, dtype=x.dtype, initial=np.array(start).astype(x.dtype)))


def widened(a: Array, wide: bool) -> Array:
    """Floats as they are computed in: float32 for float16, float64 for all where `wide`."""
    if a.dtype.kind != "f":
        return a
    return a.astype(np.float64) if wide else a.astype(np.float32) if a.dtype == np.float16 else a
