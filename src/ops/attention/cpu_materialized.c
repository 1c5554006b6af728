/* Attention that keeps its probabilities [B,H,T,T]: what O(T) memory is compared with.
 *
 * A task is one (batch row, head, panel of TILE_LANES queries): the scores of all its keys at once, an ordinary softmax
 * down the lanes, the turned copy into probs, and the product with V. Tiles are fp32 for either type. What is kept are
 * the probabilities before dropout, which clears the scores before the product. */
#include <assert.h>

#include "ops/attention/drop.h"
#include "ops/attention/kernels.h"

typedef struct full_job {
  const hri_attention_shape *shape;
  float factor; /* scale * log2(e) */
  float limit;  /* the soft-cap in units of q.k, or 0 */
  const void *qkv;
  const int32_t *doc_start;
  void *y, *probs;
  int64_t stride, wide; /* elements per row of qkv; D rounded up to TILE_VECTOR */
  int64_t panels;       /* of a sequence */
  drop_job drop;
  hri_attention_cut cut;
  void *scratch;
  uint64_t scratch_each; /* of a thread */
} full_job;

/* Packs `rows` positions of one head from `position` on (`head` counts from the first query head). */
static void pack_tile(const full_job *job, const hri_full_tiles *tiles, int64_t b, int64_t head, int64_t position,
                      int64_t rows) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, count = tile_min(rows, shape->sequence - position);
  tile_pack_rows(false, shape->real,
                 hri_real_from(job->qkv, (b * shape->sequence + position) * job->stride + head * d, shape->real),
                 job->stride, count, d, rows, tiles->rows, job->wide);
}

/* Softmax over scores[0..rows), in place; what a lane does not see becomes 0. */
static void softmax(const hri_full_tiles *tiles, const tile_span *span, int64_t rows, float factor) {
  for (int v = 0; v < 2; v++) {
    tile_vi query = tile_iota() + (span->first + v * TILE_VECTOR);
    tile_vi start = *(const tile_vi *)(span->start + v * TILE_VECTOR);
    tile_vf top = tile_splat(TILE_LOWEST), sum = {0};
    float *column = tiles->scores + v * TILE_VECTOR;
    for (int64_t j = 0; j < rows; j++) {
      tile_vf s = tile_mask(tile_load(column + j * TILE_LANES) * factor, query, start, (int32_t)j);
      tile_store(column + j * TILE_LANES, s);
      top = tile_max(s, top);
    }
    for (int64_t j = 0; j < rows; j++) {
      tile_vf e = tile_exp2(tile_load(column + j * TILE_LANES) - top);
      sum += e;
      tile_store(column + j * TILE_LANES, e);
    }
    tile_vf share = 1.0f / sum;
    for (int64_t j = 0; j < rows; j++) tile_store(column + j * TILE_LANES, tile_load(column + j * TILE_LANES) * share);
  }
}

/* probs of the panel's queries, from the scores of their keys; zero behind the last. */
static void write_probs(const full_job *job, const hri_full_tiles *tiles, int64_t row, int64_t lanes, int64_t keys) {
  int64_t t = job->shape->sequence;
  for (int64_t key = 0; key < t; key += TILE_KEYS) {
    int64_t count = tile_min(TILE_KEYS, t - key);
    if (key < keys)
      tile_transpose(tiles->scores + key * TILE_LANES, TILE_LANES, count, lanes, tiles->turned, TILE_KEYS);
    else memset(tiles->turned, 0, TILE_LANES * TILE_KEYS * sizeof(float));
    for (int64_t i = 0; i < lanes; i++)
      tile_store_row(job->shape->real, tiles->turned + i * TILE_KEYS, count, 1, job->probs, (row + i) * t + key);
  }
}

static void run_panel(const full_job *job, const hri_full_tiles *tiles, int64_t b, int64_t h, int64_t first) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, t = shape->sequence, lanes = tile_min(TILE_LANES, t - first), width = shape->heads * d;
  int64_t rows = tile_round_up(first + lanes, TILE_KEYS), kv = h / (shape->heads / shape->kv_heads);
  tile_span span;
  tile_span_fill(&span, shape, job->doc_start ? job->doc_start + b * t : NULL, first);
  pack_tile(job, tiles, b, h, first, TILE_LANES);
  tile_pack_panels(tiles->rows, job->wide, TILE_LANES, d, tiles->q);
  for (int64_t key = 0; key < rows; key += TILE_KEYS) {
    pack_tile(job, tiles, b, shape->heads + kv, key, TILE_KEYS);
    tile_product(false, false, false, TILE_KEYS, d, tiles->rows, job->wide, tiles->q, TILE_LANES,
                 tiles->scores + key * TILE_LANES, TILE_LANES, TILE_LANES);
  }
  if (job->limit > 0) tile_cap(tiles->scores, rows, job->limit);
  softmax(tiles, &span, rows, job->factor);
  write_probs(job, tiles, (b * shape->heads + h) * t + first, lanes, rows);
  if (job->drop.on) drop_scores(&job->drop, false, tiles->scores, 0, rows, b, h, first, 0);
  for (int64_t key = 0; key < rows; key += TILE_KEYS) {
    pack_tile(job, tiles, b, shape->heads + shape->kv_heads + kv, key, TILE_KEYS);
    tile_product(false, true, key > 0, TILE_LANES, TILE_KEYS, tiles->scores + key * TILE_LANES, TILE_LANES, tiles->rows,
                 job->wide, tiles->out, job->wide, job->wide);
  }
  for (int64_t i = 0; i < lanes; i++)
    tile_store_row(shape->real, tiles->out + i * job->wide, d, job->drop.factor, job->y,
                   (b * t + first + i) * width + h * d);
}

static void run_task(void *context, int64_t task, int64_t end, int thread) {
  const full_job *job = context;
  int64_t head = task / job->panels, panel = job->panels - 1 - task % job->panels;
  hri_carver carver = hri_carver_of(job->scratch, job->scratch_each, thread);
  hri_full_tiles tiles = hri_full_tiles_take(&carver, &job->cut, job->shape);
  assert(carver.used == job->scratch_each); /* what was planned is what is laid out */
  assert(end == task + 1);
  (void)end;
  run_panel(job, &tiles, head / job->shape->heads, head % job->shape->heads, panel * TILE_LANES);
}

void hri_attention_materialized(const hri_attention_shape *shape, float scale, const void *qkv,
                                const int32_t *doc_start, void *y, void *probs, void *scratch, hri_team *team) {
  int64_t d = shape->head_dim;
  full_job job = {.shape = shape,
                  .factor = scale * TILE_LOG2E,
                  .limit = (float)shape->softcap / scale,
                  .qkv = qkv,
                  .doc_start = doc_start,
                  .y = y,
                  .probs = probs,
                  .stride = (shape->heads + 2 * shape->kv_heads) * d,
                  .wide = tile_round_up(d, TILE_VECTOR),
                  .drop = drop_job_make(shape),
                  .panels = (shape->sequence + TILE_LANES - 1) / TILE_LANES,
                  .cut = hri_attention_cut_of(TILE_LEVEL, HRI_REAL_F32, d),
                  .scratch = scratch,
                  .scratch_each = hri_attention_materialized_scratch(TILE_LEVEL, shape, 1)};
  assert(job.cut.lanes == TILE_LANES && job.cut.keys == TILE_KEYS && job.cut.wide == job.wide);
  hri_team_in_order(team, shape->batch * shape->heads * job.panels, run_task, &job);
}
