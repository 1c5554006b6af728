/* RMS norm and layer norm.
 *
 * A row is read from memory once and then stays in the first or second cache for the later passes: (1) residual sum and
 * statistics, (2) for layer norm the variance about the mean, which does not cancel as E[x^2] - mean^2 does,
 * (3) the result. The sums are fp32 lanes, folded in fp32; mean and rstd are finished in double.
 *
 * The backward of one row, with g = dy * weight and xhat = (x - mean) * rstd:
 *   layer: dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
 *   rms:   dx = rstd * (g - xhat * mean(g * xhat))
 *   dweight += dy * xhat, dbias += dy
 * dx may overwrite dy, so dweight is summed in the same pass over a row that writes dx. One row at a time: taking four,
 * which spares three of four updates of the column sums, was 30 % slower, because the rows become so many streams. */
#include <math.h>

#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

/* ---- forward ---- */

static inline hri_vf take_input(const float *x, const float *residual, float *s, int64_t j, int64_t n) {
  hri_vf v = hri_vload_n(x + j, n);
  if (!residual) return v;
  v += hri_vload_n(residual + j, n);
  hri_vstore_n(s + j, v, n);
  return v;
}

/* Sum of x (+ residual, written to s), or of its squares. */
static inline __attribute__((always_inline)) float sum_row(const float *x, const float *residual, float *s,
                                                           int64_t columns, bool squares) {
  hri_vf even = {0}, odd = {0};
  int64_t j = 0;
  for (; j + 2 * HRI_LANES <= columns; j += 2 * HRI_LANES) {
    hri_vf a = take_input(x, residual, s, j, HRI_LANES), b = take_input(x, residual, s, j + HRI_LANES, HRI_LANES);
    even += squares ? a * a : a;
    odd += squares ? b * b : b;
  }
  for (; j < columns; j += HRI_LANES) {
    hri_vf a = take_input(x, residual, s, j, columns - j < HRI_LANES ? columns - j : HRI_LANES);
    even += squares ? a * a : a;
  }
  return hri_vsum(even + odd);
}

/* Sum of (x - mean)^2. */
static float deviation_row(const float *x, float mean, int64_t columns) {
  hri_vf even = {0}, odd = {0};
  int64_t j = 0;
  for (; j + 2 * HRI_LANES <= columns; j += 2 * HRI_LANES) {
    hri_vf a = hri_vload(x + j) - mean, b = hri_vload(x + j + HRI_LANES) - mean;
    even += a * a;
    odd += b * b;
  }
  for (; j < columns; j += HRI_LANES) {
    int64_t n = columns - j < HRI_LANES ? columns - j : HRI_LANES;
    hri_vf a = hri_vkeep_n(hri_vload_n(x + j, n) - mean, n, 0.0f);
    even += a * a;
  }
  return hri_vsum(even + odd);
}

static inline void scale_part(float *y, const float *x, float mean, float rstd, const float *weight, const float *bias,
                              int64_t n) {
  hri_vf v = (hri_vload_n(x, n) - mean) * rstd * hri_vload_n(weight, n);
  if (bias) v += hri_vload_n(bias, n);
  hri_vstore_n(y, v, n);
}

static void scale_row(float *y, const float *x, float mean, float rstd, const float *weight, const float *bias,
                      int64_t columns) {
  int64_t j = 0;
  for (; j + HRI_LANES <= columns; j += HRI_LANES)
    scale_part(y + j, x + j, mean, rstd, weight + j, bias ? bias + j : bias, HRI_LANES);
  if (j < columns) scale_part(y + j, x + j, mean, rstd, weight + j, bias ? bias + j : bias, columns - j);
}

static inline __attribute__((always_inline)) void forward_row(const hri_norm_args *args, int64_t row, bool layer) {
  int64_t columns = args->columns;
  const float *x = args->x + row * columns;
  const float *residual = args->residual ? args->residual + row * columns : 0;
  float *s = residual ? args->s + row * columns : 0;
  float sum = sum_row(x, residual, s, columns, !layer), mean = 0.0f, rstd;
  if (residual) x = s;
  if (layer) {
    mean = (float)((double)sum / (double)columns);
    sum = deviation_row(x, mean, columns);
  }
  rstd = (float)(1.0 / sqrt((double)sum / (double)columns + args->eps));
  scale_row(args->y + row * columns, x, mean, rstd, args->weight, args->bias, columns);
  if (!args->stats) return;
  if (layer) args->stats[2 * row] = mean;
  args->stats[layer ? 2 * row + 1 : row] = rstd;
}

static void rmsnorm(const hri_norm_args *args) {
  int64_t rows = args->rows;
#pragma omp parallel for num_threads(hri_team(args->threads, rows * args->columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    forward_row(args, row, false);
}

static void layernorm(const hri_norm_args *args) {
  int64_t rows = args->rows;
#pragma omp parallel for num_threads(hri_team(args->threads, rows * args->columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    forward_row(args, row, true);
}

/* ---- backward ---- */

/* Per row: mean(g), mean(g * xhat), and the statistics. */
typedef struct row_terms {
  float mean, rstd, mean_g, mean_gx;
} row_terms;

static inline __attribute__((always_inline)) row_terms sum_terms(const hri_norm_backward_args *args, int64_t row,
                                                                 bool layer) {
  int64_t columns = args->columns;
  const float *dy = args->dy + row * columns, *x = args->x + row * columns;
  hri_vf g_sum = {0}, gx_sum = {0}, g;
  int64_t j = 0;
  row_terms terms;
  terms.mean = layer ? args->stats[2 * row] : 0.0f;
  terms.rstd = args->stats[layer ? 2 * row + 1 : row];
  for (; j + HRI_LANES <= columns; j += HRI_LANES) {
    g = hri_vload(dy + j) * hri_vload(args->weight + j);
    gx_sum += g * (hri_vload(x + j) - terms.mean);
    g_sum += g;
  }
  if (j < columns) { /* absent lanes: dy = 0 */
    g = hri_vload_n(dy + j, columns - j) * hri_vload_n(args->weight + j, columns - j);
    gx_sum += g * (hri_vload_n(x + j, columns - j) - terms.mean);
    g_sum += g;
  }
  terms.mean_g = layer ? (float)((double)hri_vsum(g_sum) / (double)columns) : 0.0f;
  terms.mean_gx = (float)((double)hri_vsum(gx_sum) * (double)terms.rstd / (double)columns);
  return terms;
}

/* n columns of a row: dx, and their share of dweight and dbias (each may be NULL). */
static inline __attribute__((always_inline)) void backward_part(float *dx, float *dweight, float *dbias,
                                                                const float *dy, const float *x, const float *weight,
                                                                const float *extra, row_terms terms, int64_t n) {
  hri_vf g = hri_vload_n(dy, n), xhat = (hri_vload_n(x, n) - terms.mean) * terms.rstd;
  hri_vf d = (g * hri_vload_n(weight, n) - terms.mean_g - xhat * terms.mean_gx) * terms.rstd;
  if (extra) d += hri_vload_n(extra, n);
  hri_vstore_n(dx, d, n);
  if (dweight) hri_vstore_n(dweight, hri_vload_n(dweight, n) + g * xhat, n);
  if (dbias) hri_vstore_n(dbias, hri_vload_n(dbias, n) + g, n);
}

static inline __attribute__((always_inline)) void backward_row(const hri_norm_backward_args *args, int64_t row,
                                                               float *dweight, float *dbias, bool layer) {
  row_terms terms = sum_terms(args, row, layer);
  int64_t columns = args->columns, at = row * columns, j = 0;
  const float *dy = args->dy + at, *x = args->x + at, *extra = args->extra ? args->extra + at : 0;
  float *dx = args->dx + at;
#define PART(n)                                                                                                        \
  backward_part(dx + j, dweight ? dweight + j : 0, dbias ? dbias + j : 0, dy + j, x + j, args->weight + j,             \
                extra ? extra + j : 0, terms, n)
  for (; j + HRI_LANES <= columns; j += HRI_LANES)
    PART(HRI_LANES);
  if (j < columns) PART(columns - j);
#undef PART
}

/* One block of rows with its partials (either may be NULL). */
static inline __attribute__((always_inline)) void backward_rows(const hri_norm_backward_args *args, int64_t begin,
                                                                int64_t end, float *dweight, float *dbias, bool layer) {
  if (dweight) memset(dweight, 0, (size_t)args->columns * sizeof *dweight);
  if (dbias) memset(dbias, 0, (size_t)args->columns * sizeof *dbias);
  for (int64_t row = begin; row < end; row++)
    backward_row(args, row, dweight, dbias, layer);
}

/* out = (out if accumulate) + partials in block order. */
static void fold_partials(float *out, const float *partials, int64_t blocks, int64_t columns, bool accumulate) {
  for (int64_t j = 0; j < columns; j += HRI_LANES) {
    int64_t n = columns - j < HRI_LANES ? columns - j : HRI_LANES;
    hri_vf sum = {0};
    for (int64_t block = 0; block < blocks; block++)
      sum += hri_vload_n(partials + block * columns + j, n);
    if (accumulate) sum += hri_vload_n(out + j, n);
    hri_vstore_n(out + j, sum, n);
  }
}

static inline __attribute__((always_inline)) void backward(const hri_norm_backward_args *args, bool layer) {
  int64_t rows = args->rows, columns = args->columns;
  int64_t size = hri_row_block(rows), blocks = hri_row_block_count(rows);
  float *dweight = args->dweight ? args->scratch : 0;
  float *dbias = !args->dbias ? 0 : args->dweight ? args->scratch + blocks * columns : args->scratch;
#pragma omp parallel for num_threads(hri_team(args->threads, rows *columns)) schedule(static)
  for (int64_t block = 0; block < blocks; block++) {
    int64_t begin = block * size, end = begin + size < rows ? begin + size : rows;
    backward_rows(args, begin, end, dweight ? dweight + block * columns : 0, dbias ? dbias + block * columns : 0,
                  layer);
  }
  if (dweight) fold_partials(args->dweight, dweight, blocks, columns, args->accumulate);
  if (dbias) fold_partials(args->dbias, dbias, blocks, columns, args->accumulate);
}

static void rmsnorm_backward(const hri_norm_backward_args *args) { backward(args, false); }
static void layernorm_backward(const hri_norm_backward_args *args) { backward(args, true); }

void HRI_ISA_NAME(hri_norm_kernels)(hri_cpu_kernels *table) {
  table->rmsnorm = rmsnorm;
  table->layernorm = layernorm;
  table->rmsnorm_backward = rmsnorm_backward;
  table->layernorm_backward = layernorm_backward;
}
