"""Scaled dot product attention: softmax(scale * q k' + bias) v, causal on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.arithmetic import floor_div
from taskc.ir.dtype import BOOL
from taskc.ir.expr import prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.positions import unravel
from taskc.ir.proofs import exact_div
from taskc.ir.task import Attention as AttentionTask
from taskc.ir.task import Store, axis
from taskc.ir.value import Hole, Tensor
from taskc.ops.broadcast import broadcast_load, broadcast_shapes
from taskc.ops.constants import widened
from taskc.ops.elementwise import Elementwise
from taskc.ops.known import scalar
from taskc.ops.matmul import accumulator
from taskc.ops.registry import Example, Reading, examples, onnx_reader
from taskc.ops.reshape import Reshape
from taskc.ops.transpose import transposed


@dataclass(frozen=True)
class Attention(Op):
    """q[b, h, m, k], key[b, hk, j, k], v[b, hk, j, n], bias that broadcasts to [b, h, m, j] or None -> out[b, h, m, n].

    hk divides h: neighbouring heads share keys and values. `causal`: row m sees j <= m. A blind row gives 0."""

    scale: float
    causal: bool = False

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        q, key, v, bias = (*ins, None)[:4]
        if q is None or key is None or v is None or not q.rank == key.rank == v.rank == 4:
            raise OpError("attention takes q, key and v of rank 4")
        b, h, m, k = q.shape
        _, heads, j, _ = key.shape
        if key.shape != (b, heads, j, k) or v.shape[:3] != key.shape[:3] or exact_div(h, heads) is None:
            raise OpError(f"q {q}, key {key} and v {v} do not fit each other")
        if not q.dtype.is_float or not q.dtype == key.dtype == v.dtype:
            raise OpError(f"q {q}, key {key} and v {v} are not floats of one type")
        if bias is not None and (bias.dtype != q.dtype or broadcast_shapes(bias.shape, (b, h, m, j)) != (b, h, m, j)):
            raise OpError(f"bias {bias} does not broadcast to {[b, h, m, j]}")
        return (TensorType(q.dtype, (b, h, m, v.shape[3])),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype = np.asarray(ins[0]).dtype
        q, key, v = (widened(i) for i in ins[:3])
        shared = q.shape[1] // key.shape[1]
        key, v = np.repeat(key, shared, axis=1), np.repeat(v, shared, axis=1)
        score = q @ np.swapaxes(key, 2, 3) * q.dtype.type(self.scale)
        if len(ins) > 3 and ins[3] is not None:
            score = score + widened(ins[3])
        if self.causal:
            score = np.where(np.tri(*score.shape[2:], dtype=bool), score, -np.inf).astype(score.dtype)
        top = np.max(score, axis=3, keepdims=True)
        weight = np.exp(score - np.where(np.isneginf(top), 0, top))
        total = np.sum(weight, axis=3, keepdims=True)
        return ((weight / np.where(total == 0, np.ones_like(total), total) @ v).astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> AttentionTask:
        q, key, v, bias = (*ins, None)[:4]
        assert q is not None and key is not None and v is not None
        images, heads = q.shape[:2]
        batch, m, j = axis("b", prod((images, heads))), axis("m", q.shape[2]), axis("j", key.shape[2])
        k, n = axis("k", q.shape[3]), axis("n", v.shape[3])
        image, head = unravel(batch.var, (images, heads))
        shared = exact_div(heads, key.shape[1])
        assert shared is not None
        source = floor_div(head, shared)
        return AttentionTask(
            batch, m, j, k, n, q=q.at(image, head, m.var, k.var), key=key.at(image, source, j.var, k.var),
            v=v.at(image, source, j.var, n.var), scale=self.scale,
            bias=None if bias is None else broadcast_load(bias, (image, head, m.var, j.var)),
            mask=(m.var - j.var + 1,) if self.causal else (), operand=q.dtype,
            stores=(Store(outs[0], (image, head, m.var, n.var), Hole("acc", accumulator(q.dtype))),))


@onnx_reader("Attention", since=23)
def _read_attention(r: Reading) -> str:
    if r.output_count > 1 or r.has_input(4) or r.has_input(5):
        r.unsupported("cached keys and values (past and present), and the product of queries and keys as an output")
    if r.has_input(6):
        r.unsupported("a number of valid keys an image (nonpad_kv_seqlen)")
    if r.float_("softcap", 0.0):
        r.unsupported("softcap")
    flat = r.type(r.inputs[0]).rank == 3  # [batch, length, heads * size]
    heads = [r.int_(a) for a in ("q_num_heads", "kv_num_heads", "kv_num_heads")] if flat else [0, 0, 0]
    parts = [_split_heads(r, i, n) if flat else i for i, n in zip(r.inputs[:3], heads, strict=True)]
    q = r.type(parts[0])
    size = q.shape[3]
    if not r.has("scale") and not isinstance(size, int):
        r.unsupported(f"a symbolic head size ({size}) without a scale attribute")
    scale = r.float_("scale") if r.has("scale") else float(size) ** -0.5 if isinstance(size, int) else 0.0
    bias = r.inputs[3] if r.has_input(3) else ""
    if bias and r.type(bias).dtype == BOOL:
        bias = r.add(Elementwise("where"), bias, scalar(r, 0.0, q.dtype), scalar(r, -np.inf, q.dtype))
    out = r.add(Attention(scale, bool(r.int_("is_causal", 0))), *parts, *((bias,) if bias else ()))
    if not flat:
        return out
    batch, count, length, width = r.type(out).shape
    return r.add(Reshape((batch, length, count * width)), transposed(r, out, (0, 2, 1, 3)))


def _split_heads(r: Reading, value: str, heads: int) -> str:
    """[batch, length, heads * size] -> [batch, heads, length, size]."""
    batch, length, width = r.type(value).shape
    size = exact_div(width, heads) if heads > 0 else None
    if size is None:
        r.bad(f"{width} does not divide into {heads} heads")
    return transposed(r, r.add(Reshape((batch, length, heads, size)), value), (0, 2, 1, 3))


@onnx_reader("Attention", domain="com.microsoft")
@onnx_reader("MultiHeadAttention", domain="com.microsoft")
@onnx_reader("GroupQueryAttention", domain="com.microsoft")
def _refuse(r: Reading) -> str:
    r.unsupported(f"{r.op_type} of com.microsoft; export the model without onnxruntime's attention fusion")


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(41)

    def v(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    hidden = v(2, 1, 5, 7)
    hidden[1, 0, 3] = -np.inf
    half = [a.astype(np.float16) for a in (v(1, 2, 5, 8), v(1, 2, 5, 8), v(1, 2, 5, 8))]
    return [
        Example(Attention(0.5), (v(2, 3, 5, 6), v(2, 3, 7, 6), v(2, 3, 7, 9), hidden), "bias, one masked row"),
        Example(Attention(0.3, causal=True), (v(1, 4, 6, 5), v(1, 2, 6, 5), v(1, 2, 6, 5)), "causal, shared heads"),
        Example(Attention(8**-0.5, causal=True), tuple(half), "float16"),
        Example(Attention(1.0, causal=True), (v(1, 1, 3, 4), v(1, 1, 6, 4), v(1, 1, 6, 4), v(6)),
                "more keys than rows"),
    ]
