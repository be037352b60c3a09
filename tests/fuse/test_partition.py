"""What joins what: residuals, diamonds, several readers, concatenation, graph outputs; and the reasons of refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from taskc.errors import Unsupported
from taskc.fuse.units import Unit, make_units
from taskc.importer import import_model
from taskc.ir.dtype import F16, I64
from taskc.ir.expr import Var
from taskc.ir.graph import Graph, Op, OpError, TensorType
from taskc.ir.interpret import evaluate_graph
from taskc.ir.task import Contraction, Map, Rows, outputs
from taskc.ops.concat import Concat
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.gather import Gather
from taskc.ops.matmul import MatMul
from taskc.ops.pad import Pad
from taskc.ops.pool import Pool
from taskc.ops.reduce import Reduce
from taskc.ops.reshape import Reshape
from taskc.ops.slice import Slice
from taskc.ops.softmax import Softmax
from taskc.ops.transpose import Transpose
from taskc.ops.windows import Window
from tests.fuse.test_partition_meaning import check_meaning
from tests.graphs import GraphBuilder, groups_of, interpret, random_feeds

RNG = np.random.default_rng(3)


def weights(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RNG.standard_normal(shape).astype(np.float32)


def kinds(groups: list[Unit]) -> list[str]:
    return [type(u.task).__name__ for u in groups]


def reasons(groups: list[Unit]) -> str:
    return " | ".join(r for u in groups for r in u.refused)


def test_convolution_bias_residual_relu_is_one_kernel() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 4, 5, 5))
    y = b.add(Conv((1, 1), (1, 1, 1, 1), (1, 1)), x, b.constant(weights(4, 4, 3, 3)))
    y = b.add(Elementwise("add"), y, b.constant(weights(4, 1, 1)))
    y = b.add(Elementwise("relu"), b.add(Elementwise("add"), y, x))
    groups = check_meaning(b.graph(y))
    assert kinds(groups) == ["Contraction"]
    assert [j.split()[0] for j in groups[0].joined] == ["epilogue"] + ["prologue"] * (len(groups[0].joined) - 1)
    assert set(groups[0].source) == {n.source for n in b.nodes}


def test_gelu_diamond_closes() -> None:
    """x * sigmoid(x) and the erf form read the product several times; one epilogue all the same."""
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (7, 5)), b.constant(weights(5, 6)))
    half = b.add(Elementwise("mul"), x, b.constant(np.float32([0.5])))
    e = b.add(Elementwise("erf"), b.add(Elementwise("mul"), x, b.constant(np.float32([0.7071]))))
    y = b.add(Elementwise("mul"), half, b.add(Elementwise("add"), e, b.constant(np.float32([1]))))
    groups = check_meaning(b.graph(y))
    assert kinds(groups) == ["Contraction"]


def test_transpose_and_reshape_join_as_epilogues() -> None:
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (2, 6, 5)), b.constant(weights(5, 8)))
    x = b.add(Transpose((0, 2, 1, 3)), b.add(Reshape((2, 6, 2, 4)), x))
    groups = check_meaning(b.graph(x))
    assert kinds(groups) == ["Contraction"]
    assert [str(d) for d in outputs(groups[0].task)[0].shape] == ["2", "2", "6", "4"]


def test_views_join_every_reader() -> None:
    """A transpose read by two products costs nothing in both."""
    b = GraphBuilder()
    x = b.add(Transpose((1, 0)), b.input("x", (5, 7)))
    p, q = b.add(MatMul(), x, b.constant(weights(5, 3))), b.add(MatMul(), x, b.constant(weights(5, 4)))
    groups = check_meaning(b.graph(p, q))
    assert kinds(groups) == ["Contraction"] * 2


def test_computations_with_two_readers_stay() -> None:
    b = GraphBuilder()
    x = b.add(Elementwise("relu"), b.input("x", (7, 5)))
    p, q = b.add(MatMul(), x, b.constant(weights(5, 3))), b.add(MatMul(), x, b.constant(weights(5, 4)))
    groups = check_meaning(b.graph(p, q))
    assert sorted(kinds(groups)) == ["Contraction", "Contraction", "Map"]
    assert "2 readers would each compute it" in reasons(groups)


def test_graph_outputs_are_kept() -> None:
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (7, 5)), b.constant(weights(5, 6)))
    y = b.add(Elementwise("relu"), x)
    groups = check_meaning(b.graph(x, y))
    assert kinds(groups) == ["Contraction"]
    assert [t.name for t in outputs(groups[0].task)] == [x, y]
    assert groups[0].joined == (f"epilogue {b.nodes[1].source}, {x} stored too",)
    alone = check_meaning(b.graph(y))
    assert kinds(alone) == ["Contraction"]


def test_intermediate_outputs_do_not_end_a_chain() -> None:
    """Kept values at the anchor, in the middle and through a change of order; with a product, with rows, and without an anchor."""
    for anchor in (MatMul(), Softmax(1), Elementwise("tanh")):
        b = GraphBuilder()
        x = b.input("x", (6, 8))
        first = b.add(anchor, x, b.constant(weights(8, 10))) if isinstance(anchor, MatMul) else b.add(anchor, x)
        second = b.add(Elementwise("sigmoid"), b.add(Elementwise("add"), first, b.constant(weights(6, 1))))
        turned = b.add(Transpose((1, 0)), second)
        last = b.add(Elementwise("mul"), turned, b.constant(weights(6)))
        groups = check_meaning(b.graph(first, second, last))
        assert len(groups) == 1, kinds(groups)
        assert [t.name for t in outputs(groups[0].task)] == [first, second, last]


def test_a_kept_value_with_two_readers_stays() -> None:
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (7, 5)), b.constant(weights(5, 6)))
    ends = [b.add(Elementwise(f), x) for f in ("tanh", "sigmoid")]
    assert kinds(check_meaning(b.graph(x, *ends))) == ["Contraction", "Map", "Map"]


def test_a_kept_map_leaves_its_reader_to_a_product() -> None:
    """relu(x) is an output, and added to a product, which takes up the addition."""
    b = GraphBuilder()
    r = b.add(Elementwise("relu"), b.input("x", (6, 6)))
    y = b.add(Elementwise("add"), b.add(MatMul(), b.input("y", (6, 6)), b.constant(weights(6, 6))), r)
    groups = check_meaning(b.graph(r, y))
    assert sorted(kinds(groups)) == ["Contraction", "Map"] and all(len(u.task.stores) == 1 for u in groups)


def test_a_reader_that_does_not_fit_leaves_the_kept_value_alone() -> None:
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (7, 5)), b.constant(weights(5, 6)))
    groups = check_meaning(b.graph(x, b.add(Reduce("sum", (0,)), x)))
    assert kinds(groups) == ["Contraction", "Rows"] and "it reduces" in reasons(groups)


def test_concatenated_parts_join_their_producers() -> None:
    b = GraphBuilder()
    x = b.input("x", (3, 5))
    p, q = b.add(MatMul(), x, b.constant(weights(5, 4))), b.add(Elementwise("relu"), b.add(MatMul(), x, b.constant(weights(5, 2))))
    y = b.add(Concat(1), p, x, q)
    groups = check_meaning(b.graph(y))
    assert sorted(kinds(groups)) == ["Contraction", "Contraction", "Map"]
    assert all(outputs(u.task)[0].name == y for u in groups)


def test_the_same_value_twice_in_a_concat() -> None:
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (3, 5)), b.constant(weights(5, 4)))
    check_meaning(b.graph(b.add(Concat(0), x, x)))


def test_a_concat_that_is_read_waits_for_all_parts() -> None:
    b = GraphBuilder()
    x = b.input("x", (3, 5))
    y = b.add(Concat(1), b.add(MatMul(), x, b.constant(weights(5, 4))), x)
    z = b.add(Elementwise("tanh"), y)
    check_meaning(b.graph(z, b.add(Transpose((1, 0)), y)))


def test_padding_of_a_result_is_refused_as_epilogue() -> None:
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (3, 5)), b.constant(weights(5, 4)))
    groups = check_meaning(b.graph(b.add(Pad((1, 0), (0, 2)), x)))
    assert kinds(groups) == ["Contraction", "Map"] and "only in places" in reasons(groups)


@pytest.mark.parametrize(("op", "reason"), [
    (Slice((1, 0), (2, 4), (1, 1)), "covered only|shifted|element"), (Reduce("sum", (1,)), "anchors a kernel of its own"),
    (Gather(0), "does not reach|by data|not a|covered only"),
], ids=["slice", "reduce", "gather"])
def test_refused_epilogues_say_why(op: Op, reason: str) -> None:
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (3, 5)), b.constant(weights(5, 4)))
    inputs = (x, b.constant(np.array([0, 2], np.int64), I64)) if isinstance(op, Gather) else (x,)
    groups = check_meaning(b.graph(b.add(op, *inputs)))
    assert len(groups) == 2
    (refused,) = groups[0].refused
    assert f"{op.name}1 as epilogue: " in refused
    assert any(r in refused for r in reason.split("|")), refused


def test_a_residual_of_the_result_itself_is_refused() -> None:
    """y + transpose(y) reads two elements of the product for one of its own."""
    b = GraphBuilder()
    x = b.add(MatMul(), b.input("x", (4, 5)), b.constant(weights(5, 4)))
    y = b.add(Elementwise("add"), x, b.add(Transpose((1, 0)), x))
    groups = check_meaning(b.graph(y))
    assert kinds(groups) == ["Contraction", "Map"]
    assert "several elements" in reasons(groups)


def test_expensive_prologues_of_products_are_refused_cheap_ones_join() -> None:
    for function, want in (("exp", ["Map", "Contraction"]), ("relu", ["Contraction"])):
        b = GraphBuilder()
        x = b.add(Elementwise(function), b.input("x", (7, 5)))
        groups = check_meaning(b.graph(b.add(MatMul(), x, b.constant(weights(5, 3)))))
        assert kinds(groups) == want
        assert ("exp would be computed again" in reasons(groups)) == (function == "exp")


def test_pooling_takes_views_but_no_computation() -> None:
    for op, want in ((Transpose((0, 1, 3, 2)), 1), (Elementwise("relu"), 2)):
        b = GraphBuilder()
        x = b.add(op, b.input("x", (1, 2, 6, 6)))
        y = b.add(Pool("average", (3, 3), Window((2, 2), (1, 1, 1, 1), (1, 1))), x)
        groups = check_meaning(b.graph(y))
        assert len(groups) == want
    assert "every window" in reasons(groups)


def test_row_statistics_take_prologues_and_epilogues() -> None:
    b = GraphBuilder()
    x = b.add(Elementwise("mul"), b.input("x", (3, 8)), b.constant(np.float32([0.3])))
    y = b.add(Elementwise("neg"), b.add(Softmax(1), x))
    groups = check_meaning(b.graph(y))
    assert kinds(groups) == ["Rows"]
    assert isinstance(groups[0].task, Rows)


def test_the_same_graph_gives_the_same_groups() -> None:
    def build() -> Graph:
        b = GraphBuilder()
        x = b.add(MatMul(), b.input("x", (3, 5)), b.constant(np.ones((5, 4), np.float32)))
        return b.graph(b.add(Concat(1), b.add(Elementwise("relu"), x), b.add(Elementwise("neg"), x)))

    first, second = groups_of(build())[0], groups_of(build())[0]
    assert [(str(u.task), u.source, u.joined, u.refused) for u in first] == [(str(u.task), u.source, u.joined, u.refused) for u in second]


@pytest.mark.parametrize("sizes", [{"N": 1, "L": 1}, {"N": 2, "L": 7}, {"N": 5, "L": 16}], ids=str)
def test_symbolic_graphs_keep_their_meaning(sizes: dict[str, int]) -> None:
    """Attention-like shape changes, a concat over a symbol and a derived dim, at several sizes."""
    n, length = Var("N", 1), Var("L", 1)
    b = GraphBuilder()
    x = b.input("x", (n, length, 8))
    q = b.add(MatMul(), x, b.constant(weights(8, 12)))
    q = b.add(Transpose((0, 2, 1, 3)), b.add(Reshape((n, length, 3, 4)), q))
    k = b.add(Transpose((0, 2, 3, 1)), b.add(Reshape((n, length, 3, 4)), b.add(MatMul(), x, b.constant(weights(8, 12)))))
    s = b.add(Softmax(3), b.add(Elementwise("add"), b.add(MatMul(), q, k), b.constant(np.float32([0.25]))))
    y = b.add(Reshape((n, length, 12)), b.add(Transpose((0, 2, 1, 3)), b.add(MatMul(), s, q)))
    wide = b.add(Concat(1), y, b.add(Elementwise("tanh"), y), b.add(Pad((0, 1, 0), (0, 2, 0)), y))
    graph = b.graph(wide, b.add(Reshape((n * length, 12)), y))
    groups, derived = groups_of(graph)
    assert derived and len(groups) < len(graph.nodes)
    feeds = random_feeds(graph, 5, sizes)
    from_nodes = evaluate_graph(graph, feeds, np.float64)
    for name, a in interpret(groups, graph, derived, feeds).items():
        np.testing.assert_allclose(a, from_nodes[name], rtol=0, atol=1e-10 * max(1, np.abs(from_nodes[name]).max()))


def test_an_imported_model_keeps_its_meaning() -> None:
    """A residual block as an exporter writes it: Gemm, LayerNormalization in primitives, Split, Concat, Clip."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1), helper.make_node("Split", ["h"], ["p", "q"], axis=1, num_outputs=2),
        helper.make_node("Sigmoid", ["q"], ["gate"]), helper.make_node("Mul", ["p", "gate"], ["glu"]),
        helper.make_node("ReduceMean", ["glu", "axes"], ["mean"], keepdims=1), helper.make_node("Sub", ["glu", "mean"], ["d"]),
        helper.make_node("Concat", ["d", "x"], ["c"], axis=1), helper.make_node("Clip", ["c", "low", "high"], ["y"]),
    ]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in (
        ("w", weights(10, 6)), ("b", weights(10)), ("low", np.float32(-1.5)), ("high", np.float32(2)), ("axes", np.array([1], np.int64)))]
    graph = helper.make_graph(nodes, "block", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 6])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 11])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    groups = check_meaning(import_model(model.SerializeToString()))
    assert any(isinstance(u.task, Contraction) for u in groups)


class Impossible(Op):
    """An operator without a task."""

    def infer(self, ins: object) -> tuple[TensorType, ...]:
        return (TensorType(F16, (2,)),)

    def reference(self, *ins: object) -> tuple[np.ndarray, ...]:  # type: ignore[override,type-arg]
        return (np.zeros(2, np.float16),)

    def task(self, ins: object, outs: object) -> Map:
        raise OpError("no thread can do this")


def test_every_node_without_a_task_is_named() -> None:
    b = GraphBuilder()
    x = b.input("x", (2,), F16)
    y, z = b.add(Impossible(), x), b.add(Impossible(), x)
    with pytest.raises(Unsupported, match=r"(?s)Impossible0.*no thread can do this.*Impossible1"):
        make_units(b.graph(y, z))


def test_a_view_that_narrows_a_big_operand_is_copied_first() -> None:
    """A slice at an odd offset breaks vectors; a small one is read as it is, and one that keeps them as well."""
    for rows, start, kernels in ((64, 1, 2), (63, 1, 1), (64, 4, 1)):
        b = GraphBuilder()
        x = b.add(Slice((0, start), (rows, 64), (1, 1)), b.input("x", (rows, 72)))
        groups = check_meaning(b.graph(b.add(MatMul(), x, b.constant(weights(64, 8)))))
        assert len(groups) == kernels
        assert ("the loads would be 1 elements wide in place of 4" in reasons(groups)) == (kernels == 2)
