"""Matrix products: MatMul (with broadcast batch dims) and Gemm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.dtype import F32, F64, DType
from taskc.ir.expr import prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.positions import unravel
from taskc.ir.task import Contraction, Store, axis
from taskc.ir.value import Dim, Hole, Tensor
from taskc.ops.broadcast import broadcast_load, broadcast_shapes
from taskc.ops.elementwise import Elementwise
from taskc.ops.known import plain_shape, scalar
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.reshape import Reshape


def accumulator(dtype: DType) -> DType:
    """The type that products of `dtype` are summed in."""
    return F64 if dtype == F64 else F32 if dtype.is_float else dtype


@dataclass(frozen=True)
class MatMul(Op):
    """out[…, m, n] = sum over k of a[…, m, k] * b[…, k, n]; `transpose_a`/`_b`: the last two dims are stored swapped.

    `rows`, `columns`: of the result, where the operands are stored with more of them than the product has."""

    transpose_a: bool = False
    transpose_b: bool = False
    rows: Dim | None = None
    columns: Dim | None = None

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        a, b = ins
        if a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2:
            raise OpError("matrix products take two inputs of rank 2 or more")
        if a.dtype != b.dtype:
            raise OpError(f"inputs have different dtypes: {a.dtype} and {b.dtype}")
        (m, ka), (kb, n) = self._matrix(a.shape, self.transpose_a), self._matrix(b.shape, self.transpose_b)
        if ka != kb:
            raise OpError(f"inner dims differ: {ka} of {a} and {kb} of {b}")
        for what, given, stored in (("rows", self.rows, m), ("columns", self.columns, n)):
            if isinstance(given, int) and isinstance(stored, int) and given > stored:
                raise OpError(f"{given} {what} of a product of {stored}")
        own = (m if self.rows is None else self.rows, n if self.columns is None else self.columns)
        return (TensorType(a.dtype, (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *own)),)

    @staticmethod
    def _matrix(shape: tuple[Dim, ...], transposed: bool) -> tuple[Dim, Dim]:
        return (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        a, b = np.asarray(ins[0]), np.asarray(ins[1])
        dtype = a.dtype
        if dtype == np.float16:
            a, b = a.astype(np.float32), b.astype(np.float32)
        a = np.swapaxes(a, -1, -2) if self.transpose_a else a
        b = np.swapaxes(b, -1, -2) if self.transpose_b else b
        ends = [None if d is None else plain_shape((d,))[0] for d in (self.rows, self.columns)]
        return ((a[..., : ends[0], :] @ b[..., : ends[1]]).astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Contraction:
        a, b = ins
        assert a is not None and b is not None
        out = outs[0]
        lead = out.shape[:-2]
        k_extent = a.shape[-2] if self.transpose_a else a.shape[-1]
        batch, m, n, k = axis("b", prod(lead)), axis("m", out.shape[-2]), axis("n", out.shape[-1]), axis("k", k_extent)
        at = unravel(batch.var, lead)
        a_tail = (k.var, m.var) if self.transpose_a else (m.var, k.var)
        b_tail = (n.var, k.var) if self.transpose_b else (k.var, n.var)
        return Contraction(batch, m, n, k, broadcast_load(a, (*at, *a_tail)), broadcast_load(b, (*at, *b_tail)),
                           a.dtype, accumulator(a.dtype), (Store(out, (*at, m.var, n.var), Hole("acc", accumulator(a.dtype))),))


@onnx_reader("MatMul")
def _read_matmul(r: Reading) -> str:
    """A vector operand gets a dim of 1, which the result loses again."""
    a, b = r.inputs
    row, column = r.type(a).rank == 1, r.type(b).rank == 1
    if row:
        a = r.add(Reshape((1, *r.type(a).shape)), a)
    if column:
        b = r.add(Reshape((*r.type(b).shape, 1)), b)
    out = r.add(MatMul(), a, b)
    if not (row or column):
        return out
    shape = r.type(out).shape
    return r.add(Reshape((*shape[:-2], *(() if row else shape[-2:-1]), *(() if column else shape[-1:]))), out)


@onnx_reader("Gemm")
def _read_gemm(r: Reading) -> str:
    """alpha * A' * B' + beta * C, as a product, scales where they are not 1, and an addition."""
    if any(r.type(i).rank != 2 for i in r.inputs[:2]):
        r.bad("its operands must be matrices")
    out = r.add(MatMul(bool(r.int_("transA", 0)), bool(r.int_("transB", 0))), *r.inputs[:2])
    dtype = r.type(out).dtype
    alpha, beta = r.float_("alpha", 1.0), r.float_("beta", 1.0)
    if alpha != 1:
        out = r.add(Elementwise("mul"), out, scalar(r, alpha, dtype))
    if r.has_input(2) and beta != 0:
        c = r.inputs[2]
        if beta != 1:
            c = r.add(Elementwise("mul"), c, scalar(r, beta, dtype))
        out = r.add(Elementwise("add"), out, c)
    return out


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(11)

    def r(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        Example(MatMul(), (r(37, 29), r(29, 53)), "primes"),
        Example(MatMul(transpose_b=True), (r(3, 1, 5, 8), r(2, 7, 8)), "batch broadcast, transposed"),
        Example(MatMul(rows=3, columns=11), (r(4, 16), r(16, 12)), "stored with more rows and columns"),
        Example(MatMul(transpose_a=True), (r(8, 5).astype(np.float16), r(8, 1).astype(np.float16)), "float16, one column"),
    ]
