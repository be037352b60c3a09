"""Activations, read as a few elementwise nodes with constants of the input's dtype. NaN in, NaN out."""

from __future__ import annotations

import numpy as np

from taskc.ops.channels import per_channel
from taskc.ops.constants import apply
from taskc.ops.elementwise import Elementwise
from taskc.ops.registry import Reading, onnx_reader


def _negative(r: Reading, x: str, otherwise: str, below: float = 0.0) -> str:
    """otherwise where x < below, else x; a NaN is not below."""
    return apply(r, "where", apply(r, "lt", x, below), otherwise, x)


def _exp_minus_one(r: Reading, x: str) -> str:
    return apply(r, "sub", apply(r, "exp", x), 1.0)


@onnx_reader("LeakyRelu")
def _read_leaky_relu(r: Reading) -> str:
    x = r.inputs[0]
    return _negative(r, x, apply(r, "mul", x, r.float_("alpha", 0.01)))


@onnx_reader("PRelu")
def _read_prelu(r: Reading) -> str:
    """slope * x where x < 0; the slope broadcasts to x (before opset 7: one, or one a channel)."""
    x, slope = r.inputs
    shape = r.type(slope).shape
    if r.opset < 7 and len(shape) == 1 and shape != (1,):
        slope = per_channel(r, slope, r.type(x).rank)
    return _negative(r, x, apply(r, "mul", x, slope))


@onnx_reader("Elu")
def _read_elu(r: Reading) -> str:
    x = r.inputs[0]
    return _negative(r, x, apply(r, "mul", _exp_minus_one(r, x), r.float_("alpha", 1.0)))


@onnx_reader("Selu")
def _read_selu(r: Reading) -> str:
    x, alpha = r.inputs[0], r.float_("alpha", 1.67326319217681884765625)
    gamma = r.float_("gamma", 1.05070102214813232421875)
    return apply(r, "mul", _negative(r, x, apply(r, "mul", _exp_minus_one(r, x), alpha)), gamma)


@onnx_reader("Celu")
def _read_celu(r: Reading) -> str:
    x, alpha = r.inputs[0], r.float_("alpha", 1.0)
    return _negative(r, x, apply(r, "mul", _exp_minus_one(r, apply(r, "div", x, alpha)), alpha))


def _hard_sigmoid(r: Reading, x: str, alpha: float, beta: float) -> str:
    line = apply(r, "add", apply(r, "mul", x, alpha), beta)
    return apply(r, "max", apply(r, "min", line, 1.0), 0.0)


@onnx_reader("HardSigmoid")
def _read_hard_sigmoid(r: Reading) -> str:
    return _hard_sigmoid(r, r.inputs[0], r.float_("alpha", 0.2), r.float_("beta", 0.5))


@onnx_reader("HardSwish")
def _read_hard_swish(r: Reading) -> str:
    return apply(r, "mul", r.inputs[0], _hard_sigmoid(r, r.inputs[0], 1 / 6, 0.5))


@onnx_reader("Softplus")
def _read_softplus(r: Reading) -> str:
    return apply(r, "softplus", r.inputs[0])


@onnx_reader("Softsign")
def _read_softsign(r: Reading) -> str:
    x = r.inputs[0]
    return apply(r, "div", x, apply(r, "add", apply(r, "abs", x), 1.0))


@onnx_reader("ThresholdedRelu")
def _read_thresholded_relu(r: Reading) -> str:
    x = r.inputs[0]
    return apply(r, "where", apply(r, "le", x, r.float_("alpha", 1.0)), 0.0, x)


@onnx_reader("Shrink")
def _read_shrink(r: Reading) -> str:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    x, lambd, bias = r.inputs[0], r.float_("lambd", 0.5), r.float_("bias", 0.0)
    if not r.type(x).dtype.is_float:
        r.unsupported(f"shrink of {r.type(x).dtype}; floats are handled")
    above = apply(r, "where", apply(r, "le", x, lambd), 0.0, apply(r, "sub", x, bias))
    return apply(r, "where", apply(r, "lt", x, -lambd), apply(r, "add", x, bias), above)


def _gelu(r: Reading, x: str, tanh: bool) -> str:
    """One function and not a chain: its constants must not be rounded to the input's type."""
    return r.add(Elementwise("gelu_tanh" if tanh else "gelu"), x)


@onnx_reader("Gelu")
def _read_gelu(r: Reading) -> str:
    kind = r.string("approximate", "none")
    if kind not in ("none", "tanh"):
        r.bad(f"approximate is {kind!r}; it must be none or tanh")
    return _gelu(r, r.inputs[0], kind == "tanh")


@onnx_reader("Gelu", domain="com.microsoft")
def _read_microsoft_gelu(r: Reading) -> str:
    return _gelu(r, r.inputs[0], tanh=False)


@onnx_reader("FastGelu", domain="com.microsoft")
def _read_fast_gelu(r: Reading) -> str:
    return _gelu(r, apply(r, "add", *r.inputs) if r.has_input(1) else r.inputs[0], tanh=True)


@onnx_reader("BiasGelu", domain="com.microsoft")
def _read_bias_gelu(r: Reading) -> str:
    return _gelu(r, apply(r, "add", *r.inputs), tanh=False)


@onnx_reader("Mish")
def _read_mish(r: Reading) -> str:
    return apply(r, "mul", r.inputs[0], apply(r, "tanh", apply(r, "softplus", r.inputs[0])))


def _swish(r: Reading, alpha: float) -> str:
    x = r.inputs[0]
    scaled = x if np.float32(alpha) == 1 else apply(r, "mul", x, alpha)
    return apply(r, "mul", x, apply(r, "sigmoid", scaled))


@onnx_reader("Swish")
def _read_swish(r: Reading) -> str:
    return _swish(r, r.float_("alpha", 1.0))


@onnx_reader("QuickGelu", domain="com.microsoft")
def _read_quick_gelu(r: Reading) -> str:
    return _swish(r, r.float_("alpha", 1.702))
