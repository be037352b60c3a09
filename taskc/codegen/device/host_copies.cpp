// Asynchronous copies land at the wait that covers them and not before, and what they will overwrite is NaN until then:
// a missing wait shows in the results.
#include <stdlib.h>
#include <string.h>

#include "host_runtime.hpp"

namespace taskc {

void check_shared(Fiber& f, const void* p, int bytes, const char* what) {
  const char* at = (const char*)p;
  if (at < f.seen.smem || at + bytes > f.seen.smem + f.worker->smem)
    fail(f, "%s at %ld of a block with %d bytes of shared memory", what, (long)(at - f.seen.smem), f.worker->smem);
}

static void grow(CopyQueue& q) {
  unsigned capacity = q.capacity ? q.capacity * 2 : 32;
  CopyQueue::Copy* ring = (CopyQueue::Copy*)malloc(capacity * sizeof *ring);
  for (unsigned i = q.head; i != q.tail; ++i) ring[i % capacity] = q.ring[i % q.capacity];
  free(q.ring);
  q.ring = ring;
  q.capacity = capacity;
}

}  // namespace taskc

using namespace taskc;

void taskc_rt_misaligned(taskc_host_thread* t, const void* p, int bytes) {
  fail(fiber_of(t), "misaligned access: %d bytes at %p", bytes, p);
}

void taskc_rt_cp_async(taskc_host_thread* t, void* dst, const void* src, int bytes) {
  Fiber& f = fiber_of(t);
  check_shared(f, dst, bytes, "cp_async");
  if (bytes < 4) {  // the hardware has no such copy: done at once
    if (src) memcpy(dst, src, bytes);
    else memset(dst, 0, bytes);
    return;
  }
  CopyQueue& q = f.copies;
  if (q.tail - q.head == q.capacity) grow(q);
  memset(dst, 0xff, bytes);
  q.ring[q.tail++ % q.capacity] = {dst, src, bytes};
}

void taskc_rt_cp_commit(taskc_host_thread* t) {
  Fiber& f = fiber_of(t);
  CopyQueue& q = f.copies;
  if (q.groups == CopyQueue::GROUPS) fail(f, "more than %d groups of async copies in flight: a wait is missing", CopyQueue::GROUPS);
  q.mark[(q.first + q.groups++) % CopyQueue::GROUPS] = q.tail;
}

void taskc_rt_cp_wait(taskc_host_thread* t, int groups) {
  CopyQueue& q = fiber_of(t).copies;
  for (; (int)q.groups > groups; --q.groups) {
    unsigned end = q.mark[q.first++ % CopyQueue::GROUPS];
    for (; q.head != end; ++q.head) {
      const CopyQueue::Copy& c = q.ring[q.head % q.capacity];
      if (c.from) memcpy(c.to, c.from, c.bytes);
      else memset(c.to, 0, c.bytes);
    }
  }
}
