/* Attention that keeps its probabilities [B,H,T,T]: what O(T) memory is compared with.
 *
 * A task is one (batch row, head, panel of TILE_LANES queries): the scores of all its keys at once, an ordinary softmax
 * down the lanes, the product with V, and the transposed copy into probs. */
#include "ops/attention/kernels.h"

typedef struct full_tiles {
  float *q, *out;      /* [D][TILE_LANES], [padded][TILE_LANES] */
  float *keys;         /* [TILE_KEYS][padded]: keys, later values */
  float *scores;       /* [T rounded up to TILE_KEYS][TILE_LANES] */
} full_tiles;

typedef struct full_job {
  const hri_attention_shape *shape;
  float scale;
  const float *qkv;
  const int32_t *doc_start;
  float *y, *probs;
  int64_t stride, padded;
} full_job;

static full_tiles take_tiles(tile_carver *carver, const hri_attention_shape *shape) {
  int64_t d = shape->head_dim, padded = tile_round_up(d, TILE_ROWS);
  full_tiles tiles;
  tiles.q = tile_take_floats(carver, d * TILE_LANES);
  tiles.out = tile_take_floats(carver, padded * TILE_LANES);
  tiles.keys = tile_take_floats(carver, TILE_KEYS * padded);
  tiles.scores = tile_take_floats(carver, tile_round_up(shape->sequence, TILE_KEYS) * TILE_LANES);
  return tiles;
}

uint64_t hri_attention_materialized_scratch(const hri_attention_shape *shape, int threads) {
  tile_carver carver = {0};
  for (int i = 0; i < threads; i++) take_tiles(&carver, shape);
  return carver.used;
}

/* Packs the keys or values (`head` counts from the first query head) of one tile. */
static void pack_tile(const full_job *job, const full_tiles *tiles, int64_t b, int64_t head, int64_t key) {
  int64_t d = job->shape->head_dim, count = tile_min(TILE_KEYS, job->shape->sequence - key);
  tile_copy_rows(job->qkv + (b * job->shape->sequence + key) * job->stride + head * d, job->stride, count, d, 1,
                 tiles->keys, job->padded);
  memset(tiles->keys + count * job->padded, 0, (size_t)((TILE_KEYS - count) * job->padded) * sizeof(float));
}

/* Softmax over scores[0..rows), in place; what a lane does not see becomes 0. */
static void softmax(const full_tiles *tiles, const tile_span *span, int64_t rows) {
  for (int v = 0; v < 2; v++) {
    tile_vi query = tile_iota() + (span->first + v * TILE_VECTOR);
    tile_vi start = *(const tile_vi *)(span->start + v * TILE_VECTOR);
    tile_vf top = tile_splat(TILE_LOWEST), sum = {0};
    float *column = tiles->scores + v * TILE_VECTOR;
    for (int64_t j = 0; j < rows; j++) {
      tile_vf s = tile_mask(tile_load(column + j * TILE_LANES), query, start, (int32_t)j);
      tile_store(column + j * TILE_LANES, s);
      top = tile_max(s, top);
    }
    for (int64_t j = 0; j < rows; j++) {
      tile_vf e = tile_exp2(tile_load(column + j * TILE_LANES) - top);
      sum += e;
      tile_store(column + j * TILE_LANES, e);
    }
    tile_vf factor = 1.0f / sum;
    for (int64_t j = 0; j < rows; j++)
      tile_store(column + j * TILE_LANES, tile_load(column + j * TILE_LANES) * factor);
  }
}

static void run_panel(const full_job *job, const full_tiles *tiles, int64_t b, int64_t h, int64_t first) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, t = shape->sequence, lanes = tile_min(TILE_LANES, t - first), width = shape->heads * d;
  int64_t rows = tile_round_up(first + lanes, TILE_KEYS), kv = h / (shape->heads / shape->kv_heads);
  float *probs = job->probs + ((b * shape->heads + h) * t + first) * t;
  tile_span span;
  tile_span_fill(&span, shape, job->doc_start ? job->doc_start + b * t : NULL, first);
  memset(tiles->q, 0, (size_t)(d * TILE_LANES) * sizeof(float));
  memset(tiles->out, 0, (size_t)(job->padded * TILE_LANES) * sizeof(float));
  tile_transpose_(false, job->qkv + (b * t + first) * job->stride + h * d, job->stride, lanes, d,
                  job->scale * TILE_LOG2E, tiles->q, TILE_LANES);
  for (int64_t key = 0; key < rows; key += TILE_KEYS) {
    pack_tile(job, tiles, b, shape->heads + kv, key);
    tile_product_rows(TILE_KEYS, d, tiles->keys, job->padded, tiles->q, TILE_LANES, tiles->scores + key * TILE_LANES,
                      TILE_LANES);
  }
  softmax(tiles, &span, rows);
  for (int64_t key = 0; key < rows; key += TILE_KEYS) {
    pack_tile(job, tiles, b, shape->heads + shape->kv_heads + kv, key);
    tile_product_columns_add(job->padded, TILE_KEYS, tiles->keys, job->padded, tiles->scores + key * TILE_LANES,
                             TILE_LANES, tiles->out, TILE_LANES);
  }
  tile_transpose_(false, tiles->out, TILE_LANES, d, lanes, 1, job->y + (b * t + first) * width + h * d, width);
  tile_transpose_(false, tiles->scores, TILE_LANES, first + lanes, lanes, 1, probs, t);
  for (int64_t i = 0; i < lanes; i++)
    memset(probs + i * t + first + lanes, 0, (size_t)(t - first - lanes) * sizeof *probs);
}

void hri_attention_materialized(const hri_attention_shape *shape, float scale, const float *qkv,
                                const int32_t *doc_start, float *y, float *probs, void *scratch, int threads) {
  int64_t d = shape->head_dim, panels = (shape->sequence + TILE_LANES - 1) / TILE_LANES;
  int64_t tasks = shape->batch * shape->heads * panels, next = 0;
  full_job job = {.shape = shape, .scale = scale, .qkv = qkv, .doc_start = doc_start, .y = y, .probs = probs,
                  .stride = (shape->heads + 2 * shape->kv_heads) * d, .padded = tile_round_up(d, TILE_ROWS)};
  uint64_t per_thread = hri_attention_materialized_scratch(shape, 1);
#pragma omp parallel num_threads(threads)
  {
    tile_carver carver = {.base = (unsigned char *)scratch + (uint64_t)tile_thread() * per_thread};
    full_tiles tiles = take_tiles(&carver, shape);
    for (int64_t task; (task = tile_next(&next)) < tasks;) {
      int64_t head = task / panels, panel = panels - 1 - task % panels;
      run_panel(&job, &tiles, head / shape->heads, head % shape->heads, panel * TILE_LANES);
    }
  }
}
