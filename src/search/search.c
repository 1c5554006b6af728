/* Alternatives of a job: what is offered where it does not fit (hr_plan_fixes), and the grid of --auto. Both are points
 * of recompute levels x rows per micro-batch (the batch of a step stays the same) x loss chunk; the fixes have changes
 * beside that alter the algorithm (bf16 or fp16, adapters, quantization, another optimizer, ...), which are only offered:
 * --auto has no way to them. Effect classes: architecture.md section 3. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
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

/* HR_OK with *made false when the change does not apply. Levels that are to be chosen are. */
static hr_status draft(const hr_job *base, const hri_change *change, const hr_plan *beside, candidate *c, bool *made,
                       hr_error *error) {
  hr_status status;
  *made = false;
  c->draft = NULL;
  c->job = *base;
  if (!hri_change_apply(change, &c->job)) return HR_OK;
  if (c->job.recompute.kind == HR_RECOMPUTE_AUTO && c->job.purpose == HR_PURPOSE_TRAIN) {
    hri_choice choice;
    status = hri_choose_levels(&c->job, beside, &choice, NULL, error);
    if (status == HR_OK) take_choice(c, &choice);
  } else {
    status = hri_plan_draft(&c->job, beside, &c->draft, error);
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
enum { FIXED_LEVELS = sizeof fixed_levels / sizeof *fixed_levels };

/* Time is compared per token: a shorter sequence does less work, not faster work. */
static double seconds_per_token(const hr_fix *f) {
  return f->step_seconds / ((double)f->job.sequence_length * f->job.micro_batch * f->job.accumulate);
}

static int compare_fixes(const void *a, const void *b) {
  const hr_fix *x = a, *y = b;
  if (x->fits != y->fits) return x->fits ? -1 : 1;
  if (x->fits && x->changes_algorithm != y->changes_algorithm) return x->changes_algorithm ? 1 : -1;
  if (x->fits && seconds_per_token(x) != seconds_per_token(y))
    return seconds_per_token(x) < seconds_per_token(y) ? -1 : 1;
  if (x->need_bytes != y->need_bytes) return x->need_bytes < y->need_bytes ? -1 : 1;
  return strcmp(x->options, y->options);
}

typedef struct search {
  const hr_job *base;
  hr_plan *plan; /* of the base; lends its backend to all others */
  HRI_ARRAY(hr_fix) found;
  double best_single[2]; /* fastest single change that fits, of class 0 or 1 and of class 3; < 0 none */
  uint64_t need;         /* of the base */
} search;

static hr_status keep(search *s, const hri_change *change, const candidate *c, hr_error *error) {
  hr_fix fix = {.fits = c->fits,
                .changes_algorithm = change->algorithm != 0,
                .need_bytes = c->need_bytes,
                .step_seconds = c->step_seconds,
                .job = c->job};
  hri_change_text(change, s->base, &c->job, fix.options);
  return hri_array_push(&s->found, fix) ? HR_OK : hri_fail_memory(error, sizeof fix, "the search");
}

/* Whether a fix is worth telling: it saves bytes, a combination earns its place by being faster than any of its kind's
 * single changes that fit, and another algorithm is not offered twice where none is needed. Asked of drafts first: what
 * a bound fails, the placed bytes fail too. */
static bool worth(const search *s, const hri_change *change, const candidate *c) {
  double single = s->best_single[change->algorithm != 0];
  if (c->need_bytes >= s->need) return false;
  if (hri_change_parts(change) == 1) return true;
  if (single >= 0 && !(c->fits && c->step_seconds < single)) return false;
  return !(change->algorithm && s->best_single[0] >= 0);
}

static hr_status add(search *s, hri_change change, hr_error *error) {
  double *single = &s->best_single[change.algorithm != 0];
  candidate c;
  hr_status status = HR_OK;
  bool made;
  if (change.algorithm && hri_change_parts(&change) > 1 && s->best_single[0] >= 0) return HR_OK; /* not worth a draft */
  HRI_TRY(draft(s->base, &change, s->plan, &c, &made, error));
  if (made && worth(s, &change, &c)) status = place(&c, error);
  else made = false;
  drop(&c);
  if (status != HR_OK || !made || !worth(s, &change, &c)) return status;
  if (c.fits && hri_change_parts(&change) == 1 && (*single < 0 || c.step_seconds < *single)) *single = c.step_seconds;
  return keep(s, &change, &c, error);
}

/* Levels chosen for each layer take some twenty drafts; they are offered where they are faster than what is there
 * already, or smaller where nothing fits. */
static hr_status add_chosen_levels(search *s, hri_change change, hr_error *error) {
  candidate c;
  bool made;
  change.levels = HRI_LEVELS_AUTO;
  HRI_TRY(draft(s->base, &change, s->plan, &c, &made, error));
  if (!made || c.need_bytes >= s->need) return HR_OK;
  for (size_t k = 0; k < s->found.count; k++) {
    const hr_fix *other = &s->found.items[k];
    if (other->changes_algorithm || other->fits < c.fits) continue;
    if (other->fits > c.fits || (c.fits ? other->step_seconds <= c.step_seconds : other->need_bytes <= c.need_bytes))
      return HR_OK;
  }
  if (c.fits) s->best_single[0] = c.step_seconds;
  return keep(s, &change, &c, error);
}

static hr_status add_singles(search *s, hr_error *error) {
  static const uint32_t chunks[] = {4096, 2048, 1024, 512};
  static const unsigned algorithms[] = {HRI_CHANGE_BF16,        HRI_CHANGE_FP16,         HRI_CHANGE_BF16_PURE,
                                        HRI_CHANGE_IN_BACKWARD, HRI_CHANGE_8BIT,         HRI_CHANGE_MOMENTUM,
                                        HRI_CHANGE_SGD,         HRI_CHANGE_HALF_SEQUENCE};
  for (size_t k = 0; k < FIXED_LEVELS; k++) HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1}, error));
  HRI_TRY(add_chosen_levels(s, (hri_change){.split = 1}, error));
  for (uint32_t split = 2; split <= s->base->micro_batch; split *= 2)
    HRI_TRY(add(s, (hri_change){.split = split}, error));
  for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++)
    HRI_TRY(add(s, (hri_change){.split = 1, .chunk = chunks[k]}, error));
  for (size_t k = 0; k < sizeof algorithms / sizeof *algorithms; k++)
    HRI_TRY(add(s, (hri_change){.split = 1, .algorithm = algorithms[k]}, error));
  return HR_OK;
}

static hr_status add_combinations(search *s, hr_error *error) {
  const unsigned sgd_in_backward = HRI_CHANGE_SGD | HRI_CHANGE_IN_BACKWARD;
  uint32_t smallest = 1; /* the largest power of two that divides the micro-batch */
  while (s->base->micro_batch % (smallest * 2) == 0) smallest *= 2;
  for (size_t k = 0; k < FIXED_LEVELS; k++) {
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1, .chunk = 1024}, error));
    if (smallest > 1) HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = smallest}, error));
    if (smallest > 2) HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = smallest / 2}, error));
  }
  for (size_t k = 0; k < FIXED_LEVELS; k++) {
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1, .algorithm = HRI_CHANGE_IN_BACKWARD}, error));
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = smallest, .algorithm = HRI_CHANGE_SGD}, error));
    HRI_TRY(add(s, (hri_change){.levels = fixed_levels[k], .split = 1, .algorithm = sgd_in_backward}, error));
  }
  HRI_TRY(add(s, (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = HRI_CHANGE_8BIT}, error));
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
  return add(s,
             (hri_change){.levels = HRI_LEVELS_BLOCK, .split = 1, .algorithm = HRI_CHANGE_BF16_PURE | sgd_in_backward},
             error);
}

/* Adapters and quantized weights, alone and with what makes them smallest. A job that has adapters is offered the
 * quantization of what they leave alone. */
static hr_status add_frozen(search *s, hr_error *error) {
  static const unsigned ways[] = {HRI_CHANGE_LORA, HRI_CHANGE_LORA | HRI_CHANGE_NF4, HRI_CHANGE_LORA | HRI_CHANGE_INT8,
                                  HRI_CHANGE_NF4, HRI_CHANGE_INT8};
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

hr_status hr_plan_fixes(const hr_job *job, hr_fix *fixes, uint32_t *count, hr_error *error) {
  hr_job base = *job;
  search s = {.base = &base, .best_single = {-1, -1}};
  hr_status status;
  *count = 0;
  if (base.recompute.kind == HR_RECOMPUTE_AUTO && base.purpose == HR_PURPOSE_TRAIN) {
    hri_choice choice;
    HRI_TRY(hri_choose_levels(&base, NULL, &choice, NULL, error));
    base.recompute = choice.recompute;
  }
  HRI_TRY(hri_plan_draft(&base, NULL, &s.plan, error));
  hri_mem_keep(true);
  HRI_TRY_OUT(hri_plan_place(s.plan, error));
  s.need = hri_plan_need(s.plan);
  if (job->purpose == HR_PURPOSE_TRAIN) {
    HRI_TRY_OUT(add_singles(&s, error));
    HRI_TRY_OUT(add_combinations(&s, error));
  } else {
    HRI_TRY_OUT(add(&s, (hri_change){.split = 1, .algorithm = hri_change_narrow(&base)}, error));
  }
  HRI_TRY_OUT(add_frozen(&s, error));
  if (s.found.count) {
    qsort(s.found.items, s.found.count, sizeof *s.found.items, compare_fixes);
    *count = (uint32_t)(s.found.count < HR_MAX_FIXES ? s.found.count : HR_MAX_FIXES);
    memcpy(fixes, s.found.items, *count * sizeof *fixes);
  }
out:
  hr_plan_destroy(s.plan);
  hri_array_free(&s.found);
  hri_mem_keep(false);
  return status;
}

/* ---- --auto ---- */

/* Levels for each layer hold the uniform ones among them; sqrt groups layers, which no level does. */
static const hri_levels auto_levels[] = {HRI_LEVELS_KEPT, HRI_LEVELS_AUTO, HRI_LEVELS_SQRT};
enum { AUTO_LEVELS = sizeof auto_levels / sizeof *auto_levels };

/* The grid of --auto: what was given stays. Recomputation only slows a point down, so that one that is slower than the
 * best without it needs no levels. */
static bool allowed(const hr_job *job, hri_levels level, uint32_t split, uint32_t chunked) {
  bool train = job->purpose == HR_PURPOSE_TRAIN;
  if (level != HRI_LEVELS_KEPT && ((job->given & HR_GIVEN_RECOMPUTE) || !train)) return false;
  if (split > 1 && ((job->given & (HR_GIVEN_MICRO_BATCH | HR_GIVEN_ACCUMULATE)) || !train)) return false;
  return !(chunked && (job->given & HR_GIVEN_LOSS_CHUNK));
}

typedef struct grid {
  const hr_job *job;
  hr_plan *lender; /* of its backend */
  bool any;        /* something fits: */
  candidate best;
  double unlevelled[32][2]; /* step_seconds per split and chunk as it is; 0: not planned */
  uint64_t smallest;        /* need of all that was planned while nothing fitted */
  char smallest_options[HR_FIX_TEXT_BYTES];
} grid;

static void take(grid *g, const candidate *c) {
  g->any = true;
  g->best = *c;
}

/* Its placed bytes matter where it would be the best, or the smallest as long as nothing fits. */
static bool decides(const grid *g, const candidate *c) {
  if (g->any) return c->fits && c->step_seconds < g->best.step_seconds;
  return c->fits || c->need_bytes < g->smallest;
}

static hr_status try_point(grid *g, hri_levels level, uint32_t split, uint32_t chunked, hr_error *error) {
  double *floor = &g->unlevelled[__builtin_ctz(split)][chunked];
  hri_change change = {.levels = level, .split = split, .chunk = chunked ? 1024 : 0};
  candidate c;
  hr_status status = HR_OK;
  bool made;
  if (!allowed(g->job, level, split, chunked)) return HR_OK;
  if (level != HRI_LEVELS_KEPT && g->any && g->job->recompute.kind == HR_RECOMPUTE_NONE &&
      *floor >= g->best.step_seconds)
    return HR_OK;
  HRI_TRY(draft(g->job, &change, g->lender, &c, &made, error));
  if (!made) return HR_OK;
  if (level == HRI_LEVELS_KEPT) *floor = c.step_seconds;
  if (decides(g, &c)) status = place(&c, error);
  drop(&c);
  if (status != HR_OK || !decides(g, &c)) return status;
  if (!g->any && c.need_bytes < g->smallest) {
    g->smallest = c.need_bytes;
    hri_change_text(&change, g->job, &c.job, g->smallest_options);
  }
  if (c.fits) take(g, &c);
  return HR_OK;
}

static hr_status nothing_fits(const grid *g, hr_error *error) {
  hr_status status;
  if (g->smallest == UINT64_MAX) {
    status = hri_fail(error, HR_ERROR_USAGE, "--auto found no choice that can be planned for this job");
    return hri_hint(error, status, "`headroom plan` without --auto says what is wrong with it");
  }
  status = hri_fail(error, HR_ERROR_BUDGET,
                    "no choice of memory techniques fits the budget; the smallest needs %llu bytes (%s)",
                    (unsigned long long)g->smallest, g->smallest_options[0] ? g->smallest_options : "the job as it is");
  hri_hint(error, status, "raise --budget to that, shorten --seq, or choose --optimizer sgd");
  if (error) error->requested_bytes = g->smallest;
  return status;
}

/* Of the best choice: its weights packed wherever that pays, if it is faster and still fits. */
static hr_status try_packing(grid *g, hr_error *error) {
  static const hr_weight_packing ways[] = {HR_WEIGHT_PACKING_TRANSIENT, HR_WEIGHT_PACKING_PERSISTENT};
  if (!g->any || (g->job->given & HR_GIVEN_WEIGHT_PACKING)) return HR_OK;
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
    candidate c = {.job = g->best.job};
    hr_status status = HR_OK;
    c.job.weight_packing = ways[k];
    if (ways[k] == HR_WEIGHT_PACKING_PERSISTENT && c.job.accumulate == 1) continue; /* nothing to carry it to */
    HRI_TRY(hri_plan_draft(&c.job, g->lender, &c.draft, error));
    read_numbers(&c, c.draft);
    if (decides(g, &c)) status = place(&c, error);
    drop(&c);
    HRI_TRY(status);
    if (decides(g, &c)) take(g, &c);
  }
  return HR_OK;
}

/* A plan whose backend all drafts share. Where the job without recomputation cannot be planned, each has its own. */
static hr_status lend(grid *g, hr_error *error) {
  hr_job job = *g->job;
  hr_status status;
  job.recompute = (hr_recompute){.kind = HR_RECOMPUTE_NONE};
  status = hri_plan_draft(&job, NULL, &g->lender, error);
  return status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL ? status : HR_OK;
}

/* The plan that is returned is made anew: the search's backend holds what was decided for the other points, which is
 * not in its fixed bytes. */
hr_status hr_plan_auto(hr_job *job, hr_plan **out, hr_error *error) {
  grid *g = hri_alloc_zero(1, sizeof *g);
  hr_status status = HR_OK;
  if (!g) return hri_fail_memory(error, sizeof *g, "the search");
  g->job = job;
  g->smallest = UINT64_MAX;
  hri_mem_keep(true);
  HRI_TRY_OUT(lend(g, error));
  for (size_t level = 0; level < AUTO_LEVELS; level++)
    for (uint32_t split = 1; split && split <= job->micro_batch; split *= 2)
      for (uint32_t chunked = 0; chunked < 2; chunked++)
        HRI_TRY_OUT(try_point(g, auto_levels[level], split, chunked, error));
  HRI_TRY_OUT(try_packing(g, error));
  if (!g->any) {
    status = nothing_fits(g, error);
    goto out;
  }
out:
  hr_plan_destroy(g->lender);
  hri_mem_keep(false);
  if (status == HR_OK && out) status = hr_plan_create(&g->best.job, out, error);
  if (status == HR_OK) *job = g->best.job;
  hri_free(g);
  return status;
}
