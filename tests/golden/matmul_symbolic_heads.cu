#include "taskc_device.cuh"
extern "C" __global__ void __launch_bounds__(128) kernel(const f16* x, const f16* __restrict__ c0, f16* __restrict__ v2, const int M) {
  SMEM(smem);
  const int tid = thread_x();
  const int bx = block_x();
  f16* As = (f16*)(smem + 0);
  f16* Bs = (f16*)(smem + 6144);
  f32* Cs = (f32*)(smem + 0);
  const int tile_m = (bx >> 1);
  const int tile_n = (bx & 1);
  const int m0 = (32 * tile_m);
  const int n0 = (32 * tile_n);
  const int lane = (tid & 31);
  const int warp = (tid >> 5);
  alignas(16) f32 acc[8];
  UNROLL
  for (int e = 0; e < 8; ++e) {
    acc[e] = 0.0f;
  }
  {
    {
      cp_async<16>(Bs + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3)), c0 + (64 * n0 + 64 * (tid >> 2) + 8 * (tid & 3)), (48 > n0 + (tid >> 2)));
    }
  }
  {
    {
      cp_async<16>(Bs + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 1024), c0 + (64 * n0 + 64 * (tid >> 2) + 8 * (tid & 3) + 32), (48 > n0 + (tid >> 2)));
    }
  }
  grid_dependency_wait();
  {
    {
      cp_async<16>(As + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3)), x + (64 * m0 + 64 * (tid >> 2) + 8 * (tid & 3)), (M > m0 + (tid >> 2)));
    }
  }
  cp_async_commit();
  {
    {
      cp_async<16>(As + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 1024), x + (64 * m0 + 64 * (tid >> 2) + 8 * (tid & 3) + 32), (M > m0 + (tid >> 2)));
    }
  }
  cp_async_commit();
  int slot = 0;
  NO_UNROLL
  for (int kt = 0; kt < 2; ++kt) {
    cp_async_wait<1>();
    barrier();
    cp_async_commit();
    UNROLL
    for (int ks = 0; ks < 2; ++ks) {
      alignas(16) u32 fa[4];
      ldmatrix_x4(fa, As + (512 * (warp >> 1) + 32 * (lane & 15) + 8 * ((2 * ks + (lane >> 4) + ((lane & 15) >> 1)) & 3) + 1024 * slot));
      alignas(16) u32 fb[4];
      ldmatrix_x4(fb, Bs + (512 * (warp & 1) + 256 * (lane >> 4) + 32 * (lane & 7) + 8 * ((2 * ks + ((lane >> 3) & 1) + ((lane & 7) >> 1)) & 3) + 1024 * slot));
      UNROLL
      for (int j = 0; j < 2; ++j) {
        mma_m16n8k16_f16(acc + (4 * j), fa, fb + (2 * j));
      }
    }
    slot = ((slot + 1) % 3);
  }
  cp_async_wait<0>();
  barrier();
  grid_dependency_launch();
  UNROLL
  for (int j = 0; j < 2; ++j) {
    st<f32, 2>(Cs + (576 * (warp >> 1) + 36 * (lane >> 2) + 16 * (warp & 1) + 8 * j + 2 * (lane & 3)), acc + (4 * j), true);
    st<f32, 2>(Cs + (576 * (warp >> 1) + 36 * (lane >> 2) + 16 * (warp & 1) + 8 * j + 2 * (lane & 3) + 288), acc + (4 * j + 2), true);
  }
  barrier();
  {
    alignas(16) f32 acc[8];
    ld<f32, 4>(acc, Cs + (36 * (tid >> 2) + 8 * (tid & 3)), true);
    ld<f32, 4>(acc + 4, Cs + (36 * (tid >> 2) + 8 * (tid & 3) + 4), true);
    alignas(16) f16 out_r[8];
    out_r[0] = cast<f16>(acc[0]);
    out_r[1] = cast<f16>(acc[1]);
    out_r[2] = cast<f16>(acc[2]);
    out_r[3] = cast<f16>(acc[3]);
    out_r[4] = cast<f16>(acc[4]);
    out_r[5] = cast<f16>(acc[5]);
    out_r[6] = cast<f16>(acc[6]);
    out_r[7] = cast<f16>(acc[7]);
    st<f16, 8>(v2 + (16 * ((n0 >> 4) * M) + 16 * (((tid & 3) >> 1) * M) + 16 * m0 + 16 * (tid >> 2) + 8 * (tid & 1)), out_r, (M > m0 + (tid >> 2)) && (48 > n0 + 8 * (tid & 3)));
  }
}
HOST_ENTRY(kernel)
