"""Barriers, warp-wide calls, counters between blocks, clusters and whole grids, in ascending and shuffled order."""

from collections.abc import Iterator

import numpy as np
import pytest

from taskc.codegen.host_library import HostLibrary
from tests.codegen.device_support import DTYPES, builder, kernel

SHUFFLED = ('i32', 'u32', 'i64', 'u64', 'f32', 'f64')

COORDINATES = kernel(
    'coordinates',
    'int* y',
    """
  if (thread_x() != 5) return;
  int b = block_x() + grid_x() * (block_y() + grid_y() * block_z()), *p = y + b * 8;
  p[0] = block_x(), p[1] = block_y(), p[2] = block_z(), p[3] = grid_x(), p[4] = grid_y(), p[5] = grid_z();
  p[6] = block_threads();
  p[7] = cluster_rank() + 100 * cluster_size();""",
)

# Each warp sums; then named barriers carry values from the first half of the block to the second and back.
HANDOVER = kernel(
    'handover',
    'int* y',
    """
  SMEM(base); int* s = (int*)base; int i = thread_x(), half = block_threads() / 2;
  grid_dependency_wait();
  if (i < half) {
    s[i] = i + 1; named_barrier_arrive(1, block_threads());
    named_barrier(2, block_threads()); y[i] = s[i];
  } else {
    named_barrier(1, block_threads()); int v = s[i - half]; s[i] = 7;
    named_barrier(3, half); s[i - half] = v * 10 + s[i == half ? block_threads() - 1 : i - 1];
    named_barrier(2, block_threads()); y[i] = v;
  }
  grid_dependency_launch();""",
)

VOTES = kernel(
    'votes',
    'const int* x, int* y',
    """
  int v = x[thread_x()];
  u32 odd = ballot(v & 1); bool some = any(v > 90), every = all(v >= 0);
  syncwarp();
  y[thread_x()] = (odd >> lane_id() & 1) + 2 * some + 4 * every;""",
)

REDUCTIONS = kernel(
    'reductions',
    'const f32* x, f32* y',
    """
  float v = x[thread_x()], *p = y + thread_x() * 5;
  p[0] = warp_sum(v), p[1] = warp_max(v), p[2] = warp_min(v), p[3] = warp_sum<8>(v), p[4] = warp_max<4>(v);""",
)

# Sums of slices by many blocks; the last one adds the partial sums in order. Launched twice with the same counter.
SPLIT = kernel(
    'split',
    'const f32* x, f32* partial, int* counter, f32* y, int parts',
    """
  SMEM(base); int* flag = (int*)base; int i = thread_x();
  float v[1]; ld<f32, 1>(v, x + block_x() * 128 + i, true);
  st_cg<f32, 1>(partial + block_x() * 128 + i, v, true);
  if (!last_block(counter, parts, flag)) return;
  float sum = 0;
  for (int p = 0; p < parts; ++p) { ld_cg<f32, 1>(v, partial + p * 128 + i, true); sum += v[0]; }
  y[i] = sum;""",
)

CLUSTER = kernel(
    'cluster',
    'int* y',
    """
  SMEM(base); int* s = (int*)base; int i = thread_x();
  s[i] = 1000 * block_x() + i;
  cluster_sync();
  int next = (cluster_rank() + 1) % cluster_size();
  y[block_x() * block_threads() + i] = cluster_shared(s, next)[i];
  cluster_sync();""",
)

GRID = kernel(
    'grid',
    'int* x, int* y, u32* counter',
    """
  int n = grid_x() * block_threads(), i = block_x() * block_threads() + thread_x();
  for (int round = 0; round < 3; ++round) {
    x[i] = i + round; grid_barrier(counter);
    y[round * n + i] = x[n - 1 - i]; grid_barrier(counter);
  }""",
)


def shuffle_kernel(t: str) -> str:
    return kernel(
        f'shuffle_{t}',
        f'const {t}* x, {t}* y',
        f"""
  {t} v = x[thread_x()], *p = y + thread_x() * 4;
  p[0] = shfl(v, 7), p[1] = shfl_xor(v, 5), p[2] = shfl_down(v, 3), p[3] = shfl(v, (lane_id() * 7) & 31);""",
    )


@pytest.fixture(scope='module')
def built(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    return builder(tmp_path_factory)(
        COORDINATES, HANDOVER, VOTES, REDUCTIONS, SPLIT, CLUSTER, GRID, *map(shuffle_kernel, SHUFFLED)
    )


@pytest.fixture(params=[0, 1, 2, 77])
def library(built: HostLibrary, request: pytest.FixtureRequest) -> Iterator[HostLibrary]:
    built.set_order(request.param)
    yield built
    built.set_order(0)


@pytest.mark.parametrize('cluster', [(1, 1, 1), (2, 1, 1), (1, 3, 2)])
@pytest.mark.parametrize('cooperative', [False, True])
def test_every_block_runs_once_with_its_coordinates(
    library: HostLibrary, cluster: tuple[int, int, int], cooperative: bool
) -> None:
    y = np.full((4, 3, 4, 8), -1, np.int32)
    library.launch('coordinates', [y], (4, 3, 4), 40, cluster=cluster, cores=2, cooperative=cooperative)
    z, by, x = np.indices((4, 3, 4))
    assert (y[..., 0] == x).all() and (y[..., 1] == by).all() and (y[..., 2] == z).all()
    assert (y[..., 3:7] == [4, 3, 4, 40]).all()
    rank = x % cluster[0] + cluster[0] * (by % cluster[1] + cluster[1] * (z % cluster[2]))
    assert (y[..., 7] == rank + 100 * np.prod(cluster)).all()


def test_named_barriers(library: HostLibrary) -> None:
    y = np.zeros(128, np.int32)
    library.launch('handover', [y], [1], 128, 512)
    assert (y[64:] == np.arange(64) + 1).all() and (y[:64] == (np.arange(64) + 1) * 10 + 7).all()


@pytest.mark.parametrize('t', SHUFFLED)
def test_shuffles(library: HostLibrary, t: str) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(96) * 2.0**30).astype(np.int64).astype(DTYPES[t])
    y = np.zeros((96, 4), DTYPES[t])
    library.launch(f'shuffle_{t}', [x, y], [1], 96)
    warp, lane = np.arange(96) // 32 * 32, np.arange(96) % 32
    down = np.where(lane + 3 > 31, lane, lane + 3)
    assert (y == np.stack([x[warp + 7], x[warp + (lane ^ 5)], x[warp + down], x[warp + lane * 7 % 32]], 1)).all()


def test_votes(library: HostLibrary) -> None:
    x = np.random.default_rng(2).integers(0, 90, 96).astype(np.int32)
    x[40], x[70] = 95, -1
    y = np.zeros(96, np.int32)
    library.launch('votes', [x, y], [1], 96)
    warps = x.reshape(3, 32)
    assert (
        y.reshape(3, 32)
        == (warps & 1) + 2 * (warps > 90).any(1, keepdims=True) + 4 * (warps >= 0).all(1, keepdims=True)
    ).all()


def test_reductions(library: HostLibrary) -> None:
    x = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    x[50] = np.nan
    y = np.zeros((64, 5), np.float32)
    library.launch('reductions', [x, y], [1], 64)

    def groups(width: int, reduce: np.ufunc) -> np.ndarray:
        return np.repeat(reduce.reduce(x.astype(np.float64).reshape(-1, width), axis=1), width)

    expected = [
        groups(32, np.add),
        groups(32, np.maximum),
        groups(32, np.minimum),
        groups(8, np.add),
        groups(4, np.maximum),
    ]
    assert np.allclose(y, np.stack(expected, 1), rtol=1e-5, atol=1e-6, equal_nan=True)
    assert np.isnan(y[32:, :3]).all() and np.isnan(y).sum() == 32 * 3 + 8 + 4


def test_last_block_sums_in_order_and_resets_its_counter(library: HostLibrary) -> None:
    parts = 9
    x = np.random.default_rng(4).standard_normal((parts, 128)).astype(np.float32)
    partial, counter, y = np.full_like(x, np.nan), np.zeros(1, np.int32), np.zeros(128, np.float32)
    expected = np.zeros(128, np.float32)
    for row in x:
        expected += row
    for _ in range(2):
        y[:] = partial[:] = np.nan
        library.launch('split', [x, partial, counter, y, parts], [parts], 128, 4, cores=2)
        assert (y == expected).all() and counter[0] == 0


def test_clusters_share_memory(library: HostLibrary) -> None:
    y = np.zeros((8, 64), np.int32)
    library.launch('cluster', [y], [8], 64, 256, cluster=(4, 1, 1), cores=2)
    block = np.arange(8)
    assert (y == (block // 4 * 4 + (block + 1) % 4)[:, None] * 1000 + np.arange(64)).all()


def test_grid_barrier(library: HostLibrary) -> None:
    n = 5 * 48
    x, y, counter = np.zeros(n, np.int32), np.zeros((3, n), np.int32), np.zeros(1, np.uint32)
    library.launch('grid', [x, y, counter], [5], 48, cooperative=True)
    assert (y == np.arange(n)[::-1] + np.arange(3)[:, None]).all()
