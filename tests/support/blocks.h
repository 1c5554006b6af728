/* A readable reference of optimizer steps with 8-bit states, element by element in fp32, every product and sum rounded by
 * itself: the rule of bitsandbytes' CUDA kernels (kOptimizerStatic8bit2StateBlockwise and ...1State..., quantize_2D)
 * with the one stated difference, that AdamW decays before its step. It shares nothing with ops/optim but the two maps,
 * which are compared with recorded ones.
 *
 * `as_cpu`: what the CPU path of bitsandbytes 0.50 does instead. Sums of a step are fused multiply-adds, 1 - beta is a
 * difference of doubles, x is value times the reciprocal of the scale, and a code is looked up in a table of 65,536
 * points of [-1, 1] with the nearest value to each: no rule of signs, no ties, and small values of a block are lost.
 * Include after cmocka.h. */
#ifndef HRI_TESTS_BLOCKS_H
#define HRI_TESTS_BLOCKS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "ops/optim/dynamic.h"

typedef struct block_rule {
  bool lion, as_cpu;
  double beta1, beta2, epsilon, learning_rate, weight_decay, gradient_scale;
} block_rule;

/* Rounded to fp32 here, whatever the compiler would contract. */
static inline float rounded_product(float a, float b) {
  volatile float product = a * b;
  return product;
}

/* quantize_2D: seven halvings of the step from index 127 on, then the nearer of the two neighbours; a tie stays. */
static inline unsigned block_search(const float *map, bool is_signed, float x) {
  int pivot = 127, upper_pivot = 255, lower_pivot = 0;
  float lower = is_signed ? -1.0f : 0.0f, upper = 1.0f, value = map[pivot];
  for (int i = 64; i > 0; i >>= 1) {
    if (x > value) {
      lower_pivot = pivot;
      lower = value;
      pivot += i;
    } else {
      upper_pivot = pivot;
      upper = value;
      pivot -= i;
    }
    value = map[pivot];
  }
  if (x > value) return (unsigned)(x > (upper + value) * 0.5f ? upper_pivot : pivot);
  return (unsigned)(x < (lower + value) * 0.5f ? lower_pivot : pivot);
}

/* The first state keeps its sign: else the code moves by one, in a byte. */
static inline unsigned block_keep_sign(const float *map, unsigned code, float value) {
  if ((signbit(map[code]) != 0) == (signbit(value) != 0)) return code;
  return (value > 0 ? code + 1 : code - 1) & 0xFF;
}

static inline unsigned block_search_cpu(const float *map, float x) {
  float point = floorf(rounded_product(x + 1.0f, 32767.5f) + 0.5f), middle;
  unsigned best = 0;
  assert_true(point >= 0 && point <= 65535);
  middle = point / 32767.5f - 1.0f;
  for (unsigned code = 1; code < 256; code++)
    if (fabsf(map[code] - middle) < fabsf(map[best] - middle)) best = code;
  return best;
}

static inline void block_encode(const block_rule *r, const float *map, bool is_signed, const float *values, int64_t n,
                                uint8_t *codes, float *scale) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(values[i]));
  *scale = most;
  for (int64_t i = 0; i < n; i++) {
    unsigned code;
    if (r->as_cpu) {
      code = most > 0 ? block_search_cpu(map, rounded_product(values[i], 1.0f / most)) : 0;
    } else {
      code = block_search(map, is_signed, values[i] / most);
      if (is_signed) code = block_keep_sign(map, code, values[i]);
    }
    codes[i] = (uint8_t)code;
  }
}

/* a * x + b * y. */
static inline float block_sum(const block_rule *r, float a, float x, float b, float y) {
  return r->as_cpu ? fmaf(b, y, rounded_product(a, x)) : rounded_product(a, x) + rounded_product(b, y);
}

/* One block; of Lion second and second_scale are not looked at. Weights move in double, as the papers say. */
static inline void block_reference(const block_rule *r, int64_t t, const float *g, int64_t n, double *w, uint8_t *first,
                                   uint8_t *second, float *first_scale, float *second_scale) {
  const hri_dynamic_maps *maps = hri_dynamic_maps_get();
  float beta1 = (float)r->beta1, beta2 = (float)r->beta2, m[HRI_STATE_BLOCK], v[HRI_STATE_BLOCK];
  float other1 = r->as_cpu ? (float)(1 - r->beta1) : 1 - beta1, other2 = r->as_cpu ? (float)(1 - r->beta2) : 1 - beta2;
  for (int64_t i = 0; i < n; i++) {
    float grad = rounded_product(g[i], (float)r->gradient_scale);
    m[i] = rounded_product(maps->signed_map[first[i]], *first_scale);
    v[i] = r->lion ? 0 : rounded_product(maps->unsigned_map[second[i]], *second_scale);
    if (!isfinite(g[i])) { /* forgotten, and the weight is left alone */
      m[i] = v[i] = 0;
      continue;
    }
    w[i] *= 1 - r->learning_rate * r->weight_decay;
    if (r->lion) {
      float smooth = block_sum(r, beta1, m[i], other1, grad);
      w[i] -= smooth > 0 ? r->learning_rate : smooth < 0 ? -r->learning_rate : 0;
      m[i] = block_sum(r, beta2, m[i], other2, grad);
    } else {
      m[i] = block_sum(r, beta1, m[i], other1, grad);
      v[i] = block_sum(r, beta2, v[i], rounded_product(other2, grad), grad);
      w[i] -= r->learning_rate * (double)m[i] / (1 - pow(r->beta1, (double)t)) /
              (sqrt((double)v[i] / (1 - pow(r->beta2, (double)t))) + r->epsilon);
    }
  }
  block_encode(r, maps->signed_map, true, m, n, first, first_scale);
  if (!r->lion) block_encode(r, maps->unsigned_map, false, v, n, second, second_scale);
}

/* All blocks of n elements. */
static inline void blocks_reference(const block_rule *r, int64_t t, const float *g, int64_t n, double *w,
                                    uint8_t *first, uint8_t *second, float *first_scales, float *second_scales) {
  for (int64_t i = 0; i < n; i += HRI_STATE_BLOCK)
    block_reference(r, t, g + i, n - i < HRI_STATE_BLOCK ? n - i : HRI_STATE_BLOCK, w + i, first + i, second + i,
                    first_scales + i / HRI_STATE_BLOCK, second_scales + i / HRI_STATE_BLOCK);
}

#endif
