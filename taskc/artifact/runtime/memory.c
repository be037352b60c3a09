/* A context's working memory, and the way of the caller's tensors in and out of the device. */
#include <string.h>

#include "runtime.h"

static void *at(uint64_t address) { return (void *)(uintptr_t)address; }

/* Grows a buffer of device memory; the old contents are lost. */
taskc_status reserve(taskc_context *c, buffer *b, uint64_t bytes, error *e) {
  if (b->bytes >= bytes) return TASKC_OK;
  if (context_wait(c, e)) return e->status; /* a run may still use it */
  device_free(c->model, b->address);
  b->address = b->bytes = 0;
  if (device_allocate(c->model, bytes, &b->address, e)) return e->status;
  b->bytes = bytes;
  return TASKC_OK;
}

static taskc_status reserve_pinned(taskc_context *c, buffer *b, uint64_t bytes, error *e) {
  if (b->bytes >= bytes) return TASKC_OK;
  void *memory = NULL;
  if (context_wait(c, e)) return e->status;
  if (b->address) c->model->driver.cuMemFreeHost(at(b->address));
  b->address = b->bytes = 0;
  if (CU(e, &c->model->driver, cuMemAllocHost, &memory, bytes)) return prefix(e, "%llu bytes of staging", (unsigned long long)bytes);
  *b = (buffer){(uint64_t)(uintptr_t)memory, bytes};
  return TASKC_OK;
}

void memory_free(taskc_context *c) {
  const fmt_header *h = c->model->library->payload.header;
  for (uint32_t i = 0; i < h->inputs.count + h->outputs.count; ++i) {
    if (c->staging) device_free(c->model, c->staging[i].address);
    if (c->pinned && c->pinned[i].address) c->model->driver.cuMemFreeHost(at(c->pinned[i].address));
  }
  device_free(c->model, c->arena.address);
  device_free(c->model, c->counters.address);
}

static int aligned(const taskc_tensor *t) { return (uintptr_t)t->data % DATA_ALIGN == 0; }

/* Whether kernels see the caller's memory itself. */
static int used_in_place(const taskc_context *c, const taskc_tensor *t) {
  return aligned(t) && (c->model->on_host || t->memory == TASKC_DEVICE_MEMORY);
}

/* A pointer the GPU cannot follow would end the CUDA context for everyone in the process. */
static taskc_status check_pointer(taskc_context *c, const taskc_tensor *t, const char *what, const char *name, error *e) {
  const cu_driver *d = &c->model->driver;
  cu_pointer pointer = (cu_pointer)(uintptr_t)t->data;
  unsigned type = 0, managed = 0;
  int ordinal = -1;
  if (d->cuPointerGetAttribute(&type, CU_POINTER_MEMORY_TYPE, pointer))
    return fail(e, TASKC_USAGE, "%s '%s': %p is not memory of a GPU", what, name, t->data);
  if (d->cuPointerGetAttribute(&managed, CU_POINTER_IS_MANAGED, pointer)) managed = 0;
  if (type != CU_MEMORY_DEVICE && !managed)
    return fail(e, TASKC_USAGE, "%s '%s': %p is host memory, given as GPU memory", what, name, t->data);
  if (managed || d->cuPointerGetAttribute(&ordinal, CU_POINTER_DEVICE_ORDINAL, pointer) || ordinal == c->model->ordinal)
    return TASKC_OK;
  return fail(e, TASKC_USAGE, "%s '%s': %p is memory of GPU %d, the model is on GPU %d", what, name, t->data, ordinal,
              c->model->ordinal);
}

taskc_status port_address(taskc_context *c, uint32_t port, const taskc_tensor *t, uint64_t *address, error *e) {
  const payload *p = &c->model->library->payload;
  uint32_t inputs = p->header->inputs.count;
  const char *what = port < inputs ? "input" : "output";
  const char *name = text_of(p, port < inputs ? p->inputs[port].name : p->outputs[port - inputs].name);
  uint64_t bytes = c->port_bytes[port];
  *address = 0;
  if (!bytes) return TASKC_OK;
  if (!t->data) return fail(e, TASKC_USAGE, "%s '%s': its data is NULL", what, name);
  int known = c->last && c->last->placed && c->last->ports[port] == (uint64_t)(uintptr_t)t->data;
  if (!c->model->on_host && t->memory == TASKC_DEVICE_MEMORY && !known && check_pointer(c, t, what, name, e)) return e->status;
  if (used_in_place(c, t)) {
    *address = (uint64_t)(uintptr_t)t->data;
    return TASKC_OK;
  }
  if (reserve(c, &c->staging[port], bytes, e)) return e->status;
  *address = c->staging[port].address;
  if (c->model->on_host || t->memory == TASKC_DEVICE_MEMORY) return TASKC_OK;
  return reserve_pinned(c, &c->pinned[port], bytes, e);
}

taskc_status check_overlap(taskc_context *c, const uint64_t *address, error *e) {
  const payload *p = &c->model->library->payload;
  uint32_t inputs = p->header->inputs.count, all = inputs + p->header->outputs.count;
  for (uint32_t o = inputs; o < all; ++o)
    for (uint32_t i = 0; i < all; ++i) {
      if (i == o || !c->port_bytes[i] || !c->port_bytes[o]) continue;
      if (address[i] >= address[o] + c->port_bytes[o] || address[o] >= address[i] + c->port_bytes[i]) continue;
      return fail(e, TASKC_USAGE, "output '%s' shares memory with %s '%s'; give it memory of its own",
                  text_of(p, p->outputs[o - inputs].name), i < inputs ? "input" : "output",
                  text_of(p, i < inputs ? p->inputs[i].name : p->outputs[i - inputs].name));
    }
  return TASKC_OK;
}

taskc_status copy_in(taskc_context *c, const taskc_tensor *inputs, cu_stream stream, error *e) {
  const cu_driver *d = &c->model->driver;
  for (uint32_t i = 0; i < c->model->library->payload.header->inputs.count; ++i) {
    const taskc_tensor *t = &inputs[i];
    uint64_t bytes = c->port_bytes[i], staging = c->staging[i].address;
    if (!bytes || used_in_place(c, t)) continue;
    if (c->model->on_host) {
      memcpy(at(staging), t->data, bytes);
    } else if (t->memory == TASKC_DEVICE_MEMORY) {
      if (CU(e, d, cuMemcpyDtoDAsync, staging, (cu_pointer)(uintptr_t)t->data, bytes, stream)) return e->status;
    } else {
      if (context_wait(c, e)) return e->status; /* the last run may still read the page-locked memory */
      memcpy(at(c->pinned[i].address), t->data, bytes);
      if (CU(e, d, cuMemcpyHtoDAsync, staging, at(c->pinned[i].address), bytes, stream)) return e->status;
    }
  }
  return TASKC_OK;
}

/* Starts the copies out of staging; `host` tells whether some go to host memory and end in `copy_to_host`. */
taskc_status copy_out(taskc_context *c, const taskc_tensor *outputs, cu_stream stream, int *host, error *e) {
  const cu_driver *d = &c->model->driver;
  const fmt_header *h = c->model->library->payload.header;
  *host = 0;
  for (uint32_t i = 0; i < h->outputs.count; ++i) {
    const taskc_tensor *t = &outputs[i];
    uint32_t port = h->inputs.count + i;
    uint64_t bytes = c->port_bytes[port], staging = c->staging[port].address;
    if (!c->model->on_host && t->memory == TASKC_HOST_MEMORY) *host = 1;
    if (!bytes || used_in_place(c, t)) continue;
    if (c->model->on_host) {
      memcpy(t->data, at(staging), bytes);
    } else if (t->memory == TASKC_DEVICE_MEMORY) {
      if (CU(e, d, cuMemcpyDtoDAsync, (cu_pointer)(uintptr_t)t->data, staging, bytes, stream)) return e->status;
    } else if (CU(e, d, cuMemcpyDtoHAsync, at(c->pinned[port].address), staging, bytes, stream)) {
      return e->status;
    }
  }
  return TASKC_OK;
}

void copy_to_host(taskc_context *c, const taskc_tensor *outputs) {
  const fmt_header *h = c->model->library->payload.header;
  for (uint32_t i = 0; i < h->outputs.count; ++i) {
    uint32_t port = h->inputs.count + i;
    if (outputs[i].memory == TASKC_HOST_MEMORY && c->port_bytes[port])
      memcpy(outputs[i].data, at(c->pinned[port].address), c->port_bytes[port]);
  }
}

static taskc_status fill(taskc_context *c, uint64_t address, int byte, uint64_t bytes, cu_stream stream, error *e) {
  if (!bytes) return TASKC_OK;
  if (!c->model->on_host) return CU(e, &c->model->driver, cuMemsetD8Async, address, (unsigned char)byte, bytes, stream);
  memset(at(address), byte, bytes);
  return TASKC_OK;
}

/* Counters are zero before the first run and after an error. On `host` the arena starts as NaN (0xFF bytes) in every run:
 * a kernel that reads what nobody wrote shows. */
taskc_status clear_memory(taskc_context *c, const binding *b, cu_stream stream, error *e) {
  const fmt_header *h = c->model->library->payload.header;
  if (c->dirty && fill(c, c->counters.address, 0, c->counters.bytes, stream, e)) return e->status;
  if ((c->model->on_host || c->poison) && fill(c, c->arena.address, 0xFF, b->arena_bytes, stream, e)) return e->status;
  for (uint32_t i = h->inputs.count; c->poison && i < h->inputs.count + h->outputs.count; ++i)
    if (fill(c, b->wanted[i], 0xFF, c->port_bytes[i], stream, e)) return e->status;
  return TASKC_OK;
}
