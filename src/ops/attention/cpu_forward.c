/* Attention forward in O(T) memory: online softmax over key tiles (Milakov and Gimelshein, "Online normalizer
 * calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
 *
 * A task is one (batch row, head, block of HRI_FORWARD_QUERIES queries). It turns its queries once, so that they are
 * lanes, and walks the key tiles that they see; per tile it copies K and V once and then, panel by panel of TILE_LANES
 * queries, computes S^T = K Q^T, exponentiates it in the first-level cache against the running maximum (down the lanes,
 * without horizontal sums), and adds P V to the output rows, P^T being read by columns. K, V and the output are never
 * turned.
 * By tiles of AMX the second product is turned: (P V)^T = V^T P^T, where P^T is b as it stands. So the output of a panel is
 * [wide][lanes] until it is written, and V is turned, once per tile (tiles->turned).
 * With dropout the exponentials of keys that go are cleared between the sum and the product (drop.h).
 * Scores are in units of log2. Rows of S^T that no lane sees are never computed. A soft-cap is one more pass over the
 * scores of a panel while they are in the first-level cache.
 *
 * Tasks of a head run longest first and heads in order: one head's keys stay in the shared cache, and the tail of the
 * loop is short tasks. No task depends on another, so bits do not depend on the team. */
#include <assert.h>

#include "ops/attention/drop.h"
#include "ops/attention/kernels.h"

typedef struct forward_job {
  const hri_attention_shape *shape;
  const void *qkv;
  const int32_t *doc_start;
  void *y;
  float *lse, factor; /* scale * log2(e) */
  float limit;        /* the soft-cap in units of q.k, or 0 */
  drop_job drop;
  hri_attention_cut cut;
  int64_t stride, blocks; /* elements per row of qkv; query blocks of a sequence */
  void *scratch;
  uint64_t scratch_each; /* of a thread */
} forward_job;

static tile_span *span_of(const hri_forward_tiles *tiles, int64_t panel) { return (tile_span *)tiles->spans + panel; }

/* Packs the queries of a block and clears its running state; returns the number of panels. */
static int64_t begin_block(const forward_job *job, const hri_forward_tiles *tiles, int64_t b, int64_t h,
                           int64_t query) {
  const hri_attention_shape *shape = job->shape;
  int64_t count = tile_min(HRI_FORWARD_QUERIES, shape->sequence - query),
          panels = (count + TILE_LANES - 1) / TILE_LANES;
  const int32_t *doc_start = job->doc_start ? job->doc_start + b * shape->sequence : NULL;
  tile_pack_rows(job->cut.pairs, shape->real,
                 hri_real_from(job->qkv, (b * shape->sequence + query) * job->stride + h * shape->head_dim,
                               shape->real),
                 job->stride, count, shape->head_dim, panels * TILE_LANES, tiles->rows, job->cut.row);
  tile_pack_panels(tiles->rows, job->cut.row, panels * TILE_LANES, job->cut.words, tiles->q);
  memset(tiles->out, 0, (size_t)(panels * TILE_LANES * job->cut.wide) * sizeof *tiles->out);
  for (int64_t p = 0; p < panels; p++) tile_span_fill(span_of(tiles, p), shape, doc_start, query + p * TILE_LANES);
  for (int64_t i = 0; i < panels * TILE_LANES; i++) {
    tiles->highest[i] = TILE_LOWEST;
    tiles->sum[i] = 0;
  }
  return panels;
}

/* Scales the output so far of one panel where the maximum of a query rose. */
static void rescale(const hri_attention_cut *cut, float *out, const float factor[TILE_LANES]) {
  int64_t wide = cut->wide;
  if (cut->tiles) {
    bool any = false;
    for (int64_t i = 0; i < TILE_LANES; i++) any |= factor[i] != 1;
    for (int64_t j = 0; any && j < wide * TILE_LANES; j += TILE_VECTOR)
      tile_store(out + j, tile_load(out + j) * tile_load(factor + j % TILE_LANES));
    return;
  }
  for (int64_t i = 0; i < TILE_LANES; i++, out += wide) {
    if (factor[i] == 1) continue;
    for (int64_t j = 0; j < wide; j += TILE_VECTOR) tile_store(out + j, tile_load(out + j) * factor[i]);
  }
}

/* exp2(score * factor - top) over rows [begin, end) of one panel, and their sums. Pairs of rows become rows of pairs,
 * at half the row index. */
TILE_INLINE void exponentiate(const bool pairs, float *scores, int64_t begin, int64_t end, float factor,
                              const tile_vf top[2], tile_vf total[2]) {
#if TILE_PAIRS
  for (int64_t j = begin; pairs && j < end; j += 2) {
    tile_vf even[2], odd[2], words[2];
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      const float *p = scores + j * TILE_LANES + v * TILE_VECTOR;
      even[v] = tile_exp2_short(tile_load(p) * factor - top[v]);
      odd[v] = tile_exp2_short(tile_load(p + TILE_LANES) * factor - top[v]);
      total[v] += even[v] + odd[v];
    }
    tile_interleave(tile_round_pairs(even), tile_round_pairs(odd), words);
    TILE_UNROLL for (int v = 0; v < 2; v++) tile_store(scores + j / 2 * TILE_LANES + v * TILE_VECTOR, words[v]);
  }
#endif
  for (int64_t j = begin; !pairs && j < end; j++) {
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      float *p = scores + j * TILE_LANES + v * TILE_VECTOR;
      tile_vf e = tile_exp2(tile_load(p) * factor - top[v]);
      total[v] += e;
      tile_store(p, e);
    }
  }
}

/* One step of the online softmax: scores[begin..end) become exp2(score * job->factor - highest). */
static void softmax_step(const forward_job *job, const hri_forward_tiles *tiles, int64_t panel, int64_t key,
                         int64_t begin, int64_t end, bool masked) {
  const tile_span *span = span_of(tiles, panel);
  float *highest = tiles->highest + panel * TILE_LANES, *sum = tiles->sum + panel * TILE_LANES, factors[TILE_LANES];
  tile_vf top[2], total[2];
  TILE_UNROLL for (int v = 0; v < 2; v++) {
    tile_vi query = tile_iota() + (span->first + v * TILE_VECTOR);
    tile_vi start = *(const tile_vi *)(span->start + v * TILE_VECTOR);
    tile_vf old = tile_load(highest + v * TILE_VECTOR), factor;
    top[v] = old;
    for (int64_t j = begin; j < end; j++) {
      float *p = tiles->scores + j * TILE_LANES + v * TILE_VECTOR;
      tile_vf s = tile_load(p) * job->factor;
      if (masked) tile_store(p, s = tile_mask(s, query, start, (int32_t)(key + j)));
      top[v] = tile_max(s, top[v]);
    }
    factor = tile_exp2(old - top[v]);
    total[v] = tile_load(sum + v * TILE_VECTOR) * factor;
    tile_store(factors + v * TILE_VECTOR, factor);
  }
  /* masked scores are scaled already */
  if (job->cut.pairs) exponentiate(true, tiles->scores, begin, end, masked ? 1 : job->factor, top, total);
  else exponentiate(false, tiles->scores, begin, end, masked ? 1 : job->factor, top, total);
  TILE_UNROLL for (int v = 0; v < 2; v++) {
    tile_store(highest + v * TILE_VECTOR, top[v]);
    tile_store(sum + v * TILE_VECTOR, total[v]);
  }
  rescale(&job->cut, tiles->out + panel * TILE_LANES * job->cut.wide, factors);
}

/* The output of panel p += P V over the rows [begin, end) of the tile. */
static void add_values(const forward_job *job, const hri_forward_tiles *tiles, int64_t p, int64_t begin, int64_t end) {
  int64_t pair = job->cut.pairs ? 2 : 1, wide = job->cut.wide, depth = (end - begin) / pair;
  float *out = tiles->out + p * TILE_LANES * wide;
  const float *probs = tiles->scores + begin / pair * TILE_LANES;
  if (job->cut.tiles)
    tile_product(true, false, true, wide, depth, tiles->turned + begin / pair, TILE_KEYS / 2, probs, TILE_LANES, out,
                 TILE_LANES, TILE_LANES);
  else
    tile_product(job->cut.pairs, true, true, TILE_LANES, depth, probs, TILE_LANES,
                 tiles->value_pairs + begin / pair * wide, wide, out, wide, wide);
}

/* All panels of the block against the key tile from `key` on. */
static void step_tile(const forward_job *job, const hri_forward_tiles *tiles, int64_t panels, int64_t b, int64_t h,
                      int64_t key) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, count = tile_min(TILE_KEYS, shape->sequence - key);
  int64_t kv = h / (shape->heads / shape->kv_heads);
  int64_t at = (b * shape->sequence + key) * job->stride + (shape->heads + kv) * d;
  int64_t needed = tile_round_up(count, TILE_ROWS);
  tile_pack_rows(job->cut.pairs, shape->real, hri_real_from(job->qkv, at, shape->real), job->stride, count, d, needed,
                 tiles->keys, job->cut.row);
  tile_pack_rows(job->cut.pairs, shape->real, hri_real_from(job->qkv, at + shape->kv_heads * d, shape->real),
                 job->stride, count, d, needed, tiles->values, job->cut.row);
  tile_pair_rows(job->cut.pairs, tiles->values, job->cut.row, needed, job->cut.wide, tiles->value_pairs);
#if HRI_AMX
  if (job->cut.tiles)
    tile_turn(tiles->value_pairs, job->cut.wide, needed / 2, job->cut.wide, tiles->turned, TILE_KEYS / 2);
#endif
  for (int64_t p = 0; p < panels; p++) {
    int64_t begin, end;
    bool masked;
    if (!tile_span_rows(span_of(tiles, p), shape->sequence, key, &begin, &end, &masked)) continue;
    tile_product(job->cut.pairs, false, false, end - begin, job->cut.words, tiles->keys + begin * job->cut.row,
                 job->cut.row, tiles->q + p * job->cut.words * TILE_LANES, TILE_LANES,
                 tiles->scores + begin * TILE_LANES, TILE_LANES, TILE_LANES);
    if (job->limit > 0) tile_cap(tiles->scores + begin * TILE_LANES, end - begin, job->limit);
    softmax_step(job, tiles, p, key, begin, end, masked);
    if (job->drop.on)
      drop_scores(&job->drop, job->cut.pairs, tiles->scores, begin, end, b, h, span_of(tiles, p)->first, key);
    add_values(job, tiles, p, begin, end);
  }
}

/* Divides by the sums and writes y and lse. */
static void finish_panel(const forward_job *job, const hri_forward_tiles *tiles, int64_t p, int64_t b, int64_t h) {
  const hri_attention_shape *shape = job->shape;
  int64_t d = shape->head_dim, first = span_of(tiles, p)->first, width = shape->heads * d;
  int64_t count = tile_min(TILE_LANES, shape->sequence - first);
  float *lse = job->lse + (b * shape->heads + h) * shape->sequence + first, values[TILE_LANES];
  TILE_UNROLL for (int v = 0; v < 2; v++) {
    int64_t lane = p * TILE_LANES + v * TILE_VECTOR;
    tile_vf sum = tile_load(tiles->sum + lane), top = tile_load(tiles->highest + lane);
    tile_store(values + v * TILE_VECTOR, (top + tile_log2(sum)) * TILE_LN2);
  }
  memcpy(lse, values, (size_t)count * sizeof *lse);
  const float *rows = tiles->out + p * TILE_LANES * job->cut.wide;
#if HRI_AMX
  if (job->cut.tiles) {
    tile_turn(rows, TILE_LANES, job->cut.wide, TILE_LANES, tiles->turned, job->cut.wide);
    rows = tiles->turned;
  }
#endif
  for (int64_t i = 0; i < count; i++) {
    tile_store_row(shape->real, rows + i * job->cut.wide, d, job->drop.factor / tiles->sum[p * TILE_LANES + i], job->y,
                   (b * shape->sequence + first + i) * width + h * d);
  }
}

static void run_block(const forward_job *job, const hri_forward_tiles *tiles, int64_t b, int64_t h, int64_t query) {
  const hri_attention_shape *shape = job->shape;
  int64_t panels = begin_block(job, tiles, b, h, query);
  int64_t least = INT32_MAX, end = tile_min(query + HRI_FORWARD_QUERIES, shape->sequence);
  for (int64_t p = 0; p < panels; p++) least = tile_min(least, span_of(tiles, p)->least);
  for (int64_t key = least / TILE_KEYS * TILE_KEYS; key < end; key += TILE_KEYS)
    step_tile(job, tiles, panels, b, h, key);
  for (int64_t p = 0; p < panels; p++) finish_panel(job, tiles, p, b, h);
}

static void run_task(void *context, int64_t task, int64_t end, int thread) {
  const forward_job *job = context;
  const hri_attention_shape *shape = job->shape;
  hri_carver carver = hri_carver_of(job->scratch, job->scratch_each, thread);
  hri_forward_tiles tiles = hri_forward_tiles_take(&carver, &job->cut);
  /* (b, kv), then blocks from the last, then the heads that share kv */
  int64_t group = shape->heads / shape->kv_heads, g = task % group, pair = task / group / job->blocks;
  int64_t block = job->blocks - 1 - task / group % job->blocks;
  assert(carver.used == job->scratch_each); /* what was planned is what is laid out */
  assert(end == task + 1);
  (void)end;
  tile_begin(&job->cut);
  run_block(job, &tiles, pair / shape->kv_heads, pair % shape->kv_heads * group + g, block * HRI_FORWARD_QUERIES);
  tile_end(&job->cut);
}

void hri_attention_forward(const hri_attention_shape *shape, float scale, const void *qkv, const int32_t *doc_start,
                           void *y, float *lse, void *scratch, hri_team *team) {
  forward_job job = {.shape = shape,
                     .qkv = qkv,
                     .doc_start = doc_start,
                     .y = y,
                     .lse = lse,
                     .factor = scale * TILE_LOG2E,
                     .limit = (float)shape->softcap / scale,
                     .drop = drop_job_make(shape),
                     .cut = hri_attention_cut_of(TILE_LEVEL, shape->real, shape->head_dim),
                     .stride = (shape->heads + 2 * shape->kv_heads) * shape->head_dim,
                     .blocks = (shape->sequence + HRI_FORWARD_QUERIES - 1) / HRI_FORWARD_QUERIES,
                     .scratch = scratch,
                     .scratch_each = hri_attention_forward_scratch(TILE_LEVEL, shape, 1)};
  assert(job.cut.vector == TILE_VECTOR && job.cut.lanes == TILE_LANES && job.cut.keys == TILE_KEYS);
  hri_team_in_order(team, shape->batch * shape->heads * job.blocks, run_task, &job);
}
