/* Threads of a block as fibers: stacks between which the processor jumps without a system call.
 *
 * A switch saves what a called function must keep, exchanges the stack pointer and restores: about ten instructions on
 * x86-64 and thirty on 64-bit Arm. Elsewhere ucontext does it (with a system call for the signal mask). A kernel changes
 * neither the rounding mode nor the signal mask, so neither is saved. */
#ifndef HRI_GPU_SOFT_FIBER_H
#define HRI_GPU_SOFT_FIBER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HRI_FIBER_STACK_BYTES = 64 << 10 /* of which up to a page lies above the top */ };

/* Where a fiber that does not run goes on. */
typedef struct hri_fiber {
  void *sp; /* its stack pointer, or what ucontext keeps */
} hri_fiber;

/* A pool of stacks in one reservation, each with a page below it that nobody may touch: a kernel whose locals do not
 * fit faults there instead of writing into another thread. */
typedef struct hri_fiber_stacks {
  unsigned char *memory;
  uint32_t count;
  size_t pitch; /* bytes from stack to stack */
} hri_fiber_stacks;

/* 0, or -1 when the system refuses the memory. */
int hri_fiber_stacks_init(hri_fiber_stacks *stacks, uint32_t count);
void hri_fiber_stacks_deinit(hri_fiber_stacks *stacks);
/* Where a stack begins. Their tops lie at different offsets of a page: else all would share a few sets of the cache. */
static inline unsigned char *hri_fiber_top(const hri_fiber_stacks *stacks, uint32_t stack) {
  return stacks->memory + (stack + 1) * stacks->pitch - stack * 576 % 4096;
}

/* `fiber` begins entry() on that stack when it is first switched to. entry never returns. What was on the stack is
 * forgotten. */
void hri_fiber_begin(hri_fiber *fiber, const hri_fiber_stacks *stacks, uint32_t stack, void (*entry)(void));

/* Goes on with `to`; returns when somebody switches to `from`. */
void hri_fiber_switch(hri_fiber *from, const hri_fiber *to);
/* Goes on with `to`, and never comes back. */
void hri_fiber_leave(const hri_fiber *to);

#ifdef __cplusplus
}
#endif
#endif
