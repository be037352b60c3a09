"""Graph -> units: one task a unit, over tensors whose dims are ints or variables; what partition groups.

Dims that are sums or quotients of symbols become variables of their own (`Units.derived` defines them), so that kernels see
atoms. A Concat becomes one unit an input, each writing its part of the result, so that each part can join its producer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from taskc.errors import Unsupported
from taskc.ir.convert import values_of
from taskc.ir.dtype import F32
from taskc.ir.expr import Expr, Index, Product, Sum, Var, linear, prod
from taskc.ir.facts import bounds, divisor
from taskc.ir.graph import Graph, Node, OpError
from taskc.ir.task import Contraction, Map, Store, Task, axis, map_values
from taskc.ir.value import Const, Dim, Load, Tensor, Value, rewrite
from taskc.ops.concat import Concat


@dataclass(frozen=True)
class Unit:
    """A task and the user's nodes it computes. `joined` tells what fusion put in, `refused` what it did not and why."""

    task: Task
    source: tuple[str, ...]
    joined: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass
class Tensors:
    """Makes the tensors of a graph's values; `derived` maps the variables made for compound dims to what they are."""

    graph: Graph
    derived: dict[str, Index] = field(default_factory=dict[str, Index])

    def of(self, value: str) -> Tensor:
        t = self.graph.types[value]
        return Tensor(value, t.dtype, tuple(self.dim(d) for d in t.shape), value in self.graph.constants)

    def dim(self, d: Dim) -> Dim:
        """An int, a variable, or a product of those."""
        if isinstance(d, (int, Var)):
            return d
        if isinstance(d, Product):
            return prod([self.dim(f) for f in d.factors])
        if isinstance(d, Sum) and not d.const and len(d.terms) == 1:
            ((atom, k),) = linear(d)[0].values()
            return self.dim(atom) * k
        return self._variable(d)

    def _variable(self, d: Expr) -> Var:
        name = "d" + hashlib.sha256(d.key.encode()).hexdigest()[:8]
        self.derived[name] = d
        lo, hi = bounds(d)
        return Var(name, max(1, lo or 1), hi, max(1, divisor(d)))


def make_units(graph: Graph, precision: str = "native") -> tuple[list[Unit], Mapping[str, Index]]:
    """(units in execution order, definitions of derived dims). Raises Unsupported with every node that has no task.

    `precision` is that of float32 contractions: 'native' or 'tf32'."""
    tensors = Tensors(graph)
    units: list[Unit] = []
    problems: list[str] = []
    for node in graph.nodes:
        try:
            units += _units_of(node, tensors)
        except OpError as e:
            problems.append(f"node {node.source or node.outputs[0]} ({node.op.name}): {e}")
    if problems:
        raise Unsupported("these nodes cannot be compiled:\n  " + "\n  ".join(problems))
    return [_with_precision(u, precision) for u in units], tensors.derived


def _with_precision(unit: Unit, precision: str) -> Unit:
    task = unit.task
    return replace(unit, task=replace(task, precision=precision)) if isinstance(task, Contraction) and task.operand == F32 else unit


def _units_of(node: Node, tensors: Tensors) -> list[Unit]:
    ins = [tensors.of(i) if i else None for i in node.inputs]
    outs = [tensors.of(o) for o in node.outputs]
    source = (node.source or node.outputs[0],)
    if isinstance(node.op, Concat):
        return [Unit(t, source) for t in _parts(node.op, [t for t in ins if t is not None], outs[0])]
    return [Unit(_with_numbers(node.op.task(ins, outs), tensors), source)]


def _with_numbers(task: Task, tensors: Tensors) -> Task:
    """The task with constants of one element written into it: no load, and the compiler sees the number."""

    def number(v: Value) -> Value | None:
        if not (isinstance(v, Load) and v.tensor.constant and all(d == 1 for d in v.tensor.shape)):
            return None
        return Const(values_of(tensors.graph.constants[v.tensor.name], v.tensor.dtype).reshape(-1)[0].item(), v.dtype)

    return map_values(task, lambda v: rewrite(v, number))


def _parts(op: Concat, ins: Sequence[Tensor], out: Tensor) -> list[Task]:
    """One Map an input of a Concat, writing its part of the output."""
    tasks: list[Task] = []
    start: Index = 0
    at = op.axis % len(out.shape)
    for t in ins:
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(t.shape))
        index = [a.var for a in axes]
        place: list[Index] = list(index)
        place[at] = index[at] + start
        tasks.append(Map(axes, (Store(out, tuple(place), t.at(*index)),)))
        start = start + t.shape[at]
    return tasks


def with_source(unit: Unit, other: Unit, what: str) -> Unit:
    """The unit with another's nodes counted in."""
    return replace(unit, source=tuple(dict.fromkeys((*unit.source, *other.source))), joined=(*unit.joined, what, *other.joined))


