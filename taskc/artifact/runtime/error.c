/* Messages. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

taskc_status fail(error *e, taskc_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(e->text, sizeof e->text, format, args);
  va_end(args);
  e->status = status;
  return status;
}

taskc_status prefix(error *e, const char *format, ...) {
  char head[512];
  va_list args;
  va_start(args, format);
  vsnprintf(head, sizeof head - 2, format, args);
  va_end(args);
  strcat(head, ": ");
  size_t n = strlen(head);
  memmove(e->text + n, e->text, sizeof e->text - n); /* the end of a long message is lost */
  memcpy(e->text, head, n);
  e->text[sizeof e->text - 1] = 0;
  return e->status;
}

taskc_status no_memory(error *e, uint64_t bytes) {
  return fail(e, TASKC_NO_MEMORY, "out of host memory: %llu bytes asked for", (unsigned long long)bytes);
}

static const struct {
  const char *name;
  uint32_t bytes;
} dtypes[] = {
    [FMT_DTYPE_CODE_F16] = {"float16", 2}, [FMT_DTYPE_CODE_BF16] = {"bfloat16", 2}, [FMT_DTYPE_CODE_F32] = {"float32", 4},
    [FMT_DTYPE_CODE_F64] = {"float64", 8}, [FMT_DTYPE_CODE_I8] = {"int8", 1},       [FMT_DTYPE_CODE_I16] = {"int16", 2},
    [FMT_DTYPE_CODE_I32] = {"int32", 4},   [FMT_DTYPE_CODE_I64] = {"int64", 8},     [FMT_DTYPE_CODE_U8] = {"uint8", 1},
    [FMT_DTYPE_CODE_U16] = {"uint16", 2},  [FMT_DTYPE_CODE_U32] = {"uint32", 4},    [FMT_DTYPE_CODE_U64] = {"uint64", 8},
    [FMT_DTYPE_CODE_B8] = {"bool", 1},
};

_Static_assert((int)TASKC_F16 == FMT_DTYPE_CODE_F16 && (int)TASKC_F64 == FMT_DTYPE_CODE_F64 &&
                   (int)TASKC_I64 == FMT_DTYPE_CODE_I64 && (int)TASKC_U64 == FMT_DTYPE_CODE_U64 &&
                   (int)TASKC_BOOL == FMT_DTYPE_CODE_B8 && TASKC_MAX_RANK == FMT_MAX_RANK,
               "model.h and the format number the element types alike");

uint32_t dtype_bytes(uint32_t dtype) { return dtype < sizeof dtypes / sizeof dtypes[0] ? dtypes[dtype].bytes : 0; }

const char *dtype_name(uint32_t dtype) { return dtype_bytes(dtype) ? dtypes[dtype].name : "unknown dtype"; }
