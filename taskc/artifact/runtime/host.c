/* The `host` device: kernels in a shared object that is part of the payload, run step by step by the calling thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "compat.h"
#include "runtime.h"

static int write_all(int file, const unsigned char *data, uint64_t bytes) {
  while (bytes) {
    ssize_t n = write(file, data, bytes > 1u << 30 ? 1u << 30 : bytes);
    if (n <= 0) return 0;
    data += n;
    bytes -= (uint64_t)n;
  }
  return 1;
}

/* The path of an open file, spelled as never before: dlopen takes an object of the same name for the same object, whatever
 * the file holds by now, and numbers of files come back. "/" and "/." mean the same folder and spell the bits of the time. */
static void unique_path(int file, char *path, size_t bytes) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t bits = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  size_t used = (size_t)snprintf(path, bytes, "/proc/self/fd");
  for (int i = 0; i < 56; ++i) used += (size_t)snprintf(path + used, bytes - used, bits >> i & 1 ? "/." : "/");
  snprintf(path + used, bytes - used, "/%d", file);
}

/* dlopen wants a file: an anonymous one, or a temporary one where that is not allowed. */
static void *open_image(const unsigned char *data, uint64_t bytes, error *e) {
  char path[256] = "/tmp/taskc-host-XXXXXX";
  int file = memfd_create("taskc-host", MFD_CLOEXEC), temporary = file < 0;
  if (temporary) file = mkstemp(path);
  else unique_path(file, path, sizeof path);
  if (file < 0) {
    fail(e, TASKC_FAILED, "no memory file and no file in /tmp for the host kernels");
    return NULL;
  }
  void *so = NULL;
  if (!write_all(file, data, bytes)) fail(e, TASKC_FAILED, "%llu bytes of host kernels cannot be written", (unsigned long long)bytes);
  else if (!(so = dlopen(path, RTLD_NOW | RTLD_LOCAL))) {
    const char *why = dlerror();
    fail(e, TASKC_BAD_LIBRARY, "the host kernels do not load: %s", why ? why : "unknown reason");
  }
  if (temporary) unlink(path);
  close(file);
  return so;
}

static taskc_status find_entry(taskc_model *m, uint32_t number, error *e) {
  const payload *p = &m->library->payload;
  char name[512];
  snprintf(name, sizeof name, "taskc_launch_%s", text_of(p, p->kernels[m->target->kernels.first + number].symbol));
  void *symbol = dlsym(m->host_image, name);
  if (!symbol) return fail(e, TASKC_BAD_LIBRARY, "the host kernels lack '%s'", name);
  memcpy(&m->entries[number], &symbol, sizeof symbol);
  return TASKC_OK;
}

taskc_status host_model(taskc_model *m, error *e) {
  const payload *p = &m->library->payload;
  const fmt_image *image = NULL;
  for (uint32_t t = 0; t < p->header->targets.count && !image; ++t)
    for (uint32_t i = 0; i < p->targets[t].images.count && !image; ++i)
      if (p->images[p->targets[t].images.first + i].kind == FMT_IMAGE_KIND_HOST) {
        image = &p->images[p->targets[t].images.first + i];
        m->target = &p->targets[t];
      }
  if (!image) return fail(e, TASKC_NO_DEVICE, "the library holds no code for device 'host'; compile with --target host");
  m->on_host = 1;
  m->ordinal = -1;
  m->image_kind = FMT_IMAGE_KIND_HOST;
  snprintf(m->device_name, sizeof m->device_name, "host");
  m->host_image = open_image(p->base + image->offset, image->bytes, e);
  if (!m->host_image) return e->status;
  m->entries = calloc((size_t)m->target->kernels.count + 1, sizeof *m->entries);
  if (!m->entries) return no_memory(e, m->target->kernels.count * sizeof *m->entries);
  for (uint32_t i = 0; i < m->target->kernels.count; ++i)
    if (find_entry(m, i, e)) return e->status;
  void *symbol = dlsym(m->host_image, "taskc_host_error");
  memcpy(&m->host_error, &symbol, sizeof symbol);
  uint64_t high;
  weights_range(p, m->target, &m->weights_low, &high);
  m->weights_bytes = high - m->weights_low;
  m->weights = (uint64_t)(uintptr_t)(p->base + p->header->weights_offset + m->weights_low); /* used in the mapped file */
  return TASKC_OK;
}

void host_model_free(taskc_model *m) {
  if (m->host_image) dlclose(m->host_image);
  free(m->entries);
}

static void *at(uint64_t address) { return (void *)(uintptr_t)address; }

static taskc_status run_step(taskc_context *c, binding *b, uint32_t number, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_target *t = c->model->target;
  const fmt_step *s = &p->steps[t->steps.first + number];
  const step_state *state = &b->steps[number];
  if (state->empty) return TASKC_OK;
  if (s->kind == FMT_STEP_KIND_COPY) memmove(at(state->target), at(state->source), state->bytes);
  if (s->kind == FMT_STEP_KIND_FILL) memset(at(state->target), (int)s->byte, state->bytes);
  if (s->kind != FMT_STEP_KIND_LAUNCH) return TASKC_OK;
  const fmt_kernel *k = &p->kernels[t->kernels.first + s->kernel];
  host_launch launch = {.threads = (int)k->threads,
                        .shared_bytes = (int)k->shared_bytes,
                        .cooperative = (k->flags & FMT_KERNEL_FLAG_COOPERATIVE) != 0};
  for (int d = 0; d < 3; ++d) {
    launch.grid[d] = (int)state->grid[d];
    launch.cluster[d] = (int)k->cluster[d];
  }
  if (c->model->entries[s->kernel](state->params, &launch) == 0) return TASKC_OK;
  const char *why = c->model->host_error ? c->model->host_error() : NULL;
  return fail(e, TASKC_FAILED, "launch %u '%s' (kernel '%s') failed: %s", number, text_of(p, s->name), text_of(p, k->symbol),
              why && why[0] ? why : "no message");
}

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int ready(const payload *p, const fmt_step *s, const unsigned char *done) {
  for (uint32_t i = 0; i < s->after.count; ++i)
    if (!done[p->edges[s->after.first + i].step]) return 0;
  return 1;
}

/* Another order that the edges allow: what depends on it lacks an edge. */
static taskc_status run_shuffled(taskc_context *c, binding *b, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_target *t = c->model->target;
  uint32_t count = t->steps.count;
  uint64_t random = c->host_order;
  unsigned char *done = calloc((size_t)count + 1, 1);
  if (!done) return no_memory(e, count);
  taskc_status status = TASKC_OK;
  for (uint32_t left = count; left && !status; --left) {
    uint32_t chosen = 0, candidates = 0;
    for (uint32_t i = 0; i < count; ++i)
      if (!done[i] && ready(p, &p->steps[t->steps.first + i], done) && next_random(&random) % ++candidates == 0) chosen = i;
    done[chosen] = 1;
    status = run_step(c, b, chosen, e);
  }
  free(done);
  return status;
}

taskc_status host_run(taskc_context *c, binding *b, error *e) {
  if (c->host_order) return run_shuffled(c, b, e);
  for (uint32_t i = 0; i < c->model->target->steps.count; ++i)
    if (run_step(c, b, i, e)) return e->status;
  return TASKC_OK;
}
