/* What the runtime's files share. Order of use: payload (format.c, expr.c) -> model (target.c, device.c, host.c) ->
 * binding (shapes.c, binding.c) -> run (graph.c, host.c, context.c) -> api.c. */
#ifndef TASKC_RUNTIME_H
#define TASKC_RUNTIME_H
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "taskc_cuda.h"
#include "taskc_format.h"

#define CACHED_BINDINGS 8
#define DATA_ALIGN 16u    /* kernels access tensors in 16-byte pieces; other addresses go through staging */
#define MEMORY_ALIGN 256u /* of memory the runtime allocates */

/* ---- errors ---------------------------------------------------------------------------------------------------- */

typedef struct error {
  taskc_status status;
  char text[2048];
} error;

taskc_status fail(error *e, taskc_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Puts "where: " before the message. */
taskc_status prefix(error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
taskc_status no_memory(error *e, uint64_t bytes);

/* ---- the payload ------------------------------------------------------------------------------------------------ */

typedef struct payload {
  const unsigned char *base;
  uint64_t bytes;
  const fmt_header *header;
  const char *strings;
  const fmt_code *code;
  const fmt_symbol *symbols;
  const fmt_dim *dims;
  const fmt_port *inputs, *outputs;
  const fmt_target *targets;
  const fmt_image *images;
  const fmt_kernel *kernels;
  const fmt_tensor *tensors;
  const fmt_step *steps;
  const fmt_arg *args;
  const fmt_map *maps;
  const fmt_edge *edges;
} payload;

/* The payload of this very library, checked against the size of its file. */
taskc_status find_payload(const unsigned char **base, uint64_t *bytes, error *e);
/* Sets up `p` and checks every number in it; a payload that passes can be read without further checks. */
taskc_status read_payload(payload *p, const unsigned char *base, uint64_t bytes, error *e);
taskc_status check_rows(const payload *p, error *e); /* the second half of read_payload */

static inline const char *text_of(const payload *p, fmt_text t) { return p->strings + t.offset; }

uint32_t dtype_bytes(uint32_t dtype); /* 0: no such dtype */
const char *dtype_name(uint32_t dtype);

/* Checks an expression's code once at load. */
int expression_ok(const payload *p, fmt_index_ref e);
/* Its value; a message for an overflow or a divisor that is not positive. */
taskc_status evaluate(const payload *p, fmt_index_ref e, const int64_t *symbols, int64_t *value, error *err);

/* ---- model ------------------------------------------------------------------------------------------------------ */

struct taskc_library {
  atomic_uint references;
  payload payload;
};

typedef struct host_launch { /* as in the host kernels' C interface */
  int grid[3], cluster[3], threads, shared_bytes, cores, cooperative;
} host_launch;
typedef int (*host_entry)(void **args, const host_launch *launch);

struct taskc_model {
  atomic_uint references;
  taskc_library *library;
  const fmt_target *target;
  int on_host;
  int image_kind;
  /* CUDA */
  cu_driver driver;
  cu_device device;
  cu_context context; /* the primary context, retained */
  int ordinal, capability;
  char device_name[128];
  cu_module *modules; /* one an image of the chosen kind */
  uint32_t module_count;
  cu_function *functions; /* one a kernel */
  /* host */
  void *host_image;
  const char *(*host_error)(void);
  host_entry *entries; /* one a kernel */
  /* The part of the weights that the target uses: address of weight byte `weights_low`. */
  uint64_t weights, weights_low, weights_bytes;
};

taskc_status driver_open(cu_driver *driver, error *e);
/* `status` unless the call succeeded; the message names the call. */
taskc_status driver_check(const cu_driver *driver, cu_result result, const char *call, error *e);
#define CU(e, driver, call, ...) driver_check((driver), (driver)->call(__VA_ARGS__), #call, (e))

taskc_status choose_target(const payload *p, int capability, const char *device, const fmt_target **target, int *kind,
                           error *e);
int image_fits(const payload *p, const fmt_image *image, int capability);

taskc_status cuda_model(taskc_model *m, int ordinal, error *e);
void cuda_model_free(taskc_model *m);
taskc_status host_model(taskc_model *m, error *e);
void host_model_free(taskc_model *m);
void weights_range(const payload *p, const fmt_target *t, uint64_t *low, uint64_t *high);

taskc_status model_enter(taskc_model *m, error *e); /* makes the CUDA context current */
void model_leave(taskc_model *m);
taskc_status device_allocate(taskc_model *m, uint64_t bytes, uint64_t *address, error *e);
void device_free(taskc_model *m, uint64_t address);

/* ---- context ---------------------------------------------------------------------------------------------------- */

typedef struct buffer {
  uint64_t address, bytes;
} buffer;

typedef struct step_state {
  int empty;   /* no blocks or no bytes */
  int changed; /* differs from what the graph holds */
  uint32_t grid[3];
  void **params; /* a launch: one pointer an argument, into `binding.values` */
  uint64_t source, target, bytes;
} step_state;

/* The plan at one value of the symbols, and the addresses it was last given. */
typedef struct binding {
  int used;
  uint64_t last_use;
  int64_t *symbols;
  uint64_t arena_bytes, counter_bytes;
  uint64_t *tensor_bytes;   /* one a plan tensor */
  int64_t *tensor_offset;   /* in its memory */
  int64_t *arg_offset;      /* one an argument: offset or value; counters: place in the counter buffer */
  unsigned char *values;    /* 128 bytes an argument, 64-byte aligned */
  void **params;
  step_state *steps;
  uint64_t *ports;          /* addresses of inputs, then outputs, then arena and counters */
  uint64_t *wanted;         /* the same, of the run in progress */
  int placed;
  cu_graph graph;
  cu_graph_exec exec;
  cu_node *nodes;
  int plain;                /* the driver refused a graph */
  uint32_t programmatic_edges;
} binding;

struct taskc_context {
  pthread_mutex_t lock;
  taskc_model *model;
  error error;
  int no_graph, sync, poison;
  uint64_t host_order;
  binding bindings[CACHED_BINDINGS];
  binding *last;
  buffer arena, counters;
  buffer *staging;          /* device memory, one a port */
  buffer *pinned;           /* page-locked host memory, one a port */
  uint64_t *port_bytes;     /* of the run in progress, one a port */
  taskc_tensor *outputs;    /* shapes of the run in progress */
  int64_t *symbols;
  cu_stream stream;
  cu_event done, start;
  cu_stream done_stream;    /* where the last run went */
  int pending;              /* the last run may not have ended */
  int dirty;                /* counters must be zeroed: an error came before */
  taskc_statistics statistics;
};

/* Checks inputs against the model, solves the symbols, computes outputs' shapes into c->outputs. */
taskc_status solve_shapes(taskc_context *c, const taskc_tensor *inputs, error *e);
taskc_status check_outputs(taskc_context *c, const taskc_tensor *outputs, error *e);

taskc_status binding_create(taskc_context *c, binding *b, error *e);
void binding_free(taskc_context *c, binding *b);
/* Writes argument values for the addresses in b->wanted; marks steps that changed. */
taskc_status binding_place(taskc_context *c, binding *b, error *e);

taskc_status graph_prepare(taskc_context *c, binding *b, error *e);
taskc_status cuda_launch(taskc_context *c, binding *b, cu_stream stream, error *e);
taskc_status host_run(taskc_context *c, binding *b, error *e);

/* memory.c */
taskc_status reserve(taskc_context *c, buffer *b, uint64_t bytes, error *e);
void memory_free(taskc_context *c);
/* The address at which kernels see a port: the caller's, or staging. */
taskc_status port_address(taskc_context *c, uint32_t port, const taskc_tensor *t, uint64_t *address, error *e);
taskc_status check_overlap(taskc_context *c, const uint64_t *address, error *e);
taskc_status copy_in(taskc_context *c, const taskc_tensor *inputs, cu_stream stream, error *e);
taskc_status copy_out(taskc_context *c, const taskc_tensor *outputs, cu_stream stream, int *host, error *e);
void copy_to_host(taskc_context *c, const taskc_tensor *outputs);
taskc_status clear_memory(taskc_context *c, const binding *b, cu_stream stream, error *e);

/* describe.c */
void library_describe(const taskc_library *l, taskc_library_info *info);
taskc_status describe_symbol(const taskc_library *l, uint32_t number, taskc_symbol_info *info);
taskc_status describe_input(const taskc_library *l, uint32_t number, taskc_port_info *info);
taskc_status describe_output(const taskc_library *l, uint32_t number, taskc_port_info *info);
taskc_status describe_target(const taskc_library *l, uint32_t number, taskc_target_info *info);
taskc_status describe_image(const taskc_library *l, uint32_t target, uint32_t number, taskc_image_info *info);
taskc_status describe_kernel(const taskc_library *l, uint32_t target, uint32_t number, taskc_kernel_info *info);
taskc_status describe_step(const taskc_library *l, uint32_t target, uint32_t number, taskc_step_info *info);

taskc_status context_create(taskc_model *m, taskc_context **out, error *e);
void context_free(taskc_context *c);
taskc_status context_bind(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs, error *e);
taskc_status context_run(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs,
                         const taskc_run_options *options, error *e);
taskc_status context_wait(taskc_context *c, error *e);
taskc_status context_time(taskc_context *c, uint32_t count, float *us, error *e);

#endif
