"""Index expressions and values -> C text. Meaning is kept exactly: `//` and `%` are floor operations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from typing_extensions import assert_never

from taskc.ir.dtype import BF16, BOOL, F16, F32, F64, DType
from taskc.ir.expr import Binary, Expr, Index, Product, Sum, Var
from taskc.ir.facts import bounds
from taskc.ir.functions import FUNCTIONS
from taskc.ir.value import Call, Cast, Choose, Const, Element, Guard, Hole, Let, Load, Number, Reduce, Value


def compute_name(dtype: DType) -> str:
    """The C type that a value of `dtype`'s compute type has."""
    return "bool" if dtype == BOOL else dtype.compute.name


def index_text(e: Index) -> str:
    """C text of an index expression. Where it calls a template, its type is `index_t`, which the kernel defines: constants and
    symbols are ints beside 64-bit indices, so the type cannot be deduced."""
    if isinstance(e, int):
        return str(e) if -(2**31) < e < 2**31 else f"{e}ll"
    if isinstance(e, Var):
        return e.name
    if isinstance(e, Sum):
        parts = [index_text(t) if c == 1 else f"{index_text(c)} * {index_text(t)}" for t, c in e.terms.values()]
        parts += [index_text(e.const)] if e.const else []
        return "(" + " + ".join(parts).replace("+ -", "- ") + ")"
    if isinstance(e, Product):
        return "(" + " * ".join(index_text(f) for f in e.factors) + ")"
    assert isinstance(e, Binary)
    return _binary_text(e)


def _binary_text(e: Binary) -> str:
    a, b = index_text(e.a), index_text(e.b)
    if e.op in ("min", "max"):
        return f"t_{e.op}<index_t>({a}, {b})"
    low = bounds(e.a)[0]
    if low is None or low < 0:
        return f"{'floordiv' if e.op == '//' else 'floormod'}<index_t>({a}, {b})"
    if isinstance(e.b, int) and e.b & (e.b - 1) == 0:
        return f"({a} >> {e.b.bit_length() - 1})" if e.op == "//" else f"({a} & {e.b - 1})"
    return f"({a} {'/' if e.op == '//' else '%'} {b})"


def condition_text(conditions: tuple[Index, ...]) -> str:
    """C text of 'every condition is positive'."""
    if any(isinstance(c, int) and c <= 0 for c in conditions):
        return "false"
    parts = dict.fromkeys(_positive_text(c) for c in conditions if not isinstance(c, int))
    return " && ".join(parts) if parts else "true"


def _positive_text(c: Expr) -> str:
    """c > 0, written as a comparison of its positive and its negative part."""
    if isinstance(c, Sum):
        left = [(t, k) for t, k in c.terms.values() if k > 0]
        right = [(t, -k) for t, k in c.terms.values() if k < 0]
        if right:
            text = [_sum_text(left, max(c.const, 0)), _sum_text(right, max(-c.const, 0))]
            return f"({text[0]} > {text[1]})"
    return f"({index_text(c)} > 0)"


def _sum_text(terms: list[tuple[Expr, int]], const: int) -> str:
    parts = [index_text(t) if k == 1 else f"{k} * {index_text(t)}" for t, k in terms]
    return " + ".join(parts + ([str(const)] if const or not parts else []))


def const_text(value: float | int | bool, dtype: DType) -> str:
    """A C literal with exactly this value in the compute type."""
    compute = dtype.compute
    if compute == BOOL:
        return "true" if value else "false"
    if compute in (F32, F64):
        f = float(value)
        suffix = "f32" if compute == F32 else "f64"
        if math.isnan(f):
            return f"nan_{suffix}()"
        if math.isinf(f) or (compute == F32 and abs(f) > 3.4028235677973366e38):
            return f"inf_{suffix}()" if f > 0 else f"(-inf_{suffix}())"
        text = repr(float(np.float32(f))) if compute == F32 else repr(f)
        return f"{text}f" if compute == F32 else text
    v = int(value)
    if v == -(2**63):
        return "(-9223372036854775807ll - 1)"
    suffix = {"i64": "ll", "u64": "ull", "u32": "u"}.get(compute.name, "")
    return f"(({compute.name}){v}{suffix})" if compute.bytes < 4 else f"{v}{suffix}" if v >= 0 else f"({v}{suffix})"


@dataclass(frozen=True)
class ValueText:
    """Prints lowered values: everything but loads, lets and reductions, which lowering has replaced by elements."""

    def __call__(self, v: Value) -> str:
        if isinstance(v, Const):
            return const_text(v.value, v.dtype)
        if isinstance(v, Number):
            return f"(({compute_name(v.dtype)}){index_text(v.index)})"
        if isinstance(v, Element):
            return self._element(v)
        if isinstance(v, Call):
            return self._call(v)
        if isinstance(v, Cast):
            return self._cast(v)
        if isinstance(v, Guard):
            zero = const_text(0, v.dtype)
            return f"({condition_text(v.conditions)} ? {self(v.value)} : {zero})"
        if isinstance(v, Choose):
            return f"({condition_text((v.condition,))} ? {self(v.yes)} : {self(v.no)})"
        if isinstance(v, (Load, Hole, Let, Reduce)):
            raise TypeError(f"{type(v).__name__} left after stitching: {v}")
        assert_never(v)

    def _element(self, v: Element) -> str:
        text = f"{v.buffer}[{index_text(v.offset)}]"
        if v.storage in (F16, BF16):
            return f"to_f32({text})"
        return f"bool({text})" if v.storage == BOOL else text

    def _call(self, v: Call) -> str:
        f = FUNCTIONS[v.function]
        integer = v.args[-1].dtype.is_integer
        text = (f.c_integer if integer and f.c_integer else f.c).format(*(self(a) for a in v.args))
        narrow = v.dtype.is_integer and v.dtype.bytes < 4  # C computes these in int: wrap
        return f"(({v.dtype.name})({text}))" if narrow else text

    def _cast(self, v: Cast) -> str:
        inner = self(v.value)
        if v.to in (F16, BF16):
            return f"to_f32(cast<{v.to.name}>({inner}))"
        if v.to == v.value.dtype:
            return inner
        if v.to == BOOL:
            return f"bool(cast<b8>({inner}))"
        if v.value.dtype == BOOL:
            return f"({v.to.name})({inner})"
        return f"cast<{v.to.name}>({inner})"


def converted(value: Value, storage: DType) -> str:
    """C text of `value` as `storage`, rounding to nearest even."""
    if isinstance(value, Element) and value.storage == storage:
        return f"{value.buffer}[{index_text(value.offset)}]"  # as it lies: not through the compute type and back
    text = ValueText()(value)
    if storage == value.dtype:
        return text
    if value.dtype == BOOL and storage.kind != "bool":
        return f"cast<{storage.name}>(int({text}))"
    return f"cast<{storage.name}>({text})"
