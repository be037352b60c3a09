"""Transpose, and the operators read as reshapes around one: DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Index
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.proofs import exact_div
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Dim, Tensor
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.reshape import reshape_to


@dataclass(frozen=True)
class Transpose(Op):
    """Dim d of the output is dim perm[d] of the input."""

    perm: tuple[int, ...]

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        (x,) = ins
        if x is None or sorted(self.perm) != list(range(x.rank)):
            raise OpError(f"perm {list(self.perm)} is not a permutation of the dims of {x}")
        return (TensorType(x.dtype, tuple(x.shape[p] for p in self.perm)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        return (np.transpose(np.asarray(ins[0]), self.perm).copy(order="C"),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        (x,) = ins
        assert x is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        source: list[Index] = [0] * len(axes)
        for d, p in enumerate(self.perm):
            source[p] = axes[d].var
        return Map(axes, (Store(outs[0], tuple(a.var for a in axes), x.at(*source)),))


def transposed(r: Reading, x: str, perm: tuple[int, ...]) -> str:
    """The value with its dims permuted; itself where the order stays."""
    return x if perm == tuple(range(len(perm))) else r.add(Transpose(perm), x)


@onnx_reader("Transpose")
def _read_transpose(r: Reading) -> str:
    rank = r.type(r.inputs[0]).rank
    perm = r.ints("perm", tuple(reversed(range(rank))))
    if sorted(perm) != list(range(rank)):
        r.bad(f"perm {list(perm)} is not a permutation of {rank} dims")
    return transposed(r, r.inputs[0], perm)


def _whole(r: Reading, d: Dim, by: int, what: str) -> Dim:
    share = exact_div(d, by)
    if share is None and isinstance(d, int):
        r.bad(f"its {what} of {d} does not divide by {by}")
    if share is None:
        r.unsupported(f"its {what} {d} is not known to divide by {by}; fix it with --dim NAME=SIZE")
    return share


def _blocks(r: Reading) -> tuple[tuple[Dim, ...], int]:
    shape, block = r.type(r.inputs[0]).shape, r.int_("blocksize")
    if len(shape) != 4 or block < 1:
        r.bad(f"needs 4 dims and a positive block size, has {list(shape)} and {block}")
    return shape, block


@onnx_reader("DepthToSpace")
def _read_depth_to_space(r: Reading) -> str:
    """[n, c, h, w] -> [n, c/b², h*b, w*b]; DCR: the block is the slower part of c, CRD: the faster."""
    (n, c, h, w), b = _blocks(r)
    depth = _whole(r, c, b * b, "channel count")
    mode = r.string("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        r.bad(f"mode {mode!r} is neither DCR nor CRD")
    split, perm = ((n, b, b, depth, h, w), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else ((n, depth, b, b, h, w), (0, 1, 4, 2, 5, 3))
    return reshape_to(r, transposed(r, reshape_to(r, r.inputs[0], split), perm), (n, depth, h * b, w * b))


@onnx_reader("SpaceToDepth")
def _read_space_to_depth(r: Reading) -> str:
    (n, c, h, w), b = _blocks(r)
    rows, columns = _whole(r, h, b, "height"), _whole(r, w, b, "width")
    split = reshape_to(r, r.inputs[0], (n, c, rows, b, columns, b))
    return reshape_to(r, transposed(r, split, (0, 3, 5, 1, 2, 4)), (n, c * b * b, rows, columns))


@examples
def _examples() -> list[Example]:
    x = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)
    return [
        Example(Transpose((0, 2, 3, 1)), (x,), "channels last"),
        Example(Transpose((3, 1, 0, 2)), (x,), "four dims"),
        Example(Transpose((1, 0)), (np.zeros((0, 3), np.int64),), "no elements"),
        Example(Transpose(()), (np.array(3, np.int32),), "rank 0"),
    ]
