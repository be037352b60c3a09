"""What a template may ask about a task's values: how they lie in memory."""

from __future__ import annotations

from taskc.ir.evaluation import substitute
from taskc.ir.expr import Var, linear
from taskc.ir.facts import variables
from taskc.ir.task import Axis
from taskc.ir.value import Guard, Load, Value, is_view, loads, walk


def first_load(v: Value) -> Load | None:
    """The load that a tile of the value is made of: that of highest rank, the first of several; None without loads."""
    return max((load for load, _ in loads(v)), key=lambda x: len(x.tensor.shape), default=None)


def lies_along(v: Value, a: Axis) -> bool:
    """Whether neighbours along the axis are neighbours in memory, at least where the axis begins (an image's rows end)."""
    load = first_load(v)
    if load is None:
        return False
    address = load.tensor.address(load.index)
    return substitute(address, {a.var.name: 1}) - substitute(address, {a.var.name: 0}) == 1


def is_plain(v: Value, a: Axis) -> bool:
    """Whether the value is a load whose index along the axis is the axis itself: no window, no padding, no digits of it."""
    load = first_load(v)
    if load is None or not is_view(v) or any(isinstance(x, Guard) for x in walk(v)):
        return False
    terms = [t for i in load.index for t, _ in linear(i)[0].values()]
    return all(isinstance(t, Var) or a.var.name not in variables(t) for t in terms)
