"""Scalar functions against NumPy in float64, with NaN, infinities, signed zeros and subnormals among the inputs."""

from math import erf

import numpy as np
import pytest

from taskc.codegen.host_library import HostLibrary
from tests.codegen.device_support import Array, builder, elementwise, run_elementwise

UNARY = {
    'exp': np.exp,
    'expm1': np.expm1,
    'log': np.log,
    'log1p': np.log1p,
    'sqrt': np.sqrt,
    'tanh': np.tanh,
    'sin': np.sin,
    'cos': np.cos,
    'tan': np.tan,
    'asin': np.arcsin,
    'acos': np.arccos,
    'atan': np.arctan,
    'sinh': np.sinh,
    'cosh': np.cosh,
    'asinh': np.arcsinh,
    'acosh': np.arccosh,
    'atanh': np.arctanh,
    'floor': np.floor,
    'ceil': np.ceil,
    'trunc': np.trunc,
    'round': np.rint,
    'abs': np.abs,
    'sign': np.sign,
    'rsqrt': lambda x: 1 / np.sqrt(x),
    'erf': np.vectorize(erf, otypes=[np.float64]),
    'relu': lambda x: np.where(x < 0, 0, x),
    'softplus': lambda x: np.logaddexp(x, 0),
    'sigmoid': lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
}
BINARY = {'pow': np.power, 'fmod': np.fmod, 'max': np.maximum, 'min': np.minimum}
FLOATS = {'f32': np.float32, 'f64': np.float64}
INTS = {'i32': np.int32, 'i64': np.int64}


@pytest.fixture(scope='module')
def library(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    kernels = [elementwise(f'{f}_{t}', [t], t, f't_{f}(x)') for f in UNARY for t in FLOATS]
    kernels += [elementwise(f'{f}_{t}', [t, t], t, f't_{f}(x, y)') for f in BINARY for t in FLOATS]
    kernels += [elementwise(f'{f}_{t}', [t], 'b8', f't_{f}(x)') for f in ('isnan', 'isinf') for t in FLOATS]
    kernels += [
        elementwise(f'{f}_{t}', [t, t], t, f'{f}(x, y)')
        for f in ('truncdiv', 'truncmod', 'floordiv', 'floormod', 't_pow', 't_max', 't_min')
        for t in INTS
    ]
    kernels += [
        elementwise('floordiv_u8', ['u8', 'u8'], 'u8', 'floordiv(x, y)'),
        elementwise('floormod_i8', ['i8', 'i8'], 'i8', 'floormod(x, y)'),
    ]
    kernels += [elementwise(f'{f}_i8', ['i8'], 'i8', f't_{f}(x)') for f in ('abs', 'sign', 'relu')]
    kernels += [
        elementwise('mulhi', ['u32', 'u32'], 'u32', 'mulhi(x, y)'),
        elementwise('fma', ['f32'] * 3, 'f32', 't_fma(x, y, z)'),
    ]
    kernels += [
        elementwise(
            'special', ['f32'], 'f64', 'x == 0 ? inf_f32() : x == 1 ? nan_f32() : x == 2 ? -inf_f64() : nan_f64()'
        )
    ]
    return builder(tmp_path_factory)(*kernels)


def floats(t: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    info = np.finfo(FLOATS[t])
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        30.0,
        -30.0,
        95.0,
        -95.0,
        150.0,
        -150.0,
        float(info.tiny) / 4,
        float(info.max),
        np.inf,
        -np.inf,
        np.nan,
    ]
    values = np.concatenate([rng.standard_normal(400) * 3, rng.uniform(-1, 1, 200), np.array(edges)]).astype(FLOATS[t])
    rng.shuffle(values)
    return values


def close(got: Array, expected: Array, t: str, ulps: float) -> bool:
    """NaN where the reference has it, the same infinities, and otherwise within so many units in the last place."""
    with np.errstate(over='ignore'):
        rounded = expected.astype(FLOATS[t])
    special = ~np.isfinite(rounded)
    if not np.array_equal(got[special], rounded[special], equal_nan=True):
        return False
    g, e = got[~special].astype(np.longdouble), expected[~special].astype(np.longdouble)
    with np.errstate(over='ignore'):  # the spacing at the largest number is taken upwards
        return bool((np.abs(g - e) <= ulps * np.spacing(np.abs(rounded[~special]))).all())


@pytest.mark.parametrize('t', FLOATS)
@pytest.mark.parametrize('name', UNARY)
def test_unary(library: HostLibrary, name: str, t: str) -> None:
    x = floats(t, 1)
    with np.errstate(all='ignore'):
        expected = UNARY[name](x.astype(np.float64) if name == 'erf' else x.astype(np.longdouble))
    assert close(
        run_elementwise(library, f'{name}_{t}', FLOATS[t], x), expected, t, 3 if name in ('sigmoid', 'softplus') else 2
    )


@pytest.mark.parametrize('t', FLOATS)
@pytest.mark.parametrize('name', BINARY)
def test_binary(library: HostLibrary, name: str, t: str) -> None:
    x, y = floats(t, 2), floats(t, 3)
    x[:20], y[:20] = np.nan, np.arange(20)
    x[20:40], y[20:40] = np.arange(20), np.nan
    with np.errstate(all='ignore'):
        expected = BINARY[name](x.astype(np.longdouble), y.astype(np.longdouble))
    assert close(run_elementwise(library, f'{name}_{t}', FLOATS[t], x, y), expected, t, 2)


@pytest.mark.parametrize('t', FLOATS)
def test_tests(library: HostLibrary, t: str) -> None:
    x = floats(t, 4)
    assert (run_elementwise(library, f'isnan_{t}', np.bool_, x) == np.isnan(x)).all()
    assert (run_elementwise(library, f'isinf_{t}', np.bool_, x) == np.isinf(x)).all()
    assert np.isnan(x).any() and np.isinf(x).any()


def ints(t: str, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    info = np.iinfo(INTS[t])
    edge = np.array([info.min, info.max, -1, 0, 1, 7, -7, 2, -2], INTS[t])
    pairs = np.array(np.meshgrid(edge, edge)).reshape(2, -1)
    return (
        np.concatenate([rng.integers(-50, 50, 300).astype(INTS[t]), pairs[0]]),
        np.concatenate([rng.integers(-9, 9, 300).astype(INTS[t]), pairs[1]]),
    )


@pytest.mark.parametrize('t', INTS)
def test_integer_division(library: HostLibrary, t: str) -> None:
    x, y = ints(t, 5)
    with np.errstate(all='ignore'):
        quotient, remainder = np.floor_divide(x, y), np.mod(x, y)  # both are 0 for a divisor of 0
        toward_zero = np.fmod(x, y)
        wraps = (x == np.iinfo(x.dtype).min) & (y == -1)
        truncated = np.where((y == 0) | wraps, np.where(wraps, x, 0), (x - toward_zero) // np.where(y == 0, 1, y))
    quotient = np.where(wraps, x, quotient)
    for name, expected in (
        ('floordiv', quotient),
        ('floormod', remainder),
        ('truncmod', toward_zero),
        ('truncdiv', truncated),
    ):
        assert (run_elementwise(library, f'{name}_{t}', INTS[t], x, y) == expected).all(), name


@pytest.mark.parametrize('t', INTS)
def test_integer_functions(library: HostLibrary, t: str) -> None:
    x, y = ints(t, 6)
    assert (run_elementwise(library, f't_max_{t}', INTS[t], x, y) == np.maximum(x, y)).all()
    assert (run_elementwise(library, f't_min_{t}', INTS[t], x, y) == np.minimum(x, y)).all()
    power = np.abs(np.where(np.abs(y.astype(np.float64)) > 99, 3, y))
    got = run_elementwise(library, f't_pow_{t}', INTS[t], x, power)
    assert (got == np.power(x, power)).all()
    base = np.array([1, -1, -1, 2, 0, -3], INTS[t])
    negative = np.array([-5, -5, -4, -1, -1, -2], INTS[t])
    assert run_elementwise(library, f't_pow_{t}', INTS[t], base, negative).tolist() == [1, -1, 1, 0, 0, 0]


def test_narrow_and_unsigned_integers(library: HostLibrary) -> None:
    every = np.arange(256, dtype=np.uint8)
    divisor = np.roll(every, 77)
    with np.errstate(divide='ignore'):
        assert (run_elementwise(library, 'floordiv_u8', np.uint8, every, divisor) == every // divisor).all()
        signed, by = every.view(np.int8), divisor.view(np.int8)
        assert (run_elementwise(library, 'floormod_i8', np.int8, signed, by) == np.mod(signed, by)).all()
    assert (run_elementwise(library, 'abs_i8', np.int8, signed) == np.abs(signed)).all()
    assert (run_elementwise(library, 'sign_i8', np.int8, signed) == np.sign(signed)).all()
    assert (run_elementwise(library, 'relu_i8', np.int8, signed) == np.maximum(signed, 0)).all()
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 2**32, 300, dtype=np.uint32) for _ in range(2))
    assert (run_elementwise(library, 'mulhi', np.uint32, a, b) == (a.astype(np.uint64) * b >> np.uint64(32))).all()


def test_fma_rounds_once_and_constants(library: HostLibrary) -> None:
    rng = np.random.default_rng(9)
    x, y = (rng.standard_normal(200).astype(np.float32) for _ in range(2))
    z = -(x * y)
    expected = (x.astype(np.float64) * y + z).astype(np.float32)  # exact in float64
    assert (run_elementwise(library, 'fma', np.float32, x, y, z) == expected).all() and expected.any()
    got = run_elementwise(library, 'special', np.float64, np.arange(4, dtype=np.float32))
    assert np.array_equal(got, [np.inf, np.nan, -np.inf, np.nan], equal_nan=True)
