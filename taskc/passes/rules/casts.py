"""Conversions that undo each other."""

from __future__ import annotations

from dataclasses import dataclass

from taskc.ir.dtype import BF16, BOOL, F16, F32, F64, DType
from taskc.ir.graph import Node
from taskc.ops.cast import Cast
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule


@dataclass(frozen=True)
class _Twice:
    source: str
    middle: DType
    to: DType


class MergeCasts(Rule[_Twice]):
    """cast(cast(x, wider), to) -> cast(x, to), or x itself when that is its type"""

    def before(self, e: Editor, n: Node) -> _Twice | None:
        inner = e.made_by(n.inputs[0], Cast) if isinstance(n.op, Cast) else None
        return _Twice(inner.inputs[0], e.type(n.inputs[0]).dtype, n.op.to) if inner and isinstance(n.op, Cast) else None

    def why_not(self, e: Editor, found: _Twice) -> str | None:
        first = e.type(found.source).dtype
        return None if holds(found.middle, first) else f"{found.middle} does not hold every {first}"

    def after(self, e: Editor, found: _Twice) -> str:
        return found.source if e.type(found.source).dtype == found.to else e.add(Cast(found.to), found.source)


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, so that converting there and on is like converting directly."""
    if wide == narrow or narrow == BOOL:
        return True
    if wide.is_float and narrow.is_float:
        return narrow.bytes < wide.bytes or (wide, narrow) in ((F32, F16), (F32, BF16), (F64, F32))
    if wide.is_integer and narrow.is_integer:
        return wide.bytes > narrow.bytes and (wide.kind == "int" or narrow.kind == "uint")
    digits = {F16: 11, BF16: 8, F32: 24, F64: 53}
    return wide.is_float and narrow.is_integer and narrow.bytes * 8 - (narrow.kind == "int") <= digits[wide]
