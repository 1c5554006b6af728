#include <headroom/inspect.h>

#include "report/columns.h"

static bool about_segment(const hr_trace_event *event) {
  return event->action >= HR_TRACE_SEGMENT_ALLOC && event->action <= HR_TRACE_SEGMENT_UNMAP &&
         event->size <= HRI_ABSURD_BYTES;
}

hri_report_addresses hri_report_addresses_of(const hri_lives *lives, const hri_state *start) {
  uint64_t i, base = UINT64_MAX, bits = 1 << 9; /* allocators round to 512 bytes: more is not to be gained */
  hri_report_addresses addresses = {0, 0};
  for (i = 0; i < lives->count; i++) {
    if (lives->lives[i].addr < base) base = lives->lives[i].addr;
    bits |= lives->lives[i].addr;
  }
  for (i = 0; i < start->segment_count; i++) {
    if (start->segments[i].address < base) base = start->segments[i].address;
    bits |= start->segments[i].address;
  }
  for (i = 0; i < lives->event_count; i++) {
    const hr_trace_event *event = &lives->events[i];
    if (!about_segment(event)) continue;
    if (event->addr < base) base = event->addr;
    bits |= event->addr;
  }
  if (base != UINT64_MAX) addresses.base = base;
  addresses.shift = (uint32_t)__builtin_ctzll(bits);
  return addresses;
}

static uint64_t units(const hri_report_columns *c, uint64_t address) {
  return (address - c->addresses.base) >> c->addresses.shift;
}

/* Times never fall: an event without one, or with an earlier one than its forerunner's, happened with it. The first
 * time is a fact of the page; the column holds the steps from it. */
static void put_times(const hri_report_columns *c, hri_page *page) {
  uint64_t i;
  int64_t last = c->first_time_us;
  for (i = 0; i < c->lives->event_count; i++) {
    const hr_trace_event *event = &c->lives->events[i];
    uint64_t step = 0;
    if (event->flags & HR_EVENT_HAS_TIME && event->time_us > last) {
      step = (uint64_t)event->time_us - (uint64_t)last;
      last = event->time_us;
    }
    hri_page_u64(page, step);
  }
}

/* Events count from 1 here, and 0 is "before the trace". */
static uint64_t from_one(uint64_t event) { return event + 1; /* HRI_NEVER + 1 = 0 */ }

static void put_instants(const hri_report_columns *c, hri_page *page) {
  const hri_lives *l = c->lives;
  uint64_t i, last = 0;
  for (i = 0; i < l->count; i++) {
    hri_page_u64(page, from_one(l->lives[i].alloc) - last);
    last = from_one(l->lives[i].alloc);
  }
  for (i = 0; i < l->count; i++) { /* duration in events; 0: to the end and beyond */
    const hri_life *life = &l->lives[i];
    hri_page_u64(page, life->end == HRI_NEVER ? 0 : life->end + 1 - from_one(life->alloc));
  }
  for (i = 0; i < l->count;
       i++) { /* 0: none; else 1 + events from request to end, or 1 + request where there is no end */
    const hri_life *life = &l->lives[i];
    bool requested = life->pending_before || life->request != HRI_NEVER;
    uint64_t request = life->pending_before ? 0 : from_one(life->request);
    hri_page_u64(page, !requested ? 0 : life->end == HRI_NEVER ? 1 + request : 1 + from_one(life->end) - request);
  }
}

static void put_places(const hri_report_columns *c, hri_page *page) {
  const hri_lives *l = c->lives;
  uint64_t i, last = 0;
  for (i = 0; i < l->count; i++) {
    uint64_t at = units(c, l->lives[i].addr);
    hri_page_i64(page, at - last);
    last = at;
  }
  for (i = 0; i < l->count; i++) hri_page_u64(page, l->lives[i].size);
  /* What the block takes beyond that, and whether the last state shows it: else the blocks beside it decide. */
  for (i = 0; i < l->count; i++)
    hri_page_u64(page, (l->lives[i].block_size - l->lives[i].size) << 1 | l->lives[i].seen);
}

static void put_owners(const hri_report_columns *c, hri_report_tables *tables, hri_page *page) {
  const hri_lives *l = c->lives;
  uint64_t i, last = 0;
  for (i = 0; i < l->count; i++)
    hri_page_u64(page, hri_report_stack(tables, hri_inspection_plain_stack(c->in, l->lives[i].stack)));
  for (i = 0; i < l->count; i++) hri_page_u64(page, c->in->life_category[i]);
  for (i = 0; i < l->count; i++) hri_page_u64(page, l->lives[i].pool);
  for (i = 0; i < l->count; i++) {
    hri_page_i64(page, l->lives[i].stream - last);
    last = l->lives[i].stream;
  }
}

static void put_start_segments(const hri_report_columns *c, hri_page *page) {
  uint64_t i;
  hri_page_u64(page, c->start->segment_count);
  for (i = 0; i < c->start->segment_count; i++) {
    const hr_segment *segment = &c->start->segments[i];
    hri_page_u64(page, units(c, segment->address));
    hri_page_u64(page, segment->total_size);
    hri_page_u64(page, segment->stream);
    hri_page_u64(page, segment->pool);
    hri_page_u64(page, segment->expandable | segment->large << 1);
  }
}

static void put_segment_events(const hri_report_columns *c, hri_page *page) {
  uint64_t i, count = 0, last = 0;
  for (i = 0; i < c->lives->event_count; i++) count += about_segment(&c->lives->events[i]);
  hri_page_u64(page, count);
  for (i = 0; i < c->lives->event_count; i++) {
    const hr_trace_event *event = &c->lives->events[i];
    if (!about_segment(event)) continue;
    hri_page_u64(page, i - last);
    last = i;
    hri_page_u64(page, (uint64_t)(event->action - HR_TRACE_SEGMENT_ALLOC));
    hri_page_u64(page, units(c, event->addr));
    hri_page_u64(page, event->size);
    hri_page_u64(page, event->stream);
    hri_page_u64(page, event->pool);
  }
}

static void put_annotations(const hri_report_columns *c, hri_report_tables *tables, hri_page *page) {
  const hr_snapshot *s = c->lives->snapshot;
  uint64_t i, count = 0;
  int64_t last = c->first_time_us;
  for (i = 0; i < s->annotation_count; i++) count += s->annotations[i].device == c->lives->device;
  hri_page_u64(page, count);
  for (i = 0; i < s->annotation_count; i++) { /* ordered by time */
    const hr_annotation *a = &s->annotations[i];
    if (a->device != c->lives->device) continue;
    hri_page_i64(page, (uint64_t)a->time_us - (uint64_t)last);
    last = a->time_us;
    hri_page_u64(page, hri_report_string(tables, a->name));
    hri_page_u64(page, a->end);
  }
}

/* A trace that changes its stage more often than this has no bands that a person could read. */
enum { MAX_STAGE_RUNS = 200000 };

/* Runs of one stage: first event and stage. */
static void put_stages(const hri_report_columns *c, hri_page *page) {
  uint64_t i, count = 0, last = 0;
  uint8_t stage = HR_STAGE_UNKNOWN;
  const uint8_t *stages = hri_inspection_stages(c->in);
  for (i = 0; stages && i < c->lives->event_count; i++) {
    count += stages[i] != stage;
    stage = stages[i];
  }
  if (count > MAX_STAGE_RUNS) count = 0;
  hri_page_u64(page, count);
  stage = HR_STAGE_UNKNOWN;
  for (i = 0; count > 0 && i < c->lives->event_count; i++) {
    if (stages[i] == stage) continue;
    stage = stages[i];
    hri_page_u64(page, i - last);
    hri_page_u64(page, stage);
    last = i;
  }
}

void hri_report_columns_put(const hri_report_columns *c, hri_report_tables *tables, hri_page *page) {
  put_times(c, page);
  put_instants(c, page);
  put_places(c, page);
  put_owners(c, tables, page);
  put_start_segments(c, page);
  put_segment_events(c, page);
  put_annotations(c, tables, page);
  put_stages(c, page);
  hri_report_tables_put(tables, page);
}
