/* Attention on the CPU: one table of kernels per instruction level. Shapes, types and masks: shape.h.
 *
 * Scores, the softmax and every sum are fp32. With bf16 operands, training kernels with pairs (tile.h) round
 * probabilities and score gradients to bf16 where they enter the second product; elsewhere they stay fp32. Materialized
 * probabilities are rounded where they are stored.
 *
 * Common to all kernels: no allocation, no libm; `scratch` is the caller's, 64-byte aligned, of the size that the
 * *_scratch function of scratch.h gives for the same level, shape and number of threads; inputs and outputs do not overlap
 * and need the alignment of their elements only. The result has the same bits for every team; NULL is the caller alone.
 * Kernels cannot fail. */
#ifndef HRI_OPS_ATTENTION_CPU_H
#define HRI_OPS_ATTENTION_CPU_H

#include <stdint.h>

#include "ops/attention/scratch.h"
#include "team/team.h"

typedef struct hri_attention_kernels_table {
  /* qkv, doc_start int32 [B,T] or NULL -> y, lse. */
  hri_isa level; /* whose scratch it is (scratch.h) */
  void (*forward)(const hri_attention_shape *shape, float scale, const void *qkv, const int32_t *doc_start, void *y,
                  float *lse, void *scratch, hri_team *team);

  /* dy, qkv, y, lse, doc_start -> dqkv (every element written). Scores are recomputed. */
  void (*backward)(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv, const void *y,
                   const float *lse, const int32_t *doc_start, void *dqkv, void *scratch, hri_team *team);

  /* The same, keeping probs [B,H,T,T] (query-major; masked entries are 0): what the comparison with O(T) memory uses.
   * Its backward reads probs instead of recomputing them and needs neither y nor lse. */
  void (*materialized)(const hri_attention_shape *shape, float scale, const void *qkv, const int32_t *doc_start,
                       void *y, void *probs, void *scratch, hri_team *team);
  void (*materialized_backward)(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                                const void *probs, const int32_t *doc_start, void *dqkv, void *scratch, hri_team *team);

  /* Generation. qkv [B*rows, (H+2K)*D]: the first rows_valid rows of each batch row are the positions past .. past +
   * rows_valid - 1 (<= capacity); their keys and values enter the caches, which hold positions 0 .. past - 1 already,
   * and y[B*rows, H*D] receives their attention over all positions up to their own. Rows of y from rows_valid on are
   * set to zero. Cache elements of later positions are neither read into a result nor written. */
  void (*cached)(const hri_attention_cache_shape *shape, float scale, const void *qkv, int64_t past, int64_t rows_valid,
                 void *cache_keys, void *cache_values, void *y, void *scratch, hri_team *team);
} hri_attention_kernels_table;

/* Fill `table`; the variant must suit the processor (the caller checks). */
void hri_attention_kernels_base(hri_attention_kernels_table *table);
void hri_attention_kernels_avx2(hri_attention_kernels_table *table);
void hri_attention_kernels_avx512(hri_attention_kernels_table *table);
void hri_attention_kernels_avx512bf16(hri_attention_kernels_table *table);
void hri_attention_kernels_amx(hri_attention_kernels_table *table); /* where the compiler knows AMX */
/* Those with AMX's operations written out in C, for a processor with AVX2: for tests. */
void hri_attention_kernels_amx_emulated(hri_attention_kernels_table *table);
void hri_attention_kernels_neon(hri_attention_kernels_table *table);
void hri_attention_kernels_neonbf16(hri_attention_kernels_table *table);

#endif
