"""Fusion never changes results: random graphs, partitioned, against the same graphs node by node, in double precision."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from taskc.fuse.units import Unit
from taskc.ir.graph import Array, Graph
from taskc.ir.interpret import evaluate_graph
from taskc.ir.task import inputs, outputs
from tests.fuse.random_graphs import RandomGraph
from tests.graphs import groups_of, interpret, random_feeds

GRAPHS = 320


def check_meaning(graph: Graph, seed: int = 0) -> list[Unit]:
    """The groups, after comparing what they compute with what the nodes mean."""
    groups, derived = groups_of(graph)
    feeds = random_feeds(graph, seed)
    want = evaluate_graph(graph, feeds, np.float64)
    got = interpret(groups, graph, derived, feeds)
    for name, expected in want.items():
        _close(got[name], expected, name)
    check_order(groups, graph)
    return groups


def _close(got: Array, want: Array, name: str) -> None:
    assert got.shape == want.shape, name
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * scale, err_msg=name)


def check_order(groups: list[Unit], graph: Graph) -> None:
    """Every tensor is whole before it is read, and every output of the graph is written."""
    writers = Counter(t.name for u in groups for t in outputs(u.task))
    known, seen = {*graph.inputs, *graph.constants}, Counter[str]()
    for u in groups:
        for t in inputs(u.task):
            assert t.name in known or seen[t.name] == writers[t.name] > 0, f"{t.name} is read before it is written"
        seen.update(t.name for t in outputs(u.task))
    for _, v in graph.outputs:
        assert v in known or v in seen, f"output {v} is never written"


@pytest.mark.parametrize("part", range(8))
def test_random_graphs_keep_their_meaning(part: int) -> None:
    for seed in range(part, GRAPHS, 8):
        graph = RandomGraph(seed).build(6 + seed % 15)
        try:
            check_meaning(graph, seed)
        except Exception as e:
            raise AssertionError(f"RandomGraph({seed}).build({6 + seed % 15}): {type(e).__name__}: {e}") from e


def test_random_graphs_exercise_fusion() -> None:
    """The test above is worth its name only if joins and refusals of every kind happen."""
    nodes = groups = 0
    joined, refused = Counter[str](), Counter[str]()
    for seed in range(60):
        graph = RandomGraph(seed).build(6 + seed % 15)
        found, _ = groups_of(graph)
        nodes, groups = nodes + len(graph.nodes), groups + len(found)
        joined.update(j.split()[0] for u in found for j in u.joined)
        refused.update(re.sub(r".*: ", "", r) for u in found for r in u.refused)
    assert groups < 0.8 * nodes
    assert joined["epilogue"] > 20 and joined["prologue"] > 100, joined
    assert len(refused) >= 5, refused
