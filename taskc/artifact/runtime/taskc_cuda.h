/* The part of the CUDA driver's interface that the runtime uses, declared as documented for each function's version. */
#ifndef TASKC_CUDA_H
#define TASKC_CUDA_H
#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_pointer;
typedef struct cu_context_s *cu_context;
typedef struct cu_module_s *cu_module;
typedef struct cu_function_s *cu_function;
typedef struct cu_kernel_s *cu_kernel;
typedef struct cu_stream_s *cu_stream;
typedef struct cu_event_s *cu_event;
typedef struct cu_graph_s *cu_graph;
typedef struct cu_node_s *cu_node;
typedef struct cu_graph_exec_s *cu_graph_exec;
typedef struct cu_array_s *cu_array;

enum {
  CU_SUCCESS = 0, CU_OUT_OF_MEMORY = 2, CU_NO_DEVICE = 100, CU_INVALID_DEVICE = 101, CU_NO_BINARY_FOR_GPU = 209,
  CU_UNSUPPORTED_PTX = 222, CU_NOT_FOUND = 500,
  CU_DEVICE_CAPABILITY_MAJOR = 75, CU_DEVICE_CAPABILITY_MINOR = 76,
  CU_POINTER_MEMORY_TYPE = 2, CU_POINTER_IS_MANAGED = 8, CU_POINTER_DEVICE_ORDINAL = 9,
  CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2,
  CU_FUNCTION_MAX_DYNAMIC_SHARED = 8, CU_FUNCTION_SHARED_CARVEOUT = 9, CU_CARVEOUT_MOST_SHARED = 100,
  CU_FUNCTION_NON_PORTABLE_CLUSTER = 14,
  CU_LAUNCH_COOPERATIVE = 2, CU_LAUNCH_CLUSTER = 4,
  CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BYTES = 6,
  CU_EVENT_DEFAULT = 0, CU_EVENT_NO_TIMING = 2,
  CU_EDGE_PROGRAMMATIC = 1, CU_KERNEL_PORT_PROGRAMMATIC = 1,
  CU_MAP_FLOAT16 = 6, CU_MAP_FLOAT32 = 7, CU_MAP_FLOAT64 = 8, CU_MAP_BFLOAT16 = 9,
  CU_MAP_UINT8 = 0, CU_MAP_UINT16 = 1, CU_MAP_UINT32 = 2, CU_MAP_INT32 = 3, CU_MAP_UINT64 = 4, CU_MAP_INT64 = 5,
  CU_MAP_L2_256B = 3
};

typedef struct cu_kernel_params {
  cu_function function;
  unsigned grid[3], block[3], shared_bytes;
  void **params;
  void **extra;
  cu_kernel kernel;
  cu_context context;
} cu_kernel_params;
_Static_assert(sizeof(cu_kernel_params) == 72, "CUDA_KERNEL_NODE_PARAMS_v2");

typedef struct cu_memset_params {
  cu_pointer target;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
} cu_memset_params;
_Static_assert(sizeof(cu_memset_params) == 40, "CUDA_MEMSET_NODE_PARAMS_v1");

typedef struct cu_copy_side {
  size_t x_bytes, y, z, lod;
  int memory_type;
  const void *host;
  cu_pointer device;
  cu_array array;
  void *reserved;
  size_t pitch, height;
} cu_copy_side;

typedef struct cu_copy_params {
  cu_copy_side source, target;
  size_t width_bytes, height, depth;
} cu_copy_params;
_Static_assert(sizeof(cu_copy_params) == 200, "CUDA_MEMCPY3D_v2");

typedef struct cu_edge {
  unsigned char from_port, to_port, type, reserved[5];
} cu_edge;
_Static_assert(sizeof(cu_edge) == 8, "CUgraphEdgeData");

typedef union cu_attribute_value {
  char pad[64];
  int cooperative;
  unsigned cluster[3];
} cu_attribute_value;

typedef struct cu_attribute {
  int id;
  char pad[4];
  cu_attribute_value value;
} cu_attribute;
_Static_assert(sizeof(cu_attribute) == 72, "CUlaunchAttribute");

typedef struct cu_launch_config {
  unsigned grid[3], block[3], shared_bytes;
  cu_stream stream;
  cu_attribute *attributes;
  unsigned attribute_count;
} cu_launch_config;
_Static_assert(sizeof(cu_launch_config) == 56, "CUlaunchConfig");

typedef cu_result (*cu_get_proc_address)(const char *name, void **function, int version, uint64_t flags, int *found);

/* X(function, CUDA version whose interface is coded for, parameters) */
#define CU_FUNCTIONS(X)                                                                                                     \
  X(cuInit, 2000, (unsigned flags))                                                                                        \
  X(cuDriverGetVersion, 2020, (int *version))                                                                              \
  X(cuGetErrorName, 6000, (cu_result error, const char **text))                                                            \
  X(cuGetErrorString, 6000, (cu_result error, const char **text))                                                          \
  X(cuDeviceGetCount, 2000, (int *count))                                                                                  \
  X(cuDeviceGet, 2000, (cu_device *device, int ordinal))                                                                   \
  X(cuDeviceGetName, 2000, (char *name, int bytes, cu_device device))                                                      \
  X(cuDeviceGetAttribute, 2000, (int *value, int attribute, cu_device device))                                             \
  X(cuDevicePrimaryCtxRetain, 7000, (cu_context *context, cu_device device))                                               \
  X(cuDevicePrimaryCtxRelease, 11000, (cu_device device))                                                                  \
  X(cuCtxPushCurrent, 4000, (cu_context context))                                                                          \
  X(cuCtxPopCurrent, 4000, (cu_context *context))                                                                          \
  X(cuMemAlloc, 3020, (cu_pointer *pointer, size_t bytes))                                                                 \
  X(cuMemFree, 3020, (cu_pointer pointer))                                                                                 \
  X(cuMemAllocHost, 3020, (void **pointer, size_t bytes))                                                                  \
  X(cuMemFreeHost, 2000, (void *pointer))                                                                                  \
  X(cuMemcpyHtoD, 3020, (cu_pointer target, const void *source, size_t bytes))                                             \
  X(cuMemcpyHtoDAsync, 3020, (cu_pointer target, const void *source, size_t bytes, cu_stream stream))                      \
  X(cuMemcpyDtoHAsync, 3020, (void *target, cu_pointer source, size_t bytes, cu_stream stream))                            \
  X(cuMemcpyDtoDAsync, 3020, (cu_pointer target, cu_pointer source, size_t bytes, cu_stream stream))                       \
  X(cuMemsetD8Async, 3020, (cu_pointer target, unsigned char byte, size_t bytes, cu_stream stream))                        \
  X(cuModuleLoadDataEx, 2010, (cu_module *module, const void *image, unsigned count, int *options, void **values))         \
  X(cuModuleUnload, 2000, (cu_module module))                                                                              \
  X(cuModuleGetFunction, 2000, (cu_function *function, cu_module module, const char *name))                                \
  X(cuFuncSetAttribute, 9000, (cu_function function, int attribute, int value))                                            \
  X(cuStreamCreate, 2000, (cu_stream *stream, unsigned flags))                                                             \
  X(cuStreamDestroy, 4000, (cu_stream stream))                                                                             \
  X(cuStreamSynchronize, 2000, (cu_stream stream))                                                                         \
  X(cuStreamWaitEvent, 3020, (cu_stream stream, cu_event event, unsigned flags))                                           \
  X(cuEventCreate, 2000, (cu_event *event, unsigned flags))                                                                \
  X(cuEventDestroy, 4000, (cu_event event))                                                                                \
  X(cuEventRecord, 2000, (cu_event event, cu_stream stream))                                                               \
  X(cuEventSynchronize, 2000, (cu_event event))                                                                            \
  X(cuEventElapsedTime, 2000, (float *milliseconds, cu_event start, cu_event end))                                         \
  X(cuPointerGetAttribute, 4000, (void *value, int attribute, cu_pointer pointer))                                         \
  X(cuLaunchKernelEx, 11060, (const cu_launch_config *config, cu_function function, void **params, void **extra))          \
  X(cuGraphCreate, 10000, (cu_graph *graph, unsigned flags))                                                               \
  X(cuGraphDestroy, 10000, (cu_graph graph))                                                                               \
  X(cuGraphAddKernelNode, 12000,                                                                                           \
    (cu_node *node, cu_graph graph, const cu_node *after, size_t count, const cu_kernel_params *params))                   \
  X(cuGraphAddMemcpyNode, 10000,                                                                                           \
    (cu_node *node, cu_graph graph, const cu_node *after, size_t count, const cu_copy_params *params, cu_context context)) \
  X(cuGraphAddMemsetNode, 10000,                                                                                           \
    (cu_node *node, cu_graph graph, const cu_node *after, size_t count, const cu_memset_params *params,                    \
     cu_context context))                                                                                                  \
  X(cuGraphAddEmptyNode, 10000, (cu_node *node, cu_graph graph, const cu_node *after, size_t count))                       \
  X(cuGraphAddDependencies, 12030,                                                                                         \
    (cu_graph graph, const cu_node *from, const cu_node *to, const cu_edge *edges, size_t count))                          \
  X(cuGraphKernelNodeSetAttribute, 11000, (cu_node node, int attribute, const cu_attribute_value *value))                  \
  X(cuGraphInstantiateWithFlags, 11040, (cu_graph_exec *exec, cu_graph graph, unsigned long long flags))                   \
  X(cuGraphExecDestroy, 10000, (cu_graph_exec exec))                                                                       \
  X(cuGraphLaunch, 10000, (cu_graph_exec exec, cu_stream stream))                                                          \
  X(cuGraphExecKernelNodeSetParams, 12000, (cu_graph_exec exec, cu_node node, const cu_kernel_params *params))             \
  X(cuGraphExecMemcpyNodeSetParams, 10020,                                                                                 \
    (cu_graph_exec exec, cu_node node, const cu_copy_params *params, cu_context context))                                  \
  X(cuGraphExecMemsetNodeSetParams, 10020,                                                                                 \
    (cu_graph_exec exec, cu_node node, const cu_memset_params *params, cu_context context))                                \
  X(cuTensorMapEncodeTiled, 12000,                                                                                         \
    (void *map, int dtype, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,                   \
     const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle, int l2, int fill))

typedef struct cu_driver {
#define CU_MEMBER(name, version, params) cu_result(*name) params;
  CU_FUNCTIONS(CU_MEMBER)
#undef CU_MEMBER
} cu_driver;

#endif
