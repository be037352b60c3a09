/* One caller's state: bindings by shape, the run, its waits. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime.h"

static int flag(const char *name) {
  const char *value = getenv(name);
  return value && value[0] && strcmp(value, "0") != 0;
}

static uint64_t number(const char *name) {
  const char *value = getenv(name);
  uint64_t n = 0;
  for (; value && *value >= '0' && *value <= '9'; ++value) n = n * 10 + (uint64_t)(*value - '0');
  return n;
}

static taskc_status make_stream(taskc_context *c, error *e) {
  const cu_driver *d = &c->model->driver;
  if (model_enter(c->model, e)) return e->status;
  /* An ordinary stream: work on the legacy default stream, where CUDA code works by default, stays in order with it. */
  taskc_status status = CU(e, d, cuStreamCreate, &c->stream, 0);
  if (!status) status = CU(e, d, cuEventCreate, &c->done, CU_EVENT_DEFAULT);
  if (!status) status = CU(e, d, cuEventCreate, &c->start, CU_EVENT_DEFAULT);
  model_leave(c->model);
  return status;
}

taskc_status context_create(taskc_model *m, taskc_context **out, error *e) {
  const fmt_header *h = m->library->payload.header;
  size_t ports = (size_t)h->inputs.count + h->outputs.count + 1;
  taskc_context *c = calloc(1, sizeof *c);
  if (!c) return no_memory(e, sizeof *c);
  if (pthread_mutex_init(&c->lock, NULL)) {
    free(c);
    return fail(e, TASKC_FAILED, "no mutex for a context");
  }
  c->model = m;
  c->dirty = 1;
  c->sync = flag("TASKC_SYNC");
  c->no_graph = c->sync || flag("TASKC_NO_GRAPH");
  c->poison = flag("TASKC_POISON");
  c->host_order = number("TASKC_HOST_ORDER");
  c->staging = calloc(ports, sizeof *c->staging);
  c->pinned = calloc(ports, sizeof *c->pinned);
  c->port_bytes = calloc(ports, sizeof *c->port_bytes);
  c->outputs = calloc((size_t)h->outputs.count + 1, sizeof *c->outputs);
  c->symbols = calloc((size_t)h->symbols.count + 1, sizeof *c->symbols);
  taskc_status status = TASKC_OK;
  if (!c->staging || !c->pinned || !c->port_bytes || !c->outputs || !c->symbols) status = no_memory(e, ports * sizeof *c->staging);
  if (!status && !m->on_host) status = make_stream(c, e);
  if (status) context_free(c);
  else *out = c;
  return status;
}

void context_free(taskc_context *c) {
  taskc_model *m = c->model;
  error ignored;
  if (!model_enter(m, &ignored)) {
    if (c->pending) context_wait(c, &ignored);
    for (int i = 0; i < CACHED_BINDINGS; ++i)
      if (c->bindings[i].used) binding_free(c, &c->bindings[i]);
    memory_free(c);
    if (c->done) m->driver.cuEventDestroy(c->done);
    if (c->start) m->driver.cuEventDestroy(c->start);
    if (c->stream) m->driver.cuStreamDestroy(c->stream);
    model_leave(m);
  }
  free(c->staging);
  free(c->pinned);
  free(c->port_bytes);
  free(c->outputs);
  free(c->symbols);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

taskc_status context_wait(taskc_context *c, error *e) {
  if (!c->pending) return TASKC_OK;
  c->pending = 0;
  if (CU(e, &c->model->driver, cuEventSynchronize, c->done) == TASKC_OK) return TASKC_OK;
  c->dirty = 1;
  return prefix(e, "model '%s' failed while it ran on GPU %d (set TASKC_SYNC=1 to learn in which launch)",
                text_of(&c->model->library->payload, c->model->library->payload.header->name), c->model->ordinal);
}

/* The binding of the current symbols, new where there is none: a free one, else the one unused for longest. */
static binding *find_binding(taskc_context *c, error *e) {
  const fmt_header *h = c->model->library->payload.header;
  size_t bytes = h->symbols.count * sizeof *c->symbols;
  binding *oldest = &c->bindings[0];
  for (int i = 0; i < CACHED_BINDINGS; ++i) {
    binding *b = &c->bindings[i];
    if (b->used && memcmp(b->symbols, c->symbols, bytes) == 0) return b;
    if (oldest->used && (!b->used || b->last_use < oldest->last_use)) oldest = b;
  }
  if (oldest == c->last) c->last = NULL;
  if (oldest->used) binding_free(c, oldest);
  if (binding_create(c, oldest, e)) return NULL;
  ++c->statistics.builds;
  return oldest;
}

static taskc_status find_memory(taskc_context *c, binding *b, error *e) {
  uint64_t counters = c->counters.address;
  if (reserve(c, &c->arena, b->arena_bytes, e)) return prefix(e, "the arena");
  if (reserve(c, &c->counters, b->counter_bytes, e)) return prefix(e, "the counters");
  if (c->counters.address != counters) c->dirty = 1;
  c->statistics.arena_bytes = c->arena.bytes;
  c->statistics.counter_bytes = c->counters.bytes;
  return TASKC_OK;
}

static taskc_status prepare(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs, int *replay, error *e) {
  const fmt_header *h = c->model->library->payload.header;
  uint32_t in = h->inputs.count, all = in + h->outputs.count;
  if (solve_shapes(c, inputs, e) || check_outputs(c, outputs, e)) return e->status;
  binding *b = find_binding(c, e);
  if (!b || find_memory(c, b, e)) return e->status;
  for (uint32_t i = 0; i < all; ++i)
    if (port_address(c, i, i < in ? &inputs[i] : &outputs[i - in], &b->wanted[i], e)) return e->status;
  b->wanted[all] = c->arena.address;
  b->wanted[all + 1] = c->counters.address;
  if (check_overlap(c, b->wanted, e)) return e->status;
  static const uint64_t word = sizeof word;
  *replay = b->placed && memcmp(b->wanted, b->ports, (all + 2) * word) == 0;
  if (!*replay) {
    c->statistics.updates += b->last_use != 0;
    if (binding_place(c, b, e)) return e->status;
    if (!c->model->on_host && graph_prepare(c, b, e)) {
      b->placed = 0;
      return e->status;
    }
  }
  b->last_use = c->statistics.runs + c->statistics.builds + 1;
  c->last = b;
  return TASKC_OK;
}

taskc_status context_bind(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs, error *e) {
  int replay;
  return prepare(c, inputs, outputs, &replay, e);
}

static taskc_status start_on_gpu(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs, cu_stream stream,
                                 int *host, error *e) {
  const cu_driver *d = &c->model->driver;
  if (c->pending && stream != c->done_stream && CU(e, d, cuStreamWaitEvent, stream, c->done, 0)) return e->status;
  if (copy_in(c, inputs, stream, e) || clear_memory(c, c->last, stream, e)) return e->status;
  if (cuda_launch(c, c->last, stream, e) || copy_out(c, outputs, stream, host, e)) return e->status;
  if (CU(e, d, cuEventRecord, c->done, stream)) return e->status;
  c->done_stream = stream;
  c->pending = 1;
  return TASKC_OK;
}

static taskc_status run_on_gpu(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs,
                               const taskc_run_options *options, error *e) {
  int host = 0, given = options && options->flags & TASKC_ON_STREAM;
  if (start_on_gpu(c, inputs, outputs, given ? options->stream : c->stream, &host, e)) return e->status;
  c->dirty = 0;
  if (given && !host) return TASKC_OK;
  if (context_wait(c, e)) return e->status;
  copy_to_host(c, outputs);
  return TASKC_OK;
}

static taskc_status run_on_host(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs, error *e) {
  int host;
  if (copy_in(c, inputs, NULL, e) || clear_memory(c, c->last, NULL, e) || host_run(c, c->last, e)) return e->status;
  c->dirty = 0;
  return copy_out(c, outputs, NULL, &host, e);
}

taskc_status context_run(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs,
                         const taskc_run_options *options, error *e) {
  int replay = 0;
  if (options && options->flags & ~TASKC_ON_STREAM) return fail(e, TASKC_USAGE, "unknown run options %u", options->flags);
  if (prepare(c, inputs, outputs, &replay, e)) return e->status;
  taskc_status status = c->model->on_host ? run_on_host(c, inputs, outputs, e) : run_on_gpu(c, inputs, outputs, options, e);
  if (status) {
    c->dirty = 1; /* a kernel may have left its counters in the middle of a count */
    return status;
  }
  ++c->statistics.runs;
  c->statistics.replays += replay != 0;
  return TASKC_OK;
}

static float since(const struct timespec *start) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (float)((double)(now.tv_sec - start->tv_sec) * 1e6 + (double)(now.tv_nsec - start->tv_nsec) * 1e-3);
}

taskc_status context_time(taskc_context *c, uint32_t count, float *us, error *e) {
  const cu_driver *d = &c->model->driver;
  if (!c->last || !c->last->placed) return fail(e, TASKC_USAGE, "nothing to time: run or bind first");
  if (context_wait(c, e) || clear_memory(c, c->last, c->stream, e)) return e->status;
  for (uint32_t i = 0; i < count; ++i) {
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (c->model->on_host) {
      if (host_run(c, c->last, e)) return e->status;
      us[i] = since(&start);
      continue;
    }
    if (CU(e, d, cuEventRecord, c->start, c->stream) || cuda_launch(c, c->last, c->stream, e) ||
        CU(e, d, cuEventRecord, c->done, c->stream))
      return e->status;
    c->pending = 1;
    if (context_wait(c, e) || CU(e, d, cuEventElapsedTime, &us[i], c->start, c->done)) return e->status;
    us[i] *= 1000.0f;
  }
  c->dirty = 0;
  return TASKC_OK;
}
