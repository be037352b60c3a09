"""What several rules ask of a node: its constant operand, and whether a constant fits along a channel axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskc.ir.graph import Array, Node
from taskc.ops.elementwise import Elementwise
from taskc.passes.editor import Editor

COMMUTATIVE = ("add", "mul", "min", "max")


@dataclass(frozen=True)
class WithConstant:
    """node = function(value, constant); for commutative functions in either order."""

    node: Node
    function: str
    value: str
    constant: str


def with_constant(e: Editor, n: Node | None, *functions: str) -> WithConstant | None:
    """The node as a binary function of a value and a constant, if it is one of `functions`."""
    if n is None or not isinstance(n.op, Elementwise) or n.op.function not in functions or len(n.inputs) != 2:
        return None
    if n.op.to is not None:  # operands of two types: the rules build nodes of one
        return None
    a, b = n.inputs
    if e.stored(b) is not None and e.stored(a) is None:
        return WithConstant(n, n.op.function, a, b)
    if n.op.function in COMMUTATIVE and e.stored(a) is not None and e.stored(b) is None:
        return WithConstant(n, n.op.function, b, a)
    return None


def along_axis(constant: Array, rank: int, axis: int) -> Array | None:
    """The constant as a vector along one axis of a tensor of `rank` that it broadcasts to; None where it is no such vector."""
    if constant.ndim > rank:
        return None
    wide = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    return wide.reshape(-1) if all(d == 1 or k == axis % rank for k, d in enumerate(wide.shape)) else None


def is_ordinary(values: Array) -> bool:
    """Whether float values are finite and neither subnormal in float32 nor lost."""
    v = np.abs(np.asarray(values, np.float64))
    return bool(np.all(np.isfinite(v)) and np.all((v == 0) | (v > 1e-30)) and np.all(v < 1e30))
