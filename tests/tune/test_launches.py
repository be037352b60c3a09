"""Parallel branches in one launch, run on `host`: outputs bit by bit those of one launch each, and near NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from taskc.artifact import loader
from taskc.artifact.assemble import Facts, KernelLaunch, plan_ports, plan_target, weight_offsets, weight_pieces
from taskc.artifact.library import write_library
from taskc.artifact.plan import CounterArg, Image, Launch, ModelPlan, ScratchArg, TensorArg
from taskc.codegen import emit as emitting
from taskc.codegen.backend import compile_kernels
from taskc.compile import Options, compile_model
from taskc.explain import explain
from taskc.ir.expr import Index, Var
from taskc.ir.graph import Array, Graph
from taskc.ir.program import Program
from taskc.ops.concat import Concat
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.reduce import Reduce
from taskc.ops.softmax import Softmax
from taskc.schedules import matmul_mma, rows
from taskc.schedules.rows_schedule import Schedule as RowsSchedule
from taskc.targets import TARGETS
from taskc.tune.kernels import BuiltKernel, build_kernels, build_problem, build_scheduled
from taskc.tune.launches import BuiltLaunch, make_launches
from taskc.tune.problem import Problem
from tests.graphs import GraphBuilder, groups_of, interpret, random_feeds

HOST = TARGETS["host"]
Build = Callable[[Problem], BuiltKernel]


@dataclass(frozen=True)
class Shipped:
    """A graph's launches and the library that runs them."""

    launches: list[BuiltLaunch]
    plan: ModelPlan
    model: loader.Model

    @property
    def steps(self) -> list[Launch]:
        return [s for s in self.plan.targets[0].steps if isinstance(s, Launch)]


def ship(graph: Graph, folder: Path, branches: bool, build: Build = build_problem, sizes: dict[str, int] | None = None) -> Shipped:
    """As compile_model does it, from a graph."""
    groups, derived = groups_of(graph)
    launches = make_launches(build_kernels(groups, HOST, sizes or {}, None, build), HOST, sizes or {}, branches)
    code = compile_kernels({x.symbol: x.text for x in launches}, HOST)
    weights = weight_offsets(graph, [t.name for x in launches for t in x.tensors])
    images = tuple(Image(i.kind, i.arch, i.data) for i in code.images)
    steps = [KernelLaunch(x.symbol, x.program, tuple(t.name for t in x.tensors), x.name) for x in launches]
    symbols, inputs, outputs = plan_ports(graph)
    target = plan_target(graph, "host", steps, images, {n: Facts() for n in code.kernels}, derived, weights)
    plan = ModelPlan(graph.name, symbols, inputs, outputs, (target,), weight_pieces(graph, weights))
    out = folder / f"{'batched' if branches else 'apart'}.so"
    write_library(plan, out)
    return Shipped(launches, plan, loader.load(out, device="host"))


def compare(graph: Graph, folder: Path, build: Build = build_problem, sizes: Sequence[dict[str, int]] = ({},)) -> Shipped:
    """Ships the graph both ways and compares their outputs with each other and with float64; gives the batched one."""
    batched, apart = (ship(graph, folder, b, build, sizes[0]) for b in (True, False))
    assert all(len(x.kernels) == 1 for x in apart.launches)
    groups, derived = groups_of(graph)
    for seed, symbols in enumerate(sizes):
        feeds = random_feeds(graph, seed, symbols)
        got, same, want = batched.model.run(feeds), apart.model.run(feeds), interpret(groups, graph, derived, feeds)
        for name, exact in want.items():
            assert np.linalg.norm(got[name] - exact) <= 1e-5 * np.linalg.norm(exact) and np.abs(exact).max() > 0.01, name
            assert got[name].tobytes() == same[name].tobytes(), name
    return batched


def branches_of(shipped: Shipped) -> list[int]:
    return [len(x.kernels) for x in shipped.launches]


@pytest.fixture(params=[0, 3])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The order of steps, blocks and threads: as written, and one shuffled; memory starts as NaN."""
    monkeypatch.setenv("TASKC_HOST_ORDER", str(request.param))
    monkeypatch.setenv("TASKC_POISON", "1")
    return request.param


def weights(b: GraphBuilder, rng: np.random.Generator, *shape: int) -> str:
    return b.constant((rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32))


def tower(b: GraphBuilder, x: str, rng: np.random.Generator, width: int, *widths: int) -> str:
    """Products with a bias and a Relu from each width to the next, then a softmax."""
    for n in widths:
        y = b.add(MatMul(), x, weights(b, rng, width, n))
        x, width = b.add(Elementwise("relu"), b.add(Elementwise("add"), y, weights(b, rng, n))), n
    return b.add(Softmax(1), x)


def two_towers(rows: Index = 5, count: int = 2) -> Graph:
    """Towers of different inputs and weights, each an output; a product joins two."""
    b, rng = GraphBuilder(), np.random.default_rng(1)
    inputs = [b.input(f"x{i}", (rows, 24)) for i in range(count)]
    ends = [tower(b, x, rng, 24, 37, 16) for x in inputs]
    return b.graph(*([b.add(MatMul(transpose_b=True), *ends)] if count == 2 else []), *ends)


# ---- models ---------------------------------------------------------------------------------------------------------


def test_two_towers(tmp_path: Path, order: int) -> None:
    """Different inputs, different weights, outputs of each; the launches are halved but for the one that joins them."""
    found = compare(two_towers(), tmp_path)
    assert branches_of(found) == [2, 2, 2, 1]
    first = found.launches[0]
    assert first.program.launch_grid[2] == 2 and " | " in first.name and found.steps[0].name == first.name
    assert len(found.plan.targets[0].kernels) == 4


def test_symbolic_sizes(tmp_path: Path, order: int) -> None:
    n = Var("d_rows", 1)
    found = compare(two_towers(n), tmp_path, sizes=[{"d_rows": s} for s in (5, 1, 70)])
    assert branches_of(found) == [2, 2, 2, 1] and found.launches[0].program.symbols == (n,)


def test_branches_of_one_input(tmp_path: Path) -> None:
    """Products of one input, which every branch reads; their outputs are consumed, and one is the model's too, twice. The fifth product
    took up the sum of all, so it is another kernel."""
    b, rng = GraphBuilder(), np.random.default_rng(2)
    x = b.input("x", (7, 19))
    parts = [b.add(MatMul(), x, weights(b, rng, 19, 11)) for _ in range(5)]
    total = parts[0]
    for p in parts[1:]:
        total = b.add(Elementwise("add"), total, p)
    found = compare(b.graph(b.add(Softmax(1), total), parts[3], parts[3]), tmp_path)
    assert branches_of(found)[0] == 4
    tensors = [a.tensor for a in found.steps[0].args if isinstance(a, TensorArg)]
    assert len(tensors) == 4 * 3 and len(set(tensors)) == 1 + 4 + 4, "the input is one tensor"


def test_a_result_is_not_overwritten_by_a_neighbour(tmp_path: Path, order: int) -> None:
    """What one branch reads for the last time and what another writes live at once: they are of one launch."""
    b, rng = GraphBuilder(), np.random.default_rng(6)
    ends: list[str] = []
    for i in range(2):
        x = b.input(f"x{i}", (9, 33))
        for _ in range(4):
            x = b.add(Softmax(1), b.add(MatMul(), x, weights(b, rng, 33, 33)))
        ends.append(x)
    found = compare(b.graph(b.add(MatMul(transpose_b=True), *ends)), tmp_path)
    assert branches_of(found) == [2] * 8 + [1]


def test_crossing_branches(tmp_path: Path, order: int) -> None:
    """product -> softmax in one branch, softmax -> product in the other: batching both pairs would be a cycle."""
    b, rng = GraphBuilder(), np.random.default_rng(3)
    x, y, z = (b.input(n, (8, 8)) for n in "xyz")
    first = b.add(Softmax(1), b.add(MatMul(), x, weights(b, rng, 8, 8)))
    second = b.add(MatMul(), b.add(Softmax(1), y), weights(b, rng, 8, 8))
    for _ in range(5):
        z = b.add(Reduce("max", (1,), True), b.add(MatMul(), z, z))
        z = b.add(MatMul(), z, b.constant(rng.standard_normal((1, 8)).astype(np.float32)))
    found = compare(b.graph(first, second, z), tmp_path)
    pairs = [x for x in found.launches if len(x.kernels) == 2]
    assert not pairs and any("hold up the other" in x.apart for x in found.launches)


def test_concat_parts(tmp_path: Path) -> None:
    """Parts of one tensor at different places are different kernels, so the towers that end in them stay apart."""
    b, rng = GraphBuilder(), np.random.default_rng(4)
    ends = [tower(b, b.input(f"x{i}", (5, 24)), rng, 24, 16) for i in range(2)]
    joined = b.add(Concat(1), *ends)
    found = compare(b.graph(b.add(Softmax(1), b.add(MatMul(), joined, weights(b, rng, 32, 8)))), tmp_path)
    assert set(branches_of(found)) == {1} and any("different launches wait for them" in x.apart for x in found.launches)


# ---- counters and scratch --------------------------------------------------------------------------------------------


def split_products(problem: Problem) -> BuiltKernel:
    """Products with four blocks that share a tile's k range; the rest as usual."""
    if matmul_mma.why_not(problem.task, problem.target) is not None:
        return build_problem(problem)
    return scheduled(problem, matmul_mma.NAME, matmul_mma.Schedule(32, 32, 16, 16, 16, 2, "register", 4))


def split_rows(problem: Problem) -> BuiltKernel:
    """Rows with eight blocks to a row."""
    if rows.why_not(problem.task, problem.target) is not None:
        return build_problem(problem)
    return scheduled(problem, rows.NAME, RowsSchedule("columns", 256, 1, 1, 0, 8))


def scheduled(problem: Problem, template: str, schedule: object) -> BuiltKernel:
    kernel = build_scheduled(problem.unit, problem.target, template, schedule)
    assert kernel.program.workspaces, "the schedule was to need memory of its own"
    return kernel


def sums() -> Graph:
    """Three inputs' sums and greatest elements of each row."""
    b = GraphBuilder()
    inputs = [b.input(f"x{i}", (3, 700)) for i in range(3)]
    return b.graph(*(b.add(Reduce(kind, (1,)), x) for kind in ("sum", "max") for x in inputs))


@pytest.mark.parametrize(("graph", "build", "sizes"), [(two_towers(33, 3), split_products, [3, 3, 3]), (sums(), split_rows, [3, 3])],
                         ids=["products", "rows"])
def test_counters_and_scratch_of_each_branch(tmp_path: Path, order: int, graph: Graph, build: Build, sizes: list[int]) -> None:
    """Blocks of a branch meet at its own counters; a second run finds them zero again."""
    found = compare(graph, tmp_path, build, sizes=[{}, {}])
    assert branches_of(found) == sizes
    split = [s for s in found.steps if any(isinstance(a, CounterArg) for a in s.args)]
    own = [a for a in split[0].args if isinstance(a, ScratchArg)]
    assert len(own) % 3 == 0 and len({a.offset for a in own}) == len(own)
    assert sum(isinstance(a, CounterArg) for a in split[0].args) == 3


# ---- what is seen -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["t0", "t1", "t3", "partial", "counter"])
def test_a_wrong_pointer_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Mutations: every branch takes the first one's input, weights, output, partial sums or counters. The blocks run in a shuffled order:
    one branch after the other could share the last two."""
    monkeypatch.setenv("TASKC_HOST_ORDER", "3")
    monkeypatch.setenv("TASKC_POISON", "1")
    right = emitting._own  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(emitting, "_own", lambda name, n: f"{name}_0" if name == wrong else right(name, n))
    with pytest.raises((AssertionError, loader.ModelError)):
        compare(two_towers(65, 3), tmp_path, split_products)


def test_equal_text_on_another_grid_is_not_alike(tmp_path: Path) -> None:
    """The number of matrices shows in the grid alone."""
    b = GraphBuilder()
    ends = [b.add(MatMul(), b.input(f"x{n}", (n, 32, 32)), b.input(f"y{n}", (n, 32, 32))) for n in (2, 3)]
    kernels = build_kernels(groups_of(b.graph(*ends))[0], TARGETS["sm_90a"], {})
    launches = make_launches(kernels, TARGETS["sm_90a"], {})
    assert [len(x.kernels) for x in launches] == [1, 1] and kernels[0].program.grid != kernels[1].program.grid
    if kernels[0].text == kernels[1].text:
        assert not any(x.apart for x in launches)


def test_what_fills_the_gpu_stays_alone() -> None:
    def launches(rows: Index, sizes: dict[str, int]) -> list[BuiltLaunch]:
        groups, _ = groups_of(two_towers(rows))
        return make_launches(build_kernels(groups, TARGETS["sm_90a"], sizes), TARGETS["sm_90a"], sizes)

    large = launches(500_000, {})
    assert any("one alone fills the GPU for" in x.apart for x in large) and len(large) == 7
    assert [len(x.kernels) for x in launches(50, {})] == [2, 2, 2, 1]
    n = Var("d_rows", 1)
    assert len(launches(n, {"d_rows": 50})) == 4 and len(launches(n, {"d_rows": 500_000})) == 7


def test_parameters_of_a_kernel_are_bounded() -> None:
    """A kernel of many tensors has fewer branches: 4096 bytes of parameters."""
    b = GraphBuilder()
    ends: list[str] = []
    for i in range(8):
        parts = [b.input(f"x{i}_{k}", (3, 4)) for k in range(90)]
        total = parts[0]
        for p in parts[1:]:
            total = b.add(Elementwise("add"), total, p)
        ends.append(total)
    (groups, _), target = groups_of(b.graph(*ends)), TARGETS["sm_90a"]
    launches = make_launches(build_kernels(groups, target, {}), target, {})
    assert [len(x.tensors) // 91 for x in launches] == [5, 3] and all(8 * len(x.tensors) <= 4096 for x in launches)


def test_a_program_keeps_its_grid() -> None:
    program = Program("k", (3, 2, 1), 32, 0)
    assert program.launch_grid == (3, 2, 1) and replace(program, branches=4).launch_grid == (3, 2, 4)
    with pytest.raises(ValueError, match="2 branches along a grid dim of 5 blocks"):
        replace(program, grid=(3, 2, 5), branches=2)


# ---- whole path -------------------------------------------------------------------------------------------------------


def towers_model() -> onnx.ModelProto:
    """Two towers of a product and a softmax each, with a symbolic batch."""
    rng, info, node = np.random.default_rng(8), onnx.helper.make_tensor_value_info, onnx.helper.make_node
    float32 = onnx.TensorProto.FLOAT
    initial = [onnx.numpy_helper.from_array(rng.standard_normal((24, 18)).astype(np.float32), f"w{i}") for i in range(2)]
    nodes = [n for i in range(2) for n in (node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"], name=f"product{i}"),
                                           node("Softmax", [f"p{i}"], [f"y{i}"], name=f"softmax{i}"))]
    graph = onnx.helper.make_graph(nodes, "towers", [info(f"x{i}", float32, ["batch", 24]) for i in range(2)],
                                   [info(f"y{i}", float32, None) for i in range(2)], initial)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])


def test_compiling_both_ways(tmp_path: Path) -> None:
    """On by default; one kernel for both branches; the same bytes with any number of compilers."""
    made = {name: compile_model(towers_model(), tmp_path / f"{name}.so", options=Options(("sm_90a", "host"), jobs=jobs, branches=branches))
            for name, jobs, branches in (("one", 1, True), ("two", 2, True), ("apart", 2, False))}
    assert (tmp_path / "one.so").read_bytes() == (tmp_path / "two.so").read_bytes() != (tmp_path / "apart.so").read_bytes()
    assert [[len(t.steps) for t in made[n].targets] for n in ("one", "apart")] == [[2, 2], [4, 4]]
    rng = np.random.default_rng(9)
    feeds: dict[str, Array] = {f"x{i}": rng.standard_normal((13, 24)).astype(np.float32) for i in range(2)}
    one, apart = (loader.load(tmp_path / f"{n}.so", device="host").run(feeds) for n in ("one", "apart"))
    assert all(one[n].tobytes() == apart[n].tobytes() for n in one) and not np.array_equal(one["y0"], one["y1"])
    names = [s["name"] for s in loader.describe(tmp_path / "one.so")["targets"][0]["steps"]]
    assert names == ["product0 | product1", "softmax0 | softmax1"]


def test_explain_says_who_shares_a_launch() -> None:
    found = explain(towers_model())
    assert found.launches == 2 and [g.shares for g in found.groups] == [("product1",), ("softmax1",), ("product0",), ("softmax0",)]
    assert found.about("product1").launches == 1
    assert all("one alone fills" in g.apart and not g.shares for g in explain(towers_model(), sizes={"batch": 3_000_000}).groups)
