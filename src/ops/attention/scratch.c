/* Layouts of attention's scratch, compiled once, for no particular instruction set. */
#include "ops/attention/scratch.h"

#include <stddef.h>

#include "base/mem.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }
static int64_t rounded(int64_t value, int64_t unit) { return blocks(value, unit) * unit; }

hri_attention_cut hri_attention_cut_of(hri_isa level, hri_real real, int64_t head_dim) {
  static const int64_t sizes[HRI_ISA_COUNT][2] = {[HRI_ISA_BASE] = {HRI_TILE_VECTOR_BASE, HRI_TILE_KEYS_BASE},
                                                  [HRI_ISA_AVX2] = {HRI_TILE_VECTOR_AVX2, HRI_TILE_KEYS_AVX2},
                                                  [HRI_ISA_AVX512] = {HRI_TILE_VECTOR_AVX512, HRI_TILE_KEYS_AVX512},
                                                  [HRI_ISA_AVX512_BF16] = {HRI_TILE_VECTOR_AVX512,
                                                                           HRI_TILE_KEYS_AVX512},
                                                  [HRI_ISA_AMX] = {HRI_TILE_VECTOR_AVX512, HRI_TILE_KEYS_AVX512},
                                                  [HRI_ISA_NEON] = {HRI_TILE_VECTOR_NEON, HRI_TILE_KEYS_NEON},
                                                  [HRI_ISA_NEON_BF16] = {HRI_TILE_VECTOR_NEON, HRI_TILE_KEYS_NEON}};
  hri_attention_cut cut = {.vector = sizes[level][0], .lanes = 2 * sizes[level][0], .keys = sizes[level][1]};
  cut.pairs =
      (hri_isa_has(level, HRI_ISA_AVX512_BF16) || hri_isa_has(level, HRI_ISA_NEON_BF16)) && real == HRI_REAL_BF16;
  cut.tiles = cut.pairs && hri_isa_has(level, HRI_ISA_AMX);
  cut.words = cut.pairs ? blocks(head_dim, 2) : head_dim;
  if (cut.tiles) cut.words = rounded(cut.words, cut.vector);
  /* By tiles rows of pairs, half as long, begin with a line of the cache. */
  cut.stride = cut.keys + (hri_isa_has(level, HRI_ISA_AMX) ? 2 : 1) * cut.vector;
  cut.row = rounded(cut.words, cut.vector);
  cut.wide = rounded(head_dim, cut.vector);
  return cut;
}

/* ---- laying out ---- */

static void *carve(hri_carver *carver, uint64_t count, uint64_t bytes_each) {
  void *piece = carver->base ? carver->base + carver->used : NULL;
  uint64_t bytes;
  if (!hri_mul(count, bytes_each, &bytes) || bytes > UINT64_MAX / 2 || carver->used > UINT64_MAX / 2) {
    carver->used = UINT64_MAX;
    return NULL;
  }
  carver->used += hri_round_up(bytes, 64);
  return piece;
}
static float *floats(hri_carver *carver, int64_t count) { return carve(carver, (uint64_t)count, sizeof(float)); }

hri_forward_tiles hri_forward_tiles_take(hri_carver *carver, const hri_attention_cut *cut) {
  uint64_t span_bytes = (uint64_t)(cut->lanes + 3) * sizeof(int32_t);
  hri_forward_tiles t;
  t.rows = floats(carver, HRI_FORWARD_QUERIES * cut->row);
  t.q = floats(carver, HRI_FORWARD_QUERIES * cut->words);
  t.out = floats(carver, HRI_FORWARD_QUERIES * cut->wide);
  t.keys = floats(carver, cut->keys * cut->row);
  t.values = floats(carver, cut->keys * cut->row);
  t.value_pairs = cut->pairs ? floats(carver, cut->keys / 2 * cut->wide) : t.values;
  t.scores = floats(carver, cut->keys * cut->lanes);
  t.highest = floats(carver, HRI_FORWARD_QUERIES);
  t.sum = floats(carver, HRI_FORWARD_QUERIES);
  t.turned = cut->tiles ? floats(carver, cut->wide * most(cut->keys / 2, cut->lanes)) : NULL;
  t.spans = carve(carver, (uint64_t)(HRI_FORWARD_QUERIES / cut->lanes), span_bytes);
  return t;
}

hri_backward_tiles hri_backward_tiles_take(hri_carver *carver, const hri_attention_cut *cut, bool capped) {
  int64_t tile = HRI_BACKWARD_QUERIES * cut->stride;
  hri_backward_tiles t;
  t.rows = floats(carver, cut->keys * cut->row);
  t.keys = floats(carver, cut->keys * cut->words);
  t.values = floats(carver, cut->keys * cut->words);
  t.key_pairs = floats(carver, cut->pairs ? cut->keys / 2 * cut->wide : cut->keys * cut->row);
  t.dkeys = floats(carver, cut->keys * cut->wide);
  t.dvalues = floats(carver, cut->keys * cut->wide);
  t.q = floats(carver, HRI_BACKWARD_QUERIES * cut->row);
  t.dy = floats(carver, HRI_BACKWARD_QUERIES * cut->row);
  t.q_pairs = cut->pairs ? floats(carver, HRI_BACKWARD_QUERIES / 2 * cut->wide) : t.q;
  t.dy_pairs = cut->pairs ? floats(carver, HRI_BACKWARD_QUERIES / 2 * cut->wide) : t.dy;
  t.turned = cut->tiles ? floats(carver, cut->lanes * cut->wide) : NULL;
  t.probs = floats(carver, tile);
  t.dscores = floats(carver, tile);
  t.slopes = capped ? floats(carver, tile) : NULL;
  t.dscore_rows = cut->pairs ? floats(carver, tile / 2) : t.dscores;
  t.lse = floats(carver, HRI_BACKWARD_QUERIES);
  t.delta = floats(carver, HRI_BACKWARD_QUERIES);
  t.start = carve(carver, HRI_BACKWARD_QUERIES, sizeof(int32_t));
  return t;
}

hri_backward_shared hri_backward_shared_take(hri_carver *carver, const hri_attention_cut *cut,
                                             const hri_attention_shape *shape, int threads) {
  hri_backward_shared s = {.group = shape->heads / shape->kv_heads,
                           .slots = least(shape->batch * shape->kv_heads, (int64_t)HRI_BACKWARD_SLOTS * threads),
                           .blocks = blocks(shape->sequence, HRI_BACKWARD_QUERIES)};
  uint64_t in_flight = (uint64_t)s.slots * (uint64_t)s.group, heads = (uint64_t)shape->batch * (uint64_t)shape->heads;
  s.delta = carve(carver, heads * (uint64_t)shape->sequence, sizeof(float));
  s.least = carve(carver, (uint64_t)shape->batch * (uint64_t)s.blocks, sizeof(int32_t));
  s.turns = carve(carver, in_flight * (uint64_t)s.blocks, sizeof(int64_t));
  s.dq = carve(carver, in_flight * (uint64_t)s.blocks, HRI_BACKWARD_QUERIES * (uint64_t)cut->wide * sizeof(float));
  return s;
}

hri_full_tiles hri_full_tiles_take(hri_carver *carver, const hri_attention_cut *cut, const hri_attention_shape *shape) {
  hri_full_tiles t;
  t.rows = floats(carver, cut->keys * cut->wide);
  t.q = floats(carver, shape->head_dim * cut->lanes);
  t.out = floats(carver, cut->wide * cut->lanes);
  t.scores = floats(carver, rounded(shape->sequence, cut->keys) * cut->lanes);
  t.turned = floats(carver, cut->lanes * cut->keys);
  return t;
}

hri_cached_tiles hri_cached_tiles_take(hri_carver *carver, const hri_attention_cut *cut, int64_t head_dim) {
  hri_cached_tiles t;
  t.q = floats(carver, HRI_CACHED_ROWS * head_dim);
  t.out = floats(carver, HRI_CACHED_ROWS * cut->wide);
  t.scores = floats(carver, HRI_CACHED_ROWS * HRI_CACHED_KEYS);
  t.tail = floats(carver, HRI_CACHED_KEYS * cut->vector);
  t.highest = floats(carver, HRI_CACHED_ROWS);
  t.sum = floats(carver, HRI_CACHED_ROWS);
  return t;
}

hri_cached_parts hri_cached_parts_take(hri_carver *carver, const hri_attention_cut *cut,
                                       const hri_attention_cache_shape *shape) {
  hri_cached_parts p = {.group = shape->heads / shape->kv_heads, .splits = 1};
  uint64_t rows = (uint64_t)shape->batch * (uint64_t)shape->heads * (uint64_t)shape->rows;
  p.row_groups = blocks(shape->rows * p.group, HRI_CACHED_ROWS);
  if (shape->batch * shape->kv_heads * p.row_groups < HRI_CACHED_ENOUGH_TASKS && shape->capacity > HRI_CACHED_SPLIT)
    p.splits = blocks(shape->capacity, HRI_CACHED_SPLIT);
  if (p.splits > 1) p.parts = carve(carver, rows * (uint64_t)p.splits, (uint64_t)(cut->wide + 2) * sizeof(float));
  return p;
}

/* ---- sizes ---- */

uint64_t hri_attention_forward_scratch(hri_isa level, const hri_attention_shape *shape, int threads) {
  hri_attention_cut cut = hri_attention_cut_of(level, shape->real, shape->head_dim);
  hri_carver carver = {0};
  for (int i = 0; i < threads; i++) (void)hri_forward_tiles_take(&carver, &cut);
  return carver.used;
}

uint64_t hri_attention_backward_scratch(hri_isa level, const hri_attention_shape *shape, int threads) {
  hri_attention_cut cut = hri_attention_cut_of(level, shape->real, shape->head_dim);
  hri_carver carver = {0};
  (void)hri_backward_shared_take(&carver, &cut, shape, threads);
  for (int i = 0; i < threads; i++) (void)hri_backward_tiles_take(&carver, &cut, shape->softcap > 0);
  return carver.used;
}

uint64_t hri_attention_materialized_scratch(hri_isa level, const hri_attention_shape *shape, int threads) {
  hri_attention_cut cut =
      hri_attention_cut_of(level, HRI_REAL_F32, shape->head_dim); /* tiles are fp32 for either type */
  hri_carver carver = {0};
  for (int i = 0; i < threads; i++) (void)hri_full_tiles_take(&carver, &cut, shape);
  return carver.used;
}

uint64_t hri_attention_cached_scratch(hri_isa level, const hri_attention_cache_shape *shape, int threads) {
  hri_attention_cut cut = hri_attention_cut_of(level, HRI_REAL_F32, shape->head_dim);
  hri_carver carver = {0};
  (void)hri_cached_parts_take(&carver, &cut, shape);
  for (int i = 0; i < threads; i++) (void)hri_cached_tiles_take(&carver, &cut, shape->head_dim);
  return carver.used;
}
