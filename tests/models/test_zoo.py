"""The zoo's models are valid, alive, reproducible and small where they are committed."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from models import zoo

SMALL = (*zoo.TWINS, *zoo.HANDMADE)
CONVOLUTIONAL = ("resnet_tiny", "mobilenet_tiny", "inception_tiny", "cnn_tiny")
SYMBOLIC = {"batch": 3, "sequence": 11}
VOCABULARY = 1000
Tensor = npt.NDArray[np.generic]


def random_inputs(model: onnx.ModelProto, seed: int) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    inputs: dict[str, Tensor] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [SYMBOLIC[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        if tensor.elem_type == TensorProto.INT64:
            inputs[value.name] = rng.integers(0, VOCABULARY, shape)
        else:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            inputs[value.name] = rng.standard_normal(shape).astype(dtype)
    return inputs


class Runner:
    """One model on onnxruntime's CPU; returns its first output in float64."""

    def __init__(self, model: onnx.ModelProto) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: dict[str, Tensor]) -> npt.NDArray[np.float64]:
        return np.asarray(self.session.run(None, inputs)[0]).astype(np.float64)


def difference(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


def assert_alive(model: onnx.ModelProto) -> None:
    run = Runner(model)
    first, second = (run(random_inputs(model, seed)) for seed in (1, 2))
    assert np.isfinite(first).all() and np.isfinite(second).all()
    assert difference(first, second) > 0.01


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_small_models_are_valid_and_alive(name: str, half: bool) -> None:
    model = zoo.build(name, half)
    onnx.checker.check_model(model, full_check=True)
    assert_alive(model)


@pytest.mark.parametrize("name", SMALL)
def test_another_seed_is_alive_and_different(name: str) -> None:
    model = zoo.build(name, seed=7)
    assert_alive(model)
    inputs = random_inputs(model, 1)
    assert difference(Runner(zoo.build(name))(inputs), Runner(model)(inputs)) > 0.01


@pytest.mark.parametrize("name", SMALL)
def test_half_agrees_with_float32(name: str) -> None:
    exact, half = zoo.build(name), zoo.build(name, half=True)
    rounded = random_inputs(half, 3)
    widened = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in rounded.items()}
    assert difference(Runner(exact)(widened), Runner(half)(rounded)) < 0.03


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_same_seed_gives_same_bytes(name: str, half: bool) -> None:
    first = zoo.build(name, half, seed=3).SerializeToString()
    assert zoo.build(name, half, seed=3).SerializeToString() == first
    assert zoo.build(name, half, seed=4).SerializeToString() != first


@pytest.mark.parametrize("name", SMALL)
def test_half_models_hold_no_float32(name: str) -> None:
    graph = zoo.build(name, half=True).graph
    assert not [t.name for t in graph.initializer if t.data_type == TensorProto.FLOAT]
    values = [*graph.input, *graph.output, *graph.value_info]
    assert not [v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT]


@pytest.mark.parametrize("name", SMALL)
def test_every_weight_is_filled_and_distinct(name: str) -> None:
    tensors = zoo.build(name).graph.initializer
    assert all(t.HasField("raw_data") or t.float_data for t in tensors)
    weights = [t.raw_data for t in zoo.build(name).graph.initializer if t.data_type == TensorProto.FLOAT and t.dims]
    assert len(set(weights)) == len(weights)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_batch_norms_see_about_the_statistics_they_hold(name: str) -> None:
    """Behind each BatchNorm, (y - bias) / scale over fresh images has mean near 0 and deviation near 1."""
    model = zoo.build(name)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    norms = [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    for node in norms:
        model.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None))
    run = Runner(model)
    samples = [run.session.run([n.output[0] for n in norms], random_inputs(model, seed)) for seed in range(20)]
    for position, node in enumerate(norms):
        scale, bias = (weights[name].reshape(-1, 1) for name in node.input[1:3])
        y = np.concatenate([np.asarray(s[position])[0].reshape(len(scale), -1) for s in samples], axis=1)
        z = (y - bias) / scale
        assert abs(z.mean()) < 0.3, node.name
        assert 0.6 < z.std() < 1.5, node.name


def test_gpt2_is_causal_and_bert_is_not() -> None:
    for name, causal in (("gpt2_tiny", True), ("bert_tiny", False)):
        model = zoo.build(name)
        run, inputs = Runner(model), random_inputs(model, 1)
        before = run(inputs)
        inputs["ids"][0, -1] = (int(inputs["ids"][0, -1]) + 1) % VOCABULARY
        after = run(inputs)
        assert difference(before[:, -1], after[:, -1]) > 0.01
        change = difference(before[:, :-1], after[:, :-1])
        assert change < 1e-6 if causal else change > 1e-4


def test_symbolic_bert_takes_any_batch_and_length() -> None:
    symbolic = zoo.build("bert_tiny_dyn")
    dims = symbolic.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims] == ["batch", "sequence"]
    run = Runner(symbolic)
    for batch, sequence in ((1, 1), (1, 16), (3, 37)):
        ids = np.random.default_rng(sequence).integers(0, VOCABULARY, (batch, sequence))
        together = run({"ids": ids})
        apart = np.concatenate([run({"ids": row[None]}) for row in ids])
        assert together.shape == (batch, sequence, 64)
        assert difference(apart, together) < 1e-5


def test_batch_norm_is_kept() -> None:
    for name, count in (("resnet50", 53), ("mobilenet_v2", 52), ("inception_v3", 94)):
        assert [n.op_type for n in zoo.skeleton(name).graph.node].count("BatchNormalization") == count


@pytest.mark.parametrize("name", zoo.FULL + zoo.TWINS)
def test_committed_files_are_small_and_free_of_local_paths(name: str) -> None:
    content = (zoo.SKELETONS / f"{name}.onnx").read_bytes()
    assert len(content) < 1_000_000
    for trace in (b"site-packages", b"stack_trace", b'File "'):
        assert trace not in content
    statistics = zoo.statistics_path(name)
    assert not statistics.exists() or statistics.stat().st_size < 400_000


@pytest.mark.parametrize("half", [False, True])
def test_conv_residual_takes_any_size(half: bool) -> None:
    model = zoo.build("conv_residual", half, n=2, h=13, w=7, c=5, co=11, k=5, stride=2, pad=1)
    onnx.checker.check_model(model, full_check=True)
    y = Runner(model)(random_inputs(model, 1))
    assert y.shape == (2, 11, 6, 3)
    assert (y >= 0).all() and (y == 0).any()


def test_matmul_gelu_is_gelu_of_the_product() -> None:
    model = zoo.build("matmul_gelu", m=7, n=13, k=17)
    weights = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}
    inputs = random_inputs(model, 1)
    z = inputs["x"].astype(np.float64) @ weights["weight"] + weights["bias"]
    tanh_form = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(Runner(model)(inputs), tanh_form, atol=1e-3)


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(KeyError, match="no model 'resnet51'"):
        zoo.build("resnet51")
    with pytest.raises(TypeError, match="fixed sizes"):
        zoo.build("resnet_tiny", h=7)
    with pytest.raises(TypeError, match="z"):
        zoo.build("conv_residual", z=7)
    with pytest.raises(ValueError, match="no output"):
        zoo.build("conv_residual", h=2, k=5, pad=0)
    with pytest.raises(ValueError, match="at least 1"):
        zoo.build("matmul_gelu", k=0)


def test_command_line(tmp_path: Path) -> None:
    target, script = tmp_path / "model.onnx", Path(zoo.__file__)
    command = [sys.executable, str(script), "matmul_gelu", "--half", "--seed", "5", "--size", "m=3", "-o", str(target)]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert target.read_bytes() == zoo.build("matmul_gelu", half=True, seed=5, m=3).SerializeToString()
    command[command.index("m=3")] = "m=0"
    refused = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "at least 1" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", zoo.FULL)
def test_full_models_are_valid_and_alive(name: str, half: bool) -> None:
    model = zoo.build(name, half)
    onnx.checker.check_model(model, full_check=True)
    assert_alive(model)
