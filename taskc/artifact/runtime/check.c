/* Every number of the payload's rows is checked once at load, so that later code can follow them without a thought. */
#include "runtime.h"

typedef struct checker {
  const payload *p;
  error *e;
} checker;

static taskc_status bad(const checker *c, const char *what, uint32_t row) {
  return fail(c->e, TASKC_BAD_LIBRARY, "the library's payload is damaged: %s %u", what, row);
}

static int text_ok(const checker *c, fmt_text t) {
  uint64_t end = (uint64_t)t.offset + t.bytes;
  return end < c->p->header->strings.count && c->p->strings[end] == 0;
}

static int span_ok(fmt_span s, fmt_table t) { return (uint64_t)s.first + s.count <= t.count; }

static int dims_ok(const checker *c, uint32_t rank, uint32_t first) {
  return rank <= FMT_MAX_RANK && (uint64_t)first + rank <= c->p->header->dims.count;
}

static taskc_status check_ports(const checker *c, const fmt_port *ports, uint32_t count, const char *what) {
  for (uint32_t i = 0; i < count; ++i)
    if (!text_ok(c, ports[i].name) || !dtype_bytes(ports[i].dtype) || !dims_ok(c, ports[i].rank, ports[i].first_dim))
      return bad(c, what, i);
  return TASKC_OK;
}

static taskc_status check_shared_rows(const checker *c) {
  const payload *p = c->p;
  const fmt_header *h = p->header;
  if (!text_ok(c, h->name) || !text_ok(c, h->metadata)) return bad(c, "name", 0);
  for (uint32_t i = 0; i < h->dims.count; ++i)
    if (!text_ok(c, p->dims[i].name) || !expression_ok(p, p->dims[i].extent)) return bad(c, "dim", i);
  if (check_ports(c, p->inputs, h->inputs.count, "input")) return c->e->status;
  if (check_ports(c, p->outputs, h->outputs.count, "output")) return c->e->status;
  for (uint32_t i = 0; i < h->symbols.count; ++i) {
    const fmt_symbol *s = &p->symbols[i];
    if (!text_ok(c, s->name) || s->input >= h->inputs.count || s->axis >= p->inputs[s->input].rank || s->low < 0 ||
        s->multiple < 1 || s->high < s->low)
      return bad(c, "symbol", i);
  }
  return TASKC_OK;
}

static taskc_status check_code_rows(const checker *c) {
  const payload *p = c->p;
  const fmt_header *h = p->header;
  for (uint32_t i = 0; i < h->images.count; ++i) {
    const fmt_image *image = &p->images[i];
    if (!text_ok(c, image->arch) || image->kind > FMT_IMAGE_KIND_HOST || image->offset < h->head_bytes || !image->bytes ||
        image->offset > p->bytes || image->bytes > p->bytes - image->offset ||
        (image->kind == FMT_IMAGE_KIND_PTX && p->base[image->offset + image->bytes - 1] != 0))
      return bad(c, "image", i);
  }
  for (uint32_t i = 0; i < h->kernels.count; ++i) {
    const fmt_kernel *k = &p->kernels[i];
    uint64_t blocks = 1;
    for (int d = 0; d < 3; ++d) blocks *= k->cluster[d] <= 16 ? k->cluster[d] : 17;
    if (!text_ok(c, k->symbol) || !text_ok(c, k->notes) || k->threads < 1 || k->threads > 1024 || k->shared_bytes > 1u << 20 ||
        blocks < 1 || blocks > 16)
      return bad(c, "kernel", i);
  }
  return TASKC_OK;
}

static int arg_ok(const checker *c, const fmt_arg *a, uint32_t tensors) {
  const payload *p = c->p;
  if (!expression_ok(p, a->value) || !expression_ok(p, a->size)) return 0;
  switch (a->kind) {
    case FMT_ARG_KIND_TENSOR: return a->tensor < tensors;
    case FMT_ARG_KIND_INT: return a->bytes == 4 || a->bytes == 8;
    case FMT_ARG_KIND_SCRATCH:
    case FMT_ARG_KIND_COUNTER: return 1;
    case FMT_ARG_KIND_TENSOR_MAP: break;
    default: return 0;
  }
  if (a->tensor >= tensors || a->map >= p->header->maps.count) return 0;
  const fmt_map *m = &p->maps[a->map];
  int swizzle = m->swizzle_bytes == 0 || m->swizzle_bytes == 32 || m->swizzle_bytes == 64 || m->swizzle_bytes == 128;
  if (m->rank < 1 || m->rank > 5 || !swizzle) return 0;
  for (int d = 0; d < 5; ++d)
    if (!expression_ok(p, m->sizes[d]) || !expression_ok(p, m->strides[d]) || m->box[d] < 1 || m->box[d] > 256) return 0;
  return 1;
}

static int tensor_ok(const checker *c, const fmt_tensor *t) {
  const fmt_header *h = c->p->header;
  if (!text_ok(c, t->name) || !dtype_bytes(t->dtype) || !dims_ok(c, t->rank, t->first_dim) || !expression_ok(c->p, t->offset))
    return 0;
  switch (t->memory) {
    case FMT_MEMORY_KIND_INPUT: return t->number < h->inputs.count;
    case FMT_MEMORY_KIND_OUTPUT: return t->number < h->outputs.count;
    default: return t->memory == FMT_MEMORY_KIND_ARENA || t->memory == FMT_MEMORY_KIND_WEIGHT;
  }
}

static int step_ok(const checker *c, const fmt_step *s, uint32_t number, const fmt_target *t) {
  const payload *p = c->p;
  if (!text_ok(c, s->name) || s->kind > FMT_STEP_KIND_FILL || !expression_ok(p, s->size)) return 0;
  if (!span_ok(s->args, p->header->args) || !span_ok(s->after, p->header->edges)) return 0;
  for (uint32_t i = 0; i < s->after.count; ++i)
    if (p->edges[s->after.first + i].step >= number) return 0;
  for (int d = 0; d < 3; ++d)
    if (!expression_ok(p, s->grid[d])) return 0;
  if (s->kind == FMT_STEP_KIND_LAUNCH) {
    if (s->kernel >= t->kernels.count) return 0;
    for (uint32_t i = 0; i < s->args.count; ++i)
      if (!arg_ok(c, &p->args[s->args.first + i], t->tensors.count)) return 0;
    return 1;
  }
  return s->args.count == 0 && s->target < t->tensors.count && s->byte < 256 &&
         (s->kind == FMT_STEP_KIND_FILL || s->source < t->tensors.count);
}

static taskc_status check_target(const checker *c, uint32_t number) {
  const payload *p = c->p;
  const fmt_header *h = p->header;
  const fmt_target *t = &p->targets[number];
  if (!text_ok(c, t->name) || !expression_ok(p, t->arena) || !span_ok(t->images, h->images) ||
      !span_ok(t->kernels, h->kernels) || !span_ok(t->tensors, h->tensors) || !span_ok(t->steps, h->steps))
    return bad(c, "target", number);
  for (uint32_t i = 0; i < t->tensors.count; ++i)
    if (!tensor_ok(c, &p->tensors[t->tensors.first + i])) return bad(c, "tensor", i);
  uint64_t args = 0, edges = 0;
  for (uint32_t i = 0; i < t->steps.count; ++i) {
    const fmt_step *s = &p->steps[t->steps.first + i];
    if (!step_ok(c, s, i, t)) return bad(c, "step", i);
    args += s->args.count;
    edges += s->after.count;
  }
  /* Rows are not shared between steps, which also bounds what a binding allocates. */
  if (args > h->args.count || edges > h->edges.count) return bad(c, "target", number);
  return TASKC_OK;
}

taskc_status check_rows(const payload *p, error *e) {
  const checker c = {p, e};
  if (check_shared_rows(&c) || check_code_rows(&c)) return e->status;
  for (uint32_t i = 0; i < p->header->targets.count; ++i)
    if (check_target(&c, i)) return e->status;
  return TASKC_OK;
}
