"""Random graphs through partition, templates, stitching and emission: the kernels that would ship, run on `host`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from taskc.codegen.device import INCLUDE
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host
from taskc.ir.dtype import F16, F32, DType
from taskc.ir.evaluation import evaluate
from taskc.ir.graph import Array, Graph, Op
from taskc.ir.interpret import evaluate_graph
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.softmax import Softmax
from taskc.ops.transpose import Transpose
from taskc.targets import TARGETS
from taskc.tune.kernels import BuiltKernel, build_kernels
from tests.fuse.random_graphs import RandomGraph
from tests.graphs import GraphBuilder, groups_of, random_feeds
from tests.host_kernels import surrounded, unwritten

Shipped = tuple[HostLibrary, dict[int, tuple[Graph, list[BuiltKernel]]]]
SEEDS = range(500, 512)


def build(seed: int) -> tuple[Graph, list[BuiltKernel]]:
    graph = RandomGraph(seed).build(14)
    return graph, build_kernels(groups_of(graph)[0], TARGETS["host"], {})


def library_of(built: dict[int, tuple[Graph, list[BuiltKernel]]], folder: Path) -> HostLibrary:
    texts = {k.symbol: k.text.replace(INCLUDE, "") for _, kernels in built.values() for k in kernels}
    names = sorted(texts)
    path = folder / "kernels.so"
    compile_host({f"part{n}": "\n".join([INCLUDE, *(texts[s] for s in names[n::2])]) for n in range(2)}, path)
    return HostLibrary(path)


def run(library: HostLibrary, graph: Graph, kernels: list[BuiltKernel], feeds: dict[str, Array], order: int) -> dict[str, Array]:
    """The graph's outputs; tensors are made once, unwritten, since several kernels may write parts of one."""
    values = {name: surrounded(library, a)[1] for name, a in {**graph.constants, **feeds}.items()}
    library.set_order(order)
    for k in kernels:
        for t in k.tensors:
            if t.name not in values:
                values[t.name] = surrounded(library, unwritten([evaluate(d, {}) for d in t.shape], t.dtype))[1]
        work = [library.guarded(np.zeros(evaluate(w.elements, {}), w.dtype.numpy), align=16) for w in k.program.workspaces]
        grid = [evaluate(x, {}) for x in k.program.grid]
        library.launch(k.symbol, [*(values[t.name] for t in k.tensors), *work], grid, k.program.threads, k.program.shared_bytes, cores=1)
    return {name: values[v] for name, v in graph.outputs}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    built = {seed: build(seed) for seed in SEEDS}
    return library_of(built, tmp_path_factory.mktemp("random")), built


@pytest.mark.parametrize("seed", SEEDS)
def test_shipped_kernels_compute_what_the_graph_means(seed: int, shipped: Shipped) -> None:
    library, built = shipped
    graph, kernels = built[seed]
    feeds = random_feeds(graph, seed)
    want = evaluate_graph(graph, feeds, np.float64)
    for order in (0, 5):
        for name, a in run(library, graph, kernels, feeds, order).items():
            scale = max(1.0, float(np.abs(want[name]).max(initial=0.0)))
            np.testing.assert_allclose(a.astype(np.float64), want[name], rtol=0, atol=2e-4 * scale, err_msg=name)


def kept(anchor: Op, dtype: DType) -> Graph:
    """A chain behind the anchor, every value of which is an output of the graph."""
    b, rng = GraphBuilder(), np.random.default_rng(3)
    x = b.input("x", (13, 24), dtype)
    first = b.add(anchor, x, b.constant(rng.standard_normal((24, 40)), dtype)) if isinstance(anchor, MatMul) else b.add(anchor, x)
    second = b.add(Elementwise("sigmoid"), first)
    third = b.add(Elementwise("mul"), b.add(Transpose((1, 0)), second), b.constant(rng.standard_normal(13), dtype))
    return b.graph(first, second, third)


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_kept_values_are_stored_on_the_way(dtype: DType, tmp_path: Path) -> None:
    graphs = {n: kept(anchor, dtype) for n, anchor in enumerate((MatMul(), Softmax(1), Elementwise("tanh")))}
    built = {n: (g, build_kernels(groups_of(g)[0], TARGETS["host"], {})) for n, g in graphs.items()}
    library = library_of(built, tmp_path)
    for n, (graph, kernels) in built.items():
        assert len(kernels) == 1
        feeds = random_feeds(graph, n)
        want = evaluate_graph(graph, feeds, np.float64)
        for name, a in run(library, graph, kernels, feeds, 5).items():
            scale = max(1.0, float(np.abs(want[name]).max(initial=0.0)))
            np.testing.assert_allclose(a.astype(np.float64), want[name], rtol=0, atol=(2e-6 if dtype == F32 else 2e-3) * scale, err_msg=name)
