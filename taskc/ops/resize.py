"""Resizing by interpolation along some axes. All positions are exact integer arithmetic, so sizes may be symbolic.

The output's index i reads around the source position (a * i + b) / c: its floor is an integer division and its fraction
a remainder, whatever the coordinate transformation and the (rational) scale are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.arithmetic import maximum, minimum
from taskc.ir.dtype import DType
from taskc.ir.expr import Index
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Dim, Tensor, Value, call
from taskc.ops.constants import fold, number, widened
from taskc.ops.registry import Example, examples

TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}  # offsets from the floor of the position


@dataclass(frozen=True)
class Step:
    """One axis: size // size_den after * size_num; the source position of index i is (a * i + b) / c, c > 0."""

    size_num: int
    size_den: int
    a: int
    b: int
    c: int

    @property
    def is_identity(self) -> bool:
        return self == Step(1, 1, 1, 0, 1)

    def size(self, extent: Dim) -> Dim:
        return extent * self.size_num // self.size_den


IDENTITY = Step(1, 1, 1, 0, 1)


@dataclass(frozen=True)
class Resize(Op):
    """x -> out with one `Step` an axis; `kind`: 'nearest' (the floor of the position), 'linear', 'cubic' (`cubic_a`).

    Positions outside the input read its edge."""

    kind: str
    steps: tuple[Step, ...]
    cubic_a: float = -0.75

    @property
    def name(self) -> str:
        return f"resize_{self.kind}"

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or x.rank != len(self.steps):
            raise OpError(f"{len(self.steps)} scales do not fit {x}")
        if self.kind not in TAPS or (self.kind != "nearest" and not x.dtype.is_float):
            raise OpError(f"{self.kind} interpolation of {x.dtype}")
        return (TensorType(x.dtype, tuple(s.size(d) for s, d in zip(self.steps, x.shape, strict=True))),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        out, dtype = widened(ins[0]), np.asarray(ins[0]).dtype
        for d, s in enumerate(self.steps):
            if s.is_identity:
                continue
            extent, position = out.shape[d], np.arange(int(out.shape[d] * s.size_num // s.size_den)) * s.a + s.b
            shape = [-1 if e == d else 1 for e in range(out.ndim)]
            taps = [np.take(out, np.clip(position // s.c + t, 0, extent - 1), axis=d) for t in TAPS[self.kind]]
            if self.kind == "nearest":
                out = taps[0]
            else:
                weights = self._reference_weights((position % s.c) / s.c)
                terms = [t * w.reshape(shape).astype(out.dtype) for t, w in zip(taps, weights, strict=True)]
                out = np.asarray(sum(terms))
        return (out.astype(dtype),)

    def _reference_weights(self, f: Array) -> list[Array]:
        if self.kind == "linear":
            return [1 - f, f]
        a, g = self.cubic_a, 1 - f

        def near(t: Array) -> Array:
            return ((a + 2) * t - (a + 3)) * t * t + 1

        def far(t: Array) -> Array:
            return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

        return [far(1 + f), near(f), near(g), far(1 + g)]

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        x, out = ins[0], outs[0]
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(out.shape))
        index = tuple(a.var for a in axes)
        return Map(axes, (Store(out, index, self._value(x, index, ())),))

    def _value(self, x: Tensor, index: Sequence[Index], done: tuple[Index, ...]) -> Value:
        """The element at `index`, with the source indices of the first axes `done`; one axis after the other."""
        d = len(done)
        if d == len(index):
            return x.at(*done)
        s = self.steps[d]
        if s.is_identity:
            return self._value(x, index, (*done, index[d]))
        position = index[d] * s.a + s.b
        low = position // s.c
        if self.kind == "nearest" or s.c == 1:  # always on an element
            return self._value(x, index, (*done, _clamped(low, x.shape[d])))
        taps = [self._value(x, index, (*done, _clamped(low + t, x.shape[d]))) for t in TAPS[self.kind]]
        dtype = x.dtype.compute
        fraction = call("div", number(position % s.c, dtype), Const(float(s.c), dtype))
        weights = self._weights(fraction, dtype)
        return fold("add", [call("mul", t, w) for t, w in zip(taps, weights, strict=True)])

    def _weights(self, f: Value, dtype: DType) -> list[Value]:
        def const(v: float) -> Value:
            return Const(v, dtype)

        g, a = call("sub", const(1.0), f), self.cubic_a
        if self.kind == "linear":
            return [g, f]

        def near(t: Value) -> Value:
            return call("add", fold("mul", [call("sub", call("mul", const(a + 2), t), const(a + 3)), t, t]), const(1.0))

        def far(t: Value) -> Value:
            inner = call("add", call("mul", call("sub", call("mul", const(a), t), const(5 * a)), t), const(8 * a))
            return call("sub", call("mul", inner, t), const(4 * a))

        return [far(call("add", const(1.0), f)), near(f), near(g), far(call("add", const(1.0), g))]


def _clamped(i: Index, extent: Dim) -> Index:
    return maximum(0, minimum(i, extent - 1))


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(47)
    x = rng.standard_normal((1, 2, 5, 6)).astype(np.float32)
    same, half, third = IDENTITY, Step(2, 1, 2, -1, 4), Step(7, 3, 6, -4, 14)
    return [
        Example(Resize("nearest", (same, same, Step(2, 1, 1, 0, 2), Step(3, 2, 2, 0, 3))), (x,), "nearest"),
        Example(Resize("nearest", (Step(1, 2, 2, 1, 1), Step(2, 1, 1, 0, 2))), (rng.integers(0, 9, (5, 3)),),
                "integers, down"),
        Example(Resize("linear", (same, same, half, third)), (x,), "linear, half pixel"),
        Example(Resize("linear", (same, same, half, same)), (x.astype(np.float16),), "linear, float16"),
        Example(Resize("cubic", (same, same, half, third)), (x,), "cubic"),
        Example(Resize("cubic", (same, same, Step(1, 2, 2, 0, 1), same)), (x,), "cubic on elements"),
    ]
