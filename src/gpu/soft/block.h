/* One block of a launch: its threads as fibers, barriers, and what the lanes of a warp do together.
 *
 * A thread runs until it waits, at a barrier or for the other lanes of a collective; then the next one is drawn at random
 * from those that can run, by a seed. A thread that never waits leaves its stack to the next, so that kernels without
 * barriers and collectives are plain loops over their threads. The last one to arrive does the work of a collective for
 * all; its result is the same whatever the order, and what is not is a fault of the kernel that some seed shows.
 *
 * One block runs at a time in the process: what belongs to it is global, because kernels ask for it at every access. */
#ifndef HRI_GPU_SOFT_BLOCK_H
#define HRI_GPU_SOFT_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/soft/fiber.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HRI_SOFT_THREADS = 1024, HRI_SOFT_WARP = 32 };

typedef struct hri_soft_index {
  uint32_t x, y, z;
} hri_soft_index;

typedef enum hri_soft_state {
  HRI_SOFT_NEW = 0,
  HRI_SOFT_READY,
  HRI_SOFT_RUNNING,
  HRI_SOFT_AT_BARRIER,
  HRI_SOFT_TOGETHER, /* waits for the other lanes of a collective */
  HRI_SOFT_DONE
} hri_soft_state;

/* Where in the source a thread waits. Threads that wait together wait at one place. */
typedef struct hri_soft_site {
  const char *file;
  int line;
} hri_soft_site;

struct hri_soft_collective;

typedef struct hri_soft_thread {
  hri_soft_index index;         /* threadIdx */
  uint32_t linear, lane, first; /* in the block; in the warp; of the warp */
  hri_soft_state state;
  uint32_t turn; /* syncwarps passed since the last barrier: orders the accesses of a warp */
  const struct hri_soft_collective *collective;
  uint32_t mask;
  hri_soft_site site;
  void *operands;
  uint32_t stack;
  hri_fiber fiber;
  uint32_t committed, waited; /* groups of copies into shared memory: closed so far, known to have arrived */
} hri_soft_thread;

/* Something that lanes do together; the operands of lane i are lanes[i].operands. */
typedef struct hri_soft_collective {
  const char *name;
  void (*execute)(hri_soft_thread *lanes, uint32_t mask);
} hri_soft_collective;

/* The block that runs. */
typedef struct hri_soft_grid {
  const char *kernel;                    /* NULL: none runs */
  hri_soft_index block, blocks, threads; /* blockIdx, gridDim, blockDim */
  uint32_t number;                       /* of the block in its launch, from 1 */
  uint32_t operation;                    /* of the launch (memory.h) */
  uint32_t first_epoch, epoch;           /* barriers of all blocks so far: of the first of this block, and of now */
} hri_soft_grid;

extern hri_soft_thread *hri_soft_now;
extern hri_soft_grid hri_soft_here;

/* Runs body(context) in every thread of the block that `hri_soft_here` describes, in an order that `random` decides and
 * moves on. false: a finding ended it. */
bool hri_soft_block_run(void (*body)(void *context), void *context, uint64_t *random);

/* Stacks for all threads; once before the first block, which fails when it cannot have them. */
bool hri_soft_block_init(void);
/* Leaves the block; for findings after which a kernel cannot go on. Does not return. */
void hri_soft_block_leave(void) __attribute__((noreturn));

/* __syncthreads. */
void hri_soft_barrier(hri_soft_site site);
/* The calling lane's part of a collective of the lanes in `mask`. Returns when all were there. */
void hri_soft_together(const hri_soft_collective *collective, uint32_t mask, hri_soft_site site, void *operands);

/* xorshift64*: of whatever is drawn at random here. */
static inline uint32_t hri_soft_draw(uint64_t *random, uint32_t below) {
  uint64_t x = *random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *random = x;
  return (uint32_t)(((x * 0x2545F4914F6CDD1Du >> 32) * below) >> 32);
}

#ifdef __cplusplus
}
#endif
#endif
