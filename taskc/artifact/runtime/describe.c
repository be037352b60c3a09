/* What a library holds, for `taskc inspect` and for callers that make their tensors from it; needs no GPU. */
#include <string.h>

#include "runtime.h"

static int64_t fixed(fmt_index_ref e) { return e.length ? -1 : e.value; }

void library_describe(const taskc_library *l, taskc_library_info *info) {
  const payload *p = &l->payload;
  const fmt_header *h = p->header;
  *info = (taskc_library_info){.name = text_of(p, h->name),
                               .metadata = text_of(p, h->metadata),
                               .format_version = h->version,
                               .symbols = h->symbols.count,
                               .inputs = h->inputs.count,
                               .outputs = h->outputs.count,
                               .targets = h->targets.count,
                               .weights_bytes = h->weights_bytes};
}

taskc_status describe_symbol(const taskc_library *l, uint32_t number, taskc_symbol_info *info) {
  const payload *p = &l->payload;
  if (number >= p->header->symbols.count) return TASKC_USAGE;
  const fmt_symbol *s = &p->symbols[number];
  *info = (taskc_symbol_info){text_of(p, s->name), s->input, s->axis, s->low, s->multiple, s->high};
  return TASKC_OK;
}

static void describe_port(const payload *p, const fmt_port *port, taskc_port_info *info) {
  memset(info, 0, sizeof *info);
  info->name = text_of(p, port->name);
  info->dtype = port->dtype;
  info->rank = port->rank;
  for (uint32_t d = 0; d < TASKC_MAX_RANK; ++d) info->dims[d] = "";
  for (uint32_t d = 0; d < port->rank; ++d) {
    const fmt_dim *dim = &p->dims[port->first_dim + d];
    info->shape[d] = fixed(dim->extent);
    info->dims[d] = text_of(p, dim->name);
  }
}

taskc_status describe_input(const taskc_library *l, uint32_t number, taskc_port_info *info) {
  if (number >= l->payload.header->inputs.count) return TASKC_USAGE;
  describe_port(&l->payload, &l->payload.inputs[number], info);
  return TASKC_OK;
}

taskc_status describe_output(const taskc_library *l, uint32_t number, taskc_port_info *info) {
  if (number >= l->payload.header->outputs.count) return TASKC_USAGE;
  describe_port(&l->payload, &l->payload.outputs[number], info);
  return TASKC_OK;
}

taskc_status describe_target(const taskc_library *l, uint32_t number, taskc_target_info *info) {
  const payload *p = &l->payload;
  if (number >= p->header->targets.count) return TASKC_USAGE;
  const fmt_target *t = &p->targets[number];
  *info = (taskc_target_info){text_of(p, t->name), t->images.count, t->kernels.count,
                              t->tensors.count,    t->steps.count,  fixed(t->arena)};
  return TASKC_OK;
}

taskc_status describe_image(const taskc_library *l, uint32_t target, uint32_t number, taskc_image_info *info) {
  static const char *const kinds[] = {"cubin", "ptx", "host"};
  const payload *p = &l->payload;
  if (target >= p->header->targets.count || number >= p->targets[target].images.count) return TASKC_USAGE;
  const fmt_image *i = &p->images[p->targets[target].images.first + number];
  *info = (taskc_image_info){kinds[i->kind], text_of(p, i->arch), p->base + i->offset, i->bytes};
  return TASKC_OK;
}

taskc_status describe_kernel(const taskc_library *l, uint32_t target, uint32_t number, taskc_kernel_info *info) {
  const payload *p = &l->payload;
  if (target >= p->header->targets.count || number >= p->targets[target].kernels.count) return TASKC_USAGE;
  const fmt_kernel *k = &p->kernels[p->targets[target].kernels.first + number];
  *info = (taskc_kernel_info){.symbol = text_of(p, k->symbol),
                              .notes = text_of(p, k->notes),
                              .threads = k->threads,
                              .shared_bytes = k->shared_bytes,
                              .cluster = {k->cluster[0], k->cluster[1], k->cluster[2]},
                              .pdl = (k->flags & FMT_KERNEL_FLAG_PDL) != 0,
                              .cooperative = (k->flags & FMT_KERNEL_FLAG_COOPERATIVE) != 0,
                              .registers = k->registers,
                              .spill_bytes = k->spill_bytes};
  return TASKC_OK;
}

taskc_status describe_step(const taskc_library *l, uint32_t target, uint32_t number, taskc_step_info *info) {
  static const char *const kinds[] = {"launch", "copy", "fill"};
  const payload *p = &l->payload;
  if (target >= p->header->targets.count || number >= p->targets[target].steps.count) return TASKC_USAGE;
  const fmt_step *s = &p->steps[p->targets[target].steps.first + number];
  *info = (taskc_step_info){.kind = kinds[s->kind],
                            .name = text_of(p, s->name),
                            .kernel = s->kernel,
                            .args = s->args.count,
                            .after_count = s->after.count,
                            .after = s->after.count ? &p->edges[s->after.first].step : NULL,
                            .grid = {fixed(s->grid[0]), fixed(s->grid[1]), fixed(s->grid[2])},
                            .bytes = fixed(s->size)};
  return TASKC_OK;
}
