"""Max, average and Lp pooling of any rank: one short reduction over the taps an output element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.arithmetic import ceildiv, maximum, minimum
from taskc.ir.dtype import DType
from taskc.ir.expr import Index, Var, prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Dim, Reduce, Tensor, Value, call, choose, guard, inside
from taskc.ops.constants import number, widened
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.windows import Window, read_window, taps_slice

KINDS = ("max", "average", "lp")


def lowest(dtype: DType) -> float | int:
    """What no maximum prefers to a value of the type: minus infinity, or the smallest integer."""
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy_name).min)


@dataclass(frozen=True)
class Pool(Op):
    """x[n, c, …] -> out[n, c, …] over windows; channels last: [n, …, c] both.

    Padding is never a maximum and adds nothing to a sum; `count_pads`: an average divides by the taps inside the padded
    input instead of those inside the input. `ceil`: a last partial window counts. `p` is the norm's order for 'lp'."""

    kind: str
    kernel: tuple[int, ...]
    window: Window
    ceil: bool = False
    count_pads: bool = False
    p: int = 2
    channels_last: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}_pool"

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def spatial(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return shape[1:-1] if self.channels_last else shape[2:]

    def _size(self, spatial: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(self.window.size(d, e, self.kernel[d], self.ceil) for d, e in enumerate(spatial))

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or x.rank != self.rank + 2:
            raise OpError(f"input {x} does not have {self.rank} spatial dims")
        if not x.dtype.is_float and self.kind != "max":
            raise OpError(f"{self.kind} pooling is for floats, got {x.dtype}")
        size = self._size(self.spatial(x.shape))
        if any(isinstance(d, int) and d < 1 for d in size):
            extents = list(self.spatial(x.shape))
            raise OpError(f"the window {list(self.kernel)} is larger than the padded input {extents}")
        n, c = x.shape[0], x.shape[-1 if self.channels_last else 1]
        return (TensorType(x.dtype, (n, *size, c) if self.channels_last else (n, c, *size)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x = np.asarray(ins[0]).dtype, widened(ins[0])
        if self.channels_last:
            x = np.moveaxis(x, -1, 1)
        nothing = lowest_of(x) if self.kind == "max" else 0
        taps = self._reference_taps(x, nothing, nothing)
        with np.errstate(all="ignore"):
            if self.kind == "max":
                out = np.maximum.reduce(taps)
            elif self.kind == "average":
                ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
                out = sum(taps) / sum(self._reference_taps(ones, int(self.count_pads), 0))
            else:
                out = np.power(sum(np.power(np.abs(t), self.p) for t in taps), 1 / self.p)
        out = np.asarray(out).astype(dtype)
        return (np.ascontiguousarray(np.moveaxis(out, 1, -1)) if self.channels_last else out,)

    def _reference_taps(self, x: Array, pad: float, beyond: float) -> list[Array]:
        """What each tap sees, for all windows: `pad` in the pads, `beyond` where a partial window leaves them."""
        w, rank = self.window, self.rank
        size = [int(s) for s in self._size(x.shape[2:]) if isinstance(s, int)]
        lead: list[tuple[int, int]] = [(0, 0), (0, 0)]
        padded = np.pad(x, lead + [(w.pads[d], w.pads[d + rank]) for d in range(rank)], constant_values=pad)
        reach = [(size[d] - 1) * w.strides[d] + w.dilations[d] * (self.kernel[d] - 1) + 1 for d in range(rank)]
        missing = [max(0, reach[d] - padded.shape[d + 2]) for d in range(rank)]
        padded = np.pad(padded, lead + [(0, m) for m in missing], constant_values=beyond)
        return [padded[(slice(None), slice(None), *taps_slice(tap, size, w.strides, w.dilations))]
                for tap in np.ndindex(*self.kernel)]

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        x, out = ins[0], outs[0]
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(out.shape))
        index = tuple(a.var for a in axes)
        at, extents = self.spatial(index), self.spatial(x.shape)
        taps = tuple(Var(f"tap{d}", below=k) for d, k in enumerate(self.kernel))
        w = self.window
        place = [at[d] * w.strides[d] + taps[d] * w.dilations[d] - w.pads[d] for d in range(self.rank)]
        conditions = tuple(c for d in range(self.rank) if self._leaves(d) for c in inside(0, place[d], extents[d]))
        load = x.at(index[0], *place, index[-1]) if self.channels_last else x.at(index[0], index[1], *place)
        return Map(axes, (Store(out, index, self._value(load, conditions, taps, at, extents)),))

    def _leaves(self, d: int) -> bool:
        """Whether a window can reach outside the input along spatial dim d."""
        return bool(self.ceil or self.window.pads[d] or self.window.pads[d + self.rank])

    def _value(self, load: Value, conditions: tuple[Index, ...], taps: tuple[Var, ...], at: Sequence[Index],
               extents: Sequence[Dim]) -> Value:
        if self.kind == "max":
            body = load
            for c in reversed(conditions):
                body = choose(c, body, Const(lowest(load.dtype), load.dtype))
            return Reduce("max", taps, self.kernel, body)
        if self.kind == "average":
            total = Reduce("sum", taps, self.kernel, guard(conditions, load))
            count = prod([self._taps_counted(d, at[d], extents[d]) for d in range(self.rank)])
            return call("div", total, number(count, load.dtype))
        return self._norm(load, conditions, taps)

    def _norm(self, load: Value, conditions: tuple[Index, ...], taps: tuple[Var, ...]) -> Value:
        def total(v: Value) -> Value:
            return Reduce("sum", taps, self.kernel, guard(conditions, v))

        if self.p == 1:
            return total(call("abs", load))
        if self.p == 2:
            return call("sqrt", total(call("mul", load, load)))
        power = call("pow", call("abs", load), Const(float(self.p), load.dtype))
        return call("pow", total(power), Const(1 / self.p, load.dtype))

    def _taps_counted(self, d: int, at: Index, extent: Dim) -> Index:
        """How many taps of the window at `at` an average divides by, along spatial dim d."""
        if not self._leaves(d):
            return self.kernel[d]
        step, before, after = self.window.dilations[d], self.window.pads[d], self.window.pads[d + self.rank]
        start = at * self.window.strides[d] - before
        end = extent + after if self.count_pads else extent
        if self.count_pads and not self.ceil:
            return self.kernel[d]
        last = minimum(self.kernel[d], ceildiv(end - start, step))
        return last if self.count_pads else last - maximum(0, ceildiv(-start, step))


def lowest_of(x: Array) -> float | int:
    """`lowest` for a NumPy array's type."""
    return -np.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min)


def _read(r: Reading, kind: str, count_pads: bool = False, p: int = 2) -> str:
    if r.output_count > 1:
        r.unsupported("the second output (indices of the maxima)")
    x, kernel = r.type(r.inputs[0]), r.ints("kernel_shape")
    if x.rank != len(kernel) + 2:
        r.bad(f"kernel_shape {list(kernel)} does not fit input {x}")
    window = read_window(r, x.shape[2:], kernel)
    if min(window.pads, default=0) < 0:
        r.unsupported(f"negative pads {list(window.pads)}")
    reach = [d * (k - 1) for d, k in zip(window.dilations, kernel, strict=True)]
    if any(pad > most for pad, most in zip(window.pads, reach * 2, strict=True)):
        r.unsupported(f"pads {list(window.pads)} as large as the window {list(kernel)}: some windows see no element")
    return r.add(Pool(kind, kernel, window, bool(r.int_("ceil_mode", 0)), count_pads, p), r.inputs[0])


@onnx_reader("MaxPool")
def _read_max(r: Reading) -> str:
    return _read(r, "max")


@onnx_reader("AveragePool")
def _read_average(r: Reading) -> str:
    return _read(r, "average", bool(r.int_("count_include_pad", 0)))


@onnx_reader("LpPool", since=2)
def _read_lp(r: Reading) -> str:
    return _read(r, "lp", p=r.int_("p", 2))


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(19)
    x = rng.standard_normal((2, 3, 9, 11)).astype(np.float32)
    uneven = Window((2, 1), (1, 0, 0, 1), (1, 2))
    holed: Array = np.array(x)
    holed[0, 1, 4, 5] = np.nan
    return [
        Example(Pool("max", (3, 2), uneven), (holed,), "uneven pads, dilation, NaN stays"),
        Example(Pool("max", (3, 3), Window((2, 2), (1, 1, 1, 1), (1, 1)), ceil=True, channels_last=True),
                (np.ascontiguousarray(np.moveaxis(x, 1, -1)),), "ceil, channels last"),
        Example(Pool("max", (2,), Window((2,), (0, 1), (1,))),
                (rng.integers(-128, 127, (1, 2, 7)).astype(np.int8),), "int8"),
        Example(Pool("average", (3, 3), Window((2, 2), (1, 1, 1, 1), (1, 1)), ceil=True), (x,), "pads do not count"),
        Example(Pool("average", (3, 4), Window((2, 3), (1, 0, 1, 1), (1, 1)), ceil=True, count_pads=True),
                (x.astype(np.float16),), "pads count, partial windows, float16"),
        Example(Pool("average", (2, 3), Window((1, 2), (1, 2, 0, 2), (1, 2))), (x,), "average, dilation"),
        Example(Pool("average", (2, 2, 2), Window((1, 1, 1), (0,) * 6, (1, 1, 1))),
                (rng.standard_normal((1, 2, 3, 4, 5)).astype(np.float32),), "three dims"),
        Example(Pool("lp", (3, 3), Window((2, 2), (1, 1, 1, 1), (1, 1)), p=3), (x,), "third norm"),
    ]
