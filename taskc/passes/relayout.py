"""How single operators look when their tensors are stored with permuted dims: which attributes follow.

A value v is stored in layout `perm` when the stored tensor is transpose(v, perm). `relay` answers for one operator: the
operator on stored tensors, the layout of each input, and that of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskc.ir.graph import Op, TensorType
from taskc.ir.value import Dim
from taskc.ops.arg import ArgExtreme
from taskc.ops.cast import Cast
from taskc.ops.concat import Concat
from taskc.ops.elementwise import Elementwise
from taskc.ops.expand import Tile
from taskc.ops.norm import GroupNorm
from taskc.ops.pad import Pad
from taskc.ops.pool import Pool
from taskc.ops.reduce import Reduce
from taskc.ops.reshape import Reshape, matching_groups
from taskc.ops.resize import Resize
from taskc.ops.slice import Slice
from taskc.ops.softmax import Softmax

Perm = tuple[int, ...]


def identity(rank: int) -> Perm:
    return tuple(range(rank))


def channels_last(rank: int) -> Perm:
    """[n, c, …] stored as [n, …, c]."""
    return (0, *range(2, rank), 1)


@dataclass(frozen=True)
class Relaid:
    """`inputs`: the layout each input must have; None for one that stays as it is."""

    op: Op
    inputs: tuple[Perm | None, ...]
    out: Perm


Types = Sequence["TensorType | None"]


def _same(op: Any, perm: Perm, ins: Types) -> Relaid:
    return Relaid(op, (perm,) * len(ins), perm)


def _axis(op: Any, perm: Perm, ins: Types) -> Relaid:
    return Relaid(replace(op, axis=perm.index(op.axis)), (perm,) * len(ins), perm)


def _softmax(op: Softmax, perm: Perm, ins: Types) -> Relaid | None:
    return None if op.to_end else _axis(op, perm, ins)


def _pad(op: Pad, perm: Perm, ins: Types) -> Relaid:
    moved = replace(op, before=tuple(op.before[p] for p in perm), after=tuple(op.after[p] for p in perm))
    return Relaid(moved, (perm,), perm)


def _slice(op: Slice, perm: Perm, ins: Types) -> Relaid:
    parts = (tuple(op.starts[p] for p in perm), tuple(op.sizes[p] for p in perm), tuple(op.steps[p] for p in perm))
    return Relaid(Slice(*parts), (perm,), perm)


def _tile(op: Tile, perm: Perm, ins: Types) -> Relaid:
    return Relaid(Tile(tuple(op.repeats[p] for p in perm)), (perm,), perm)


def _resize(op: Resize, perm: Perm, ins: Types) -> Relaid:
    return Relaid(replace(op, steps=tuple(op.steps[p] for p in perm)), (perm,), perm)


def _without(perm: Perm, gone: Sequence[int]) -> Perm:
    """The layout of what is left when dims are removed."""
    kept = [d for d in range(len(perm)) if d not in gone]
    return tuple(kept.index(p) for p in perm if p not in gone)


def _reduce(op: Reduce, perm: Perm, ins: Types) -> Relaid:
    axes = tuple(sorted(perm.index(a) for a in op.axes))
    return Relaid(replace(op, axes=axes), (perm,), perm if op.keepdims else _without(perm, op.axes))


def _arg(op: ArgExtreme, perm: Perm, ins: Types) -> Relaid:
    return Relaid(replace(op, axis=perm.index(op.axis)), (perm,), perm if op.keepdims else _without(perm, (op.axis,)))


def _pool(op: Pool, perm: Perm, ins: Types) -> Relaid | None:
    if op.channels_last or perm != channels_last(len(perm)):
        return None
    return Relaid(replace(op, channels_last=True), (perm,), perm)


def _group_norm(op: GroupNorm, perm: Perm, ins: Types) -> Relaid | None:
    if op.channels_last or perm != channels_last(len(perm)):
        return None
    return Relaid(replace(op, channels_last=True), (perm, None, None), perm)


def _reshape(op: Reshape, perm: Perm, ins: Types) -> Relaid | None:
    """Possible where every run of dims that the reshape merges or splits is stored together and in order."""
    x = ins[0]
    assert x is not None
    stored = [p for p in perm if x.shape[p] != 1]
    groups = sorted(matching_groups(x.shape, op.shape), key=lambda g: stored.index(g[0][0]) if g[0] else -1)
    if [d for g in groups for d in g[0]] != stored:
        return None
    order = _with_units([d for g in groups for d in g[1]], op.shape)
    return Relaid(Reshape(tuple(op.shape[d] for d in order)), (perm,), order)


def _with_units(order: list[int], shape: Sequence[Dim]) -> Perm:
    """The order of all dims: each dim of 1 goes behind the one before it."""
    for d in range(len(shape)):
        if d not in order:
            order.insert(order.index(d - 1) + 1 if d else 0, d)
    return tuple(order)


_RULES: dict[type[Op], Callable[[Any, Perm, Types], Relaid | None]] = {
    Elementwise: _same, Cast: _same, Concat: _axis, Softmax: _softmax, Pad: _pad, Slice: _slice, Tile: _tile, Resize: _resize,
    Reduce: _reduce, ArgExtreme: _arg, Pool: _pool, GroupNorm: _group_norm, Reshape: _reshape,
}


def relay(op: Op, perm: Perm, ins: Types) -> Relaid | None:
    """The operator on tensors stored in layout `perm`; None where it needs them as they are."""
    rule = _RULES.get(type(op))
    return None if rule is None else rule(op, perm, ins)


def carriers(op: Op, ins: Types) -> tuple[int, ...]:
    """Positions of the inputs whose layout decides the operator's: those of full rank."""
    if type(op) not in _RULES:
        return ()
    if isinstance(op, (Elementwise, Concat)):
        rank = max((t.rank for t in ins if t is not None), default=0)
        return tuple(i for i, t in enumerate(ins) if t is not None and t.rank == rank and rank > 0)
    return (0,)
