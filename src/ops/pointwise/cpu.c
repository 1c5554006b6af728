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

static void add(float *y, const float *a, const float *b, int64_t n, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t i = block * BLOCK, end = block_end(i, n);
    for (; i + HRI_LANES <= end; i += HRI_LANES)
      hri_vstore(y + i, hri_vload(a + i) + hri_vload(b + i));
    if (i < end) hri_vstore_n(y + i, hri_vload_n(a + i, end - i) + hri_vload_n(b + i, end - i), end - i);
  }
}

static void scale(float *y, const float *x, float factor, int64_t n, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t i = block * BLOCK, end = block_end(i, n);
    for (; i + HRI_LANES <= end; i += HRI_LANES)
      hri_vstore(y + i, hri_vload(x + i) * factor);
    if (i < end) hri_vstore_n(y + i, hri_vload_n(x + i, end - i) * factor, end - i);
  }
}

/* sum[n] += x */
static void add_to(float *sum, const float *x, int64_t n) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    hri_vstore(sum + i, hri_vload(sum + i) + hri_vload(x + i));
  if (i < n) hri_vstore_n(sum + i, hri_vload_n(sum + i, n - i) + hri_vload_n(x + i, n - i), n - i);
}

static void bias_gradient(float *db, const float *dy, int64_t rows, int64_t columns, bool accumulate, float *scratch,
                          int threads) {
  int64_t size = hri_row_block(rows), blocks = hri_row_block_count(rows);
#pragma omp parallel for num_threads(hri_team(threads, rows *columns)) schedule(static)
  for (int64_t block = 0; block < blocks; block++) {
    int64_t begin = block * size, count = rows - begin < size ? rows - begin : size;
    float *sum = scratch + block * columns;
    memset(sum, 0, (size_t)columns * sizeof *sum);
    for (int64_t row = begin; row < begin + count; row++)
      add_to(sum, dy + row * columns, columns);
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

#define GELU_SCALE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.044715f

static inline hri_vf clamp_exponent(hri_vf z) { return hri_vmin(hri_vset(80.0f), hri_vmax(hri_vset(-80.0f), z)); }

/* z with act(x) = x * sigmoid(z). */
static inline __attribute__((always_inline)) hri_vf act_exponent(hr_activation kind, hri_vf x) {
  return kind == HR_ACTIVATION_SILU ? x : GELU_SCALE * (x + GELU_CUBIC * (x * x * x));
}
static inline __attribute__((always_inline)) hri_vf act_exponent_slope(hr_activation kind, hri_vf x) {
  return kind == HR_ACTIVATION_SILU ? hri_vset(1.0f) : GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * (x * x));
}

static inline __attribute__((always_inline)) hri_vf act(hr_activation kind, hri_vf x) {
  return x / (1.0f + hri_vexp(-act_exponent(kind, x)));
}

/* act(x) and act'(x) from one exponential. */
typedef struct value_slope {
  hri_vf value, slope;
} value_slope;

static inline __attribute__((always_inline)) value_slope act_slope(hr_activation kind, hri_vf x) {
  hri_vf e = hri_vexp(-clamp_exponent(act_exponent(kind, x)));
  hri_vf s = 1.0f / (1.0f + e), value = x * s;
  return (value_slope){value, s + value * act_exponent_slope(kind, x) * (e * s)};
}

static inline __attribute__((always_inline)) void act_range(hr_activation kind, float *y, const float *x, int64_t n) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    hri_vstore(y + i, act(kind, hri_vload(x + i)));
  if (i < n) hri_vstore_n(y + i, act(kind, hri_vload_n(x + i, n - i)), n - i);
}

static inline __attribute__((always_inline)) void act_backward_range(hr_activation kind, float *dx, const float *dy,
                                                                     const float *x, int64_t n) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    hri_vstore(dx + i, hri_vload(dy + i) * act_slope(kind, hri_vload(x + i)).slope);
  if (i < n) hri_vstore_n(dx + i, hri_vload_n(dy + i, n - i) * act_slope(kind, hri_vload_n(x + i, n - i)).slope, n - i);
}

static void activation(hr_activation kind, float *y, const float *x, int64_t n, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t begin = block * BLOCK, count = block_end(begin, n) - begin;
    if (kind == HR_ACTIVATION_SILU)
      act_range(HR_ACTIVATION_SILU, y + begin, x + begin, count);
    else
      act_range(HR_ACTIVATION_GELU_TANH, y + begin, x + begin, count);
  }
}

static void activation_backward(hr_activation kind, float *dx, const float *dy, const float *x, int64_t n,
                                int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t begin = block * BLOCK, count = block_end(begin, n) - begin;
    if (kind == HR_ACTIVATION_SILU)
      act_backward_range(HR_ACTIVATION_SILU, dx + begin, dy + begin, x + begin, count);
    else
      act_backward_range(HR_ACTIVATION_GELU_TANH, dx + begin, dy + begin, x + begin, count);
  }
}

/* ---- gated units ---- */

static inline __attribute__((always_inline)) void glu_row(hr_activation kind, float *y, const float *gate,
                                                          const float *up, int64_t width) {
  int64_t i = 0;
  for (; i + HRI_LANES <= width; i += HRI_LANES)
    hri_vstore(y + i, act(kind, hri_vload(gate + i)) * hri_vload(up + i));
  if (i < width)
    hri_vstore_n(y + i, act(kind, hri_vload_n(gate + i, width - i)) * hri_vload_n(up + i, width - i), width - i);
}

static inline __attribute__((always_inline)) void glu_backward_part(hr_activation kind, float *dgate, float *dup,
                                                                    const float *dy, const float *gate, const float *up,
                                                                    int64_t n) {
  hri_vf g = hri_vload_n(dy, n), u = hri_vload_n(up, n);
  value_slope a = act_slope(kind, hri_vload_n(gate, n));
  hri_vstore_n(dgate, g * u * a.slope, n);
  hri_vstore_n(dup, g * a.value, n);
}

static inline __attribute__((always_inline)) void glu_backward_row(hr_activation kind, float *dgu, const float *dy,
                                                                   const float *gu, int64_t width) {
  int64_t i = 0;
  for (; i + HRI_LANES <= width; i += HRI_LANES)
    glu_backward_part(kind, dgu + i, dgu + width + i, dy + i, gu + i, gu + width + i, HRI_LANES);
  if (i < width) glu_backward_part(kind, dgu + i, dgu + width + i, dy + i, gu + i, gu + width + i, width - i);
}

static void glu(hr_activation kind, float *y, const float *gu, int64_t rows, int64_t width, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, rows *width)) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const float *gate = gu + row * 2 * width, *up = gate + width;
    if (kind == HR_ACTIVATION_SILU)
      glu_row(HR_ACTIVATION_SILU, y + row * width, gate, up, width);
    else
      glu_row(HR_ACTIVATION_GELU_TANH, y + row * width, gate, up, width);
  }
}

static void glu_backward(hr_activation kind, float *dgu, const float *dy, const float *gu, int64_t rows, int64_t width,
                         int threads) {
#pragma omp parallel for num_threads(hri_team(threads, rows *width)) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    int64_t at = row * 2 * width;
    if (kind == HR_ACTIVATION_SILU)
      glu_backward_row(HR_ACTIVATION_SILU, dgu + at, dy + row * width, gu + at, width);
    else
      glu_backward_row(HR_ACTIVATION_GELU_TANH, dgu + at, dy + row * width, gu + at, width);
  }
}

/* ---- rotary embedding ---- */

/* Pairs [i, i + n) of one head: (a, b) -> (a cos - b sin, b cos + a sin). */
static inline void turn_part(float *y, const float *x, const float *cosines, const float *sines, float sign,
                             int64_t half, int64_t i, int64_t n) {
  hri_vf a = hri_vload_n(x + i, n), b = hri_vload_n(x + half + i, n);
  hri_vf c = hri_vload_n(cosines + i, n), s = hri_vload_n(sines + i, n) * sign;
  hri_vstore_n(y + i, a * c - b * s, n);
  hri_vstore_n(y + half + i, b * c + a * s, n);
}

static void rope_row(const hri_rope_args *args, int64_t row) {
  int64_t half = args->head_size / 2, turned = args->heads + args->kv_heads;
  int64_t width = (turned + args->kv_heads) * args->head_size;
  const float *x = args->x + row * width, *cosines = args->cosines + args->position[row] * half;
  const float *sines = args->sines + args->position[row] * half;
  float *y = args->y + row * width, sign = args->inverse ? -1.0f : 1.0f;
  for (int64_t head = 0; head < turned; head++) {
    int64_t at = head * args->head_size, i = 0;
    for (; i + HRI_LANES <= half; i += HRI_LANES)
      turn_part(y + at, x + at, cosines, sines, sign, half, i, HRI_LANES);
    if (i < half) turn_part(y + at, x + at, cosines, sines, sign, half, i, half - i);
  }
  if (y != x)
    memcpy(y + turned * args->head_size, x + turned * args->head_size,
           (size_t)(args->kv_heads * args->head_size) * sizeof *y);
}

static void rope(const hri_rope_args *args) {
  int64_t rows = args->rows, width = (args->heads + 2 * args->kv_heads) * args->head_size;
#pragma omp parallel for num_threads(hri_team(args->threads, rows *width)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    rope_row(args, row);
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
