/* CPUID traps in a virtual machine, so what the compiler's own table leaves out is asked once. */
#include "base/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

/* F16C, which clang's __builtin_cpu_supports does not know. */
static bool has_f16c(void) {
  enum { UNKNOWN = 0, NO, YES };
  static atomic_int known;
  int found = atomic_load_explicit(&known, memory_order_relaxed);
  if (found == UNKNOWN) {
    unsigned a, b, c, d;
    found = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? YES : NO;
    atomic_store_explicit(&known, found, memory_order_relaxed);
  }
  return found == YES;
}

hri_processor hri_processor_now(void) {
  __builtin_cpu_init();
  return (hri_processor){.avx2 = __builtin_cpu_supports("avx2"),
                         .fma = __builtin_cpu_supports("fma"),
                         .f16c = __builtin_cpu_supports("avx") && has_f16c(),
                         .avx512f = __builtin_cpu_supports("avx512f"),
                         .avx512bw = __builtin_cpu_supports("avx512bw"),
                         .avx512dq = __builtin_cpu_supports("avx512dq"),
                         .avx512vl = __builtin_cpu_supports("avx512vl"),
                         .avx512bf16 = __builtin_cpu_supports("avx512bf16")};
}
#else
hri_processor hri_processor_now(void) { return (hri_processor){0}; }
#endif
