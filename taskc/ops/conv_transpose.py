"""Transposed convolution: a contraction over input channels and taps, guarded to where a tap meets an input element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.arithmetic import floor_div
from taskc.ir.expr import Index, prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.positions import unravel
from taskc.ir.task import Contraction, Store, axis
from taskc.ir.value import Dim, Hole, Tensor, guard, inside
from taskc.ops.channels import add_per_channel
from taskc.ops.constants import widened
from taskc.ops.matmul import accumulator
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.windows import Window, taps_slice


@dataclass(frozen=True)
class ConvTranspose(Op):
    """x[n, c, …] and w[c, co/groups, …] -> out[n, co, …].

    Input element i adds w[t] * x[i] at i * stride + t * dilation - pad. `extra` enlarges the end of the output.
    No bias: an addition follows where there is one."""

    window: Window
    extra: tuple[int, ...]
    groups: int = 1

    @property
    def rank(self) -> int:
        return len(self.extra)

    def spatial_out(self, spatial: Sequence[Dim], kernel: Sequence[Dim]) -> tuple[Dim, ...]:
        w, rank = self.window, self.rank
        full = [(spatial[d] - 1) * w.strides[d] + w.dilations[d] * (kernel[d] - 1) + 1 for d in range(rank)]
        return tuple(full[d] - w.pads[d] - w.pads[d + rank] + self.extra[d] for d in range(rank))

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x, w = ins
        if x is None or w is None or x.rank != self.rank + 2 or w.rank != self.rank + 2 or x.dtype != w.dtype:
            raise OpError(f"input {x} and weight {w} do not fit {self.rank} spatial dims")
        if x.shape[1] != w.shape[0] or (isinstance(x.shape[1], int) and x.shape[1] % self.groups):
            raise OpError(f"{x.shape[1]} input channels do not fit weight {w} with {self.groups} groups")
        out = self.spatial_out(x.shape[2:], w.shape[2:])
        if any(isinstance(d, int) and d < 1 for d in out):
            raise OpError(f"the output {list(out)} is empty")
        return (TensorType(x.dtype, (x.shape[0], w.shape[1] * self.groups, *out)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype, x, w = np.asarray(ins[0]).dtype, widened(ins[0]), widened(ins[1])
        window, rank, g = self.window, self.rank, self.groups
        size = [int(s) for s in self.spatial_out(x.shape[2:], w.shape[2:]) if isinstance(s, int)]
        reach = [(x.shape[d + 2] - 1) * window.strides[d] + window.dilations[d] * (w.shape[d + 2] - 1) + 1
                 for d in range(rank)]
        whole = [max(reach[d], window.pads[d] + size[d]) for d in range(rank)]
        out = np.zeros((x.shape[0], w.shape[1] * g, *whole), x.dtype)
        rows, weight = x.reshape(x.shape[0], g, x.shape[1] // g, -1), w.reshape(g, w.shape[0] // g, *w.shape[1:])
        for tap in np.ndindex(*w.shape[2:]):
            piece = np.einsum("ngcs,gco->ngos", rows, weight[(..., *tap)], optimize=True)
            at = taps_slice(tap, x.shape[2:], window.strides, window.dilations)
            out[(slice(None), slice(None), *at)] += piece.reshape(x.shape[0], -1, *x.shape[2:])
        inner = [slice(p, p + s) for p, s in zip(window.pads[:rank], size, strict=True)]
        return (out[(slice(None), slice(None), *inner)].astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Contraction:
        x, w = ins
        assert x is not None and w is not None
        window = self.window
        tiles = w.shape[2:] == window.strides and not any((*window.pads, *self.extra)) and set(window.dilations) == {1}
        return self._tiles(x, w, outs[0]) if tiles else self._guarded(x, w, outs[0])

    def _tiles(self, x: Tensor, w: Tensor, out: Tensor) -> Contraction:
        """Windows that touch and do not overlap: each output element has one tap, so n runs over channels and taps."""
        per_in, per_out, kernel, size = floor_div(x.shape[1], self.groups), w.shape[1], w.shape[2:], x.shape[2:]
        batch, m = axis("b", self.groups), axis("m", prod((x.shape[0], *size)))
        n, k = axis("n", prod((per_out, *kernel))), axis("k", per_in)
        image, *at = unravel(m.var, (x.shape[0], *size))
        channel, *tap = unravel(n.var, (per_out, *kernel))
        c_in, kind = batch.var * per_in + k.var, accumulator(x.dtype)
        place = [a * s + t for a, s, t in zip(at, self.window.strides, tap, strict=True)]
        return Contraction(batch, m, n, k, x.at(image, c_in, *at), w.at(c_in, channel, *tap), x.dtype, kind,
                           (Store(out, (image, batch.var * per_out + channel, *place), Hole("acc", kind)),))

    def _guarded(self, x: Tensor, w: Tensor, out: Tensor) -> Contraction:
        window, rank = self.window, self.rank
        per_in, per_out, kernel, size = floor_div(x.shape[1], self.groups), w.shape[1], w.shape[2:], out.shape[2:]
        batch, m = axis("b", self.groups), axis("m", prod((x.shape[0], *size)))
        n, k = axis("n", per_out), axis("k", prod((per_in, *kernel)))
        image, *at = unravel(m.var, (x.shape[0], *size))
        channel, *tap = unravel(k.var, (per_in, *kernel))
        conditions: list[Index] = []
        place: list[Index] = []
        for d in range(rank):
            position = at[d] + window.pads[d] - tap[d] * window.dilations[d]
            place.append(position // window.strides[d])
            conditions += [1 - position % window.strides[d], *inside(0, place[d], x.shape[d + 2])]
        c_in, kind = batch.var * per_in + channel, accumulator(x.dtype)
        seen = guard(tuple(conditions), x.at(image, c_in, *place))
        return Contraction(batch, m, n, k, seen, w.at(c_in, n.var, *tap), x.dtype, kind,
                           (Store(out, (image, batch.var * per_out + n.var, *at), Hole("acc", kind)),))


@onnx_reader("ConvTranspose")
def _read_conv_transpose(r: Reading) -> str:
    x, w = r.type(r.inputs[0]), r.type(r.inputs[1])
    kernel = tuple(k for k in w.shape[2:] if isinstance(k, int))
    rank = len(kernel)
    if w.rank != x.rank or x.rank < 3:
        r.bad(f"input {x} and weight {w} are not a batch of channels with 1 to 3 spatial dims")
    if rank != w.rank - 2:
        r.unsupported(f"a weight {w} whose window size is symbolic")
    strides, dilations = r.ints("strides", (1,) * rank), r.ints("dilations", (1,) * rank)
    extra, pads = r.ints("output_padding", (0,) * rank), r.ints("pads", (0,) * (2 * rank))
    fits = len(strides) == len(dilations) == len(extra) == rank and len(pads) == 2 * rank
    if not fits or min(*strides, *dilations) < 1:
        r.bad(f"strides {list(strides)}, dilations {list(dilations)}, pads {list(pads)} do not fit {rank} spatial dims")
    auto, bare = r.string("auto_pad", "NOTSET"), Window(strides, (0,) * (2 * rank), dilations)
    if auto == "VALID":
        pads = bare.pads
    elif auto != "NOTSET" or r.has("output_shape"):
        pads = _derived_pads(r, auto, x.shape[2:], kernel, bare, extra)
    out = r.add(ConvTranspose(Window(strides, pads, dilations), extra, r.int_("group", 1)), *r.inputs[:2])
    return add_per_channel(r, out, r.inputs[2]) if r.has_input(2) else out


def _derived_pads(r: Reading, auto: str, spatial: Sequence[Dim], kernel: Sequence[int], window: Window,
                  extra: tuple[int, ...]) -> tuple[int, ...]:
    """Pads that give `output_shape`, or stride * size with SAME_UPPER and SAME_LOWER."""
    rank = len(kernel)
    full = ConvTranspose(window, extra).spatial_out(spatial, kernel)
    wanted: Sequence[Dim] = [e * s for e, s in zip(spatial, window.strides, strict=True)]
    if r.has("output_shape"):
        wanted = r.ints("output_shape")[-rank:]
    total = [f - o for f, o in zip(full, wanted, strict=True)]
    known = [t for t in total if isinstance(t, int)]
    if len(known) != rank:
        r.unsupported(f"pads that depend on the symbolic size {list(spatial)}")
    if min(known) < 0:
        r.unsupported(f"an output {list(wanted)} larger than the full one {list(full)}; give output_padding instead")
    small, large = tuple(t // 2 for t in known), tuple(t - t // 2 for t in known)
    return small + large if auto == "SAME_UPPER" else large + small


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(53)

    def v(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        Example(ConvTranspose(Window((2, 3), (1, 0, 0, 1), (1, 2)), (1, 0)), (v(2, 3, 5, 4), v(3, 4, 3, 2)),
                "stride, pads, dilation"),
        Example(ConvTranspose(Window((2, 2), (0,) * 4, (1, 1)), (0, 0), 2), (v(1, 4, 3, 5), v(4, 3, 2, 2)),
                "tiles, groups"),
        Example(ConvTranspose(Window((1,), (2, 1), (1,)), (0,)), (v(1, 2, 9), v(2, 5, 4)), "one dim"),
        Example(ConvTranspose(Window((2,), (0, 0), (1,)), (1,)),
                (v(1, 2, 4).astype(np.float16), v(2, 3, 2).astype(np.float16)), "float16, an element beyond every tap"),
    ]
