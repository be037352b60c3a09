"""Convolution of any rank, groups and dilations: a contraction whose first operand is a view of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Index, floor_div, prod, unravel
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Contraction, Store, axis
from taskc.ir.value import Dim, Hole, Tensor, guard, inside
from taskc.ops.matmul import accumulator
from taskc.ops.registry import Example, examples


@dataclass(frozen=True)
class Conv(Op):
    """x[n, c, …] * w[co, c/groups, …] -> out[n, co, …]; channels last: x[n, …, c], w[…, c/groups, co], out[n, …, co].

    `pads` holds all starts, then all ends. No bias: an addition follows where there is one."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    channels_last: bool = False

    @property
    def rank(self) -> int:
        return len(self.strides)

    def _split(self, shape: tuple[Dim, ...]) -> tuple[Dim, Dim, tuple[Dim, ...]]:
        """(n, channels, spatial) of an activation's shape."""
        return (shape[0], shape[-1], shape[1:-1]) if self.channels_last else (shape[0], shape[1], shape[2:])

    def _weight(self, shape: tuple[Dim, ...]) -> tuple[Dim, Dim, tuple[Dim, ...]]:
        """(output channels, input channels a group, kernel) of a weight's shape."""
        return (shape[-1], shape[-2], shape[:-2]) if self.channels_last else (shape[0], shape[1], shape[2:])

    def spatial_out(self, spatial: Sequence[Dim], kernel: Sequence[Dim]) -> tuple[Dim, ...]:
        """The output's spatial dims."""
        out: list[Dim] = []
        for d in range(self.rank):
            reach = self.dilations[d] * (kernel[d] - 1) + 1
            out.append(floor_div(spatial[d] + self.pads[d] + self.pads[d + self.rank] - reach, self.strides[d]) + 1)
        return tuple(out)

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x, w = ins
        if x is None or w is None:
            raise OpError("a convolution takes an input and a weight")
        if len(x.shape) != self.rank + 2 or len(w.shape) != self.rank + 2:
            raise OpError(f"input {x} and weight {w} do not have {self.rank} spatial dims")
        if x.dtype != w.dtype:
            raise OpError(f"input is {x.dtype}, weight is {w.dtype}")
        (n, c, spatial), (co, ci, kernel) = self._split(x.shape), self._weight(w.shape)
        if c != ci * self.groups:
            raise OpError(f"{c} input channels do not fit weight {w} with {self.groups} groups")
        if isinstance(co, int) and co % self.groups:
            raise OpError(f"{co} output channels do not divide into {self.groups} groups")
        out = self.spatial_out(spatial, kernel)
        if any(isinstance(d, int) and d < 1 for d in out):
            raise OpError(f"the window {list(kernel)} is larger than the padded input {list(spatial)}")
        return (TensorType(x.dtype, (n, *out, co) if self.channels_last else (n, co, *out)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x, w = np.asarray(ins[0]), np.asarray(ins[1])
        dtype = x.dtype
        if self.channels_last:
            x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
        if dtype == np.float16:
            x, w = x.astype(np.float32), w.astype(np.float32)
        out = self._reference_first(x, w).astype(dtype)
        return (np.ascontiguousarray(np.moveaxis(out, 1, -1)) if self.channels_last else out,)

    def _reference_first(self, x: Array, w: Array) -> Array:
        rank, groups = self.rank, self.groups
        pads = [(0, 0), (0, 0), *((self.pads[d], self.pads[d + rank]) for d in range(rank))]
        size = [int(d) for d in self.spatial_out(x.shape[2:], w.shape[2:]) if isinstance(d, (int, np.integer))]
        x = np.pad(x, pads)
        n, co, ci = x.shape[0], w.shape[0], w.shape[1]
        out = np.zeros((n, groups, co // groups, *size), x.dtype)
        for tap in np.ndindex(*w.shape[2:]):
            window = tuple(slice(t * self.dilations[d], t * self.dilations[d] + (size[d] - 1) * self.strides[d] + 1, self.strides[d])
                           for d, t in enumerate(tap))
            piece = x[(slice(None), slice(None), *window)].reshape(n, groups, ci, -1)
            weight = w[(slice(None), slice(None), *tap)].reshape(groups, co // groups, ci)
            out += np.einsum("ngcs,goc->ngos", piece, weight, optimize=True).reshape(out.shape)
        return out.reshape(n, co, *size)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Contraction:
        x, w = ins
        assert x is not None and w is not None
        out, g = outs[0], self.groups
        n_extent, _, spatial = self._split(x.shape)
        co, ci, kernel = self._weight(w.shape)
        size = self._split(out.shape)[2]
        per = floor_div(co, g)
        batch, m, n, k = axis("b", g), axis("m", prod((n_extent, *size))), axis("n", per), axis("k", prod((ci, *kernel)))
        image, *at = unravel(m.var, (n_extent, *size))
        if self.channels_last:  # k runs over taps, then channels: the channel is the fastest index of x
            *tap, channel = unravel(k.var, (*kernel, ci))
        else:
            channel, *tap = unravel(k.var, (ci, *kernel))
        place: list[Index] = [at[d] * self.strides[d] + tap[d] * self.dilations[d] - self.pads[d] for d in range(self.rank)]
        conditions = [c for d in range(self.rank) if self.pads[d] or self.pads[d + self.rank] for c in inside(0, place[d], spatial[d])]
        c_in, c_out = batch.var * ci + channel, batch.var * per + n.var
        if g == 1:
            c_in, c_out = channel, n.var
        x_index = (image, *place, c_in) if self.channels_last else (image, c_in, *place)
        w_index = (*tap, channel, c_out) if self.channels_last else (c_out, channel, *tap)
        out_index = (image, *at, c_out) if self.channels_last else (image, c_out, *at)
        kind = accumulator(x.dtype)
        return Contraction(batch, m, n, k, guard(tuple(conditions), x.at(*x_index)), w.at(*w_index), x.dtype, kind,
                           (Store(out, out_index, Hole("acc", kind)),))


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(13)

    def r(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        Example(Conv((2, 1), (1, 0, 2, 1), (1, 2)), (r(2, 3, 9, 11), r(5, 3, 3, 2)), "uneven pads, stride, dilation"),
        Example(Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=True), (r(1, 7, 5, 8), r(3, 3, 8, 16)), "channels last"),
        Example(Conv((1,), (2, 2), (1,), groups=3), (r(2, 6, 13), r(9, 2, 5)), "one dim, groups"),
        Example(Conv((1, 1, 1), (0,) * 6, (1, 1, 1)), (r(1, 2, 3, 4, 5), r(2, 2, 2, 2, 2)), "three dims"),
    ]
