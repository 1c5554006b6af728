/* Offline placement of storages with known lives (dynamic storage allocation).
 *
 * What every program carries lies at the bottom. The rest is placed program by program (locals of different programs
 * are never alive together; what some programs share was placed before): greedy best fit in three orders (size, size x
 * life, life), the best kept; then the storage that ends at the peak goes to the front of its order and the greedy runs
 * again, until the live-bytes bound is met or the rounds or the work allowance are used up. The allowance counts steps,
 * not time, so that the result is the same on every machine. */
#include "plan/place.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 60 };
static const uint64_t WORK = 12u * 1000 * 1000; /* interval comparisons per program */

/* ---- the greedy ---- */

typedef hri_shelf_item item;

typedef struct placer {
  const hri_job *job;
  hri_placement *out;
  hri_solved *solved; /* or NULL */
  uint64_t guard;
  uint8_t tier;
  uint32_t ticks;               /* of the job */
  HRI_ARRAY(item) fixed;        /* placed for good: carried by several programs */
  HRI_ARRAY(item) items;        /* of the program at hand, the fixed ones behind them */
  hri_program_span span;        /* of the program */
  hri_shelf shelf;              /* of items, by their index */
  uint32_t *order, *best_order; /* indices into items */
  uint64_t *best_low;
  uint64_t work;
} placer;

/* What the allowance counts for a greedy: each item against all that were placed before it. */
static uint64_t greedy_work(const placer *p, uint64_t count) {
  return count * p->fixed.count + count * (count - 1) / 2;
}

/* Places the first `count` items in p->order among the others, which stay; *top: the place in the order of the item
 * that ends highest. Where that is at `limit` or above, nobody wants the rest: it stops, and the allowance counts all of
 * it. */
static uint64_t greedy(placer *p, uint32_t count, uint64_t limit, uint32_t *top) {
  uint64_t peak = 0;
  hri_shelf_clear(&p->shelf, p->items.items, p->span.begin, p->span.end);
  for (uint32_t i = count; i < p->items.count; i++) hri_shelf_put(&p->shelf, i);
  p->work += greedy_work(p, count);
  for (uint32_t n = 0; n < count && peak < limit; n++) {
    const uint64_t high = hri_shelf_fit(&p->shelf, p->order[n]);
    if (high > peak) {
      peak = high;
      *top = n;
    }
  }
  return peak;
}

typedef struct sort_key {
  double major;
  uint32_t index;
} sort_key;

static int by_key(const void *a, const void *b) {
  const sort_key *x = a, *y = b;
  if (x->major != y->major) return x->major > y->major ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static hr_status sort_items(const placer *p, int kind, uint32_t count, hr_error *error) {
  sort_key *keys = hri_alloc((uint64_t)count * sizeof *keys + 1);
  if (!keys) return hri_fail_memory(error, count * sizeof *keys, "placement");
  for (uint32_t i = 0; i < count; i++) {
    const item *it = &p->items.items[i];
    double life = (double)(it->end - it->begin + 1), bytes = (double)it->bytes;
    keys[i] = (sort_key){kind == 0 ? bytes : kind == 1 ? bytes * life : life, i};
  }
  qsort(keys, count, sizeof *keys, by_key);
  for (uint32_t i = 0; i < count; i++) p->order[i] = keys[i].index;
  hri_free(keys);
  return HR_OK;
}

/* The ticks of the program, and what of the fixed items meets it. */
static hr_status set_stage(placer *p, hri_program_span span, hr_error *error) {
  p->span = span;
  for (size_t f = 0; f < p->fixed.count; f++) {
    item it = p->fixed.items[f];
    if (it.end < span.begin || it.begin > span.end) continue;
    if (it.begin < span.begin) it.begin = span.begin; /* before and behind, it meets nothing of this program */
    if (it.end > span.end) it.end = span.end;
    if (!hri_array_push(&p->items, it)) return hri_fail_memory(error, sizeof it, "placement");
  }
  return HR_OK;
}

static void keep_best(placer *p, uint32_t count) { memcpy(p->best_low, p->shelf.low, count * sizeof *p->best_low); }

/* The three orders, then the rounds, until the peak is at most `goal`. Returns the peak, and in *before the best one
 * before it (UINT64_MAX: none): a goal from that on would have ended the search earlier. */
static hr_status improve(placer *p, uint32_t count, uint64_t goal, uint64_t *peak, uint64_t *before, hr_error *error) {
  uint32_t top = 0, best_top = 0;
  uint64_t best = UINT64_MAX, now;
  p->work = 0;
  for (int kind = 0; kind < 3 && best > goal; kind++) {
    HRI_TRY(sort_items(p, kind, count, error));
    now = greedy(p, count, best, &top);
    if (now >= best) continue;
    *before = best;
    best = now;
    best_top = top;
    keep_best(p, count);
    memcpy(p->best_order, p->order, count * sizeof *p->order);
  }
  memcpy(p->order, p->best_order, count * sizeof *p->order);
  top = best_top;
  for (uint32_t round = 0; round < ROUNDS && best > goal && p->work < WORK && top > 0; round++) {
    const bool last = round + 1 == ROUNDS || p->work + greedy_work(p, count) >= WORK;
    const uint32_t moved = p->order[top];
    memmove(p->order + 1, p->order, top * sizeof *p->order);
    p->order[0] = moved;
    now = greedy(p, count, last ? best : UINT64_MAX, &top);
    if (now >= best) continue;
    *before = best;
    best = now;
    keep_best(p, count);
  }
  *peak = best;
  return HR_OK;
}

/* Places the items of one program, all of whose lives lie in `span`; `enough` is a peak that need not be beaten. */
static hr_status place_items(placer *p, hri_program_span span, uint64_t bound, uint64_t enough, hr_error *error) {
  const uint32_t count = (uint32_t)p->items.count;
  const uint64_t goal = bound > enough ? bound : enough;
  const hri_shelf_item *known = NULL;
  hri_solved_program program;
  HRI_TRY(set_stage(p, span, error));
  program = (hri_solved_program){p->items.items, count, (uint32_t)p->items.count, span.begin};
  if (p->solved) known = hri_solved_find(p->solved, &program, goal);
  if (known) {
    for (uint32_t i = 0; i < count; i++) p->items.items[i].low = known[i].low;
  } else {
    uint64_t peak, before = UINT64_MAX;
    HRI_TRY(improve(p, count, goal, &peak, &before, error));
    for (uint32_t i = 0; i < count; i++) p->items.items[i].low = p->best_low[i];
    if (p->solved)
      HRI_TRY(hri_solved_add(p->solved, &program, (hri_solved_range){peak <= goal ? peak : 0, before}, error));
  }
  for (uint32_t i = 0; i < count; i++) p->out->offsets[p->items.items[i].storage] = p->items.items[i].low;
  p->items.count = count;
  return HR_OK;
}

static hr_status reserve_scratch(placer *p, size_t count, hr_error *error) {
  p->order = hri_alloc((count + 1) * sizeof *p->order);
  p->best_order = hri_alloc((count + 1) * sizeof *p->best_order);
  p->best_low = hri_alloc((count + 1) * sizeof *p->best_low);
  if (!p->order || !p->best_order || !p->best_low)
    return hri_fail_memory(error, count * (2 * sizeof *p->order + sizeof *p->best_low), "placement");
  return hri_shelf_init(&p->shelf, count, error);
}

static void free_scratch(placer *p) {
  hri_free(p->order);
  hri_free(p->best_order);
  hri_free(p->best_low);
  hri_shelf_deinit(&p->shelf);
  hri_array_free(&p->items);
  hri_array_free(&p->fixed);
}

/* ---- a tier ---- */

/* Programs that the job has. */
static uint16_t present(const hri_job *job) {
  uint16_t all = 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (job->programs[kind].present) all |= (uint16_t)HRI_IN(kind);
  return all;
}

/* Carried by all programs: alive throughout. */
static bool at_bottom(const hri_storage *storage, uint16_t all) {
  return storage->scope && (storage->scope & all) == all;
}

static bool in_tier(const placer *p, hri_id s) {
  return p->job->storages.items[s].tier == p->tier && p->out->lives[s].begin <= p->out->lives[s].end;
}

static bool add_item(placer *p, hri_id s) {
  item it = {.bytes = hri_placed_bytes(&p->job->storages.items[s], p->guard),
             .begin = p->out->lives[s].begin,
             .end = p->out->lives[s].end,
             .storage = s};
  return hri_array_push(&p->items, it);
}

static uint64_t highest_end(const placer *p) {
  uint64_t peak = 0;
  for (size_t i = 0; i < p->items.count; i++) {
    uint64_t end = p->items.items[i].low + p->items.items[i].bytes;
    if (end > peak) peak = end;
  }
  return peak;
}

/* The most bytes of items that are alive together: there are most of them where one begins. Quadratic, for the few that
 * are carried. */
static uint64_t most_alive(const placer *p) {
  uint64_t most = 0;
  for (size_t i = 0; i < p->items.count; i++) {
    const uint32_t tick = p->items.items[i].begin;
    uint64_t sum = 0;
    for (size_t k = 0; k < p->items.count; k++)
      if (p->items.items[k].begin <= tick && tick <= p->items.items[k].end) sum += p->items.items[k].bytes;
    if (sum > most) most = sum;
  }
  return most;
}

/* What some programs carry: placed above the bottom, for good. Offsets are relative to `base` until the end. */
static hr_status place_carried(placer *p, uint16_t all, uint64_t *base, uint64_t *peak, hr_error *error) {
  for (hri_id s = 0; s < p->job->storages.count; s++) {
    const hri_storage *storage = &p->job->storages.items[s];
    if (!in_tier(p, s) || !storage->scope) continue;
    if (at_bottom(storage, all)) {
      p->out->offsets[s] = *base;
      *base += hri_placed_bytes(storage, p->guard);
    } else if (!add_item(p, s)) {
      return hri_fail_memory(error, sizeof(item), "placement");
    }
  }
  HRI_TRY(place_items(p, (hri_program_span){0, p->ticks - 1}, most_alive(p), 0, error));
  *peak = highest_end(p);
  for (size_t i = 0; i < p->items.count; i++)
    if (!hri_array_push(&p->fixed, p->items.items[i])) return hri_fail_memory(error, sizeof(item), "placement");
  return HR_OK;
}

/* The most live bytes of each program, and the program of the most that is not done. */
static int largest_program(const placer *p, const hri_live_series *live, unsigned done, uint64_t *bound) {
  int pick = -1;
  *bound = 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    uint64_t high = 0;
    if ((done & HRI_IN((unsigned)kind)) || !p->job->programs[kind].present) continue;
    for (uint32_t t = p->out->spans[kind].begin; t <= p->out->spans[kind].end; t++)
      if (live->total[t] > high) high = live->total[t];
    if (pick >= 0 && high <= *bound) continue;
    pick = kind;
    *bound = high;
  }
  return pick;
}

static hr_status place_local(placer *p, int kind, uint64_t bound, uint64_t *peak, hr_error *error) {
  uint64_t own;
  p->items.count = 0;
  for (hri_id s = 0; s < p->job->storages.count; s++) {
    const hri_storage *storage = &p->job->storages.items[s];
    if (in_tier(p, s) && !storage->scope && storage->program == kind && !add_item(p, s))
      return hri_fail_memory(error, sizeof(item), "placement");
  }
  HRI_TRY(place_items(p, p->out->spans[kind], bound, *peak, error));
  own = highest_end(p);
  if (own > *peak) *peak = own;
  return HR_OK;
}

static hr_status place_tier(placer *p, hr_error *error) {
  const uint16_t all = present(p->job);
  uint64_t base = 0, peak = 0, bound;
  unsigned done = 0;
  hri_live_series live;
  hr_status status;
  HRI_TRY(hri_live_series_make(p->job, p->out->lives, p->out->spans, p->tier, p->guard, false, &live, error));
  assert(live.peak_bytes == p->out->lower_bound_bytes[p->tier]);
  p->ticks = live.ticks;
  HRI_TRY_OUT(place_carried(p, all, &base, &peak, error));
  /* programs from the largest bound down: the others need only stay below it (the series counts the base as well) */
  for (int kind; (kind = largest_program(p, &live, done, &bound)) >= 0; done |= HRI_IN((unsigned)kind)) {
    assert(bound >= base);
    HRI_TRY_OUT(place_local(p, kind, bound - base, &peak, error));
  }
  for (hri_id s = 0; s < p->job->storages.count; s++) {
    if (!in_tier(p, s)) continue;
    if (!at_bottom(&p->job->storages.items[s], all)) p->out->offsets[s] += base;
    assert(p->out->offsets[s] % HRI_STORAGE_ALIGN == 0 &&
           p->out->offsets[s] + p->job->storages.items[s].bytes <= base + peak);
  }
  p->out->peak_bytes[p->tier] = base + peak;
  assert(p->out->peak_bytes[p->tier] >= live.peak_bytes);
out:
  hri_live_series_deinit(&live);
  return status;
}

hr_status hri_placement_bound(const hri_job *job, uint64_t guard, hri_placement *out, hr_error *error) {
  hr_status status = HR_OK;
  memset(out, 0, sizeof *out);
  out->lives = hri_alloc(job->storages.count * sizeof *out->lives);
  if (!out->lives) return hri_fail_memory(error, job->storages.count * sizeof *out->lives, "lives");
  HRI_TRY_OUT(hri_storage_lives(job, out->lives, out->spans, error));
  for (uint8_t tier = 0; tier < HRI_TIER_COUNT; tier++) {
    hri_live_series live;
    HRI_TRY_OUT(hri_live_series_make(job, out->lives, out->spans, tier, guard, false, &live, error));
    out->lower_bound_bytes[tier] = live.peak_bytes;
    hri_live_series_deinit(&live);
  }
out:
  if (status != HR_OK) hri_placement_deinit(out);
  return status;
}

hr_status hri_placement_make(const hri_job *job, uint64_t guard, hri_solved *solved, hri_placement *out,
                             hr_error *error) {
  placer p = {.job = job, .out = out, .solved = solved, .guard = guard};
  hr_status status = HR_OK;
  assert(out->lives && !out->offsets);
  out->offsets = hri_alloc_zero(job->storages.count, sizeof *out->offsets);
  if (!out->offsets) return hri_fail_memory(error, job->storages.count * sizeof *out->offsets, "placement");
  HRI_TRY_OUT(reserve_scratch(&p, job->storages.count, error));
  for (p.tier = 0; p.tier < HRI_TIER_COUNT; p.tier++) {
    p.items.count = p.fixed.count = 0;
    if (out->lower_bound_bytes[p.tier]) HRI_TRY_OUT(place_tier(&p, error));
  }
out:
  free_scratch(&p);
  return status;
}

hr_status hri_place_job(const hri_job *job, uint64_t guard, hri_placement *out, hr_error *error) {
  hr_status status;
  HRI_TRY(hri_placement_bound(job, guard, out, error));
  status = hri_placement_make(job, guard, NULL, out, error);
  if (status != HR_OK) hri_placement_deinit(out);
  return status;
}

void hri_placement_deinit(hri_placement *placement) {
  hri_free(placement->offsets);
  hri_free(placement->lives);
  memset(placement, 0, sizeof *placement);
}
