/* Gradient norm and optimizer steps: one pass over weights, moments, gradients and the fp16 copy of the weights.
 *
 * AdamW in the order of torch.optim.AdamW (fp32): decay, m by lerp, v, denominator, step. Division by sqrt(bias2) is a
 * multiplication by its reciprocal, which leaves one square root and one division per element; a second division would
 * cost more than the memory traffic.
 *
 * Each combination of types is its own loop: the functions below are inlined with a constant `kind`. */
#include "ops/cpu.h"
#include "ops/optim/kernels.h"
#include "ops/optim/vround.h"
#include "ops/scratch.h"
#include "ops/vdraw.h"
#include "ops/vmath.h"

enum {
  BLOCK = 8192,      /* elements per item; a multiple of every lane count */
  AHEAD = 8192,      /* bytes that the norm fetches ahead */
  STREAMED = 1 << 18 /* elements of a weight whose copy goes past the caches: its update moves 8 MB */
};

static inline int64_t block_count(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

/* ---- the norm of the gradient ---- */

/* Squares in double: fp32 squares overflow above 1.8e19 and vanish below 1e-23. */
INLINE double square_sum_range(const void *g, int64_t begin, int64_t end, hri_real real) {
  hri_vd sums[4] = {{0}};
  double sum;
  int64_t i = begin;
  for (; i + 2 * HRI_LANES <= end; i += 2 * HRI_LANES) {
    hri_fetch((const char *)hri_real_from(g, i, real) + AHEAD, 2 * HRI_LANES * (int64_t)hri_real_bytes(real));
    for (int k = 0; k < 4; k += 2) {
      hri_vd v[2];
      widen_doubles(v, hri_vload_real(g, i + k * HRI_HALF_LANES, real));
      sums[k] += v[0] * v[0];
      sums[k + 1] += v[1] * v[1];
    }
  }
  sum = hri_vsum_double((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < end; i++) sum += (double)hri_real_get(g, i, real) * (double)hri_real_get(g, i, real);
  return sum;
}

typedef struct squares {
  double *partials;
  const void *g;
  hri_real real;
  int64_t n;
} squares;

static void square_blocks(void *context, int64_t first, int64_t last, int thread) {
  const squares *s = context;
  (void)thread;
  for (int64_t block = first; block < last; block++) {
    int64_t begin = block * HRI_SQUARE_SUM_BLOCK,
            end = begin + HRI_SQUARE_SUM_BLOCK < s->n ? begin + HRI_SQUARE_SUM_BLOCK : s->n;
    s->partials[block] = s->real == HRI_REAL_BF16 ? square_sum_range(s->g, begin, end, HRI_REAL_BF16)
                                                  : square_sum_range(s->g, begin, end, HRI_REAL_F32);
  }
}

static void square_sum(double *partials, const void *g, hri_real gradient_real, int64_t n, hri_team *team) {
  squares s = {.partials = partials, .g = g, .real = gradient_real, .n = n};
  hri_team_each(team, hri_square_sum_count(n), 1, square_blocks, &s);
}

static double partial_sum(const double *partials, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += partials[i];
  return sum;
}

/* ---- the steps ---- */

typedef enum step_rule { ADAMW, LION, MOMENTUM, SGD } step_rule;
typedef struct kind {
  step_rule rule;
  hri_real w, moment, gradient;
  bool split, copy; /* a weight in two halves, an fp16 copy of an fp32 one; neither with a bf16 gradient */
} kind;
typedef struct sgd_factors {
  float learning_rate, weight_decay, momentum, gradient_scale;
} sgd_factors;
typedef struct lion_factors {
  float decay, learning_rate, one_minus_beta1, one_minus_beta2, gradient_scale;
} lion_factors;
typedef struct factors {
  hri_adamw_factors adamw;
  lion_factors lion;
  sgd_factors sgd;
} factors;

INLINE hri_vf old_weight(const hri_update_args *a, kind k, int64_t i, int64_t n) {
  return load_weight(a, i, n, k.w, k.split);
}
INLINE void new_weight(const hri_update_args *a, kind k, int64_t i, int64_t n, hri_vf w, const uint16_t *random) {
  store_weight(a, i, w, n, k.w, k.split, random);
  if (!k.copy) return;
  if (n == HRI_LANES && a->n >= STREAMED) stream_narrow(a->copy + i, hri_vround_f16(w));
  else hri_vstore_real_n(a->copy, i, w, n, HRI_REAL_F16);
}

/* Elements [i, i + n), n <= HRI_LANES; random[array]: the bits for them. */
INLINE void adamw_part(const hri_update_args *a, const hri_adamw_factors *f, kind k, int64_t i, int64_t n,
                       const uint16_t *const *random) {
  hri_vf grad = hri_vload_real_n(a->g, i, n, k.gradient) * f->gradient_scale,
         first = hri_vload_real_n(a->state[0], i, n, k.moment);
  hri_vf second = hri_vload_real_n(a->state[1], i, n, k.moment), weight = old_weight(a, k, i, n) * f->decay,
         denominator;
  first = first + (grad - first) * f->one_minus_beta1;
  second = second * f->beta2 + grad * grad * f->one_minus_beta2;
  denominator = hri_vsqrt(second) * f->inv_sqrt_bias2 + f->epsilon;
  weight = weight - f->step_size * first / denominator;
  store_state(a->state[0], i, first, n, k.moment, random[HRI_ROUNDED_FIRST]);
  store_state(a->state[1], i, second, n, k.moment, random[HRI_ROUNDED_SECOND]);
  new_weight(a, k, i, n, weight, random[HRI_ROUNDED_WEIGHT]);
}

/* Lion (Chen et al., 2023): the sign of one average moves the weight, another is kept. */
INLINE void lion_part(const hri_update_args *a, const lion_factors *f, kind k, int64_t i, int64_t n,
                      const uint16_t *const *random) {
  hri_vf grad = hri_vload_real_n(a->g, i, n, k.gradient) * f->gradient_scale, zero = {0};
  hri_vf first = hri_vload_real_n(a->state[0], i, n, k.moment), weight = old_weight(a, k, i, n) * f->decay;
  hri_vf smooth = first + (grad - first) * f->one_minus_beta1, rate = hri_vset(f->learning_rate);
  weight = weight - hri_vselect(smooth > zero, rate, hri_vselect(smooth < zero, -rate, smooth)); /* NaN shows */
  first = first + (grad - first) * f->one_minus_beta2;
  store_state(a->state[0], i, first, n, k.moment, random[HRI_ROUNDED_FIRST]);
  new_weight(a, k, i, n, weight, random[HRI_ROUNDED_WEIGHT]);
}

INLINE void sgd_part(const hri_update_args *a, const sgd_factors *f, kind k, int64_t i, int64_t n,
                     const uint16_t *const *random) {
  hri_vf weight = old_weight(a, k, i, n);
  hri_vf step = hri_vload_real_n(a->g, i, n, k.gradient) * f->gradient_scale + weight * f->weight_decay;
  if (k.rule == MOMENTUM) {
    step = hri_vload_real_n(a->state[0], i, n, k.moment) * f->momentum + step;
    store_state(a->state[0], i, step, n, k.moment, random[HRI_ROUNDED_FIRST]);
  }
  new_weight(a, k, i, n, weight - step * f->learning_rate, random[HRI_ROUNDED_WEIGHT]);
}

INLINE void part(const hri_update_args *a, const factors *f, kind k, int64_t i, int64_t n, span_bits *bits,
                 int64_t at) {
  const uint16_t *random[3] = {bits[HRI_ROUNDED_WEIGHT] + at, bits[HRI_ROUNDED_FIRST] + at,
                               bits[HRI_ROUNDED_SECOND] + at};
  if (k.rule == ADAMW) adamw_part(a, &f->adamw, k, i, n, random);
  else if (k.rule == LION) lion_part(a, &f->lion, k, i, n, random);
  else sgd_part(a, &f->sgd, k, i, n, random);
}

/* Elements [i, end); with random bits, a span of them at a time. */
INLINE void update_range(const hri_update_args *args, const factors *all, int64_t i, int64_t end, kind k) {
  hri_update_args a = *args; /* copies: stores through w must not make the compiler reload them */
  factors f = *all;
  bool random_moment = k.rule != SGD && k.moment == HRI_REAL_BF16, random_weight = k.w == HRI_REAL_BF16 && !k.split;
  bool random = random_weight || random_moment;
  _Alignas(64) span_bits bits[HRI_ROUNDED_COUNT];
  hri_philox_keys keys = {{0}, {0}};
  if (random) keys = hri_philox_keys_make(a.rounding.seed ^ HRI_ROUNDING_KEY);
  while (i < end) {
    int64_t element = a.first_element + i, chunk = element / HRI_ROUNDING_CHUNK, at = element % HRI_ROUNDING_CHUNK,
            stop = end;
    if (random && end - i > SPAN - at) stop = i + SPAN - at;
    for (int64_t drawn = 0; random && drawn < at + stop - i; drawn += HRI_ROUNDING_CHUNK)
      draw_chunk(bits, drawn, &a.rounding, &keys, chunk++, random_weight, random_moment,
                 random_moment && k.rule == ADAMW);
    for (; i + HRI_LANES <= stop; i += HRI_LANES, at += random ? HRI_LANES : 0) part(&a, &f, k, i, HRI_LANES, bits, at);
    if (i < stop) part(&a, &f, k, i, stop - i, bits, at);
    i = stop;
  }
}

/* The types of the call as constants, one after the other. */
INLINE void with_moment(const hri_update_args *a, const factors *f, int64_t begin, int64_t end, kind k) {
  if (k.rule != SGD && a->state_real == HRI_REAL_BF16) {
    k.moment = HRI_REAL_BF16;
    update_range(a, f, begin, end, k);
  } else {
    k.moment = HRI_REAL_F32;
    update_range(a, f, begin, end, k);
  }
}
INLINE void with_gradient(const hri_update_args *a, const factors *f, int64_t begin, int64_t end, kind k) {
  if (a->gradient_real == HRI_REAL_BF16) {
    k.gradient = HRI_REAL_BF16;
    with_moment(a, f, begin, end, k);
  } else {
    k.gradient = HRI_REAL_F32;
    with_moment(a, f, begin, end, k);
  }
}
INLINE void with_weight(const hri_update_args *a, const factors *f, int64_t begin, int64_t end, step_rule rule) {
  if (a->low) with_moment(a, f, begin, end, (kind){.rule = rule, .w = HRI_REAL_BF16, .split = true});
  else if (a->copy) with_moment(a, f, begin, end, (kind){.rule = rule, .copy = true});
  else if (a->w_real == HRI_REAL_BF16) with_gradient(a, f, begin, end, (kind){.rule = rule, .w = HRI_REAL_BF16});
  else with_gradient(a, f, begin, end, (kind){.rule = rule, .w = HRI_REAL_F32});
}

typedef struct update_job {
  const hri_update_args *args;
  const factors *factors;
  step_rule rule;
} update_job;

static void update_blocks(void *context, int64_t first, int64_t last, int thread) {
  const update_job *job = context;
  const hri_update_args *a = job->args;
  (void)thread;
  for (int64_t block = first; block < last; block++) {
    int64_t begin = block * BLOCK, end = begin + BLOCK < a->n ? begin + BLOCK : a->n;
    if (job->rule == ADAMW) with_weight(a, job->factors, begin, end, ADAMW);
    else if (job->rule == LION) with_weight(a, job->factors, begin, end, LION);
    else if (job->rule == MOMENTUM) with_weight(a, job->factors, begin, end, MOMENTUM);
    else with_weight(a, job->factors, begin, end, SGD);
  }
  if (a->copy) stream_end();
}

static void update(const hri_update_args *a, const factors *f, step_rule rule) {
  update_job job = {.args = a, .factors = f, .rule = rule};
  hri_team_each(a->team, block_count(a->n), hri_grain(BLOCK), update_blocks, &job);
}

static void adamw(const hri_update_args *args, const hri_update_numbers *n) {
  factors all = {.adamw = hri_adamw_factors_make(n->learning_rate, n->number[0], n->number[1], n->number[2],
                                                 n->weight_decay, n->t, n->gradient_scale)};
  update(args, &all, ADAMW);
}

static void lion(const hri_update_args *args, const hri_update_numbers *n) {
  factors all = {.lion = {.decay = (float)(1.0 - n->learning_rate * n->weight_decay),
                          .learning_rate = (float)n->learning_rate,
                          .one_minus_beta1 = (float)(1.0 - n->number[0]),
                          .one_minus_beta2 = (float)(1.0 - n->number[1]),
                          .gradient_scale = (float)n->gradient_scale}};
  update(args, &all, LION);
}

static factors sgd_factors_make(const hri_update_numbers *n) {
  return (factors){.sgd = {.learning_rate = (float)n->learning_rate,
                           .weight_decay = (float)n->weight_decay,
                           .momentum = (float)n->number[0],
                           .gradient_scale = (float)n->gradient_scale}};
}

static void momentum(const hri_update_args *args, const hri_update_numbers *n) {
  factors all = sgd_factors_make(n);
  update(args, &all, MOMENTUM);
}

static void sgd(const hri_update_args *args, const hri_update_numbers *n) {
  factors all = sgd_factors_make(n);
  update(args, &all, SGD);
}

void HRI_ISA_NAME(hri_optim_kernels)(hri_cpu_kernels *table) {
  table->square_sum = square_sum;
  table->partial_sum = partial_sum;
  table->update[HR_OPTIMIZER_ADAMW] = adamw;
  table->update[HR_OPTIMIZER_MOMENTUM] = momentum;
  table->update[HR_OPTIMIZER_SGD] = sgd;
  table->update[HR_OPTIMIZER_ADAMW8BIT] = hri_optim_adamw8bit;
  table->update[HR_OPTIMIZER_LION] = lion;
  table->update[HR_OPTIMIZER_ADAFACTOR] = hri_optim_adafactor;
  table->update[HR_OPTIMIZER_LION8BIT] = hri_optim_lion8bit;
}
