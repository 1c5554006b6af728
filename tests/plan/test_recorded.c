/* A CPU that is planned for without its backend: the recorded answers of the matrix-product library, levels, teams,
 * what a described device may say. That the linked backend answers alike is in tests/unit/test_demand.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/plan.h>

#include "backend/backend.h"
#include "backend/onednn_2_6_3.h"
#include "ops/attention/scratch.h"
#include "plan/plan.h"

/* Every line of the record: kind, type, out, three flags, team, M, N, K, and what the library said. */
static void test_rule_gives_every_recorded_answer(void **state) {
  FILE *file = fopen(HR_TEST_DATA "/plan/onednn-2.6.3.txt", "r");
  char line[256];
  int rows = 0, served = 0;
  (void)state;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    hri_gemm_shape s = {0};
    hri_onednn_answer answer;
    char flags[4];
    int kind, type, out, yes;
    long long m, n, k;
    unsigned long long scratch, packed;
    if (line[0] == '#') continue;
    assert_int_equal(sscanf(line, "%d %d %d %3s %d %lld %lld %lld %d %llu %llu", &kind, &type, &out, flags, &s.threads,
                            &m, &n, &k, &yes, &scratch, &packed),
                     11);
    s.kind = (hri_gemm_kind)kind, s.type = (hri_real)type, s.out = (hri_real)out, s.m = m, s.n = n, s.k = k;
    s.bias = flags[0] == '1', s.accumulate = flags[1] == '1', s.packed = flags[2] == '1';
    hri_onednn_recorded(HRI_ISA_AVX512_BF16, &s, &answer);
    if (answer.served != (yes != 0) || answer.scratch_bytes != scratch || answer.packing.bytes != packed)
      fail_msg("%.200s: the rule says %d, %llu, %llu", line, answer.served, (unsigned long long)answer.scratch_bytes,
               (unsigned long long)answer.packing.bytes);
    hri_onednn_recorded(HRI_ISA_AVX512, &s, &answer); /* fp32 as above, nothing for bf16 */
    assert_true(answer.served == (yes && s.type == HRI_REAL_F32));
    if (answer.served) assert_true(answer.scratch_bytes == scratch);
    hri_onednn_recorded(HRI_ISA_AVX2, &s, &answer);
    assert_false(answer.served);
    rows++, served += yes;
  }
  assert_int_equal(fclose(file), 0);
  assert_true(rows > 1000 && served > 1000);
}

static void make(hr_job *job, const char *model, const char *level, const char *libraries, uint32_t threads) {
  hr_error error;
  hr_job_init(job);
  assert_int_equal(hr_model_open(model, &job->model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job->device, &error), HR_OK);
  (void)snprintf(job->device.rates.instruction_set, sizeof job->device.rates.instruction_set, "%s", level);
  (void)snprintf(job->device.rates.libraries, sizeof job->device.rates.libraries, "%s", libraries);
  job->device.usable_bytes = UINT64_C(1) << 42;
  job->sequence_length = 256;
  job->threads = threads;
  assert_int_equal(hr_job_finish(job, &error), HR_OK);
}

/* All scratch of all nodes, staging of weights included. */
static uint64_t workspace_bytes(const char *model, const char *level, const char *libraries, uint32_t threads) {
  static hr_job job;
  hr_error error;
  hr_plan *plan;
  uint64_t bytes = 0;
  make(&job, model, level, libraries, threads);
  if (hr_plan_create(&job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  assert_false(hr_plan_get(plan)->scratch_exact); /* nobody was asked */
  for (size_t s = 0; s < plan->job.storages.count; s++)
    if (plan->job.storages.items[s].role == HRI_ROLE_WORKSPACE) bytes += plan->job.storages.items[s].bytes;
  hr_plan_destroy(plan);
  return bytes;
}

/* Scratch depends on level, team and library, and a plan is made for the ones that the device states. */
static void test_level_team_and_library_count(void **state) {
  uint64_t two = workspace_bytes("gpt2-124m", "avx512", "", 2), four = workspace_bytes("gpt2-124m", "avx512", "", 4);
  (void)state;
  assert_true(two > 0 && four > two);
  assert_int_not_equal(two, workspace_bytes("gpt2-124m", "base", "", 2));
  assert_int_not_equal(workspace_bytes("gpt2-124m", "base", "", 2), workspace_bytes("gpt2-124m", "avx2", "", 2));
  assert_int_not_equal(two, workspace_bytes("gpt2-124m", "avx512", "portable", 2));
  assert_int_equal(two, workspace_bytes("gpt2-124m", "avx512", "oneDNN 2.6.3", 2));
  assert_int_equal(workspace_bytes("gpt2-124m", "base", "portable", 2),
                   workspace_bytes("gpt2-124m", "base", "oneDNN 2.6.3", 2)); /* it serves nothing there */
}

static void test_unknown_level_is_refused(void **state) {
  static hr_job job;
  hr_error error;
  hr_plan *plan = NULL;
  (void)state;
  make(&job, "gpt2-124m", "sse9", "", 2);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "sse9"));
  assert_non_null(strstr(error.hint, "avx512bf16"));
  assert_null(plan);
}

/* A table device's scratch is by formula, and says so too; a job beyond 4 GiB keeps all its bytes. */
static void test_large_and_other_devices(void **state) {
  static hr_job job;
  hr_error error;
  hr_plan *plan;
  (void)state;
  make(&job, "llama-2-70b", "avx512bf16", "", 8);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  assert_true(hr_plan_get(plan)->tiers[0].reserved_bytes > UINT64_C(1000) << 30);
  hr_plan_destroy(plan);
  assert_int_equal(hr_device_find("rtx-4090", &job.device, &error), HR_OK);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  assert_false(hr_plan_get(plan)->scratch_exact);
  hr_plan_destroy(plan);
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
  assert_true(backend->estimated && backend->team == 4);
  hri_backend_close(backend);
  assert_false(hr_device_load(&device, 4));
}

/* Absurd shapes saturate on every level instead of wrapping. */
static void test_absurd_shapes(void **state) {
  hri_attention_shape absurd = {INT64_MAX / 4, INT64_MAX / 4, 1, 1, 64, 0, 0, HRI_REAL_F32};
  (void)state;
  for (int level = 0; level < HRI_ISA_COUNT; level++)
    assert_true(hri_attention_backward_scratch((hri_isa)level, &absurd, 1) == UINT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rule_gives_every_recorded_answer),
      cmocka_unit_test(test_level_team_and_library_count),
      cmocka_unit_test(test_unknown_level_is_refused),
      cmocka_unit_test(test_large_and_other_devices),
      cmocka_unit_test(test_nothing_runs),
      cmocka_unit_test(test_absurd_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
