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

enum { ROUNDS = 60 };
static const uint64_t WORK = 12u * 1000 * 1000; /* interval comparisons per program */

/* ---- lives ---- */

static void hull(hri_storage_life *life, uint32_t begin, uint32_t end) {
  if (begin < life->begin) life->begin = begin;
  if (end > life->end) life->end = end;
}

/* Nodes off the spine get the ticks between the spine nodes that bound them. A node of lane L is before a spine node
 * exactly when the spine node's clock counts it, and what the spine's clock counts of L only grows: so the nodes of each
 * lane find their first spine node in their own order. */
static hr_status bound_ticks(const hri_job *job, uint8_t kind, uint32_t start, uint32_t spine, hri_storage_life *ticks, hr_error *error) {
  const hri_program *p = &job->programs[kind];
  const uint32_t count = (uint32_t)p->order.count;
  uint32_t first[HRI_LANE_COUNT], last[HRI_LANE_COUNT], index = 0; /* of each lane: its nodes that no spine node followed yet */
  uint32_t *next = hri_alloc(((size_t)count + 1) * sizeof *next);
  hri_clocks clocks;
  hr_status status = next ? hri_clocks_init(&clocks, job, kind, error) : hri_fail_memory(error, count * sizeof *next, "ticks");
  if (status != HR_OK) {
    hri_free(next);
    return status;
  }
  memset(first, 0xFF, sizeof first);
  memset(last, 0xFF, sizeof last);
  for (uint32_t at = 0; at < count; at++) {
    uint8_t lane = job->nodes.items[p->order.items[at]].lane;
    if (lane != HRI_COMPUTE) {
      uint32_t before = clocks.clock[at][HRI_COMPUTE]; /* spine nodes before it: the last one has index `before - 1` */
      ticks[at].begin = before == 0 ? start : start + 2 * (before - 1) + 1;
      ticks[at].end = spine == 0 ? start : start + 2 * spine - 1; /* unless a spine node waits for it */
      assert(ticks[at].begin <= ticks[at].end);
      next[at] = UINT32_MAX;
      if (first[lane] == UINT32_MAX) first[lane] = at;
      else next[last[lane]] = at;
      last[lane] = at;
      continue;
    }
    for (int other = 0; other < HRI_LANE_COUNT; other++)
      for (; first[other] != UINT32_MAX && clocks.sequence[first[other]] <= clocks.clock[at][other]; first[other] = next[first[other]]) {
        ticks[first[other]].end = index == 0 ? start : start + 2 * index - 1;
        assert(ticks[first[other]].begin <= ticks[first[other]].end); /* nothing waits for what waits for it */
      }
    index++;
  }
  hri_clocks_deinit(&clocks);
  hri_free(next);
  return HR_OK;
}

hr_status hri_node_ticks(const hri_job *job, uint8_t kind, uint32_t start, hri_storage_life *ticks, uint32_t *end, hr_error *error) {
  const hri_program *p = &job->programs[kind];
  uint32_t spine = 0, count = (uint32_t)p->order.count;
  for (uint32_t at = 0; at < count; at++) {
    ticks[at] = (hri_storage_life){start + 2 * spine, start + 2 * spine};
    spine += job->nodes.items[p->order.items[at]].lane == HRI_COMPUTE;
  }
  *end = start + 2 * spine + 1;
  return spine == count ? HR_OK : bound_ticks(job, kind, start, spine, ticks, error);
}

hr_status hri_storage_lives(const hri_job *job, hri_storage_life *lives, hri_program_span spans[HRI_PROGRAM_COUNT], hr_error *error) {
  uint32_t start = 0;
  for (size_t s = 0; s < job->storages.count; s++) lives[s] = (hri_storage_life){UINT32_MAX, 0};
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_program *p = &job->programs[kind];
    hri_storage_life *ticks;
    hr_status status;
    spans[kind] = (hri_program_span){start, start};
    if (!p->present) continue;
    ticks = hri_alloc((p->order.count + 1) * sizeof *ticks);
    if (!ticks) return hri_fail_memory(error, p->order.count * sizeof *ticks, "lives");
    status = hri_node_ticks(job, kind, start, ticks, &spans[kind].end, error);
    for (uint32_t at = 0; status == HR_OK && at < p->order.count; at++) {
      const hri_node *node = &job->nodes.items[p->order.items[at]];
      for (uint32_t i = 0; i < node->operand_count; i++)
        if (hri_operands(job, node)[i].tensor != HRI_NONE)
          hull(&lives[job->tensors.items[hri_operands(job, node)[i].tensor].storage], ticks[at].begin, ticks[at].end);
    }
    hri_free(ticks);
    HRI_TRY(status);
    start = spans[kind].end + 1;
  }
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *storage = &job->storages.items[s];
    if (storage->dead) lives[s] = (hri_storage_life){UINT32_MAX, 0};
    if (storage->dead || !storage->scope || lives[s].begin > lives[s].end) continue;
    for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
      if ((storage->scope & HRI_IN(kind)) && job->programs[kind].present) hull(&lives[s], spans[kind].begin, spans[kind].end);
  }
  return HR_OK;
}

/* ---- the greedy ---- */

typedef struct item { uint64_t bytes; uint32_t begin, end; hri_id storage; } item;

typedef struct placer {
  const hri_job *job;
  uint64_t *offsets;
  HRI_ARRAY(item) fixed;      /* placed for good, sorted by offset: carried by several programs */
  HRI_ARRAY(item) items;      /* of the program at hand */
  uint32_t *order, *best_order, *sorted; /* indices into items; sorted = placed, by offset */
  uint64_t *at, *best_at;     /* offsets per item */
  uint64_t work;
} placer;

/* Lowest best-fitting offset for `it` above the given placed sets. Both lists are sorted by offset and merged. */
static uint64_t best_fit(placer *p, const item *it, uint32_t placed) {
  uint64_t cursor = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
  size_t f = 0, k = 0;
  p->work += p->fixed.count + placed;
  for (;;) {
    uint64_t low, high;
    const item *next;
    while (f < p->fixed.count && (p->fixed.items[f].end < it->begin || p->fixed.items[f].begin > it->end)) f++;
    while (k < placed && (p->items.items[p->sorted[k]].end < it->begin || p->items.items[p->sorted[k]].begin > it->end)) k++;
    if (f >= p->fixed.count && k >= placed) break;
    if (k >= placed || (f < p->fixed.count && p->offsets[p->fixed.items[f].storage] <= p->at[p->sorted[k]])) {
      next = &p->fixed.items[f++];
      low = p->offsets[next->storage];
    } else {
      next = &p->items.items[p->sorted[k]];
      low = p->at[p->sorted[k++]];
    }
    high = low + next->bytes;
    if (low >= cursor + it->bytes && low - cursor < best_gap) {
      best_gap = low - cursor;
      best = cursor;
    }
    if (high > cursor) cursor = high;
  }
  return best == UINT64_MAX ? cursor : best;
}

static uint64_t greedy(placer *p, uint32_t count, uint32_t *top) {
  uint64_t peak = 0;
  for (uint32_t n = 0; n < count; n++) {
    uint32_t i = p->order[n], low = 0, high = n;
    uint64_t offset = best_fit(p, &p->items.items[i], n), end = offset + p->items.items[i].bytes;
    p->at[i] = offset;
    while (low < high) { /* keep `sorted` by offset */
      uint32_t middle = (low + high) / 2;
      if (p->at[p->sorted[middle]] <= offset) low = middle + 1;
      else high = middle;
    }
    memmove(p->sorted + low + 1, p->sorted + low, (n - low) * sizeof *p->sorted);
    p->sorted[low] = i;
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

static hr_status reserve_scratch(placer *p, size_t count, hr_error *error) {
  p->order = hri_alloc((count + 1) * sizeof *p->order);
  p->best_order = hri_alloc((count + 1) * sizeof *p->best_order);
  p->sorted = hri_alloc((count + 1) * sizeof *p->sorted);
  p->at = hri_alloc((count + 1) * sizeof *p->at);
  p->best_at = hri_alloc((count + 1) * sizeof *p->best_at);
  return p->order && p->best_order && p->sorted && p->at && p->best_at ? HR_OK : hri_fail_memory(error, count * 28, "placement");
}

static int by_offset(const void *a, const void *b, void *context) {
  const uint64_t *offsets = context;
  const item *x = a, *y = b;
  return offsets[x->storage] < offsets[y->storage] ? -1 : offsets[x->storage] > offsets[y->storage];
}

/* ---- live bytes ---- */

/* Most live bytes at any tick of [from, to], from per-tick differences. */
static hr_status live_bytes(const hri_job *job, const hri_storage_life *lives, uint8_t tier, uint64_t guard, uint32_t ticks, int64_t **series, hr_error *error) {
  int64_t *delta = hri_alloc_zero((size_t)ticks + 2, sizeof *delta), sum = 0;
  if (!delta) return hri_fail_memory(error, (uint64_t)ticks * sizeof *delta, "the live-bytes series");
  for (size_t s = 0; s < job->storages.count; s++) {
    int64_t bytes;
    if (lives[s].begin > lives[s].end || job->storages.items[s].tier != tier) continue;
    bytes = (int64_t)hri_round_up(job->storages.items[s].bytes + guard, HRI_STORAGE_ALIGN);
    delta[lives[s].begin] += bytes;
    delta[lives[s].end + 1] -= bytes;
  }
  for (uint32_t t = 0; t <= ticks; t++) {
    sum += delta[t];
    delta[t] = sum;
  }
  *series = delta;
  return HR_OK;
}

static uint32_t tick_count(const hri_program_span spans[HRI_PROGRAM_COUNT]) {
  uint32_t ticks = 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (spans[kind].end > ticks) ticks = spans[kind].end;
  return ticks + 1;
}

static hr_status place_tier(const hri_job *job, uint8_t tier, uint64_t guard, hri_placement *out, hr_error *error) {
  placer p = {.job = job, .offsets = out->offsets};
  uint64_t base = 0, peak = 0;
  int64_t *series = NULL;
  uint16_t all = 0;
  hr_status status = live_bytes(job, out->lives, tier, guard, tick_count(out->spans), &series, error);
  if (status != HR_OK) return status;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (job->programs[kind].present) all |= (uint16_t)HRI_IN(kind);
  HRI_TRY_OUT(reserve_scratch(&p, job->storages.count, error));
  for (size_t s = 0; s < job->storages.count; s++) { /* carried by all programs: the bottom */
    const hri_storage *st = &job->storages.items[s];
    item it = {hri_round_up(st->bytes + guard, HRI_STORAGE_ALIGN), out->lives[s].begin, out->lives[s].end, (hri_id)s};
    if (st->tier != tier || it.begin > it.end) continue;
    if (st->scope && (st->scope & all) == all) {
      out->offsets[s] = base;
      base += it.bytes;
    } else if (st->scope && !hri_array_push(&p.items, it)) {
      status = hri_fail_memory(error, sizeof it, "placement");
      goto out;
    }
  }
  /* offsets of everything else are relative to the base until the end */
  HRI_TRY_OUT(place_items(&p, 0, 0, &out->rounds, error));
  for (size_t i = 0; i < p.items.count; i++) {
    uint64_t end = out->offsets[p.items.items[i].storage] + p.items.items[i].bytes;
    if (end > peak) peak = end;
    if (!hri_array_push(&p.fixed, p.items.items[i])) {
      status = hri_fail_memory(error, sizeof(item), "placement");
      goto out;
    }
  }
  if (p.fixed.count) qsort_r(p.fixed.items, p.fixed.count, sizeof *p.fixed.items, by_offset, out->offsets);
  /* programs from the largest bound down: the others need only stay below it (series counts the base as well) */
  for (unsigned done = 0, turn = 0; turn < HRI_PROGRAM_COUNT; turn++) {
    int pick = -1;
    uint64_t bound = 0, program_peak = 0;
    for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
      uint64_t high = 0;
      if ((done & HRI_IN((unsigned)kind)) || !job->programs[kind].present) continue;
      for (uint32_t t = out->spans[kind].begin; t <= out->spans[kind].end; t++)
        if ((uint64_t)series[t] > high) high = (uint64_t)series[t];
      if (pick < 0 || high > bound) {
        pick = kind;
        bound = high;
      }
    }
    if (pick < 0) break;
    done |= HRI_IN((unsigned)pick);
    p.items.count = 0;
    for (size_t s = 0; s < job->storages.count; s++) {
      const hri_storage *st = &job->storages.items[s];
      item it = {hri_round_up(st->bytes + guard, HRI_STORAGE_ALIGN), out->lives[s].begin, out->lives[s].end, (hri_id)s};
      if (st->tier != tier || st->scope || st->program != pick || it.begin > it.end) continue;
      if (!hri_array_push(&p.items, it)) {
        status = hri_fail_memory(error, sizeof it, "placement");
        goto out;
      }
    }
    HRI_TRY_OUT(place_items(&p, bound - base, peak, &out->rounds, error));
    for (size_t i = 0; i < p.items.count; i++) {
      uint64_t end = out->offsets[p.items.items[i].storage] + p.items.items[i].bytes;
      if (end > program_peak) program_peak = end;
    }
    if (program_peak > peak) peak = program_peak;
    if (bound > out->lower_bound_bytes[tier]) out->lower_bound_bytes[tier] = bound;
  }
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *st = &job->storages.items[s];
    if (st->tier == tier && out->lives[s].begin <= out->lives[s].end && !(st->scope && (st->scope & all) == all)) out->offsets[s] += base;
  }
  out->peak_bytes[tier] = base + peak;
out:
  hri_free(series);
  hri_free(p.order);
  hri_free(p.best_order);
  hri_free(p.sorted);
  hri_free(p.at);
  hri_free(p.best_at);
  hri_array_free(&p.items);
  hri_array_free(&p.fixed);
  return status;
}

hr_status hri_place_job(const hri_job *job, uint64_t guard, hri_placement *out, hr_error *error) {
  memset(out, 0, sizeof *out);
  out->offsets = hri_alloc_zero(job->storages.count, sizeof *out->offsets);
  out->lives = hri_alloc(job->storages.count * sizeof *out->lives);
  if (!out->offsets || !out->lives) {
    hri_placement_deinit(out);
    return hri_fail_memory(error, job->storages.count * 16, "placement");
  }
  {
    hr_status status = hri_storage_lives(job, out->lives, out->spans, error);
    for (uint8_t tier = 0; tier < HRI_TIER_COUNT && status == HR_OK; tier++) status = place_tier(job, tier, guard, out, error);
    if (status != HR_OK) hri_placement_deinit(out);
    return status;
  }
}

void hri_placement_deinit(hri_placement *placement) {
  hri_free(placement->offsets);
  hri_free(placement->lives);
  memset(placement, 0, sizeof *placement);
}

hr_status hri_live_bound(const hri_job *job, uint64_t bound[HRI_TIER_COUNT], hr_error *error) {
  hri_storage_life *lives = hri_alloc(job->storages.count * sizeof *lives);
  hri_program_span spans[HRI_PROGRAM_COUNT];
  hr_status status = HR_OK;
  if (!lives) return hri_fail_memory(error, job->storages.count * sizeof *lives, "lives");
  status = hri_storage_lives(job, lives, spans, error);
  for (uint8_t tier = 0; tier < HRI_TIER_COUNT && status == HR_OK; tier++) {
    int64_t *series;
    uint32_t ticks = tick_count(spans);
    bound[tier] = 0;
    status = live_bytes(job, lives, tier, 0, ticks, &series, error);
    if (status != HR_OK) break;
    for (uint32_t t = 0; t <= ticks; t++)
      if ((uint64_t)series[t] > bound[tier]) bound[tier] = (uint64_t)series[t];
    hri_free(series);
  }
  hri_free(lives);
  return status;
}

/* ---- independent verification ---- */

static bool all_before(const hri_clocks *c, const uint32_t *a, uint32_t a_count, const uint32_t *b, uint32_t b_count) {
  for (uint32_t i = 0; i < a_count; i++)
    for (uint32_t j = 0; j < b_count; j++)
      if (a[i] == b[j] || !hri_happens_before(c, a[i], b[j])) return false;
  return true;
}

typedef struct touchers { uint32_t begin, count; } touchers;

static hr_status verify_program(const hri_job *job, const hri_placement *pl, uint8_t kind, hr_error *error) {
  const hri_program *p = &job->programs[kind];
  touchers *list = hri_alloc_zero(job->storages.count + 1, sizeof *list);
  uint32_t *positions = NULL, total = 0;
  hri_clocks clocks;
  hr_status status = hri_clocks_init(&clocks, job, kind, error);
  if (status != HR_OK || !list) {
    hri_free(list);
    return status != HR_OK ? status : hri_fail_memory(error, job->storages.count, "verification");
  }
  for (int fill = 0; fill < 2; fill++) { /* counting sort of touch positions by storage */
    for (uint32_t at = 0; at < p->order.count; at++) {
      const hri_node *node = &job->nodes.items[p->order.items[at]];
      for (uint32_t i = 0; i < node->operand_count; i++) {
        hri_id t = hri_operands(job, node)[i].tensor, s;
        if (t == HRI_NONE) continue;
        s = job->tensors.items[t].storage;
        if (fill) positions[list[s].begin + list[s].count] = at;
        list[s].count++;
        total += !fill;
      }
    }
    if (fill) break;
    positions = hri_alloc(((size_t)total + 1) * sizeof *positions);
    if (!positions) {
      status = hri_fail_memory(error, total, "verification");
      goto out;
    }
    for (size_t s = 0, sum = 0; s < job->storages.count; s++) {
      list[s].begin = (uint32_t)sum;
      sum += list[s].count;
      list[s].count = 0;
    }
  }
  for (hri_id a = 0; a < job->storages.count && status == HR_OK; a++)
    for (hri_id b = a + 1; b < job->storages.count; b++) {
      const hri_storage *x = &job->storages.items[a], *y = &job->storages.items[b];
      bool x_here = x->scope ? (x->scope & HRI_IN(kind)) != 0 : list[a].count > 0, y_here = y->scope ? (y->scope & HRI_IN(kind)) != 0 : list[b].count > 0;
      if (x->tier != y->tier || x->dead || y->dead || !x_here || !y_here) continue;
      if (pl->lives[a].begin > pl->lives[a].end || pl->lives[b].begin > pl->lives[b].end) continue;
      if (pl->offsets[a] + x->bytes <= pl->offsets[b] || pl->offsets[b] + y->bytes <= pl->offsets[a]) continue;
      if (!x->scope && !y->scope && (all_before(&clocks, positions + list[a].begin, list[a].count, positions + list[b].begin, list[b].count) ||
                                     all_before(&clocks, positions + list[b].begin, list[b].count, positions + list[a].begin, list[a].count)))
        continue;
      status = hri_fail(error, HR_ERROR_INTERNAL, "program %s: storages %u (%s) and %u (%s) share bytes while both may be alive",
                        hri_program_name((hri_program_kind)kind), a, hri_name_get(job, x->key), b, hri_name_get(job, y->key));
      break;
    }
out:
  hri_free(list);
  hri_free(positions);
  hri_clocks_deinit(&clocks);
  return status;
}

hr_status hri_placement_verify(const hri_job *job, const hri_placement *placement, hr_error *error) {
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (job->programs[kind].present) HRI_TRY(verify_program(job, placement, kind, error));
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *st = &job->storages.items[s];
    if (st->dead || placement->lives[s].begin > placement->lives[s].end) continue;
    if (placement->offsets[s] % st->align || placement->offsets[s] + st->bytes > placement->peak_bytes[st->tier])
      return hri_fail(error, HR_ERROR_INTERNAL, "storage %zu (%s) is misplaced", s, hri_name_get(job, st->key));
  }
  return HR_OK;
}
