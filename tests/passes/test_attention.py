"""Attention in the forms exporters write, and what is not attention."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from taskc.ir.graph import Graph
from taskc.ops.attention import Attention
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.reshape import Reshape
from taskc.ops.softmax import Softmax
from taskc.ops.transpose import Transpose
from taskc.passes.pipeline import default_passes, run_passes
from taskc.passes.rule import Refusal
from tests.passes.rule_graphs import Make, normal, same_meaning

F = np.float32
B, H, M, D = 2, 3, 5, 4


def e(function: str) -> Elementwise:
    return Elementwise(function)


def heads() -> Make:
    return Make(q=normal(B, H, M, D), k=normal(B, H, M, D), v=normal(B, H, M, D))


def scores(m: Make) -> str:
    return m.add(MatMul(), "q", m.add(Transpose((0, 1, 3, 2)), "k"))


def finish(m: Make, s: str, axis: int = 3) -> str:
    return m.add(MatMul(), m.add(Softmax(axis), s), "v")


def recognised(m: Make, out: str, *others: str) -> tuple[Graph, list[str]]:
    before, told = m.graph(out, *others), list[Refusal]()
    after = run_passes(before, default_passes(note=told.append))
    same_meaning(before, after, m.feeds, 1e-6)
    return after, [r.reason for r in told if r.rule == "RecognizeAttention"]


def the_attention(g: Graph) -> Attention:
    (op,) = [n.op for n in g.nodes if isinstance(n.op, Attention)]
    assert not any(isinstance(n.op, (MatMul, Softmax)) for n in g.nodes)
    return op


def test_a_scale_on_the_product() -> None:
    m = heads()
    assert the_attention(recognised(m, finish(m, m.add(e("div"), scores(m), F(3))))[0]).scale == pytest.approx(1 / 3)


def test_scales_on_both_operands_and_a_guard() -> None:
    """As torch writes it: sqrt(scale) on q and on the transposed key, and zeros where a row is NaN."""
    m = heads()
    flat = m.add(Transpose((0, 2, 1)), m.add(Reshape((B * H, M, D)), "k"))
    key = m.add(e("mul"), m.add(Reshape((B, H, D, M)), flat), F(0.5))
    p = m.add(Softmax(3), m.add(e("add"), m.add(MatMul(), m.add(e("mul"), "q", F(0.5)), key), normal(B, 1, 1, M)))
    p = m.add(e("where"), m.add(e("isnan"), p), F(0), p)
    op = the_attention(recognised(m, m.add(MatMul(), p, "v"))[0])
    assert op == Attention(0.25, causal=False)


def test_constant_triangles_are_causal() -> None:
    low = np.where(np.tri(M), 0, np.finfo(F).min).astype(F)
    m = heads()
    assert the_attention(recognised(m, finish(m, m.add(e("add"), scores(m), low[None, None])))[0]).causal
    m = heads()
    assert the_attention(recognised(m, finish(m, m.add(e("where"), np.tri(M).astype(bool), scores(m), F(-1e9))))[0]).causal
    m = heads()
    assert the_attention(recognised(m, finish(m, m.add(e("where"), ~np.tri(M).astype(bool), F(-1e9), scores(m))))[0]).causal


def test_other_constant_masks_are_biases() -> None:
    for bad in (np.tri(M).T.astype(bool), np.tri(M, k=1).astype(bool)):
        m = heads()
        g, _ = recognised(m, finish(m, m.add(e("where"), bad, scores(m), F(-1e9))))
        assert not the_attention(g).causal and any(len(n.inputs) == 4 for n in g.nodes if isinstance(n.op, Attention))


def test_a_mask_from_data_and_a_bias() -> None:
    keep = np.ones((B, 1, 1, M), bool)
    keep[0, 0, 0, 3:] = False
    m = Make(q=normal(B, H, M, D), k=normal(B, H, M, D), v=normal(B, H, M, D), keep=keep, bias=normal(1, H, M, M))
    s = m.add(e("where"), "keep", m.add(e("mul"), scores(m), F(0.7)), F(-np.inf))
    assert the_attention(recognised(m, finish(m, m.add(e("add"), "bias", s)))[0]).scale == pytest.approx(0.7)


def test_three_dims() -> None:
    m = Make(q=normal(6, M, D), k=normal(6, 7, D), v=normal(6, 7, 3))
    s = m.add(e("add"), m.add(MatMul(transpose_b=True), "q", "k"), normal(6, M, 7))
    the_attention(recognised(m, finish(m, s, axis=2))[0])


def test_what_is_not_attention() -> None:
    m = heads()
    assert not any(isinstance(n.op, Attention) for n in recognised(m, finish(m, scores(m), axis=2))[0].nodes)
    m = heads()
    biased = m.add(e("mul"), m.add(e("add"), scores(m), normal(M)), F(0.5))
    assert not any(isinstance(n.op, Attention) for n in recognised(m, finish(m, biased))[0].nodes)
    m = heads()
    light = m.add(e("where"), np.tri(M).astype(bool), scores(m), F(-3))
    assert not any(isinstance(n.op, Attention) for n in recognised(m, finish(m, light))[0].nodes)


def test_refusals_have_reasons() -> None:
    m = heads()
    p = m.add(Softmax(3), scores(m))
    _, reasons = recognised(m, m.add(MatMul(), p, "v"), p)
    assert reasons == ["the scores or weights are used elsewhere"]
    m = Make(q=normal(B, H, M, D), k=normal(1, H, M, D), v=normal(B, H, M, D))
    _, reasons = recognised(m, finish(m, scores(m)))
    assert "different batch dims" in reasons[0]
    m = Make(q=normal(M, D), k=normal(M, D), v=normal(M, D))
    s = m.add(MatMul(transpose_b=True), "q", "k")
    _, reasons = recognised(m, finish(m, s, axis=1))
    assert "3 or 4 dims" in reasons[0]
