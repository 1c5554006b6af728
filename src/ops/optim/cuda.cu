/* The gradient's norm, what a step writes into the control block, and the optimizers whose elements stand alone: AdamW, Lion,
 * momentum and SGD, in one pass over weights, moments, gradients and the fp16 copy of the weights.
 *
 * The factors of a step come from the control block on the device; one thread of each block makes them in double, as the
 * CPU does. Random bits for bf16 are the CPU's (rounding.h). */
#include "ops/optim/step.cuh"
#include "ops/scratch.h"

enum { THREADS = 256 };

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

/* ---- the control block: one thread ---- */

__global__ void found_inf_kernel(const double *first, const double *second, double *to) {
  hri_global<const double> a(first, 1), b(second, 1);
  hri_global<double> found(to, 1);
  double x = a[0], y = b[0];
  found[0] = x - x == 0 && y - y == 0 ? 0 : 1; /* infinities and NaNs leave NaN */
}

extern "C" int hri_cuda_found_inf(const double *a, const double *b, double *found, void *stream) {
  return HRI_LAUNCH(found_inf_kernel, 1, 1, 0, stream, a, b, found);
}

__global__ void advance_kernel(hri_control *to, const double *guard) {
  hri_global<int64_t> steps(&to->applied_steps, 1);
  if (!hri_guarded(guard)) steps[0] = steps[0] + 1;
}

extern "C" int hri_cuda_advance(hri_control *control, const double *guard, void *stream) {
  return HRI_LAUNCH(advance_kernel, 1, 1, 0, stream, control, guard);
}

/* As the CPU's (torch.amp.GradScaler, whose scale is an fp32 number). */
__global__ void loss_scale_kernel(hri_control *to, int64_t interval, float growth, float backoff) {
  hri_global<double> scale(&to->loss_scale, 1), found_inf(&to->found_inf, 1);
  hri_global<int64_t> tracker(&to->growth_tracker, 1);
  float now = (float)(double)scale[0], grown = now * growth;
  int64_t steps = tracker[0] + 1;
  if (found_inf[0] != 0) {
    scale[0] = (double)(now * backoff);
    steps = 0;
  } else if (steps >= interval) {
    if (grown - grown == 0) scale[0] = (double)grown;
    steps = 0;
  }
  tracker[0] = steps;
}

extern "C" int hri_cuda_loss_scale(hri_control *control, int64_t interval, double growth, double backoff,
                                   void *stream) {
  return HRI_LAUNCH(loss_scale_kernel, 1, 1, 0, stream, control, interval, (float)growth, (float)backoff);
}

/* ---- steps of elements that stand alone ---- */

enum rule { ADAMW, LION, MOMENTUM, SGD };

struct factors {
  hri_adamw_factors adamw;
  float one_minus_beta2, learning_rate, weight_decay, momentum; /* of the others; decay and scale are AdamW's */
};

__device__ __forceinline__ factors factors_of(const hri_cuda_update_args &a, const hri_control &c, rule of) {
  factors f = {};
  f.adamw.decay = (float)(1.0 - c.learning_rate * a.weight_decay);
  f.adamw.one_minus_beta1 = (float)(1.0 - a.number[0]);
  f.adamw.gradient_scale = hri_gradient_scale(c);
  f.one_minus_beta2 = (float)(1.0 - a.number[1]);
  f.learning_rate = (float)c.learning_rate;
  f.weight_decay = (float)a.weight_decay;
  f.momentum = (float)a.number[0];
  if (of != ADAMW) return f;
  f.adamw.beta2 = (float)a.number[1];
  f.adamw.inv_sqrt_bias2 = (float)(1.0 / sqrt(1.0 - pow(a.number[1], (double)c.applied_steps)));
  f.adamw.step_size = (float)(c.learning_rate / (1.0 - pow(a.number[0], (double)c.applied_steps)));
  f.adamw.epsilon = (float)a.number[2];
  return f;
}

/* One element: the new weight, m and v become new. */
template <rule of>
__device__ __forceinline__ float step(const factors &f, float weight, float grad, float *m, float *v) {
  grad *= f.adamw.gradient_scale;
  if (of == ADAMW) {
    *m = *m + (grad - *m) * f.adamw.one_minus_beta1;
    *v = *v * f.adamw.beta2 + grad * grad * f.one_minus_beta2;
    return weight * f.adamw.decay - f.adamw.step_size * *m / (sqrtf(*v) * f.adamw.inv_sqrt_bias2 + f.adamw.epsilon);
  }
  if (of == LION) {
    float smooth = *m + (grad - *m) * f.adamw.one_minus_beta1;
    *m = *m + (grad - *m) * f.one_minus_beta2;
    return weight * f.adamw.decay - (smooth > 0   ? f.learning_rate
                                     : smooth < 0 ? -f.learning_rate
                                                  : smooth); /* NaN shows */
  }
  grad += weight * f.weight_decay;
  if (of == MOMENTUM) grad = *m = *m * f.momentum + grad;
  return weight - grad * f.learning_rate;
}

template <rule of> __global__ void update_kernel(hri_cuda_update_args a) {
  HRI_SHARED(factors, shared, 1);
  int64_t i = hri_thread_index() * HRI_SOME, left = a.u.n - i;
  hri_any first = {of == SGD ? nullptr : a.u.state[0], a.u.state_real, a.u.n};
  hri_any second = {of == ADAMW ? a.u.state[1] : nullptr, a.u.state_real, a.u.n};
  uint32_t bits[HRI_SOME] = {0, 0, 0, 0};
  float w[HRI_SOME], g[HRI_SOME], m[HRI_SOME] = {}, v[HRI_SOME] = {};
  if (hri_guarded(a.guard)) return; /* all of them */
  hri_control c = hri_control_of(a.control);
  if (threadIdx.x == 0) shared[0] = factors_of(a, c, of);
  __syncthreads();
  factors f = shared[0];
  if (left <= 0) return;
  int count = left < HRI_SOME ? (int)left : (int)HRI_SOME;
  if (hri_draws_weights(a.u) || (of != SGD && a.u.state_real == HRI_REAL_BF16))
    hri_draw_bits(bits, c, a.u.rounding.site, a.u.first_element + i);
  hri_get_weights(w, a.u, i, count);
  hri_get_some(g, hri_gradients(a.u), i, count);
  if (first) hri_get_some(m, first, i, count);
  if (second) hri_get_some(v, second, i, count);
  for (int k = 0; k < count; k++) w[k] = step<of>(f, w[k], g[k], &m[k], &v[k]);
  if (first) hri_put_state(first, i, count, m, HRI_ROUNDED_FIRST, bits);
  if (second) hri_put_state(second, i, count, v, HRI_ROUNDED_SECOND, bits);
  hri_put_weights(a.u, i, count, w, bits);
}

template <rule of> static int update(const hri_cuda_update_args *a, void *stream) {
  return HRI_LAUNCH(update_kernel<of>, hri_blocks(a->u.n, THREADS * HRI_SOME), THREADS, 0, stream, *a);
}

static bool narrow_or_wide(hri_real real) { return real != HRI_REAL_F16; }

extern "C" int hri_cuda_update(uint32_t optimizer, const hri_cuda_update_args *args, void *stream) {
  const hri_update_args *u = &args->u;
  if (!narrow_or_wide(u->w_real) || !narrow_or_wide(u->state_real) || !narrow_or_wide(u->gradient_real)) return -1;
  if (u->n == 0) return 0;
  switch (optimizer) {
  case HR_OPTIMIZER_ADAMW: return update<ADAMW>(args, stream);
  case HR_OPTIMIZER_LION: return update<LION>(args, stream);
  case HR_OPTIMIZER_MOMENTUM: return update<MOMENTUM>(args, stream);
  case HR_OPTIMIZER_SGD: return update<SGD>(args, stream);
  case HR_OPTIMIZER_ADAMW8BIT: return hri_cuda_update_blocks(false, args, stream);
  case HR_OPTIMIZER_LION8BIT: return hri_cuda_update_blocks(true, args, stream);
  case HR_OPTIMIZER_ADAFACTOR: return hri_cuda_update_factored(args, stream);
  default: return -1;
  }
}
