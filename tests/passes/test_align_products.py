"""Products of operands whose rows begin anywhere: padded while compiling, copied where that pays, or left as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taskc.fuse.units import Unit
from taskc.ir.dtype import F16, F32, DType
from taskc.ir.expr import Var
from taskc.ir.graph import Graph
from taskc.ir.task import Contraction, Map, axis, reach
from taskc.ir.value import Dim, Tensor
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.passes.rule import Refusal, Rule, apply_rules
from taskc.passes.rules.align_products import AlignProducts
from taskc.schedules import matmul_gemv, matmul_mma
from taskc.schedules.template import Template, traits_of
from taskc.targets import TARGETS
from taskc.tune.kernels import build_scheduled
from tests.graphs import GraphBuilder, groups_of
from tests.passes.meaning import keeps_meaning, operators

RNG = np.random.default_rng(31)


def align(graph: Graph, told: list[Refusal] | None = None) -> Graph:
    rules: tuple[Rule[Any], ...] = (AlignProducts(),)
    return apply_rules(graph, rules, None if told is None else told.append)


def product(m: Dim, n: Dim, k: Dim, dtype: DType = F16, weight: bool = False, op: MatMul | None = None) -> Graph:
    op, b = op or MatMul(), GraphBuilder()
    left = b.input("x", (k, m) if op.transpose_a else (m, k), dtype)
    shape = (n, k) if op.transpose_b else (k, n)
    if weight:
        assert isinstance(n, int) and isinstance(k, int)
        right = b.constant(RNG.standard_normal((n, k) if op.transpose_b else (k, n)), dtype)
    else:
        right = b.input("y", shape, dtype)
    return b.graph(b.add(op, left, right))


def widths(unit: Unit, template: Template) -> dict[str, int]:
    """Elements of each access of a port, with the template's first schedule."""
    target = TARGETS["sm_80"]
    kernel = build_scheduled(unit, target, template.NAME, template.space(target, traits_of(unit.task))[0])
    return {port: int(note.split()[1]) for port, note in kernel.program.notes.items()}


@pytest.mark.parametrize("op", [MatMul(), MatMul(transpose_a=True), MatMul(transpose_b=True), MatMul(True, True)], ids=str)
def test_large_products_read_vectors_from_copies(op: MatMul) -> None:
    graph = product(2047, 2039, 2045, op=op)
    aligned = align(graph)
    assert operators(aligned) == ["Pad", "Pad", "MatMul"]
    groups, _ = groups_of(aligned)
    assert [type(u.task) for u in groups] == [Map, Map, Contraction]
    found = widths(groups[2], matmul_mma)
    assert (found["a"], found["b"]) == (8, 8)
    before = widths(groups_of(graph)[0][0], matmul_mma)
    assert (before["a"], before["b"]) == (1, 1)


@pytest.mark.parametrize("op", [MatMul(), MatMul(transpose_a=True), MatMul(transpose_b=True), MatMul(True, True)], ids=str)
@pytest.mark.parametrize("dtype", [F16, F32])
def test_meaning(op: MatMul, dtype: DType) -> None:
    """Weights are padded at any size, so that small ones show it."""
    graph = product(24 if op.transpose_a else 13, 17, 40, dtype, weight=True, op=op)
    assert operators(keeps_meaning(graph, align)) == ["MatMul"]


def test_meaning_with_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskc.passes.rules.align_products._LAUNCH", -1.0)  # copies cost nothing
    for op in (MatMul(), MatMul(True), MatMul(transpose_b=True)):
        aligned = keeps_meaning(product(21, 19, 37, op=op), align)
        assert operators(aligned)[-1] == "MatMul" and "Pad" in operators(aligned)


def test_a_classifier_reads_vectors_of_weights() -> None:
    aligned = align(product(1, 1001, 512, weight=True))
    (unit,), _ = groups_of(aligned)
    assert widths(unit, matmul_gemv)["b"] > 1
    assert widths(groups_of(product(1, 1001, 512, weight=True))[0][0], matmul_gemv)["b"] == 1


def test_epilogues_and_prologues_stay_fused() -> None:
    b = GraphBuilder()
    x = b.add(Elementwise("relu"), b.input("x", (9, 64), F16))
    y = b.add(MatMul(), x, b.constant(RNG.standard_normal((64, 33)), F16))
    y = b.add(Elementwise("add"), y, b.constant(RNG.standard_normal(33), F16))
    aligned = keeps_meaning(b.graph(b.add(Elementwise("relu"), y)), align)
    groups, _ = groups_of(aligned)
    assert len(groups) == 1


@pytest.mark.parametrize(
    ("graph", "reason"),
    [(product(64, 63, 65), "and save"), (product(Var("n", 1), 2047, 2047), "symbolic")],
)  # fmt: skip
def test_left_alone(graph: Graph, reason: str) -> None:
    told: list[Refusal] = []
    assert operators(align(graph, told)) == ["MatMul"]
    assert len(told) == 1 and reason in told[0].reason


def test_aligned_rows_are_no_place() -> None:
    told: list[Refusal] = []
    assert operators(align(product(2047, 2048, 2048), told)) == ["MatMul"] and not told


def test_reach() -> None:
    n, i = axis("n", 13), axis("i", 4)
    stored = Tensor("t", F16, (4, 24))
    assert reach(stored.at(i.var, n.var), n) == 16  # a vector's end, though there is more
    assert reach(Tensor("t", F16, (4, 14)).at(i.var, n.var), n) == 14
    assert reach(stored.at(i.var, n.var + 1), n) == 13  # shifted
    assert reach(stored.at(n.var % 4, n.var), n) == 13  # twice
    assert reach(stored.at(i.var, i.var), n) == 13  # not at all
