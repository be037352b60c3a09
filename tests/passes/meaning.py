"""What tests of passes share: a pass keeps the meaning of a graph, before and after fusion, and says what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from taskc.ir.graph import Graph
from taskc.ir.interpret import evaluate_graph
from tests.fuse.test_partition_meaning import check_meaning
from tests.graphs import random_feeds


def keeps_meaning(graph: Graph, change: Callable[[Graph], Graph], symbols: Mapping[str, int] | None = None) -> Graph:
    """The changed graph, after comparing its outputs with the graph's in double precision, and again when partitioned."""
    changed = change(graph)
    feeds = random_feeds(graph, 7, symbols)
    want, got = evaluate_graph(graph, feeds, np.float64), evaluate_graph(changed, feeds, np.float64)
    assert list(want) == list(got)
    for name in want:
        assert want[name].size and np.std(want[name]) > 0
        np.testing.assert_allclose(got[name], want[name], rtol=1e-10, atol=1e-10, err_msg=name)
    if not symbols:
        check_meaning(changed)
    return changed


def operators(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]
