/* What the lanes of a warp do together: shuffles, votes, warp barriers, ldmatrix and mma.sync, with the fragment layouts of
 * the PTX ISA (sections "Matrix fragments for mma.m16n8k16", "... m16n8k8" and "ldmatrix"). */
#ifndef HRI_GPU_SOFT_WARP_H
#define HRI_GPU_SOFT_WARP_H

#include <stdint.h>

#include "gpu/soft/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hri_soft_shuffle {
  HRI_SOFT_SHUFFLE_IDX = 0,
  HRI_SOFT_SHUFFLE_UP,
  HRI_SOFT_SHUFFLE_DOWN,
  HRI_SOFT_SHUFFLE_XOR
} hri_soft_shuffle;

/* The value (up to 8 bytes) of the lane that `kind`, `argument` and `width` name. */
uint64_t hri_soft_shuffle_value(hri_soft_shuffle kind, uint32_t mask, uint64_t value, int32_t argument, int32_t width,
                                hri_soft_site site);
/* The lanes of the mask whose predicate is not 0. */
uint32_t hri_soft_ballot(uint32_t mask, int32_t predicate, hri_soft_site site);
void hri_soft_warp_barrier(uint32_t mask, hri_soft_site site);

typedef enum hri_soft_multiply {
  HRI_SOFT_BF16 = 0, /* m16n8k16, bf16 operands */
  HRI_SOFT_F16,      /* m16n8k16, fp16 operands */
  HRI_SOFT_TF32      /* m16n8k8; the low 13 bits of an operand are not looked at */
} hri_soft_multiply;

/* d += a b, of the whole warp. a: 4 registers, b: 2, d: 4 floats. Sums are made in fp32 in the order of k; what the card's
 * tensor cores do within a product is not documented, so results agree within rounding alone. */
void hri_soft_mma(hri_soft_multiply kind, float *d, const uint32_t *a, const uint32_t *b, hri_soft_site site);

/* `count` (1, 2 or 4) matrices of 8 rows of 16 bytes; lane i's `offset` into shared memory is row i % 8 of matrix i / 8.
 * Lanes of matrices beyond `count` need no valid offset. Whole warp. */
void hri_soft_ldmatrix(uint32_t *registers, uint32_t count, bool transposed, uint32_t offset, const char *name,
                       hri_soft_site site);

#ifdef __cplusplus
}
#endif
#endif
