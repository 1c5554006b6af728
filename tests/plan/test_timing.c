/* Time and ticks of programs with several lanes: schedules worked out by hand, and random programs against the plain
 * definitions. The seed of a failure is printed; HEADROOM_TEST_SEED repeats it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/plan.h>

#include "base/rng.h"
#include "plan/compile.h"
#include "plan/cost.h"
#include "plan/place.h"
#include "program/check.h"
#include "support/cpu_seconds.h"

#define DICE_STREAM 7
#include "support/dice.h"

static hri_id node_on(hri_job *job, uint8_t lane) {
  hri_emit emit = {.program = HRI_STEP,
                   .lane = lane,
                   .phase = HRI_PHASE_FORWARD,
                   .layer = -1,
                   .unit = HRI_NONE,
                   .origin = HRI_NONE};
  return hri_node_append(job, HRI_OP_COPY, emit, NULL, NULL, 0);
}

static hri_timing timed(const hri_job *job, const double *seconds, double from) {
  hri_timing t;
  hr_error error = {0};
  if (hri_timing_make(job, HRI_STEP, seconds, from, &t, &error) != HR_OK) fail_msg("%s", error.message);
  return t;
}

static void expect_path(const hri_timing *t, const uint32_t *path, uint32_t count) {
  assert_int_equal(t->critical_count, count);
  for (uint32_t k = 0; k < count; k++) assert_int_equal(t->critical[k], path[k]);
}
#define EXPECT_PATH(t, ...)                                                                                            \
  expect_path((t), (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- by hand ---- */

static void an_empty_program_takes_no_time(void **state) {
  hri_job job;
  hri_timing t;
  (void)state;
  hri_job_init(&job);
  job.programs[HRI_STEP].present = true;
  t = timed(&job, NULL, 2.5);
  assert_true(t.until == 2.5 && t.count == 0 && t.critical_count == 0);
  hri_timing_deinit(&t);
  hri_job_deinit(&job);
}

/* To the bit what it was when a program's time was a sum: 0.1 + 0.2 + 0.3 from the left. */
static void one_lane_is_a_sum(void **state) {
  static const double seconds[] = {0.1, 0.2, 0.3, 0};
  hri_job job;
  hri_timing t;
  double sum = 0;
  (void)state;
  hri_job_init(&job);
  for (int k = 0; k < 4; k++) node_on(&job, HRI_COMPUTE);
  for (int k = 0; k < 4; k++) sum += seconds[k];
  t = timed(&job, seconds, 0);
  assert_memory_equal(&t.until, &sum, sizeof sum);
  assert_memory_equal(&t.lane_seconds[HRI_COMPUTE], &sum, sizeof sum);
  EXPECT_PATH(&t, 0, 1, 2);
  hri_timing_deinit(&t);
  hri_job_deinit(&job);
}

/*   compute   a 0..4          b 4..6   c 6..7, waits for the copy: 9..10
 *   copy-in        d 0..1, e waits for a: 4..9                                     */
static void a_late_copy_holds_up_its_reader(void **state) {
  static const double seconds[] = {4, 1, 5, 2, 1};
  hri_job job;
  hri_timing t;
  hri_id a, e, c;
  (void)state;
  hri_job_init(&job);
  a = node_on(&job, HRI_COMPUTE);
  node_on(&job, HRI_COPY_IN);
  e = node_on(&job, HRI_COPY_IN);
  node_on(&job, HRI_COMPUTE);
  c = node_on(&job, HRI_COMPUTE);
  hri_node_add_wait(&job, e, a);
  hri_node_add_wait(&job, c, e);
  t = timed(&job, seconds, 0);
  assert_true(t.begin[1] == 0 && t.end[1] == 1 && t.begin[2] == 4 && t.end[2] == 9);
  assert_true(t.begin[3] == 4 && t.end[3] == 6 && t.begin[4] == 9 && t.end[4] == 10);
  assert_true(t.until == 10 && t.lane_seconds[HRI_COMPUTE] == 7 && t.lane_seconds[HRI_COPY_IN] == 6);
  EXPECT_PATH(&t, 0, 2, 4);
  hri_timing_deinit(&t);
  hri_job_deinit(&job);
}

/* The same copy, started one node earlier, is hidden: the compute lane never waits.
 *   compute   a 0..4   b 4..9   c 9..10
 *   copy-in   e 0..5                                                                */
static void an_early_copy_costs_nothing(void **state) {
  static const double seconds[] = {5, 4, 5, 1};
  hri_job job;
  hri_timing t;
  hri_id e, c;
  (void)state;
  hri_job_init(&job);
  e = node_on(&job, HRI_COPY_IN);
  node_on(&job, HRI_COMPUTE);
  node_on(&job, HRI_COMPUTE);
  c = node_on(&job, HRI_COMPUTE);
  hri_node_add_wait(&job, c, e);
  t = timed(&job, seconds, 0);
  assert_true(t.until == 10 && t.begin[3] == 9);
  EXPECT_PATH(&t, 1, 2, 3);
  hri_timing_deinit(&t);
  hri_job_deinit(&job);
}

/* Four lanes from time 100: the longest chain changes lanes three times, and its last node is not the last issued.
 *   compute        a 100..103                 b 110..112 (waits for x, y)
 *   copy-out       x 103..107 (a)
 *   communication  y 103..105 (a)   z 107..110 (x)      b also waits for z
 *   disk           w 107..120 (x), the end of the program                           */
static void a_path_through_four_lanes(void **state) {
  static const double seconds[] = {3, 4, 2, 3, 13, 2};
  hri_job job;
  hri_timing t;
  hri_id a, x, y, z, w, b;
  (void)state;
  hri_job_init(&job);
  a = node_on(&job, HRI_COMPUTE);
  x = node_on(&job, HRI_COPY_OUT);
  y = node_on(&job, HRI_COMMUNICATION_LANE);
  z = node_on(&job, HRI_COMMUNICATION_LANE);
  w = node_on(&job, HRI_DISK_LANE);
  b = node_on(&job, HRI_COMPUTE);
  hri_node_add_wait(&job, x, a);
  hri_node_add_wait(&job, y, a);
  hri_node_add_wait(&job, z, x);
  hri_node_add_wait(&job, w, x);
  hri_node_add_wait(&job, b, x);
  hri_node_add_wait(&job, b, y);
  hri_node_add_wait(&job, b, z);
  t = timed(&job, seconds, 100);
  assert_true(t.begin[2] == 103 && t.end[2] == 105 && t.begin[3] == 107 && t.end[3] == 110);
  assert_true(t.begin[4] == 107 && t.begin[5] == 110 && t.end[5] == 112);
  assert_true(t.from == 100 && t.until == 120);
  EXPECT_PATH(&t, 0, 1, 4);
  hri_timing_deinit(&t);
  hri_job_deinit(&job);
}

static void a_wait_for_what_is_not_issued_is_refused(void **state) {
  static const double seconds[] = {1, 1};
  hri_job job;
  hri_timing t;
  hr_error error = {0};
  hri_id a;
  (void)state;
  hri_job_init(&job);
  a = node_on(&job, HRI_COPY_IN);
  hri_node_add_wait(&job, a, node_on(&job, HRI_COMPUTE));
  assert_int_equal(hri_timing_make(&job, HRI_STEP, seconds, 0, &t, &error), HR_ERROR_INTERNAL);
  assert_non_null(strstr(error.message, "rule 3"));
  hri_job_deinit(&job);
}

/* ---- what waits are worth ---- */

static hr_status no_workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  (void)self;
  (void)job;
  (void)node;
  (void)error;
  *bytes = 0;
  return HR_OK;
}

static double offloaded_step(uint32_t distance, uint64_t *device_bytes) {
  hri_compile_options options = {.offload_bytes = 4u << 20, .offload_distance = distance};
  hri_backend backend = {.name = "none", .team = 1, .workspace = no_workspace};
  hri_placement bound;
  hr_error error = {0};
  hri_cost cost;
  hri_job job;
  hr_job spec;
  hr_job_init(&spec);
  assert_int_equal(hr_model_open("gpt2-124m", &spec.model, &error), HR_OK);
  assert_int_equal(hr_device_find("rtx-3090", &spec.device, &error), HR_OK);
  spec.sequence_length = 512;
  spec.precision = HR_PRECISION_FP32;
  spec.device.link_bytes_per_second = 24e9;
  assert_int_equal(hr_job_finish(&spec, &error), HR_OK);
  if (hri_compile(&spec, &backend, &options, &job, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hri_job_cost(&job, &spec, &cost, &error), HR_OK);
  assert_true(cost.lane_seconds[HRI_COPY_IN] > 0 && cost.lane_seconds[HRI_COPY_OUT] > 0);
  assert_true(cost.step_seconds >= cost.lane_seconds[HRI_COMPUTE]);
  assert_int_equal(hri_placement_bound(&job, 0, &bound, &error), HR_OK);
  *device_bytes = bound.lower_bound_bytes[HRI_DEVICE];
  hri_placement_deinit(&bound);
  hri_job_deinit(&job);
  return cost.step_seconds;
}

/* When a program took its longest lane, every distance took the same time and the smallest was always the best. */
static void prefetching_earlier_takes_bytes_and_saves_time(void **state) {
  uint64_t bytes[3];
  double near = offloaded_step(1, &bytes[0]), farther = offloaded_step(4, &bytes[1]),
         far = offloaded_step(12, &bytes[2]);
  (void)state;
  print_message("distance 1, 4, 12: %.3f, %.3f, %.3f ms, %.0f, %.0f, %.0f MiB\n", 1e3 * near, 1e3 * farther, 1e3 * far,
                (double)bytes[0] / 1048576, (double)bytes[1] / 1048576, (double)bytes[2] / 1048576);
  assert_true(near > farther && farther > far);
  assert_true(bytes[0] < bytes[2]);
}

/* ---- random programs ---- */

static void random_program(dice *d, hri_job *job, double **seconds) {
  uint32_t count = 1 + roll(d, 60), lanes = 1 + roll(d, HRI_LANE_COUNT), spine = roll(d, 3);
  hri_job_init(job);
  *seconds = calloc(count, sizeof **seconds);
  for (uint32_t at = 0; at < count; at++) {
    uint8_t lane = spine && roll(d, 2) ? (uint8_t)HRI_COMPUTE : (uint8_t)roll(d, lanes);
    hri_id id = node_on(job, lane);
    for (uint32_t w = roll(d, 4); at > 0 && w > 1; w--)
      hri_node_add_wait(job, id, job->programs[HRI_STEP].order.items[roll(d, at)]);
    (*seconds)[at] = roll(d, 5) ? 1e-6 * roll(d, 1000) : 0;
  }
}

/* The first definition: every node off the spine looks for its bounds among all nodes. */
static void plain_ticks(const hri_job *job, uint32_t start, hri_storage_life *ticks) {
  const hri_program *p = &job->programs[HRI_STEP];
  uint32_t spine = 0, count = (uint32_t)p->order.count;
  hr_error error = {0};
  hri_clocks clocks;
  assert_int_equal(hri_clocks_init(&clocks, job, HRI_STEP, &error), HR_OK);
  for (uint32_t at = 0; at < count; at++) spine += job->nodes.items[p->order.items[at]].lane == HRI_COMPUTE;
  for (uint32_t at = 0, c = 0; at < count; at++) {
    uint32_t before = 0, after = spine, index = 0;
    if (job->nodes.items[p->order.items[at]].lane == HRI_COMPUTE) {
      ticks[at] = (hri_storage_life){start + 2 * c, start + 2 * c};
      c++;
      continue;
    }
    for (uint32_t b = 0; b < count; b++) {
      if (job->nodes.items[p->order.items[b]].lane != HRI_COMPUTE) continue;
      if (b < at && hri_happens_before(&clocks, b, at)) before = index + 1;
      if (b > at && after == spine && hri_happens_before(&clocks, at, b)) after = index;
      index++;
    }
    ticks[at] = (hri_storage_life){before ? start + 2 * before - 1 : start, after ? start + 2 * after - 1 : start};
  }
  hri_clocks_deinit(&clocks);
}

/* begin = the latest of everything that must have ended, looked for among all nodes. */
static void plain_times(const hri_job *job, const double *seconds, double *begin, double *end) {
  const hri_program *p = &job->programs[HRI_STEP];
  for (uint32_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    begin[at] = 0;
    for (uint32_t b = 0; b < at; b++) {
      bool before = job->nodes.items[p->order.items[b]].lane == node->lane;
      for (uint32_t w = 0; w < node->wait_count; w++)
        before = before || job->waits.items[node->wait_begin + w].node == p->order.items[b];
      if (before && end[b] > begin[at]) begin[at] = end[b];
    }
    end[at] = begin[at] + seconds[at];
  }
}

static void random_programs_obey_the_definitions(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED");
  uint64_t first = one ? strtoull(one, NULL, 0) : 1, last = one ? first : 3000, off_spine = 0, held_up = 0;
  (void)state;
  for (uint64_t seed = first; seed <= last; seed++) {
    dice d = {seed, 0};
    hri_job job;
    hr_error error = {0};
    double *seconds, *begin, *end, longest = 0;
    hri_storage_life *ticks, *plain;
    uint32_t behind, count;
    hri_timing t;
    random_program(&d, &job, &seconds);
    count = (uint32_t)job.programs[HRI_STEP].order.count;
    ticks = calloc(count, sizeof *ticks);
    plain = calloc(count, sizeof *plain);
    begin = calloc(count, sizeof *begin);
    end = calloc(count, sizeof *end);
    assert_int_equal(hri_node_ticks(&job, HRI_STEP, 11, ticks, &behind, &error), HR_OK);
    plain_ticks(&job, 11, plain);
    plain_times(&job, seconds, begin, end);
    t = timed(&job, seconds, 0);
    for (uint32_t at = 0; at < count; at++) {
      if (ticks[at].begin != plain[at].begin || ticks[at].end != plain[at].end || t.begin[at] != begin[at] ||
          t.end[at] != end[at])
        fail_msg("seed %llu, position %u: ticks %u..%u, plainly %u..%u; time %g..%g, plainly %g..%g",
                 (unsigned long long)seed, at, ticks[at].begin, ticks[at].end, plain[at].begin, plain[at].end,
                 t.begin[at], t.end[at], begin[at], end[at]);
      off_spine += job.nodes.items[at].lane != HRI_COMPUTE;
      if (end[at] > longest) longest = end[at];
    }
    assert_true(t.until == longest && t.critical_count >= 1);
    assert_true(t.begin[t.critical[0]] == 0 && t.end[t.critical[t.critical_count - 1]] == longest);
    for (uint32_t k = 1; k < t.critical_count; k++) assert_true(t.begin[t.critical[k]] == t.end[t.critical[k - 1]]);
    for (int lane = 0; lane < HRI_LANE_COUNT; lane++) assert_true(t.lane_seconds[lane] <= longest * (1 + 1e-12));
    held_up += t.lane_seconds[HRI_COMPUTE] < longest;
    hri_timing_deinit(&t);
    hri_job_deinit(&job);
    free(seconds);
    free(ticks);
    free(plain);
    free(begin);
    free(end);
  }
  if (!one) assert_true(off_spine > 10000 && held_up > 500);
}

/* 100,000 nodes off the spine among as many on it: the first definition compared 10^10 pairs of them. */
static void ticks_and_times_are_linear(void **state) {
  enum { PAIRS = 100000, BEHIND = 50 };
  hri_job job;
  hr_error error = {0};
  hri_storage_life *ticks = calloc(2 * PAIRS, sizeof *ticks);
  double *seconds = calloc(2 * PAIRS, sizeof *seconds), begun;
  uint32_t end;
  hri_timing t;
  (void)state;
  hri_job_init(&job);
  for (uint32_t k = 0; k < PAIRS; k++) {
    hri_id copy = node_on(&job, k % 2 ? HRI_COPY_IN : HRI_COPY_OUT), compute;
    if (k > 0) hri_node_add_wait(&job, copy, job.programs[HRI_STEP].order.items[2 * k - 1]);
    compute = node_on(&job, HRI_COMPUTE);
    if (k >= BEHIND) hri_node_add_wait(&job, compute, job.programs[HRI_STEP].order.items[2 * (k - BEHIND)]);
    seconds[2 * k] = seconds[2 * k + 1] = 1;
  }
  begun = cpu_seconds();
  assert_int_equal(hri_node_ticks(&job, HRI_STEP, 0, ticks, &end, &error), HR_OK);
  t = timed(&job, seconds, 0);
  begun = cpu_seconds() - begun;
  print_message("ticks and times of %d nodes: %.1f ms\n", 2 * PAIRS, 1e3 * begun);
  assert_true(begun < 5); /* 30 ms; quadratic took minutes */
  assert_int_equal(end, 2 * PAIRS + 1);
  assert_int_equal(ticks[2 * 1000].begin, 2 * 999 + 1); /* behind compute node 999, and read by node 1000 + BEHIND */
  assert_int_equal(ticks[2 * 1000].end, 2 * (1000 + BEHIND) - 1);
  assert_true(t.until == PAIRS);
  hri_timing_deinit(&t);
  hri_job_deinit(&job);
  free(ticks);
  free(seconds);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_program_takes_no_time),
      cmocka_unit_test(one_lane_is_a_sum),
      cmocka_unit_test(a_late_copy_holds_up_its_reader),
      cmocka_unit_test(an_early_copy_costs_nothing),
      cmocka_unit_test(a_path_through_four_lanes),
      cmocka_unit_test(a_wait_for_what_is_not_issued_is_refused),
      cmocka_unit_test(prefetching_earlier_takes_bytes_and_saves_time),
      cmocka_unit_test(random_programs_obey_the_definitions),
      cmocka_unit_test(ticks_and_times_are_linear),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
