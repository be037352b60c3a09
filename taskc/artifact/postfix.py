"""Index expression over a plan's symbols -> instructions of the runtime's stack machine."""

from __future__ import annotations

from taskc.artifact.records import MAX_CODE, MAX_STACK, Code, Op
from taskc.ir.expr import Binary, Expr, Index, Product, Sum, Var

_BINARY = {"//": Op.FLOOR_DIV, "%": Op.FLOOR_MOD, "min": Op.MIN, "max": Op.MAX}


def postfix(e: Index, symbols: dict[str, int]) -> list[Code]:
    """`e` as instructions for a stack; ValueError where a variable is no symbol or the expression is too large."""
    out: list[Code] = []
    depth = _emit(e, symbols, out)
    if any(not -(2**63) <= c.value < 2**63 for c in out):
        raise ValueError(f"index expression with a constant that does not fit 64 bits: {e}")
    if depth > MAX_STACK or len(out) > MAX_CODE:
        raise ValueError(f"index expression too large for the runtime ({len(out)} instructions, depth {depth}): {e}")
    return out


def _emit(e: Index, symbols: dict[str, int], out: list[Code]) -> int:
    """Appends the instructions of `e`; returns the deepest stack they need."""
    if isinstance(e, int):
        out.append(Code(Op.CONST, 0, e))
        return 1
    if isinstance(e, Var):
        if e.name not in symbols:
            raise ValueError(f"'{e.name}' is no symbol of the plan (its symbols: {', '.join(symbols) or 'none'})")
        out.append(Code(Op.SYMBOL, symbols[e.name], 0))
        return 1
    if isinstance(e, Sum):
        parts: list[tuple[Expr, int]] = [e.terms[k] for k in sorted(e.terms)]
        depth = 0
        for n, (atom, coefficient) in enumerate(parts):
            depth = max(depth, (n > 0) + _emit(atom, symbols, out))
            if coefficient != 1:
                out += [Code(Op.CONST, 0, coefficient), Code(Op.MUL, 0, 0)]
                depth = max(depth, (n > 0) + 2)
            if n:
                out.append(Code(Op.ADD, 0, 0))
        if e.const:
            out += [Code(Op.CONST, 0, e.const), Code(Op.ADD, 0, 0)]
        return max(depth, 2)
    if isinstance(e, Product):
        depth = _emit(e.factors[0], symbols, out)
        for f in e.factors[1:]:
            depth = max(depth, 1 + _emit(f, symbols, out))
            out.append(Code(Op.MUL, 0, 0))
        return depth
    assert isinstance(e, Binary)
    depth = max(_emit(e.a, symbols, out), 1 + _emit(e.b, symbols, out))
    out.append(Code(_BINARY[e.op], 0, 0))
    return depth
