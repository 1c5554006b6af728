/* The instruction levels that kernels are compiled for. The level is part of a job: it decides bits and scratch.
 *
 * A level is a name here, not a property of this machine: plans are made for levels that the planning machine does not
 * have. What this machine has is asked elsewhere (backend/cpu/isa.h). */
#ifndef HRI_OPS_ISA_H
#define HRI_OPS_ISA_H

#include <stdbool.h>

typedef enum hri_isa {
  HRI_ISA_BASE = 0,    /* what the compiler takes for granted: SSE2 on x86-64, NEON on Arm */
  HRI_ISA_AVX2,        /* with FMA */
  HRI_ISA_AVX512,      /* F, BW, DQ, VL */
  HRI_ISA_AVX512_BF16, /* and products of bf16 pairs; kernels that have no use for them are those of AVX512 */
  HRI_ISA_COUNT
} hri_isa;

/* "base", "avx2", "avx512", "avx512bf16". Never NULL. */
const char *hri_isa_name(hri_isa isa);
/* False when `text` names no level. */
bool hri_isa_parse(const char *text, hri_isa *isa);

#endif
