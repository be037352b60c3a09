"""ONNX readers of elementwise arithmetic, comparisons, logic and bits; variadic operators are read as chains."""

from __future__ import annotations

from collections.abc import Callable

from taskc.ir.dtype import BOOL
from taskc.ir.graph import OpError
from taskc.ops.broadcast import broadcast_shapes
from taskc.ops.cast import Cast
from taskc.ops.elementwise import Elementwise
from taskc.ops.fill import Fill
from taskc.ops.known import normal_axis, scalar
from taskc.ops.registry import Reading, onnx_reader
from taskc.ops.reshape import Reshape

_SAME = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Neg": "neg",
    "Abs": "abs", "Floor": "floor", "Ceil": "ceil", "Sign": "sign", "Round": "round", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh",
    "Atanh": "atanh", "IsNaN": "isnan", "Not": "not", "BitwiseNot": "bitnot", "Where": "where", "GreaterOrEqual": "ge",
    "LessOrEqual": "le", "BitwiseAnd": "bitand", "BitwiseOr": "bitor", "BitwiseXor": "bitxor",
}
_WITH_LEGACY_BROADCAST = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or", "Xor": "xor", "Equal": "eq",
    "Greater": "gt",
    "Less": "lt",
}


def _register(onnx_name: str, function: str, legacy: bool) -> None:
    def read(r: Reading) -> str:
        return r.add(Elementwise(function), *r.inputs)

    def read_legacy(r: Reading) -> str:
        return r.add(Elementwise(function), r.inputs[0], _aligned(r))

    onnx_reader(onnx_name, since=7 if legacy else 1)(read)
    if legacy:
        onnx_reader(onnx_name, since=1)(read_legacy)


for _onnx, _function in _SAME.items():
    _register(_onnx, _function, legacy=False)
for _onnx, _function in _WITH_LEGACY_BROADCAST.items():
    _register(_onnx, _function, legacy=True)


def _aligned(r: Reading) -> str:
    """The second input of an operator before opset 7: its dims start at `axis` of the first one's."""
    a, b = r.type(r.inputs[0]), r.type(r.inputs[1])
    if not r.int_("broadcast", 0):
        if a.shape != b.shape:
            r.bad(f"its inputs {a} and {b} differ, and `broadcast` is not set")
        return r.inputs[1]
    if not r.has("axis"):
        return r.inputs[1]
    behind = a.rank - normal_axis(r, r.int_("axis"), a.rank) - b.rank
    if behind < 0:
        r.bad(f"its second input {b} does not fit into {a} at axis {r.int_('axis')}")
    return r.add(Reshape((*b.shape, *(1,) * behind)), r.inputs[1]) if behind else r.inputs[1]


@onnx_reader("Reciprocal")
def _read_reciprocal(r: Reading) -> str:
    return r.add(Elementwise("div"), scalar(r, 1.0, r.type(r.inputs[0]).dtype), r.inputs[0])


def _chain(function: str) -> Callable[[Reading], str]:
    def read(r: Reading) -> str:
        out = r.inputs[0]
        for other in r.inputs[1:]:
            out = r.add(Elementwise(function), out, other)
        return out

    return read


for _onnx, _function in (("Min", "min"), ("Max", "max"), ("Sum", "add")):
    onnx_reader(_onnx)(_chain(_function))


@onnx_reader("Mean")
def _read_mean(r: Reading) -> str:
    """Summed in the type that arithmetic runs in: a sum of float16 may overflow where the mean does not."""
    kind = r.type(r.inputs[0]).dtype
    wide = [i if kind == kind.compute else r.add(Cast(kind.compute), i) for i in r.inputs]
    total = wide[0]
    for other in wide[1:]:
        total = r.add(Elementwise("add"), total, other)
    out = r.add(Elementwise("div"), total, scalar(r, float(len(wide)), kind.compute))
    return out if kind == kind.compute else r.add(Cast(kind), out)


def _power(r: Reading, exponent: str) -> str:
    """The result has the base's type; mixed types are computed in the float one."""
    base = r.inputs[0]
    own, other = r.type(base).dtype, r.type(exponent).dtype
    if own == other:
        return r.add(Elementwise("pow"), base, exponent)
    if own.is_float or not other.is_float:
        return r.add(Elementwise("pow"), base, r.add(Cast(own), exponent))
    return r.add(Cast(own), r.add(Elementwise("pow"), r.add(Cast(other), base), exponent))


@onnx_reader("Pow", since=7)
def _read_pow(r: Reading) -> str:
    return _power(r, r.inputs[1])


@onnx_reader("Pow", since=1)
def _read_pow_1(r: Reading) -> str:
    return _power(r, _aligned(r))


@onnx_reader("Mod")
def _read_mod(r: Reading) -> str:
    truncating = bool(r.int_("fmod", 0))
    if r.type(r.inputs[0]).dtype.is_float and not truncating:
        r.bad("floats need fmod=1")
    return r.add(Elementwise("fmod" if truncating else "mod"), *r.inputs)


@onnx_reader("BitShift")
def _read_bit_shift(r: Reading) -> str:
    direction = r.string("direction")
    if direction not in ("LEFT", "RIGHT"):
        r.bad(f"direction {direction!r} is neither LEFT nor RIGHT")
    return r.add(Elementwise("shl" if direction == "LEFT" else "shr"), *r.inputs)


@onnx_reader("IsInf")
def _read_isinf(r: Reading) -> str:
    x, up, down = r.inputs[0], r.int_("detect_positive", 1), r.int_("detect_negative", 1)
    if up and down:
        return r.add(Elementwise("isinf"), x)
    if up or down:
        return r.add(Elementwise("eq"), x, scalar(r, float("inf" if up else "-inf"), r.type(x).dtype))
    return r.add(Fill(False, BOOL, r.type(x).shape))


def _clip(r: Reading, low: str, high: str) -> str:
    """min(max(x, low), high), in this order; both propagate NaN."""
    out = r.inputs[0]
    for bound, function in ((low, "max"), (high, "min")):
        if bound:
            try:
                fits = broadcast_shapes(r.type(out).shape, r.type(bound).shape) == r.type(out).shape
            except OpError:
                fits = False
            if not fits:
                r.bad(f"a bound of shape {list(r.type(bound).shape)} is not a scalar")
            out = r.add(Elementwise(function), out, bound)
    return out


@onnx_reader("Clip", since=11)
def _read_clip(r: Reading) -> str:
    return _clip(r, r.inputs[1] if r.has_input(1) else "", r.inputs[2] if r.has_input(2) else "")


@onnx_reader("Clip", since=1)
def _read_clip_1(r: Reading) -> str:
    dtype = r.type(r.inputs[0]).dtype
    low, high = (scalar(r, r.float_(a), dtype) if r.has(a) else "" for a in ("min", "max"))
    return _clip(r, low, high)


@onnx_reader("Identity")
def _read_identity(r: Reading) -> str:
    return r.inputs[0]


@onnx_reader("Dropout")
def _read_dropout(r: Reading) -> tuple[str, ...]:
    """Inference: the data itself, and a mask that keeps everything."""
    if r.has_input(2):
        training = r.contents(r.inputs[2])
        if training is None or bool(training.ravel().any()):
            r.unsupported("it may be in training mode")
    mask = (r.add(Fill(True, BOOL, r.type(r.inputs[0]).shape)),) if r.output_count > 1 else ()
    return (r.inputs[0], *mask)
