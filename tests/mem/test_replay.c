/* Replay: what an allocator of ours recorded comes out again to the address; what-if answers are those of running it
 * so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/inspect.h>
#include <headroom/replay.h>

#include "base/mem.h"
#include "snapshot/build.h"

static const uint64_t MIB_BYTES = 1 << 20;
#define MIB(n) ((uint64_t)(n) * MIB_BYTES)

/* ---- a recorder: our allocator on fake addresses ---- */

typedef struct recorder {
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
} recorder;

static hr_alloc_order order; /* of the version that is recorded */

static recorder begin(const char *conf, uint64_t capacity, uint64_t event_limit) {
  recorder r;
  hr_error error;
  hr_alloc_config config = hr_alloc_config_default();
  hr_alloc_history_options history = {.event_limit = event_limit};
  if (hr_alloc_config_parse(conf, &config, &error) != HR_OK) fail_msg("%s", error.message);
  config.order = order;
  assert_int_equal(hr_alloc_fake_hooks(capacity, &r.hooks, &error), HR_OK);
  if (hr_alloc_create(&r.hooks, &config, &r.alloc, &error) != HR_OK) fail_msg("%s", error.message);
  if (hr_alloc_history_start(r.alloc, &history, &error) != HR_OK) fail_msg("%s", error.message);
  return r;
}

static hr_snapshot *end(recorder *r) {
  hr_snapshot *s;
  hr_error error;
  if (hr_alloc_snapshot(r->alloc, &s, &error) != HR_OK) fail_msg("%s", error.message);
  hr_alloc_destroy(r->alloc);
  hr_alloc_hooks_destroy(&r->hooks);
  return s;
}

static uint64_t take(recorder *r, uint64_t bytes) {
  uint64_t address = 0;
  return hr_alloc_malloc(r->alloc, bytes, 0, &address, NULL) == HR_OK ? address : 0;
}

static void drop(recorder *r, uint64_t address) { assert_int_equal(hr_alloc_free(r->alloc, address, NULL), HR_OK); }

static hr_alloc_stats stats_of(const recorder *r) {
  hr_alloc_stats stats;
  hr_alloc_get_stats(r->alloc, &stats);
  return stats;
}

static uint64_t next(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

static uint64_t some_size(uint64_t *seed) {
  static const uint64_t tops[] = {2000, 300000, 1500000, 9000000, 30000000, 70000000};
  return 1 + next(seed) % tops[next(seed) % 6];
}

enum { SLOTS = 200 };
static bool empties = true;

/* Random requests; returns the peak of what was reserved. */
static uint64_t work(recorder *r, uint64_t *seed, uint32_t operations) {
  uint64_t slots[SLOTS] = {0};
  for (uint32_t k = 0; k < operations; k++) {
    uint64_t *slot = &slots[next(seed) % SLOTS];
    if (empties && next(seed) % 500 == 0) assert_int_equal(hr_alloc_empty_cache(r->alloc, NULL), HR_OK);
    if (*slot) drop(r, *slot), *slot = 0;
    else *slot = take(r, some_size(seed));
  }
  return (uint64_t)stats_of(r).reserved_bytes[HR_ALLOC_ALL].peak;
}

static hr_replay replay_of(const hr_snapshot *s, const hr_replay_options *options) {
  hr_replay replay;
  hr_error error;
  if (hr_replay_run(s, options, &replay, &error) != HR_OK) fail_msg("%s", error.message);
  return replay;
}

static const char *const confs[] = {"",
                                    "expandable_segments:True",
                                    "max_split_size_mb:32",
                                    "roundup_power2_divisions:8",
                                    "garbage_collection_threshold:0.7",
                                    "max_split_size_mb:64,garbage_collection_threshold:0.8"};
enum { CONFS = sizeof confs / sizeof *confs };

/* ---- exactness ---- */

static void test_a_recorded_trace_comes_out_to_the_address(void **state) {
  (void)state;
  for (int c = 0; c < CONFS; c++)
    for (uint64_t seed = 1; seed <= 4; seed++) {
      uint64_t at = seed, peak;
      recorder r = begin(confs[c], 0, 0);
      hr_snapshot *s;
      hr_replay replay;
      peak = work(&r, &at, 6000);
      s = end(&r);
      replay = replay_of(s, NULL);
      if (replay.trust != HR_REPLAY_EXACT)
        fail_msg("%s, seed %llu: %s", confs[c], (unsigned long long)seed, replay.trust_reason);
      assert_true(replay.began_empty);
      assert_true(replay.compared_count > 2000);
      assert_int_equal(replay.same_address_count, replay.compared_count);
      assert_int_equal(replay.same_segment_count, replay.segment_count);
      assert_int_equal(replay.recorded.reserved_peak_bytes, peak);
      assert_false(replay.recorded.failed);
      hr_snapshot_destroy(s);
    }
}

/* Files do not name the version that wrote them: which of equal blocks it took is found out. */
static void test_the_order_of_a_version_is_found(void **state) {
  (void)state;
  for (order = HR_ALLOC_ORDER_SEGMENT; order <= HR_ALLOC_ORDER_BLOCK; order++) {
    uint64_t seed = 11;
    recorder r = begin("", 0, 0);
    hr_snapshot *s;
    hr_replay replay;
    (void)work(&r, &seed, 6000);
    s = end(&r);
    replay = replay_of(s, NULL);
    if (replay.trust != HR_REPLAY_EXACT) fail_msg("order %d: %s", (int)order, replay.trust_reason);
    hr_snapshot_destroy(s);
  }
  order = HR_ALLOC_ORDER_SEGMENT;
}

/* The what-if answer is what the allocator itself says when it is run with those settings. */
static void test_what_if_equals_running_it_so(void **state) {
  (void)state;
  empties = false; /* a call that returned nothing leaves no event */
  for (int c = 0; c < CONFS; c++) {
    uint64_t seed = 77, peak;
    recorder r = begin("", 0, 0), other;
    hr_snapshot *s;
    hr_replay replay;
    uint64_t same = seed;
    (void)work(&r, &seed, 5000);
    s = end(&r);
    other = begin(confs[c], 0, 0);
    peak = work(&other, &same, 5000);
    hr_snapshot_destroy(end(&other));
    replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .alloc_conf = confs[c]});
    assert_int_equal(replay.asked.reserved_peak_bytes, peak);
    hr_snapshot_destroy(s);
  }
  empties = true;
}

static void test_a_lost_beginning_is_said(void **state) {
  uint64_t seed = 5;
  recorder r;
  hr_snapshot *s;
  hr_replay replay;
  (void)state;
  order = HR_ALLOC_ORDER_ADDRESS; /* in which order segments were taken before is lost; this one does not need it */
  r = begin("", 0, 2000);
  order = HR_ALLOC_ORDER_SEGMENT;
  (void)work(&r, &seed, 9000);
  s = end(&r);
  assert_int_equal(s->event_count, 2000);
  replay = replay_of(s, NULL);
  assert_int_not_equal(replay.trust, HR_REPLAY_EXACT);
  assert_false(replay.began_empty);
  assert_true(replay.start_live_bytes > 0);
  assert_true(strstr(replay.trust_reason, "does not begin with an empty allocator") != NULL);
  if (replay.same_address_count * 100 <
      replay.compared_count * 80) /* the state found by going back is right; ages and unsplit tails are not in it */
    fail_msg("%llu of %llu", (unsigned long long)replay.same_address_count, (unsigned long long)replay.compared_count);
  assert_true(replay.recorded.reserved_peak_bytes * 100 <= replay.trace_reserved_peak_bytes * 102);
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .empty_start = true});
  assert_int_equal(replay.trust, HR_REPLAY_ROUGH);
  hr_snapshot_destroy(s);
}

/* ---- failures ---- */

/* 60 MiB taken at once, then used in three parts of which the last stays: 40 MiB are free, but pinned. */
static hr_snapshot *fragmented(const char *conf, bool *failed) {
  recorder r = begin(conf, MIB(100), 0);
  uint64_t whole = take(&r, MIB(60)), parts[3];
  drop(&r, whole);
  for (int k = 0; k < 3; k++) parts[k] = take(&r, MIB(20));
  drop(&r, parts[0]);
  drop(&r, parts[1]);
  *failed = take(&r, MIB(70)) == 0;
  drop(&r, parts[2]);
  return end(&r);
}

static void test_a_failure_by_fragmentation_is_avoided_by_expandable_segments(void **state) {
  bool failed;
  hr_snapshot *s = fragmented("", &failed);
  hr_replay replay;
  hr_replay_result *results;
  uint32_t count;
  hr_error error;
  (void)state;
  assert_true(failed);
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .alloc_conf = "expandable_segments:True"});
  assert_int_equal(replay.capacity_bytes, MIB(100));
  assert_string_equal(replay.capacity_from, "out-of-memory event");
  assert_true(replay.recorded_failed && replay.recorded.failed);
  assert_int_equal(replay.recorded.failed_event, replay.recorded_failed_event);
  assert_int_equal(replay.recorded.failed_bytes, MIB(70));
  assert_false(replay.asked.failed);
  if (hr_replay_search(s, NULL, &replay, &results, &count, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(count > 10);
  assert_false(results[0].failed);
  assert_non_null(strstr(results[0].alloc_conf, "expandable_segments:True"));
  for (uint32_t k = 1; k < count; k++) assert_true(results[k - 1].failed <= results[k].failed);
  hr_free(results);
  hr_snapshot_destroy(s);
  s = fragmented("expandable_segments:True", &failed); /* and that is so */
  assert_false(failed);
  hr_snapshot_destroy(s);
}

static void test_too_big_stays_too_big(void **state) {
  recorder r = begin("", MIB(100), 0);
  hr_snapshot *s;
  hr_replay replay;
  hr_replay_result *results;
  uint32_t count;
  hr_error error;
  (void)state;
  (void)take(&r, MIB(60));
  assert_int_equal(take(&r, MIB(60)), 0);
  s = end(&r);
  if (hr_replay_search(s, NULL, &replay, &results, &count, &error) != HR_OK) fail_msg("%s", error.message);
  for (uint32_t k = 0; k < count; k++) assert_true(results[k].failed);
  assert_string_equal(results[0].alloc_conf, ""); /* the recorded settings: nothing is better */
  hr_free(results);
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .capacity_bytes = MIB(200)});
  assert_false(replay.recorded.failed); /* with more room it would have gone on */
  assert_int_equal(replay.trust, HR_REPLAY_ROUGH);
  hr_snapshot_destroy(s);
}

/* Without an out-of-memory event, segments that were returned right before one was taken tell of the room. */
static void test_room_is_read_off_what_was_returned_for_it(void **state) {
  recorder r = begin("", MIB(100), 0);
  hr_alloc_label label = {.name = "one", .layer = -1};
  uint64_t a, b;
  hr_snapshot *s;
  hr_replay replay;
  (void)state;
  assert_int_equal(hr_alloc_set_label(r.alloc, &label, NULL), HR_OK);
  a = take(&r, MIB(60));
  drop(&r, a);
  label.name = "two";
  assert_int_equal(hr_alloc_set_label(r.alloc, &label, NULL), HR_OK);
  b = take(&r, MIB(80)); /* the cached 60 MiB go back first */
  assert_int_not_equal(b, 0);
  assert_int_equal(stats_of(&r).num_alloc_retries, 1);
  s = end(&r);
  replay = replay_of(s, NULL);
  assert_string_equal(replay.capacity_from, "segments returned to make room");
  assert_true(replay.capacity_bytes >= MIB(80) && replay.capacity_bytes < MIB(140));
  assert_int_equal(replay.recorded.retries, 1);
  assert_int_equal(replay.trust, HR_REPLAY_EXACT);
  hr_snapshot_destroy(s);
}

/* Refused with gigabytes free on the device: a cap, which is at least what was reserved. */
static void test_a_cap_is_told_from_a_full_device(void **state) {
  recorder r = begin("", MIB(4000), 0);
  uint64_t a;
  hr_snapshot *s;
  hr_replay replay;
  (void)state;
  hr_alloc_set_allowed(r.alloc, MIB(100));
  (void)take(&r, MIB(60));
  a = take(&r, MIB(24));
  drop(&r, a);
  assert_int_equal(take(&r, MIB(50)), 0);
  s = end(&r);
  replay = replay_of(s, NULL);
  assert_int_equal(replay.trust, HR_REPLAY_EXACT);
  assert_int_equal(replay.capacity_bytes, MIB(84));
  assert_int_equal(strncmp(replay.capacity_from, "a cap", 5), 0);
  assert_true(replay.recorded_failed && replay.recorded.failed);
  hr_snapshot_destroy(s);
}

/* A memory fraction is not in the file; what garbage collection returned shows it. */
static void test_garbage_collection_shows_what_was_allowed(void **state) {
  recorder r = begin("garbage_collection_threshold:0.5", MIB(4000), 0);
  hr_alloc_label label = {.name = "one", .layer = -1};
  uint64_t blocks[3];
  hr_snapshot *s;
  hr_replay replay;
  (void)state;
  hr_alloc_set_allowed(r.alloc, MIB(200));
  assert_int_equal(hr_alloc_set_label(r.alloc, &label, NULL), HR_OK);
  for (int k = 0; k < 3; k++) blocks[k] = take(&r, MIB(40));
  for (int k = 0; k < 3; k++) drop(&r, blocks[k]);
  label.name = "two";
  assert_int_equal(hr_alloc_set_label(r.alloc, &label, NULL), HR_OK);
  assert_int_not_equal(take(&r, MIB(60)), 0); /* 120 MiB are more than 100: what is oldest goes first */
  s = end(&r);
  replay = replay_of(s, NULL);
  if (replay.trust != HR_REPLAY_EXACT) fail_msg("%s", replay.trust_reason);
  assert_int_equal(replay.recorded.reserved_peak_bytes, MIB(120));
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .alloc_conf = ""});
  assert_int_equal(replay.asked.reserved_peak_bytes, MIB(180));
  hr_snapshot_destroy(s);
}

/* Each failure walks over all that is free; a program that fails on and on is not followed to its end. */
static void test_failures_without_end_are_cut_off(void **state) {
  recorder r = begin("", 0, 0);
  hr_snapshot *s;
  hr_replay replay;
  (void)state;
  for (int k = 0; k < 500; k++) assert_int_not_equal(take(&r, MIB(2)), 0);
  s = end(&r);
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .capacity_bytes = MIB(20)});
  assert_true(replay.recorded.failed);
  assert_int_equal(replay.recorded.request_count, 10 + 200);
  assert_int_equal(replay.compared_count, 500 - 200);
  assert_int_equal(replay.same_address_count, 10);
  assert_int_equal(replay.trust, HR_REPLAY_ROUGH);
  hr_snapshot_destroy(s);
}

/* ---- pools, bad input, memory ---- */

static void test_private_pools_stay_apart(void **state) {
  recorder r = begin("", 0, 0);
  uint32_t pool;
  uint64_t a, b;
  hr_snapshot *s;
  hr_replay replay;
  (void)state;
  a = take(&r, MIB(30));
  drop(&r, a);
  assert_int_equal(hr_alloc_pool_create(r.alloc, 7, 1, &pool, NULL), HR_OK);
  assert_int_equal(hr_alloc_malloc_in(r.alloc, pool, MIB(30), 0, &b, NULL), HR_OK);
  s = end(&r);
  assert_int_equal(s->pool_count, 2);
  replay = replay_of(s, NULL);
  assert_int_equal(replay.trust, HR_REPLAY_EXACT);
  assert_int_equal(replay.recorded.reserved_peak_bytes, MIB(60)); /* the free block of the default pool was not used */
  hr_snapshot_destroy(s);
}

static uint64_t take_in(recorder *r, uint32_t pool, uint64_t bytes) {
  uint64_t address = 0;
  return hr_alloc_malloc_in(r->alloc, pool, bytes, 0, &address, NULL) == HR_OK ? address : 0;
}

/* A request that failed in a private pool fails there again, though a free block of the default pool would do. */
static void test_a_failure_in_a_private_pool_comes_out_again(void **state) {
  recorder r = begin("", MIB(60), 0);
  uint32_t pool;
  uint64_t whole;
  hr_snapshot *s;
  hr_inspection *inspection;
  hr_replay replay;
  (void)state;
  whole = take(&r, MIB(40));
  drop(&r, whole);
  assert_true(take(&r, MIB(12)) != 0); /* 28 MiB of its segment stay free, and nobody can return them */
  assert_int_equal(hr_alloc_pool_create(r.alloc, 7, 1, &pool, NULL), HR_OK);
  assert_true(take_in(&r, pool, MIB(2)) != 0);
  assert_true(take_in(&r, pool, MIB(26)) == 0);
  s = end(&r);
  replay = replay_of(s, NULL);
  assert_true(replay.recorded_failed && replay.recorded.failed);
  assert_int_equal(replay.recorded.failed_bytes, MIB(26));
  assert_int_equal(replay.trust, HR_REPLAY_EXACT);
  assert_int_equal(hr_inspect(s, NULL, &inspection, NULL), HR_OK);
  assert_true(inspection->fragmentation.in_private_pool);
  assert_int_equal(inspection->fragmentation.pool_free_bytes, MIB(18));
  assert_false(inspection->fragmentation.fits_compacted); /* the default pool's 28 MiB are not its own */
  hr_inspection_destroy(inspection);
  hr_snapshot_destroy(s);
}

/* Cached memory that only another setting returns for a private pool: a graph that is captured into it could not do that,
 * so it is no proof. */
static void test_returns_for_a_private_pool_prove_nothing(void **state) {
  static const char conf[] = "roundup_power2_divisions:4";
  recorder r = begin("", 0, 0);
  uint32_t pool;
  hr_snapshot *s;
  hr_replay replay;
  char sentence[256];
  (void)state;
  drop(&r, take(&r, MIB(50))); /* 56 MiB under the other setting */
  assert_int_equal(hr_alloc_pool_create(r.alloc, 7, 1, &pool, NULL), HR_OK);
  assert_true(take_in(&r, pool, MIB(48)) != 0);
  s = end(&r);
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .alloc_conf = conf, .capacity_bytes = MIB(100)});
  assert_false(replay.asked.failed);
  assert_int_equal(replay.asked.returned_for_pools, 1);
  assert_int_equal(replay.asked.reach, HR_REPLAY_UNPROVEN);
  assert_false(hr_replay_is_proven(&replay, &replay.asked));
  hr_replay_sentence(&replay, &replay.asked, sentence, sizeof sentence);
  assert_non_null(strstr(sentence, "private pool"));
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .alloc_conf = conf, .capacity_bytes = MIB(110)});
  assert_int_equal(replay.asked.returned_for_pools, 0);
  assert_true(hr_replay_is_proven(&replay, &replay.asked));
  hr_snapshot_destroy(s);
}

/* Nothing failed, and what the device has is not recorded: a setting that reserves more may be more than it has. */
static void test_more_than_was_recorded_is_no_proof(void **state) {
  static const char conf[] = "roundup_power2_divisions:4";
  recorder r = begin("", MIB(52), 0);
  hr_snapshot *s;
  hr_replay replay;
  char sentence[256];
  (void)state;
  assert_true(take(&r, MIB(50)) != 0);
  s = end(&r);
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .alloc_conf = conf});
  assert_int_equal(replay.asked.reserved_peak_bytes, MIB(56));
  assert_int_equal(replay.asked.reach, HR_REPLAY_UNPROVEN);
  hr_replay_sentence(&replay, &replay.asked, sentence, sizeof sentence);
  assert_non_null(strstr(sentence, "reserves more than was recorded"));
  assert_true(hr_replay_is_proven(&replay, &replay.recorded));
  replay = replay_of(s, &(hr_replay_options){.trace = UINT32_MAX, .alloc_conf = conf, .capacity_bytes = MIB(56)});
  assert_true(hr_replay_is_proven(&replay, &replay.asked));
  hr_snapshot_destroy(s);
}

static void test_what_cannot_be_replayed_is_refused(void **state) {
  hri_snapshot_builder b;
  hr_snapshot *s;
  hr_replay replay;
  hr_error error;
  hr_trace_event event = {.addr = 1, .size = 512, .flags = HR_EVENT_NO_ADDRESS};
  (void)state;
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  assert_int_equal(hr_replay_run(s, NULL, &replay, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "no events"));
  hr_snapshot_destroy(s);
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  assert_true(hri_snapshot_add_trace(&b, 0) && hri_snapshot_add_event(&b, &event));
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  assert_int_equal(hr_replay_run(s, NULL, &replay, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "profiler"));
  assert_int_equal(hr_replay_run(s, &(hr_replay_options){.trace = 1}, &replay, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_replay_run(s, &(hr_replay_options){.trace = 0, .alloc_conf = "max_split_size_mb:1"}, &replay,
                                 &error),
                   HR_ERROR_USAGE);
  hr_snapshot_destroy(s);
}

typedef struct made_event {
  hr_trace_action action;
  uint64_t addr, size, stream;
} made_event;

static hr_snapshot *made(const made_event *events, size_t count) {
  hri_snapshot_builder b;
  hr_snapshot *s;
  hr_error error;
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  assert_true(hri_snapshot_add_trace(&b, 0));
  for (size_t k = 0; k < count; k++)
    assert_true(hri_snapshot_add_event(&b, &(hr_trace_event){.addr = events[k].addr,
                                                             .size = events[k].size,
                                                             .stream = events[k].stream,
                                                             .action = (uint8_t)events[k].action}));
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  return s;
}

static void test_an_empty_trace_is_refused(void **state) {
  hr_snapshot *s = made(NULL, 0);
  hr_replay replay;
  hr_error error;
  (void)state;
  assert_int_equal(hr_replay_run(s, &(hr_replay_options){.trace = 0}, &replay, &error), HR_ERROR_INPUT);
  hr_snapshot_destroy(s);
}

/* Segments that lie on others, in nothing, at odd places and at the end of all addresses: no two live ones share an
 * address. */
static void test_absurd_addresses_are_not_handed_out(void **state) {
  static const made_event events[] = {
      {HR_TRACE_SEGMENT_ALLOC, 0, MIB(2), 0},
      {HR_TRACE_ALLOC, 0, 1000, 0},
      {HR_TRACE_SEGMENT_ALLOC, (uint64_t)1 << 62, MIB(2), 0},
      {HR_TRACE_ALLOC, (uint64_t)1 << 62, MIB(1), 0},
      {HR_TRACE_SEGMENT_ALLOC, (uint64_t)1 << 62, MIB(2), 0},
      {HR_TRACE_ALLOC, ((uint64_t)1 << 62) + MIB(1), MIB(1), 0},
      {HR_TRACE_SEGMENT_ALLOC, 0xfffffffffff00000u, MIB(20), 0},
      {HR_TRACE_ALLOC, 0xfffffffffff00000u, MIB(8), 0},
      {HR_TRACE_SEGMENT_ALLOC, MIB(100) + 8, MIB(20), 0},
      {HR_TRACE_ALLOC, MIB(100) + 8, MIB(19), 0},
      {HR_TRACE_SEGMENT_ALLOC, MIB(200), MIB(40), 0},
      {HR_TRACE_ALLOC, MIB(200), MIB(40), 0},
      {HR_TRACE_SEGMENT_ALLOC, MIB(220), MIB(40), 0},
      {HR_TRACE_ALLOC, MIB(220), MIB(40), 0},
      {HR_TRACE_OOM, UINT64_MAX, MIB(40), 0},
      {HR_TRACE_SEGMENT_FREE, MIB(220), UINT64_MAX, 0},
  };
  hr_snapshot *s = made(events, sizeof events / sizeof *events);
  hr_replay replay;
  hr_replay_result *results;
  uint32_t count;
  hr_error error;
  (void)state;
  for (int empty = 0; empty < 2; empty++) {
    hr_status status = hr_replay_search(s, &(hr_replay_options){.trace = UINT32_MAX, .empty_start = empty}, &replay,
                                        &results, &count, &error);
    assert_true(status == HR_OK || status == HR_ERROR_INPUT);
    if (status == HR_OK) assert_int_not_equal(replay.trust, HR_REPLAY_EXACT);
    if (empty) assert_int_equal(replay.same_address_count, 1); /* the plain one of 40 MiB */
    hr_free(results);
  }
  hr_snapshot_destroy(s);
}

static void test_more_streams_than_any_device_has_are_refused(void **state) {
  enum { STREAMS = 5000 };
  made_event *events = calloc(STREAMS, sizeof *events);
  hr_snapshot *s;
  hr_replay replay;
  hr_error error;
  (void)state;
  assert_non_null(events);
  for (uint64_t k = 0; k < STREAMS; k++) events[k] = (made_event){HR_TRACE_ALLOC, MIB(100 + 2 * k), 512, k};
  s = made(events, STREAMS);
  assert_int_equal(hr_replay_run(s, NULL, &replay, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "streams"));
  hr_snapshot_destroy(s);
  free(events);
}

/* The host's refusal is an error, never a failure of the replayed device. */
static void test_refused_memory_gives_an_error(void **state) {
  uint64_t seed = 3, live, refused = 0;
  recorder r = begin("", MIB(400), 0);
  hr_snapshot *s;
  hr_replay whole;
  bool done = false;
  (void)state;
  (void)work(&r, &seed, 400);
  s = end(&r);
  live = hri_mem_live_bytes();
  whole = replay_of(s, NULL);
  for (uint64_t n = 1; n < 1000000 && !done; n += n < 3000 ? 1 : 7) {
    hr_replay replay;
    hr_replay_result *results;
    uint32_t count;
    hr_error error;
    hr_status status;
    hri_mem_fail_after(n);
    status = hr_replay_search(s, NULL, &replay, &results, &count, &error);
    done = status == HR_OK;
    hri_mem_fail_after(0);
    if (done) assert_int_equal(count, 13);
    if (done) assert_memory_equal(&replay.recorded, &whole.recorded, sizeof whole.recorded);
    hr_free(results);
    assert_int_equal(hri_mem_live_bytes(), live);
    if (!done) assert_int_equal(status, HR_ERROR_MEMORY);
    refused += !done;
  }
  if (!done || refused <= 150) fail_msg("%d, %llu", (int)done, (unsigned long long)refused);
  hr_snapshot_destroy(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_recorded_trace_comes_out_to_the_address),
      cmocka_unit_test(test_the_order_of_a_version_is_found),
      cmocka_unit_test(test_what_if_equals_running_it_so),
      cmocka_unit_test(test_a_lost_beginning_is_said),
      cmocka_unit_test(test_a_failure_by_fragmentation_is_avoided_by_expandable_segments),
      cmocka_unit_test(test_too_big_stays_too_big),
      cmocka_unit_test(test_room_is_read_off_what_was_returned_for_it),
      cmocka_unit_test(test_a_cap_is_told_from_a_full_device),
      cmocka_unit_test(test_garbage_collection_shows_what_was_allowed),
      cmocka_unit_test(test_failures_without_end_are_cut_off),
      cmocka_unit_test(test_private_pools_stay_apart),
      cmocka_unit_test(test_a_failure_in_a_private_pool_comes_out_again),
      cmocka_unit_test(test_returns_for_a_private_pool_prove_nothing),
      cmocka_unit_test(test_more_than_was_recorded_is_no_proof),
      cmocka_unit_test(test_what_cannot_be_replayed_is_refused),
      cmocka_unit_test(test_an_empty_trace_is_refused),
      cmocka_unit_test(test_absurd_addresses_are_not_handed_out),
      cmocka_unit_test(test_more_streams_than_any_device_has_are_refused),
      cmocka_unit_test(test_refused_memory_gives_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
