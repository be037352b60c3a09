/* The plan at one value of the symbols: sizes, offsets and grids are computed once, addresses are filled in a run. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define VALUE_BYTES 128u /* of an argument; a tensor map needs them all */

static const char *const step_kinds[] = {"launch", "copy", "fill"};

static taskc_status in_step(taskc_context *c, uint32_t number, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_step *s = &p->steps[c->model->target->steps.first + number];
  return prefix(e, "%s %u '%s'", step_kinds[s->kind], number, text_of(p, s->name));
}

static int allocate_tables(taskc_context *c, binding *b) {
  const payload *p = &c->model->library->payload;
  const fmt_target *t = c->model->target;
  size_t args = 0, ports = (size_t)p->header->inputs.count + p->header->outputs.count + 2;
  for (uint32_t i = 0; i < t->steps.count; ++i) args += p->steps[t->steps.first + i].args.count;
  void *values = NULL;
  if (posix_memalign(&values, 64, (args + 1) * VALUE_BYTES)) return 0;
  memset(values, 0, (args + 1) * VALUE_BYTES);
  b->values = values;
  b->symbols = calloc((size_t)p->header->symbols.count + 1, sizeof *b->symbols);
  b->tensor_bytes = calloc((size_t)t->tensors.count + 1, sizeof *b->tensor_bytes);
  b->tensor_offset = calloc((size_t)t->tensors.count + 1, sizeof *b->tensor_offset);
  b->arg_offset = calloc(args + 1, sizeof *b->arg_offset);
  b->params = calloc(args + 1, sizeof *b->params);
  b->steps = calloc((size_t)t->steps.count + 1, sizeof *b->steps);
  b->nodes = calloc((size_t)t->steps.count + 1, sizeof *b->nodes);
  b->ports = calloc(ports, sizeof *b->ports);
  b->wanted = calloc(ports, sizeof *b->wanted);
  return b->symbols && b->tensor_bytes && b->tensor_offset && b->arg_offset && b->params && b->steps && b->nodes && b->ports &&
         b->wanted;
}

static taskc_status size_tensor(taskc_context *c, binding *b, uint32_t number, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_tensor *t = &p->tensors[c->model->target->tensors.first + number];
  const char *name = text_of(p, t->name);
  int64_t elements = 1, offset = 0;
  for (uint32_t d = 0; d < t->rank; ++d) {
    int64_t extent;
    if (evaluate(p, p->dims[t->first_dim + d].extent, b->symbols, &extent, e)) return prefix(e, "tensor '%s'", name);
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements) || elements >= (int64_t)1 << 31)
      return fail(e, TASKC_USAGE, "tensor '%s' would have 2^31 elements or more, or a negative dim, at these input shapes", name);
  }
  if (evaluate(p, t->offset, b->symbols, &offset, e)) return prefix(e, "tensor '%s'", name);
  uint64_t bytes = (uint64_t)elements * dtype_bytes(t->dtype), room = 0;
  switch (t->memory) {
    case FMT_MEMORY_KIND_INPUT: room = c->port_bytes[t->number]; break;
    case FMT_MEMORY_KIND_OUTPUT: room = c->port_bytes[p->header->inputs.count + t->number]; break;
    case FMT_MEMORY_KIND_ARENA: room = b->arena_bytes; break;
    default: room = p->header->weights_bytes; break;
  }
  if (offset < 0 || (uint64_t)offset > room || bytes > room - (uint64_t)offset)
    return fail(e, TASKC_BAD_LIBRARY, "tensor '%s' of %llu bytes at %lld lies outside its memory of %llu bytes", name,
                (unsigned long long)bytes, (long long)offset, (unsigned long long)room);
  b->tensor_bytes[number] = bytes;
  b->tensor_offset[number] = offset;
  return TASKC_OK;
}

static taskc_status size_arg(taskc_context *c, binding *b, const fmt_arg *a, int64_t *out, error *e) {
  const payload *p = &c->model->library->payload;
  int64_t value = 0, size = 0;
  if (evaluate(p, a->value, b->symbols, &value, e) || evaluate(p, a->size, b->symbols, &size, e)) return e->status;
  *out = value;
  switch (a->kind) {
    case FMT_ARG_KIND_TENSOR:
    case FMT_ARG_KIND_TENSOR_MAP:
      if (value < 0 || (uint64_t)value > b->tensor_bytes[a->tensor])
        return fail(e, TASKC_BAD_LIBRARY, "an argument points %lld bytes into a tensor of %llu", (long long)value,
                    (unsigned long long)b->tensor_bytes[a->tensor]);
      return TASKC_OK;
    case FMT_ARG_KIND_INT:
      if (a->bytes == 4 && (value < INT32_MIN || value > UINT32_MAX))
        return fail(e, TASKC_USAGE, "an argument of 32 bits would be %lld at these input shapes", (long long)value);
      return TASKC_OK;
    case FMT_ARG_KIND_SCRATCH:
      if (value < 0 || size < 0 || (uint64_t)value > b->arena_bytes || (uint64_t)size > b->arena_bytes - (uint64_t)value)
        return fail(e, TASKC_BAD_LIBRARY, "scratch memory of %lld bytes at %lld lies outside the arena", (long long)size,
                    (long long)value);
      return TASKC_OK;
    default:
      if (size < 0 || size > (int64_t)1 << 40) return fail(e, TASKC_BAD_LIBRARY, "counters of %lld bytes", (long long)size);
      *out = (int64_t)b->counter_bytes;
      b->counter_bytes += ((uint64_t)size + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
      return TASKC_OK;
  }
}

static taskc_status size_grid(taskc_context *c, binding *b, const fmt_step *s, step_state *state, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_kernel *k = &p->kernels[c->model->target->kernels.first + s->kernel];
  for (int d = 0; d < 3; ++d) {
    int64_t blocks;
    if (evaluate(p, s->grid[d], b->symbols, &blocks, e)) return e->status;
    if (blocks < 0 || blocks > (d ? 65535 : INT_MAX))
      return fail(e, TASKC_USAGE, "its grid would have %lld blocks in dim %d at these input shapes", (long long)blocks, d);
    if (blocks % k->cluster[d])
      return fail(e, TASKC_BAD_LIBRARY, "a grid of %lld blocks in dim %d for clusters of %u", (long long)blocks, d, k->cluster[d]);
    state->grid[d] = (uint32_t)blocks;
    if (!blocks) state->empty = 1;
  }
  return TASKC_OK;
}

static taskc_status size_bytes(taskc_context *c, binding *b, const fmt_step *s, step_state *state, error *e) {
  int64_t size;
  if (evaluate(&c->model->library->payload, s->size, b->symbols, &size, e)) return e->status;
  uint64_t room = b->tensor_bytes[s->target];
  if (s->kind == FMT_STEP_KIND_COPY && b->tensor_bytes[s->source] < room) room = b->tensor_bytes[s->source];
  if (size < 0 || (uint64_t)size > room)
    return fail(e, TASKC_BAD_LIBRARY, "%lld bytes of a tensor of %llu", (long long)size, (unsigned long long)room);
  state->bytes = (uint64_t)size;
  state->empty = !size;
  return TASKC_OK;
}

static taskc_status size_steps(taskc_context *c, binding *b, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_target *t = c->model->target;
  size_t arg = 0;
  for (uint32_t i = 0; i < t->steps.count; ++i) {
    const fmt_step *s = &p->steps[t->steps.first + i];
    step_state *state = &b->steps[i];
    state->params = b->params + arg;
    state->changed = 1;
    if (s->kind == FMT_STEP_KIND_LAUNCH ? size_grid(c, b, s, state, e) : size_bytes(c, b, s, state, e))
      return in_step(c, i, e);
    for (uint32_t a = 0; a < s->args.count; ++a, ++arg) {
      b->params[arg] = b->values + arg * VALUE_BYTES;
      if (size_arg(c, b, &p->args[s->args.first + a], &b->arg_offset[arg], e)) return in_step(c, i, e);
    }
  }
  return TASKC_OK;
}

taskc_status binding_create(taskc_context *c, binding *b, error *e) {
  const payload *p = &c->model->library->payload;
  memset(b, 0, sizeof *b);
  if (!allocate_tables(c, b)) {
    no_memory(e, p->header->head_bytes);
    goto failed;
  }
  b->used = 1;
  memcpy(b->symbols, c->symbols, p->header->symbols.count * sizeof *b->symbols);
  int64_t arena;
  if (evaluate(p, c->model->target->arena, b->symbols, &arena, e)) goto failed;
  if (arena < 0) {
    fail(e, TASKC_BAD_LIBRARY, "an arena of %lld bytes", (long long)arena);
    goto failed;
  }
  b->arena_bytes = (uint64_t)arena;
  for (uint32_t i = 0; i < c->model->target->tensors.count; ++i)
    if (size_tensor(c, b, i, e)) goto failed;
  if (size_steps(c, b, e)) goto failed;
  return TASKC_OK;
failed:
  binding_free(c, b);
  return e->status;
}

void binding_free(taskc_context *c, binding *b) {
  if (b->exec) c->model->driver.cuGraphExecDestroy(b->exec);
  if (b->graph) c->model->driver.cuGraphDestroy(b->graph);
  void *const tables[] = {b->symbols, b->tensor_bytes, b->tensor_offset, b->arg_offset, b->values,
                          b->params,  b->steps,        b->nodes,         b->ports,      b->wanted};
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; ++i) free(tables[i]);
  memset(b, 0, sizeof *b);
}

/* ---- addresses ---- */

static uint64_t tensor_address(taskc_context *c, const binding *b, uint32_t number) {
  const payload *p = &c->model->library->payload;
  const fmt_tensor *t = &p->tensors[c->model->target->tensors.first + number];
  uint32_t inputs = p->header->inputs.count, outputs = p->header->outputs.count;
  uint64_t offset = (uint64_t)b->tensor_offset[number];
  switch (t->memory) {
    case FMT_MEMORY_KIND_INPUT: return b->wanted[t->number] + offset;
    case FMT_MEMORY_KIND_OUTPUT: return b->wanted[inputs + t->number] + offset;
    case FMT_MEMORY_KIND_ARENA: return b->wanted[inputs + outputs] + offset;
    default: return c->model->weights + (offset - c->model->weights_low);
  }
}

static int map_dtype(uint32_t dtype) {
  switch (dtype) {
    case FMT_DTYPE_CODE_F16: return CU_MAP_FLOAT16;
    case FMT_DTYPE_CODE_BF16: return CU_MAP_BFLOAT16;
    case FMT_DTYPE_CODE_F32: return CU_MAP_FLOAT32;
    case FMT_DTYPE_CODE_F64: return CU_MAP_FLOAT64;
    case FMT_DTYPE_CODE_I32: return CU_MAP_INT32;
    case FMT_DTYPE_CODE_I64: return CU_MAP_INT64;
    default: break;
  }
  switch (dtype_bytes(dtype)) {
    case 1: return CU_MAP_UINT8;
    case 2: return CU_MAP_UINT16;
    case 4: return CU_MAP_UINT32;
    default: return CU_MAP_UINT64;
  }
}

/* What a `host` kernel gets in place of the GPU's opaque tensor map. */
typedef struct host_map {
  uint64_t address, sizes[5], strides[4];
  uint32_t box[5], rank, element_bytes, swizzle_bytes;
} host_map;
_Static_assert(sizeof(host_map) <= VALUE_BYTES, "a tensor map has 128 bytes");

static taskc_status encode_map(taskc_context *c, const binding *b, const fmt_arg *a, uint64_t address, unsigned char *value,
                               error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_map *m = &p->maps[a->map];
  uint32_t dtype = p->tensors[c->model->target->tensors.first + a->tensor].dtype, ones[5] = {1, 1, 1, 1, 1};
  host_map map = {.address = address, .rank = m->rank, .element_bytes = dtype_bytes(dtype), .swizzle_bytes = m->swizzle_bytes};
  for (uint32_t d = 0; d < m->rank; ++d) {
    int64_t size, stride = 0;
    if (evaluate(p, m->sizes[d], b->symbols, &size, e)) return e->status;
    if (d + 1 < m->rank && evaluate(p, m->strides[d], b->symbols, &stride, e)) return e->status;
    if (size < 1 || stride < 0) return fail(e, TASKC_USAGE, "a tensor map of size %lld in dim %u", (long long)size, d);
    map.sizes[d] = (uint64_t)size;
    map.box[d] = m->box[d];
    if (d < 4) map.strides[d] = (uint64_t)stride;
  }
  if (c->model->on_host) {
    memcpy(value, &map, sizeof map);
    return TASKC_OK;
  }
  int swizzle = m->swizzle_bytes == 32 ? 1 : m->swizzle_bytes == 64 ? 2 : m->swizzle_bytes == 128 ? 3 : 0;
  return CU(e, &c->model->driver, cuTensorMapEncodeTiled, value, map_dtype(dtype), m->rank, (void *)(uintptr_t)address, map.sizes,
            map.strides, map.box, ones, 0, swizzle, CU_MAP_L2_256B, 0);
}

static taskc_status place_arg(taskc_context *c, binding *b, const fmt_arg *a, size_t number, int *changed, error *e) {
  const fmt_header *h = c->model->library->payload.header;
  const uint64_t *context_memory = b->wanted + h->inputs.count + h->outputs.count;
  unsigned char old[VALUE_BYTES], *value = b->values + number * VALUE_BYTES;
  memcpy(old, value, sizeof old);
  uint64_t offset = (uint64_t)b->arg_offset[number], word = offset;
  switch (a->kind) {
    case FMT_ARG_KIND_TENSOR: word += tensor_address(c, b, a->tensor); break;
    case FMT_ARG_KIND_SCRATCH: word += context_memory[0]; break;
    case FMT_ARG_KIND_COUNTER: word += context_memory[1]; break;
    case FMT_ARG_KIND_TENSOR_MAP:
      if (encode_map(c, b, a, tensor_address(c, b, a->tensor), value, e)) return e->status;
      break;
    default: break;
  }
  if (a->kind != FMT_ARG_KIND_TENSOR_MAP) memcpy(value, &word, sizeof word);
  if (memcmp(old, value, sizeof old) != 0) *changed = 1;
  return TASKC_OK;
}

taskc_status binding_place(taskc_context *c, binding *b, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_target *t = c->model->target;
  size_t arg = 0, ports = (size_t)p->header->inputs.count + p->header->outputs.count + 2;
  b->placed = 0;
  for (uint32_t i = 0; i < t->steps.count; ++i) {
    const fmt_step *s = &p->steps[t->steps.first + i];
    step_state *state = &b->steps[i];
    if (s->kind != FMT_STEP_KIND_LAUNCH && !state->empty) {
      uint64_t source = s->kind == FMT_STEP_KIND_COPY ? tensor_address(c, b, s->source) : 0;
      uint64_t target = tensor_address(c, b, s->target);
      if (source != state->source || target != state->target) state->changed = 1;
      state->source = source;
      state->target = target;
    }
    for (uint32_t a = 0; a < s->args.count; ++a, ++arg) {
      if (state->empty) continue;
      if (place_arg(c, b, &p->args[s->args.first + a], arg, &state->changed, e)) return in_step(c, i, e);
    }
  }
  memcpy(b->ports, b->wanted, ports * sizeof *b->ports);
  b->placed = 1;
  return TASKC_OK;
}
