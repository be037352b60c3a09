"""Transposes and reshapes that merge, cancel, or are one another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from taskc.ir.graph import Node
from taskc.ir.value import Dim
from taskc.ops.expand import Expand
from taskc.ops.fill import Fill
from taskc.ops.reshape import Reshape
from taskc.ops.transpose import Transpose
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule


@dataclass(frozen=True)
class _Permuted:
    source: str
    perm: tuple[int, ...]


class MergeTransposes(Rule[_Permuted]):
    """transpose(transpose(x, p), q) -> transpose(x, p[q]), or x where that is the identity"""

    def before(self, e: Editor, n: Node) -> _Permuted | None:
        if not isinstance(n.op, Transpose):
            return None
        if n.op.perm == tuple(range(len(n.op.perm))):
            return _Permuted(n.inputs[0], n.op.perm)
        inner = e.made_by(n.inputs[0], Transpose)
        if inner is None or not isinstance(inner.op, Transpose):
            return None
        return _Permuted(inner.inputs[0], tuple(inner.op.perm[q] for q in n.op.perm))

    def after(self, e: Editor, found: _Permuted) -> str:
        if found.perm == tuple(range(len(found.perm))):
            return found.source
        return e.add(Transpose(found.perm), found.source)


def keeps_order(shape: tuple[Dim, ...], perm: tuple[int, ...]) -> bool:
    """Whether a transpose moves no element: the dims other than 1 stay in order."""
    moved = [p for p in perm if shape[p] != 1]
    return moved == sorted(moved)


@dataclass(frozen=True)
class _Reshaped:
    source: str
    shape: tuple[Dim, ...]


class TransposeToReshape(Rule[_Reshaped]):
    """transpose(x) -> reshape(x) where only dims of 1 move"""

    def before(self, e: Editor, n: Node) -> _Reshaped | None:
        if isinstance(n.op, Transpose) and keeps_order(e.type(n.inputs[0]).shape, n.op.perm):
            return _Reshaped(n.inputs[0], e.type(n.outputs[0]).shape)
        return None

    def after(self, e: Editor, found: _Reshaped) -> str:
        return e.add(Reshape(found.shape), found.source)


class MoveFill(Rule[Fill]):
    """transpose(fill), reshape(fill), expand(fill) -> fill"""

    def before(self, e: Editor, n: Node) -> Fill | None:
        fill = e.made_by(n.inputs[0], Fill) if isinstance(n.op, (Transpose, Reshape, Expand)) else None
        return replace(fill.op, shape=e.type(n.outputs[0]).shape) if fill and isinstance(fill.op, Fill) else None

    def after(self, e: Editor, found: Fill) -> str:
        return e.add(found)


class MergeReshapes(Rule[_Reshaped]):
    """reshape(reshape(x)) -> reshape(x), or x where its shape is the last one"""

    def before(self, e: Editor, n: Node) -> _Reshaped | None:
        if not isinstance(n.op, Reshape):
            return None
        source = n.inputs[0]
        while (inner := e.made_by(source, Reshape)) is not None:
            source = inner.inputs[0]
        same = e.type(source).shape == n.op.shape
        return _Reshaped(source, n.op.shape) if source != n.inputs[0] or same else None

    def after(self, e: Editor, found: _Reshaped) -> str:
        return found.source if e.type(found.source).shape == found.shape else e.add(Reshape(found.shape), found.source)


class TransposeBetweenReshapes(Rule[_Permuted]):
    """reshape(transpose(reshape(x), p)) -> transpose(x, q), where the reshapes only merge dims that p leaves alone"""

    def before(self, e: Editor, n: Node) -> _Permuted | None:
        t = e.made_by(n.inputs[0], Transpose) if isinstance(n.op, Reshape) else None
        inner = e.made_by(t.inputs[0], Reshape) if t is not None else None
        if t is None or inner is None or not isinstance(t.op, Transpose) or not isinstance(n.op, Reshape):
            return None
        perm = _lifted(e.type(inner.inputs[0]).shape, e.type(t.inputs[0]).shape, t.op.perm, n.op.shape)
        return None if perm is None else _Permuted(inner.inputs[0], perm)

    def after(self, e: Editor, found: _Permuted) -> str:
        return e.add(Transpose(found.perm), found.source)


def _lifted(shape: tuple[Dim, ...], merged: tuple[Dim, ...], perm: tuple[int, ...], out: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The permutation q of `shape` for which transposing `merged` (its dims merged in runs) by `perm` gives `out`."""
    if len(shape) != len(out) or len(merged) >= len(shape):
        return None
    runs: list[list[int]] = []
    at = 0
    for d in merged:
        run: list[int] = []
        size: Dim = 1
        while at < len(shape) and (size != d or not run):
            run.append(at)
            size = size * shape[at]
            at += 1
        if size != d:
            return None
        runs.append(run)
    if at != len(shape):
        return None
    q = tuple(i for p in perm for i in runs[p])
    return q if tuple(shape[i] for i in q) == out else None
