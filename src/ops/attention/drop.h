/* Dropout of attention probabilities: P o M instead of P, where M is 0 or 1 / (1 - p); the mask goes by site, row of the
 * data, query head, query and key (ops/draw.h), and is made again in the backward. With it
 *
 *   y = (P o M) V,   dV = (P o M)^T dY,   dP = M o (dY V^T),   delta = rowsum(P o dP) = rowsum(dY o y),
 *   dS = P o (dP - delta),
 *
 * so that lse and what a score's gradient is made of stay as they are. Tiles are only cleared where M is 0; the factor
 * enters where y and dV are stored, and where dP is cleared.
 *
 * A mask is kept as 32 bits for 32 keys of a query. The forward has queries in its lanes, the backward keys: each tests
 * bits in its own way. Included by the kernels, which are compiled once per level; the bits are the same on all. */
#ifndef HRI_OPS_ATTENTION_DROP_H
#define HRI_OPS_ATTENTION_DROP_H

#include "ops/attention/tile.h"
#include "ops/vdraw.h"

enum { DROP_CHUNKS = TILE_KEYS / HRI_DRAW_CHUNK }; /* of a key tile, which begins at a whole one */
_Static_assert(TILE_KEYS % HRI_DRAW_CHUNK == 0 && HRI_DRAW_CHUNK % TILE_LANES == 0, "panels lie within chunks");

typedef struct drop_job {
  bool on;
  hri_philox_keys keys;
  hri_draw draw;
  uint32_t threshold;
  float factor; /* 1 when off */
} drop_job;

static inline drop_job drop_job_make(const hri_attention_shape *shape) {
  drop_job d = {.on = shape->dropout > 0, .factor = 1};
  if (!d.on) return d;
  d.draw = shape->draw;
  d.keys = hri_philox_keys_make(hri_draw_key(&shape->draw));
  d.threshold = hri_drop_threshold(shape->dropout);
  d.factor = hri_drop_factor(shape->dropout);
  return d;
}

/* Bit k: key `key` + k of the query stays; `key` begins a chunk. */
static inline uint32_t drop_bits(const drop_job *d, int64_t b, int64_t h, int64_t query, int64_t key) {
  uint32_t words[HRI_DRAW_CHUNK];
  assert(key % HRI_DRAW_CHUNK == 0);
  hri_vdraw_chunk(words, &d->keys, d->draw.site, d->draw.row + (uint32_t)b, (uint32_t)query, (uint32_t)h,
                  (uint32_t)(key / HRI_DRAW_CHUNK));
  return hri_vkept_bits(words, d->threshold);
}

/* Clears rows [begin, end) of scores [key][query lanes] where the mask is 0; row 0 is `key`, lane 0 `query`. With pairs
 * rows lie in twos, at half the index, the even key in the low halves. */
static inline void drop_scores(const drop_job *d, bool pairs, float *scores, int64_t begin, int64_t end, int64_t b,
                               int64_t h, int64_t query, int64_t key) {
  uint32_t bits[TILE_LANES];
  int64_t step = pairs ? 2 : 1;
  for (int64_t j = begin; j < end; j += step) {
    int32_t bit = (int32_t)((key + j) % HRI_DRAW_CHUNK);
    if (j == begin || bit == 0)
      for (int64_t lane = 0; lane < TILE_LANES; lane++) bits[lane] = drop_bits(d, b, h, query + lane, key + j - bit);
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      tile_vu all = *(const tile_vu *)(bits + v * TILE_VECTOR);
      tile_vi *at = (tile_vi *)(scores + j / step * TILE_LANES + v * TILE_VECTOR);
      tile_vi keep = (tile_vi)(all << (31 - bit)) >> 31;
      if (pairs) keep = (keep & 0xFFFF) | (((tile_vi)(all << (30 - bit)) >> 31) & ~0xFFFF);
      *at &= keep;
    }
  }
}

/* Which bit of its chunk each of the lanes of a vector of keys is; lane 0 is key `key`. */
TILE_INLINE tile_vi drop_places(int64_t key) {
  return tile_splat_int(1) << (tile_iota() + (int32_t)(key % HRI_DRAW_CHUNK));
}
/* All ones in the lanes whose bit is set. */
TILE_INLINE tile_vi drop_keeps(uint32_t bits, tile_vi places) { return (tile_splat_int((int32_t)bits) & places) != 0; }

#endif
