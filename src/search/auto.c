/* --auto: the fastest plan that fits, of all combinations that keep the mathematics.
 *
 * A *family* is a choice of rows of a micro-step (every divisor of the rows that they may come from) and of the place of
 * the update; its *cells* have a loss chunk each (as it is, whole, powers of two). In a cell weights may be packed in
 * several ways, where the device packs, and recomputation is chosen: a level for each layer (recompute.c), which holds
 * the uniform ones, or groups of layers, every:K, which no level does. What was given stays; --micro-batch without
 * --accumulate says how many rows are taken at most, and a step keeps its rows whatever is chosen.
 *
 * There are some hundred cells and more, and to draft all of them takes longer than anything else. So families and cells
 * are bounded by few drafts, the best bound is looked at first, and what cannot beat the best there is stays undrafted.
 * Nothing of what is bounded is packed, where the device packs. A bound holds for all packings and all chunks (plan/cost.h):
 *
 * - Time of a cell: that of its family's whole loss. Chunks do the same work in more nodes that read the weights more
 *   often. Where rates were measured at several sizes, smaller pieces and packed operands may be faster, and each
 *   product and each piece of the loss is taken at the best that it may be.
 * - Bytes of a cell: live bytes are a maximum of sums that are linear in the chunk, so they are convex, and a line
 *   through two chunks lies below all others. Scratch is no part of it: that of the loss is not linear, and that of
 *   products is another one where operands are packed. Packed copies are more storages.
 * - Levels: five drafts of a family's layers (tables, recompute.c) are those of all its chunks; what differs is what is
 *   alive at the loss and outside. The dynamic program over them bounds the time of all mixtures in the budget.
 * - Groups keep less than layers by themselves and take no less time than all blocks made again, so they are tried where
 *   levels do not fit, and where that time would win.
 *
 * Compared is what a run would reserve: whatever is taken, or told as the smallest need, was placed. That nothing of
 * the space is faster is held against plans of all of it in tests/plan/test_auto.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "job/job.h"
#include "search/search.h"

enum {
  LEAST_CHUNK = 16,    /* of hr_job_finish */
  CHUNK_SHARE = 65536, /* chunks whose logits are a smaller part of the job save nothing that counts */
  HOPELESS = 64,       /* more than so many budgets is not recomputed away */
  CHUNKS = 32,         /* powers of two */
  PACKINGS = 1 + HR_WEIGHT_PACKING_PERSISTENT,
  ROUNDING = 64 * HRI_STORAGE_ALIGN /* of storages of the loss, which are not quite linear for it */
};

/* At least, of a cell: bytes of the arena, and what levels need to know. */
typedef struct minimum {
  uint64_t bytes;
  hri_live_bounds live;
} minimum;

/* A loss chunk of a family; drafted once it is looked at. */
typedef struct cell {
  uint32_t chunk;     /* of the change: 0 as it is */
  uint32_t loss_rows; /* that it comes to */
  bool drafted, possible;
  double seconds; /* per token, at least */
  minimum least;
} cell;

typedef struct family {
  hri_change change; /* without chunk */
  uint32_t rows, accumulate;
  cell cells[CHUNKS + 2]; /* the largest chunk first */
  uint32_t cell_count;
  double floor;     /* per token, whatever is made again, packed or cut in chunks */
  uint64_t carried; /* bytes from program to program of a step, and what no program owns */
  double seconds;   /* of all cells */
  minimum least;    /* likewise */
  hri_level_tables *tables;
  double bound;          /* per token, of levels that fit, at least; INFINITY: none do */
  uint64_t levels_bytes; /* least need with levels */
} family;

typedef struct grid {
  const hr_job *asked;
  hr_job base; /* what cells are changes of */
  hr_plan *lender;
  HRI_ARRAY(family) families;
  bool levels, groups; /* free to choose */
  bool packs;          /* free, and there is something to choose */
  bool only_backward;  /* nothing but updates in the backward */
  bool varies;         /* what is packed is chosen, here or by the plan */
  uint64_t granule, allowance;
  bool any; /* something fits: */
  hr_job best;
  double seconds; /* of it, per token */
  double taken;   /* per token, of what is taken for it: a smaller loss chunk that is as fast */
  uint64_t need;
  uint64_t ceiling;  /* what needs as much and does not fit is of no interest */
  uint64_t smallest; /* need of all that was placed while nothing fitted; the ceiling: of nothing yet */
  hr_job smallest_job;
  char smallest_options[HR_FIX_TEXT_BYTES];
} grid;

static double per_token(const hr_job *job, double seconds) { return seconds / (double)hri_job_tokens(job); }

static bool given(const grid *g, uint64_t option) { return (g->asked->given & option) != 0; }

static bool has_smallest(const grid *g) { return g->smallest < g->ceiling; }

static void take_smaller(grid *g, const hr_job *job, uint64_t need) {
  const hri_change none = {.levels = job->recompute.kind == HR_RECOMPUTE_LEVELS ? HRI_LEVELS_AUTO : HRI_LEVELS_KEPT};
  g->smallest = need;
  g->smallest_job = *job;
  g->smallest_job.budget_bytes = g->asked->budget_bytes;
  (void)hri_change_text(&none, g->asked, &g->smallest_job, g->smallest_options);
}

/* What was placed. */
static void consider(grid *g, const hr_job *job, uint64_t need, double step_seconds, bool fits) {
  const double seconds = per_token(job, step_seconds);
  if (!g->any && need < g->smallest) take_smaller(g, job, need);
  if (!fits || (g->any && seconds >= g->seconds)) return;
  g->any = true;
  g->best = *job;
  g->seconds = seconds;
  g->need = need;
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

/* ---- cells and families ---- */

static bool measured(const grid *g) { return g->lender && g->lender->info.time_measured; }

/* What is drafted for bounds has nothing packed. */
static hri_change bare(const grid *g, const family *f, uint32_t chunk) {
  hri_change change = f->change;
  change.chunk = chunk;
  change.packing = g->varies && g->base.weight_packing != HR_WEIGHT_PACKING_OFF ? 1 + HR_WEIGHT_PACKING_OFF : 0;
  return change;
}

/* What lies in the arena in every program of a step, and what no program owns. */
static uint64_t carried_bytes(const hr_plan *plan) {
  uint64_t most = 0;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    uint64_t sum = 0;
    if (!hri_job_runs(&plan->spec, kind)) continue;
    for (size_t s = 0; s < plan->job.storages.count; s++) {
      const hri_storage *storage = &plan->job.storages.items[s];
      if (!storage->dead && storage->tier == HRI_DEVICE && (storage->scope & HRI_IN(kind))) sum += storage->bytes;
    }
    if (sum > most) most = sum;
  }
  return most + plan->info.tiers[HR_TIER_DEVICE].fixed_bytes;
}

static hr_status read_least(const grid *g, const hr_plan *plan, bool any_chunk, minimum *least, hr_error *error) {
  const hri_freedom free = {.packing = g->varies, .chunk = any_chunk};
  least->live.fixed = plan->info.tiers[HR_TIER_DEVICE].fixed_bytes;
  HRI_TRY(hri_plan_least_live(plan, &free, &least->bytes, error));
  return g->levels ? hri_live_bounds_get(plan, &free, &least->live, error) : HR_OK;
}

/* What a budget must hold at least. */
static uint64_t need_of(const grid *g, const minimum *least) {
  return hri_round_up(least->bytes, g->granule) + least->live.fixed;
}

/* Of all cells by that of the whole loss. */
static void bound_seconds(const grid *g, family *f, const hr_plan *whole) {
  for (uint32_t k = 0; k < f->cell_count; k++) {
    const hri_freedom free = {.packing = g->varies, .rows = f->cells[0].loss_rows, .piece = f->cells[k].loss_rows};
    f->cells[k].seconds =
        per_token(&whole->spec, whole->info.step_seconds - hri_job_spare_seconds(&whole->job, &whole->spec, &free));
  }
}

/* `any_chunk`, unless NULL: what it says of other chunks. */
static hr_status draft_cell(grid *g, family *f, cell *c, minimum *any_chunk, hr_error *error) {
  const hri_freedom free = {.packing = g->varies};
  const hri_change change = bare(g, f, c->chunk);
  hr_status status = HR_OK;
  hr_plan *plan;
  hr_job job;
  if (c->drafted) return HR_OK;
  HRI_TRY(draft(g, &change, &job, &plan, error));
  c->drafted = true;
  c->possible = plan != NULL;
  if (!plan) return HR_OK;
  g->granule = plan->backend->granule;
  if (c == f->cells) {
    f->floor = per_token(&job, hri_job_floor_seconds(&plan->job, &plan->spec));
    f->carried = carried_bytes(plan);
    bound_seconds(g, f, plan);
  }
  c->seconds = per_token(&job, plan->info.step_seconds - hri_job_spare_seconds(&plan->job, &plan->spec, &free));
  status = read_least(g, plan, false, &c->least, error);
  if (status == HR_OK && any_chunk) status = read_least(g, plan, true, any_chunk, error);
  hr_plan_destroy(plan);
  return status;
}

static void insert_cell(family *f, uint32_t chunk, uint64_t loss_rows) {
  uint32_t at = f->cell_count;
  for (uint32_t k = 0; k < f->cell_count; k++)
    if (f->cells[k].loss_rows == loss_rows) return;
  for (; at > 0 && f->cells[at - 1].loss_rows < loss_rows; at--) f->cells[at] = f->cells[at - 1];
  f->cells[at] = (cell){.chunk = chunk, .loss_rows = (uint32_t)loss_rows, .possible = true};
  f->cell_count++;
}

/* `reserved`: what the programs of the family as it is need at least. */
static void list_chunks(const grid *g, family *f, uint64_t tokens, uint64_t reserved) {
  uint64_t chunk = LEAST_CHUNK;
  if (given(g, HR_GIVEN_LOSS_CHUNK) || g->asked->purpose == HR_PURPOSE_GENERATE) return;
  insert_cell(f, HR_LOSS_CHUNK_OFF, tokens);
  while (2 * chunk < tokens) chunk *= 2;
  for (; chunk >= LEAST_CHUNK && chunk < tokens; chunk /= 2) {
    if (4 * chunk * g->asked->model.vocabulary_size < reserved / CHUNK_SHARE) break;
    insert_cell(f, (uint32_t)chunk, chunk);
  }
}

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Chunks of which bytes are known, and where a line through both is at another one. */
typedef struct line {
  double larger, smaller, at;
} line;

static uint64_t on_line(const line *l, uint64_t at_larger, uint64_t at_smaller) {
  const double slope = ((double)at_larger - (double)at_smaller) / (l->larger - l->smaller);
  const double bytes = (double)at_smaller + slope * (l->at - l->smaller) -
                       ROUNDING * (1 + fabs(l->at - l->smaller) / (l->larger - l->smaller));
  return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Of a cell by two others of its family. Fewer nodes than those of the whole loss no other has. */
static minimum between_others(const line *l, const minimum *larger, const minimum *smaller, const minimum *whole) {
  return (minimum){.bytes = on_line(l, larger->bytes, smaller->bytes),
                   .live = {.loss = on_line(l, larger->live.loss, smaller->live.loss),
                            .outside = on_line(l, larger->live.outside, smaller->live.outside),
                            .running = lesser(whole->live.running, lesser(larger->live.running, smaller->live.running)),
                            .fixed = whole->live.fixed}};
}

static void lower(minimum *all, const minimum *one) {
  all->bytes = lesser(all->bytes, one->bytes);
  all->live.loss = lesser(all->live.loss, one->live.loss);
  all->live.outside = lesser(all->live.outside, one->live.outside);
  all->live.running = lesser(all->live.running, one->live.running);
  all->live.fixed = lesser(all->live.fixed, one->live.fixed);
}

/* Its bounds: those of the whole loss, and of all smaller chunks by two of them, or of few cells by all. */
static hr_status bound_family(grid *g, family *f, hr_error *error) {
  enum { FEW = 5, LARGER = 2, SMALLER = 3 };
  const cell *larger = &f->cells[LARGER], *smaller = &f->cells[SMALLER];
  const bool few = f->cell_count <= FEW;
  minimum at_larger = {0}, at_smaller = {0};
  for (uint32_t k = 0; k < f->cell_count; k++)
    if (few || k == 0 || k == LARGER || k == SMALLER)
      HRI_TRY(draft_cell(g, f, &f->cells[k], k == LARGER ? &at_larger : k == SMALLER ? &at_smaller : NULL, error));
  f->seconds = INFINITY;
  f->least = f->cells[0].least;
  for (uint32_t k = 0; k < f->cell_count; k++) {
    cell *c = &f->cells[k];
    const line l = {larger->loss_rows, smaller->loss_rows, c->loss_rows};
    if (!c->possible) continue;
    if (!c->drafted && larger->possible && smaller->possible)
      c->least = between_others(&l, &at_larger, &at_smaller, &f->cells[0].least);
    f->seconds = fmin(f->seconds, c->seconds);
    lower(&f->least, &c->least);
  }
  return HR_OK;
}

/* *reserved: what its programs need at least as they are, 0 where there is no such family. */
static hr_status add_family(grid *g, hri_change change, uint64_t *reserved, hr_error *error) {
  family *f = hri_alloc_zero(1, sizeof *f);
  hr_plan *plan = NULL;
  hr_status status = HR_OK;
  hr_job job;
  *reserved = 0;
  if (!f) return hri_fail_memory(error, sizeof *f, "the search");
  f->change = change;
  change = bare(g, f, 0);
  HRI_TRY_OUT(draft(g, &change, &job, &plan, error));
  if (!plan) goto out;
  *reserved = plan->info.tiers[HR_TIER_DEVICE].reserved_bytes;
  f->rows = job.micro_batch;
  f->accumulate = job.purpose == HR_PURPOSE_TRAIN ? job.accumulate : 1;
  insert_cell(f, 0, hri_loss_chunk(&job));
  list_chunks(g, f, (uint64_t)job.micro_batch * job.sequence_length, *reserved);
  HRI_TRY_OUT(bound_family(g, f, error));
  if (!f->cells[0].possible) status = HR_OK; /* nor is anything of it */
  else if (!hri_array_push(&g->families, *f)) status = hri_fail_memory(error, sizeof *f, "the search");
out:
  hr_plan_destroy(plan);
  hri_free(f);
  return status;
}

static hr_status add_rows(grid *g, uint32_t micro_batch, uint64_t *reserved, hr_error *error) {
  hri_change change = {.micro_batch = micro_batch == g->base.micro_batch ? 0 : micro_batch};
  uint64_t other;
  if (!g->only_backward) HRI_TRY(add_family(g, change, reserved, error));
  change.in_backward = true;
  if (given(g, HR_GIVEN_UPDATE)) return HR_OK;
  return add_family(g, change, g->only_backward ? reserved : &other, error);
}

/* The rows that micro-steps of another size may take: those of a step, or, where somebody said how many are taken at a
 * time, so many; 0 where they stay as they are. */
static uint64_t divisible_rows(const grid *g) {
  const hr_job *job = g->asked;
  if (job->purpose == HR_PURPOSE_EVALUATE) return job->micro_batch;
  if (job->purpose == HR_PURPOSE_GENERATE || given(g, HR_GIVEN_ACCUMULATE)) return 0;
  if (given(g, HR_GIVEN_MICRO_BATCH)) return job->micro_batch;
  return (uint64_t)job->micro_batch * job->accumulate;
}

static hr_status list_families(grid *g, hr_error *error) {
  const uint64_t rows = divisible_rows(g);
  uint64_t reserved;
  if (rows == 0) return add_rows(g, g->base.micro_batch, &reserved, error);
  for (uint64_t k = 1; k <= rows && k * g->base.sequence_length <= INT32_MAX; k++) {
    if (rows % k) continue;
    HRI_TRY(add_rows(g, (uint32_t)k, &reserved, error));
    if (reserved / HOPELESS > g->asked->budget_bytes && k < rows)
      k = rows - 1; /* more rows are no smaller, but for the step without micro-steps, and its time bounds theirs */
  }
  return HR_OK;
}

/* ---- without recomputation ---- */

/* The packings of a cell, the one that was asked for first: of equal times what changes less is taken. */
static uint32_t packings_of(const grid *g) { return g->packs ? PACKINGS : 0; }

static hri_change packed_as(const family *f, const cell *c, uint32_t packing) {
  hri_change change = f->change;
  change.chunk = c->chunk;
  change.packing = packing; /* 1 + what it is, 0 as it was asked for */
  return change;
}

static hr_status try_as_it_is(grid *g, const family *f, const cell *c, hr_error *error) {
  for (uint32_t packing = 0; packing <= packings_of(g); packing++) {
    const hri_change change = packed_as(f, c, packing);
    hr_plan *plan;
    hr_job job;
    hr_status status;
    if (g->any && c->seconds >= g->seconds) break;
    HRI_TRY(draft(g, &change, &job, &plan, error));
    status = plan ? place(g, &job, plan, error) : HR_OK;
    hr_plan_destroy(plan);
    HRI_TRY(status);
  }
  return HR_OK;
}

static int by_seconds(const void *a, const void *b) {
  const family *x = a, *y = b;
  const uint32_t parts[] = {hri_change_parts(&x->change), hri_change_parts(&y->change)};
  if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
  if (parts[0] != parts[1]) return parts[0] < parts[1] ? -1 : 1;
  return x->least.bytes < y->least.bytes ? -1 : x->least.bytes > y->least.bytes;
}

/* Whether it may be the fastest, as it is. */
static bool may_win(const grid *g, const cell *c) {
  return c->possible && !(g->any && c->seconds >= g->seconds) && need_of(g, &c->least) <= g->asked->budget_bytes;
}

static hr_status search_as_it_is(grid *g, hr_error *error) {
  if (g->families.count) qsort(g->families.items, g->families.count, sizeof *g->families.items, by_seconds);
  for (size_t n = 0; n < g->families.count; n++) {
    family *f = &g->families.items[n];
    if (g->any && f->seconds >= g->seconds) break;
    for (uint32_t k = 0; k < f->cell_count; k++) {
      if (!may_win(g, &f->cells[k])) continue;
      HRI_TRY(draft_cell(g, f, &f->cells[k], NULL, error));
      if (may_win(g, &f->cells[k])) HRI_TRY(try_as_it_is(g, f, &f->cells[k], error));
    }
  }
  return HR_OK;
}

/* The smallest need, where recomputation is not free: each cell that might be it. */
static hr_status find_smallest(grid *g, hr_error *error) {
  for (size_t n = 0; n < g->families.count; n++) {
    family *f = &g->families.items[n];
    for (uint32_t k = f->cell_count; k-- > 0 && need_of(g, &f->least) < g->smallest;) {
      cell *c = &f->cells[k];
      if (!c->possible || need_of(g, &c->least) >= g->smallest) continue;
      HRI_TRY(draft_cell(g, f, c, NULL, error));
      if (c->possible && need_of(g, &c->least) < g->smallest) HRI_TRY(try_as_it_is(g, f, c, error));
    }
  }
  return HR_OK;
}

/* ---- with recomputation ---- */

/* Whether so many bytes at least may be of use: they fit, or, while nothing does, are fewer than the smallest need. */
static bool of_use(const grid *g, uint64_t bytes) {
  return bytes <= g->asked->budget_bytes || (!g->any && bytes < g->smallest);
}

/* Groups of about sqrt(layers) need least. Each step up makes more again, so the first that fits is the fastest. */
static hr_status try_groups(grid *g, const family *f, const cell *c, const hri_change *cell_change, hr_error *error) {
  const uint32_t layers = g->asked->model.layer_count;
  for (uint32_t every = 2; every <= layers && (every <= 8 || (every - 2) * (every - 2) <= layers); every++) {
    hri_change change = *cell_change;
    hr_plan *plan;
    hr_job job;
    hr_status status = HR_OK;
    bool slow, fits = false;
    if (!of_use(g, hri_groups_bound(f->tables, &c->least.live, every))) continue;
    change.every = every;
    HRI_TRY(draft(g, &change, &job, &plan, error));
    if (!plan) return HR_OK;
    slow = g->any && per_token(&job, plan->info.step_seconds) >= g->seconds;
    if (!slow) status = place(g, &job, plan, error);
    fits = plan->placed && plan->info.fits;
    hr_plan_destroy(plan);
    if (status != HR_OK || slow || fits) return status;
  }
  return HR_OK;
}

static hr_status try_levels(grid *g, const family *f, const cell *c, const hri_change *change, hr_error *error) {
  hr_job job = g->base;
  hri_choice choice;
  hri_rival rival = {.step_seconds = INFINITY, .need_bytes = g->smallest, .allowance = &g->allowance};
  if (!hri_change_apply(change, &job)) return HR_OK;
  if (g->any) rival.step_seconds = g->seconds * (double)hri_job_tokens(&job);
  HRI_TRY(hri_choose_levels(&job, g->lender, &rival, &choice, NULL, error));
  if (!choice.beaten) {
    job.recompute = choice.recompute;
    consider(g, &job, choice.need_bytes, choice.step_seconds, choice.fits);
  }
  return choice.slow || (!choice.beaten && choice.fits) || !g->groups ? HR_OK : try_groups(g, f, c, change, error);
}

/* Nothing packed first, which needs least and, without measured rates, takes least. */
static hr_status try_recomputing(grid *g, const family *f, const cell *c, double bound, hr_error *error) {
  const bool asked_off = g->base.weight_packing == HR_WEIGHT_PACKING_OFF;
  const uint32_t off = g->packs ? 1 + HR_WEIGHT_PACKING_OFF : 0;
  hri_change change = packed_as(f, c, asked_off ? 0 : off);
  HRI_TRY(try_levels(g, f, c, &change, error));
  for (uint32_t packing = 0; packing <= packings_of(g) && !(g->any && bound >= g->seconds); packing++) {
    if (packing == off || (packing == 0 && asked_off)) continue;
    change = packed_as(f, c, packing);
    HRI_TRY(try_levels(g, f, c, &change, error));
  }
  return HR_OK;
}

/* Least seconds per token of a cell or family that takes `seconds` with nothing made again; INFINITY: nothing fits. */
static hr_status bound_levels(grid *g, family *f, const minimum *least, double seconds, double *bound,
                              hr_error *error) {
  const double tokens = (double)g->base.sequence_length * f->rows * f->accumulate;
  hri_levels_bound levels;
  HRI_TRY(hri_levels_bound_get(f->tables, &least->live, &levels, error));
  if (least == &f->least) f->levels_bytes = lesser(levels.need_bytes, g->groups ? levels.groups_bytes : UINT64_MAX);
  *bound = levels.fits ? seconds + levels.more_seconds / tokens : INFINITY;
  if (!levels.fits && g->groups && levels.groups_bytes <= g->asked->budget_bytes)
    *bound = seconds + levels.block_seconds / tokens;
  return HR_OK;
}

static hr_status make_tables(grid *g, family *f, hr_error *error) {
  enum { FOURTH = 3 };
  const hri_change change = bare(g, f, f->cells[f->cell_count > FOURTH ? FOURTH : f->cell_count - 1].chunk);
  hr_job job = g->base;
  f->bound = INFINITY;
  f->levels_bytes = UINT64_MAX;
  if ((g->any && f->seconds >= g->seconds) || !of_use(g, f->carried)) return HR_OK;
  if (!hri_change_apply(&change, &job) && hri_change_parts(&change)) return HR_OK;
  HRI_TRY(hri_level_tables_create(&job, g->lender, g->varies, &f->tables, error));
  return bound_levels(g, f, &f->least, f->seconds, &f->bound, error);
}

static int by_bound(const void *a, const void *b) {
  const family *x = a, *y = b;
  if (x->bound != y->bound) return x->bound < y->bound ? -1 : 1;
  if (x->levels_bytes != y->levels_bytes) return x->levels_bytes < y->levels_bytes ? -1 : 1;
  return by_seconds(a, b);
}

/* What the family's levels take more, no cell's take less. */
static hr_status search_family(grid *g, family *f, hr_error *error) {
  const double more = f->bound - f->seconds;
  for (uint32_t k = 0; k < f->cell_count; k++) {
    cell *c = &f->cells[k];
    double bound;
    if (!c->possible || (g->any && c->seconds + more >= g->seconds)) continue;
    HRI_TRY(draft_cell(g, f, c, NULL, error));
    if (!c->possible || (g->any && c->seconds + more >= g->seconds)) continue;
    HRI_TRY(bound_levels(g, f, &c->least, c->seconds, &bound, error));
    if (isinf(bound) || (g->any && bound >= g->seconds)) continue;
    HRI_TRY(try_recomputing(g, f, c, bound, error));
  }
  return HR_OK;
}

/* The least that any choice of a cell needs. */
static hr_status least_need(const grid *g, const family *f, const cell *c, uint64_t *bytes, hr_error *error) {
  hri_levels_bound levels;
  *bytes = need_of(g, &c->least);
  if (!g->levels || !f->tables) return HR_OK;
  HRI_TRY(hri_levels_bound_get(f->tables, &c->least.live, &levels, error));
  *bytes = lesser(levels.need_bytes, g->groups ? levels.groups_bytes : UINT64_MAX);
  return HR_OK;
}

/* The smallest need, the smallest chunk first: levels and chunks decide together what is alive at the peak, so each chunk
 * is looked at that might need less by its live bytes. */
static hr_status refuse_family(grid *g, family *f, hr_error *error) {
  for (uint32_t k = f->cell_count; k-- > 0 && !g->any && f->levels_bytes < g->smallest;) {
    const hri_change change = g->packs ? bare(g, f, f->cells[k].chunk) : packed_as(f, &f->cells[k], 0);
    uint64_t least;
    HRI_TRY(draft_cell(g, f, &f->cells[k], NULL, error));
    if (!f->cells[k].possible) continue;
    HRI_TRY(least_need(g, f, &f->cells[k], &least, error));
    if (least < g->smallest) HRI_TRY(try_levels(g, f, &f->cells[k], &change, error));
  }
  return HR_OK;
}

static hr_status try_job(grid *g, const hr_job *changed, hr_error *error) {
  hr_job job = *changed;
  hr_plan *plan = NULL;
  hr_status status;
  if (hr_job_finish(&job, NULL) != HR_OK) return HR_OK;
  status = hri_plan_draft(&job, g->lender, &plan, error);
  if (status == HR_OK) status = place(g, &job, plan, error);
  hr_plan_destroy(plan);
  return status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL ? status : HR_OK;
}

static const family *family_of(const grid *g, const hr_job *job) {
  const bool in_backward = job->update != g->base.update;
  for (size_t n = 0; n < g->families.count; n++)
    if (g->families.items[n].rows == job->micro_batch && g->families.items[n].change.in_backward == in_backward)
      return &g->families.items[n];
  return NULL;
}

static const cell *cell_of(const family *f, const hr_job *job) {
  for (uint32_t k = 0; f && k < f->cell_count; k++)
    if (f->cells[k].loss_rows == hri_loss_chunk(job)) return &f->cells[k];
  return NULL;
}

static void take_chunk(const cell *c, hr_job *job) {
  job->loss_chunk = c->loss_rows;
  if (c->chunk) job->given |= HR_GIVEN_LOSS_CHUNK;
  else job->given &= ~(uint64_t)HR_GIVEN_LOSS_CHUNK;
}

/* In each packing: one may take a product's scratch out of a peak. */
static hr_status try_packings(grid *g, const hr_job *changed, hr_error *error) {
  hr_job job = *changed;
  for (uint32_t packing = 0; packing < packings_of(g) && !g->any; packing++) {
    job.weight_packing = (hr_weight_packing)packing;
    HRI_TRY(try_job(g, &job, error));
  }
  return g->packs || g->any ? HR_OK : try_job(g, &job, error);
}

/* What bounds leave out of the smallest need, around it: other packings, in other chunks too, with which the plan itself has
 * fewer nodes, so that it may be a page smaller with as many live bytes; then groups of any size instead of its levels. */
static hr_status refuse_nearby(grid *g, hr_error *error) {
  hr_job job = g->smallest_job;
  const family *f = family_of(g, &job);
  const cell *own = cell_of(f, &job);
  if (g->any || !has_smallest(g)) return HR_OK;
  if (g->packs) HRI_TRY(try_packings(g, &job, error));
  for (uint32_t k = 0; f && k < f->cell_count && !g->any; k++) {
    uint64_t least;
    if (!f->cells[k].possible || &f->cells[k] == own) continue;
    HRI_TRY(least_need(g, f, &f->cells[k], &least, error));
    if (least >= g->smallest) continue;
    take_chunk(&f->cells[k], &job);
    HRI_TRY(try_packings(g, &job, error));
  }
  job = g->smallest_job;
  own = cell_of(f, &job);
  for (uint32_t every = 2; g->groups && every <= job.model.layer_count && !g->any; every++) {
    if (own && f->tables && !of_use(g, hri_groups_bound(f->tables, &own->least.live, every))) continue;
    job.recompute = (hr_recompute){.kind = HR_RECOMPUTE_EVERY, .every = every};
    HRI_TRY(try_job(g, &job, error));
  }
  return HR_OK;
}

static hr_status search_levels(grid *g, hr_error *error) {
  for (size_t n = 0; n < g->families.count; n++) HRI_TRY(make_tables(g, &g->families.items[n], error));
  if (g->families.count) qsort(g->families.items, g->families.count, sizeof *g->families.items, by_bound);
  for (size_t n = 0; n < g->families.count && !isinf(g->families.items[n].bound); n++)
    HRI_TRY(search_family(g, &g->families.items[n], error));
  for (size_t n = 0; n < g->families.count && !g->any; n++) HRI_TRY(refuse_family(g, &g->families.items[n], error));
  return HR_OK;
}

/* ---- the search ---- */

/* What is no faster packed otherwise, and fits as well, stays as it was asked for. */
static hr_status prefer_asked(grid *g, hr_error *error) {
  hr_job job = g->best;
  hr_plan *plan;
  hr_status status = HR_OK;
  if (!g->any || job.weight_packing == g->asked->weight_packing) return HR_OK;
  job.weight_packing = g->asked->weight_packing;
  if (hri_plan_draft(&job, g->lender, &plan, error) != HR_OK) return HR_OK;
  if (plan->info.fits && per_token(&job, plan->info.step_seconds) <= g->seconds) {
    status = hri_plan_place(plan, error);
    if (status == HR_OK && plan->info.fits) {
      g->best = job;
      g->need = hri_plan_need(plan);
    }
  }
  hr_plan_destroy(plan);
  return status;
}

/* Loss chunks that take at most so much longer than the fastest are as fast, and one that needs so much less is better. */
static const double AS_FAST = 0.001, WORTH_IT = 0.01;

static hr_status spend_less(grid *g, hr_error *error) {
  const family *f = g->any ? family_of(g, &g->best) : NULL;
  const double limit = g->seconds * (1 + AS_FAST);
  bool slow = false;
  for (uint32_t k = 0; f && k < f->cell_count && !slow; k++) {
    hr_plan *plan;
    hr_status status = HR_OK;
    hr_job job = g->best;
    if (f->cells[k].loss_rows >= hri_loss_chunk(&job) || f->cells[k].seconds > limit) continue;
    take_chunk(&f->cells[k], &job);
    if (hri_plan_draft(&job, g->lender, &plan, error) != HR_OK) continue;
    slow = per_token(&job, plan->info.step_seconds) > limit && !measured(g);
    if (per_token(&job, plan->info.step_seconds) <= limit && plan->info.fits) {
      status = hri_plan_place(plan, error);
      if (status == HR_OK && plan->info.fits && (double)hri_plan_need(plan) < (double)g->need * (1 - WORTH_IT)) {
        g->best = job;
        g->need = hri_plan_need(plan);
        g->taken = per_token(&job, plan->info.step_seconds);
      }
    }
    hr_plan_destroy(plan);
    HRI_TRY(status);
  }
  return HR_OK;
}

static void tell(const grid *g, hr_auto *found) {
  *found = (hr_auto){.bound_token_seconds = INFINITY, .bound_bytes = UINT64_MAX};
  for (size_t n = 0; n < g->families.count; n++) {
    const family *f = &g->families.items[n];
    found->bound_token_seconds = fmin(found->bound_token_seconds, f->floor);
    found->bound_bytes = lesser(found->bound_bytes, f->carried);
  }
  if (g->any) {
    found->fastest_token_seconds = g->seconds;
    found->token_seconds = g->taken;
  } else if (has_smallest(g)) {
    found->smallest_bytes = g->smallest;
  }
}

static hr_status search_families(grid *g, hr_error *error) {
  HRI_TRY(search_as_it_is(g, error));
  if (g->levels) HRI_TRY(search_levels(g, error));
  else if (!g->any) HRI_TRY(find_smallest(g, error));
  HRI_TRY(refuse_nearby(g, error));
  HRI_TRY(prefer_asked(g, error));
  g->taken = g->seconds;
  return spend_less(g, error);
}

/* What a person can do whose job it is: a budget is no larger than its device, and only a training has an optimizer. */
static void hint_refused(const grid *g, hr_error *error) {
  const hr_job *job = g->asked;
  const bool room = job->device.usable_now || !job->device.usable_bytes || g->smallest <= job->device.usable_bytes,
             states = job->purpose == HR_PURPOSE_TRAIN && job->optimizer != HR_OPTIMIZER_SGD;
  hri_hint(error, HR_ERROR_BUDGET, "%s, %sshorten %s%s", room ? "raise --budget to that" : "name a larger --device",
           states ? "" : "or ", job->purpose == HR_PURPOSE_GENERATE ? "--context" : "--seq",
           states ? ", or choose --optimizer sgd" : "");
}

/* What was free to choose. */
static void add_searched(const grid *g, hri_text *text) {
  bool places = false, chunks = false, rows = false;
  for (size_t n = 0; n < g->families.count; n++) {
    const family *f = &g->families.items[n];
    places = places || f->change.in_backward;
    chunks = chunks || f->cell_count > 1;
    rows = rows || f->change.micro_batch > 0;
  }
  const struct {
    bool free;
    const char *what;
  } parts[] = {{g->levels, "levels of recomputation for each layer"},
               {g->groups, "groups of layers"},
               {rows, "rows of a micro-step"},
               {chunks, "loss chunks"},
               {places, "place of the update"},
               {g->packs, "packing of weights"}};
  const size_t before = text->length;
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
    if (parts[k].free) hri_text_add(text, "%s%s", text->length > before ? ", " : "", parts[k].what);
  if (text->length == before) hri_text_add(text, "the job as it is");
}

/* What updates in the backward would need, which clipping rules out, for it waits for all gradients. Where they neither fit
 * nor save what another training is worth, nothing. */
static void add_unclipped(const grid *g, const grid *unclipped, hri_text *text) {
  const hr_job *job = unclipped->any ? &unclipped->best : &unclipped->smallest_job;
  const uint64_t need = unclipped->any ? unclipped->need : unclipped->smallest;
  const hri_change none = {.levels = job->recompute.kind == HR_RECOMPUTE_LEVELS ? HRI_LEVELS_AUTO : HRI_LEVELS_KEPT};
  char options[HR_FIX_TEXT_BYTES], size[32];
  if ((!unclipped->any && !has_smallest(unclipped)) || !hri_change_text(&none, g->asked, job, options)) return;
  hri_text_add(
      text,
      ". Clipping rules out updates in the backward: without it, another training, %s are enough%s, %llu bytes (%s)",
      hri_size_text(need, size), unclipped->any ? " and fit" : "", (unsigned long long)need, options);
}

/* `unclipped`: NULL where nothing but what was searched is to be had. */
static hr_status nothing_fits(const grid *g, const grid *unclipped, hr_error *error) {
  char size[32];
  hri_text text = {0};
  hr_status status;
  if (!has_smallest(g)) {
    status = hri_fail(error, HR_ERROR_USAGE, "--auto found no choice that can be planned for this job");
    return hri_hint(error, status, "`headroom plan` without --auto says what is wrong with it");
  }
  if (g->smallest <= g->asked->budget_bytes) {
    hri_fail(error, HR_ERROR_BUDGET, "no choice of memory techniques fits the host's budget of %s",
             hri_size_text(g->asked->host_budget_bytes, size));
    return hri_hint(error, HR_ERROR_BUDGET, "raise host_budget_bytes: what a plan needs of the host is in its tiers");
  }
  add_searched(g, &text);
  if (unclipped) add_unclipped(g, unclipped, &text);
  status =
      hri_fail(error, HR_ERROR_BUDGET,
               "no choice of memory techniques fits the budget; the smallest needs %s, %llu bytes (%s). Searched: %s",
               hri_size_text(g->smallest, size), (unsigned long long)g->smallest,
               g->smallest_options[0] ? g->smallest_options : "the job as it is", hri_text_get(&text));
  hri_text_deinit(&text);
  hint_refused(g, error);
  if (error) error->requested_bytes = g->smallest;
  return status;
}

static void begin(grid *g, const hr_job *job, uint64_t ceiling) {
  const bool trains = job->purpose == HR_PURPOSE_TRAIN;
  g->asked = job;
  g->base = *job;
  if (job->rows_choice == HR_ROWS_OPEN) g->base.rows_choice = HR_ROWS_CHOSEN; /* among the divisors */
  g->smallest = g->ceiling = ceiling;
  g->allowance = HRI_ALLOWANCE;
  g->groups = trains && !given(g, HR_GIVEN_RECOMPUTE);
  g->levels = g->groups || (trains && job->recompute.kind == HR_RECOMPUTE_AUTO);
  if (g->levels) g->base.recompute = (hr_recompute){.kind = HR_RECOMPUTE_NONE};
  g->varies = job->device.packs && job->purpose != HR_PURPOSE_GENERATE &&
              !(given(g, HR_GIVEN_WEIGHT_PACKING) && job->weight_packing == HR_WEIGHT_PACKING_OFF);
  g->packs = job->device.packs && job->purpose != HR_PURPOSE_GENERATE && !given(g, HR_GIVEN_WEIGHT_PACKING);
}

static void end(grid *g) {
  if (!g) return;
  hr_plan_destroy(g->lender);
  for (size_t n = 0; n < g->families.count; n++) hri_level_tables_destroy(g->families.items[n].tables);
  hri_array_free(&g->families);
  hri_free(g);
}

static hr_status search(const hr_job *job, bool only_backward, uint64_t ceiling, grid **out, hr_error *error) {
  grid *g = hri_alloc_zero(1, sizeof *g);
  hr_status status;
  *out = g;
  if (!g) return hri_fail_memory(error, sizeof *g, "the search");
  begin(g, job, ceiling);
  g->only_backward = only_backward;
  status = hri_plan_draft(&g->base, NULL, &g->lender, error); /* where it cannot be planned, each has its own backend */
  if (status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL) return status;
  HRI_TRY(list_families(g, error));
  return search_families(g, error);
}

/* What a search by speed in a byte less than the smallest need finds is smaller yet: it looks at packings and levels that
 * the search for the smallest leaves out. Large jobs, of which it takes seconds, are searched once. */
static hr_status refuse_again(grid *g, hr_error *error) {
  enum { REPEATS = 8, NODES = 2048 };
  hr_job job = *g->asked;
  const uint32_t nodes = g->lender ? g->lender->info.node_count : NODES;
  bool less = !g->any && has_smallest(g);
  for (uint32_t k = 0; less && k < REPEATS && (k + 1) * nodes <= NODES; k++) {
    grid *again;
    hr_status status;
    job.budget_bytes = g->smallest - 1;
    status = search(&job, g->only_backward, g->ceiling, &again, error);
    less = status == HR_OK && (again->any || again->smallest < g->smallest);
    if (less && again->any) take_smaller(g, &again->best, again->need);
    else if (less) take_smaller(g, &again->smallest_job, again->smallest);
    end(again);
    HRI_TRY(status);
  }
  return HR_OK;
}

/* What a refusal says of updates in the backward, where nothing but clipping, which most jobs have by default, stands in
 * their way: *out is NULL elsewhere. They alone are searched, which are those of one micro-step. */
static hr_status search_unclipped(const grid *g, grid **out, hr_error *error) {
  hr_job job = *g->asked;
  *out = NULL;
  if (job.purpose != HR_PURPOSE_TRAIN || job.clip <= 0 || given(g, HR_GIVEN_UPDATE) || hri_job_skips(&job))
    return HR_OK;
  job.clip = 0;
  job.given |= HR_GIVEN_CLIP;
  HRI_TRY(search(&job, true, (uint64_t)((double)g->smallest * (1 - HRI_WORTH_CHANGING)), out, error));
  return refuse_again(*out, error);
}

/* The plan that is returned is made anew: the search's backend holds what was decided for the other points, which is
 * not in its fixed bytes. */
hr_status hr_plan_auto(hr_job *job, hr_plan **out, hr_auto *found, hr_error *error) {
  grid *g = NULL, *unclipped = NULL;
  hr_job best;
  hr_status status;
  HRI_TRY(hri_job_finished(job, error));
  hri_mem_keep(true);
  status = search(job, false, UINT64_MAX, &g, error);
  if (status == HR_OK) status = refuse_again(g, error);
  if (status == HR_OK && found) tell(g, found);
  if (status == HR_OK && !g->any) status = search_unclipped(g, &unclipped, error);
  if (status == HR_OK && !g->any) status = nothing_fits(g, unclipped, error);
  if (status == HR_OK) best = g->best;
  end(unclipped);
  end(g);
  hri_mem_keep(false);
  if (status != HR_OK) return status;
  if (out) HRI_TRY(hr_plan_create(&best, out, error));
  *job = best;
  return HR_OK;
}
