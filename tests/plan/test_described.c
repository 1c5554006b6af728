/* A CPU that is planned for without its backend: levels, teams, classes, what a described device may say. That the linked backend answers alike is in tests/unit/test_demand.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/field.h>
#include <headroom/plan.h>

#include "backend/backend.h"
#include "ops/attention/scratch.h"
#include "plan/plan.h"

/* `factor`: bf16 products by those of fp32; 0: fp32 alone. */
static void make(hr_job *job, const char *model, const char *level, double factor, uint32_t threads) {
  hr_error error;
  hr_job_init(job);
  assert_int_equal(hr_model_open(model, &job->model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job->device, &error), HR_OK);
  (void)snprintf(job->device.rates.instruction_set, sizeof job->device.rates.instruction_set, "%s", level);
  job->device.usable_bytes = UINT64_C(1) << 42;
  job->device.flops_bf16 = factor * job->device.flops_fp32;
  if (factor > 0) job->precision = HR_PRECISION_BF16;
  job->sequence_length = 256;
  job->threads = threads;
  assert_int_equal(hr_job_finish(job, &error), HR_OK);
}

/* All scratch of all nodes, staging of weights included. */
static uint64_t scratch_of(const hr_plan *plan) {
  uint64_t bytes = 0;
  for (size_t s = 0; s < plan->job.storages.count; s++)
    if (plan->job.storages.items[s].role == HRI_ROLE_WORKSPACE) bytes += plan->job.storages.items[s].bytes;
  return bytes;
}

static uint64_t workspace_bytes(const char *level, double factor, uint32_t threads) {
  static hr_job job;
  hr_error error;
  hr_plan *plan;
  uint64_t bytes;
  make(&job, "gpt2-124m", level, factor, threads);
  if (hr_plan_create(&job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(hr_plan_get(plan)->scratch_exact);
  bytes = scratch_of(plan);
  hr_plan_destroy(plan);
  return bytes;
}

/* Scratch depends on level, team and class, and a plan is made for those that the device states, or that its rates show. */
static void test_level_team_and_class_count(void **state) {
  uint64_t two = workspace_bytes("avx512", 0, 2), four = workspace_bytes("avx512", 0, 4);
  uint64_t full = workspace_bytes("avx512bf16", 2, 2), half = workspace_bytes("avx512bf16", 1, 2),
           tiles = workspace_bytes("amx", 6, 2);
  (void)state;
  assert_true(two > 0 && four > two);
  assert_int_not_equal(two, workspace_bytes("base", 0, 2));
  assert_int_not_equal(workspace_bytes("base", 0, 2), workspace_bytes("avx2", 0, 2));
  assert_true(full != half && tiles != full && tiles != half);
  assert_int_equal(two, workspace_bytes("", 0, 2));
  assert_int_equal(full, workspace_bytes("", 2, 2));
  assert_int_equal(half, workspace_bytes("", 0.9, 2));
  assert_int_equal(tiles, workspace_bytes("", 6, 2));
}

/* A budget says how much such a CPU has where its usable_bytes do not, and what was said of it stays. */
static void test_a_budget_describes_a_cpu(void **state) {
  static hr_job job;
  hr_error error;
  hr_plan *plan;
  uint64_t bytes[2];
  (void)state;
  for (int level = 0; level < 2; level++) {
    hr_job_init(&job);
    assert_int_equal(hr_model_open("gpt2-124m", &job.model, &error), HR_OK);
    assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
    (void)snprintf(job.device.rates.instruction_set, sizeof job.device.rates.instruction_set, "%s",
                   level ? "base" : "avx512");
    assert_int_equal(hr_job_set(&job, "budget", "8GiB", &error), HR_OK);
    job.threads = 2;
    if (hr_job_finish(&job, &error) != HR_OK) fail_msg("%s", error.message);
    assert_string_equal(job.device.rates.instruction_set, level ? "base" : "avx512");
    assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
    assert_true(hr_plan_get(plan)->fits && hr_plan_get(plan)->budget_bytes == UINT64_C(8) << 30);
    bytes[level] = scratch_of(plan);
    hr_plan_destroy(plan);
  }
  assert_true(bytes[0] != bytes[1]);
  assert_int_equal(hr_job_set(&job, "budget", "50%", &error), HR_OK);
  assert_int_equal(hr_job_finish(&job, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "usable_bytes"));
}

static void test_unknown_level_is_refused(void **state) {
  static hr_job job;
  hr_error error;
  hr_plan *plan = NULL;
  (void)state;
  make(&job, "gpt2-124m", "sse9", 0, 2);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "sse9"));
  assert_non_null(strstr(error.hint, "avx512bf16"));
  assert_null(plan);
}

/* Scratch of a card that kernels are compiled for is by their rules, of another by formula, and says so too; a job beyond
 * 4 GiB keeps all its bytes. */
static void test_large_and_other_devices(void **state) {
  static hr_job job;
  hr_error error;
  hr_plan *plan;
  (void)state;
  make(&job, "llama-2-70b", "avx512bf16", 2, 8);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  assert_true(hr_plan_get(plan)->tiers[0].reserved_bytes > UINT64_C(1000) << 30);
  hr_plan_destroy(plan);
  assert_int_equal(hr_device_find("rtx-4090", &job.device, &error), HR_OK);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  assert_true(hr_plan_get(plan)->scratch_exact);
  hr_plan_destroy(plan);
  for (int k = 0; k < 2; k++) {
    assert_int_equal(hr_device_find(k ? "mi300x" : "t4", &job.device, &error), HR_OK);
    job.precision = HR_PRECISION_FP32;
    assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
    assert_false(hr_plan_get(plan)->scratch_exact);
    hr_plan_destroy(plan);
  }
}

/* Planning runs nothing: the backend has no way to. */
static void test_nothing_runs(void **state) {
  hr_device device;
  hri_backend *backend;
  hr_error error;
  (void)state;
  assert_int_equal(hr_device_find("cpu", &device, &error), HR_OK);
  assert_int_equal(hri_backend_open(&device, 4, &backend, &error), HR_OK);
  assert_false(hri_backend_runs(backend));
  assert_true(!backend->estimated && backend->team == 4);
  hri_backend_close(backend);
  assert_false(hr_device_load(&device, 4));
}

/* Absurd shapes saturate on every level instead of wrapping. */
static void test_absurd_shapes(void **state) {
  hri_attention_shape absurd = {.batch = INT64_MAX / 4,
                                .sequence = INT64_MAX / 4,
                                .heads = 1,
                                .kv_heads = 1,
                                .head_dim = 64};
  (void)state;
  for (int level = 0; level < HRI_ISA_COUNT; level++)
    assert_true(hri_attention_backward_scratch((hri_isa)level, &absurd, 1) == UINT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_level_team_and_class_count),
      cmocka_unit_test(test_a_budget_describes_a_cpu),
      cmocka_unit_test(test_unknown_level_is_refused),
      cmocka_unit_test(test_large_and_other_devices),
      cmocka_unit_test(test_nothing_runs),
      cmocka_unit_test(test_absurd_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
