/* A plan as a snapshot: the same bytes at every node, nothing overlaps, and a recorded run shows the plan's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <headroom/train.h>

#include "plan/plan.h"
#include "inspect/lives.h"
#include "snapshot/trail.h"
#include "support/scratch.h"

static const char *directory;

typedef struct timeline_case {
  const char *model, *recompute;
  uint32_t sequence, micro_batch, accumulate;
  hr_precision precision;
  hr_update update;
} timeline_case;

static const timeline_case cases[] = {
    {"micro-llama-bytes", "none", 37, 3, 1, HR_PRECISION_FP32, HR_UPDATE_AFTER},
    {"micro-gpt2-bytes", "block", 41, 2, 3, HR_PRECISION_BF16, HR_UPDATE_AFTER},
    {"micro-llama-bytes", "selective", 33, 1, 2, HR_PRECISION_BF16_PURE, HR_UPDATE_AFTER},
    {"micro-gpt2-bytes", "none", 16, 2, 1, HR_PRECISION_FP32, HR_UPDATE_IN_BACKWARD},
};
enum { CASES = sizeof cases / sizeof *cases };

static hr_job job_of(const timeline_case *c) {
  hr_job job;
  hr_error error = {0};
  hr_job_init(&job);
  assert_int_equal(hr_model_open(c->model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  assert_int_equal(hr_recompute_parse(c->recompute, &job.recompute, &error), HR_OK);
  job.sequence_length = c->sequence;
  job.micro_batch = c->micro_batch;
  job.accumulate = c->accumulate;
  job.precision = c->precision;
  job.update = c->update;
  job.threads = 2;
  job.steps = 5;
  if (c->update == HR_UPDATE_IN_BACKWARD) job.clip = 0;
  if (hr_job_finish(&job, &error) != HR_OK) fail_msg("%s: %s", c->model, error.message);
  return job;
}

/* Bytes as the placement rounds them. */
static uint64_t rounded(uint64_t bytes) { return hri_round_up(bytes, HRI_STORAGE_ALIGN); }

typedef struct level {
  const hri_lives *lives;
  uint64_t live, peak;
} level;

static uint64_t rounded_peak(const hr_snapshot *s) {
  uint64_t live = 0, peak = 0;
  for (uint64_t k = 0; k < s->event_count; k++) {
    const hr_trace_event *e = &s->events[k];
    if (e->action == HR_TRACE_ALLOC) live += rounded(e->size);
    if (e->action == HR_TRACE_FREE_COMPLETED) live -= rounded(e->size);
    if (live > peak) peak = live;
  }
  return peak;
}

static void assert_tiled(const hri_lives *lives, uint64_t event) {
  hri_state state;
  hr_error error;
  if (hri_state_at(lives, event, &state, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(state.segment_count, 1);
  assert_int_equal(state.dropped_count, 0); /* nothing overlaps */
  assert_int_equal(state.unplaced_count, 0);
  hri_state_deinit(&state);
}

static void assert_sound(const hr_snapshot *s, const hr_plan *plan) {
  hri_lives *lives;
  hr_error error;
  assert_true(s->categories_stated);
  assert_int_equal(s->trace_count, 1);
  assert_int_equal(s->segment_count, 1);
  assert_int_equal(s->segments[0].total_size, hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes);
  assert_int_equal(rounded_peak(s), hr_plan_get(plan)->tiers[HR_TIER_DEVICE].lower_bound_bytes);
  if (hri_lives_build(s, 0, &lives, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(lives->began_empty);
  assert_int_equal(lives->odd_count, 0);
  assert_int_equal(lives->peak_reserved_bytes, s->segments[0].total_size);
  for (uint64_t event = 0; event < s->event_count; event += 1 + s->event_count / 97) assert_tiled(lives, event);
  assert_tiled(lives, s->event_count - 1);
  hri_lives_destroy(lives);
}

static bool has_category(const hr_snapshot *s, const char *name) {
  for (uint64_t k = 0; k < s->event_count; k++)
    if (strcmp(hr_snapshot_category(s, s->events[k].category), name) == 0) return true;
  return false;
}

static void test_a_plan_is_a_snapshot(void **state) {
  (void)state;
  for (int k = 0; k < CASES; k++) {
    hr_job job = job_of(&cases[k]);
    hr_plan *plan;
    hr_snapshot *s;
    hr_error error;
    if (hr_plan_create(&job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
    if (hr_plan_snapshot(plan, &s, &error) != HR_OK) fail_msg("%s", error.message);
    assert_sound(s, plan);
    assert_true(has_category(s, "weight") && has_category(s, "activation") && has_category(s, "optimizer_state") &&
                has_category(s, "gradient"));
    for (uint64_t e = 1; e < s->event_count; e++) assert_true(s->events[e].time_us >= s->events[e - 1].time_us);
    hr_snapshot_destroy(s);
    hr_plan_destroy(plan);
  }
}

static void test_refused_memory_gives_an_error(void **state) {
  hr_job job = job_of(&cases[0]);
  hr_plan *plan;
  hr_error error;
  uint64_t live, refused = 0;
  (void)state;
  if (hr_plan_create(&job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  live = hri_mem_live_bytes();
  for (uint64_t n = 1; n < 100000; n++) {
    hr_snapshot *s = NULL;
    hr_status status;
    hri_mem_fail_after(n);
    status = hr_plan_snapshot(plan, &s, &error);
    hri_mem_fail_after(0);
    hr_snapshot_destroy(s);
    assert_int_equal(hri_mem_live_bytes(), live);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    refused++;
  }
  assert_true(refused > 20);
  hr_plan_destroy(plan);
}

static hr_snapshot *train(const hr_job *job, const char *run, hr_status wanted, bool (*should_stop)(void *context)) {
  const char *data = path_of("%s/text.txt", directory);
  hr_run_options options = {.data_paths = &data,
                            .data_path_count = 1,
                            .out_directory = run,
                            .record_memory = true,
                            .should_stop = should_stop};
  hr_run_result result;
  hr_snapshot *s;
  hr_error error = {0};
  hr_status status = hr_train(job, &options, &result, &error);
  if (status != wanted) fail_msg("%s: status %d: %s", run, status, error.message);
  if (hr_snapshot_read(path_of("%s/memory/snapshot.pickle.gz", run), NULL, &s, &error) != HR_OK)
    fail_msg("%s", error.message);
  return s;
}

static hri_trail_page trail_of(const char *run) {
  hri_trail_page page;
  hr_error error;
  if (hri_trail_read(path_of("%s/memory/trail", run), &page, &error) != HR_OK) fail_msg("%s", error.message);
  return page;
}

static void test_a_recorded_run_shows_the_planned_memory(void **state) {
  (void)state;
  for (int k = 0; k < CASES; k++) {
    hr_job job = job_of(&cases[k]);
    const char *run = path_of("%s/run-%d", directory, k);
    hr_snapshot *s = train(&job, run, HR_OK, NULL);
    hr_plan *plan;
    hr_error error;
    hri_trail_page page = trail_of(run);
    uint64_t steps = 0;
    if (hr_plan_create(&job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
    assert_true(rounded_peak(s) <= hr_plan_get(plan)->tiers[HR_TIER_DEVICE].lower_bound_bytes);
    assert_int_equal(s->segments[0].total_size, page.reserved_bytes);
    assert_int_equal(page.reserved_bytes, hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes);
    for (uint64_t a = 0; a < s->annotation_count; a++) steps += !s->annotations[a].end;
    assert_int_equal(steps, 3); /* the last ones */
    assert_string_equal(hr_snapshot_string(s, s->annotations[0].name), "step 3");
    for (uint64_t e = 1; e < s->event_count; e++) assert_true(s->events[e].time_us >= s->events[e - 1].time_us);
    assert_int_equal(page.state, HRI_TRAIL_FINISHED);
    assert_int_equal(page.step, 5);
    assert_true(page.resident_bytes >= page.reserved_bytes);
    hr_snapshot_destroy(s);
    if (hr_snapshot_read(path_of("%s/memory/plan.pickle.gz", run), NULL, &s, &error) != HR_OK)
      fail_msg("%s", error.message);
    assert_sound(s, plan);
    hr_snapshot_destroy(s);
    hr_plan_destroy(plan);
  }
}

static bool at_once(void *context) { return (void)context, true; }

static void test_a_stopped_run_leaves_its_trail(void **state) {
  hr_job job = job_of(&cases[0]);
  const char *run = path_of("%s/stopped", directory);
  hri_trail_page page;
  (void)state;
  hr_snapshot_destroy(train(&job, run, HR_ERROR_INTERRUPTED, at_once));
  page = trail_of(run);
  assert_int_equal(page.state, HRI_TRAIL_STOPPED);
  assert_int_equal(page.step, 1);
  assert_int_equal(page.pid, getpid());
  assert_string_equal(page.program, "save"); /* the checkpoint came last */
}

static void test_what_is_no_trail_is_refused(void **state) {
  hri_trail_page page;
  hr_error error;
  (void)state;
  put_text(path_of("%s/short", directory), "HRTRAIL1");
  assert_int_equal(hri_trail_read(path_of("%s/short", directory), &page, &error), HR_ERROR_INPUT);
  assert_int_equal(hri_trail_read(path_of("%s/text.txt", directory), &page, &error), HR_ERROR_INPUT);
  assert_int_equal(hri_trail_read(path_of("%s/none", directory), &page, &error), HR_ERROR_IO);
}

static int make_directory(void **state) {
  char text[4096];
  (void)state;
  directory = scratch_make("timeline");
  for (size_t k = 0; k < sizeof text; k++) text[k] = (char)("the memory of a job "[k % 20]);
  text[sizeof text - 1] = 0;
  put_text(path_of("%s/text.txt", directory), text);
  return 0;
}

static int drop_directory(void **state) {
  (void)state;
  scratch_remove(directory);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_plan_is_a_snapshot),
      cmocka_unit_test(test_refused_memory_gives_an_error),
      cmocka_unit_test(test_a_recorded_run_shows_the_planned_memory),
      cmocka_unit_test(test_a_stopped_run_leaves_its_trail),
      cmocka_unit_test(test_what_is_no_trail_is_refused),
  };
  return cmocka_run_group_tests(tests, make_directory, drop_directory);
}
