/* Shape variants: rows that are not packed run in programs for their length, over the same weights in the same arena,
 * and nothing but padding is left out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/scratch.h"
#include "train/session.h"

static const char *directory;
static char *data;

typedef struct variant_case {
  const char *model, *recompute;
  uint32_t sequence, micro_batch, accumulate, threads;
  hr_precision precision;
  hr_update update;
  hr_weight_packing weight_packing;
  bool check;
} variant_case;

static const variant_case cases[] = {
    {"micro-llama-bytes", "none", 256, 3, 1, 2, HR_PRECISION_FP32, HR_UPDATE_AFTER, HR_WEIGHT_PACKING_AUTO, false},
    {"micro-gpt2-bytes", "block", 203, 2, 3, 1, HR_PRECISION_FP32, HR_UPDATE_AFTER, HR_WEIGHT_PACKING_OFF, false},
    {"micro-llama-bytes", "selective", 256, 2, 2, 2, HR_PRECISION_BF16, HR_UPDATE_AFTER, HR_WEIGHT_PACKING_PERSISTENT,
     false},
    {"micro-gpt2-bytes", "none", 128, 4, 1, 3, HR_PRECISION_BF16_PURE, HR_UPDATE_AFTER, HR_WEIGHT_PACKING_TRANSIENT,
     false},
    {"micro-llama-bytes", "none", 192, 2, 1, 2, HR_PRECISION_FP32, HR_UPDATE_IN_BACKWARD, HR_WEIGHT_PACKING_AUTO, true},
};
enum { CASES = sizeof cases / sizeof *cases };

static hr_job job_of(const variant_case *c, hr_purpose purpose) {
  hr_job job;
  hr_error error = {0};
  hr_job_init(&job);
  assert_int_equal(hr_model_open(c->model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  assert_int_equal(hr_recompute_parse(purpose == HR_PURPOSE_TRAIN ? c->recompute : "none", &job.recompute, &error),
                   HR_OK);
  job.purpose = purpose;
  job.sequence_length = c->sequence;
  job.micro_batch = c->micro_batch;
  job.accumulate = c->accumulate;
  job.threads = c->threads;
  job.precision = c->precision;
  job.update = c->update;
  job.weight_packing = c->weight_packing;
  job.check = c->check;
  job.packing = HR_PACKING_OFF;
  job.steps = 12;
  job.learning_rate = 1e-3;
  if (c->update == HR_UPDATE_IN_BACKWARD) job.clip = 0;
  if (hr_job_finish(&job, &error) != HR_OK) fail_msg("%s: %s", c->model, error.message);
  return job;
}

/* ---- lengths ---- */

static void test_lengths_rise_below_the_full_one(void **state) {
  (void)state;
  for (uint32_t full = 1; full < 3000; full += full < 300 ? 1 : 97) {
    hr_job job = job_of(&cases[0], HR_PURPOSE_TRAIN);
    uint32_t lengths[HRI_MAX_VARIANTS], count;
    job.sequence_length = full;
    count = hri_variant_lengths(&job, lengths);
    assert_true(count <= HRI_MAX_VARIANTS);
    for (uint32_t k = 0; k < count; k++)
      assert_true(lengths[k] >= 64 && lengths[k] < full && lengths[k] % 16 == 0 &&
                  (k == 0 || lengths[k] > lengths[k - 1]));
    assert_true(full < 300 || count >= 4); /* long rows have many */
    job.packing = HR_PACKING_PACK;
    assert_int_equal(hri_variant_lengths(&job, lengths), 0);
  }
}

/* ---- one arena ---- */

static void test_variants_carry_the_same_in_the_same_arena(void **state) {
  (void)state;
  for (size_t c = 0; c < CASES; c++) {
    hr_job job = job_of(&cases[c], HR_PURPOSE_TRAIN);
    hr_error error = {0};
    uint32_t lengths[HRI_MAX_VARIANTS], count = hri_variant_lengths(&job, lengths);
    hr_plan *plan;
    hri_executor *base;
    hri_transfer none = {0};
    assert_int_equal(hri_plan_create(&job, NULL, &plan, &error), HR_OK);
    assert_int_equal(hri_executor_create(&plan->job, &plan->placement, plan->backend, &none, NULL, &base, &error),
                     HR_OK);
    assert_true(count >= 1);
    for (uint32_t k = 0; k < count; k++) {
      hri_variant *variant;
      hri_executor *beside;
      if (hri_variant_create(plan, lengths[k], &variant, &error) != HR_OK) fail_msg("%s", error.message);
      assert_true(variant->placement.peak_bytes[HRI_DEVICE] <= plan->placement.peak_bytes[HRI_DEVICE]);
      if (hri_executor_create_beside(base, &variant->job, &variant->placement, hri_variant_programs(), &beside,
                                     &error) != HR_OK)
        fail_msg("%s", error.message);
      assert_ptr_equal(hri_executor_control(beside), hri_executor_control(base));
      for (size_t p = 0; p < plan->job.params.count; p++) {
        const hri_param_range *here = hri_param_whole(&plan->job, &plan->job.params.items[p]),
                              *there = hri_param_whole(&variant->job, &variant->job.params.items[p]);
        assert_ptr_equal(hri_executor_view(beside, there->weight), hri_executor_view(base, here->weight));
        for (int m = 0; m < HRI_STATE_TENSORS; m++)
          if (here->state[m] != HRI_NONE)
            assert_ptr_equal(hri_executor_view(beside, there->state[m]), hri_executor_view(base, here->state[m]));
      }
      assert_int_equal(hri_executor_run(beside, HRI_LOAD, &error),
                       HR_ERROR_INTERNAL); /* only what it was prepared for */
      hri_executor_destroy(beside);
      hri_variant_destroy(variant);
    }
    hri_executor_destroy(base);
    hr_plan_destroy(plan);
  }
}

/* A job that carries other storages, or needs a larger arena, is refused. */
static void test_a_foreign_job_is_refused(void **state) {
  hr_job job = job_of(&cases[0], HR_PURPOSE_TRAIN), other = job_of(&cases[1], HR_PURPOSE_TRAIN), longer = job;
  hr_error error = {0};
  hr_plan *plan, *foreign, *large;
  hri_executor *base, *beside;
  hri_transfer none = {0};
  (void)state;
  longer.sequence_length *= 2;
  assert_int_equal(hri_plan_create(&job, NULL, &plan, &error), HR_OK);
  assert_int_equal(hri_plan_create(&other, NULL, &foreign, &error), HR_OK);
  assert_int_equal(hri_plan_create(&longer, NULL, &large, &error), HR_OK);
  assert_int_equal(hri_executor_create(&large->job, &large->placement, large->backend, &none, NULL, &base, &error),
                   HR_OK);
  assert_int_equal(hri_executor_create_beside(base, &foreign->job, &foreign->placement, UINT16_MAX, &beside, &error),
                   HR_ERROR_INTERNAL);
  assert_non_null(strstr(error.message, "carry different"));
  hri_executor_destroy(base);
  assert_int_equal(hri_executor_create(&plan->job, &plan->placement, plan->backend, &none, NULL, &base, &error), HR_OK);
  assert_int_equal(hri_executor_create_beside(base, &large->job, &large->placement, UINT16_MAX, &beside, &error),
                   HR_ERROR_INTERNAL);
  assert_non_null(strstr(error.message, "does not fit"));
  hri_executor_destroy(base);
  hr_plan_destroy(plan);
  hr_plan_destroy(foreign);
  hr_plan_destroy(large);
}

/* ---- the same mathematics ---- */

static hri_dataset *open_data(const hr_job *job) {
  const char *paths[1] = {data};
  hr_error error = {0};
  hri_dataset *set;
  hri_dataset_options options = {.paths = paths,
                                 .path_count = 1,
                                 .separator = "\n\n",
                                 .sequence = job->sequence_length,
                                 .vocabulary = job->model.vocabulary_size,
                                 .eos_token = -1,
                                 .packing = HR_PACKING_OFF};
  if (hri_dataset_open(&options, &set, &error) != HR_OK) fail_msg("%s", error.message);
  return set;
}

static void test_rows_take_the_shortest_shape(void **state) {
  hri_session s = {.shape_count = 3, .shapes = {{.sequence = 64}, {.sequence = 128}, {.sequence = 200}}};
  (void)state;
  assert_int_equal(hri_session_shape(&s, 0)->sequence, 64);
  assert_int_equal(hri_session_shape(&s, 64)->sequence, 64);
  assert_int_equal(hri_session_shape(&s, 65)->sequence, 128);
  assert_int_equal(hri_session_shape(&s, 129)->sequence, 200);
  assert_int_equal(hri_session_shape(&s, 200)->sequence, 200);
}

/* Weights are those of the same seed; the loss of the short shapes is that of full rows but for rounding. */
static void test_evaluation_equals_full_rows(void **state) {
  (void)state;
  for (size_t c = 0; c < CASES; c++) {
    hr_job job = job_of(&cases[c], HR_PURPOSE_EVALUATE);
    hr_error error = {0};
    hri_session s = {0};
    hri_dataset *set = open_data(&job);
    double loss, full,
        tolerance = job.precision == HR_PRECISION_FP32 ? 2e-6 : 2e-3; /* relative: unit roundoff x sums of a row */
    uint64_t tokens, full_tokens, shorter = 0;
    assert_int_equal(hri_session_plan(&s, &job, NULL, &error), HR_OK);
    assert_int_equal(hri_session_load(&s, NULL, NULL, &error), HR_OK);
    assert_true(s.shape_count >= 2);
    for (uint64_t row = 0; row < hri_dataset_row_count(set); row++) {
      uint64_t length;
      assert_int_equal(hri_dataset_row_length(set, row, &length, &error), HR_OK);
      shorter += hri_session_shape(&s, length)->sequence < job.sequence_length;
    }
    assert_true(shorter > 0); /* else nothing is compared */
    assert_int_equal(hri_session_evaluate(&s, set, 0, &loss, &tokens, &error), HR_OK);
    {
      hri_session whole = s; /* the same session with the full shape alone */
      whole.shapes[0] = s.shapes[s.shape_count - 1];
      whole.shape_count = 1;
      assert_int_equal(hri_session_evaluate(&whole, set, 0, &full, &full_tokens, &error), HR_OK);
    }
    assert_int_equal(tokens, full_tokens);
    assert_true(isfinite(loss));
    if (!(fabs(loss - full) <= tolerance * full)) fail_msg("case %zu: %.9g is not %.9g", c, loss, full);
    hri_dataset_destroy(set);
    hri_session_close(&s);
  }
}

typedef struct losses {
  double loss[64];
  uint64_t count;
} losses;

static void on_event(void *context, const hr_event *event) {
  losses *l = context;
  if (event->kind == HR_EVENT_STEP) l->loss[l->count++] = event->metrics->loss;
}

/* With a profile a run has full rows alone. Adam's steps amplify roundings, so later losses may differ more. */
static void test_training_equals_full_rows(void **state) {
  (void)state;
  for (size_t c = 0; c < CASES; c++) {
    hr_job job = job_of(&cases[c], HR_PURPOSE_TRAIN);
    hr_error error = {0};
    losses runs[2] = {{.count = 0}, {.count = 0}};
    for (int full = 0; full < 2; full++) {
      const char *paths[1] = {data}, *out = path_of("%s/run-%zu-%d", directory, c, full);
      hr_run_options options = {.data_paths = paths,
                                .data_path_count = 1,
                                .data = {.document_separator = "\n\n"},
                                .out_directory = out,
                                .on_event = on_event,
                                .context = &runs[full],
                                .profile_path = full ? path_of("%s/trace.json", directory) : NULL};
      hr_run_result result;
      if (hr_train(&job, &options, &result, &error) != HR_OK) fail_msg("%s", error.message);
      assert_int_equal(result.reserved_bytes[HR_TIER_DEVICE], result.planned_bytes[HR_TIER_DEVICE]);
    }
    assert_int_equal(runs[0].count, job.steps);
    for (uint64_t k = 0; k < job.steps; k++) {
      double tolerance = (job.precision == HR_PRECISION_FP32 ? 1e-5 : 4e-3) * (double)(1 + k);
      if (!(fabs(runs[0].loss[k] - runs[1].loss[k]) <= tolerance * runs[1].loss[k]))
        fail_msg("case %zu, step %llu: loss %.9g is not %.9g", c, (unsigned long long)k + 1, runs[0].loss[k],
                 runs[1].loss[k]);
    }
  }
}

static int make_directory(void **state) {
  char *text = malloc(1 << 16);
  size_t used = 0;
  (void)state;
  directory = scratch_make("shapes");
  data = strdup(path_of("%s/data.txt", directory)); /* path_of has few buffers */
  for (uint32_t d = 0; d < 60; d++) {               /* documents of 5 to 250 bytes */
    uint32_t word[4];
    hri_philox(7, d, 0, word);
    for (uint32_t k = 0, length = 5 + word[0] % (d % 3 ? 60 : 245); k < length; k++)
      text[used++] = (char)('a' + (k * k + d + word[1]) % 23);
    memcpy(text + used, "\n\n", 2);
    used += 2;
  }
  put_file(data, text, used);
  free(text);
  return 0;
}

static int remove_directory(void **state) {
  (void)state;
  scratch_remove(directory);
  free(data);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lengths_rise_below_the_full_one),
      cmocka_unit_test(test_variants_carry_the_same_in_the_same_arena),
      cmocka_unit_test(test_a_foreign_job_is_refused),
      cmocka_unit_test(test_rows_take_the_shortest_shape),
      cmocka_unit_test(test_evaluation_equals_full_rows),
      cmocka_unit_test(test_training_equals_full_rows),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
