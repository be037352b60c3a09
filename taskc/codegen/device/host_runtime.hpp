// The `host` machine inside: the threads of a kernel are fibers, switched at barriers and warp-wide calls only.
//
// The scheduling unit is what must be resident together: a block, a cluster, or the whole grid of a cooperative launch.
// Worker threads take units one after another. A fault inside a kernel records a message and switches back to the
// worker; the unit's fibers are abandoned, which is safe because they own nothing.
#pragma once
#include <pthread.h>
#include <stdint.h>

#include "taskc_host.h"
#include "taskc_host.hpp"

namespace taskc {

struct Worker;
struct Block;

// Asynchronous copies of one thread, in order; a group ends where commit put a mark.
struct CopyQueue {
  struct Copy {
    void* to;
    const void* from;  // null: zeros
    int bytes;
  };
  enum { GROUPS = 32 };
  Copy* ring;
  unsigned capacity, head, tail;  // capacity is a power of two; head and tail count on
  unsigned mark[GROUPS], first, groups;
};

// Where a warp-wide call puts what its lanes bring. A lane may already be in the next call while others still read the
// results of this one, hence two slots a warp, used in turn. A slot is free again when all lanes are in the next call.
struct Slot {
  const char* call;
  unsigned votes;
  unsigned long long value[32];
  const char* row[32];
  alignas(32) unsigned a[16][8];   // 16-bit pairs, or tf32
  alignas(32) uint16_t b16[16][8];
  alignas(32) float b32[8][8];
  alignas(32) float c[16][8];
};
struct Warp {
  unsigned exists, left;  // lanes, as bits
  int lanes, arrived;
  unsigned calls;
  Slot slot[2];
};

struct Barrier {
  int arrived, expected;
  unsigned waiting[32];  // lanes, a word for each warp of the block
};
struct Cluster {
  int blocks, arrived, first_block;
};
struct Block {
  int threads, live, first_warp, warps;
  char* smem;
  Cluster* cluster;
  Barrier barriers[16];
};

// What a switch touches comes first, in one cache line: hundreds of fibers take turns.
struct alignas(64) Fiber {
  void* sp;
  Worker* worker;
  Warp* warp;
  Block* home;
  const char* where;  // the call it waits in, "left the kernel", or null while it can run
  int lane, warp_index;
  taskc_host_thread seen;  // by the kernel
  CopyQueue copies;
};

struct Launch {
  const char* kernel;
  void (*body)(void**);
  void** args;
  taskc_host_launch config;
  int cluster_blocks;
  long units, blocks_a_unit, next_unit, stride;
  int seed;
  int failed;  // the first fault of any worker is the one reported
  char message[512];
  pthread_mutex_t lock;
};

// One CPU thread's machine; kept between launches, because fresh stacks cost a page fault each.
struct Worker {
  Launch* launch;
  Fiber* current;  // null while the worker itself runs
  void* own_sp;
  uint64_t random;
  int fibers_made, fibers;
  Fiber* fiber;
  int warps_made, warps;
  Warp* warp;
  unsigned* ready;  // lanes that can run, a word for each warp: what the scheduler scans
  int blocks_made, blocks, live;
  Block* block;
  Cluster* cluster;
  int grid_arrived;
  char* stacks;
  size_t stacks_bytes;
  char* shared;
  size_t shared_bytes, shared_stride;
  int smem;
  int fault_signal;
  const char* fault_address;
  Worker* next;
};

// host_fiber.cpp
extern "C" __attribute__((visibility("hidden"))) void taskc_fiber_switch(void** save_sp, void* load_sp);
extern "C" __attribute__((visibility("hidden"))) void taskc_fiber_resume(void* load_sp);
void* fiber_stack(char* top, void (*entry)());

// host_schedule.cpp
void fail(Fiber& f, const char* format, ...) __attribute__((noreturn, cold, format(printf, 2, 3)));
void wait_in(Fiber& f, const char* where);  // returns when another fiber has made this one ready
void may_switch(Fiber& f);                  // a shuffled order goes on elsewhere now and then
void run_first(Worker& w);
void fiber_entry();
static inline Fiber& fiber_of(taskc_host_thread* t) {
  return *(Fiber*)((char*)t - offsetof(Fiber, seen));
}

// host_warp.cpp, host_copies.cpp
void check_lanes_left(Fiber& f);
void check_shared(Fiber& f, const void* p, int bytes, const char* what);

// host_memory.cpp
// Of a fiber, with its guard page and a stagger of less than 4 KB; a multiple of the largest page, 64 KB.
enum : size_t { STACK = 192 * 1024 };
bool reserve(Worker& w);  // memory for the launch's fibers, warps, blocks and shared memory
void release(Worker& w);
void describe_fault(Worker& w, char* text, size_t size);
void catch_faults();      // signal handlers, counted: one call a launch
void uncatch_faults();
void set_signal_stack(void* memory, void* saved);
void restore_signal_stack(const void* saved);
enum : size_t { SIGNAL_STACK = 64 * 1024 };

// host_launch.cpp
extern __thread Worker* this_worker;
void record(Launch& launch, const char* message);

}  // namespace taskc
