"""Row-major positions: an index of a shape -> its position and back."""

from __future__ import annotations

from collections.abc import Sequence

from taskc.ir.expr import Index, prod


def ravel(index: Sequence[Index], shape: Sequence[Index]) -> Index:
    """The row-major position of `index` in a tensor of `shape`."""
    out: Index = 0
    for i, d in zip(index, shape, strict=True):
        out = out * d + i
    return out


def unravel(position: Index, shape: Sequence[Index]) -> tuple[Index, ...]:
    """The index of a row-major position; the position is taken to lie inside the shape."""
    out: list[Index] = []
    for d in range(len(shape)):
        q = position // prod(shape[d + 1 :])
        outer = all(s == 1 for s in shape[:d])
        out.append(0 if shape[d] == 1 else q if outer else q % shape[d])
    return tuple(out)
