"""Conversions against NumPy: all 65,536 patterns of both halves, rounding at and beside midpoints, and every cast."""

import platform
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from taskc.codegen.host_library import HostLibrary
from tests.codegen.device_support import DTYPES, Array, builder, elementwise, run_elementwise

HALVES = {'f16': np.float16, 'bf16': ml_dtypes.bfloat16}
MARCHES = ['native'] + (['x86-64'] if platform.machine() == 'x86_64' else [])  # without F16C: the bit-level bodies


@pytest.fixture(scope='module', params=MARCHES)
def halves(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    kernels = [elementwise(f'{t}_to_f32', [t], 'f32', 'to_f32(x)') for t in HALVES]
    kernels += [elementwise(f'{t}_from_f32', ['f32'], t, f'from_f32<{t}>(x)') for t in HALVES]
    kernels += [elementwise(f'{t}_from_f64', ['f64'], t, f'cast<{t}>(x)') for t in HALVES]
    return builder(tmp_path_factory)(*kernels, march=request.param)


def same_floats(got: Array, expected: Array) -> bool:
    """Equal bit by bit, except that any NaN equals any NaN."""
    with np.errstate(invalid='ignore'):  # signalling NaNs among the patterns
        g, e = got.astype(np.float64), expected.astype(np.float64)
    nan = np.isnan(e)
    return bool((np.isnan(g) == nan).all()) and g[~nan].tobytes() == e[~nan].tobytes()


def every_pattern(half: str) -> Array:
    return np.arange(65536, dtype=np.uint16).view(HALVES[half])


@pytest.mark.parametrize('half', HALVES)
def test_every_half_widens_exactly(halves: HostLibrary, half: str) -> None:
    values = every_pattern(half)
    assert same_floats(run_elementwise(halves, f'{half}_to_f32', np.float32, values), values.astype(np.float32))


@pytest.mark.parametrize('half', HALVES)
@pytest.mark.parametrize('source', [np.float32, np.float64])
def test_rounding_to_half_at_and_beside_every_midpoint(halves: HostLibrary, half: str, source: type) -> None:
    with np.errstate(invalid='ignore'):
        values = every_pattern(half).astype(source)
    finite = np.sort(values[np.isfinite(values)])
    middle = finite[1:] / source(2) + finite[:-1] / source(2)
    below, above = np.nextafter(middle, source(-np.inf)), np.nextafter(middle, source(np.inf))
    down, up = finite[:-1], finite[1:]
    even = np.where(down.astype(HALVES[half]).view(np.uint16) & 1 == 0, down, up)
    got = [
        run_elementwise(halves, f'{half}_from_{"f32" if source is np.float32 else "f64"}', HALVES[half], x)
        for x in (values, below, middle, above)
    ]
    assert same_floats(got[0], values)
    real = down != up  # not the pair of zeros
    assert (got[1].astype(source)[real] == down[real]).all()
    assert (got[2].astype(source)[real] == even[real]).all()
    assert (got[3].astype(source)[real] == up[real]).all()


@pytest.mark.parametrize('half', HALVES)
def test_rounding_to_half_past_the_ends(halves: HostLibrary, half: str) -> None:
    top = float(ml_dtypes.finfo(HALVES[half]).max)
    step = top - float(np.nextafter(HALVES[half](top), HALVES[half](0)))
    x = np.array([top + step / 2, -top - step / 2, np.nextafter(top + step / 2, 0), 1e300, -1e300, np.inf, np.nan])
    got = run_elementwise(halves, f'{half}_from_f64', HALVES[half], x)
    assert same_floats(got, np.array([np.inf, -np.inf, top, np.inf, -np.inf, np.inf, np.nan]))


# ---- every cast -----------------------------------------------------------------------------------------------------


def samples(dtype: str) -> Array:
    rng = np.random.default_rng(7)
    if dtype == 'b8':
        return np.array([False, True] * 20)
    if dtype[0] in 'iu':
        info = np.iinfo(DTYPES[dtype])
        small = rng.integers(max(info.min, -300), min(info.max, 300), 101)
        wide = rng.integers(info.min, info.max, 101, dtype=DTYPES[dtype], endpoint=True)
        return np.concatenate([small.astype(DTYPES[dtype]), wide, np.array([0, 1, info.min, info.max], DTYPES[dtype])])
    edges = [
        0,
        -0.0,
        0.5,
        -0.5,
        0.999,
        -0.999,
        1.5,
        -1.5,
        127.7,
        128,
        -128.9,
        -129,
        255.5,
        256,
        -1,
        32767.9,
        32768,
        -32769,
        65535.9,
        65519.99,
        65520,
        2.0**31,
        -(2.0**31),
        2.0**31 - 1,
        2.0**32,
        2.0**63,
        -(2.0**63),
        2.0**64,
        1e300,
        -1e300,
        6e-8,
        2.9e-8,
        1e-40,
        np.inf,
        -np.inf,
        np.nan,
    ]
    many = rng.standard_normal(201) * 10.0 ** rng.integers(-6, 20, 201)
    with np.errstate(over='ignore'):
        return np.concatenate([many, np.array(edges, np.float64)]).astype(DTYPES[dtype])


def nearest_bf16(values: Array) -> Array:
    """Exact arithmetic: the nearest bf16 of an integer or a float64, ties to even."""
    with np.errstate(over='ignore'):
        return _nearest_bf16(values)


def _nearest_bf16(values: Array) -> Array:
    first = values.astype(np.float64).astype(np.float32).view(np.uint32) >> 16
    result = np.zeros(values.shape, np.uint16)
    for i, value in enumerate(values.tolist()):
        center = int(first[i])
        if not np.isfinite(float(value)) or abs(float(value)) > 3.38e38:
            result[i] = np.float64(value).astype(ml_dtypes.bfloat16).view(np.uint16)
            continue
        candidates = [c for c in (center - 1, center, center + 1) if 0 <= c < 65536 and c & 0x7FFF <= 0x7F7F]
        exact = Fraction(value)
        floats = {c: Fraction(float(np.array(c, np.uint16).view(ml_dtypes.bfloat16))) for c in candidates}
        result[i] = min(candidates, key=lambda c: (abs(floats[c] - exact), c & 1, c != center))
    return result.view(ml_dtypes.bfloat16)


def cast_reference(x: Array, source: str, target: str) -> Array:
    to = DTYPES[target]
    if target == 'b8':
        return x.astype(np.float64) != 0 if source in ('bf16', 'f16') else x != 0
    if target[0] in 'iu' and source in ('f16', 'bf16', 'f32', 'f64'):
        info = np.iinfo(to)
        wide = [
            0
            if np.isnan(v)
            else info.max
            if v == np.inf
            else info.min
            if v == -np.inf
            else min(max(int(v), info.min), info.max)
            for v in x.astype(np.float64).tolist()
        ]
        return np.array(wide, dtype=to)
    if target == 'bf16' and source in ('f64', 'i32', 'u32', 'i64', 'u64'):
        return nearest_bf16(x)
    with np.errstate(over='ignore', invalid='ignore'):
        return x.astype(to)


@pytest.fixture(scope='module')
def casts(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    return builder(tmp_path_factory)(
        *(elementwise(f'{a}_{b}', [a], b, f'cast<{b}>(x)') for a in DTYPES for b in DTYPES)
    )


@pytest.mark.parametrize('source', DTYPES)
@pytest.mark.parametrize('target', DTYPES)
def test_cast(casts: HostLibrary, source: str, target: str) -> None:
    x = samples(source)
    got, expected = run_elementwise(casts, f'{source}_{target}', DTYPES[target], x), cast_reference(x, source, target)
    if target in ('f16', 'bf16', 'f32', 'f64'):
        if target == 'bf16' and source in ('i64', 'u64'):  # rounded twice above 2**53, as documented
            exact = np.abs(x.astype(np.float64)) < 2.0**53
            got, expected = got[exact], expected[exact]
        assert same_floats(got, expected)
    else:
        assert (got == expected).all()


def test_b8_reads_any_byte_that_is_not_zero_as_true(tmp_path_factory: pytest.TempPathFactory) -> None:
    library = builder(tmp_path_factory)(elementwise('number', ['b8'], 'i32', 'cast<i32>(x) + 10 * (x ? 1 : 0)'))
    raw = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert run_elementwise(library, 'number', np.int32, raw).tolist() == [0, 11, 11, 11]
