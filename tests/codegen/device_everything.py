"""One text that uses every intrinsic: what all compilers must take without a warning."""

from tests.codegen.device_support import DTYPES, kernel, text_of
from tests.codegen.test_device_math import BINARY, UNARY
from tests.codegen.test_device_memory import LOADS, SHAPES, copy_kernel, ldmatrix_kernel, mma_kernel, vector_kernel
from tests.codegen.test_device_sync import (
    CLUSTER,
    COORDINATES,
    GRID,
    HANDOVER,
    REDUCTIONS,
    SHUFFLED,
    SPLIT,
    VOTES,
    shuffle_kernel,
)

SCALARS = kernel(
    'scalars',
    'f32* x, f64* y, i32* a, i64* b, u32* c, b8* d',
    '\n'.join(
        ['  int i = thread_x();']
        + [f'  x[i] += t_{f}(x[i]); y[i] += t_{f}(y[i]);' for f in UNARY]
        + [f'  x[i] += t_{f}(x[i], x[i + 1]); y[i] += t_{f}(y[i], y[i + 1]);' for f in BINARY]
        + [
            f'  {p}[i] += {f}({p}[i], {p}[i + 1]);'
            for p in 'ab'
            for f in ('truncdiv', 'truncmod', 'floordiv', 'floormod', 't_pow', 't_max', 't_min')
        ]
        + [
            '  x[i] = t_fma(x[i], x[i], inf_f32()) + nan_f32(); y[i] = t_fma(y[i], y[i], inf_f64()) + nan_f64();',
            '  c[i] = mulhi(c[i], c[i + 1]) + f32_to_tf32(x[i]);',
            '  x[i] += t_mod(x[i], x[i + 1]) + t_gelu(x[i]) + t_gelu_tanh(x[i]);',
            '  y[i] += t_mod(y[i], y[i + 1]) + t_gelu(y[i]) + t_gelu_tanh(y[i]);',
            '  c[i + 1] = pack_pair<f16>(x[i], x[i + 1]) + pack_pair<bf16>(x[i], x[i + 1]) + tf32_half_bit(x[i]);',
            '  round_tf32<2>(c); split_tf32<2>(c, c + 2); accumulators_as_a<f16>(c, x, x + 4); exchange_xor(x + i, x + i + 1, 1);',
            '  exchange_xor(d + i, d + i + 1, 1);',
            '  d[i] = t_isnan(x[i]) || t_isinf(x[i]) || t_isnan(y[i]) || t_isinf(y[i]);',
            '  a[i] = atomic_add(a, 3) + t_abs(a[i]) + t_sign(a[i]) + t_relu(a[i]);',
        ]
    ),
)


def cast_kernel(source: str) -> str:
    parameters = ', '.join(f'{t}* to_{t}' for t in DTYPES)
    return kernel(
        f'cast_{source}',
        f'const {source}* x, {parameters}',
        '  int i = thread_x();\n'
        + '\n'.join(f'  to_{t}[i] = cast<{t}>(x[i]);' for t in DTYPES)
        + '\n  to_f32[i] += to_f32[i + 1] + ::to_f32(x[i]); to_f16[i + 1] = from_f32<f16>(::to_f32(to_bf16[0]));',
    )


EVERYTHING = text_of(
    SCALARS,
    *map(cast_kernel, DTYPES),
    *(vector_kernel(load, 'st', t, w) for load in LOADS for t, w in SHAPES),
    *(vector_kernel('ld', 'st_cg', t, w) for t, w in SHAPES),
    *map(copy_kernel, (1, 2, 4, 8, 16)),
    *(mma_kernel(t, k) for t, k in (('f16', 16), ('bf16', 16), ('u32', 8))),
    *(ldmatrix_kernel(tiles, form) for tiles in (2, 4) for form in ('', '_trans')),
    COORDINATES,
    HANDOVER,
    VOTES,
    REDUCTIONS,
    SPLIT,
    CLUSTER,
    GRID,
    *map(shuffle_kernel, SHUFFLED),
)
