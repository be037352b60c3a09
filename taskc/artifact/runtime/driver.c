/* libcuda.so.1, opened at first use; each function is asked for at the version coded for. */
#include <string.h>

#include "compat.h"
#include "runtime.h"

#define ADVICE "install NVIDIA driver 580 or newer, or load with device 'host' if the library holds it"
#define OLDEST_CUDA 13000 /* kernels compiled by CUDA 13.x load on drivers from 580 on */

static taskc_status too_old(int version, error *e) {
  return fail(e, TASKC_NO_DEVICE, "the CUDA driver is too old: it supports CUDA %d.%d, this library needs %d.%d; " ADVICE,
              version / 1000, version % 1000 / 10, OLDEST_CUDA / 1000, OLDEST_CUDA % 1000 / 10);
}

static taskc_status fetch(cu_driver *driver, cu_get_proc_address get, error *e) {
  const struct {
    const char *name;
    int version;
    size_t place;
  } functions[] = {
#define CU_ROW(name, version, params) {#name, version, offsetof(cu_driver, name)},
      CU_FUNCTIONS(CU_ROW)
#undef CU_ROW
  };
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
    void *function = NULL;
    int found = 0;
    if (get(functions[i].name, &function, functions[i].version, 0, &found) || !function)
      return fail(e, TASKC_NO_DEVICE, "the CUDA driver lacks %s of CUDA %d.%d; " ADVICE, functions[i].name,
                  functions[i].version / 1000, functions[i].version % 1000 / 10);
    memcpy((char *)driver + functions[i].place, &function, sizeof function);
  }
  return TASKC_OK;
}

taskc_status driver_open(cu_driver *driver, error *e) {
  /* Never closed: unloading the driver from a process that may use it elsewhere is not ours to do. */
  void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!so) {
    const char *why = dlerror();
    return fail(e, TASKC_NO_DEVICE, "no CUDA driver (%s); " ADVICE, why ? why : "libcuda.so.1 does not open");
  }
  void *symbol = dlsym(so, "cuDriverGetVersion");
  cu_result (*get_version)(int *) = NULL;
  cu_get_proc_address get = NULL;
  int version = 0;
  memcpy(&get_version, &symbol, sizeof symbol);
  if (!get_version || get_version(&version)) return fail(e, TASKC_NO_DEVICE, "libcuda.so.1 does not tell its version; " ADVICE);
  symbol = dlsym(so, "cuGetProcAddress_v2");
  memcpy(&get, &symbol, sizeof symbol);
  if (version < OLDEST_CUDA || !get) return too_old(version, e);
  if (fetch(driver, get, e)) return e->status;
  cu_result result = driver->cuInit(0);
  if (result == CU_NO_DEVICE) return fail(e, TASKC_NO_DEVICE, "the CUDA driver sees no GPU (CUDA_ERROR_NO_DEVICE); see nvidia-smi "
                                          "and CUDA_VISIBLE_DEVICES, or load with device 'host' if the library holds it");
  if (driver_check(driver, result, "cuInit", e)) e->status = TASKC_NO_DEVICE;
  return result ? e->status : TASKC_OK;
}

taskc_status driver_check(const cu_driver *driver, cu_result result, const char *call, error *e) {
  if (result == CU_SUCCESS) return TASKC_OK;
  const char *name = NULL, *text = NULL;
  if (driver->cuGetErrorName(result, &name) || !name) name = "unknown error";
  if (driver->cuGetErrorString(result, &text) || !text) text = "no description";
  taskc_status status = result == CU_OUT_OF_MEMORY ? TASKC_NO_MEMORY : TASKC_FAILED;
  return fail(e, status, "%s failed: %s (%d): %s", call, name, result, text);
}
