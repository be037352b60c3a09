// A launch: checks, units of blocks that are resident together, worker threads, and the error of the calling thread.
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host_runtime.hpp"

namespace taskc {

__thread Worker* this_worker;
static __thread char last_error[512];

static Worker* idle;  // kept between launches, at most as many as ran at once
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static int order_seed = [] {
  const char* text = getenv("TASKC_HOST_ORDER");
  return text ? atoi(text) : 0;
}();

void record(Launch& launch, const char* message) {
  pthread_mutex_lock(&launch.lock);
  if (!launch.failed) snprintf(launch.message, sizeof launch.message, "%s", message);
  __atomic_store_n(&launch.failed, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&launch.lock);
}

// Blocks of a unit lie cluster by cluster, so that a cluster's ranks are consecutive.
static void place_block(const Launch& l, long unit, int index, int* block, int* rank) {
  const int *grid = l.config.grid, *cluster = l.config.cluster;
  long c = (unit * l.blocks_a_unit + index) / l.cluster_blocks;
  int r = *rank = (int)((unit * l.blocks_a_unit + index) % l.cluster_blocks);
  int nx = grid[0] / cluster[0], ny = grid[1] / cluster[1];
  block[0] = (int)(c % nx) * cluster[0] + r % cluster[0];
  block[1] = (int)(c / nx % ny) * cluster[1] + r / cluster[0] % cluster[1];
  block[2] = (int)(c / nx / ny) * cluster[2] + r / cluster[0] / cluster[1];
}

static void start_fiber(Worker& w, Block& b, int thread, int rank, const int* block) {
  const Launch& l = *w.launch;
  int warp = b.first_warp + thread / 32, place = warp * 32 + thread % 32;
  Fiber& f = w.fiber[place];
  f.seen.thread = thread;
  f.seen.threads = l.config.threads;
  for (int i = 0; i < 3; ++i) f.seen.block[i] = block[i], f.seen.grid[i] = l.config.grid[i];
  f.seen.cluster_rank = rank;
  f.seen.cluster_size = l.cluster_blocks;
  f.seen.smem = b.smem;
  f.worker = &w;
  f.warp = &w.warp[warp];
  f.home = &b;
  f.lane = thread % 32;
  f.warp_index = warp;
  f.where = nullptr;
  CopyQueue& q = f.copies;
  q.head = q.tail = q.first = q.groups = 0;
  // Stacks are whole pages apart; without a stagger all their tops would share a few cache sets.
  f.sp = fiber_stack(w.stacks + (size_t)(place + 1) * STACK - (size_t)(place * 17 % 64) * 64, fiber_entry);
}

static void start_block(Worker& w, long unit, int index) {
  const Launch& l = *w.launch;
  Block& b = w.block[index];
  int threads = l.config.threads, position[3], rank;
  place_block(l, unit, index, position, &rank);
  memset(&b, 0, sizeof b);
  b.threads = b.live = threads;
  b.warps = (threads + 31) / 32;
  b.first_warp = index * b.warps;
  size_t room = ((size_t)l.config.smem + 1023) / 1024 * 1024;
  b.smem = w.shared + (index + 1) * w.shared_stride - (size_t)sysconf(_SC_PAGESIZE) - room;
  memset(b.smem, 0xff, room);  // NaN: reading what was not written shows
  b.cluster = &w.cluster[index / l.cluster_blocks];
  if (rank == 0) *b.cluster = {l.cluster_blocks, 0, index};
  for (int i = 0; i < b.warps; ++i) {
    Warp& warp = w.warp[b.first_warp + i];
    warp.lanes = threads - i * 32 < 32 ? threads - i * 32 : 32;
    warp.exists = warp.lanes == 32 ? ~0u : (1u << warp.lanes) - 1;
    warp.left = 0;
    warp.arrived = 0;
    warp.calls = 0;
    w.ready[b.first_warp + i] = warp.exists;
  }
  for (int t = 0; t < threads; ++t) start_fiber(w, b, t, rank, position);
}

// The bytes between the end of shared memory and its page are still NaN unless someone wrote past the end.
static void check_slack(Worker& w, Fiber& f) {
  int room = (w.smem + 1023) / 1024 * 1024;
  for (int i = w.smem; i < room; ++i) {
    if ((unsigned char)f.seen.smem[i] == 0xff) continue;
    char text[256];
    snprintf(text, sizeof text, "kernel %s, block (%d,%d,%d): something was written at byte %d of %d bytes of shared memory",
             w.launch->kernel, f.seen.block[0], f.seen.block[1], f.seen.block[2], i, w.smem);
    return record(*w.launch, text);
  }
}

static void run_unit(Worker& w, long unit) {
  const Launch& l = *w.launch;
  w.blocks = (int)l.blocks_a_unit;
  w.warps = w.blocks * ((l.config.threads + 31) / 32);
  w.fibers = w.live = w.blocks * l.config.threads;
  w.grid_arrived = 0;
  w.fault_signal = 0;
  w.random = (((uint64_t)unit + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)l.seed * 0xd1342543de82ef95ull) | 1;
  for (int i = 0; i < w.blocks; ++i) start_block(w, unit, i);
  run_first(w);
  Fiber& f = *w.current;
  w.current = nullptr;
  if (w.fault_signal) {
    char what[200], text[512];
    w.current = &f;
    describe_fault(w, what, sizeof what);
    w.current = nullptr;
    snprintf(text, sizeof text, "kernel %s, block (%d,%d,%d), thread %d: %s", l.kernel, f.seen.block[0], f.seen.block[1], f.seen.block[2], f.seen.thread, what);
    record(*w.launch, text);
  } else {
    for (int i = 0; i < w.blocks; ++i) check_slack(w, w.fiber[w.block[i].first_warp * 32]);
  }
}

static Worker* take_worker() {
  pthread_mutex_lock(&idle_lock);
  Worker* w = idle;
  if (w) idle = w->next;
  pthread_mutex_unlock(&idle_lock);
  return w ? w : (Worker*)calloc(1, sizeof(Worker));
}
static void keep_worker(Worker* w) {
  pthread_mutex_lock(&idle_lock);
  w->next = idle;
  idle = w;
  pthread_mutex_unlock(&idle_lock);
}
__attribute__((destructor)) static void drop_workers() {
  while (Worker* w = idle) {
    idle = w->next;
    release(*w);
    free(w);
  }
}

static void* work(void* argument) {
  Launch& l = *(Launch*)argument;
  Worker* w = take_worker();
  void* signal_stack = malloc(SIGNAL_STACK);
  if (!w || !signal_stack || (w->launch = &l, !reserve(*w))) {
    record(l, "host: out of memory for the threads of a kernel");
  } else {
    stack_t saved;
    set_signal_stack(signal_stack, &saved);
    this_worker = w;
    for (long n; !__atomic_load_n(&l.failed, __ATOMIC_ACQUIRE) && (n = __atomic_fetch_add(&l.next_unit, 1, __ATOMIC_RELAXED)) < l.units;)
      run_unit(*w, l.seed ? (long)(((unsigned __int128)n * l.stride + (unsigned)l.seed) % l.units) : n);
    this_worker = nullptr;
    restore_signal_stack(&saved);
  }
  free(signal_stack);
  if (w) keep_worker(w);
  return nullptr;
}

static const char* check_config(const taskc_host_launch& c) {
  for (int i = 0; i < 3; ++i) {
    if (c.grid[i] < 1 || c.cluster[i] < 1) return "a grid and a cluster have at least one block in each direction";
    if (c.grid[i] % c.cluster[i]) return "the cluster does not divide the grid";
  }
  if (c.threads < 1 || c.threads > 1024) return "a block has 1 to 1024 threads";
  if (c.smem < 0 || c.smem > 1 << 20) return "shared memory of a block is 0 to 1 MB";
  long cluster = (long)c.cluster[0] * c.cluster[1] * c.cluster[2];
  if (cluster > 16) return "a cluster has at most 16 blocks";
  if (c.cooperative && (long)c.grid[0] * c.grid[1] * c.grid[2] * c.threads > 1 << 20) return "a cooperative grid has at most 1 M threads here";
  return nullptr;
}

static long step_without_common_factor(long n, unsigned seed) {
  for (long step = (long)(seed * 2654435761u % (unsigned long)n) | 1;; step += 2) {
    long a = n, b = step;
    while (b) { long r = a % b; a = b; b = r; }
    if (a == 1) return step;
  }
}

static int cores_for(const Launch& l) {
  int cores = l.config.cores;
  cpu_set_t set;
  if (cores <= 0) cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (cores > 64) cores = 64;
  return l.units < cores ? (int)l.units : cores;
}

}  // namespace taskc

using namespace taskc;
#define EXPORT extern "C" __attribute__((visibility("default")))

taskc_host_thread* taskc_rt_self() { return &this_worker->current->seen; }

EXPORT const char* taskc_host_error(void) { return last_error; }
EXPORT void taskc_host_set_order(int seed) { __atomic_store_n(&order_seed, seed, __ATOMIC_RELAXED); }

int taskc_rt_launch(const char* kernel, void (*body)(void**), void** args, const taskc_host_launch* config) {
  if (const char* wrong = check_config(*config)) {
    snprintf(last_error, sizeof last_error, "kernel %s: %s", kernel, wrong);
    return 1;
  }
  Launch l;
  memset(&l, 0, sizeof l);
  l.kernel = kernel;
  l.body = body;
  l.args = args;
  l.config = *config;
  l.cluster_blocks = config->cluster[0] * config->cluster[1] * config->cluster[2];
  long blocks = (long)config->grid[0] * config->grid[1] * config->grid[2];
  l.blocks_a_unit = config->cooperative ? blocks : l.cluster_blocks;
  l.units = blocks / l.blocks_a_unit;
  l.seed = __atomic_load_n(&order_seed, __ATOMIC_RELAXED);
  l.stride = step_without_common_factor(l.units, (unsigned)l.seed);
  pthread_mutex_init(&l.lock, nullptr);
  catch_faults();
  pthread_t threads[64];
  int started = 1;
  for (int n = cores_for(l); started < n; ++started)
    if (pthread_create(&threads[started], nullptr, work, &l)) break;  // fewer cores, same result
  work(&l);
  for (int i = 1; i < started; ++i) pthread_join(threads[i], nullptr);
  uncatch_faults();
  pthread_mutex_destroy(&l.lock);
  if (l.failed) snprintf(last_error, sizeof last_error, "%s", l.message);
  return l.failed ? 2 : 0;
}
