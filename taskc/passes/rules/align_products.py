"""A product whose operands' rows begin anywhere reads whole vectors once they are stored with rows that begin on vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from taskc.ir.dtype import DType
from taskc.ir.graph import Node, TensorType
from taskc.ops.matmul import MatMul
from taskc.ops.pad import Pad
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule

_VECTOR = 16  # bytes of the widest access
# What an H200 showed for float16 products of 2048 x 2048 x 2048 (49 us), 2046 (68) and 2047 (99), and what its copies take.
_SAVED = {2: 2.9e-15, 4: 1.1e-15}  # seconds a FLOP, where rows begin on 2 and on 4 bytes only
_COPY_RATE = 2.5e12  # bytes a second, read and written
_LAUNCH = 2e-6


@dataclass(frozen=True)
class _Unaligned:
    node: Node
    op: MatMul
    dtype: DType
    more: dict[str, int]  # 'm', 'n', 'k' -> elements to add

    def pads(self, operand: int) -> tuple[int, int]:
        """Elements behind the last two dims of operand 0 (a) or 1 (b)."""
        names, swapped = (("m", "k"), self.op.transpose_a) if operand == 0 else (("k", "n"), self.op.transpose_b)
        first, last = (self.more.get(x, 0) for x in names)
        return (last, first) if swapped else (first, last)


@dataclass(frozen=True)
class AlignProducts(Rule[_Unaligned]):
    """a @ b -> pad(a) @ pad(b), only the product's own rows and columns of it: operands' last dims become multiples of a vector

    Constants are padded while compiling. An operand that is computed takes a copy: that pays where the product is large."""

    def before(self, e: Editor, n: Node) -> _Unaligned | None:
        if not isinstance(n.op, MatMul) or n.op.rows is not None or n.op.columns is not None:
            return None
        op, (a, b) = n.op, (e.type(i) for i in n.inputs)
        vector = _VECTOR // a.dtype.bytes
        lasts = {"m" if op.transpose_a else "k": a.shape[-1], "k" if op.transpose_b else "n": b.shape[-1]}
        more = {name: -d % vector for name, d in lasts.items() if isinstance(d, int) and d >= vector}
        found = _Unaligned(n, op, a.dtype, {name: pad for name, pad in more.items() if pad})
        return found if found.more else None

    def why_not(self, e: Editor, found: _Unaligned) -> str | None:
        copied = [e.type(v) for i, v in enumerate(found.node.inputs) if any(found.pads(i)) and e.stored(v) is None]
        if not copied:
            return None
        out = e.type(found.node.outputs[0])
        shapes = [t.shape for t in (*copied, out)]
        if any(not isinstance(d, int) for shape in shapes for d in shape):
            return "a symbolic dim leaves open whether a copy with aligned rows would pay"
        k = e.type(found.node.inputs[0]).shape[-2 if found.op.transpose_a else -1]
        assert isinstance(k, int)
        saved = 2 * _elements(out) * k * _SAVED.get(_beginning(found, copied), 0.0)
        cost = sum(_LAUNCH + 2 * _elements(t) * t.dtype.bytes / _COPY_RATE for t in copied)
        if saved <= cost:
            return f"copies with aligned rows would take about {cost * 1e6:.1f} us and save {saved * 1e6:.1f}"
        return None

    def after(self, e: Editor, found: _Unaligned) -> str:
        op = found.op
        operands = [_padded(e, v, found.pads(i)) for i, v in enumerate(found.node.inputs)]
        rows, columns = e.type(found.node.outputs[0]).shape[-2:]
        own = MatMul(op.transpose_a, op.transpose_b, rows if found.more.get("m") else None, columns if found.more.get("n") else None)
        return e.add(own, *operands)


def _elements(t: TensorType) -> int:
    return prod(d for d in t.shape if isinstance(d, int))


def _beginning(found: _Unaligned, copied: list[TensorType]) -> int:
    """Bytes on which every row of the copied operands begins, 16 at most: the largest power of 2 that divides their lengths."""
    lengths = [d * found.dtype.bytes for t in copied for d in t.shape[-1:] if isinstance(d, int)]
    return min((length & -length for length in lengths), default=_VECTOR)


def _padded(e: Editor, value: str, more: tuple[int, int]) -> str:
    if not any(more):
        return value
    t, stored = e.type(value), e.stored(value)
    after = (*(0,) * (t.rank - 2), *more)
    if stored is not None:
        return e.constant_stored(np.pad(stored, [(0, x) for x in after]), t.dtype)
    return e.add(Pad((0,) * t.rank, after), value)
