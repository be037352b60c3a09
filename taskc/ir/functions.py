"""Scalar functions of values: each name with its C text, its NumPy meaning and its result type. Said here once.

`c` is a format of the arguments' C texts; device functions named t_* have one body for the GPU and one for `host`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskc.ir.dtype import BOOL, DType

Array = Any  # NumPy arrays of any element type


@dataclass(frozen=True)
class Function:
    """`result` is 'same' (the arguments' compute type; for `where` that of the last two) or 'bool'."""

    name: str
    arity: int
    c: str
    meaning: Callable[..., Array]
    result: str = "same"
    c_integer: str = ""  # where integers need another text

    def result_dtype(self, args: tuple[DType, ...]) -> DType:
        return BOOL if self.result == "bool" else args[-1]


def _erf(x: Array) -> Array:
    """erf by its Taylor series (|x| < 2.5) and continued fraction, to about 1e-15; W. J. Cody's ranges."""
    x = np.asarray(x)
    v = x.astype(np.float64)
    small = np.abs(v) < 2.5
    s = np.where(small, v, 0.0)
    term, total = s.copy(), s.copy()
    for n in range(1, 70):
        term = term * (-s * s) / n
        total = total + term / (2 * n + 1)
    near = total * (2 / np.sqrt(np.pi))
    b = np.where(small, 3.0, np.abs(v))
    f = np.zeros_like(b)
    for n in range(90, 0, -1):
        f = (n / 2) / (b + f)
    with np.errstate(under="ignore", invalid="ignore"):
        far = np.sign(v) * (1 - np.exp(-b * b) / (np.sqrt(np.pi) * (b + f)))
    out = np.where(small, near, np.where(np.isinf(v), np.sign(v), far))
    return np.where(np.isnan(v), v, out).astype(x.dtype if x.dtype.kind == "f" else np.float64)


def _floor_division(a: Array, b: Array) -> Array:
    """ONNX Div: true division for floats, truncated towards zero for integers (objects are exact index expressions)."""
    if np.asarray(a).dtype.kind in "iu":
        safe = np.where(b == 0, 1, b)
        inexact = (a % safe != 0) & ((a < 0) != (safe < 0))  # |a| would overflow for the least integer
        return (a // safe + inexact).astype(np.asarray(a).dtype)
    return a // b if np.asarray(a).dtype == object else a / b


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(x * 2**-0.5))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


def _relu(x: Array) -> Array:
    return np.where(x < 0, np.zeros_like(x), x)


def _pow(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.power(a, b)


def _fmod(a: Array, b: Array) -> Array:
    return np.fmod(a, b)


_ALL = (
    Function("add", 2, "({0} + {1})", lambda a, b: a + b),
    Function("sub", 2, "({0} - {1})", lambda a, b: a - b),
    Function("mul", 2, "({0} * {1})", lambda a, b: a * b),
    Function("div", 2, "({0} / {1})", _floor_division, c_integer="truncdiv({0}, {1})"),
    Function("mod", 2, "t_mod({0}, {1})", np.mod, c_integer="floormod({0}, {1})"),
    Function("fmod", 2, "t_fmod({0}, {1})", _fmod, c_integer="truncmod({0}, {1})"),
    Function("pow", 2, "t_pow({0}, {1})", _pow),
    Function("min", 2, "t_min({0}, {1})", np.minimum),
    Function("max", 2, "t_max({0}, {1})", np.maximum),
    Function("neg", 1, "(-{0})", lambda a: -a),
    Function("abs", 1, "t_abs({0})", np.abs),
    Function("sign", 1, "t_sign({0})", np.sign),
    Function("floor", 1, "t_floor({0})", np.floor),
    Function("ceil", 1, "t_ceil({0})", np.ceil),
    Function("round", 1, "t_round({0})", np.round),
    Function("sqrt", 1, "t_sqrt({0})", np.sqrt),
    Function("rsqrt", 1, "t_rsqrt({0})", lambda a: 1 / np.sqrt(a)),
    Function("exp", 1, "t_exp({0})", np.exp),
    Function("log", 1, "t_log({0})", np.log),
    Function("sin", 1, "t_sin({0})", np.sin),
    Function("cos", 1, "t_cos({0})", np.cos),
    Function("tan", 1, "t_tan({0})", np.tan),
    Function("asin", 1, "t_asin({0})", np.arcsin),
    Function("acos", 1, "t_acos({0})", np.arccos),
    Function("atan", 1, "t_atan({0})", np.arctan),
    Function("sinh", 1, "t_sinh({0})", np.sinh),
    Function("cosh", 1, "t_cosh({0})", np.cosh),
    Function("tanh", 1, "t_tanh({0})", np.tanh),
    Function("asinh", 1, "t_asinh({0})", np.arcsinh),
    Function("acosh", 1, "t_acosh({0})", np.arccosh),
    Function("atanh", 1, "t_atanh({0})", np.arctanh),
    Function("erf", 1, "t_erf({0})", _erf),
    Function("relu", 1, "t_relu({0})", _relu),
    Function("sigmoid", 1, "t_sigmoid({0})", _sigmoid),
    Function("softplus", 1, "t_softplus({0})", _softplus),
    Function("gelu", 1, "t_gelu({0})", _gelu),
    Function("gelu_tanh", 1, "t_gelu_tanh({0})", _gelu_tanh),
    Function("eq", 2, "({0} == {1})", lambda a, b: a == b, "bool"),
    Function("ne", 2, "({0} != {1})", lambda a, b: a != b, "bool"),
    Function("lt", 2, "({0} < {1})", lambda a, b: a < b, "bool"),
    Function("le", 2, "({0} <= {1})", lambda a, b: a <= b, "bool"),
    Function("gt", 2, "({0} > {1})", lambda a, b: a > b, "bool"),
    Function("ge", 2, "({0} >= {1})", lambda a, b: a >= b, "bool"),
    Function("isnan", 1, "t_isnan({0})", np.isnan, "bool"),
    Function("isinf", 1, "t_isinf({0})", np.isinf, "bool"),
    Function("and", 2, "({0} && {1})", np.logical_and, "bool"),
    Function("or", 2, "({0} || {1})", np.logical_or, "bool"),
    Function("xor", 2, "({0} != {1})", np.logical_xor, "bool"),
    Function("not", 1, "(!{0})", np.logical_not, "bool"),
    Function("bitand", 2, "({0} & {1})", np.bitwise_and),
    Function("bitor", 2, "({0} | {1})", np.bitwise_or),
    Function("bitxor", 2, "({0} ^ {1})", np.bitwise_xor),
    Function("bitnot", 1, "(~{0})", np.invert),
    Function("shl", 2, "({0} << {1})", np.left_shift),
    Function("shr", 2, "({0} >> {1})", np.right_shift),
    Function("where", 3, "({0} ? {1} : {2})", np.where),
)

FUNCTIONS: dict[str, Function] = {f.name: f for f in _ALL}
