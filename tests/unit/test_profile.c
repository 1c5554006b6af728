/* The profile of training steps: its numbers from made-up times, the trace of a real run, and that recording takes
 * nothing from the heap once it has begun. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "support/heap.h"
#include "support/scratch.h"
#include "train/profile.h"

static const char *directory;
static char *data;

static hr_job job_of(const char *model, uint32_t accumulate, const char *recompute) {
  hr_job job;
  hr_error error = {0};
  hr_job_init(&job);
  assert_int_equal(hr_model_open(model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  if (recompute) assert_int_equal(hr_recompute_parse(recompute, &job.recompute, &error), HR_OK);
  job.sequence_length = 32;
  job.micro_batch = 2;
  job.accumulate = accumulate;
  job.threads = 1;
  job.steps = 4;
  if (hr_job_finish(&job, &error) != HR_OK) fail_msg("%s", error.message);
  return job;
}

static hr_plan *plan_of(uint32_t accumulate, const char *recompute) {
  hr_job job = job_of("micro-llama-bytes", accumulate, recompute);
  hr_error error = {0};
  hr_plan *plan;
  if (hri_plan_create(&job, NULL, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  return plan;
}

/* ---- made-up times ---- */

static double seconds_of(const hri_node *node, double factor) {
  return factor * (1 + node->op) * (node->origin != HRI_NONE ? 3 : 1) * 1e-3;
}

static void fake_program(hri_profile *p, const hr_plan *plan, hri_program_kind kind, double factor) {
  const hri_program *program = &plan->job.programs[kind];
  assert_true(program->present);
  for (size_t at = 0; at < program->order.count; at++)
    hri_profile_node(p, &plan->job, program->order.items[at],
                     seconds_of(&plan->job.nodes.items[program->order.items[at]], factor));
}

static void fake_step(hri_profile *p, const hr_plan *plan, double factor) {
  hri_profile_begin_step(p);
  if (plan->spec.accumulate == 1) {
    fake_program(p, plan, HRI_STEP, factor);
  } else {
    fake_program(p, plan, HRI_BEGIN, factor);
    for (uint32_t k = 0; k < plan->spec.accumulate; k++) fake_program(p, plan, HRI_MICRO, factor);
    fake_program(p, plan, HRI_UPDATE, factor);
  }
  hri_profile_end_step(p);
}

static const hr_profile_row *row(const hr_profile *profile, const char *op, bool recomputed) {
  for (uint32_t r = 0; r < profile->row_count; r++)
    if (strcmp(profile->rows[r].op, op) == 0 && profile->rows[r].recomputed == recomputed) return &profile->rows[r];
  return NULL;
}

static void assert_near(double a, double b) {
  if (!(fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b)))) fail_msg("%.17g is not %.17g", a, b);
}

/* The first step (here a hundred times slower) is left out; of the others the median counts. */
static void test_rows_are_medians_without_the_first_step(void **state) {
  static const double factors[] = {100, 5, 1, 3};
  hr_plan *plan = plan_of(1, "block");
  hri_profile *p;
  hr_profile out;
  hr_error error = {0};
  const hr_profile_row *r;
  double total = 0, flops = 0;
  (void)state;
  assert_int_equal(hri_profile_create(plan, &p, &error), HR_OK);
  hri_profile_get(p, &out);
  assert_int_equal(out.steps, 0);
  for (size_t k = 0; k < 4; k++) {
    fake_step(p, plan, factors[k]);
    fake_program(p, plan, HRI_EVALUATE, 1000); /* outside of a step */
    hri_profile_get(p, &out);
    assert_int_equal(out.steps, k == 0 ? 1 : k);
    assert_int_equal(out.warm_up_only, k == 0);
  }
  for (uint32_t n = 0; n < out.row_count; n++) {
    const hr_profile_row *x = &out.rows[n];
    assert_true(n == 0 || out.rows[n - 1].seconds >= x->seconds);
    assert_near(x->share, x->seconds / out.step_seconds);
    total += x->predicted_seconds;
    flops += x->flops;
  }
  assert_near(total, plan->info.step_seconds);
  assert_near(flops, plan->info.flops_per_step);
  r = row(&out, "linear", false);
  assert_non_null(r);
  assert_true(r->by_arithmetic);
  assert_near(r->seconds, 3 * (double)r->calls * (1 + HRI_OP_LINEAR) * 1e-3);
  r = row(&out, "linear", true); /* the price of --recompute block has rows of its own */
  assert_non_null(r);
  assert_near(r->seconds, 3 * (double)r->calls * (1 + HRI_OP_LINEAR) * 3e-3);
  r = row(&out, "adamw", false);
  assert_true(r && !r->by_arithmetic && r->bytes > 0);
  hri_profile_destroy(p);
  hr_plan_destroy(plan);
}

/* More steps than the ring holds: the oldest give way. */
static void test_old_steps_give_way(void **state) {
  hr_plan *plan = plan_of(1, NULL);
  hri_profile *p;
  hr_profile out;
  hr_error error = {0};
  const hr_profile_row *r;
  (void)state;
  assert_int_equal(hri_profile_create(plan, &p, &error), HR_OK);
  for (int k = 0; k < 1 + 2 * HRI_PROFILE_STEPS; k++) fake_step(p, plan, k <= HRI_PROFILE_STEPS ? 50 : 2);
  hri_profile_get(p, &out);
  assert_int_equal(out.steps, 2 * HRI_PROFILE_STEPS);
  r = row(&out, "linear_dw", false);
  assert_non_null(r);
  assert_near(r->seconds, 2 * (double)r->calls * (1 + HRI_OP_LINEAR_DW) * 1e-3);
  hri_profile_destroy(p);
  hr_plan_destroy(plan);
}

/* ---- the trace ---- */

typedef struct counted {
  uint64_t nodes, groups, names, counters, most_live;
  double flops, seconds;
} counted;

/* Counts the events of a trace; each must be whole. */
static counted count_events(const hri_json *root) {
  counted c = {0};
  hri_json events, args;
  hr_error error = {0};
  assert_int_equal(hri_json_get_array(root, "traceEvents", &events, &error), HR_OK);
  for (uint64_t k = 0; k < hri_json_count(&events); k++) {
    hri_json e = hri_json_item(&events, k);
    const char *kind, *category = "";
    double start, seconds = 0, flops = 0;
    assert_int_equal(hri_json_get_string(&e, "ph", &kind, &error), HR_OK);
    assert_int_equal(hri_json_get_double(&e, "ts", &start, &error), HR_OK);
    assert_int_equal(hri_json_opt_string(&e, "cat", &category, &error), HR_OK);
    assert_int_equal(hri_json_opt_double(&e, "dur", &seconds, &error), HR_OK);
    assert_true(seconds >= 0);
    if (*kind == 'M') c.names++;
    if (*kind == 'X' && strcmp(category, "layers") == 0) c.groups++;
    if (*kind != 'C' && (*kind != 'X' || strcmp(category, "layers") == 0)) continue;
    assert_int_equal(hri_json_get_object(&e, "args", &args, &error), HR_OK);
    if (*kind == 'X') {
      const char *operands;
      assert_int_equal(hri_json_get_double(&args, "flops", &flops, &error), HR_OK);
      assert_int_equal(hri_json_get_string(&args, "operands", &operands, &error), HR_OK);
      assert_non_null(strstr(operands, "->"));
      c.nodes++;
      c.flops += flops;
      c.seconds += seconds * 1e-6;
    } else {
      const char *key;
      json_t *value;
      uint64_t live = 0;
      json_object_foreach(args.value, key, value) live += (uint64_t)json_integer_value(value);
      if (live > c.most_live) c.most_live = live;
      c.counters++;
    }
  }
  return c;
}

static uint64_t peak_of_step(const hr_plan *plan) {
  static const uint8_t phases[] = {HRI_PHASE_FORWARD, HRI_PHASE_LOSS, HRI_PHASE_BACKWARD, HRI_PHASE_OPTIMIZER};
  uint64_t most = 0;
  for (size_t k = 0; k < sizeof phases; k++)
    if (plan->info.tiers[HR_TIER_DEVICE].peak_by_phase[phases[k]] > most)
      most = plan->info.tiers[HR_TIER_DEVICE].peak_by_phase[phases[k]];
  return most;
}

static void read_trace(const char *path, hri_json *root) {
  hr_error error = {0};
  if (hri_json_read(path, 1 << 26, root, &error) != HR_OK) fail_msg("%s", error.message);
}

/* Every node once per execution, and the counter reaches exactly the plan's peak. */
static void test_the_trace_is_the_plan(void **state) {
  (void)state;
  for (uint32_t accumulate = 1; accumulate <= 3; accumulate += 2) {
    hr_plan *plan = plan_of(accumulate, "block");
    const hri_program *programs = plan->job.programs;
    uint64_t nodes = accumulate == 1 ? programs[HRI_STEP].order.count
                                     : programs[HRI_BEGIN].order.count + accumulate * programs[HRI_MICRO].order.count +
                                           programs[HRI_UPDATE].order.count;
    const char *path = path_of("%s/trace-%u.json", directory, accumulate);
    hri_profile *p;
    hri_json root, other;
    hr_error error = {0};
    uint64_t left_out;
    counted c;
    assert_int_equal(hri_profile_create(plan, &p, &error), HR_OK);
    fake_step(p, plan, 1);
    fake_step(p, plan, 1);
    if (hri_profile_write(p, path, &error) != HR_OK) fail_msg("%s", error.message);
    read_trace(path, &root);
    c = count_events(&root);
    assert_int_equal(c.nodes, nodes);
    assert_near(c.flops, plan->info.flops_per_step);
    assert_true(c.groups > plan->spec.model.layer_count && c.groups < nodes);
    assert_true(c.names >= 3 && c.counters > 1);
    assert_int_equal(c.most_live, peak_of_step(plan));
    assert_int_equal(hri_json_get_object(&root, "otherData", &other, &error), HR_OK);
    assert_int_equal(hri_json_get_u64(&other, "events_left_out", 0, UINT64_MAX, &left_out, &error), HR_OK);
    assert_int_equal(left_out, 0);
    hri_json_deinit(&root);
    hri_profile_destroy(p);
    hr_plan_destroy(plan);
  }
}

/* A step of more node runs than there is room for: the rest is counted, the sums by op stay whole. */
static void test_events_are_bounded(void **state) {
  hr_plan *plan = plan_of(2000, NULL);
  uint64_t nodes = plan->job.programs[HRI_BEGIN].order.count + 2000 * plan->job.programs[HRI_MICRO].order.count +
                   plan->job.programs[HRI_UPDATE].order.count,
           left_out;
  const char *path = path_of("%s/bounded.json", directory);
  const hr_profile_row *r;
  hri_profile *p;
  hr_profile out;
  hri_json root, other;
  hr_error error = {0};
  (void)state;
  assert_true(nodes > HRI_PROFILE_EVENTS);
  assert_int_equal(hri_profile_create(plan, &p, &error), HR_OK);
  fake_step(p, plan, 1);
  assert_int_equal(hri_profile_write(p, path, &error), HR_OK);
  read_trace(path, &root);
  assert_int_equal(count_events(&root).nodes, HRI_PROFILE_EVENTS);
  assert_int_equal(hri_json_get_object(&root, "otherData", &other, &error), HR_OK);
  assert_int_equal(hri_json_get_u64(&other, "events_left_out", 0, UINT64_MAX, &left_out, &error), HR_OK);
  assert_int_equal(left_out, nodes - HRI_PROFILE_EVENTS);
  hri_profile_get(p, &out);
  r = row(&out, "linear", false);
  assert_non_null(r);
  assert_near(r->seconds, (double)r->calls * (1 + HRI_OP_LINEAR) * 1e-3);
  hri_json_deinit(&root);
  hri_profile_destroy(p);
  hr_plan_destroy(plan);
}

/* Refused memory is an error that leaves no file and nothing on the heap. */
static void test_every_allocation_may_fail(void **state) {
  hr_plan *plan = plan_of(1, NULL);
  uint64_t live = hri_mem_live_bytes(), n;
  hr_error error = {0};
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (n = 1; status != HR_OK; n++) {
    const char *path = path_of("%s/refused.json", directory);
    hri_profile *p = NULL;
    hri_mem_fail_after(n);
    status = hri_profile_create(plan, &p, &error);
    if (status == HR_OK) fake_step(p, plan, 1);
    if (status == HR_OK) status = hri_profile_write(p, path, &error);
    hri_mem_fail_after(0);
    hri_profile_destroy(p);
    assert_true(status == HR_OK || status == HR_ERROR_MEMORY);
    assert_int_equal(hri_mem_live_bytes(), live);
    assert_int_equal(exists(path), status == HR_OK);
  }
  assert_true(n > 8);
  hr_plan_destroy(plan);
}

/* ---- a run ---- */

typedef struct watched {
  uint64_t live_before, live_after, space_before, space_after, largest;
  uint32_t profiled;
  hr_profile profile;
} watched;

static void on_event(void *context, const hr_event *event) {
  watched *w = context;
  if (event->kind == HR_EVENT_PROFILED) {
    w->profiled++;
    w->profile = *event->profile;
    w->profile.rows = NULL;
  }
  if (event->kind != HR_EVENT_STEP) return;
  if (event->metrics->step == event->metrics->steps) {
    heap_stop();
    w->live_after = atomic_load(&heap_live);
    w->space_after = heap_address_space();
    w->largest = atomic_load(&heap_largest);
  }
  if (event->metrics->step == 1) {
    w->space_before = heap_address_space();
    w->live_before = atomic_load(&heap_live);
    heap_watch(4096);
  }
}

/* Promise 2 with the profile on: nothing from the heap in the steps behind the first. */
static void test_recording_takes_nothing_from_the_heap(void **state) {
  const char *path = path_of("%s/run.json", directory), *run = path_of("%s/run", directory);
  const char *const paths[] = {data};
  hr_job job = job_of("micro-gpt2-bytes", 2, NULL);
  watched w = {0};
  hr_run_options options = {.data_paths = paths,
                            .data_path_count = 1,
                            .out_directory = run,
                            .on_event = on_event,
                            .context = &w,
                            .profile_path = path};
  hr_run_result result;
  hr_error error = {0};
  hri_json root;
  counted c;
  (void)state;
  job.steps = 12;
  heap_watch(SIZE_MAX);
  heap_stop();
  if (hr_train(&job, &options, &result, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(w.profiled, 1);
  assert_int_equal(w.profile.steps, 11);
  assert_true(w.profile.step_seconds > 0);
  read_trace(path, &root);
  c = count_events(&root);
  assert_true(c.nodes > 0 && c.seconds > 0);
  hri_json_deinit(&root);
  scratch_remove(run);
  if (!HEAP_WATCHED) return;
  heap_print_offenders();
  assert_true(w.largest <= 4096);
  assert_true(w.live_after <= w.live_before);
  assert_int_equal(w.space_after, w.space_before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_are_medians_without_the_first_step),
      cmocka_unit_test(test_old_steps_give_way),
      cmocka_unit_test(test_the_trace_is_the_plan),
      cmocka_unit_test(test_events_are_bounded),
      cmocka_unit_test(test_every_allocation_may_fail),
      cmocka_unit_test(test_recording_takes_nothing_from_the_heap),
  };
  int failed;
  directory = scratch_make("profile");
  data = strdup(path_of("%s/text.txt", directory)); /* path_of has few buffers */
  put_words(data, 20000, 7);
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  scratch_remove(directory);
  free(data);
  return failed;
}
