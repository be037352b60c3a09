"""Index of the largest or smallest element along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.dtype import I64
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Rows, Statistic, Store
from taskc.ir.value import Hole, Tensor, Value, call
from taskc.ops.constants import number
from taskc.ops.known import normal_axis, plain_integers
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.rows import split_rows


@dataclass(frozen=True)
class ArgExtreme(Op):
    """x -> index (int64) along `axis` of its 'max' or 'min': the first of equals, or the `last`; NaN wins."""

    kind: str
    axis: int
    keepdims: bool = True
    last: bool = False

    @property
    def name(self) -> str:
        return f"arg{self.kind}"

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None or not 0 <= self.axis < x.rank or x.dtype.kind == "bool":
            raise OpError(f"{self.name} along axis {self.axis} does not fit {x}")
        return (TensorType(I64, (*x.shape[: self.axis], *(1,) * self.keepdims, *x.shape[self.axis + 1 :])),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x = plain_integers(np.asarray(ins[0]))
        find = np.argmax if self.kind == "max" else np.argmin
        x = np.flip(x, self.axis) if self.last else x
        out = np.asarray(find(x, axis=self.axis, keepdims=self.keepdims), np.int64)
        return (x.shape[self.axis] - 1 - out if self.last else out,)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Rows:
        x = ins[0]
        assert x is not None
        s, extent = split_rows(x.shape, (self.axis,)), x.shape[self.axis]
        index = list(s.index)
        found: Value = Hole("s0", I64)
        if self.last:  # the first from the end
            index[self.axis] = extent - 1 - s.column.var
            found = call("sub", number(extent - 1, I64), found)
        at = s.kept if self.keepdims else (*s.kept[: self.axis], *s.kept[self.axis + 1 :])
        return Rows(s.row, s.column, x.at(*index), (Statistic(f"arg{self.kind}", Hole("x", x.dtype.compute)),),
                    row_stores=(Store(outs[0], at, found),))


def _read(r: Reading, kind: str) -> str:
    axis = normal_axis(r, r.int_("axis", 0), r.type(r.inputs[0]).rank)
    return r.add(ArgExtreme(kind, axis, bool(r.int_("keepdims", 1)), bool(r.int_("select_last_index", 0))), r.inputs[0])


@onnx_reader("ArgMax")
def _read_argmax(r: Reading) -> str:
    return _read(r, "max")


@onnx_reader("ArgMin")
def _read_argmin(r: Reading) -> str:
    return _read(r, "min")


@onnx_reader("TopK")
def _refuse_top_k(r: Reading) -> str:
    r.unsupported("sorting (TopK); ArgMax and ArgMin are handled")


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(43)
    whole = rng.integers(0, 4, (3, 9, 5)).astype(np.int32)  # few values, so that equals occur
    x = rng.standard_normal((4, 7)).astype(np.float32)
    x[1, 3] = np.nan
    return [
        Example(ArgExtreme("max", 1), (whole,), "first of equals"),
        Example(ArgExtreme("max", 1, last=True), (whole,), "last of equals"),
        Example(ArgExtreme("min", 2, keepdims=False), (whole,), "min"),
        Example(ArgExtreme("min", 0, keepdims=False, last=True), (whole.astype(np.float16),), "last, float16"),
        Example(ArgExtreme("max", 1), (x,), "NaN wins"),
    ]
