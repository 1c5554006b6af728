/* Cross-entropy over rows of logits, in place.
 *
 * Bandwidth decides: a row of 50k logits is 200 KB, so it is read from memory once and stays in the second cache.
 * The row is cut into chunks that fit the first cache. Per chunk: its maximum m_c, then e = exp(x - m_c), written to
 * dlogits at once, and its sum s_c, lanes in fp32 over a few hundred elements, folded into a double. With M = max m_c,
 *   sum = s_c exp(m_c - M), loss = M + log(sum) - x[label],
 * all in double, so the systematic error of long fp32 sums does not occur. A second pass multiplies each chunk by
 * gradient_scale * exp(m_c - M) / sum: one vector exp per element, and exp of a difference within a chunk is as
 * accurate as of one within the row. The label's own gradient is (p - 1) = expm1(-loss), which does not cancel. */
#include <float.h>
#include <math.h>

#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum {
  CHUNK = 2048,     /* fp32 elements: 8 KB */
  MOST_CHUNKS = 256 /* larger vocabularies (> 524,288) get longer chunks */
};

typedef struct chunk_sums {
  int64_t size, count;
  float maximum[MOST_CHUNKS];
  double sum[MOST_CHUNKS];
} chunk_sums;

/* The largest of x[n], at least -FLT_MAX: with all elements -inf the exponentials are then 0 and not NaN. */
static float chunk_maximum(const float *x, int64_t n) {
  hri_vf a = hri_vset(-FLT_MAX), b = a;
  int64_t i = 0;
  for (; i + 2 * HRI_LANES <= n; i += 2 * HRI_LANES) {
    a = hri_vmax(hri_vload(x + i), a); /* a NaN does not win: it shows in the sum */
    b = hri_vmax(hri_vload(x + i + HRI_LANES), b);
  }
  for (; i < n; i += HRI_LANES) {
    int64_t left = n - i < HRI_LANES ? n - i : HRI_LANES;
    a = hri_vmax(hri_vkeep_n(hri_vload_n(x + i, left), left, -FLT_MAX), a);
  }
  return hri_vmax_fold(hri_vmax(a, b));
}

/* Sum of exp(x - maximum) over x[n]; the terms are written to e unless it is NULL. e may alias x. */
static inline __attribute__((always_inline)) double chunk_sum(float *e, const float *x, float maximum, int64_t n) {
  hri_vf a = {0}, b = {0};
  int64_t i = 0;
  for (; i + 2 * HRI_LANES <= n; i += 2 * HRI_LANES) {
    hri_vf p = hri_vexp(hri_vload(x + i) - maximum), q = hri_vexp(hri_vload(x + i + HRI_LANES) - maximum);
    if (e) {
      hri_vstore(e + i, p);
      hri_vstore(e + i + HRI_LANES, q);
    }
    a += p;
    b += q;
  }
  for (; i < n; i += HRI_LANES) {
    int64_t left = n - i < HRI_LANES ? n - i : HRI_LANES;
    hri_vf p = hri_vkeep_n(hri_vexp(hri_vload_n(x + i, left) - maximum), left, 0.0f);
    if (e) hri_vstore_n(e + i, p, left);
    a += p;
  }
  return (double)hri_vsum(a) + (double)hri_vsum(b);
}

/* log of the sum of exp over the row, and the exponentials in e if it is not NULL. */
static double log_sum_exp(chunk_sums *chunks, float *e, const float *x, int64_t vocabulary) {
  double maximum = -DBL_MAX, sum = 0.0;
  int64_t size = (vocabulary + MOST_CHUNKS - 1) / MOST_CHUNKS;
  chunks->size = size <= CHUNK ? CHUNK : (size + HRI_LANES - 1) / HRI_LANES * HRI_LANES;
  chunks->count = 0;
  for (int64_t begin = 0; begin < vocabulary; begin += chunks->size) {
    int64_t n = vocabulary - begin < chunks->size ? vocabulary - begin : chunks->size, c = chunks->count++;
    float top = chunk_maximum(x + begin, n);
    chunks->maximum[c] = top;
    chunks->sum[c] = e ? chunk_sum(e + begin, x + begin, top, n) : chunk_sum(0, x + begin, top, n);
    if ((double)top > maximum) maximum = (double)top;
  }
  for (int64_t c = 0; c < chunks->count; c++)
    sum += chunks->sum[c] * exp((double)chunks->maximum[c] - maximum);
  return maximum + log(sum);
}

static void scale_in_place(float *x, float factor, int64_t n) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    hri_vstore(x + i, hri_vload(x + i) * factor);
  if (i < n) hri_vstore_n(x + i, hri_vload_n(x + i, n - i) * factor, n - i);
}

static void cross_entropy_row(const hri_cross_entropy_args *args, int64_t row) {
  int64_t vocabulary = args->vocabulary, label = args->labels[row];
  const float *x = args->logits + row * args->stored;
  float *d = args->dlogits ? args->dlogits + row * args->stored : 0;
  chunk_sums chunks;
  double lse, loss, target;
  if (label < 0) {
    args->losses[row] = 0.0f;
    if (d) memset(d, 0, (size_t)args->stored * sizeof *d);
    return;
  }
  target = (double)x[label]; /* before d overwrites it */
  lse = log_sum_exp(&chunks, d, x, vocabulary);
  loss = lse - target;
  args->losses[row] = (float)loss;
  if (!d) return;
  for (int64_t c = 0; c < chunks.count; c++) {
    int64_t begin = c * chunks.size, n = vocabulary - begin < chunks.size ? vocabulary - begin : chunks.size;
    scale_in_place(d + begin, (float)(args->gradient_scale * exp((double)chunks.maximum[c] - lse)), n);
  }
  d[label] = (float)(args->gradient_scale * expm1(-loss));
  memset(d + vocabulary, 0, (size_t)(args->stored - vocabulary) * sizeof *d);
}

static void cross_entropy(const hri_cross_entropy_args *args) {
  int64_t rows = args->rows;
#pragma omp parallel for num_threads(hri_team(args->threads, rows * args->vocabulary)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    cross_entropy_row(args, row);
}

static double loss_sum(const float *losses, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)losses[i];
  return sum;
}

void HRI_ISA_NAME(hri_loss_kernels)(hri_cpu_kernels *table) {
  table->cross_entropy = cross_entropy;
  table->loss_sum = loss_sum;
}
