"""One-node ONNX models with seeded inputs of odd sizes, a table by operator family."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taskc.ir.graph import Array


@dataclass(frozen=True)
class Case:
    """An ONNX node: `inputs` may hold None (absent); `constant` names the positions known at compile time."""

    op: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    constant: tuple[int, ...] = ()
    opset: int = 21
    domain: str = ""
    tolerance: float = 0.0  # besides the dtype's
    outputs: int = 1  # of the node; the first is compared

    def __str__(self) -> str:
        shown = ",".join(f"{k}={v}" for k, v in self.attributes.items()).replace(" ", "")
        kinds = ",".join("-" if i is None else f"{i.dtype}{list(i.shape)}" for i in self.inputs).replace(" ", "")
        return f"{self.op}-{self.opset}({kinds};{shown})"


RNG = np.random.default_rng(101)


def f(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def h(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float16)


def n(*values: int) -> Array:
    return np.array(values, np.int64)


def s(*values: float) -> Array:
    return np.array(values, np.float32)


def conv() -> list[Case]:
    x, w, b = f(2, 3, 9, 11), f(5, 3, 3, 2), f(5)
    same = [Case("Conv", (x, w), {"auto_pad": a, "strides": [2, 3], "dilations": d})
            for a in ("SAME_UPPER", "SAME_LOWER", "VALID") for d in ([1, 1], [1, 2]) if a == "VALID" or d == [1, 1]]
    transposed = f(3, 4, 3, 2)
    return [
        *same,
        Case("Conv", (x, w, b),
             {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]}, (2,)),
        Case("Conv", (x, w, b), {"pads": [1, 0, 2, 1]}),
        Case("Conv", (f(1, 6, 7, 5), f(6, 1, 3, 3), f(6)), {"group": 6, "pads": [1, 1, 1, 1]}, (1, 2), opset=11),
        Case("Conv", (f(1, 3, 7, 5), f(6, 1, 3, 3)), {"group": 3, "strides": [2, 2]}),
        Case("Conv", (f(2, 4, 13), f(6, 2, 5)), {"group": 2, "pads": [2, 1]}, opset=1),
        Case("Conv", (f(1, 2, 5, 4, 3), f(3, 2, 2, 2, 2)), {"strides": [1, 2, 1], "pads": [1, 0, 0, 0, 1, 1]}),
        Case("ConvTranspose", (x, transposed, f(4)), {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
        Case("ConvTranspose", (x, transposed), {"strides": [2, 3], "output_padding": [1, 2], "dilations": [2, 1]}),
        Case("ConvTranspose", (x, transposed), {"strides": [2, 2], "output_shape": [17, 20]}),
        Case("ConvTranspose", (x, transposed), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        Case("ConvTranspose", (x, transposed), {"strides": [2, 1], "auto_pad": "SAME_LOWER"}),
        Case("ConvTranspose", (f(1, 4, 3, 5), f(4, 3, 2, 2)), {"strides": [2, 2], "group": 2}),
        Case("ConvTranspose", (f(1, 2, 9), f(2, 5, 4)), {"pads": [2, 1]}),
    ]


def pool() -> list[Case]:
    x = f(2, 3, 9, 11)
    window = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]}
    return [
        Case("MaxPool", (x,), window),
        Case("MaxPool", (x,), {**window, "ceil_mode": 1}),
        Case("MaxPool", (x,), {**window, "dilations": [2, 3]}),
        Case("MaxPool", (x,), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, opset=10),
        Case("MaxPool", (x,), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, opset=8),
        Case("MaxPool", (x,), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
        Case("MaxPool", (RNG.integers(-128, 127, (1, 2, 7, 5)).astype(np.int8),),
             {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        Case("MaxPool", (f(1, 2, 13),), {"kernel_shape": [4], "strides": [3], "ceil_mode": 1}),
        Case("MaxPool", (f(1, 2, 4, 5, 6),), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
        *(Case("AveragePool", (x,), {**window, "ceil_mode": c, "count_include_pad": p})
          for c in (0, 1) for p in (0, 1)),
        Case("AveragePool", (x,), {"kernel_shape": [3, 3], "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
        Case("AveragePool", (x,), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, opset=7),
        Case("LpPool", (x,), {**window, "p": 1}, opset=18),
        Case("LpPool", (x,), {**window, "p": 2}, opset=11),
        Case("LpPool", (x,), {**window, "p": 3}, opset=18),
        Case("GlobalAveragePool", (x,)), Case("GlobalMaxPool", (f(2, 3, 5),)), Case("GlobalLpPool", (x,), {"p": 2}),
    ]


def reduce() -> list[Case]:
    x, whole = f(3, 5, 2, 7), RNG.integers(-9, 9, (4, 3, 2)).astype(np.int32)
    names = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    data = {name: np.abs(x) + 1 if name == "LogSum" else x for name in names}
    return [
        *(Case(f"Reduce{k}", (data[k], n(-1, 1)), {"keepdims": 0}, (1,), 18) for k in names),
        *(Case(f"Reduce{k}", (data[k],), {"axes": [0, -2]}, opset=11) for k in names),
        *(Case(f"Reduce{k}", (data[k], n()), {"noop_with_empty_axes": 1}, (1,), 18) for k in ("Sum", "Max")),
        *(Case(f"Reduce{k}", (data[k],), {}, opset=18) for k in names),
        *(Case(f"Reduce{k}", (whole, n(1)), {}, (1,), 18)
          for k in ("Sum", "Max", "Min", "Prod", "Mean", "L1", "SumSquare")),
        Case("ReduceSum", (h(3, 301), n(1)), {}, (1,), 13),
        Case("ReduceMax", (whole > 0, n(1)), {}, (1,), 20), Case("ReduceMin", (whole > 0, n(1)), {}, (1,), 20),
        Case("ReduceLogSumExp", (s(90, 91, -np.inf), n(0)), {}, (1,), 18),
        Case("ArgMax", (whole,), {"axis": 1, "select_last_index": 1}),
        Case("ArgMax", (whole,), {"axis": -1, "keepdims": 0}),
        Case("ArgMin", (x,), {"axis": 1}),
        Case("ArgMin", (whole,), {"axis": 0, "select_last_index": 1, "keepdims": 0}, opset=12),
    ]


def rows() -> list[Case]:
    x, masked = f(3, 5, 2, 7, scale=4), f(3, 5, 7)
    masked[0, 1, 2:] = -np.inf
    c, r = f(5), f(7)
    return [
        *(Case(k, (x,), {"axis": a}, opset=o)
          for k in ("Softmax", "LogSoftmax") for a, o in ((1, 11), (0, 11), (1, 13), (-2, 13))),
        Case("Softmax", (masked,), {}), Case("Softmax", (masked,), {}, opset=1), Case("Softmax", (h(3, 7),), {}),
        Case("LayerNormalization", (x, f(7), f(7)), {"epsilon": 1e-3}, opset=17),
        Case("LayerNormalization", (x, f(2, 7)), {"axis": 2}, opset=17),
        Case("LayerNormalization", (h(3, 7), h(7), h(7)), {}, opset=17),
        Case("RMSNormalization", (x, f(2, 7)), {"axis": -2}, opset=23),
        Case("SimplifiedLayerNormalization", (x, r), {"epsilon": 1e-4}),
        Case("SkipLayerNormalization", (f(2, 5, 7), f(2, 5, 7), r, r + 1, r - 2),
             {"epsilon": 1e-4}, domain="com.microsoft"),
        Case("SkipLayerNormalization", (f(2, 5, 7), f(2, 5, 7), r), {}, domain="com.microsoft"),
        Case("InstanceNormalization", (x, c, c + 1), {"epsilon": 1e-3}),
        Case("InstanceNormalization", (f(2, 5, 3), c, c), {}, opset=6),
        Case("GroupNormalization", (f(2, 6, 3, 5), f(2), f(2)), {"num_groups": 2}, opset=18),
        Case("GroupNormalization", (f(2, 6, 3, 5), f(6), f(6)), {"num_groups": 3}, opset=21),
        *(Case("BatchNormalization", (x, c, c + 1, c - 1, c * c), {"epsilon": 1e-3}, k, o)
          for k in ((), (1, 2, 3, 4)) for o in (9, 15)),
        Case("BatchNormalization", (f(4, 5), c, c + 1, c - 1, c * c), {}, (1, 2, 3, 4)),
        Case("LpNormalization", (x,), {"axis": 1, "p": 1}), Case("LpNormalization", (x,), {"p": 2}),
        Case("LRN", (x,), {"size": 3, "alpha": 0.5, "bias": 2.0}), Case("LRN", (x,), {"size": 1, "alpha": 0.5}),
        Case("MeanVarianceNormalization", (x,), {}), Case("MeanVarianceNormalization", (x,), {"axes": [1, 3]}),
    ]


def activation() -> list[Case]:
    x = np.concatenate([f(61, scale=3), s(0, -0.0, 20, -20, np.nan)]).reshape(3, 2, 11)
    plain: list[tuple[str, dict[str, Any]]] = [
        ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 1.3}), ("Selu", {}), ("Selu", {"alpha": 2.0, "gamma": 3.0}),
        ("Celu", {"alpha": 0.7}), ("HardSigmoid", {"alpha": 0.3}), ("HardSwish", {}), ("Softplus", {}),
        ("Softsign", {}), ("Mish", {}), ("Gelu", {}), ("Gelu", {"approximate": "tanh"})]
    finite = np.nan_to_num(x, nan=0.3)
    return [
        *(Case(k, (x if k not in ("HardSigmoid", "HardSwish") else finite,), a, opset=22) for k, a in plain),
        *(Case(k, (finite.astype(np.float16),), {}, opset=22, tolerance=2e-3) for k in ("LeakyRelu", "HardSigmoid")),
        Case("ThresholdedRelu", (finite,), {"alpha": 0.4}), Case("Shrink", (finite,), {"lambd": 0.6, "bias": 0.2}),
        Case("PRelu", (x, f(2, 1))), Case("PRelu", (x, f(11)), {}, (1,)),
        Case("Gelu", (x,), domain="com.microsoft"), Case("FastGelu", (finite, f(11)), domain="com.microsoft"),
        Case("FastGelu", (finite,), domain="com.microsoft"), Case("BiasGelu", (finite, f(11)), domain="com.microsoft"),
        Case("QuickGelu", (finite,), {"alpha": 1.702}, domain="com.microsoft"),
    ]


def resize() -> list[Case]:
    x = f(1, 2, 7, 6)
    modes = [("nearest", t, m) for t in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
             for m in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")]
    modes += [(k, t, "round_prefer_floor") for k in ("linear", "cubic")
              for t in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")]

    def attributes(kind: str, transform: str, nearest: str) -> dict[str, Any]:
        return {"mode": kind, "coordinate_transformation_mode": transform, "nearest_mode": nearest}

    return [
        *(Case("Resize", (x, None, s(1, 1, 2, 1.5)), attributes(*m), (2,), 19) for m in modes),
        *(Case("Resize", (x, None, s(1, 1, 0.6, 0.5)), attributes(*m), (2,), 19) for m in modes if m[0] != "nearest"),
        *(Case("Resize", (x, None, None, n(1, 2, 12, 5)), attributes(*m), (3,), 19)
          for m in modes if m[0] != "nearest"),
        Case("Resize", (x, s(), s(1, 1, 3, 2)), {"mode": "nearest"}, (1, 2), 11),
        Case("Resize", (x, s(), s(), n(1, 2, 14, 18)), {"mode": "nearest", "nearest_mode": "floor"}, (1, 2, 3), 13),
        Case("Resize", (x, None, None, n(9, 9)),
             {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}, (3,), 19),
        Case("Resize", (x, None, None, n(9, 9)),
             {"mode": "linear", "axes": [3, 2], "keep_aspect_ratio_policy": "not_smaller"}, (3,), 19),
        Case("Resize", (x, None, s(1, 1, 2, 2)), {"mode": "cubic", "cubic_coeff_a": -0.5}, (2,), 19),
        Case("Resize", (x, s(1, 1, 2, 2)), {"mode": "nearest"}, (1,), 10),
        Case("Resize", (x, s(1, 1, 0.5, 0.5)), {"mode": "linear"}, (1,), 10),
        Case("Upsample", (x, s(1, 1, 2, 3)), {"mode": "nearest"}, (1,), 9),
        Case("Upsample", (x, s(1, 1, 2, 3)), {"mode": "linear"}, (1,), 9),
        Case("Upsample", (x,), {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 1.0]}, opset=7),
    ]


def other() -> list[Case]:
    q, key, v = f(2, 4, 5, 6), f(2, 2, 7, 6), f(2, 2, 7, 9)
    mask = RNG.random((5, 7)) > 0.4
    mask[:, 0] = True
    x, scale, zero = f(3, 5, 4, scale=40), s(0.3, 0.11, 0.5, 1, 2), np.array([-3, 4, 0, 7, 1], np.int8)
    pairs = [("bhik,bhjk->bhij", f(2, 3, 5, 4), f(2, 3, 7, 4)), ("...ij,jk->...ik", f(2, 3, 4), f(4, 5)),
             ("ij,jk", f(3, 4), f(4, 5)),
             ("i,j->ij", f(5), f(3)), ("ijkl,jm->imkl", f(2, 3, 4, 5), f(3, 6)), ("bi , bi -> b", f(3, 4), f(3, 4))]
    return [
        *(Case("Attention", (q, key, v, m), {"is_causal": c}, opset=23)
          for m in (None, f(5, 7), f(2, 1, 5, 7), mask) for c in (0, 1)),
        Case("Attention", (q, q, q), {"scale": 0.2, "is_causal": 1}, opset=23),
        Case("Attention", (f(2, 5, 12), f(2, 7, 6), f(2, 7, 10)), {"q_num_heads": 4, "kv_num_heads": 2}, opset=23),
        *(Case("Einsum", (a, b), {"equation": e}) for e, a, b in pairs),
        Case("Einsum", (f(3, 4, 5),), {"equation": "ijk->ki"}), Case("Einsum", (f(3, 3),), {"equation": "ii->i"}),
        Case("QuantizeLinear", (x, scale, zero), {"axis": 1}, opset=13),
        Case("QuantizeLinear", (x, s(0.25)[0]), {}, opset=10),
        Case("QuantizeLinear", (s(0.5, 1.5, 2.5, -0.5, 300, -300), s(1)[0], np.array(3, np.uint8)), {}),
        Case("QuantizeLinear", (x, s(0.25)[0], np.array(-9, np.int16)), {}),
        Case("QuantizeLinear", (x, s(0.25)[0]), {"output_dtype": 3}),
        Case("DequantizeLinear", (RNG.integers(-128, 128, (3, 5, 4)).astype(np.int8), scale, zero),
             {"axis": -2}, opset=13),
        Case("DequantizeLinear", (RNG.integers(0, 256, (3, 5)).astype(np.uint8), s(0.3)[0], np.array(128, np.uint8)),
             {}, opset=10),
        Case("DynamicQuantizeLinear", (x,), {}, opset=11, outputs=3),  # by ONNX's own function body
        Case("DequantizeLinear", (RNG.integers(-9999, 9999, (3, 5)).astype(np.int32), s(0.3)[0]), {}),
    ]


ALL = [*conv(), *pool(), *reduce(), *rows(), *activation(), *resize(), *other()]
