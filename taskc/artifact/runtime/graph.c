/* A binding as one CUDA graph of explicit nodes and the plan's edges; single launches where a graph is not to be had. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static taskc_status in_step(taskc_context *c, uint32_t number, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_target *t = c->model->target;
  const fmt_step *s = &p->steps[t->steps.first + number];
  if (s->kind != FMT_STEP_KIND_LAUNCH) return prefix(e, "%s %u '%s'", s->kind == FMT_STEP_KIND_COPY ? "copy" : "fill", number,
                                                    text_of(p, s->name));
  const fmt_kernel *k = &p->kernels[t->kernels.first + s->kernel];
  return prefix(e, "launch %u '%s' (kernel '%s')", number, text_of(p, s->name), text_of(p, k->symbol));
}

static cu_kernel_params kernel_params(taskc_context *c, const fmt_step *s, const step_state *state) {
  const fmt_kernel *k = &c->model->library->payload.kernels[c->model->target->kernels.first + s->kernel];
  return (cu_kernel_params){.function = c->model->functions[s->kernel],
                            .grid = {state->grid[0], state->grid[1], state->grid[2]},
                            .block = {k->threads, 1, 1},
                            .shared_bytes = k->shared_bytes,
                            .params = state->params};
}

static cu_copy_params copy_params(const step_state *state) {
  return (cu_copy_params){.source = {.memory_type = CU_MEMORY_DEVICE, .device = state->source},
                          .target = {.memory_type = CU_MEMORY_DEVICE, .device = state->target},
                          .width_bytes = state->bytes,
                          .height = 1,
                          .depth = 1};
}

static cu_memset_params fill_params(const fmt_step *s, const step_state *state) {
  return (cu_memset_params){.target = state->target, .value = s->byte, .element_bytes = 1, .width = state->bytes, .height = 1};
}

/* Cluster and cooperative attributes of a kernel; at most 2. */
static unsigned kernel_attributes(const fmt_kernel *k, cu_attribute *out) {
  unsigned count = 0;
  if (k->cluster[0] * k->cluster[1] * k->cluster[2] > 1) {
    out[count].id = CU_LAUNCH_CLUSTER;
    memcpy(out[count++].value.cluster, k->cluster, sizeof k->cluster);
  }
  if (k->flags & FMT_KERNEL_FLAG_COOPERATIVE) {
    out[count].id = CU_LAUNCH_COOPERATIVE;
    out[count++].value.cooperative = 1;
  }
  return count;
}

static taskc_status add_node(taskc_context *c, binding *b, uint32_t number, error *e) {
  const payload *p = &c->model->library->payload;
  const cu_driver *d = &c->model->driver;
  const fmt_step *s = &p->steps[c->model->target->steps.first + number];
  const step_state *state = &b->steps[number];
  cu_node *node = &b->nodes[number];
  if (state->empty) return CU(e, d, cuGraphAddEmptyNode, node, b->graph, NULL, 0);
  if (s->kind == FMT_STEP_KIND_COPY) {
    cu_copy_params params = copy_params(state);
    return CU(e, d, cuGraphAddMemcpyNode, node, b->graph, NULL, 0, &params, c->model->context);
  }
  if (s->kind == FMT_STEP_KIND_FILL) {
    cu_memset_params params = fill_params(s, state);
    return CU(e, d, cuGraphAddMemsetNode, node, b->graph, NULL, 0, &params, c->model->context);
  }
  cu_kernel_params params = kernel_params(c, s, state);
  if (CU(e, d, cuGraphAddKernelNode, node, b->graph, NULL, 0, &params)) return e->status;
  cu_attribute attributes[2] = {{.id = 0}, {.id = 0}};
  unsigned count = kernel_attributes(&p->kernels[c->model->target->kernels.first + s->kernel], attributes);
  for (unsigned i = 0; i < count; ++i)
    if (CU(e, d, cuGraphKernelNodeSetAttribute, *node, attributes[i].id, &attributes[i].value)) return e->status;
  return TASKC_OK;
}

/* A kernel that waits for its predecessors itself may start before they end, if all of them are kernels. Its wait ends
 * when they have completed, and each of them waited for its own predecessors, so nothing earlier is missed. */
static int starts_early(taskc_context *c, const binding *b, uint32_t number) {
  const payload *p = &c->model->library->payload;
  const fmt_target *t = c->model->target;
  const fmt_step *s = &p->steps[t->steps.first + number];
  if (s->kind != FMT_STEP_KIND_LAUNCH || b->steps[number].empty) return 0;
  if (!(p->kernels[t->kernels.first + s->kernel].flags & FMT_KERNEL_FLAG_PDL)) return 0;
  for (uint32_t i = 0; i < s->after.count; ++i) {
    uint32_t before = p->edges[s->after.first + i].step;
    if (p->steps[t->steps.first + before].kind != FMT_STEP_KIND_LAUNCH || b->steps[before].empty) return 0;
  }
  return 1;
}

static taskc_status add_edges(taskc_context *c, binding *b, uint32_t number, int early, error *e) {
  const payload *p = &c->model->library->payload;
  const fmt_step *s = &p->steps[c->model->target->steps.first + number];
  cu_edge edge = {0};
  if (early && starts_early(c, b, number)) {
    edge.type = CU_EDGE_PROGRAMMATIC;
    edge.from_port = CU_KERNEL_PORT_PROGRAMMATIC;
  }
  for (uint32_t i = 0; i < s->after.count; ++i) {
    const cu_node *from = &b->nodes[p->edges[s->after.first + i].step];
    if (CU(e, &c->model->driver, cuGraphAddDependencies, b->graph, from, &b->nodes[number], &edge, 1)) return e->status;
    b->programmatic_edges += edge.type == CU_EDGE_PROGRAMMATIC;
  }
  return TASKC_OK;
}

static void drop_graph(taskc_context *c, binding *b) {
  if (b->exec) c->model->driver.cuGraphExecDestroy(b->exec);
  if (b->graph) c->model->driver.cuGraphDestroy(b->graph);
  b->exec = NULL;
  b->graph = NULL;
  b->programmatic_edges = 0;
}

static taskc_status build(taskc_context *c, binding *b, int early, error *e) {
  uint32_t count = c->model->target->steps.count;
  if (CU(e, &c->model->driver, cuGraphCreate, &b->graph, 0)) return e->status;
  for (uint32_t i = 0; i < count; ++i)
    if (add_node(c, b, i, e)) return in_step(c, i, e);
  for (uint32_t i = 0; i < count; ++i)
    if (add_edges(c, b, i, early, e)) return in_step(c, i, e);
  return CU(e, &c->model->driver, cuGraphInstantiateWithFlags, &b->exec, b->graph, 0);
}

static taskc_status update_node(taskc_context *c, binding *b, uint32_t number, error *e) {
  const cu_driver *d = &c->model->driver;
  const fmt_step *s = &c->model->library->payload.steps[c->model->target->steps.first + number];
  const step_state *state = &b->steps[number];
  if (s->kind == FMT_STEP_KIND_LAUNCH) {
    cu_kernel_params params = kernel_params(c, s, state);
    return CU(e, d, cuGraphExecKernelNodeSetParams, b->exec, b->nodes[number], &params);
  }
  if (s->kind == FMT_STEP_KIND_COPY) {
    cu_copy_params params = copy_params(state);
    return CU(e, d, cuGraphExecMemcpyNodeSetParams, b->exec, b->nodes[number], &params, c->model->context);
  }
  cu_memset_params params = fill_params(s, state);
  return CU(e, d, cuGraphExecMemsetNodeSetParams, b->exec, b->nodes[number], &params, c->model->context);
}

static taskc_status update(taskc_context *c, binding *b, error *e) {
  for (uint32_t i = 0; i < c->model->target->steps.count; ++i) {
    if (!b->steps[i].changed || b->steps[i].empty) continue;
    if (update_node(c, b, i, e)) return in_step(c, i, e);
    b->steps[i].changed = 0;
  }
  return TASKC_OK;
}

taskc_status graph_prepare(taskc_context *c, binding *b, error *e) {
  if (c->no_graph || b->plain) return TASKC_OK;
  if (b->exec) {
    if (update(c, b, e) == TASKC_OK) return TASKC_OK;
    drop_graph(c, b); /* what cannot be updated is built anew */
  }
  for (int early = 1; early >= 0; --early) {
    if (build(c, b, early, e) == TASKC_OK) {
      for (uint32_t i = 0; i < c->model->target->steps.count; ++i) b->steps[i].changed = 0;
      return TASKC_OK;
    }
    drop_graph(c, b);
    if (e->status == TASKC_NO_MEMORY) return e->status;
  }
  b->plain = 1; /* a failure that is not the graph's own shows again, with its launch, in the single launches */
  e->status = TASKC_OK;
  return TASKC_OK;
}

static taskc_status launch_kernel(taskc_context *c, const fmt_step *s, const step_state *state, cu_stream stream, error *e) {
  const fmt_kernel *k = &c->model->library->payload.kernels[c->model->target->kernels.first + s->kernel];
  cu_attribute attributes[2] = {{.id = 0}, {.id = 0}};
  cu_launch_config config = {.grid = {state->grid[0], state->grid[1], state->grid[2]},
                             .block = {k->threads, 1, 1},
                             .shared_bytes = k->shared_bytes,
                             .stream = stream,
                             .attributes = attributes,
                             .attribute_count = kernel_attributes(k, attributes)};
  return CU(e, &c->model->driver, cuLaunchKernelEx, &config, c->model->functions[s->kernel], state->params, NULL);
}

/* List order is an order the edges allow, and a stream keeps it. */
static taskc_status launch_steps(taskc_context *c, binding *b, cu_stream stream, error *e) {
  const cu_driver *d = &c->model->driver;
  for (uint32_t i = 0; i < c->model->target->steps.count; ++i) {
    const fmt_step *s = &c->model->library->payload.steps[c->model->target->steps.first + i];
    const step_state *state = &b->steps[i];
    if (state->empty) continue;
    taskc_status status =
        s->kind == FMT_STEP_KIND_LAUNCH ? launch_kernel(c, s, state, stream, e)
        : s->kind == FMT_STEP_KIND_COPY ? CU(e, d, cuMemcpyDtoDAsync, state->target, state->source, state->bytes, stream)
                                        : CU(e, d, cuMemsetD8Async, state->target, (unsigned char)s->byte, state->bytes, stream);
    if (!status && c->sync) status = CU(e, d, cuStreamSynchronize, stream);
    if (status) return in_step(c, i, e);
  }
  return TASKC_OK;
}

taskc_status cuda_launch(taskc_context *c, binding *b, cu_stream stream, error *e) {
  c->statistics.graph = b->exec != NULL;
  c->statistics.programmatic_edges = b->programmatic_edges;
  return b->exec ? CU(e, &c->model->driver, cuGraphLaunch, b->exec, stream) : launch_steps(c, b, stream, e);
}
