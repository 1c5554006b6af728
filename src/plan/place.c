/* Offline placement of storages with known lives (dynamic storage allocation).
 *
 * What every program carries lies at the bottom. The rest is placed program by program (locals of different programs are
 * never alive together; what some programs share was placed before): greedy best fit in three orders (size, size x life,
 * life), the best kept; then the storage that ends at the peak goes to the front of its order and the greedy runs again,
 * until the live-bytes bound is met or the rounds or the work allowance are used up. The allowance counts steps, not
 * time, so that the result is the same on every machine. */
#include "plan/place.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 60, GROUP = 8 };
static const uint64_t WORK = 12u * 1000 * 1000; /* interval comparisons per program */

/* ---- the greedy ---- */

typedef struct item { uint64_t bytes; uint32_t begin, end; hri_id storage; } item;

/* What lies there already, in order of offsets; as arrays, since best_fit goes through all of it for every item. */
typedef struct shelf {
  int32_t *begin, *end;  /* lives; signed, which every vector unit compares */
  uint64_t *low, *high;  /* bytes */
  uint32_t count;
} shelf;

typedef struct placer {
  const hri_job *job;
  hri_placement *out;
  uint64_t *offsets, guard;
  uint8_t tier;
  HRI_ARRAY(item) items;      /* of the program at hand */
  shelf fixed, placed;        /* carried by several programs, placed for good; the same and the items placed so far */
  uint32_t *order, *best_order; /* indices into items */
  uint64_t *at, *best_at;     /* offsets per item */
  uint64_t work;
} placer;

typedef int32_t quad __attribute__((vector_size(16))); /* gcc's and clang's: of no instruction set in particular */

/* Whether any of GROUP neighbours on the shelf is alive together with [begin, end]. One in twenty is, so most of a shelf is
 * passed over in groups. */
static bool any_meets(const shelf *s, uint32_t from, quad begin, quad end) {
  uint64_t halves[2];
  quad any = {0};
  for (uint32_t k = from; k < from + GROUP; k += 4) {
    quad ends, begins;
    memcpy(&ends, s->end + k, sizeof ends);
    memcpy(&begins, s->begin + k, sizeof begins);
    any |= (ends >= begin) & (begins <= end);
  }
  memcpy(halves, &any, sizeof halves);
  return (halves[0] | halves[1]) != 0;
}

/* Lowest of the best-fitting gaps for `it`: the smallest one that holds it, else on top of everything it meets. */
static uint64_t best_fit(const shelf *s, const item *it) {
  uint64_t cursor = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
  const int32_t begin = (int32_t)it->begin, end = (int32_t)it->end;
  const quad begins = {begin, begin, begin, begin}, ends = {end, end, end, end};
  for (uint32_t from = 0; from < s->count; from += GROUP) {
    const uint32_t to = s->count - from < GROUP ? s->count : from + GROUP;
    if (to - from == GROUP && !any_meets(s, from, begins, ends)) continue;
    for (uint32_t k = from; k < to; k++) {
      if (s->end[k] < begin || s->begin[k] > end) continue;
      if (s->low[k] >= cursor + it->bytes && s->low[k] - cursor < best_gap) {
        best_gap = s->low[k] - cursor;
        best = cursor;
      }
      if (s->high[k] > cursor) cursor = s->high[k];
    }
  }
  return best == UINT64_MAX ? cursor : best;
}

static void insert(shelf *s, uint64_t offset, const item *it) {
  uint32_t low = 0, high = s->count, after;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (s->low[middle] <= offset) low = middle + 1;
    else high = middle;
  }
  after = s->count++ - low;
  memmove(s->begin + low + 1, s->begin + low, after * sizeof *s->begin);
  memmove(s->end + low + 1, s->end + low, after * sizeof *s->end);
  memmove(s->low + low + 1, s->low + low, after * sizeof *s->low);
  memmove(s->high + low + 1, s->high + low, after * sizeof *s->high);
  assert(it->begin <= it->end && it->end <= INT32_MAX);
  s->begin[low] = (int32_t)it->begin;
  s->end[low] = (int32_t)it->end;
  s->low[low] = offset;
  s->high[low] = offset + it->bytes;
}

static void copy_shelf(shelf *to, const shelf *from) {
  memcpy(to->begin, from->begin, from->count * sizeof *to->begin);
  memcpy(to->end, from->end, from->count * sizeof *to->end);
  memcpy(to->low, from->low, from->count * sizeof *to->low);
  memcpy(to->high, from->high, from->count * sizeof *to->high);
  to->count = from->count;
}

static uint64_t greedy(placer *p, uint32_t count, uint32_t *top) {
  uint64_t peak = 0;
  copy_shelf(&p->placed, &p->fixed);
  for (uint32_t n = 0; n < count; n++) {
    const item *it = &p->items.items[p->order[n]];
    uint64_t offset = best_fit(&p->placed, it), end = offset + it->bytes;
    p->work += p->placed.count;
    p->at[p->order[n]] = offset;
    insert(&p->placed, offset, it);
    if (end > peak) {
      peak = end;
      *top = n;
    }
  }
  return peak;
}

typedef struct sort_key { double major; uint32_t index; } sort_key;

static int by_key(const void *a, const void *b) {
  const sort_key *x = a, *y = b;
  if (x->major != y->major) return x->major > y->major ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static hr_status sort_items(const placer *p, int kind, uint32_t count, hr_error *error) {
  sort_key *keys = hri_alloc((size_t)count * sizeof *keys + 1);
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

/* Places the items of one program; `enough` is a peak that need not be beaten. */
static hr_status place_items(placer *p, uint64_t bound, uint64_t enough, uint32_t *rounds, hr_error *error) {
  uint32_t count = (uint32_t)p->items.count, top = 0, best_top = 0;
  uint64_t best = UINT64_MAX, goal = bound > enough ? bound : enough;
  p->work = 0;
  for (int kind = 0; kind < 3 && best > goal; kind++) {
    uint64_t peak;
    HRI_TRY(sort_items(p, kind, count, error));
    peak = greedy(p, count, &top);
    if (peak >= best) continue;
    best = peak;
    best_top = top;
    memcpy(p->best_at, p->at, count * sizeof *p->at);
    memcpy(p->best_order, p->order, count * sizeof *p->order);
  }
  if (count) memcpy(p->order, p->best_order, count * sizeof *p->order);
  top = best_top;
  for (uint32_t round = 0; round < ROUNDS && best > goal && p->work < WORK && top > 0; round++) {
    uint32_t moved = p->order[top];
    uint64_t peak;
    memmove(p->order + 1, p->order, top * sizeof *p->order);
    p->order[0] = moved;
    peak = greedy(p, count, &top);
    (*rounds)++;
    if (peak >= best) continue;
    best = peak;
    memcpy(p->best_at, p->at, count * sizeof *p->at);
  }
  for (uint32_t i = 0; i < count; i++) p->offsets[p->items.items[i].storage] = p->best_at[i];
  return HR_OK;
}

static bool reserve_shelf(shelf *s, size_t count) {
  s->begin = hri_alloc((count + 1) * sizeof *s->begin);
  s->end = hri_alloc((count + 1) * sizeof *s->end);
  s->low = hri_alloc((count + 1) * sizeof *s->low);
  s->high = hri_alloc((count + 1) * sizeof *s->high);
  return s->begin && s->end && s->low && s->high;
}

static void free_shelf(shelf *s) {
  hri_free(s->begin);
  hri_free(s->end);
  hri_free(s->low);
  hri_free(s->high);
}

static hr_status reserve_scratch(placer *p, size_t count, hr_error *error) {
  p->order = hri_alloc((count + 1) * sizeof *p->order);
  p->best_order = hri_alloc((count + 1) * sizeof *p->best_order);
  p->at = hri_alloc((count + 1) * sizeof *p->at);
  p->best_at = hri_alloc((count + 1) * sizeof *p->best_at);
  if (reserve_shelf(&p->fixed, count) && reserve_shelf(&p->placed, count) && p->order && p->best_order && p->at && p->best_at) return HR_OK;
  return hri_fail_memory(error, count * 72, "placement");
}

static void free_scratch(placer *p) {
  hri_free(p->order);
  hri_free(p->best_order);
  hri_free(p->at);
  hri_free(p->best_at);
  free_shelf(&p->fixed);
  free_shelf(&p->placed);
  hri_array_free(&p->items);
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
static bool at_bottom(const hri_storage *storage, uint16_t all) { return storage->scope && (storage->scope & all) == all; }

static bool in_tier(const placer *p, hri_id s) { return p->job->storages.items[s].tier == p->tier && p->out->lives[s].begin <= p->out->lives[s].end; }

static bool add_item(placer *p, hri_id s) {
  item it = {hri_placed_bytes(&p->job->storages.items[s], p->guard), p->out->lives[s].begin, p->out->lives[s].end, s};
  return hri_array_push(&p->items, it);
}

static uint64_t highest_end(const placer *p) {
  uint64_t peak = 0;
  for (size_t i = 0; i < p->items.count; i++) {
    uint64_t end = p->offsets[p->items.items[i].storage] + p->items.items[i].bytes;
    if (end > peak) peak = end;
  }
  return peak;
}

/* What some programs carry: placed above the bottom, for good. Offsets are relative to `base` until the end. */
static hr_status place_carried(placer *p, uint16_t all, uint64_t *base, uint64_t *peak, hr_error *error) {
  for (hri_id s = 0; s < p->job->storages.count; s++) {
    const hri_storage *storage = &p->job->storages.items[s];
    if (!in_tier(p, s) || !storage->scope) continue;
    if (at_bottom(storage, all)) {
      p->offsets[s] = *base;
      *base += hri_placed_bytes(storage, p->guard);
    } else if (!add_item(p, s)) {
      return hri_fail_memory(error, sizeof(item), "placement");
    }
  }
  HRI_TRY(place_items(p, 0, 0, &p->out->rounds, error));
  *peak = highest_end(p);
  for (size_t i = 0; i < p->items.count; i++) insert(&p->fixed, p->offsets[p->items.items[i].storage], &p->items.items[i]);
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
    if (in_tier(p, s) && !storage->scope && storage->program == kind && !add_item(p, s)) return hri_fail_memory(error, sizeof(item), "placement");
  }
  HRI_TRY(place_items(p, bound, *peak, &p->out->rounds, error));
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
  p->out->lower_bound_bytes[p->tier] = live.peak_bytes;
  if (live.peak_bytes == 0) {
    hri_live_series_deinit(&live);
    return HR_OK;
  }
  HRI_TRY_OUT(place_carried(p, all, &base, &peak, error));
  /* programs from the largest bound down: the others need only stay below it (the series counts the base as well) */
  for (int kind; (kind = largest_program(p, &live, done, &bound)) >= 0; done |= HRI_IN((unsigned)kind)) {
    assert(bound >= base);
    HRI_TRY_OUT(place_local(p, kind, bound - base, &peak, error));
  }
  for (hri_id s = 0; s < p->job->storages.count; s++) {
    if (!in_tier(p, s)) continue;
    if (!at_bottom(&p->job->storages.items[s], all)) p->offsets[s] += base;
    assert(p->offsets[s] % HRI_STORAGE_ALIGN == 0 && p->offsets[s] + p->job->storages.items[s].bytes <= base + peak);
  }
  p->out->peak_bytes[p->tier] = base + peak;
  assert(p->out->peak_bytes[p->tier] >= live.peak_bytes);
out:
  hri_live_series_deinit(&live);
  return status;
}

hr_status hri_place_job(const hri_job *job, uint64_t guard, hri_placement *out, hr_error *error) {
  placer p = {.job = job, .out = out, .guard = guard};
  hr_status status = HR_OK;
  memset(out, 0, sizeof *out);
  p.offsets = out->offsets = hri_alloc_zero(job->storages.count, sizeof *out->offsets);
  out->lives = hri_alloc(job->storages.count * sizeof *out->lives);
  if (!out->offsets || !out->lives) {
    status = hri_fail_memory(error, job->storages.count * 16, "placement");
    goto out;
  }
  HRI_TRY_OUT(reserve_scratch(&p, job->storages.count, error));
  HRI_TRY_OUT(hri_storage_lives(job, out->lives, out->spans, error));
  for (p.tier = 0; p.tier < HRI_TIER_COUNT; p.tier++) {
    p.items.count = p.fixed.count = 0;
    HRI_TRY_OUT(place_tier(&p, error));
  }
out:
  free_scratch(&p);
  if (status != HR_OK) hri_placement_deinit(out);
  return status;
}

void hri_placement_deinit(hri_placement *placement) {
  hri_free(placement->offsets);
  hri_free(placement->lives);
  memset(placement, 0, sizeof *placement);
}
