/* The next token out of logits, as transformers draws it (GenerationMixin: processors, then warpers): a penalty on what
 * occurred, then temperature, top-k, top-p and min-p, each among what the one before left, and a draw among the rest.
 * The draw is a function of seed and index alone. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "train/session.h"

typedef struct candidate {
  float logit;
  int32_t token;
} candidate;

/* ---- the most likely first ----
 *
 * By radix, in three passes over parts of the logit's bits: vocabularies have 150,000 entries and more, and a sort by
 * comparisons takes 60 ms for those, as long as a small model's step does. Passes are stable, and the list comes in the
 * order of its tokens, so equal ones stay in that order. */

enum { PASSES = 3, PART_BITS = 11, PARTS = 1 << PART_BITS };

/* Numbers whose order is that of the logits backwards; -0 is 0. */
static uint32_t rank_of(float logit) {
  uint32_t bits;
  logit += 0.0f;
  memcpy(&bits, &logit, sizeof bits);
  return bits & UINT32_C(1) << 31 ? bits : ~(bits | UINT32_C(1) << 31);
}

static uint32_t part_of(const candidate *c, int pass) { return rank_of(c->logit) >> pass * PART_BITS & (PARTS - 1); }

/* `list` has room for twice as many; the sorted ones stand in the returned half of it. */
static candidate *sort(candidate *list, uint64_t count) {
  candidate *from = list, *to = list + count, *swap;
  for (int pass = 0; pass < PASSES; pass++) {
    uint64_t begin[PARTS] = {0}, sum = 0;
    for (uint64_t k = 0; k < count; k++) begin[part_of(&from[k], pass)]++;
    for (uint32_t part = 0; part < PARTS; part++) {
      const uint64_t size = begin[part];
      begin[part] = sum;
      sum += size;
    }
    for (uint64_t k = 0; k < count; k++) to[begin[part_of(&from[k], pass)]++] = from[k];
    swap = from;
    from = to;
    to = swap;
  }
  return from;
}

/* ---- what stays ---- */

static bool penalizes(const hri_sampler *s) { return s->repetition_penalty > 0 && s->repetition_penalty != 1; }

/* From the logits as they were, so that a token that occurred often is changed once. */
static void penalize(const hri_sampler *s, const float *logits, candidate *list) {
  float penalty = (float)s->repetition_penalty;
  for (uint64_t k = 0; penalizes(s) && k < s->seen_count; k++) {
    float logit = logits[s->seen[k]];
    list[s->seen[k]].logit = logit < 0 ? logit * penalty : logit / penalty;
  }
}

/* Relative to the most likely token, which stands first. */
static double weight(const hri_sampler *s, const candidate *list, uint64_t k) {
  return exp(((double)list[k].logit - list[0].logit) / s->temperature);
}

/* How many of the sorted candidates stay, and the sum of their weights. */
static uint64_t keep(const hri_sampler *s, const candidate *list, uint64_t count, double *sum) {
  uint64_t kept = s->top_k && s->top_k < count ? s->top_k : count;
  *sum = 0;
  for (uint64_t k = 0; k < kept; k++) *sum += weight(s, list, k);
  if (s->top_p < 1) { /* the smallest set whose probability reaches top_p */
    double part = 0;
    uint64_t k = 0;
    while (k < kept && part < s->top_p * *sum) part += weight(s, list, k++);
    kept = k ? k : 1;
    *sum = part;
  }
  while (kept > 1 && weight(s, list, kept - 1) < s->min_p) *sum -= weight(s, list, --kept);
  return kept;
}

/* What a comparison has no order for, and nothing could be drawn by. */
static hr_status not_finite(uint64_t token, float logit, hr_error *error) {
  hri_fail(error, HR_ERROR_DIVERGED, "the model's score of token %llu is %g: no token can be chosen by it",
           (unsigned long long)token, (double)logit);
  return hri_hint(
      error, HR_ERROR_DIVERGED,
      "the weights or an adapter make numbers that --precision does not hold: fp32 and bf16 reach farthest");
}

hr_status hri_sample(const hri_sampler *s, const float *logits, uint64_t vocabulary, uint64_t index, int32_t *token,
                     hr_error *error) {
  candidate *list, *sorted;
  uint64_t kept, best = 0;
  double sum, limit, drawn = 0;
  uint32_t word[4];
  for (uint64_t v = 0; v < vocabulary; v++) {
    if (isnan(logits[v]) || logits[v] == INFINITY) return not_finite(v, logits[v], error);
    if (logits[v] > logits[best]) best = v;
  }
  *token = (int32_t)best;
  if (!(s->temperature > 0) && !penalizes(s)) return HR_OK;
  list = hri_alloc(2 * vocabulary * sizeof *list);
  if (!list) return hri_fail_memory(error, 2 * vocabulary * sizeof *list, "sampling");
  for (uint64_t v = 0; v < vocabulary; v++) list[v] = (candidate){logits[v], (int32_t)v};
  penalize(s, logits, list);
  for (uint64_t v = best = 0; v < vocabulary; v++)
    if (list[v].logit > list[best].logit) best = v;
  *token = (int32_t)best;
  if (s->temperature > 0) {
    sorted = sort(list, vocabulary);
    kept = keep(s, sorted, vocabulary, &sum);
    hri_philox(s->seed, 0x53414D504C45u, index, word);
    limit = hri_uniform(word[0], word[1]) * sum;
    for (uint64_t k = 0; k < kept && drawn <= limit; k++) {
      *token = sorted[k].token;
      drawn += weight(s, sorted, k);
    }
  }
  hri_free(list);
  return HR_OK;
}
