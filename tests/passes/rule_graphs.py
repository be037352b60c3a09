"""Graphs for the tests of passes, written node by node; and the check that a pass keeps a graph's meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from taskc.importer.builder import Builder
from taskc.ir.dtype import from_numpy
from taskc.ir.graph import Graph, Op, TensorType
from taskc.ir.interpret import evaluate_graph

RNG = np.random.default_rng(71)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Make:
    """Adds nodes without folding anything, so that a test says exactly what graph it means."""

    def __init__(self, **feeds: Any) -> None:
        self.feeds = {k: np.asarray(v) for k, v in feeds.items()}
        self.builder = Builder()
        for name, a in self.feeds.items():
            dtype = from_numpy(a.dtype)
            assert dtype is not None
            self.builder.types[self.builder.fresh(name)] = TensorType(dtype, a.shape)

    def constant(self, array: Any) -> str:
        return self.builder.constant(np.asarray(array))

    def add(self, op: Op, *inputs: Any) -> str:
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        self.builder.source = f"node{len(self.builder.nodes)}"
        (out,) = self.builder.add(op, names)
        return out

    def graph(self, *outputs: str) -> Graph:
        return self.builder.graph("test", tuple(self.feeds), tuple((f"out{k}", v) for k, v in enumerate(outputs)))


def same_meaning(before: Graph, after: Graph, feeds: Mapping[str, Any], tolerance: float = 1e-6) -> None:
    """Both graphs give the same outputs in double precision, at the size of their largest element; NaN where NaN was."""
    assert [name for name, _ in before.outputs] == [name for name, _ in after.outputs]
    have, want = evaluate_graph(after, feeds, np.float64), evaluate_graph(before, feeds, np.float64)
    for name, w in want.items():
        scale = np.nanmax(np.abs(w), initial=1e-30)
        assert scale > 1e-6, "a test on zeros says nothing"
        np.testing.assert_allclose(have[name] / scale, w / scale, rtol=0, atol=tolerance, err_msg=name)
    for n in after.nodes:
        inferred = n.op.infer([after.type_of(i) for i in n.inputs])
        assert inferred == tuple(after.types[o] for o in n.outputs)


def applied(m: Make, run: Callable[[Graph], Graph], *outputs: str, tolerance: float = 1e-6) -> list[str]:
    """Runs a pass, checks that it keeps the meaning, and gives the operators that are left, in order."""
    before = m.graph(*outputs)
    after = run(before)
    same_meaning(before, after, m.feeds, tolerance)
    return [n.op.name for n in after.nodes]
