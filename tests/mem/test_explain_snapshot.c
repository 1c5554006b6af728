/* The judge of snapshots on facts filled in by hand: each rule of src/explain/snapshot.c with the case that meets it
 * and one beside it that must not; figures, shares and proofs. Real snapshots: test_explain_cases.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/explain.h>

#include "snapshot/build.h"

#define GIB(x) ((uint64_t)((x) * 1073741824.0))
#define MIB(x) ((uint64_t)((x) * 1048576.0))

/* An inspection and what it points to. */
typedef struct scene {
  hr_snapshot *snapshot;
  hr_inspection i;
  hr_oom_event ooms[4];
  hr_growth growth[2];
  hr_step_sums steps[8];
  hr_live_group stack_group, category_group;
  uint32_t own_stack; /* of a line of the program's own, which calls no library */
  const char *categories[2];
  hr_replay replay;
  hr_replay_result results[4];
  hr_oom_evidence evidence;
} scene;

static void scene_open(scene *s, const char *settings) {
  hri_snapshot_builder b;
  hr_error error;
  uint32_t frames[3];
  memset(s, 0, sizeof *s);
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  b.snapshot->settings.text = hri_snapshot_add_string(&b, settings, strlen(settings));
  b.snapshot->settings.present = true;
  frames[0] = hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, "at::empty", 9),
                                     hri_snapshot_add_string(&b, "Empty.cpp", 9), 3);
  frames[1] = hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, "linear", 6),
                                     hri_snapshot_add_string(&b, "/x/torch/nn/functional.py", 25), 7);
  frames[2] = hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, "train_step", 10),
                                     hri_snapshot_add_string(&b, "/x/model.py", 11), 42);
  s->stack_group.stack = hri_snapshot_add_stack(&b, frames, 3);
  s->own_stack = hri_snapshot_add_stack(&b, frames + 2, 1);
  assert_int_equal(hri_snapshot_build_end(&b, &s->snapshot, &error), HR_OK);
  s->i.snapshot = s->snapshot;
  s->i.has_state = true;
  s->i.event_count = 10000;
  s->categories[0] = "unknown";
  s->categories[1] = "activation";
  s->i.categories = s->categories;
  s->i.category_count = 2;
  s->stack_group.bytes = s->category_group.bytes = GIB(3);
  s->stack_group.count = s->category_group.count = 24;
  s->category_group.category = 1;
  s->i.groups[HR_BY_STACK] = &s->stack_group;
  s->i.groups[HR_BY_CATEGORY] = &s->category_group;
  s->i.group_count[HR_BY_STACK] = s->i.group_count[HR_BY_CATEGORY] = 1;
  s->i.outlier_step = UINT64_MAX;
  s->i.steps_from = "";
  s->evidence.inspection = &s->i;
}

/* R reserved with its parts; F free on the device; the request that failed. */
static void scene_fail(scene *s, uint64_t live, uint64_t returnable, uint64_t pinned, uint64_t device_free,
                       uint64_t request) {
  s->i.at = (hr_memory_sums){.reserved_bytes = live + returnable + pinned,
                             .requested_bytes = live - live / 64,
                             .rounding_bytes = live / 64,
                             .free_returnable_bytes = returnable,
                             .free_pinned_bytes = pinned};
  s->i.peak_reserved_bytes = s->i.at.reserved_bytes;
  s->i.peak_live_bytes = live;
  s->ooms[0] = (hr_oom_event){.event = 9000,
                              .size = request,
                              .device_free_bytes = device_free,
                              .live_bytes = live,
                              .reserved_bytes = s->i.at.reserved_bytes};
  s->i.ooms = s->ooms;
  s->i.oom_count = 1;
  s->i.oom_total = 1;
  s->i.fragmentation = (hr_fragmentation){.request_bytes = request,
                                          .device_free_bytes = device_free,
                                          .device_free_known = true,
                                          .returnable_bytes = returnable};
  s->i.at_event = 9000;
}

/* Steps of 1000 events with the same peak; the failing one is the last. */
static void scene_steps(scene *s, uint32_t count, uint64_t peak) {
  for (uint32_t k = 0; k < count; k++) s->steps[k] = (hr_step_sums){9001 - 1000ull * (count - k), 1000, peak, peak / 2};
  s->i.steps = s->steps;
  s->i.step_count = count;
  s->i.steps_from = "annotations";
  s->i.usual_peak_bytes = peak;
}

static void scene_leak(scene *s, uint64_t bytes, uint32_t grown, uint32_t seen) {
  s->growth[0] = (hr_growth){.kind = HR_GROWTH_LEAK,
                             .stack = s->stack_group.stack,
                             .bytes = bytes,
                             .count = 9,
                             .bytes_per_step = (double)bytes / seen,
                             .steps_grown = grown,
                             .steps_seen = seen};
  s->i.growth = s->growth;
  s->i.growth_count = 1;
}

/* Passes that keep something, in seven of eight, which would have been enough. */
static void scene_of_passes(scene *s, hr_growth_kind kind) {
  scene_open(s, "");
  scene_fail(s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
  scene_leak(s, GIB(3), 7, 8);
  s->growth[0].kind = kind;
}

static void scene_replay(scene *s, bool recorded_fails, bool other_fails) {
  s->replay.recorded =
      (hr_replay_result){.request_count = 5000, .reserved_peak_bytes = GIB(8), .failed = recorded_fails};
  s->replay.capacity_bytes = GIB(8);
  s->replay.trust = HR_REPLAY_EXACT;
  s->replay.began_empty = true;
  s->replay.recorded_failed = s->i.oom_count > 0;
  s->results[0] = (hr_replay_result){.alloc_conf = "expandable_segments:True",
                                     .request_count = 5000,
                                     .reserved_peak_bytes = GIB(6),
                                     .failed = other_fails,
                                     .reach = other_fails ? HR_REPLAY_FAILS : HR_REPLAY_RECORDING};
  s->evidence.replay = &s->replay;
  s->evidence.results = s->results;
  s->evidence.result_count = 1;
}

static hr_explanation *explain(scene *s) {
  hr_explanation *e = NULL;
  hr_error error = {0};
  uint64_t sum = 0;
  const hr_oom_failure *f;
  assert_int_equal(hr_explain_snapshot(&s->evidence, NULL, &e, &error), HR_OK);
  assert_int_equal(e->failure_count, 1);
  f = &e->failures[0];
  for (uint32_t k = 0; k < f->share_count; k++) sum += f->shares[k].bytes;
  assert_int_equal(sum, f->share_total_bytes);
  assert_true(f->verdict[0] && f->arithmetic_count && f->advice_count);
  assert_int_equal(f->cause == HR_OOM_UNKNOWN, f->candidates != 0);
  assert_int_equal(f->cause == HR_OOM_UNKNOWN, f->certainty == HR_OOM_UNDECIDABLE);
  return e;
}

static void scene_close(scene *s) { hr_snapshot_destroy(s->snapshot); }

static void expect(scene *s, hr_oom_cause cause, hr_oom_certainty certainty) {
  hr_explanation *e = explain(s);
  if (e->failures[0].cause != cause || e->failures[0].certainty != certainty)
    print_message("%s %s: %s\n", hr_oom_cause_name(e->failures[0].cause),
                  hr_oom_certainty_name(e->failures[0].certainty), e->failures[0].verdict);
  assert_int_equal(e->failures[0].cause, cause);
  assert_int_equal(e->failures[0].certainty, certainty);
  hr_explanation_destroy(e);
}

static bool says(const hr_oom_failure *f, const char *words) {
  for (uint32_t k = 0; k < f->arithmetic_count; k++)
    if (strstr(f->arithmetic[k], words)) return true;
  return strstr(f->verdict, words) != NULL;
}

static void test_too_big(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.evidence.device_total_bytes = GIB(7.5);
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY); /* growth is not ruled out */
  scene_steps(&s, 4, GIB(7));                /* a seventh above the other steps: it may be this batch */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_steps(&s, 4, GIB(7.4));
  s.ooms[0].stage = HR_STAGE_EVALUATION; /* no step to compare with */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.ooms[0].stage = HR_STAGE_FORWARD;
  s.steps[2].end_live_bytes = GIB(5); /* more stays behind, if of no one stack */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_steps(&s, 4, GIB(7.4));
  s.evidence.device_total_bytes = GIB(8.1); /* what somebody else holds would have been enough */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.evidence.device_total_bytes = GIB(7.3); /* less than the snapshot accounts for: the total is wrong */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.evidence.device_total_bytes = GIB(7.5);
  scene_replay(&s, true, false); /* a setting carries it */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.evidence.replay = NULL;
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_TOO_BIG);
  assert_int_equal(e->failures[0].certainty, HR_OOM_CERTAIN);
  assert_int_equal(e->failures[0].share_total_bytes, GIB(7.5));
  assert_true(says(&e->failures[0], "short by 624.00 MiB"));
  assert_true(says(&e->failures[0], "model.py:42 train_step"));
  assert_true(says(&e->failures[0], "category activation"));
  hr_explanation_destroy(e);
  s.i.odd_count = 1000;
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_close(&s);
}

static bool advises(const hr_oom_failure *f, const char *part) {
  for (uint32_t k = 0; k < f->advice_count; k++)
    if (strstr(f->advice[k].text, part)) return true;
  return false;
}

/* A line that keeps most of what is live, tensor by tensor, gets advice about that; a recording without a beginning, about the
 * recording. Not where a library's line made it, nor where steps are found. */
static void test_too_big_by_one_line(void **state) {
  (void)state;
  for (int what = 0; what < 6; what++) {
    scene s;
    hr_explanation *e;
    scene_open(&s, "");
    scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
    s.stack_group.bytes = what == 1 ? GIB(3) : GIB(6);
    s.stack_group.count = what == 2 ? 20 : 200;
    s.stack_group.stage = what == 3 ? HR_STAGE_FORWARD : HR_STAGE_UNKNOWN;
    if (what != 4) s.stack_group.stack = s.own_stack;
    if (what == 5) scene_steps(&s, 2, GIB(7));
    s.i.began_empty = what != 0;
    e = explain(&s);
    assert_int_equal(e->failures[0].cause, HR_OOM_TOO_BIG);
    assert_int_equal(advises(&e->failures[0], "kept by one line"), what == 0);
    assert_int_equal(advises(&e->failures[0], "the recording has no beginning"), what == 0);
    hr_explanation_destroy(e);
    scene_close(&s);
  }
}

static void test_absurd(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(1), 0, 0, GIB(7), UINT64_MAX - 511);
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_CERTAIN);
  scene_fail(&s, GIB(1), 0, 0, GIB(7), GIB(9));
  scene_steps(&s, 8, GIB(1)); /* no batch is that large, and what else the device has is not known */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.evidence.device_total_bytes = GIB(8);
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_CERTAIN);
  s.evidence.device_total_bytes = GIB(80);
  expect(&s, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE); /* others hold it */
  scene_close(&s);
}

/* More than there is now, less than the allocator held before: somebody else took it. More than that too: absurd. */
static void test_absurd_or_shrunk(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(1), 0, 0, GIB(2), GIB(4));
  s.i.peak_reserved_bytes = GIB(21);
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_UNKNOWN);
  assert_true(says(&e->failures[0], "18.00 GiB went to somebody else"));
  hr_explanation_destroy(e);
  s.ooms[0].size = s.i.fragmentation.request_bytes = GIB(22);
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_TOO_BIG);
  assert_int_equal(e->failures[0].certainty, HR_OOM_LIKELY);
  assert_true(says(&e->failures[0], "what this process has reserved and what is free together, 3.00 GiB"));
  assert_true(says(&e->failures[0], "nor were more than 21.00 GiB ever reserved"));
  hr_explanation_destroy(e);
  scene_close(&s);
}

static void test_cap(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(2), 0, MIB(10), GIB(5), GIB(1));
  expect(&s, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  s.ooms[1] = s.ooms[0];
  s.i.oom_count = 2;
  expect(&s, HR_OOM_CAP, HR_OOM_LIKELY);
  scene_close(&s);
  scene_open(&s, "max_split_size_mb:128,per_process_memory_fraction:0.3");
  scene_fail(&s, GIB(2), 0, MIB(10), GIB(5), GIB(1));
  expect(&s, HR_OOM_CAP, HR_OOM_LIKELY);
  s.evidence.device_total_bytes = GIB(8);
  expect(&s, HR_OOM_CAP, HR_OOM_CERTAIN);
  s.evidence.device_total_bytes = GIB(16); /* 2 + 1 GiB stay below 0.3 of it: that cap refused nothing */
  expect(&s, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  scene_close(&s);
}

/* Expandable segments grow by chunks of 20 MiB: more free memory than the request is no cap then. */
static void test_chunks(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "expandable_segments:True");
  s.snapshot->settings.expandable_segments = true;
  scene_fail(&s, MIB(295), 0, MIB(7), MIB(28), MIB(24));
  expect(&s, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  s.i.fragmentation.segment_bytes = MIB(40);
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.ooms[1] = s.ooms[0];
  s.i.oom_count = 2; /* nor are several of them */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.i.fragmentation.segment_bytes = MIB(20); /* the last free block has the rest: then it should have gone well */
  expect(&s, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  scene_close(&s);
}

static void test_cached(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(5), GIB(2), MIB(10), MIB(100), GIB(1));
  expect(&s, HR_OOM_CACHED_NOT_RETURNED, HR_OOM_CERTAIN);
  s.i.at.private_pool_bytes = GIB(3); /* the free segments are the pools' */
  s.i.at.private_pool_free_bytes = GIB(2);
  s.i.fragmentation.returnable_bytes = 0;
  expect(&s, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY);
  scene_close(&s);
}

/* What a private pool has free serves its own requests and nobody else's. */
static void test_request_of_a_private_pool(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(5), 0, GIB(2), MIB(300), GIB(0.9));
  s.i.at.private_pool_bytes = GIB(4);
  s.i.at.private_pool_free_bytes = GIB(1.9);
  expect(&s, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY);
  s.i.fragmentation.in_private_pool = true;
  s.i.fragmentation.pool_free_bytes = GIB(1.9);
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  s.i.fragmentation.pool_free_bytes = MIB(100);
  expect(&s, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY);
  e = explain(&s);
  assert_non_null(strstr(e->failures[0].verdict, "lie free in other pools, which a request of a private pool"));
  hr_explanation_destroy(e);
  scene_close(&s);
}

/* Pieces are not the cause where the rest of the step, as a whole step before shows it, needs more than there is, or nearly all. */
static void test_need_of_the_step(void **state) {
  static const double needs[] = {6.5, 7, 9};
  (void)state;
  for (int more = 0; more < 3; more++) {
    scene s;
    scene_open(&s, "");
    scene_fail(&s, GIB(5), 0, GIB(2), MIB(300), GIB(0.5));
    scene_steps(&s, 6, GIB(5.2));
    scene_replay(&s, true, true);
    s.replay.step_need_bytes = GIB(needs[more]);
    s.replay.step_need_step = 5;
    if (more) expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
    else expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
    scene_close(&s);
  }
}

/* Bytes that nobody asked for are told where they are a tenth of what is reserved. */
static void test_rounding(void **state) {
  static const char line[] = "are rounding of blocks, which nobody asked for";
  (void)state;
  for (int by_setting = 0; by_setting < 2; by_setting++) {
    scene s;
    hr_explanation *e;
    scene_open(&s, "");
    if (by_setting) s.snapshot->settings.roundup_power2_divisions[5] = 2;
    scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
    e = explain(&s);
    assert_false(says(&e->failures[0], line));
    hr_explanation_destroy(e);
    s.i.at.rounding_bytes = GIB(1);
    s.i.at.requested_bytes = GIB(6);
    e = explain(&s);
    assert_true(says(&e->failures[0], line));
    assert_int_equal(says(&e->failures[0], "roundup_power2_divisions is set"), by_setting);
    hr_explanation_destroy(e);
    scene_close(&s);
  }
}

/* What five steps kept may be a window that is not full yet: beside far more that would stay free it is none of the cause. */
static void test_a_window_that_fills_up(void **state) {
  (void)state;
  for (uint32_t steps = 5; steps <= 9; steps += 4) {
    scene s;
    hr_explanation *e;
    scene_open(&s, "");
    scene_fail(&s, GIB(2), 0, GIB(3), GIB(2), GIB(4));
    scene_leak(&s, MIB(300), steps, steps);
    e = explain(&s);
    assert_int_equal(e->failures[0].cause == HR_OOM_GROWTH, steps >= 8);
    hr_explanation_destroy(e);
    scene_close(&s);
  }
}

static void test_shrunk(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(5), 0, MIB(10), MIB(100), GIB(1));
  s.i.peak_reserved_bytes = GIB(7);
  e = explain(&s);
  assert_int_equal(e->failures[0].candidates, 1u << HR_OOM_OTHER_PROCESS | 1u << HR_OOM_OUTSIDE_ALLOCATOR);
  hr_explanation_destroy(e);
  scene_close(&s);
}

static void test_missing(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(5), 0, MIB(10), MIB(100), GIB(1));
  s.evidence.device_total_bytes = GIB(8);
  expect(&s, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  s.evidence.device_total_bytes = GIB(5.5); /* nothing large is missing */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_close(&s);
}

static void test_fragmented(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(5), 0, GIB(3), MIB(100), GIB(1));
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_replay(&s, true, true);
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_replay(&s, false, false); /* the replay does not repeat the failure */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_replay(&s, true, false);
  expect(&s, HR_OOM_FRAGMENTED,
         HR_OOM_LIKELY); /* long, no stacks, and no step comes back: it may need more each time */
  s.i.event_count = 300;
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_FRAGMENTED);
  assert_int_equal(e->failures[0].certainty, HR_OOM_CERTAIN);
  assert_int_equal(e->failures[0].advice[0].basis, HR_OOM_PROVEN);
  assert_int_equal(e->failures[0].advice[0].need_bytes, GIB(6));
  assert_non_null(strstr(e->failures[0].advice[0].text, "expandable_segments:True"));
  assert_non_null(strstr(e->failures[0].advice[0].proof, "6.00 GiB"));
  assert_int_equal(e->failures[0].advice[1].basis, HR_OOM_ADVICE);
  hr_explanation_destroy(e);
  s.replay.began_empty = false; /* other settings would have led to another state */
  e = explain(&s);
  assert_int_equal(e->failures[0].certainty, HR_OOM_LIKELY);
  assert_int_equal(e->failures[0].advice[0].basis, HR_OOM_ADVICE);
  assert_non_null(strstr(e->failures[0].advice[0].text, "try PYTORCH_ALLOC_CONF=expandable_segments:True"));
  assert_true(says(&e->failures[0], "no proof"));
  hr_explanation_destroy(e);
  s.replay.began_empty = true;
  scene_fail(&s, GIB(6), 0, GIB(2), MIB(500),
             GIB(1)); /* 1.5 of 8.5 GiB would stay free: a setting helps, but for how long? */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_fail(&s, GIB(4.5), 0, GIB(2), GIB(1.5),
             GIB(1.75)); /* as much would stay free, but not for another such layer */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_fail(&s, GIB(4.5), 0, GIB(1.75), GIB(1.5), GIB(1.75));
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_fail(&s, GIB(6), 0, GIB(2), MIB(500), GIB(1));
  scene_steps(&s, 8, GIB(7));
  s.i.peak_live_bytes = GIB(7); /* as much was live before, step by step */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_CERTAIN);
  s.i.step_count = 0; /* ... in steps that nobody knows: it may have been growing */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_fail(&s, GIB(7), 0, GIB(1.5), MIB(300),
             GIB(1)); /* 0.8 of 8.8 GiB: without steps, what was live is this one's */
  s.i.peak_live_bytes = GIB(8);
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.i.peak_live_bytes = GIB(9); /* a tenth of all more than now */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_fail(&s, GIB(6), 0, GIB(2), MIB(500), GIB(1.25)); /* 1.2 of 8.5 GiB would stay free */
  s.results[0].reach = HR_REPLAY_REQUEST;
  s.i.peak_event = 8990; /* in this step */
  scene_steps(&s, 8, GIB(5.5));
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  scene_steps(&s, 8, GIB(4)); /* ... in a step that has far more by now than any before: what follows nobody has seen */
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  s.results[0].reach = HR_REPLAY_STEP; /* but where a setting carries the rest of it */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  s.results[0].reach = HR_REPLAY_RECORDING;
  s.i.peak_event = 0;
  s.i.step_count = 0;
  scene_fail(&s, GIB(7), 0, GIB(1), MIB(300), GIB(1)); /* 0.3 of 8.3 GiB: full */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_steps(&s, 8, GIB(7)); /* hardly anything left, and all the same the rest of the step is met under a setting */
  s.results[0].reach = HR_REPLAY_STEP;
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_FRAGMENTED);
  assert_int_equal(e->failures[0].certainty, HR_OOM_LIKELY);
  assert_true(says(&e->failures[0], "this request and the rest of its step are met"));
  hr_explanation_destroy(e);
  s.results[0].reach = HR_REPLAY_REQUEST; /* this request alone: the next one fails */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_steps(&s, 8, GIB(4)); /* as much was live before, but in this very step, which needs twice as much as others */
  s.steps[7].peak_live_bytes = s.i.peak_live_bytes = GIB(8) + MIB(10);
  s.i.peak_event = 8990;
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  s.steps[7].peak_live_bytes = s.i.peak_live_bytes = GIB(9); /* a tenth of all more: this is far from its peak */
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  s.i.peak_event = 9500; /* after the failure */
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  s.i.peak_event = 0;
  s.i.step_count = 0;
  s.results[0].reach = HR_REPLAY_RECORDING;
  scene_fail(&s, GIB(6), 0, GIB(2), MIB(500),
             GIB(1)); /* 1.5 GiB would be left, in a step that needs more than others */
  scene_steps(&s, 8, GIB(4));
  s.results[0].reach = HR_REPLAY_REQUEST;
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  s.results[0].rest_failed_bytes =
      MIB(288); /* and the rest of it fails under the setting too: not for want of one piece */
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  scene_steps(&s, 8, GIB(7));
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_FRAGMENTED);
  assert_int_equal(e->failures[0].certainty, HR_OOM_LIKELY);
  assert_true(says(&e->failures[0], "the rest of its step fails all the same"));
  hr_explanation_destroy(e);
  s.results[0].rest_failed_bytes = 0;
  s.results[0].reach = HR_REPLAY_RECORDING;
  s.i.step_count = 0;
  scene_fail(&s, GIB(5), 0, GIB(3), MIB(100), GIB(1));
  s.replay.trust = HR_REPLAY_ROUGH;
  expect(&s, HR_OOM_FRAGMENTED, HR_OOM_LIKELY);
  s.evidence.replay = NULL;
  scene_fail(&s, GIB(7), 0, MIB(300), MIB(100), MIB(350)); /* cached pieces below 5 % are normal */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_close(&s);
}

/* A setting is called what replay knows of it: proven, the rest of a step, or this request alone. */
static void test_what_replay_knows(void **state) {
  static const struct {
    hr_replay_reach reach;
    uint32_t step;
    uint64_t rest_failed, late_frees;
    hr_replay_trust trust;
    hr_oom_basis basis;
    const char *says;
  } cases[] = {
      {HR_REPLAY_RECORDING, 6, 0, 0, HR_REPLAY_EXACT, HR_OOM_PROVEN, "proven by replay: all 5000 recorded requests"},
      {HR_REPLAY_RECORDING, 6, 0, 0, HR_REPLAY_CLOSE, HR_OOM_REPLAYED, "close, not exact"},
      {HR_REPLAY_RECORDING, 6, 0, 7, HR_REPLAY_EXACT, HR_OOM_REPLAYED, "7 frees waited for other streams"},
      {HR_REPLAY_STEP, 6, 0, 0, HR_REPLAY_EXACT, HR_OOM_REPLAYED, "replayed, rest of the step as in step 6: likely"},
      {HR_REPLAY_REQUEST, 0, 0, 0, HR_REPLAY_EXACT, HR_OOM_REQUEST, "carries this request only: no whole step"},
      {HR_REPLAY_REQUEST, 6, 0, 0, HR_REPLAY_EXACT, HR_OOM_REQUEST, "but this step asks for more than that one"},
      {HR_REPLAY_REQUEST, 6, MIB(96), 0, HR_REPLAY_EXACT, HR_OOM_REQUEST,
       "as in step 6, fails at a request of 96.00 MiB"},
  };
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    scene s;
    hr_explanation *e;
    const hr_oom_advice *a;
    char sentence[256];
    scene_open(&s, "");
    scene_fail(&s, GIB(5), 0, GIB(3), MIB(100), GIB(1));
    scene_replay(&s, true, false);
    s.replay.trust = cases[c].trust;
    s.replay.late_free_count = cases[c].late_frees;
    s.results[0].reach = cases[c].reach;
    s.results[0].reach_step = cases[c].step;
    s.results[0].rest_failed_bytes = cases[c].rest_failed;
    e = explain(&s);
    a = &e->failures[0].advice[0];
    assert_int_equal(a->basis, cases[c].basis);
    hr_replay_sentence(&s.replay, &s.results[0], sentence, sizeof sentence);
    assert_non_null(strstr(sentence, cases[c].says));
    assert_memory_equal(a->proof, sentence, strlen(sentence) < 200 ? strlen(sentence) : 200);
    assert_int_equal(hr_replay_is_proven(&s.replay, &s.results[0]), cases[c].basis == HR_OOM_PROVEN);
    hr_explanation_destroy(e);
    scene_close(&s);
  }
}

/* With failures before the last one replay says what it cannot know, and not that it differs from the recording. */
static void test_failures_before(void **state) {
  scene s;
  hr_explanation *e;
  char sentence[256];
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(5), 0, GIB(3), MIB(100), GIB(1));
  scene_replay(&s, true, false);
  s.replay.recorded.failed_event = 400;
  s.replay.recorded_failed_event = 9000;
  s.replay.recorded_failed_count = 5;
  s.results[0].reach = HR_REPLAY_UNPROVEN;
  e = explain(&s);
  assert_int_equal(e->failures[0].advice[0].basis, HR_OOM_ADVICE);
  assert_true(says(&e->failures[0], "5 failures are recorded, and replay repeats the first"));
  assert_false(says(&e->failures[0], "does not repeat"));
  hr_explanation_destroy(e);
  hr_replay_sentence(&s.replay, &s.results[0], sentence, sizeof sentence);
  assert_non_null(strstr(sentence, "without its earlier failures is not recorded"));
  s.replay.recorded.failed_event = 9100; /* behind the last recorded one: it does differ */
  e = explain(&s);
  assert_true(says(&e->failures[0], "does not repeat"));
  hr_explanation_destroy(e);
  scene_close(&s);
}

/* What comes to the same is listed once, in the order of the search; what fails later in the step only when nothing
 * goes further. */
static void test_listed_once(void **state) {
  scene s;
  hr_explanation *e;
  unsigned listed = 0;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(5), 0, GIB(3), MIB(100), GIB(1));
  scene_replay(&s, true, false);
  s.results[0].reach = HR_REPLAY_STEP;
  s.results[1] = s.results[2] = s.results[3] = s.results[0];
  (void)snprintf(s.results[1].alloc_conf, sizeof s.results[1].alloc_conf, "max_split_size_mb:64");
  (void)snprintf(s.results[2].alloc_conf, sizeof s.results[2].alloc_conf, "max_split_size_mb:128");
  s.results[2].reserved_peak_bytes = GIB(7);
  (void)snprintf(s.results[3].alloc_conf, sizeof s.results[3].alloc_conf, "max_split_size_mb:32");
  s.results[3].reserved_peak_bytes = GIB(5);
  s.results[3].reach = HR_REPLAY_REQUEST;
  s.results[3].rest_failed_bytes = MIB(96);
  s.evidence.result_count = 4;
  e = explain(&s);
  for (uint32_t k = 0; k < e->failures[0].advice_count; k++) listed += e->failures[0].advice[k].basis != HR_OOM_ADVICE;
  assert_int_equal(listed, 2);
  assert_non_null(strstr(e->failures[0].advice[0].text, "expandable_segments:True"));
  assert_non_null(strstr(e->failures[0].advice[1].text, "max_split_size_mb:128"));
  hr_explanation_destroy(e);
  scene_close(&s);
}

static void test_growth(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
  scene_steps(&s, 8, GIB(7));
  scene_leak(&s, GIB(3), 6, 8);
  expect(&s, HR_OOM_GROWTH, HR_OOM_CERTAIN);
  s.evidence.device_total_bytes = GIB(12); /* others hold a third: without them it would not have failed yet either */
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  s.evidence.device_total_bytes = 0;
  s.i.steps_from = "repetition"; /* it may be a model that loads, layer by layer */
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  s.i.steps_from = "annotations";
  scene_leak(&s, GIB(1), 6, 8); /* enough, but not most of what is live */
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  scene_leak(&s, GIB(3), 2, 8);
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  scene_leak(&s, GIB(3), 6, 8);
  s.growth[0].gives_back = true; /* a window that may be full: of itself and beside a leak */
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  scene_leak(&s, GIB(1), 6, 8);
  s.growth[1] = s.growth[0];
  s.growth[1].gives_back = true;
  s.i.growth_count = 2;
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  scene_leak(&s, MIB(100), 6, 8); /* too little to matter */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_leak(&s, GIB(3), 6, 8);
  s.growth[0].kind = HR_GROWTH_SETTLED;
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_close(&s);
}

/* Growth within a step says what grows, and its own advice comes first. */
static void test_growth_of_passes(void **state) {
  static const struct {
    hr_growth_kind kind;
    hr_oom_certainty certainty;
    const char *verdict, *line, *advice[2];
  } cases[] = {
      {HR_GROWTH_GRAPH,
       HR_OOM_CERTAIN,
       "every pass of the model keeps its graph: 3.00 GiB of the 7.00 GiB",
       "with every pass of the model, in 8 of them",
       {"torch.no_grad()", "(loss / n).backward()"}},
      {HR_GROWTH_LARGER,
       HR_OOM_LIKELY,
       "a tensor is made anew again and again, each time larger: 3.00 GiB of the 7.00 GiB live are what it grew by",
       "made anew 7 times, larger by 384.00 MiB each time, 3.00 GiB in all",
       {"write into it", "join once at the end"}},
      {HR_GROWTH_OUTPUTS,
       HR_OOM_CERTAIN,
       "leaves results behind",
       "with every pass of the model",
       {".item()", "logits"}},
      {HR_GROWTH_CACHE,
       HR_OOM_LIKELY,
       "a cache grows with every token",
       "384.00 MiB more with every token",
       {"max_new_tokens", "static"}},
  };
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    scene s;
    hr_explanation *e;
    const hr_oom_failure *f;
    scene_of_passes(&s, cases[c].kind);
    expect(&s, HR_OOM_GROWTH, cases[c].certainty);
    e = explain(&s);
    f = &e->failures[0];
    assert_non_null(strstr(f->verdict, cases[c].verdict));
    assert_true(says(f, cases[c].line));
    for (int k = 0; k < 2; k++) assert_non_null(strstr(f->advice[k].text, cases[c].advice[k]));
    for (uint32_t k = 0; k < f->advice_count; k++) assert_null(strstr(f->advice[k].text, "zero_grad"));
    hr_explanation_destroy(e);
    scene_close(&s);
  }
  { /* without a backward in the recording it may be training that sums its losses */
    scene s;
    hr_explanation *e;
    scene_of_passes(&s, HR_GROWTH_GRAPH);
    s.growth[0].may_train = true;
    expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
    e = explain(&s);
    assert_true(says(&e->failures[0], "no backward is recorded at all"));
    hr_explanation_destroy(e);
    scene_close(&s);
  }
  { /* what went again in the steps before is the graph of a long step: nothing certain, and no_grad() is no advice */
    scene s;
    hr_explanation *e;
    scene_of_passes(&s, HR_GROWTH_GRAPH);
    s.growth[0].freed_in_steps = true;
    expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
    e = explain(&s);
    assert_true(says(&e->failures[0], "what such passes keep was freed again"));
    for (uint32_t k = 0; k < e->failures[0].advice_count; k++)
      assert_null(strstr(e->failures[0].advice[k].text, "no_grad"));
    hr_explanation_destroy(e);
    scene_close(&s);
  }
  { /* backwards ran and freed nothing: no losses that are summed */
    scene s;
    hr_explanation *e;
    scene_of_passes(&s, HR_GROWTH_GRAPH);
    s.growth[0].among_backwards = true;
    s.growth[0].from_before = 3;
    expect(&s, HR_OOM_GROWTH, HR_OOM_CERTAIN);
    e = explain(&s);
    assert_true(says(&e->failures[0], "3 tensors of it are from before the recording began"));
    assert_true(says(&e->failures[0], "backwards ran among these passes"));
    uint32_t retained = 0;
    for (uint32_t k = 0; k < e->failures[0].advice_count; k++) {
      retained += strstr(e->failures[0].advice[k].text, "retain_graph=True") != NULL;
      assert_null(strstr(e->failures[0].advice[k].text, "for the sum of n losses"));
    }
    assert_int_equal(retained, 1); /* beside no_grad(): the backwards may be another model's */
    hr_explanation_destroy(e);
    scene_close(&s);
  }
  for (int failures = 1; failures < 9; failures += 7) { /* a program that tries again within its except block */
    scene s;
    hr_explanation *e;
    scene_of_passes(&s, HR_GROWTH_GRAPH);
    s.i.oom_total = (uint64_t)failures;
    e = explain(&s);
    assert_int_equal(strstr(e->failures[0].advice[0].text, "except block") != NULL, failures > 1);
    hr_explanation_destroy(e);
    scene_close(&s);
  }
}

/* Passes whose tensors went again in the steps before: the step has more of them by far, at the places that the others have. */
static void test_a_longer_step(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
  scene_steps(&s, 8, GIB(5));
  scene_leak(&s, GIB(3), 6, 8);
  s.growth[0].kind = HR_GROWTH_GRAPH;
  s.growth[0].freed_in_steps = true;
  s.i.asked_known = true;
  s.i.asked_more_bytes = GIB(2);
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  s.i.asked_more_bytes = MIB(100); /* another call of the model keeps what it gives */
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  s.i.asked_known = false;
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  s.i.asked_known = true;
  s.i.asked_more_bytes = GIB(2);
  s.growth[0].freed_in_steps = false; /* it never went */
  expect(&s, HR_OOM_GROWTH, HR_OOM_CERTAIN);
  s.growth[0].from_before = 4; /* ... of a ring, which a step that is too large alone says nothing of */
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  scene_steps(&s, 8, GIB(7.5));
  s.growth[0].from_before = 2; /* seven of nine were seen to be left, and are a quarter of what is live */
  expect(&s, HR_OOM_GROWTH, HR_OOM_CERTAIN);
  s.growth[0].from_before = 6;
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  scene_steps(&s, 8, GIB(5));
  s.growth[0].from_before = 0;
  s.growth[0].freed_in_steps = true;
  s.growth[0].more_batches = true; /* a loss of each that is summed */
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  scene_steps(&s, 8, GIB(7)); /* no larger than the others */
  expect(&s, HR_OOM_GROWTH, HR_OOM_LIKELY);
  scene_close(&s);
}

static void test_outlier(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
  scene_steps(&s, 8, GIB(5));
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  e = explain(&s);
  assert_true(says(&e->failures[0], "step 8 needs 60 % more"));
  hr_explanation_destroy(e);
  for (int k = 0; k < 8; k++) s.steps[k].first_event -= 1000; /* it fails early in the step behind the last whole one */
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_OUTLIER_BATCH);
  assert_true(says(&e->failures[0], "step 9 needs 60 % more"));
  hr_explanation_destroy(e);
  for (int k = 0; k < 8; k++) s.steps[k].first_event += 1000;
  scene_steps(&s, 3, GIB(5)); /* the fourth, of which nobody has seen the end: three before are enough */
  for (int k = 0; k < 3; k++) s.steps[k].first_event -= 1000;
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_OUTLIER_BATCH);
  assert_true(says(&e->failures[0], "step 4 needs 60 % more"));
  hr_explanation_destroy(e);
  scene_steps(&s, 8, GIB(5));
  s.ooms[1] = s.ooms[0]; /* the step before asked for as much at the same place and was refused: it is not this batch */
  s.ooms[0].event = 7500;
  s.i.oom_count = s.i.oom_total = 2;
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.ooms[0].size = GIB(0.5); /* that was another size */
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  s.ooms[0].size = GIB(1);
  s.ooms[0].stack = s.stack_group.stack; /* ... and another place */
  expect(&s, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY);
  s.ooms[0] = s.ooms[1];
  s.i.oom_count = s.i.oom_total = 1;
  s.ooms[0].stage = HR_STAGE_EVALUATION;
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.ooms[0].stage = HR_STAGE_BETWEEN;
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.ooms[0].stage = HR_STAGE_BACKWARD;
  s.ooms[0].stack = s.stack_group.stack;
  e = explain(&s);
  assert_true(says(&e->failures[0], "asked for by linear < model.py:42 train_step"));
  hr_explanation_destroy(e);
  s.i.usual_peak_bytes = GIB(7);
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.i.usual_peak_bytes = GIB(5);
  s.steps[6].peak_live_bytes = GIB(7.8); /* the step before was nearly as large: it grows */
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.steps[4].peak_live_bytes = GIB(5.2); /* batches that get larger and larger: no single one */
  s.steps[5].peak_live_bytes = GIB(6);
  s.steps[6].peak_live_bytes = GIB(7);
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  s.steps[4].peak_live_bytes = s.steps[5].peak_live_bytes = GIB(5);
  s.steps[6].peak_live_bytes = GIB(5);
  s.i.step_count = 2;
  expect(&s, HR_OOM_TOO_BIG, HR_OOM_LIKELY);
  scene_close(&s);
}

/* Advice is for the place that failed: an optimizer's step has nothing of the batch, an evaluation no states. */
static void test_advice_by_place(void **state) {
  static const struct {
    hr_stage stage;
    const char *has, *lacks;
  } cases[] = {{HR_STAGE_OPTIMIZER, "fused=True", "micro-batch"},
               {HR_STAGE_OPTIMIZER, "8-bit optimizer states", "activation checkpointing"},
               {HR_STAGE_EVALUATION, "per_device_eval_batch_size", "8-bit optimizer states"},
               {HR_STAGE_GENERATION, "fewer rows", "activation checkpointing"},
               {HR_STAGE_BETWEEN, "copies to save", "fused=True"},
               {HR_STAGE_BETWEEN, "8-bit optimizer states", "micro-batch"},
               {HR_STAGE_LOSS, "in chunks", "fused=True"},
               {HR_STAGE_LOSS, "micro-batch", "per_device_eval"},
               {HR_STAGE_BACKWARD, "activation checkpointing", "in chunks"}};
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    scene s;
    hr_explanation *e;
    bool has = false;
    scene_open(&s, "");
    scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
    s.ooms[0].stage = cases[c].stage;
    e = explain(&s);
    assert_int_equal(e->failures[0].cause, HR_OOM_TOO_BIG);
    for (uint32_t k = 0; k < e->failures[0].advice_count; k++) {
      has |= strstr(e->failures[0].advice[k].text, cases[c].has) != NULL;
      assert_null(strstr(e->failures[0].advice[k].text, cases[c].lacks));
    }
    assert_true(has);
    hr_explanation_destroy(e);
    scene_close(&s);
  }
}

static void test_no_failure(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(6), GIB(1), 0, 0, 0);
  s.i.oom_count = 0;
  expect(&s, HR_OOM_NO_FAILURE, HR_OOM_CERTAIN);
  scene_replay(&s, false, false);
  e = explain(&s);
  assert_int_equal(e->failures[0].advice[0].basis, HR_OOM_PROVEN); /* a quarter less is reserved */
  hr_explanation_destroy(e);
  scene_leak(&s, GIB(2), 6, 8);
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_GROWTH);
  assert_int_equal(e->failures[0].advice[0].basis, HR_OOM_ADVICE); /* first the leak, not the allocator */
  assert_non_null(strstr(e->failures[0].advice[0].text, "loss.item()"));
  hr_explanation_destroy(e);
  scene_close(&s);
}

/* A snapshot whose events nobody recorded does not say that nothing failed. */
static void test_no_events(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(6), GIB(1), 0, 0, 0);
  s.i.oom_count = 0;
  s.i.event_count = 0;
  e = explain(&s);
  assert_int_equal(e->failures[0].cause, HR_OOM_UNKNOWN);
  assert_int_equal(e->failures[0].certainty, HR_OOM_UNDECIDABLE);
  assert_non_null(strstr(e->failures[0].verdict, "no events are recorded"));
  assert_non_null(strstr(e->failures[0].advice[0].text, "_record_memory_history"));
  hr_explanation_destroy(e);
  scene_close(&s);
}

/* What goes behind a failure may fill a short ring: then frees are all that it holds. */
static void test_frees_alone(void **state) {
  scene s;
  hr_explanation *e;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(6), GIB(1), 0, 0, 0);
  s.i.oom_count = 0;
  s.i.event_count = 700;
  s.i.action_counts[HR_TRACE_FREE_REQUESTED] = s.i.action_counts[HR_TRACE_FREE_COMPLETED] = 350;
  e = explain(&s);
  assert_int_equal(e->failures[0].certainty, HR_OOM_UNDECIDABLE);
  assert_true(says(&e->failures[0], "filled a short ring"));
  hr_explanation_destroy(e);
  scene_close(&s);
}

/* Of several devices, the one that failed; of those, the one with most events. */
static void test_trace(void **state) {
  hr_trace_event events[9] = {{0}};
  hr_trace traces[3] = {{0, 4, 0}, {4, 2, 1}, {6, 3, 2}};
  hr_snapshot s = {.events = events, .event_count = 9, .traces = traces, .trace_count = 3};
  (void)state;
  assert_int_equal(hr_explain_trace(&s), HR_TRACE_MOST);
  events[5].action = HR_TRACE_OOM;
  assert_int_equal(hr_explain_trace(&s), 1);
  events[6].action = HR_TRACE_OOM;
  assert_int_equal(hr_explain_trace(&s), 2);
  s.trace_count = 0;
  assert_int_equal(hr_explain_trace(&s), HR_TRACE_MOST);
}

static void test_refused_memory(void **state) {
  scene s;
  (void)state;
  scene_open(&s, "");
  scene_fail(&s, GIB(7), 0, MIB(100), MIB(300), GIB(1));
  for (uint64_t nth = 1; nth <= 2; nth++) {
    uint64_t live = hri_mem_live_bytes();
    hr_explanation *e = NULL;
    hr_error error = {0};
    hri_mem_fail_after(nth);
    assert_int_equal(hr_explain_snapshot(&s.evidence, NULL, &e, &error), HR_ERROR_MEMORY);
    hri_mem_fail_after(0);
    assert_null(e);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
  scene_close(&s);
}

/* Proven before planned before unproven, each in the order given; the last unproven ones fall off. */
static void test_advice_order(void **state) {
  hr_oom_failure *f = calloc(1, sizeof *f);
  char text[16];
  (void)state;
  assert_non_null(f);
  for (int k = 0; k < HR_OOM_MAX_ADVICE + 2; k++) {
    (void)snprintf(text, sizeof text, "a%d", k);
    hr_oom_add_advice(f, HR_OOM_ADVICE, text, "none", "", 0);
  }
  assert_int_equal(f->advice_count, HR_OOM_MAX_ADVICE);
  hr_oom_add_advice(f, HR_OOM_PLANNED, "p0", "none", "x", 1);
  hr_oom_add_advice(f, HR_OOM_PLANNED, "p1", "none", "x", 1);
  hr_oom_add_advice(f, HR_OOM_PROVEN, "r0", "none", "x", 1);
  hr_oom_add_advice(f, HR_OOM_PROVEN, "r1", "none", "x", 1);
  assert_int_equal(f->advice_count, HR_OOM_MAX_ADVICE);
  assert_string_equal(f->advice[0].text, "r0");
  assert_string_equal(f->advice[1].text, "r1");
  assert_string_equal(f->advice[2].text, "p0");
  assert_string_equal(f->advice[3].text, "p1");
  assert_string_equal(f->advice[4].text, "a0");
  assert_string_equal(f->advice[HR_OOM_MAX_ADVICE - 1].text, "a7");
  free(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_too_big),
      cmocka_unit_test(test_too_big_by_one_line),
      cmocka_unit_test(test_absurd),
      cmocka_unit_test(test_absurd_or_shrunk),
      cmocka_unit_test(test_cap),
      cmocka_unit_test(test_chunks),
      cmocka_unit_test(test_cached),
      cmocka_unit_test(test_request_of_a_private_pool),
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_need_of_the_step),
      cmocka_unit_test(test_a_window_that_fills_up),
      cmocka_unit_test(test_shrunk),
      cmocka_unit_test(test_missing),
      cmocka_unit_test(test_fragmented),
      cmocka_unit_test(test_growth),
      cmocka_unit_test(test_a_longer_step),
      cmocka_unit_test(test_outlier),
      cmocka_unit_test(test_advice_by_place),
      cmocka_unit_test(test_no_failure),
      cmocka_unit_test(test_no_events),
      cmocka_unit_test(test_frees_alone),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_trace),
      cmocka_unit_test(test_advice_order),
      cmocka_unit_test(test_what_replay_knows),
      cmocka_unit_test(test_failures_before),
      cmocka_unit_test(test_listed_once),
      cmocka_unit_test(test_growth_of_passes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
