// Stacks, shared memory and test buffers that end at unreadable pages, and the signal handler that turns a touch of such
// a page inside a kernel into an error of the launch.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "host_runtime.hpp"

namespace taskc {

static size_t page_size() {
  static const size_t size = (size_t)sysconf(_SC_PAGESIZE);
  return size;
}
static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static char* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : (char*)p;
}
// Best effort: past the kernel's limit on mappings a stack goes without its guard, which only loses a diagnosis.
static void forbid(char* p, size_t bytes) {
  if (mprotect(p, bytes, PROT_NONE)) errno = 0;
}

// ---- buffers for tests ----------------------------------------------------------------------------------------------

struct Buffer {
  char *start, *end, *base;
  size_t mapped;
  Buffer* next;
};
static Buffer* buffers;
static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;

// ---- what a worker keeps --------------------------------------------------------------------------------------------

template <class T> static bool at_least(T*& array, int& made, int wanted) {
  if (made >= wanted) return true;
  free(array);
  array = (T*)aligned_alloc(64, round_up(sizeof(T) * (size_t)wanted, 64));
  made = array ? wanted : 0;
  if (array) memset((void*)array, 0, sizeof(T) * (size_t)wanted);
  return array != nullptr;
}

static void free_fibers(Worker& w) {
  for (int i = 0; i < w.fibers_made; ++i) free(w.fiber[i].copies.ring);
  free(w.fiber);
  w.fiber = nullptr;
  w.fibers_made = 0;
}

static bool reserve_stacks(Worker& w, int places) {
  if (w.fibers_made < places) {
    free_fibers(w);
    if (!at_least(w.fiber, w.fibers_made, places)) return false;
  }
  if (w.stacks_bytes >= places * STACK) return true;
  if (w.stacks) munmap(w.stacks, w.stacks_bytes);
  w.stacks_bytes = places * STACK;
  w.stacks = map(w.stacks_bytes);
  if (!w.stacks) return w.stacks_bytes = 0, false;
  for (int i = 0; i < places; ++i) forbid(w.stacks + i * STACK, page_size());
  return true;
}

// Each block's shared memory starts at a multiple of 1024 bytes and ends, within 1023 bytes, at an unreadable page.
static bool reserve_shared(Worker& w, int blocks, int smem) {
  size_t page = page_size(), stride = round_up((size_t)smem, page) + page;
  w.smem = smem;
  if (w.shared && w.shared_stride == stride && w.shared_bytes >= stride * blocks) return true;
  if (w.shared) munmap(w.shared, w.shared_bytes);
  w.shared_stride = stride;
  w.shared_bytes = stride * blocks;
  w.shared = map(w.shared_bytes);
  if (!w.shared) return w.shared_bytes = 0, false;
  for (int i = 0; i < blocks; ++i) forbid(w.shared + (i + 1) * stride - page, page);
  return true;
}

bool reserve(Worker& w) {
  const Launch& l = *w.launch;
  int blocks = (int)l.blocks_a_unit, warps = (l.config.threads + 31) / 32 * blocks;
  int cluster_count = w.blocks_made, ready_count = w.warps_made;
  return at_least(w.block, w.blocks_made, blocks) && at_least(w.cluster, cluster_count, blocks) &&
         at_least(w.warp, w.warps_made, warps) && at_least(w.ready, ready_count, warps) &&
         reserve_stacks(w, warps * 32) && reserve_shared(w, blocks, l.config.smem);
}

void release(Worker& w) {
  free_fibers(w);
  free(w.block);
  free(w.cluster);
  free(w.warp);
  free(w.ready);
  if (w.stacks) munmap(w.stacks, w.stacks_bytes);
  if (w.shared) munmap(w.shared, w.shared_bytes);
}

// ---- faults ---------------------------------------------------------------------------------------------------------

static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE};
enum { SIGNAL_COUNT = sizeof SIGNALS / sizeof SIGNALS[0] };
static struct sigaction before[SIGNAL_COUNT];
static int catching;
static pthread_mutex_t catching_lock = PTHREAD_MUTEX_INITIALIZER;

static void hand_on(int signal, siginfo_t* info, void* context) {
  for (int i = 0; i < SIGNAL_COUNT; ++i) {
    if (SIGNALS[i] != signal) continue;
    if (before[i].sa_flags & SA_SIGINFO) return before[i].sa_sigaction(signal, info, context);
    if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN) return before[i].sa_handler(signal);
    sigaction(signal, &before[i], nullptr);  // the instruction runs again and meets the default
  }
}

// Runs on the worker's signal stack. Returning "into" the worker is the whole recovery: sigreturn restores the mask, and
// nothing of the fiber's stack is needed, not even when that stack is what overflowed.
static void on_fault(int signal, siginfo_t* info, void* context) {
  Worker* w = this_worker;
  if (!w || !w->current || info->si_code <= 0) return hand_on(signal, info, context);
  w->fault_signal = signal;
  w->fault_address = (const char*)info->si_addr;
  mcontext_t& m = ((ucontext_t*)context)->uc_mcontext;
#if defined(__x86_64__)
  m.gregs[REG_RDI] = m.gregs[REG_RSP] = (greg_t)w->own_sp;
  m.gregs[REG_RIP] = (greg_t)taskc_fiber_resume;
#else
  m.regs[0] = m.sp = (uintptr_t)w->own_sp;
  m.pc = (uintptr_t)taskc_fiber_resume;
#endif
}

void catch_faults() {
  pthread_mutex_lock(&catching_lock);
  if (catching++ == 0) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNAL_COUNT; ++i) sigaction(SIGNALS[i], &action, &before[i]);
  }
  pthread_mutex_unlock(&catching_lock);
}

// If another library has put its handler above ours meanwhile, that one hands on to us: leave the chain alone.
void uncatch_faults() {
  pthread_mutex_lock(&catching_lock);
  if (--catching == 0) {
    for (int i = 0; i < SIGNAL_COUNT; ++i) {
      struct sigaction now;
      sigaction(SIGNALS[i], nullptr, &now);
      if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault) sigaction(SIGNALS[i], &before[i], nullptr);
    }
  }
  pthread_mutex_unlock(&catching_lock);
}

void set_signal_stack(void* memory, void* saved) {
  stack_t stack;
  memset(&stack, 0, sizeof stack);
  stack.ss_sp = memory;
  stack.ss_size = SIGNAL_STACK;
  sigaltstack(&stack, (stack_t*)saved);
}
void restore_signal_stack(const void* saved) { sigaltstack((const stack_t*)saved, nullptr); }

void describe_fault(Worker& w, char* text, size_t size) {
  const char* p = w.fault_address;
  if (w.fault_signal == SIGFPE) {
    snprintf(text, size, "integer division by zero (use truncdiv or floordiv)");
  } else if (p >= w.stacks && p < w.stacks + w.stacks_bytes) {
    snprintf(text, size, "out of stack: a thread's local variables need more than %zu KB", (STACK - page_size()) / 1024 - 4);
  } else if (p >= w.shared && p < w.shared + w.shared_bytes) {
    snprintf(text, size, "out of bounds access to shared memory, at byte %ld of %d", (long)(p - w.current->seen.smem), w.smem);
  } else {
    snprintf(text, size, "out of bounds access at %p", (const void*)p);
    pthread_mutex_lock(&buffers_lock);
    for (Buffer* b = buffers; b; b = b->next)
      if (p >= b->base && p < b->base + b->mapped)
        snprintf(text, size, "out of bounds access, at byte %ld of a buffer of %ld bytes", (long)(p - b->start), (long)(b->end - b->start));
    pthread_mutex_unlock(&buffers_lock);
  }
}

}  // namespace taskc

using namespace taskc;
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void* taskc_host_alloc_aligned(size_t bytes, size_t align) {
  size_t page = page_size();
  if (align == 0 || align & (align - 1) || align > page) return nullptr;
  size_t room = round_up(bytes, align), usable = round_up(room, page) + page;  // a page before, which stays NaN
  Buffer* b = (Buffer*)malloc(sizeof(Buffer));
  char* base = map(usable + page);
  if (!b || !base) return free(b), nullptr;
  memset(base, 0xff, usable);
  forbid(base + usable, page);
  *b = {base + usable - room, base + usable - room + bytes, base, usable + page, nullptr};
  pthread_mutex_lock(&buffers_lock);
  b->next = buffers;
  buffers = b;
  pthread_mutex_unlock(&buffers_lock);
  return b->start;
}

EXPORT void* taskc_host_alloc(size_t bytes) { return taskc_host_alloc_aligned(bytes, 1); }

EXPORT void taskc_host_free(void* p) {
  pthread_mutex_lock(&buffers_lock);
  for (Buffer** at = &buffers; *at; at = &(*at)->next) {
    Buffer* b = *at;
    if (b->start != p) continue;
    *at = b->next;
    munmap(b->base, b->mapped);
    free(b);
    break;
  }
  pthread_mutex_unlock(&buffers_lock);
}
