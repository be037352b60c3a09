/* The exported table: each function takes its object's lock, makes its GPU current, and hands out the message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static taskc_status report(const error *e, taskc_status status, char *message, size_t bytes) {
  if (message && bytes) snprintf(message, bytes, "%s", status ? e->text : "");
  return status;
}

static taskc_status library_open(taskc_library **out, char *message, size_t bytes) {
  error e = {0};
  const unsigned char *base = NULL;
  uint64_t size = 0;
  taskc_library *l = calloc(1, sizeof *l);
  taskc_status status = l ? find_payload(&base, &size, &e) : no_memory(&e, sizeof *l);
  if (!status) status = read_payload(&l->payload, base, size, &e);
  if (status) {
    free(l);
    return report(&e, status, message, bytes);
  }
  atomic_init(&l->references, 1);
  *out = l;
  return report(&e, status, message, bytes);
}

static void library_release(taskc_library *l) {
  if (l && atomic_fetch_sub(&l->references, 1) == 1) free(l);
}

/* "cuda" and "cuda:N" -> N, -1: not of that form. */
static int gpu_number(const char *device) {
  if (strncmp(device, "cuda", 4) != 0) return -1;
  if (!device[4]) return 0;
  if (device[4] != ':' || !device[5]) return -1;
  int n = 0;
  for (const char *d = device + 5; *d; ++d) {
    if (*d < '0' || *d > '9' || n > 1000) return -1;
    n = n * 10 + (*d - '0');
  }
  return n;
}

static void model_release(taskc_model *m) {
  if (!m || atomic_fetch_sub(&m->references, 1) != 1) return;
  if (m->on_host) host_model_free(m);
  else cuda_model_free(m);
  library_release(m->library);
  free(m);
}

static taskc_status model_create(taskc_library *l, const char *device, taskc_model **out, char *message, size_t bytes) {
  error e = {0};
  int host = device && strcmp(device, "host") == 0, ordinal = device ? gpu_number(device) : -1;
  if (!host && ordinal < 0) {
    fail(&e, TASKC_USAGE, "device '%s': wanted 'cuda', 'cuda:N' or 'host'", device ? device : "NULL");
    return report(&e, e.status, message, bytes);
  }
  taskc_model *m = calloc(1, sizeof *m);
  if (!m) return report(&e, no_memory(&e, sizeof *m), message, bytes);
  atomic_init(&m->references, 1);
  atomic_fetch_add(&l->references, 1);
  m->library = l;
  taskc_status status = host ? host_model(m, &e) : cuda_model(m, ordinal, &e);
  if (status) model_release(m);
  else *out = m;
  return report(&e, status, message, bytes);
}

static void model_describe(const taskc_model *m, taskc_model_info *info) {
  static const char *const kinds[] = {"cubin", "ptx", "host"};
  *info = (taskc_model_info){.device = m->device_name,
                             .target = text_of(&m->library->payload, m->target->name),
                             .image = kinds[m->image_kind],
                             .ordinal = m->ordinal,
                             .capability = m->capability,
                             .weights_bytes = m->weights_bytes};
}

static taskc_status allocate(taskc_model *m, size_t size, void **data, char *message, size_t bytes) {
  error e = {0};
  uint64_t address = 0;
  taskc_status status = model_enter(m, &e);
  if (!status) {
    status = device_allocate(m, size, &address, &e);
    model_leave(m);
  }
  *data = (void *)(uintptr_t)address;
  return report(&e, status, message, bytes);
}

static void deallocate(taskc_model *m, void *data) {
  error e = {0};
  if (model_enter(m, &e)) return;
  device_free(m, (uint64_t)(uintptr_t)data);
  model_leave(m);
}

static taskc_status create_context(taskc_model *m, taskc_context **out, char *message, size_t bytes) {
  error e = {0};
  taskc_status status = context_create(m, out, &e);
  if (!status) atomic_fetch_add(&m->references, 1);
  return report(&e, status, message, bytes);
}

static void context_release(taskc_context *c) {
  taskc_model *m = c ? c->model : NULL;
  if (c) context_free(c);
  model_release(m);
}

static const char *context_message(const taskc_context *c) { return c->error.text; }

static void *context_stream(const taskc_context *c) { return c->stream; }

static taskc_status begin(taskc_context *c) {
  pthread_mutex_lock(&c->lock);
  c->error.status = TASKC_OK;
  c->error.text[0] = 0;
  taskc_status status = model_enter(c->model, &c->error);
  if (status) pthread_mutex_unlock(&c->lock);
  return status;
}

static taskc_status end(taskc_context *c, taskc_status status) {
  model_leave(c->model);
  if (!status) c->error.text[0] = 0;
  pthread_mutex_unlock(&c->lock);
  return status;
}

static taskc_status output_shapes(taskc_context *c, const taskc_tensor *inputs, taskc_tensor *outputs) {
  if (begin(c)) return c->error.status;
  taskc_status status = solve_shapes(c, inputs, &c->error);
  for (uint32_t i = 0; !status && i < c->model->library->payload.header->outputs.count; ++i) {
    outputs[i].dtype = c->outputs[i].dtype;
    outputs[i].rank = c->outputs[i].rank;
    memcpy(outputs[i].shape, c->outputs[i].shape, sizeof outputs[i].shape);
  }
  return end(c, status);
}

static taskc_status bind(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs) {
  return begin(c) ? c->error.status : end(c, context_bind(c, inputs, outputs, &c->error));
}

static taskc_status run(taskc_context *c, const taskc_tensor *inputs, const taskc_tensor *outputs,
                        const taskc_run_options *options) {
  return begin(c) ? c->error.status : end(c, context_run(c, inputs, outputs, options, &c->error));
}

static taskc_status synchronize(taskc_context *c) {
  return begin(c) ? c->error.status : end(c, context_wait(c, &c->error));
}

static taskc_status time_device(taskc_context *c, uint32_t count, float *us) {
  return begin(c) ? c->error.status : end(c, context_time(c, count, us, &c->error));
}

static taskc_status wait_stream(taskc_model *m, void *stream, char *message, size_t bytes) {
  error e = {0};
  if (m->on_host) return report(&e, TASKC_OK, message, bytes);
  taskc_status status = model_enter(m, &e);
  if (!status) {
    status = CU(&e, &m->driver, cuStreamSynchronize, stream);
    model_leave(m);
  }
  return report(&e, status, message, bytes);
}

static void statistics(const taskc_context *c, taskc_statistics *out) { *out = c->statistics; }

__attribute__((visibility("default"))) const taskc_api *taskc_get_api(uint32_t version) {
  static const taskc_api api = {
      TASKC_API_VERSION, sizeof api,      library_open,   library_release, library_describe, describe_symbol, describe_input,
      describe_output,   describe_target, describe_image, describe_kernel, describe_step,    model_create,    model_release,
      model_describe,    allocate,        deallocate,     create_context,  context_release,  context_message, context_stream,
      output_shapes,     bind,            run,            synchronize,     time_device,      statistics,
      wait_stream,
  };
  return version == TASKC_API_VERSION ? &api : NULL;
}
