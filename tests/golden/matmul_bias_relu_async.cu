#include "taskc_device.cuh"
extern "C" __global__ void __launch_bounds__(128) kernel(const f16* x, const f16* __restrict__ c0, const f16* __restrict__ c1, f16* __restrict__ v2) {
  SMEM(smem);
  const int tid = thread_x();
  const int bx = block_x();
  f16* As = (f16*)(smem + 0);
  f16* Bs = (f16*)(smem + 12288);
  f32* Cs = (f32*)(smem + 0);
  const int tile_m = bx;
  const int m0 = (64 * tile_m);
  const int lane = (tid & 31);
  const int warp = (tid >> 5);
  alignas(16) f32 acc[32];
  UNROLL
  for (int e = 0; e < 32; ++e) {
    acc[e] = 0.0f;
  }
  {
    UNROLL
    for (int r = 0; r < 2; ++r) {
      cp_async<16>(Bs + (1024 * r + 64 * (tid >> 3) + 8 * (((tid & 7) + (tid >> 3)) & 7)), c0 + (640 * r + 40 * (tid >> 3) + 8 * (tid & 7)), (40 > 8 * (tid & 7)));
    }
  }
  {
    UNROLL
    for (int r_1 = 0; r_1 < 2; ++r_1) {
      cp_async<16>(Bs + (1024 * r_1 + 64 * (tid >> 3) + 8 * (((tid & 7) + (tid >> 3)) & 7) + 2048), c0 + (640 * r_1 + 40 * (tid >> 3) + 8 * (tid & 7) + 1280), (40 > 8 * (tid & 7)));
    }
  }
  grid_dependency_wait();
  {
    UNROLL
    for (int r_2 = 0; r_2 < 2; ++r_2) {
      cp_async<16>(As + (1024 * r_2 + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3)), x + (72 * m0 + 2304 * r_2 + 72 * (tid >> 2) + 8 * (tid & 3)), (100 > m0 + 32 * r_2 + (tid >> 2)));
    }
  }
  cp_async_commit();
  {
    UNROLL
    for (int r_3 = 0; r_3 < 2; ++r_3) {
      cp_async<16>(As + (1024 * r_3 + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 2048), x + (72 * m0 + 2304 * r_3 + 72 * (tid >> 2) + 8 * (tid & 3) + 32), (100 > m0 + 32 * r_3 + (tid >> 2)));
    }
  }
  cp_async_commit();
  int slot = 0;
  NO_UNROLL
  for (int kt = 0; kt < 3; ++kt) {
    cp_async_wait<1>();
    barrier();
    if ((1 > kt)) {
      int kn = (kt + 2);
      int sn = ((slot + 2) % 3);
      UNROLL
      for (int r_4 = 0; r_4 < 2; ++r_4) {
        cp_async<16>(Bs + (1024 * r_4 + 64 * (tid >> 3) + 8 * (((tid & 7) + (tid >> 3)) & 7) + 2048 * sn), c0 + (1280 * kn + 640 * r_4 + 40 * (tid >> 3) + 8 * (tid & 7)), (72 > 32 * kn + 16 * r_4 + (tid >> 3)) && (40 > 8 * (tid & 7)));
      }
      UNROLL
      for (int r_5 = 0; r_5 < 2; ++r_5) {
        cp_async<16>(As + (1024 * r_5 + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 2048 * sn), x + (72 * m0 + 2304 * r_5 + 72 * (tid >> 2) + 32 * kn + 8 * (tid & 3)), (100 > m0 + 32 * r_5 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)));
      }
    }
    cp_async_commit();
    UNROLL
    for (int ks = 0; ks < 2; ++ks) {
      alignas(16) u32 fa[8];
      UNROLL
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(fa + (4 * i), As + (1024 * (warp >> 1) + 512 * i + 32 * (lane & 15) + 8 * ((2 * ks + (lane >> 4) + ((lane & 15) >> 1)) & 3) + 2048 * slot));
      }
      alignas(16) u32 fb[8];
      UNROLL
      for (int j = 0; j < 2; ++j) {
        ldmatrix_x4_trans(fb + (4 * j), Bs + (1024 * ks + 64 * (lane & 15) + 8 * ((4 * (warp & 1) + 2 * j + (lane >> 4) + (lane & 15)) & 7) + 2048 * slot));
      }
      UNROLL
      for (int i = 0; i < 2; ++i) {
        UNROLL
        for (int j = 0; j < 4; ++j) {
          mma_m16n8k16_f16(acc + (16 * i + 4 * j), fa + (4 * i), fb + (2 * j));
        }
      }
    }
    slot = ((slot + 1) % 3);
  }
  cp_async_wait<0>();
  barrier();
  grid_dependency_launch();
  UNROLL
  for (int i = 0; i < 2; ++i) {
    UNROLL
    for (int j = 0; j < 4; ++j) {
      st<f32, 2>(Cs + (2176 * (warp >> 1) + 1088 * i + 68 * (lane >> 2) + 32 * (warp & 1) + 8 * j + 2 * (lane & 3)), acc + (16 * i + 4 * j), true);
      st<f32, 2>(Cs + (2176 * (warp >> 1) + 1088 * i + 68 * (lane >> 2) + 32 * (warp & 1) + 8 * j + 2 * (lane & 3) + 544), acc + (16 * i + 4 * j + 2), true);
    }
  }
  barrier();
  UNROLL
  for (int r_6 = 0; r_6 < 4; ++r_6) {
    alignas(16) f32 acc[8];
    ld<f32, 4>(acc, Cs + (1088 * r_6 + 68 * (tid >> 3) + 8 * (tid & 7)), true);
    ld<f32, 4>(acc + 4, Cs + (1088 * r_6 + 68 * (tid >> 3) + 8 * (tid & 7) + 4), true);
    alignas(16) f16 c1_v[8];
    ld_nc<f16, 8>(c1_v, c1 + (8 * (tid & 7)), (100 > m0 + 16 * r_6 + (tid >> 3)) && (40 > 8 * (tid & 7)));
    alignas(16) f16 out_r[8];
    out_r[0] = cast<f16>(t_relu((acc[0] + to_f32(c1_v[0]))));
    out_r[1] = cast<f16>(t_relu((acc[1] + to_f32(c1_v[1]))));
    out_r[2] = cast<f16>(t_relu((acc[2] + to_f32(c1_v[2]))));
    out_r[3] = cast<f16>(t_relu((acc[3] + to_f32(c1_v[3]))));
    out_r[4] = cast<f16>(t_relu((acc[4] + to_f32(c1_v[4]))));
    out_r[5] = cast<f16>(t_relu((acc[5] + to_f32(c1_v[5]))));
    out_r[6] = cast<f16>(t_relu((acc[6] + to_f32(c1_v[6]))));
    out_r[7] = cast<f16>(t_relu((acc[7] + to_f32(c1_v[7]))));
    st<f16, 8>(v2 + (40 * m0 + 640 * r_6 + 40 * (tid >> 3) + 8 * (tid & 7)), out_r, (100 > m0 + 16 * r_6 + (tid >> 3)) && (40 > 8 * (tid & 7)));
  }
}
HOST_ENTRY(kernel)
