/* History: what is recorded, and what a reader finds in the mapped file - at any time, with any settings, on a full
 * disk. A killed writer and damaged files have tests of their own (test_alloc_history_kill.c, test_history_read.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <headroom/alloc.h>

#include "alloc/history.h"
#include "base/file.h"
#include "mem/alloc_world.h"
#include "support/files.h"
#include "support/fork.h"
#include "support/roll.h"

#define MIB(n) ((uint64_t)(n) << 20)

static char path[PATH_BYTES];

static int set_up(void **state) {
  if (make_directory(state) != 0) return -1;
  (void)snprintf(path, sizeof path, "%s/history", directory);
  return 0;
}

static hr_alloc *make(const hr_alloc_hooks *hooks, const char *conf) {
  hr_alloc_config config = hr_alloc_config_default();
  hr_alloc *alloc;
  assert_int_equal(hr_alloc_config_parse(conf, &config, NULL), HR_OK);
  assert_int_equal(hr_alloc_create(hooks, &config, &alloc, NULL), HR_OK);
  return alloc;
}

static void world_free(world *w) {
  assert_false(w->broken);
  free(w->ranges);
}

static int64_t counted(void *context) { return ++*(int64_t *)context; }

/* ---- in memory ---- */

static const char *frame(const hr_snapshot *s, uint32_t stack, uint32_t k) {
  assert_true(k < s->stacks[stack].count);
  return hr_snapshot_string(s, s->frames[s->stack_frames[s->stacks[stack].first + k]].name);
}

static void records_events_with_labels(void **state) {
  const hr_alloc_label weight = {.category = "weight", .phase = "load", .name = "wte", .layer = -1};
  const hr_alloc_label gate = {.category = "activation", .phase = "forward", .name = "gate", .layer = 3, .step = 12};
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
  hr_snapshot *s;
  uint64_t a, b;
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(0, &hooks, NULL), HR_OK);
  alloc = make(&hooks, "max_split_size_mb:64");
  assert_int_equal(hr_alloc_set_label(alloc, &weight, NULL), HR_OK);
  assert_int_equal(hr_alloc_malloc(alloc, 1000, 0, &a, NULL), HR_OK); /* before recording: in the state, no event */
  assert_int_equal(hr_alloc_history_start(alloc, NULL, NULL), HR_OK);
  assert_int_equal(hr_alloc_history_start(alloc, NULL, NULL), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_set_label(alloc, &gate, NULL), HR_OK);
  assert_int_equal(hr_alloc_malloc(alloc, MIB(3) + 1, 5, &b, NULL), HR_OK);
  assert_int_equal(hr_alloc_set_label(alloc, NULL, NULL), HR_OK);
  assert_int_equal(hr_alloc_free(alloc, b, NULL), HR_OK);
  assert_int_equal(hr_alloc_snapshot(alloc, &s, NULL), HR_OK);
  assert_int_equal(s->event_count, 4);
  assert_int_equal(s->trace_count, 1);
  static const int actions[] = {HR_TRACE_SEGMENT_ALLOC, HR_TRACE_ALLOC, HR_TRACE_FREE_REQUESTED,
                                HR_TRACE_FREE_COMPLETED};
  for (int k = 0; k < 4; k++) {
    const hr_trace_event *e = &s->events[k];
    assert_int_equal(e->action, actions[k]);
    assert_int_equal(e->addr, b);
    assert_int_equal(e->size, k ? MIB(3) + 1 : MIB(20));
    assert_int_equal(e->stream, 5);
    assert_true((e->flags & HR_EVENT_HAS_TIME) && (!k || e->time_us >= e[-1].time_us));
    assert_string_equal(hr_snapshot_category(s, e->category), "activation");
    assert_int_equal(s->stacks[e->stack].count, 4);
    assert_string_equal(frame(s, e->stack, 0), "gate");
    assert_string_equal(frame(s, e->stack, 1), "layer 3");
    assert_string_equal(frame(s, e->stack, 2), "forward");
    assert_string_equal(frame(s, e->stack, 3), "step 12");
  }
  assert_int_equal(s->segment_count, 2);
  assert_false(s->segments[0].large);
  assert_true(s->segments[1].large);
  assert_int_equal(s->segments[0].requested_size, 1000);
  assert_int_equal(s->blocks[0].size, 1024);
  assert_string_equal(frame(s, s->blocks[0].stack, 0), "wte");
  assert_string_equal(frame(s, s->blocks[0].stack, 1), "load");
  assert_string_equal(hr_snapshot_category(s, s->blocks[0].category), "weight");
  assert_true(s->categories_stated);
  assert_true(s->settings.present && s->settings.max_split_size == MIB(64));
  assert_string_equal(hr_snapshot_string(s, s->settings.text), "max_split_size_mb:64");
  assert_string_equal(s->format, "headroom");
  hr_snapshot_destroy(s);
  assert_int_equal(hr_alloc_snapshot(alloc, &s, NULL), HR_OK); /* the first one is an event now */
  assert_int_equal(s->event_count, 5);
  assert_int_equal(s->events[4].action, HR_TRACE_SNAPSHOT);
  assert_int_equal(s->events[4].size, 1024);
  hr_snapshot_destroy(s);
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
}

static void keeps_the_newest_events(void **state) {
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
  hr_snapshot *s;
  uint64_t a;
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(0, &hooks, NULL), HR_OK);
  for (int mapped = 0; mapped < 2; mapped++) {
    const hr_alloc_history_options options = {mapped ? path : NULL, 7};
    alloc = make(&hooks, "");
    assert_int_equal(hr_alloc_history_start(alloc, &options, NULL), HR_OK);
    for (int k = 1; k <= 40000; k++) {
      assert_int_equal(hr_alloc_malloc(alloc, (uint64_t)k, 0, &a, NULL), HR_OK);
      assert_int_equal(hr_alloc_free(alloc, a, NULL), HR_OK);
    }
    for (int read = 0; read <= mapped; read++) {
      assert_int_equal(read ? hr_snapshot_read(path, NULL, &s, NULL) : hr_alloc_snapshot(alloc, &s, NULL), HR_OK);
      assert_int_equal(s->event_count, 7);
      assert_int_equal(s->events[6].action, read ? HR_TRACE_SNAPSHOT : HR_TRACE_FREE_COMPLETED);
      assert_int_equal(s->events[6 - read].size, 40000);
      assert_int_equal(s->events[0].size, 39998 + read);
      hr_snapshot_destroy(s);
    }
    assert_int_equal(hr_alloc_history_stop(alloc, NULL), HR_OK);
    assert_int_equal(hr_alloc_malloc(alloc, 5, 0, &a, NULL), HR_OK);
    assert_int_equal(hr_alloc_history_stop(alloc, NULL), HR_OK);
    assert_int_equal(hr_alloc_snapshot(alloc, &s, NULL), HR_OK); /* what was recorded is kept, the stop ended it */
    assert_int_equal(s->event_count, 7);
    assert_int_not_equal(s->events[6].size, 5);
    hr_snapshot_destroy(s);
    assert_int_equal(hr_alloc_history_start(alloc, &(hr_alloc_history_options){0}, NULL), HR_OK);
    assert_int_equal(hr_alloc_snapshot(alloc, &s, NULL), HR_OK);
    assert_int_equal(s->event_count, 0);
    hr_snapshot_destroy(s);
    hr_alloc_destroy(alloc);
  }
  hr_alloc_hooks_destroy(&hooks);
}

static int64_t system_us(void) {
  struct timespec t;
  assert_int_equal(clock_gettime(CLOCK_REALTIME, &t), 0);
  return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The clock of the hooks is the one that counts; otherwise times agree with the system's. */
static void tells_the_time(void **state) {
  world w = world_new(MIB(100));
  hr_alloc_hooks hooks = world_hooks(&w);
  hr_alloc *alloc = make(&hooks, "");
  hri_clock clock = {0};
  hr_snapshot *s;
  uint64_t a;
  (void)state;
  const int64_t begun = system_us();
  assert_int_equal(hr_alloc_history_start(alloc, NULL, NULL), HR_OK);
  assert_int_equal(hr_alloc_malloc(alloc, 1, 0, &a, NULL), HR_OK);
  assert_int_equal(hr_alloc_snapshot(alloc, &s, NULL), HR_OK);
  assert_in_range(s->events[1].time_us, begun - 20000, system_us() + 20000);
  hr_snapshot_destroy(s);
  hr_alloc_destroy(alloc);
  world_free(&w);
  int64_t last = 0, worst = 0;
  for (int k = 0; k < 3000000; k++) { /* crosses many adjustments */
    int64_t before = k % 1000 ? 0 : system_us(), us = hri_clock_us(&clock);
    assert_true(us >= last);
    last = us;
    if (k % 1000) continue;
    int64_t after = system_us(); /* later by as long as the test was put aside */
    if (before - us > worst) worst = before - us;
    if (us - after > worst) worst = us - after;
  }
  assert_true(worst < 20000); /* of one interval in which a rate is believed */
  assert_true(hri_clock_ticks() == 0 || clock.rate > 0);
}

/* Microseconds that the clock counts in a second of a counter of 3 GHz. */
static int64_t counted_in_a_second(const hri_clock *clock) {
  return (int64_t)((3000000000.0 * (double)clock->rate) / 4294967296.0);
}

/* A counter of 3 GHz that is read NS after the start, a tenth of a microsecond before the clock and as long after it; the thread is put
 * aside for ASIDE_NS behind the counter. */
static void reads(hri_clock *clock, uint64_t ns, uint64_t aside_ns) {
  const uint64_t begin = 7000000000u + ns;
  hri_clock_learn(clock, &(hri_clock_reading){.before_ns = begin - 100,
                                              .ticks = begin * 3,
                                              .us = (int64_t)((begin + aside_ns) / 1000),
                                              .after_ns = begin + aside_ns + 100});
}

/* Put aside between counter and clock, at the start of a span, at its end or at both, it does not take a wrong rate. */
static void being_put_aside_changes_no_rate(void **state) {
  (void)state;
  for (int ends = 0; ends < 4; ends++) {
    const uint64_t first = ends & 1 ? 10000000 : 0, second = ends & 2 ? 10000000 : 0;
    hri_clock clock = {0};
    int rates = 0;
    reads(&clock, 0, first);
    reads(&clock, first + 1000200, second);
    assert_int_equal(clock.valid_ticks > 0, !ends);
    for (uint64_t ns = first + second + 1000600, last = ns + 30000000; ns < last; ns += 300000) {
      reads(&clock, ns, 0);
      if (!clock.valid_ticks) continue;
      rates++;
      assert_in_range(counted_in_a_second(&clock), 960000, 1040000);
      assert_in_range(clock.valid_ticks, 57000000, 63000000); /* 20 ms */
    }
    assert_true(rates > 5);
  }
}

static void uses_the_clock_of_the_hooks(void **state) {
  int64_t now = 41;
  hri_history history = {0};
  hri_history_event ring[3];
  hr_alloc alloc = {.history = &history};
  (void)state;
  alloc.hooks.clock_us = counted;
  alloc.hooks.context = &now;
  history.ring = ring;
  history.capacity = 3;
  history.published = &history.own_published;
  hri_history_record(&alloc, HR_TRACE_ALLOC, 512, 1, 512, 0, 0, 0);
  hri_history_record(&alloc, HR_TRACE_FREE_REQUESTED, 512, 1, 512, 0, 70000, 0);
  assert_int_equal(ring[0].time_us, 42);
  assert_int_equal(ring[1].time_us, 43);
  assert_int_equal(hri_history_pool(&ring[1]), 65535);
  assert_int_equal(history.own_published, 2);
}

/* ---- the mapped file against the structures ---- */

static const char *text_of(const hr_snapshot *s, uint32_t stack) {
  static char text[2][400];
  static int turn;
  char *to = text[turn ^= 1];
  size_t at = 0;
  to[0] = 0;
  for (uint32_t k = 0; k < s->stacks[stack].count && at < 300; k++)
    at += (size_t)snprintf(to + at, 400 - at, "%s;", frame(s, stack, k));
  return to;
}

static void compare_segments(const hr_snapshot *a, const hr_snapshot *b) {
  assert_int_equal(a->segment_count, b->segment_count);
  for (uint64_t k = 0; k < a->segment_count; k++) {
    const hr_segment *x = &a->segments[k], *y = &b->segments[k];
    if (x->address != y->address || x->total_size != y->total_size || x->stream != y->stream || x->large != y->large)
      fail_msg("segment %lu: %lx+%lx large %d, not %lx+%lx large %d", (unsigned long)k, (long)x->address,
               (long)x->total_size, x->large, (long)y->address, (long)y->total_size, y->large);
    assert_true(x->expandable == y->expandable && x->block_count == y->block_count &&
                x->allocated_size == y->allocated_size);
    assert_true(x->active_size == y->active_size && x->requested_size == y->requested_size);
    assert_memory_equal(a->pools[x->pool].id, b->pools[y->pool].id, sizeof a->pools[0].id);
    if (!x->expandable) assert_string_equal(text_of(a, x->stack), text_of(b, y->stack));
    for (uint64_t n = 0; n < x->block_count; n++) {
      const hr_block *p = &a->blocks[x->first_block + n], *q = &b->blocks[y->first_block + n];
      assert_true(p->address == q->address && p->size == q->size && p->requested_size == q->requested_size &&
                  p->state == q->state);
      assert_string_equal(text_of(a, p->stack), text_of(b, q->stack));
      assert_string_equal(hr_snapshot_category(a, p->category), hr_snapshot_category(b, q->category));
    }
  }
}

static void compare_events(const hr_snapshot *a, const hr_snapshot *b) {
  assert_int_equal(a->event_count, b->event_count);
  for (uint64_t k = 0; k < a->event_count; k++) {
    const hr_trace_event *x = &a->events[k], *y = &b->events[k];
    assert_true(x->addr == y->addr && x->size == y->size && x->stream == y->stream && x->time_us == y->time_us &&
                x->action == y->action);
    assert_memory_equal(a->pools[x->pool].id, b->pools[y->pool].id, sizeof a->pools[0].id);
    if (k % 16 == 0) assert_string_equal(text_of(a, x->stack), text_of(b, y->stack));
  }
}

/* The file first: the snapshot records that it was taken. */
static void compare_file(hr_alloc *alloc) {
  hr_snapshot *a, *b;
  hr_error error = {0};
  if (hr_snapshot_read(path, NULL, &a, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hr_alloc_snapshot(alloc, &b, NULL), HR_OK);
  assert_int_equal(a->repaired_count, 0);
  assert_int_equal(a->unknown_count, 0);
  compare_segments(a, b);
  compare_events(a, b);
  assert_string_equal(hr_snapshot_string(a, a->settings.text), hr_snapshot_string(b, b->settings.text));
  assert_memory_equal(a->settings.roundup_power2_divisions, b->settings.roundup_power2_divisions,
                      sizeof a->settings.roundup_power2_divisions);
  hr_snapshot_destroy(a);
  hr_snapshot_destroy(b);
}

enum { LIVE = 300 };

typedef struct churn {
  hr_alloc *alloc;
  world *w;
  uint64_t seed, live[LIVE];
  uint32_t pools[3];
  int live_count;
} churn;

static void label_something(churn *c) {
  static const char *const names[] = {"wte", "qkv", "gate", "up", "down", "norm"}, *const categories[] = {NULL,
                                                                                                          "weight",
                                                                                                          "activation",
                                                                                                          "gradient"};
  uint64_t r = roll(&c->seed);
  const hr_alloc_label label = {categories[r % 4], r >> 8 & 1 ? "forward" : NULL, names[(r >> 9) % 6],
                                (int32_t)(r >> 16 & 15) - 1, r >> 32 & 1023};
  assert_int_equal(hr_alloc_set_label(c->alloc, r >> 42 & 7 ? &label : NULL, NULL), HR_OK);
}

static void allocate_something(churn *c) {
  uint64_t r = roll(&c->seed), bytes = 1 + (r >> 8) % ((r & 3) == 0 ? MIB(30) : (r & 3) == 1 ? MIB(3) : 100000), a;
  uint32_t pool = (r >> 60) < 3 ? c->pools[r >> 60] : 0;
  hr_status status = hr_alloc_malloc_in(c->alloc, pool, bytes, r >> 40 & 3, &a, NULL);
  assert_true(status == HR_OK || status == HR_ERROR_MEMORY);
  if (status == HR_OK) c->live[c->live_count++] = a;
}

static void free_something(churn *c) {
  uint64_t r = roll(&c->seed);
  int pick = (int)(r % (uint64_t)c->live_count);
  if (r >> 20 & 1) assert_int_equal(hr_alloc_record_stream(c->alloc, c->live[pick], 3 + (r >> 21 & 1), NULL), HR_OK);
  assert_int_equal(hr_alloc_free(c->alloc, c->live[pick], NULL), HR_OK);
  c->live[pick] = c->live[--c->live_count];
}

static void do_something(churn *c) {
  uint64_t r = roll(&c->seed);
  if (r % 8 == 0) label_something(c);
  if (r >> 10 & 1) c->w->done = c->w->marks; /* streams finish */
  if (c->live_count == LIVE || (c->live_count && (r >> 32) % 100 < 48)) free_something(c);
  else if ((r >> 32) % 1000 == 999) assert_int_equal(hr_alloc_empty_cache(c->alloc, NULL), HR_OK);
  else allocate_something(c);
}

static void churn_with(const char *conf, uint64_t seed, uint64_t event_limit, int rounds) {
  world w = world_new(MIB(1500));
  hr_alloc_hooks hooks = world_hooks(&w);
  churn c = {.w = &w, .seed = seed};
  const hr_alloc_history_options options = {path, event_limit};
  hr_alloc_config config;
  uint64_t live = hri_mem_live_bytes();
  c.alloc = make(&hooks, conf);
  for (int k = 0; k < 200; k++) do_something(&c); /* something lives already */
  assert_int_equal(hr_alloc_history_start(c.alloc, &options, NULL), HR_OK);
  compare_file(c.alloc);
  for (uint32_t k = 0; k < 3; k++) assert_int_equal(hr_alloc_pool_create(c.alloc, 7, k, &c.pools[k], NULL), HR_OK);
  for (int k = 0; k < rounds; k++) {
    do_something(&c);
    if (roll(&c.seed) % 1500 == 0) compare_file(c.alloc);
  }
  config = hr_alloc_config_default();
  config.garbage_collection_threshold = 0.25;
  config.expandable_segments = strstr(conf, "expandable") != NULL;
  assert_int_equal(hr_alloc_set_config(c.alloc, &config, NULL), HR_OK);
  do_something(&c);
  compare_file(c.alloc);
  assert_int_equal(hr_alloc_history_stop(c.alloc, NULL), HR_OK);
  hr_alloc_destroy(c.alloc);
  world_free(&w);
  assert_int_equal(hri_mem_live_bytes(), live);
}

static void the_file_agrees_with_the_structures(void **state) {
  static const char *const settings[] = {"", "expandable_segments:True",
                                         "max_split_size_mb:20,roundup_power2_divisions:4",
                                         "expandable_segments:True,large_segment_size_mb:32"};
  (void)state;
  for (uint64_t k = 0; k < 4; k++) {
    churn_with(settings[k], 1 + k, 1000, 40000);    /* the ring (16,384) is passed through several times */
    churn_with(settings[k], 11 + k, 100000, 20000); /* and not at all */
  }
}

/* Whatever stands where the writer may be writing: the idle state, the place of the next event, behind the last
 * note. */
static void what_is_not_published_does_not_count(void **state) {
  world w = world_new(MIB(1500));
  hr_alloc_hooks hooks = world_hooks(&w);
  churn c = {.w = &w, .seed = 77};
  char *bytes;
  uint64_t count;
  (void)state;
  c.alloc = make(&hooks, "expandable_segments:True");
  assert_int_equal(hr_alloc_history_start(c.alloc, &(hr_alloc_history_options){path, 20000}, NULL), HR_OK);
  for (uint64_t states = 0, before = 0; states < 7;) {
    hr_snapshot *a, *b;
    do_something(&c);
    if (c.alloc->history->file->header->state == before) continue;
    const uint64_t now = c.alloc->history->file->header->state;
    assert_true(!before || (now & 1) != (before & 1)); /* never over the one that holds */
    before = now;
    states++;
    for (int k = 0; k < 50; k++) do_something(&c);
    assert_int_equal(hri_file_read(path, 64 << 20, &bytes, &count, NULL), HR_OK);
    hri_history_header *h = (hri_history_header *)(void *)bytes;
    hri_history_extent *idle = &h->states[!(h->state & 1)];
    memset(bytes + idle->offset, 0xa5, idle->bytes);
    memset(bytes + h->ring_offset + h->published % h->ring_capacity * sizeof(hri_history_event), 0xa5,
           sizeof(hri_history_event));
    for (uint64_t k = 0; k < h->chunk_count; k++)
      memset(bytes + h->chunks[k].extent.offset + h->chunks[k].used, 0xa5,
             h->chunks[k].extent.bytes - h->chunks[k].used);
    memset(&h->chunks[h->chunk_count], 0xa5, 100);
    assert_int_equal(hri_history_parse(bytes, count, "half written", &a, NULL), HR_OK);
    assert_int_equal(hr_alloc_snapshot(c.alloc, &b, NULL), HR_OK);
    assert_int_equal(a->unknown_count + a->repaired_count, 0);
    compare_segments(a, b);
    compare_events(a, b);
    assert_true(states < 4 || a->event_count == 20000); /* the ring is full */
    hr_snapshot_destroy(a);
    hr_snapshot_destroy(b);
    hri_free(bytes);
  }
  hr_alloc_destroy(c.alloc);
  world_free(&w);
}

typedef struct oom_seen {
  uint64_t segment_bytes, free_bytes;
  int count;
} oom_seen;

static void at_oom(void *context, hr_alloc *alloc, uint64_t segment_bytes, uint64_t free_bytes) {
  oom_seen *seen = context;
  hr_snapshot *s;
  *seen = (oom_seen){segment_bytes, free_bytes, seen->count + 1};
  compare_file(alloc);
  assert_int_equal(hr_snapshot_read(path, NULL, &s, NULL), HR_OK);
  const hr_trace_event *last = &s->events[s->event_count - 2]; /* compare_file took a snapshot */
  assert_int_equal(last->action, HR_TRACE_OOM);
  assert_int_equal(last->addr, free_bytes);
  assert_int_equal(last->size, MIB(70) + 512);
  assert_string_equal(text_of(s, last->stack), "logits;");
  hr_snapshot_destroy(s);
}

static void a_snapshot_can_be_taken_at_out_of_memory(void **state) {
  (void)state;
  for (int expandable = 0; expandable < 2; expandable++) {
    world w = world_new(MIB(100));
    hr_alloc_hooks hooks = world_hooks(&w);
    hr_alloc *alloc = make(&hooks, expandable ? "expandable_segments:True" : "");
    oom_seen seen = {0};
    uint64_t a, b;
    assert_int_equal(hr_alloc_history_start(alloc, &(hr_alloc_history_options){path, 0}, NULL), HR_OK);
    hr_alloc_on_oom(alloc, at_oom, &seen);
    assert_int_equal(hr_alloc_malloc(alloc, MIB(20), 0, &a, NULL), HR_OK);
    assert_int_equal(hr_alloc_malloc(alloc, MIB(35), 0, &b, NULL), HR_OK);
    assert_int_equal(hr_alloc_free(alloc, a, NULL), HR_OK);
    assert_int_equal(hr_alloc_set_label(alloc, &(hr_alloc_label){.name = "logits", .layer = -1}, NULL), HR_OK);
    assert_int_equal(hr_alloc_malloc(alloc, MIB(70) + 1, 0, &a, NULL), HR_ERROR_MEMORY);
    assert_int_equal(seen.count, 1);
    assert_true(seen.segment_bytes > MIB(70) && seen.free_bytes >= MIB(60));
    compare_file(alloc);
    hr_alloc_destroy(alloc);
    world_free(&w);
  }
}

static void import_is_part_of_the_state(void **state) {
  world w = world_new(MIB(100));
  hr_alloc_hooks hooks = world_hooks(&w);
  hr_alloc *alloc = make(&hooks, "");
  const hr_segment segment = {.address = 0x7f1200000000, .total_size = MIB(2), .block_count = 2};
  const hr_block blocks[] =
      {{.address = 0x7f1200000000, .size = 1024, .requested_size = 1000, .state = HR_BLOCK_ALLOCATED},
       {.address = 0x7f1200000400, .size = MIB(2) - 1024}};
  const hr_pool pools[] = {{{0, 0}}};
  (void)state;
  assert_int_equal(hr_alloc_history_start(alloc, &(hr_alloc_history_options){path, 0}, NULL), HR_OK);
  assert_int_equal(hr_alloc_import(alloc, &segment, 1, blocks, 2, pools, 1, NULL), HR_OK);
  compare_file(alloc);
  hr_alloc_destroy(alloc);
  world_free(&w);
}

/* ---- labels ---- */

static void labels_are_kept_once(void **state) {
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
  char name[32], *large = malloc(70000);
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(0, &hooks, NULL), HR_OK);
  alloc = make(&hooks, "");
  for (int round = 0; round < 3; round++)
    for (int k = 0; k < 5000; k++) {
      (void)snprintf(name, sizeof name, "layer.%d", k);
      const hr_alloc_label label = {.name = name, .layer = k, .step = (uint64_t)round << 33};
      assert_int_equal(hr_alloc_set_label(alloc, &label, NULL), HR_OK);
      assert_int_equal(alloc->label & UINT32_MAX, k + 1);
      assert_int_equal(alloc->label >> 32, round ? UINT32_MAX : 0);
    }
  assert_int_equal(alloc->labels->items.count, 5000);
  /* texts are not run together */
  assert_int_equal(hr_alloc_set_label(alloc, &(hr_alloc_label){.category = "ab", .phase = "c"}, NULL), HR_OK);
  assert_int_equal(hr_alloc_set_label(alloc, &(hr_alloc_label){.category = "a", .phase = "bc"}, NULL), HR_OK);
  assert_int_equal(alloc->labels->items.count, 5002);
  memset(large, 'x', 69999);
  large[69999] = 0;
  assert_int_equal(hr_alloc_set_label(alloc, &(hr_alloc_label){.name = large}, NULL), HR_ERROR_USAGE);
  free(large);
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
}

/* ---- failures ---- */

static void a_path_that_cannot_be_written_is_an_error(void **state) {
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
  hr_error error = {0};
  uint64_t a;
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(0, &hooks, NULL), HR_OK);
  alloc = make(&hooks, "");
  assert_int_equal(hr_alloc_history_start(alloc, &(hr_alloc_history_options){"/nowhere/at/all", 0}, &error),
                   HR_ERROR_IO);
  assert_non_null(strstr(error.message, "/nowhere/at/all"));
  assert_int_equal(hr_alloc_history_start(alloc, &(hr_alloc_history_options){path, UINT64_MAX}, &error),
                   HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_history_start(alloc, &(hr_alloc_history_options){NULL, UINT64_MAX}, &error),
                   HR_ERROR_MEMORY);
  assert_int_equal(hr_alloc_history_stop(alloc, NULL), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_malloc(alloc, 1, 0, &a, NULL), HR_OK);
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
}

static hr_status start_with_little_room(const char *where) {
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
  hr_status status;
  assert_int_equal(hr_alloc_fake_hooks(0, &hooks, NULL), HR_OK);
  alloc = make(&hooks, "");
  status = hr_alloc_history_start(alloc, &(hr_alloc_history_options){where, 0}, NULL);
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
  return status;
}

static int start_on_a_full_disk(void *context) {
  struct rlimit limit = {1000000, RLIM_INFINITY}; /* a million events have 48 MB */
  (void)context;
  if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
  return start_with_little_room(path) == HR_ERROR_IO ? 0 : 2;
}

/* A history that cannot begin leaves what stood at its place; a link, a pipe and a directory are never replaced. */
static void what_stands_there_stays_until_a_history_begins(void **state) {
  static const char text[] = "somebody's file";
  char other[PATH_BYTES], *bytes;
  uint64_t count;
  struct stat info;
  (void)state;
  (void)unlink(path);
  assert_int_equal(hri_file_write_new(path, text, sizeof text, NULL), HR_OK);
  assert_int_equal(in_child(start_on_a_full_disk, NULL, 60), 0);
  assert_int_equal(hri_file_read(path, 1000, &bytes, &count, NULL), HR_OK);
  assert_string_equal(bytes, text);
  hri_free(bytes);
  assert_true((size_t)snprintf(other, sizeof other, "%s/other", directory) < sizeof other);
  assert_int_equal(symlink(path, other), 0);
  assert_int_equal(start_with_little_room(other), HR_ERROR_USAGE);
  assert_int_equal(lstat(other, &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_int_equal(unlink(other), 0);
  assert_int_equal(mkfifo(other, 0600), 0);
  assert_int_equal(start_with_little_room(other), HR_ERROR_USAGE);
  assert_int_equal(lstat(other, &info), 0);
  assert_true(S_ISFIFO(info.st_mode));
  assert_int_equal(unlink(other), 0);
  assert_int_equal(start_with_little_room(directory), HR_ERROR_USAGE);
  assert_int_equal(start_with_little_room(path), HR_OK); /* a file gives way */
  assert_int_equal(stat(path, &info), 0);
  assert_true(info.st_size > 1000000);
}

/* The disk is full when the state no longer fits: recording ends, the file stays readable up to there. */
static int fill_the_disk(void *context) {
  struct rlimit limit = {1000000, RLIM_INFINITY}; /* the ring has 786,480 bytes */
  hr_alloc_hooks hooks;
  hr_alloc_config config = hr_alloc_config_default();
  hr_alloc *alloc;
  uint64_t a;
  (void)context;
  if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
  if (hr_alloc_fake_hooks(0, &hooks, NULL) != HR_OK || hr_alloc_create(&hooks, &config, &alloc, NULL) != HR_OK)
    return 2;
  if (hr_alloc_history_start(alloc, &(hr_alloc_history_options){path, 1000}, NULL) != HR_OK) return 3;
  for (int k = 0; k < 60000; k++)
    if (hr_alloc_malloc(alloc, 1000, 0, &a, NULL) != HR_OK) return 4;
  if (hr_alloc_history_stop(alloc, NULL) != HR_ERROR_IO) return 5;
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
  return 0;
}

static void a_full_disk_ends_recording_only(void **state) {
  hr_snapshot *s;
  uint64_t live = 0;
  (void)state;
  assert_int_equal(in_child(fill_the_disk, NULL, 60), 0);
  assert_int_equal(hr_snapshot_read(path, NULL, &s, NULL), HR_OK);
  assert_int_equal(s->event_count, 1000);
  for (uint64_t k = 0; k < s->block_count; k++) live += s->blocks[k].state == HR_BLOCK_ALLOCATED;
  assert_in_range(live, 1000, 59999);
  hr_snapshot_destroy(s);
}

static void survives_refused_memory(void **state) {
  world w = world_new(MIB(1000));
  hr_alloc_hooks hooks = world_hooks(&w);
  hr_alloc *alloc;
  uint64_t a, live = hri_mem_live_bytes();
  (void)state;
  for (int step = 0; step < 5; step++) {
    for (uint64_t nth = 1;; nth++) {
      hr_status status = HR_OK;
      hr_snapshot *s = NULL;
      alloc = make(&hooks, "");
      assert_int_equal(hr_alloc_set_label(alloc, &(hr_alloc_label){.name = "x"}, NULL), HR_OK);
      assert_int_equal(hr_alloc_history_start(alloc, &(hr_alloc_history_options){step == 1 ? path : NULL, 100}, NULL),
                       HR_OK);
      assert_int_equal(hr_alloc_malloc(alloc, 1, 0, &a, NULL), HR_OK);
      assert_int_equal(hr_alloc_history_stop(alloc, NULL), HR_OK);
      if (step == 1) hri_history_destroy(alloc);
      if (step == 3) (void)unlink(path);
      hri_mem_fail_after(nth);
      if (step == 0) status = hr_alloc_snapshot(alloc, &s, NULL);
      if (step == 1) status = hr_snapshot_read(path, NULL, &s, NULL);
      if (step == 2) status = hr_alloc_set_label(alloc, &(hr_alloc_label){.name = "y"}, NULL);
      if (step == 3) status = hr_alloc_history_start(alloc, &(hr_alloc_history_options){path, 100}, NULL);
      if (step == 4) status = hr_alloc_history_start(alloc, NULL, NULL);
      hri_mem_fail_after(0);
      assert_true(status == HR_OK || status == HR_ERROR_MEMORY);
      if (step == 3) assert_int_equal(access(path, F_OK), status == HR_OK ? 0 : -1); /* no half a file is left */
      if (step < 2) assert_true((s != NULL) == (status == HR_OK));
      hr_snapshot_destroy(s);
      hr_alloc_destroy(alloc);
      assert_int_equal(hri_mem_live_bytes(), live);
      if (status == HR_OK) {
        assert_true(nth > 1);
        break;
      }
    }
  }
  world_free(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(records_events_with_labels),
      cmocka_unit_test(keeps_the_newest_events),
      cmocka_unit_test(tells_the_time),
      cmocka_unit_test(being_put_aside_changes_no_rate),
      cmocka_unit_test(uses_the_clock_of_the_hooks),
      cmocka_unit_test(the_file_agrees_with_the_structures),
      cmocka_unit_test(what_is_not_published_does_not_count),
      cmocka_unit_test(a_snapshot_can_be_taken_at_out_of_memory),
      cmocka_unit_test(import_is_part_of_the_state),
      cmocka_unit_test(labels_are_kept_once),
      cmocka_unit_test(a_path_that_cannot_be_written_is_an_error),
      cmocka_unit_test(what_stands_there_stays_until_a_history_begins),
      cmocka_unit_test(a_full_disk_ends_recording_only),
      cmocka_unit_test(survives_refused_memory),
  };
  return cmocka_run_group_tests(tests, set_up, remove_directory);
}
