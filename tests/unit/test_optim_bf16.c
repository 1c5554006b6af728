/* Optimizer steps in every combination of types, on every instruction set that this machine has:
 *   - stochastic rounding gives the bits of its scalar definition (ops/optim/rounding.h), whatever the slice, the
 *     alignment and the team; it is unbiased, exact where bf16 is, and shows NaN and infinity;
 *   - a step with bf16 arrays is the fp32 step, rounded; it is as near to the double reference as that allows.
 *
 * Where a test asks for equal bits on all instruction sets, its arithmetic is exact: with w = 0, rate 1 and no decay
 * SGD gives w = -g, with m = v = 0 and beta1 = beta2 = 0 AdamW gives m = g, v = g * g. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "ops/cpu.h"
#include "ops/optim/ref.h"
#include "ops/optim/rounding.h"
#include "ops/scratch.h"
#include "program/optimizer.h"
#include "support/team.h"

#define ISA_KERNELS(suffix, table) hri_optim_kernels_##suffix(table)
#include "support/isas.h"

/* ---- arrays of either type, that begin one element behind a 64-byte boundary ---- */

static void *pool[64];
static size_t pool_count;

static void *take(int64_t n, hri_real real) {
  size_t size = hri_real_bytes(real);
  void *memory = NULL;
  assert_true(pool_count < sizeof pool / sizeof *pool);
  assert_int_equal(posix_memalign(&memory, 64, (size_t)(n + 2) * size), 0);
  pool[pool_count++] = memory;
  memset(memory, 0, (size_t)(n + 2) * size);
  return (unsigned char *)memory + size;
}

static int release(void **state) {
  (void)state;
  while (pool_count) free(pool[--pool_count]);
  return 0;
}

static float get(const void *x, int64_t i, hri_real real) { return hri_real_get(x, i, real); }
static void put(void *x, int64_t i, hri_real real, float value) {
  if (real == HRI_REAL_BF16) ((hri_bf16 *)x)[i] = hri_bf16_round(value);
  else ((float *)x)[i] = value;
}
static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static void assert_same(const void *a, const void *b, int64_t n, hri_real real) {
  if (n) assert_memory_equal(a, b, (size_t)n * hri_real_bytes(real));
}

/* Uniform in [low, high), a function of (stream, i), in a value that bf16 holds too. */
static float drawn(uint64_t stream, int64_t i, double low, double high) {
  uint32_t word[4];
  hri_philox(77, stream, (uint64_t)i, word);
  return hri_bf16_widen(hri_bf16_round((float)(low + (high - low) * hri_uniform(word[0], word[1]))));
}

/* ---- stochastic rounding ---- */

static const hri_update_numbers negate = {.learning_rate = 1, .gradient_scale = 1, .t = 1};
static const hri_update_numbers keep = {.number = {0, 0, 1}, .gradient_scale = 1, .t = 1};

/* w[i] = -g[i], rounded. */
static void round_weights(const hri_cpu_kernels *k, hri_bf16 *w, const float *g, int64_t n, hri_rounding r,
                          int64_t first, int threads) {
  if (n) memset(w, 0, (size_t)n * sizeof *w);
  k->update[HR_OPTIMIZER_SGD](&(hri_update_args){.n = n,
                                                 .w = w,
                                                 .w_real = HRI_REAL_BF16,
                                                 .g = g,
                                                 .rounding = r,
                                                 .first_element = first,
                                                 .team = team_of(threads)},
                              &negate);
}

/* m[i] = g[i], v[i] = g[i]^2, rounded. */
static void round_moments(const hri_cpu_kernels *k, hri_bf16 *m, hri_bf16 *v, const float *g, int64_t n, hri_rounding r,
                          int64_t first, int threads) {
  float *w = take(n, HRI_REAL_F32);
  if (n) memset(m, 0, (size_t)n * sizeof *m), memset(v, 0, (size_t)n * sizeof *v);
  k->update[HR_OPTIMIZER_ADAMW](&(hri_update_args){.n = n,
                                                   .w = w,
                                                   .state = {m, v},
                                                   .state_real = HRI_REAL_BF16,
                                                   .g = g,
                                                   .rounding = r,
                                                   .first_element = first,
                                                   .team = team_of(threads)},
                                &keep);
}

static float interesting(int64_t i) {
  static const uint32_t bits[] = {0x00000000, 0x00000001, 0x00008000, 0x0000FFFF, 0x00010000, 0x80000001, 0x007FFFFF,
                                  0x3F800000, 0x3F800001, 0x3F80FFFF, 0xBF808000, 0x7F7EFFFF, 0x7F7F0000, 0x7F7F0001,
                                  0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0xFF7F7FFF, 0xFF7F8000, 0x7F800000, 0xFF800000};
  uint32_t word[4];
  int64_t count = (int64_t)(sizeof bits / sizeof *bits);
  if (i % 3 == 0 && i / 3 < count) return from_bits(bits[i / 3]);
  hri_philox(5, 5, (uint64_t)i, word);
  return from_bits((word[0] & 0x807FFFFFu) | (word[1] % 0xFFu) << 23);
}

static void rounding_has_the_bits_of_its_definition(void **state) {
  enum { N = 700 };
  static const int64_t firsts[] = {0, 1, 63, 64, 77, 511, 4095, ((int64_t)1 << 35) + 5};
  static const int64_t sizes[] = {0, 1, 3, 15, 17, 63, 64, 65, 130, N};
  float *g = take(N, HRI_REAL_F32);
  hri_bf16 *w = take(N, HRI_REAL_BF16), *m = take(N, HRI_REAL_BF16), *v = take(N, HRI_REAL_BF16);
  (void)state;
  for (int64_t i = 0; i < N; i++) g[i] = interesting(i);
  for (int s = 0; s < isa_count; s++)
    for (size_t c = 0; c < 80; c++) {
      int64_t first = firsts[c % 8], n = sizes[c / 8];
      hri_rounding r = {.seed = 0x123456789ABCDEFu + c, .step = 3 + c, .site = 0x80000001u};
      size_t mark = pool_count;
      round_weights(&isas[s].kernels, w, g, n, r, first, 1);
      round_moments(&isas[s].kernels, m, v, g, n, r, first, 1);
      for (int64_t i = 0; i < n; i++) {
        float square = g[i] * g[i];
        assert_int_equal(w[i] & (g[i] == 0 ? 0x7FFF : 0xFFFF),
                         hri_bf16_round_random(-g[i], hri_rounding_bits(&r, HRI_ROUNDED_WEIGHT, first + i)) &
                             (g[i] == 0 ? 0x7FFF : 0xFFFF));
        assert_int_equal(v[i], hri_bf16_round_random(square, hri_rounding_bits(&r, HRI_ROUNDED_SECOND, first + i)));
        if (isinf(g[i])) continue; /* m + (g - m) * 1 with m = 0 */
        assert_int_equal(m[i], hri_bf16_round_random(g[i], hri_rounding_bits(&r, HRI_ROUNDED_FIRST, first + i)));
      }
      while (pool_count > mark) free(pool[--pool_count]);
    }
}

static void scalar_rounding_keeps_what_bf16_holds(void **state) {
  (void)state;
  for (uint32_t half = 0; half < 0x10000; half++)
    for (uint32_t random = 0; random < 0x10000; random += 0xFFFF) {
      float x = hri_bf16_widen((hri_bf16)half);
      if (isnan(x)) assert_true(isnan(hri_bf16_widen(hri_bf16_round_random(x, random))));
      else assert_int_equal(hri_bf16_round_random(x, random), half);
    }
  /* beyond the largest finite value: to nearest, whatever the random bits */
  assert_int_equal(hri_bf16_round_random(from_bits(0x7F7F7FFF), 0xFFFF), 0x7F7F);
  assert_int_equal(hri_bf16_round_random(from_bits(0xFF7F8000), 0), 0xFF80);
  assert_true(isnan(hri_bf16_widen(hri_bf16_round_random(from_bits(0xFFFFFFFF), 0xFFFF))));
  assert_true(isnan(hri_bf16_widen(hri_bf16_round_random(from_bits(0x7F800001), 0))));
}

/* Ups among n draws of probability p: five standard deviations off once in two million; the draws are fixed by the
 * seed. */
static void assert_share(int64_t ups, int64_t n, double p) {
  assert_true(fabs((double)ups - (double)n * p) < 5.0 * sqrt((double)n * p * (1.0 - p)));
}

static void rounding_is_unbiased(void **state) {
  enum { N = 20000, STEPS = 10 };
  static const uint32_t lows[] = {0x0001, 0x0200, 0x4321, 0x8000, 0xC0DE, 0xFFFF};
  float *g = take(N, HRI_REAL_F32);
  hri_bf16 *w = take(N, HRI_REAL_BF16), *m = take(N, HRI_REAL_BF16), *v = take(N, HRI_REAL_BF16);
  (void)state;
  for (size_t c = 0; c < sizeof lows / sizeof *lows; c++) {
    int64_t up_w = 0, up_m = 0, up_v = 0;
    float x = from_bits(0x3FA00000u | lows[c]), square = x * x;
    uint32_t square_bits;
    memcpy(&square_bits, &square, sizeof square_bits);
    for (int64_t i = 0; i < N; i++) g[i] = x;
    for (uint64_t step = 1; step <= STEPS; step++) {
      hri_rounding r = {.seed = 11, .step = step, .site = (uint32_t)c};
      size_t mark = pool_count;
      round_weights(&isas[isa_count - 1].kernels, w, g, N, r, 0, 2);
      round_moments(&isas[isa_count - 1].kernels, m, v, g, N, r, 0, 2);
      while (pool_count > mark) free(pool[--pool_count]);
      for (int64_t i = 0; i < N; i++) {
        up_w += w[i] == 0xBFA1, up_m += m[i] == 0x3FA1, up_v += v[i] == (square_bits >> 16) + 1;
        assert_true(w[i] == 0xBFA1 || w[i] == 0xBFA0);
      }
    }
    assert_share(up_w, (int64_t)N * STEPS, lows[c] / 65536.0);
    assert_share(up_m, (int64_t)N * STEPS, lows[c] / 65536.0);
    assert_share(up_v, (int64_t)N * STEPS, (square_bits & 0xFFFF) / 65536.0);
  }
}

/* Over all 65536 bits: each arrangement is a permutation, and the joint chance that two arrays round up is the product
 * of their chances to within 2^-8. */
static void arrangements_are_uniform_and_pairwise_nearly_independent(void **state) {
  static unsigned char seen[65536];
  (void)state;
  for (hri_rounded a = 0; a < HRI_ROUNDED_COUNT; a++) {
    memset(seen, 0, sizeof seen);
    for (uint32_t bits = 0; bits < 65536; bits++) seen[hri_rounding_arrange(bits, a)]++;
    for (uint32_t bits = 0; bits < 65536; bits++) assert_int_equal(seen[bits], 1);
    for (hri_rounded b = 0; b < a; b++)
      for (uint32_t p = 977; p < 65536; p += 5003)
        for (uint32_t q = 613; q < 65536; q += 4999) {
          int64_t both = 0;
          for (uint32_t bits = 0; bits < 65536; bits++)
            both += hri_rounding_arrange(bits, a) < p && hri_rounding_arrange(bits, b) < q;
          assert_true(fabs((double)both / 65536 - (double)p / 65536 * q / 65536) <= 1.0 / 256);
        }
  }
}

static void a_second_moment_falls(void **state) {
  enum { N = 4096, STEPS = 1000 };
  float *w = take(N, HRI_REAL_F32), *g = take(N, HRI_REAL_F32);
  hri_bf16 *m = take(N, HRI_REAL_BF16), *v = take(N, HRI_REAL_BF16);
  hri_update_numbers f = keep;
  double sum = 0;
  (void)state;
  f.number[1] = 0.999;
  for (int64_t i = 0; i < N; i++) v[i] = hri_bf16_round(1.0f);
  for (uint64_t step = 1; step <= STEPS; step++)
    isas[isa_count - 1].kernels.update[HR_OPTIMIZER_ADAMW](&(hri_update_args){.n = N,
                                                                              .w = w,
                                                                              .state = {m, v},
                                                                              .state_real = HRI_REAL_BF16,
                                                                              .g = g,
                                                                              .rounding = {.seed = 1, .step = step},
                                                                              .team = NULL},
                                                           &f);
  for (int64_t i = 0; i < N; i++) sum += (double)hri_bf16_widen(v[i]);
  /* A step takes 0.001 v: 0.13 of a unit of the last place where that is v / 128, 0.26 where it is v / 256. It so adds
   * less than v^2 / 2^17 of variance. */
  assert_true(fabs(sum / N / pow(0.999, STEPS) - 1.0) < 5.0 * sqrt(STEPS * 0x1p-17 / N) + 1e-4);
}

/* ---- every combination of types ---- */

/* Those whose steps go element by element; test_optim_blocks.c and test_adafactor.c have the others. */
static const hr_optimizer single[] = {HR_OPTIMIZER_ADAMW, HR_OPTIMIZER_SGD, HR_OPTIMIZER_MOMENTUM, HR_OPTIMIZER_LION};
enum { STATES = 2, TYPES = 16, SINGLE = sizeof single / sizeof *single, VARIANTS = SINGLE * TYPES };

static void none_is_forgotten(void **state) {
  int count = 0;
  (void)state;
  for (uint32_t kind = 0; kind < HR_OPTIMIZER_COUNT; kind++) count += !hri_state_apart(kind);
  assert_int_equal(count, SINGLE);
}

typedef struct variant {
  uint32_t optimizer, states;
  hri_real w, moment, gradient;
  bool split, copy; /* bf16 weights are in two halves; fp32 ones have an fp16 copy */
} variant;

static void variant_get(int index, variant *out) {
  *out = (variant){.optimizer = single[index / TYPES],
                   .w = index % 4 == 1 || index % 4 == 2 ? HRI_REAL_BF16 : HRI_REAL_F32,
                   .split = index % 4 == 1,
                   .copy = index % 4 == 3,
                   .gradient = index / 4 % 2 && index % 2 == 0 ? HRI_REAL_BF16 : HRI_REAL_F32,
                   .moment = index / 8 % 2 ? HRI_REAL_BF16 : HRI_REAL_F32};
  out->states = hri_optimizer_get(out->optimizer)->tensor_count;
  assert_true(out->states <= STATES && !hri_state_apart(out->optimizer));
}

typedef struct arrays {
  void *w, *state[STATES];
  uint16_t *beside; /* low halves, a copy */
  void *g;
} arrays;

static float weight_at(const variant *t, const arrays *a, int64_t i) {
  return t->split ? hri_join(((const hri_bf16 *)a->w)[i], a->beside[i]) : get(a->w, i, t->w);
}

/* The first of them have values that bf16 holds, so that a variant and its fp32 counterpart start from the same. Squares
 * are positive. */
static arrays make_some(const variant *t, int64_t n, int64_t drawn_count) {
  arrays a = {take(n, t->w), {take(n, t->moment), take(n, t->moment)}, take(n, HRI_REAL_BF16), take(n, t->gradient)};
  for (int64_t i = 0; i < drawn_count; i++) {
    put(a.w, i, t->w, drawn(1, i, -2, 2));
    put(a.g, i, t->gradient, drawn(4, i, -1, 1));
  }
  for (uint32_t k = 0; k < t->states; k++) {
    bool squares = strstr(hri_optimizer_get(t->optimizer)->tensors[k].name, "_sq") != NULL;
    for (int64_t i = 0; i < drawn_count; i++)
      put(a.state[k], i, t->moment, squares ? drawn(3, i, 0.001, 0.01) : drawn(2, i, -0.1, 0.1));
  }
  return a;
}
static arrays make(const variant *t, int64_t n) { return make_some(t, n, n); }

static const hri_update_numbers numbers = {.number = {0.9, 0.999, 1e-8},
                                           .learning_rate = 0.02,
                                           .weight_decay = 0.1,
                                           .gradient_scale = 0.5,
                                           .t = 7};
static const hri_rounding rounding = {.seed = 99, .step = 7, .site = 12};

static void step(const hri_cpu_kernels *k, const variant *t, const arrays *a, int64_t begin, int64_t n, int threads) {
  hri_update_args u = {.n = n,
                       .w = hri_real_at(a->w, begin, t->w),
                       .w_real = t->w,
                       .low = t->split ? a->beside + begin : NULL,
                       .copy = t->copy ? a->beside + begin : NULL,
                       .state_real = t->moment,
                       .g = hri_real_from(a->g, begin, t->gradient),
                       .gradient_real = t->gradient,
                       .rounding = rounding,
                       .first_element = begin,
                       .team = team_of(threads)};
  for (uint32_t s = 0; s < t->states; s++) u.state[s] = hri_real_at(a->state[s], begin, t->moment);
  k->update[t->optimizer](&u, &numbers);
}

static void hold_rounded(const void *got, hri_real real, const float *plain, hri_rounded array, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    float want = real == HRI_REAL_BF16
                     ? hri_bf16_widen(hri_bf16_round_random(plain[i], hri_rounding_bits(&rounding, array, i)))
                     : plain[i];
    float is = get(got, i, real);
    assert_memory_equal(&is, &want, sizeof want);
  }
}

static void each_variant_is_the_fp32_step_rounded(void **state) {
  static const int64_t sizes[] = {1, 15, 64, 1001, 20000};
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (int c = 0; c < VARIANTS * 5; c++) {
      variant t, plain;
      int64_t n = sizes[c / VARIANTS];
      arrays a, b;
      variant_get(c % VARIANTS, &t);
      plain = (variant){.optimizer = t.optimizer, .states = t.states};
      a = make(&t, n), b = make(&plain, n);
      for (int64_t i = 0; t.split && i < n; i++) {
        a.beside[i] = (uint16_t)(i * 40503 % 65521);
        ((float *)b.w)[i] = weight_at(&t, &a, i);
      }
      step(&isas[s].kernels, &t, &a, 0, n, 1 + c % 4);
      step(&isas[s].kernels, &plain, &b, 0, n, 1);
      if (!t.split) hold_rounded(a.w, t.w, b.w, HRI_ROUNDED_WEIGHT, n);
      for (int64_t i = 0; t.split && i < n; i++) {
        uint16_t low;
        assert_int_equal(((const hri_bf16 *)a.w)[i], hri_split(((const float *)b.w)[i], &low));
        assert_int_equal(a.beside[i], low);
      }
      for (uint32_t k = 0; k < t.states; k++)
        hold_rounded(a.state[k], t.moment, b.state[k], (hri_rounded)(HRI_ROUNDED_FIRST + k), n);
      for (int64_t i = 0; t.copy && i < n; i++) assert_int_equal(a.beside[i], hri_f16_round(((float *)b.w)[i]));
      assert_true(t.copy || t.split || a.beside[0] == 0);
      release(NULL);
    }
}

/* fp32 arithmetic: 8 roundings at most of values not above `size`; bf16: one more, by less than a unit of its last
 * place, which is 2^-7 of the value at most. */
static void hold_near(const void *got, hri_real real, const double *want, double size, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    assert_true(fabs((double)get(got, i, real) - want[i]) <=
                8 * 0x1p-24 * (size + fabs(want[i])) + (real == HRI_REAL_BF16 ? 0x1p-7 * fabs(want[i]) : 0.0));
}

static void each_variant_is_near_the_double_reference(void **state) {
  enum { N = 3001 };
  static double w[N], first[N], second[N], g[N];
  static float after[N];
  double *const states[STATES] = {first, second};
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (int c = 0; c < VARIANTS; c++) {
      variant t;
      arrays a;
      variant_get(c, &t);
      a = make(&t, N);
      for (int64_t i = 0; i < N; i++) w[i] = get(a.w, i, t.w), g[i] = get(a.g, i, t.gradient);
      for (uint32_t k = 0; k < t.states; k++)
        for (int64_t i = 0; i < N; i++) states[k][i] = get(a.state[k], i, t.moment);
      step(&isas[s].kernels, &t, &a, 0, N, 2);
      hri_ref_update(t.optimizer, w, states, g, N, &numbers);
      for (int64_t i = 0; t.split && i < N; i++) after[i] = weight_at(&t, &a, i);
      if (t.split) hold_near(after, HRI_REAL_F32, w, 4.0, N);
      else hold_near(a.w, t.w, w, 4.0, N);
      for (uint32_t k = 0; k < t.states; k++) hold_near(a.state[k], t.moment, states[k], k ? 0.25 : 1.0, N);
      release(NULL);
    }
}

static void teams_and_slices_do_not_show(void **state) {
  enum { N = 40003 };
  static const int64_t cuts[] = {0, 1, 64, 129, 8192, 20011, 20012, N};
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (int c = 0; c < VARIANTS; c++)
      for (int way = 2; way <= 5; way++) { /* teams of 2, 3, 4; slices */
        variant t;
        arrays a, b;
        variant_get(c, &t);
        a = make(&t, N), b = make(&t, N);
        step(&isas[s].kernels, &t, &a, 0, N, 1);
        if (way < 5) step(&isas[s].kernels, &t, &b, 0, N, way);
        for (int k = 0; way == 5 && k < 7; k++) step(&isas[s].kernels, &t, &b, cuts[k], cuts[k + 1] - cuts[k], 2);
        assert_same(a.w, b.w, N, t.w);
        for (uint32_t k = 0; k < STATES; k++) assert_same(a.state[k], b.state[k], N, t.moment);
        assert_same(a.beside, b.beside, N, HRI_REAL_BF16);
        release(NULL);
      }
}

/* x[n], of which the first `count` are given, over and over. */
static void repeat(void *x, int64_t count, int64_t n, hri_real real) {
  for (int64_t at = count; at < n; at += count)
    memcpy(hri_real_at(x, at, real), x, (size_t)(n - at < count ? n - at : count) * hri_real_bytes(real));
}

/* A large weight's copy goes past the caches where its address allows that: it is the rounded weight all the same, of all
 * threads, and nothing beside it is written. */
static void large_copies_are_the_rounded_weights(void **state) {
  enum { N = 300007, PERIOD = 4099, LINE = 32, OUTSIDE = 2 * LINE };
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (int c = 0; c < VARIANTS; c++)
      for (int begin = LINE - 1; begin <= LINE && c % TYPES < 4; begin++) { /* on a line of the cache, and beside one */
        variant t;
        arrays a;
        variant_get(c, &t);
        if (!t.copy) continue;
        a = make_some(&t, N + OUTSIDE, PERIOD);
        repeat(a.w, PERIOD, N + OUTSIDE, t.w), repeat(a.g, PERIOD, N + OUTSIDE, t.gradient);
        for (uint32_t k = 0; k < t.states; k++) repeat(a.state[k], PERIOD, N + OUTSIDE, t.moment);
        assert_int_equal((uintptr_t)(a.beside + begin) % 64 == 0, begin == LINE - 1);
        step(&isas[s].kernels, &t, &a, begin, N, 1 + c % 4);
        for (int64_t i = 0; i < N + OUTSIDE; i++)
          assert_int_equal(a.beside[i], i < begin || i >= begin + N ? 0 : hri_f16_round(((const float *)a.w)[i]));
        release(NULL);
      }
}

static void nan_and_infinite_gradients_show(void **state) {
  enum { N = 100, BAD = 37, INFINITE = 99 };
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (int c = 0; c < VARIANTS; c++) {
      variant t;
      arrays a;
      variant_get(c, &t);
      a = make(&t, N);
      if (t.gradient == HRI_REAL_BF16) ((hri_bf16 *)a.g)[BAD] = 0xFFFF; /* as poisoned memory holds it */
      else memset((float *)a.g + BAD, 0xFF, sizeof(float));
      put(a.g, INFINITE, t.gradient, INFINITY);
      step(&isas[s].kernels, &t, &a, 0, N, 1);
      for (int64_t i = 0; i < N; i++) {
        bool bad = i == BAD || i == INFINITE, bad_weight = bad;
        if (t.optimizer == HR_OPTIMIZER_LION && i == INFINITE) bad_weight = false; /* whose sign is taken */
        assert_int_equal(isfinite(get(a.w, i, t.w)) == 0, bad_weight);
        for (uint32_t k = 0; k < t.states; k++) assert_int_equal(isfinite(get(a.state[k], i, t.moment)) == 0, bad);
        if (t.copy) assert_int_equal(isfinite(get(a.beside, i, HRI_REAL_F16)) == 0, bad_weight);
        if (t.split) assert_int_equal(isfinite(weight_at(&t, &a, i)) == 0, bad_weight);
      }
      assert_true(isnan(get(a.w, BAD, t.w)));
      release(NULL);
    }
}

static void square_sum_of_bf16_is_that_of_the_same_fp32(void **state) {
  int64_t n = 2 * HRI_SQUARE_SUM_BLOCK + 45;
  float *wide = take(n, HRI_REAL_F32);
  hri_bf16 *half = take(n, HRI_REAL_BF16);
  (void)state;
  for (int64_t i = 0; i < n; i++) wide[i] = drawn(9, i, -3, 3), half[i] = hri_bf16_round(wide[i]);
  for (int s = 0; s < isa_count; s++)
    for (int threads = 1; threads <= 4; threads++) {
      double a[3], b[3];
      isas[s].kernels.square_sum(a, wide, HRI_REAL_F32, n, NULL);
      isas[s].kernels.square_sum(b, half, HRI_REAL_BF16, n, team_of(threads));
      assert_memory_equal(a, b, sizeof a);
      half[n - 1] = 0x7FC0;
      isas[s].kernels.square_sum(b, half, HRI_REAL_BF16, n, team_of(threads));
      assert_true(isfinite(b[1]) && isnan(b[2]));
      half[n - 1] = hri_bf16_round(wide[n - 1]);
    }
}

/* NaN (of either sign, quiet or not) and infinity in any place of arrays of any length around the widths of vectors,
 * their unrolled loops and the rest behind them: the sum is not finite. The largest finite values everywhere: it is. */
static void square_sum_shows_one_bad_value_anywhere(void **state) {
  static const uint32_t bad[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F810000, 0x7FFFFFFF};
  enum { N = 150 };
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (hri_real real = HRI_REAL_F32; real <= HRI_REAL_BF16; real++)
      for (int64_t n = 1; n <= N; n += n < 70 ? 1 : 7) {
        void *g = take(n, real);
        double sum;
        for (int64_t i = 0; i < n; i++) put(g, i, real, from_bits(0x7F7F0000)); /* bf16's largest */
        isas[s].kernels.square_sum(&sum, g, real, n, NULL);
        assert_true(isfinite(sum) && sum > 1e76);
        for (int64_t i = 0; i < n; i++)
          for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            put(g, i, real, from_bits(bad[b]));
            isas[s].kernels.square_sum(&sum, g, real, n, NULL);
            if (isfinite(sum) || isfinite(isas[s].kernels.partial_sum((double[]){1, sum, 2}, 3)))
              fail_msg("%s, %s: %08x at %lld of %lld does not show", isas[s].name,
                       real == HRI_REAL_BF16 ? "bf16" : "fp32", bad[b], (long long)i, (long long)n);
            put(g, i, real, 1);
          }
        release(NULL);
      }
}

#define TEST(name) cmocka_unit_test_teardown(name, release)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(rounding_has_the_bits_of_its_definition),
      TEST(scalar_rounding_keeps_what_bf16_holds),
      TEST(rounding_is_unbiased),
      TEST(arrangements_are_uniform_and_pairwise_nearly_independent),
      TEST(a_second_moment_falls),
      TEST(none_is_forgotten),
      TEST(each_variant_is_the_fp32_step_rounded),
      TEST(each_variant_is_near_the_double_reference),
      TEST(teams_and_slices_do_not_show),
      TEST(large_copies_are_the_rounded_weights),
      TEST(nan_and_infinite_gradients_show),
      TEST(square_sum_of_bf16_is_that_of_the_same_fp32),
      TEST(square_sum_shows_one_bad_value_anywhere),
  };
  return cmocka_run_group_tests_name("optim_bf16", tests, setup_isas, NULL);
}
