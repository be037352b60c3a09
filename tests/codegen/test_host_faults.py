"""What a wrong kernel does on `host`: a fault is an error of the launch that says where; races and missing waits show
in results. The process lives on, and so does the library."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from taskc.codegen.host_library import HostFault, HostLibrary
from tests.codegen.device_support import builder, kernel

SOUND = kernel(
    'sound',
    'int* y',
    'SMEM(s); ((int*)s)[thread_x()] = thread_x(); barrier(); y[thread_x()] = ((int*)s)[thread_x() ^ 33];',
)

# (kernel body over `f32* x, f32* y, int n`, threads, bytes of shared memory, the message)
FAULTS = {
    'read_past': (
        'y[thread_x()] = x[thread_x() + n];',
        64,
        0,
        r'thread 0: out of bounds access, at byte 400 of a buffer of 400 bytes',
    ),
    'write_past': (
        'if (thread_x() == 40) y[n + 9] = 1;',
        64,
        0,
        r'thread 40: out of bounds access, at byte 436 of a buffer of 400 bytes',
    ),
    'null': ('*(f32*)u64(n - 100) = n;', 64, 0, r'out of bounds access at'),
    'shared_past': (
        'SMEM(s); y[0] = ((f32*)s)[thread_x() * 1024];',
        64,
        1024,
        r'thread 1: out of bounds access to shared memory, at byte 4096 of 1024',
    ),
    'shared_slack': (
        'SMEM(s); ((f32*)s)[thread_x()] = 1;',
        64,
        200,
        r'something was written at byte 200 of 200 bytes of shared memory',
    ),
    'copy_past': (
        'SMEM(s); cp_async<16>(s + thread_x() * 16, x, true);',
        64,
        512,
        r'thread 32: cp_async at 512 of a block with 512 bytes',
    ),
    'copy_source_past': (
        'SMEM(s); cp_async<4>(s + thread_x() * 4, x + n, true); cp_async_commit(); cp_async_wait<0>();',
        64,
        256,
        r'out of bounds access',
    ),
    'copy_misaligned': (
        'SMEM(s); cp_async<16>(s + thread_x() * 16, x + 1, true);',
        32,
        512,
        r'misaligned access: 16 bytes',
    ),
    'ldmatrix_misaligned': (
        'SMEM(s); u32 d[4]; ldmatrix_x4(d, s + thread_x() * 8);',
        32,
        512,
        r'thread 1: ldmatrix row .* is not aligned',
    ),
    'ldmatrix_global': (
        'u32 d[4]; ldmatrix_x4(d, (void*)(u64(x) & ~15ull));',
        32,
        512,
        r'ldmatrix at .* of a block with 512 bytes',
    ),
    'deadlock': (
        'if (thread_x() < 32) named_barrier(3, 64); else syncwarp(); if (thread_x() >= 32) barrier();',
        64,
        0,
        r'deadlock.*32 in named_barrier\(3\), 32 in barrier\(\)',
    ),
    'barrier_left': (
        'if (thread_x() < 40) barrier();',
        64,
        0,
        r'(left the kernel while \d+ threads wait in barrier|barrier\(\) that \d+ of 64 threads)',
    ),
    'shuffle_left': ('if (thread_x() % 32 < 20) y[thread_x()] = shfl(1.f, 0);', 64, 0, r'left'),
    'mma_lane_skips': (
        'u32 a[4] = {}, b[2] = {}; f32 d[4]; if (thread_x() != 5) mma_m16n8k16_f16(d, a, b); barrier();',
        64,
        0,
        r'deadlock.*31 in mma_m16n8k16_f16, 33 in barrier',
    ),
    'diverged': (
        'if (thread_x() & 1) syncwarp(); else ballot(true);',
        32,
        0,
        r'lanes of a warp diverged.*(syncwarp|a vote)',
    ),
    'missing_lane': ('y[thread_x()] = shfl(1.f, 31);', 40, 0, r'a shuffle from lane 31 of a warp of 8 threads'),
    'half_warp_mma': (
        'u32 a[4] = {}, b[2] = {}; f32 d[4]; mma_m16n8k16_f16(d, a, b);',
        16,
        0,
        r'in a warp of 16 threads',
    ),
    'barrier_count': (
        'named_barrier(2, thread_x() < 32 ? 64 : 32);',
        64,
        0,
        r'named_barrier\(2\) for \d+ threads, which others call for',
    ),
    'barrier_number': ('named_barrier(16, 64);', 64, 0, r'named_barrier\(16\)'),
    'not_cooperative': ('grid_barrier((u32*)x);', 64, 0, r'grid_barrier\(\) in a launch that is not cooperative'),
    'no_waits': (
        'SMEM(s); for (int i = 0; i < 99; ++i) { cp_async<4>(s, x, true); cp_async_commit(); }',
        32,
        64,
        r'a wait is missing',
    ),
    'stack': ('volatile f32 big[100000]; big[n] = 1; y[0] = big[n];', 32, 0, r'out of stack'),
    'division': ('y[0] = f32(n / (n - 100));', 32, 0, r'integer division by zero'),
    'other_rank': ('SMEM(s); *cluster_shared(s, 1) = 0;', 32, 64, r'rank 1 in a cluster of 1'),
}
# Wrong, yet no fault: the result tells. Both read what another thread, or the copy, has not brought yet.
RACE = kernel(
    'race',
    'f32* y',
    'SMEM(s); ((f32*)s)[thread_x()] = thread_x(); y[thread_x()] = ((f32*)s)[thread_x() == 0 ? 0 : thread_x() - 1];',
)
FENCED = kernel(
    'fenced',
    'f32* y',
    'SMEM(s); int i = thread_x(); ((f32*)s)[i] = i; barrier(); y[i] = ((f32*)s)[i == 0 ? 0 : i - 1];',
)
BLOCK_RACE = kernel(
    'block_race', 'f32* y', 'if (block_x() == 0) y[0] = 0; y[block_x()] = y[block_x() == 0 ? 0 : block_x() - 1] + 1;'
)
# Right only while the warps stay within a few steps of each other.
DRIFT = kernel(
    'drift',
    'f32* y',
    """
  SMEM(base); f32* s = (f32*)base; int i = thread_x();
  s[i] = i; barrier();
  for (int k = 0; k < 40; ++k) syncwarp();
  y[i] = s[i ^ 32];
  for (int k = 0; k < 20; ++k) syncwarp();
  s[i] = -1;""",
)
NO_WAIT = kernel(
    'no_wait',
    'const f32* x, f32* y',
    """
  SMEM(s); cp_async<4>(s + 4 * thread_x(), x + thread_x(), true); cp_async_commit();
  cp_async<4>(s + 4 * (64 + thread_x()), x + thread_x(), true); cp_async_commit();
  cp_async_wait<1>(); barrier();
  y[thread_x()] = ((f32*)s)[thread_x() ^ 1]; y[64 + thread_x()] = ((f32*)s)[64 + thread_x()];""",
)


@pytest.fixture(scope='module')
def built(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    faults = [kernel(name, 'f32* x, f32* y, int n', body) for name, (body, *_) in FAULTS.items()]
    return builder(tmp_path_factory)(SOUND, RACE, FENCED, BLOCK_RACE, DRIFT, NO_WAIT, *faults)


@pytest.fixture
def library(built: HostLibrary) -> Iterator[HostLibrary]:
    yield built
    built.set_order(0)


@pytest.mark.parametrize('name', FAULTS)
def test_fault_is_an_error_that_names_kernel_block_and_thread(library: HostLibrary, name: str) -> None:
    _, threads, smem, message = FAULTS[name]
    x, y = library.guarded(np.ones(100, np.float32)), library.guarded(np.ones(100, np.float32))
    for cores in (1, 2):
        with pytest.raises(HostFault, match=message) as fault:
            library.launch(name, [x, y, 100], [3], threads, smem, cores=cores)
        assert str(fault.value).startswith(f'kernel {name}, block (')
        z = np.zeros(64, np.int32)
        library.launch('sound', [z], [4], 64, 256, cores=cores)
        assert (z == np.arange(64) ^ 33).all()


def shown(library: HostLibrary, run: Callable[[], bool]) -> list[bool]:
    results: list[bool] = []
    for seed in range(5):
        library.set_order(seed)
        results.append(run())
    return results


def test_missing_barrier_shows_in_a_shuffled_order(library: HostLibrary) -> None:
    def right(name: str) -> bool:
        y = np.zeros(64, np.float32)
        library.launch(name, [y], [1], 64, 256)
        return bool((y == np.maximum(np.arange(64) - 1, 0)).all())

    assert shown(library, lambda: right('fenced')) == [True] * 5
    assert shown(library, lambda: right('race')) == [True] + [False] * 4  # ascending order hides this one


def test_dependence_between_blocks_shows_in_a_shuffled_order(library: HostLibrary) -> None:
    def right() -> bool:
        y = np.full(50, np.nan, np.float32)
        library.launch('block_race', [y], [50], 1, cores=1)
        return bool((y == np.arange(50) + 1).all())

    assert shown(library, right) == [True] + [False] * 4


def test_warps_drift_apart_under_odd_seeds(library: HostLibrary) -> None:
    def right(seed: int) -> bool:
        library.set_order(seed)
        y = np.zeros(64, np.float32)
        library.launch('drift', [y], [1], 64, 256)
        return bool((y == np.arange(64) ^ 32).all())

    assert not all(right(seed) for seed in (1, 3))


def test_missing_wait_shows_as_nan(library: HostLibrary) -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros(128, np.float32)
    library.launch('no_wait', [x, y], [1], 64, 512)
    assert (y[:64] == x[np.arange(64) ^ 1]).all() and np.isnan(y[64:]).all()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'grid': [0]}, 'at least one block'),
        ({'threads': 1025}, '1 to 1024'),
        ({'smem': -1}, 'shared memory'),
        ({'grid': [3], 'cluster': (2, 1, 1)}, 'does not divide'),
        ({'grid': [32], 'cluster': (32, 1, 1)}, 'at most 16 blocks'),
    ],
)
def test_impossible_launch_is_refused(library: HostLibrary, change: dict[str, object], message: str) -> None:
    configuration: dict[str, object] = {'grid': [1], 'threads': 64, 'smem': 256} | change
    with pytest.raises(HostFault, match=f'kernel sound: .*{message}'):
        library.launch('sound', [np.zeros(64, np.int32)], **configuration)  # pyright: ignore[reportArgumentType]


def test_unknown_kernel_and_unsuitable_array(library: HostLibrary) -> None:
    with pytest.raises(HostFault, match='no kernel missing'):
        library.launch('missing', [], [1], 32)
    with pytest.raises(HostFault, match='row-major'):
        library.launch('sound', [np.zeros((8, 8), np.int32).T[1:]], [1], 64, 256)
