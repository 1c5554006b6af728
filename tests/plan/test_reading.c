/* What is read off a finished plan: samples follow programs, bytes and predicted time; a host budget counts; dumps name
 * everything; and whoever reads survives that memory is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <headroom/snapshot.h>

#include "plan/plan.h"
#include "plan/variants.h"

static const hri_compile_options to_host = {.offload_bytes = 1, .offload_distance = 2};

static void make_job(hr_job *job, const char *model, const char *device) {
  hr_error e = {0};
  hr_job_init(job);
  assert_int_equal(hr_model_open(model, &job->model, &e), HR_OK);
  assert_int_equal(hr_device_find(device, &job->device, &e), HR_OK);
  job->sequence_length = 32;
  job->micro_batch = 2;
  job->precision = HR_PRECISION_BF16;
}

static hr_plan *planned(hr_job *job, const hri_compile_options *options) {
  hr_error e = {0};
  hr_plan *plan = NULL;
  if (hr_job_finish(job, &e) != HR_OK || hri_plan_create(job, options, &plan, &e) != HR_OK) fail_msg("%s", e.message);
  return plan;
}

/* ---- samples ---- */

/* The samples of one program: its nodes in issue order, lanes in turn, and a chain of critical nodes without a gap. */
static double follow_program(const hr_plan *plan, uint8_t kind, const hr_sample *samples) {
  const hri_program *p = &plan->job.programs[kind];
  double lanes[HR_LANE_COUNT] = {0}, until = 0, chain = 0;
  for (size_t at = 0; at < p->order.count; at++) {
    const hr_sample *s = &samples[at];
    const hri_node *node = &plan->job.nodes.items[p->order.items[at]];
    uint64_t bytes = 0;
    assert_string_equal(s->program, hri_program_name((hri_program_kind)kind));
    assert_string_equal(s->op, hri_op_name(node->op));
    assert_true(s->phase == node->phase && s->layer == node->layer && s->lane == node->lane);
    for (int role = 0; role < HR_ROLE_COUNT; role++) bytes += s->by_role[role];
    assert_int_equal(bytes, s->live_bytes);
    assert_true(s->begin_seconds >= lanes[s->lane] && s->end_seconds >= s->begin_seconds);
    lanes[s->lane] = s->end_seconds;
    if (s->end_seconds > until) until = s->end_seconds;
  }
  for (size_t at = 0, found = 1; found;) { /* not in issue order over lanes: by where each begins */
    for (at = 0, found = 0; at < p->order.count && !found; at++)
      if (samples[at].critical && samples[at].begin_seconds == chain && samples[at].end_seconds > chain) {
        chain = samples[at].end_seconds;
        found = 1;
      }
  }
  assert_true(chain == until);
  return until;
}

static void follow(const hr_plan *plan) {
  hr_error e = {0};
  hr_sample *samples, *next;
  uint32_t count;
  uint64_t most = 0;
  double step = 0;
  assert_int_equal(hr_plan_samples(plan, HR_TIER_DEVICE, &samples, &count, &e), HR_OK);
  assert_int_equal(count, plan->info.node_count);
  next = samples;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    double seconds;
    if (!plan->job.programs[kind].present) continue;
    seconds = follow_program(plan, kind, next);
    step += hri_runs_per_step(plan, (hri_program_kind)kind) * seconds;
    next += plan->job.programs[kind].order.count;
  }
  assert_ptr_equal(next, samples + count);
  assert_true(step > 0 && step / plan->info.step_seconds > 0.999999 && step / plan->info.step_seconds < 1.000001);
  for (uint32_t k = 0; k < count; k++)
    if (samples[k].live_bytes > most) most = samples[k].live_bytes;
  assert_int_equal(most, plan->info.tiers[HR_TIER_DEVICE].lower_bound_bytes);
  hr_free(samples);
}

static void samples_follow_the_programs(void **state) {
  hr_job job;
  hr_plan *plan;
  (void)state;
  make_job(&job, "micro-llama-bytes", "rtx-3090");
  follow(plan = planned(&job, NULL));
  hr_plan_destroy(plan);
  make_job(&job, "tiny-llama-bytes", "rtx-3090");
  job.accumulate = 3;
  job.with_generation = true;
  follow(plan = planned(&job, NULL));
  hr_plan_destroy(plan);
}

static void samples_of_other_tiers(void **state) {
  hr_error e = {0};
  hr_job job;
  hr_plan *plan;
  hr_sample *samples;
  uint32_t count;
  uint64_t most = 0;
  (void)state;
  make_job(&job, "tiny-llama-bytes", "rtx-3090");
  plan = planned(&job, &to_host);
  assert_int_equal(hr_plan_samples(plan, HR_TIER_HOST, &samples, &count, &e), HR_OK);
  for (uint32_t k = 0; k < count; k++)
    if (samples[k].live_bytes > most) most = samples[k].live_bytes;
  assert_true(most > 0 && most == plan->info.tiers[HR_TIER_HOST].lower_bound_bytes);
  hr_free(samples);
  assert_int_equal(hr_plan_samples(plan, HR_TIER_COUNT, &samples, &count, &e), HR_ERROR_USAGE);
  assert_non_null(strstr(e.message, "no tier"));
  hr_plan_destroy(plan);
}

/* ---- the host tier's budget ---- */

static void a_host_budget_counts(void **state) {
  hr_error e = {0};
  hr_job job;
  hr_plan *plan;
  uint64_t needed;
  (void)state;
  make_job(&job, "tiny-llama-bytes", "rtx-3090");
  plan = planned(&job, &to_host);
  needed = hri_plan_host_need(plan);
  assert_true(needed > 0 && plan->info.fits);
  hr_plan_destroy(plan);
  for (uint64_t less = 0; less <= 1; less++) {
    job.host_budget_bytes = needed - less;
    plan = planned(&job, &to_host);
    assert_int_equal(plan->info.fits, less == 0);
    assert_int_equal(hr_plan_verdict(plan, &e), less == 0 ? HR_OK : HR_ERROR_BUDGET);
    hr_plan_destroy(plan);
    if (less == 0) continue;
    assert_true(strstr(e.message, "host's memory") && strstr(e.message, ".host ") &&
                strstr(e.hint, "host_budget_bytes by 1 B"));
    assert_int_equal(e.requested_bytes, needed);
    assert_int_equal(e.available_bytes, needed - 1);
  }
}

/* A card's pinned memory is the host's: no choice of --auto changes that it is too much, and neither do bytes of the device,
 * of which there are enough. */
static void auto_says_whose_budget_is_too_small(void **state) {
  hr_error e = {0};
  hr_auto found;
  hr_job job;
  (void)state;
  make_job(&job, "tiny-llama-bytes", "h100");
  job.host_budget_bytes = 1;
  assert_int_equal(hr_job_finish(&job, &e), HR_OK);
  if (hr_plan_auto(&job, NULL, &found, &e) != HR_ERROR_BUDGET) fail_msg("%s", e.message);
  assert_non_null(strstr(e.message, "host's budget of 1 B"));
  assert_non_null(strstr(e.hint, "host_budget_bytes"));
}

/* The remedies of a refusal are the job's: no larger budget than the device has, an optimizer of trainings alone. */
static void remedies_of_a_refusal_are_the_jobs(void **state) {
  static const struct {
    const char *model, *hint;
    hr_purpose purpose;
    hr_optimizer optimizer;
    uint64_t budget;
  } cases[] = {
      {"tiny-llama-bytes", "raise --budget to that, shorten --seq, or choose --optimizer sgd", HR_PURPOSE_TRAIN,
       HR_OPTIMIZER_ADAMW, 1 << 20},
      {"tiny-llama-bytes", "raise --budget to that, or shorten --seq", HR_PURPOSE_TRAIN, HR_OPTIMIZER_SGD, 1 << 20},
      {"tiny-llama-bytes", "raise --budget to that, or shorten --seq", HR_PURPOSE_EVALUATE, HR_OPTIMIZER_ADAMW,
       1 << 20},
      {"tiny-llama-bytes", "raise --budget to that, or shorten --context", HR_PURPOSE_GENERATE, HR_OPTIMIZER_ADAMW,
       1 << 20},
      {"llama-2-13b", "name a larger --device, or shorten --seq", HR_PURPOSE_EVALUATE, HR_OPTIMIZER_ADAMW, 0},
  };
  (void)state;
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    hr_error e = {0};
    hr_job job;
    make_job(&job, cases[n].model, "rtx-3060");
    job.purpose = cases[n].purpose;
    job.optimizer = cases[n].optimizer;
    job.budget_bytes = cases[n].budget;
    if (cases[n].budget) job.given |= HR_GIVEN_BUDGET;
    assert_int_equal(hr_job_finish(&job, &e), HR_OK);
    assert_int_equal(hr_plan_auto(&job, NULL, NULL, &e), HR_ERROR_BUDGET);
    assert_string_equal(e.hint, cases[n].hint);
  }
}

/* ---- whether a job fits ---- */

/* As the plan says it, in and around its need. */
static void a_fit_is_what_the_plan_says(void **state) {
  static const char *const devices[] = {"cpu", "rtx-3090", "mi300x"};
  (void)state;
  for (size_t n = 0; n < sizeof devices / sizeof *devices; n++) {
    hr_error e = {0};
    hr_fit fit;
    hr_job job;
    hr_plan *plan;
    make_job(&job, "tiny-llama-bytes", devices[n]);
    job.accumulate = 1 + (uint32_t)n;
    if (!job.device.usable_bytes) job.device.usable_bytes = UINT64_C(1) << 30; /* a CPU that is described, not asked */
    plan = planned(&job, NULL);
    for (uint64_t less = 0; less <= 1; less++) {
      job.budget_bytes = hri_plan_need(plan) - less;
      job.given |= HR_GIVEN_BUDGET;
      assert_int_equal(hr_job_finish(&job, &e), HR_OK);
      assert_int_equal(hr_plan_fit(&job, &fit, &e), HR_OK);
      assert_int_equal(fit.fits, less == 0);
      assert_true(fit.need_bytes <= hri_plan_need(plan) && (!fit.fits || fit.need_bytes == hri_plan_need(plan)));
      assert_int_equal(fit.bound_bytes, plan->info.tiers[HR_TIER_DEVICE].lower_bound_bytes);
      assert_true(fit.step_seconds == plan->info.step_seconds);
      assert_true(fit.token_seconds == plan->info.step_seconds / (double)plan->info.tokens_per_step);
    }
    hr_plan_destroy(plan);
    job.finished = false;
    assert_int_equal(hr_plan_fit(&job, &fit, &e), HR_ERROR_USAGE);
  }
}

/* ---- dumps ---- */

static void dumps_name_everything(void **state) {
  hr_error e = {0};
  hr_job job;
  hr_plan *plan;
  char *text, *apart;
  json_t *json;
  size_t alive = 0, untouched = 0;
  (void)state;
  make_job(&job, "micro-llama-bytes", "rtx-3090");
  plan = planned(&job, NULL);
  assert_int_equal(hr_plan_dump(plan, false, &text, &e), HR_OK);
  apart = strstr(text, "\nuntouched storages, which have no place\n");
  assert_non_null(apart);
  for (hri_id k = 0; k < plan->job.storages.count; k++) {
    const hri_storage *storage = &plan->job.storages.items[k];
    const char *name = hri_name_get(&plan->job, storage->key);
    const bool lives = plan->placement.lives[k].begin <= plan->placement.lives[k].end;
    const char *at;
    char line[32];
    (void)snprintf(line, sizeof line, "\n  s%-6u ", k);
    at = strstr(text, line);
    assert_true((at == NULL) == storage->dead);
    if (storage->dead) continue;
    if ((at < apart) != lives) fail_msg("s%u is%s among what has a place", k, lives ? " not" : "");
    alive += lives;
    untouched += !lives;
    if (strstr(at, name) == NULL) fail_msg("%s is not in the dump", name);
  }
  hr_free(text);
  assert_true(untouched > 0); /* what the fusion of sums and norms leaves */
  assert_int_equal(hr_plan_dump(plan, true, &text, &e), HR_OK);
  json = json_loads(text, 0, NULL);
  assert_non_null(json);
  assert_int_equal(json_array_size(json_object_get(json, "storages")), alive);
  assert_int_equal(plan->info.storage_count, alive);
  json_decref(json);
  hr_free(text);
  hr_plan_destroy(plan);
}

/* ---- memory is refused ---- */

static hr_status read_samples(const hr_plan *plan, hr_error *e) {
  hr_sample *samples;
  uint32_t count;
  const hr_status status = hr_plan_samples(plan, HR_TIER_DEVICE, &samples, &count, e);
  if (status == HR_OK) hr_free(samples);
  else assert_null(samples);
  return status;
}

static hr_status read_dump(const hr_plan *plan, hr_error *e) {
  char *text;
  hr_status status = HR_OK;
  for (int json = 0; json < 2 && status == HR_OK; json++) {
    status = hr_plan_dump(plan, json != 0, &text, e);
    if (status == HR_OK) hr_free(text);
  }
  return status;
}

static hr_status read_layers(const hr_plan *plan, hr_error *e) {
  static hr_plan_layers layers;
  return hr_plan_layers_get(plan, &layers, e);
}

static hr_status read_snapshot(const hr_plan *plan, hr_error *e) {
  hr_snapshot *snapshot;
  const hr_status status = hr_plan_snapshot(plan, &snapshot, e);
  if (status == HR_OK) hr_snapshot_destroy(snapshot);
  return status;
}

static hr_status prove(const hr_plan *plan, hr_error *e) {
  return hri_placement_verify(&plan->job, &plan->placement, e);
}

static hr_status make_variant(const hr_plan *plan, hr_error *e) {
  hri_variant *variant;
  const hr_status status = hri_variant_create(plan, 16, &variant, e);
  if (status == HR_OK) hri_variant_destroy(variant);
  return status;
}

static hr_status make_again(const hr_plan *plan, hr_error *e) {
  hr_plan *again;
  const hr_status status = hr_plan_create(&plan->spec, &again, e);
  if (status == HR_OK) hr_plan_destroy(again);
  return status;
}

static hr_status draft_and_place(const hr_plan *plan, hr_error *e) {
  hr_plan *draft;
  HRI_TRY(hri_plan_draft(&plan->spec, plan, &draft, e));
  const hr_status status = hri_plan_place(draft, e);
  hr_plan_destroy(draft);
  return status;
}

static void refused_memory_is_survived(void **state) {
  static hr_status (*const readers[])(const hr_plan *, hr_error *) = {read_samples,  read_dump,      read_layers,
                                                                      read_snapshot, prove,          make_variant,
                                                                      make_again,    draft_and_place};
  hr_job job;
  hr_plan *plan;
  (void)state;
  make_job(&job, "micro-llama-bytes", "rtx-3090");
  job.packing = HR_PACKING_OFF;
  plan = planned(&job, NULL);
  for (size_t r = 0; r < sizeof readers / sizeof *readers; r++) {
    const uint64_t before = hri_mem_live_bytes();
    uint64_t nth = 0;
    hr_status status;
    do {
      hr_error e = {0};
      hri_mem_fail_after(++nth);
      status = readers[r](plan, &e);
      hri_mem_fail_after(0);
      if (status != HR_OK && status != HR_ERROR_MEMORY)
        fail_msg("reader %zu, allocation %llu: %s", r, (unsigned long long)nth, e.message);
      if (hri_mem_live_bytes() != before)
        fail_msg("reader %zu, allocation %llu: memory is left", r, (unsigned long long)nth);
    } while (status != HR_OK);
    print_message("reader %zu: %llu allocations failed in turn\n", r, (unsigned long long)(nth - 1));
    assert_true(nth > 2); /* it took memory, and each refusal came back as one */
  }
  hr_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(samples_follow_the_programs),
                                     cmocka_unit_test(samples_of_other_tiers),
                                     cmocka_unit_test(a_host_budget_counts),
                                     cmocka_unit_test(auto_says_whose_budget_is_too_small),
                                     cmocka_unit_test(remedies_of_a_refusal_are_the_jobs),
                                     cmocka_unit_test(a_fit_is_what_the_plan_says),
                                     cmocka_unit_test(dumps_name_everything),
                                     cmocka_unit_test(refused_memory_is_survived)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
