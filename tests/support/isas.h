/* The instruction levels of kernels that this processor has, with a table of kernels each. Who includes this says first
 * which kernels fill a table:
 *
 *   #define ISA_KERNELS(suffix, table) hri_optim_kernels_##suffix(table)
 *
 * and hands setup_isas to cmocka as the setup of the group. */
#ifndef HRI_TESTS_ISAS_H
#define HRI_TESTS_ISAS_H

#include <stdio.h>
#include <string.h>

#include "ops/cpu.h"

typedef struct isa {
  const char *name;
  hri_cpu_kernels kernels;
} isa;

static isa isas[3];
static int isa_count;

#define ADD_ISA(suffix)                                                                                                \
  do {                                                                                                                 \
    isas[isa_count].name = #suffix;                                                                                    \
    ISA_KERNELS(suffix, &isas[isa_count].kernels);                                                                     \
    isa_count++;                                                                                                       \
  } while (0)

static int setup_isas(void **state) {
  (void)state;
  ADD_ISA(base);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) ADD_ISA(avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    ADD_ISA(avx512);
#elif defined(__aarch64__)
  ADD_ISA(neon);
#endif
  return 0;
}

/* The level of that name, the best without a name; NULL: this processor, or this build, has none of it. */
static inline const isa *isa_of(const char *name) {
  if (!name) return &isas[isa_count - 1];
  for (int k = 0; k < isa_count; k++)
    if (strcmp(isas[k].name, name) == 0) return &isas[k];
  return NULL;
}

/* The same for a benchmark's command line: says what is not here. */
static inline const isa *isa_asked(const char *program, const char *name) {
  const isa *level;
  (void)setup_isas(NULL);
  level = isa_of(name);
  if (!level) (void)fprintf(stderr, "%s: no instruction set %s here\n", program, name);
  return level;
}

#endif
