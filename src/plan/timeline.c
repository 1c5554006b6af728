#include "plan/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/plan.h>

static const uint64_t no_process = 0x100000000000u; /* 16 TiB: an address for plans, which have no memory */

/* ---- storages by birth and death ---- */

static int by_tick(const uint32_t *a, const uint32_t *b) { return (*a > *b) - (*a < *b); }

typedef struct timed {
  uint32_t tick, storage;
} timed;

static int timed_order(const void *a, const void *b) {
  const timed *x = a, *y = b;
  int order = by_tick(&x->tick, &y->tick);
  return order ? order : by_tick(&x->storage, &y->storage);
}

static bool in_device(const hr_plan *plan, size_t s) {
  const hri_storage *storage = &plan->job.storages.items[s];
  const hri_storage_life *life = &plan->placement.lives[s];
  return storage->tier == HRI_DEVICE && !storage->dead && storage->bytes && life->begin <= life->end;
}

static bool sort_storages(hri_timeline *t) {
  const hr_plan *plan = t->plan;
  size_t all = plan->job.storages.count;
  timed *rows = hri_alloc_zero(all + 1, sizeof *rows);
  if (!rows) return false;
  for (size_t s = 0; s < all; s++)
    if (in_device(plan, s)) rows[t->count++] = (timed){plan->placement.lives[s].begin, (uint32_t)s};
  qsort(rows, t->count, sizeof *rows, timed_order);
  for (uint32_t k = 0; k < t->count; k++) t->births[k] = rows[k].storage;
  for (uint32_t k = 0; k < t->count; k++) rows[k].tick = plan->placement.lives[rows[k].storage].end;
  qsort(rows, t->count, sizeof *rows, timed_order);
  for (uint32_t k = 0; k < t->count; k++) t->deaths[k] = rows[k].storage;
  hri_free(rows);
  return true;
}

/* First storage of a list whose birth (death) is at `tick` or later. */
static uint32_t first_at(const hri_timeline *t, bool death, uint32_t tick) {
  uint32_t low = 0, high = t->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const hri_storage_life *life = &t->plan->placement.lives[(death ? t->deaths : t->births)[middle]];
    if ((death ? life->end : life->begin) < tick) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* ---- frames ---- */

static uint32_t word(hri_timeline *t, const char *text) {
  return hri_snapshot_add_string(&t->build, text, strlen(text));
}

/* `node`: the one that the storage is born for. What programs carry begins with a program and not with a node. */
static uint32_t stack_of(hri_timeline *t, hri_id s, const hri_node *node) {
  const hri_storage *storage = &t->plan->job.storages.items[s];
  int32_t layer = storage->layer >= 0 ? storage->layer : node ? node->layer : -1;
  uint32_t frames[4], count = 0;
  char text[24];
  if (t->stacks[s] != UINT32_MAX) return t->stacks[s];
  if (storage->scope) node = NULL;
  frames[count++] = hri_snapshot_add_frame(&t->build, word(t, hri_name_get(&t->plan->job, storage->key)),
                                           word(t, "headroom/name"), 0);
  if (node)
    frames[count++] = hri_snapshot_add_frame(&t->build, word(t, hri_op_name(node->op)), word(t, "headroom/op"), 0);
  if (layer >= 0) {
    (void)snprintf(text, sizeof text, "layer %d", layer);
    frames[count++] = hri_snapshot_add_frame(&t->build, word(t, text), word(t, "headroom/layer"), (uint32_t)layer);
  }
  if (node)
    frames[count++] =
        hri_snapshot_add_frame(&t->build, word(t, hr_phase_name(node->phase)), word(t, "headroom/phase"), 0);
  t->stacks[s] = hri_snapshot_add_stack(&t->build, frames, count);
  return t->stacks[s];
}

/* ---- events ---- */

static bool add(hri_timeline *t, hr_trace_action action, hri_id s, uint32_t stack, int64_t time_us) {
  const hri_storage *storage = &t->plan->job.storages.items[s];
  hr_trace_event event = {.addr = t->base + t->plan->placement.offsets[s],
                          .size = storage->bytes,
                          .time_us = time_us,
                          .stack = stack,
                          .category = t->categories[storage->role],
                          .action = (uint8_t)action,
                          .flags = HR_EVENT_HAS_TIME};
  return hri_snapshot_add_event(&t->build, &event);
}

static bool bear(hri_timeline *t, hri_id s, const hri_node *node, int64_t time_us) {
  if (t->alive[s]) return true; /* carried from an earlier program */
  t->alive[s] = true;
  return add(t, HR_TRACE_ALLOC, s, stack_of(t, s, node), time_us);
}

/* In a run, programs repeat: what the load program hands on is there to the end of the run. */
static bool stays(const hri_timeline *t, hri_id s) {
  const hri_storage_life *life = &t->plan->placement.lives[s];
  uint32_t loaded = t->plan->placement.spans[HRI_LOAD].end;
  return t->repeats && t->plan->job.programs[HRI_LOAD].present && life->begin <= loaded && life->end > loaded;
}

static bool bury(hri_timeline *t, hri_id s, int64_t time_us) {
  if (!t->alive[s] || stays(t, s)) return true;
  t->alive[s] = false;
  return add(t, HR_TRACE_FREE_REQUESTED, s, t->stacks[s], time_us) &&
         add(t, HR_TRACE_FREE_COMPLETED, s, t->stacks[s], time_us);
}

hr_status hri_timeline_begin(hri_timeline *t, const hr_plan *plan, uint64_t base, bool repeats, int64_t time_us,
                             hr_error *error) {
  size_t all = plan->job.storages.count;
  hr_trace_event event = {.action = HR_TRACE_SEGMENT_ALLOC, .flags = HR_EVENT_HAS_TIME, .time_us = time_us};
  *t = (hri_timeline){.plan = plan, .base = base ? base : no_process, .repeats = repeats};
  HRI_TRY(hri_snapshot_build(&t->build, error));
  t->births = hri_alloc_zero(all + 1, sizeof *t->births);
  t->deaths = hri_alloc_zero(all + 1, sizeof *t->deaths);
  t->stacks = hri_alloc_zero(all + 1, sizeof *t->stacks);
  t->alive = hri_alloc_zero(all + 1, sizeof *t->alive);
  t->categories = hri_alloc_zero(HR_ROLE_COUNT, sizeof *t->categories);
  if (!t->births || !t->deaths || !t->stacks || !t->alive || !t->categories || !sort_storages(t)) {
    hri_timeline_deinit(t);
    return hri_fail_memory(error, all * 16, "a timeline");
  }
  memset(t->stacks, 0xff, all * sizeof *t->stacks);
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++)
    t->categories[role] = hri_snapshot_add_category(&t->build, word(t, hr_role_name(role)));
  t->build.snapshot->categories_stated = true;
  t->build.snapshot->format = "headroom";
  event.addr = t->base;
  event.size = plan->info.tiers[HR_TIER_DEVICE].reserved_bytes;
  if (hri_snapshot_add_trace(&t->build, 0))
    hri_snapshot_add_event(&t->build, &event); /* a failure is sticky: end tells */
  return HR_OK;
}

bool hri_timeline_program(hri_timeline *t, hri_program_kind kind, int64_t (*time_of)(void *context, uint32_t index),
                          void *context) {
  const hri_job *job = &t->plan->job;
  const hri_program *p = &job->programs[kind];
  hri_program_span span = t->plan->placement.spans[kind];
  const hri_node *node = NULL;
  int64_t before, after;
  uint32_t index = 0, birth, death;
  if (!p->present) return true;
  birth = first_at(t, false, span.begin);
  death = first_at(t, true, span.begin);
  before = after = time_of(context, UINT32_MAX);
  for (size_t s = 0; s < job->storages.count; s++) { /* in a later run of the program: what it shares with others */
    const hri_storage_life *life = &t->plan->placement.lives[s];
    if (in_device(t->plan, s) && !t->alive[s] && life->begin < span.begin && life->end >= span.begin &&
        !bear(t, (hri_id)s, NULL, before))
      return false;
  }
  for (uint32_t tick = span.begin; tick <= span.end; tick++) {
    if ((tick - span.begin) % 2 == 0) { /* a node of the compute lane runs */
      while (index < p->order.count && job->nodes.items[p->order.items[index]].lane != HRI_COMPUTE) index++;
      node = index < p->order.count ? &job->nodes.items[p->order.items[index]] : NULL;
      before = after;
      after = node ? time_of(context, index++) : after;
    }
    for (; birth < t->count && t->plan->placement.lives[t->births[birth]].begin == tick; birth++)
      if (!bear(t, t->births[birth], node, before)) return false;
    for (; death < t->count && t->plan->placement.lives[t->deaths[death]].end == tick; death++)
      if (!bury(t, t->deaths[death], after)) return false;
  }
  return !t->build.failed;
}

bool hri_timeline_mark(hri_timeline *t, const char *name, bool end, int64_t time_us) {
  hr_annotation mark = {.time_us = time_us, .name = word(t, name), .end = end};
  return hri_snapshot_add_annotation(&t->build, &mark);
}

/* ---- the end ---- */

/* Address order: what is alive never overlaps, which the placement proves. */
static void add_state(hri_timeline *t) {
  const hri_job *job = &t->plan->job;
  uint64_t reserved = t->plan->info.tiers[HR_TIER_DEVICE].reserved_bytes, at = 0;
  hr_segment segment = {.address = t->base, .total_size = reserved, .large = true};
  if (!hri_snapshot_add_segment(&t->build, &segment)) return;
  while (at < reserved) {
    uint64_t next = reserved;
    size_t found = job->storages.count;
    for (size_t s = 0; s < job->storages.count; s++) {
      uint64_t offset = t->plan->placement.offsets[s];
      if (t->alive[s] && offset >= at && offset < next) next = offset, found = s;
    }
    if (next > at) hri_snapshot_add_block(&t->build, &(hr_block){.address = t->base + at, .size = next - at});
    at = next;
    if (found < job->storages.count) {
      const hri_storage *storage = &job->storages.items[found];
      uint64_t size = hri_round_up(storage->bytes, HRI_STORAGE_ALIGN);
      if (size > reserved - at) size = reserved - at;
      hri_snapshot_add_block(&t->build, &(hr_block){.address = t->base + at,
                                                    .size = size,
                                                    .requested_size = storage->bytes,
                                                    .stack = t->stacks[found],
                                                    .category = t->categories[storage->role],
                                                    .state = HR_BLOCK_ALLOCATED});
      at += size;
    }
  }
}

hr_status hri_timeline_end(hri_timeline *t, hr_snapshot **snapshot, hr_error *error) {
  hr_status status;
  add_state(t);
  status = hri_snapshot_build_end(&t->build, snapshot, error);
  hri_timeline_deinit(t);
  return status;
}

void hri_timeline_deinit(hri_timeline *t) {
  hri_snapshot_build_deinit(&t->build);
  hri_free(t->births);
  hri_free(t->deaths);
  hri_free(t->stacks);
  hri_free(t->alive);
  hri_free(t->categories);
  *t = (hri_timeline){0};
}

/* ---- a plan's own ---- */

static int64_t predicted_time(void *context, uint32_t index) {
  const hri_timing *timing = context;
  return (int64_t)(1e6 * (index == UINT32_MAX ? timing->from : timing->end[index]));
}

hr_status hr_plan_snapshot(const hr_plan *plan, hr_snapshot **snapshot, hr_error *error) {
  hri_timeline t;
  hri_timing timing;
  double now = 0;
  bool fine = true;
  HRI_TRY(hri_timeline_begin(&t, plan, 0, false, 0, error));
  for (uint8_t kind = 0; fine && kind < HRI_PROGRAM_COUNT; kind++) {
    const char *name = hri_program_name((hri_program_kind)kind);
    hr_status status;
    if (!plan->job.programs[kind].present) continue;
    status = hri_program_timing(&plan->job, kind, &plan->spec.device, 1, now, &timing, error);
    if (status != HR_OK) {
      hri_timeline_deinit(&t);
      return status;
    }
    fine = hri_timeline_mark(&t, name, false, (int64_t)(1e6 * now)) &&
           hri_timeline_program(&t, (hri_program_kind)kind, predicted_time, &timing);
    now = timing.until;
    fine = fine && hri_timeline_mark(&t, name, true, (int64_t)(1e6 * now));
    hri_timing_deinit(&timing);
  }
  return hri_timeline_end(&t, snapshot, error);
}
