/* Gradient norm and optimizer steps: one pass over weights, moments, gradients and the bf16 copy of the weights.
 *
 * AdamW in the order of torch.optim.AdamW (fp32): decay, m by lerp, v, denominator, step. Division by sqrt(bias2) is a
 * multiplication by its reciprocal, which leaves one square root and one division per element; a second division would
 * cost more than the memory traffic.
 *
 * Each combination of types is its own loop: the functions below are inlined with a constant `kind`. */
#include "ops/cpu.h"
#include "ops/optim/rounding.h"
#include "ops/scratch.h"
#include "ops/vdraw.h"
#include "ops/vmath.h"

#define INLINE static inline __attribute__((always_inline))

enum {
  BLOCK = 8192, /* elements per item; a multiple of every lane count */
  AHEAD = 8192, /* bytes that the norm fetches ahead */
  SPAN = 512    /* elements whose random bits are made at a time; a multiple of HRI_ROUNDING_CHUNK */
};

static inline int64_t block_count(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

/* ---- the norm of the gradient ---- */

/* HRI_LANES elements as two vectors of doubles. Said in instructions where there are some: gcc 12 converts quarters of a
 * vector and puts them together. */
INLINE void load_doubles(hri_vd out[2], const void *p, int64_t index, hri_real real) {
  hri_vf wide = hri_vload_real(p, index, real);
#if defined(__AVX512F__)
  out[0] = (hri_vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)wide));
  out[1] = (hri_vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)wide, 1));
#elif defined(__AVX2__)
  out[0] = (hri_vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)wide));
  out[1] = (hri_vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)wide, 1));
#else
  typedef float half_floats __attribute__((vector_size(HRI_VECTOR_BYTES / 2)));
  half_floats halves[2];
  memcpy(halves, &wide, sizeof halves);
  out[0] = __builtin_convertvector(halves[0], hri_vd);
  out[1] = __builtin_convertvector(halves[1], hri_vd);
#endif
}

/* Squares in double: fp32 squares overflow above 1.8e19 and vanish below 1e-23. */
INLINE double square_sum_range(const void *g, int64_t begin, int64_t end, hri_real real) {
  hri_vd sums[4] = {{0}};
  double sum;
  int64_t i = begin;
  for (; i + 2 * HRI_LANES <= end; i += 2 * HRI_LANES) {
    hri_fetch((const char *)hri_real_from(g, i, real) + AHEAD, 2 * HRI_LANES * (int64_t)hri_real_bytes(real));
    for (int k = 0; k < 4; k += 2) {
      hri_vd v[2];
      load_doubles(v, g, i + k * HRI_HALF_LANES, real);
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

/* ---- stochastic rounding ---- */

/* Random bits of a span's elements for an array, and room to load a vector that begins near the end of it. */
typedef uint16_t span_bits[SPAN + 32];
typedef uint16_t shorts __attribute__((vector_size(HRI_VECTOR_BYTES)));
typedef uint16_t shorts_memory __attribute__((vector_size(HRI_VECTOR_BYTES), aligned(2), may_alias));
/* The arrangements of the bits of 2 * HRI_LANES elements, for the arrays that are rounded. */
INLINE void store_arranged(span_bits *bits, int64_t at, shorts x, bool weight, bool first, bool second) {
  if (weight) *(shorts_memory *)(bits[HRI_ROUNDED_WEIGHT] + at) = x;
  if (first) *(shorts_memory *)(bits[HRI_ROUNDED_FIRST] + at) = x << 8 | x >> 8;
  if (second) *(shorts_memory *)(bits[HRI_ROUNDED_SECOND] + at) = x ^ x << 8;
}

/* Random bits of elements chunk * 64 .. + 63 at bits[..] + at (ops/optim/rounding.h), by ops/vdraw.h. */
INLINE void draw_chunk(span_bits *bits, int64_t at, const hri_rounding *r, const hri_philox_keys *keys, int64_t chunk,
                       bool weight, bool first, bool second) {
  hri_vq zero = {0};
  for (int64_t block = 0; block < HRI_ROUNDING_CHUNK_BLOCKS; block += HRI_HALF_LANES) {
    uint64_t counter = (uint64_t)(chunk * HRI_ROUNDING_CHUNK_BLOCKS + block);
    hri_vq c[4] = {hri_vblocks(counter),
                   {0},
                   zero + (hri_rounding_high(r) & 0xFFFFFFFFu),
                   zero + (hri_rounding_high(r) >> 32)};
    c[1] = c[0] >> 32;
    hri_vphilox(c, keys);
    store_arranged(bits, at + block * 4, (shorts)hri_vmerge(c[0], c[1]), weight, first, second);
    store_arranged(bits, at + HRI_ROUNDING_CHUNK / 2 + block * 4, (shorts)hri_vmerge(c[2], c[3]), weight, first,
                   second);
  }
}

/* Whether a lane is beyond the largest finite bf16 value, infinite or NaN. */
INLINE bool beyond_bf16(hri_vu bits) {
  hri_vi mask = (hri_vi)(bits & 0x7FFFFFFFu) > 0x7F7F0000;
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_epi8((__m128i)mask) != 0;
#elif defined(__aarch64__)
  return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
  int32_t any = 0;
  for (int i = 0; i < HRI_LANES; i++) any |= mask[i];
  return any != 0;
#endif
}

INLINE hri_vu load_random(const uint16_t *random) {
#if defined(__AVX512F__)
  return (hri_vu)_mm512_cvtepu16_epi32((__m256i) * (const hri_vh16_memory *)random);
#elif defined(__AVX2__)
  return (hri_vu)_mm256_cvtepu16_epi32((__m128i) * (const hri_vh16_memory *)random);
#else
  return __builtin_convertvector(*(const hri_vh16_memory *)random, hri_vu);
#endif
}

/* hri_bf16_round_random lane by lane; the result stands in the upper halves, the lower are of no account. */
INLINE hri_vu round_random(hri_vf v, const uint16_t *random) {
  hri_vu bits = (hri_vu)v, rounded = bits + load_random(random);
  if (__builtin_expect(beyond_bf16(bits), 0)) {
    hri_vi beyond = (hri_vi)(bits & 0x7FFFFFFFu) > 0x7F7F0000;
    rounded = (hri_vu)hri_vselect(beyond, hri_vwiden(hri_vround_bf16(v)), (hri_vf)rounded);
  }
  return rounded;
}

INLINE void store_state(void *p, int64_t index, hri_vf v, int64_t n, hri_real real, const uint16_t *random) {
  if (real == HRI_REAL_F32) hri_vstore_n((float *)p + index, v, n);
  else if (n == HRI_LANES)
    *(hri_vh16_memory *)((hri_bf16 *)p + index) = (hri_vh16_memory)hri_vupper(round_random(v, random));
  else hri_vstore_bf16_n((hri_bf16 *)p + index, (hri_vf)(round_random(v, random) & 0xFFFF0000u), n);
}

/* ---- the steps ---- */

typedef enum step_rule { ADAMW, MOMENTUM, SGD } step_rule;
typedef struct kind {
  step_rule rule;
  hri_real w, moment, gradient;
  bool copy;
} kind;
typedef struct sgd_factors {
  float learning_rate, weight_decay, momentum, gradient_scale;
} sgd_factors;
typedef struct factors {
  hri_adamw_factors adamw;
  sgd_factors sgd;
} factors;

INLINE void store_weight(const hri_update_args *a, kind k, int64_t i, int64_t n, hri_vf w, const uint16_t *random) {
  store_state(a->w, i, w, n, k.w, random);
  if (k.copy) hri_vstore_bf16_n(a->copy + i, w, n);
}

/* Elements [i, i + n), n <= HRI_LANES; random[array]: the bits for them. */
INLINE void adamw_part(const hri_update_args *a, const hri_adamw_factors *f, kind k, int64_t i, int64_t n,
                       const uint16_t *const *random) {
  hri_vf grad = hri_vload_real_n(a->g, i, n, k.gradient) * f->gradient_scale,
         first = hri_vload_real_n(a->state[0], i, n, k.moment);
  hri_vf second = hri_vload_real_n(a->state[1], i, n, k.moment), weight = hri_vload_real_n(a->w, i, n, k.w) * f->decay,
         denominator;
  first = first + (grad - first) * f->one_minus_beta1;
  second = second * f->beta2 + grad * grad * f->one_minus_beta2;
  denominator = hri_vsqrt(second) * f->inv_sqrt_bias2 + f->epsilon;
  weight = weight - f->step_size * first / denominator;
  store_state(a->state[0], i, first, n, k.moment, random[HRI_ROUNDED_FIRST]);
  store_state(a->state[1], i, second, n, k.moment, random[HRI_ROUNDED_SECOND]);
  store_weight(a, k, i, n, weight, random[HRI_ROUNDED_WEIGHT]);
}

INLINE void sgd_part(const hri_update_args *a, const sgd_factors *f, kind k, int64_t i, int64_t n,
                     const uint16_t *const *random) {
  hri_vf weight = hri_vload_real_n(a->w, i, n, k.w);
  hri_vf step = hri_vload_real_n(a->g, i, n, k.gradient) * f->gradient_scale + weight * f->weight_decay;
  if (k.rule == MOMENTUM) {
    step = hri_vload_real_n(a->state[0], i, n, k.moment) * f->momentum + step;
    store_state(a->state[0], i, step, n, k.moment, random[HRI_ROUNDED_FIRST]);
  }
  store_weight(a, k, i, n, weight - step * f->learning_rate, random[HRI_ROUNDED_WEIGHT]);
}

INLINE void part(const hri_update_args *a, const factors *f, kind k, int64_t i, int64_t n, span_bits *bits,
                 int64_t at) {
  const uint16_t *random[3] = {bits[HRI_ROUNDED_WEIGHT] + at, bits[HRI_ROUNDED_FIRST] + at,
                               bits[HRI_ROUNDED_SECOND] + at};
  if (k.rule == ADAMW) adamw_part(a, &f->adamw, k, i, n, random);
  else sgd_part(a, &f->sgd, k, i, n, random);
}

/* Elements [i, end); with random bits, a span of them at a time. */
INLINE void update_range(const hri_update_args *args, const factors *all, int64_t i, int64_t end, kind k) {
  hri_update_args a = *args; /* copies: stores through w must not make the compiler reload them */
  factors f = *all;
  bool random_moment = k.rule != SGD && k.moment == HRI_REAL_BF16, random_weight = k.w == HRI_REAL_BF16;
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
  if (a->w_real == HRI_REAL_BF16) with_gradient(a, f, begin, end, (kind){.rule = rule, .w = HRI_REAL_BF16});
  else if (a->copy) with_gradient(a, f, begin, end, (kind){.rule = rule, .w = HRI_REAL_F32, .copy = true});
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
    else if (job->rule == MOMENTUM) with_weight(a, job->factors, begin, end, MOMENTUM);
    else with_weight(a, job->factors, begin, end, SGD);
  }
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
}
