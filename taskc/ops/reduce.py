"""Reductions over axes: sums, means, extremes, products and norms, as statistics of rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod as int_prod

import numpy as np

from taskc.ir.arithmetic import maximum, minimum
from taskc.ir.dtype import BOOL, U8, DType
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Rows, Statistic, Store
from taskc.ir.value import Cast, Const, Dim, Hole, Tensor, Value, call
from taskc.ops.constants import widened
from taskc.ops.known import known_ints
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.rows import mean_of, normal_axes, split_rows


def _as_is(x: Value) -> Value:
    return x


def _square(x: Value) -> Value:
    return call("mul", x, x)


def _of(function: str) -> Callable[[Value], Value]:
    def f(x: Value) -> Value:
        return call(function, x)

    return f


@dataclass(frozen=True)
class Kind:
    """statistic `over` of `before(x)`, then `after`; log-sum-exp and mean do more."""

    over: str
    before: Callable[[Value], Value] = _as_is
    after: Callable[[Value], Value] | None = None
    floats_only: bool = False


KINDS: dict[str, Kind] = {
    "sum": Kind("sum"), "mean": Kind("sum"), "max": Kind("max"), "min": Kind("min"), "prod": Kind("prod"),
    "l1": Kind("sum", _of("abs")), "l2": Kind("sum", _square, _of("sqrt"), floats_only=True),
    "sum_square": Kind("sum", _square),
    "log_sum": Kind("sum", _as_is, _of("log"), floats_only=True), "log_sum_exp": Kind("sum", floats_only=True),
}


@dataclass(frozen=True)
class Reduce(Op):
    """`kind` of `KINDS` over `axes` (ascending, not negative); no axes: every element is a row of its own."""

    kind: str
    axes: tuple[int, ...]
    keepdims: bool = True

    @property
    def name(self) -> str:
        return f"reduce_{self.kind}"

    def _shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        if self.keepdims:
            return tuple(1 if d in self.axes else e for d, e in enumerate(shape))
        return tuple(e for d, e in enumerate(shape) if d not in self.axes)

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        x = ins[0]
        if x is None:
            raise OpError("a reduction takes one input")
        if normal_axes(self.axes, x.rank) != self.axes:
            raise OpError(f"axes {list(self.axes)} are not ascending")
        if KINDS[self.kind].floats_only and not x.dtype.is_float:
            raise OpError(f"{self.name} is for floats, got {x.dtype}")
        if x.dtype == BOOL and self.kind not in ("max", "min"):
            raise OpError(f"{self.name} does not take bools")
        return (TensorType(x.dtype, self._shape(x.shape)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        x = np.asarray(ins[0])
        shape = tuple(s for s in self._shape(x.shape) if isinstance(s, int))
        with np.errstate(all="ignore"):
            out = np.asarray(self._objects(x) if x.dtype == object else self._numbers(widened(x)))
        return (out.astype(x.dtype).reshape(shape),)

    def _numbers(self, x: Array) -> Array:
        axes, n = self.axes, int_prod(x.shape[d] for d in self.axes)
        if self.kind == "log_sum_exp":
            top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
            top = np.where(np.isinf(top), 0, top)
            return np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True)) + top
        if self.kind == "mean":
            total = np.sum(x, axis=axes, dtype=x.dtype)
            return total / n if x.dtype.kind == "f" else np.asarray(np.trunc(total / max(n, 1)))
        plain: dict[str, Callable[[], Array]] = {
            "sum": lambda: np.sum(x, axis=axes, dtype=x.dtype), "prod": lambda: np.prod(x, axis=axes, dtype=x.dtype),
            "max": lambda: np.max(x, axis=axes), "min": lambda: np.min(x, axis=axes),
            "l1": lambda: np.sum(np.abs(x), axis=axes), "l2": lambda: np.sqrt(np.sum(x * x, axis=axes)),
            "sum_square": lambda: np.sum(x * x, axis=axes, dtype=x.dtype),
            "log_sum": lambda: np.log(np.sum(x, axis=axes)),
        }
        return plain[self.kind]()

    def _objects(self, x: Array) -> Array:
        """Index expressions: the kinds that shape computations use."""
        step: dict[str, Callable[..., object]] = {
            "sum": operator.add, "prod": operator.mul, "max": maximum, "min": minimum}
        if self.kind not in step:
            raise OpError(f"{self.name} of symbolic sizes")
        for a in reversed(self.axes):
            x = np.asarray(np.frompyfunc(step[self.kind], 2, 1).reduce(x, axis=a), dtype=object)
        return x

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Rows:
        x, out = ins[0], outs[0]
        assert x is not None
        s, kind = split_rows(x.shape, self.axes), KINDS[self.kind]
        value: Value = x.at(*s.index)
        if x.dtype == BOOL:
            value = Cast(value, U8)
        dtype = value.dtype
        statistics, result = _statistics(self.kind, kind, dtype, s.column.extent)
        if x.dtype == BOOL:
            result = Cast(result, BOOL)
        at = s.kept if self.keepdims else tuple(i for d, i in enumerate(s.kept) if d not in self.axes)
        return Rows(s.row, s.column, value, statistics, row_stores=(Store(out, at, result),))


def _statistics(name: str, kind: Kind, dtype: DType, columns: Dim) -> tuple[tuple[Statistic, ...], Value]:
    """The statistics of a row and the value made of them."""
    x, s = Hole("x", dtype), Hole("s", dtype)
    if name == "log_sum_exp":  # the maximum is taken out, unless it is infinite
        top = Statistic("max", x, call("where", call("isinf", s), Const(0.0, dtype), s))
        total = Statistic("sum", call("exp", call("sub", x, Hole("s0", dtype))), call("log", s))
        return (top, total), call("add", Hole("s1", dtype), Hole("s0", dtype))
    finish = mean_of(columns, dtype) if name == "mean" else kind.after(s) if kind.after else None
    return (Statistic(kind.over, kind.before(x), finish),), Hole("s0", dtype)


def _axes(r: Reading) -> tuple[int, ...]:
    """The axes of a reduction node: an attribute or an input; none means all, unless noop_with_empty_axes is set."""
    rank = r.type(r.inputs[0]).rank
    axes = r.ints("axes", ())
    if r.has_input(1):
        axes = known_ints(r, 1, "list of axes")
    if not axes:
        return () if r.int_("noop_with_empty_axes", 0) else tuple(range(rank))
    try:
        return normal_axes(axes, rank)
    except OpError as e:
        r.bad(str(e))


def _register(onnx_name: str, kind: str) -> None:
    @onnx_reader(onnx_name)
    def _(r: Reading) -> str:  # pyright: ignore[reportUnusedFunction]
        axes = _axes(r)
        if not axes and kind in ("sum", "mean", "max", "min", "prod"):
            return r.inputs[0]
        return r.add(Reduce(kind, axes, bool(r.int_("keepdims", 1))), r.inputs[0])


for _onnx, _kind in {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceSumSquare": "sum_square", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}.items():
    _register(_onnx, _kind)


def _read_global(r: Reading, kind: str) -> str:
    rank = r.type(r.inputs[0]).rank
    if rank < 3:
        r.bad(f"the input has rank {rank}; global pooling needs a batch, channels and at least one spatial dim")
    return r.add(Reduce(kind, tuple(range(2, rank))), r.inputs[0])


@onnx_reader("GlobalAveragePool")
def _read_global_average(r: Reading) -> str:
    return _read_global(r, "mean")


@onnx_reader("GlobalMaxPool")
def _read_global_max(r: Reading) -> str:
    return _read_global(r, "max")


@onnx_reader("GlobalLpPool", since=2)
def _read_global_lp(r: Reading) -> str:
    p = r.int_("p", 2)
    if p not in (1, 2):
        r.unsupported(f"p = {p}; 1 and 2 are handled")
    return _read_global(r, f"l{p}")


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(23)
    x = rng.standard_normal((3, 5, 2, 7)).astype(np.float32)
    holed: Array = np.array(x)
    holed[1, 2, 1, 3] = np.nan
    low = np.array([[-np.inf, -np.inf, -np.inf], [1, np.inf, 2], [90, 91, -np.inf]], np.float32)
    whole = rng.integers(-9, 9, (4, 3)).astype(np.int64)
    floats = [Example(Reduce(k, (1, 3), keepdims=k != "max"), (np.abs(x) + 1 if k == "log_sum" else x,), k)
              for k in KINDS]
    return [
        *floats,
        Example(Reduce("max", (0, 2)), (holed,), "NaN wins"),
        Example(Reduce("mean", (3,), keepdims=False), (x.astype(np.float16),), "float16"),
        Example(Reduce("log_sum_exp", (1,)), (low,), "infinities"),
        Example(Reduce("sum_square", ()), (x,), "no axes"),
        Example(Reduce("mean", (0,)), (whole,), "integers truncate"),
        Example(Reduce("prod", (1,), keepdims=False), (whole,), "integers"),
        Example(Reduce("min", (1,)), (whole > 0,), "bools"),
        Example(Reduce("sum", (0, 1, 2, 3), keepdims=False), (x,), "to a scalar"),
    ]
