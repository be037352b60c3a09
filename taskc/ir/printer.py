"""Graphs, tasks and values as text for people: dumps, `taskc explain`, messages."""

from __future__ import annotations

from collections.abc import Sequence

from taskc.ir.graph import Graph
from taskc.ir.task import Attention, Axis, Contraction, Map, Rows, Store, Task
from taskc.ir.value import Call, Cast, Choose, Const, Element, Guard, Hole, Let, Load, Number, Reduce, Tensor, Value

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "and": "and", "or": "or"}


def graph_text(g: Graph) -> str:
    """One line a node."""
    lines = [f"graph {g.name}"]
    lines += [f"  input  {v}: {g.types[v]}" for v in g.inputs]
    lines += [f"  weight {v}: {g.types[v]}" for v in g.constants]
    for n in g.nodes:
        outs = ", ".join(f"{o}: {g.types[o]}" for o in n.outputs)
        lines.append(f"  {outs} = {n.op}({', '.join(i or '-' for i in n.inputs)})  # {n.source}")
    return "\n".join(lines + [f"  output {name} = {v}" for name, v in g.outputs]) + "\n"


def task_text(t: Task) -> str:
    """A task as a scalar definition."""
    lines: list[str] = []
    if isinstance(t, Map):
        lines.append(f"map {_axes(t.axes)}")
    elif isinstance(t, Contraction):
        lines.append(f"contraction {_axes((t.batch, t.m, t.n, t.k))} of {t.operand} summed in {t.accumulate}")
        lines += [f"  a = {value_text(t.a)}", f"  b = {value_text(t.b)}"]
    elif isinstance(t, Rows):
        lines.append(f"rows {_axes((t.row, t.column))}")
        lines.append(f"  x = {value_text(t.x)}")
        for i, s in enumerate(t.statistics):
            finish = "" if s.finish is None else f", then {value_text(s.finish)}"
            lines.append(f"  s{i} = {s.kind} over {t.column.var} of {value_text(s.value)}{finish}")
    else:
        assert isinstance(t, Attention)
        lines.append(f"attention {_axes((t.batch, t.m, t.j, t.k, t.n))} scale {t.scale} of {t.operand}")
        lines += [f"  {name} = {value_text(v)}" for name, v in (("q", t.q), ("key", t.key), ("v", t.v))]
        lines += [f"  bias = {value_text(t.bias)}"] if t.bias is not None else []
        lines += [f"  only where {m} > 0" for m in t.mask]
    return "\n".join(lines + [f"  {store_text(s)}" for s in t.stores]) + "\n"


def store_text(s: Store) -> str:
    return f"{tensor_text(s.tensor)}[{', '.join(map(str, s.index))}] = {value_text(s.value)}"


def tensor_text(t: Tensor) -> str:
    return f"{t.name}:{t.dtype}[{'x'.join(map(str, t.shape))}]"


def _axes(axes: Sequence[Axis]) -> str:
    return " ".join(f"{a.var}<{a.extent}" for a in axes)


def value_text(v: Value) -> str:
    """A value as an expression."""
    if isinstance(v, Load):
        return f"{v.tensor.name}[{', '.join(map(str, v.index))}]"
    if isinstance(v, Const):
        return str(v.value)
    if isinstance(v, Number):
        return str(v.index)
    if isinstance(v, Call):
        args = [value_text(a) for a in v.args]
        return f"({args[0]} {_INFIX[v.function]} {args[1]})" if v.function in _INFIX else f"{v.function}({', '.join(args)})"
    if isinstance(v, Cast):
        return f"{v.to}({value_text(v.value)})"
    if isinstance(v, Guard):
        return f"[{' and '.join(f'{c} > 0' for c in v.conditions)}: {value_text(v.value)}]"
    if isinstance(v, Choose):
        return f"({value_text(v.yes)} if {v.condition} > 0 else {value_text(v.no)})"
    if isinstance(v, Let):
        return f"(let {v.var} = {value_text(v.value)} in {value_text(v.body)})"
    if isinstance(v, Reduce):
        over = ", ".join(f"{a}<{e}" for a, e in zip(v.axes, v.extents, strict=True))
        return f"{v.kind}({over}: {value_text(v.body)})"
    if isinstance(v, Hole):
        return v.name
    assert isinstance(v, Element)
    return f"{v.buffer}[{v.offset}]"
