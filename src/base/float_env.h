/* How the processor computes with floating point - rounding, subnormals, traps - is a setting of each thread, and a host
 * may have made it another: a library linked with -ffast-math takes subnormals as zero from when it is loaded, programs of
 * numerics let a division by zero end the process. What we compute must have the same bits in all our threads and in every
 * host, and computes with infinities on purpose, so it is done in the standard setting. Compilers know nothing of it and move
 * arithmetic past a change: between enter and leave stand calls of what is compiled elsewhere. */
#ifndef HRI_BASE_FLOAT_ENV_H
#define HRI_BASE_FLOAT_ENV_H

#include <stdint.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <fenv.h>
#endif

typedef struct hri_float_env {
#if defined(__x86_64__) || defined(__aarch64__)
  uint64_t control;
#else
  fenv_t all;
#endif
} hri_float_env;

#if defined(__x86_64__)
enum { HRI_MXCSR_STANDARD = 0x1F80, HRI_MXCSR_SEEN = 0x3F /* what has happened: no setting */ };
static inline int hri_float_is_standard(hri_float_env e) {
  return (e.control & ~(uint64_t)HRI_MXCSR_SEEN) == HRI_MXCSR_STANDARD;
}
static inline hri_float_env hri_float_now(void) { return (hri_float_env){__builtin_ia32_stmxcsr()}; }
static inline void hri_float_set(hri_float_env e) { __builtin_ia32_ldmxcsr((unsigned)e.control); }
static const hri_float_env hri_float_default = {HRI_MXCSR_STANDARD};
#elif defined(__aarch64__)
static inline int hri_float_is_standard(hri_float_env e) { return e.control == 0; }
static inline hri_float_env hri_float_now(void) {
  hri_float_env e;
  __asm__ volatile("mrs %0, fpcr" : "=r"(e.control));
  return e;
}
static inline void hri_float_set(hri_float_env e) { __asm__ volatile("msr fpcr, %0" : : "r"(e.control) : "memory"); }
static const hri_float_env hri_float_default = {0};
#endif

/* Takes the standard setting for the calling thread; what it was, for hri_float_leave. A few cycles where it is so already. */
static inline hri_float_env hri_float_enter(void) {
#if defined(__x86_64__) || defined(__aarch64__)
  hri_float_env before = hri_float_now();
  if (!hri_float_is_standard(before)) hri_float_set(hri_float_default);
#else
  hri_float_env before;
  (void)fegetenv(&before.all);
  (void)fesetenv(FE_DFL_ENV);
#endif
  return before;
}

static inline void hri_float_leave(hri_float_env before) {
#if defined(__x86_64__) || defined(__aarch64__)
  if (!hri_float_is_standard(before)) hri_float_set(before);
#else
  (void)fesetenv(&before.all);
#endif
}

#endif
