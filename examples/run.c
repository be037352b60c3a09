/* Loads a model library, fills its inputs with numbers from a fixed seed, runs it twice and prints what comes out.
 *
 *   cc -o run run.c -I FOLDER_OF_MODEL_H -ldl
 *   ./run ./model.so [cuda:0|host] [SIZE]        SIZE: the value of every symbolic dim, 1 when not given
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static size_t dtype_bytes(uint32_t dtype) {
  static const unsigned char bytes[] = {0, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
  return dtype < sizeof bytes ? bytes[dtype] : 0;
}

static size_t elements(const taskc_tensor *t) {
  size_t n = 1;
  for (uint32_t d = 0; d < t->rank; ++d) n *= (size_t)t->shape[d];
  return n;
}

static void allocate(taskc_tensor *t) {
  t->memory = TASKC_HOST_MEMORY;
  t->data = calloc(elements(t) + 1, dtype_bytes(t->dtype));
  if (!t->data) exit(9);
}

/* Floats in -1 .. 1; other types get zeros. */
static void fill(taskc_tensor *t, uint32_t *seed) {
  for (size_t i = 0; t->dtype == TASKC_F32 && i < elements(t); ++i) {
    *seed = *seed * 1664525u + 1013904223u;
    ((float *)t->data)[i] = (float)(*seed >> 8) / (float)(1 << 23) - 1.0f;
  }
}

static int stop(const char *what, const char *message, int status) {
  fprintf(stderr, "%s: %s\n", what, message);
  return status;
}

static void print(const char *name, const taskc_tensor *t) {
  printf("%s [", name);
  for (uint32_t d = 0; d < t->rank; ++d) printf("%s%lld", d ? ", " : "", (long long)t->shape[d]);
  printf("]");
  for (size_t i = 0; t->dtype == TASKC_F32 && i < elements(t) && i < 6; ++i) printf(" %.6f", ((float *)t->data)[i]);
  printf("\n");
}

static void free_tensors(taskc_tensor *tensors, uint32_t count) {
  for (uint32_t i = 0; tensors && i < count; ++i) free(tensors[i].data);
  free(tensors);
}

/* Fills the inputs, runs twice, prints; symbolic dims become `size`. */
static int run_twice(const taskc_api *api, taskc_library *library, taskc_context *context, int64_t size) {
  taskc_library_info info;
  taskc_port_info port;
  api->library_describe(library, &info);
  taskc_tensor *inputs = calloc(info.inputs + 1, sizeof *inputs), *outputs = calloc(info.outputs + 1, sizeof *outputs);
  uint32_t seed = 1;
  if (!inputs || !outputs) exit(9);
  for (uint32_t i = 0; i < info.inputs; ++i) {
    api->input(library, i, &port);
    inputs[i].dtype = port.dtype;
    inputs[i].rank = port.rank;
    for (uint32_t d = 0; d < port.rank; ++d) inputs[i].shape[d] = port.shape[d] < 0 ? size : port.shape[d];
    allocate(&inputs[i]);
    fill(&inputs[i], &seed);
    print(port.name, &inputs[i]);
  }
  taskc_status status = api->output_shapes(context, inputs, outputs);
  for (uint32_t i = 0; !status && i < info.outputs; ++i) allocate(&outputs[i]);
  for (int n = 0; !status && n < 2; ++n) status = api->run(context, inputs, outputs, NULL);
  if (status) stop("run", api->context_message(context), (int)status);
  for (uint32_t i = 0; !status && i < info.outputs; ++i) {
    api->output(library, i, &port);
    print(port.name, &outputs[i]);
  }
  free_tensors(inputs, info.inputs);
  free_tensors(outputs, info.outputs);
  return (int)status;
}

int main(int argc, char **argv) {
  if (argc < 2) return stop(argv[0], "MODEL.so [cuda:0|host] [SIZE]", TASKC_USAGE);
  void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!so) return stop("dlopen", dlerror(), TASKC_BAD_LIBRARY);
  taskc_get_api_fn get_api = NULL;
  void *symbol = dlsym(so, "taskc_get_api");
  memcpy(&get_api, &symbol, sizeof symbol);
  const taskc_api *api = get_api ? get_api(TASKC_API_VERSION) : NULL;
  if (!api) return stop(argv[1], "no taskc model library of this version", TASKC_BAD_LIBRARY);

  char message[2048];
  taskc_library *library = NULL;
  taskc_model *model = NULL;
  taskc_context *context = NULL;
  int status = (int)api->library_open(&library, message, sizeof message);
  if (!status) status = (int)api->model_create(library, argc > 2 ? argv[2] : "cuda:0", &model, message, sizeof message);
  if (!status) status = (int)api->context_create(model, &context, message, sizeof message);
  if (status) stop(argv[1], message, status);
  else status = run_twice(api, library, context, argc > 3 ? atoll(argv[3]) : 1);
  api->model_release(model); /* the order does not matter: a context keeps its model, a model its library */
  api->context_release(context);
  api->library_release(library);
  dlclose(so);
  return status;
}
