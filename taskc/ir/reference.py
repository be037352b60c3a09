"""Operators run by their NumPy references: one node on stored arrays, and symbols bound to numbers in an operator's fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from taskc.ir.convert import stored_as, values_of
from taskc.ir.evaluation import evaluate, substitute
from taskc.ir.expr import Expr
from taskc.ir.graph import Array, Graph, Op, TensorType


def run_reference(op: Op, ins: Sequence[Array | None], in_types: Sequence[TensorType | None],
                  out_types: Sequence[TensorType]) -> tuple[Array, ...]:
    """The op on stored arrays (bfloat16 as bits) -> stored arrays of the outputs' types.

    Object arrays of index expressions go in and come out as they are; where the op cannot decide, it raises OpError."""
    values = [None if a is None or t is None else values_of(a, t.dtype) if a.dtype != object else a
              for a, t in zip(ins, in_types, strict=True)]
    if any(v is not None and v.dtype == object for v in values):
        values = [v if v is None or v.dtype.kind not in "iu" else v.astype(object) for v in values]
    outs = op.reference(*values)
    return tuple(np.asarray(o) if np.asarray(o).dtype == object else stored_as(np.asarray(o), t.dtype)
                 for o, t in zip(outs, out_types, strict=True))


def bind_op(op: Op, symbols: Mapping[str, int]) -> Op:
    """The operator with every symbol in its fields replaced by a number. KeyError names a symbol without one."""
    changes = {f.name: new for f in fields(cast(Any, op)) if (new := _bound(old := getattr(op, f.name), symbols)) is not old}
    return cast(Op, replace(cast(Any, op), **changes)) if changes else op


def _bound(value: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(value, Expr):
        return evaluate(value, symbols)
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        new = tuple(_bound(v, symbols) for v in items)
        return new if any(a is not b for a, b in zip(new, items, strict=True)) else items
    return value


def bind_type(t: TensorType, symbols: Mapping[str, int]) -> TensorType:
    return TensorType(t.dtype, tuple(substitute(d, dict(symbols)) for d in t.shape))


def bind_graph(graph: Graph, symbols: Mapping[str, int]) -> Graph:
    """The graph at fixed sizes of its symbols."""
    nodes = tuple(replace(n, op=bind_op(n.op, symbols)) for n in graph.nodes)
    return replace(graph, nodes=nodes, types={k: bind_type(t, symbols) for k, t in graph.types.items()})
