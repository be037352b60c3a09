// Vector loads and stores, and asynchronous copies to shared memory.
//
// ld<T, W>(dst, src, pred) reads W elements that lie together, aligned to their size, into the W registers at dst; it
// gives zeros and does not touch src where pred is false. st<T, W> writes. sizeof(T) * W is 1, 2, 4, 8 or 16.
//   ld      any memory
//   ld_nc   global memory that no one writes during the kernel (the read-only path)
//   ld_cg, st_cg   global memory shared between blocks of the launch: the level-2 cache only, L1 would be stale
#pragma once

template <int BYTES> struct Bytes;
template <> struct alignas(1) Bytes<1> { u8 x; };
template <> struct alignas(2) Bytes<2> { u16 x; };
template <> struct alignas(4) Bytes<4> { u32 x; };
template <> struct alignas(8) Bytes<8> { u32 x, y; };
template <> struct alignas(16) Bytes<16> { u32 x, y, z, w; };

#if TASKC_GPU
#define TASKC_CHECK_ALIGNED(p, bytes)
DEV u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
DEV u64 global_address(const void* p) { return u64(__cvta_generic_to_global(p)); }

// volatile keeps a load between the fences around it; the read-only path has nothing to be ordered against.
#define TASKC_LOADS(name, op, keyword, ...)                                                                            \
  DEV void name(Bytes<1>& v, const void* p) {                                                                          \
    u16 x;                                                                                                             \
    asm keyword("ld.global." op ".u8 %0, [%1];" : "=h"(x) : "l"(global_address(p)) __VA_ARGS__);                       \
    v.x = u8(x);                                                                                                       \
  }                                                                                                                    \
  DEV void name(Bytes<2>& v, const void* p) {                                                                          \
    asm keyword("ld.global." op ".u16 %0, [%1];" : "=h"(v.x) : "l"(global_address(p)) __VA_ARGS__);                    \
  }                                                                                                                    \
  DEV void name(Bytes<4>& v, const void* p) {                                                                          \
    asm keyword("ld.global." op ".u32 %0, [%1];" : "=r"(v.x) : "l"(global_address(p)) __VA_ARGS__);                    \
  }                                                                                                                    \
  DEV void name(Bytes<8>& v, const void* p) {                                                                          \
    asm keyword("ld.global." op ".v2.u32 {%0, %1}, [%2];"                                                              \
                : "=r"(v.x), "=r"(v.y) : "l"(global_address(p)) __VA_ARGS__);                                          \
  }                                                                                                                    \
  DEV void name(Bytes<16>& v, const void* p) {                                                                         \
    asm keyword("ld.global." op ".v4.u32 {%0, %1, %2, %3}, [%4];"                                                      \
                : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(global_address(p)) __VA_ARGS__);                    \
  }
TASKC_LOADS(load_nc, "nc", )
TASKC_LOADS(load_cg, "cg", volatile, : "memory")
#undef TASKC_LOADS

DEV void store_cg(void* p, const Bytes<1>& v) {
  asm volatile("st.global.cg.u8 [%0], %1;" ::"l"(global_address(p)), "h"(u16(v.x)) : "memory");
}
DEV void store_cg(void* p, const Bytes<2>& v) {
  asm volatile("st.global.cg.u16 [%0], %1;" ::"l"(global_address(p)), "h"(v.x) : "memory");
}
DEV void store_cg(void* p, const Bytes<4>& v) {
  asm volatile("st.global.cg.u32 [%0], %1;" ::"l"(global_address(p)), "r"(v.x) : "memory");
}
DEV void store_cg(void* p, const Bytes<8>& v) {
  asm volatile("st.global.cg.v2.u32 [%0], {%1, %2};" ::"l"(global_address(p)), "r"(v.x), "r"(v.y) : "memory");
}
DEV void store_cg(void* p, const Bytes<16>& v) {
  asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global_address(p)),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
#else
#define TASKC_CHECK_ALIGNED(p, bytes) \
  do if ((bytes) > 1 && (u64)(p) % (bytes)) taskc_rt_misaligned(taskc_rt_self(), p, bytes); while (0)
template <int B> DEV void load_nc(Bytes<B>& v, const void* p) { TASKC_COPY(&v, p, B); }
template <int B> DEV void load_cg(Bytes<B>& v, const void* p) { TASKC_COPY(&v, p, B); }
template <int B> DEV void store_cg(void* p, const Bytes<B>& v) { TASKC_COPY(p, &v, B); }
#endif

// The registers' side goes through a byte copy: a local T[W] is aligned for T only.
template <class T, int W> DEV void ld(T* dst, const T* src, bool pred) {
  typedef Bytes<int(sizeof(T)) * W> V;
  V v = {};
  if (pred) {
    TASKC_CHECK_ALIGNED(src, sizeof(V));
    v = *(const V*)src;
  }
  TASKC_COPY(dst, &v, sizeof(V));
}
template <class T, int W> DEV void st(T* dst, const T* src, bool pred) {
  typedef Bytes<int(sizeof(T)) * W> V;
  if (!pred) return;
  TASKC_CHECK_ALIGNED(dst, sizeof(V));
  V v;
  TASKC_COPY(&v, src, sizeof(V));
  *(V*)dst = v;
}
template <class T, int W> DEV void ld_nc(T* dst, const T* src, bool pred) {
  typedef Bytes<int(sizeof(T)) * W> V;
  V v = {};
  if (pred) {
    TASKC_CHECK_ALIGNED(src, sizeof(V));
    load_nc(v, src);
  }
  TASKC_COPY(dst, &v, sizeof(V));
}
template <class T, int W> DEV void ld_cg(T* dst, const T* src, bool pred) {
  typedef Bytes<int(sizeof(T)) * W> V;
  V v = {};
  if (pred) {
    TASKC_CHECK_ALIGNED(src, sizeof(V));
    load_cg(v, src);
  }
  TASKC_COPY(dst, &v, sizeof(V));
}
template <class T, int W> DEV void st_cg(T* dst, const T* src, bool pred) {
  typedef Bytes<int(sizeof(T)) * W> V;
  if (!pred) return;
  TASKC_CHECK_ALIGNED(dst, sizeof(V));
  V v;
  TASKC_COPY(&v, src, sizeof(V));
  store_cg(dst, v);
}

// ---- asynchronous copies, global to shared --------------------------------------------------------------------------
// cp_async<BYTES>(dst, src, pred) copies BYTES, or writes zeros and does not read src where pred is false. The bytes may
// be read by the same thread after its wait, by others after a barrier that follows it. The hardware has 4, 8 and 16;
// 1 and 2 are done at once. cp_async_wait<N> leaves the N newest committed groups in flight.

#if TASKC_GPU
template <int BYTES> DEV void cp_async(void* dst, const void* src, bool pred) {
  if constexpr (BYTES <= 2) {
    Bytes<BYTES> v = {};
    if (pred) v = *(const Bytes<BYTES>*)src;
    *(Bytes<BYTES>*)dst = v;
  } else if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(global_address(src)),
                 "r"(pred ? 16 : 0) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(dst)), "l"(global_address(src)),
                 "n"(BYTES), "r"(pred ? BYTES : 0) : "memory");
  }
}
DEV void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#else
template <int BYTES> DEV void cp_async(void* dst, const void* src, bool pred) {
  static_assert(BYTES == 1 || BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES == 16, "no such copy");
  TASKC_CHECK_ALIGNED(dst, BYTES);
  if (pred) TASKC_CHECK_ALIGNED(src, BYTES);
  taskc_rt_cp_async(taskc_rt_self(), dst, pred ? src : nullptr, BYTES);
}
DEV void cp_async_commit() { taskc_rt_cp_commit(taskc_rt_self()); }
template <int N> DEV void cp_async_wait() { taskc_rt_cp_wait(taskc_rt_self(), N); }
#endif
