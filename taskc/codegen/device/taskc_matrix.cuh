// Matrix instructions of a warp. With g = lane / 4 and t = lane % 4, the fragments are
//   m16n8k16 (16-bit)  a0 (g, 2t..2t+1)  a1 (g+8, ..)  a2 (g, 2t+8..)  a3 (g+8, 2t+8..)   b0 (2t..2t+1, g)  b1 (2t+8.., g)
//   m16n8k8  (tf32)    a0 (g, t)  a1 (g+8, t)  a2 (g, t+4)  a3 (g+8, t+4)                  b0 (t, g)  b1 (t+4, g)
//   accumulators       d0, d1 (g, 2t..2t+1)  d2, d3 (g+8, 2t..2t+1)
// mma adds A (16 x k, rows) times B (k x 8, columns) to d. ldmatrix loads 8 x 8 tiles of 16-bit elements: lane l gives
// the address of row l % 8 of tile l / 8 (16 bytes, aligned to 16); d[i] gets (g, 2t..2t+1) of tile i, or with _trans the
// same places of its transpose. The x2 forms look at the addresses of lanes 0 to 15 only.
#pragma once

#if TASKC_GPU
#define TASKC_LDMATRIX_X4(name, form)                                                             \
  DEV void name(u32* d, const void* row) {                                                        \
    asm volatile("ldmatrix.sync.aligned.m8n8." form ".shared.b16 {%0, %1, %2, %3}, [%4];"         \
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(shared_address(row)) : "memory"); \
  }
#define TASKC_LDMATRIX_X2(name, form)                                                             \
  DEV void name(u32* d, const void* row) {                                                        \
    asm volatile("ldmatrix.sync.aligned.m8n8." form ".shared.b16 {%0, %1}, [%2];"                 \
                 : "=r"(d[0]), "=r"(d[1]) : "r"(shared_address(row)) : "memory");                 \
  }
TASKC_LDMATRIX_X4(ldmatrix_x4, "x4")
TASKC_LDMATRIX_X4(ldmatrix_x4_trans, "x4.trans")
TASKC_LDMATRIX_X2(ldmatrix_x2, "x2")
TASKC_LDMATRIX_X2(ldmatrix_x2_trans, "x2.trans")
#undef TASKC_LDMATRIX_X4
#undef TASKC_LDMATRIX_X2

#define TASKC_MMA(name, form)                                                                                  \
  DEV void name(float* d, const u32* a, const u32* b) {                                                        \
    asm("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                   \
  }
TASKC_MMA(mma_m16n8k16_f16, "m16n8k16.row.col.f32.f16.f16.f32")
TASKC_MMA(mma_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
TASKC_MMA(mma_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef TASKC_MMA

// To nearest, ties away from zero.
DEV u32 f32_to_tf32(float x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
#else
DEV void ldmatrix_x4(u32* d, const void* row) { taskc_rt_ldmatrix(taskc_rt_self(), d, row, 4, 0); }
DEV void ldmatrix_x4_trans(u32* d, const void* row) { taskc_rt_ldmatrix(taskc_rt_self(), d, row, 4, 1); }
DEV void ldmatrix_x2(u32* d, const void* row) { taskc_rt_ldmatrix(taskc_rt_self(), d, row, 2, 0); }
DEV void ldmatrix_x2_trans(u32* d, const void* row) { taskc_rt_ldmatrix(taskc_rt_self(), d, row, 2, 1); }
DEV void mma_m16n8k16_f16(float* d, const u32* a, const u32* b) { taskc_rt_mma_f16(taskc_rt_self(), d, a, b); }
DEV void mma_m16n8k16_bf16(float* d, const u32* a, const u32* b) { taskc_rt_mma_bf16(taskc_rt_self(), d, a, b); }
DEV void mma_m16n8k8_tf32(float* d, const u32* a, const u32* b) { taskc_rt_mma_tf32(taskc_rt_self(), d, a, b); }
DEV u32 f32_to_tf32(float x) {
  u32 bits = bits_as<u32>(x);
  if (x != x) return 0x7fffffffu;
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & ~0x1fffu;
}
#endif

// The matrix unit reads the upper 19 bits of a TF32 operand, so adding half of the last of them rounds to nearest. Where that would
// carry a number into infinity the bits are cut instead; an infinity and a NaN stay as they are.
DEV u32 tf32_half_bit(float x) { return t_abs(x) <= 0x1.ffdffep127f ? 0x1000u : 0u; }

// Rounds N floats, given as bits, to TF32.
template <int N> DEV void round_tf32(u32* x) {
  UNROLL
  for (int i = 0; i < N; ++i) x[i] += tf32_half_bit(bits_as<float>(x[i]));
}

// Splits N floats, given as bits: x becomes its TF32 part and small the rest, exact, of which the unit drops at most the last bit.
// A NaN is NaN in both. An infinity is 1 and infinity, with its sign: in big * big + big * small + small * big it then meets the
// other number's big part only, which has that number's sign, while its small part may have the other one.
template <int N> DEV void split_tf32(u32* x, u32* small) {
  UNROLL
  for (int i = 0; i < N; ++i) {
    float whole = bits_as<float>(x[i]);
    bool infinite = t_abs(whole) == inf_f32();
    u32 big = (x[i] + tf32_half_bit(whole)) & 0xffffe000u;
    small[i] = infinite ? x[i] : bits_as<u32>(whole - bits_as<float>(big));
    x[i] = infinite ? x[i] ^ 0x40000000u : big;
  }
}

// Two floats rounded to T, the first in the lower half.
template <class T> DEV u32 pack_pair(float low, float high) {
  return u32(from_f32<T>(low).bits) | u32(from_f32<T>(high).bits) << 16;
}
// The fragment of A (16 x 16, 16-bit) whose elements are two neighbouring accumulator tiles of 16 x 8.
template <class T> DEV void accumulators_as_a(u32* a, const float* left, const float* right) {
  a[0] = pack_pair<T>(left[0], left[1]);
  a[1] = pack_pair<T>(left[2], left[3]);
  a[2] = pack_pair<T>(right[0], right[1]);
  a[3] = pack_pair<T>(right[2], right[3]);
}
