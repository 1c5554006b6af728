/* The instruction levels that kernels are compiled for. The level is part of a job: it decides bits and scratch.
 *
 * A level is a name here, not a property of this machine: plans are made for levels that the planning machine does not
 * have. What this machine has is asked elsewhere (backend/cpu/isa.h). */
#ifndef HRI_OPS_ISA_H
#define HRI_OPS_ISA_H

#include <stdbool.h>

typedef enum hri_isa {
  HRI_ISA_BASE = 0,    /* what the compiler takes for granted, on any processor: SSE2 on x86-64 */
  HRI_ISA_AVX2,        /* with FMA */
  HRI_ISA_AVX512,      /* F, BW, DQ, VL */
  HRI_ISA_AVX512_BF16, /* and products of bf16 pairs; kernels that have no use for them are those of AVX512 */
  HRI_ISA_AMX,         /* and tiles of bf16: for products and attention */
  HRI_ISA_NEON,        /* of every 64-bit Arm processor: FMA, 32 registers of 128 bits */
  HRI_ISA_NEON_BF16,   /* and products of bf16 pairs (FEAT_BF16); otherwise as above */
  HRI_ISA_COUNT
} hri_isa;

/* Whether what is compiled for `wanted` runs on a processor whose highest level is `isa`: levels stand in two ladders
 * over base, that of x86-64 and that of Arm. */
bool hri_isa_has(hri_isa isa, hri_isa wanted);

/* How fast a processor multiplies bf16 pairs by the dot instruction of AVX512_BF16: it decides who computes bf16
 * products at that level, and so bits. */
typedef enum hri_pairs {
  HRI_PAIRS_FULL = 0, /* twice the rate of fp32: AMD Zen 4 and later */
  HRI_PAIRS_HALF      /* no more than fp32: Intel (per core 107 GFLOP/s were measured, fp32 205) */
} hri_pairs;

/* "base", "avx2", "avx512", "avx512bf16", "amx", "neon", "neonbf16". Never NULL. */
const char *hri_isa_name(hri_isa isa);
/* False when `text` names no level. */
bool hri_isa_parse(const char *text, hri_isa *isa);

#endif
