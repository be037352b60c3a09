"""Operators that keep every element where it is in memory: Reshape, Flatten, Squeeze, Unsqueeze."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Index, prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.positions import ravel, unravel
from taskc.ir.proofs import exact_div
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Dim, Tensor
from taskc.ops.known import known_indices, known_ints, normal_axes, normal_axis, plain_shape
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Reshape(Op):
    """The input's elements in row-major order, with dims `shape`."""

    shape: tuple[Dim, ...]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None:
            raise OpError("a reshape needs its input")
        have, want = prod(x.shape), prod(self.shape)
        if have != want:
            raise OpError(f"{x} has {have} elements, shape {list(self.shape)} has {want}")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        return (np.asarray(ins[0]).reshape(plain_shape(self.shape)),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        return Map(axes, (Store(outs[0], index, x.at(*reshaped_index(index, outs[0].shape, x.shape))),))


def matching_groups(a: Sequence[Dim], b: Sequence[Dim]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The shapes cut into runs of dims (positions in a, positions in b) with equal products, as short as possible.

    Dims of 1 are in no run. Where symbols leave it open, the rest is one run."""
    left, right = [i for i, d in enumerate(a) if d != 1], [j for j, d in enumerate(b) if d != 1]
    out: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        end_i, end_j = i + 1, j + 1
        while (pa := prod([a[k] for k in left[i:end_i]])) != (pb := prod([b[k] for k in right[j:end_j]])):
            if end_i < len(left) and (exact_div(pb, pa) is not None or _smaller(pa, pb)):
                end_i += 1
            elif end_j < len(right) and (exact_div(pa, pb) is not None or _smaller(pb, pa)):
                end_j += 1
            else:
                end_i, end_j = len(left), len(right)
                break
        out.append((tuple(left[i:end_i]), tuple(right[j:end_j])))
        i, j = end_i, end_j
    if i < len(left) or j < len(right):  # what is left has a product of 1 only for some sizes: one run for all
        return [(tuple(left), tuple(right))]
    return out


def _smaller(a: Index, b: Index) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a < b


def reshaped_index(index: Sequence[Index], shape: Sequence[Dim], source: Sequence[Dim]) -> tuple[Index, ...]:
    """Where the element at `index` of `shape` lies in a tensor of `source` dims with the same elements."""
    out: list[Index] = [0] * len(source)
    if 0 in source:
        return tuple(out)  # no element to find
    for theirs, ours in matching_groups(source, shape):
        position = ravel([index[j] for j in ours], [shape[j] for j in ours])
        for i, value in zip(theirs, unravel(position, [source[i] for i in theirs]), strict=True):
            out[i] = value
    return tuple(out)


def reshape_to(r: Reading, x: str, shape: tuple[Dim, ...]) -> str:
    """The value with other dims; itself where they are the same."""
    return x if r.type(x).shape == shape else r.add(Reshape(shape), x)


def _resolve(r: Reading, x: TensorType, wanted: tuple[Index, ...], allow_zero: bool) -> tuple[Dim, ...]:
    """ONNX's 0 (copy the dim) and -1 (what is left) replaced by dims."""
    out: list[Dim] = []
    for i, d in enumerate(wanted):
        if isinstance(d, int) and d < -1:
            r.bad(f"its shape {list(wanted)} has a dim of {d}")
        if d == 0 and not allow_zero:
            if i >= x.rank:
                r.bad(f"its shape {list(wanted)} copies dim {i}, which {x} lacks")
            d = x.shape[i]
        out.append(d)
    open_dims = [i for i, d in enumerate(out) if d == -1]
    if len(open_dims) > 1:
        r.bad(f"its shape {list(wanted)} leaves more than one dim open")
    if open_dims:
        rest = prod([d for d in out if d != -1])
        if rest == 0:
            if allow_zero and 0 in wanted:
                r.bad(f"its shape {list(wanted)} has both 0 and -1")
            out[open_dims[0]] = 0
        else:
            total = prod(x.shape)
            share = exact_div(total, rest)
            if share is None and isinstance(total, int) and isinstance(rest, int):
                r.bad(f"{x} has {total} elements, which {rest} does not divide: shape {list(wanted)}")
            if share is None:
                r.unsupported(f"{total} elements into shape {list(wanted)}: the open dim is not known to be whole; "
                              "fix symbolic dims with --dim NAME=SIZE")
            out[open_dims[0]] = share
    return tuple(out)


@onnx_reader("Reshape", since=5)
def _read_reshape(r: Reading) -> str:
    x = r.inputs[0]
    return reshape_to(r, x, _resolve(r, r.type(x), known_indices(r, 1, "shape"), bool(r.int_("allowzero", 0))))


@onnx_reader("Reshape", since=1)
def _read_reshape_1(r: Reading) -> str:
    return reshape_to(r, r.inputs[0], _resolve(r, r.type(r.inputs[0]), r.ints("shape"), False))


@onnx_reader("Flatten")
def _read_flatten(r: Reading) -> str:
    shape = r.type(r.inputs[0]).shape
    at = r.int_("axis", 1)
    if not -len(shape) <= at <= len(shape):
        r.bad(f"axis {at} does not exist in {len(shape)} dims")
    at = at + len(shape) if at < 0 else at
    return reshape_to(r, r.inputs[0], (prod(shape[:at]), prod(shape[at:])))


def _axes(r: Reading) -> tuple[int, ...] | None:
    """`axes`: an attribute before opset 13, an input since."""
    if r.opset >= 13:
        return known_ints(r, 1, "axes") if r.has_input(1) else None
    return r.ints("axes") if r.has("axes") else None


@onnx_reader("Squeeze")
def _read_squeeze(r: Reading) -> str:
    shape = r.type(r.inputs[0]).shape
    given = _axes(r)
    axes = tuple(i for i, d in enumerate(shape) if d == 1) if given is None else normal_axes(r, given, len(shape))
    wrong = [i for i in axes if shape[i] != 1]
    if wrong and isinstance(shape[wrong[0]], int):
        r.bad(f"squeezes dim {wrong[0]}, which is {shape[wrong[0]]}")
    if wrong:
        r.unsupported(f"squeezes dim {wrong[0]}, which is the symbol {shape[wrong[0]]}; fix it with --dim NAME=1")
    return reshape_to(r, r.inputs[0], tuple(d for i, d in enumerate(shape) if i not in axes))


@onnx_reader("Unsqueeze")
def _read_unsqueeze(r: Reading) -> str:
    shape = r.type(r.inputs[0]).shape
    given = _axes(r)
    if given is None:
        r.bad("has no axes")
    rank = len(shape) + len(given)
    axes = [normal_axis(r, a, rank) for a in given]
    if len(set(axes)) != len(axes):
        r.bad(f"axes {list(given)} name one dim twice")
    rest = iter(shape)
    return reshape_to(r, r.inputs[0], tuple(1 if i in axes else next(rest) for i in range(rank)))


@examples
def _examples() -> list[Example]:
    x = np.arange(2 * 15 * 7 * 4, dtype=np.float32)
    return [
        Example(Reshape((2, 5, 3, 28)), (x.reshape(2, 15, 7, 4),), "split one dim, merge two"),
        Example(Reshape((7, 1, 8, 15)), (x.reshape(2, 15, 7, 4),), "no common run"),
        Example(Reshape((1,)), (np.array(3.0, np.float32),), "from rank 0"),
        Example(Reshape((0, 5)), (np.zeros((3, 0), np.float32),), "no elements"),
        Example(Reshape((5, 3)), (np.arange(15, dtype=np.int8).reshape(3, 5),), "bytes"),
    ]
