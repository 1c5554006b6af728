#include "ops/pointwise/ref.h"

#include <tgmath.h>

#include "ops/reference.h"

HRI_REF_API void HRI_REF(add)(HRI_REAL *y, const HRI_REAL *a, const HRI_REAL *b, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

HRI_REF_API void HRI_REF(scale)(HRI_REAL *y, const HRI_REAL *x, HRI_REAL factor, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
}

HRI_REF_API void HRI_REF(dropout)(HRI_REAL *y, const HRI_REAL *x, double probability, const hri_draw *draw,
                                  int64_t sequence, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t c = 0; c < columns; c++) {
      uint32_t word = hri_draw_word(draw, (uint32_t)(m / sequence), (uint32_t)(m % sequence), 0, (uint32_t)c);
      bool goes = word < hri_drop_threshold(probability);
      y[m * columns + c] = goes ? 0 * x[m * columns + c] : x[m * columns + c] / (HRI_REAL)(1 - probability);
    }
}

HRI_REF_API void HRI_REF(noise)(HRI_REAL *y, const HRI_REAL *x, HRI_REAL amplitude, const hri_draw *draw,
                                int64_t sequence, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t c = 0; c < columns; c++) {
      uint32_t word = hri_draw_word(draw, (uint32_t)(m / sequence), (uint32_t)(m % sequence), 0, (uint32_t)c);
      y[m * columns + c] = x[m * columns + c] + amplitude * (HRI_REAL)hri_draw_signed(word);
    }
}

HRI_REF_API void HRI_REF(bias_gradient)(HRI_REAL *db, const HRI_REAL *dy, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t c = 0; c < columns; c++) db[c] += dy[m * columns + c];
}

/* act(x) and act'(x). Two are x * sigmoid(z): silu by definition, gelu by tanh as (1 + tanh(z/2)) / 2 = sigmoid(z),
 * because the sum on the left is 0 in double where the value is still 1e-30. */
static HRI_REAL HRI_REF(act_sigmoid)(hr_activation kind, HRI_REAL x, HRI_REAL *z_slope) {
  const HRI_REAL k = 2 * (HRI_REAL)0.79788456080286535588, cubic = (HRI_REAL)0.044715; /* 2 sqrt(2/pi) */
  HRI_REAL z = kind == HR_ACTIVATION_SILU ? x : k * (x + cubic * x * x * x);
  *z_slope = kind == HR_ACTIVATION_SILU ? 1 : k * (1 + 3 * cubic * x * x);
  return 1 / (1 + exp(-z));
}

/* The normal distribution function. */
static HRI_REAL HRI_REF(normal_below)(HRI_REAL x) { return erfc(-x * (HRI_REAL)0.70710678118654752440) / 2; }

static HRI_REAL HRI_REF(act_value)(hr_activation kind, HRI_REAL x) {
  HRI_REAL z_slope;
  if (kind == HR_ACTIVATION_RELU) return x <= 0 ? 0 : x; /* NaN stays */
  if (kind == HR_ACTIVATION_GELU) return x * HRI_REF(normal_below)(x);
  return x * HRI_REF(act_sigmoid)(kind, x, &z_slope);
}

static HRI_REAL HRI_REF(act_slope)(hr_activation kind, HRI_REAL x) {
  const HRI_REAL density = (HRI_REAL)0.39894228040143267794; /* of the normal distribution at 0 */
  HRI_REAL z_slope, s;
  if (kind == HR_ACTIVATION_RELU) return x <= 0 ? 0 : x > 0 ? 1 : x;
  if (kind == HR_ACTIVATION_GELU) return HRI_REF(normal_below)(x) + x * density * exp(-x * x / 2);
  s = HRI_REF(act_sigmoid)(kind, x, &z_slope);
  return s + x * s * (1 - s) * z_slope;
}

HRI_REF_API void HRI_REF(activation)(hr_activation kind, HRI_REAL *y, const HRI_REAL *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = HRI_REF(act_value)(kind, x[i]);
}

HRI_REF_API void HRI_REF(activation_backward)(hr_activation kind, HRI_REAL *dx, const HRI_REAL *dy, const HRI_REAL *x,
                                              int64_t n) {
  for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * HRI_REF(act_slope)(kind, x[i]);
}

HRI_REF_API void HRI_REF(glu)(hr_activation kind, HRI_REAL *y, const HRI_REAL *gu, int64_t rows, int64_t width) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t f = 0; f < width; f++)
      y[m * width + f] = HRI_REF(act_value)(kind, gu[m * 2 * width + f]) * gu[m * 2 * width + width + f];
}

HRI_REF_API void HRI_REF(glu_backward)(hr_activation kind, HRI_REAL *dgu, const HRI_REAL *dy, const HRI_REAL *gu,
                                       int64_t rows, int64_t width) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t f = 0; f < width; f++) {
      HRI_REAL gate = gu[m * 2 * width + f], up = gu[m * 2 * width + width + f], g = dy[m * width + f];
      dgu[m * 2 * width + f] = g * up * HRI_REF(act_slope)(kind, gate);
      dgu[m * 2 * width + width + f] = g * HRI_REF(act_value)(kind, gate);
    }
}

HRI_REF_API void HRI_REF(softcap)(HRI_REAL *y, const HRI_REAL *x, HRI_REAL cap, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = cap * tanh(x[i] / cap);
}

HRI_REF_API void HRI_REF(rope)(HRI_REAL *y, const HRI_REAL *x, const HRI_REAL *cosines, const HRI_REAL *sines,
                               const int32_t *position, int64_t rows, int64_t heads, int64_t kv_heads,
                               int64_t head_size, int64_t rotary_size, bool inverse) {
  int64_t half = rotary_size / 2, width = (heads + 2 * kv_heads) * head_size;
  for (int64_t m = 0; m < rows; m++)
    for (int64_t j = 0; j < width; j++) {
      int64_t i = j % head_size, pair = i % half, at = m * width + j;
      HRI_REAL c = cosines[position[m] * half + pair], s = sines[position[m] * half + pair];
      if (inverse) s = -s;
      if (j >= (heads + kv_heads) * head_size || i >= rotary_size) y[at] = x[at];
      else if (i < half) y[at] = x[at] * c - x[at + half] * s;
      else y[at] = x[at] * c + x[at - half] * s;
    }
}
