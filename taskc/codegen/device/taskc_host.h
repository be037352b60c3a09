/* The C interface of a library of `host` kernels. A library exports one `taskc_launch_NAME` a kernel and these functions,
 * nothing else, so any number of libraries live in one process. C99 and C++. */
#ifndef TASKC_HOST_H
#define TASKC_HOST_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct taskc_host_launch {
  int grid[3];
  int cluster[3];  /* blocks of a cluster; {1, 1, 1} without; divides the grid */
  int threads;     /* of a block, 1 to 1024 */
  int smem;        /* bytes of dynamic shared memory of a block */
  int cores;       /* CPU threads to use; 0: as many as this process may run on */
  int cooperative; /* not 0: all blocks are resident together, grid_barrier() is allowed */
} taskc_host_launch;

/* taskc_launch_NAME has this type. args[i] points to the value of parameter i, as for cuLaunchKernel. Returns 0 when the
 * kernel has run to its end, otherwise not 0, with a message; a fault in a kernel leaves the process unharmed. */
typedef int (*taskc_host_entry)(void** args, const taskc_host_launch* launch);

/* The message of the last failed launch on this thread. */
const char* taskc_host_error(void);

/* 0: threads and blocks in ascending order. Any other number: a shuffled legal order that depends on it alone; a result
 * that changes with it is a race. Even seeds keep warps about in step, odd ones let them drift apart; each shows races
 * that the other hides. Starts as the environment variable TASKC_HOST_ORDER, else 0. */
void taskc_host_set_order(int seed);

/* Memory whose end touches an unreadable page, filled with NaN (0xFF bytes). The aligned form keeps the start a multiple
 * of `align` (a power of two) and so may leave up to align - 1 bytes before the page. NULL when there is no memory. */
void* taskc_host_alloc(size_t bytes);
void* taskc_host_alloc_aligned(size_t bytes, size_t align);
void taskc_host_free(void* p);

#ifdef __cplusplus
}
#endif
#endif
