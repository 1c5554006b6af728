/* Offline placement of storages with known lives (dynamic storage allocation).
 *
 * What every program carries lies at the bottom. The rest is placed program by program (locals of different programs
 * are never alive together; what some programs share was placed before), until the live-bytes bound is met or the work
 * allowance is used up:
 *
 * - greedy best fit in three orders (size, size x life, life), the best kept;
 * - then, from each of the three, the large items alone: the first that ends at the best peak or above goes to the front
 *   of the order and the greedy runs again. What comes behind it need not be placed for that. Small items fill gaps, and
 *   there are many: with them a round would cost several times as much, and what is at the top would mostly be one of
 *   theirs, on top of what has to move. They are placed behind the large ones, by size, whenever those end below the best
 *   peak. Of 513 jobs the order by life led furthest, so it has most of the allowance and is the first.
 *
 * The allowance counts steps, not time, so that the result is the same on every machine. */
#include "plan/place.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
  ORDERS = 3,
  STALE = 60,   /* rounds without a better peak */
  SMALL = 4096, /* of which as many as this do not make up the peak */
};
static const uint64_t WORK = 24u * 1000 * 1000; /* interval comparisons of the rounds of a program */

/* ---- the greedy ---- */

typedef hri_shelf_item item;

typedef struct placer {
  const hri_job *job;
  hri_placement *out;
  hri_solved *solved; /* or NULL */
  uint64_t guard;
  uint8_t tier;
  uint32_t ticks;          /* of the job */
  HRI_ARRAY(item) fixed;   /* placed for good: carried by several programs */
  HRI_ARRAY(item) items;   /* of the program at hand, the fixed ones behind them */
  hri_program_span span;   /* of the program */
  hri_shelf shelf;         /* of items, by their index */
  uint32_t *order, *spare; /* indices into items */
  uint64_t *best_low;
  uint64_t work;
} placer;

/* An empty program: what stays, which lies behind its first `count` items. */
static void clear(placer *p, uint32_t count) {
  hri_shelf_clear(&p->shelf, p->items.items, p->span.begin, p->span.end);
  for (uint32_t i = count; i < p->items.count; i++) hri_shelf_put(&p->shelf, i);
  p->work += p->items.count;
}

/* Places the items p->order[from] to p->order[to - 1] among those that lie there. `peak`: where those before `from` end.
 * *top: the place in the order of the item that ends highest. Where that is at `limit` or above, nobody wants the rest:
 * it stops. The allowance counts each item that was placed against all that were placed before it. */
static uint64_t greedy(placer *p, uint32_t from, uint32_t to, uint64_t peak, uint64_t limit, uint32_t *top) {
  for (uint32_t n = from; n < to && peak < limit; n++) {
    const uint64_t high = hri_shelf_fit(&p->shelf, p->order[n]);
    p->work += p->fixed.count + n;
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

typedef enum sorting { BY_SIZE, BY_SIZE_AND_LIFE, BY_LIFE } sorting;

static int by_key(const void *a, const void *b) {
  const sort_key *x = a, *y = b;
  if (x->major != y->major) return x->major > y->major ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static hr_status sort_items(const placer *p, sorting by, uint32_t count, hr_error *error) {
  sort_key *keys = hri_alloc((uint64_t)count * sizeof *keys + 1);
  if (!keys) return hri_fail_memory(error, count * sizeof *keys, "placement");
  for (uint32_t i = 0; i < count; i++) {
    const item *it = &p->items.items[i];
    double life = (double)(it->end - it->begin + 1), bytes = (double)it->bytes;
    keys[i] = (sort_key){by == BY_SIZE ? bytes : by == BY_LIFE ? life : bytes * life, i};
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

/* A search for a low peak. What it finds next is the same whatever its goal is, which only ends it: solved.h. */
typedef struct search {
  uint32_t count; /* items to place */
  uint64_t goal;
  uint64_t best, before; /* the lowest peak so far and the one before it; UINT64_MAX: none */
} search;

static void found(placer *p, search *s, uint64_t peak) {
  if (peak >= s->best) return;
  s->before = s->best;
  s->best = peak;
  memcpy(p->best_low, p->shelf.low, s->count * sizeof *p->best_low);
}

static bool is_small(const placer *p, uint32_t index, uint64_t peak) {
  return p->items.items[index].bytes < peak / SMALL;
}

/* p->order: the large items in the order `by`, the small ones by size behind them. *large: how many are large. */
static hr_status large_first(placer *p, const search *s, uint64_t peak, sorting by, uint32_t *large, hr_error *error) {
  uint32_t behind;
  *large = 0;
  HRI_TRY(sort_items(p, by, s->count, error));
  for (uint32_t n = 0; n < s->count; n++)
    if (!is_small(p, p->order[n], peak)) p->spare[(*large)++] = p->order[n];
  HRI_TRY(sort_items(p, BY_SIZE, s->count, error));
  behind = *large;
  for (uint32_t n = 0; n < s->count; n++)
    if (is_small(p, p->order[n], peak)) p->spare[behind++] = p->order[n];
  assert(behind == s->count);
  memcpy(p->order, p->spare, s->count * sizeof *p->order);
  return HR_OK;
}

/* The rounds: the large items, of which the first that ends at the best peak or above, or the highest, is the first of
 * the next; while the work done is below `work`. */
static void rounds(placer *p, search *s, uint32_t large, uint64_t work) {
  for (uint32_t stale = 0; stale < STALE && s->best > s->goal && p->work < work; stale++) {
    const uint64_t best = s->best;
    uint32_t top = 0, rest, moved;
    uint64_t peak;
    clear(p, s->count);
    peak = greedy(p, 0, large, 0, best, &top);
    found(p, s, greedy(p, large, s->count, peak, best, &rest)); /* none of the small ones, where the limit is reached */
    if (s->best < best) stale = 0;
    if (top == 0) return; /* the next round would be the same */
    moved = p->order[top];
    memmove(p->order + 1, p->order, top * sizeof *p->order);
    p->order[0] = moved;
  }
}

static hr_status improve(placer *p, search *s, hr_error *error) {
  static const struct {
    sorting by;
    uint32_t sixths; /* of the allowance, those before it with it */
  } searched[ORDERS] = {{BY_LIFE, 4}, {BY_SIZE_AND_LIFE, 5}, {BY_SIZE, 6}};
  uint64_t simple;
  uint32_t top, large;
  for (int k = 0; k < ORDERS && s->best > s->goal; k++) {
    HRI_TRY(sort_items(p, (sorting)k, s->count, error));
    clear(p, s->count);
    found(p, s, greedy(p, 0, s->count, 0, s->best, &top));
  }
  simple = s->best;
  p->work = 0;
  for (int k = 0; k < ORDERS && s->best > s->goal; k++) {
    HRI_TRY(large_first(p, s, simple, searched[k].by, &large, error));
    rounds(p, s, large, WORK / 6 * searched[k].sixths);
  }
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
    search s = {.count = count, .goal = goal, .best = UINT64_MAX, .before = UINT64_MAX};
    HRI_TRY(improve(p, &s, error));
    for (uint32_t i = 0; i < count; i++) p->items.items[i].low = p->best_low[i];
    if (p->solved)
      HRI_TRY(hri_solved_add(p->solved, &program, (hri_solved_range){s.best <= goal ? s.best : 0, s.before}, error));
  }
  for (uint32_t i = 0; i < count; i++) p->out->offsets[p->items.items[i].storage] = p->items.items[i].low;
  p->items.count = count;
  return HR_OK;
}

static hr_status reserve_scratch(placer *p, size_t count, hr_error *error) {
  p->order = hri_alloc((count + 1) * sizeof *p->order);
  p->spare = hri_alloc((count + 1) * sizeof *p->spare);
  p->best_low = hri_alloc((count + 1) * sizeof *p->best_low);
  if (!p->order || !p->spare || !p->best_low)
    return hri_fail_memory(error, count * (2 * sizeof *p->order + sizeof *p->best_low), "placement");
  return hri_shelf_init(&p->shelf, count, error);
}

static void free_scratch(placer *p) {
  hri_free(p->order);
  hri_free(p->spare);
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
