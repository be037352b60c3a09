/* Index expressions: postfix code on a stack of 64-bit integers. */
#include "runtime.h"

int expression_ok(const payload *p, fmt_index_ref e) {
  if (!e.length) return 1;
  if (e.length > FMT_MAX_CODE || (uint64_t)e.code + e.length > p->header->code.count) return 0;
  uint32_t depth = 0;
  for (uint32_t i = 0; i < e.length; ++i) {
    const fmt_code *c = &p->code[e.code + i];
    if (c->op == FMT_OP_CONST || c->op == FMT_OP_SYMBOL) {
      if (c->op == FMT_OP_SYMBOL && c->symbol >= p->header->symbols.count) return 0;
      if (++depth > FMT_MAX_STACK) return 0;
    } else {
      if (c->op > FMT_OP_MAX || depth < 2) return 0;
      --depth;
    }
  }
  return depth == 1;
}

/* 1: done, 0: overflow or a divisor below 1. Division rounds down. */
static int apply(uint32_t op, int64_t a, int64_t b, int64_t *out) {
  switch (op) {
    case FMT_OP_ADD: return !__builtin_add_overflow(a, b, out);
    case FMT_OP_MUL: return !__builtin_mul_overflow(a, b, out);
    case FMT_OP_MIN: *out = a < b ? a : b; return 1;
    case FMT_OP_MAX: *out = a > b ? a : b; return 1;
    default: break;
  }
  if (b < 1) return 0;
  int64_t quotient = a / b, rest = a % b;
  if (rest < 0) {
    quotient -= 1;
    rest += b;
  }
  *out = op == FMT_OP_FLOOR_DIV ? quotient : rest;
  return 1;
}

taskc_status evaluate(const payload *p, fmt_index_ref e, const int64_t *symbols, int64_t *value, error *err) {
  if (!e.length) {
    *value = e.value;
    return TASKC_OK;
  }
  int64_t stack[FMT_MAX_STACK];
  uint32_t depth = 0;
  for (uint32_t i = 0; i < e.length; ++i) {
    const fmt_code *c = &p->code[e.code + i];
    if (c->op == FMT_OP_CONST) {
      stack[depth++] = c->value;
    } else if (c->op == FMT_OP_SYMBOL) {
      stack[depth++] = symbols[c->symbol];
    } else {
      int64_t a = stack[depth - 2], b = stack[depth - 1];
      if (!apply(c->op, a, b, &stack[depth - 2])) {
        if (c->op == FMT_OP_ADD || c->op == FMT_OP_MUL)
          return fail(err, TASKC_USAGE, "a size overflows 64 bits at these input shapes");
        return fail(err, TASKC_USAGE, "a size divides by %lld at these input shapes", (long long)b);
      }
      --depth;
    }
  }
  *value = stack[0];
  return TASKC_OK;
}
