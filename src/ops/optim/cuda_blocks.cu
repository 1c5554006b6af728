/* Optimizer steps whose states are codes of 8 bits with a scale for each HRI_STATE_BLOCK elements (dynamic.h): a block of
 * threads has a block of states, a thread an element. New states are products and sums that are rounded one by one, and codes
 * are searched for, so that states are the CPU's to the bit; weights agree within rounding. */
#include "ops/optim/step.cuh"

extern "C" {
#include "ops/optim/dynamic.h"
}

struct block_maps {
  float value[2][256]; /* signed, unsigned: an argument of the kernel */
};

struct block_factors {
  float decay, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float step, epsilon; /* AdamW: the corrections of both averages are in them; Lion: step is the learning rate */
  float gradient_scale;
};

/* 1 - beta is a difference of floats, as in the kernels of bitsandbytes. */
__device__ __forceinline__ block_factors block_factors_of(const hri_cuda_update_args &a, const hri_control &c,
                                                          bool lion) {
  float beta1 = (float)a.number[0], beta2 = (float)a.number[1];
  double bias1 = 1.0 - pow(a.number[0], (double)c.applied_steps);
  double root2 = sqrt(1.0 - pow(a.number[1], (double)c.applied_steps));
  double step = lion ? c.learning_rate : c.learning_rate * root2 / bias1;
  return {(float)(1.0 - c.learning_rate * a.weight_decay),
          beta1,
          beta2,
          1.0f - beta1,
          1.0f - beta2,
          (float)step,
          (float)(a.number[2] * root2),
          hri_gradient_scale(c)};
}

__device__ __forceinline__ float middle_of(const hri_shared<float> &map, int code) {
  return ((float)map[code] + (float)map[code + 1]) * 0.5f;
}

/* The nearest; ties to even indices; NaN: 0. */
__device__ __forceinline__ int nearest(const hri_shared<float> &map, float x) {
  int below = 0;
  for (int half = 128; half > 0; half /= 2) below += middle_of(map, below + half - 1) < x ? half : 0;
  if (below < 255 && below % 2 == 1 && x == middle_of(map, below)) below++;
  return below;
}

/* A negative value stays negative; 0 / 0 goes to the end on its side. */
__device__ __forceinline__ int code_signed(const hri_shared<float> &map, float value, float scale) {
  float x = value / scale;
  bool negative = __float_as_uint(value) >> 31;
  if (x != x) return negative ? 0 : 255;
  int code = nearest(map, x);
  return negative && code == 127 ? 126 : code;
}

/* The new weight; states become new. */
template <bool lion>
__device__ __forceinline__ float block_step(const block_factors &f, float weight, float raw, float *first,
                                            float *second) {
  float g = hri_mul_alone(raw, f.gradient_scale);
  float m = hri_add_alone(hri_mul_alone(*first, f.beta1), hri_mul_alone(g, f.one_minus_beta1));
  if (lion) {
    *first = hri_add_alone(hri_mul_alone(*first, f.beta2), hri_mul_alone(g, f.one_minus_beta2));
    return weight * f.decay - (m > 0 ? f.step : m < 0 ? -f.step : 0);
  }
  *first = m;
  *second = hri_add_alone(hri_mul_alone(*second, f.beta2), hri_mul_alone(hri_mul_alone(g, f.one_minus_beta2), g));
  return weight * f.decay - f.step * (*first / (sqrtf(*second) + f.epsilon));
}

template <bool lion> __global__ void blocks_kernel(hri_cuda_update_args a, block_maps maps) {
  HRI_SHARED(float, signed_map, 256);
  HRI_SHARED(float, unsigned_map, 256);
  HRI_SHARED(float, partial, HRI_WARP);
  HRI_SHARED(block_factors, shared, 1);
  int64_t n = a.u.n, i = hri_thread_index(), blocks = (n + HRI_STATE_BLOCK - 1) / HRI_STATE_BLOCK;
  bool there = i < n;
  hri_global<uint8_t> codes(static_cast<uint8_t *>(a.u.state[0]), n);
  hri_global<uint8_t> second_codes(static_cast<uint8_t *>(lion ? nullptr : a.u.state[1]), n);
  hri_global<float> scales(static_cast<float *>(a.u.state[lion ? 1 : 2]), blocks);
  hri_global<float> second_scales(static_cast<float *>(lion ? nullptr : a.u.state[3]), blocks);
  uint32_t bits[HRI_SOME] = {0, 0, 0, 0};
  float first = 0, second = 0, weight = 0;
  if (hri_guarded(a.guard)) return; /* all of them */
  hri_control c = hri_control_of(a.control);
  if (threadIdx.x == 0) shared[0] = block_factors_of(a, c, lion);
  signed_map[threadIdx.x] = maps.value[0][threadIdx.x];
  unsigned_map[threadIdx.x] = maps.value[1][threadIdx.x];
  __syncthreads();
  block_factors f = shared[0];
  if (there) {
    float old = hri_get_weight(a.u, i), raw = hri_get_one(hri_gradients(a.u), i);
    first = hri_mul_alone(signed_map[(uint8_t)codes[i]], scales[blockIdx.x]);
    if (!lion) second = hri_mul_alone(unsigned_map[(uint8_t)second_codes[i]], second_scales[blockIdx.x]);
    weight = block_step<lion>(f, old, raw, &first, &second);
    if (raw - raw != 0) first = second = 0, weight = old; /* no number: forgotten */
  }
  float most = hri_block_max(fabsf(first), partial), second_most = lion ? 0 : hri_block_max(second, partial);
  if (threadIdx.x == 0) scales[blockIdx.x] = most;
  if (threadIdx.x == 0 && !lion) second_scales[blockIdx.x] = second_most;
  if (!there) return;
  codes[i] = (uint8_t)code_signed(signed_map, first, most);
  if (!lion) second_codes[i] = (uint8_t)nearest(unsigned_map, second / second_most);
  if (hri_draws_weights(a.u)) {
    hri_rounding r = {c.seed, (uint64_t)c.applied_steps, a.u.rounding.site};
    bits[0] = hri_rounding_bits(&r, HRI_ROUNDED_WEIGHT, a.u.first_element + i);
  }
  hri_put_weights(a.u, i, 1, &weight, bits);
}

int hri_cuda_update_blocks(bool lion, const hri_cuda_update_args *args, void *stream) {
  const hri_dynamic_maps *all = hri_dynamic_maps_get();
  block_maps maps;
  unsigned blocks = hri_blocks(args->u.n, HRI_STATE_BLOCK);
  memcpy(maps.value[0], all->signed_map, sizeof maps.value[0]);
  memcpy(maps.value[1], all->unsigned_map, sizeof maps.value[1]);
  if (lion) return HRI_LAUNCH(blocks_kernel<true>, blocks, HRI_STATE_BLOCK, 0, stream, *args, maps);
  return HRI_LAUNCH(blocks_kernel<false>, blocks, HRI_STATE_BLOCK, 0, stream, *args, maps);
}
