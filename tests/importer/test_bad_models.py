"""Damaged, hostile and unsupported files: the right error, naming the node and the reason, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
from taskc.errors import BadModel, TaskcError, Unsupported, UsageError
from taskc.importer import import_model
from tests.importer.onnx_models import branch, model, node

X = np.arange(6, dtype=np.float32).reshape(2, 3)
I64 = np.int64


def plain() -> ModelProto:
    return model([node("Add", "x w", "y", name="sum")], {"x": X}, "y", constants={"w": X})


def changed(change: Callable[[ModelProto], object]) -> ModelProto:
    m = plain()
    change(m)
    return m


def test_files_that_are_no_models(tmp_path: Path) -> None:
    good = plain().SerializeToString()
    kinds = {"empty": b"", "cut": good[: len(good) * 6 // 10], "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
             "html": b"<!doctype html>", "zip": b"PK\x03\x04rest", "noise": np.random.default_rng(3).bytes(4096)}
    for name, data in kinds.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadModel, match=name):
            import_model(tmp_path / name)
    with pytest.raises(BadModel, match="no such file"):
        import_model(tmp_path / "missing.onnx")
    with pytest.raises(BadModel, match="folder"):
        import_model(tmp_path)
    with pytest.raises(BadModel, match="git lfs pull"):
        import_model(tmp_path / "lfs")


def test_every_cut_of_a_file_is_refused_or_read() -> None:
    """No cut and no flipped byte may end in anything but a result or one of our errors."""
    m = model([node("Conv", "x w", "c", name="conv"), node("Reshape", "c s", "y")], {"x": np.ones((1, 2, 5, 5), np.float32)}, "y",
              constants={"w": np.ones((3, 2, 3, 3), np.float32), "s": np.array([0, -1], I64)})
    good = m.SerializeToString()
    rng = np.random.default_rng(5)
    for _ in range(400):
        data = bytearray(good[: rng.integers(1, len(good) + 1)])
        for _ in range(int(rng.integers(0, 4))):
            data[rng.integers(len(data))] = rng.integers(256)
        with suppress(TaskcError):
            import_model(bytes(data))


@pytest.mark.parametrize(("make", "reason"), [
    (lambda m: m.graph.initializer[0].dims.__setitem__(0, -2), "negative dim"),
    (lambda m: m.graph.initializer[0].dims.__setitem__(0, 2**62), "impossible dims"),
    (lambda m: m.graph.initializer[0].dims.__setitem__(0, 7), "needs 84 bytes"),
    (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "element type 99"),
    (lambda m: m.graph.output.pop(), "no outputs"),
    (lambda m: m.graph.output.append(m.graph.output[0]), "twice"),
    (lambda m: m.graph.input.append(m.graph.input[0]), "twice"),
    (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "twice"),
    (lambda m: m.graph.node.append(m.graph.node[0]), "made twice"),
    (lambda m: m.graph.node[0].input.__setitem__(1, "ghost"), "'ghost', which nothing produces"),
    (lambda m: m.graph.node[0].input.__setitem__(1, "y"), "in a circle"),
    (lambda m: m.graph.node[0].input.append("x"), "has 3 inputs"),
    (lambda m: m.graph.node[0].input.__setitem__(1, ""), "required but absent"),
    (lambda m: m.graph.node[0].attribute.append(helper.make_attribute("axis", 1)), "attribute 'axis'"),
    (lambda m: m.opset_import.pop(), "no operator set"),
    (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -5), "dim of -5"),
    (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 4), "do not broadcast"),
])
def test_inconsistent_models(make: Callable[[ModelProto], object], reason: str) -> None:
    with pytest.raises(BadModel, match=reason):
        import_model(changed(make).SerializeToString())


@pytest.mark.parametrize(("nodes", "reason"), [
    ([node("Concat", "x x", "y", axis="one")], "'axis' is STRING"),
    ([node("Concat", "x x", "y")], "lacks the attribute axis"),
    ([node("Concat", "x x", "y", axis=5)], "axis 5"),
    ([node("Transpose", "x", "y", perm=[0, 0])], "not a permutation"),
    ([node("Reshape", "x s", "y")], "does not divide|has 6 elements"),
    ([node("Squeeze", "x", "y", axes=[0])], "squeezes dim 0"),
    ([node("And", "x x", "y")], "does not take"),
    ([node("Gather", "x x", "y")], "does not take"),
    ([node("Split", "x", "a y", axis=1)], "equal pieces"),
    ([node("DepthToSpace", "x", "y", blocksize=2)], "4 dims"),
    ([node("Cast", "x", "y", to=1000)], "element type 1000"),
    ([node("Slice", "x", "y", starts=[0], ends=[1], axes=[0, 1])], "2 axes"),
    ([node("Constant", "", "y")], "lacks the attribute value"),
])
def test_bad_nodes_are_named(nodes: list[object], reason: str) -> None:
    with pytest.raises(BadModel, match=reason) as caught:
        import_model(model(nodes, {"x": X}, "y", constants={"s": np.array([4, -1], I64)}, opset=9))
    assert "(y)" in str(caught.value) or "(a)" in str(caught.value)


def test_an_operator_of_a_later_opset() -> None:
    nodes = [node("Mod", "x x", "y", name="rest")]
    with pytest.raises(Unsupported, match="rest: not an operator"):
        import_model(model(nodes, {"x": X}, "y", opset=9))
    with pytest.raises(BadModel, match="fmod=1"):
        import_model(model(nodes, {"x": X}, "y", opset=13))


def test_all_unsupported_nodes_are_reported_at_once() -> None:
    nodes = [node("FooBar", "x", "a", name="n1"), node("X", "a", "b", "my.domain", name="n2"),
             node("NonZero", "x", "c", name="n3"), node("NonZero", "x", "d", name="n4"), node("Concat", "b c d", "y", axis=0)]
    with pytest.raises(Unsupported) as caught:
        import_model(model(nodes, {"x": X}, "y", domains=("my.domain",)))
    text = str(caught.value)
    assert all(name in text for name in ("n1", "n2", "n3, n4", "size depends on data", "my.domain"))
    assert "Concat" not in text


@pytest.mark.parametrize(("nodes", "reason"), [
    ([node("If", "c", "y", then_branch=branch([node("Neg", "x", "a")], "a"), else_branch=branch([node("Abs", "x", "a")], "a"))],
     "condition"),
    ([node("Reshape", "x s", "y")], "shape depends on data"),
    ([node("Dropout", "x - t", "y")], "training"),
])
def test_what_depends_on_data(nodes: list[object], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        import_model(model(nodes, {"x": X, "c": np.array(True), "s": np.array([3, 2], I64), "t": np.array(True)}, "y"))


def test_opset_strings_and_sequences() -> None:
    with pytest.raises(Unsupported, match="highest that taskc knows"):
        import_model(changed(lambda m: setattr(m.opset_import[0], "version", 999)))
    with pytest.raises(Unsupported, match="input 'x' holds STRING"):
        import_model(changed(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.STRING)))

    def sequence(m: ModelProto) -> None:
        m.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1

    with pytest.raises(Unsupported, match="sequence"):
        import_model(changed(sequence))


def test_functions_that_call_themselves_or_explode() -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    loop = helper.make_function("own", "f", ["x"], ["y"], [node("f", "x", "y", "own")], opsets)
    with pytest.raises(BadModel, match="calls itself"):
        import_model(model([node("f", "x", "y", "own")], {"x": X}, "y", functions=[loop], domains=("own",)))
    names = [*((f"f{i}", "own") for i in range(1, 40)), ("Neg", "")]
    layers = [helper.make_function("own", f"f{i}", ["x"], ["y"], [node(name, "x", "a", domain), node(name, "a", "y", domain)], opsets)
              for i, (name, domain) in enumerate(names)]
    with pytest.raises(BadModel, match="nodes when its functions are inlined"):
        import_model(model([node("f0", "x", "y", "own")], {"x": X}, "y", functions=layers, domains=("own",)))


def test_deeply_nested_branches() -> None:
    inner = branch([node("Neg", "x", "a")], "a")
    for _ in range(25):
        inner = branch([node("If", "c", "a", then_branch=inner, else_branch=branch([node("Neg", "x", "a")], "a"))], "a")
    m = model([node("If", "c", "y", then_branch=inner, else_branch=inner)], {"x": X}, "y", constants={"c": np.array(True)})
    with pytest.raises(BadModel, match=r"deep|parse"):
        import_model(m)


def test_sizes_that_do_not_fit_the_model() -> None:
    m = model([node("Relu", "x", "y")], {"x": X}, "y", dims={"x": ["n", 3]})
    assert import_model(m, dims={"n": 4}).types["y"].shape == (4, 3)
    assert import_model(m, shapes={"x": (5, None)}).types["y"].shape == (5, 3)
    for options, reason in (({"dims": {"m": 4}}, "called 'm'"), ({"shapes": {"z": (1,)}}, "no input 'z'"),
                            ({"shapes": {"x": (1,)}}, "2 dims"), ({"shapes": {"x": (2, 4)}}, "cannot be 4"),
                            ({"dims": {"n": 2}, "shapes": {"x": (3, None)}}, "already made 2"),
                            ({"dims": {"n": -1}}, "impossible")):
        with pytest.raises(UsageError, match=reason):
            import_model(m, **options)  # type: ignore[arg-type]
