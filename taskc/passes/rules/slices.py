"""A slice of a product is the product of slices: what nobody reads is not computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskc.ir.graph import Node, TensorType
from taskc.ops.cast import Cast
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.norm import LayerNorm
from taskc.ops.slice import Slice
from taskc.ops.softmax import Softmax
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule


@dataclass(frozen=True)
class _Cut:
    """The node whose result is sliced, and the slice of each of its inputs that gives the same."""

    node: Node
    slices: tuple[Slice, ...]


class MoveSlice(Rule[_Cut]):
    """slice(f(x, …)) -> f(slice(x), …), for products and what stands behind one: elementwise, normalisations along other dims

    Only where a product is reached that then has fewer rows or columns. Elsewhere a slice is better off behind: its reader takes it
    as a view, and what is before it stays fused."""

    def before(self, e: Editor, n: Node) -> _Cut | None:
        if not isinstance(n.op, Slice) or all(map(_is_whole, *_dims(n.op), e.type(n.inputs[0]).shape)):
            return None
        return _cut(e, n.inputs[0], n.op) if _reaches(e, n.inputs[0], n.op) else None

    def after(self, e: Editor, found: _Cut) -> str:
        sliced: list[str] = []
        for value, s in zip(found.node.inputs, found.slices, strict=True):
            whole = not value or all(map(_is_whole, *_dims(s), e.type(value).shape))
            sliced.append(value if whole else e.add(s, value))
        return e.add(found.node.op, *sliced)


def _dims(s: Slice) -> tuple[Sequence[object], Sequence[object], Sequence[object]]:
    return s.starts, s.sizes, s.steps


def _is_whole(start: object, size: object, step: object, extent: object) -> bool:
    return start == 0 and size == extent and step == 1


def _reaches(e: Editor, value: str, s: Slice) -> bool:
    """Whether a product stands behind the value, with nothing in between that somebody else reads or that needs all of it."""
    cut = _cut(e, value, s)
    if cut is None:
        return False
    if isinstance(cut.node.op, MatMul):
        return True
    inner = zip(cut.node.inputs, cut.slices, strict=True)
    return any(_reaches(e, i, x) for i, x in inner if i and not all(map(_is_whole, *_dims(x), e.type(i).shape)))


def _cut(e: Editor, value: str, s: Slice) -> _Cut | None:
    """How the node that makes the value takes the slice, or None."""
    n = e.node(value)
    if n is None or not e.once(value):
        return None
    if isinstance(n.op, MatMul):
        slices = _of_product(e, n, n.op, s)
    elif isinstance(n.op, (Elementwise, Cast)) or _only_outside(n, e.type(value), s):
        slices = [_broadcast(s, e.type(i) if i else None, e.type(value)) for i in n.inputs]
    else:
        return None
    known = tuple(x for x in slices if x is not None)
    return _Cut(n, known) if len(known) == len(n.inputs) else None


def _only_outside(n: Node, t: TensorType, s: Slice) -> bool:
    """Whether the node works along dims that the slice leaves whole."""
    if isinstance(n.op, LayerNorm):
        along = range(n.op.axis, t.rank)
    elif isinstance(n.op, Softmax):
        along = range(n.op.axis, t.rank if n.op.to_end else n.op.axis + 1)
    else:
        return False
    return all(_is_whole(s.starts[d], s.sizes[d], s.steps[d], t.shape[d]) for d in along)


def _broadcast(s: Slice, t: TensorType | None, out: TensorType) -> Slice | None:
    """The slice of an input that broadcasts to the result; an absent input has none of any dims."""
    if t is None:
        return Slice((), (), ())
    skipped = out.rank - t.rank
    picked = [(0, 1, 1) if t.shape[d] == 1 else (s.starts[d + skipped], s.sizes[d + skipped], s.steps[d + skipped]) for d in range(t.rank)]
    if any(t.shape[d] not in (1, out.shape[d + skipped]) for d in range(t.rank)):
        return None  # symbolic dims of which one may be 1
    return Slice(*(tuple(x) for x in zip(*picked, strict=True))) if picked else Slice((), (), ())


def _of_product(e: Editor, n: Node, op: MatMul, s: Slice) -> list[Slice | None]:
    """Rows are those of a, columns those of b. A constant is cut while compiling; other operands only along whole rows of what is
    stored, because their vectors would begin elsewhere."""
    a, b = (e.type(i) for i in n.inputs)
    out = e.type(n.outputs[0])
    if op.rows is not None or op.columns is not None or any(x != 1 for x in s.steps):
        return [None]
    slices: list[Slice | None] = []
    for operand, t, swapped, own in ((0, a, op.transpose_a, -2), (1, b, op.transpose_b, -1)):
        lead = Slice(s.starts[:-2], s.sizes[:-2], s.steps[:-2])
        batch = _broadcast(lead, TensorType(t.dtype, t.shape[:-2]), TensorType(out.dtype, out.shape[:-2]))
        whole = _is_whole(s.starts[own], s.sizes[own], 1, out.shape[own])
        last = (operand == 0) == swapped  # its own dim is the one that lies together
        if batch is None or (last and not whole and e.stored(n.inputs[operand]) is None):
            return [None]
        k = t.shape[-2 if last else -1]
        mine, other = (s.starts[own], s.sizes[own]), (0, k)
        tail = (other, mine) if last else (mine, other)
        slices.append(Slice((*batch.starts, *(x for x, _ in tail)), (*batch.sizes, *(x for _, x in tail)), (*batch.steps, 1, 1)))
    return slices
