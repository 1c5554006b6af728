/* Alternatives of a job, offered where it does not fit (hr_plan_fixes): points of recompute levels x rows per
 * micro-batch (the batch of a step stays the same) x loss chunk, which --auto takes too (auto.c), and changes beside
 * that alter the algorithm (bf16 or fp16, adapters, quantization, another optimizer, ...), which are only offered.
 *
 * They are told by effect class (architecture.md section 3), in a class by seconds per useful token, so that shorter
 * rows are less work and not faster work. What another alternative beats in both bytes and time without changing more
 * of the job's mathematics is not told, nor what changes more of it for next to nothing. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/field.h>

#include "base/mem.h"
#include "job/job.h"
#include "search/search.h"

/* One alternative: a draft, or, where levels were to be chosen, the finished plan's numbers alone. */
typedef struct candidate {
  hr_job job;
  hr_plan *draft;      /* NULL when the numbers are final */
  uint64_t need_bytes; /* at least, as long as there is a draft */
  double step_seconds;
  bool fits; /* perhaps, as long as there is a draft */
} candidate;

static void drop(candidate *c) {
  hr_plan_destroy(c->draft);
  c->draft = NULL;
}

static void read_numbers(candidate *c, const hr_plan *plan) {
  c->need_bytes = hri_plan_need(plan);
  c->step_seconds = plan->info.step_seconds;
  c->fits = plan->info.fits;
}

static void take_choice(candidate *c, const hri_choice *choice) {
  c->job.recompute = choice->recompute;
  c->need_bytes = choice->need_bytes;
  c->step_seconds = choice->step_seconds;
  c->fits = choice->fits;
}

/* A fix with what it changes of the mathematics. */
typedef struct offer {
  hr_fix fix;
  unsigned algorithm;
} offer;

typedef struct search {
  const hr_job *base;
  const hr_job
      *said;     /* the base with what is the planner's to choose still open, for what is chosen now is in each text */
  hr_plan *plan; /* of the base; lends its backend to all others */
  HRI_ARRAY(offer) found;
  double best_single[2]; /* fastest single change that fits per token, of class 0 or 1 and of class 3; < 0 none */
  uint64_t need;         /* of the base */
  uint64_t allowance;    /* of all levels that are chosen */
} search;

/* HR_OK with *made false when the change does not apply. Levels that are to be chosen are. */
static hr_status draft(search *s, const hri_change *change, candidate *c, bool *made, hr_error *error) {
  hr_status status;
  *made = false;
  c->draft = NULL;
  c->job = *s->base;
  if (!hri_change_apply(change, &c->job)) return HR_OK;
  if (c->job.recompute.kind == HR_RECOMPUTE_AUTO && c->job.purpose == HR_PURPOSE_TRAIN) {
    const hri_rival nobody = hri_nobody(&s->allowance);
    hri_choice choice;
    status = hri_choose_levels(&c->job, s->plan, &nobody, &choice, NULL, error);
    if (status == HR_OK) take_choice(c, &choice);
  } else {
    status = hri_plan_draft(&c->job, s->plan, &c->draft, error);
    if (status == HR_OK) read_numbers(c, c->draft);
  }
  if (status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL) return status;
  *made = status == HR_OK;
  return HR_OK;
}

/* From bounds to what a run would reserve. */
static hr_status place(candidate *c, hr_error *error) {
  hr_status status;
  if (!c->draft) return HR_OK;
  status = hri_plan_place(c->draft, error);
  if (status == HR_OK) read_numbers(c, c->draft);
  drop(c);
  return status;
}

/* ---- fixes ---- */

static const hri_levels fixed_levels[] = {HRI_LEVELS_SELECTIVE, HRI_LEVELS_MLP, HRI_LEVELS_ATTENTION, HRI_LEVELS_BLOCK,
                                          HRI_LEVELS_SQRT};
enum { FIXED_LEVELS = sizeof fixed_levels / sizeof *fixed_levels, SPLITS = 12 };

static double per_token(const candidate *c) { return c->step_seconds / (double)hri_job_tokens(&c->job); }

static int compare_offers(const void *a, const void *b) {
  const hr_fix *x = &((const offer *)a)->fix, *y = &((const offer *)b)->fix;
  if (x->fits != y->fits) return x->fits ? -1 : 1;
  if (x->fits && x->effect_class != y->effect_class) return x->effect_class < y->effect_class ? -1 : 1;
  if (x->fits && x->token_seconds != y->token_seconds) return x->token_seconds < y->token_seconds ? -1 : 1;
  if (x->need_bytes != y->need_bytes) return x->need_bytes < y->need_bytes ? -1 : 1;
  return strcmp(x->options, y->options);
}

/* Whether `a` leaves nothing to say for `b`, which stands behind it or before it. */
static bool beats(const offer *a, const offer *b) {
  const hr_fix *x = &a->fix, *y = &b->fix;
  const bool alters = y->changes_algorithm && (x->effect_class < y->effect_class || (b->algorithm & ~a->algorithm));
  const double margin = x->fits && alters ? 1 - HRI_WORTH_CHANGING : 1;
  if (x->fits != y->fits || x->effect_class > y->effect_class || (a->algorithm & ~b->algorithm)) return false;
  return (double)x->need_bytes * margin <= (double)y->need_bytes && x->token_seconds * margin <= y->token_seconds;
}

/* What of a change makes another training. An update in the backward does not where nothing waits for all gradients. */
static unsigned altering(const search *s, const hri_change *change) {
  const bool waits = s->base->clip > 0 || hri_job_skips(s->base);
  return waits ? change->algorithm : change->algorithm & ~(unsigned)HRI_CHANGE_IN_BACKWARD;
}

static hr_status keep(search *s, const hri_change *change, const candidate *c, hr_error *error) {
  const hr_effect effect = hr_job_effect(s->base, &c->job);
  offer o = {.fix = {.fits = c->fits,
                     .changes_algorithm = effect > HR_EFFECT_ROUNDING,
                     .effect_class = (uint32_t)effect,
                     .need_bytes = c->need_bytes,
                     .step_seconds = c->step_seconds,
                     .token_seconds = per_token(c),
                     .job = c->job},
             .algorithm = altering(s, change)};
  if (!hri_change_text(change, s->said, &c->job, o.fix.options)) return HR_OK; /* nobody could plan it again */
  return hri_array_push(&s->found, o) ? HR_OK : hri_fail_memory(error, sizeof o, "the search");
}

/* Sorted; of those that are equal in all that counts the first stays. */
static void keep_front(search *s) {
  offer *o = s->found.items;
  size_t kept = 0;
  if (s->found.count) qsort(o, s->found.count, sizeof *o, compare_offers);
  for (size_t k = 0; k < s->found.count; k++) {
    bool beaten = false;
    for (size_t other = 0; other < kept && !beaten; other++) beaten = beats(&o[other], &o[k]);
    for (size_t other = k + 1; other < s->found.count && !beaten; other++)
      beaten = beats(&o[other], &o[k]) && !beats(&o[k], &o[other]);
    if (!beaten) o[kept++] = o[k];
  }
  s->found.count = kept;
}

/* Combinations that are told however fast their parts are: nothing else trains all weights in so few bytes. */
static bool well_known(const hri_change *c) {
  return c->levels == HRI_LEVELS_BLOCK && c->split <= 1 && !c->chunk && c->algorithm == HRI_CHANGE_IN_BACKWARD;
}

/* Whether a fix is worth telling: it saves bytes, a combination earns its place by being faster than any of its kind's
 * single changes that fit, and another algorithm is not offered twice where none is needed. Asked of drafts first: what
 * a bound fails, the placed bytes fail too. */
static bool worth(const search *s, const hri_change *change, const candidate *c) {
  const bool alters = altering(s, change) != 0;
  const double single = s->best_single[alters];
  if (c->need_bytes >= s->need) return false;
  if (hri_change_parts(change) == 1 || well_known(change)) return true;
  if (single >= 0 && !(c->fits && per_token(c) < single)) return false;
  return !(alters && s->best_single[0] >= 0);
}

static hr_status add(search *s, hri_change change, hr_error *error) {
  const bool alters = altering(s, &change) != 0;
  double *single = &s->best_single[alters];
  candidate c;
  hr_status status = HR_OK;
  bool made;
  if (alters && hri_change_parts(&change) > 1 && s->best_single[0] >= 0 && !well_known(&change))
    return HR_OK; /* not worth a draft */
  HRI_TRY(draft(s, &change, &c, &made, error));
  if (made && worth(s, &change, &c)) status = place(&c, error);
  else made = false;
  drop(&c);
  if (status != HR_OK || !made || !worth(s, &change, &c)) return status;
  if (c.fits && hri_change_parts(&change) == 1 && (*single < 0 || per_token(&c) < *single)) *single = per_token(&c);
  return keep(s, &change, &c, error);
}

/* Levels chosen for each layer take some twenty drafts; they are offered where they are faster than what is there
 * already, or smaller where nothing fits. */
static hr_status add_chosen_levels(search *s, hri_change change, hr_error *error) {
  candidate c;
  bool made;
  change.levels = HRI_LEVELS_AUTO;
  HRI_TRY(draft(s, &change, &c, &made, error));
  if (!made || c.need_bytes >= s->need) return HR_OK;
  for (size_t k = 0; k < s->found.count; k++) {
    const hr_fix *other = &s->found.items[k].fix;
    if (other->changes_algorithm || other->fits < c.fits) continue;
    if (other->fits > c.fits || (c.fits ? other->token_seconds <= per_token(&c) : other->need_bytes <= c.need_bytes))
      return HR_OK;
  }
  if (c.fits) s->best_single[0] = per_token(&c);
  return keep(s, &change, &c, error);
}

/* Every divisor of the micro-batch, the nearest first. */
static hr_status add_rows_and_chunks(search *s, hr_error *error) {
  static const uint32_t chunks[] = {4096, 2048, 1024, 512};
  uint32_t listed = 0;
  for (uint32_t split = 2; split <= s->base->micro_batch && listed < SPLITS; split++) {
    if (s->base->micro_batch % split) continue;
    listed++;
    HRI_TRY(add(s, (hri_change){.split = split}, error));
  }
  for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++)
    HRI_TRY(add(s, (hri_change){.split = 1, .chunk = chunks[k]}, error));
  return HR_OK;
}

static hr_status add_singles(search *s, hr_error *error) {
  static const unsigned algorithms[] = {HRI_CHANGE_BF16,         HRI_CHANGE_FP16,
                                        HRI_CHANGE_BF16_PURE,    HRI_CHANGE_BF16_PURE | HRI_CHANGE_MOMENTS,
                                        HRI_CHANGE_MOMENTS,      HRI_CHANGE_IN_BACKWARD,
                                        HRI_CHANGE_8BIT,         HRI_CHANGE_ADAFACTOR,
                                        HRI_CHANGE_MOMENTUM,     HRI_CHANGE_SGD,
                                        HRI_CHANGE_HALF_SEQUENCE};
  for (size_t k = 0; k < FIXED_LEVELS; k++) HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1}, error));
  HRI_TRY(add_chosen_levels(s, (hri_change){.split = 1}, error));
  HRI_TRY(add_rows_and_chunks(s, error));
  for (size_t k = 0; k < sizeof algorithms / sizeof *algorithms; k++)
    HRI_TRY(add(s, (hri_change){.split = 1, .algorithm = algorithms[k]}, error));
  return HR_OK;
}

static hr_status add_combinations(search *s, hr_error *error) {
  const unsigned sgd_in_backward = HRI_CHANGE_SGD | HRI_CHANGE_IN_BACKWARD;
  const uint32_t rows = s->base->micro_batch, smallest = rows; /* one row at a time */
  for (size_t k = 0; k < FIXED_LEVELS; k++) {
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1, .chunk = 1024}, error));
    if (smallest > 1) HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = smallest}, error));
    if (smallest > 2 && rows % 2 == 0)
      HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = smallest / 2}, error));
  }
  for (size_t k = 0; k < FIXED_LEVELS; k++) {
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1, .algorithm = HRI_CHANGE_IN_BACKWARD}, error));
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = smallest, .algorithm = HRI_CHANGE_SGD}, error));
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1, .algorithm = sgd_in_backward}, error));
  }
  HRI_TRY(add(s, (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = HRI_CHANGE_8BIT}, error));
  HRI_TRY(add(s, (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = HRI_CHANGE_ADAFACTOR}, error));
  HRI_TRY(add(s,
              (hri_change){.levels = HRI_LEVELS_BLOCK,
                           .split = 1,
                           .algorithm = HRI_CHANGE_8BIT | HRI_CHANGE_BF16_PURE | HRI_CHANGE_IN_BACKWARD},
              error));
  if (s->best_single[0] < 0) {
    HRI_TRY(add_chosen_levels(s, (hri_change){.split = 1, .chunk = 1024}, error));
    if (smallest > 1) HRI_TRY(add_chosen_levels(s, (hri_change){.split = smallest}, error));
  }
  HRI_TRY(add(s, (hri_change){.split = 1, .algorithm = sgd_in_backward}, error));
  HRI_TRY(
      add(s,
          (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = sgd_in_backward | HRI_CHANGE_HALF_SEQUENCE},
          error));
  HRI_TRY(add(s,
              (hri_change){.levels = HRI_LEVELS_BLOCK,
                           .split = 1,
                           .algorithm = HRI_CHANGE_BF16_PURE | HRI_CHANGE_IN_BACKWARD},
              error));
  HRI_TRY(add(s,
              (hri_change){.levels = HRI_LEVELS_BLOCK,
                           .split = 1,
                           .algorithm = HRI_CHANGE_BF16_PURE | HRI_CHANGE_MOMENTS | HRI_CHANGE_IN_BACKWARD},
              error));
  return add(s,
             (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = HRI_CHANGE_BF16_PURE | sgd_in_backward},
             error);
}

/* Adapters and quantized weights, alone and with what makes them smallest. A job that has adapters is offered the
 * quantization of what they leave alone. */
static hr_status add_frozen(search *s, hr_error *error) {
  static const unsigned ways[] = {HRI_CHANGE_LORA,
                                  HRI_CHANGE_LORA | HRI_CHANGE_NF4,
                                  HRI_CHANGE_LORA | HRI_CHANGE_INT8,
                                  HRI_CHANGE_LORA | HRI_CHANGE_KEEP,
                                  HRI_CHANGE_NF4,
                                  HRI_CHANGE_INT8,
                                  HRI_CHANGE_KEEP};
  enum { WAYS = sizeof ways / sizeof *ways };
  const bool train = s->base->purpose == HR_PURPOSE_TRAIN;
  for (size_t k = 0; k < WAYS; k++) HRI_TRY(add(s, (hri_change){.split = 1, .algorithm = ways[k]}, error));
  for (size_t k = 0; k < WAYS; k++) {
    const unsigned narrow = ways[k] | hri_change_narrow(s->base);
    HRI_TRY(add(s, (hri_change){.split = 1, .algorithm = narrow}, error));
    if (!train) continue;
    HRI_TRY(add(s, (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = ways[k]}, error));
    HRI_TRY(add(s, (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = narrow}, error));
  }
  return HR_OK;
}

/* A job as a person asked for it, as far as options say so. */
static void open_choices(hr_job *job) {
  if (job->levels_chosen) job->recompute.kind = HR_RECOMPUTE_AUTO;
  if (job->rows_choice == HR_ROWS_CHOSEN && !job->automatic) job->micro_batch = HR_MICRO_BATCH_AUTO;
}

hr_status hr_plan_fixes(const hr_job *job, hr_fix *fixes, uint32_t *count, hr_error *error) {
  hr_job base = *job, said = *job;
  search s = {.base = &base, .said = &said, .best_single = {-1, -1}, .allowance = HRI_ALLOWANCE};
  hr_status status;
  *count = 0;
  HRI_TRY(hri_job_finished(job, error));
  if (base.recompute.kind == HR_RECOMPUTE_AUTO && base.purpose == HR_PURPOSE_TRAIN) {
    const hri_rival nobody = hri_nobody(&s.allowance);
    hri_choice choice;
    HRI_TRY(hri_choose_levels(&base, NULL, &nobody, &choice, NULL, error));
    base.recompute = choice.recompute;
  }
  open_choices(&said);
  HRI_TRY(hri_plan_draft(&base, NULL, &s.plan, error));
  hri_mem_keep(true);
  HRI_TRY_OUT(hri_plan_place(s.plan, error));
  s.need = hri_plan_need(s.plan);
  if (job->purpose == HR_PURPOSE_TRAIN) {
    HRI_TRY_OUT(add_singles(&s, error));
    HRI_TRY_OUT(add_combinations(&s, error));
  } else {
    if (job->purpose == HR_PURPOSE_EVALUATE) HRI_TRY_OUT(add_rows_and_chunks(&s, error));
    HRI_TRY_OUT(add(&s, (hri_change){.split = 1, .algorithm = hri_change_narrow(&base)}, error));
  }
  HRI_TRY_OUT(add_frozen(&s, error));
  keep_front(&s);
  assert(s.found.count <= HR_MAX_FIXES); /* which is more than all changes that are tried */
  for (; *count < s.found.count && *count < HR_MAX_FIXES; ++*count) fixes[*count] = s.found.items[*count].fix;
out:
  hr_plan_destroy(s.plan);
  hri_array_free(&s.found);
  hri_mem_keep(false);
  return status;
}
