/* The same plan with the CPU backend linked and without it: for whole jobs, every node's scratch and packed operands as
 * the backend says them are those that planning alone computes, at every level that this processor has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "ops/linear/product.h"
#include "plan/plan.h"

static uint64_t compare(const hri_backend *theirs, const hri_backend *ours, const hr_plan *plan) {
  const hri_job *job = &plan->job;
  hr_error error;
  uint64_t products = 0;
  for (size_t n = 0; n < job->nodes.count; n++) {
    const hri_node *node = &job->nodes.items[n];
    uint64_t a, b;
    bool pays[2];
    assert_int_equal(theirs->workspace(theirs->self, job, node, &a, &error), HR_OK);
    assert_int_equal(ours->workspace(ours->self, job, node, &b, &error), HR_OK);
    if (a != b)
      fail_msg("%s of %s: %llu bytes, without the backend %llu", hri_op_name(node->op), theirs->instruction_set,
               (unsigned long long)a, (unsigned long long)b);
    if (!hri_rule_get(node->op)->product) continue;
    products++;
    assert_int_equal(theirs->packing(theirs->self, job, node, &a, &pays[0], &error), HR_OK);
    assert_int_equal(ours->packing(ours->self, job, node, &b, &pays[1], &error), HR_OK);
    assert_true(a == b && pays[0] == pays[1]);
  }
  assert_true(theirs->fixed_bytes(theirs->self, job, 2, 4096) == ours->fixed_bytes(ours->self, job, 2, 4096));
  return products;
}

typedef struct one {
  const char *model;
  hr_precision precision;
  hr_purpose purpose;
  uint32_t sequence, threads;
} one;

/* With every way to compute products that the level has, and one that mixes them. */
static void same_at(const char *level, const char *products) {
  static const one jobs[] = {
      {"gpt2-124m", HR_PRECISION_FP32, HR_PURPOSE_TRAIN, 256, 2},
      {"smollm2-135m", HR_PRECISION_BF16, HR_PURPOSE_TRAIN, 1024, 4},
      {"smollm2-135m", HR_PRECISION_BF16_PURE, HR_PURPOSE_TRAIN, 512, 16},
      {"smollm2-135m", HR_PRECISION_FP32, HR_PURPOSE_GENERATE, 512, 2},
      {"qwen3-0.6b", HR_PRECISION_BF16, HR_PURPOSE_EVALUATE, 256, 8},
      {"gemma-2-2b", HR_PRECISION_FP32, HR_PURPOSE_TRAIN, 333, 3},
  };
  static hr_job job;
  assert_int_equal(setenv("HEADROOM_ISA", level, 1), 0);
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
    hr_device device;
    hri_backend *theirs, *ours;
    hr_error error;
    hr_plan *plan = NULL;
    hr_job_init(&job);
    assert_int_equal(hr_model_open(jobs[i].model, &job.model, &error), HR_OK);
    assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
    job.precision = jobs[i].precision, job.purpose = jobs[i].purpose, job.threads = jobs[i].threads,
    job.sequence_length = jobs[i].sequence;
    job.weight_packing = HR_WEIGHT_PACKING_OFF; /* the nodes as they stand before packing */
    if (job.purpose == HR_PURPOSE_GENERATE) job.context_length = jobs[i].sequence;
    job.device.usable_bytes = UINT64_C(1) << 40;
    (void)snprintf(job.device.products, sizeof job.device.products, "%s", products);
    if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &plan, &error) != HR_OK)
      fail_msg("%s", error.message);
    theirs = plan->backend;
    assert_true(hr_plan_get(plan)->scratch_exact && !theirs->estimated);
    device = theirs->device;
    memcpy(device.rates.instruction_set, theirs->instruction_set, sizeof theirs->instruction_set);
    assert_int_equal(hri_described_cpu_open(&device, jobs[i].threads, &ours, &error), HR_OK);
    assert_false(ours->estimated);
    assert_string_equal(ours->libraries, theirs->libraries);
    assert_true(ours->products.origin == theirs->products.origin &&
                theirs->products.origin == (*products ? HR_PRODUCTS_GIVEN : HR_PRODUCTS_SHIPPED));
    assert_true(compare(theirs, ours, plan) > 0);
    hri_backend_close(ours);
    hr_plan_destroy(plan);
  }
}

static void test_same_scratch_without_the_backend(void **state) {
  static const char *const products[] = {"", "products 2, bf16 by fma", "products 2, bf16 by dot",
                                         "products 2, bf16 by few fdf, forward dfd, dx fdf, dw dff"};
  hri_gemm_table table;
  hri_isa own;
  hr_error error;
  (void)state;
  assert_int_equal(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &own, &error), HR_OK);
  for (int isa = 0; isa < HRI_ISA_COUNT; isa++)
    for (size_t k = 0; hri_isa_has(own, (hri_isa)isa) && k < sizeof products / sizeof *products; k++)
      if (!products[k][0] || hri_gemm_parse(products[k], (hri_isa)isa, &table))
        same_at(hri_isa_name((hri_isa)isa), products[k]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_scratch_without_the_backend)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
