/* The switch (fiber.h) for x86-64, 64-bit Arm, and for everything else by ucontext. HRI_FIBER_UCONTEXT asks for the last
 * one, so that the tests can hold it too. */
#include "gpu/soft/fiber.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int hri_fiber_stacks_init(hri_fiber_stacks *stacks, uint32_t count) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), pitch = HRI_FIBER_STACK_BYTES + page;
  void *memory = mmap(NULL, pitch * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *stacks = (hri_fiber_stacks){0};
  if (memory == MAP_FAILED) return -1;
  for (uint32_t i = 0; i < count; i++) {
    if (mprotect((unsigned char *)memory + i * pitch, page, PROT_NONE) == 0) continue;
    (void)munmap(memory, pitch * count);
    return -1;
  }
  *stacks = (hri_fiber_stacks){.memory = memory, .count = count, .pitch = pitch};
  return 0;
}

/* What AddressSanitizer remembers of the frames of a fiber that was left is not true of the next one. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define FORGETS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(FORGETS)
#include <sanitizer/asan_interface.h>
static void forget_frames(const hri_fiber_stacks *stacks, uint32_t stack) {
  unsigned char *end = stacks->memory + (stack + 1) * stacks->pitch;
  __asan_unpoison_memory_region(end - HRI_FIBER_STACK_BYTES, HRI_FIBER_STACK_BYTES);
}
#else
static void forget_frames(const hri_fiber_stacks *stacks, uint32_t stack) {
  (void)stacks;
  (void)stack;
}
#endif

void hri_fiber_stacks_deinit(hri_fiber_stacks *stacks) {
  if (stacks->memory) (void)munmap(stacks->memory, stacks->pitch * stacks->count);
  *stacks = (hri_fiber_stacks){0};
}

#if defined(__x86_64__) && !defined(HRI_FIBER_UCONTEXT)

/* Kept by a called function: rbx, rbp, r12 to r15. At a function's first instruction the stack pointer is 8 beyond a
 * multiple of 16, which is what the `ret` into entry leaves. */
__asm__(".text\n"
        ".globl hri_fiber_switch\n"
        ".hidden hri_fiber_switch\n"
        ".type hri_fiber_switch, @function\n"
        "hri_fiber_switch:\n"
        "  endbr64\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq (%rsi), %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size hri_fiber_switch, .-hri_fiber_switch\n");

void hri_fiber_begin(hri_fiber *fiber, const hri_fiber_stacks *stacks, uint32_t stack, void (*entry)(void)) {
  uint64_t *top = (uint64_t *)(void *)hri_fiber_top(stacks, stack);
  assert(stack < stacks->count);
  forget_frames(stacks, stack);
  *--top = 0; /* where entry would return to */
  *--top = (uint64_t)(uintptr_t)entry;
  for (int i = 0; i < 6; i++) *--top = 0;
  fiber->sp = top;
}

#elif defined(__aarch64__) && !defined(HRI_FIBER_UCONTEXT)

/* Kept by a called function: x19 to x28, the frame pointer, the link register, and the lower halves of v8 to v15. */
__asm__(".text\n"
        ".globl hri_fiber_switch\n"
        ".hidden hri_fiber_switch\n"
        ".type hri_fiber_switch, %function\n"
        "hri_fiber_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n"
        "  stp x21, x22, [sp, #16]\n"
        "  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n"
        "  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n"
        "  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n"
        "  str x9, [x0]\n"
        "  ldr x9, [x1]\n"
        "  mov sp, x9\n"
        "  ldp x19, x20, [sp, #0]\n"
        "  ldp x21, x22, [sp, #16]\n"
        "  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n"
        "  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n"
        "  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size hri_fiber_switch, .-hri_fiber_switch\n");

void hri_fiber_begin(hri_fiber *fiber, const hri_fiber_stacks *stacks, uint32_t stack, void (*entry)(void)) {
  uint64_t *frame = (uint64_t *)(void *)(hri_fiber_top(stacks, stack) - 160);
  assert(stack < stacks->count);
  forget_frames(stacks, stack);
  memset(frame, 0, 160);
  frame[11] = (uint64_t)(uintptr_t)entry; /* the link register */
  fiber->sp = frame;
}

#else
#define LEAVES_BY_CONTEXT 1

#include <ucontext.h>

/* The context of a fiber that was begun lies at the bottom of its stack; of the first one, in a place of its own. */
static ucontext_t outside;

void hri_fiber_begin(hri_fiber *fiber, const hri_fiber_stacks *stacks, uint32_t stack, void (*entry)(void)) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  ucontext_t *context = (ucontext_t *)(void *)(stacks->memory + stack * stacks->pitch + page);
  assert(stack < stacks->count);
  forget_frames(stacks, stack);
  (void)getcontext(context);
  context->uc_stack.ss_sp = (unsigned char *)context + sizeof *context;
  context->uc_stack.ss_size = HRI_FIBER_STACK_BYTES - sizeof *context;
  context->uc_link = NULL;
  makecontext(context, entry, 0);
  fiber->sp = context;
}

void hri_fiber_switch(hri_fiber *from, const hri_fiber *to) {
  if (!from->sp) from->sp = &outside;
  (void)swapcontext(from->sp, to->sp);
}

void hri_fiber_leave(const hri_fiber *to) { (void)setcontext(to->sp); }

#endif

#ifndef LEAVES_BY_CONTEXT
void hri_fiber_leave(const hri_fiber *to) {
  hri_fiber nobody;
  hri_fiber_switch(&nobody, to);
}
#endif
