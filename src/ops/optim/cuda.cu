/* The gradient's norm and AdamW, in one pass over weights, moments, gradients and the copy of the weights.
 *
 * The factors of a step come from the control block on the device; one thread of each block makes them in double, as the
 * CPU does. Random bits for bf16 are the CPU's (rounding.h): four elements side by side share one block of Philox. */
#include "ops/cuda.h"
#include "ops/elements.cuh"
#include "ops/optim/rounding.h"
#include "ops/scratch.h"

enum { THREADS = 256, EACH = 4 };

/* ---- the norm ---- */

template <class T> __global__ void square_sum_kernel(double *partials, const T *gradient, int64_t n) {
  HRI_SHARED(double, partial, HRI_WARP);
  hri_global<const T> g(gradient, n);
  hri_global<double> to(partials, gridDim.x);
  int64_t begin = (int64_t)blockIdx.x * HRI_SQUARE_SUM_BLOCK,
          end = begin + HRI_SQUARE_SUM_BLOCK < n ? begin + HRI_SQUARE_SUM_BLOCK : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    double v = (double)hri_widen((T)g[i]);
    sum += v * v;
  }
  sum = hri_block_sum(sum, partial);
  if (threadIdx.x == 0) to[blockIdx.x] = sum;
}

extern "C" int hri_cuda_square_sum(double *partials, const void *g, hri_real real, int64_t n, void *stream) {
  if (n == 0) return 0;
  return HRI_BY_TYPE(real, HRI_LAUNCH(square_sum_kernel<REAL>, (unsigned)hri_square_sum_count(n), THREADS, 0, stream,
                                      partials, static_cast<const REAL *>(g), n));
}

__global__ void clip_kernel(const double *partials, int64_t n, hri_control *to) {
  HRI_SHARED(double, partial, HRI_WARP);
  hri_global<const double> x(partials, n), loss_scale(&to->loss_scale, 1), limit(&to->clip_norm, 1);
  hri_global<double> grad_norm(&to->grad_norm, 1), clip_scale(&to->clip_scale, 1);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
  sum = hri_block_sum(sum, partial);
  if (threadIdx.x != 0) return;
  double norm = sqrt(sum) / loss_scale[0], most = limit[0];
  grad_norm[0] = norm;
  clip_scale[0] = most > 0 && norm + 1e-6 > most ? most / (norm + 1e-6) : 1.0;
}

extern "C" int hri_cuda_clip(const double *partials, int64_t n, hri_control *control, void *stream) {
  return HRI_LAUNCH(clip_kernel, 1, THREADS, 0, stream, partials, n, control);
}

/* ---- AdamW ---- */

__device__ __forceinline__ hri_adamw_factors factors_of(const hri_cuda_adamw_args &a, const hri_control &c) {
  double bias1 = 1.0 - pow(a.beta1, (double)c.applied_steps), bias2 = 1.0 - pow(a.beta2, (double)c.applied_steps);
  hri_adamw_factors f;
  f.decay = (float)(1.0 - c.learning_rate * a.weight_decay);
  f.one_minus_beta1 = (float)(1.0 - a.beta1);
  f.beta2 = (float)a.beta2;
  f.one_minus_beta2 = (float)(1.0 - a.beta2);
  f.inv_sqrt_bias2 = (float)(1.0 / sqrt(bias2));
  f.step_size = (float)(c.learning_rate / bias1);
  f.epsilon = (float)a.epsilon;
  f.gradient_scale = (float)(c.clip_scale / c.loss_scale);
  return f;
}

/* The 16 random bits of each of up to EACH elements from logical element `at` on, as hri_rounding_bits has them. */
__device__ __forceinline__ void draw_bits(uint32_t *bits, const hri_rounding &r, int64_t at) {
  uint32_t word[4];
  if (at % EACH != 0) {
    for (int k = 0; k < EACH; k++) bits[k] = hri_rounding_bits(&r, HRI_ROUNDED_WEIGHT, at + k);
    return;
  }
  int64_t block = at / HRI_ROUNDING_CHUNK * HRI_ROUNDING_CHUNK_BLOCKS + at % 32 / 4;
  hri_philox(r.seed ^ HRI_ROUNDING_KEY, hri_rounding_high(&r), (uint64_t)block, word);
  for (int k = 0; k < EACH; k++) bits[k] = word[at / 32 % 2 * 2 + k / 2] >> (k % 2 * 16) & 0xFFFFu;
}

template <class T> __device__ __forceinline__ T round_state(float value, hri_rounded array, uint32_t bits);
template <> __device__ __forceinline__ float round_state<float>(float value, hri_rounded, uint32_t) { return value; }
template <>
__device__ __forceinline__ hri_bf16_t round_state<hri_bf16_t>(float value, hri_rounded array, uint32_t bits) {
  return {hri_bf16_round_random(value, hri_rounding_arrange(bits, array))};
}

template <class W, class S, class G, class C> __global__ void adamw_kernel(hri_cuda_adamw_args a) {
  HRI_SHARED(hri_adamw_factors, shared, 1);
  hri_global<const hri_control> control(a.control, 1);
  hri_global<W> w(static_cast<W *>(a.w), a.n);
  hri_global<C> copy(static_cast<C *>(a.copy), a.n);
  hri_global<S> first(static_cast<S *>(a.first), a.n), second(static_cast<S *>(a.second), a.n);
  hri_global<const G> g(static_cast<const G *>(a.g), a.n);
  int64_t i = hri_thread_index() * EACH;
  uint32_t bits[EACH] = {0, 0, 0, 0};
  hri_control c = control[0];
  if (threadIdx.x == 0) shared[0] = factors_of(a, c);
  __syncthreads();
  hri_adamw_factors f = shared[0];
  if (i >= a.n) return;
  if (sizeof(W) == 2 || sizeof(S) == 2) {
    hri_rounding r = {c.seed, (uint64_t)c.applied_steps, a.site};
    draw_bits(bits, r, a.first_element + i);
  }
  for (int k = 0; k < EACH && i + k < a.n; k++) {
    float grad = hri_widen((G)g[i + k]) * f.gradient_scale, m = hri_widen((S)first[i + k]);
    float v = hri_widen((S)second[i + k]), weight = hri_widen((W)w[i + k]) * f.decay;
    m = m + (grad - m) * f.one_minus_beta1;
    v = v * f.beta2 + grad * grad * f.one_minus_beta2;
    weight = weight - f.step_size * m / (sqrtf(v) * f.inv_sqrt_bias2 + f.epsilon);
    first[i + k] = round_state<S>(m, HRI_ROUNDED_FIRST, bits[k]);
    second[i + k] = round_state<S>(v, HRI_ROUNDED_SECOND, bits[k]);
    w[i + k] = round_state<W>(weight, HRI_ROUNDED_WEIGHT, bits[k]);
    if (copy) copy[i + k] = hri_narrow<C>(weight);
  }
}

template <class W, class S, class G, class C> static int adamw_of(const hri_cuda_adamw_args *a, void *stream) {
  return HRI_LAUNCH((adamw_kernel<W, S, G, C>), hri_blocks(a->n, THREADS * EACH), THREADS, 0, stream, *a);
}

/* Copies are of fp32 weights. */
template <class W, class S, class G> static int adamw_copy(const hri_cuda_adamw_args *a, void *stream) {
  if (sizeof(W) == 4 && a->copy && a->copy_real == HRI_REAL_F16) return adamw_of<W, S, G, hri_f16_t>(a, stream);
  return adamw_of<W, S, G, hri_bf16_t>(a, stream);
}

template <class W, class S> static int adamw_gradient(const hri_cuda_adamw_args *a, void *stream) {
  if (a->gradient_real == HRI_REAL_F32) return adamw_copy<W, S, float>(a, stream);
  return a->gradient_real == HRI_REAL_BF16 ? adamw_copy<W, S, hri_bf16_t>(a, stream) : -1;
}

template <class W> static int adamw_state(const hri_cuda_adamw_args *a, void *stream) {
  if (a->state_real == HRI_REAL_F32) return adamw_gradient<W, float>(a, stream);
  return a->state_real == HRI_REAL_BF16 ? adamw_gradient<W, hri_bf16_t>(a, stream) : -1;
}

extern "C" int hri_cuda_adamw(const hri_cuda_adamw_args *args, void *stream) {
  if (args->n == 0) return 0;
  if (args->w_real == HRI_REAL_F32) return adamw_state<float>(args, stream);
  return args->w_real == HRI_REAL_BF16 ? adamw_state<hri_bf16_t>(args, stream) : -1;
}
