/* Snapshots for tests and benchmarks: a process that allocates and frees at random, with a trace that may have lost its
 * beginning. Segments are cut into blocks of fixed sizes, so that every state is one an allocator could have been
 * in. */
#ifndef TEST_MADE_SNAPSHOT_H
#define TEST_MADE_SNAPSHOT_H

#include <stdio.h>
#include <string.h>

#include "snapshot/build.h"

typedef struct made_options {
  uint64_t seed, event_count; /* per device, at least */
  bool high_addresses;        /* at the top of the 64 bits */
  int32_t first_device;       /* -1: one is the CPU */
  uint32_t device_count, segment_count, slot_count, stack_count, stack_depth, category_count, pool_count;
  bool times, notes, settings, annotations, all_categories; /* the last: of each event, not of allocations only */
  bool began_empty;                                         /* else half of the segments were there before the trace */
  const char *format;
} made_options;

typedef struct made_slot {
  uint64_t addr, size, requested;
  uint32_t stack;
  uint16_t category;
  uint8_t state; /* hr_block_state */
} made_slot;

typedef struct made_segment {
  bool present;
  hr_segment segment;
  made_slot *slots;
} made_segment;

typedef struct made {
  const made_options *o;
  hri_snapshot_builder b;
  uint64_t random;
  uint32_t *stacks, *pools;
  uint16_t *categories;
  int64_t now_us;
} made;

static inline uint64_t made_random(made *m, uint64_t below) {
  m->random = m->random * 6364136223846793005u + 1442695040888963407u;
  return (m->random >> 33) % below;
}

static inline uint32_t made_string(made *m, const char *text) {
  return hri_snapshot_add_string(&m->b, text, strlen(text));
}

/* Stacks of one caller share their outer frames, as real ones do. */
static inline void made_stacks(made *m) {
  uint32_t *frames = hri_alloc_zero(m->o->stack_depth + 1, sizeof *frames);
  char text[96];
  m->stacks = hri_alloc_zero(m->o->stack_count + 1, sizeof *m->stacks);
  for (uint32_t k = 1; k <= m->o->stack_count; k++) {
    for (uint32_t d = 0; d < m->o->stack_depth; d++) {
      uint32_t variant = d < 3 ? k : k % 7;
      (void)snprintf(text, sizeof text, "function_%u_%u", (unsigned)d, (unsigned)variant);
      uint32_t name = made_string(m, text);
      (void)snprintf(text, sizeof text, "project/package_%u/module_%u.py", (unsigned)d, (unsigned)variant);
      frames[d] = hri_snapshot_add_frame(&m->b, name, made_string(m, text), 10 * d + variant);
    }
    m->stacks[k] = hri_snapshot_add_stack(&m->b, frames, m->o->stack_depth);
  }
  hri_free(frames);
}

static inline void made_names(made *m) {
  static const char *const names[] = {"parameter", "optimizer_state", "activation", "gradient", "temporary", "input"};
  char text[32];
  made_stacks(m);
  m->categories = hri_alloc_zero(m->o->category_count + 1, sizeof *m->categories);
  for (uint32_t k = 1; k <= m->o->category_count; k++) {
    (void)snprintf(text, sizeof text, "%s%.0u", names[(k - 1) % 6], (k - 1) / 6);
    m->categories[k] = hri_snapshot_add_category(&m->b, made_string(m, text));
  }
  m->pools = hri_alloc_zero(m->o->pool_count + 1, sizeof *m->pools);
  for (uint32_t k = 1; k <= m->o->pool_count; k++) m->pools[k] = hri_snapshot_add_pool(&m->b, 0, k);
}

static inline void made_event(made *m, hr_trace_action action, const made_segment *from, const made_slot *slot) {
  hr_trace_event e = {.action = (uint8_t)action, .addr = from->segment.address, .size = from->segment.total_size};
  e.stream = from->segment.stream;
  e.pool = from->segment.pool;
  if (slot) e.addr = slot->addr, e.size = slot->requested, e.stack = slot->stack;
  if (slot && (action == HR_TRACE_ALLOC || m->o->all_categories)) e.category = slot->category;
  if (!slot && m->o->all_categories) e.category = m->categories[1];
  if (m->o->times) e.flags = HR_EVENT_HAS_TIME, e.time_us = m->now_us += (int64_t)made_random(m, 30);
  if (m->o->notes && made_random(m, 4) == 0) {
    e.note = made_string(m, made_random(m, 2) ? "0/1" : "{\"layer\": 3}");
    if (made_random(m, 2)) e.flags |= HR_EVENT_NOTE_IS_METADATA;
  }
  hri_snapshot_add_event(&m->b, &e);
}

static inline void made_step(made *m, made_segment *segments, bool record) {
  made_segment *from = &segments[made_random(m, m->o->segment_count)];
  made_slot *slot = &from->slots[made_random(m, m->o->slot_count)];
  if (!from->present) {
    from->present = true;
    if (record) made_event(m, from->segment.expandable ? HR_TRACE_SEGMENT_MAP : HR_TRACE_SEGMENT_ALLOC, from, NULL);
  }
  if (slot->state == HR_BLOCK_INACTIVE) {
    slot->requested = slot->size - made_random(m, 512);
    slot->stack = m->stacks[made_random(m, m->o->stack_count + 1)];
    slot->category = m->categories[m->o->category_count ? 1 + made_random(m, m->o->category_count) : 0];
    slot->state = HR_BLOCK_ALLOCATED;
    if (record) made_event(m, HR_TRACE_ALLOC, from, slot);
    return;
  }
  if (slot->state == HR_BLOCK_ALLOCATED) {
    slot->state = HR_BLOCK_PENDING_FREE;
    if (record) made_event(m, HR_TRACE_FREE_REQUESTED, from, slot);
    if (made_random(m, 8) == 0) return;
  }
  if (record) made_event(m, HR_TRACE_FREE_COMPLETED, from, slot);
  slot->state = HR_BLOCK_INACTIVE;
  slot->requested = 0;
  slot->stack = 0;
  slot->category = 0;
}

static inline made_segment *made_segments(made *m, int32_t device) {
  made_segment *segments = hri_alloc_zero(m->o->segment_count, sizeof *segments);
  uint64_t next = (m->o->high_addresses ? 0xffff800200000000 : 0x7f0000000000) + ((uint64_t)(device + 1) << 36);
  for (uint32_t k = 0; k < m->o->segment_count; k++) {
    made_segment *s = &segments[k];
    s->present = !m->o->began_empty && k % 2 == 0;
    s->segment = (hr_segment){.address = next, .device = device, .large = k % 3 != 0, .expandable = k % 5 == 4};
    s->segment.stream = k % 4 == 3 ? 0x55d0c0de1230 : 0;
    s->segment.pool = m->pools[made_random(m, m->o->pool_count + 1)];
    s->segment.stack = m->stacks[made_random(m, m->o->stack_count + 1)];
    s->slots = hri_alloc_zero(m->o->slot_count, sizeof *s->slots);
    for (uint32_t j = 0; j < m->o->slot_count; j++) {
      s->slots[j].addr = next;
      s->slots[j].size = 512 * (1 + made_random(m, k % 3 ? 4096 : 64));
      next += s->slots[j].size;
    }
    s->segment.total_size = next - s->segment.address;
    next += 1 << 21;
  }
  return segments;
}

static inline void made_state(made *m, made_segment *segments) {
  for (uint32_t k = 0; k < m->o->segment_count; k++) {
    if (segments[k].present) hri_snapshot_add_segment(&m->b, &segments[k].segment);
    for (uint32_t j = 0; j < m->o->slot_count && segments[k].present; j++) {
      const made_slot *slot = &segments[k].slots[j];
      const hr_block block = {.address = slot->addr,
                              .size = slot->size,
                              .requested_size = slot->requested,
                              .stack = slot->stack,
                              .category = slot->category,
                              .state = slot->state};
      hri_snapshot_add_block(&m->b, &block);
    }
    hri_free(segments[k].slots);
  }
  hri_free(segments);
}

static inline void made_device(made *m, int32_t device) {
  made_segment *segments = made_segments(m, device);
  hr_trace_event last = {.flags = m->o->times ? HR_EVENT_HAS_TIME : 0};
  m->now_us = 1760000000000000;
  for (uint32_t k = 0; k < 500 && !m->o->began_empty; k++) made_step(m, segments, false);
  for (uint32_t k = 1; k < m->o->segment_count && !m->o->began_empty; k += 2) { /* those begin in the trace, empty */
    segments[k].present = false;
    for (uint32_t j = 0; j < m->o->slot_count; j++)
      segments[k].slots[j] = (made_slot){.addr = segments[k].slots[j].addr, .size = segments[k].slots[j].size};
  }
  hri_snapshot_add_trace(&m->b, device);
  while (m->b.snapshot->traces[m->b.snapshot->trace_count - 1].count < m->o->event_count && !m->b.failed)
    made_step(m, segments, true);
  last.action = HR_TRACE_OOM, last.addr = 123456789, last.size = 20 << 20, last.time_us = m->o->times ? m->now_us : 0;
  last.category = m->o->all_categories ? m->categories[1] : 0;
  hri_snapshot_add_event(&m->b, &last);
  last.action = HR_TRACE_SNAPSHOT, last.addr = 0;
  hri_snapshot_add_event(&m->b, &last);
  made_state(m, segments);
}

static inline void made_rest(made *m) {
  hr_snapshot *s = m->b.snapshot;
  s->categories_stated = m->o->category_count > 0;
  s->format = m->o->format ? m->o->format : "headroom";
  if (m->o->settings) {
    s->settings =
        (hr_snapshot_settings){.present = true,
                               .text = made_string(m, "max_split_size_mb:128,garbage_collection_threshold:0.75"),
                               .max_split_size = 128 << 20,
                               .garbage_collection_threshold = 0.75,
                               .expandable_segments = true};
    s->settings.roundup_power2_divisions[8] = 4;
  }
  for (int k = 0; k < 6 && m->o->annotations; k++) {
    const hr_annotation a = {.time_us = 1760000000000000 + 50 * k,
                             .name = made_string(m, k < 3 ? "ProfilerStep#1" : "Optimizer.step#Adam"),
                             .device = m->o->first_device,
                             .end = k % 2};
    hri_snapshot_add_annotation(&m->b, &a);
  }
}

/* NULL when memory is refused. */
static inline hr_snapshot *make_snapshot(const made_options *o) {
  made m = {.o = o, .random = o->seed * 2 + 1};
  hr_snapshot *s = NULL;
  hr_error error = {0};
  if (hri_snapshot_build(&m.b, &error) != HR_OK) return NULL;
  made_names(&m);
  for (uint32_t k = 0; k < o->device_count; k++) made_device(&m, o->first_device + (int32_t)k);
  made_rest(&m);
  (void)hri_snapshot_build_end(&m.b, &s, &error);
  hri_free(m.stacks);
  hri_free(m.categories);
  hri_free(m.pools);
  return s;
}

#endif
