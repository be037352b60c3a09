"""Models whose right outputs follow from ONNX's rules by hand: indexing, shapes, broadcasting, structure."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
from taskc.importer import import_model
from taskc.ir.convert import bf16_values
from taskc.ops.registry import find_reader
from tests.importer.onnx_models import branch, check, model, node, results

F, I64 = np.float32, np.int64
RNG = np.random.default_rng(41)


def ramp(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=F).reshape(shape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, I64)


def test_gather_takes_scalars_and_negative_indices_and_axes() -> None:
    x = ramp(2, 3, 5)
    check([node("Gather", "x i", "y", axis=-1)], {"x": x, "i": np.array(-2, np.int32)}, {"y": x[..., 3]})


def test_gather_elements_and_nd_count_from_the_end() -> None:
    x, i = ramp(3, 4), np.full((3, 4), -1, I64)
    check([node("GatherElements", "x i", "y", axis=1)], {"x": x, "i": i}, {"y": np.repeat(x[:, 3:], 4, 1)}, opset=13)
    pairs, picks = np.array([[-2, -1], [0, -3]], I64), np.array([[-1], [0], [-4]], I64)
    check([node("GatherND", "x p", "y"), node("GatherND", "x q", "z", batch_dims=1)], {"x": x, "p": pairs, "q": picks},
          {"y": np.array([7, 1], F), "z": np.array([3, 4, 8], F)}, opset=13)


def test_one_hot_outside_is_off() -> None:
    want = np.full((5, 4), -1, F)
    want[[0, 2, 4], [0, 1, 2]] = 3
    check([node("OneHot", "i d v", "y", axis=0)], {"i": ints(0, 2, -1, 5)}, {"y": want},
          constants={"d": np.array(5, I64), "v": np.array([-1, 3], F)}, opset=11)


def test_slices_clamp_like_python() -> None:
    x = ramp(5, 7)
    big = 2**63 - 1
    for start, end, step in ((-2, big, 1), (4, -big - 1, -1), (18, 1, -4), (0, 5, -1), (3, 100, 2), (-100, 2, 1), (6, 0, -3)):
        nodes = [node("Slice", "x s e a t", "y")]
        check(nodes, {"x": x}, {"y": x[:, start:end:step] if end != -big - 1 else x[:, start::step]},
              constants={"s": ints(start), "e": ints(end), "a": ints(-1), "t": ints(step)})


def test_slice_of_opset_1_and_split_forms() -> None:
    x = ramp(4, 7)
    check([node("Slice", "x", "y", starts=[1], ends=[-1], axes=[1])], {"x": x}, {"y": x[:, 1:-1]}, opset=9)
    check([node("Split", "x", "a b", axis=1, split=[2, 5])], {"x": x}, {"a": x[:, :2], "b": x[:, 2:]}, opset=11)
    check([node("Split", "x", "a b c", axis=1, num_outputs=3)], {"x": x}, {"a": x[:, :3], "b": x[:, 3:6], "c": x[:, 6:]}, opset=18)


def test_pads() -> None:
    x = ramp(3, 4)
    for mode in ("constant", "reflect", "edge"):
        want = np.pad(x, ((2, 0), (1, 3)), mode=mode)
        check([node("Pad", "x p", "y", mode=mode)], {"x": x}, {"y": want}, constants={"p": ints(2, 1, 0, 3)})
    check([node("Pad", "x p v", "y")], {"x": x}, {"y": np.pad(x[1:, :3], ((0, 2), (1, 0)), constant_values=-1.5)},
          constants={"p": ints(-1, 1, 2, -1), "v": np.array(-1.5, F)})
    check([node("Pad", "x p - a", "y")], {"x": x}, {"y": np.pad(x, ((0, 0), (1, 2)))}, constants={"p": ints(1, 2), "a": ints(-1)}, opset=18)


def test_reshape_zero_and_minus_one() -> None:
    x = ramp(2, 3, 4)
    check([node("Reshape", "x s", "y")], {"x": x}, {"y": x.reshape(2, 12)}, constants={"s": ints(0, -1)})
    empty = np.zeros((0, 3), F)
    check([node("Reshape", "x s", "y", allowzero=1)], {"x": empty}, {"y": empty.reshape(3, 0)}, constants={"s": ints(3, 0)})
    check([node("Flatten", "x", "y", axis=-1), node("Flatten", "x", "z", axis=0)], {"x": x}, {"y": x.reshape(6, 4), "z": x.reshape(1, 24)})


def test_depth_and_space() -> None:
    x = ramp(1, 8, 2, 3)
    dcr = x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6)
    crd = x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6)
    nodes = [node("DepthToSpace", "x", "a", blocksize=2), node("DepthToSpace", "x", "b", blocksize=2, mode="CRD"),
             node("SpaceToDepth", "a", "c", blocksize=2)]
    check(nodes, {"x": x}, {"a": dcr, "b": crd, "c": x})


def test_arithmetic_of_integers_and_mixed_powers() -> None:
    a, b = np.array([7, -7, 9], np.int32), np.array([2, 2, -4], np.int32)
    check([node("Div", "a b", "q"), node("Mod", "a b", "m"), node("Mod", "a b", "f", fmod=1), node("Pow", "a h", "p")],
          {"a": a, "b": b}, {"q": np.array([3, -3, -2], np.int32), "m": np.array([1, 1, -3], np.int32), "f": np.array([1, -1, 1], np.int32),
                             "p": np.array([49, 49, 81], np.int32)}, constants={"h": np.array(2.0, F)})


def test_nan_passes_through_clip_min_max_and_relu() -> None:
    x = np.array([np.nan, -2, 3, 9], F)
    want = np.array([np.nan, 0, 3, 6], F)
    check([node("Clip", "x l h", "y"), node("Max", "x l", "m"), node("Relu", "x", "r")], {"x": x},
          {"y": want, "m": np.array([np.nan, 0, 3, 9], F), "r": np.array([np.nan, 0, 3, 9], F)},
          constants={"l": np.array(0, F), "h": np.array(6, F)})
    check([node("Clip", "x", "y", min=0.0, max=6.0)], {"x": x}, {"y": want}, opset=6)
    check([node("Clip", "x - h", "y")], {"x": x}, {"y": np.array([np.nan, -2, 3, 6], F)}, constants={"h": np.array(6, F)})


def test_mean_of_halves_does_not_overflow() -> None:
    x = np.full(3, 6e4, np.float16)
    check([node("Mean", "x x x", "y"), node("Sum", "z z", "s")], {"x": x, "z": np.ones(2, F)}, {"y": x, "s": np.full(2, 2, F)})


def test_broadcast_before_opset_7() -> None:
    x, b = ramp(2, 3, 4), ramp(3)
    check([node("Add", "x b", "y", broadcast=1, axis=1)], {"x": x, "b": b}, {"y": x + b[:, None]}, opset=6)


def test_vectors_in_matrix_products_and_gemm() -> None:
    a, b, v = RNG.standard_normal((3, 5)).astype(F), RNG.standard_normal((5, 4)).astype(F), RNG.standard_normal(5).astype(F)
    nodes = [node("MatMul", "v b", "p"), node("MatMul", "a v", "q"), node("MatMul", "v v", "r"),
             node("Gemm", "a b c", "g", alpha=0.5, beta=2.0)]
    c = RNG.standard_normal(4).astype(F)
    want = {"p": v @ b, "q": a @ v, "r": np.array(v @ v, F), "g": 0.5 * (a @ b) + 2 * c}
    check(nodes, {"a": a, "b": b, "v": v, "c": c}, want, tolerance=1e-5)


def test_cumsum_trilu_range_eye() -> None:
    x = ramp(3, 3)
    flipped = np.flip(np.cumsum(np.flip(x, 1), 1), 1) - x
    check([node("CumSum", "x a", "c", exclusive=1, reverse=1), node("Trilu", "x k", "t", upper=0), node("EyeLike", "x", "e", k=1)],
          {"x": x}, {"c": flipped, "t": np.tril(x, -1), "e": np.eye(3, k=1, dtype=F)},
          constants={"a": np.array(1, I64), "k": np.array(-1, I64)})


def test_shape_computations_fold_into_dims() -> None:
    """Shape -> Gather -> Mul -> Concat -> Reshape leaves one Reshape, and the product of the symbol in its shape."""
    x = ramp(2, 3, 4)
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Gather", "s one", "c"), node("Mul", "n c", "nc"),
             node("Unsqueeze", "nc axes", "u"), node("Concat", "u minus", "to", axis=0), node("Reshape", "x to", "y")]
    constants = {"zero": np.array(0, I64), "one": np.array(1, I64), "axes": ints(0), "minus": ints(-1)}
    m = model(nodes, {"x": x}, "y", constants=constants, dims={"x": ["batch", 3, 4]})
    graph = import_model(m)
    assert [n.op.name for n in graph.nodes] == ["Reshape"]
    assert str(graph.types["y"]) == "f32[(3*d_batch), 4]"
    np.testing.assert_array_equal(results(m, {"x": x})["y"], x.reshape(6, 4))


def test_symbolic_contents_are_written_for_operators_that_read_them() -> None:
    x = ramp(3, 2)
    nodes = [node("Shape", "x", "s"), node("Cast", "s", "f", to=TensorProto.FLOAT), node("ReduceSum", "x", "t", keepdims=0),
             node("Div", "t f", "y")]
    m = model(nodes, {"x": x}, "y s", opset=13, dims={"x": ["n", "m"]})
    found = results(m, {"x": x})
    np.testing.assert_array_equal(found["s"], [3, 2])
    np.testing.assert_allclose(found["y"], x.sum() / np.array([3, 2], F))


def test_known_condition_of_where_on_a_symbolic_shape() -> None:
    """Expand as exporters write it: where(shape == -1, 1, shape)."""
    x = ramp(1, 3)
    nodes = [node("Shape", "k", "s"), node("Concat", "s three", "want", axis=0), node("Equal", "want minus", "q"),
             node("Where", "q ones want", "to"), node("Expand", "x to", "y")]
    constants = {"three": ints(3), "minus": ints(-1), "ones": ints(1)}
    m = model(nodes, {"x": x, "k": ramp(5)}, "y", constants=constants, dims={"k": ["n"]})
    assert [n.op.name for n in import_model(m).nodes] == ["Expand"]
    np.testing.assert_array_equal(results(m, {"x": x, "k": ramp(5)})["y"], np.repeat(x, 5, 0))


def test_outputs_that_are_inputs_duplicates_and_constants() -> None:
    x, c = ramp(2), np.array([5, 6], F)
    m = model([node("Identity", "x", "a"), node("Identity", "a", "b"), node("Identity", "c", "d")], {"x": x}, "x a b d", constants={"c": c})
    found = results(m, {"x": x})
    for name in "xab":
        np.testing.assert_array_equal(found[name], x)
    np.testing.assert_array_equal(found["d"], c)


def test_local_functions_nest_and_pass_attributes() -> None:
    def by_reference(n: object, attribute: str, source: str) -> object:
        a = AttributeProto(name=attribute, ref_attr_name=source, type=AttributeProto.INT)
        n.attribute.append(a)  # type: ignore[attr-defined]
        return n

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = helper.make_function("own", "inner", ["x"], ["y"], [by_reference(helper.make_node("Constant", [], ["c"]), "value_int", "k"),
                                                              node("Add", "x c", "y")], opsets, ["k"])
    outer = helper.make_function("own", "outer", ["x"], ["y"], [by_reference(node("inner", "x", "y", "own"), "k", "j")], opsets, ["j"])
    x = ints(10, 20)
    check([node("outer", "x", "a", "own", j=1), node("outer", "x", "b", "own", j=5)], {"x": x}, {"a": x + 1, "b": x + 5},
          functions=[inner, outer], domains=("own",))


def test_a_known_condition_picks_its_branch_and_names_stay_inside() -> None:
    x = ramp(3)
    then = branch([node("Neg", "x", "a")], "a")
    other = branch([node("Mul", "x two", "a")], "a", {"two": np.array(2, F)})
    nodes = [node("Relu", "x", "a"), node("If", "c", "y", then_branch=then, else_branch=other), node("Add", "a y", "z")]
    check(nodes, {"x": x}, {"z": np.maximum(x, 0) + 2 * x, "y": 2 * x}, constants={"c": np.array(False)})


def test_dead_nodes_of_unknown_kinds_do_not_matter() -> None:
    check([node("Det", "q", "dead"), node("Relu", "x", "y")], {"x": ramp(2), "q": ramp(2, 2)}, {"y": ramp(2)})


def test_nodes_out_of_order_are_sorted() -> None:
    check([node("Neg", "a", "y"), node("Relu", "x", "a")], {"x": ramp(2)}, {"y": -ramp(2)})


def test_numbers_held_field_by_field() -> None:
    def held(kind: int, values: list[float]) -> TensorProto:
        return helper.make_tensor("t", kind, [len(values)], values, raw=False)

    m = model([node("Add", "x h", "y"), node("Cast", "b", "z", to=TensorProto.INT32), node("Cast", "w", "v", to=TensorProto.INT64)],
              {"x": np.ones(2, np.float16)}, "y z v")
    tensors = {"h": held(TensorProto.FLOAT16, [1.5, -2]), "b": held(TensorProto.BOOL, [1, 0]), "w": held(TensorProto.UINT32, [4e9])}
    for name, t in tensors.items():
        t.name = name
        m.graph.initializer.append(t)
    found = results(m, {"x": np.ones(2, np.float16)})
    np.testing.assert_array_equal(found["y"], [2.5, -1])
    np.testing.assert_array_equal(found["z"], [1, 0])
    np.testing.assert_array_equal(found["v"], [4000000000])


def test_bfloat16_constants_keep_their_bits() -> None:
    w = RNG.standard_normal(5).astype(ml_dtypes.bfloat16)
    m = model([node("Add", "x w", "y"), node("Cast", "y", "z", to=TensorProto.FLOAT)], {}, "y z")
    m.graph.initializer.append(numpy_helper.from_array(w, "w"))
    m.graph.input.append(helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [5]))
    x = RNG.standard_normal(5).astype(ml_dtypes.bfloat16)
    found = results(m, {"x": x.view(np.uint16)})
    want = (x.astype(F) + w.astype(F)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found["y"], want.view(np.uint16))
    np.testing.assert_array_equal(found["z"], bf16_values(want.view(np.uint16)))


def test_a_large_fill_is_not_folded() -> None:
    m = model([node("ConstantOfShape", "s", "c", value=numpy_helper.from_array(np.array([1.0], F))), node("Add", "c x", "d")],
              {"x": np.array(2, F)}, "d", constants={"s": ints(16384, 16384)})
    graph = import_model(m)
    assert [n.op.name for n in graph.nodes] == ["Fill", "add"]
    assert sum(c.nbytes for c in graph.constants.values()) < 1024


def test_initializers_that_are_inputs_are_constants() -> None:
    m = model([node("Add", "x w", "y")], {"x": ramp(2)}, "y", constants={"w": ramp(2)})
    m.graph.input.append(helper.make_tensor_value_info("w", 1, [2]))
    assert import_model(m).inputs == ("x",)


def test_operators_that_onnx_defines_by_others() -> None:
    """Without a reader of their own they are inlined from ONNX's definition: SoftmaxCrossEntropyLoss depends on its types too."""
    assert find_reader("NegativeLogLikelihoodLoss", 13) is None
    x, t = np.log(np.abs(RNG.standard_normal((3, 4))) + 0.1).astype(F), ints(0, 3, 1)
    check([node("NegativeLogLikelihoodLoss", "x t", "y")], {"x": x, "t": t}, {"y": np.array(-x[np.arange(3), t].mean(), F)}, opset=13)
