/* The search works on whole plans: every alternative is compiled and placed like the job itself, so that what it says of
 * memory is what a run would reserve.
 *
 * Alternatives are points of a small grid: recompute level x rows per micro-batch (the batch of a step stays the same) x
 * loss chunk, plus changes that alter the algorithm, which are only offered. Effect classes: architecture.md section 3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/field.h>
#include <headroom/plan.h>

#include "base/mem.h"

typedef struct choice {
  const char *recompute;  /* --recompute, NULL: as it is */
  uint32_t split;         /* micro-batch divided, accumulation multiplied; 1: as it is */
  uint32_t chunk;         /* --loss-chunk, 0: as it is */
  unsigned algorithm;     /* classes 2 and 3, set of: */
} choice;
enum { IN_BACKWARD = 1, MOMENTUM = 2, SGD = 4, HALF_SEQUENCE = 8, BF16 = 16, BF16_PURE = 32 };

static uint32_t parts(const choice *c) {
  return (c->recompute != NULL) + (c->split > 1) + (c->chunk > 0) + (uint32_t)__builtin_popcount(c->algorithm);
}

/* Changes that make it another training. */
static bool apply_algorithm(unsigned algorithm, hr_job *job) {
  if (algorithm & (SGD | MOMENTUM)) {
    hr_optimizer wanted = algorithm & SGD ? HR_OPTIMIZER_SGD : HR_OPTIMIZER_MOMENTUM;
    if (job->optimizer == HR_OPTIMIZER_SGD || job->optimizer == wanted) return false;
    job->optimizer = wanted;
  }
  if (algorithm & IN_BACKWARD) {
    if (job->update == HR_UPDATE_IN_BACKWARD || job->accumulate > 1) return false;
    job->update = HR_UPDATE_IN_BACKWARD;
    job->on_nonfinite = HR_ON_NONFINITE_STOP;
    job->clip = 0;
    job->given |= HR_GIVEN_CLIP;
  }
  if (algorithm & (BF16 | BF16_PURE)) {
    if (job->precision != HR_PRECISION_FP32 || (job->given & HR_GIVEN_PRECISION)) return false;
    job->precision = algorithm & BF16 ? HR_PRECISION_BF16 : HR_PRECISION_BF16_PURE;
  }
  if (algorithm & HALF_SEQUENCE) {
    if (job->sequence_length < 128) return false;
    job->sequence_length /= 2;
    if (!(job->given & HR_GIVEN_LOSS_CHUNK)) job->loss_chunk = HR_LOSS_CHUNK_AUTO;
  }
  return true;
}

/* Applies a choice; false when it does not apply to this job or changes nothing. */
static bool apply(const choice *c, hr_job *job) {
  if (c->recompute) {
    hr_recompute wanted;
    char before[256], after[256];
    if (hr_recompute_parse(c->recompute, &wanted, NULL) != HR_OK) return false;
    hr_recompute_text(&job->recompute, job->model.layer_count, before, sizeof before);
    hr_recompute_text(&wanted, job->model.layer_count, after, sizeof after);
    if (strcmp(before, after) == 0) return false;
    job->recompute = wanted;
  }
  if (c->split > 1) {
    if (job->micro_batch % c->split || job->micro_batch / c->split == 0 || job->update == HR_UPDATE_IN_BACKWARD) return false;
    job->micro_batch /= c->split;
    job->accumulate *= c->split;
    if (!(job->given & HR_GIVEN_LOSS_CHUNK)) job->loss_chunk = HR_LOSS_CHUNK_AUTO;
  }
  if (c->chunk) {
    if ((uint64_t)job->micro_batch * job->sequence_length <= c->chunk || job->loss_chunk == c->chunk) return false;
    job->loss_chunk = c->chunk;
    job->given |= HR_GIVEN_LOSS_CHUNK;
  }
  return apply_algorithm(c->algorithm, job);
}

/* Plans a finished job, with levels chosen where they are still to be. */
static hr_status plan_job(hr_job *job, hr_plan **plan, hr_error *error) {
  if (job->recompute.kind != HR_RECOMPUTE_AUTO || job->purpose != HR_PURPOSE_TRAIN) return hr_plan_create(job, plan, error);
  return hr_plan_recompute(job, plan, NULL, error);
}

/* The options of an alternative, with the levels that were chosen; too many to say: auto says as much. */
static void say_options(const hr_job *base, hr_job *asked, const hr_recompute *levels, char options[HR_FIX_TEXT_BYTES]) {
  char text[HR_FIELD_TEXT_BYTES];
  hr_recompute before = asked->recompute;
  asked->recompute = *levels;
  hr_job_options(base, asked, text, sizeof text);
  asked->recompute = before;
  if (strlen(text) >= HR_FIX_TEXT_BYTES) hr_job_options(base, asked, text, sizeof text);
  (void)snprintf(options, HR_FIX_TEXT_BYTES, "%.*s", HR_FIX_TEXT_BYTES - 1, text);
}

/* Plans one alternative. HR_OK with *made false when it does not apply. */
static hr_status try_choice(const hr_job *base, const choice *c, hr_fix *fix, bool *made, hr_plan **keep, hr_error *error) {
  hr_plan *plan;
  const hr_plan_info *info;
  hr_job asked = *base;
  hr_status status;
  *made = false;
  memset(fix, 0, sizeof *fix);
  if (!apply(c, &asked)) return HR_OK;
  fix->job = asked;
  if (hr_job_finish(&fix->job, NULL) != HR_OK) return HR_OK;
  status = plan_job(&fix->job, &plan, error);
  if (status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL) return status;
  if (status != HR_OK) return HR_OK;
  say_options(base, &asked, asked.recompute.kind == HR_RECOMPUTE_AUTO ? &fix->job.recompute : &asked.recompute, fix->options);
  info = hr_plan_get(plan);
  fix->fits = info->fits;
  fix->changes_algorithm = c->algorithm != 0;
  fix->need_bytes = info->tiers[HR_TIER_DEVICE].reserved_bytes + info->tiers[HR_TIER_DEVICE].fixed_bytes;
  fix->step_seconds = info->step_seconds;
  *made = true;
  if (keep) *keep = plan;
  else hr_plan_destroy(plan);
  return HR_OK;
}

static const char *const levels[] = {NULL, "selective", "levels:mlp", "levels:attention", "block", "sqrt"};
enum { LEVELS = sizeof levels / sizeof *levels };
/* --auto: levels for each layer hold the uniform ones among them; sqrt groups layers, which no level does. */
static const char *const auto_levels[] = {NULL, "auto", "sqrt"};
enum { AUTO_LEVELS = sizeof auto_levels / sizeof *auto_levels };

/* Time is compared per token: a shorter sequence does less work, not faster work. */
static double seconds_per_token(const hr_fix *f) {
  return f->step_seconds / ((double)f->job.sequence_length * f->job.micro_batch * f->job.accumulate);
}

static int compare_fixes(const void *a, const void *b) {
  const hr_fix *x = a, *y = b;
  if (x->fits != y->fits) return x->fits ? -1 : 1;
  if (x->fits && x->changes_algorithm != y->changes_algorithm) return x->changes_algorithm ? 1 : -1;
  if (x->fits && seconds_per_token(x) != seconds_per_token(y)) return seconds_per_token(x) < seconds_per_token(y) ? -1 : 1;
  if (x->need_bytes != y->need_bytes) return x->need_bytes < y->need_bytes ? -1 : 1;
  return strcmp(x->options, y->options);
}

typedef struct search {
  const hr_job *base;
  HRI_ARRAY(hr_fix) found;
  double best_single[2];        /* fastest single change that fits, of class 0 or 1 and of class 3; < 0 none */
  uint64_t need;                /* of the base */
} search;

static hr_status add(search *s, const choice *c, hr_error *error) {
  hr_fix fix;
  double *single;
  bool made;
  HRI_TRY(try_choice(s->base, c, &fix, &made, NULL, error));
  if (!made || fix.need_bytes >= s->need) return HR_OK;
  for (size_t k = 0; k < s->found.count; k++)
    if (strcmp(s->found.items[k].options, fix.options) == 0) return HR_OK;
  single = &s->best_single[c->algorithm != 0];
  if (parts(c) > 1 && *single >= 0 && !(fix.fits && fix.step_seconds < *single)) return HR_OK; /* a combination must earn its place */
  if (parts(c) > 1 && c->algorithm && s->best_single[0] >= 0) return HR_OK; /* nor is another algorithm offered twice where none is needed */
  if (fix.fits && parts(c) == 1 && (*single < 0 || fix.step_seconds < *single)) *single = fix.step_seconds;
  return hri_array_push(&s->found, fix) ? HR_OK : hri_fail_memory(error, sizeof fix, "the search");
}

/* Levels chosen for each layer take some twenty plans; they are offered where they are faster than what is there already,
 * or smaller where nothing fits. */
static hr_status add_chosen_levels(search *s, const choice *c, hr_error *error) {
  hr_fix fix;
  bool made;
  HRI_TRY(try_choice(s->base, c, &fix, &made, NULL, error));
  if (!made || fix.need_bytes >= s->need) return HR_OK;
  for (size_t k = 0; k < s->found.count; k++) {
    const hr_fix *other = &s->found.items[k];
    if (other->changes_algorithm || other->fits < fix.fits) continue;
    if (other->fits > fix.fits || (fix.fits ? other->step_seconds <= fix.step_seconds : other->need_bytes <= fix.need_bytes)) return HR_OK;
  }
  if (fix.fits) s->best_single[0] = fix.step_seconds;
  return hri_array_push(&s->found, fix) ? HR_OK : hri_fail_memory(error, sizeof fix, "the search");
}

/* Smallest powers of two that divide the micro-batch, most useful last. */
static hr_status add_singles(search *s, hr_error *error) {
  static const uint32_t chunks[] = {4096, 2048, 1024, 512};
  static const unsigned algorithms[] = {BF16, BF16_PURE, IN_BACKWARD, MOMENTUM, SGD, HALF_SEQUENCE};
  for (size_t k = 1; k < LEVELS; k++) HRI_TRY(add(s, &(choice){levels[k], 1, 0, 0}, error));
  HRI_TRY(add_chosen_levels(s, &(choice){"auto", 1, 0, 0}, error));
  for (uint32_t split = 2; split <= s->base->micro_batch; split *= 2) HRI_TRY(add(s, &(choice){NULL, split, 0, 0}, error));
  for (size_t k = 0; k < 4; k++) HRI_TRY(add(s, &(choice){NULL, 1, chunks[k], 0}, error));
  for (size_t k = 0; k < sizeof algorithms / sizeof *algorithms; k++) HRI_TRY(add(s, &(choice){NULL, 1, 0, algorithms[k]}, error));
  return HR_OK;
}

static hr_status add_combinations(search *s, hr_error *error) {
  uint32_t smallest = 1;
  while (s->base->micro_batch % (smallest * 2) == 0) smallest *= 2;
  for (size_t k = 1; k < LEVELS; k++) {
    HRI_TRY(add(s, &(choice){levels[k], 1, 1024, 0}, error));
    if (smallest > 1) HRI_TRY(add(s, &(choice){levels[k], smallest, 0, 0}, error));
    if (smallest > 2) HRI_TRY(add(s, &(choice){levels[k], smallest / 2, 0, 0}, error));
  }
  for (size_t k = 1; k < LEVELS; k++) {
    HRI_TRY(add(s, &(choice){levels[k], 1, 0, IN_BACKWARD}, error));
    HRI_TRY(add(s, &(choice){levels[k], smallest, 0, SGD}, error));
    HRI_TRY(add(s, &(choice){levels[k], 1, 0, SGD | IN_BACKWARD}, error));
  }
  if (s->best_single[0] < 0) {
    HRI_TRY(add_chosen_levels(s, &(choice){"auto", 1, 1024, 0}, error));
    if (smallest > 1) HRI_TRY(add_chosen_levels(s, &(choice){"auto", smallest, 0, 0}, error));
  }
  HRI_TRY(add(s, &(choice){NULL, 1, 0, SGD | IN_BACKWARD}, error));
  HRI_TRY(add(s, &(choice){"block", 1, 0, SGD | IN_BACKWARD | HALF_SEQUENCE}, error));
  HRI_TRY(add(s, &(choice){"block", 1, 0, BF16_PURE | IN_BACKWARD}, error));
  return add(s, &(choice){"block", 1, 0, BF16_PURE | SGD | IN_BACKWARD}, error);
}

hr_status hr_plan_fixes(const hr_job *job, hr_fix *fixes, uint32_t *count, hr_error *error) {
  hr_job base = *job;
  search s = {.base = &base, .best_single = {-1, -1}};
  hr_plan *plan = NULL;
  hr_status status = plan_job(&base, &plan, error);
  *count = 0;
  if (status != HR_OK) return status;
  s.need = hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes + hr_plan_get(plan)->tiers[HR_TIER_DEVICE].fixed_bytes;
  hr_plan_destroy(plan);
  if (job->purpose == HR_PURPOSE_TRAIN) {
    status = add_singles(&s, error);
    if (status == HR_OK) status = add_combinations(&s, error);
  }
  if (status == HR_OK && s.found.count) {
    qsort(s.found.items, s.found.count, sizeof *s.found.items, compare_fixes);
    *count = (uint32_t)(s.found.count < HR_MAX_FIXES ? s.found.count : HR_MAX_FIXES);
    memcpy(fixes, s.found.items, *count * sizeof *fixes);
  }
  hri_array_free(&s.found);
  return status;
}

/* The grid of --auto: what was given stays. Recomputation only slows a point down, so that one that is slower than the best
 * without it needs no levels. */
static bool allowed(const hr_job *job, size_t level, uint32_t split, uint32_t chunked) {
  bool train = job->purpose == HR_PURPOSE_TRAIN;
  if (level && ((job->given & HR_GIVEN_RECOMPUTE) || !train)) return false;
  if (split > 1 && ((job->given & (HR_GIVEN_MICRO_BATCH | HR_GIVEN_ACCUMULATE)) || !train)) return false;
  return !(chunked && (job->given & HR_GIVEN_LOSS_CHUNK));
}

typedef struct grid {
  const hr_job *job;
  hr_plan *best;
  hr_fix best_fix;
  double unlevelled[32][2];     /* step_seconds per split and chunk as it is; 0: not planned */
  uint64_t smallest;
  char smallest_options[HR_FIX_TEXT_BYTES];
} grid;

static hr_status try_point(grid *g, size_t level, uint32_t split, uint32_t chunked, hr_error *error) {
  double *floor = &g->unlevelled[__builtin_ctz(split)][chunked];
  hr_plan *plan = NULL;
  hr_fix fix;
  bool made;
  if (!allowed(g->job, level, split, chunked)) return HR_OK;
  if (level && g->best && g->job->recompute.kind == HR_RECOMPUTE_NONE && *floor >= g->best_fix.step_seconds) return HR_OK;
  HRI_TRY(try_choice(g->job, &(choice){auto_levels[level], split, chunked ? 1024 : 0, 0}, &fix, &made, &plan, error));
  if (!made) return HR_OK;
  if (level == 0) *floor = fix.step_seconds;
  if (fix.need_bytes < g->smallest) {
    g->smallest = fix.need_bytes;
    memcpy(g->smallest_options, fix.options, sizeof g->smallest_options);
  }
  if (fix.fits && (!g->best || fix.step_seconds < g->best_fix.step_seconds)) {
    hr_plan_destroy(g->best);
    g->best = plan;
    g->best_fix = fix;
  } else {
    hr_plan_destroy(plan);
  }
  return HR_OK;
}

static hr_status nothing_fits(const grid *g, hr_error *error) {
  hr_status status;
  if (g->smallest == UINT64_MAX) {
    status = hri_fail(error, HR_ERROR_USAGE, "--auto found no choice that can be planned for this job");
    return hri_hint(error, status, "`headroom plan` without --auto says what is wrong with it");
  }
  status = hri_fail(error, HR_ERROR_BUDGET, "no choice of memory techniques fits the budget; the smallest needs %llu bytes (%s)", (unsigned long long)g->smallest,
                    g->smallest_options[0] ? g->smallest_options : "the job as it is");
  hri_hint(error, status, "raise --budget to that, shorten --seq, or choose --optimizer sgd");
  if (error) error->requested_bytes = g->smallest;
  return status;
}

/* Of the best choice: its weights packed wherever that pays, if it is faster and still fits. */
static hr_status try_packing(grid *g, hr_error *error) {
  static const hr_weight_packing ways[] = {HR_WEIGHT_PACKING_TRANSIENT, HR_WEIGHT_PACKING_PERSISTENT};
  if (!g->best || (g->job->given & HR_GIVEN_WEIGHT_PACKING)) return HR_OK;
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
    hr_job job = g->best_fix.job;
    hr_plan *plan;
    job.weight_packing = ways[k];
    if (ways[k] == HR_WEIGHT_PACKING_PERSISTENT && job.accumulate == 1) continue; /* nothing to carry it to */
    HRI_TRY(hr_plan_create(&job, &plan, error));
    if (hr_plan_get(plan)->fits && hr_plan_get(plan)->step_seconds < g->best_fix.step_seconds) {
      hr_plan_destroy(g->best);
      g->best = plan;
      g->best_fix.job = job;
      g->best_fix.step_seconds = hr_plan_get(plan)->step_seconds;
    } else {
      hr_plan_destroy(plan);
    }
  }
  return HR_OK;
}

hr_status hr_plan_auto(hr_job *job, hr_plan **out, hr_error *error) {
  grid *g = hri_alloc_zero(1, sizeof *g);
  hr_status status = HR_OK;
  if (!g) return hri_fail_memory(error, sizeof *g, "the search");
  g->job = job;
  g->smallest = UINT64_MAX;
  for (size_t level = 0; level < AUTO_LEVELS; level++)
    for (uint32_t split = 1; split && split <= job->micro_batch; split *= 2)
      for (uint32_t chunked = 0; chunked < 2; chunked++) HRI_TRY_OUT(try_point(g, level, split, chunked, error));
  HRI_TRY_OUT(try_packing(g, error));
  if (!g->best) {
    status = nothing_fits(g, error);
    goto out;
  }
  *job = g->best_fix.job;
  if (out) {
    *out = g->best;
    g->best = NULL;
  }
out:
  hr_plan_destroy(g->best);
  hri_free(g);
  return status;
}
