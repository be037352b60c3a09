// What a kernel text sees of the `host` machine: CUDA's keywords, the coordinates of the running thread, and the calls
// into the runtime (compiled once, linked into every library). No system header: see taskc_device.cuh.
#pragma once

#define DEV inline __attribute__((always_inline))
#define __global__
#define __launch_bounds__(...)
#define UNROLL
#define NO_UNROLL
#define TASKC_COPY(dst, src, bytes) __builtin_memcpy(dst, src, bytes)
#define SMEM(name) char* name = taskc_rt_self()->smem

extern "C" {
struct taskc_host_launch;

// Constant for the life of a thread of a kernel.
struct taskc_host_thread {
  int thread, threads;
  int block[3], grid[3];
  int cluster_rank, cluster_size;
  char* smem;
};

// `const`: a thread of a kernel never changes its state's address, so the compiler may ask once.
taskc_host_thread* taskc_rt_self() __attribute__((const));
int taskc_rt_launch(const char* kernel, void (*body)(void**), void** args, const taskc_host_launch*);
void taskc_rt_misaligned(taskc_host_thread*, const void* p, int bytes) __attribute__((noreturn, cold));

void taskc_rt_barrier(taskc_host_thread*);
void taskc_rt_named_barrier(taskc_host_thread*, int id, int threads, int wait);
void taskc_rt_grid_barrier(taskc_host_thread*);
void taskc_rt_cluster_sync(taskc_host_thread*);
void* taskc_rt_cluster_shared(taskc_host_thread*, void* p, int rank);

void taskc_rt_syncwarp(taskc_host_thread*);
unsigned long long taskc_rt_shfl(taskc_host_thread*, unsigned long long v, int lane);
unsigned taskc_rt_ballot(taskc_host_thread*, int p);
void taskc_rt_ldmatrix(taskc_host_thread*, unsigned* d, const void* row, int tiles, int transposed);
void taskc_rt_mma_f16(taskc_host_thread*, float* d, const unsigned* a, const unsigned* b);
void taskc_rt_mma_bf16(taskc_host_thread*, float* d, const unsigned* a, const unsigned* b);
void taskc_rt_mma_tf32(taskc_host_thread*, float* d, const unsigned* a, const unsigned* b);

void taskc_rt_cp_async(taskc_host_thread*, void* dst, const void* src, int bytes);  // src null: zeros
void taskc_rt_cp_commit(taskc_host_thread*);
void taskc_rt_cp_wait(taskc_host_thread*, int groups);
}

// Calls a kernel with its parameters read from args, their types taken from the kernel itself.
template <int... I> struct TaskcIndices {};
template <int N, int... I> struct TaskcCount : TaskcCount<N - 1, N - 1, I...> {};
template <int... I> struct TaskcCount<0, I...> { typedef TaskcIndices<I...> type; };
template <class... P, int... I> DEV void taskc_call(void (*kernel)(P...), void** args, TaskcIndices<I...>) {
  kernel(*(P*)args[I]...);
}
template <class... P> DEV void taskc_call(void (*kernel)(P...), void** args) {
  taskc_call(kernel, args, typename TaskcCount<sizeof...(P)>::type());
}

#define HOST_ENTRY(kernel)                                                                              \
  extern "C" __attribute__((visibility("default"))) int taskc_launch_##kernel(                          \
      void** args, const taskc_host_launch* launch) {                                                   \
    return taskc_rt_launch(#kernel, [](void** a) { taskc_call(kernel, a); }, args, launch);             \
  }
