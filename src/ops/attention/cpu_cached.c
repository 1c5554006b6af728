/* Attention of a few new positions over a generation cache, at the bandwidth of the cache.
 *
 * Here the new rows are few and the keys many, so keys (or elements of D) are the vector lanes and rows are broadcast:
 * both caches are read front to back just as they lie (layout: shape.h), once per group of up to HRI_CACHED_ROWS rows.
 * The query heads that share a kv head count as rows of the same group, so grouped heads divide the traffic.
 *
 * A task is one (batch row, kv head, row group), walking tiles of HRI_CACHED_KEYS positions with an online softmax.
 * When
 * the shape gives too few such tasks (one-token decode with few heads), the keys are split as well: each task leaves
 * its unnormalised output, maximum and sum in scratch, and the parts are folded in the order of the splits. Whether and
 * where to split depends on the shape only, never on the team: the bits do not either. */
#include <assert.h>

#include "ops/attention/kernels.h"
#include "ops/scratch.h"

enum { CACHED_FEW = 8 /* up to so many rows, what counts is reading the cache in long runs */ };

typedef struct cached_job {
  const hri_attention_cache_shape *shape;
  float scale;
  const void *qkv;
  int64_t past, valid;
  void *keys, *values, *y;
  int64_t stride; /* elements per row of qkv */
  hri_attention_cut cut;
  hri_cached_parts shared;
  int64_t splits; /* that hold keys; 1: results go to y directly */
  void *scratch;
  uint64_t scratch_each; /* of a thread */
} cached_job;

/* Any number of rows: C[m][vectors] = or += A[m][depth] * B[depth][vectors], A by rows, B as it lies in the cache. The
 * wide ones serve few rows: what counts there is reading B in long runs, with enough sums in flight to hide the latency
 * of an addition. */
TILE_INLINE void product_any(const hri_real real, const int vectors, const bool add, int64_t m, int64_t depth,
                             const float *a, int64_t lda, const void *b, int64_t ldb, float *c, int64_t ldc) {
  const int most = vectors == 8 ? 1 : vectors == 4 ? (TILE_VECTOR == 16 ? 4 : 2) : TILE_BLOCK;
  for (; m >= most; m -= most, a += most * lda, c += most * ldc)
    tile_kernel(false, real, most, vectors, false, add, depth, a, lda, b, ldb, c, ldc);
  if (most > 4 && m >= 4) {
    tile_kernel(false, real, 4, vectors, false, add, depth, a, lda, b, ldb, c, ldc);
    m -= 4, a += 4 * lda, c += 4 * ldc;
  }
  if (most > 2 && m >= 2) {
    tile_kernel(false, real, 2, vectors, false, add, depth, a, lda, b, ldb, c, ldc);
    m -= 2, a += 2 * lda, c += 2 * ldc;
  }
  if (most > 1 && m >= 1) tile_kernel(false, real, 1, vectors, false, add, depth, a, lda, b, ldb, c, ldc);
}
#define CACHED_PRODUCT(name, vectors, add)                                                                             \
  __attribute__((noinline)) static void name(hri_real real, int64_t m, int64_t depth, const float *a, int64_t lda,     \
                                             const void *b, int64_t ldb, float *c, int64_t ldc) {                      \
    HRI_BY_REAL(real, product_any(REAL, vectors, add, m, depth, a, lda, b, ldb, c, ldc));                              \
  }
CACHED_PRODUCT(product_set_2, 2, false)
CACHED_PRODUCT(product_set_4, 4, false)
CACHED_PRODUCT(product_add_1, 1, true)
CACHED_PRODUCT(product_add_2, 2, true)
CACHED_PRODUCT(product_add_4, 4, true)
CACHED_PRODUCT(product_add_8, 8, true)

/* One new position of one (batch row, kv head) into the caches. */
static void append(const cached_job *job, int64_t b, int64_t kv, int64_t row) {
  const hri_attention_cache_shape *shape = job->shape;
  int64_t d = shape->head_dim, position = job->past + row, bytes = (int64_t)hri_real_bytes(shape->real);
  const void *k = hri_real_from(job->qkv, (b * shape->rows + row) * job->stride + (shape->heads + kv) * d, shape->real);
  void *to = hri_real_at(job->keys, hri_attention_cache_key(shape, b, kv, position), shape->real);
  for (int64_t i = 0; i < d; i++)
    memcpy(hri_real_at(to, i * HRI_ATTENTION_CACHE_BLOCK, shape->real), hri_real_from(k, i, shape->real),
           (size_t)bytes);
  memcpy(hri_real_at(job->values, hri_attention_cache_value(shape, b, kv, position), shape->real),
         hri_real_from(k, shape->kv_heads * d, shape->real), (size_t)(d * bytes));
}

/* Position of the row with index r = (new row) * group + (query head in group), and the first that it sees. */
static int64_t row_position(const cached_job *job, int64_t r) { return job->past + r / job->shared.group; }
static int64_t row_start(const cached_job *job, int64_t r) {
  return job->shape->window > 0 ? tile_max_int(0, row_position(job, r) - job->shape->window + 1) : 0;
}

static float lane_max(tile_vf v) {
  float top = v[0];
  for (int i = 1; i < TILE_VECTOR; i++) top = v[i] > top ? v[i] : top;
  return top;
}
static float lane_sum(tile_vf v) {
  float sum = v[0];
  for (int i = 1; i < TILE_VECTOR; i++) sum += v[i];
  return sum;
}

/* One step of the online softmax for row `i` of the group (global index r) over `count` scores from `key` on. */
static void softmax_row(const cached_job *job, const hri_cached_tiles *tiles, int64_t i, int64_t r, int64_t key,
                        int64_t count) {
  float *scores = tiles->scores + i * HRI_CACHED_KEYS, *out = tiles->out + i * job->cut.wide;
  tile_vi last = tile_splat_int((int32_t)row_position(job, r)), first = tile_splat_int((int32_t)row_start(job, r));
  tile_vf tops = tile_splat(tiles->highest[i]), sums = {0};
  for (int64_t j = 0; j < count; j += TILE_VECTOR) {
    tile_vi position = tile_iota() + (int32_t)(key + j), keep = (position <= last) & (position >= first);
    tile_vi s = (tile_vi)tile_load(scores + j), low = (tile_vi)tile_splat(-__builtin_inff());
    tile_vf kept = (tile_vf)((s & keep) | (low & ~keep));
    tile_store(scores + j, kept);
    tops = tile_max(kept, tops);
  }
  float top = lane_max(tops), factor = tile_exp2(tile_splat(tiles->highest[i] - top))[0];
  for (int64_t j = 0; j < count; j += TILE_VECTOR) {
    tile_vf e = tile_exp2(tile_load(scores + j) - top);
    sums += e;
    tile_store(scores + j, e);
  }
  tiles->sum[i] = tiles->sum[i] * factor + lane_sum(sums);
  if (top != tiles->highest[i]) {
    for (int64_t j = 0; j < job->cut.wide; j += TILE_VECTOR) tile_store(out + j, tile_load(out + j) * factor);
    tiles->highest[i] = top;
  }
}

/* out += P V over `count` positions; V rows are D elements, so what is left after whole vectors goes through tail. */
static void add_values(const cached_job *job, const hri_cached_tiles *tiles, int64_t rows, const void *values,
                       int64_t count) {
  int64_t d = job->shape->head_dim, at = 0;
  hri_real real = job->shape->real;
#define ADD_VALUES(name, vectors)                                                                                      \
  name(real, rows, count, tiles->scores, HRI_CACHED_KEYS, hri_real_from(values, at, real), d, tiles->out + at,         \
       job->cut.wide),                                                                                                 \
      at += (vectors) * TILE_VECTOR
  while (rows == 1 && at + 8 * TILE_VECTOR <= d) ADD_VALUES(product_add_8, 8);
  while ((rows <= CACHED_FEW || TILE_VECTOR == 16) && at + 4 * TILE_VECTOR <= d) ADD_VALUES(product_add_4, 4);
  while (at + 2 * TILE_VECTOR <= d) ADD_VALUES(product_add_2, 2);
  while (at + TILE_VECTOR <= d) ADD_VALUES(product_add_1, 1);
#undef ADD_VALUES
  if (at < d) {
    tile_pack_rows(false, real, hri_real_from(values, at, real), d, count, d - at, count, tiles->tail, TILE_VECTOR);
    product_add_1(HRI_REAL_F32, rows, count, tiles->scores, HRI_CACHED_KEYS, tiles->tail, TILE_VECTOR, tiles->out + at,
                  job->cut.wide);
  }
}

/* scores of `rows` queries with one block of the key cache. */
static void score_block(const cached_job *job, const hri_cached_tiles *tiles, int64_t rows, const void *block,
                        float *scores) {
  int64_t d = job->shape->head_dim;
  bool wide = rows <= CACHED_FEW && 4 * TILE_VECTOR <= HRI_ATTENTION_CACHE_BLOCK;
  for (int64_t lane = 0; lane < HRI_ATTENTION_CACHE_BLOCK; lane += wide ? 4 * TILE_VECTOR : TILE_LANES)
    (wide ? product_set_4 : product_set_2)(job->shape->real, rows, d, tiles->q, d,
                                           hri_real_from(block, lane, job->shape->real), HRI_ATTENTION_CACHE_BLOCK,
                                           scores + lane, HRI_CACHED_KEYS);
}

/* Rows r0 .. r0 + rows - 1 of (b, kv) over the positions [from, to), into the tiles. */
static void attend(const cached_job *job, const hri_cached_tiles *tiles, int64_t b, int64_t kv, int64_t r0,
                   int64_t rows, int64_t from, int64_t to) {
  const hri_attention_cache_shape *shape = job->shape;
  int64_t d = shape->head_dim;
  for (int64_t i = 0; i < rows; i++) {
    int64_t q = (b * shape->rows + (r0 + i) / job->shared.group) * job->stride +
                (kv * job->shared.group + (r0 + i) % job->shared.group) * d;
    for (int64_t j = 0; j < d; j += TILE_VECTOR) {
      int64_t left = tile_min(d - j, TILE_VECTOR);
      hri_vf v = hri_vload_real_n(job->qkv, q + j, left, shape->real) * (job->scale * TILE_LOG2E);
      hri_vstore_n(tiles->q + i * d + j, v, left);
    }
    tiles->highest[i] = TILE_LOWEST;
    tiles->sum[i] = 0;
  }
  memset(tiles->out, 0, (size_t)(rows * job->cut.wide) * sizeof(float));
  to = tile_min(to, row_position(job, r0 + rows - 1) + 1);
  from = tile_max_int(from, row_start(job, r0) / HRI_CACHED_KEYS * HRI_CACHED_KEYS);
  for (int64_t key = from; key < to; key += HRI_CACHED_KEYS) {
    int64_t count = tile_min(HRI_CACHED_KEYS, to - key), padded = tile_round_up(count, HRI_ATTENTION_CACHE_BLOCK);
    const void *keys = hri_real_from(job->keys, hri_attention_cache_key(shape, b, kv, key), shape->real);
    for (int64_t j = 0; j < padded; j += HRI_ATTENTION_CACHE_BLOCK)
      score_block(job, tiles, rows, hri_real_from(keys, j * d, shape->real), tiles->scores + j);
    for (int64_t i = 0; i < rows; i++) {
      if (shape->softcap > 0)
        tile_cap(tiles->scores + i * HRI_CACHED_KEYS, padded / TILE_LANES, (float)shape->softcap * TILE_LOG2E);
      softmax_row(job, tiles, i, r0 + i, key, padded);
    }
    add_values(job, tiles, rows, hri_real_from(job->values, hri_attention_cache_value(shape, b, kv, key), shape->real),
               count);
  }
}

/* Element of y where the output of row r begins. */
static int64_t y_row(const cached_job *job, int64_t b, int64_t kv, int64_t r) {
  const hri_attention_cache_shape *shape = job->shape;
  return ((b * shape->rows + r / job->shared.group) * shape->heads + kv * job->shared.group + r % job->shared.group) *
         shape->head_dim;
}

static float *part_row(const cached_job *job, int64_t pair, int64_t split, int64_t r) {
  return job->shared.parts +
         ((pair * job->shared.splits + split) * job->shape->rows * job->shared.group + r) * (job->cut.wide + 2);
}

static void run_task(const cached_job *job, const hri_cached_tiles *tiles, int64_t pair, int64_t row_group,
                     int64_t split) {
  int64_t b = pair / job->shape->kv_heads, kv = pair % job->shape->kv_heads, r0 = row_group * HRI_CACHED_ROWS;
  int64_t rows = tile_min(HRI_CACHED_ROWS, job->valid * job->shared.group - r0), d = job->shape->head_dim;
  if (rows <= 0) return;
  if (job->shared.splits == 1) {
    attend(job, tiles, b, kv, r0, rows, 0, job->past + job->valid);
    for (int64_t i = 0; i < rows; i++)
      tile_store_row(job->shape->real, tiles->out + i * job->cut.wide, d, 1.0f / tiles->sum[i], job->y,
                     y_row(job, b, kv, r0 + i));
    return;
  }
  attend(job, tiles, b, kv, r0, rows, split * HRI_CACHED_SPLIT, (split + 1) * HRI_CACHED_SPLIT);
  for (int64_t i = 0; i < rows; i++) {
    float *part = part_row(job, pair, split, r0 + i);
    memcpy(part, tiles->out + i * job->cut.wide, (size_t)job->cut.wide * sizeof *part);
    part[job->cut.wide] = tiles->highest[i];
    part[job->cut.wide + 1] = tiles->sum[i];
  }
}

/* Folds the parts of one row, in the order of the splits, into y. The first part holds the sum afterwards. */
static void fold(const cached_job *job, int64_t pair, int64_t r) {
  int64_t d = job->shape->head_dim, wide = job->cut.wide;
  float *total = part_row(job, pair, 0, r), top = TILE_LOWEST, sum = 0;
  for (int64_t s = 0; s < job->splits; s++) {
    float high = part_row(job, pair, s, r)[wide];
    top = high > top ? high : top;
  }
  for (int64_t s = 0; s < job->splits; s++) {
    const float *part = part_row(job, pair, s, r);
    float factor = tile_exp2(tile_splat(part[wide] - top))[0];
    sum += part[wide + 1] * factor;
    for (int64_t j = 0; j < wide; j += TILE_VECTOR)
      tile_store(total + j,
                 s == 0 ? tile_load(part + j) * factor : tile_load(total + j) + tile_load(part + j) * factor);
  }
  tile_store_row(job->shape->real, total, d, 1.0f / sum, job->y,
                 y_row(job, pair / job->shape->kv_heads, pair % job->shape->kv_heads, r));
}

/* ---- the loops of a call, one after the other ---- */

enum { ALONE = 1 << 19 }; /* multiply-adds of scores, some 20 us: below, a second thread costs what it gains */

static void append_some(void *context, int64_t begin, int64_t end, int thread) {
  const cached_job *job = context;
  (void)thread;
  for (int64_t i = begin; i < end; i++)
    append(job, i / job->valid / job->shape->kv_heads, i / job->valid % job->shape->kv_heads, i % job->valid);
}

static void attend_one(void *context, int64_t task, int64_t end, int thread) {
  const cached_job *job = context;
  hri_carver carver = hri_carver_of(job->scratch, job->scratch_each, thread);
  hri_cached_tiles tiles = hri_cached_tiles_take(&carver, &job->cut, job->shape->head_dim);
  int64_t group = task / job->splits;
  assert(carver.used == job->scratch_each && end == task + 1);
  (void)end;
  run_task(job, &tiles, group / job->shared.row_groups, group % job->shared.row_groups, task % job->splits);
}

static void fold_some(void *context, int64_t begin, int64_t end, int thread) {
  const cached_job *job = context;
  int64_t rows = job->valid * job->shared.group;
  (void)thread;
  for (int64_t i = begin; i < end; i++) fold(job, i / rows, i % rows);
}

/* Rows of y that are no positions. */
static void zero_rest(const cached_job *job) {
  const hri_attention_cache_shape *shape = job->shape;
  int64_t width = shape->heads * shape->head_dim, rest = shape->rows - job->valid;
  for (int64_t b = 0; b < shape->batch && rest > 0; b++)
    memset(hri_real_at(job->y, (b * shape->rows + job->valid) * width, shape->real), 0,
           (size_t)(rest * width) * hri_real_bytes(shape->real));
}

void hri_attention_cached(const hri_attention_cache_shape *shape, float scale, const void *qkv, int64_t past,
                          int64_t rows_valid, void *cache_keys, void *cache_values, void *y, void *scratch,
                          hri_team *team) {
  hri_carver shared = {.base = scratch}, size = {0};
  cached_job job = {.shape = shape,
                    .scale = scale,
                    .qkv = qkv,
                    .past = past,
                    .valid = rows_valid,
                    .keys = cache_keys,
                    .values = cache_values,
                    .y = y,
                    .stride = (shape->heads + 2 * shape->kv_heads) * shape->head_dim,
                    .cut = hri_attention_cut_of(TILE_LEVEL, HRI_REAL_F32, shape->head_dim)};
  int64_t pairs = shape->batch * shape->kv_heads,
          multiply_adds = shape->batch * shape->heads * rows_valid * (past + rows_valid) * shape->head_dim;
  job.shared = hri_cached_parts_take(&shared, &job.cut, shape);
  (void)hri_cached_tiles_take(&size, &job.cut, shape->head_dim);
  assert(job.cut.vector == TILE_VECTOR);
  assert(shared.used + (uint64_t)hri_team_threads(team) * size.used ==
         hri_attention_cached_scratch(TILE_LEVEL, shape, hri_team_threads(team))); /* what was planned */
  job.splits = job.shared.splits == 1 ? 1 : (past + rows_valid + HRI_CACHED_SPLIT - 1) / HRI_CACHED_SPLIT;
  job.scratch = shared.base + shared.used;
  job.scratch_each = size.used;
  zero_rest(&job);
  hri_team_each(team, pairs * rows_valid, hri_grain(2 * shape->head_dim), append_some, &job);
  hri_team_in_order(multiply_adds < ALONE ? NULL : team, pairs * job.shared.row_groups * job.splits, attend_one, &job);
  if (job.shared.splits > 1)
    hri_team_each(team, pairs * rows_valid * job.shared.group, hri_grain(job.splits * job.cut.wide), fold_some, &job);
}
