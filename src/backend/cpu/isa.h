/* The instruction levels that kernels are compiled for. The level is part of a job: it decides bits and scratch. */
#ifndef HRI_BACKEND_CPU_ISA_H
#define HRI_BACKEND_CPU_ISA_H

#include <stdbool.h>

#include "base/error.h"

typedef enum hri_isa {
  HRI_ISA_BASE = 0, /* what the compiler takes for granted: SSE2 on x86-64, NEON on Arm */
  HRI_ISA_AVX2,     /* with FMA */
  HRI_ISA_AVX512,   /* F, BW, DQ, VL */
  HRI_ISA_AVX512_BF16, /* and products of bf16 pairs; kernels that have no use for them are those of AVX512 */
  HRI_ISA_COUNT
} hri_isa;

/* "base", "avx2", "avx512", "avx512bf16". Never NULL. */
const char *hri_isa_name(hri_isa isa);
/* False when `text` names no level. */
bool hri_isa_parse(const char *text, hri_isa *isa);

/* The highest level that this processor has, at most `cap`. The GEMM library is held to the same level, which works only
 * before its first use in the process; hri_gemm_cache_create looks whether it did. */
hri_isa hri_cpu_isa_detect(hri_isa cap);

/* The same with the cap as text (the environment variable HEADROOM_ISA); NULL and "" do not cap. USAGE when it names no
 * level, or one that this processor does not have: a run must not silently differ from what was asked for. */
hr_status hri_cpu_isa_choose(const char *cap, hri_isa *isa, hr_error *error);

#endif
