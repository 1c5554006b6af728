/* The next token out of logits, as transformers draws it (GenerationMixin: processors, then warpers): a penalty on what
 * occurred, then temperature, top-k, top-p and min-p, each among what the one before left, and a draw among the rest.
 * The draw is a function of seed and index alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "train/session.h"

typedef struct candidate {
  float logit;
  int32_t token;
} candidate;

static int more_likely(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->token < y->token ? -1 : 1;
}

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
  candidate *list;
  uint64_t kept, best = 0;
  double sum, limit, drawn = 0;
  uint32_t word[4];
  for (uint64_t v = 0; v < vocabulary; v++) {
    if (isnan(logits[v]) || logits[v] == INFINITY) return not_finite(v, logits[v], error);
    if (logits[v] > logits[best]) best = v;
  }
  *token = (int32_t)best;
  if (!(s->temperature > 0) && !penalizes(s)) return HR_OK;
  list = hri_alloc(vocabulary * sizeof *list);
  if (!list) return hri_fail_memory(error, vocabulary * sizeof *list, "sampling");
  for (uint64_t v = 0; v < vocabulary; v++) list[v] = (candidate){logits[v], (int32_t)v};
  penalize(s, logits, list);
  for (uint64_t v = best = 0; v < vocabulary; v++)
    if (list[v].logit > list[best].logit) best = v;
  *token = (int32_t)best;
  if (s->temperature > 0) {
    qsort(list, vocabulary, sizeof *list, more_likely);
    kept = keep(s, list, vocabulary, &sum);
    hri_philox(s->seed, 0x53414D504C45u, index, word);
    limit = hri_uniform(word[0], word[1]) * sum;
    for (uint64_t k = 0; k < kept && drawn <= limit; k++) {
      *token = list[k].token;
      drawn += weight(s, list, k);
    }
  }
  hri_free(list);
  return HR_OK;
}
