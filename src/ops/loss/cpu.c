/* Cross-entropy over rows of logits, in place.
 *
 * A row of 50k logits is 100 or 200 KB, so it is read from memory once and stays in the second cache. The row is cut
 * into chunks that fit the first cache. Per chunk: its maximum m_c, then the sum s_c of exp(x - m_c), lanes in fp32
 * over a few hundred elements, folded into a double. With M = max m_c,
 *   sum = s_c exp(m_c - M), loss = M + log(sum) - x[label],
 * all in double, so the systematic error of long fp32 sums does not occur. A second pass writes
 *   exp(x - m_c) * (gradient_scale * exp(m_c - M) / sum)
 * and exp of a difference within a chunk is as accurate as of one within the row. It computes the exponentials again:
 * keeping them in dlogits, to be scaled there, costs as much in traffic as it saves in arithmetic, and in bf16 it would
 * round twice. The label's own gradient is (p - 1) = expm1(-loss), which does not cancel.
 *
 * Label smoothing as torch: the target has smoothing / V for every class and 1 - smoothing more for the label.
 *
 * A soft-cap is computed anew in each pass as well. It keeps the order of logits, so that the maximum of a chunk is the
 * capped maximum; where its last bit does not, a difference is 1e-7 above 0, which exp takes. */
#include <float.h>
#include <math.h>

#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum {
  WIDE = HRI_GROUP * HRI_LANES, /* elements that go side by side */
  CHUNK = 2048,                 /* elements: 8 KB of fp32 */
  MOST_CHUNKS = 256             /* larger vocabularies (> 524,288) get longer chunks */
};

typedef struct chunk_sums {
  int64_t size, count;
  float maximum[MOST_CHUNKS];
  double sum[MOST_CHUNKS];
} chunk_sums;

/* The largest of x[begin, end), at least -FLT_MAX: with all elements -inf the exponentials are then 0 and not NaN. */
static HRI_INLINE float chunk_maximum(const void *x, int64_t begin, int64_t end, hri_real real) {
  hri_vf a = hri_vset(-FLT_MAX), b = a;
  int64_t i = begin;
  for (; i + 2 * HRI_LANES <= end; i += 2 * HRI_LANES) {
    a = hri_vmax(hri_vload_real(x, i, real), a); /* a NaN does not win: it shows in the sum */
    b = hri_vmax(hri_vload_real(x, i + HRI_LANES, real), b);
  }
  for (; i < end; i += HRI_LANES) {
    int64_t left = end - i < HRI_LANES ? end - i : HRI_LANES;
    a = hri_vmax(hri_vkeep_n(hri_vload_real_n(x, i, left, real), left, -FLT_MAX), a);
  }
  return hri_vmax_fold(hri_vmax(a, b));
}

/* c tanh(x / c) and its slope, when `on`, which is a constant; else x. */
typedef struct soft_cap {
  bool on;
  float c, inverse;
} soft_cap;

static HRI_INLINE hri_vf cap_logits(soft_cap cap, hri_vf x, hri_vf *slope) {
  return cap.on ? cap.c * hri_vtanh_slope(x * cap.inverse, slope) : x;
}

/* e[k] = exp(x - maximum) and slope[k], that of the soft-cap if it is on, of `count` vectors (a constant) from element
 * i on, each with n lanes. No x is above the maximum. */
static HRI_INLINE void exponentials(hri_vf *e, hri_vf *slope, const void *x, soft_cap cap, float maximum, int64_t i,
                                    int count, int64_t n, hri_real real) {
  for (int k = 0; k < count; k++) {
    hri_vf logit = cap_logits(cap, hri_vload_real_n(x, i + k * HRI_LANES, n, real), slope + k);
    e[k] = hri_vmax(hri_vset(HRI_EXP_LOWEST), logit - maximum);
  }
  hri_vexp_each(e, count);
}

/* Sum of exp(x - maximum) over x[begin, end). */
static HRI_INLINE double chunk_sum(const void *x, soft_cap cap, float maximum, int64_t begin, int64_t end,
                                   hri_real real) {
  hri_vf e[HRI_GROUP], slope[HRI_GROUP], a = {0}, b = {0};
  int64_t i = begin;
  for (; i + WIDE <= end; i += WIDE) {
    exponentials(e, slope, x, cap, maximum, i, HRI_GROUP, HRI_LANES, real);
    for (int k = 0; k < HRI_GROUP; k += 2) {
      a += e[k];
      b += e[k + 1];
    }
  }
  for (; i < end; i += HRI_LANES) {
    int64_t left = end - i < HRI_LANES ? end - i : HRI_LANES;
    exponentials(e, slope, x, cap, maximum, i, 1, left, real);
    a += hri_vkeep_n(e[0], left, 0.0f);
  }
  return (double)hri_vsum(a) + (double)hri_vsum(b);
}

/* Sum of the logits, soft-capped if the cap is on, over x[begin, end). */
static HRI_INLINE double chunk_logits(const void *x, soft_cap cap, int64_t begin, int64_t end, hri_real real) {
  hri_vf slope, sum = {0};
  for (int64_t i = begin; i < end; i += HRI_LANES) {
    int64_t left = end - i < HRI_LANES ? end - i : HRI_LANES;
    sum += cap_logits(cap, hri_vload_real_n(x, i, left, real), &slope); /* the cap of a missing lane's 0 is 0 */
  }
  return (double)hri_vsum(sum);
}

static int64_t chunk_end(const chunk_sums *chunks, int64_t c, int64_t vocabulary) {
  return c + 1 < chunks->count ? (c + 1) * chunks->size : vocabulary;
}

/* log of the sum of exp over the row. */
static HRI_INLINE double log_sum_exp(chunk_sums *chunks, const void *x, soft_cap cap, int64_t vocabulary,
                                     hri_real real) {
  hri_vf slope;
  double maximum = -DBL_MAX, sum = 0.0;
  int64_t size = (vocabulary + MOST_CHUNKS - 1) / MOST_CHUNKS;
  chunks->size = size <= CHUNK ? CHUNK : (size + HRI_LANES - 1) / HRI_LANES * HRI_LANES;
  chunks->count = (vocabulary + chunks->size - 1) / chunks->size;
  for (int64_t c = 0; c < chunks->count; c++) {
    int64_t begin = c * chunks->size, end = chunk_end(chunks, c, vocabulary);
    float top = cap_logits(cap, hri_vset(chunk_maximum(x, begin, end, real)), &slope)[0];
    chunks->maximum[c] = top;
    chunks->sum[c] = chunk_sum(x, cap, top, begin, end, real);
    if ((double)top > maximum) maximum = (double)top;
  }
  for (int64_t c = 0; c < chunks->count; c++) sum += chunks->sum[c] * exp((double)chunks->maximum[c] - maximum);
  return maximum + log(sum);
}

/* d[begin, end) = exp(x - maximum) * factor - less, times the slope of the soft-cap; d may be x. Without smoothing
 * `less` is 0, which changes no bit: no exponential is negative. */
static HRI_INLINE void chunk_gradient(void *d, const void *x, soft_cap cap, float maximum, float factor, float less,
                                      int64_t begin, int64_t end, hri_real real) {
  hri_vf e[HRI_GROUP], slope[HRI_GROUP];
  int64_t i = begin;
  for (; i + WIDE <= end; i += WIDE) {
    exponentials(e, slope, x, cap, maximum, i, HRI_GROUP, HRI_LANES, real);
    for (int k = 0; k < HRI_GROUP; k++)
      hri_vstore_real(d, i + k * HRI_LANES, cap.on ? (e[k] * factor - less) * slope[k] : e[k] * factor - less, real);
  }
  for (; i < end; i += HRI_LANES) {
    int64_t left = end - i < HRI_LANES ? end - i : HRI_LANES;
    exponentials(e, slope, x, cap, maximum, i, 1, left, real);
    hri_vstore_real_n(d, i, cap.on ? (e[0] * factor - less) * slope[0] : e[0] * factor - less, left, real);
  }
}

static HRI_INLINE void zero_elements(void *x, int64_t begin, int64_t end, hri_real real) {
  memset(hri_real_at(x, begin, real), 0, (size_t)(end - begin) * hri_real_bytes(real));
}

/* How much of the row's loss is not that of its label: with smoothing s the loss is (1 - s) (lse - x[label]) +
 * s (lse - mean of x), the mean over the vocabulary. */
static HRI_INLINE double smoothed(double loss, const hri_cross_entropy_args *args, const chunk_sums *chunks,
                                  const void *x, soft_cap cap, double lse, hri_real real) {
  double sum = 0;
  for (int64_t c = 0; c < chunks->count; c++)
    sum += chunk_logits(x, cap, c * chunks->size, chunk_end(chunks, c, args->vocabulary), real);
  return (1 - args->smoothing) * loss + args->smoothing * (lse - sum / (double)args->vocabulary);
}

static HRI_INLINE void cross_entropy_row(const hri_cross_entropy_args *args, int64_t row, soft_cap cap, hri_real real) {
  int64_t vocabulary = args->vocabulary, label = args->labels[row], at = row * args->stored;
  const void *x = hri_real_from(args->logits, at, real);
  void *d = args->dlogits ? hri_real_at(args->dlogits, at, real) : 0;
  chunk_sums chunks;
  hri_vf own, slope = hri_vset(1.0f);                            /* the label's logit */
  double lse, loss, even = args->smoothing / (double)vocabulary; /* what each class has of the target */
  if (label < 0) {
    args->losses[row] = 0.0f;
    if (d) zero_elements(d, 0, args->stored, real);
    return;
  }
  lse = log_sum_exp(&chunks, x, cap, vocabulary, real);
  own = cap_logits(cap, hri_vset(hri_real_get(x, label, real)), &slope);
  loss = lse - (double)own[0];
  args->losses[row] = (float)(args->smoothing > 0 ? smoothed(loss, args, &chunks, x, cap, lse, real) : loss);
  if (!d) return;
  for (int64_t c = 0; c < chunks.count; c++) {
    float factor = (float)(args->gradient_scale * exp((double)chunks.maximum[c] - lse));
    chunk_gradient(d, x, cap, chunks.maximum[c], factor, (float)(args->gradient_scale * even), c * chunks.size,
                   chunk_end(&chunks, c, vocabulary), real);
  }
  hri_real_put(d, label, (float)(args->gradient_scale * (expm1(-loss) + (args->smoothing - even)) * (double)slope[0]),
               real);
  zero_elements(d, vocabulary, args->stored, real);
}

static void cross_entropy_rows(void *context, int64_t begin, int64_t end, int thread) {
  const hri_cross_entropy_args *args = context;
  const soft_cap none = {false, 0.0f, 0.0f}, cap = {true, (float)args->softcap, 1.0f / (float)args->softcap};
  (void)thread;
  for (int64_t row = begin; row < end; row++) {
    if (cap.c > 0) HRI_BY_REAL(args->real, cross_entropy_row(args, row, cap, REAL));
    else HRI_BY_REAL(args->real, cross_entropy_row(args, row, none, REAL));
  }
}

static void cross_entropy(const hri_cross_entropy_args *args) {
  hri_team_each(args->team, args->rows, hri_grain(args->vocabulary), cross_entropy_rows, (void *)args);
}

static double loss_sum(const float *losses, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += (double)losses[i];
  return sum;
}

void HRI_ISA_NAME(hri_loss_kernels)(hri_cpu_kernels *table) {
  table->cross_entropy = cross_entropy;
  table->loss_sum = loss_sum;
}
