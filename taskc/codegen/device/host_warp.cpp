// Warp-wide calls: shuffles, votes, ldmatrix, mma. Every lane deposits; the last one to arrive computes for all and goes
// on; the others read their part when they run again.
#include <string.h>

#include "host_runtime.hpp"
#include "taskc_types.cuh"

namespace taskc {

typedef float v8f __attribute__((vector_size(32)));
typedef unsigned v8u __attribute__((vector_size(32)));
typedef unsigned short v8h __attribute__((vector_size(16)));

static Slot& arrive(Fiber& f, const char* call) {
  Warp& w = *f.warp;
  Slot& s = w.slot[w.calls & 1];
  if (w.left) fail(f, "%s that %d lanes of the warp can never reach: they left", call, __builtin_popcount(w.left));
  if (w.arrived == 0) s.call = call;
  if (s.call != call) fail(f, "the lanes of a warp diverged: this one is in %s, others in %s", call, s.call);
  return s;
}

// True in the lane that came last: it computes, then calls complete().
static bool last_lane(Fiber& f, const char* call) {
  if (++f.warp->arrived == f.warp->lanes) return true;
  wait_in(f, call);
  return false;
}
static void complete(Fiber& f) {
  f.warp->arrived = 0;
  ++f.warp->calls;
  f.worker->ready[f.warp_index] = f.warp->exists;
  may_switch(f);
}

void check_lanes_left(Fiber& f) {
  Warp& w = *f.warp;
  if (w.arrived) fail(f, "left the kernel while %d lanes of its warp wait in %s", w.arrived, w.slot[w.calls & 1].call);
}

static void check_full(Fiber& f, const char* call) {
  if (f.warp->lanes != 32) fail(f, "%s in a warp of %d threads", call, f.warp->lanes);
}

// ---- the products: rows of A against rows of B, eight columns at once --------------------------------------------------

static v8f halves(const uint16_t* p) {
  v8f y;
#if defined(__F16C__) && defined(__AVX__)
  typedef short v8s __attribute__((vector_size(16)));
  v8s x;
  memcpy(&x, p, 16);
  y = __builtin_ia32_vcvtph2ps256(x);
#else
  for (int i = 0; i < 8; ++i) y[i] = to_f32(f16{p[i]});
#endif
  return y;
}
static v8f bfloats(const uint16_t* p) {
  v8h x;
  memcpy(&x, p, 16);
  v8u y = __builtin_convertvector(x, v8u) << 16;
  return (v8f)y;
}

template <int K> static inline void multiply(Slot& s, const v8f (*a)[K / 8], const v8f* b) {
  for (int i = 0; i < 16; ++i) {
    v8f c = *(const v8f*)s.c[i];
    const float* row = (const float*)a[i];
    for (int k = 0; k < K; ++k) c += row[k] * b[k];
    *(v8f*)s.c[i] = c;
  }
}

template <v8f (*TO_FLOAT)(const uint16_t*)> static void multiply_16_bit(Slot& s) {
  v8f a[16][2], b[16];
  for (int i = 0; i < 16; ++i) {
    a[i][0] = TO_FLOAT((const uint16_t*)s.a[i]);
    a[i][1] = TO_FLOAT((const uint16_t*)s.a[i] + 8);
    b[i] = TO_FLOAT(s.b16[i]);
  }
  multiply<16>(s, a, b);
}

// The matrix unit reads the upper 19 bits only.
static void multiply_tf32(Slot& s) {
  v8f a[16][1], b[8];
  for (int i = 0; i < 16; ++i) a[i][0] = (v8f)(*(const v8u*)s.a[i] & 0xffffe000u);
  for (int i = 0; i < 8; ++i) b[i] = (v8f)(*(const v8u*)s.b32[i] & 0xffffe000u);
  multiply<8>(s, a, b);
}

static inline void put_accumulators(Slot& s, int g, int t, const float* d) {
  memcpy(&s.c[g][2 * t], d, 8);
  memcpy(&s.c[g + 8][2 * t], d + 2, 8);
}
static inline void get_accumulators(const Slot& s, int g, int t, float* d) {
  memcpy(d, &s.c[g][2 * t], 8);
  memcpy(d + 2, &s.c[g + 8][2 * t], 8);
}

static inline void mma_16_bit(Fiber& f, const char* call, void (*product)(Slot&), float* d, const unsigned* a, const unsigned* b) {
  check_full(f, call);
  Slot& s = arrive(f, call);
  int g = f.lane / 4, t = f.lane % 4;
  s.a[g][t] = a[0], s.a[g + 8][t] = a[1], s.a[g][t + 4] = a[2], s.a[g + 8][t + 4] = a[3];
  s.b16[2 * t][g] = (uint16_t)b[0], s.b16[2 * t + 1][g] = (uint16_t)(b[0] >> 16);
  s.b16[2 * t + 8][g] = (uint16_t)b[1], s.b16[2 * t + 9][g] = (uint16_t)(b[1] >> 16);
  put_accumulators(s, g, t, d);
  if (last_lane(f, call)) product(s), complete(f);
  get_accumulators(s, g, t, d);
}

}  // namespace taskc

using namespace taskc;

static const char SYNCWARP[] = "syncwarp()", SHFL[] = "a shuffle", BALLOT[] = "a vote", LDMATRIX[] = "ldmatrix",
                  MMA_F16[] = "mma_m16n8k16_f16", MMA_BF16[] = "mma_m16n8k16_bf16", MMA_TF32[] = "mma_m16n8k8_tf32";

void taskc_rt_mma_f16(taskc_host_thread* t, float* d, const unsigned* a, const unsigned* b) {
  mma_16_bit(fiber_of(t), MMA_F16, multiply_16_bit<halves>, d, a, b);
}
void taskc_rt_mma_bf16(taskc_host_thread* t, float* d, const unsigned* a, const unsigned* b) {
  mma_16_bit(fiber_of(t), MMA_BF16, multiply_16_bit<bfloats>, d, a, b);
}
void taskc_rt_mma_tf32(taskc_host_thread* thread, float* d, const unsigned* a, const unsigned* b) {
  Fiber& f = fiber_of(thread);
  check_full(f, MMA_TF32);
  Slot& s = arrive(f, MMA_TF32);
  int g = f.lane / 4, t = f.lane % 4;
  s.a[g][t] = a[0], s.a[g + 8][t] = a[1], s.a[g][t + 4] = a[2], s.a[g + 8][t + 4] = a[3];
  memcpy(&s.b32[t][g], b, 4), memcpy(&s.b32[t + 4][g], b + 1, 4);
  put_accumulators(s, g, t, d);
  if (last_lane(f, MMA_TF32)) multiply_tf32(s), complete(f);
  get_accumulators(s, g, t, d);
}

void taskc_rt_ldmatrix(taskc_host_thread* thread, unsigned* d, const void* row, int tiles, int transposed) {
  Fiber& f = fiber_of(thread);
  check_full(f, LDMATRIX);
  if (f.lane < 8 * tiles) {
    if ((uintptr_t)row % 16) fail(f, "ldmatrix row %p is not aligned to 16 bytes", row);
    check_shared(f, row, 16, LDMATRIX);
  }
  Slot& s = arrive(f, LDMATRIX);
  s.row[f.lane] = (const char*)row;
  if (last_lane(f, LDMATRIX)) complete(f);
  int g = f.lane / 4, t = f.lane % 4;
  for (int i = 0; i < tiles; ++i) {
    const char* const* rows = s.row + 8 * i;
    uint16_t pair[2];
    if (!transposed) memcpy(pair, rows[g] + 4 * t, 4);
    else memcpy(pair, rows[2 * t] + 2 * g, 2), memcpy(pair + 1, rows[2 * t + 1] + 2 * g, 2);
    memcpy(d + i, pair, 4);
  }
}

void taskc_rt_syncwarp(taskc_host_thread* t) {
  Fiber& f = fiber_of(t);
  arrive(f, SYNCWARP);
  if (last_lane(f, SYNCWARP)) complete(f);
}

unsigned long long taskc_rt_shfl(taskc_host_thread* t, unsigned long long v, int lane) {
  Fiber& f = fiber_of(t);
  if (!(f.warp->exists >> lane & 1)) fail(f, "a shuffle from lane %d of a warp of %d threads", lane, f.warp->lanes);
  Slot& s = arrive(f, SHFL);
  s.value[f.lane] = v;
  if (last_lane(f, SHFL)) complete(f);
  return s.value[lane];
}

unsigned taskc_rt_ballot(taskc_host_thread* t, int p) {
  Fiber& f = fiber_of(t);
  Slot& s = arrive(f, BALLOT);
  if (f.warp->arrived == 0) s.votes = 0;
  s.votes |= (p ? 1u : 0u) << f.lane;
  if (last_lane(f, BALLOT)) complete(f);
  return s.votes;
}
