// Coordinates, barriers, warp-wide calls, counters between blocks, and the hooks of dependent launches.
#pragma once

// ---- coordinates ----------------------------------------------------------------------------------------------------

#if TASKC_GPU
DEV int thread_x() { return int(threadIdx.x); }
DEV int block_x() { return int(blockIdx.x); }
DEV int block_y() { return int(blockIdx.y); }
DEV int block_z() { return int(blockIdx.z); }
DEV int grid_x() { return int(gridDim.x); }
DEV int grid_y() { return int(gridDim.y); }
DEV int grid_z() { return int(gridDim.z); }
DEV int block_threads() { return int(blockDim.x); }
#else
DEV int thread_x() { return taskc_rt_self()->thread; }
DEV int block_x() { return taskc_rt_self()->block[0]; }
DEV int block_y() { return taskc_rt_self()->block[1]; }
DEV int block_z() { return taskc_rt_self()->block[2]; }
DEV int grid_x() { return taskc_rt_self()->grid[0]; }
DEV int grid_y() { return taskc_rt_self()->grid[1]; }
DEV int grid_z() { return taskc_rt_self()->grid[2]; }
DEV int block_threads() { return taskc_rt_self()->threads; }
#endif
DEV int lane_id() { return thread_x() & 31; }
DEV int warp_id() { return thread_x() >> 5; }

// ---- barriers and warp-wide calls: every lane of the warp calls, a lane that left is a fault on `host` ---------------

#if TASKC_GPU
DEV void barrier() { __syncthreads(); }
// id 1 to 15 (0 is barrier()); threads: how many take part, a multiple of 32.
DEV void named_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEV void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void syncwarp() { __syncwarp(); }
// T is one of the types the hardware call is overloaded for: int, unsigned, i64, u64, float, double.
template <class T> DEV T shfl(T v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
template <class T> DEV T shfl_xor(T v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
template <class T> DEV T shfl_down(T v, int by) { return __shfl_down_sync(0xffffffffu, v, unsigned(by)); }
DEV u32 ballot(bool p) { return __ballot_sync(0xffffffffu, p); }
DEV bool any(bool p) { return __any_sync(0xffffffffu, p) != 0; }
DEV bool all(bool p) { return __all_sync(0xffffffffu, p) != 0; }
#else
DEV void barrier() { taskc_rt_barrier(taskc_rt_self()); }
DEV void named_barrier(int id, int threads) { taskc_rt_named_barrier(taskc_rt_self(), id, threads, 1); }
DEV void named_barrier_arrive(int id, int threads) { taskc_rt_named_barrier(taskc_rt_self(), id, threads, 0); }
DEV void syncwarp() { taskc_rt_syncwarp(taskc_rt_self()); }
template <class T> DEV T shfl(T v, int lane) {
  u64 bits = 0;
  TASKC_COPY(&bits, &v, sizeof(T));
  bits = taskc_rt_shfl(taskc_rt_self(), bits, lane & 31);
  TASKC_COPY(&v, &bits, sizeof(T));
  return v;
}
template <class T> DEV T shfl_xor(T v, int mask) { return shfl(v, lane_id() ^ mask); }
template <class T> DEV T shfl_down(T v, int by) { return shfl(v, lane_id() + by > 31 ? lane_id() : lane_id() + by); }
DEV u32 ballot(bool p) { return taskc_rt_ballot(taskc_rt_self(), p); }
DEV bool any(bool p) { return ballot(p) != 0; }
DEV bool all(bool p) { return ballot(!p) == 0; }
#endif

// *dst = the value at src of the lane whose number differs by `mask`; for types of any size up to 8 bytes.
template <class T> DEV void exchange_xor(T* dst, const T* src, int mask) {
  if constexpr (sizeof(T) >= 4) *dst = shfl_xor(*src, mask);
  else {
    int bits = 0;
    TASKC_COPY(&bits, src, sizeof(T));
    bits = shfl_xor(bits, mask);
    TASKC_COPY(dst, &bits, sizeof(T));
  }
}

// Over aligned groups of WIDTH lanes; every lane gets the result, and the order of the sum is fixed.
template <int WIDTH = 32, class T> DEV T warp_sum(T v) {
  UNROLL
  for (int m = WIDTH / 2; m > 0; m /= 2) v += shfl_xor(v, m);
  return v;
}
template <int WIDTH = 32, class T> DEV T warp_max(T v) {
  UNROLL
  for (int m = WIDTH / 2; m > 0; m /= 2) v = t_max(v, shfl_xor(v, m));
  return v;
}
template <int WIDTH = 32, class T> DEV T warp_min(T v) {
  UNROLL
  for (int m = WIDTH / 2; m > 0; m /= 2) v = t_min(v, shfl_xor(v, m));
  return v;
}

// ---- between blocks -------------------------------------------------------------------------------------------------

#if TASKC_GPU
DEV void threadfence() { __threadfence(); }
DEV int atomic_add(int* p, int v) { return atomicAdd(p, v); }
DEV void grid_barrier(u32* counter) {
  barrier();
  if (threadIdx.x == 0) {
    // The blocks' additions sum to 2^31, so the top bit flips when the last one arrives and nothing is ever reset.
    bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    u32 blocks = gridDim.x * gridDim.y * gridDim.z, now;
    __threadfence();
    u32 old = atomicAdd(counter, first ? 0x80000000u - (blocks - 1) : 1u);
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(counter)) : "memory");
    while (((old ^ now) & 0x80000000u) == 0);
  }
  barrier();
}
#else
DEV void threadfence() { __sync_synchronize(); }
DEV int atomic_add(int* p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV void grid_barrier(u32*) { taskc_rt_grid_barrier(taskc_rt_self()); }
#endif

// True in all threads of the block that arrives last of `parts`; every block's earlier stores are then visible to it.
// The counter starts at zero and is zero again afterwards. `flag` is an int of shared memory that nothing else uses.
DEV bool last_block(int* counter, int parts, int* flag) {
  threadfence();
  barrier();
  if (thread_x() == 0) {
    bool last = atomic_add(counter, 1) == parts - 1;
    if (last) *counter = 0;
    *flag = last;
  }
  barrier();
  bool last = *flag != 0;
  barrier();  // the flag's bytes may be reused from here on
  if (last) threadfence();
  return last;
}

// ---- clusters: a launch without clusters, and a GPU without them, has clusters of one block --------------------------

#if TASKC_GPU && __CUDA_ARCH__ >= 900
DEV int cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return int(r);
}
DEV int cluster_size() {
  u32 n;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return int(n);
}
DEV void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// The same place in the shared memory of another block of the cluster.
template <class T> DEV T* cluster_shared(T* p, int rank) {
  u64 q;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(q) : "l"(p), "r"(rank));
  return (T*)q;
}
#elif TASKC_GPU
DEV int cluster_rank() { return 0; }
DEV int cluster_size() { return 1; }
DEV void cluster_sync() { barrier(); }
template <class T> DEV T* cluster_shared(T* p, int) { return p; }
#else
DEV int cluster_rank() { return taskc_rt_self()->cluster_rank; }
DEV int cluster_size() { return taskc_rt_self()->cluster_size; }
DEV void cluster_sync() { taskc_rt_cluster_sync(taskc_rt_self()); }
template <class T> DEV T* cluster_shared(T* p, int rank) { return (T*)taskc_rt_cluster_shared(taskc_rt_self(), p, rank); }
#endif

// ---- programmatic dependent launch: on other machines a launch starts after the one before it has ended --------------

#if TASKC_GPU && __CUDA_ARCH__ >= 900
DEV void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void grid_dependency_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEV void grid_dependency_wait() {}
DEV void grid_dependency_launch() {}
#endif
