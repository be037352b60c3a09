"""Indices from data: Gather, GatherElements, GatherND, OneHot. Negative indices count from the end.

An index outside of its dim is undefined in ONNX; here it is clamped, so that hostile data never reads outside of a tensor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir import value
from taskc.ir.dtype import I64
from taskc.ir.expr import Var, prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Dim, Let, Load, Number, Tensor, Value, call
from taskc.ops.cast import Cast
from taskc.ops.known import known_ints, normal_axis, plain_integers
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.reshape import Reshape


def data_index(index: Value, dim: Dim) -> Value:
    """The index value counted from the front and clamped to 0 .. dim - 1, as int64."""
    wide = value.Cast(index, I64)
    whole = Number(dim, I64) if not isinstance(dim, int) else Const(dim, I64)
    last = Number(dim - 1, I64) if not isinstance(dim, int) else Const(max(dim - 1, 0), I64)
    zero = Const(0, I64)
    front = call("where", call("lt", wide, zero), call("add", wide, whole), wide)
    return call("min", call("max", front, zero), last)


def index_variable(out: Tensor, k: int, dim: Dim) -> Var:
    """The variable of the k-th index from data of a task; its name is that task's own, so that fused tasks do not clash."""
    return Var(f"at{k}_{re.sub(r'[^0-9A-Za-z]', '_', out.name)}", below=dim)


def _front(indices: Array, dim: int) -> Array:
    i = plain_integers(indices).astype(np.int64)
    return np.clip(np.where(i < 0, i + dim, i), 0, max(dim - 1, 0))


def _check_index(t: TensorType | None) -> TensorType:
    if t is None or not t.dtype.is_integer:
        raise OpError(f"indices must be integers, not {t}")
    return t


@dataclass(frozen=True)
class Gather(Op):
    """out[a…, i…, b…] = data[a…, indices[i…], b…] along dim `axis` (counted from the front)."""

    axis: int

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        data, indices = ins[0], _check_index(ins[1])
        if data is None or self.axis >= data.rank:
            raise OpError(f"dim {self.axis} does not exist in {data}")
        if data.shape[self.axis] == 0 and prod(indices.shape) != 0:
            raise OpError(f"dim {self.axis} of {data} is empty")
        return (TensorType(data.dtype, (*data.shape[: self.axis], *indices.shape, *data.shape[self.axis + 1 :])),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        data, indices = np.asarray(ins[0]), np.asarray(ins[1])
        return (np.take(data, _front(indices, data.shape[self.axis]), self.axis),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        data, indices = ins
        assert data is not None and indices is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        inner = self.axis + len(indices.shape)
        var, dim = index_variable(outs[0], 0, data.shape[self.axis]), data.shape[self.axis]
        body = data.at(*index[: self.axis], var, *index[inner:])
        return Map(axes, (Store(outs[0], index, Let(var, data_index(indices.at(*index[self.axis : inner]), dim), body)),))


@dataclass(frozen=True)
class GatherElements(Op):
    """out[…] = data with the index along `axis` replaced by indices[…]; out has the indices' shape."""

    axis: int

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        data, indices = ins[0], _check_index(ins[1])
        if data is None or data.rank != indices.rank or self.axis >= data.rank:
            raise OpError(f"indices {indices} do not fit {data}")
        for d, (have, want) in enumerate(zip(data.shape, indices.shape, strict=True)):
            if d != self.axis and isinstance(have, int) and isinstance(want, int) and want > have:
                raise OpError(f"indices {indices} reach outside of {data} in dim {d}")
            if d != self.axis and have != want and not (isinstance(have, int) and isinstance(want, int)):
                raise OpError(f"indices {indices} are not known to lie inside {data} in dim {d}")
        if data.shape[self.axis] == 0 and prod(indices.shape) != 0:
            raise OpError(f"dim {self.axis} of {data} is empty")
        return (TensorType(data.dtype, indices.shape),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        data, indices = np.asarray(ins[0]), np.asarray(ins[1])
        data = data[tuple(slice(None) if d == self.axis else slice(0, n) for d, n in enumerate(indices.shape))]
        return (np.take_along_axis(data, _front(indices, data.shape[self.axis]), self.axis),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        data, indices = ins
        assert data is not None and indices is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        dim = data.shape[self.axis]
        var = index_variable(outs[0], 0, dim)
        body = data.at(*index[: self.axis], var, *index[self.axis + 1 :])
        return Map(axes, (Store(outs[0], index, Let(var, data_index(indices.at(*index), dim), body)),))


@dataclass(frozen=True)
class GatherND(Op):
    """out[b…, i…, rest…] = data[b…, *indices[b…, i…, :], rest…], with `batch_dims` dims b."""

    batch_dims: int = 0

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        data, indices, b = ins[0], _check_index(ins[1]), self.batch_dims
        if data is None or not 0 <= b < min(data.rank, indices.rank):
            raise OpError(f"{b} batch dims do not fit {data} and {indices}")
        if data.shape[:b] != indices.shape[:b]:
            raise OpError(f"the batch dims of {data} and {indices} differ")
        depth = indices.shape[-1]
        if not isinstance(depth, int) or not 1 <= depth <= data.rank - b:
            raise OpError(f"index tuples of {depth} do not fit {data}")
        if prod(data.shape[b : b + depth]) == 0 and prod(indices.shape) != 0:
            raise OpError(f"{data} is empty")
        return (TensorType(data.dtype, (*indices.shape[:-1], *data.shape[b + depth :])),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        data, indices, b = np.asarray(ins[0]), np.asarray(ins[1]), self.batch_dims
        batch = np.indices(indices.shape[:-1], sparse=True)[:b]
        picks = tuple(_front(indices[..., k], data.shape[b + k]) for k in range(indices.shape[-1]))
        return (data[(*batch, *picks)],)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        data, indices = ins
        assert data is not None and indices is not None
        b, depth = self.batch_dims, indices.shape[-1]
        assert isinstance(depth, int)
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        lead = len(indices.shape) - 1
        picks = [index_variable(outs[0], k, data.shape[b + k]) for k in range(depth)]
        value: Value = data.at(*index[:b], *picks, *index[lead:])
        for k, var in enumerate(picks):
            value = Let(var, data_index(indices.at(*index[:lead], k), data.shape[b + k]), value)
        return Map(axes, (Store(outs[0], index, value),))


@dataclass(frozen=True)
class OneHot(Op):
    """A new dim `axis` of `depth`: values[1] where its index is the (int64) input's element, else values[0]."""

    axis: int
    depth: int

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        indices, values = ins
        if indices is None or values is None or values.shape != (2,) or self.axis > indices.rank:
            raise OpError(f"{indices} and {values} are not indices and [off, on] values")
        return (TensorType(values.dtype, (*indices.shape[: self.axis], self.depth, *indices.shape[self.axis :])),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        indices, values = plain_integers(np.asarray(ins[0])), np.asarray(ins[1])
        front = np.expand_dims(np.where(indices < 0, indices + self.depth, indices), self.axis)
        at = np.arange(self.depth).reshape([-1 if d == self.axis else 1 for d in range(front.ndim)])
        return (np.where(front == at, values[1], values[0]),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Map:
        indices, values = ins
        assert indices is not None and values is not None
        axes = tuple(axis(f"i{d}", e) for d, e in enumerate(outs[0].shape))
        index = tuple(a.var for a in axes)
        own: Load = indices.at(*index[: self.axis], *index[self.axis + 1 :])
        wide = value.Cast(own, I64)
        front = call("where", call("lt", wide, Const(0, I64)), call("add", wide, Const(self.depth, I64)), wide)
        hit = call("eq", front, Number(index[self.axis], I64))
        return Map(axes, (Store(outs[0], index, call("where", hit, values.at(1), values.at(0))),))


def _axis(r: Reading, default: int | None) -> int:
    return normal_axis(r, r.int_("axis", default), r.type(r.inputs[0]).rank)


@onnx_reader("Gather")
def _read_gather(r: Reading) -> str:
    """A single constant index of a single element is still a Gather: fusion sees its constant."""
    return r.add(Gather(_axis(r, 0)), *r.inputs)


@onnx_reader("GatherElements")
def _read_gather_elements(r: Reading) -> str:
    return r.add(GatherElements(_axis(r, 0)), *r.inputs)


@onnx_reader("GatherND")
def _read_gather_nd(r: Reading) -> str:
    return r.add(GatherND(r.int_("batch_dims", 0)), *r.inputs)


@onnx_reader("OneHot")
def _read_one_hot(r: Reading) -> str:
    (depth,) = known_ints(r, 1, "depth") if r.type(r.inputs[1]).dtype.is_integer else (int(_float_depth(r)),)
    if depth < 0:
        r.bad(f"its depth is {depth}")
    rank = r.type(r.inputs[0]).rank
    indices = r.inputs[0]
    if r.type(indices).dtype != I64:
        indices = r.add(Cast(I64), indices)
    return r.add(OneHot(normal_axis(r, r.int_("axis", -1), rank + 1), depth), indices, r.inputs[2])


def _float_depth(r: Reading) -> float:
    found = r.contents(r.inputs[1])
    if found is None or found.size != 1:
        r.unsupported("its depth depends on data; taskc needs it at compile time")
    return float(found.ravel()[0])


@onnx_reader("Compress")
def _read_compress(r: Reading) -> str:
    """Only with a condition known at compile time: then it is a Gather by constant indices."""
    condition = r.contents(r.inputs[1])
    if condition is None or condition.dtype == object:
        r.unsupported("the output's size depends on data")
    x, at = r.inputs[0], 0
    if r.has("axis"):
        at = _axis(r, None)
    else:
        x = r.add(Reshape((prod(r.type(x).shape),)), x)
    kept = np.flatnonzero(condition)
    dim = r.type(x).shape[at]
    if kept.size and isinstance(dim, int) and kept[-1] >= dim:
        r.bad(f"its condition of {condition.size} elements is longer than the dim of {dim}")
    return r.add(Gather(at), x, r.constant(kept.astype(np.int64)))


@onnx_reader("NonZero")
def _read_nonzero(r: Reading) -> str:
    found = r.contents(r.inputs[0])
    if found is None or found.dtype == object:
        r.unsupported("the output's size depends on data")
    return r.constant(np.array(np.nonzero(found), np.int64).reshape(found.ndim, -1))


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(19)
    x = rng.standard_normal((5, 7, 3)).astype(np.float32)
    wild = np.array([[-1, 2**40], [0, -(2**40)]], np.int64)
    pairs = np.array([[[4, 6], [-5, -7]], [[0, 9], [2, 3]]], np.int64)
    return [
        Example(Gather(1), (x, np.array([[6, -7], [0, 3]], np.int32)), "negative indices"),
        Example(Gather(0), (x, np.array(-2, np.int64)), "one index"),
        Example(Gather(2), (x, wild), "indices outside are clamped"),
        Example(Gather(0), (x, np.zeros((0,), np.int64)), "no indices"),
        Example(GatherElements(1), (x, rng.integers(-7, 7, (4, 9, 3))), "fewer rows, more columns"),
        Example(GatherND(), (x, pairs), "pairs, one of them outside"),
        Example(GatherND(1), (x, np.array([[-1], [0], [2], [6], [-7]], np.int64)), "a batch dim"),
        Example(OneHot(0, 5), (np.array([0, 2, -1, 5, -6], np.int64), np.array([-1, 3], np.float32)), "outside is off"),
        Example(OneHot(1, 3), (np.array([[2, 1]], np.int64), np.array([0, 1], np.int32)), "between dims"),
    ]
