"""The graph while it is built: nodes, types, constants, and what is known of each value at compile time.

Small values whose inputs are all known are computed here by the operators' references and need no node: constants
become constants, and shape computations become index expressions, written as a `SymbolicTensor` only if a node reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from taskc.importer.problems import LearnedBound, NodeProblem
from taskc.ir.dtype import DType, from_numpy
from taskc.ir.expr import Binary, Expr, Index, Var
from taskc.ir.graph import Array, Graph, Node, Op, OpError, TensorType
from taskc.ir.reference import run_reference
from taskc.ops.fill import SymbolicTensor

KNOWN_LIMIT = 4096  # elements of a value that is computed while reading
_FOLD_FROM_LIMIT = 1 << 20  # elements of all constants that such a computation may read


@dataclass
class Builder:
    """Grows a graph. Value names are unique; `source` labels new nodes with the user's node."""

    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    known: dict[str, Array] = field(default_factory=dict[str, Array])  # object arrays of index expressions
    nodes: list[Node] = field(default_factory=list[Node])
    taken: dict[str, int] = field(default_factory=dict[str, int])
    made: dict[str, str] = field(default_factory=dict[str, str])  # known value -> the value that holds it at run time
    source: str = ""
    stem: str = "value"

    def fresh(self, stem: str) -> str:
        """`stem`, or a numbered variant when it is taken."""
        n, name = self.taken.get(stem, 0), stem
        while n and (name := f"{stem}/{n}") in self.taken:
            n += 1
        self.taken[stem] = n + 1
        self.taken.setdefault(name, 1)
        return name

    def contents(self, value: str) -> Array | None:
        return self.constants.get(value, self.known.get(value))

    def constant(self, array: Array, dtype: DType | None = None, stem: str = "") -> str:
        """A value with fixed bytes; `dtype` is needed for bfloat16 bits only."""
        kind = dtype or from_numpy(array.dtype)
        if kind is None:
            raise NodeProblem(f"a constant of type {array.dtype} is not handled", bad=False)
        name = self.fresh(stem or f"{self.stem}/const")
        self.types[name] = TensorType(kind, tuple(array.shape))
        self.constants[name] = array
        return name

    def indices(self, values: Array, dtype: DType, stem: str = "") -> str:
        """A value known as index expressions; one of plain ints is a constant."""
        if not any(isinstance(v, Expr) for v in values.flat):
            return self.constant(values.astype(dtype.numpy), dtype, stem)
        name = self.fresh(stem or f"{self.stem}/dims")
        self.types[name] = TensorType(dtype, tuple(values.shape))
        self.known[name] = values
        return name

    def add(self, op: Op, inputs: Sequence[str]) -> tuple[str, ...]:
        """The outputs of a new node, or of a computation done now."""
        ins = [self.types[i] if i else None for i in inputs]
        outs = self._infer(op, ins)
        done = self._compute(op, inputs, ins, outs)
        if done is not None:
            return tuple(self.indices(a, t.dtype, self.stem) if a.dtype == object else self.constant(a, t.dtype, self.stem)
                         for a, t in zip(done, outs, strict=True))
        ready = tuple(self.at_run_time(i) for i in inputs)
        names = tuple(self.fresh(self.stem) for _ in outs)
        self.types.update(zip(names, outs, strict=True))
        self.nodes.append(Node(op, ready, names, self.source))
        return names

    def _infer(self, op: Op, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        try:
            outs = op.infer(ins)
        except OpError as error:
            _learn([d for t in ins if t for d in t.shape] + [d for v in vars(op).values() for d in _flat(v)])
            symbolic = any(isinstance(d, Expr) for t in ins if t for d in t.shape)
            hint = "; fix symbolic dims with --dim NAME=SIZE" if symbolic else ""
            raise NodeProblem(f"{error}{hint}", bad=not symbolic) from None
        for t in outs:
            if any(isinstance(d, int) and d < 0 for d in t.shape):
                raise NodeProblem(f"its output would have a negative dim: {list(t.shape)}", bad=True)
            if prod(max(d, 1) for d in t.shape if isinstance(d, int)) >= 1 << 48:
                raise NodeProblem(f"its output of shape {list(t.shape)} is impossibly large", bad=True)
        return outs

    def _compute(self, op: Op, inputs: Sequence[str], ins: Sequence[TensorType | None],
                 outs: Sequence[TensorType]) -> tuple[Array, ...] | None:
        """The outputs' contents where they are small and everything they depend on is known."""
        arrays = [self.contents(i) if i else None for i in inputs]
        if any(i and a is None for i, a in zip(inputs, arrays, strict=True)):
            return None
        if any(isinstance(d, Expr) for t in outs for d in t.shape) or sum(prod(_ints(t)) for t in outs) > KNOWN_LIMIT:
            return None
        if sum(a.size for a in arrays if a is not None) > _FOLD_FROM_LIMIT:
            return None
        try:
            return tuple(_settle(a, t) for a, t in zip(run_reference(op, arrays, ins, outs), outs, strict=True))
        except (OpError, TypeError):  # a symbol where the operator needs a number: computed at run time
            if any(a is not None and a.dtype == object for a in arrays) or _has_symbols(op):
                return None
            raise

    def at_run_time(self, value: str) -> str:
        """The value as one that exists at run time: known index expressions are written by a node."""
        if value not in self.known:
            return value
        if value not in self.made:
            t, values = self.types[value], self.known[value]
            name = self.fresh(f"{value}/written")
            op = SymbolicTensor(tuple(values.ravel().tolist()), tuple(values.shape), t.dtype)
            self.types[name] = t
            self.nodes.append(Node(op, (), (name,), self.source))
            self.made[value] = name
        return self.made[value]

    def rename(self, old: str, new: str, since: int) -> str:
        """Gives a value made by the nodes from position `since` on the user's name for it, if that is free."""
        if new in self.taken or not any(old in n.outputs for n in self.nodes[since:]):
            return old
        self.taken[new] = 1
        self.nodes[since:] = [replace(n, inputs=tuple(new if i == old else i for i in n.inputs),
                                      outputs=tuple(new if o == old else o for o in n.outputs)) for n in self.nodes[since:]]
        self.types[new] = self.types.pop(old)
        return new

    def graph(self, name: str, inputs: tuple[str, ...], outputs: tuple[tuple[str, str], ...]) -> Graph:
        """The finished graph; nodes that no output needs are dropped."""
        needed = {v for _, v in outputs}
        kept: list[Node] = []
        for n in reversed(self.nodes):
            if needed.intersection(n.outputs):
                kept.append(n)
                needed.update(n.inputs)
        whole = Graph(name, inputs, outputs, (), self.types, self.constants)
        return whole.with_nodes(reversed(kept))


def _ints(t: TensorType) -> list[int]:
    return [d for d in t.shape if isinstance(d, int)]


def _flat(v: Any) -> list[Any]:
    """A field's value, or its elements where it is a tuple."""
    return [x for item in v for x in _flat(item)] if isinstance(v, tuple) else [v]  # pyright: ignore[reportUnknownVariableType]


def _has_symbols(op: Op) -> bool:
    return any(isinstance(x, Expr) for v in vars(op).values() for x in _flat(v))


def _learn(dims: Sequence[Any]) -> None:
    """Shapes did not fit, and min(64, s) is among them beside s: a table of 64 rows was cut to s rows, so s is at most 64."""
    for d in dims:
        if isinstance(d, Binary) and d.op == "min":
            number, symbol = (d.a, d.b) if isinstance(d.a, int) else (d.b, d.a)
            if isinstance(number, int) and isinstance(symbol, Var) and symbol in dims:
                raise LearnedBound(symbol.name, number)


def _settle(a: Array, t: TensorType) -> Array:
    """An object array without expressions becomes a plain one; a wrong shape would be a defect of the operator."""
    if tuple(a.shape) != tuple(t.shape):
        raise AssertionError(f"reference gives shape {list(a.shape)}, inferred {t}")
    if a.dtype != object:
        return a
    flat: list[Index] = [v if isinstance(v, Expr) else int(v) for v in a.ravel().tolist()]
    if any(isinstance(v, Expr) for v in flat):
        out = np.empty(len(flat), object)
        out[:] = flat
        return out.reshape(a.shape)
    return np.array(flat, t.dtype.numpy).reshape(a.shape)
