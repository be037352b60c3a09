"""Small hand-written plans and the host kernels they launch, in the host kernels' C interface."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from taskc.artifact.plan import (
    ArenaMemory,
    Copy,
    CounterArg,
    Fill,
    Image,
    InputMemory,
    IntArg,
    Kernel,
    Launch,
    ModelPlan,
    OutputMemory,
    PlanTensor,
    Port,
    ScratchArg,
    Symbol,
    TargetPlan,
    TensorArg,
    TensorMapArg,
    WeightMemory,
)
from taskc.ir.arithmetic import ceildiv
from taskc.ir.dtype import F32, I32
from taskc.ir.expr import Index, Var

HOST_KERNELS = r"""
#include <cstring>
#include <cstdio>
// the number of parameters, for the stand-in driver
extern "C" { int taskc_params_add = 4, taskc_params_scale = 5, taskc_params_count = 5, taskc_params_peek = 2; }
struct Launch { int grid[3], cluster[3], threads, smem, cores, cooperative; };
template <class T> static T value(void* p) { T v; memcpy(&v, p, sizeof v); return v; }
static thread_local char message[128];
extern "C" const char* taskc_host_error() { return message; }
// out[i] = a[i] + b[i]
extern "C" int taskc_launch_add(void** a, const Launch* l) {
  float *out = value<float*>(a[0]); const float *x = value<const float*>(a[1]), *y = value<const float*>(a[2]);
  int n = value<int>(a[3]);
  for (int i = 0; i < l->grid[0] * l->threads && i < n; ++i) out[i] = x[i] + y[i];
  return 0;
}
// out[i] = a[i] * w[i % m]
extern "C" int taskc_launch_scale(void** a, const Launch* l) {
  float *out = value<float*>(a[0]); const float *x = value<const float*>(a[1]), *w = value<const float*>(a[2]);
  int n = value<int>(a[3]); int m = value<int>(a[4]);
  for (int i = 0; i < l->grid[0] * l->threads && i < n; ++i) out[i] = x[i] * w[i % m];
  return 0;
}
// out[0] = runs since the counter was zeroed; scratch must be writable; fails when the first input is negative,
// leaving the counter at 100
extern "C" int taskc_launch_count(void** a, const Launch*) {
  int *out = value<int*>(a[0]); const float *x = value<const float*>(a[1]); int *counter = value<int*>(a[2]);
  int *scratch = value<int*>(a[3]); long long bytes = value<long long>(a[4]);
  memset(scratch, 0, bytes);
  if (x[0] < 0) { *counter = 100; snprintf(message, sizeof message, "negative input"); return 1; }
  out[0] = ++*counter;
  return 0;
}
// reads one float of memory that nobody wrote
extern "C" int taskc_launch_peek(void** a, const Launch*) {
  *value<float*>(a[0]) = *value<float*>(a[1]);
  return 0;
}
"""

CUDA_KERNELS = r"""
extern "C" __global__ void add(float* out, const float* x, const float* y, int n) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}
extern "C" __global__ void scale(float* out, const float* x, const float* w, int n, int m) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * w[i % m];
}
extern "C" __global__ void count(int* out, const float* x, int* counter, int* scratch, long long bytes) {
  for (long long i = threadIdx.x; i < bytes / 4; i += blockDim.x) scratch[i] = 0;
  if (threadIdx.x == 0) { if (x[0] < 0) { *counter = 100; __trap(); } out[0] = ++*counter; }
}
extern "C" __global__ void peek(float* out, const float* x) { *out = *x; }
"""


@cache
def host_image(addition: str = "x[i] + y[i]") -> bytes:
    """The host kernels, compiled once a test run; `addition` is what kernel 'add' computes."""
    with TemporaryDirectory() as folder:
        source, made = Path(folder) / "k.cpp", Path(folder) / "k.so"
        source.write_text(HOST_KERNELS.replace("x[i] + y[i]", addition))
        subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
        return made.read_bytes()


@dataclass(frozen=True)
class Code:
    """The images of a target."""

    target: str
    images: tuple[Image, ...]


def host_code() -> Code:
    return Code("host", (Image("host", "host", host_image()),))


def fake_code(arch: str = "sm_90a", kind: str = "cubin") -> Code:
    """Code for the stand-in driver, whose cubins are shared objects of host kernels."""
    return Code(arch, (Image(kind, arch, host_image() + b"\0"),))


KERNELS = (
    Kernel("add", 128, 0, pdl=True, registers=12, notes="loads 16 bytes"),
    Kernel("scale", 128, 0, pdl=True),
    Kernel("count", 32, 0),
    Kernel("peek", 1, 0),
)
ADD, SCALE, COUNT, PEEK = range(4)


def rng_weights(n: int = 64) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(n).astype(np.float32)


def blocks(n: Index) -> tuple[Index, Index, Index]:
    return (ceildiv(n, 128), 1, 1)


def affine_plan(code: Code, rows: Index = 3, cols: int = 5, weights: np.ndarray | None = None) -> ModelPlan:
    """y = (a + b) * w over [rows, cols]; `rows` may be a Var named N. The sum lies in the arena."""
    w = rng_weights(cols) if weights is None else weights
    n = rows * cols
    shape = (rows, cols)
    symbols = () if isinstance(rows, int) else (Symbol("N", 0, 0),)
    names = ("batch" if symbols else "", "")
    tensors = (
        PlanTensor("a", F32, shape, InputMemory(0)),
        PlanTensor("b", F32, shape, InputMemory(1)),
        PlanTensor("y", F32, shape, OutputMemory(0)),
        PlanTensor("sum", F32, shape, ArenaMemory(256)),
        PlanTensor("w", F32, (cols,), WeightMemory(0)),
    )
    steps = (
        Launch(ADD, blocks(n), (TensorArg(3), TensorArg(0), TensorArg(1), IntArg(n)), name="Add_1"),
        Launch(SCALE, blocks(n), (TensorArg(2), TensorArg(3), TensorArg(4), IntArg(n), IntArg(cols)), (0,), "Mul_2"),
    )
    target = TargetPlan(code.target, code.images, KERNELS, tensors, steps, 256 + 4 * n)
    ports = (Port("a", F32, shape, names), Port("b", F32, shape, names))
    return ModelPlan(
        "affine", symbols, ports, (Port("y", F32, shape, names),), (target,), ((0, w.tobytes()),), '{"made": "test"}'
    )


def affine(a: np.ndarray, b: np.ndarray, w: np.ndarray) -> np.ndarray:
    return (a + b) * w[np.arange(a.size) % w.size].reshape(a.shape)


def symbolic_plan(code: Code, low: int = 1, multiple: int = 1, high: int = 2**31 - 1) -> ModelPlan:
    plan = affine_plan(code, Var("N", lo=1))
    return replace(plan, symbols=(Symbol("N", 0, 0, low, multiple, high),))


def outputs_plan(code: Code) -> ModelPlan:
    """Outputs: the input itself, the sum, the sum again, a constant, and a fill of 0x01 bytes; [4, 3] each."""
    shape = (4, 3)
    constant = np.arange(12, dtype=np.float32)
    memory = [InputMemory(0), *(OutputMemory(i) for i in range(5)), WeightMemory(0)]
    tensors = tuple(PlanTensor(f"t{i}", F32, shape, m) for i, m in enumerate(memory))
    steps = (
        Launch(ADD, blocks(12), (TensorArg(2), TensorArg(0), TensorArg(0), IntArg(12)), name="Add"),
        Copy(0, 1, 48, name="same"),
        Copy(2, 3, 48, (0,), "again"),
        Copy(6, 4, 48, name="constant"),
        Fill(5, 48, 1, name="ones"),
    )
    ports = tuple(Port(n, F32, shape) for n in ("same", "sum", "again", "constant", "ones"))
    target = TargetPlan(code.target, code.images, KERNELS, tensors, steps, 0)
    return ModelPlan("outputs", (), (Port("x", F32, shape),), ports, (target,), ((0, constant.tobytes()),))


def chain_plan(code: Code, length: int, n: int = 1000) -> ModelPlan:
    """y = x + length * w by dependent launches that take turns in two arena buffers."""
    x, y, w = PlanTensor("x", F32, (n,), InputMemory(0)), PlanTensor("y", F32, (n,), OutputMemory(0)), WeightMemory(0)
    size = (4 * n + 255) // 256 * 256
    tensors = (
        x,
        y,
        PlanTensor("w", F32, (n,), w),
        *(PlanTensor(f"t{i}", F32, (n,), ArenaMemory(i * size)) for i in range(2)),
    )
    steps: list[Launch] = []
    for i in range(length):
        source = 0 if i == 0 else 3 + (i - 1) % 2
        target = 1 if i == length - 1 else 3 + i % 2
        args = (TensorArg(target), TensorArg(source), TensorArg(2), IntArg(n))
        steps.append(Launch(ADD, blocks(n), args, (i - 1,) if i else (), f"Add_{i}"))
    weights = np.random.default_rng(3).integers(-8, 8, n).astype(np.float32)
    ports = (Port("x", F32, (n,)),), (Port("y", F32, (n,)),)
    made = TargetPlan(code.target, code.images, KERNELS, tensors, tuple(steps), 2 * size)
    return ModelPlan("chain", (), *ports, (made,), ((0, weights.tobytes()),))


def counter_plan(code: Code) -> ModelPlan:
    """y = the number of runs since the counter was zeroed; fails on a negative input."""
    tensors = (PlanTensor("x", F32, (1,), InputMemory(0)), PlanTensor("y", I32, (1,), OutputMemory(0)))
    args = (TensorArg(1), TensorArg(0), CounterArg(4), ScratchArg(0, 1024), IntArg(1024, 8))
    steps = (Launch(COUNT, (1, 1, 1), args, name="Count_7"),)
    ports = (Port("x", F32, (1,)),), (Port("y", I32, (1,)),)
    return ModelPlan("counter", (), *ports, (TargetPlan(code.target, code.images, KERNELS, tensors, steps, 1024),))


def peek_plan(code: Code) -> ModelPlan:
    """y = the first float of the arena, which nothing has written."""
    tensors = (PlanTensor("y", F32, (1,), OutputMemory(0)), PlanTensor("t", F32, (1,), ArenaMemory(0)))
    steps = (Launch(PEEK, (1, 1, 1), (TensorArg(0), TensorArg(1)), name="Peek"),)
    return ModelPlan(
        "peek", (), (), (Port("y", F32, (1,)),), (TargetPlan(code.target, code.images, KERNELS, tensors, steps, 256),)
    )


def misc_plan(code: Code, rows: int = 13, cols: int = 70) -> ModelPlan:
    """copy = x through a tensor map with boxes of 8 rows and 32 columns; ranks = each block's rank in clusters of 2;
    sum = the number of blocks, counted across a cooperative grid."""
    padded = (cols + 3) // 4 * 4  # a tensor map's strides are multiples of 16 bytes
    tensors = (
        PlanTensor("x", F32, (rows, padded), InputMemory(0)),
        PlanTensor("copy", F32, (rows, padded), OutputMemory(0)),
        PlanTensor("ranks", I32, (6,), OutputMemory(1)),
        PlanTensor("sum", I32, (5,), OutputMemory(2)),
    )
    box = TensorMapArg(0, (padded, rows), (padded * 4,), (32, 8))
    tiles = (ceildiv(padded, 32), ceildiv(rows, 8), 1)
    steps = (
        Launch(0, tiles, (box, TensorArg(1), IntArg(rows), IntArg(padded)), name="Identity"),
        Launch(1, (6, 1, 1), (TensorArg(2),), name="Ranks"),
        Launch(2, (5, 1, 1), (TensorArg(3), CounterArg(4)), name="Blocks"),
    )
    kernels = (
        Kernel("map_copy", 32, 60_000),
        Kernel("ranks", 32, 0, cluster=(2, 1, 1)),
        Kernel("grid_sum", 32, 0, cooperative=True),
    )
    target = TargetPlan(code.target, code.images, kernels, tensors, steps, 0)
    outputs = Port("copy", F32, (rows, padded)), Port("ranks", I32, (6,)), Port("sum", I32, (5,))
    return ModelPlan("misc", (), (Port("x", F32, (rows, padded)),), outputs, (target,))


MISC_KERNELS = r"""
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void map_copy(const __grid_constant__ Map map, float* out, int rows, int cols) {
  extern __shared__ __align__(128) float tile[];
  __shared__ __align__(8) unsigned long long barrier;
  unsigned b = (unsigned)__cvta_generic_to_shared(&barrier), t = (unsigned)__cvta_generic_to_shared(tile);
  int x = blockIdx.x * 32, y = blockIdx.y * 8;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(b));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(b));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];"
                 :: "r"(t), "l"(&map), "r"(x), "r"(y), "r"(b) : "memory");
  }
  __syncwarp();
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(b) : "memory");
  for (int r = 0; r < 8; ++r)
    if (y + r < rows && x + threadIdx.x < cols) out[(y + r) * cols + x + threadIdx.x] = tile[r * 32 + threadIdx.x];
}
extern "C" __global__ void ranks(int* out) {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) out[blockIdx.x] = (int)rank;
}
// every block waits for all others: needs co-residency. The counter goes up to gridDim.x and is left zero.
extern "C" __global__ void grid_sum(int* out, int* counter) {
  if (threadIdx.x) return;
  atomicAdd(counter, 1);
  while (atomicAdd(counter, 0) % 65536 < (int)gridDim.x) {}
  out[blockIdx.x] = (int)gridDim.x;
  __threadfence();
  if (atomicAdd(counter, 65536) / 65536 == (int)gridDim.x - 1) *counter = 0;
}
"""
