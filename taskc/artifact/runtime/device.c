/* The shared state of a GPU: the primary context, modules, kernels, weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

taskc_status model_enter(taskc_model *m, error *e) {
  return m->on_host ? TASKC_OK : CU(e, &m->driver, cuCtxPushCurrent, m->context);
}

void model_leave(taskc_model *m) {
  cu_context left = NULL;
  if (!m->on_host) m->driver.cuCtxPopCurrent(&left);
}

taskc_status device_allocate(taskc_model *m, uint64_t bytes, uint64_t *address, error *e) {
  if (m->on_host) {
    void *memory = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, MEMORY_ALIGN, bytes ? bytes : 1)) return no_memory(e, bytes);
    *address = (uint64_t)(uintptr_t)memory;
    return TASKC_OK;
  }
  cu_pointer pointer = 0;
  if (CU(e, &m->driver, cuMemAlloc, &pointer, bytes ? bytes : 1))
    return prefix(e, "%llu bytes on GPU %d (%s)", (unsigned long long)bytes, m->ordinal, m->device_name);
  *address = pointer;
  return TASKC_OK;
}

void device_free(taskc_model *m, uint64_t address) {
  if (!address) return;
  if (m->on_host) free((void *)(uintptr_t)address);
  else m->driver.cuMemFree(address);
}

/* Bytes of a tensor of fixed shape; the rest of the weights when the shape is symbolic or overflows. */
static uint64_t fixed_bytes(const payload *p, const fmt_tensor *t, uint64_t rest) {
  uint64_t bytes = dtype_bytes(t->dtype);
  for (uint32_t d = 0; d < t->rank; ++d) {
    fmt_index_ref extent = p->dims[t->first_dim + d].extent;
    if (extent.length || extent.value < 0 || __builtin_mul_overflow(bytes, (uint64_t)extent.value, &bytes)) return rest;
  }
  return bytes < rest ? bytes : rest;
}

void weights_range(const payload *p, const fmt_target *t, uint64_t *low, uint64_t *high) {
  uint64_t end = p->header->weights_bytes;
  *low = end;
  *high = 0;
  for (uint32_t i = 0; i < t->tensors.count; ++i) {
    const fmt_tensor *x = &p->tensors[t->tensors.first + i];
    if (x->memory != FMT_MEMORY_KIND_WEIGHT) continue;
    uint64_t at = x->offset.length || x->offset.value < 0 ? 0 : (uint64_t)x->offset.value;
    if (at > end) at = end;
    uint64_t top = x->offset.length ? end : at + fixed_bytes(p, x, end - at);
    at = at / MEMORY_ALIGN * MEMORY_ALIGN;
    *low = at < *low ? at : *low;
    *high = top > *high ? top : *high;
  }
  if (*high < *low) *high = *low;
}

static taskc_status find_device(taskc_model *m, int ordinal, error *e) {
  cu_driver *d = &m->driver;
  int count = 0, major = 0, minor = 0;
  if (CU(e, d, cuDeviceGetCount, &count)) return e->status;
  if (count == 0)
    return fail(e, TASKC_NO_DEVICE, "the CUDA driver sees no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES");
  if (ordinal >= count)
    return fail(e, TASKC_NO_DEVICE, "device 'cuda:%d': the CUDA driver sees %d GPU%s, numbered from 0", ordinal, count,
                count == 1 ? "" : "s");
  m->ordinal = ordinal;
  if (CU(e, d, cuDeviceGet, &m->device, ordinal) ||
      CU(e, d, cuDeviceGetName, m->device_name, (int)sizeof m->device_name, m->device) ||
      CU(e, d, cuDeviceGetAttribute, &major, CU_DEVICE_CAPABILITY_MAJOR, m->device) ||
      CU(e, d, cuDeviceGetAttribute, &minor, CU_DEVICE_CAPABILITY_MINOR, m->device))
    return e->status;
  m->capability = major * 10 + minor;
  return TASKC_OK;
}

static taskc_status load_image(taskc_model *m, const fmt_image *image, error *e) {
  const payload *p = &m->library->payload;
  char log[1024] = "";
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BYTES};
  void *values[] = {log, (void *)(uintptr_t)sizeof log};
  cu_result result =
      m->driver.cuModuleLoadDataEx(&m->modules[m->module_count], p->base + image->offset, 2, options, values);
  if (driver_check(&m->driver, result, "cuModuleLoadDataEx", e)) {
    if (result == CU_NO_BINARY_FOR_GPU || result == CU_UNSUPPORTED_PTX) e->status = TASKC_NO_DEVICE;
    prefix(e, "code for %s on GPU %d (%s)", text_of(p, image->arch), m->ordinal, m->device_name);
    log[sizeof log - 1] = 0;
    size_t used = strlen(e->text);
    if (log[0] && used < sizeof e->text) snprintf(e->text + used, sizeof e->text - used, "\n%s", log);
    return e->status;
  }
  ++m->module_count;
  return TASKC_OK;
}

static taskc_status load_kernel(taskc_model *m, uint32_t number, error *e) {
  const payload *p = &m->library->payload;
  const fmt_kernel *k = &p->kernels[m->target->kernels.first + number];
  const char *name = text_of(p, k->symbol);
  cu_function *f = &m->functions[number];
  cu_result result = CU_NOT_FOUND;
  /* Where each kernel has an image of its own they are in the same order: a first look that misses is an error to tools. */
  for (uint32_t i = 0; i < m->module_count && result == CU_NOT_FOUND; ++i)
    result = m->driver.cuModuleGetFunction(f, m->modules[(number + i) % m->module_count], name);
  if (driver_check(&m->driver, result, "cuModuleGetFunction", e)) return prefix(e, "kernel '%s'", name);
  if (k->shared_bytes > 48 * 1024 &&
      CU(e, &m->driver, cuFuncSetAttribute, *f, CU_FUNCTION_MAX_DYNAMIC_SHARED, (int)k->shared_bytes))
    return prefix(e, "kernel '%s', %u bytes of shared memory", name, k->shared_bytes);
  /* One division of the multiprocessors' memory for all kernels: one that wants another must wait until they are empty, and
   * cannot start early. */
  if (CU(e, &m->driver, cuFuncSetAttribute, *f, CU_FUNCTION_SHARED_CARVEOUT, CU_CARVEOUT_MOST_SHARED))
    return prefix(e, "kernel '%s', most of a multiprocessor's memory as shared memory", name);
  if (k->cluster[0] * k->cluster[1] * k->cluster[2] > 8 &&
      CU(e, &m->driver, cuFuncSetAttribute, *f, CU_FUNCTION_NON_PORTABLE_CLUSTER, 1))
    return prefix(e, "kernel '%s', clusters of %ux%ux%u", name, k->cluster[0], k->cluster[1], k->cluster[2]);
  return TASKC_OK;
}

static taskc_status load_weights(taskc_model *m, error *e) {
  const payload *p = &m->library->payload;
  uint64_t high;
  weights_range(p, m->target, &m->weights_low, &high);
  m->weights_bytes = high - m->weights_low;
  if (!m->weights_bytes) return TASKC_OK;
  if (device_allocate(m, m->weights_bytes, &m->weights, e)) return prefix(e, "the model's weights");
  const unsigned char *source = p->base + p->header->weights_offset + m->weights_low;
  return CU(e, &m->driver, cuMemcpyHtoD, m->weights, source, m->weights_bytes);
}

static taskc_status load_code(taskc_model *m, error *e) {
  const payload *p = &m->library->payload;
  const fmt_target *t = m->target;
  m->modules = calloc(t->images.count + 1, sizeof *m->modules);
  m->functions = calloc(t->kernels.count + 1, sizeof *m->functions);
  if (!m->modules || !m->functions) return no_memory(e, t->kernels.count * sizeof *m->functions);
  int best = 0; /* one arch of the chosen kind may come in several images, one for some of the kernels each */
  for (uint32_t i = 0; i < t->images.count; ++i) {
    const fmt_image *image = &p->images[t->images.first + i];
    int fit = (int)image->kind == m->image_kind ? image_fits(p, image, m->capability) : 0;
    best = fit > best ? fit : best;
  }
  for (uint32_t i = 0; i < t->images.count; ++i) {
    const fmt_image *image = &p->images[t->images.first + i];
    if ((int)image->kind != m->image_kind || image_fits(p, image, m->capability) != best) continue;
    if (load_image(m, image, e)) return e->status;
  }
  for (uint32_t i = 0; i < t->kernels.count; ++i)
    if (load_kernel(m, i, e)) return e->status;
  return TASKC_OK;
}

taskc_status cuda_model(taskc_model *m, int ordinal, error *e) {
  if (driver_open(&m->driver, e) || find_device(m, ordinal, e)) return e->status;
  char device[192];
  snprintf(device, sizeof device, "GPU %d (%s)", ordinal, m->device_name);
  if (choose_target(&m->library->payload, m->capability, device, &m->target, &m->image_kind, e)) return e->status;
  if (CU(e, &m->driver, cuDevicePrimaryCtxRetain, &m->context, m->device)) return prefix(e, "%s", device);
  if (model_enter(m, e)) return e->status;
  taskc_status status = load_code(m, e);
  if (!status) status = load_weights(m, e);
  model_leave(m);
  return status;
}

void cuda_model_free(taskc_model *m) {
  error ignored;
  if (m->context && !model_enter(m, &ignored)) {
    device_free(m, m->weights);
    for (uint32_t i = 0; i < m->module_count; ++i) m->driver.cuModuleUnload(m->modules[i]);
    model_leave(m);
  }
  if (m->context) m->driver.cuDevicePrimaryCtxRelease(m->device);
  free(m->modules);
  free(m->functions);
}
