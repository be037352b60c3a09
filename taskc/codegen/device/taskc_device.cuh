// The one header a kernel text includes. Every intrinsic is declared once and has two bodies: PTX on the GPU, plain C++
// on `host`; each topic file holds both side by side. No system header is included on either machine: NVRTC then needs
// no CUDA headers, and g++ takes about 0.1 s a kernel.
//
// A kernel is written as
//     #include "taskc_device.cuh"
//     extern "C" __global__ void __launch_bounds__(THREADS) NAME(PARAMETERS) { ... }
//     HOST_ENTRY(NAME)
// where PARAMETERS are pointers and numbers, and shared memory is dynamic only: `SMEM(base);` gives `char* base`.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define TASKC_GPU 1
#define DEV __device__ __forceinline__
#define HOST_ENTRY(kernel)
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define TASKC_COPY(dst, src, bytes) memcpy(dst, src, bytes)
// 1024: what a swizzled bulk copy wants; plain kernels lose nothing by it.
#define SMEM(name) extern __shared__ __align__(1024) char name[]
#else
#define TASKC_GPU 0
#include "taskc_host.hpp"
#endif

#include "taskc_types.cuh"
#include "taskc_math.cuh"
#include "taskc_sync.cuh"
#include "taskc_memory.cuh"
#include "taskc_matrix.cuh"
