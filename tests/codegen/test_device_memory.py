"""Vector accesses, async copies, shared memory, ldmatrix and mma on `host`, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from taskc.codegen.host_library import HostFault, HostLibrary
from tests.codegen.device_support import DTYPES, Array, builder, kernel

LOADS = ('ld', 'ld_nc', 'ld_cg')
STORES = ('st', 'st_cg')
SHAPES = [
    (t, w) for t in ('i8', 'f16', 'f32', 'f64') for w in (1, 2, 4, 8, 16) if np.dtype(DTYPES[t]).itemsize * w <= 16
]


def vector_kernel(load: str, store: str, t: str, w: int) -> str:
    """Thread i moves vector i + start; odd vectors are predicated off at the load, every fifth at the store."""
    return kernel(
        f'{load}_{store}_{t}_{w}',
        f'const {t}* x, {t}* y, int start, int n',
        f'  int i = thread_x(); {t} v[{w}];\n'
        f'  {load}<{t}, {w}>(v, x + start + i * {w}, i < n && i % 2 == 0);\n'
        f'  {store}<{t}, {w}>(y + i * {w}, v, i < n && i % 5 != 0);',
    )


def copy_kernel(size: int) -> str:
    """Two groups of async copies; every third thread's are predicated off. x points past its end there: never read."""
    return kernel(
        f'copy_{size}',
        'const u8* x, u8* y',
        f"""
  SMEM(s); int i = thread_x(); bool on = i % 3 != 0;
  cp_async<{size}>(s + i * {size}, on ? x + i * {size} : x + (1 << 30), on);
  cp_async_commit();
  cp_async<{size}>(s + (128 + i) * {size}, x + i * {size}, true);
  cp_async_commit();
  cp_async_wait<1>();
  for (int b = 0; b < {size}; ++b) y[i * {size} + b] = s[i * {size} + b];
  cp_async_wait<0>();
  barrier();
  int j = 127 - i;
  for (int b = 0; b < {size}; ++b) y[(128 + i) * {size} + b] = s[(128 + j) * {size} + b];""",
    )


def mma_kernel(t: str, k: int) -> str:
    """Fragments straight from the documented places; A, B, C row-major."""
    name = {'f16': 'mma_m16n8k16_f16', 'bf16': 'mma_m16n8k16_bf16', 'u32': 'mma_m16n8k8_tf32'}[t]
    if t == 'u32':
        a = 'u32 a[4] = {A[g * 8 + t], A[(g + 8) * 8 + t], A[g * 8 + t + 4], A[(g + 8) * 8 + t + 4]};'
        b = 'u32 b[2] = {B[t * 8 + g], B[(t + 4) * 8 + g]};'
    else:
        pair = 'auto pair = [](u16 low, u16 high) { return low | u32(high) << 16; };'
        part = 'pair(A[{r} * 16 + {c}].bits, A[{r} * 16 + {c} + 1].bits)'
        a = (
            pair
            + 'u32 a[4] = {'
            + ', '.join(part.format(r=r, c=c) for c in ('2 * t', '(2 * t + 8)') for r in ('g', '(g + 8)'))
            + '};'
        )
        b = (
            'u32 b[2] = {'
            + ', '.join(f'pair(B[({c}) * 8 + g].bits, B[({c} + 1) * 8 + g].bits)' for c in ('2 * t', '2 * t + 8'))
            + '};'
        )
    return kernel(
        f'mma_{t}',
        f'const {t}* A, const {t}* B, const f32* C, f32* D',
        f"""
  int g = lane_id() / 4, t = lane_id() % 4; {a} {b}
  float d[4] = {{C[g * 8 + 2 * t], C[g * 8 + 2 * t + 1], C[(g + 8) * 8 + 2 * t], C[(g + 8) * 8 + 2 * t + 1]}};
  {name}(d, a, b);
  D += warp_id() * 128;
  D[g * 8 + 2 * t] = d[0]; D[g * 8 + 2 * t + 1] = d[1];
  D[(g + 8) * 8 + 2 * t] = d[2]; D[(g + 8) * 8 + 2 * t + 1] = d[3];""",
    )


def ldmatrix_kernel(tiles: int, form: str) -> str:
    """Rows of tiles of 8 x 8 from shared memory; thread l writes its registers."""
    return kernel(
        f'tiles_{tiles}{form}',
        'const u16* x, u32* y',
        f"""
  SMEM(s); int l = thread_x();
  for (int i = l; i < {tiles} * 64; i += 32) ((u16*)s)[i] = x[i];
  barrier();
  u32 d[{tiles}];
  ldmatrix_x{tiles}{form}(d, s + l % {8 * tiles} * 16);
  for (int i = 0; i < {tiles}; ++i) y[l * {tiles} + i] = d[i];""",
    )


@pytest.fixture(scope='module')
def library(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    kernels = [vector_kernel(load, 'st', t, w) for load in LOADS for t, w in SHAPES]
    kernels += [vector_kernel('ld', 'st_cg', t, w) for t, w in SHAPES]
    kernels += [copy_kernel(size) for size in (1, 2, 4, 8, 16)] + [
        mma_kernel(t, k) for t, k in (('f16', 16), ('bf16', 16), ('u32', 8))
    ]
    kernels += [ldmatrix_kernel(tiles, form) for tiles in (2, 4) for form in ('', '_trans')]
    kernels += [
        kernel('tf32', 'const f32* x, u32* y', 'y[thread_x()] = f32_to_tf32(x[thread_x()]);'),
        kernel('shared', 'f32* y, u64* at', 'SMEM(s); y[thread_x()] = ((f32*)s)[thread_x()]; *at = (u64)s;'),
    ]
    return builder(tmp_path_factory)(*kernels)


@pytest.mark.parametrize(('load', 'store'), [(load, 'st') for load in LOADS] + [('ld', 'st_cg')])
def test_vectors(library: HostLibrary, load: str, store: str) -> None:
    rng = np.random.default_rng(1)
    for t, w in SHAPES:
        n = 37
        x = library.guarded((rng.standard_normal(n * w) * 50).astype(DTYPES[t]))
        y = library.guarded(np.full(n * w, 3, DTYPES[t]))
        library.launch(f'{load}_{store}_{t}_{w}', [x, y, 0, n], [1], 64)
        i = np.arange(n * w) // w
        assert (y == np.where(i % 5 == 0, 3, np.where(i % 2 == 0, x, 0)).astype(x.dtype)).all(), (t, w)
        if w > 1:
            with pytest.raises(
                HostFault, match=rf'kernel {load}_{store}_{t}_{w}, block \(0,0,0\), thread \d+: misaligned access'
            ):
                library.launch(f'{load}_{store}_{t}_{w}', [x, y, 1, n - 1], [1], 64)


@pytest.mark.parametrize('size', [1, 2, 4, 8, 16])
def test_async_copies(library: HostLibrary, size: int) -> None:
    rng = np.random.default_rng(2)
    x = library.guarded(rng.integers(1, 255, (128, size), np.uint8))
    y = library.guarded(np.zeros((256, size), np.uint8))
    library.launch(f'copy_{size}', [x, y], [1], 128, 256 * size)
    off = np.arange(128) % 3 == 0
    assert (y[:128][~off] == x[~off]).all() and (y[:128][off] == 0).all()
    assert (y[128:] == x[::-1]).all()


def test_shared_memory_starts_as_nan_at_an_aligned_address(library: HostLibrary) -> None:
    y, at = np.zeros(64, np.float32), np.zeros(1, np.uint64)
    library.launch('shared', [y, at], [1], 64, 260)
    assert np.isnan(y).all() and at[0] % 1024 == 0


@pytest.mark.parametrize('dtype', ['f16', 'bf16'])
def test_mma_16_bit(library: HostLibrary, dtype: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((16, 16), (16, 8)))
    c, d = rng.standard_normal((16, 8)).astype(np.float32), np.zeros((2, 16, 8), np.float32)
    library.launch(f'mma_{dtype}', [a, b, c, d], [1], 64)
    expected = a.astype(np.float64) @ b.astype(np.float64) + c
    assert np.abs(d - expected).max() < 1e-5 < np.abs(d[0] - c).max()


def test_mma_tf32_reads_the_upper_19_bits(library: HostLibrary) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 8)))
    c, d = rng.standard_normal((16, 8)).astype(np.float32), np.zeros((2, 16, 8), np.float32)
    library.launch('mma_u32', [a.view(np.uint32), b.view(np.uint32), c, d], [1], 64)
    cut_a, cut_b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64) for x in (a, b))
    assert np.abs(d - (cut_a @ cut_b + c)).max() < 1e-5
    assert np.abs(d - (a.astype(np.float64) @ b + c)).max() > 1e-4


def test_mma_carries_nan_and_infinity(library: HostLibrary) -> None:
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    c, d = np.zeros((16, 8), np.float32), np.zeros((2, 16, 8), np.float32)
    a[3, 5], b[7, 2] = np.nan, np.inf
    library.launch('mma_f16', [a, b, c, d], [1], 64)
    assert np.isnan(d[:, 3]).all() and np.isinf(np.delete(d[:, :, 2], 3, axis=1)).all()
    assert (np.delete(np.delete(d, 3, 1), 2, 2) == 16).all()


def test_conversion_to_tf32_rounds_ties_away(library: HostLibrary) -> None:
    rng = np.random.default_rng(5)
    values = rng.standard_normal(1024).astype(np.float32) * 10.0 ** rng.integers(-30, 30, 1024).astype(np.float32)
    ties = (values.view(np.uint32) & np.uint32(0xFFFFE000) | np.uint32(0x1000)).view(np.float32)
    for x in (values, ties, np.array([0, -0.0, 3.4028235e38, 1e-42, np.inf, -np.inf] * 100, np.float32)):
        y = np.zeros(512, np.uint32)
        library.launch('tf32', [x, y], [1], 512)
        _, exponent = np.frexp(x[:512].astype(np.float64))
        exponent = np.maximum(exponent, -125)  # subnormals keep the spacing of the least normal number
        with np.errstate(invalid='ignore'):
            scaled = np.ldexp(x[:512].astype(np.float64), 11 - exponent)
            expected = np.ldexp(np.sign(scaled) * np.floor(np.abs(scaled) + 0.5), exponent - 11)
            expected = np.where(np.isfinite(x[:512]), expected, x[:512])
        with np.errstate(over='ignore'):
            assert (y.view(np.float32) == expected.astype(np.float32)).all()
    y = np.zeros(32, np.uint32)
    library.launch('tf32', [np.full(32, np.nan, np.float32), y], [1], 32)
    assert np.isnan((y & np.uint32(0xFFFFE000)).view(np.float32)).all()


@pytest.mark.parametrize('tiles', [2, 4])
@pytest.mark.parametrize('form', ['', '_trans'])
def test_ldmatrix(library: HostLibrary, tiles: int, form: str) -> None:
    x = np.random.default_rng(6).integers(0, 65536, (tiles, 8, 8)).astype(np.uint16)
    y = np.zeros((32, tiles), np.uint32)
    library.launch(f'tiles_{tiles}{form}', [x, y], [1], 32, tiles * 128)
    source = x.transpose(0, 2, 1) if form else x
    pairs: Array = y.view(np.uint16).reshape(8, 4, tiles, 2).transpose(2, 0, 1, 3).reshape(tiles, 8, 8)
    assert (pairs == source).all()


def test_bfloat_products_differ_from_half_products(library: HostLibrary) -> None:
    """The same bits mean different numbers: guards against one body serving both names."""
    a = np.random.default_rng(7).standard_normal((16, 16)).astype(np.float16)
    b, c = np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32)
    d = [np.zeros((2, 16, 8), np.float32) for _ in range(2)]
    library.launch('mma_f16', [a, b, c, d[0]], [1], 64)
    library.launch('mma_bf16', [a, b, c, d[1]], [1], 64)
    other = a.view(ml_dtypes.bfloat16).astype(np.float64) @ b.view(ml_dtypes.bfloat16).astype(np.float64)
    assert np.allclose(d[1], other, rtol=1e-5, atol=1e-30) and not np.allclose(d[0], d[1])
