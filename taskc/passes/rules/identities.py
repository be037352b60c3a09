"""Arithmetic that changes nothing, or that has a cheaper equal form."""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign

import numpy as np

from taskc.ir.graph import Node
from taskc.ops.elementwise import Elementwise
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule
from taskc.passes.rules.operands import WithConstant, with_constant

_NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0, "pow": 1.0}


class DropNeutral(Rule[WithConstant]):
    """x * 1, x / 1, x - 0, x ** 1 -> x; x + 0 -> x where the sign of zero cannot change"""

    def before(self, e: Editor, n: Node) -> WithConstant | None:
        found = with_constant(e, n, *_NEUTRAL)
        return found if found and e.number(found.constant) == _NEUTRAL[found.function] else None

    def why_not(self, e: Editor, found: WithConstant) -> str | None:
        out = e.type(found.node.outputs[0])
        if out != e.type(found.value):
            return f"it also broadcasts {e.type(found.value)} to {out}"
        zero = e.number(found.constant)
        sums = out.dtype.is_float and found.function in ("add", "sub")
        if sums and zero is not None and (copysign(1.0, zero) < 0) == (found.function == "sub"):
            return "it turns -0 into +0"
        return None

    def after(self, e: Editor, found: WithConstant) -> str:
        return found.value


class PowerToProduct(Rule[WithConstant]):
    """x ** 2 -> x * x; x ** 3 -> x * x * x"""

    def before(self, e: Editor, n: Node) -> WithConstant | None:
        found = with_constant(e, n, "pow")
        return found if found and e.number(found.constant) in (2.0, 3.0) else None

    def why_not(self, e: Editor, found: WithConstant) -> str | None:
        same = e.type(found.node.outputs[0]) == e.type(found.value)
        return None if same else "it also broadcasts"

    def after(self, e: Editor, found: WithConstant) -> str:
        square = e.add(Elementwise("mul"), found.value, found.value)
        return square if e.number(found.constant) == 2 else e.add(Elementwise("mul"), square, found.value)


class QuotientToProduct(Rule[WithConstant]):
    """x / c -> x * (1 / c) where 1 / c is exact (a power of two)"""

    def before(self, e: Editor, n: Node) -> WithConstant | None:
        found = with_constant(e, n, "div")
        return found if found and e.type(found.constant).dtype.is_float else None

    def why_not(self, e: Editor, found: WithConstant) -> str | None:
        c = e.numbers(found.constant)
        assert c is not None
        if not c.size:
            return "there is nothing to divide by"
        exact = np.all(np.isfinite(c)) and np.all(np.abs(np.frexp(c)[0]) == 0.5) and np.all((np.abs(c) > 1e-4) & (np.abs(c) < 1e4))
        return None if exact else "the reciprocal is not exact"

    def after(self, e: Editor, found: WithConstant) -> str:
        c = e.numbers(found.constant)
        assert c is not None
        return e.add(Elementwise("mul"), found.value, e.constant(1 / c, e.type(found.constant).dtype))


class DifferenceToSum(Rule[WithConstant]):
    """x - c -> x + (-c), so that constants meet"""

    def before(self, e: Editor, n: Node) -> WithConstant | None:
        found = with_constant(e, n, "sub")
        return found if found and e.type(found.constant).dtype.is_float else None

    def after(self, e: Editor, found: WithConstant) -> str:
        c = e.numbers(found.constant)
        assert c is not None
        return e.add(Elementwise("add"), found.value, e.constant(-c, e.type(found.constant).dtype))


@dataclass(frozen=True)
class _Two:
    outer: WithConstant
    inner: WithConstant


class MergeConstants(Rule[_Two]):
    """(x + a) + b -> x + (a + b); (x * a) * b -> x * (a * b)"""

    def before(self, e: Editor, n: Node) -> _Two | None:
        outer = with_constant(e, n, "add", "mul")
        inner = with_constant(e, e.node(outer.value), outer.function) if outer else None
        return _Two(outer, inner) if outer and inner and e.type(outer.value).dtype.is_float else None

    def why_not(self, e: Editor, found: _Two) -> str | None:
        a, b = e.numbers(found.inner.constant), e.numbers(found.outer.constant)
        assert a is not None and b is not None
        if not e.once(found.outer.value):
            return "the value in between is used elsewhere"
        if np.broadcast(a, b).size > max(a.size, b.size):
            return "the merged constant would be larger than both"
        merged = a + b if found.outer.function == "add" else a * b
        if found.outer.function == "mul" and not _ordinary(a, b, merged):
            return "the merged factor may overflow or vanish"
        return None

    def after(self, e: Editor, found: _Two) -> str:
        a, b = e.numbers(found.inner.constant), e.numbers(found.outer.constant)
        assert a is not None and b is not None
        merged = a + b if found.outer.function == "add" else a * b
        return e.add(Elementwise(found.outer.function), found.inner.value, e.constant(merged, e.type(found.outer.constant).dtype))


def _ordinary(*arrays: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bool:
    """Whether all factors stay far from the ends of float16's range, or are zero."""
    return all(bool(np.all((a == 0) | ((np.abs(a) > 1e-4) & (np.abs(a) < 6e4)))) for a in arrays)
