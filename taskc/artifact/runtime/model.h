/* The C interface of a model library made by taskc. C99 and C++.
 *
 *   void *so = dlopen("./model.so", RTLD_NOW | RTLD_LOCAL);
 *   const taskc_api *api = ((taskc_get_api_fn)dlsym(so, "taskc_get_api"))(TASKC_API_VERSION);
 *
 * A *library* is the description inside the file; it needs no GPU. A *model* is the state of one device that is shared:
 * kernels and weights. A *context* is one caller's state: working memory, graphs, staging. Make one context a thread;
 * contexts of one model run at the same time. A context may be used from any thread, its calls are then taken in turn.
 * Libraries and models are counted: a model keeps its library, a context its model, whatever the order of release.
 *
 * Everything that can fail returns a status. Functions that make an object write the message to the caller's buffer
 * (NULL for none), functions of a context keep it in the context: `context_message`.
 * The CUDA primary context of the GPU is used, and never left current: pointers of torch, CuPy and the CUDA runtime fit.
 *
 * Environment, read when a context is made: TASKC_NO_GRAPH=1 launches kernels one by one, TASKC_SYNC=1 also checks after
 * each and names the one that failed, TASKC_POISON=1 fills working memory and outputs with 0xFF bytes before each run,
 * TASKC_HOST_ORDER=N runs the steps of the `host` device in a shuffled legal order. */
#ifndef TASKC_MODEL_H
#define TASKC_MODEL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define TASKC_API_VERSION 1u
#define TASKC_MAX_RANK 16

/* The values are the exit codes of the command line; 1 is a failing driver or kernel. */
typedef enum taskc_status {
  TASKC_OK = 0,
  TASKC_FAILED = 1,
  TASKC_USAGE = 2,       /* a wrong argument: names the input, what was given, what is wanted */
  TASKC_BAD_LIBRARY = 3, /* damaged, truncated, or of another version */
  TASKC_NO_DEVICE = 8,   /* no driver, no GPU, a driver too old, no code that fits */
  TASKC_NO_MEMORY = 9
} taskc_status;

typedef enum taskc_dtype {
  TASKC_F16 = 1, TASKC_BF16, TASKC_F32, TASKC_F64, TASKC_I8, TASKC_I16, TASKC_I32, TASKC_I64,
  TASKC_U8, TASKC_U16, TASKC_U32, TASKC_U64, TASKC_BOOL
} taskc_dtype;

typedef enum taskc_memory { TASKC_HOST_MEMORY = 0, TASKC_DEVICE_MEMORY = 1 } taskc_memory;

typedef struct taskc_library taskc_library;
typedef struct taskc_model taskc_model;
typedef struct taskc_context taskc_context;

/* A dense row-major tensor of the caller. `dtype` is a taskc_dtype, `memory` a taskc_memory. Memory of the `host` device
 * is host memory. `data` may be NULL when there are no elements. */
typedef struct taskc_tensor {
  void *data;
  uint32_t memory;
  uint32_t dtype;
  uint32_t rank;
  uint32_t reserved;
  int64_t shape[TASKC_MAX_RANK];
} taskc_tensor;

/* Strings live as long as the library. Extents that depend on a symbol are -1. */
typedef struct taskc_library_info {
  const char *name;
  const char *metadata; /* JSON */
  uint32_t format_version, symbols, inputs, outputs, targets, reserved;
  uint64_t weights_bytes;
} taskc_library_info;

/* A symbolic dim: its value is dim `axis` of input `input`, at least `low`, at most `high`, and a multiple of
 * `multiple`. */
typedef struct taskc_symbol_info {
  const char *name;
  uint32_t input, axis;
  int64_t low, multiple, high;
} taskc_symbol_info;

typedef struct taskc_port_info {
  const char *name;
  uint32_t dtype, rank;
  int64_t shape[TASKC_MAX_RANK];
  const char *dims[TASKC_MAX_RANK]; /* the user's names of symbolic dims, "" elsewhere */
} taskc_port_info;

typedef struct taskc_target_info {
  const char *name; /* "sm_80", "sm_90a", "host" */
  uint32_t images, kernels, tensors, steps;
  int64_t arena_bytes;
} taskc_target_info;

typedef struct taskc_image_info {
  const char *kind; /* "cubin", "ptx", "host" */
  const char *arch;
  const void *data;
  uint64_t bytes;
} taskc_image_info;

typedef struct taskc_kernel_info {
  const char *symbol, *notes;
  uint32_t threads, shared_bytes, cluster[3], pdl, cooperative, registers, spill_bytes, reserved;
} taskc_kernel_info;

typedef struct taskc_step_info {
  const char *kind; /* "launch", "copy", "fill" */
  const char *name; /* the user's nodes it computes */
  uint32_t kernel, args, after_count, reserved;
  const uint32_t *after;
  int64_t grid[3], bytes;
} taskc_step_info;

typedef struct taskc_model_info {
  const char *device; /* "NVIDIA H200", "host" */
  const char *target; /* the target whose code runs */
  const char *image;  /* "cubin", "ptx", "host" */
  int32_t ordinal;    /* of the GPU; -1 for host */
  int32_t capability; /* 90 for 9.0; 0 for host */
  uint64_t weights_bytes;
} taskc_model_info;

#define TASKC_ON_STREAM 1u /* use `stream`, a CUstream (NULL: the legacy default stream); do not wait for the run's end */

/* When an output is host memory the run waits for its end, whatever the options. */
typedef struct taskc_run_options {
  uint32_t flags, reserved;
  void *stream;
} taskc_run_options;

typedef struct taskc_statistics {
  uint64_t runs;    /* finished or handed to the stream */
  uint64_t builds;  /* bindings made for new shapes */
  uint64_t updates; /* bindings given other pointers */
  uint64_t replays; /* runs with the pointers and shapes of an earlier one */
  uint32_t graph;   /* 1: the last run was one CUDA graph, 0: single launches */
  uint32_t programmatic_edges; /* of that graph */
  uint64_t arena_bytes, counter_bytes;
} taskc_statistics;

typedef struct taskc_api {
  uint32_t version, bytes; /* of this table */

  /* Checks the whole description. */
  taskc_status (*library_open)(taskc_library **library, char *message, size_t message_bytes);
  void (*library_release)(taskc_library *library);
  void (*library_describe)(const taskc_library *library, taskc_library_info *info);
  /* TASKC_USAGE when there is no such number. */
  taskc_status (*symbol)(const taskc_library *library, uint32_t number, taskc_symbol_info *info);
  taskc_status (*input)(const taskc_library *library, uint32_t number, taskc_port_info *info);
  taskc_status (*output)(const taskc_library *library, uint32_t number, taskc_port_info *info);
  taskc_status (*target)(const taskc_library *library, uint32_t number, taskc_target_info *info);
  taskc_status (*image)(const taskc_library *library, uint32_t target, uint32_t number, taskc_image_info *info);
  taskc_status (*kernel)(const taskc_library *library, uint32_t target, uint32_t number, taskc_kernel_info *info);
  taskc_status (*step)(const taskc_library *library, uint32_t target, uint32_t number, taskc_step_info *info);

  /* `device`: "cuda", "cuda:N" or "host". Loads kernels and weights. */
  taskc_status (*model_create)(taskc_library *library, const char *device, taskc_model **model, char *message,
                               size_t message_bytes);
  void (*model_release)(taskc_model *model);
  void (*model_describe)(const taskc_model *model, taskc_model_info *info);
  /* Memory of the model's device, 256-byte aligned; `deallocate` waits for work that uses it. */
  taskc_status (*allocate)(taskc_model *model, size_t bytes, void **data, char *message, size_t message_bytes);
  void (*deallocate)(taskc_model *model, void *data);

  taskc_status (*context_create)(taskc_model *model, taskc_context **context, char *message, size_t message_bytes);
  void (*context_release)(taskc_context *context); /* waits for its runs */
  /* The last failure of this context; valid until its next call. */
  const char *(*context_message)(const taskc_context *context);
  /* The context's own CUstream, NULL for host. */
  void *(*context_stream)(const taskc_context *context);
  /* Checks the inputs' dtypes and shapes (not their data) and fills dtype, rank and shape of the outputs. */
  taskc_status (*output_shapes)(taskc_context *context, const taskc_tensor *inputs, taskc_tensor *outputs);
  /* Prepares a run with these tensors, `inputs` and `outputs` as many as the model has. */
  taskc_status (*bind)(taskc_context *context, const taskc_tensor *inputs, const taskc_tensor *outputs);
  /* Runs the model; binds first where needed. Without options: on the context's own stream, and waits for the end. */
  taskc_status (*run)(taskc_context *context, const taskc_tensor *inputs, const taskc_tensor *outputs,
                      const taskc_run_options *options);
  /* Waits for all runs of this context. */
  taskc_status (*synchronize)(taskc_context *context);
  /* Replays the last binding `count` times, one at a time; writes each one's device time in microseconds. */
  taskc_status (*time_device)(taskc_context *context, uint32_t count, float *microseconds);
  void (*statistics)(const taskc_context *context, taskc_statistics *statistics);
  /* Waits until `stream`, a CUstream, has done what it was given so far: for inputs that another stream writes. */
  taskc_status (*wait_stream)(taskc_model *model, void *stream, char *message, size_t message_bytes);
} taskc_api;

/* The library's only symbol. NULL when it does not have that version of the table. */
typedef const taskc_api *(*taskc_get_api_fn)(uint32_t version);
const taskc_api *taskc_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
