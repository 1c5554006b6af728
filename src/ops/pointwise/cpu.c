/* Element-wise kernels, bias gradients, activations, gated units and rotary embedding.
 *
 * Activations as x * sigmoid(z): gelu_tanh(x) = x/2 (1 + tanh u) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3);
 * silu(x) = x * sigmoid(x). One exp and one division, and no cancellation for negative x, where 1 + tanh(u) cancels.
 * Derivative: act' = s + x z' s (1 - s), where 1 - s = e^-z s. z is clamped to +-80, so that e^-z stays finite. */
#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum { BLOCK = 8192 }; /* elements per task of flat kernels; a multiple of every lane count */

static inline int64_t block_count(int64_t n) { return (n + BLOCK - 1) / BLOCK; }
static inline int64_t block_end(int64_t begin, int64_t n) { return begin + BLOCK < n ? begin + BLOCK : n; }

/* ---- add, scale, bias gradient ---- */

static HRI_INLINE void add_part(void *y, const void *a, const void *b, int64_t i, int64_t n, hri_real real) {
  hri_vstore_real_n(y, i, hri_vload_real_n(a, i, n, real) + hri_vload_real_n(b, i, n, real), n, real);
}

static HRI_INLINE void add_range(void *y, const void *a, const void *b, int64_t i, int64_t end, hri_real real) {
  for (; i + HRI_LANES <= end; i += HRI_LANES)
    add_part(y, a, b, i, HRI_LANES, real);
  if (i < end) add_part(y, a, b, i, end - i, real);
}

static void add(void *y, const void *a, const void *b, int64_t n, hri_real real, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++)
    HRI_BY_REAL(real, add_range(y, a, b, block * BLOCK, block_end(block * BLOCK, n), REAL));
}

static HRI_INLINE void scale_range(void *y, const void *x, float factor, int64_t i, int64_t end, hri_real real) {
  for (; i + HRI_LANES <= end; i += HRI_LANES)
    hri_vstore_real(y, i, hri_vload_real(x, i, real) * factor, real);
  if (i < end) hri_vstore_real_n(y, i, hri_vload_real_n(x, i, end - i, real) * factor, end - i, real);
}

static void scale(void *y, const void *x, float factor, int64_t n, hri_real real, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++)
    HRI_BY_REAL(real, scale_range(y, x, factor, block * BLOCK, block_end(block * BLOCK, n), REAL));
}

/* sum[columns] = the sum of rows [begin, end) of dy, in row order. */
static HRI_INLINE void sum_rows(float *sum, const void *dy, int64_t begin, int64_t end, int64_t columns,
                                hri_real real) {
  memset(sum, 0, (size_t)columns * sizeof *sum);
  for (int64_t row = begin; row < end; row++) {
    int64_t at = row * columns, i = 0;
    for (; i + HRI_LANES <= columns; i += HRI_LANES)
      hri_vstore(sum + i, hri_vload(sum + i) + hri_vload_real(dy, at + i, real));
    if (i < columns)
      hri_vstore_n(sum + i, hri_vload_n(sum + i, columns - i) + hri_vload_real_n(dy, at + i, columns - i, real),
                   columns - i);
  }
}

static void bias_gradient(float *db, const void *dy, int64_t rows, int64_t columns, bool accumulate, float *scratch,
                          hri_real real, int threads) {
  int64_t size = hri_row_block(rows), blocks = hri_row_block_count(rows);
#pragma omp parallel for num_threads(hri_team(threads, rows *columns)) schedule(static)
  for (int64_t block = 0; block < blocks; block++) {
    int64_t begin = block * size, end = rows - begin < size ? rows : begin + size;
    HRI_BY_REAL(real, sum_rows(scratch + block * columns, dy, begin, end, columns, REAL));
  }
  for (int64_t j = 0; j < columns; j += HRI_LANES) {
    int64_t n = columns - j < HRI_LANES ? columns - j : HRI_LANES;
    hri_vf sum = {0};
    for (int64_t block = 0; block < blocks; block++)
      sum += hri_vload_n(scratch + block * columns + j, n);
    if (accumulate) sum += hri_vload_n(db + j, n);
    hri_vstore_n(db + j, sum, n);
  }
}

/* ---- activations ---- */

/* As HRI_BY_REAL, for the two activations: KIND is the constant. */
#define BY_KIND(kind, ...)                                                                                             \
  do {                                                                                                                 \
    if ((kind) == HR_ACTIVATION_SILU) {                                                                                \
      const hr_activation KIND = HR_ACTIVATION_SILU;                                                                    \
      __VA_ARGS__;                                                                                                     \
    } else {                                                                                                           \
      const hr_activation KIND = HR_ACTIVATION_GELU_TANH;                                                              \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
  } while (0)

#define GELU_SCALE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.044715f

static inline hri_vf clamp_exponent(hri_vf z) { return hri_vmin(hri_vset(80.0f), hri_vmax(hri_vset(-80.0f), z)); }

/* z with act(x) = x * sigmoid(z). */
static HRI_INLINE hri_vf act_exponent(hr_activation kind, hri_vf x) {
  return kind == HR_ACTIVATION_SILU ? x : GELU_SCALE * (x + GELU_CUBIC * (x * x * x));
}
static HRI_INLINE hri_vf act_exponent_slope(hr_activation kind, hri_vf x) {
  return kind == HR_ACTIVATION_SILU ? hri_vset(1.0f) : GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * (x * x));
}

static HRI_INLINE hri_vf act(hr_activation kind, hri_vf x) { return x / (1.0f + hri_vexp(-act_exponent(kind, x))); }

/* act(x) and act'(x) from one exponential. */
typedef struct value_slope {
  hri_vf value, slope;
} value_slope;

static HRI_INLINE value_slope act_slope(hr_activation kind, hri_vf x) {
  hri_vf e = hri_vexp(-clamp_exponent(act_exponent(kind, x)));
  hri_vf s = 1.0f / (1.0f + e), value = x * s;
  return (value_slope){value, s + value * act_exponent_slope(kind, x) * (e * s)};
}

static HRI_INLINE void act_range(hr_activation kind, void *y, const void *x, int64_t i, int64_t end, hri_real real) {
  for (; i + HRI_LANES <= end; i += HRI_LANES)
    hri_vstore_real(y, i, act(kind, hri_vload_real(x, i, real)), real);
  if (i < end) hri_vstore_real_n(y, i, act(kind, hri_vload_real_n(x, i, end - i, real)), end - i, real);
}

static void activation(hr_activation kind, void *y, const void *x, int64_t n, hri_real real, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t begin = block * BLOCK, end = block_end(begin, n);
    BY_KIND(kind, HRI_BY_REAL(real, act_range(KIND, y, x, begin, end, REAL)));
  }
}

static HRI_INLINE void act_backward_part(hr_activation kind, void *dx, const void *dy, const void *x, int64_t i,
                                         int64_t n, hri_real real) {
  hri_vf slope = act_slope(kind, hri_vload_real_n(x, i, n, real)).slope;
  hri_vstore_real_n(dx, i, hri_vload_real_n(dy, i, n, real) * slope, n, real);
}

static HRI_INLINE void act_backward_range(hr_activation kind, void *dx, const void *dy, const void *x, int64_t i,
                                          int64_t end, hri_real real) {
  for (; i + HRI_LANES <= end; i += HRI_LANES)
    act_backward_part(kind, dx, dy, x, i, HRI_LANES, real);
  if (i < end) act_backward_part(kind, dx, dy, x, i, end - i, real);
}

static void activation_backward(hr_activation kind, void *dx, const void *dy, const void *x, int64_t n, hri_real real,
                                int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t begin = block * BLOCK, end = block_end(begin, n);
    BY_KIND(kind, HRI_BY_REAL(real, act_backward_range(KIND, dx, dy, x, begin, end, REAL)));
  }
}

/* ---- gated units ---- */

/* n elements of row `row` from i on; the gate of a row stands before its `up`. */
static HRI_INLINE void glu_part(hr_activation kind, void *y, const void *gu, int64_t row, int64_t width, int64_t i,
                                int64_t n, hri_real real) {
  int64_t gate = row * 2 * width + i, up = gate + width;
  hri_vf value = act(kind, hri_vload_real_n(gu, gate, n, real));
  hri_vstore_real_n(y, row * width + i, value * hri_vload_real_n(gu, up, n, real), n, real);
}

static HRI_INLINE void glu_row(hr_activation kind, void *y, const void *gu, int64_t row, int64_t width,
                               hri_real real) {
  int64_t i = 0;
  for (; i + HRI_LANES <= width; i += HRI_LANES)
    glu_part(kind, y, gu, row, width, i, HRI_LANES, real);
  if (i < width) glu_part(kind, y, gu, row, width, i, width - i, real);
}

static HRI_INLINE void glu_backward_part(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t row,
                                         int64_t width, int64_t i, int64_t n, hri_real real) {
  int64_t gate = row * 2 * width + i, up = gate + width;
  hri_vf g = hri_vload_real_n(dy, row * width + i, n, real), u = hri_vload_real_n(gu, up, n, real);
  value_slope a = act_slope(kind, hri_vload_real_n(gu, gate, n, real));
  hri_vstore_real_n(dgu, gate, g * u * a.slope, n, real);
  hri_vstore_real_n(dgu, up, g * a.value, n, real);
}

static HRI_INLINE void glu_backward_row(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t row,
                                        int64_t width, hri_real real) {
  int64_t i = 0;
  for (; i + HRI_LANES <= width; i += HRI_LANES)
    glu_backward_part(kind, dgu, dy, gu, row, width, i, HRI_LANES, real);
  if (i < width) glu_backward_part(kind, dgu, dy, gu, row, width, i, width - i, real);
}

static void glu(hr_activation kind, void *y, const void *gu, int64_t rows, int64_t width, hri_real real, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, rows *width)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    BY_KIND(kind, HRI_BY_REAL(real, glu_row(KIND, y, gu, row, width, REAL)));
}

static void glu_backward(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t rows, int64_t width,
                         hri_real real, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, rows *width)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    BY_KIND(kind, HRI_BY_REAL(real, glu_backward_row(KIND, dgu, dy, gu, row, width, REAL)));
}

/* ---- rotary embedding ---- */

/* Pairs [i, i + n) of the head at element `at`: (a, b) -> (a cos - b sin, b cos + a sin). */
static HRI_INLINE void turn_part(void *y, const void *x, int64_t at, const float *cosines, const float *sines,
                                 float sign, int64_t half, int64_t i, int64_t n, hri_real real) {
  hri_vf a = hri_vload_real_n(x, at + i, n, real), b = hri_vload_real_n(x, at + half + i, n, real);
  hri_vf c = hri_vload_n(cosines + i, n), s = hri_vload_n(sines + i, n) * sign;
  hri_vstore_real_n(y, at + i, a * c - b * s, n, real);
  hri_vstore_real_n(y, at + half + i, b * c + a * s, n, real);
}

static HRI_INLINE void rope_row(const hri_rope_args *args, int64_t row, hri_real real) {
  int64_t size = args->head_size, half = size / 2, turned = (args->heads + args->kv_heads) * size;
  int64_t kept = args->kv_heads * size, begin = row * (turned + kept);
  const float *cosines = args->cosines + args->position[row] * half;
  const float *sines = args->sines + args->position[row] * half;
  const void *x = args->x;
  void *y = args->y;
  float sign = args->inverse ? -1.0f : 1.0f;
  for (int64_t at = begin; at < begin + turned; at += size) {
    int64_t i = 0;
    for (; i + HRI_LANES <= half; i += HRI_LANES)
      turn_part(y, x, at, cosines, sines, sign, half, i, HRI_LANES, real);
    if (i < half) turn_part(y, x, at, cosines, sines, sign, half, i, half - i, real);
  }
  if (y != x)
    memcpy(hri_real_at(y, begin + turned, real), hri_real_from(x, begin + turned, real),
           (size_t)kept * hri_real_bytes(real));
}

static void rope(const hri_rope_args *args) {
  int64_t rows = args->rows, width = (args->heads + 2 * args->kv_heads) * args->head_size;
#pragma omp parallel for num_threads(hri_team(args->threads, rows *width)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    HRI_BY_REAL(args->real, rope_row(args, row, REAL));
}

/* ---- vector math on arrays ---- */

static inline hri_vf math_apply(hri_math function, hri_vf x) {
  switch (function) {
  case HRI_MATH_EXP:
    return hri_vexp(x);
  case HRI_MATH_LOG:
    return hri_vlog(x);
  case HRI_MATH_TANH:
    return hri_vtanh(x);
  case HRI_MATH_SIGMOID:
    return hri_vsigmoid(x);
  case HRI_MATH_COUNT:
    break;
  }
  return x;
}

static void math(hri_math function, float *y, const float *x, int64_t n) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    hri_vstore(y + i, math_apply(function, hri_vload(x + i)));
  if (i < n) hri_vstore_n(y + i, math_apply(function, hri_vload_n(x + i, n - i)), n - i);
}

void HRI_ISA_NAME(hri_pointwise_kernels)(hri_cpu_kernels *table) {
  table->add = add;
  table->scale = scale;
  table->bias_gradient = bias_gradient;
  table->activation = activation;
  table->activation_backward = activation_backward;
  table->glu = glu;
  table->glu_backward = glu_backward;
  table->rope = rope;
  table->math = math;
}
