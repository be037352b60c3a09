"""Sliding windows: their attributes in ONNX, sizes and taps; shared by convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskc.ir.arithmetic import ceildiv, floor_div, minimum
from taskc.ir.proofs import divides
from taskc.ir.value import Dim
from taskc.ops.registry import Reading


@dataclass(frozen=True)
class Window:
    """One entry a spatial dim; `pads` holds all starts, then all ends."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def size(self, d: int, extent: Dim, kernel: Dim, ceil: bool = False) -> Dim:
        """Windows along spatial dim `d`. With `ceil` the last may reach past the end pad, but starts in front of it."""
        rank, stride = len(self.strides), self.strides[d]
        reach = self.dilations[d] * (kernel - 1) + 1
        free = extent + self.pads[d] + self.pads[d + rank] - reach
        if not ceil:
            return floor_div(free, stride) + 1
        return minimum(ceildiv(free, stride) + 1, ceildiv(extent + self.pads[d], stride))


def read_window(r: Reading, spatial: Sequence[Dim], kernel: Sequence[int]) -> Window:
    """Strides, pads and dilations of an ONNX node, with `auto_pad` turned into pads."""
    rank = len(kernel)
    strides, dilations = r.ints("strides", (1,) * rank), r.ints("dilations", (1,) * rank)
    auto = r.string("auto_pad", "NOTSET") or "NOTSET"
    if auto == "NOTSET":
        pads = r.ints("pads", (0,) * (2 * rank))
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [_same_total(r, spatial[d], strides[d], dilations[d] * (kernel[d] - 1) + 1) for d in range(rank)]
        small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        pads = small + large if auto == "SAME_UPPER" else large + small
    else:
        r.bad(f"auto_pad is {auto!r}; it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    if not len(strides) == len(dilations) == rank or len(pads) != 2 * rank or len(spatial) != rank:
        given = f"strides {list(strides)}, pads {list(pads)} and dilations {list(dilations)}"
        r.bad(f"{given} do not fit {rank} spatial dims")
    if min((*strides, *dilations), default=1) < 1:
        r.bad(f"strides {list(strides)} and dilations {list(dilations)} must be positive")
    return Window(strides, pads, dilations)


def _same_total(r: Reading, extent: Dim, stride: int, reach: int) -> int:
    """The padding with which there are ceil(extent / stride) windows."""
    if isinstance(extent, int):
        return max((-(-extent // stride) - 1) * stride + reach - extent, 0)
    if divides(stride, extent):
        return max(reach - stride, 0)
    r.unsupported(f"auto_pad over the symbolic size {extent} with stride {stride}: its pads depend on the size; "
                  "export with explicit pads or a fixed size")


def taps_slice(tap: Sequence[int], sizes: Sequence[int], strides: Sequence[int],
               dilations: Sequence[int]) -> tuple[slice, ...]:
    """The elements of a padded array that windows of these sizes see at one tap, one slice a spatial dim."""
    steps = zip(tap, sizes, strides, dilations, strict=True)
    return tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, n, s, d in steps)
