"""Attention as exporters write it, in one operator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from taskc.ir.graph import Array, Node
from taskc.ops.attention import Attention
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.reshape import Reshape
from taskc.ops.softmax import Softmax
from taskc.ops.transpose import Transpose
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule
from taskc.passes.rules.operands import with_constant

_HIDDEN = -1e4  # a score lowered by this much or more counts for nothing


@dataclass(frozen=True)
class _Mask:
    """Scores are kept where the bool value `keep` is true (or false, when `inverted`)."""

    keep: str
    inverted: bool


@dataclass(frozen=True)
class _Scores:
    """scale * product + every bias, hidden where a mask says so. `refusal` when something in the chain does not fit."""

    product: Node
    scale: float = 1.0
    biases: tuple[str, ...] = ()
    masks: tuple[_Mask, ...] = ()
    shared: bool = False  # a value of the chain is used elsewhere


@dataclass(frozen=True)
class _Found:
    node: Node
    softmax: Node
    scores: _Scores
    v: str
    softmax_uses: int
    q: str = field(default="")
    key: str = field(default="")
    scale: float = 1.0


class RecognizeAttention(Rule[_Found]):
    """softmax(scale * (q @ transpose(key)) + bias) @ v -> attention(q, key, v, bias)

    Scales may stand on q, key or the product. A bool mask becomes a bias of 0 and minus infinity, a constant lower triangle
    becomes `causal`. Rows that are hidden altogether give 0, as with the exporters' guard where(isnan(p), 0, p)."""

    def before(self, e: Editor, n: Node) -> _Found | None:
        if not isinstance(n.op, MatMul) or n.op.transpose_a or n.op.transpose_b:
            return None
        p, v = n.inputs
        weights, uses = _unguarded(e, p)
        softmax = e.made_by(weights, Softmax)
        if softmax is None or not isinstance(softmax.op, Softmax) or softmax.op.log:
            return None
        if softmax.op.axis != e.type(weights).rank - 1:
            return None
        scores = _scores(e, softmax.inputs[0])
        if scores is None:
            return None
        (q, q_scale), (key, key_scale) = (_unscaled(e, i) for i in scores.product.inputs)
        return _Found(n, softmax, scores, v, uses, q, key, scores.scale * q_scale * key_scale)

    def why_not(self, e: Editor, found: _Found) -> str | None:
        q, key, v = e.type(found.q), e.type(found.key), e.type(found.v)
        if e.uses[found.softmax.outputs[0]] > found.softmax_uses or found.scores.shared or not e.once(found.node.inputs[0]):
            return "the scores or weights are used elsewhere"
        if not q.rank == key.rank == v.rank or q.rank not in (3, 4):
            return f"q {q}, key {key} and v {v} do not have 3 or 4 dims"
        if not q.shape[:-2] == key.shape[:-2] == v.shape[:-2]:
            return f"q {q}, key {key} and v {v} have different batch dims"
        if not np.isfinite(found.scale) or found.scale == 0:
            return f"the scale is {found.scale}"
        rows = (*e.type(found.node.outputs[0]).shape[:-1], v.shape[-2])
        for t in (*(e.type(b) for b in found.scores.biases), *(e.type(m.keep) for m in found.scores.masks)):
            if not _fits(t.shape, rows):
                return f"the bias or mask {t} does not fit scores of {list(rows)}"
        return None

    def after(self, e: Editor, found: _Found) -> str:
        q, key, v = found.q, found.key, found.v
        if not _is_transposed(found.scores.product):
            rank = e.type(key).rank
            key = e.add(Transpose((*range(rank - 2), rank - 1, rank - 2)), key)
        flat = e.type(q).rank == 3
        if flat:  # the batch takes the place of the heads
            q, key, v = (e.add(Reshape((1, *e.type(i).shape)), i) for i in (q, key, v))
        causal, bias = _bias(e, found)
        out = e.add(Attention(found.scale, causal), q, key, v, *(() if bias is None else (bias,)))
        return e.add(Reshape(e.type(found.node.outputs[0]).shape), out) if flat else out


def _is_transposed(product: Node) -> bool:
    return isinstance(product.op, MatMul) and product.op.transpose_b


def _fits(shape: tuple[object, ...], whole: tuple[object, ...]) -> bool:
    """Whether `shape` broadcasts to `whole` without widening it."""
    return len(shape) <= len(whole) and all(d in (1, w) for d, w in zip(reversed(shape), reversed(whole), strict=False))


def _unguarded(e: Editor, p: str) -> tuple[str, int]:
    """(the softmax's value, how often it is read here): behind where(isnan(p), 0, p) it is read twice."""
    n = e.made_by(p, Elementwise)
    if n is not None and isinstance(n.op, Elementwise) and n.op.function == "where":
        condition, zero, value = n.inputs
        test = e.made_by(condition, Elementwise)
        if test is not None and test.op == Elementwise("isnan") and test.inputs == (value,) and e.number(zero) == 0:
            return value, 2
    return p, 1


def _scores(e: Editor, value: str) -> _Scores | None:
    """Takes the chain between the product and the softmax apart, from the softmax upwards."""
    n = e.node(value)
    if n is None:
        return None
    shared = not e.once(value)
    if isinstance(n.op, MatMul):
        return None if n.op.transpose_a else _Scores(n, shared=shared)
    if not isinstance(n.op, Elementwise):
        return None
    scaled = with_constant(e, n, "mul", "div")
    if scaled is not None:
        inner, by = _scores(e, scaled.value), e.number(scaled.constant)
        if inner is None or by is None or by == 0 or inner.biases:  # a bias below the scale would have to be scaled
            return None
        return replace(inner, scale=inner.scale * (by if scaled.function == "mul" else 1 / by), shared=inner.shared or shared)
    if n.op.function == "add":
        for score, bias in (n.inputs, n.inputs[::-1]):
            inner = _scores(e, score)
            if inner is not None and e.type(bias).dtype == e.type(score).dtype:
                return replace(inner, biases=(*inner.biases, bias), shared=inner.shared or shared)
    if n.op.function == "where":
        condition, yes, no = n.inputs
        for score, hidden, inverted in ((yes, no, False), (no, yes, True)):
            low = e.number(hidden)
            inner = _scores(e, score) if low is not None and low <= _HIDDEN else None
            if inner is not None:
                return replace(inner, masks=(*inner.masks, _Mask(condition, inverted)), shared=inner.shared or shared)
    return None


def _unscaled(e: Editor, value: str) -> tuple[str, float]:
    """(value without constant factors, their product)."""
    found = with_constant(e, e.node(value), "mul", "div")
    by = e.number(found.constant) if found else None
    if found is None or by is None or by == 0 or e.type(found.value) != e.type(value):
        return value, 1.0
    inner, scale = _unscaled(e, found.value)
    return inner, scale * (by if found.function == "mul" else 1 / by)


def _bias(e: Editor, found: _Found) -> tuple[bool, str | None]:
    """(causal, what is added to the scores besides)."""
    dtype = e.type(found.q).dtype
    causal, parts = False, list[str]()
    for b in found.scores.biases:
        if _is_lower_triangle(e.numbers(b)):
            causal = True
        else:
            parts.append(b)
    zero: str | None = None
    for m in found.scores.masks:
        keep = e.stored(m.keep)
        if keep is not None and _is_lower_triangle(np.where(keep != m.inverted, 0.0, -np.inf)):
            causal = True
            continue
        zero = e.constant(np.array(0.0), dtype) if zero is None else zero
        hidden = e.constant(np.array(-np.inf), dtype)
        parts.append(e.add(Elementwise("where"), m.keep, *((hidden, zero) if m.inverted else (zero, hidden))))
    total = parts[0] if parts else None
    for b in parts[1:]:
        assert total is not None
        total = e.add(Elementwise("add"), total, b)
    return causal, total


def _is_lower_triangle(bias: Array | None) -> bool:
    """Whether a constant bias lets row m see columns up to m and hides the rest."""
    if bias is None or bias.ndim < 2 or any(d != 1 for d in bias.shape[:-2]) or bias.shape[-1] < 2 or bias.shape[-2] < 2:
        return False
    matrix = bias.reshape(bias.shape[-2:])
    seen = np.tri(bias.shape[-2], bias.shape[-1], dtype=bool)
    return bool(np.all(matrix[seen] == 0) and np.all(matrix[~seen] <= _HIDDEN)) and bool((~seen).any())
