/* Attention backward in O(T) memory: five products per (key tile, query block), nothing computed twice.
 *
 * With P = exp(S - lse) recomputed and delta = rowsum(dy * y):
 *   dV = P^T dY,   dS = P * (dY V^T - delta),   dK = scale * dS^T Q,   dQ = scale * dS K.
 *
 * A task is one (batch row, kv head, key tile). It turns K and V of its tile once, so that keys are the lanes of S and
 * dP and no operand of a query block is ever turned: Q and dY are read by rows, P and dS by columns for dV and dK, dS
 * by rows for dQ. It keeps dK and dV of its tile and walks the query blocks that see the tile, with all query heads of
 * the group, so dK and dV need no reduction between threads. dQ does: a query block gets a part from each of the key
 * tiles that it sees. Those parts are added in fp32, in the order of the key tiles, which makes the bits independent of
 * the team: each (head, query block) carries a turn, the key tile whose part comes next, and a task that is early waits
 * for its turn. Tasks are handed out in the order of the key tiles (hri_team_in_order), so a task only waits for tasks
 * that are running or done, and the wait never deadlocks; with more heads than threads it hardly ever happens, with one head the tasks run
 * one query block behind each other.
 *
 * The sums of dQ take T * D floats per query head in flight. To keep that small, kv heads are taken in rounds of
 * `slots` heads: all heads of tile 0, then of tile 1, ... (also the longest first), then the next round, which reuses
 * the sums of a query block as soon as the last tile of the block has written them to dqkv.
 *
 * Rejected: partial dQ per key tile (O(T^2 D / tile) memory), atomics (bits), a second pass for dQ with S and dP
 * computed again (7 products instead of 5), adding the parts in dqkv itself (with bf16 each would be rounded).
 *
 * The materialized backward is the same walk with P read from memory instead of recomputed.
 *
 * With a soft-cap, S is capped before P, and dS gets one more factor, the slope of the cap at S. It has a tile of its
 * own; the materialized backward computes S for it.
 *
 * By tiles of AMX, which read nothing by columns, dK and dV are kept turned: dV^T = dY^T P and dK^T = Q^T dS, where P and dS are
 * b as they stand, and dY and Q of a block are turned when they are packed.
 *
 * With dropout dP is cleared where the mask is 0 before dS is made of it, and P for dV behind that (drop.h). */
#include <assert.h>
#include <sched.h>

#include "ops/attention/drop.h"
#include "ops/attention/kernels.h"
#include "ops/scratch.h"

enum {
  BACKWARD_PANELS = TILE_KEYS / TILE_LANES,
  BACKWARD_STRIDE = TILE_KEYS + (HRI_AMX ? 2 : 1) * TILE_VECTOR /* as hri_attention_cut_of says */
};

typedef struct backward_job {
  const hri_attention_shape *shape;
  float scale, limit; /* the soft-cap in units of q.k, or 0 */
  const void *dy, *qkv, *y, *probs;
  const float *lse;
  const int32_t *doc_start;
  void *dqkv;
  hri_attention_cut cut;
  hri_backward_shared shared;
  int64_t stride, width; /* elements per row of qkv and of y */
  int64_t tiles;         /* key tiles per row */
  drop_job drop;
  void *scratch; /* of the threads */
  uint64_t scratch_each;
} backward_job;

/* A query block of one head against a key tile. Panel p of the tile is seen by the queries [begin[p], end[p]) of the
 * block, both multiples of TILE_ROWS; masked[p]: not by all of them, or not whole. */
typedef struct block_spans {
  int64_t first, count; /* query of row 0, queries */
  int64_t least;        /* first key that any of the queries sees */
  int64_t begin[BACKWARD_PANELS], end[BACKWARD_PANELS];
  bool masked[BACKWARD_PANELS];
  uint32_t kept[HRI_BACKWARD_QUERIES][DROP_CHUNKS]; /* with dropout: the mask of each query, a bit for each key */
} block_spans;

static backward_job make_job(const hri_attention_shape *shape, float scale, void *scratch, int threads) {
  backward_job job = {.shape = shape,
                      .scale = scale,
                      .limit = (float)shape->softcap / scale,
                      .drop = drop_job_make(shape),
                      .cut = hri_attention_cut_of(TILE_LEVEL, shape->real, shape->head_dim)};
  hri_carver carver = {.base = scratch}, size = {0};
  assert(job.cut.vector == TILE_VECTOR && job.cut.keys == TILE_KEYS && job.cut.stride == BACKWARD_STRIDE);
  job.shared = hri_backward_shared_take(&carver, &job.cut, shape, threads);
  (void)hri_backward_tiles_take(&size, &job.cut, shape->softcap > 0);
  assert(carver.used + (uint64_t)threads * size.used ==
         hri_attention_backward_scratch(TILE_LEVEL, shape, threads)); /* what was planned */
  job.scratch = carver.base + carver.used;
  job.scratch_each = size.used;
  job.stride = (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
  job.width = shape->heads * shape->head_dim;
  job.tiles = (shape->sequence + TILE_KEYS - 1) / TILE_KEYS;
  return job;
}

/* delta of one (batch row, query) for all heads. */
TILE_INLINE void prepare_row(const backward_job *job, int64_t b, int64_t t, const hri_real real) {
  const hri_attention_shape *shape = job->shape;
  int64_t row = b * shape->sequence + t, d = shape->head_dim;
  for (int64_t h = 0; h < shape->heads; h++) {
    tile_vf sums = {0};
    for (int64_t i = 0; i < d; i += TILE_VECTOR) {
      int64_t at = row * job->width + h * d + i, left = tile_min(d - i, TILE_VECTOR);
      sums += hri_vload_real_n(job->dy, at, left, real) * hri_vload_real_n(job->y, at, left, real);
    }
    job->shared.delta[(b * shape->heads + h) * shape->sequence + t] = hri_vsum((hri_vf)sums);
  }
}
static void prepare(const backward_job *job, int64_t b, int64_t t) {
  HRI_BY_REAL(job->shape->real, prepare_row(job, b, t, REAL));
}

static void pack_keys(const backward_job *job, const hri_backward_tiles *tiles, int64_t b, int64_t kv, int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, count = tile_min(TILE_KEYS, shape->sequence - key);
  int64_t at = (b * shape->sequence + key) * job->stride + (shape->heads + kv) * d;
  float *rows = job->cut.pairs ? tiles->rows : tiles->key_pairs;
  tile_pack_rows(job->cut.pairs, shape->real, hri_real_from(job->qkv, at, shape->real), job->stride, count, d,
                 TILE_KEYS, rows, job->cut.row);
  tile_pack_panels(rows, job->cut.row, TILE_KEYS, job->cut.words, tiles->keys);
  tile_pair_rows(job->cut.pairs, rows, job->cut.row, TILE_KEYS, job->cut.wide, tiles->key_pairs);
  tile_pack_rows(job->cut.pairs, shape->real, hri_real_from(job->qkv, at + shape->kv_heads * d, shape->real),
                 job->stride, count, d, TILE_KEYS, tiles->rows, job->cut.row);
  tile_pack_panels(tiles->rows, job->cut.row, TILE_KEYS, job->cut.words, tiles->values);
}

/* Packed rows of a block as b of products over the queries, and by tiles as a: turned, [wide][queries / 2]. */
static void pair_block(const backward_job *job, const hri_backward_tiles *tiles, const float *rows, float *to) {
  tile_pair_rows(job->cut.pairs, rows, job->cut.row, HRI_BACKWARD_QUERIES, job->cut.wide,
                 job->cut.tiles ? tiles->turned : to);
#if HRI_AMX
  if (job->cut.tiles)
    tile_turn(tiles->turned, job->cut.wide, HRI_BACKWARD_QUERIES / 2, job->cut.wide, to, HRI_BACKWARD_QUERIES / 2);
#endif
}

static void pack_block(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans, int64_t b,
                       int64_t h) {
  const hri_attention_shape *shape = job->shape;
  int64_t row = b * shape->sequence + spans->first, d = shape->head_dim, count = spans->count;
  int64_t index = (b * shape->heads + h) * shape->sequence + spans->first;
  tile_pack_rows(job->cut.pairs, shape->real, hri_real_from(job->qkv, row * job->stride + h * d, shape->real),
                 job->stride, count, d, HRI_BACKWARD_QUERIES, tiles->q, job->cut.row);
  tile_pack_rows(job->cut.pairs, shape->real, hri_real_from(job->dy, row * job->width + h * d, shape->real), job->width,
                 count, d, HRI_BACKWARD_QUERIES, tiles->dy, job->cut.row);
  pair_block(job, tiles, tiles->q, tiles->q_pairs);
  pair_block(job, tiles, tiles->dy, tiles->dy_pairs);
  for (int64_t i = 0; i < HRI_BACKWARD_QUERIES; i++) {
    tiles->lse[i] = job->lse && i < count ? job->lse[index + i] * TILE_LOG2E : -TILE_LOWEST;
    tiles->delta[i] = i < count ? job->shared.delta[index + i] : 0;
  }
}

/* The first key of each query of a block; queries past the end repeat the last one. */
static void begin_block(const backward_job *job, const hri_backward_tiles *tiles, block_spans *spans, int64_t b,
                        int64_t block) {
  const hri_attention_shape *shape = job->shape;
  const int32_t *doc_start = job->doc_start ? job->doc_start + b * shape->sequence : NULL;
  spans->first = block * HRI_BACKWARD_QUERIES;
  spans->count = tile_min(HRI_BACKWARD_QUERIES, shape->sequence - spans->first);
  spans->least = INT32_MAX;
  for (int64_t i = 0; i < HRI_BACKWARD_QUERIES; i++) {
    tiles->start[i] = tile_first_key(shape, doc_start, tile_min(spans->first + i, shape->sequence - 1));
    spans->least = tile_min(spans->least, tiles->start[i]);
  }
}

/* job->shared.least of one block. With windows and documents most pairs of a block and a key tile see nothing of each
 * other; this tells without a look at the queries. */
static void find_least(const backward_job *job, int64_t b, int64_t block) {
  const hri_attention_shape *shape = job->shape;
  const int32_t *doc_start = job->doc_start ? job->doc_start + b * shape->sequence : NULL;
  int64_t first = block * HRI_BACKWARD_QUERIES, end = tile_min(first + HRI_BACKWARD_QUERIES, shape->sequence),
          least = INT32_MAX;
  for (int64_t t = first; t < end; t++) least = tile_min(least, tile_first_key(shape, doc_start, t));
  job->shared.least[b * job->shared.blocks + block] = (int32_t)least;
}

/* Which queries of the block see each panel of the key tile; false when none. The tiles that a block sees are
 * consecutive, because each query sees everything from its start to itself: so its turns count up by one. */
static bool find_spans(const hri_backward_tiles *tiles, block_spans *spans, int64_t key) {
  bool any = false;
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    int64_t low = key + p * TILE_LANES, high = low + TILE_LANES - 1, begin = tile_max_int(low - spans->first, 0);
    int64_t end = spans->count, most = 0; /* the latest start of a row */
    while (begin < end && tiles->start[begin] > high) begin++;
    while (begin < end && tiles->start[end - 1] > high) end--;
    spans->begin[p] = begin / TILE_ROWS * TILE_ROWS;
    spans->end[p] = begin < end ? tile_round_up(end, TILE_ROWS) : spans->begin[p];
    for (int64_t i = spans->begin[p]; i < spans->end[p]; i++) most = tile_max_int(most, tiles->start[i]);
    spans->masked[p] = spans->first + spans->begin[p] < high || most > low;
    any |= begin < end;
  }
  return any;
}

/* One row, two vectors of keys: P from S (or P given, when the materialized backward has read it), and dS from dP. */
TILE_INLINE void score_row(const bool pairs, const bool given, const bool masked, const bool capped,
                           const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans,
                           int64_t i, int64_t at, int64_t key, tile_vf p[2], tile_vf ds[2]) {
  TILE_UNROLL for (int v = 0; v < 2; v++) {
    int64_t index = i * BACKWARD_STRIDE + at + v * TILE_VECTOR;
    p[v] = tile_load(tiles->probs + index);
    if (!given) {
      tile_vf x = p[v] * (job->scale * TILE_LOG2E) - tiles->lse[i];
      if (masked) {
        tile_vi k = tile_iota() + (int32_t)(key + at + v * TILE_VECTOR);
        tile_vi keep = (k <= (int32_t)(spans->first + i)) & (k >= tiles->start[i]);
        x = (tile_vf)(((tile_vi)x & keep) | ((tile_vi)tile_splat(-__builtin_inff()) & ~keep));
      }
#if TILE_PAIRS
      p[v] = pairs ? tile_exp2_short(x) : tile_exp2(x);
#else
      p[v] = tile_exp2(x);
#endif
    }
    ds[v] = p[v] * (tile_load(tiles->dscores + index) - tiles->delta[i]);
    if (capped) ds[v] *= tile_load(tiles->slopes + index);
  }
  (void)pairs;
}

/* P and dS of the visible rows of one panel, from S and dP in place. Pairs of rows become rows of pairs at half the
 * row index. */
TILE_INLINE void softmax_backward(const bool pairs, const bool given, const bool masked, const bool capped,
                                  const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans,
                                  int64_t panel, int64_t key) {
  int64_t at = panel * TILE_LANES;
  tile_vf p[2], ds[2];
  for (int64_t i = spans->begin[panel]; i < spans->end[panel]; i++) {
    score_row(pairs, given, masked, capped, job, tiles, spans, i, at, key, p, ds);
#if TILE_PAIRS
    if (pairs) {
      tile_vf p2[2], ds2[2], words[2];
      tile_vh row = tile_round_pairs(ds), row2;
      score_row(pairs, given, masked, capped, job, tiles, spans, i + 1, at, key, p2, ds2);
      row2 = tile_round_pairs(ds2);
      tile_store_halves(tiles->dscore_rows + (i * BACKWARD_STRIDE + at) / 2, row);
      tile_store_halves(tiles->dscore_rows + ((i + 1) * BACKWARD_STRIDE + at) / 2, row2);
      tile_interleave(row, row2, words);
      TILE_UNROLL for (int v = 0; v < 2; v++)
          tile_store(tiles->dscores + i / 2 * BACKWARD_STRIDE + at + v * TILE_VECTOR, words[v]);
      tile_interleave(tile_round_pairs(p), tile_round_pairs(p2), words);
      TILE_UNROLL for (int v = 0; v < 2; v++)
          tile_store(tiles->probs + i / 2 * BACKWARD_STRIDE + at + v * TILE_VECTOR, words[v]);
      i++;
      continue;
    }
#endif
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      int64_t index = i * BACKWARD_STRIDE + at + v * TILE_VECTOR;
      if (!given) tile_store(tiles->probs + index, p[v]);
      tile_store(tiles->dscores + index, ds[v]);
    }
  }
}
#define SOFTMAX_BACKWARD(name, pairs, given, masked, capped)                                                           \
  __attribute__((noinline)) static void name(const backward_job *job, const hri_backward_tiles *tiles,                 \
                                             const block_spans *spans, int64_t panel, int64_t key) {                   \
    softmax_backward(pairs, given, masked, capped, job, tiles, spans, panel, key);                                     \
  }
SOFTMAX_BACKWARD(softmax_plain, false, false, false, false)
SOFTMAX_BACKWARD(softmax_masked, false, false, true, false)
SOFTMAX_BACKWARD(softmax_given, false, true, false, false)
SOFTMAX_BACKWARD(softmax_capped, false, false, true, true)
SOFTMAX_BACKWARD(softmax_given_capped, false, true, false, true)
#if TILE_PAIRS
SOFTMAX_BACKWARD(softmax_plain_pairs, true, false, false, false)
SOFTMAX_BACKWARD(softmax_masked_pairs, true, false, true, false)
SOFTMAX_BACKWARD(softmax_given_pairs, true, true, false, false)
SOFTMAX_BACKWARD(softmax_capped_pairs, true, false, true, true)
SOFTMAX_BACKWARD(softmax_given_capped_pairs, true, true, false, true)
#endif

/* P of one panel from probs [T][T] of its head; what lies past the sequence is zero. */
static void read_probs(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans, int64_t p,
                       int64_t b, int64_t h, int64_t key) {
  int64_t t = job->shape->sequence, low = key + p * TILE_LANES, width = tile_min(TILE_LANES, t - low);
  for (int64_t i = spans->begin[p]; i < spans->end[p]; i++) {
    float *to = tiles->probs + i * BACKWARD_STRIDE + p * TILE_LANES;
    int64_t from = ((b * job->shape->heads + h) * t + spans->first + i) * t + low;
    memset(to, 0, TILE_LANES * sizeof *to);
    for (int64_t j = 0; i < spans->count && j < width; j += TILE_VECTOR)
      tile_store(to + j, hri_vload_real_n(job->probs, from + j, tile_min(width - j, TILE_VECTOR), job->shape->real));
  }
}

/* ---- dropout ---- */

/* The mask of the block against the tile, where any panel is seen. */
static void draw_mask(const backward_job *job, block_spans *spans, int64_t b, int64_t h, int64_t key) {
  enum { PANELS = HRI_DRAW_CHUNK / TILE_LANES }; /* of a chunk */
  for (int64_t c = 0; c < DROP_CHUNKS; c++)
    for (int64_t i = 0; i < spans->count; i++) {
      bool seen = false;
      for (int64_t p = c * PANELS; p < (c + 1) * PANELS; p++) seen |= i >= spans->begin[p] && i < spans->end[p];
      spans->kept[i][c] = seen ? drop_bits(&job->drop, b, h, spans->first + i, key + c * HRI_DRAW_CHUNK) : 0;
    }
  for (int64_t i = spans->count; i < HRI_BACKWARD_QUERIES; i++) memset(spans->kept[i], 0, sizeof spans->kept[i]);
}

/* dP of one panel: cleared, or multiplied. */
static void drop_gradients(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans,
                           int64_t p) {
  for (int64_t i = spans->begin[p]; i < spans->end[p]; i++) {
    uint32_t bits = spans->kept[i][p * TILE_LANES / HRI_DRAW_CHUNK];
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      float *at = tiles->dscores + i * BACKWARD_STRIDE + p * TILE_LANES + v * TILE_VECTOR;
      tile_vi keep = drop_keeps(bits, drop_places(p * TILE_LANES + v * TILE_VECTOR));
      tile_store(at, (tile_vf)((tile_vi)(tile_load(at) * job->drop.factor) & keep));
    }
  }
}

/* P of one panel as dV takes it: cleared; its factor comes where dV is stored. */
static void drop_probs(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans, int64_t p) {
  int64_t step = job->cut.pairs ? 2 : 1;
  for (int64_t i = spans->begin[p]; i < spans->end[p]; i += step) {
    int64_t chunk = p * TILE_LANES / HRI_DRAW_CHUNK;
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      tile_vi places = drop_places(p * TILE_LANES + v * TILE_VECTOR), keep = drop_keeps(spans->kept[i][chunk], places);
      tile_vi *at = (tile_vi *)(tiles->probs + i / step * BACKWARD_STRIDE + p * TILE_LANES + v * TILE_VECTOR);
      if (step == 2) keep = (keep & 0xFFFF) | (drop_keeps(spans->kept[i + 1][chunk], places) & ~0xFFFF);
      *at &= keep;
    }
  }
}

/* S (or P, when it is given) and dP of one panel, raw but for dropout. */
static void compute_scores(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans,
                           int64_t p, int64_t b, int64_t h, int64_t key) {
  int64_t begin = spans->begin[p], rows = spans->end[p] - begin, at = begin * BACKWARD_STRIDE + p * TILE_LANES;
  int64_t panel = p * job->cut.words * TILE_LANES;
  if (job->probs) read_probs(job, tiles, spans, p, b, h, key);
  else
    tile_product(job->cut.pairs, false, false, rows, job->cut.words, tiles->q + begin * job->cut.row, job->cut.row,
                 tiles->keys + panel, TILE_LANES, tiles->probs + at, BACKWARD_STRIDE, TILE_LANES);
  tile_product(job->cut.pairs, false, false, rows, job->cut.words, tiles->dy + begin * job->cut.row, job->cut.row,
               tiles->values + panel, TILE_LANES, tiles->dscores + at, BACKWARD_STRIDE, TILE_LANES);
  if (job->drop.on) drop_gradients(job, tiles, spans, p);
}

/* The slopes of the soft-cap of one panel, and S capped unless P is given. */
static void cap_panel(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans, int64_t p) {
  int64_t begin = spans->begin[p], rows = spans->end[p] - begin, at = begin * BACKWARD_STRIDE + p * TILE_LANES;
  if (job->probs) {
    tile_product(job->cut.pairs, false, false, rows, job->cut.words, tiles->q + begin * job->cut.row, job->cut.row,
                 tiles->keys + p * job->cut.words * TILE_LANES, TILE_LANES, tiles->slopes + at, BACKWARD_STRIDE,
                 TILE_LANES);
    tile_cap_scores(tiles->slopes + at, rows, BACKWARD_STRIDE, job->limit, NULL, tiles->slopes + at);
  } else {
    tile_cap_scores(tiles->probs + at, rows, BACKWARD_STRIDE, job->limit, tiles->probs + at, tiles->slopes + at);
  }
}

/* P and dS of the block; dS is zero by rows where a query does not see a panel, because dQ runs over whole ranges. */
static void compute_block(const backward_job *job, const hri_backward_tiles *tiles, block_spans *spans, int64_t b,
                          int64_t h, int64_t key) {
  if (job->drop.on) draw_mask(job, spans, b, h, key);
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    int64_t begin = spans->begin[p], end = spans->end[p];
    if (begin < end) {
      compute_scores(job, tiles, spans, p, b, h, key);
      if (job->limit > 0) {
        cap_panel(job, tiles, spans, p);
        if (job->probs) TILE_CHOOSE(job->cut.pairs, softmax_given_capped)(job, tiles, spans, p, key);
        else TILE_CHOOSE(job->cut.pairs, softmax_capped)(job, tiles, spans, p, key);
      } else if (job->probs) TILE_CHOOSE(job->cut.pairs, softmax_given)(job, tiles, spans, p, key);
      else if (spans->masked[p]) TILE_CHOOSE(job->cut.pairs, softmax_masked)(job, tiles, spans, p, key);
      else TILE_CHOOSE(job->cut.pairs, softmax_plain)(job, tiles, spans, p, key);
      if (job->drop.on) drop_probs(job, tiles, spans, p);
    }
    int64_t pair = job->cut.pairs ? 2 : 1;
    for (int64_t i = 0; i < HRI_BACKWARD_QUERIES; i++)
      if (i < begin || i >= end)
        memset(tiles->dscore_rows + (i * BACKWARD_STRIDE + p * TILE_LANES) / pair, 0,
               (size_t)(TILE_LANES / pair) * sizeof(float));
  }
}

/* `sums`, dkeys or dvalues, of the keys [j, j + count) += A^T B over the queries [begin, end) of the block, A in its tile from
 * there on. */
static void add_over_queries(const backward_job *job, const float *a, const float *pairs, int64_t j, int64_t count,
                             int64_t begin, int64_t end, float *sums) {
  int64_t pair = job->cut.pairs ? 2 : 1, wide = job->cut.wide, depth = (end - begin) / pair;
  a += begin / pair * BACKWARD_STRIDE + j;
  if (job->cut.tiles)
    tile_product(true, false, true, wide, depth, pairs + begin / pair, HRI_BACKWARD_QUERIES / 2, a, BACKWARD_STRIDE,
                 sums + j, TILE_KEYS, count);
  else
    tile_product(job->cut.pairs, true, true, count, depth, a, BACKWARD_STRIDE, pairs + begin / pair * wide, wide,
                 sums + j * wide, wide, wide);
}

/* dkeys and dvalues of the tile += what the block gives; each group of TILE_ROWS keys takes only queries that may see
 * it. */
static void add_key_gradients(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans,
                              int64_t key) {
  for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
    /* on the diagonal by groups, elsewhere the panel at once */
    int64_t step = key + (p + 1) * TILE_LANES > spans->first ? TILE_ROWS : TILE_LANES;
    for (int64_t j = p * TILE_LANES; j < (p + 1) * TILE_LANES; j += step) {
      int64_t begin = tile_max_int(spans->begin[p], (key + j - spans->first) / TILE_ROWS * TILE_ROWS);
      if (begin >= spans->end[p]) continue;
      add_over_queries(job, tiles->probs, tiles->dy_pairs, j, step, begin, spans->end[p], tiles->dvalues);
      add_over_queries(job, tiles->dscores, tiles->q_pairs, j, step, begin, spans->end[p], tiles->dkeys);
    }
  }
}

/* Spins briefly, then lets others run: the team may be larger than the machine. */
static void wait_turn(const int64_t *turn, int64_t mine) {
  for (unsigned spins = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine; spins++) {
    if (spins > 200) {
      sched_yield();
      continue;
    }
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores */
#endif
  }
}

/* Whether every query of the block sees every key of the tile. */
static bool sees_whole_tile(const block_spans *spans, int64_t rows) {
  for (int64_t p = 0; p < BACKWARD_PANELS; p++)
    if (spans->masked[p] || spans->begin[p] > 0 || spans->end[p] < rows) return false;
  return true;
}

/* The sums of dQ of the rows [i, i + rows) over the keys [begin, end) of the tile = or += dS K. */
static void multiply_keys(const backward_job *job, const hri_backward_tiles *tiles, bool add, int64_t i, int64_t rows,
                          int64_t begin, int64_t end, float *dq) {
  int64_t pair = job->cut.pairs ? 2 : 1;
  if (begin < end)
    tile_product(job->cut.pairs, false, add, rows, (end - begin) / pair,
                 tiles->dscore_rows + (i * BACKWARD_STRIDE + begin) / pair, BACKWARD_STRIDE / pair,
                 tiles->key_pairs + begin / pair * job->cut.wide, job->cut.wide, dq + i * job->cut.wide, job->cut.wide,
                 job->cut.wide);
  else if (!add) memset(dq + i * job->cut.wide, 0, (size_t)(rows * job->cut.wide) * sizeof *dq);
}

/* The sums of dQ of the block = or += dS K; where not all is seen, each group of TILE_ROWS queries takes only the
 * panels that it sees, and on the diagonal only keys up to its own. */
static void sum_query_gradients(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans,
                                bool add, int64_t key, float *dq) {
  int64_t rows = tile_round_up(spans->count, TILE_ROWS);
  if (sees_whole_tile(spans, rows)) {
    multiply_keys(job, tiles, add, 0, rows, 0, TILE_KEYS, dq);
    return;
  }
  for (int64_t i = 0; i < rows; i += TILE_ROWS) {
    int64_t from = BACKWARD_PANELS, to = 0, end;
    for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
      if (i < spans->begin[p] || i >= spans->end[p]) continue;
      from = tile_min(from, p);
      to = p + 1;
    }
    end = tile_min(to * TILE_LANES, tile_round_up(spans->first + i + TILE_ROWS - key, TILE_ROWS));
    multiply_keys(job, tiles, add, i, TILE_ROWS, from * TILE_LANES, end, dq);
  }
}

/* dq of the block gets this tile's part, in its turn; the last tile that the block sees writes it out. `index` is that
 * of the kv head among all, g the query head in its group. */
static void add_query_gradients(const backward_job *job, const hri_backward_tiles *tiles, const block_spans *spans,
                                int64_t index, int64_t g, int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int64_t slot =
      (index % job->shared.slots * job->shared.group + g) * job->shared.blocks + spans->first / HRI_BACKWARD_QUERIES;
  int64_t tile = key / TILE_KEYS, round = index / job->shared.slots * (job->tiles + 1);
  int64_t b = index / shape->kv_heads, h = index % shape->kv_heads * job->shared.group + g, d = shape->head_dim;
  bool first = spans->least / TILE_KEYS == tile, last = (spans->first + spans->count - 1) / TILE_KEYS == tile;
  float *dq = job->shared.dq + slot * HRI_BACKWARD_QUERIES * job->cut.wide;
  /* a block is free for round n at n * (tiles + 1), and for its next tile at that number plus the tile */
  wait_turn(&job->shared.turns[slot], first ? round : round + tile);
  sum_query_gradients(job, tiles, spans, !first, key, dq);
  for (int64_t i = 0; last && i < spans->count; i++)
    tile_store_row(shape->real, dq + i * job->cut.wide, d, job->scale, job->dqkv,
                   (b * shape->sequence + spans->first + i) * job->stride + h * d);
  __atomic_store_n(&job->shared.turns[slot], last ? round + job->tiles + 1 : round + tile + 1, __ATOMIC_RELEASE);
}

/* Rows of dkeys or dvalues, of the panel from key j on. */
static const float *panel_rows(const backward_job *job, const hri_backward_tiles *tiles, const float *sums, int64_t j) {
#if HRI_AMX
  if (job->cut.tiles) {
    tile_turn(sums + j, TILE_KEYS, job->cut.wide, TILE_LANES, tiles->turned, job->cut.wide);
    return tiles->turned;
  }
#endif
  (void)tiles;
  return sums + j * job->cut.wide;
}

/* `count` keys' rows of sums times `factor`, to rows of dqkv from element `to` on. */
static void write_sums(const backward_job *job, const hri_backward_tiles *tiles, const float *sums, int64_t count,
                       float factor, int64_t to) {
  for (int64_t j = 0; j < count; j += TILE_LANES) {
    const float *rows = panel_rows(job, tiles, sums, j);
    for (int64_t i = j; i < tile_min(j + TILE_LANES, count); i++)
      tile_store_row(job->shape->real, rows + (i - j) * job->cut.wide, job->shape->head_dim, factor, job->dqkv,
                     to + i * job->stride);
  }
}

static void run_tile(const backward_job *job, const hri_backward_tiles *tiles, int64_t index, int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int64_t b = index / shape->kv_heads, kv = index % shape->kv_heads, d = shape->head_dim;
  int64_t count = tile_min(TILE_KEYS, shape->sequence - key);
  int64_t to = (b * shape->sequence + key) * job->stride + (shape->heads + kv) * d;
  pack_keys(job, tiles, b, kv, key);
  memset(tiles->dkeys, 0, (size_t)(TILE_KEYS * job->cut.wide) * sizeof(float));
  memset(tiles->dvalues, 0, (size_t)(TILE_KEYS * job->cut.wide) * sizeof(float));
  for (int64_t block = key / HRI_BACKWARD_QUERIES; block < job->shared.blocks; block++) {
    block_spans spans;
    if (job->shared.least[b * job->shared.blocks + block] >= key + TILE_KEYS) continue;
    begin_block(job, tiles, &spans, b, block);
    if (!find_spans(tiles, &spans, key)) continue;
    for (int64_t g = 0; g < job->shared.group; g++) {
      pack_block(job, tiles, &spans, b, kv * job->shared.group + g);
      compute_block(job, tiles, &spans, b, kv * job->shared.group + g, key);
      add_key_gradients(job, tiles, &spans, key);
      add_query_gradients(job, tiles, &spans, index, g, key);
    }
  }
  write_sums(job, tiles, tiles->dkeys, count, job->scale, to);
  write_sums(job, tiles, tiles->dvalues, count, job->drop.factor, to + shape->kv_heads * d);
}

/* delta of a block without y: the row sums of P * (dY V^T). */
static void sum_delta(const backward_job *job, const hri_backward_tiles *tiles, int64_t b, int64_t h, int64_t block) {
  const hri_attention_shape *shape = job->shape;
  float *delta = job->shared.delta + (b * shape->heads + h) * shape->sequence + block * HRI_BACKWARD_QUERIES;
  block_spans spans;
  begin_block(job, tiles, &spans, b, block);
  memset(delta, 0, (size_t)spans.count * sizeof *delta);
  pack_block(job, tiles, &spans, b, h);
  for (int64_t key = 0; key < spans.first + spans.count; key += TILE_KEYS) {
    if (!find_spans(tiles, &spans, key)) continue;
    pack_keys(job, tiles, b, h / job->shared.group, key);
    if (job->drop.on) draw_mask(job, &spans, b, h, key);
    for (int64_t p = 0; p < BACKWARD_PANELS; p++) {
      if (spans.begin[p] >= spans.end[p]) continue;
      compute_scores(job, tiles, &spans, p, b, h, key);
      for (int64_t i = spans.begin[p]; i < tile_min(spans.end[p], spans.count); i++) {
        int64_t at = i * BACKWARD_STRIDE + p * TILE_LANES;
        tile_vf sum = tile_load(tiles->probs + at) * tile_load(tiles->dscores + at);
        delta[i] += hri_vsum(
            (hri_vf)(sum + tile_load(tiles->probs + at + TILE_VECTOR) * tile_load(tiles->dscores + at + TILE_VECTOR)));
      }
    }
  }
}

/* ---- the loops of a call, one after the other ---- */

static hri_backward_tiles tiles_of(const backward_job *job, int thread) {
  hri_carver carver = hri_carver_of(job->scratch, job->scratch_each, thread);
  return hri_backward_tiles_take(&carver, &job->cut, job->shape->softcap > 0);
}

static void prepare_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const backward_job *job = context;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    int64_t b = i / job->shared.blocks, block = i % job->shared.blocks, first = block * HRI_BACKWARD_QUERIES;
    int64_t stop = tile_min(first + HRI_BACKWARD_QUERIES, job->shape->sequence);
    find_least(job, b, block);
    for (int64_t t = first; job->y && t < stop; t++) prepare(job, b, t);
  }
}

static void delta_task(void *context, int64_t task, int64_t end, int thread) {
  const backward_job *job = context;
  hri_backward_tiles tiles = tiles_of(job, thread);
  int64_t head = task / job->shared.blocks;
  assert(end == task + 1);
  (void)end;
  tile_begin(&job->cut);
  sum_delta(job, &tiles, head / job->shape->heads, head % job->shape->heads, task % job->shared.blocks);
  tile_end(&job->cut);
}

static void tile_task(void *context, int64_t task, int64_t end, int thread) {
  const backward_job *job = context;
  hri_backward_tiles tiles = tiles_of(job, thread);
  /* rounds of `slots` heads (the last one of fewer), in each the tiles, of each the heads */
  int64_t round = task / (job->shared.slots * job->tiles) * job->shared.slots, within = task - round * job->tiles;
  int64_t members = tile_min(job->shared.slots, job->shape->batch * job->shape->kv_heads - round);
  assert(end == task + 1);
  (void)end;
  tile_begin(&job->cut);
  run_tile(job, &tiles, round + within % members, within / members * TILE_KEYS);
  tile_end(&job->cut);
}

static void run_job(backward_job *job, hri_team *team) {
  const hri_attention_shape *shape = job->shape;
  const hri_backward_shared *shared = &job->shared;
  memset(shared->turns, 0, (size_t)(shared->slots * shared->group * shared->blocks) * sizeof *shared->turns);
  hri_team_each(team, shape->batch * shared->blocks, hri_grain(HRI_BACKWARD_QUERIES * job->width), prepare_blocks, job);
  if (!job->y) hri_team_in_order(team, shape->batch * shape->heads * shared->blocks, delta_task, job);
  hri_team_in_order(team, shape->batch * shape->kv_heads * job->tiles, tile_task, job);
}

void hri_attention_backward(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                            const void *y, const float *lse, const int32_t *doc_start, void *dqkv, void *scratch,
                            hri_team *team) {
  backward_job job = make_job(shape, scale, scratch, hri_team_threads(team));
  job.dy = dy;
  job.qkv = qkv;
  job.y = y;
  job.lse = lse;
  job.doc_start = doc_start;
  job.dqkv = dqkv;
  run_job(&job, team);
}

void hri_attention_materialized_backward(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                                         const void *probs, const int32_t *doc_start, void *dqkv, void *scratch,
                                         hri_team *team) {
  backward_job job = make_job(shape, scale, scratch, hri_team_threads(team));
  job.dy = dy;
  job.qkv = qkv;
  job.probs = probs;
  job.doc_start = doc_start;
  job.dqkv = dqkv;
  run_job(&job, team);
}
