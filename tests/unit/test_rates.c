/* Rates that training sees where no probe is stored: what steps of a stated speed leave behind predicts that speed, and
 * a busy machine leaves nothing. Times are made up here; nothing is run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <headroom/plan.h>

#include "base/file.h"
#include "device/host.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "support/scratch.h"
#include "program/rates.h"
#include "train/rates.h"

static const char *directory;

/* How many times the assumed seconds arithmetic and traffic take. */
typedef struct speed {
  double arithmetic, memory;
} speed;

static hr_plan *plan_named(const char *model, hr_precision precision) {
  hr_job job;
  hr_plan *plan;
  hr_error error = {0};
  hr_job_init(&job);
  assert_int_equal(hr_model_open(model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  (void)hr_device_load(&job.device, 1);
  job.sequence_length = 128;
  job.micro_batch = 4;
  job.precision = precision;
  job.threads = 1;
  job.steps = 5;
  if (hr_job_finish(&job, &error) != HR_OK) fail_msg("%s", error.message);
  if (hr_plan_create(&job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  return plan;
}

static hr_plan *plan_of(hr_precision precision) { return plan_named("tiny-llama-bytes", precision); }

static double seconds_of(const hr_plan *plan, const hri_node *node, speed s) {
  hri_rate_class c = hri_rate_class_of(&plan->job, node);
  return hri_assumed_seconds(&plan->job, node, &plan->spec.device) * (hri_is_arithmetic(&c) ? s.arithmetic : s.memory);
}

/* One step, said to take `claimed` seconds beside the nodes' own. Returns what end_step does. */
static bool step(hri_rate_watch *w, const hr_plan *plan, speed s, double claimed) {
  const hri_program *p = &plan->job.programs[HRI_STEP];
  hri_rate_watch_begin_step(w);
  for (size_t at = 0; at < p->order.count; at++)
    hri_rate_watch_node(w, &plan->job, p->order.items[at],
                        seconds_of(plan, &plan->job.nodes.items[p->order.items[at]], s));
  return hri_rate_watch_end_step(w, claimed);
}

static double step_seconds(const hr_plan *plan, speed s) {
  const hri_program *p = &plan->job.programs[HRI_STEP];
  double sum = 0;
  for (size_t at = 0; at < p->order.count; at++) sum += seconds_of(plan, &plan->job.nodes.items[p->order.items[at]], s);
  return sum;
}

/* Steps until the watch has made up its mind; how many. */
static uint32_t watch(hri_rate_watch *w, const hr_plan *plan, speed s) {
  uint32_t count = 1;
  assert_false(step(w, plan, (speed){50, 50}, 3)); /* warms up: nobody counts it */
  while (!step(w, plan, s, 0.21)) assert_true(++count < 1000);
  return count;
}

/* Trains, so to speak, at a speed; what that left is what later plans see. */
static hri_rate_state train(hr_precision precision, speed s) {
  hr_plan *plan = plan_of(precision);
  hri_rate_watch *w;
  hri_rate_state state;
  hr_error error = {0};
  assert_int_equal(hri_rate_watch_begin(plan, &w, &error), HR_OK);
  assert_non_null(w);
  (void)watch(w, plan, s);
  state = hri_rate_watch_state(w);
  if (state == HRI_RATES_NEW && hr_device_store(hri_rate_watch_rates(w), NULL, 0, &error) != HR_OK)
    fail_msg("%s", error.message);
  hri_rate_watch_end(w);
  hr_plan_destroy(plan);
  return state;
}

static void forget(void) {
  hr_error error;
  (void)hri_dir_remove(directory, &error);
  assert_int_equal(mkdir(directory, 0700), 0);
}

/* Sums of a class hold exactly, so the whole step does; single nodes share their class's rate. */
static void test_a_speed_is_learnt(void **state) {
  const speed s = {3, 0.5};
  hr_plan *before, *after;
  double wanted;
  (void)state;
  forget();
  before = plan_of(HR_PRECISION_FP32);
  assert_false(before->info.time_measured);
  wanted = step_seconds(before, s);
  assert_true(fabs(before->info.step_seconds / step_seconds(before, (speed){1, 1}) - 1) < 1e-9);
  assert_int_equal(train(HR_PRECISION_FP32, s), HRI_RATES_NEW);
  after = plan_of(HR_PRECISION_FP32);
  assert_true(after->info.time_measured && after->info.time_seen);
  if (fabs(after->info.step_seconds / wanted - 1) > 0.02)
    fail_msg("%g s are predicted, not %g", after->info.step_seconds, wanted);
  assert_true(after->spec.device.fixed_bytes == before->spec.device.fixed_bytes);
  hr_plan_destroy(before);
  hr_plan_destroy(after);
}

/* Of bf16 nobody saw anything: it is assumed to be off by what fp32 was off, not to be as fast as fp32. */
static void test_what_was_not_seen_is_scaled(void **state) {
  hr_plan *before, *after;
  const speed s = {2, 2};
  (void)state;
  forget();
  before = plan_of(HR_PRECISION_BF16);
  assert_int_equal(train(HR_PRECISION_FP32, s), HRI_RATES_NEW);
  after = plan_of(HR_PRECISION_BF16);
  for (size_t k = 0; k < after->job.nodes.count; k++) {
    const hri_node *node = &after->job.nodes.items[k];
    hri_rate_class c = hri_rate_class_of(&after->job, node);
    double wanted = 2 * hri_node_seconds(&before->job, &before->job.nodes.items[k], &before->spec.device);
    if (c.table != HRI_RATE_PRODUCT || c.type == 0) continue;
    assert_true(fabs(hri_node_seconds(&after->job, node, &after->spec.device) / wanted - 1) < 0.03);
  }
  hr_plan_destroy(before);
  hr_plan_destroy(after);
}

/* ---- what is said of what was not seen ---- */

static hri_rate_class product(uint32_t type, uint32_t kind, uint32_t side, double size) {
  return (hri_rate_class){.table = HRI_RATE_PRODUCT, .type = type, .kind = kind, .side = side, .size = size, .work = 1};
}
static hri_rate_class stream(uint32_t kind, double size) {
  return (hri_rate_class){.table = HRI_RATE_STREAM, .kind = kind, .size = size, .work = 1};
}

/* The entry of a class took so long, `ratio` times what was assumed. */
static void see(hr_device_rates *r, hri_rate_class where, double taken, double ratio) {
  const size_t entry = (size_t)(hri_rate_entry(r, &where) - (double *)r->tables);
  r->taken[entry] = taken;
  r->assumed[entry] = taken / ratio;
}

static double ratio(const hr_device_rates *r, hri_rate_class where) { return hri_seen_ratio(r, &where); }

static void test_a_ratio_goes_from_what_was_seen_to_the_rest(void **state) {
  const hri_rate_class attention = {.table = HRI_RATE_ATTENTION, .size = 8, .work = 1};
  hr_device_rates r = {.seen = true, .threads = 1};
  (void)state;
  assert_true(ratio(&r, product(0, 0, 2, 31)) == 1 && ratio(&r, stream(0, 24)) == 1); /* nothing was seen */
  see(&r, product(0, 0, 2, 28), 1, 2);
  assert_true(fabs(ratio(&r, product(0, 0, 2, 28)) / 2 - 1) < 1e-9);
  assert_true(fabs(ratio(&r, product(1, 4, 0, 34)) / 2 - 1) < 1e-9 && fabs(ratio(&r, attention) / 2 - 1) < 1e-9);
  assert_true(ratio(&r, stream(0, 24)) == 1); /* memory is another matter */
  see(&r, product(0, 0, 2, 31), 1, 8);
  assert_true(fabs(ratio(&r, product(0, 0, 2, 29.5)) / 4 - 1) < 1e-9); /* between two */
  assert_true(fabs(ratio(&r, product(0, 0, 2, 31)) / 8 - 1) < 1e-9);
  see(&r, stream(HR_STREAM_ADAMW, 24), 1, 0.5);
  assert_true(fabs(ratio(&r, stream(HR_STREAM_NORM, 20)) / 0.5 - 1) < 1e-9);
  assert_true(fabs(ratio(&r, product(0, 0, 2, 31)) / 8 - 1) < 1e-9);
}

/* Adapters' products take a hundredth of the time of those of weights: they say next to nothing of the rows that were not
 * seen, and what lies near says more. */
static void test_time_and_nearness_count(void **state) {
  hr_device_rates r = {.seen = true, .threads = 1};
  double dw;
  (void)state;
  see(&r, product(0, 2, 0, 24), 0.01, 4);
  see(&r, product(0, 0, 2, 31), 1, 1);
  see(&r, product(0, 1, 2, 31), 1, 1);
  dw = ratio(&r, product(0, 2, 2, 31));
  if (!(dw > 1 && dw < 1.02)) fail_msg("dw of weights takes %g times as long", dw);
  see(&r, product(0, 2, 1, 31), 1, 2);
  dw = ratio(&r, product(0, 2, 2, 31));
  if (!(dw > 1.2 && dw < 1.6)) fail_msg("with one of the next size, dw takes %g times as long", dw);
  assert_true(hri_seen_itself(&r, &(hri_rate_class){.table = HRI_RATE_PRODUCT, .kind = 2, .side = 1, .size = 30}));
  assert_false(hri_seen_itself(&r, &(hri_rate_class){.table = HRI_RATE_PRODUCT, .kind = 2, .side = 2, .size = 31}));
}

/* No lookup is below what bounds of searches take for the least. */
static void test_the_least_ratio_is_one(void **state) {
  hr_device_rates r = {.seen = true, .threads = 1};
  uint32_t asked = 0;
  (void)state;
  see(&r, product(0, 2, 0, 24), 0.01, 4);
  see(&r, product(0, 0, 2, 31), 1, 0.7);
  see(&r, product(1, 1, 1, 34), 3, 1.3);
  for (uint32_t type = 0; type < 2; type++)
    for (uint32_t kind = 0; kind < HR_PRODUCT_KINDS; kind++)
      for (uint32_t side = 0; side < HR_PRODUCT_SIDES; side++)
        for (double size = 16; size < 40; size += 0.5, asked++) {
          const hri_rate_class c = product(type, kind, side, size);
          assert_true(ratio(&r, c) >= hri_seen_least(&r, &c) && ratio(&r, c) <= 4);
        }
  assert_true(asked > 1000);
  for (double only = 0.01; only < 100; only *= 1.01) { /* of one, all others are that; logarithms and powers round */
    hr_device_rates one = {.seen = true, .threads = 1};
    const hri_rate_class far = product(1, 4, 0, 34), between = product(0, 0, 2, 29.3);
    see(&one, product(0, 0, 2, 28), 1, only);
    assert_true(ratio(&one, far) >= hri_seen_least(&one, &far));
    see(&one, product(0, 0, 2, 31), 3, only);
    assert_true(ratio(&one, between) >= hri_seen_least(&one, &between));
  }
  assert_true(fabs(hri_seen_least(&r, &(hri_rate_class){.table = HRI_RATE_PRODUCT}) - 0.7) < 1e-9);
  assert_true(hri_seen_least(&r, &(hri_rate_class){.table = HRI_RATE_STREAM}) == 1);
}

/* Of a step's products and attention, or of all else: what a plan predicts, in terms of what is assumed. */
static double predicted_share(const hr_plan *plan, bool arithmetic) {
  const hri_program *p = &plan->job.programs[HRI_STEP];
  double predicted = 0, assumed = 0;
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &plan->job.nodes.items[p->order.items[at]];
    hri_rate_class c = hri_rate_class_of(&plan->job, node);
    if (hri_is_arithmetic(&c) != arithmetic) continue;
    predicted += hri_node_seconds(&plan->job, node, &plan->spec.device);
    assumed += hri_assumed_seconds(&plan->job, node, &plan->spec.device);
  }
  return predicted / assumed;
}

/* One run in another type adds to what a run told, a slower one replaces it. Masters, their moments and the sums of
 * gradients are fp32 in both, so traffic may come out between the two; no product of one type is also of the other. How
 * much of a step is which depends on the machine, so each is asked by itself. */
static void test_runs_add_up(void **state) {
  hr_plan *plan;
  double slow, memory;
  (void)state;
  forget();
  assert_int_equal(train(HR_PRECISION_FP32, (speed){2, 2}), HRI_RATES_NEW);
  assert_int_equal(train(HR_PRECISION_BF16, (speed){3, 3}), HRI_RATES_NEW);
  plan = plan_of(HR_PRECISION_FP32);
  if (fabs(predicted_share(plan, true) / 2 - 1) > 0.02)
    fail_msg("what fp32 told of products is gone: %g of what is assumed", predicted_share(plan, true));
  memory = predicted_share(plan, false);
  if (memory < 2 * 0.98 || memory > 3 * 1.02) fail_msg("traffic takes %g of what is assumed", memory);
  slow = step_seconds(plan, (speed){4, 4});
  hr_plan_destroy(plan);
  assert_int_equal(train(HR_PRECISION_FP32, (speed){4, 4}), HRI_RATES_NEW);
  plan = plan_of(HR_PRECISION_FP32);
  assert_true(fabs(plan->info.step_seconds / slow - 1) < 0.05);
  hr_plan_destroy(plan);
}

/* Rounds that differ by more than a tenth; the machine calms down in the end, or does not. */
static void test_an_unsteady_machine_tells_nothing(void **state) {
  hr_plan *plan;
  hri_rate_watch *w;
  hr_error error = {0};
  (void)state;
  forget();
  plan = plan_of(HR_PRECISION_FP32);
  for (int calms = 0; calms < 2; calms++) {
    uint32_t count = 0;
    assert_int_equal(hri_rate_watch_begin(plan, &w, &error), HR_OK);
    assert_false(step(w, plan, (speed){1, 1}, 1));
    for (bool ended = false; !ended && count < 1000; count++) {
      double slow = count % 5 == 4 && !(calms && count >= 20) ? 1.2 : 1;
      ended = step(w, plan, (speed){slow, slow}, 0.3);
    }
    assert_int_equal(hri_rate_watch_state(w), calms ? HRI_RATES_NEW : HRI_RATES_UNSTEADY);
    assert_int_equal(count, calms ? 25 : 40);
    if (!calms) assert_true(fabs(hri_rate_watch_spread(w) - 0.2) < 1e-6);
    hri_rate_watch_end(w);
  }
  hr_plan_destroy(plan);
}

/* Rounds in which nothing of a known class ran cannot agree. */
static void test_rounds_of_nothing_tell_nothing(void **state) {
  hr_plan *plan;
  hri_rate_watch *w;
  hr_error error = {0};
  uint32_t count = 0;
  (void)state;
  forget();
  plan = plan_of(HR_PRECISION_FP32);
  assert_int_equal(hri_rate_watch_begin(plan, &w, &error), HR_OK);
  do {
    hri_rate_watch_begin_step(w);
    assert_true(++count < 100);
  } while (!hri_rate_watch_end_step(w, 0.3));
  assert_int_equal(hri_rate_watch_state(w), HRI_RATES_UNSTEADY);
  assert_true(isinf(hri_rate_watch_spread(w)));
  hri_rate_watch_end(w);
  hr_plan_destroy(plan);
}

/* A device that reaches nothing of its figures, as a caller may describe it: no time is infinite. */
static void test_no_efficiency_divides_by_nothing(void **state) {
  hr_plan *plan = plan_of(HR_PRECISION_FP32);
  (void)state;
  for (int k = 0; k < 3; k++) {
    hr_device d = plan->spec.device;
    if (k != 1) d.gemm_efficiency = 0;
    if (k != 0) d.memory_efficiency = 0;
    for (size_t n = 0; n < plan->job.nodes.count; n++)
      assert_true(isfinite(hri_assumed_seconds(&plan->job, &plan->job.nodes.items[n], &d)));
  }
  hr_plan_destroy(plan);
}

/* A file of the kernel below `root`. */
static void write_told(const char *root, const char *name, const char *format, unsigned long long number) {
  FILE *file = fopen(path_of("%s/proc/%s", root, name), "w");
  assert_non_null(file);
  (void)fprintf(file, format, number);
  assert_int_equal(fclose(file), 0);
}

/* The state of a watch over steady steps of a second, while `told` grows by `more` a step from `begin` on. */
static hri_rate_state watch_told(const char *root, const char *told, const char *format, unsigned long long begin,
                                 unsigned long long more) {
  hr_plan *plan;
  hri_rate_watch *w;
  hri_rate_state result;
  hr_error error = {0};
  forget();
  plan = plan_of(HR_PRECISION_FP32);
  hri_host_set_root(root);
  assert_int_equal(hri_rate_watch_begin(plan, &w, &error), HR_OK);
  do write_told(root, told, format, begin += more);
  while (!step(w, plan, (speed){1.5, 1.5}, 1));
  result = hri_rate_watch_state(w);
  hri_host_set_root(NULL);
  hri_rate_watch_end(w);
  hr_plan_destroy(plan);
  return result;
}

/* Steady, but the host gives a twentieth of the time to others, or a thread waits a fifth of it. A hundredth is what an
 * idle machine's own work takes, however often it interrupts. */
static void test_time_of_others_counts(void **state) {
  static const char ticks[] = "cpu  10 20 30 40 50 60 70 %llu 0 0\n", waited[] = "4915224142 %llu 232\n";
  const char *root = scratch_make("stat");
  hri_host_load load;
  (void)state;
  assert_int_equal(mkdir(path_of("%s/proc", root), 0700), 0);
  write_told(root, "stat", ticks, 100);
  hri_host_set_root(root);
  load = hri_host_load_now();
  hri_host_set_root(NULL);
  assert_true(fabs(load.stolen_seconds - 1) < 1e-9); /* 100 ticks a second */
  assert_true(isnan(load.waited_seconds));
  assert_int_equal(watch_told(root, "stat", ticks, 100, 5), HRI_RATES_UNSTEADY);
  for (size_t k = 0; k < 4; k++)
    assert_int_equal(mkdir(path_of("%s/proc/%s", root,
                                   (const char *[]){"self", "self/task", "self/task/41", "self/task/43"}[k]),
                           0700),
                     0);
  write_told(root, "self/task/41/schedstat", waited, 1500000000);
  write_told(root, "self/task/43/schedstat", waited, 250000000);
  hri_host_set_root(root);
  assert_true(fabs(hri_host_load_now().waited_seconds - 1.75) < 1e-9);
  hri_host_set_root(NULL);
  assert_int_equal(watch_told(root, "self/task/43/schedstat", waited, 0, 200000000), HRI_RATES_UNSTEADY);
  assert_int_equal(watch_told(root, "self/task/43/schedstat", waited, 0, 10000000), HRI_RATES_NEW);
  scratch_remove(root);
}

/* Where a probe is stored there is nothing to learn, and it counts; nor is there for a device of the table. */
static void test_a_probe_counts_for_more(void **state) {
  hr_plan *plan;
  hri_rate_watch *w;
  hr_device_rates probe;
  hr_error error = {0};
  (void)state;
  forget();
  assert_int_equal(train(HR_PRECISION_FP32, (speed){2, 2}), HRI_RATES_NEW);
  plan = plan_of(HR_PRECISION_FP32);
  probe = plan->spec.device.rates;
  assert_true(probe.seen);
  probe.seen = false;
  probe.fixed_bytes = 7u << 20;
  hr_plan_destroy(plan);
  assert_int_equal(hr_device_store(&probe, NULL, 0, &error), HR_OK);
  plan = plan_of(HR_PRECISION_FP32);
  assert_true(plan->info.time_measured && !plan->info.time_seen);
  assert_int_equal(hri_rate_watch_begin(plan, &w, &error), HR_OK);
  assert_null(w);
  hr_plan_destroy(plan);
}

/* ---- what ratios hold for ---- */

/* Of this machine as it computes for a plan of one thread, of so many threads, with one entry of a stream; nothing else. */
static hr_device_rates rates_of(uint32_t threads, double taken, double assumed) {
  hr_device_rates r = {.seen = true, .threads = threads, .date = "2026-01-02", .node_seconds = 1e-6};
  hr_plan *plan = plan_of(HR_PRECISION_FP32);
  const hri_rate_class where = stream(HR_STREAM_NORM, 24);
  const size_t entry = (size_t)(hri_rate_entry(&r, &where) - (double *)r.tables);
  (void)snprintf(r.instruction_set, sizeof r.instruction_set, "%s", plan->job.instruction_set);
  (void)snprintf(r.libraries, sizeof r.libraries, "%s", plan->job.libraries);
  r.assumed_of = hri_assumed_figures(&plan->spec.device, threads);
  r.taken[entry] = taken;
  r.assumed[entry] = assumed;
  hr_plan_destroy(plan);
  return r;
}

static void store(const hr_device_rates *r, char *path, uint32_t path_bytes) {
  hr_error error = {0};
  if (hr_device_store(r, path, path_bytes, &error) != HR_OK) fail_msg("%s", error.message);
}

static bool loads(hr_device *d) {
  hr_error error = {0};
  assert_int_equal(hr_device_find("cpu", d, &error), HR_OK);
  memset(&d->rates, 0, sizeof d->rates);
  return hr_device_load(d, 1);
}

/* Nor does it keep a run with one thread from learning: what it saw stands beside what is assumed, not beside the probe. */
static void test_beside_a_probe_for_another_team_a_run_learns(void **state) {
  const speed s = {3, 0.5};
  const uint32_t team =
      hr_device_cpu_threads() > 1 ? hr_device_cpu_threads() : 2; /* whose probe a device has at once */
  hr_device_rates probe = rates_of(team, 0, 0);
  hr_plan *plain, *plan;
  hri_rate_watch *w;
  hr_error error = {0};
  double wanted;
  (void)state;
  forget();
  plain = plan_of(HR_PRECISION_FP32);
  wanted = step_seconds(plain, s);
  probe.seen = false;
  probe.fixed_bytes = 7u << 20;
  probe.tables[0].product_flops[0][2][3] = 9e12;
  probe.tables[0].stream_bytes[HR_STREAM_COPY][HR_STREAM_SIZES - 1] = 1e9;
  store(&probe, NULL, 0);
  plan = plan_of(HR_PRECISION_FP32);
  assert_int_equal(plan->spec.device.rates.threads, team);
  assert_false(plan->info.time_measured);
  assert_int_equal(hri_rate_watch_begin(plan, &w, &error), HR_OK);
  assert_non_null(w);
  (void)watch(w, plain, s);
  assert_int_equal(hri_rate_watch_state(w), HRI_RATES_NEW);
  store(hri_rate_watch_rates(w), NULL, 0);
  hri_rate_watch_end(w);
  hr_plan_destroy(plan);
  hr_plan_destroy(plain);
  plan = plan_of(HR_PRECISION_FP32);
  assert_true(plan->info.time_seen);
  if (fabs(plan->info.step_seconds / wanted - 1) > 0.02)
    fail_msg("%g s are predicted, not %g", plan->info.step_seconds, wanted);
  hr_plan_destroy(plan);
}

/* A probe for two threads says what the device reaches; what one thread took was seen beside other figures. */
static void test_a_probe_for_another_team_changes_nothing(void **state) {
  const speed s = {3, 0.5};
  hr_device_rates probe;
  hr_device d;
  hr_plan *plan;
  double wanted;
  hr_error error = {0};
  (void)state;
  forget();
  plan = plan_of(HR_PRECISION_FP32);
  wanted = step_seconds(plan, s);
  hr_plan_destroy(plan);
  probe = rates_of(2, 0, 0);
  probe.seen = false;
  probe.fixed_bytes = 7u << 20;
  probe.tables[0].product_flops[0][2][3] = 9e12;
  probe.tables[0].stream_bytes[HR_STREAM_COPY][HR_STREAM_SIZES - 1] = 1e9;
  assert_int_equal(train(HR_PRECISION_FP32, s), HRI_RATES_NEW);
  store(&probe, NULL, 0);
  assert_int_equal(hr_device_find("cpu", &d, &error), HR_OK);
  assert_true(hr_device_load(&d, 2) && d.flops_fp32 == 9e12 && d.memory_bytes_per_second == 1e9);
  assert_true(hr_device_load(&d, 1) && d.rates.seen && d.fixed_bytes == 7u << 20);
  assert_true(d.flops_fp32 < 9e12 && d.memory_bytes_per_second > 1e9 && !strstr(d.source, "--probe"));
  plan = plan_of(HR_PRECISION_FP32);
  assert_true(plan->info.time_seen);
  if (fabs(plan->info.step_seconds / wanted - 1) > 0.02)
    fail_msg("%g s are predicted, not %g", plan->info.step_seconds, wanted);
  hr_plan_destroy(plan);
}

/* Such a file is treated as if it were not there, and nothing of it is kept in a new one. */
static void test_ratios_to_other_figures_do_not_count(void **state) {
  double *figures[4];
  hr_device_rates r, other;
  hr_device d;
  (void)state;
  forget();
  r = rates_of(1, 2, 1);
  for (int k = 0; k < 4; k++) {
    other = r;
    figures[0] = &other.assumed_of.flops_fp32, figures[1] = &other.assumed_of.flops_bf16;
    figures[2] = &other.assumed_of.memory_bytes_per_second, figures[3] = &other.assumed_of.node_seconds;
    *figures[k] = *figures[k] * 1.01 + 1e-9;
    store(&other, NULL, 0);
    if (loads(&d)) fail_msg("figure %d does not count", k);
  }
  see(&other, product(0, 0, 2, 31), 1, 8);
  store(&other, NULL, 0);
  store(&r, NULL, 0);
  assert_true(loads(&d) && memcmp(d.rates.taken, r.taken, sizeof r.taken) == 0);
  assert_true(hri_same_figures(&d.rates.assumed_of, &r.assumed_of));
  see(&r, product(0, 0, 2, 31), 1, 8); /* the test's own premise: of the same figures it stays */
  store(&r, NULL, 0);
  other = rates_of(1, 4, 1);
  store(&other, NULL, 0);
  assert_true(loads(&d));
  assert_true(ratio(&d.rates, product(0, 0, 2, 31)) == 8 && ratio(&d.rates, stream(HR_STREAM_NORM, 24)) == 4);
}

/* ---- damage ---- */

static void test_ratios_that_no_machine_has_are_no_file(void **state) {
  static const double pairs[][2] = {{1e18, 1e-300}, {1e-300, 1e18}, {1, 0}, {0, 1}, {1.1e4, 1}, {1, 1.1e4}};
  hr_device_rates r;
  hr_device d;
  (void)state;
  for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
    forget();
    r = rates_of(1, pairs[k][0], pairs[k][1]);
    store(&r, NULL, 0);
    if (loads(&d)) fail_msg("%g s where %g s are assumed", pairs[k][0], pairs[k][1]);
  }
  forget();
  r = rates_of(1, 9e3, 1);
  store(&r, NULL, 0);
  assert_true(loads(&d));
}

/* `text` with `from` replaced by `to`, to be freed. */
static char *replaced(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  const size_t bytes = strlen(text) + strlen(to) + 1;
  char *out = malloc(bytes);
  if (!at) fail_msg("no %s", from);
  assert_non_null(out);
  (void)snprintf(out, bytes, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  return out;
}

static void test_a_damaged_or_foreign_file_is_ignored(void **state) {
  static const char *const damages[][4] = {{"\"schema_version\": 5", "\"schema_version\": 4"},
                                           {"\"schema_version\": 5", "\"schema_version\": 6"},
                                           {"\"schema_version\": 5", "\"schema_version\": 3", "\"seconds\"",
                                            "\"factors\""},
                                           {"\"threads\": 1", "\"threads\": 2"},
                                           {"\"cpu\": \"", "\"cpu\": \"not "},
                                           {"\"libraries\": \"", "\"libraries\": \"x"},
                                           {"\"instruction_set\": \"", "\"instruction_set\": \"x"},
                                           {"\"seconds\"", "\"factors\""},
                                           {"\"seconds\": [", "\"seconds\": [1.0,"},
                                           {"\"seconds\": [", "\"seconds\": [null,"},
                                           {"\"assumed_seconds\"", "\"assumed\""},
                                           {"\"assumed_of\"", "\"of\""},
                                           {"\"assumed_of\": {",
                                            "\"assumed_of\": {\"flops_fp32\": 1.0, \"flops\": 2.0,"},
                                           {"\"node_seconds\": ", "\"node_seconds\": -"},
                                           {"\"product_flops\": [", "\"product_flops\": [1.0,"},
                                           {"}", ""}};
  hr_device_rates r;
  hr_device d;
  char path[512], *text;
  uint64_t count;
  (void)state;
  forget();
  r = rates_of(1, 2, 1);
  store(&r, path, sizeof path);
  assert_int_equal(hri_file_read(path, 1 << 20, &text, &count, NULL), HR_OK);
  for (size_t k = 0; k < sizeof damages / sizeof *damages; k++) {
    char *once = replaced(text, damages[k][0], damages[k][1]),
         *twice = replaced(once, damages[k][2] ? damages[k][2] : "", damages[k][2] ? damages[k][3] : "");
    assert_int_equal(hri_file_replace(path, twice, strlen(twice), NULL), HR_OK);
    if (loads(&d)) fail_msg("damage %zu is taken for what was seen", k);
    assert_true(d.rates.threads == 0 && d.flops_fp32 > 0);
    free(once);
    free(twice);
  }
  for (uint64_t cut = 0; cut + 2 < count; cut += 97) { /* cut off anywhere */
    assert_int_equal(hri_file_replace(path, text, cut, NULL), HR_OK);
    assert_false(loads(&d));
  }
  assert_int_equal(hri_file_replace(path, text, count, NULL), HR_OK);
  assert_true(loads(&d)); /* the test's own premise */
  hri_free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_beside_a_probe_for_another_team_a_run_learns),
                                     cmocka_unit_test(test_a_probe_for_another_team_changes_nothing),
                                     cmocka_unit_test(test_ratios_to_other_figures_do_not_count),
                                     cmocka_unit_test(test_ratios_that_no_machine_has_are_no_file),
                                     cmocka_unit_test(test_a_damaged_or_foreign_file_is_ignored),
                                     cmocka_unit_test(test_a_speed_is_learnt),
                                     cmocka_unit_test(test_what_was_not_seen_is_scaled),
                                     cmocka_unit_test(test_a_ratio_goes_from_what_was_seen_to_the_rest),
                                     cmocka_unit_test(test_time_and_nearness_count),
                                     cmocka_unit_test(test_the_least_ratio_is_one),
                                     cmocka_unit_test(test_runs_add_up),
                                     cmocka_unit_test(test_an_unsteady_machine_tells_nothing),
                                     cmocka_unit_test(test_rounds_of_nothing_tell_nothing),
                                     cmocka_unit_test(test_no_efficiency_divides_by_nothing),
                                     cmocka_unit_test(test_time_of_others_counts),
                                     cmocka_unit_test(test_a_probe_counts_for_more)};
  int failed;
  directory = scratch_make("rates");
  if (setenv("HEADROOM_CACHE", directory, 1) != 0) return 1;
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  (void)hri_dir_remove(directory, NULL);
  return failed;
}
