"""Elementwise operators: one scalar function over broadcast inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.dtype import BOOL
from taskc.ir.functions import FUNCTIONS
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Tensor, call
from taskc.ops.broadcast import broadcast_load, broadcast_shapes
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Elementwise(Op):
    """out[i] = function(inputs[i] …); the inputs broadcast. All inputs have one dtype (`where`: a bool and two alike)."""

    function: str

    @property
    def name(self) -> str:
        return self.function

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        f = FUNCTIONS[self.function]
        given = [t for t in ins if t is not None]
        if len(given) != f.arity:
            raise OpError(f"{self.function} takes {f.arity} inputs, got {len(given)}")
        alike = given[1:] if self.function == "where" else given
        if len({t.dtype for t in alike}) > 1:
            raise OpError(f"inputs have different dtypes: {', '.join(str(t.dtype) for t in alike)}")
        dtype = BOOL if f.result == "bool" else alike[-1].dtype
        return (TensorType(dtype, broadcast_shapes(*(t.shape for t in given))),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            out = np.asarray(FUNCTIONS[self.function].meaning(*ins))
        last = np.asarray(ins[-1])
        keep = FUNCTIONS[self.function].result == "bool" or out.dtype == object
        return (out if keep else out.astype(last.dtype, copy=False),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        value = call(self.function, *(broadcast_load(t, index) for t in ins if t is not None))
        return Map(axes, (Store(outs[0], index, value),))


_SAME = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf",
    "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Neg": "neg", "Abs": "abs", "Floor": "floor", "Ceil": "ceil",
}


def _register(onnx_name: str, function: str) -> None:
    @onnx_reader(onnx_name)
    def _(r: Reading) -> str:  # pyright: ignore[reportUnusedFunction]
        return r.add(Elementwise(function), *r.inputs)


for _onnx, _function in _SAME.items():
    _register(_onnx, _function)


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((3, 5, 7)).astype(np.float32)
    row = rng.standard_normal(7).astype(np.float32)
    return [
        Example(Elementwise("add"), (x, row), "row broadcast"),
        Example(Elementwise("mul"), (x.astype(np.float16), row[:1].astype(np.float16)), "one element, float16"),
        Example(Elementwise("relu"), (np.array([np.nan, -2, 3, -0.0], np.float32),), "NaN stays"),
        Example(Elementwise("where"), (x > 0, x, row), "where"),
        Example(Elementwise("div"), (np.array([7, -7, 9], np.int64), np.array([2, 2, -4], np.int64)), "truncates"),
    ]


