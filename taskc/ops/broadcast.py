"""NumPy broadcasting of shapes and loads, symbolic dims included."""

from __future__ import annotations

from collections.abc import Sequence

from taskc.ir.expr import Index
from taskc.ir.graph import OpError
from taskc.ir.value import Dim, Load, Tensor


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The common shape. A symbol meets only itself or 1: two different symbols are refused, with the reason."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for i in range(rank):
        dims = [s[len(s) - rank + i] for s in shapes if len(s) - rank + i >= 0]
        wide = list(dict.fromkeys(d for d in dims if d != 1))
        if len(wide) > 1:
            raise OpError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast: {wide[0]} meets {wide[1]}")
        out.append(wide[0] if wide else 1)
    return tuple(out)


def broadcast_load(t: Tensor, index: Sequence[Index]) -> Load:
    """The element of `t` that stands at `index` of a shape it broadcasts to."""
    own = index[len(index) - len(t.shape) :]
    return Load(t, tuple(0 if d == 1 else i for d, i in zip(t.shape, own, strict=True)))
