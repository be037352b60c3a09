"""Weight recipes and the float16 conversion, on graphs made by hand."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.half import to_half
from models.recipes import Calibrated, Normal, Recipe, Uniform, fill, parse, placeholder, recipe_of


def model_of(nodes: list[onnx.NodeProto], initializers: list[TensorProto]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], initializers))


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


@pytest.mark.parametrize("recipe", [Normal(0.25, math.sqrt(1 / 3)), Uniform(-0.1, 1 / 7), Calibrated(1.0)])
def test_recipes_survive_their_text(recipe: Recipe) -> None:
    assert parse(recipe.text()) == recipe
    assert recipe_of(placeholder("w", (3, 5), recipe)) == recipe


@pytest.mark.parametrize("text", ["", "normal 1", "uniform a b", "gaussian 0 1", "normal 0 1 2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_filled_values_follow_their_recipe() -> None:
    skeleton = model_of([], [placeholder("n", (101, 103), Normal(2.0, 0.5)), placeholder("u", (10007,), Uniform(1, 3))])
    weights = weights_of(fill(skeleton, 0, None))
    assert weights["n"].mean() == pytest.approx(2.0, abs=0.02)
    assert weights["n"].std() == pytest.approx(0.5, abs=0.01)
    assert 1 <= weights["u"].min() < 1.01 and 2.99 < weights["u"].max() < 3


def test_values_depend_on_name_and_seed_not_on_neighbours() -> None:
    alone = weights_of(fill(model_of([], [placeholder("a", (7,), Normal(0, 1))]), 0, None))
    pair = [placeholder("b", (7,), Normal(0, 1)), placeholder("a", (7,), Normal(0, 1))]
    both = weights_of(fill(model_of([], pair), 0, None))
    np.testing.assert_array_equal(alone["a"], both["a"])
    assert not np.array_equal(both["a"], both["b"])


def test_a_calibrated_model_drifts_little_and_keeps_its_variance() -> None:
    def weights(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        tensors = [placeholder("w", (10007,), Normal(1.0, 2.0)), placeholder("m", (3,), Calibrated(0.0))]
        return weights_of(fill(model_of([], tensors), seed, {"m": np.array([1, 2, 3], np.float32)}))["w"]

    moved = weights(5) - weights(0)
    assert 0.15 < moved.std() < 0.25
    assert weights(5).std() == pytest.approx(2.0, rel=0.03)


def test_statistics_must_fit() -> None:
    for statistics in ({}, {"m": np.zeros(4, np.float32)}):
        with pytest.raises(ValueError, match=r"no calibrated values of shape \(3,\) for 'm'"):
            fill(model_of([], [placeholder("m", (3,), Calibrated(0.0))]), 0, statistics)


def test_half_converts_masks_casts_and_constants() -> None:
    lowest = numpy_helper.from_array(np.array(np.finfo(np.float32).min, np.float32))
    nodes = [
        helper.make_node("Constant", [], ["mask"], value=lowest),
        helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Cast", ["whole"], ["back"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["back", "mask"], ["y"]),
    ]
    model = to_half(model_of(nodes, []))
    onnx.checker.check_model(model, full_check=True)
    assert numpy_helper.to_array(model.graph.node[0].attribute[0].t) == np.finfo(np.float16).min
    assert [n.attribute[0].i for n in model.graph.node[1:3]] == [TensorProto.INT64, TensorProto.FLOAT16]
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16


def test_half_names_the_node_that_it_cannot_convert() -> None:
    branch = helper.make_graph([], "branch", [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)])
    for node in (
        helper.make_node("Resize", ["x", "", "scales"], ["y"], name="culprit"),
        helper.make_node("Constant", [], ["y"], name="culprit", value_float=1.0),
        helper.make_node("If", ["x"], ["y"], name="culprit", then_branch=branch, else_branch=branch),
    ):
        with pytest.raises(ValueError, match=f"culprit.*{node.op_type}"):
            to_half(model_of([node], []))
