/* Attention forward in O(T) memory: online softmax over key tiles (Milakov and Gimelshein, "Online normalizer
 * calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
 *
 * A task is one (batch row, head, block of FORWARD_QUERIES queries). It walks the key tiles that its queries can see;
 * per tile it packs K and V once and then, panel by panel of TILE_LANES queries, computes S^T = K Q^T, exponentiates it
 * in the first-level cache against the running maximum, and adds V^T P^T to the transposed output. Scores are in units
 * of log2 (log2(e) goes into the scale of Q). Rows of S^T that no lane sees are never computed.
 *
 * Tasks of a head run longest first and heads in order: one head's keys stay in the shared cache, and the tail of the
 * loop is short tasks. No task depends on another, so bits do not depend on the team. */
#include "ops/attention/kernels.h"

enum { FORWARD_QUERIES = 128, FORWARD_PANELS = FORWARD_QUERIES / TILE_LANES };

typedef struct forward_tiles {
  float *q;          /* [panel][D][TILE_LANES], times scale * log2(e) */
  float *out;        /* [panel][D rounded up to TILE_ROWS][TILE_LANES] */
  float *keys;       /* [TILE_KEYS][D rounded up] */
  float *values;     /* the same */
  float *scores;     /* [TILE_KEYS][TILE_LANES] of one panel */
  float *highest;    /* [panel][TILE_LANES]: running maximum */
  float *sum;        /* [panel][TILE_LANES]: running sum of exp2(score - highest) */
  tile_span *spans;  /* [panel] */
} forward_tiles;

typedef struct forward_job {
  const hri_attention_shape *shape;
  float scale;
  const float *qkv;
  const int32_t *doc_start;
  float *y, *lse;
  int64_t stride;  /* floats per row of qkv */
  int64_t padded;  /* D rounded up to TILE_ROWS */
} forward_job;

static forward_tiles take_tiles(tile_carver *carver, const hri_attention_shape *shape) {
  int64_t d = shape->head_dim, padded = tile_round_up(d, TILE_ROWS);
  forward_tiles tiles;
  tiles.q = tile_take_floats(carver, FORWARD_QUERIES * d);
  tiles.out = tile_take_floats(carver, FORWARD_QUERIES * padded);
  tiles.keys = tile_take_floats(carver, TILE_KEYS * padded);
  tiles.values = tile_take_floats(carver, TILE_KEYS * padded);
  tiles.scores = tile_take_floats(carver, TILE_KEYS * TILE_LANES);
  tiles.highest = tile_take_floats(carver, FORWARD_QUERIES);
  tiles.sum = tile_take_floats(carver, FORWARD_QUERIES);
  tiles.spans = tile_take(carver, FORWARD_PANELS, sizeof(tile_span));
  return tiles;
}

uint64_t hri_attention_forward_scratch(const hri_attention_shape *shape, int threads) {
  tile_carver carver = {0};
  for (int i = 0; i < threads; i++) take_tiles(&carver, shape);
  return carver.used;
}

/* Packs the queries of a block and clears its running state; returns the number of panels. */
static int64_t begin_block(const forward_job *job, const forward_tiles *tiles, int64_t b, int64_t h, int64_t query) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, panels = 0;
  const int32_t *doc_start = job->doc_start ? job->doc_start + b * shape->sequence : NULL;
  for (int64_t first = query; first < tile_min(query + FORWARD_QUERIES, shape->sequence); first += TILE_LANES) {
    int64_t count = tile_min(TILE_LANES, shape->sequence - first);
    float *q = tiles->q + panels * d * TILE_LANES;
    if (count < TILE_LANES) memset(q, 0, (size_t)(d * TILE_LANES) * sizeof *q);
    tile_transpose_(false, job->qkv + (b * shape->sequence + first) * job->stride + h * d, job->stride, count, d,
                    job->scale * TILE_LOG2E, q, TILE_LANES);
    tile_span_fill(&tiles->spans[panels], shape, doc_start, first);
    panels++;
  }
  memset(tiles->out, 0, (size_t)(panels * TILE_LANES * job->padded) * sizeof *tiles->out);
  for (int64_t i = 0; i < panels * TILE_LANES; i++) {
    tiles->highest[i] = TILE_LOWEST;
    tiles->sum[i] = 0;
  }
  return panels;
}

/* Scales the output so far where the maximum rose; `factor` is exp2(old - new), two vectors. */
static void rescale(float *out, int64_t rows, const tile_vf factor[2]) {
  for (int64_t i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      float *p = out + i * TILE_LANES + v * TILE_VECTOR;
      tile_store(p, tile_load(p) * factor[v]);
    }
  }
}

static bool any_differs(tile_vf a, tile_vf b) {
  tile_vi different = a != b;
  int32_t any = 0;
  for (int i = 0; i < TILE_VECTOR; i++) any |= different[i];
  return any != 0;
}

/* One step of the online softmax: scores[begin..end) become exp2(score - highest). */
static void softmax_step(const forward_tiles *tiles, int64_t panel, int64_t key, int64_t begin, int64_t end,
                         bool masked, int64_t padded) {
  const tile_span *span = &tiles->spans[panel];
  float *highest = tiles->highest + panel * TILE_LANES, *sum = tiles->sum + panel * TILE_LANES;
  tile_vf old[2], top[2], total[2], factor[2];
  TILE_UNROLL for (int v = 0; v < 2; v++) {
    tile_vi query = tile_iota() + (span->first + v * TILE_VECTOR);
    tile_vi start = *(const tile_vi *)(span->start + v * TILE_VECTOR);
    top[v] = old[v] = tile_load(highest + v * TILE_VECTOR);
    for (int64_t j = begin; j < end; j++) {
      float *p = tiles->scores + j * TILE_LANES + v * TILE_VECTOR;
      tile_vf s = tile_load(p);
      if (masked) tile_store(p, s = tile_mask(s, query, start, (int32_t)(key + j)));
      top[v] = tile_max(s, top[v]);
    }
    factor[v] = tile_exp2(old[v] - top[v]);
    total[v] = tile_load(sum + v * TILE_VECTOR) * factor[v];
  }
  for (int64_t j = begin; j < end; j++) {
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      float *p = tiles->scores + j * TILE_LANES + v * TILE_VECTOR;
      tile_vf e = tile_exp2(tile_load(p) - top[v]);
      total[v] += e;
      tile_store(p, e);
    }
  }
  TILE_UNROLL for (int v = 0; v < 2; v++) {
    tile_store(highest + v * TILE_VECTOR, top[v]);
    tile_store(sum + v * TILE_VECTOR, total[v]);
  }
  if (any_differs(old[0], top[0]) || any_differs(old[1], top[1]))
    rescale(tiles->out + panel * TILE_LANES * padded, padded, factor);
}

/* All panels of the block against the key tile from `key` on. */
static void step_tile(const forward_job *job, const forward_tiles *tiles, int64_t panels, int64_t b, int64_t kv,
                      int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, padded = job->padded, count = tile_min(TILE_KEYS, shape->sequence - key);
  const float *k = job->qkv + (b * shape->sequence + key) * job->stride + (shape->heads + kv) * d;
  tile_copy_rows(k, job->stride, count, d, 1, tiles->keys, padded);
  tile_copy_rows(k + shape->kv_heads * d, job->stride, count, d, 1, tiles->values, padded);
  memset(tiles->keys + count * padded, 0, (size_t)((TILE_KEYS - count) * padded) * sizeof(float));
  memset(tiles->values + count * padded, 0, (size_t)((TILE_KEYS - count) * padded) * sizeof(float));
  for (int64_t p = 0; p < panels; p++) {
    int64_t begin, end;
    bool masked;
    if (!tile_span_rows(&tiles->spans[p], shape->sequence, key, &begin, &end, &masked)) continue;
    tile_product_rows(end - begin, d, tiles->keys + begin * padded, padded, tiles->q + p * d * TILE_LANES, TILE_LANES,
                      tiles->scores + begin * TILE_LANES, TILE_LANES);
    softmax_step(tiles, p, key, begin, end, masked, padded);
    tile_product_columns_add(padded, end - begin, tiles->values + begin * padded, padded,
                             tiles->scores + begin * TILE_LANES, TILE_LANES, tiles->out + p * TILE_LANES * padded,
                             TILE_LANES);
  }
}

/* Divides by the sums and writes y and lse. */
static void finish_panel(const forward_job *job, const forward_tiles *tiles, int64_t p, int64_t b, int64_t h) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, first = tiles->spans[p].first, width = shape->heads * d;
  int64_t count = tile_min(TILE_LANES, shape->sequence - first);
  float *lse = job->lse + (b * shape->heads + h) * shape->sequence + first, values[TILE_LANES];
  tile_vf factor[2];
  TILE_UNROLL for (int v = 0; v < 2; v++) {
    int64_t lane = p * TILE_LANES + v * TILE_VECTOR;
    tile_vf sum = tile_load(tiles->sum + lane), top = tile_load(tiles->highest + lane);
    factor[v] = 1.0f / sum;
    tile_store(values + v * TILE_VECTOR, (top + tile_log2(sum)) * TILE_LN2);
  }
  rescale(tiles->out + p * TILE_LANES * job->padded, d, factor);
  tile_transpose_(false, tiles->out + p * TILE_LANES * job->padded, TILE_LANES, d, count, 1,
                  job->y + (b * shape->sequence + first) * width + h * d, width);
  memcpy(lse, values, (size_t)count * sizeof *lse);
}

static void run_block(const forward_job *job, const forward_tiles *tiles, int64_t b, int64_t h, int64_t query) {
  const hri_attention_shape *shape = job->shape;
  int64_t panels = begin_block(job, tiles, b, h, query), kv = h / (shape->heads / shape->kv_heads);
  int64_t least = INT32_MAX, end = tile_min(query + FORWARD_QUERIES, shape->sequence);
  for (int64_t p = 0; p < panels; p++) least = tile_min(least, tiles->spans[p].least);
  for (int64_t key = least / TILE_KEYS * TILE_KEYS; key < end; key += TILE_KEYS)
    step_tile(job, tiles, panels, b, kv, key);
  for (int64_t p = 0; p < panels; p++) finish_panel(job, tiles, p, b, h);
}

void hri_attention_forward(const hri_attention_shape *shape, float scale, const float *qkv, const int32_t *doc_start,
                           float *y, float *lse, void *scratch, int threads) {
  int64_t d = shape->head_dim, group = shape->heads / shape->kv_heads;
  int64_t blocks = (shape->sequence + FORWARD_QUERIES - 1) / FORWARD_QUERIES;
  int64_t tasks = shape->batch * shape->heads * blocks, next = 0;
  forward_job job = {.shape = shape, .scale = scale, .qkv = qkv, .doc_start = doc_start, .y = y, .lse = lse,
                     .stride = (shape->heads + 2 * shape->kv_heads) * d, .padded = tile_round_up(d, TILE_ROWS)};
  uint64_t per_thread = hri_attention_forward_scratch(shape, 1);
#pragma omp parallel num_threads(threads)
  {
    tile_carver carver = {.base = (unsigned char *)scratch + (uint64_t)tile_thread() * per_thread};
    forward_tiles tiles = take_tiles(&carver, shape);
    for (int64_t task; (task = tile_next(&next)) < tasks;) {
      /* (b, kv), then blocks from the last, then the heads that share kv */
      int64_t g = task % group, block = blocks - 1 - task / group % blocks, pair = task / group / blocks;
      run_block(&job, &tiles, pair / shape->kv_heads, pair % shape->kv_heads * group + g, block * FORWARD_QUERIES);
    }
  }
}
