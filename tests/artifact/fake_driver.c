/* A stand-in for libcuda.so.1: enough of the driver to run the runtime's CUDA side without a GPU. A cubin is a shared object
 * of host kernels. Work is queued and happens only when somebody waits for it, in an order that graph edges allow but that
 * is as far from list order as they let it be.
 *
 * FAKE_VERSION, FAKE_DEVICES, FAKE_CAPABILITY (90) set the machine; FAKE_REFUSE names a function that fails;
 * FAKE_LOG names a file that gets one line a call worth a test's attention. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "taskc_cuda.h"

#define EXPORT __attribute__((visibility("default")))
enum { BAD_VALUE = 1, REFUSED = 801, LAUNCH_FAILED = 719 };
enum { COPY, FILL, KERNEL, EMPTY };
typedef struct host_launch { int grid[3], cluster[3], threads, smem, cores, cooperative; } host_launch;
typedef int (*entry)(void **, const host_launch *);
struct cu_function_s { entry run; int params; };
struct cu_module_s { void *so; };
typedef struct work { int kind; void *to; const void *from; size_t bytes; int byte; cu_function f; host_launch launch; uint64_t args[8]; } work;
struct cu_node_s { work w; int index; int after[64], early[64], count; };
struct cu_graph_s { cu_node nodes[4096]; int count; };
struct cu_graph_exec_s { cu_graph graph; work *works; };
struct cu_event_s { int unused; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char *start; size_t bytes; int device; } blocks[4096];
static int block_count, failed;
static work queue[65536];
static int queued;
static __thread int depth;

static int number(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }
static int refused(const char *name) { const char *v = getenv("FAKE_REFUSE"); return v && strcmp(v, name) == 0; }
static void note(const char *format, ...) {
  const char *path = getenv("FAKE_LOG");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  va_list args;
  va_start(args, format);
  vfprintf(f, format, args);
  va_end(args);
  fputc('\n', f);
  fclose(f);
}
static void enter(void) { if (!depth) { fprintf(stderr, "fake driver: no current context\n"); abort(); } pthread_mutex_lock(&lock); }
static void leave(void) { pthread_mutex_unlock(&lock); }

static void perform(const work *w) {
  if (failed) return;
  if (w->kind == COPY) memmove(w->to, w->from, w->bytes);
  if (w->kind == FILL) memset(w->to, w->byte, w->bytes);
  if (w->kind != KERNEL) return;
  void *args[8];
  uint64_t values[8];
  memcpy(values, w->args, sizeof values);
  for (int i = 0; i < 8; ++i) args[i] = &values[i];
  if (w->f->run(args, &w->launch)) failed = 1;
}
static cu_result flush(void) {
  for (int i = 0; i < queued; ++i) perform(&queue[i]);
  queued = 0;
  int was = failed;
  failed = 0; /* a real context would stay unusable; a test goes on */
  return was ? LAUNCH_FAILED : 0;
}
static void push(const work *w) { if (queued == 65536) abort(); queue[queued++] = *w; }
static void *at(cu_pointer p) { return (void *)(uintptr_t)p; }
static work kernel_work(cu_function f, const unsigned *grid, unsigned threads, void **params) {
  work w = {.kind = KERNEL, .f = f};
  for (int d = 0; d < 3; ++d) { w.launch.grid[d] = (int)grid[d]; w.launch.cluster[d] = 1; }
  w.launch.threads = (int)threads;
  for (int i = 0; i < f->params; ++i) memcpy(&w.args[i], params[i], 8);
  return w;
}

EXPORT cu_result cuInit(unsigned f) { (void)f; return number("FAKE_DEVICES", 1) ? 0 : CU_NO_DEVICE; }
EXPORT cu_result cuDriverGetVersion(int *v) { *v = number("FAKE_VERSION", 13000); return 0; }
EXPORT cu_result cuGetErrorName(cu_result e, const char **t) { *t = e == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : e == REFUSED ? "CUDA_ERROR_NOT_SUPPORTED" : e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE"; return 0; }
EXPORT cu_result cuGetErrorString(cu_result e, const char **t) { (void)e; *t = "as the stand-in driver says"; return 0; }
EXPORT cu_result cuDeviceGetCount(int *n) { *n = number("FAKE_DEVICES", 1); return 0; }
EXPORT cu_result cuDeviceGet(cu_device *d, int n) { *d = n; return 0; }
EXPORT cu_result cuDeviceGetName(char *s, int n, cu_device d) { snprintf(s, (size_t)n, "Fake GPU %d", d); return 0; }
EXPORT cu_result cuDeviceGetAttribute(int *v, int a, cu_device d) { (void)d; int c = number("FAKE_CAPABILITY", 90); *v = a == CU_DEVICE_CAPABILITY_MAJOR ? c / 10 : c % 10; return 0; }
EXPORT cu_result cuDevicePrimaryCtxRetain(cu_context *c, cu_device d) { (void)d; *c = (cu_context)&lock; note("retain"); return 0; }
EXPORT cu_result cuDevicePrimaryCtxRelease(cu_device d) { (void)d; note("release"); return 0; }
EXPORT cu_result cuCtxPushCurrent(cu_context c) { (void)c; ++depth; return 0; }
EXPORT cu_result cuCtxPopCurrent(cu_context *c) { *c = NULL; --depth; return 0; }
EXPORT cu_result cuMemAlloc(cu_pointer *p, size_t n) {
  if (n > 1u << 30) return CU_OUT_OF_MEMORY;
  enter();
  void *memory = aligned_alloc(256, (n + 255) / 256 * 256);
  memset(memory, 0xAB, n);
  blocks[block_count].start = memory; blocks[block_count++].bytes = n;
  *p = (cu_pointer)(uintptr_t)memory;
  note("alloc");
  leave();
  return 0;
}
EXPORT cu_result cuMemFree(cu_pointer p) {
  enter();
  flush();
  for (int i = 0; i < block_count; ++i)
    if (blocks[i].start == at(p)) { blocks[i] = blocks[--block_count]; free(at(p)); note("free"); break; }
  leave();
  return 0;
}
EXPORT cu_result cuMemAllocHost(void **p, size_t n) { *p = malloc(n); memset(*p, 0xCD, n); note("alloc"); return 0; }
EXPORT cu_result cuMemFreeHost(void *p) { free(p); note("free"); return 0; }
static cu_result later(int kind, void *to, const void *from, size_t n, int byte) { enter(); push(&(work){.kind = kind, .to = to, .from = from, .bytes = n, .byte = byte}); leave(); return 0; }
EXPORT cu_result cuMemcpyHtoD(cu_pointer to, const void *from, size_t n) { memcpy(at(to), from, n); return 0; }
EXPORT cu_result cuMemcpyHtoDAsync(cu_pointer to, const void *from, size_t n, cu_stream s) { (void)s; return later(COPY, at(to), from, n, 0); }
EXPORT cu_result cuMemcpyDtoHAsync(void *to, cu_pointer from, size_t n, cu_stream s) { (void)s; return later(COPY, to, at(from), n, 0); }
EXPORT cu_result cuMemcpyDtoDAsync(cu_pointer to, cu_pointer from, size_t n, cu_stream s) { (void)s; return later(COPY, at(to), at(from), n, 0); }
EXPORT cu_result cuMemsetD8Async(cu_pointer to, unsigned char b, size_t n, cu_stream s) { (void)s; return later(FILL, at(to), NULL, n, b); }
EXPORT cu_result cuModuleLoadDataEx(cu_module *m, const void *image, unsigned n, int *o, void **v) {
  (void)n; (void)o; (void)v;
  char path[64];
  const unsigned char *elf = image;
  uint64_t sections; unsigned short size, count;
  memcpy(&sections, elf + 40, 8); memcpy(&size, elf + 58, 2); memcpy(&count, elf + 60, 2);
  if (memcmp(elf, "\177ELF", 4) != 0) return BAD_VALUE;
  int file = memfd_create("fake", 0);
  if (write(file, image, sections + (uint64_t)size * count) < 0) return BAD_VALUE;
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  *m = malloc(sizeof **m);
  (*m)->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  close(file);
  return (*m)->so ? 0 : BAD_VALUE;
}
EXPORT cu_result cuModuleUnload(cu_module m) { dlclose(m->so); free(m); return 0; }
EXPORT cu_result cuModuleGetFunction(cu_function *f, cu_module m, const char *name) {
  char symbol[256];
  snprintf(symbol, sizeof symbol, "taskc_launch_%s", name);
  void *run = dlsym(m->so, symbol);
  if (!run) return CU_NOT_FOUND;
  snprintf(symbol, sizeof symbol, "taskc_params_%s", name);
  *f = malloc(sizeof **f); /* as long as the process */
  memcpy(&(*f)->run, &run, sizeof run);
  (*f)->params = *(int *)dlsym(m->so, symbol);
  return 0;
}
EXPORT cu_result cuFuncSetAttribute(cu_function f, int a, int v) { (void)f; note("attribute %d %d", a, v); return 0; }
EXPORT cu_result cuStreamCreate(cu_stream *s, unsigned f) { (void)f; *s = (cu_stream)malloc(1); note("stream"); return 0; }
EXPORT cu_result cuStreamDestroy(cu_stream s) { free(s); return 0; }
EXPORT cu_result cuStreamSynchronize(cu_stream s) { (void)s; enter(); cu_result r = flush(); leave(); return r; }
EXPORT cu_result cuStreamWaitEvent(cu_stream s, cu_event e, unsigned f) { (void)s; (void)e; (void)f; note("wait"); return 0; }
EXPORT cu_result cuEventCreate(cu_event *e, unsigned f) { (void)f; *e = malloc(sizeof **e); return 0; }
EXPORT cu_result cuEventDestroy(cu_event e) { free(e); return 0; }
EXPORT cu_result cuEventRecord(cu_event e, cu_stream s) { (void)e; (void)s; return 0; }
EXPORT cu_result cuEventSynchronize(cu_event e) { (void)e; return cuStreamSynchronize(NULL); }
EXPORT cu_result cuEventElapsedTime(float *ms, cu_event a, cu_event b) { (void)a; (void)b; *ms = 0.5f; return 0; }
EXPORT cu_result cuPointerGetAttribute(void *v, int a, cu_pointer p) {
  cu_result result = BAD_VALUE;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < block_count; ++i)
    if ((char *)at(p) >= blocks[i].start && (char *)at(p) < blocks[i].start + blocks[i].bytes) {
      *(int *)v = a == CU_POINTER_MEMORY_TYPE ? CU_MEMORY_DEVICE : 0;
      result = 0;
    }
  pthread_mutex_unlock(&lock);
  return result;
}
EXPORT cu_result cuLaunchKernelEx(const cu_launch_config *c, cu_function f, void **params, void **extra) {
  (void)extra;
  enter();
  work w = kernel_work(f, c->grid, c->block[0], params);
  push(&w);
  note("launch");
  leave();
  return 0;
}
EXPORT cu_result cuGraphCreate(cu_graph *g, unsigned f) { (void)f; if (refused("graph")) return REFUSED; *g = calloc(1, sizeof **g); return 0; }
EXPORT cu_result cuGraphDestroy(cu_graph g) { for (int i = 0; i < g->count; ++i) free(g->nodes[i]); free(g); return 0; }
static cu_result add(cu_node *n, cu_graph g, work w) { *n = calloc(1, sizeof **n); (*n)->w = w; (*n)->index = g->count; g->nodes[g->count++] = *n; return 0; }
static work copy_work(const cu_copy_params *p) { return (work){.kind = COPY, .to = at(p->target.device), .from = at(p->source.device), .bytes = p->width_bytes}; }
static work fill_work(const cu_memset_params *p) { return (work){.kind = FILL, .to = at(p->target), .byte = (int)p->value, .bytes = p->width}; }
EXPORT cu_result cuGraphAddKernelNode(cu_node *n, cu_graph g, const cu_node *a, size_t c, const cu_kernel_params *p) { (void)a; (void)c; return add(n, g, kernel_work(p->function, p->grid, p->block[0], p->params)); }
EXPORT cu_result cuGraphAddMemcpyNode(cu_node *n, cu_graph g, const cu_node *a, size_t c, const cu_copy_params *p, cu_context x) { (void)a; (void)c; (void)x; return add(n, g, copy_work(p)); }
EXPORT cu_result cuGraphAddMemsetNode(cu_node *n, cu_graph g, const cu_node *a, size_t c, const cu_memset_params *p, cu_context x) { (void)a; (void)c; (void)x; return add(n, g, fill_work(p)); }
EXPORT cu_result cuGraphAddEmptyNode(cu_node *n, cu_graph g, const cu_node *a, size_t c) { (void)a; (void)c; note("empty"); return add(n, g, (work){.kind = EMPTY}); }
EXPORT cu_result cuGraphAddDependencies(cu_graph g, const cu_node *from, const cu_node *to, const cu_edge *e, size_t n) {
  (void)g;
  if (e->type == CU_EDGE_PROGRAMMATIC && refused("programmatic")) return REFUSED;
  for (size_t i = 0; i < n; ++i) {
    if (e[i].type == CU_EDGE_PROGRAMMATIC && (from[i]->w.kind != KERNEL || to[i]->w.kind != KERNEL || e[i].from_port != 1)) return BAD_VALUE;
    to[i]->early[to[i]->count] = e[i].type;
    to[i]->after[to[i]->count++] = from[i]->index;
  }
  return 0;
}
EXPORT cu_result cuGraphKernelNodeSetAttribute(cu_node n, int a, const cu_attribute_value *v) { (void)n; note("node attribute %d %u %u %u", a, v->cluster[0], v->cluster[1], v->cluster[2]); return 0; }
EXPORT cu_result cuGraphInstantiateWithFlags(cu_graph_exec *x, cu_graph g, unsigned long long f) {
  (void)f;
  *x = malloc(sizeof **x);
  (*x)->graph = g;
  (*x)->works = malloc(sizeof(work) * (size_t)(g->count + 1));
  for (int i = 0; i < g->count; ++i) (*x)->works[i] = g->nodes[i]->w;
  note("instantiate %d", g->count);
  return 0;
}
EXPORT cu_result cuGraphExecDestroy(cu_graph_exec x) { free(x->works); free(x); return 0; }
EXPORT cu_result cuGraphLaunch(cu_graph_exec x, cu_stream s) {
  (void)s;
  enter();
  int n = x->graph->count;
  char *done = calloc((size_t)n + 1, 1);
  for (int left = n; left; --left)
    for (int i = n - 1; i >= 0; --i) { /* the last node that may run */
      int ready = !done[i];
      for (int k = 0; k < x->graph->nodes[i]->count; ++k) ready &= done[x->graph->nodes[i]->after[k]];
      if (!ready) continue;
      done[i] = 1;
      push(&x->works[i]);
      break;
    }
  free(done);
  note("graph launch");
  leave();
  return 0;
}
static cu_result set(cu_graph_exec x, cu_node n, work w) { if (refused("update")) return REFUSED; x->works[n->index] = w; note("update %d", n->index); return 0; }
EXPORT cu_result cuGraphExecKernelNodeSetParams(cu_graph_exec x, cu_node n, const cu_kernel_params *p) { return set(x, n, kernel_work(p->function, p->grid, p->block[0], p->params)); }
EXPORT cu_result cuGraphExecMemcpyNodeSetParams(cu_graph_exec x, cu_node n, const cu_copy_params *p, cu_context c) { (void)c; return set(x, n, copy_work(p)); }
EXPORT cu_result cuGraphExecMemsetNodeSetParams(cu_graph_exec x, cu_node n, const cu_memset_params *p, cu_context c) { (void)c; return set(x, n, fill_work(p)); }
EXPORT cu_result cuTensorMapEncodeTiled(void *m, int t, uint32_t r, void *a, const uint64_t *z, const uint64_t *st, const uint32_t *b, const uint32_t *e, int i, int s, int l, int f) { (void)m; (void)t; (void)r; (void)a; (void)z; (void)st; (void)b; (void)e; (void)i; (void)s; (void)l; (void)f; return 0; }
EXPORT cu_result cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *found) {
  (void)flags;
  Dl_info self;
  dladdr((void *)&cuInit, &self);
  void *so = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *f = version > number("FAKE_VERSION", 13000) || refused(name) ? NULL : dlsym(so, name);
  *found = !*f;
  return *f ? 0 : BAD_VALUE;
}
