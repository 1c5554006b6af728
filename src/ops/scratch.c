#include "ops/scratch.h"

#include <math.h>

#include "base/mem.h"

/* `count` partial rows of `columns` floats per block of rows. */
static uint64_t partial_bytes(int64_t rows, int64_t columns, uint64_t count) {
  uint64_t bytes;
  if (!hri_mul((uint64_t)hri_row_block_count(rows), (uint64_t)columns, &bytes) ||
      !hri_mul(bytes, count * sizeof(float), &bytes))
    return UINT64_MAX;
  return bytes;
}

uint64_t hri_norm_backward_scratch_bytes(int64_t rows, int64_t columns, bool with_dweight, bool with_dbias,
                                         int threads) {
  (void)threads;
  return partial_bytes(rows, columns, (uint64_t)with_dweight + (uint64_t)with_dbias);
}

/* Partials of both weights, wanted or not: they are small. */
uint64_t hri_head_norm_backward_scratch_bytes(int64_t rows, int64_t head_size, int64_t key_size, int threads) {
  (void)threads;
  return partial_bytes(rows, head_size + key_size, 1);
}

uint64_t hri_dora_scratch_bytes(int64_t rows, int64_t columns, bool backward, int threads) {
  uint64_t partials = backward ? partial_bytes(rows, columns, 1) : 0, factors = partial_bytes(1, columns, 1), sum;
  (void)threads;
  return partials != UINT64_MAX && factors != UINT64_MAX && !__builtin_add_overflow(partials, factors, &sum)
             ? sum
             : UINT64_MAX;
}

uint64_t hri_bias_gradient_scratch_bytes(int64_t rows, int64_t columns, int threads) {
  (void)threads;
  return partial_bytes(rows, columns, 1);
}

hri_adamw_factors hri_adamw_factors_make(double learning_rate, double beta1, double beta2, double epsilon,
                                         double weight_decay, int64_t t, double gradient_scale) {
  double bias1 = 1.0 - pow(beta1, (double)t), bias2 = 1.0 - pow(beta2, (double)t);
  hri_adamw_factors factors;
  factors.decay = (float)(1.0 - learning_rate * weight_decay);
  factors.one_minus_beta1 = (float)(1.0 - beta1);
  factors.beta2 = (float)beta2;
  factors.one_minus_beta2 = (float)(1.0 - beta2);
  factors.inv_sqrt_bias2 = (float)(1.0 / sqrt(bias2));
  factors.step_size = (float)(learning_rate / bias1);
  factors.epsilon = (float)epsilon;
  factors.gradient_scale = (float)gradient_scale;
  return factors;
}
