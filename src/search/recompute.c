/* --recompute auto: levels per layer for a byte budget.
 *
 * Five drafts of plans with the same level everywhere are read layer by layer (hr_plan_layers_get): what a layer at a
 * level keeps for its backward, S; the most that is alive while it runs, less what the layers below keep, R; and its
 * seconds. Layers of different levels mix freely, since what layer k sees of the layers below is only the sum of what
 * they keep. The most live bytes of a mixture v are therefore
 *
 *   max( max over k of S_0(v_0) + ... + S_(k-1)(v_(k-1)) + R_k(v_k),  sum of all S + loss,  everything else ).
 *
 * Whether the last residual counts as the last layer's or as the loss's depends on whose storage it took over in place,
 * that is on the last layer's level: what the loss takes more at a level is added to that layer's S.
 *
 * The dynamic program goes up through the layers. Its state is (bytes kept so far, seconds so far); a state that keeps
 * more and takes longer than another is dropped, and so is a level whose R does not fit on top of the state: this is
 * where the order of the layers counts. The seconds are whole picoseconds, so that equal sums are equal. The result is
 * exact for live bytes unless a layer has more than STATES undominated states; of neighbours the faster then stays.
 *
 * A placement can need more than the live bytes. What is chosen, or told, is therefore placed, and where the placed
 * plan is too large, the bytes asked of the program are tightened: by what was too much until one fits, then halving
 * the distance.
 * At last, where few enough faster mixtures remain that fit by their live bytes, each is planned, the fastest first.
 *
 * After multiple-choice knapsack over a chain with memory-persistent checkpoints: Beaumont et al., "Optimal
 * checkpointing for heterogeneous chains" (arXiv 1911.13214); levels per layer take the place of
 * keep-all-or-nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/order.h"
#include "job/job.h"
#include "search/search.h"

enum {
  STATES = 8192,  /* of one layer: up to some 40 equal layers have fewer */
  SPREAD = 7,     /* choices over the whole range of bytes */
  ATTEMPTS = 10,  /* placed plans to tighten with */
  LISTED = 20000, /* mixtures looked at for the last step; more are not enumerated */
};

typedef struct level_cost {
  uint64_t saved, running; /* S and R of the note above */
  uint64_t picoseconds;
} level_cost;

typedef struct mixture {
  uint8_t levels[HR_MAX_LAYERS];
} mixture;

/* A mixture that was drafted; `need_bytes` and `fits` are bounds until it is placed. */
typedef struct trial {
  mixture levels;
  uint64_t need_bytes;
  double step_seconds;
  bool fits, placed;
  int interest; /* for the frontier: 0 a step of the search, 1 the same level everywhere, 2 spread over the range */
} trial;

typedef struct state {
  uint64_t saved, picoseconds;
  uint32_t parent;
  uint8_t level;
} state;

typedef struct hri_level_tables {
  const hr_job *job;
  hri_freedom free;      /* of tables that are bounds */
  const hr_plan *lender; /* of the backend: the caller's, or */
  hr_plan *own;
  uint32_t layers;
  level_cost cost[HR_MAX_LAYERS][HR_LEVEL_COUNT];
  uint64_t between, outside; /* live bytes at the loss on top of all S; of everything else */
  uint64_t fixed;            /* least fixed bytes of any trial */
  uint64_t keep_loss;        /* `between` of the mixture that keeps all, */
  uint64_t keep_running;     /* and its largest R */
  double rest_seconds;       /* of a step, at least, beside what the layers take */
  hr_job own_job;            /* of tables that outlive the caller's */
  uint32_t nodes;            /* of the largest trial */
  uint64_t own_allowance, *allowance;
  HRI_ARRAY(trial) trials;
  size_t chosen;          /* index of the best trial, once settled */
  const hri_rival *rival; /* or NULL */
  bool beaten, slow, hope;
} chooser;

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- plans ---- */

static hr_status draft_plan(const chooser *c, const mixture *m, hr_weight_packing packing, hr_plan **plan,
                            hr_error *error) {
  hr_job *job = hri_alloc(sizeof *job);
  hr_status status;
  if (!job) return hri_fail_memory(error, sizeof *job, "the search");
  *job = *c->job;
  job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_LEVELS, .level_count = c->layers};
  memcpy(job->recompute.levels, m->levels, c->layers);
  job->weight_packing = packing;
  status = hri_plan_draft(job, c->lender, plan, error);
  hri_free(job);
  return status;
}

/* Fits before not; then faster; then smaller. */
static bool better(const trial *a, const trial *b) {
  if (a->fits != b->fits) return a->fits;
  if (a->fits && a->step_seconds != b->step_seconds) return a->step_seconds < b->step_seconds;
  if (a->need_bytes != b->need_bytes) return a->need_bytes < b->need_bytes;
  return a->step_seconds < b->step_seconds;
}

static trial *find_trial(const chooser *c, const mixture *m) {
  for (size_t k = 0; k < c->trials.count; k++)
    if (memcmp(c->trials.items[k].levels.levels, m->levels, c->layers) == 0) return &c->trials.items[k];
  return NULL;
}

static void read_numbers(trial *t, const hr_plan *plan) {
  t->need_bytes = hri_plan_need(plan);
  t->step_seconds = plan->info.step_seconds;
  t->fits = plan->info.fits;
  t->placed = plan->placed;
}

/* Drafts a mixture unless that was done before. The result stays valid until the next call. */
static hr_status try_mixture(chooser *c, const mixture *m, hr_plan **keep, trial **out, hr_error *error) {
  hr_plan *plan = NULL;
  trial t = {.levels = *m};
  *out = find_trial(c, m);
  if (*out) return HR_OK;
  HRI_TRY(draft_plan(c, m, c->job->weight_packing, &plan, error));
  read_numbers(&t, plan);
  if (c->trials.count == 0 || plan->info.tiers[HR_TIER_DEVICE].fixed_bytes < c->fixed)
    c->fixed = plan->info.tiers[HR_TIER_DEVICE].fixed_bytes;
  if (plan->info.node_count > c->nodes) c->nodes = plan->info.node_count;
  if (keep) *keep = plan;
  else hr_plan_destroy(plan);
  if (!hri_array_push(&c->trials, t)) {
    if (keep) {
      hr_plan_destroy(plan);
      *keep = NULL;
    }
    return hri_fail_memory(error, sizeof t, "the search");
  }
  *out = &c->trials.items[c->trials.count - 1];
  return HR_OK;
}

/* From bounds to what a run would reserve. */
static hr_status place_trial(chooser *c, trial *t, hr_error *error) {
  hr_plan *plan = NULL;
  hr_status status;
  if (t->placed) return HR_OK;
  HRI_TRY(draft_plan(c, &t->levels, c->job->weight_packing, &plan, error));
  status = hri_plan_place(plan, error);
  if (status == HR_OK) read_numbers(t, plan);
  hr_plan_destroy(plan);
  return status;
}

/* The best of all trials. Bounds are never worse than what is placed, so that a placed trial that is better than the
 * bounds of all others is better than them: only those that might be the best are placed. */
static hr_status settle(chooser *c, hr_error *error) {
  for (;;) {
    c->chosen = 0;
    for (size_t k = 1; k < c->trials.count; k++)
      if (better(&c->trials.items[k], &c->trials.items[c->chosen])) c->chosen = k;
    if (c->trials.items[c->chosen].placed) return HR_OK;
    HRI_TRY(place_trial(c, &c->trials.items[c->chosen], error));
  }
}

/* ---- tables ---- */

static uint64_t less(uint64_t bytes, uint64_t taken) { return bytes > taken ? bytes - taken : 0; }

/* Bytes of a level, and what the loss takes on top of all S. */
static uint64_t fill_bytes(chooser *c, const hr_plan_layers *l, uint8_t level) {
  uint64_t below = 0;
  for (uint32_t k = 0; k < c->layers; k++) {
    level_cost *cost = &c->cost[k][level];
    cost->saved = l->layers[k].saved_bytes;
    cost->running = less(larger(l->layers[k].forward_bytes, l->layers[k].backward_bytes), below);
    below += cost->saved;
  }
  c->outside = larger(c->outside, l->outside_bytes);
  return less(l->between_bytes, below);
}

static bool packs_what_is_free(const chooser *c) {
  return c->job->weight_packing == HR_WEIGHT_PACKING_AUTO && c->job->device.packs;
}

static void fill_seconds(chooser *c, const hr_plan *plan, const hr_plan_layers *l, uint8_t level,
                         const hri_freedom *free) {
  uint64_t sum = 0;
  for (uint32_t k = 0; k < c->layers; k++)
    sum += c->cost[k][level].picoseconds = (uint64_t)(l->layers[k].seconds * 1e12 + 0.5);
  if (level == HR_LEVEL_KEEP)
    c->rest_seconds =
        plan->info.step_seconds - hri_job_spare_seconds(&plan->job, &plan->spec, free) - 1e-12 * (double)sum;
}

/* Operands that are packed where the bytes are free raise no peak, but they fill each plan up to its own, and which ones
 * are goes by all layers together. So neither bytes nor time say anything of another mixture: bytes are those of a plan
 * without them, and time is what it takes at least. */
static hr_status fill_level(chooser *c, uint8_t level, hr_plan_layers *layers, uint64_t *loss, hr_error *error) {
  const bool automatic = packs_what_is_free(c);
  const hri_freedom free = {.packing = automatic || c->free.packing};
  hr_plan *plan = NULL;
  trial *made;
  hr_status status = HR_OK;
  mixture m;
  memset(&m, level, sizeof m);
  HRI_TRY(try_mixture(c, &m, &plan, &made, error));
  c->trials.items[level].interest = 1;
  if (automatic) {
    hr_plan_destroy(plan);
    plan = NULL;
    status = draft_plan(c, &m, HR_WEIGHT_PACKING_OFF, &plan, error);
  }
  if (status == HR_OK) status = hri_plan_layers_least(plan, &free, layers, error);
  if (status == HR_OK) fill_seconds(c, plan, layers, level, &free);
  if (status == HR_OK && automatic) status = hr_plan_layers_get(plan, layers, error);
  if (status == HR_OK) *loss = fill_bytes(c, layers, level);
  hr_plan_destroy(plan);
  return status;
}

static hr_status fill_tables(chooser *c, hr_error *error) {
  hr_plan_layers *layers = hri_alloc(sizeof *layers);
  uint64_t loss[HR_LEVEL_COUNT] = {0};
  hr_status status = HR_OK;
  if (!layers) return hri_fail_memory(error, sizeof *layers, "the search");
  for (uint8_t level = 0; level < HR_LEVEL_COUNT && status == HR_OK; level++)
    status = fill_level(c, level, layers, &loss[level], error);
  c->between = UINT64_MAX;
  for (uint8_t level = 0; level < HR_LEVEL_COUNT; level++)
    if (loss[level] < c->between) c->between = loss[level];
  for (uint8_t level = 0; level < HR_LEVEL_COUNT && c->layers; level++)
    c->cost[c->layers - 1][level].saved += loss[level] - c->between;
  c->keep_loss = loss[HR_LEVEL_KEEP];
  for (uint32_t k = 0; k < c->layers; k++) c->keep_running = larger(c->keep_running, c->cost[k][HR_LEVEL_KEEP].running);
  hri_free(layers);
  return status;
}

/* Most live bytes of a mixture while its layers run or the loss does, by the tables. */
static uint64_t layers_bytes(const chooser *c, const mixture *m) {
  uint64_t saved = 0, most = 0;
  for (uint32_t k = 0; k < c->layers; k++) {
    most = larger(most, saved + c->cost[k][m->levels[k]].running);
    saved += c->cost[k][m->levels[k]].saved;
  }
  return larger(most, saved + c->between);
}

/* Of that at the loss. */
static uint64_t kept_bytes(const chooser *c, const mixture *m) {
  uint64_t saved = c->between;
  for (uint32_t k = 0; k < c->layers; k++) saved += c->cost[k][m->levels[k]].saved;
  return saved;
}

static uint64_t live_bytes(const chooser *c, const mixture *m) { return larger(c->outside, layers_bytes(c, m)); }

static uint64_t picoseconds(const chooser *c, const mixture *m) {
  uint64_t sum = 0;
  for (uint32_t k = 0; k < c->layers; k++) sum += c->cost[k][m->levels[k]].picoseconds;
  return sum;
}

/* Of a step. */
static double least_seconds(const chooser *c, const mixture *m) {
  return c->rest_seconds + 1e-12 * (double)picoseconds(c, m);
}

/* Whether the layers of any mixture can do with so many bytes: a smaller sum below is never worse, so the smallest is
 * carried along. */
static bool feasible(const chooser *c, uint64_t bytes) {
  uint64_t saved = 0;
  for (uint32_t k = 0; k < c->layers; k++) {
    uint64_t least = UINT64_MAX;
    for (int level = 0; level < HR_LEVEL_COUNT; level++)
      if (saved + c->cost[k][level].running <= bytes && c->cost[k][level].saved < least)
        least = c->cost[k][level].saved;
    if (least == UINT64_MAX) return false;
    saved += least;
  }
  return saved + c->between <= bytes;
}

static uint64_t least_of_layers(const chooser *c) {
  uint64_t low = 0, high = 1; /* high is feasible, low is not */
  while (!feasible(c, high)) high *= 2;
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    if (feasible(c, middle)) high = middle;
    else low = middle;
  }
  return high;
}

/* The least live bytes of any mixture. */
static uint64_t least_bytes(const chooser *c) { return larger(least_of_layers(c), c->outside); }

/* ---- the dynamic program ---- */

/* Of states in order of their bytes, at most STATES: of each of as many equal parts of the range the fastest, which is
 * the one of most bytes. The first, of the fewest bytes, stays too: it decides what is feasible. */
static uint32_t thin(state *made, uint32_t count) {
  uint64_t first = made[0].saved, part = (made[count - 1].saved - first) / (STATES - 1) + 1;
  uint32_t kept = 1;
  if (count <= STATES) return count;
  for (uint32_t k = 1; k < count; k++)
    if (k + 1 == count || (made[k].saved - first) / part != (made[k + 1].saved - first) / part) made[kept++] = made[k];
  return kept;
}

/* One layer up: every state with every level that fits on top of it, merged in order of bytes; what another state beats
 * is left out. `from` is in order of bytes, so that the states a level fits on are the first ones. */
static uint32_t extend(const chooser *c, uint32_t layer, uint64_t bytes, const state *from, uint32_t count,
                       state *made) {
  const level_cost *cost = c->cost[layer];
  uint32_t next[HR_LEVEL_COUNT] = {0}, kept = 0;
  for (;;) {
    state least = {.saved = UINT64_MAX};
    for (uint8_t level = 0; level < HR_LEVEL_COUNT; level++) {
      uint32_t at = next[level];
      state s;
      if (at == count || from[at].saved + cost[level].running > bytes) continue;
      s = (state){from[at].saved + cost[level].saved, from[at].picoseconds + cost[level].picoseconds, at, level};
      if (s.saved < least.saved || (s.saved == least.saved && s.picoseconds < least.picoseconds)) least = s;
    }
    if (least.saved == UINT64_MAX) return kept ? thin(made, kept) : 0;
    next[least.level]++;
    if (kept == 0 || least.picoseconds < made[kept - 1].picoseconds) made[kept++] = least;
  }
}

/* The fastest mixture whose layers have at most `bytes` alive, and at most `kept` of that at the loss; *found false when
 * there is none. */
static hr_status solve(const chooser *c, uint64_t bytes, uint64_t kept, mixture *out, bool *found, hr_error *error) {
  state *now = hri_alloc(STATES * sizeof *now), *made = hri_alloc((uint64_t)STATES * HR_LEVEL_COUNT * sizeof *made);
  uint32_t *trace = hri_alloc((uint64_t)c->layers * STATES * sizeof *trace), count = 1,
           last = UINT32_MAX; /* parent x 8 + level */
  hr_status status = HR_OK;
  *found = false;
  if (!now || !made || !trace) {
    status = hri_fail_memory(error, (uint64_t)c->layers * STATES * sizeof *trace, "the search");
    goto out;
  }
  now[0] = (state){0, 0, 0, 0};
  for (uint32_t layer = 0; layer < c->layers && count; layer++) {
    count = extend(c, layer, bytes, now, count, made);
    memcpy(now, made, count * sizeof *now);
    for (uint32_t k = 0; k < count; k++) trace[(size_t)layer * STATES + k] = made[k].parent * 8 + made[k].level;
  }
  for (uint32_t k = 0; k < count; k++) /* in order: the last that fits is the fastest */
    if (now[k].saved + c->between <= lesser(bytes, kept)) last = k;
  if (last == UINT32_MAX) goto out;
  memset(out, 0, sizeof *out);
  for (uint32_t layer = c->layers; layer > 0; layer--) {
    uint32_t t = trace[(size_t)(layer - 1) * STATES + last];
    out->levels[layer - 1] = (uint8_t)(t % 8);
    last = t / 8;
  }
  *found = true;
out:
  hri_free(now);
  hri_free(made);
  hri_free(trace);
  return status;
}

/* The same levels in an order with few runs, where that is as fast and fits as well: short to write, easy to read. */
static void tidy(const chooser *c, uint64_t bytes, mixture *m) {
  const uint64_t time = picoseconds(c, m), kept = kept_bytes(c, m);
  for (uint32_t fixed = 0; fixed < 3; fixed++) /* none, the first, or the first and the last layer stay */
    for (int down = 0; down < 2; down++) {
      uint32_t from = fixed > 0, to = c->layers - (fixed > 1), at = from, counts[HR_LEVEL_COUNT] = {0};
      mixture sorted = *m;
      if (from >= to) continue;
      for (uint32_t k = from; k < to; k++) counts[m->levels[k]]++;
      for (int i = 0; i < HR_LEVEL_COUNT; i++) {
        int level = down ? HR_LEVEL_COUNT - 1 - i : i;
        memset(sorted.levels + at, level, counts[level]);
        at += counts[level];
      }
      if (picoseconds(c, &sorted) > time || layers_bytes(c, &sorted) > bytes || kept_bytes(c, &sorted) > kept) continue;
      *m = sorted;
      return;
    }
}

static hr_status solve_tidy(const chooser *c, uint64_t bytes, uint64_t kept, mixture *out, bool *found,
                            hr_error *error) {
  HRI_TRY(solve(c, bytes, kept, out, found, error));
  if (*found) tidy(c, bytes, out);
  return HR_OK;
}

/* ---- from live bytes to placed bytes ---- */

/* Live bytes that a budget leaves room for: whole granules, since a reservation is rounded up to them. */
static uint64_t room(const chooser *c) {
  uint64_t granule = c->lender->backend->granule, bytes = less(c->job->budget_bytes, c->fixed);
  return bytes - bytes % granule;
}

/* Tries the fastest mixture within so many bytes. *t NULL: there is none, or *slow, none that beats the rival; and so it is
 * with fewer bytes. */
static hr_status try_placed(chooser *c, uint64_t bytes, uint64_t kept, trial **t, bool *slow, hr_error *error) {
  mixture m;
  bool found;
  *t = NULL;
  *slow = false;
  HRI_TRY(solve_tidy(c, bytes, kept, &m, &found, error));
  if (!found) return HR_OK;
  if (c->rival && least_seconds(c, &m) >= c->rival->step_seconds) {
    c->slow = *slow = true;
    return HR_OK;
  }
  HRI_TRY(try_mixture(c, &m, NULL, t, error));
  return place_trial(c, *t, error);
}

/* The bytes that layers are given go down until a plan fits or is too slow, by the least that makes a difference, by what
 * was too much and twice as far each time, also below what is alive outside of layers, which no mixture changes: there a
 * placement has room beside it. From there they go up again, by halves. */
static hr_status tighten(chooser *c, hr_error *error) {
  const uint64_t least = least_of_layers(c);
  uint64_t ends_at = 0, fails_at = 0, bytes = room(c), step = 0; /* fewer bytes than ends_at are of no use */
  for (uint32_t attempt = 0; attempt < ATTEMPTS && bytes >= least; attempt++) {
    bool slow;
    trial *t;
    HRI_TRY(try_placed(c, bytes, bytes, &t, &slow, error));
    if (!t && !slow) return HR_OK;
    if (slow || t->fits) {
      ends_at = bytes;
      if (!fails_at) return HR_OK; /* nothing faster fits by live bytes, let alone placed */
    } else {
      fails_at = layers_bytes(c, &t->levels);
      if (!ends_at) bytes = less(fails_at, larger(step, 1));
      step = larger(less(t->need_bytes, c->job->budget_bytes), 2 * step);
      if (!ends_at && bytes < least && fails_at > least) bytes = least;
    }
    if (ends_at && fails_at <= ends_at + 1) break;
    if (ends_at) bytes = ends_at + (fails_at - ends_at) / 2;
  }
  return HR_OK;
}

/* Where one layer alone takes all the bytes, there is nothing to tighten there. What the others keep lies in its way all
 * the same: the less that is, by halving, the more room it leaves the placement. */
static hr_status keep_less(chooser *c, hr_error *error) {
  uint64_t low = c->between, high = 0, bytes = room(c);
  mixture fastest;
  bool found;
  HRI_TRY(solve_tidy(c, room(c), room(c), &fastest, &found, error));
  if (!found) return HR_OK;
  high = kept_bytes(c, &fastest);
  for (uint32_t attempt = 0; attempt < ATTEMPTS && high > low + 1; attempt++) {
    const uint64_t kept = low + (high - low) / 2;
    bool slow; /* to keep fewer is slower still, and to keep more may not be */
    trial *t;
    HRI_TRY(try_placed(c, bytes, kept, &t, &slow, error));
    if (t && !t->fits) {
      const mixture failed = t->levels;
      HRI_TRY(try_placed(c, layers_bytes(c, &failed) - 1, kept, &t, &slow, error)); /* a little less of both */
      if (t && t->fits) bytes = layers_bytes(c, &failed) - 1;
      else high = lesser(kept, kept_bytes(c, &failed));
    }
    if (high > kept) low = kept;
  }
  return HR_OK;
}

/* Whether something that fits takes no more than this longer than what fits by its live bytes. */
static const double NEAR = 0.001;

static bool near_the_fastest(const chooser *c) {
  const trial *fastest = &c->trials.items[0];
  for (size_t k = 1; k < c->trials.count; k++) {
    const trial *t = &c->trials.items[k];
    if (live_bytes(c, &t->levels) <= room(c) &&
        (live_bytes(c, &fastest->levels) > room(c) || t->step_seconds < fastest->step_seconds))
      fastest = t;
  }
  for (size_t k = 0; k < c->trials.count; k++) {
    const trial *t = &c->trials.items[k];
    if (t->placed && t->fits && t->step_seconds <= fastest->step_seconds * (1 + NEAR)) return true;
  }
  return false;
}

static hr_status try_within(chooser *c, uint64_t bytes, int interest, hr_error *error) {
  trial *t;
  mixture m;
  bool found;
  HRI_TRY(solve_tidy(c, bytes, bytes, &m, &found, error));
  if (!found) return HR_OK;
  HRI_TRY(try_mixture(c, &m, NULL, &t, error));
  t->interest = interest;
  return HR_OK;
}

/* Choices spread over the bytes between the fewest and those of keeping all, whatever the budget: what people look at,
 * and a floor below which a larger budget cannot be the slower one. */
static hr_status spread(chooser *c, uint64_t least, hr_error *error) {
  uint64_t most = larger(live_bytes(c, &c->trials.items[HR_LEVEL_KEEP].levels), least);
  for (uint64_t k = 0; k < SPREAD; k++) HRI_TRY(try_within(c, least + (most - least) * k / (SPREAD - 1), 2, error));
  return HR_OK;
}

/* ---- what is left, one by one ---- */

typedef struct listing {
  const chooser *c;
  uint64_t bytes, quicker_than;
  uint64_t rest[HR_MAX_LAYERS + 1]; /* least picoseconds of the layers from k on */
  mixture at;
  HRI_ARRAY(mixture) found;
  uint32_t looked;
  bool failed;
} listing;

static void list_from(listing *l, uint32_t layer, uint64_t saved, uint64_t time) {
  const chooser *c = l->c;
  if (l->failed || l->looked > LISTED) return;
  if (layer == c->layers) {
    if (saved + c->between <= l->bytes && !find_trial(c, &l->at) && !hri_array_push(&l->found, l->at)) l->failed = true;
    return;
  }
  for (uint8_t level = 0; level < HR_LEVEL_COUNT; level++) {
    const level_cost *cost = &c->cost[layer][level];
    if (saved + cost->running > l->bytes || time + cost->picoseconds + l->rest[layer + 1] >= l->quicker_than) continue;
    l->looked++;
    l->at.levels[layer] = level;
    list_from(l, layer + 1, saved + cost->saved, time + cost->picoseconds);
  }
}

static int by_time(const void *items, uint32_t left, uint32_t right) {
  const listing *l = items;
  const mixture *a = &l->found.items[left], *b = &l->found.items[right];
  uint64_t x = picoseconds(l->c, a), y = picoseconds(l->c, b);
  if (x != y) return x < y ? -1 : 1;
  x = live_bytes(l->c, a);
  y = live_bytes(l->c, b);
  if (x != y) return x < y ? -1 : 1;
  return memcmp(a, b, l->c->layers);
}

/* What the layers of something better may take: faster than the best that fits, here or at the rival's. */
static uint64_t to_beat(const chooser *c) {
  const trial *best = &c->trials.items[c->chosen];
  double seconds = best->fits ? best->step_seconds : INFINITY;
  if (c->rival && c->rival->step_seconds < seconds) seconds = c->rival->step_seconds;
  if (best->fits && seconds == best->step_seconds && !packs_what_is_free(c)) return picoseconds(c, &best->levels);
  if (isinf(seconds)) return UINT64_MAX;
  return seconds > c->rest_seconds ? (uint64_t)ceil(1e12 * (seconds - c->rest_seconds)) : 0;
}

/* In order of their times, until the next one cannot be the best. */
static hr_status try_listed(chooser *c, const listing *l, const uint32_t *order, hr_error *error) {
  uint64_t quicker_than = l->quicker_than;
  for (size_t k = 0; k < l->found.count && *c->allowance >= c->nodes; k++) {
    const mixture *m = &l->found.items[order[k]];
    const trial *best;
    trial *t;
    if (picoseconds(c, m) >= quicker_than) return HR_OK;
    *c->allowance -= c->nodes;
    HRI_TRY(try_mixture(c, m, NULL, &t, error));
    best = &c->trials.items[c->chosen];
    if (!t->fits || !better(t, best) || (c->rival && t->step_seconds >= c->rival->step_seconds)) continue;
    HRI_TRY(place_trial(c, t, error));
    if (!t->fits) continue;
    c->chosen = (size_t)(t - c->trials.items);
    quicker_than = lesser(quicker_than, to_beat(c));
  }
  return HR_OK;
}

static int by_live_bytes(const void *items, uint32_t left, uint32_t right) {
  const listing *l = items;
  const uint64_t x = live_bytes(l->c, &l->found.items[left]), y = live_bytes(l->c, &l->found.items[right]);
  return x != y ? (x < y ? -1 : 1) : by_time(items, left, right);
}

/* In order of their live bytes, until the next one cannot be the smallest. A tenth of a second is enough to name a need. */
static hr_status try_smaller(chooser *c, const listing *l, const uint32_t *order, hr_error *error) {
  for (size_t k = 0; k < l->found.count && *c->allowance >= HRI_ALLOWANCE / 4 * 3 + c->nodes; k++) {
    const mixture *m = &l->found.items[order[k]];
    trial *t;
    if (live_bytes(c, m) + c->fixed >= c->trials.items[c->chosen].need_bytes) return HR_OK;
    *c->allowance -= c->nodes;
    HRI_TRY(try_mixture(c, m, NULL, &t, error));
    if (!better(t, &c->trials.items[c->chosen])) continue;
    HRI_TRY(place_trial(c, t, error));
    if (better(t, &c->trials.items[c->chosen])) c->chosen = (size_t)(t - c->trials.items);
  }
  return HR_OK;
}

typedef hr_status (*try_fn)(chooser *c, const listing *l, const uint32_t *order, hr_error *error);

/* Where mixtures of so many live bytes and so much time are few enough, each that was not tried. */
static hr_status try_within_both(chooser *c, uint64_t bytes, uint64_t quicker_than, hri_order_compare compare,
                                 try_fn try_them, hr_error *error) {
  listing l = {.c = c, .bytes = bytes, .quicker_than = quicker_than};
  hr_status status = HR_OK;
  for (uint32_t k = c->layers; k > 0; k--) {
    uint64_t least = UINT64_MAX;
    for (int level = 0; level < HR_LEVEL_COUNT; level++)
      if (c->cost[k - 1][level].picoseconds < least) least = c->cost[k - 1][level].picoseconds;
    l.rest[k - 1] = l.rest[k] + least;
  }
  if (c->outside <= l.bytes) list_from(&l, 0, 0, 0);
  if (l.failed) status = hri_fail_memory(error, l.found.count * sizeof(mixture), "the search");
  if (status == HR_OK && l.looked <= LISTED && l.found.count) {
    uint32_t *order = NULL;
    status = hri_order_make(&l, (uint32_t)l.found.count, compare, &order, error);
    if (status == HR_OK) status = try_them(c, &l, order, error);
    hri_free(order);
  }
  hri_array_free(&l.found);
  return status;
}

/* Mixtures that may be faster than the best and fit by their live bytes, though the placement of another did not. Where
 * none fits, those that may be smaller than the smallest. */
static hr_status try_the_rest(chooser *c, hr_error *error) {
  const trial *best;
  HRI_TRY(try_within_both(c, room(c), to_beat(c), by_time, try_listed, error));
  best = &c->trials.items[c->chosen];
  if (best->fits || (c->rival && !isinf(c->rival->step_seconds))) return HR_OK;
  return try_within_both(c, less(best->need_bytes, c->fixed + 1), UINT64_MAX, by_live_bytes, try_smaller, error);
}

/* ---- the whole ---- */

/* Whether the tables leave no hope against the rival: what fits by its live bytes takes as long, or, while nothing fits
 * anywhere, the least live bytes are no fewer. The levels that are the same everywhere have plans, which know
 * better. */
static hr_status compare_with_rival(chooser *c, uint64_t least, hr_error *error) {
  bool found, hope = false;
  mixture fastest;
  for (int level = 0; level < HR_LEVEL_COUNT; level++) {
    const trial *t = &c->trials.items[level];
    hope = hope || (t->fits ? t->step_seconds < c->rival->step_seconds
                            : isinf(c->rival->step_seconds) && t->need_bytes < c->rival->need_bytes);
  }
  if (hope) return HR_OK;
  HRI_TRY(solve(c, room(c), room(c), &fastest, &found, error));
  if (found && c->outside <= room(c)) {
    c->beaten = c->slow = least_seconds(c, &fastest) >= c->rival->step_seconds;
  } else {
    c->beaten = !isinf(c->rival->step_seconds) || least + c->fixed >= c->rival->need_bytes;
  }
  for (size_t k = 0; k < c->trials.count; k++)
    if (better(&c->trials.items[k], &c->trials.items[c->chosen])) c->chosen = k;
  return HR_OK;
}

static hr_status choose(chooser *c, bool frontier, hr_error *error) {
  uint64_t least;
  HRI_TRY(fill_tables(c, error));
  least = least_bytes(c);
  c->hope = room(c) >= least;
  for (int level = 0; level < HR_LEVEL_COUNT; level++) c->hope = c->hope || c->trials.items[level].fits;
  if (c->rival) HRI_TRY(compare_with_rival(c, least, error));
  if (c->beaten) return HR_OK;
  if (c->trials.items[HR_LEVEL_KEEP].fits) HRI_TRY(place_trial(c, &c->trials.items[HR_LEVEL_KEEP], error));
  if (c->trials.items[HR_LEVEL_KEEP]
          .fits) { /* nothing is faster than to keep all, but where bytes are spent on packing */
    c->chosen = HR_LEVEL_KEEP;
    if (frontier) HRI_TRY(spread(c, least, error));
    if (packs_what_is_free(c)) HRI_TRY(try_the_rest(c, error));
    return packs_what_is_free(c) ? settle(c, error) : HR_OK;
  }
  if (room(c) < least) { /* nothing fits: the smallest need, for the verdict */
    HRI_TRY(try_within(c, least, 2, error));
    HRI_TRY(try_within(c, least_of_layers(c), 0, error));
    HRI_TRY(settle(c, error));
    HRI_TRY(try_the_rest(c, error));
    return frontier ? spread(c, least, error) : HR_OK;
  }
  HRI_TRY(spread(c, least, error));
  if (c->outside <= room(c)) HRI_TRY(tighten(c, error));
  if (c->outside <= room(c) && !near_the_fastest(c)) HRI_TRY(keep_less(c, error));
  HRI_TRY(settle(c, error));
  HRI_TRY(try_the_rest(c, error));
  return settle(c, error);
}

static int by_need(const void *a, const void *b) {
  const trial *x = a, *y = b;
  if (x->need_bytes != y->need_bytes) return x->need_bytes < y->need_bytes ? -1 : 1;
  return x->step_seconds < y->step_seconds ? -1 : x->step_seconds > y->step_seconds;
}

static void take_point(const chooser *c, const trial *t, bool chosen, hr_frontier *frontier) {
  hr_frontier_point *p = &frontier->points[frontier->count++];
  memset(p, 0, sizeof *p);
  p->recompute.kind = HR_RECOMPUTE_LEVELS;
  p->recompute.level_count = c->layers;
  memcpy(p->recompute.levels, t->levels.levels, c->layers);
  p->need_bytes = t->need_bytes;
  p->step_seconds = t->step_seconds;
  p->fits = t->fits;
  p->chosen = chosen;
}

/* Moves the trials of some interest that no other beats to the front, in order of bytes, and the chosen one among them
 * whatever it is. Returns their number. */
static size_t undominated(chooser *c, int interest) {
  mixture best = c->trials.items[c->chosen].levels;
  trial *t = c->trials.items;
  size_t count = 0;
  double fastest = 0;
  qsort(t, c->trials.count, sizeof *t, by_need);
  for (size_t k = 0; k < c->trials.count; k++) {
    bool is_best = memcmp(t[k].levels.levels, best.levels, c->layers) == 0,
         beaten = count > 0 && t[k].step_seconds >= fastest;
    trial moved = t[k];
    if (!is_best && (beaten || moved.interest < interest)) continue;
    if (is_best) c->chosen = count;
    if (!beaten) fastest = moved.step_seconds;
    t[k] = t[count];
    t[count++] = moved;
  }
  return count;
}

static hr_status fill_frontier(chooser *c, hr_frontier *frontier, hr_error *error) {
  size_t count;
  for (size_t k = 0; k < c->trials.count; k++)
    if (c->trials.items[k].interest > 0) HRI_TRY(place_trial(c, &c->trials.items[k], error));
  count = undominated(c, 1);
  if (count > HR_MAX_FRONTIER) count = undominated(c, 2);
  frontier->count = 0;
  for (size_t k = 0; k < count; k++) take_point(c, &c->trials.items[k], k == c->chosen, frontier);
  return HR_OK;
}

_Static_assert(SPREAD + 1 <= HR_MAX_FRONTIER, "the spread choices and the chosen one fit into a frontier");

/* ---- bounds ---- */

hr_status hri_live_bounds_get(const hr_plan *draft, const hri_freedom *free, hri_live_bounds *live, hr_error *error) {
  hr_plan_layers *layers = hri_alloc(sizeof *layers);
  uint64_t below = 0;
  hr_status status;
  if (!layers) return hri_fail_memory(error, sizeof *layers, "the search");
  status = hri_plan_layers_least(draft, free, layers, error);
  live->running = 0;
  for (uint32_t k = 0; status == HR_OK && k < layers->count; k++) {
    const hr_layer_share *l = &layers->layers[k];
    live->running = larger(live->running, less(larger(l->forward_bytes, l->backward_bytes), below));
    below += l->saved_bytes;
  }
  live->loss = less(layers->between_bytes, below);
  live->outside = layers->outside_bytes;
  hri_free(layers);
  return status;
}

hr_status hri_level_tables_create(const hr_job *job, const hr_plan *beside, bool free_packing,
                                  hri_level_tables **tables, hr_error *error) {
  chooser *c = hri_alloc_zero(1, sizeof *c);
  const mixture keep_all = {.levels = {HR_LEVEL_KEEP}};
  hr_status status = HR_OK;
  if (!c) return hri_fail_memory(error, sizeof *c, "the search");
  c->own_job = *job;
  c->job = &c->own_job;
  c->free.packing = free_packing;
  c->layers = job->model.layer_count;
  if (!beside) HRI_TRY_OUT(draft_plan(c, &keep_all, job->weight_packing, &c->own, error));
  c->lender = beside ? beside : c->own;
  HRI_TRY_OUT(fill_tables(c, error));
  *tables = c;
  return HR_OK;
out:
  hri_level_tables_destroy(c);
  return status;
}

void hri_level_tables_destroy(hri_level_tables *c) {
  if (!c) return;
  hr_plan_destroy(c->own);
  hri_array_free(&c->trials);
  hri_free(c);
}

/* What a layer's run takes less beside `live` than beside what the tables were made with. */
static uint64_t relief_of(const hri_level_tables *tables, const hri_live_bounds *live) {
  return less(tables->keep_running, live->running);
}

/* Of a layer at least: bytes while it runs, its input, and what it keeps where nothing is dropped. */
typedef struct group_parts {
  uint64_t running, input, kept;
} group_parts;

static group_parts parts_of_groups(const hri_level_tables *c, const hri_live_bounds *live) {
  group_parts p = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
  for (uint32_t k = 0; k < c->layers; k++) {
    p.running = lesser(p.running, less(c->cost[k][HR_LEVEL_KEEP].running, relief_of(c, live)));
    p.input = lesser(p.input, c->cost[k][HR_LEVEL_BLOCK].saved);
    p.kept = lesser(p.kept, c->cost[k][HR_LEVEL_KEEP].saved);
  }
  return p;
}

/* While the top of a group runs backward, the inputs of all other groups are alive, and all that its other layers keep;
 * but for one input, which may be counted with what runs and with what is kept. */
static uint64_t bound_of_groups(const hri_level_tables *c, const hri_live_bounds *live, const group_parts *p,
                                uint32_t every) {
  const uint64_t groups = every ? (c->layers + every - 1) / every : 0;
  if (every < 2 || every > c->layers) return UINT64_MAX;
  return larger(less(p->running + (groups - 1) * p->input + (every - 1) * p->kept, p->input), live->outside) +
         lesser(live->fixed, c->fixed);
}

uint64_t hri_groups_bound(const hri_level_tables *tables, const hri_live_bounds *live, uint32_t every) {
  const group_parts parts = parts_of_groups(tables, live);
  return bound_of_groups(tables, live, &parts, every);
}

hr_status hri_levels_bound_get(const hri_level_tables *tables, const hri_live_bounds *live, hri_levels_bound *bound,
                               hr_error *error) {
  chooser *c = hri_alloc(sizeof *c);
  const uint64_t relief = relief_of(tables, live);
  const group_parts parts = parts_of_groups(tables, live);
  mixture fastest, block;
  uint64_t keep;
  hr_status status;
  if (!c) return hri_fail_memory(error, sizeof *c, "the search");
  *c = *tables;
  c->between = less(live->loss, tables->keep_loss - tables->between);
  c->outside = live->outside;
  if (live->fixed < c->fixed) c->fixed = live->fixed;
  for (uint32_t k = 0; relief && k < c->layers; k++)
    for (int level = 0; level < HR_LEVEL_COUNT; level++)
      c->cost[k][level].running = less(c->cost[k][level].running, relief);
  memset(&block, HR_LEVEL_BLOCK, sizeof block);
  keep = picoseconds(c, &c->trials.items[HR_LEVEL_KEEP].levels);
  status = solve(c, room(c), room(c), &fastest, &bound->fits, error);
  bound->fits = bound->fits && c->outside <= room(c);
  bound->more_seconds = bound->fits ? 1e-12 * ((double)picoseconds(c, &fastest) - (double)keep) : 0;
  bound->block_seconds = 1e-12 * ((double)picoseconds(c, &block) - (double)keep);
  bound->need_bytes = least_bytes(c) + c->fixed;
  bound->groups_bytes = UINT64_MAX;
  for (uint32_t every = 2; every <= tables->layers; every++)
    bound->groups_bytes = lesser(bound->groups_bytes, bound_of_groups(tables, live, &parts, every));
  hri_free(c);
  return status;
}

hr_status hri_choose_levels(const hr_job *job, const hr_plan *beside, const hri_rival *rival, hri_choice *choice,
                            hr_frontier *frontier, hr_error *error) {
  chooser *c = hri_alloc_zero(1, sizeof *c);
  const mixture keep_all = {.levels = {HR_LEVEL_KEEP}};
  const trial *best;
  hr_status status = HR_OK;
  if (!c) return hri_fail_memory(error, sizeof *c, "the search");
  hri_mem_keep(true);
  c->job = job;
  c->rival = rival;
  c->own_allowance = HRI_ALLOWANCE;
  c->allowance = rival ? rival->allowance : &c->own_allowance;
  c->layers = job->model.layer_count;
  if (!beside) HRI_TRY_OUT(draft_plan(c, &keep_all, job->weight_packing, &c->own, error));
  c->lender = beside ? beside : c->own;
  HRI_TRY_OUT(choose(c, frontier != NULL, error));
  if (frontier) HRI_TRY_OUT(fill_frontier(c, frontier, error));
  best = &c->trials.items[c->chosen];
  *choice = (hri_choice){.recompute = {.kind = HR_RECOMPUTE_LEVELS, .level_count = c->layers},
                         .need_bytes = best->need_bytes,
                         .step_seconds = best->step_seconds,
                         .fits = best->fits,
                         .beaten = c->beaten,
                         .slow = c->slow,
                         .hope = c->hope};
  memcpy(choice->recompute.levels, best->levels.levels, c->layers);
out:
  hr_plan_destroy(c->own);
  hri_array_free(&c->trials);
  hri_free(c);
  hri_mem_keep(false);
  return status;
}

hr_status hr_plan_recompute(hr_job *job, hr_plan **plan, hr_frontier *frontier, hr_error *error) {
  hr_job chosen = *job;
  hri_choice choice;
  HRI_TRY(hri_job_finished(job, error));
  if (job->purpose != HR_PURPOSE_TRAIN)
    return hri_fail(error, HR_ERROR_USAGE, "--recompute auto: only a training has a backward to recompute in");
  HRI_TRY(hri_choose_levels(job, NULL, NULL, &choice, frontier, error));
  chosen.levels_chosen = job->recompute.kind == HR_RECOMPUTE_AUTO || job->levels_chosen;
  chosen.recompute = choice.recompute;
  if (plan) HRI_TRY(hr_plan_create(&chosen, plan, error));
  *job = chosen;
  return HR_OK;
}
