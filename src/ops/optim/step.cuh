/* What the kernels of optimizer steps share: guards, the numbers of a step out of the control block, random bits of
 * roundings. Types are known when a kernel runs: a step is bound by memory, and each combination would be a kernel. */
#ifndef HRI_OPS_OPTIM_STEP_CUH
#define HRI_OPS_OPTIM_STEP_CUH

#include "ops/cuda.h"
#include "ops/elements.cuh"
#include "ops/optim/rounding.h"

/* Whether the guard says that this step is left out; the same in all threads. */
__device__ __forceinline__ bool hri_guarded(const double *at) {
  hri_global<const double> guard(at, 1);
  return at && guard[0] != 0;
}

__device__ __forceinline__ hri_control hri_control_of(const hri_control *at) {
  hri_global<const hri_control> control(at, 1);
  return control[0];
}

__device__ __forceinline__ float hri_gradient_scale(const hri_control &c) {
  return (float)(c.clip_scale / c.loss_scale);
}

__device__ __forceinline__ hri_any hri_weights(const hri_update_args &a) { return {a.w, a.w_real, a.n}; }
/* Of two bytes each. */
__device__ __forceinline__ hri_any hri_low_halves(const hri_update_args &a) { return {a.low, HRI_REAL_BF16, a.n}; }
/* Whether new weights are rounded at random. */
__device__ __forceinline__ bool hri_draws_weights(const hri_update_args &a) {
  return a.w_real == HRI_REAL_BF16 && !a.low;
}
__device__ __forceinline__ void hri_get_weights(float *v, const hri_update_args &a, int64_t i, int count) {
  hri_bf16_t high[HRI_SOME];
  uint16_t low[HRI_SOME];
  if (!a.low) {
    hri_get_some(v, hri_weights(a), i, count);
    return;
  }
  hri_get_raw<hri_bf16_t>(high, hri_weights(a), i, count);
  hri_get_raw<uint16_t>(low, hri_low_halves(a), i, count);
  for (int k = 0; k < count; k++) v[k] = hri_join(high[k].bits, low[k]);
}
__device__ __forceinline__ float hri_get_weight(const hri_update_args &a, int64_t i) {
  float v[HRI_SOME];
  hri_get_weights(v, a, i, 1);
  return v[0];
}
__device__ __forceinline__ hri_any hri_gradients(const hri_update_args &a) {
  return {const_cast<void *>(a.g), a.gradient_real, a.n}; /* read alone */
}

/* The 16 random bits of each of HRI_SOME elements from logical element `at` on, as hri_rounding_bits has them for
 * weights: four elements side by side share one block of Philox. */
__device__ __forceinline__ void hri_draw_bits(uint32_t *bits, const hri_control &c, uint32_t site, int64_t at) {
  hri_rounding r = {c.seed, (uint64_t)c.applied_steps, site};
  uint32_t word[4];
  if (at % HRI_SOME != 0) {
    for (int k = 0; k < HRI_SOME; k++) bits[k] = hri_rounding_bits(&r, HRI_ROUNDED_WEIGHT, at + k);
    return;
  }
  int64_t block = at / HRI_ROUNDING_CHUNK * HRI_ROUNDING_CHUNK_BLOCKS + at % 32 / 4;
  hri_philox(r.seed ^ HRI_ROUNDING_KEY, hri_rounding_high(&r), (uint64_t)block, word);
  for (int k = 0; k < HRI_SOME; k++) bits[k] = word[at / 32 % 2 * 2 + k / 2] >> (k % 2 * 16) & 0xFFFFu;
}

/* bf16 by random bits, fp32 as it is. */
__device__ __forceinline__ void hri_put_state(const hri_any &y, int64_t i, int count, const float *v, hri_rounded array,
                                              const uint32_t *bits) {
  hri_bf16_t narrow[HRI_SOME] = {};
  if (y.real == HRI_REAL_F32) {
    hri_put_typed<float>(y, i, count, v);
    return;
  }
  for (int k = 0; k < count; k++)
    narrow[k] = hri_bf16_t{hri_bf16_round_random(v[k], hri_rounding_arrange(bits[k], array))};
  hri_put_typed<hri_bf16_t>(y, i, count, narrow);
}

/* New weights, in halves where they are, and their copy. */
__device__ __forceinline__ void hri_put_weights(const hri_update_args &a, int64_t i, int count, const float *v,
                                                const uint32_t *bits) {
  hri_any copy = {a.copy, HRI_REAL_F16, a.n};
  if (a.low) {
    hri_bf16_t high[HRI_SOME] = {};
    uint16_t low[HRI_SOME] = {};
    for (int k = 0; k < count; k++) high[k] = hri_bf16_t{hri_split(v[k], &low[k])};
    hri_put_typed<hri_bf16_t>(hri_weights(a), i, count, high);
    hri_put_typed<uint16_t>(hri_low_halves(a), i, count, low);
    return;
  }
  hri_put_state(hri_weights(a), i, count, v, HRI_ROUNDED_WEIGHT, bits);
  if (copy) hri_put_some(copy, i, count, v);
}

/* The files of a step that is not element by element. */
int hri_cuda_update_blocks(bool lion, const hri_cuda_update_args *args, void *stream);
int hri_cuda_update_factored(const hri_cuda_update_args *args, void *stream);

#endif
