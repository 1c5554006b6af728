/* Shapes shared by the attention kernels and their double references, and the layout of the generation cache.
 *
 * qkv    [B*T, (H+2K)*D], row-major: H query heads, then K key heads, then K value heads. Query head h reads
 *        key/value head h / (H/K).
 * The score of a query and a key is scale * q.k, or c tanh(scale * q.k / c) with a soft-cap c.
 * y, dy  [B*T, H*D]; lse [B,H,T], always fp32, is the natural logarithm of the sum of exp(score) over the visible keys.
 * Query t of row b sees the keys j with max(doc_start[b,t], t - window + 1) <= j <= t; doc_start may be NULL (0
 * everywhere), window 0 means none. A doc_start outside [0, t] is clamped into it, so each query sees itself. */
#ifndef HRI_OPS_ATTENTION_SHAPE_H
#define HRI_OPS_ATTENTION_SHAPE_H

#include <stdint.h>

#include "base/real.h"
#include "ops/draw.h"

typedef struct hri_attention_shape {
  int64_t batch, sequence; /* B, T */
  int64_t heads, kv_heads; /* H, K; K divides H */
  int64_t head_dim;        /* D */
  int64_t window;          /* 0 = none */
  double softcap;          /* c; 0 = none */
  hri_real real;           /* of qkv, y, probs and their gradients */
  double dropout;          /* p, of the probabilities (drop.h); 0 = none */
  hri_draw draw;           /* whose mask, where there is one; row b of the batch is row draw.row + b */
} hri_attention_shape;

/* Generation: `rows` new positions per batch row are appended to a cache that holds `capacity` positions. */
typedef struct hri_attention_cache_shape {
  int64_t batch, rows;
  int64_t capacity; /* a multiple of HRI_ATTENTION_CACHE_BLOCK */
  int64_t heads, kv_heads, head_dim, window;
  double softcap; /* as above */
  hri_real real;  /* of qkv, y and the caches */
} hri_attention_cache_shape;

/* Both caches hold batch * kv_heads * capacity * head_dim elements.
 *   keys    [B, K, capacity/32, D, 32]: 32 positions side by side, so that 32 scores come from D vector FMAs without a
 *           horizontal sum, while the cache is read front to back.
 *   values  [B, K, capacity, D]: the output is a sum of rows; also read front to back. */
enum { HRI_ATTENTION_CACHE_BLOCK = 32 };

static inline int64_t hri_attention_cache_elements(const hri_attention_cache_shape *shape) {
  return shape->batch * shape->kv_heads * shape->capacity * shape->head_dim;
}

/* Where element d of the key at `position` lives: first (d = 0), then every HRI_ATTENTION_CACHE_BLOCK elements. */
static inline int64_t hri_attention_cache_key(const hri_attention_cache_shape *shape, int64_t b, int64_t kv,
                                              int64_t position) {
  int64_t block = position / HRI_ATTENTION_CACHE_BLOCK, lane = position % HRI_ATTENTION_CACHE_BLOCK;
  return ((b * shape->kv_heads + kv) * shape->capacity + block * HRI_ATTENTION_CACHE_BLOCK) * shape->head_dim + lane;
}
static inline int64_t hri_attention_cache_value(const hri_attention_cache_shape *shape, int64_t b, int64_t kv,
                                                int64_t position) {
  return ((b * shape->kv_heads + kv) * shape->capacity + position) * shape->head_dim;
}

#endif
