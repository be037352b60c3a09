#include "taskc_device.cuh"
extern "C" __global__ void __launch_bounds__(128) kernel(const f16* x, const f16* __restrict__ c0, const f16* __restrict__ c1, f16* __restrict__ v2, f32* partial, i32* counter) {
  SMEM(smem);
  typedef int index_t;
  const int tid = thread_x();
  const int bx = block_x();
  alignas(16) f16 b_raw[16];
  alignas(16) f16 a_raw[8];
  f16* As = (f16*)(smem + 0);
  f16* Bs = (f16*)(smem + 4096);
  f32* Cs = (f32*)(smem + 0);
  const int part = (bx >> 2);
  const int tile_m = (bx & 3);
  const int m0 = (32 * tile_m);
  const int cell = tile_m;
  const int lane = (tid & 31);
  const int warp = (tid >> 5);
  alignas(16) f32 acc[16];
  UNROLL
  for (int e = 0; e < 16; ++e) {
    acc[e] = 0.0f;
  }
  const int kt_begin = part;
  const int kt_end = t_min<index_t>((kt_begin + 1), 3);
  if ((kt_end > kt_begin)) {
    UNROLL
    for (int r = 0; r < 2; ++r) {
      ld_nc<f16, 8>(b_raw + (8 * r), c0 + (1280 * kt_begin + 640 * r + 40 * (tid >> 3) + 8 * (tid & 7)), (72 > 32 * kt_begin + 16 * r + (tid >> 3)) && (40 > 8 * (tid & 7)));
    }
  }
  grid_dependency_wait();
  if ((kt_end > kt_begin)) {
    {
      ld<f16, 8>(a_raw, x + (72 * m0 + 72 * (tid >> 2) + 32 * kt_begin + 8 * (tid & 3)), (100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)));
    }
    {
      alignas(16) f16 a_c[8];
      a_c[0] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[0]) : 0.0f));
      a_c[1] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[1]) : 0.0f));
      a_c[2] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[2]) : 0.0f));
      a_c[3] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[3]) : 0.0f));
      a_c[4] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[4]) : 0.0f));
      a_c[5] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[5]) : 0.0f));
      a_c[6] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[6]) : 0.0f));
      a_c[7] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kt_begin + 8 * (tid & 3)) ? to_f32(a_raw[7]) : 0.0f));
      st<f16, 8>(As + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3)), a_c, true);
    }
    UNROLL
    for (int r_1 = 0; r_1 < 2; ++r_1) {
      alignas(16) f16 b_c[8];
      b_c[0] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1)]) : 0.0f));
      b_c[1] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1 + 1)]) : 0.0f));
      b_c[2] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1 + 2)]) : 0.0f));
      b_c[3] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1 + 3)]) : 0.0f));
      b_c[4] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1 + 4)]) : 0.0f));
      b_c[5] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1 + 5)]) : 0.0f));
      b_c[6] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1 + 6)]) : 0.0f));
      b_c[7] = cast<f16>(((72 > 32 * kt_begin + 16 * r_1 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_1 + 7)]) : 0.0f));
      st<f16, 8>(Bs + (1024 * r_1 + 64 * (tid >> 3) + 8 * (((tid & 7) + (tid >> 3)) & 7)), b_c, true);
    }
  }
  barrier();
  int slot = 0;
  NO_UNROLL
  for (int kt = kt_begin; kt < kt_end; ++kt) {
    int kn = (kt + 1);
    if ((kt_end > kn)) {
      UNROLL
      for (int r_2 = 0; r_2 < 2; ++r_2) {
        ld_nc<f16, 8>(b_raw + (8 * r_2), c0 + (1280 * kn + 640 * r_2 + 40 * (tid >> 3) + 8 * (tid & 7)), (72 > 32 * kn + 16 * r_2 + (tid >> 3)) && (40 > 8 * (tid & 7)));
      }
      {
        ld<f16, 8>(a_raw, x + (72 * m0 + 72 * (tid >> 2) + 32 * kn + 8 * (tid & 3)), (100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)));
      }
    }
    UNROLL
    for (int ks = 0; ks < 2; ++ks) {
      alignas(16) u32 fa[4];
      ldmatrix_x4(fa, As + (512 * (warp >> 1) + 32 * (lane & 15) + 8 * ((2 * ks + (lane >> 4) + ((lane & 15) >> 1)) & 3) + 1024 * slot));
      alignas(16) u32 fb[8];
      UNROLL
      for (int j = 0; j < 2; ++j) {
        ldmatrix_x4_trans(fb + (4 * j), Bs + (1024 * ks + 64 * (lane & 15) + 8 * ((4 * (warp & 1) + 2 * j + (lane >> 4) + (lane & 15)) & 7) + 2048 * slot));
      }
      UNROLL
      for (int j = 0; j < 4; ++j) {
        mma_m16n8k16_f16(acc + (4 * j), fa, fb + (2 * j));
      }
    }
    slot = (-1 * slot + 1);
    if ((kt_end > kn)) {
      {
        alignas(16) f16 a_c_1[8];
        a_c_1[0] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[0]) : 0.0f));
        a_c_1[1] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[1]) : 0.0f));
        a_c_1[2] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[2]) : 0.0f));
        a_c_1[3] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[3]) : 0.0f));
        a_c_1[4] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[4]) : 0.0f));
        a_c_1[5] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[5]) : 0.0f));
        a_c_1[6] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[6]) : 0.0f));
        a_c_1[7] = cast<f16>(((100 > m0 + (tid >> 2)) && (72 > 32 * kn + 8 * (tid & 3)) ? to_f32(a_raw[7]) : 0.0f));
        st<f16, 8>(As + (32 * (tid >> 2) + 8 * (((tid & 3) + (tid >> 3)) & 3) + 1024 * slot), a_c_1, true);
      }
      UNROLL
      for (int r_3 = 0; r_3 < 2; ++r_3) {
        alignas(16) f16 b_c_1[8];
        b_c_1[0] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3)]) : 0.0f));
        b_c_1[1] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3 + 1)]) : 0.0f));
        b_c_1[2] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3 + 2)]) : 0.0f));
        b_c_1[3] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3 + 3)]) : 0.0f));
        b_c_1[4] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3 + 4)]) : 0.0f));
        b_c_1[5] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3 + 5)]) : 0.0f));
        b_c_1[6] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3 + 6)]) : 0.0f));
        b_c_1[7] = cast<f16>(((72 > 32 * kn + 16 * r_3 + (tid >> 3)) && (40 > 8 * (tid & 7)) ? to_f32(b_raw[(8 * r_3 + 7)]) : 0.0f));
        st<f16, 8>(Bs + (1024 * r_3 + 64 * (tid >> 3) + 8 * (((tid & 7) + (tid >> 3)) & 7) + 2048 * slot), b_c_1, true);
      }
    }
    barrier();
  }
  grid_dependency_launch();
  const int mine = (8192 * cell + 4 * tid);
  {
    UNROLL
    for (int e = 0; e < 4; ++e) {
      st_cg<f32, 4>(partial + (mine + 2048 * part + 512 * e), acc + (4 * e), true);
    }
  }
  i32* flag = (i32*)(smem + 0);
  const int last = last_block(counter + cell, 4, flag);
  if ((1 > last)) {
    return;
  }
  UNROLL
  for (int e = 0; e < 16; ++e) {
    acc[e] = 0.0f;
  }
  {
    NO_UNROLL
    for (int z = 0; z < 4; ++z) {
      UNROLL
      for (int e = 0; e < 4; ++e) {
        alignas(16) f32 piece[4];
        ld_cg<f32, 4>(piece, partial + (mine + 2048 * z + 512 * e), true);
        UNROLL
        for (int q = 0; q < 4; ++q) {
          acc[(4 * e + q)] = (acc[(4 * e + q)] + piece[q]);
        }
      }
    }
  }
  UNROLL
  for (int j = 0; j < 4; ++j) {
    st<f32, 2>(Cs + (1088 * (warp >> 1) + 68 * (lane >> 2) + 32 * (warp & 1) + 8 * j + 2 * (lane & 3)), acc + (4 * j), true);
    st<f32, 2>(Cs + (1088 * (warp >> 1) + 68 * (lane >> 2) + 32 * (warp & 1) + 8 * j + 2 * (lane & 3) + 544), acc + (4 * j + 2), true);
  }
  barrier();
  UNROLL
  for (int r_4 = 0; r_4 < 2; ++r_4) {
    alignas(16) f32 acc[8];
    ld<f32, 4>(acc, Cs + (1088 * r_4 + 68 * (tid >> 3) + 8 * (tid & 7)), true);
    ld<f32, 4>(acc + 4, Cs + (1088 * r_4 + 68 * (tid >> 3) + 8 * (tid & 7) + 4), true);
    alignas(16) f16 c1_v[8];
    ld_nc<f16, 8>(c1_v, c1 + (8 * (tid & 7)), (100 > m0 + 16 * r_4 + (tid >> 3)) && (40 > 8 * (tid & 7)));
    alignas(16) f16 out_r[8];
    out_r[0] = cast<f16>(t_relu((acc[0] + to_f32(c1_v[0]))));
    out_r[1] = cast<f16>(t_relu((acc[1] + to_f32(c1_v[1]))));
    out_r[2] = cast<f16>(t_relu((acc[2] + to_f32(c1_v[2]))));
    out_r[3] = cast<f16>(t_relu((acc[3] + to_f32(c1_v[3]))));
    out_r[4] = cast<f16>(t_relu((acc[4] + to_f32(c1_v[4]))));
    out_r[5] = cast<f16>(t_relu((acc[5] + to_f32(c1_v[5]))));
    out_r[6] = cast<f16>(t_relu((acc[6] + to_f32(c1_v[6]))));
    out_r[7] = cast<f16>(t_relu((acc[7] + to_f32(c1_v[7]))));
    st<f16, 8>(v2 + (40 * m0 + 640 * r_4 + 40 * (tid >> 3) + 8 * (tid & 7)), out_r, (100 > m0 + 16 * r_4 + (tid >> 3)) && (40 > 8 * (tid & 7)));
  }
}
HOST_ENTRY(kernel)
