"""Convolution of any rank, groups and dilations: a contraction whose first operand is a view of the input.

Depthwise convolution multiplies no matrices: there each output element sums its own taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.arithmetic import floor_div
from taskc.ir.expr import Index, prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.positions import unravel
from taskc.ir.task import Contraction, Map, Store, axis
from taskc.ir.value import Dim, Hole, Reduce, Tensor, call, guard, inside
from taskc.ops.channels import add_per_channel
from taskc.ops.matmul import accumulator
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.windows import Window, read_window, taps_slice


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
        window = Window(self.strides, self.pads, self.dilations)
        return tuple(window.size(d, spatial[d], kernel[d]) for d in range(self.rank))

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
        x = _cropped_pad(x, pads)
        n, co, ci = x.shape[0], w.shape[0], w.shape[1]
        out = np.zeros((n, groups, co // groups, *size), x.dtype)
        for tap in np.ndindex(*w.shape[2:]):
            window = taps_slice(tap, size, self.strides, self.dilations)
            piece = x[(slice(None), slice(None), *window)].reshape(n, groups, ci, -1)
            weight = w[(slice(None), slice(None), *tap)].reshape(groups, co // groups, ci)
            out += np.einsum("ngcs,goc->ngos", piece, weight, optimize=True).reshape(out.shape)
        return out.reshape(n, co, *size)

    def is_depthwise(self, weight: Sequence[Dim]) -> bool:
        """Whether every output channel sees one input channel of several, by the weight's shape."""
        return self.groups > 1 and self._weight(tuple(weight))[1] == 1

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Contraction | Map:
        x, w = ins
        assert x is not None and w is not None
        return self._taps(x, w, outs[0]) if self.is_depthwise(w.shape) else self._contraction(x, w, outs[0])

    def _place(self, at: Sequence[Index], tap: Sequence[Index],
               spatial: Sequence[Dim]) -> tuple[list[Index], tuple[Index, ...]]:
        """Where a tap of the window at `at` reads, and the conditions of being inside."""
        steps = zip(at, self.strides, tap, self.dilations, self.pads[: self.rank], strict=True)
        place: list[Index] = [a * stride + t * dilation - pad for a, stride, t, dilation, pad in steps]
        padded = [d for d in range(self.rank) if self.pads[d] or self.pads[d + self.rank]]
        return place, tuple(c for d in padded for c in inside(0, place[d], spatial[d]))

    def _taps(self, x: Tensor, w: Tensor, out: Tensor) -> Map:
        """Depthwise: one sum over the taps an output element."""
        spatial, (co, _, kernel) = self._split(x.shape)[2], self._weight(w.shape)
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(out.shape))
        image, channel, at = self._split(tuple(a.var for a in axes))
        taps = tuple(axis(f"tap{d}", e) for d, e in enumerate(kernel))
        tap = tuple(t.var for t in taps)
        place, conditions = self._place(at, tap, spatial)
        source = floor_div(channel, floor_div(co, self.groups))
        x_index = (image, *place, source) if self.channels_last else (image, source, *place)
        w_index = (*tap, 0, channel) if self.channels_last else (channel, 0, *tap)
        product = guard(conditions, call("mul", x.at(*x_index), w.at(*w_index)))
        total = Reduce("sum", tap, tuple(t.extent for t in taps), product)
        return Map(axes, (Store(out, tuple(a.var for a in axes), total),))

    def _contraction(self, x: Tensor, w: Tensor, out: Tensor) -> Contraction:
        g = self.groups
        n_extent, _, spatial = self._split(x.shape)
        co, ci, kernel = self._weight(w.shape)
        size = self._split(out.shape)[2]
        per = floor_div(co, g)
        batch, m = axis("b", g), axis("m", prod((n_extent, *size)))
        n, k = axis("n", per), axis("k", prod((ci, *kernel)))
        image, *at = unravel(m.var, (n_extent, *size))
        if self.channels_last:  # k runs over taps, then channels: the channel is the fastest index of x
            *tap, channel = unravel(k.var, (*kernel, ci))
        else:
            channel, *tap = unravel(k.var, (ci, *kernel))
        place, conditions = self._place(at, tap, spatial)
        c_in, c_out = batch.var * ci + channel, batch.var * per + n.var
        if g == 1:
            c_in, c_out = channel, n.var
        x_index = (image, *place, c_in) if self.channels_last else (image, c_in, *place)
        w_index = (*tap, channel, c_out) if self.channels_last else (c_out, channel, *tap)
        out_index = (image, *at, c_out) if self.channels_last else (image, c_out, *at)
        kind = accumulator(x.dtype)
        return Contraction(batch, m, n, k, guard(conditions, x.at(*x_index)), w.at(*w_index), x.dtype, kind,
                           (Store(out, out_index, Hole("acc", kind)),))


def _cropped_pad(x: Array, pads: Sequence[tuple[int, int]]) -> Array:
    """np.pad with zeros; a negative pad crops."""
    x = np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pads])
    return x[tuple(slice(max(-a, 0), x.shape[d] - max(-b, 0)) for d, (a, b) in enumerate(pads))]


@onnx_reader("Conv")
def _read_conv(r: Reading) -> str:
    x, w = r.type(r.inputs[0]), r.type(r.inputs[1])
    kernel = tuple(k for k in w.shape[2:] if isinstance(k, int))
    if x.rank < 3 or w.rank != x.rank:
        r.bad(f"input {x} and weight {w} are not a batch of channels with 1 to 3 spatial dims")
    if len(kernel) != w.rank - 2:
        r.unsupported(f"a weight {w} whose window size is symbolic")
    if r.has("kernel_shape") and r.ints("kernel_shape") != kernel:
        r.bad(f"kernel_shape {list(r.ints('kernel_shape'))} differs from the weight's {list(kernel)}")
    window = read_window(r, x.shape[2:], kernel)
    out = r.add(Conv(window.strides, window.pads, window.dilations, r.int_("group", 1)), *r.inputs[:2])
    return add_per_channel(r, out, r.inputs[2]) if r.has_input(2) else out


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(13)

    def r(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        Example(Conv((2, 1), (1, 0, 2, 1), (1, 2)), (r(2, 3, 9, 11), r(5, 3, 3, 2)), "uneven pads, stride, dilation"),
        Example(Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=True), (r(1, 7, 5, 8), r(3, 3, 8, 16)),
                "channels last"),
        Example(Conv((1,), (2, 2), (1,), groups=3), (r(2, 6, 13), r(9, 2, 5)), "one dim, groups"),
        Example(Conv((1, 1, 1), (0,) * 6, (1, 1, 1)), (r(1, 2, 3, 4, 5), r(2, 2, 2, 2, 2)), "three dims"),
        Example(Conv((2, 1), (1, 1, 1, 1), (1, 2), groups=5), (r(2, 5, 9, 8), r(5, 1, 3, 3)), "depthwise"),
        Example(Conv((1, 1), (1, 1, 1, 1), (1, 1), groups=6, channels_last=True), (r(1, 5, 7, 6), r(3, 3, 1, 6)),
                "depthwise, channels last"),
        Example(Conv((1, 2), (2, 0, 1, 1), (1, 1), groups=3),
                (r(1, 3, 6, 7).astype(np.float16), r(6, 1, 2, 3).astype(np.float16)), "two outputs a channel, float16"),
        Example(Conv((1,), (-1, 2), (1,)), (r(1, 2, 9), r(3, 2, 3)), "a negative pad crops"),
    ]
