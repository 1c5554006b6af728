/* Gradient norm and optimizer steps: one pass over weights, states and gradients.
 *
 * AdamW in the order of torch.optim.AdamW (fp32): decay, m by lerp, v, denominator, step. Division by sqrt(bias2) is a
 * multiplication by its reciprocal, which leaves one square root and one division per element; a second division would
 * cost more than the memory traffic. */
#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum { BLOCK = 8192 }; /* elements per task; a multiple of every lane count */

static inline int64_t block_count(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

/* Squares in double: fp32 squares overflow above 1.8e19 and vanish below 1e-23. */
static double square_sum_block(const float *g, int64_t n) {
  hri_vd sums[4] = {{0}};
  double sum;
  int64_t i = 0;
  for (; i + 2 * HRI_LANES <= n; i += 2 * HRI_LANES)
    for (int k = 0; k < 4; k++) {
      hri_vd v = hri_vload_double(g + i + k * HRI_HALF_LANES);
      sums[k] += v * v;
    }
  sum = hri_vsum_double((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; i++)
    sum += (double)g[i] * (double)g[i];
  return sum;
}

static void square_sum(double *partials, const float *g, int64_t n, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < hri_square_sum_count(n); block++) {
    int64_t begin = block * HRI_SQUARE_SUM_BLOCK, left = n - begin;
    partials[block] = square_sum_block(g + begin, left < HRI_SQUARE_SUM_BLOCK ? left : HRI_SQUARE_SUM_BLOCK);
  }
}

static double partial_sum(const double *partials, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++)
    sum += partials[i];
  return sum;
}

static inline __attribute__((always_inline)) void adamw_part(float *w, float *m, float *v, const float *g, int64_t n,
                                                             const hri_adamw_factors *f) {
  hri_vf grad = hri_vload_n(g, n) * f->gradient_scale, first = hri_vload_n(m, n), second = hri_vload_n(v, n);
  hri_vf weight = hri_vload_n(w, n) * f->decay, denominator;
  first = first + (grad - first) * f->one_minus_beta1;
  second = second * f->beta2 + grad * grad * f->one_minus_beta2;
  denominator = hri_vsqrt(second) * f->inv_sqrt_bias2 + f->epsilon;
  weight = weight - f->step_size * first / denominator;
  hri_vstore_n(m, first, n);
  hri_vstore_n(v, second, n);
  hri_vstore_n(w, weight, n);
}

static void adamw(float *w, float *m, float *v, const float *g, int64_t n, const hri_adamw_factors *factors,
                  int threads) {
  hri_adamw_factors f = *factors; /* a copy: stores through w must not make the compiler reload it */
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t i = block * BLOCK, end = i + BLOCK < n ? i + BLOCK : n;
    for (; i + HRI_LANES <= end; i += HRI_LANES)
      adamw_part(w + i, m + i, v + i, g + i, HRI_LANES, &f);
    if (i < end) adamw_part(w + i, m + i, v + i, g + i, end - i, &f);
  }
}

static inline __attribute__((always_inline)) void sgd_part(float *w, float *buffer, const float *g, int64_t n,
                                                           const hri_sgd_factors *f) {
  hri_vf weight = hri_vload_n(w, n), step = hri_vload_n(g, n) * f->gradient_scale + weight * f->weight_decay;
  if (buffer) {
    step = hri_vload_n(buffer, n) * f->momentum + step;
    hri_vstore_n(buffer, step, n);
  }
  hri_vstore_n(w, weight - step * f->learning_rate, n);
}

static void sgd(float *w, float *buffer, const float *g, int64_t n, const hri_sgd_factors *factors, int threads) {
  hri_sgd_factors f = *factors;
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t block = 0; block < block_count(n); block++) {
    int64_t i = block * BLOCK, end = i + BLOCK < n ? i + BLOCK : n;
    for (; i + HRI_LANES <= end; i += HRI_LANES)
      sgd_part(w + i, buffer ? buffer + i : buffer, g + i, HRI_LANES, &f);
    if (i < end) sgd_part(w + i, buffer ? buffer + i : buffer, g + i, end - i, &f);
  }
}

void HRI_ISA_NAME(hri_optim_kernels)(hri_cpu_kernels *table) {
  table->square_sum = square_sum;
  table->partial_sum = partial_sum;
  table->adamw = adamw;
  table->sgd = sgd;
}
