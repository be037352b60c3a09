"""Values -> statements: loads become register arrays, in as few vectors as the facts allow; what is left is scalar text.

`hoist` replaces every load, let and reduction of a value by an element of a register array indexed by the lane; the value at
lane o is then the same expression with the lane set to o.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from taskc.fuse.width import LANE, contiguous_width
from taskc.ir.dtype import I64
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Index, Var
from taskc.ir.facts import mentions
from taskc.ir.partial import COMBINE, identity
from taskc.ir.program import Buffer, Declare, DefineValue, For, Pointer, Set, Stmt, VectorLoad
from taskc.ir.proofs import positive
from taskc.ir.value import (
    Call,
    Cast,
    Choose,
    Element,
    Guard,
    Hole,
    Let,
    Load,
    Names,
    Number,
    Reduce,
    Value,
    at,
    call,
    walk,
)

Holes = Callable[[Hole], Value]


def no_holes(h: Hole) -> Value:
    raise TypeError(f"the value refers to {h.name}, which this port does not provide")


@dataclass
class Lowering:
    """Lowers values over `width` lanes into `out`. `ready` maps loads already in registers to their elements."""

    names: Names
    width: int
    out: list[Stmt]
    holes: Holes = no_holes
    ready: dict[tuple[Load, tuple[Index, ...]], Value] = field(default_factory=dict[tuple[Load, tuple[Index, ...]], Value])

    def lane(self, o: int) -> dict[str, Index]:
        return {LANE: o}

    def values(self, v: Value) -> list[Value]:
        """The value at each lane."""
        hoisted = self.hoist(v, ())
        return [at(hoisted, self.lane(o)) for o in range(self.width)]

    def hoist(self, v: Value, conditions: tuple[Index, ...]) -> Value:
        if isinstance(v, Load):
            return self._load(v, conditions)
        if isinstance(v, Guard):
            return replace(v, value=self.hoist(v.value, conditions + v.conditions))
        if isinstance(v, Choose):
            return replace(v, yes=self.hoist(v.yes, (*conditions, v.condition)), no=self.hoist(v.no, (*conditions, 1 - v.condition)))
        if isinstance(v, Call):
            return replace(v, args=tuple(self.hoist(a, conditions) for a in v.args))
        if isinstance(v, Cast):
            return replace(v, value=self.hoist(v.value, conditions))
        if isinstance(v, Let):
            return self._let(v, conditions)
        if isinstance(v, Reduce):
            return self._reduce(v, conditions)
        return self.holes(v) if isinstance(v, Hole) else v

    def _load(self, v: Load, conditions: tuple[Index, ...]) -> Value:
        key = (v, conditions)
        if key not in self.ready:
            self.ready[key] = self.load_lanes(v, conditions)
        return self.ready[key]

    def load_lanes(self, load: Load, conditions: tuple[Index, ...], into: Pointer | None = None) -> Value:
        """Emits the loads of all lanes, into a new register array or at `into`; gives the element at the lane."""
        t, address = load.tensor, load.tensor.address(load.index)
        conditions = tuple(c for c in (positive(c) for c in conditions) if not (isinstance(c, int) and c > 0))
        limit = min(self.width, 16 // t.dtype.bytes)
        w = contiguous_width(address, conditions, limit) if self.width > 1 else 1
        uniform = w == 0 and not any(mentions(c, LANE) for c in conditions)
        if into is None:
            array = Buffer(self.names.new(f"{t.name}_v"), t.dtype, 1 if uniform else self.width)
            self.out.append(Declare(array))
            into = Pointer(array.name)
        elif uniform:
            w, uniform = 1, False  # the caller wants every lane in its place
        step = max(w, 1)
        for o in range(0, 1 if uniform else self.width, step):
            at_o = self.lane(o)
            self.out.append(VectorLoad(t.dtype, step, Pointer(into.name, into.offset + o), Pointer(t.name, substitute(address, at_o)),
                                       tuple(positive(substitute(c, at_o)) for c in conditions), "ld_nc" if t.constant else "ld"))
        return Element(into.name, into.offset + (0 if uniform or self.width == 1 else Var(LANE, 0, self.width - 1)), t.dtype)

    def _let(self, v: Let, conditions: tuple[Index, ...]) -> Value:
        """A data-dependent index: one variable when all lanes share it, else one a lane."""
        value = self.hoist(v.value, conditions)
        if not varies(value):
            var = self._bound(v.var, at(value, self.lane(0)))
            return self.hoist(at(v.body, {v.var.name: var}), conditions)
        result = Buffer(self.names.new("picked"), v.dtype, self.width)
        self.out.append(Declare(result))
        for o in range(self.width):
            var = self._bound(v.var, at(value, self.lane(o)))
            one = Lowering(self.names, 1, self.out, self.holes)
            body = at(v.body, {v.var.name: var, LANE: o})
            inner = one.hoist(body, tuple(substitute(c, self.lane(o)) for c in conditions))
            self.out.append(Set(result[o], at(inner, self.lane(o))))
        return result[Var(LANE, 0, self.width - 1) if self.width > 1 else 0]

    def _bound(self, var: Var, value: Value) -> Var:
        new = Var(self.names.new(var.name), var.lo, var.hi, var.div, var.below)
        self.out.append(DefineValue(new, Cast(value, I64) if not value.dtype.is_integer else value))
        return new

    def _reduce(self, v: Reduce, conditions: tuple[Index, ...]) -> Value:
        """Loops over the axes; all lanes at once."""
        acc = Buffer(self.names.new("sum" if v.kind == "sum" else "best"), v.dtype, self.width)
        self.out.append(Declare(acc))
        self.out += [Set(acc[o], identity(v.kind, v.dtype)) for o in range(self.width)]
        body: list[Stmt] = []
        fresh = {a.name: Var(self.names.new(a.name), a.lo, a.hi, a.div, a.below) for a in v.axes}
        inner = Lowering(self.names, self.width, body, self.holes, dict(self.ready))
        for o, x in enumerate(inner.values(Guard(conditions, at(v.body, fresh)) if conditions else at(v.body, fresh))):
            body.append(Set(acc[o], call(COMBINE[v.kind], acc[o], x)))
        for a, extent in reversed(list(zip(v.axes, v.extents, strict=True))):
            short = isinstance(extent, int) and extent <= 8
            body = [For(fresh[a.name], 0, extent, body, unroll=short)]
        self.out += body
        return acc[Var(LANE, 0, self.width - 1) if self.width > 1 else 0]


def varies(v: Value) -> bool:
    """Whether a hoisted value differs from lane to lane."""
    for x in walk(v):
        if isinstance(x, Element) and mentions(x.offset, LANE):
            return True
        if isinstance(x, Number) and mentions(x.index, LANE):
            return True
        if isinstance(x, Guard) and any(mentions(c, LANE) for c in x.conditions):
            return True
        if isinstance(x, Choose) and mentions(x.condition, LANE):
            return True
    return False
