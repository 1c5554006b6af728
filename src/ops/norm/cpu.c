/* RMS norm and layer norm of rows, and the RMS norm of the heads inside rows, which is the same with a head as the row.
 *
 * A row is read from memory once and then stays in the first or second cache for the later passes: (1) residual sum and
 * statistics, (2) for layer norm the variance about the mean, which does not cancel as E[x^2] - mean^2 does,
 * (3) the result. The sums are fp32 lanes, folded in fp32; mean and rstd are finished in double.
 *
 * With a residual the sum is rounded to the type of s before anything else sees it, and the backward rounds dx to its
 * type before `extra` is added: in bf16 a fused node gives the bits of the two nodes that it replaces.
 *
 * The backward of one row, with g = dy * weight and xhat = (x - mean) * rstd:
 *   layer: dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
 *   rms:   dx = rstd * (g - xhat * mean(g * xhat))
 *   dweight += dy * xhat, dbias += dy
 * dx may overwrite dy, so dweight is summed in the same pass over a row that writes dx. One row at a time: taking four,
 * which spares three of four updates of the column sums, was 30 % slower, because the rows become so many streams; two
 * in bf16, 8 % slower. */
#include <math.h>

#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

/* v as memory would give it back. */
static HRI_INLINE hri_vf as_stored(hri_vf v, hri_real real) {
  if (real == HRI_REAL_F16) return hri_vwiden_f16(hri_vround_f16(v));
  return real == HRI_REAL_BF16 ? (hri_vf)(hri_vround_upper(v) & 0xFFFF0000u) : hri_vrounded(v);
}

/* ---- forward ---- */

/* Elements [at, at + n) of x, or of x + residual, which are then written to s. */
static HRI_INLINE hri_vf take_input(const void *x, const void *residual, void *s, int64_t at, int64_t n,
                                    hri_real real) {
  hri_vf v = hri_vload_real_n(x, at, n, real);
  if (!residual) return v;
  v = as_stored(v + hri_vload_real_n(residual, at, n, real), real);
  if (real == HRI_REAL_BF16 && n == HRI_LANES) /* it is rounded already */
    *(hri_vh16_memory *)((hri_bf16 *)s + at) = (hri_vh16_memory)hri_vupper((hri_vu)v);
  else hri_vstore_real_n(s, at, v, n, real);
  return v;
}

/* Sum of x (+ residual, written to s), or of its squares. */
static HRI_INLINE float sum_row(const void *x, const void *residual, void *s, int64_t columns, bool squares,
                                hri_real real) {
  hri_vf even = {0}, odd = {0};
  int64_t j = 0;
  for (; j + 2 * HRI_LANES <= columns; j += 2 * HRI_LANES) {
    hri_vf a = take_input(x, residual, s, j, HRI_LANES, real);
    hri_vf b = take_input(x, residual, s, j + HRI_LANES, HRI_LANES, real);
    even += squares ? a * a : a;
    odd += squares ? b * b : b;
  }
  for (; j < columns; j += HRI_LANES) {
    hri_vf a = take_input(x, residual, s, j, columns - j < HRI_LANES ? columns - j : HRI_LANES, real);
    even += squares ? a * a : a;
  }
  return hri_vsum(even + odd);
}

/* Sum of (x - mean)^2. */
static HRI_INLINE float deviation_row(const void *x, float mean, int64_t columns, hri_real real) {
  hri_vf even = {0}, odd = {0};
  int64_t j = 0;
  for (; j + 2 * HRI_LANES <= columns; j += 2 * HRI_LANES) {
    hri_vf a = hri_vload_real(x, j, real) - mean, b = hri_vload_real(x, j + HRI_LANES, real) - mean;
    even += a * a;
    odd += b * b;
  }
  for (; j < columns; j += HRI_LANES) {
    int64_t n = columns - j < HRI_LANES ? columns - j : HRI_LANES;
    hri_vf a = hri_vkeep_n(hri_vload_real_n(x, j, n, real) - mean, n, 0.0f);
    even += a * a;
  }
  return hri_vsum(even + odd);
}

/* Weights with what is added to them, where anything is: `shifted` is a constant. */
typedef struct weights {
  const float *w;
  float offset;
  bool shifted;
} weights;

static HRI_INLINE hri_vf take_weight(weights weight, int64_t j, int64_t n) {
  hri_vf w = hri_vload_n(weight.w + j, n);
  return weight.shifted ? w + weight.offset : w;
}

static HRI_INLINE void scale_part(void *y, const void *x, float mean, float rstd, weights weight, const float *bias,
                                  int64_t j, int64_t n, hri_real real) {
  hri_vf v = (hri_vload_real_n(x, j, n, real) - mean) * rstd, w = take_weight(weight, j, n);
  hri_vstore_real_n(y, j, bias ? v * w + hri_vload_n(bias + j, n) : v * w, n, real);
}

static HRI_INLINE void scale_row(void *y, const void *x, float mean, float rstd, weights weight, const float *bias,
                                 int64_t columns, hri_real real) {
  int64_t j = 0;
  for (; j + HRI_LANES <= columns; j += HRI_LANES) scale_part(y, x, mean, rstd, weight, bias, j, HRI_LANES, real);
  if (j < columns) scale_part(y, x, mean, rstd, weight, bias, j, columns - j, real);
}

static HRI_INLINE void forward_row(const hri_norm_args *args, int64_t row, bool layer, bool shifted, hri_real real) {
  weights weight = {args->weight, (float)args->weight_offset, shifted};
  int64_t columns = args->columns, at = row * columns;
  const void *x = hri_real_from(args->x, at, real);
  const void *residual = args->residual ? hri_real_from(args->residual, at, real) : 0;
  void *s = residual ? hri_real_at(args->s, at, real) : 0;
  float sum = sum_row(x, residual, s, columns, !layer, real), mean = 0.0f, rstd;
  if (residual) x = s;
  if (layer) {
    mean = (float)((double)sum / (double)columns);
    sum = deviation_row(x, mean, columns, real);
  }
  rstd = (float)(1.0 / sqrt((double)sum / (double)columns + args->eps));
  scale_row(hri_real_at(args->y, at, real), x, mean, rstd, weight, args->bias, columns, real);
  if (!args->stats) return;
  if (layer) args->stats[2 * row] = mean;
  args->stats[layer ? 2 * row + 1 : row] = rstd;
}

static void rms_rows(void *context, int64_t begin, int64_t end, int thread) {
  const hri_norm_args *args = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) {
    if (args->weight_offset != 0) HRI_BY_REAL(args->real, forward_row(args, row, false, true, REAL));
    else HRI_BY_REAL(args->real, forward_row(args, row, false, false, REAL));
  }
}

static void rmsnorm(const hri_norm_args *args) {
  hri_team_each(args->team, args->rows, hri_grain(args->columns), rms_rows, (void *)args);
}

static void layer_rows(void *context, int64_t begin, int64_t end, int thread) {
  const hri_norm_args *args = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) HRI_BY_REAL(args->real, forward_row(args, row, true, false, REAL));
}

static void layernorm(const hri_norm_args *args) {
  hri_team_each(args->team, args->rows, hri_grain(args->columns), layer_rows, (void *)args);
}

/* ---- backward ---- */

/* One row of the operands (extra may be NULL), its statistics, mean(g) and mean(g * xhat). */
typedef struct row_terms {
  const void *dy, *x, *extra;
  void *dx;
  float mean, rstd, mean_g, mean_gx;
} row_terms;

static HRI_INLINE row_terms sum_terms(const hri_norm_backward_args *args, int64_t row, weights weight, bool layer,
                                      hri_real real) {
  int64_t columns = args->columns, at = row * columns, j = 0;
  hri_vf g_sum = {0}, gx_sum = {0}, g;
  row_terms terms = {.dy = hri_real_from(args->dy, at, real),
                     .x = hri_real_from(args->x, at, real),
                     .extra = args->extra ? hri_real_from(args->extra, at, real) : 0,
                     .dx = hri_real_at(args->dx, at, real)};
  terms.mean = layer ? args->stats[2 * row] : 0.0f;
  terms.rstd = args->stats[layer ? 2 * row + 1 : row];
  for (; j + HRI_LANES <= columns; j += HRI_LANES) {
    g = hri_vload_real(terms.dy, j, real) * take_weight(weight, j, HRI_LANES);
    gx_sum += g * (hri_vload_real(terms.x, j, real) - terms.mean);
    g_sum += g;
  }
  if (j < columns) { /* absent lanes: dy = 0 */
    g = hri_vload_real_n(terms.dy, j, columns - j, real) * take_weight(weight, j, columns - j);
    gx_sum += g * (hri_vload_real_n(terms.x, j, columns - j, real) - terms.mean);
    g_sum += g;
  }
  terms.mean_g = layer ? (float)((double)hri_vsum(g_sum) / (double)columns) : 0.0f;
  terms.mean_gx = (float)((double)hri_vsum(gx_sum) * (double)terms.rstd / (double)columns);
  return terms;
}

/* n columns of a row from j on: dx, and their share of dweight and dbias (each may be NULL). */
static HRI_INLINE void backward_part(row_terms terms, float *dweight, float *dbias, weights weight, int64_t j,
                                     int64_t n, bool layer, hri_real real) {
  hri_vf g = hri_vload_real_n(terms.dy, j, n, real), w = take_weight(weight, j, n);
  hri_vf xhat = (hri_vload_real_n(terms.x, j, n, real) - terms.mean) * terms.rstd;
  hri_vf d = ((layer ? g * w - terms.mean_g : hri_vrounded(g * w)) - xhat * terms.mean_gx) * terms.rstd;
  if (terms.extra) d = as_stored(d, real) + hri_vload_real_n(terms.extra, j, n, real);
  hri_vstore_real_n(terms.dx, j, d, n, real);
  if (dweight) hri_vstore_n(dweight + j, hri_vload_n(dweight + j, n) + g * xhat, n);
  if (dbias) hri_vstore_n(dbias + j, hri_vload_n(dbias + j, n) + g, n);
}

/* The columns of one row. */
static HRI_INLINE void apply_terms(row_terms terms, int64_t columns, weights weight, float *dweight, float *dbias,
                                   bool layer, hri_real real) {
  int64_t j = 0;
  for (; j + HRI_LANES <= columns; j += HRI_LANES)
    backward_part(terms, dweight, dbias, weight, j, HRI_LANES, layer, real);
  if (j < columns) backward_part(terms, dweight, dbias, weight, j, columns - j, layer, real);
}

static HRI_INLINE void backward_row(const hri_norm_backward_args *args, int64_t row, float *dweight, float *dbias,
                                    bool layer, bool shifted, hri_real real) {
  weights weight = {args->weight, (float)args->weight_offset, shifted};
  apply_terms(sum_terms(args, row, weight, layer, real), args->columns, weight, dweight, dbias, layer, real);
}

/* One block of rows with its partials (either may be NULL). */
static HRI_INLINE void backward_rows(const hri_norm_backward_args *args, int64_t begin, int64_t end, float *dweight,
                                     float *dbias, bool layer, bool shifted, hri_real real) {
  if (dweight) memset(dweight, 0, (size_t)args->columns * sizeof *dweight);
  if (dbias) memset(dbias, 0, (size_t)args->columns * sizeof *dbias);
  for (int64_t row = begin; row < end; row++) backward_row(args, row, dweight, dbias, layer, shifted, real);
}

/* out = (out if accumulate) + partials in block order. */
static void fold_partials(float *out, const float *partials, int64_t blocks, int64_t columns, bool accumulate) {
  for (int64_t j = 0; j < columns; j += HRI_LANES) {
    int64_t n = columns - j < HRI_LANES ? columns - j : HRI_LANES;
    hri_vf sum = {0};
    for (int64_t block = 0; block < blocks; block++) sum += hri_vload_n(partials + block * columns + j, n);
    if (accumulate) sum += hri_vload_n(out + j, n);
    hri_vstore_n(out + j, sum, n);
  }
}

/* The backward of a whole call; partials of blocks of rows in scratch, those of dbias behind those of dweight. */
typedef struct backward_job {
  const hri_norm_backward_args *args;
  bool layer;
  int64_t size, blocks; /* rows of a block, number of blocks */
  float *dweight, *dbias;
} backward_job;

static void backward_blocks(void *context, int64_t first, int64_t last, int thread) {
  const backward_job *job = context;
  const hri_norm_backward_args *args = job->args;
  (void)thread;
  for (int64_t block = first; block < last; block++) {
    int64_t begin = block * job->size, end = begin + job->size < args->rows ? begin + job->size : args->rows;
    float *dw = job->dweight ? job->dweight + block * args->columns : 0;
    float *db = job->dbias ? job->dbias + block * args->columns : 0;
    if (job->layer) HRI_BY_REAL(args->real, backward_rows(args, begin, end, dw, db, true, false, REAL));
    else if (args->weight_offset != 0)
      HRI_BY_REAL(args->real, backward_rows(args, begin, end, dw, db, false, true, REAL));
    else HRI_BY_REAL(args->real, backward_rows(args, begin, end, dw, db, false, false, REAL));
  }
}

static void backward(const hri_norm_backward_args *args, bool layer) {
  int64_t columns = args->columns;
  backward_job job = {.args = args,
                      .layer = layer,
                      .size = hri_row_block(args->rows),
                      .blocks = hri_row_block_count(args->rows)};
  job.dweight = args->dweight ? args->scratch : 0;
  job.dbias = !args->dbias ? 0 : args->dweight ? args->scratch + job.blocks * columns : args->scratch;
  hri_team_each(args->team, job.blocks, hri_grain(job.size * columns), backward_blocks, &job);
  if (job.dweight) fold_partials(args->dweight, job.dweight, job.blocks, columns, args->accumulate);
  if (job.dbias) fold_partials(args->dbias, job.dbias, job.blocks, columns, args->accumulate);
}

static void rmsnorm_backward(const hri_norm_backward_args *args) { backward(args, false); }
static void layernorm_backward(const hri_norm_backward_args *args) { backward(args, true); }

/* ---- heads of fused q, k, v rows ----
 *
 * A head is short, and folding the lanes of its sum and taking the root are long chains: HEADS heads go side by side,
 * first all their sums, then all their results. */

enum { HEADS = 16 };

/* Copies the v part of a row unless it is there already. */
static HRI_INLINE void keep_values(void *to, const void *from, int64_t at, int64_t count, hri_real real) {
  if (to != from)
    memcpy(hri_real_at(to, at, real), hri_real_from(from, at, real), (size_t)count * hri_real_bytes(real));
}

/* Where the heads of a row are: H of D elements, then K of E. */
typedef struct head_layout {
  int64_t heads, size, key_size, normed, width; /* normed: H + K; width: of a row, v included */
} head_layout;

static HRI_INLINE head_layout head_layout_of(int64_t heads, int64_t kv_heads, int64_t size, int64_t key_size) {
  int64_t e = key_size ? key_size : size;
  return (head_layout){heads, size, e, heads + kv_heads, heads * size + 2 * kv_heads * e};
}
#define LAYOUT_OF(args) head_layout_of((args)->heads, (args)->kv_heads, (args)->head_size, (args)->key_size)

static HRI_INLINE int64_t head_size_at(const head_layout *l, int64_t head) {
  return head < l->heads ? l->size : l->key_size;
}
static HRI_INLINE int64_t head_begin(const head_layout *l, int64_t head) {
  return head < l->heads ? head * l->size : l->heads * l->size + (head - l->heads) * l->key_size;
}
static HRI_INLINE int64_t head_count_from(const head_layout *l, int64_t head) {
  return l->normed - head < HEADS ? l->normed - head : HEADS;
}

/* Heads [head, head + count) of the row that starts at element `at`. */
static HRI_INLINE void head_norm_part(const hri_head_norm_args *args, const head_layout *l, int64_t row, int64_t at,
                                      int64_t head, int64_t count, hri_real real) {
  float rstd[HEADS];
  for (int64_t i = 0; i < count; i++) {
    int64_t first = at + head_begin(l, head + i), d = head_size_at(l, head + i);
    if (real != HRI_REAL_F32 && row + 1 < args->rows) hri_fetch(hri_real_from(args->x, first + l->width, real), 2 * d);
    rstd[i] = sum_row(hri_real_from(args->x, first, real), 0, 0, d, true, real);
  }
  for (int64_t i = 0; i < count; i++)
    rstd[i] = (float)(1.0 / sqrt((double)rstd[i] / (double)head_size_at(l, head + i) + args->eps));
  for (int64_t i = 0; i < count; i++) {
    weights weight = {head + i < args->heads ? args->wq : args->wk, (float)args->weight_offset, true};
    int64_t first = at + head_begin(l, head + i);
    scale_row(hri_real_at(args->y, first, real), hri_real_from(args->x, first, real), 0.0f, rstd[i], weight, 0,
              head_size_at(l, head + i), real);
  }
  if (args->stats) memcpy(args->stats + row * l->normed + head, rstd, (size_t)count * sizeof *rstd);
}

static HRI_INLINE void head_norm_row(const hri_head_norm_args *args, int64_t row, hri_real real) {
  head_layout l = LAYOUT_OF(args);
  int64_t at = row * l.width, values = head_begin(&l, l.normed);
  for (int64_t head = 0; head < l.normed; head += HEADS)
    head_norm_part(args, &l, row, at, head, head_count_from(&l, head), real);
  keep_values(args->y, args->x, at + values, l.width - values, real);
}

static void head_norm_rows(void *context, int64_t begin, int64_t end, int thread) {
  const hri_head_norm_args *args = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) HRI_BY_REAL(args->real, head_norm_row(args, row, REAL));
}

static void head_norm(const hri_head_norm_args *args) {
  hri_team_each(args->team, args->rows, hri_grain(LAYOUT_OF(args).width), head_norm_rows, (void *)args);
}

/* The same of the backward, a head being a row of its columns; dwq and dwk are the partials of its block (or NULL). */
static HRI_INLINE void head_norm_backward_part(const hri_head_norm_backward_args *args, const head_layout *l,
                                               int64_t row, int64_t at, int64_t head, int64_t count, float *dwq,
                                               float *dwk, hri_real real) {
  row_terms terms[HEADS];
  for (int64_t i = 0; i < count; i++) {
    int64_t first = at + head_begin(l, head + i), d = head_size_at(l, head + i);
    if (real != HRI_REAL_F32 && row + 1 < args->rows) {
      hri_fetch(hri_real_from(args->dy, first + l->width, real), 2 * d);
      hri_fetch(hri_real_from(args->x, first + l->width, real), 2 * d);
    }
    hri_norm_backward_args one = {.columns = d,
                                  .dy = hri_real_from(args->dy, first, real),
                                  .x = hri_real_from(args->x, first, real),
                                  .stats = args->stats + row * l->normed + head + i,
                                  .dx = hri_real_at(args->dx, first, real)};
    weights weight = {head + i < args->heads ? args->wq : args->wk, (float)args->weight_offset, true};
    terms[i] = sum_terms(&one, 0, weight, false, real);
  }
  for (int64_t i = 0; i < count; i++) {
    bool query = head + i < args->heads;
    weights weight = {query ? args->wq : args->wk, (float)args->weight_offset, true};
    apply_terms(terms[i], head_size_at(l, head + i), weight, query ? dwq : dwk, 0, false, real);
  }
}

static HRI_INLINE void head_norm_backward_row(const hri_head_norm_backward_args *args, int64_t row, float *dwq,
                                              float *dwk, hri_real real) {
  head_layout l = LAYOUT_OF(args);
  int64_t at = row * l.width, values = head_begin(&l, l.normed);
  for (int64_t head = 0; head < l.normed; head += HEADS)
    head_norm_backward_part(args, &l, row, at, head, head_count_from(&l, head), dwq, dwk, real);
  keep_values(args->dx, args->dy, at + values, l.width - values, real);
}

static HRI_INLINE void head_norm_backward_rows(const hri_head_norm_backward_args *args, int64_t begin, int64_t end,
                                               float *dwq, float *dwk, hri_real real) {
  head_layout l = LAYOUT_OF(args);
  if (dwq) memset(dwq, 0, (size_t)l.size * sizeof *dwq);
  if (dwk) memset(dwk, 0, (size_t)l.key_size * sizeof *dwk);
  for (int64_t row = begin; row < end; row++) head_norm_backward_row(args, row, dwq, dwk, real);
}

typedef struct head_job {
  const hri_head_norm_backward_args *args;
  int64_t size; /* rows of a block */
  float *dwq, *dwk;
} head_job;

static void head_norm_backward_blocks(void *context, int64_t first, int64_t last, int thread) {
  const head_job *job = context;
  const hri_head_norm_backward_args *args = job->args;
  head_layout l = LAYOUT_OF(args);
  (void)thread;
  for (int64_t block = first; block < last; block++) {
    int64_t begin = block * job->size, end = begin + job->size < args->rows ? begin + job->size : args->rows;
    float *q = job->dwq ? job->dwq + block * l.size : 0, *k = job->dwk ? job->dwk + block * l.key_size : 0;
    HRI_BY_REAL(args->real, head_norm_backward_rows(args, begin, end, q, k, REAL));
  }
}

static void head_norm_backward(const hri_head_norm_backward_args *args) {
  head_layout l = LAYOUT_OF(args);
  int64_t blocks = hri_row_block_count(args->rows);
  head_job job = {.args = args,
                  .size = hri_row_block(args->rows),
                  .dwq = args->dwq ? args->scratch : 0,
                  .dwk = args->dwk ? args->scratch + blocks * l.size : 0};
  hri_team_each(args->team, blocks, hri_grain(job.size * l.width), head_norm_backward_blocks, &job);
  if (job.dwq) fold_partials(args->dwq, job.dwq, blocks, l.size, args->accumulate);
  if (job.dwk) fold_partials(args->dwk, job.dwk, blocks, l.key_size, args->accumulate);
}

/* ---- DoRA ---- */

enum { LENGTH_TILE = 4 * HRI_LANES };

/* W and s B A of some elements of a row, and the squares of their sum. `wide`: LENGTH_TILE of them, four vectors side by
 * side, for each waits for itself only. */
static HRI_INLINE hri_vf squares_of(const hri_row_lengths_args *args, int64_t row, int64_t at, int64_t n,
                                    hri_real real) {
  hri_vf v = hri_vload_real_n(args->w, row * args->columns + at, n, real);
  for (int64_t r = 0; args->b && r < args->rank; r++)
    v += args->scale * args->b[row * args->rank + r] * hri_vload_n(args->a + r * args->columns + at, n);
  return v * v;
}

static HRI_INLINE hri_vf squares_of_tile(const hri_row_lengths_args *args, int64_t row, int64_t at, hri_real real) {
  hri_vf v[4];
  for (int k = 0; k < 4; k++) v[k] = hri_vload_real(args->w, row * args->columns + at + k * HRI_LANES, real);
  for (int64_t r = 0; args->b && r < args->rank; r++) {
    float factor = args->scale * args->b[row * args->rank + r];
    for (int k = 0; k < 4; k++) v[k] += factor * hri_vload(args->a + r * args->columns + at + k * HRI_LANES);
  }
  return (v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3]);
}

static HRI_INLINE float length_of(const hri_row_lengths_args *args, int64_t row, hri_real real) {
  double sum = 0;
  int64_t at = 0;
  for (; at + LENGTH_TILE <= args->columns; at += LENGTH_TILE) sum += hri_vsum(squares_of_tile(args, row, at, real));
  for (; at < args->columns; at += HRI_LANES) {
    int64_t n = args->columns - at < HRI_LANES ? args->columns - at : HRI_LANES;
    sum += hri_vsum(squares_of(args, row, at, n, real));
  }
  return (float)__builtin_sqrt(sum);
}

static void row_lengths_rows(void *context, int64_t first, int64_t last, int thread) {
  const hri_row_lengths_args *args = context;
  (void)thread;
  for (int64_t row = first; row < last; row++) {
    if (args->missing && args->lengths[row] == args->lengths[row]) continue;
    HRI_BY_REAL(args->real, args->lengths[row] = length_of(args, row, REAL));
  }
}

static void row_lengths(const hri_row_lengths_args *args) {
  hri_row_lengths_args own = *args;
  hri_team_each(args->team, args->rows, hri_grain(args->columns * (args->rank + 1)), row_lengths_rows, &own);
}

/* g of each column. */
static void column_factors(const hri_dora_args *args, float *factors) {
  int64_t at = 0, with = 0;
  for (int p = 0; p < HRI_DORA_PARTS; p++)
    for (int64_t k = 0; k < args->parts[p]; k++, at++) {
      if (!(args->having >> p & 1)) {
        factors[at] = 1;
        continue;
      }
      factors[at] = args->lengths[with] > 0 ? args->magnitudes[with] / args->lengths[with] : 0;
      with++;
    }
}

static HRI_INLINE void dora_row(const hri_dora_args *args, int64_t row, hri_real real) {
  for (int64_t i = 0; i < args->columns; i += HRI_LANES) {
    int64_t n = args->columns - i < HRI_LANES ? args->columns - i : HRI_LANES, at = row * args->columns + i;
    hri_vf y = hri_vload_real_n(args->z, at, n, real) * hri_vload_n(args->scratch + i, n);
    if (args->bias) y += hri_vload_n(args->bias + i, n);
    hri_vstore_real_n(args->y, at, y, n, real);
  }
}

static void dora_rows(void *context, int64_t first, int64_t last, int thread) {
  const hri_dora_args *args = context;
  (void)thread;
  for (int64_t row = first; row < last; row++) HRI_BY_REAL(args->real, dora_row(args, row, REAL));
}

static void dora(const hri_dora_args *args) {
  hri_dora_args own = *args;
  column_factors(args, args->scratch);
  hri_team_each(args->team, args->rows, hri_grain(args->columns), dora_rows, &own);
}

/* dz of rows [begin, end), and their sums of dy z. Both are read before dz is written, which may lie over either. */
static HRI_INLINE void dora_backward_rows(const hri_dora_args *args, int64_t begin, int64_t end, float *sums,
                                          hri_real real) {
  memset(sums, 0, (size_t)args->columns * sizeof *sums);
  for (int64_t row = begin; row < end; row++)
    for (int64_t i = 0; i < args->columns; i += HRI_LANES) {
      int64_t n = args->columns - i < HRI_LANES ? args->columns - i : HRI_LANES, at = row * args->columns + i;
      hri_vf dy = hri_vload_real_n(args->dy, at, n, real), z = hri_vload_real_n(args->z, at, n, real);
      hri_vstore_n(sums + i, hri_vload_n(sums + i, n) + dy * z, n);
      hri_vstore_real_n(args->dz, at, dy * hri_vload_n(args->scratch + i, n), n, real);
    }
}

static void dora_backward_blocks(void *context, int64_t first, int64_t last, int thread) {
  const hri_dora_args *args = context;
  int64_t size = hri_row_block(args->rows);
  (void)thread;
  for (int64_t block = first; block < last; block++) {
    int64_t begin = block * size, end = args->rows - begin < size ? args->rows : begin + size;
    float *sums = args->scratch + args->columns + block * args->columns;
    HRI_BY_REAL(args->real, dora_backward_rows(args, begin, end, sums, REAL));
  }
}

static void dora_backward(const hri_dora_args *args) {
  hri_dora_args own = *args;
  int64_t blocks = hri_row_block_count(args->rows), at = 0, with = 0;
  const float *sums = args->scratch + args->columns;
  column_factors(args, args->scratch);
  hri_team_each(args->team, blocks, hri_grain(hri_row_block(args->rows) * args->columns), dora_backward_blocks, &own);
  for (int p = 0; args->dmagnitudes && p < HRI_DORA_PARTS; at += args->parts[p], p++)
    for (int64_t k = 0; (args->having >> p & 1) && k < args->parts[p]; k++, with++) {
      /* Block after block onto what is there: micro-batches of whole blocks give the bits of one batch. */
      float sum = args->accumulate ? args->dmagnitudes[with] : 0,
            inverse = args->lengths[with] > 0 ? 1 / args->lengths[with] : 0;
      for (int64_t block = 0; block < blocks; block++) sum += sums[block * args->columns + at + k] * inverse;
      args->dmagnitudes[with] = sum;
    }
}

void HRI_ISA_NAME(hri_norm_kernels)(hri_cpu_kernels *table) {
  table->rmsnorm = rmsnorm;
  table->layernorm = layernorm;
  table->rmsnorm_backward = rmsnorm_backward;
  table->layernorm_backward = layernorm_backward;
  table->head_norm = head_norm;
  table->head_norm_backward = head_norm_backward;
  table->row_lengths = row_lengths;
  table->dora = dora;
  table->dora_backward = dora_backward;
}
