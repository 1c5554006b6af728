/* Sampling (src/train/sample.c): which tokens are left, in transformers' order of penalty, temperature, top-k, top-p and
 * min-p, and how often each is drawn. The expected sets and shares are worked out by hand from five logits 2, 1, 0, -1,
 * -2, whose weights are powers of e. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "train/session.h"

enum { TOKENS = 5, DRAWS = 20000 };

static const float logits[TOKENS] = {2, 1, 0, -1, -2};

static int32_t draw(const hri_sampler *sampler, uint64_t index) {
  int32_t token = -1;
  hr_error error;
  assert_int_equal(hri_sample(sampler, logits, TOKENS, index, &token, &error), HR_OK);
  assert_in_range(token, 0, TOKENS - 1);
  return token;
}

/* Each share within four standard deviations; a share of 0 is never drawn. */
static void shares_are(hri_sampler sampler, const double shares[TOKENS]) {
  uint32_t counts[TOKENS] = {0};
  sampler.seed = 7;
  for (uint64_t k = 0; k < DRAWS; k++) counts[draw(&sampler, k)]++;
  for (int t = 0; t < TOKENS; t++) {
    double mean = shares[t] * DRAWS, deviation = sqrt(mean * (1 - shares[t]));
    if (fabs(counts[t] - mean) > 4 * deviation) fail_msg("token %d was drawn %u times, not %g", t, counts[t], mean);
  }
}

static void each_filter_leaves_its_tokens(void **state) {
  static const struct {
    hri_sampler sampler;
    double weights[TOKENS];
  } cases[] = {
      {{.temperature = 1, .top_p = 1}, {1, 0.36788, 0.13534, 0.04979, 0.01832}},
      {{.temperature = 2, .top_p = 1}, {1, 0.60653, 0.36788, 0.22313, 0.13534}},
      {{.temperature = 1, .top_p = 1, .top_k = 2}, {1, 0.36788, 0, 0, 0}},
      {{.temperature = 1, .top_p = 0.8}, {1, 0.36788, 0, 0, 0}}, /* 0.636 + 0.234 reach it */
      {{.temperature = 1, .top_p = 0.6}, {1, 0, 0, 0, 0}},       /* 0.636 does */
      {{.temperature = 1, .top_p = 1, .min_p = 0.1}, {1, 0.36788, 0.13534, 0, 0}},
      {{.temperature = 1, .top_p = 1, .min_p = 0.2}, {1, 0.36788, 0, 0, 0}},
      {{.temperature = 1, .top_p = 1, .min_p = 1}, {1, 0, 0, 0, 0}},
      /* behind the temperature: before it two tokens would be left */
      {{.temperature = 2, .top_p = 1, .min_p = 0.2}, {1, 0.60653, 0.36788, 0.22313, 0}},
      /* top-p 0.96 of all leaves three (0.957 is not enough: four); of min-p's three it would leave three */
      {{.temperature = 1, .top_p = 0.96, .min_p = 0.04}, {1, 0.36788, 0.13534, 0.04979, 0}},
      {{.temperature = 1, .top_p = 0.9, .top_k = 3, .min_p = 0.2}, {1, 0.36788, 0, 0, 0}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double shares[TOKENS], sum = 0;
    for (int t = 0; t < TOKENS; t++) sum += cases[i].weights[t];
    for (int t = 0; t < TOKENS; t++) shares[t] = cases[i].weights[t] / sum;
    shares_are(cases[i].sampler, shares);
  }
}

/* Scores above 0 are divided, others multiplied, once for each token that occurred, before anything else looks at them. */
static void what_occurred_is_penalized(void **state) {
  static const int32_t first[] = {0}, often[] = {0, 0, 0}, ends[] = {0, 4}, all[] = {0, 1, 2, 3, 4};
  (void)state;
  assert_int_equal(draw(&(hri_sampler){.seen = first, .seen_count = 1}, 0), 0); /* off */
  assert_int_equal(draw(&(hri_sampler){.repetition_penalty = 1, .seen = first, .seen_count = 1}, 0), 0);
  assert_int_equal(draw(&(hri_sampler){.repetition_penalty = 1.9, .seen = first, .seen_count = 1}, 0), 0); /* 1.05 */
  assert_int_equal(draw(&(hri_sampler){.repetition_penalty = 2.1, .seen = first, .seen_count = 1}, 0), 1); /* 0.95 */
  assert_int_equal(draw(&(hri_sampler){.repetition_penalty = 1.9, .seen = often, .seen_count = 3}, 0), 0);
  assert_int_equal(draw(&(hri_sampler){.repetition_penalty = 0.4, .seen = all + 2, .seen_count = 1}, 0),
                   0); /* 0 is 0 */
  assert_int_equal(draw(&(hri_sampler){.repetition_penalty = 0.4, .seen = all + 1, .seen_count = 1}, 0), 1); /* 2.5 */
  /* 1, 1, 0, -1, -4: with top-k 2 the two ones */
  shares_are(
      (hri_sampler){.temperature = 1, .top_p = 1, .top_k = 2, .repetition_penalty = 2, .seen = ends, .seen_count = 2},
      (double[TOKENS]){0.5, 0.5, 0, 0, 0});
  /* 1, 0.5, 0, -2, -4 */
  shares_are(
      (hri_sampler){.temperature = 1, .top_p = 1, .min_p = 0.5, .repetition_penalty = 2, .seen = all, .seen_count = 5},
      (double[TOKENS]){0.62246, 0.37754, 0, 0, 0});
}

static void scores_that_are_not_finite_are_an_error(void **state) {
  const float bad[] = {NAN, INFINITY, -NAN};
  (void)state;
  for (int k = 0; k < 3; k++)
    for (int greedy = 0; greedy < 2; greedy++) {
      float scores[TOKENS] = {1, 2, 0, 0, 0};
      hri_sampler sampler = {.temperature = greedy ? 0 : 1, .top_p = 1};
      hr_error error = {0};
      int32_t token;
      scores[3] = bad[k];
      assert_int_equal(hri_sample(&sampler, scores, TOKENS, 0, &token, &error), HR_ERROR_DIVERGED);
      assert_non_null(strstr(error.message, "token 3"));
      scores[3] = -INFINITY; /* never drawn */
      assert_int_equal(hri_sample(&sampler, scores, TOKENS, 0, &token, &error), HR_OK);
    }
}

static void refused_memory_is_an_error(void **state) {
  hri_sampler sampler = {.temperature = 1, .top_p = 1};
  uint64_t live = hri_mem_live_bytes();
  int32_t token;
  hr_error error;
  (void)state;
  hri_mem_fail_after(1);
  assert_int_equal(hri_sample(&sampler, logits, TOKENS, 0, &token, &error), HR_ERROR_MEMORY);
  hri_mem_fail_after(0);
  assert_int_equal(hri_mem_live_bytes(), live);
}

/* ---- a large vocabulary ---- */

enum { MANY = 5000 };
static float many[MANY];

static int likelier(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  if (many[x] != many[y]) return many[x] > many[y] ? -1 : 1;
  return x < y ? -1 : 1;
}

/* By a sort that compares: the most likely first, of equal ones the first token. */
static int32_t draw_plainly(const hri_sampler *s, uint64_t index) {
  static int32_t order[MANY];
  uint32_t word[4];
  double sum = 0, part = 0, limit;
  int32_t token = -1;
  for (int32_t k = 0; k < MANY; k++) order[k] = k;
  qsort(order, MANY, sizeof *order, likelier);
  for (int k = 0; k < MANY; k++) sum += exp(((double)many[order[k]] - many[order[0]]) / s->temperature);
  hri_philox(s->seed, 0x53414D504C45u, index, word);
  limit = hri_uniform(word[0], word[1]) * sum;
  for (int k = 0; k < MANY && part <= limit; k++) {
    token = order[k];
    part += exp(((double)many[order[k]] - many[order[0]]) / s->temperature);
  }
  return token;
}

static void a_large_vocabulary_is_drawn_from_as_a_small_one(void **state) {
  hri_sampler s = {.temperature = 3, .top_p = 1, .seed = 11};
  hr_error error;
  (void)state;
  for (uint64_t k = 0; k < MANY; k++) { /* many are equal; zeros of both signs are, too */
    float value = (float)hri_normal(3, 0, k);
    many[k] = k % 97 == 0 ? -INFINITY : k % 5 == 0 ? (k % 2 ? 0.0f : -0.0f) : roundf(value * 8) / 8;
  }
  for (uint64_t index = 0; index < 300; index++) {
    int32_t token = -1;
    assert_int_equal(hri_sample(&s, many, MANY, index, &token, &error), HR_OK);
    assert_int_equal(token, draw_plainly(&s, index));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_filter_leaves_its_tokens),
      cmocka_unit_test(what_occurred_is_penalized),
      cmocka_unit_test(a_large_vocabulary_is_drawn_from_as_a_small_one),
      cmocka_unit_test(scores_that_are_not_finite_are_an_error),
      cmocka_unit_test(refused_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
