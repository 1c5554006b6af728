/* The kernels of one instruction level, as cpu.c lists them in its table; each is documented there (cpu.h). */
#ifndef HRI_OPS_ATTENTION_KERNELS_H
#define HRI_OPS_ATTENTION_KERNELS_H

#include "ops/attention/cpu.h"
#include "ops/attention/tile.h"

#define hri_attention_forward HRI_ISA_NAME(hri_attention_forward)
#define hri_attention_backward HRI_ISA_NAME(hri_attention_backward)
#define hri_attention_materialized HRI_ISA_NAME(hri_attention_materialized)
#define hri_attention_materialized_backward HRI_ISA_NAME(hri_attention_materialized_backward)
#define hri_attention_cached HRI_ISA_NAME(hri_attention_cached)

void hri_attention_forward(const hri_attention_shape *shape, float scale, const void *qkv, const int32_t *doc_start,
                           void *y, float *lse, void *scratch, hri_team *team);
void hri_attention_backward(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                            const void *y, const float *lse, const int32_t *doc_start, void *dqkv, void *scratch,
                            hri_team *team);
void hri_attention_materialized(const hri_attention_shape *shape, float scale, const void *qkv,
                                const int32_t *doc_start, void *y, void *probs, void *scratch, hri_team *team);
void hri_attention_materialized_backward(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                                         const void *probs, const int32_t *doc_start, void *dqkv, void *scratch,
                                         hri_team *team);
void hri_attention_cached(const hri_attention_cache_shape *shape, float scale, const void *qkv, int64_t past,
                          int64_t rows_valid, void *cache_keys, void *cache_values, void *y, void *scratch,
                          hri_team *team);

#endif
