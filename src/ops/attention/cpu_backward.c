/* Attention backward in O(T) memory: five products per (key tile, query block), nothing computed twice.
 *
 * With P = exp(S - lse) recomputed and delta = rowsum(dy * y):
 *   dV = P^T dY,   dS = P * (dY V^T - delta),   dK = scale * dS^T Q,   dQ = scale * dS K.
 *
 * A task is one (batch row, kv head, key tile): it keeps dK and dV of its tile and walks the query blocks that see the
 * tile, with all query heads of the group, so dK and dV need no reduction between threads. dQ does: a query block gets
 * a part from each of the key tiles that it sees. Those parts are added straight into dqkv in the order of the key
 * tiles, which makes the bits independent of the team: each (head, query block) carries a turn, the key tile whose
 * part comes next, and a task that is early waits for its turn. Tasks are handed out in the order of the key tiles
 * (all heads of tile 0, then tile 1, ...: also the longest first), so a task only waits for tasks that are running or
 * done, and the wait never deadlocks; with more heads than threads it hardly ever happens, with one head the tasks run
 * one query block behind each other.
 *
 * Rejected: partial dQ per key tile (O(T^2 D / tile) memory), atomics (bits), a second pass for dQ with S and dP
 * computed again (7 products instead of 5).
 *
 * The materialized backward is the same walk with P read from memory instead of recomputed. */
#include <sched.h>

#include "ops/attention/kernels.h"

enum {
  BACKWARD_QUERIES = 64,
  BACKWARD_PANELS = BACKWARD_QUERIES / TILE_LANES,
  /* Row stride of the P and dS tiles: 16 more than the queries, or the rows of a panel would share few cache sets. */
  BACKWARD_STRIDE = BACKWARD_QUERIES + 16,
};

typedef struct backward_tiles {
  float *keys, *values;   /* [TILE_KEYS][padded] */
  float *dkeys, *dvalues; /* [TILE_KEYS][wide] */
  float *q, *dy;          /* [panel][D][TILE_LANES]; q times scale * log2(e) */
  float *q_rows, *dy_rows; /* strips of [BACKWARD_QUERIES][TILE_LANES or TILE_VECTOR]; q times scale */
  float *probs, *dscores; /* [TILE_KEYS][BACKWARD_STRIDE] */
  float *dq;              /* [panel][padded][TILE_LANES] */
  float *lse, *delta;     /* [BACKWARD_QUERIES]; lse in log2, padding lanes so high that their P is 0 */
} backward_tiles;

typedef struct backward_job {
  const hri_attention_shape *shape;
  float scale;
  const float *dy, *qkv, *y, *lse, *probs;
  const int32_t *doc_start;
  float *dqkv;
  float *delta;   /* [B,H,T] */
  int32_t *turns; /* [B,H,blocks] */
  int64_t stride, width;  /* floats per row of qkv and of y */
  int64_t padded, wide;   /* D rounded up to TILE_ROWS and to TILE_VECTOR */
  int64_t blocks, tiles;  /* query blocks and key tiles per row */
} backward_job;

/* The rows of the key tile that each panel of a query block sees. */
typedef struct block_spans {
  tile_span spans[BACKWARD_PANELS];
  int64_t begin[BACKWARD_PANELS], end[BACKWARD_PANELS];
  bool masked[BACKWARD_PANELS];
} block_spans;

static backward_tiles take_tiles(tile_carver *carver, const backward_job *job) {
  int64_t d = job->shape->head_dim;
  backward_tiles t;
  t.keys = tile_take_floats(carver, TILE_KEYS * job->padded);
  t.values = tile_take_floats(carver, TILE_KEYS * job->padded);
  t.dkeys = tile_take_floats(carver, TILE_KEYS * job->wide);
  t.dvalues = tile_take_floats(carver, TILE_KEYS * job->wide);
  t.q = tile_take_floats(carver, BACKWARD_QUERIES * d);
  t.dy = tile_take_floats(carver, BACKWARD_QUERIES * d);
  t.q_rows = tile_take_floats(carver, BACKWARD_QUERIES * job->wide);
  t.dy_rows = tile_take_floats(carver, BACKWARD_QUERIES * job->wide);
  t.probs = tile_take_floats(carver, TILE_KEYS * BACKWARD_STRIDE);
  t.dscores = tile_take_floats(carver, TILE_KEYS * BACKWARD_STRIDE);
  t.dq = tile_take_floats(carver, BACKWARD_QUERIES * job->padded);
  t.lse = tile_take_floats(carver, BACKWARD_QUERIES);
  t.delta = tile_take_floats(carver, BACKWARD_QUERIES);
  return t;
}

static backward_job make_job(const hri_attention_shape *shape) {
  int64_t d = shape->head_dim;
  return (backward_job){.shape = shape,
                        .stride = (shape->heads + 2 * shape->kv_heads) * d,
                        .width = shape->heads * d,
                        .padded = tile_round_up(d, TILE_ROWS),
                        .wide = tile_round_up(d, TILE_VECTOR),
                        .blocks = (shape->sequence + BACKWARD_QUERIES - 1) / BACKWARD_QUERIES,
                        .tiles = (shape->sequence + TILE_KEYS - 1) / TILE_KEYS};
}

/* What the team shares, in front of the tiles of the threads. */
static void take_shared(tile_carver *carver, backward_job *job) {
  uint64_t heads = (uint64_t)job->shape->batch * (uint64_t)job->shape->heads;
  job->delta = tile_take(carver, heads * (uint64_t)job->shape->sequence, sizeof(float));
  job->turns = tile_take(carver, heads * (uint64_t)job->blocks, sizeof(int32_t));
}

uint64_t hri_attention_backward_scratch(const hri_attention_shape *shape, int threads) {
  backward_job job = make_job(shape);
  tile_carver carver = {0};
  take_shared(&carver, &job);
  for (int i = 0; i < threads; i++) take_tiles(&carver, &job);
  return carver.used;
}

uint64_t hri_attention_materialized_backward_scratch(const hri_attention_shape *shape, int threads) {
  return hri_attention_backward_scratch(shape, threads);
}

static const int32_t *row_starts(const backward_job *job, int64_t b) {
  return job->doc_start ? job->doc_start + b * job->shape->sequence : NULL;
}

static float dot(const float *a, const float *b, int64_t count) {
  tile_vf sums = {0};
  int64_t i = 0;
  float sum = 0;
  for (; i + TILE_VECTOR <= count; i += TILE_VECTOR) sums += tile_load(a + i) * tile_load(b + i);
  for (int lane = 0; lane < TILE_VECTOR; lane++) sum += sums[lane];
  for (; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* delta of one (batch row, query) for all heads (0 without y), and zero for its dq. */
static void prepare_row(const backward_job *job, int64_t b, int64_t t) {
  const hri_attention_shape *shape = job->shape;
  int64_t row = b * shape->sequence + t, d = shape->head_dim;
  const float *dy = job->dy + row * job->width;
  memset(job->dqkv + row * job->stride, 0, (size_t)job->width * sizeof(float));
  for (int64_t h = 0; h < shape->heads; h++)
    job->delta[(b * shape->heads + h) * shape->sequence + t] =
        job->y ? dot(dy + h * d, job->y + row * job->width + h * d, d) : 0;
}

/* The first turn of a query block belongs to the first key tile that it sees. */
static void prepare_block(const backward_job *job, int64_t b, int64_t block) {
  const hri_attention_shape *shape = job->shape;
  int64_t least = INT32_MAX;
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    int64_t first = block * BACKWARD_QUERIES + p * TILE_LANES;
    tile_span span;
    if (first >= shape->sequence) break;
    tile_span_fill(&span, shape, row_starts(job, b), first);
    least = tile_min(least, span.least);
  }
  for (int64_t h = 0; h < shape->heads; h++)
    job->turns[(b * shape->heads + h) * job->blocks + block] = (int32_t)(least / TILE_KEYS);
}

static void pack_keys(const backward_job *job, const backward_tiles *tiles, int64_t b, int64_t kv, int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, padded = job->padded, count = tile_min(TILE_KEYS, shape->sequence - key);
  const float *k = job->qkv + (b * shape->sequence + key) * job->stride + (shape->heads + kv) * d;
  tile_copy_rows(k, job->stride, count, d, 1, tiles->keys, padded);
  tile_copy_rows(k + shape->kv_heads * d, job->stride, count, d, 1, tiles->values, padded);
  memset(tiles->keys + count * padded, 0, (size_t)((TILE_KEYS - count) * padded) * sizeof(float));
  memset(tiles->values + count * padded, 0, (size_t)((TILE_KEYS - count) * padded) * sizeof(float));
  memset(tiles->dkeys, 0, (size_t)(TILE_KEYS * job->wide) * sizeof(float));
  memset(tiles->dvalues, 0, (size_t)(TILE_KEYS * job->wide) * sizeof(float));
}

/* Rows of q or dy, both as lanes (panels) and as strips; missing queries are zero. */
static void pack_queries(const backward_job *job, const float *rows, int64_t stride, int64_t count, float lane_factor,
                         float *panels, float row_factor, float *strips) {
  int64_t d = job->shape->head_dim;
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    int64_t lanes = tile_min(TILE_LANES, tile_max_int(count - p * TILE_LANES, 0));
    float *panel = panels + p * d * TILE_LANES;
    if (lanes < TILE_LANES) memset(panel, 0, (size_t)(d * TILE_LANES) * sizeof *panel);
    if (lanes > 0)
      tile_transpose_(false, rows + p * TILE_LANES * stride, stride, lanes, d, lane_factor, panel, TILE_LANES);
  }
  for (int64_t first = 0; first < job->wide; first += TILE_LANES) {
    int64_t width = tile_min(TILE_LANES, job->wide - first);
    float *strip = strips + first * BACKWARD_QUERIES;
    tile_copy_rows(rows + first, stride, count, tile_min(width, d - first), row_factor, strip, width);
    memset(strip + count * width, 0, (size_t)((BACKWARD_QUERIES - count) * width) * sizeof *strip);
  }
}

static void pack_block(const backward_job *job, const backward_tiles *tiles, int64_t b, int64_t h, int64_t first) {
  const hri_attention_shape *shape = job->shape;
  int64_t row = b * shape->sequence + first, d = shape->head_dim;
  int64_t count = tile_min(BACKWARD_QUERIES, shape->sequence - first);
  int64_t index = (b * shape->heads + h) * shape->sequence + first;
  pack_queries(job, job->qkv + row * job->stride + h * d, job->stride, count, job->scale * TILE_LOG2E, tiles->q,
               job->scale, tiles->q_rows);
  pack_queries(job, job->dy + row * job->width + h * d, job->width, count, 1, tiles->dy, 1, tiles->dy_rows);
  for (int64_t i = 0; i < BACKWARD_QUERIES; i++) {
    tiles->lse[i] = job->lse && i < count ? job->lse[index + i] * TILE_LOG2E : -TILE_LOWEST;
    tiles->delta[i] = i < count ? job->delta[index + i] : 0;
  }
}

/* probs = exp2(scores - lse), dscores = probs * (dscores - delta), for the visible rows of one panel. `given` tells
 * that probs are final already. */
static void softmax_backward(const backward_tiles *tiles, const block_spans *spans, int64_t p, int64_t key,
                             bool given) {
  const tile_span *span = &spans->spans[p];
  for (int v = 0; v < 2; v++) {
    int64_t lane = p * TILE_LANES + v * TILE_VECTOR;
    tile_vi query = tile_iota() + (span->first + v * TILE_VECTOR);
    tile_vi start = *(const tile_vi *)(span->start + v * TILE_VECTOR);
    tile_vf lse = tile_load(tiles->lse + lane), delta = tile_load(tiles->delta + lane);
    for (int64_t j = spans->begin[p]; j < spans->end[p]; j++) {
      float *prob = tiles->probs + j * BACKWARD_STRIDE + lane, *dscore = tiles->dscores + j * BACKWARD_STRIDE + lane;
      tile_vf s = tile_load(prob);
      if (!given) {
        if (spans->masked[p]) s = tile_mask(s, query, start, (int32_t)(key + j));
        tile_store(prob, s = tile_exp2(s - lse));
      }
      tile_store(dscore, s * (tile_load(dscore) - delta));
    }
  }
}

/* P of one panel from probs [T][T] of its head; rows and lanes past the sequence are zero. */
static void read_probs(const backward_job *job, const backward_tiles *tiles, const block_spans *spans, int64_t p,
                       int64_t b, int64_t h, int64_t key) {
  int64_t t = job->shape->sequence, first = spans->spans[p].first, lanes = tile_min(TILE_LANES, t - first);
  int64_t begin = spans->begin[p], rows = tile_min(spans->end[p], t - key) - begin;
  float *to = tiles->probs + begin * BACKWARD_STRIDE + p * TILE_LANES;
  for (int64_t j = 0; j < spans->end[p] - begin; j++)
    memset(to + j * BACKWARD_STRIDE, 0, TILE_LANES * sizeof *to);
  const float *from = job->probs + ((b * job->shape->heads + h) * t + first) * t + key + begin;
  tile_transpose_(false, from, t, lanes, rows, 1, to, BACKWARD_STRIDE);
}

/* probs and dscores of the block; what a panel does not see becomes zero, since products run over whole ranges. */
static void compute_scores(const backward_job *job, const backward_tiles *tiles, const block_spans *spans, int64_t b,
                           int64_t h, int64_t key) {
  int64_t d = job->shape->head_dim, padded = job->padded;
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    int64_t begin = spans->begin[p], end = spans->end[p], at = begin * BACKWARD_STRIDE + p * TILE_LANES;
    if (begin < end) {
      if (job->probs) {
        read_probs(job, tiles, spans, p, b, h, key);
      } else {
        tile_product_rows(end - begin, d, tiles->keys + begin * padded, padded, tiles->q + p * d * TILE_LANES,
                          TILE_LANES, tiles->probs + at, BACKWARD_STRIDE);
      }
      tile_product_rows(end - begin, d, tiles->values + begin * padded, padded, tiles->dy + p * d * TILE_LANES,
                        TILE_LANES, tiles->dscores + at, BACKWARD_STRIDE);
      softmax_backward(tiles, spans, p, key, job->probs != NULL);
    }
    for (int64_t j = 0; j < TILE_KEYS; j++) {
      if (j == begin) j = tile_max_int(end, j);
      if (j >= TILE_KEYS) break;
      memset(tiles->probs + j * BACKWARD_STRIDE + p * TILE_LANES, 0, TILE_LANES * sizeof(float));
      memset(tiles->dscores + j * BACKWARD_STRIDE + p * TILE_LANES, 0, TILE_LANES * sizeof(float));
    }
  }
}

/* dkeys and dvalues of the tile += what the block gives. Each group of TILE_ROWS keys takes only the panels that see
 * it. */
static void add_key_gradients(const backward_job *job, const backward_tiles *tiles, const block_spans *spans) {
  for (int64_t first = 0; first < job->wide; first += TILE_LANES) {
    int64_t width = tile_min(TILE_LANES, job->wide - first);
    for (int64_t j = 0; j < TILE_KEYS; j += TILE_ROWS) {
      int64_t from = BACKWARD_PANELS, to = 0;
      for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
        if (j < spans->begin[p] || j >= spans->end[p]) continue;
        from = tile_min(from, p);
        to = p + 1;
      }
      if (from >= to) continue;
      int64_t lane = from * TILE_LANES, depth = (to - from) * TILE_LANES;
      int64_t strip = first * BACKWARD_QUERIES + lane * width, a = j * BACKWARD_STRIDE + lane, c = j * job->wide + first;
      void (*product)(int64_t, int64_t, const float *, int64_t, const float *, int64_t, float *, int64_t) =
          width == TILE_LANES ? tile_product_rows_add : tile_product_rows_add_narrow;
      product(TILE_ROWS, depth, tiles->probs + a, BACKWARD_STRIDE, tiles->dy_rows + strip, width, tiles->dvalues + c,
              job->wide);
      product(TILE_ROWS, depth, tiles->dscores + a, BACKWARD_STRIDE, tiles->q_rows + strip, width, tiles->dkeys + c,
              job->wide);
    }
  }
}

/* Spins briefly, then lets others run: the team may be larger than the machine. */
static void wait_turn(const int32_t *turn, int32_t mine) {
  for (unsigned spins = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine; spins++) {
    if (spins > 200) {
      sched_yield();
      continue;
    }
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
}

/* dq of the block += scale * dS K, in the turn of this key tile. */
static void add_query_gradients(const backward_job *job, const backward_tiles *tiles, const block_spans *spans,
                                int64_t b, int64_t h, int64_t block, int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int32_t *turn = &job->turns[(b * shape->heads + h) * job->blocks + block], mine = (int32_t)(key / TILE_KEYS);
  int64_t panel = job->padded * TILE_LANES;
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    int64_t begin = spans->begin[p], end = spans->end[p];
    if (begin >= end) continue;
    tile_product_columns(job->padded, end - begin, tiles->keys + begin * job->padded, job->padded,
                         tiles->dscores + begin * BACKWARD_STRIDE + p * TILE_LANES, BACKWARD_STRIDE,
                         tiles->dq + p * panel, TILE_LANES);
  }
  wait_turn(turn, mine);
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    if (spans->begin[p] >= spans->end[p]) continue;
    int64_t first = spans->spans[p].first;
    tile_transpose_(true, tiles->dq + p * panel, TILE_LANES, shape->head_dim,
                    tile_min(TILE_LANES, shape->sequence - first), job->scale,
                    job->dqkv + (b * shape->sequence + first) * job->stride + h * shape->head_dim, job->stride);
  }
  __atomic_store_n(turn, mine + 1, __ATOMIC_RELEASE);
}

/* Which rows of the key tile the panels of a block see; false when none. The tiles that a block sees are consecutive,
 * because each query sees everything from its start to itself: so its turns count up by one. */
static bool find_spans(const backward_job *job, block_spans *spans, int64_t b, int64_t block, int64_t key) {
  const hri_attention_shape *shape = job->shape;
  bool any = false;
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    int64_t first = block * BACKWARD_QUERIES + p * TILE_LANES;
    spans->begin[p] = spans->end[p] = 0;
    if (first >= shape->sequence) continue;
    tile_span_fill(&spans->spans[p], shape, row_starts(job, b), first);
    if (tile_span_rows(&spans->spans[p], shape->sequence, key, &spans->begin[p], &spans->end[p], &spans->masked[p])) {
      any = true;
    } else {
      spans->begin[p] = spans->end[p] = 0;
    }
  }
  return any;
}

static void run_tile(const backward_job *job, const backward_tiles *tiles, int64_t b, int64_t kv, int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, group = shape->heads / shape->kv_heads;
  int64_t count = tile_min(TILE_KEYS, shape->sequence - key);
  pack_keys(job, tiles, b, kv, key);
  for (int64_t block = key / BACKWARD_QUERIES; block < job->blocks; block++) {
    block_spans spans;
    if (!find_spans(job, &spans, b, block, key)) continue;
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      pack_block(job, tiles, b, h, block * BACKWARD_QUERIES);
      compute_scores(job, tiles, &spans, b, h, key);
      add_key_gradients(job, tiles, &spans);
      add_query_gradients(job, tiles, &spans, b, h, block, key);
    }
  }
  for (int64_t j = 0; j < count; j++) {
    float *to = job->dqkv + (b * shape->sequence + key + j) * job->stride + (shape->heads + kv) * d;
    memcpy(to, tiles->dkeys + j * job->wide, (size_t)d * sizeof *to);
    memcpy(to + shape->kv_heads * d, tiles->dvalues + j * job->wide, (size_t)d * sizeof *to);
  }
}

/* delta of a block without y: the column sums of P * (dY V^T), which is what dscores hold while delta is still 0. */
static void sum_delta(const backward_job *job, const backward_tiles *tiles, int64_t b, int64_t h, int64_t block) {
  const hri_attention_shape *shape = job->shape;
  int64_t first = block * BACKWARD_QUERIES, count = tile_min(BACKWARD_QUERIES, shape->sequence - first);
  float sums[BACKWARD_QUERIES] = {0};
  pack_block(job, tiles, b, h, first);
  for (int64_t key = 0; key < first + count; key += TILE_KEYS) {
    block_spans spans;
    if (!find_spans(job, &spans, b, block, key)) continue;
    pack_keys(job, tiles, b, h / (shape->heads / shape->kv_heads), key);
    compute_scores(job, tiles, &spans, b, h, key);
    for (int64_t j = 0; j < TILE_KEYS; j++)
      for (int64_t i = 0; i < BACKWARD_QUERIES; i++) sums[i] += tiles->dscores[j * BACKWARD_STRIDE + i];
  }
  memcpy(job->delta + (b * shape->heads + h) * shape->sequence + first, sums, (size_t)count * sizeof *sums);
}

static void run_job(backward_job *job, void *scratch, int threads) {
  const hri_attention_shape *shape = job->shape;
  int64_t pairs = shape->batch * shape->kv_heads, rows = shape->batch * shape->sequence, next = 0, next_delta = 0;
  int64_t blocks = shape->batch * job->blocks;
  tile_carver shared = {.base = scratch}, size = {0};
  take_shared(&shared, job);
  take_tiles(&size, job);
#pragma omp parallel num_threads(threads)
  {
    tile_carver carver = {.base = shared.base + shared.used + (uint64_t)tile_thread() * size.used};
    backward_tiles tiles = take_tiles(&carver, job);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; row++) prepare_row(job, row / shape->sequence, row % shape->sequence);
#pragma omp for schedule(static)
    for (int64_t block = 0; block < blocks; block++) prepare_block(job, block / job->blocks, block % job->blocks);
    if (!job->y) {
      for (int64_t task; (task = tile_next(&next_delta)) < blocks * shape->heads;) {
        int64_t head = task / job->blocks;
        sum_delta(job, &tiles, head / shape->heads, head % shape->heads, task % job->blocks);
      }
#pragma omp barrier
    }
    for (int64_t task; (task = tile_next(&next)) < pairs * job->tiles;) {
      int64_t pair = task % pairs;
      run_tile(job, &tiles, pair / shape->kv_heads, pair % shape->kv_heads, task / pairs * TILE_KEYS);
    }
  }
}

void hri_attention_backward(const hri_attention_shape *shape, float scale, const float *dy, const float *qkv,
                            const float *y, const float *lse, const int32_t *doc_start, float *dqkv, void *scratch,
                            int threads) {
  backward_job job = make_job(shape);
  job.scale = scale;
  job.dy = dy;
  job.qkv = qkv;
  job.y = y;
  job.lse = lse;
  job.doc_start = doc_start;
  job.dqkv = dqkv;
  run_job(&job, scratch, threads);
}

void hri_attention_materialized_backward(const hri_attention_shape *shape, float scale, const float *dy,
                                         const float *qkv, const float *probs, const int32_t *doc_start, float *dqkv,
                                         void *scratch, int threads) {
  backward_job job = make_job(shape);
  job.scale = scale;
  job.dy = dy;
  job.qkv = qkv;
  job.probs = probs;
  job.doc_start = doc_start;
  job.dqkv = dqkv;
  run_job(&job, scratch, threads);
}
