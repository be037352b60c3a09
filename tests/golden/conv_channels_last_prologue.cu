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
  alignas(16) f32 acc[16];
  UNROLL
  for (int e = 0; e < 16; ++e) {
    acc[e] = 0.0f;
  }
  {
    {
      cp_async<16>(Bs + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3)), c1 + (24 * (tid >> 2) + 8 * (tid & 3)), (24 > 8 * (tid & 3)));
    }
  }
  {
    {
      cp_async<16>(Bs + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 1024), c1 + (1152 * (((tid >> 2) + 32) / 48) + 384 * (((tid >> 6) + 2) % 3) + 24 * ((tid >> 2) & 15) + 8 * (tid & 3)), (24 > 8 * (tid & 3)));
    }
  }
  grid_dependency_wait();
  {
    UNROLL
    for (int r = 0; r < 2; ++r) {
      cp_async<16>(As + (1024 * r + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3)), x + (16 * ((tid & 3) >> 1) + 16 * m0 + 512 * r + 16 * (tid >> 2) + 8 * (tid & 1) - 160), (81 > m0 + 32 * r + (tid >> 2)) && (((m0 + 32 * r + (tid >> 2)) / 9) > 0) && (10 > ((m0 + 32 * r + (tid >> 2)) / 9)) && ((((m0 + 32 * r + (tid >> 2)) % 9) + ((tid & 3) >> 1)) > 0));
    }
  }
  cp_async_commit();
  {
    UNROLL
    for (int r_1 = 0; r_1 < 2; ++r_1) {
      cp_async<16>(As + (1024 * r_1 + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 2048), x + (144 * (((tid & 3) + 4) / 6) + 16 * ((((tid & 3) >> 1) + 2) % 3) + 16 * m0 + 512 * r_1 + 16 * (tid >> 2) + 8 * (tid & 1) - 160), (81 > m0 + 32 * r_1 + (tid >> 2)) && ((((m0 + 32 * r_1 + (tid >> 2)) / 9) + (((tid & 3) + 4) / 6)) > 0) && (10 > ((m0 + 32 * r_1 + (tid >> 2)) / 9) + (((tid & 3) + 4) / 6)) && ((((m0 + 32 * r_1 + (tid >> 2)) % 9) + ((((tid & 3) >> 1) + 2) % 3)) > 0) && (10 > ((m0 + 32 * r_1 + (tid >> 2)) % 9) + ((((tid & 3) >> 1) + 2) % 3)));
    }
  }
  cp_async_commit();
  int slot = 0;
  NO_UNROLL
  for (int kt = 0; kt < 5; ++kt) {
    cp_async_wait<1>();
    UNROLL
    for (int r_2 = 0; r_2 < 2; ++r_2) {
      alignas(16) f16 a_landed[8];
      ld<f16, 8>(a_landed, As + (1024 * r_2 + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 2048 * slot), true);
      alignas(16) f16 a_c[8];
      alignas(16) f16 c0_v[8];
      ld_nc<f16, 8>(c0_v, c0 + (8 * (tid & 1)), (81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)));
      a_c[0] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[0]) * to_f32(c0_v[0]))) : 0.0f));
      a_c[1] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[1]) * to_f32(c0_v[1]))) : 0.0f));
      a_c[2] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[2]) * to_f32(c0_v[2]))) : 0.0f));
      a_c[3] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[3]) * to_f32(c0_v[3]))) : 0.0f));
      a_c[4] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[4]) * to_f32(c0_v[4]))) : 0.0f));
      a_c[5] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[5]) * to_f32(c0_v[5]))) : 0.0f));
      a_c[6] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[6]) * to_f32(c0_v[6]))) : 0.0f));
      a_c[7] = cast<f16>(((81 > m0 + 32 * r_2 + (tid >> 2)) && (144 > 32 * kt + 8 * (tid & 3)) && ((((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) / 9) + ((4 * kt + (tid & 3)) / 6)) && ((((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_2 + (tid >> 2)) % 9) + ((2 * kt + ((tid & 3) >> 1)) % 3)) ? t_relu((to_f32(a_landed[7]) * to_f32(c0_v[7]))) : 0.0f));
      st<f16, 8>(As + (1024 * r_2 + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 2048 * slot), a_c, true);
    }
    barrier();
    if ((3 > kt)) {
      int kn = (kt + 2);
      int sn = ((slot + 2) % 3);
      {
        cp_async<16>(Bs + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 1024 * sn), c1 + (1152 * ((32 * kn + (tid >> 2)) / 48) + 384 * ((2 * kn + (tid >> 6)) % 3) + 24 * ((tid >> 2) & 15) + 8 * (tid & 3)), (144 > 32 * kn + (tid >> 2)) && (24 > 8 * (tid & 3)));
      }
      UNROLL
      for (int r_3 = 0; r_3 < 2; ++r_3) {
        cp_async<16>(As + (1024 * r_3 + 32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 2048 * sn), x + (144 * ((4 * kn + (tid & 3)) / 6) + 16 * ((2 * kn + ((tid & 3) >> 1)) % 3) + 16 * m0 + 512 * r_3 + 16 * (tid >> 2) + 8 * (tid & 1) - 160), (81 > m0 + 32 * r_3 + (tid >> 2)) && (144 > 32 * kn + 8 * (tid & 3)) && ((((m0 + 32 * r_3 + (tid >> 2)) / 9) + ((4 * kn + (tid & 3)) / 6)) > 0) && (10 > ((m0 + 32 * r_3 + (tid >> 2)) / 9) + ((4 * kn + (tid & 3)) / 6)) && ((((m0 + 32 * r_3 + (tid >> 2)) % 9) + ((2 * kn + ((tid & 3) >> 1)) % 3)) > 0) && (10 > ((m0 + 32 * r_3 + (tid >> 2)) % 9) + ((2 * kn + ((tid & 3) >> 1)) % 3)));
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
      alignas(16) u32 fb[4];
      ldmatrix_x4_trans(fb, Bs + (512 * ks + 32 * (lane & 15) + 8 * ((2 * (warp & 1) + (lane >> 4) + ((lane & 15) >> 1)) & 3) + 1024 * slot));
      UNROLL
      for (int i = 0; i < 2; ++i) {
        UNROLL
        for (int j = 0; j < 2; ++j) {
          mma_m16n8k16_f16(acc + (8 * i + 4 * j), fa + (4 * i), fb + (2 * j));
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
    for (int j = 0; j < 2; ++j) {
      st<f32, 2>(Cs + (1152 * (warp >> 1) + 576 * i + 36 * (lane >> 2) + 16 * (warp & 1) + 8 * j + 2 * (lane & 3)), acc + (8 * i + 4 * j), true);
      st<f32, 2>(Cs + (1152 * (warp >> 1) + 576 * i + 36 * (lane >> 2) + 16 * (warp & 1) + 8 * j + 2 * (lane & 3) + 288), acc + (8 * i + 4 * j + 2), true);
    }
  }
  barrier();
  UNROLL
  for (int r_4 = 0; r_4 < 2; ++r_4) {
    alignas(16) f32 acc[8];
    ld<f32, 4>(acc, Cs + (1152 * r_4 + 36 * (tid >> 2) + 8 * (tid & 3)), true);
    ld<f32, 4>(acc + 4, Cs + (1152 * r_4 + 36 * (tid >> 2) + 8 * (tid & 3) + 4), true);
    alignas(16) f16 out_r[8];
    out_r[0] = cast<f16>(acc[0]);
    out_r[1] = cast<f16>(acc[1]);
    out_r[2] = cast<f16>(acc[2]);
    out_r[3] = cast<f16>(acc[3]);
    out_r[4] = cast<f16>(acc[4]);
    out_r[5] = cast<f16>(acc[5]);
    out_r[6] = cast<f16>(acc[6]);
    out_r[7] = cast<f16>(acc[7]);
    st<f16, 8>(v2 + (24 * m0 + 768 * r_4 + 24 * (tid >> 2) + 8 * (tid & 3)), out_r, (81 > m0 + 32 * r_4 + (tid >> 2)) && (24 > 8 * (tid & 3)));
  }
}
HOST_ENTRY(kernel)
