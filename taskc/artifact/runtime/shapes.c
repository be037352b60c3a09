/* Inputs' shapes -> values of the symbols -> outputs' shapes, with every dim checked. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

typedef struct shape_text {
  char text[512];
} shape_text;

static void append(shape_text *s, const char *piece) {
  size_t used = strlen(s->text);
  if (used < sizeof s->text) snprintf(s->text + used, sizeof s->text - used, "%s", piece);
}

static shape_text given_shape(const taskc_tensor *t) {
  shape_text s = {"["};
  for (uint32_t d = 0; d < t->rank && d < TASKC_MAX_RANK; ++d) {
    char one[32];
    snprintf(one, sizeof one, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    append(&s, one);
  }
  append(&s, "]");
  return s;
}

static shape_text wanted_shape(const payload *p, const fmt_port *port) {
  shape_text s = {"["};
  for (uint32_t d = 0; d < port->rank; ++d) {
    const fmt_dim *dim = &p->dims[port->first_dim + d];
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)dim->extent.value);
    if (d) append(&s, ", ");
    append(&s, !dim->extent.length ? number : dim->name.bytes ? text_of(p, dim->name) : "?");
  }
  append(&s, "]");
  return s;
}

static taskc_status mismatch(const payload *p, const fmt_port *port, const taskc_tensor *t, const char *what, const char *why,
                             error *e) {
  shape_text given = given_shape(t), wanted = wanted_shape(p, port);
  return fail(e, TASKC_USAGE, "%s '%s': given %s%s, wanted %s%s%s%s", what, text_of(p, port->name), dtype_name(t->dtype),
              given.text, dtype_name(port->dtype), wanted.text, why[0] ? ": " : "", why);
}

static taskc_status check_kind(taskc_context *c, const fmt_port *port, const taskc_tensor *t, const char *what, error *e) {
  const payload *p = &c->model->library->payload;
  if (t->rank > TASKC_MAX_RANK)
    return fail(e, TASKC_USAGE, "%s '%s': rank %u is above %d", what, text_of(p, port->name), t->rank, TASKC_MAX_RANK);
  if (t->dtype != port->dtype || t->rank != port->rank) return mismatch(p, port, t, what, "", e);
  if (t->memory > TASKC_DEVICE_MEMORY)
    return fail(e, TASKC_USAGE, "%s '%s': memory kind %u is neither host nor device", what, text_of(p, port->name), t->memory);
  if (c->model->on_host && t->memory == TASKC_DEVICE_MEMORY)
    return fail(e, TASKC_USAGE, "%s '%s' is GPU memory, but the model runs on device 'host'", what, text_of(p, port->name));
  return TASKC_OK;
}

static taskc_status solve_symbols(taskc_context *c, const taskc_tensor *inputs, error *e) {
  const payload *p = &c->model->library->payload;
  for (uint32_t i = 0; i < p->header->symbols.count; ++i) {
    const fmt_symbol *s = &p->symbols[i];
    const fmt_port *port = &p->inputs[s->input];
    int64_t value = inputs[s->input].shape[s->axis];
    const char *name = text_of(p, p->dims[port->first_dim + s->axis].name); /* the user's, where there is one */
    if (!*name) name = text_of(p, s->name);
    char why[256] = "";
    if (value < s->low)
      snprintf(why, sizeof why, "dim %u ('%s') must be at least %lld", s->axis, name, (long long)s->low);
    else if (value > s->high)
      snprintf(why, sizeof why, "dim %u ('%s') must be at most %lld", s->axis, name, (long long)s->high);
    else if (value % s->multiple)
      snprintf(why, sizeof why, "dim %u ('%s') must be a multiple of %lld", s->axis, name, (long long)s->multiple);
    if (why[0]) return mismatch(p, port, &inputs[s->input], "input", why, e);
    c->symbols[i] = value;
  }
  return TASKC_OK;
}

/* Bytes of a shape; refuses 2^31 elements and more, which kernels could not index. */
static int shape_bytes(const int64_t *shape, uint32_t rank, uint32_t dtype, uint64_t *bytes) {
  int64_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d)
    if (shape[d] < 0 || __builtin_mul_overflow(elements, shape[d], &elements)) return 0;
  *bytes = (uint64_t)elements * dtype_bytes(dtype);
  return elements < (int64_t)1 << 31;
}

static taskc_status check_input(taskc_context *c, uint32_t number, const taskc_tensor *t, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_port *port = &p->inputs[number];
  for (uint32_t d = 0; d < port->rank; ++d) {
    int64_t want;
    if (evaluate(p, p->dims[port->first_dim + d].extent, c->symbols, &want, e))
      return prefix(e, "input '%s'", text_of(p, port->name));
    if (t->shape[d] == want) continue;
    char why[128];
    snprintf(why, sizeof why, "dim %u must be %lld here", d, (long long)want);
    return mismatch(p, port, t, "input", why, e);
  }
  if (!shape_bytes(t->shape, t->rank, t->dtype, &c->port_bytes[number]))
    return mismatch(p, port, t, "input", "a tensor must have fewer than 2^31 elements", e);
  return TASKC_OK;
}

static taskc_status output_shape(taskc_context *c, uint32_t number, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_port *port = &p->outputs[number];
  taskc_tensor *t = &c->outputs[number];
  t->dtype = port->dtype;
  t->rank = port->rank;
  for (uint32_t d = 0; d < port->rank; ++d)
    if (evaluate(p, p->dims[port->first_dim + d].extent, c->symbols, &t->shape[d], e))
      return prefix(e, "output '%s'", text_of(p, port->name));
  if (!shape_bytes(t->shape, t->rank, t->dtype, &c->port_bytes[p->header->inputs.count + number])) {
    shape_text shape = given_shape(t);
    return fail(e, TASKC_USAGE, "output '%s' would be %s%s: a tensor must have fewer than 2^31 elements and no negative dim",
                text_of(p, port->name), dtype_name(t->dtype), shape.text);
  }
  return TASKC_OK;
}

taskc_status solve_shapes(taskc_context *c, const taskc_tensor *inputs, error *e) {
  const payload *p = &c->model->library->payload;
  uint32_t count = p->header->inputs.count;
  if (!inputs && count) return fail(e, TASKC_USAGE, "no inputs given; the model has %u", count);
  for (uint32_t i = 0; i < count; ++i)
    if (check_kind(c, &p->inputs[i], &inputs[i], "input", e)) return e->status;
  if (solve_symbols(c, inputs, e)) return e->status;
  for (uint32_t i = 0; i < count; ++i)
    if (check_input(c, i, &inputs[i], e)) return e->status;
  for (uint32_t i = 0; i < p->header->outputs.count; ++i)
    if (output_shape(c, i, e)) return e->status;
  return TASKC_OK;
}

taskc_status check_outputs(taskc_context *c, const taskc_tensor *outputs, error *e) {
  const payload *p = &c->model->library->payload;
  uint32_t count = p->header->outputs.count;
  if (!outputs && count) return fail(e, TASKC_USAGE, "no outputs given; the model has %u", count);
  for (uint32_t i = 0; i < count; ++i) {
    if (check_kind(c, &p->outputs[i], &outputs[i], "output", e)) return e->status;
    if (memcmp(outputs[i].shape, c->outputs[i].shape, outputs[i].rank * sizeof outputs[i].shape[0]) != 0) {
      shape_text given = given_shape(&outputs[i]), wanted = given_shape(&c->outputs[i]);
      return fail(e, TASKC_USAGE, "output '%s': given %s%s, wanted %s%s at these input shapes", text_of(p, p->outputs[i].name),
                  dtype_name(outputs[i].dtype), given.text, dtype_name(c->outputs[i].dtype), wanted.text);
    }
  }
  return TASKC_OK;
}
