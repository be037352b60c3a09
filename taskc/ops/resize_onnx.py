"""Resize and Upsample of ONNX: scales, sizes and coordinate transformations turned into exact integer steps."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from taskc.ir.value import Dim
from taskc.ops.known import known, known_ints
from taskc.ops.registry import Reading, onnx_reader
from taskc.ops.resize import IDENTITY, Resize, Step

_SIMPLE = "simple"  # opset 10: the floor when growing, the ceiling when shrinking


def _rational(scale: float) -> Fraction:
    """The simple fraction that rounds to this float32, where there is one."""
    near = Fraction(scale).limit_denominator(1000)
    return near if np.float32(float(near)) == np.float32(scale) else Fraction(float(np.float32(scale)))


def _line(r: Reading, transform: str, scale: Fraction, extent: Dim, size: Dim) -> tuple[Fraction, Fraction]:
    """(slope, offset) of the source position as a function of the output's index."""
    half = Fraction(1, 2)
    if transform == "asymmetric":
        return 1 / scale, Fraction(0)
    if transform == "half_pixel":
        return 1 / scale, half / scale - half
    if not isinstance(extent, int) or not isinstance(size, int):
        r.unsupported(f"coordinate transformation {transform} of the symbolic size {extent}; "
                      "half_pixel and asymmetric are handled")
    if transform == "align_corners":
        return (Fraction(extent - 1, size - 1) if size > 1 else Fraction(0)), Fraction(0)
    if transform == "pytorch_half_pixel":
        return (1 / scale, half / scale - half) if size > 1 else (Fraction(0), Fraction(0))
    if transform == "half_pixel_symmetric":
        offset = Fraction(extent, 2) * (1 - size / (extent * scale))
        return 1 / scale, offset + half / scale - half
    r.unsupported(f"coordinate transformation {transform}")


def _nearest(r: Reading, line: tuple[Fraction, Fraction], mode: str, scale: Fraction) -> tuple[int, int, int]:
    """(a, b, c) so that the wanted index is the floor of (a * i + b) / c."""
    if mode == _SIMPLE:
        mode = "ceil" if scale < 1 else "floor"
    half = Fraction(1, 2)
    shift = {"floor": Fraction(0), "ceil": Fraction(0), "round_prefer_floor": -half, "round_prefer_ceil": half}
    if mode not in shift:
        r.bad(f"nearest_mode is {mode!r}")
    a, b, c = _integers(line[0], line[1] + shift[mode])
    return a, b + (c - 1 if mode in ("ceil", "round_prefer_floor") else 0), c  # those two are ceilings


def _integers(slope: Fraction, offset: Fraction) -> tuple[int, int, int]:
    c = lcm(slope.denominator, offset.denominator)
    return int(slope * c), int(offset * c), c


def _step(r: Reading, kind: str, transform: str, mode: str, scale: Fraction, extent: Dim, size: int | None) -> Step:
    grown: Dim = size if size is not None else extent * scale.numerator // scale.denominator
    if scale == 1 and size in (None, extent):
        return IDENTITY
    line = _line(r, transform, scale, extent, grown)
    a, b, c = _nearest(r, line, mode, scale) if kind == "nearest" else _integers(*line)
    if size is not None and isinstance(extent, int):
        return Step(size, extent, a, b, c)
    return Step(scale.numerator, scale.denominator, a, b, c)


def _with_scales(r: Reading, position: int, kind: str, transform: str, mode: str, cubic_a: float = -0.75) -> str:
    x, scales = r.type(r.inputs[0]), known(r, position, "scales")
    if scales.dtype == object:
        r.unsupported("its scales depend on symbolic dims; fix them with --dim NAME=SIZE")
    rational = [_rational(float(s)) for s in scales.reshape(-1)]
    return _add(r, kind, transform, mode, cubic_a, _on_axes(r, rational, Fraction(1)), (None,) * x.rank)


def _on_axes(r: Reading, values: Sequence[Fraction], other: Fraction) -> list[Fraction]:
    """One value an axis of the input; `axes` names those given (all of them, where absent)."""
    rank = r.type(r.inputs[0]).rank
    axes = r.ints("axes", tuple(range(rank)))
    if len(values) != len(axes) or any(not -rank <= a < rank for a in axes):
        r.bad(f"{len(values)} scales or sizes do not fit axes {list(axes)} of {r.type(r.inputs[0])}")
    out = [other] * rank
    for a, v in zip(axes, values, strict=True):
        out[a] = v
    return out


def _add(r: Reading, kind: str, transform: str, mode: str, cubic_a: float, scales: Sequence[Fraction],
         sizes: Sequence[int | None]) -> str:
    x = r.type(r.inputs[0])
    if any(s <= 0 for s in scales):
        r.bad(f"scales {[str(s) for s in scales]} must be positive")
    if kind != "nearest" and not x.dtype.is_float:
        r.unsupported(f"{kind} interpolation of {x.dtype}")
    steps = tuple(_step(r, kind, transform, mode, s, e, n) for s, e, n in zip(scales, x.shape, sizes, strict=True))
    return r.inputs[0] if all(s.is_identity for s in steps) else r.add(Resize(kind, steps, cubic_a), r.inputs[0])


def _with_sizes(r: Reading, kind: str, transform: str, mode: str, cubic_a: float) -> str:
    x, given_sizes = r.type(r.inputs[0]), known_ints(r, 3, "sizes")
    wanted = _on_axes(r, [Fraction(k) for k in given_sizes], Fraction(-1))
    scales: list[Fraction] = []
    for extent, n in zip(x.shape, wanted, strict=True):
        if n >= 0 and not isinstance(extent, int):
            r.unsupported(f"a fixed size {n} for the symbolic size {extent}; give scales instead")
        scales.append(n / extent if n >= 0 and isinstance(extent, int) else Fraction(1))
    given = [s for s, n in zip(scales, wanted, strict=True) if n >= 0]
    policy = r.string("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return _add(r, kind, transform, mode, cubic_a, scales, [int(n) if n >= 0 else None for n in wanted])
    if policy not in ("not_larger", "not_smaller"):
        r.bad(f"keep_aspect_ratio_policy is {policy!r}")
    common = min(given) if policy == "not_larger" else max(given)
    scales = [common if n >= 0 else Fraction(1) for n in wanted]
    sizes = [int(common * e + Fraction(1, 2)) if n >= 0 and isinstance(e, int) else None
             for e, n in zip(x.shape, wanted, strict=True)]
    return _add(r, kind, transform, mode, cubic_a, scales, sizes)


@onnx_reader("Resize", since=11)
def _read_resize(r: Reading) -> str:
    kind = r.string("mode", "nearest") or "nearest"
    transform = r.string("coordinate_transformation_mode", "half_pixel")
    mode = r.string("nearest_mode", "round_prefer_floor")
    if transform == "tf_crop_and_resize":
        r.unsupported("coordinate transformation tf_crop_and_resize")
    if r.int_("antialias", 0):
        r.unsupported("antialias = 1")
    if kind == "cubic" and r.int_("exclude_outside", 0):
        r.unsupported("exclude_outside = 1")
    if kind not in ("nearest", "linear", "cubic"):
        r.bad(f"mode is {kind!r}; it must be nearest, linear or cubic")
    cubic_a = r.float_("cubic_coeff_a", -0.75)
    if r.has_input(3):
        return _with_sizes(r, kind, transform, mode, cubic_a)
    if not r.has_input(2):
        r.bad("neither scales nor sizes are given")
    return _with_scales(r, 2, kind, transform, mode, cubic_a)


@onnx_reader("Resize", since=10)
@onnx_reader("Upsample", since=9)
def _read_upsample(r: Reading) -> str:
    return _with_scales(r, 1, _old_kind(r), "asymmetric", _SIMPLE)


@onnx_reader("Upsample", since=7)
def _read_upsample_attribute(r: Reading) -> str:
    rational = [_rational(s) for s in r.floats("scales")]
    return _add(r, _old_kind(r), "asymmetric", _SIMPLE, -0.75, rational, (None,) * r.type(r.inputs[0]).rank)


def _old_kind(r: Reading) -> str:
    kind = r.string("mode", "nearest")
    if kind not in ("nearest", "linear"):
        r.bad(f"mode is {kind!r}; it must be nearest or linear")
    return kind


@onnx_reader("GridSample")
def _refuse(r: Reading) -> str:
    r.unsupported("it reads at positions that depend on data")
