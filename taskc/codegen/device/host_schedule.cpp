// Which fiber runs next, block-wide barriers, and how a kernel's threads end.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host_runtime.hpp"

namespace taskc {

void fail(Fiber& f, const char* format, ...) {
  char what[320], text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  snprintf(text, sizeof text, "kernel %s, block (%d,%d,%d), thread %d: %s", f.worker->launch->kernel, f.seen.block[0],
           f.seen.block[1], f.seen.block[2], f.seen.thread, what);
  record(*f.worker->launch, text);
  taskc_fiber_resume(f.worker->own_sp);
  __builtin_unreachable();
}

static unsigned draw(Worker& w) {
  w.random ^= w.random << 13;
  w.random ^= w.random >> 7;
  w.random ^= w.random << 17;
  return (unsigned)(w.random >> 16);
}

// Ascending: the next lane of this warp, round and round, then the next warp. Shuffled: any lane of any warp; with even
// seeds the warps advance about in step, with odd ones a warp mostly goes on and leaves the others far behind. Each
// shows races that the other hides.
static int next_ready(Worker& w, int warp, int lane) {
  int rotate = lane;
  if (w.launch->seed) {
    unsigned r = draw(w);
    bool stay = w.launch->seed % 2 != 0 && r % 64 != 0;
    if (!stay) warp = (int)((r >> 6) % (unsigned)w.warps);
    rotate = (int)(r >> 27);
  }
  for (int k = 0; k < w.warps; ++k) {
    unsigned ready = w.ready[warp];
    if (ready) {
      unsigned later = ready & (~0u << rotate);
      return warp * 32 + __builtin_ctz(later ? later : ready);
    }
    if (++warp == w.warps) warp = 0;
    if (!w.launch->seed) rotate = 0;
  }
  return -1;
}

// Fibers lie by warp, 32 places each, so that a warp and a lane give the place.
static void switch_to(Fiber& f, int place) {
  Worker& w = *f.worker;
  Fiber& to = w.fiber[place];
  if (&to == &f) return;
  w.current = &to;
  taskc_fiber_switch(&f.sp, to.sp);
}

static void deadlock(Fiber& f) {
  struct { const char* where; int count; } seen[6];
  int kinds = 0;
  Worker& w = *f.worker;
  for (int i = 0; i < w.warps * 32; ++i) {
    if (!(w.warp[i / 32].exists >> (i % 32) & 1)) continue;
    const char* where = w.fiber[i].where ? w.fiber[i].where : "?";
    int k = 0;
    while (k < kinds && strcmp(seen[k].where, where)) ++k;
    if (k == 6) continue;
    if (k == kinds) seen[kinds++] = {where, 0};
    ++seen[k].count;
  }
  char text[256];
  int at = 0;
  for (int k = 0; k < kinds && at < 200; ++k)
    at += snprintf(text + at, sizeof text - at, "%s%d in %s", k ? ", " : "", seen[k].count, seen[k].where);
  fail(f, "deadlock, no thread can go on; threads: %s", text);
}

void wait_in(Fiber& f, const char* where) {
  Worker& w = *f.worker;
  f.where = where;
  w.ready[f.warp_index] &= ~(1u << f.lane);
  int place = next_ready(w, f.warp_index, f.lane);
  if (place < 0) deadlock(f);
  switch_to(f, place);
  f.where = nullptr;
}

void may_switch(Fiber& f) {
  if (f.worker->launch->seed) switch_to(f, next_ready(*f.worker, f.warp_index, f.lane));
}

void run_first(Worker& w) {
  int place = next_ready(w, 0, 0);
  w.current = &w.fiber[place];
  taskc_fiber_switch(&w.own_sp, w.current->sp);
}

static void leave(Fiber& f) {
  Worker& w = *f.worker;
  Block& b = *f.home;
  f.where = "left the kernel";
  w.ready[f.warp_index] &= ~(1u << f.lane);
  f.warp->left |= 1u << f.lane;
  --b.live;
  check_lanes_left(f);
  if (b.barriers[0].arrived) fail(f, "left the kernel while %d threads wait in barrier()", b.barriers[0].arrived);
  if (b.cluster->arrived) fail(f, "left the kernel while %d threads wait in cluster_sync()", b.cluster->arrived);
  if (w.grid_arrived) fail(f, "left the kernel while %d threads wait in grid_barrier()", w.grid_arrived);
  if (--w.live == 0) taskc_fiber_resume(w.own_sp);
  int place = next_ready(w, f.warp_index, f.lane);
  if (place < 0) deadlock(f);
  switch_to(f, place);
}

void fiber_entry() {
  Fiber* f = this_worker->current;
  f->worker->launch->body(f->worker->launch->args);
  leave(*f);
  __builtin_unreachable();
}

static void release_block(Worker& w, Block& b) {
  for (int i = b.first_warp; i < b.first_warp + b.warps; ++i) w.ready[i] = w.warp[i].exists;
}

static const char* const NAMES[16] = {
    "barrier()",         "named_barrier(1)",  "named_barrier(2)",  "named_barrier(3)",
    "named_barrier(4)",  "named_barrier(5)",  "named_barrier(6)",  "named_barrier(7)",
    "named_barrier(8)",  "named_barrier(9)",  "named_barrier(10)", "named_barrier(11)",
    "named_barrier(12)", "named_barrier(13)", "named_barrier(14)", "named_barrier(15)"};

}  // namespace taskc

using namespace taskc;

void taskc_rt_barrier(taskc_host_thread* t) {
  Fiber& f = fiber_of(t);
  Block& b = *f.home;
  if (b.live != f.home->threads) fail(f, "barrier() that %d of %d threads can never reach: they left", f.home->threads - b.live, f.home->threads);
  if (++b.barriers[0].arrived < f.home->threads) return wait_in(f, NAMES[0]);
  b.barriers[0].arrived = 0;
  release_block(*f.worker, b);
  may_switch(f);
}

void taskc_rt_named_barrier(taskc_host_thread* t, int id, int threads, int wait) {
  Fiber& f = fiber_of(t);
  if (id < 1 || id > 15) fail(f, "named_barrier(%d): the hardware has 1 to 15 beside barrier()", id);
  if (threads <= 0 || threads % 32 || threads > f.home->threads)
    fail(f, "%s for %d threads: a multiple of 32, at most the block's %d, is needed", NAMES[id], threads, f.home->threads);
  Barrier& b = f.home->barriers[id];
  if (b.arrived == 0) b.expected = threads;
  if (b.expected != threads) fail(f, "%s for %d threads, which others call for %d", NAMES[id], threads, b.expected);
  int warp = f.warp_index - f.home->first_warp;
  if (++b.arrived < threads) {
    if (!wait) return;
    b.waiting[warp] |= 1u << f.lane;
    return wait_in(f, NAMES[id]);
  }
  b.arrived = 0;
  for (int i = 0; i < f.home->warps; ++i) {
    f.worker->ready[f.home->first_warp + i] |= b.waiting[i];
    b.waiting[i] = 0;
  }
  may_switch(f);
}

void taskc_rt_cluster_sync(taskc_host_thread* t) {
  Fiber& f = fiber_of(t);
  Cluster& c = *f.home->cluster;
  Worker& w = *f.worker;
  for (int i = 0; i < c.blocks; ++i)
    if (w.block[c.first_block + i].live != f.home->threads) fail(f, "cluster_sync() that some threads can never reach: they left");
  if (++c.arrived < c.blocks * f.home->threads) return wait_in(f, "cluster_sync()");
  c.arrived = 0;
  for (int i = 0; i < c.blocks; ++i) release_block(w, w.block[c.first_block + i]);
  may_switch(f);
}

void taskc_rt_grid_barrier(taskc_host_thread* t) {
  Fiber& f = fiber_of(t);
  Worker& w = *f.worker;
  if (!w.launch->config.cooperative) fail(f, "grid_barrier() in a launch that is not cooperative");
  if (w.live != w.fibers) fail(f, "grid_barrier() that some threads can never reach: they left");
  if (++w.grid_arrived < w.fibers) return wait_in(f, "grid_barrier()");
  w.grid_arrived = 0;
  for (int i = 0; i < w.blocks; ++i) release_block(w, w.block[i]);
  may_switch(f);
}

void* taskc_rt_cluster_shared(taskc_host_thread* t, void* p, int rank) {
  Fiber& f = fiber_of(t);
  Cluster& c = *f.home->cluster;
  if (rank < 0 || rank >= c.blocks) fail(f, "cluster_shared(): rank %d in a cluster of %d blocks", rank, c.blocks);
  check_shared(f, p, 0, "cluster_shared()");
  return f.worker->block[c.first_block + rank].smem + ((char*)p - f.seen.smem);
}
