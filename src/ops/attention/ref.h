/* Attention in double precision, written to be read: what the fast kernels are held against. Shapes, masks and the
 * cache layout: shape.h. One thread, no scratch; outputs do not overlap inputs. */
#ifndef HRI_OPS_ATTENTION_REF_H
#define HRI_OPS_ATTENTION_REF_H

#include "ops/attention/shape.h"

/* y [B*T, H*D]; lse [B,H,T] and probs [B,H,T,T] (0 where masked) may be NULL. */
void hri_attention_ref_forward(const hri_attention_shape *shape, double scale, const double *qkv,
                               const int32_t *doc_start, double *y, double *lse, double *probs);

/* dqkv of a forward that gave y and lse, for the output gradient dy. */
void hri_attention_ref_backward(const hri_attention_shape *shape, double scale, const double *dy, const double *qkv,
                                const double *y, const double *lse, const int32_t *doc_start, double *dqkv);

/* Appends rows_valid rows at position `past` and attends; rows of y from rows_valid on are zero. */
void hri_attention_ref_cached(const hri_attention_cache_shape *shape, double scale, const double *qkv, int64_t past,
                              int64_t rows_valid, double *cache_keys, double *cache_values, double *y);

#endif
