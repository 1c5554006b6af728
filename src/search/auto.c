/* --auto: the fastest plan that fits, of all combinations that keep the mathematics.
 *
 * A *cell* is a choice of everything but recomputation: rows of a micro-step (every divisor of the rows that they may
 * come from), loss chunk (as it is, whole, powers of two), updates in the backward where that has the same bits, and
 * packing of weights where the device packs. What was given stays; --micro-batch without --accumulate says how many
 * rows are taken at most at a time, and a step keeps its rows whatever is chosen. Inside a cell recomputation is
 * chosen: a level for each layer (recompute.c), which holds the uniform ones, or groups of layers, every:K, which no
 * level does.
 *
 * Recomputation only adds time. So the cells are drafted as they are and sorted by their time per token: the first
 * that fits is the best without recomputation and ends the list for those with it. Levels of a cell are looked for
 * against the best there is (a rival), and most cells end at their tables, before anything is placed. Groups keep less
 * than layers by themselves and take no less time, so they are tried where levels do not fit. More rows and larger
 * chunks hold more live bytes, other things equal; so where nothing fits as it is, the smallest cell of a kind is
 * looked at first, and with it all larger ones are refused.
 *
 * Compared is what a run would reserve: whatever is taken, or told as the smallest need, was placed. That nothing of
 * the space is faster is held against plans of all of it in tests/plan/test_auto.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "job/job.h"
#include "search/search.h"

enum {
  LEAST_CHUNK = 16,   /* of hr_job_finish */
  CHUNK_SHARE = 4096, /* chunks whose logits are a smaller part of the job save nothing that counts */
  HOPELESS = 64,      /* more than so many budgets is not recomputed away */
  KINDS = 8 * (2 + HR_WEIGHT_PACKING_PERSISTENT)
};

typedef struct cell {
  hri_change change;
  double seconds;      /* per token, nothing made again */
  uint64_t need_bytes; /* at least */
  bool fits;           /* perhaps */
  bool done;
  uint32_t kind;      /* below KINDS: cells of a kind differ in nothing but these two */
  uint32_t rows;      /* of a micro-step */
  uint32_t loss_rows; /* of a loss chunk */
} cell;

typedef struct grid {
  const hr_job *asked;
  hr_job base; /* what cells are changes of */
  hr_plan *lender;
  HRI_ARRAY(cell) cells;
  bool levels, groups; /* free to choose */
  bool any;            /* something fits: */
  hr_job best;
  double seconds;    /* of it, per token */
  uint64_t smallest; /* need of all that was placed while nothing fitted */
  char smallest_options[HR_FIX_TEXT_BYTES];
} grid;

static double per_token(const hr_job *job, double seconds) { return seconds / (double)hri_job_tokens(job); }

static bool given(const grid *g, uint64_t option) { return (g->asked->given & option) != 0; }

/* What was placed. */
static void consider(grid *g, const hr_job *job, uint64_t need, double step_seconds, bool fits) {
  const double seconds = per_token(job, step_seconds);
  if (!g->any && need < g->smallest) {
    const hri_change none = {.levels = job->recompute.kind == HR_RECOMPUTE_LEVELS ? HRI_LEVELS_AUTO : HRI_LEVELS_KEPT};
    g->smallest = need;
    hri_change_text(&none, g->asked, job, g->smallest_options);
  }
  if (!fits || (g->any && seconds >= g->seconds)) return;
  g->any = true;
  g->best = *job;
  g->seconds = seconds;
}

/* Its placed bytes matter where it would be the best, or the smallest as long as nothing fits. */
static bool decides(const grid *g, const hr_plan *plan) {
  if (g->any) return plan->info.fits && per_token(&plan->spec, plan->info.step_seconds) < g->seconds;
  return plan->info.fits || hri_plan_need(plan) < g->smallest;
}

static hr_status place(grid *g, const hr_job *job, hr_plan *plan, hr_error *error) {
  if (!decides(g, plan)) return HR_OK;
  HRI_TRY(hri_plan_place(plan, error));
  consider(g, job, hri_plan_need(plan), plan->info.step_seconds, plan->info.fits);
  return HR_OK;
}

/* HR_OK without a plan where the change does not apply. */
static hr_status draft(const grid *g, const hri_change *change, hr_job *job, hr_plan **plan, hr_error *error) {
  hr_status status;
  *job = g->base;
  *plan = NULL;
  if (!hri_change_apply(change, job)) return HR_OK;
  status = hri_plan_draft(job, g->lender, plan, error);
  return status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL ? status : HR_OK;
}

/* ---- cells ---- */

/* Several micro-steps, or several chunks, have gradients of their own that one does not have. */
static uint32_t kind_of(const hr_job *job, const hri_change *change) {
  const bool chunks = hri_loss_chunk(job) < (uint64_t)job->micro_batch * job->sequence_length;
  return (job->accumulate > 1) + 2u * change->in_backward + 4u * chunks + 8u * change->packing;
}

/* `reserved`: what its programs need at least, 0 where there is no such cell. */
static hr_status add_cell(grid *g, hri_change change, uint64_t *reserved, hr_job *job, hr_error *error) {
  hr_plan *plan;
  cell c = {.change = change};
  HRI_TRY(draft(g, &change, job, &plan, error));
  *reserved = 0;
  if (!plan) return HR_OK;
  *reserved = plan->info.tiers[HR_TIER_DEVICE].reserved_bytes;
  c.seconds = per_token(job, plan->info.step_seconds);
  c.need_bytes = hri_plan_need(plan);
  c.fits = plan->info.fits;
  c.rows = job->micro_batch;
  c.loss_rows = (uint32_t)hri_loss_chunk(job);
  c.kind = kind_of(job, &change);
  hr_plan_destroy(plan);
  return hri_array_push(&g->cells, c) ? HR_OK : hri_fail_memory(error, sizeof c, "the search");
}

static hr_status add_chunks(grid *g, hri_change change, uint64_t *reserved, hr_error *error) {
  hr_job *job = hri_alloc(sizeof *job);
  hr_status status = HR_OK;
  uint64_t rows, chunk = LEAST_CHUNK, other;
  *reserved = 0;
  if (!job) return hri_fail_memory(error, sizeof *job, "the search");
  HRI_TRY_OUT(add_cell(g, change, reserved, job, error));
  if (*reserved == 0 || given(g, HR_GIVEN_LOSS_CHUNK) || g->asked->purpose == HR_PURPOSE_GENERATE) goto out;
  rows = (uint64_t)job->micro_batch * job->sequence_length;
  change.chunk = HR_LOSS_CHUNK_OFF;
  HRI_TRY_OUT(add_cell(g, change, &other, job, error));
  while (2 * chunk < rows) chunk *= 2;
  for (; chunk >= LEAST_CHUNK; chunk /= 2) {
    if (4 * chunk * g->asked->model.vocabulary_size < *reserved / CHUNK_SHARE) break;
    change.chunk = (uint32_t)chunk;
    HRI_TRY_OUT(add_cell(g, change, &other, job, error));
  }
out:
  hri_free(job);
  return status;
}

/* Persistent where there is nothing to carry a copy to is still one copy for all products of a weight. */
static hr_status add_packings(grid *g, hri_change change, uint64_t *reserved, hr_error *error) {
  uint64_t other;
  HRI_TRY(add_chunks(g, change, reserved, error));
  if (*reserved == 0 || given(g, HR_GIVEN_WEIGHT_PACKING) || !g->asked->device.packs ||
      g->asked->purpose == HR_PURPOSE_GENERATE)
    return HR_OK;
  for (uint32_t packing = HR_WEIGHT_PACKING_AUTO; packing <= HR_WEIGHT_PACKING_PERSISTENT; packing++) {
    change.packing = 1 + packing;
    HRI_TRY(add_chunks(g, change, &other, error));
  }
  return HR_OK;
}

static hr_status add_rows(grid *g, uint32_t micro_batch, uint64_t *reserved, hr_error *error) {
  hri_change change = {.micro_batch = micro_batch == g->base.micro_batch ? 0 : micro_batch};
  uint64_t other;
  HRI_TRY(add_packings(g, change, reserved, error));
  change.in_backward = true;
  return given(g, HR_GIVEN_UPDATE) ? HR_OK : add_packings(g, change, &other, error);
}

/* The rows that micro-steps of another size may take: those of a step, or, where somebody said how many are taken at a
 * time, so many; 0 where they stay as they are. */
static uint64_t divisible_rows(const grid *g) {
  const hr_job *job = g->asked;
  if (job->purpose == HR_PURPOSE_GENERATE || given(g, HR_GIVEN_ACCUMULATE)) return 0;
  if (job->purpose == HR_PURPOSE_EVALUATE || given(g, HR_GIVEN_MICRO_BATCH)) return job->micro_batch;
  return (uint64_t)job->micro_batch * job->accumulate;
}

static hr_status list_cells(grid *g, hr_error *error) {
  const uint64_t rows = divisible_rows(g);
  uint64_t reserved;
  if (rows == 0) return add_rows(g, g->base.micro_batch, &reserved, error);
  for (uint64_t k = 1; k <= rows && k * g->base.sequence_length <= INT32_MAX; k++) {
    if (rows % k) continue;
    HRI_TRY(add_rows(g, (uint32_t)k, &reserved, error));
    if (reserved / HOPELESS > g->asked->budget_bytes) break; /* more rows are no smaller */
  }
  return HR_OK;
}

/* Of equal times what changes less stands first, then what is smaller. */
static int by_time(const void *a, const void *b) {
  const cell *x = a, *y = b;
  const uint32_t parts[] = {hri_change_parts(&x->change), hri_change_parts(&y->change)};
  if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
  if (parts[0] != parts[1]) return parts[0] < parts[1] ? -1 : 1;
  return x->need_bytes < y->need_bytes ? -1 : x->need_bytes > y->need_bytes;
}

/* ---- the search ---- */

static hr_status try_as_it_is(grid *g, const cell *c, hr_error *error) {
  hr_plan *plan;
  hr_job job;
  hr_status status;
  if (!c->fits && (g->levels || c->need_bytes >= g->smallest)) return HR_OK; /* levels need less */
  HRI_TRY(draft(g, &c->change, &job, &plan, error));
  status = plan ? place(g, &job, plan, error) : HR_OK;
  hr_plan_destroy(plan);
  return status;
}

/* Groups of about sqrt(layers) need least. Each step up makes more again, so the first that fits is the fastest. */
static hr_status try_groups(grid *g, const cell *c, bool *hope, hr_error *error) {
  const uint32_t layers = g->asked->model.layer_count;
  for (uint32_t every = 2; every <= layers && (every <= 8 || (every - 2) * (every - 2) <= layers); every++) {
    hri_change change = c->change;
    hr_plan *plan;
    hr_job job;
    hr_status status = HR_OK;
    bool slow, fits = false;
    change.every = every;
    HRI_TRY(draft(g, &change, &job, &plan, error));
    if (!plan) return HR_OK;
    *hope = *hope || plan->info.fits;
    slow = g->any && per_token(&job, plan->info.step_seconds) >= g->seconds;
    if (!slow) status = place(g, &job, plan, error);
    fits = plan->placed && plan->info.fits;
    hr_plan_destroy(plan);
    if (status != HR_OK || slow || fits) return status;
  }
  return HR_OK;
}

/* *hope: live bytes of some levels or groups fit. */
static hr_status try_levels(grid *g, cell *c, bool *hope, hr_error *error) {
  hr_job job = g->base;
  hri_choice choice;
  hri_rival rival = {.step_seconds = INFINITY, .need_bytes = g->smallest};
  *hope = true;
  if (c->done || !hri_change_apply(&c->change, &job)) return HR_OK;
  c->done = true;
  if (g->any) rival.step_seconds = g->seconds * (double)hri_job_tokens(&job);
  HRI_TRY(hri_choose_levels(&job, g->lender, &rival, &choice, NULL, error));
  *hope = choice.hope;
  if (!choice.beaten) {
    job.recompute = choice.recompute;
    consider(g, &job, choice.need_bytes, choice.step_seconds, choice.fits);
  }
  return choice.slow || (!choice.beaten && choice.fits) || !g->groups ? HR_OK : try_groups(g, c, hope, error);
}

static cell *smallest_of(const grid *g, uint32_t kind) {
  cell *least = NULL;
  for (size_t k = 0; k < g->cells.count; k++) {
    cell *c = &g->cells.items[k];
    if (c->kind != kind) continue;
    if (!least || c->rows < least->rows || (c->rows == least->rows && c->loss_rows < least->loss_rows)) least = c;
  }
  return least;
}

static hr_status refuse_kinds(grid *g, hr_error *error) {
  for (uint32_t kind = 0; kind < KINDS && !g->any; kind++) {
    cell *least = smallest_of(g, kind);
    bool hope;
    if (!least) continue;
    HRI_TRY(try_levels(g, least, &hope, error));
    for (size_t k = 0; k < g->cells.count && !hope; k++)
      if (g->cells.items[k].kind == kind) g->cells.items[k].done = true;
  }
  return HR_OK;
}

static hr_status search_cells(grid *g, hr_error *error) {
  bool hope;
  if (g->cells.count) qsort(g->cells.items, g->cells.count, sizeof *g->cells.items, by_time);
  for (size_t k = 0; k < g->cells.count && !g->any; k++) HRI_TRY(try_as_it_is(g, &g->cells.items[k], error));
  if (!g->levels) return HR_OK;
  HRI_TRY(refuse_kinds(g, error));
  for (size_t k = 0; k < g->cells.count; k++) {
    if (g->any && g->cells.items[k].seconds >= g->seconds) break;
    HRI_TRY(try_levels(g, &g->cells.items[k], &hope, error));
  }
  return HR_OK;
}

static hr_status nothing_fits(const grid *g, hr_error *error) {
  hr_status status;
  if (g->smallest == UINT64_MAX) {
    status = hri_fail(error, HR_ERROR_USAGE, "--auto found no choice that can be planned for this job");
    return hri_hint(error, status, "`headroom plan` without --auto says what is wrong with it");
  }
  status =
      hri_fail(error, HR_ERROR_BUDGET,
               "no choice of memory techniques fits the budget; the smallest needs %llu bytes (%s). Searched: %s%s",
               (unsigned long long)g->smallest, g->smallest_options[0] ? g->smallest_options : "the job as it is",
               g->levels   ? "levels of recomputation for each layer, groups of layers, "
               : g->groups ? "groups of layers, "
                           : "",
               "rows of a micro-step, loss chunks, place of the update, packing of weights, but for what was given");
  hri_hint(error, status, "raise --budget to that, shorten --seq, or choose --optimizer sgd");
  if (error) error->requested_bytes = g->smallest;
  return status;
}

static void begin(grid *g, const hr_job *job) {
  const bool trains = job->purpose == HR_PURPOSE_TRAIN;
  g->asked = job;
  g->base = *job;
  g->smallest = UINT64_MAX;
  g->groups = trains && !given(g, HR_GIVEN_RECOMPUTE);
  g->levels = g->groups || (trains && job->recompute.kind == HR_RECOMPUTE_AUTO);
  if (g->levels) g->base.recompute = (hr_recompute){.kind = HR_RECOMPUTE_NONE};
}

/* The plan that is returned is made anew: the search's backend holds what was decided for the other points, which is
 * not in its fixed bytes. */
hr_status hr_plan_auto(hr_job *job, hr_plan **out, hr_error *error) {
  grid *g = hri_alloc_zero(1, sizeof *g);
  hr_status status = HR_OK;
  if (!g) return hri_fail_memory(error, sizeof *g, "the search");
  begin(g, job);
  hri_mem_keep(true);
  status = hri_plan_draft(&g->base, NULL, &g->lender, error); /* where it cannot be planned, each has its own backend */
  if (status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL) goto out;
  HRI_TRY_OUT(list_cells(g, error));
  HRI_TRY_OUT(search_cells(g, error));
  status = g->any ? HR_OK : nothing_fits(g, error);
out:
  hr_plan_destroy(g->lender);
  hri_array_free(&g->cells);
  hri_mem_keep(false);
  if (status == HR_OK && out) status = hr_plan_create(&g->best, out, error);
  if (status == HR_OK) *job = g->best;
  hri_free(g);
  return status;
}
