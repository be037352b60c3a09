"""Small graphs written by hand, as skeletons: a CNN and two single fused patterns with sizes of one's choice."""

import math

import onnx
from onnx import TensorProto, helper

from models.recipes import Calibrated, Normal, Uniform, placeholder

# What the skeletons of the exporter use, so that all models of the zoo exercise the same versions.
OPSET = 20
IR_VERSION = 10


class _Writer:
    """Collects the nodes and initializers of one graph; every method returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []

    def op(self, op_type: str, inputs: list[str], output: str, **attributes: int | float | list[int]) -> str:
        node = helper.make_node(op_type, inputs, [output], name=f"node_{output}")
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return output

    def weight(self, name: str, shape: tuple[int, ...], recipe: Normal | Uniform | Calibrated) -> str:
        self.initializers.append(placeholder(name, shape, recipe))
        return name

    def scalar(self, name: str, value: float) -> str:
        self.initializers.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        return name

    def conv(self, x: str, name: str, shape: tuple[int, int, int, int], stride: int = 1) -> str:
        """A convolution without bias, padded so that stride 1 keeps the image's size.  shape: co, c, k, k."""
        w = self.weight(f"{name}.weight", shape, Normal(0.0, math.sqrt(2 / math.prod(shape[1:]))))
        pad = shape[-1] // 2
        return self.op("Conv", [x, w], name, kernel_shape=list(shape[2:]), pads=[pad] * 4, strides=[stride] * 2)

    def batch_norm(self, x: str, name: str, channels: int, scale: Uniform) -> str:
        parameters = [
            self.weight(f"{name}.weight", (channels,), scale),
            self.weight(f"{name}.bias", (channels,), Uniform(-0.2, 0.2)),
            self.weight(f"{name}.running_mean", (channels,), Calibrated(0.0)),
            self.weight(f"{name}.running_var", (channels,), Calibrated(1.0)),
        ]
        return self.op("BatchNormalization", [x, *parameters], name, epsilon=1e-5)

    def model(
        self, name: str, inputs: dict[str, tuple[int, ...]], output: str, shape: tuple[int, ...]
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(i, TensorProto.FLOAT, s) for i, s in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="taskc-models")


def cnn_tiny() -> onnx.ModelProto:
    """Stem, one residual block, a strided convolution and a classifier: image [1, 3, 32, 32] -> logits [1, 10]."""
    wide, narrow = Uniform(0.5, 1.5), Uniform(0.1, 0.3)
    g = _Writer()
    x = g.conv("image", "stem", (12, 3, 3, 3))
    x = g.op("Relu", [g.batch_norm(x, "stem_bn", 12, wide)], "stem_relu")
    x = shortcut = g.op("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Relu", [g.batch_norm(g.conv(x, "block1", (12, 12, 3, 3)), "block1_bn", 12, wide)], "block1_relu")
    x = g.batch_norm(g.conv(x, "block2", (12, 12, 3, 3)), "block2_bn", 12, narrow)
    x = g.op("Relu", [g.op("Add", [x, shortcut], "sum")], "sum_relu")
    x = g.batch_norm(g.conv(x, "down", (20, 12, 3, 3), stride=2), "down_bn", 20, wide)
    x = g.op("GlobalAveragePool", [g.op("Relu", [x], "down_relu")], "mean")
    x = g.op("Flatten", [x], "features", axis=1)
    weight = g.weight("classifier.weight", (10, 20), Normal(0.0, math.sqrt(1 / 20)))
    bias = g.weight("classifier.bias", (10,), Normal(0.0, 0.02))
    g.op("Gemm", [x, weight, bias], "logits", transB=1)
    return g.model("cnn_tiny", {"image": (1, 3, 32, 32)}, "logits", (1, 10))


def conv_residual(
    n: int = 1, h: int = 14, w: int = 14, c: int = 16, co: int = 24, k: int = 3, stride: int = 1, pad: int = 1
) -> onnx.ModelProto:
    """y = Relu(Conv(x) + residual): x [n, c, h, w], residual and y [n, co, oh, ow], k x k taps, a bias per channel.

    Raises ValueError when the kernel does not fit the padded image.
    """
    oh, ow = ((size + 2 * pad - k) // stride + 1 for size in (h, w))
    if min(n, c, co, k, stride, oh, ow) < 1 or pad < 0:
        raise ValueError(
            f"conv_residual: no output for n={n} h={h} w={w} c={c} co={co} k={k} stride={stride} pad={pad}"
        )
    g = _Writer()
    weight = g.weight("weight", (co, c, k, k), Normal(0.0, math.sqrt(1 / (c * k * k))))
    bias = g.weight("bias", (co,), Normal(0.0, 0.1))
    g.op("Conv", ["x", weight, bias], "conv", kernel_shape=[k, k], pads=[pad] * 4, strides=[stride] * 2)
    g.op("Relu", [g.op("Add", ["conv", "residual"], "sum")], "y")
    return g.model("conv_residual", {"x": (n, c, h, w), "residual": (n, co, oh, ow)}, "y", (n, co, oh, ow))


def matmul_gelu(m: int = 32, n: int = 48, k: int = 64) -> onnx.ModelProto:
    """y = Gelu(x @ w + bias), Gelu spelled with Erf as exporters before opset 20 do: x [m, k] -> y [m, n].

    Raises ValueError for a size below 1.
    """
    if min(m, n, k) < 1:
        raise ValueError(f"matmul_gelu: sizes must be at least 1, got m={m} n={n} k={k}")
    g = _Writer()
    product = g.op("MatMul", ["x", g.weight("weight", (k, n), Normal(0.0, math.sqrt(1 / k)))], "product")
    linear = g.op("Add", [product, g.weight("bias", (n,), Normal(0.0, 0.1))], "linear")
    erf = g.op("Erf", [g.op("Div", [linear, g.scalar("sqrt2", math.sqrt(2))], "scaled")], "erf")
    shifted = g.op("Add", [erf, g.scalar("one", 1.0)], "shifted")
    g.op("Mul", [g.op("Mul", [linear, shifted], "twice"), g.scalar("half", 0.5)], "y")
    return g.model("matmul_gelu", {"x": (m, k)}, "y", (m, n))
