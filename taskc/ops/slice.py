"""Slice, and Split read as slices. Starts and sizes may be symbolic, steps are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.arithmetic import ceildiv, maximum, minimum
from taskc.ir.expr import Expr, Index
from taskc.ir.facts import bounds
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Dim, Tensor
from taskc.ops.known import known_indices, known_ints, normal_axes, normal_axis, plain_shape
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Slice(Op):
    """out[i, …] = input[starts[0] + i * steps[0], …], with `sizes` elements along each dim; all of them lie inside."""

    starts: tuple[Index, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None or not x.rank == len(self.starts) == len(self.sizes) == len(self.steps):
            raise OpError(f"{len(self.starts)} starts do not fit {x}")
        return (TensorType(x.dtype, self.sizes),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x, starts, sizes = np.asarray(ins[0]), plain_shape(self.starts), plain_shape(self.sizes)
        cuts: list[slice] = []
        for start, size, step in zip(starts, sizes, self.steps, strict=True):
            stop = start + size * step
            cuts.append(slice(0, 0) if size == 0 else slice(start, stop if stop >= 0 else None, step))
        return (x[tuple(cuts)].copy(order="C"),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        source = tuple(s + a.var * step for s, a, step in zip(self.starts, axes, self.steps, strict=True))
        return Map(axes, (Store(outs[0], tuple(a.var for a in axes), x.at(*source)),))


def slice_value(r: Reading, x: str, axis_: int, start: Index, size: Dim) -> str:
    """`size` elements from `start` on along one dim; the value itself where that is all of it."""
    shape = r.type(x).shape
    if start == 0 and size == shape[axis_]:
        return x
    starts = tuple(start if d == axis_ else 0 for d in range(len(shape)))
    sizes = tuple(size if d == axis_ else e for d, e in enumerate(shape))
    return r.add(Slice(starts, sizes, (1,) * len(shape)), x)


def _from_front(r: Reading, position: Index, dim: Dim) -> Index:
    """A position that may count from the end, counted from the front (not yet clamped)."""
    lo, hi = bounds(position)
    if lo is not None and lo >= 0:
        return position
    if hi is not None and hi < 0:
        return position + dim
    r.unsupported(f"the sign of its bound {position} depends on symbolic dims; fix them with --dim NAME=SIZE")


def _cut(r: Reading, start: Index, end: Index, step: int, dim: Dim) -> tuple[Index, Dim]:
    """(first element, size) of start:end:step along a dim, as Python slices clamp."""
    start, end = _from_front(r, start, dim), _from_front(r, end, dim)
    if step > 0:
        start, end = minimum(maximum(start, 0), dim), minimum(maximum(end, 0), dim)
        return start, maximum(ceildiv(end - start, step), 0)
    start, end = minimum(maximum(start, -1), dim - 1), minimum(maximum(end, -1), dim - 1)
    return start, maximum(ceildiv(start - end, -step), 0)


def _slice(r: Reading, starts: Sequence[Index], ends: Sequence[Index], axes: Sequence[int] | None, steps: Sequence[int] | None) -> str:
    shape = r.type(r.inputs[0]).shape
    axes = tuple(range(len(starts))) if axes is None else tuple(axes)
    steps = (1,) * len(starts) if steps is None else tuple(steps)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        r.bad(f"has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    if 0 in steps:
        r.bad("a step is 0")
    first: list[Index] = [0] * len(shape)
    size, stride = list(shape), [1] * len(shape)
    for k, d in enumerate(normal_axes(r, axes, len(shape))):
        first[d], size[d] = _cut(r, starts[k], ends[k], steps[k], shape[d])
        stride[d] = steps[k]
        if size[d] == 0:
            first[d] = 0
        if size[d] == 1:
            stride[d] = 1
    if tuple(size) == shape and not any(isinstance(f, Expr) or f for f in first) and all(s == 1 for s in stride):
        return r.inputs[0]
    return r.add(Slice(tuple(first), tuple(size), tuple(stride)), r.inputs[0])


@onnx_reader("Slice", since=10)
def _read_slice(r: Reading) -> str:
    axes = known_ints(r, 3, "axes") if r.has_input(3) else None
    steps = known_ints(r, 4, "steps") if r.has_input(4) else None
    return _slice(r, known_indices(r, 1, "starts"), known_indices(r, 2, "ends"), axes, steps)


@onnx_reader("Slice", since=1)
def _read_slice_1(r: Reading) -> str:
    return _slice(r, r.ints("starts"), r.ints("ends"), r.ints("axes") if r.has("axes") else None, None)


@onnx_reader("Split")
def _read_split(r: Reading) -> list[str]:
    shape = r.type(r.inputs[0]).shape
    at = normal_axis(r, r.int_("axis", 0), len(shape))
    sizes = _split_sizes(r, shape[at])
    outs: list[str] = []
    start: Index = 0
    for size in sizes:
        outs.append(slice_value(r, r.inputs[0], at, start, size))
        start = start + size
    return outs


def _split_sizes(r: Reading, whole: Dim) -> list[Dim]:
    """The pieces: as given, or equal ones (since opset 18 the last may be smaller)."""
    given: Sequence[Index] | None = known_indices(r, 1, "split") if r.has_input(1) else r.ints("split") if r.has("split") else None
    if given is not None:
        total: Index = 0
        for s in given:
            total = total + s
        if any(isinstance(s, int) and s < 0 for s in given) or (total != whole and isinstance(total - whole, int)):
            r.bad(f"its pieces {list(given)} do not make up the dim of {whole}")
        if total != whole:
            r.unsupported(f"its pieces {list(given)} are not known to make up the dim of {whole}; fix symbolic dims with --dim NAME=SIZE")
        return list(given)
    count = r.int_("num_outputs", r.declared_outputs)
    if count != r.declared_outputs or count < 1:
        r.bad(f"splits into {count} pieces, but has {r.declared_outputs} outputs")
    if isinstance(whole, int):
        if r.opset < 18 and whole % count:
            r.bad(f"a dim of {whole} does not split into {count} equal pieces")
        piece = -(-whole // count)
        return [max(0, min(piece, whole - k * piece)) for k in range(count)]
    if whole % count != 0:
        r.unsupported(f"the dim {whole} is not known to split into {count} equal pieces; fix it with --dim NAME=SIZE")
    return [whole // count] * count


@examples
def _examples() -> list[Example]:
    x = np.arange(7 * 11, dtype=np.float32).reshape(7, 11)
    return [
        Example(Slice((1, 2), (5, 3), (1, 4)), (x,), "a step"),
        Example(Slice((6, 10), (7, 4), (-1, -3)), (x,), "backwards"),
        Example(Slice((0, 3), (0, 2), (1, 1)), (x,), "no elements"),
    ]
