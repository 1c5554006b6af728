/* Jobs in words: defaults, what follows from other fields, ranges, the legality table row by row, --recompute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <headroom/job.h>
#include <headroom/plan.h>

static hr_job job_for(const char *model) {
  hr_job job;
  hr_error error;
  hr_job_init(&job);
  if (hr_model_open(model, &job.model, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hr_device_find("rtx-4090", &job.device, &error), HR_OK);
  return job;
}

static void finish(hr_job *job) {
  hr_error error;
  if (hr_job_finish(job, &error) != HR_OK) fail_msg("%s", error.message);
}

static void assert_refused(const hr_job *job, const char *named) {
  hr_job copy = *job;
  hr_error error = {0};
  hr_status status = hr_job_finish(&copy, &error);
  if (status != HR_ERROR_USAGE || !strstr(error.message, named))
    fail_msg("status %d, \"%s\" does not name %s", status, error.message, named);
  assert_false(copy.finished);
  copy.finished = job->finished;
  assert_memory_equal(&copy, job, sizeof copy); /* else a refused job is as it was */
}

static void test_defaults(void **state) {
  hr_job job = job_for("llama-3-8b");
  (void)state;
  assert_true(job.learning_rate == 5e-5 && job.beta1 == 0.9 && job.beta2 == 0.999 && job.epsilon == 1e-8 &&
              job.weight_decay == 0 && job.clip == 1);
  assert_int_equal(job.optimizer, HR_OPTIMIZER_ADAMW);
  assert_int_equal(job.schedule, HR_SCHEDULE_LINEAR);
  assert_int_equal(job.attention, HR_ATTENTION_FLASH);
  assert_int_equal(job.recompute.kind, HR_RECOMPUTE_NONE);
  assert_true(job.on_nonfinite == HR_ON_NONFINITE_STOP && job.max_skipped == 20 && job.label_smoothing == 0 &&
              job.neftune_alpha == 0 && job.dropout == 0);
  finish(&job);
  assert_int_equal(job.sequence_length, 1024);
  assert_int_equal(job.micro_batch, 1);
  assert_int_equal(job.accumulate, 1);
  assert_int_equal(job.loss_chunk, 1024); /* 1024 tokens, 501 MiB of logits: one chunk of all rows */
  assert_true(job.threads >= 1);
  assert_true(job.budget_bytes == job.device.usable_bytes);
  assert_true(job.clip == 1);
  job = job_for("micro-llama-bytes");
  finish(&job);
  assert_int_equal(job.sequence_length, 256); /* as many as the model has positions */
}

static void test_finishing_twice_changes_nothing(void **state) {
  hr_job job = job_for("llama-3-8b"), again;
  (void)state;
  job.recompute.kind = HR_RECOMPUTE_SQRT;
  job.update = HR_UPDATE_IN_BACKWARD;
  job.sequence_length = 8; /* fewer tokens than the smallest chunk */
  finish(&job);
  again = job;
  finish(&again);
  assert_memory_equal(&job, &again, sizeof job);
}

static void test_loss_chunk(void **state) {
  hr_job job = job_for("gpt2");
  (void)state;
  job.micro_batch = 4;
  finish(&job);
  assert_int_equal(job.loss_chunk, 1024);
  job = job_for("gpt2");
  job.sequence_length = 256; /* 49 MiB of logits */
  finish(&job);
  assert_int_equal(job.loss_chunk, 256);
  job = job_for("tiny-llama-bytes");
  job.micro_batch = 4; /* 4 MiB of logits: 4096 tokens at once */
  finish(&job);
  assert_int_equal(job.loss_chunk, 4096);
  job.loss_chunk = HR_LOSS_CHUNK_OFF;
  finish(&job);
  assert_true(job.loss_chunk == HR_LOSS_CHUNK_OFF);
  job.loss_chunk = 512;
  finish(&job);
  assert_int_equal(job.loss_chunk, 512);
  job.loss_chunk = 15;
  assert_refused(&job, "--loss-chunk");
}

static void test_sqrt(void **state) {
  static const struct {
    const char *model;
    uint32_t every;
  } cases[] = {{"gpt2", 3}, {"llama-2-7b", 6}, {"llama-2-70b", 9}, {"micro-gpt2-bytes", 1}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_job job = job_for(cases[i].model);
    job.recompute.kind = HR_RECOMPUTE_SQRT;
    finish(&job);
    assert_int_equal(job.recompute.every, cases[i].every);
  }
}

#define assert_field_refused(change, named)                                                                            \
  do {                                                                                                                 \
    hr_job broken = job;                                                                                               \
    broken.change;                                                                                                     \
    assert_refused(&broken, named);                                                                                    \
  } while (0)

static void test_ranges(void **state) {
  hr_job job = job_for("llama-3-8b");
  hr_error error = {0};
  (void)state;
  assert_field_refused(accumulate = 0, "--accumulate");
  assert_field_refused(accumulate = UINT32_MAX, "--accumulate");
  assert_field_refused(sequence_length = 1, "--seq");
  assert_field_refused(given = HR_GIVEN_SEQUENCE, "--seq");      /* --seq 0 */
  assert_field_refused(micro_batch = 1u << 21, "--micro-batch"); /* 2^31 tokens */
  assert_field_refused(micro_batch = UINT32_MAX, "--micro-batch");
  assert_field_refused(learning_rate = -1, "--lr");
  assert_field_refused(learning_rate = NAN, "--lr");
  assert_field_refused(weight_decay = INFINITY, "--weight-decay");
  assert_field_refused(beta1 = 1, "--betas");
  assert_field_refused(beta2 = -0.1, "--betas");
  assert_field_refused(epsilon = 0, "--eps");
  assert_field_refused(epsilon = 1e-50, "--eps"); /* 0 in fp32 */
  assert_field_refused(epsilon = 1e-45, "--eps"); /* 0 once it is multiplied by a bias correction */
  assert_field_refused(momentum = 1, "--momentum");
  assert_field_refused(clip = -1, "--clip");
  assert_field_refused(warmup = -1, "--warmup");
  assert_field_refused(decay = -1, "--decay");
  assert_field_refused(min_lr_ratio = 1.1, "--min-lr-ratio");
  assert_field_refused(epochs = 0, "--epochs");
  assert_field_refused(threads = 5000, "--threads");
  assert_field_refused(given = HR_GIVEN_BUDGET, "--budget");
  assert_field_refused(budget_share = 1.5, "--budget");
  assert_field_refused(budget_share = NAN, "--budget");
  assert_field_refused(optimizer = (hr_optimizer)9, "--optimizer");
  assert_field_refused(on_nonfinite = (hr_on_nonfinite)2, "--on-nonfinite");
  assert_field_refused(max_skipped = 0, "--max-skipped");
  assert_field_refused(dropout = 1, "--dropout");
  assert_field_refused(dropout = -0.5, "--dropout");
  assert_field_refused(neftune_alpha = -1, "--neftune-alpha");
  assert_field_refused(label_smoothing = 1, "--label-smoothing");
  assert_field_refused(label_smoothing = -0.1, "--label-smoothing");
  assert_field_refused(recompute.kind = HR_RECOMPUTE_LEVELS, "--recompute");
  assert_field_refused(model.layer_count = 0, "layer_count");
  job.sequence_length = 1u << 31; /* of one row: there is no --micro-batch to lower */
  assert_int_equal(hr_job_finish(&job, &error), HR_ERROR_USAGE);
  assert_null(strstr(error.hint, "--micro-batch"));
  job.sequence_length = 0;
  job.micro_batch = (1u << 21) - 1; /* one row less than 2^31 tokens is legal */
  finish(&job);
}

static void test_clip_excludes_updates_in_the_backward(void **state) {
  hr_job job = job_for("llama-2-7b");
  hr_error error;
  (void)state;
  job.update = HR_UPDATE_IN_BACKWARD;
  assert_field_refused(given = HR_GIVEN_CLIP, "--clip");
  assert_field_refused(clip = 0.5, "the global norm needs all gradients before the first update");
  job.given = HR_GIVEN_CLIP;
  assert_int_equal(hr_job_finish(&job, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "25.10 GiB")); /* 4 x 6,738,415,616 bytes */
  job.given = 0;                                    /* the default gives way */
  finish(&job);
  assert_true(job.clip == 0);
  job = job_for("llama-2-7b"); /* nothing is updated, so nothing is excluded */
  job.purpose = HR_PURPOSE_EVALUATE;
  job.update = HR_UPDATE_IN_BACKWARD;
  job.given = HR_GIVEN_CLIP;
  finish(&job);
}

static void test_skipping_excludes_updates_in_the_backward(void **state) {
  hr_job job = job_for("llama-2-7b");
  hr_error error;
  (void)state;
  job.on_nonfinite = HR_ON_NONFINITE_SKIP;
  finish(&job); /* with clip, and without */
  job.clip = 0;
  finish(&job);
  job.update = HR_UPDATE_IN_BACKWARD;
  assert_refused(
      &job,
      "--update in-backward and --on-nonfinite skip exclude each other: whether a step is skipped is known when its last gradient is made");
  assert_int_equal(hr_job_finish(&job, &error), HR_ERROR_USAGE);
  assert_non_null(
      strstr(error.hint,
             "give --on-nonfinite stop or leave --update out; skipping would keep 25.10 GiB of gradients alive"));
  job.clip = 1; /* the default clip gives way, skipping was asked for */
  assert_refused(&job, "--on-nonfinite skip");
  job.on_nonfinite = HR_ON_NONFINITE_STOP;
  finish(&job);
  job = job_for("llama-2-7b"); /* nothing is updated, so nothing is excluded */
  job.purpose = HR_PURPOSE_EVALUATE;
  job.update = HR_UPDATE_IN_BACKWARD;
  job.on_nonfinite = HR_ON_NONFINITE_SKIP;
  finish(&job);
}

static void test_accumulation_excludes_updates_in_the_backward(void **state) {
  hr_job job = job_for("llama-2-7b");
  (void)state;
  job.update = HR_UPDATE_IN_BACKWARD;
  assert_field_refused(accumulate = 2, "--accumulate");
  finish(&job);
}

static void test_recompute_beyond_the_layers(void **state) {
  hr_job job = job_for("gpt2");
  (void)state;
  job.recompute.kind = HR_RECOMPUTE_EVERY;
  assert_refused(&job, "--recompute every:K");
  assert_field_refused(recompute.every = 13, "--recompute every:K");
  job.recompute.every = 12;
  finish(&job);
  job = job_for("gpt2");
  assert_int_equal(hr_recompute_parse("levels:keep*13", &job.recompute, NULL), HR_OK);
  assert_refused(&job, "--recompute levels");
  assert_int_equal(hr_recompute_parse("levels:keep*12", &job.recompute, NULL), HR_OK);
  finish(&job);
}

static void test_rows_beyond_the_positions(void **state) {
  hr_job job = job_for("gpt2");
  (void)state;
  assert_field_refused(sequence_length = 1025, "--seq");
  job.with_generation = true;
  assert_field_refused(context_length = 1025, "--context");
  job.context_length = 1025;
  job.with_generation = false;
  job.purpose = HR_PURPOSE_GENERATE;
  assert_refused(&job, "--context");
  job.context_length = 0;
  finish(&job);
  assert_int_equal(job.context_length, job.sequence_length);
  job = job_for("llama-2-7b"); /* rotary positions have no table */
  job.sequence_length = 16384;
  finish(&job);
}

/* tf32 is a way to multiply: each byte of the plan is fp32's, and it is for devices that can. */
static void test_tf32_is_of_plans_for_gpus(void **state) {
  static const char *const without[] = {"t4", "rtx-2080-ti", "v100-32", "mi250x"};
  hr_job job = job_for("smollm2-135m"), wide;
  hr_error error = {0};
  hr_plan *plan, *wide_plan;
  (void)state;
  job.precision = HR_PRECISION_TF32;
  for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
    assert_int_equal(hr_device_find(without[i], &job.device, &error), HR_OK);
    assert_refused(&job, "--precision tf32 and --device exclude each other: the device has no such products");
  }
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  assert_refused(&job, "--precision tf32 and --device cpu exclude each other: it is how GPUs multiply");
  assert_int_equal(hr_device_find("a100-80", &job.device, &error), HR_OK);
  finish(&job);
  wide = job;
  wide.precision = HR_PRECISION_FP32;
  if (hr_plan_create(&job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  if (hr_plan_create(&wide, &wide_plan, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(hr_plan_get(plan)->tiers[0].reserved_bytes == hr_plan_get(wide_plan)->tiers[0].reserved_bytes);
  assert_true(hr_plan_get(plan)->flops_per_step == hr_plan_get(wide_plan)->flops_per_step);
  /* 156 against 19.5 TFLOP/s: what of the step is products takes an eighth of its time. */
  assert_true(hr_plan_get(plan)->step_seconds < hr_plan_get(wide_plan)->step_seconds);
  assert_true(hr_plan_get(plan)->step_seconds > hr_plan_get(wide_plan)->step_seconds / 8);
  hr_plan_destroy(plan);
  hr_plan_destroy(wide_plan);
}

static void test_wsd_fits_the_steps(void **state) {
  hr_job job = job_for("gpt2");
  (void)state;
  job.schedule = HR_SCHEDULE_WSD;
  job.steps = 100;
  job.warmup = 20;
  assert_field_refused(decay = 81, "--decay");
  assert_field_refused(decay = 0.81, "--decay");
  job.decay = 80;
  finish(&job);
  job.steps = 0;
  job.warmup = 0.5;
  assert_field_refused(decay = 0.6, "--decay");
}

/* ---- --recompute ---- */

static void assert_recompute(const char *text, uint32_t layers, const char *want) {
  hr_recompute r;
  hr_error error;
  char out[256];
  if (hr_recompute_parse(text, &r, &error) != HR_OK) fail_msg("%s: %s", text, error.message);
  assert_string_equal(hr_recompute_text(&r, layers, out, sizeof out), want);
}

static void test_recompute_texts(void **state) {
  (void)state;
  assert_recompute("none", 12, "none");
  assert_recompute("block", 12, "block");
  assert_recompute("sqrt", 12, "sqrt");
  assert_recompute("every:4", 12, "every:4");
  assert_recompute("selective", 12, "selective");
  assert_recompute("auto", 12, "auto");
  assert_recompute("levels:keep*4,cheap*8", 12, "levels:keep*4,cheap*8");
  assert_recompute("levels:keep,keep*3,cheap", 12, "levels:keep*4,cheap*8"); /* the last repeats */
  assert_recompute("levels:mlp,attention,block", 3, "levels:mlp,attention,block");
  assert_recompute("levels:cheap", 12, "levels:cheap*12");
  assert_recompute("levels:keep*12", 12, "none");
  assert_recompute("levels:block", 12, "block");
  assert_recompute("levels:keep*2,block*510", 512, "levels:keep*2,block*510");
}

static void test_recompute_errors(void **state) {
  static const char *const texts[] = {"",
                                      "all",
                                      "every",
                                      "every:",
                                      "every:0",
                                      "every:-1",
                                      "every:4x",
                                      "every:513",
                                      "every:99999999999",
                                      "levels:",
                                      "levels:keep,",
                                      "levels:,keep",
                                      "levels:keep*",
                                      "levels:keep*0",
                                      "levels:keep*513",
                                      "levels:keep*500,block*13",
                                      "levels:keeps",
                                      "levels:*4",
                                      "levels:keep*4*4",
                                      "None",
                                      "sqrt:2",
                                      "Auto",
                                      "selective:2"};
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    hr_recompute r = {.kind = HR_RECOMPUTE_SQRT, .every = 7};
    hr_error error = {0};
    if (hr_recompute_parse(texts[i], &r, &error) != HR_ERROR_USAGE) fail_msg("%s was accepted", texts[i]);
    assert_non_null(strstr(error.message, "--recompute"));
    assert_true(error.hint[0] != 0);
    assert_true(r.kind == HR_RECOMPUTE_SQRT && r.every == 7);
  }
}

/* Random levels survive the way through text; a text that does not fit says so and stays in its buffer. */
static void test_recompute_round_trip(void **state) {
  uint64_t seed = 12345;
  (void)state;
  for (int round = 0; round < 500; round++) {
    hr_recompute r = {.kind = HR_RECOMPUTE_LEVELS}, back;
    char text[8192], small[256 + 8];
    uint32_t layers = 1 + (uint32_t)(round % HR_MAX_LAYERS);
    for (r.level_count = 0; r.level_count < layers; r.level_count++) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      r.levels[r.level_count] = (uint8_t)((seed >> 33) % HR_LEVEL_COUNT);
    }
    assert_int_equal(hr_recompute_parse(hr_recompute_text(&r, layers, text, sizeof text), &back, NULL), HR_OK);
    if (back.kind == HR_RECOMPUTE_LEVELS) {
      assert_int_equal(back.level_count, layers);
      assert_memory_equal(back.levels, r.levels, layers);
    } else {
      assert_true(layers < 8);
    }
    memset(small, '#', sizeof small);
    assert_ptr_equal(hr_recompute_text(&r, layers, small, 256), small);
    assert_non_null(memchr(small, 0, 256));
    assert_memory_equal(small + 256, "########", 8);
    assert_true(strcmp(small, text) == 0 || strcmp(small + strlen(small) - 4, ",...") == 0);
  }
}

static void assert_unfinished(hr_status status, const hr_error *error) {
  if (status != HR_ERROR_USAGE || !strstr(error->message, "hr_job_finish"))
    fail_msg("status %d, \"%s\" does not name hr_job_finish", status, error->message);
}

/* What a plan divides by may be 0 in it. */
static void nothing_plans(const hr_job *job) {
  static hr_fix fixes[HR_MAX_FIXES];
  hr_job copy = *job;
  hr_error error = {0};
  uint32_t count = 0;
  hr_plan *plan;
  assert_unfinished(hr_plan_create(job, &plan, &error), &error);
  assert_unfinished(hr_plan_fixes(job, fixes, &count, &error), &error);
  assert_unfinished(hr_plan_recompute(&copy, NULL, NULL, &error), &error);
  copy.rows_choice = HR_ROWS_OPEN;
  assert_unfinished(hr_plan_rows(&copy, NULL, &error), &error);
  assert_unfinished(hr_plan_auto(&copy, NULL, NULL, &error), &error);
}

static void test_only_finished_jobs_are_planned(void **state) {
  hr_job job, none = {0};
  hr_plan *plan;
  (void)state;
  nothing_plans(&none);
  hr_job_init(&job); /* without a model */
  nothing_plans(&job);
  job = job_for("micro-llama-bytes"); /* without hr_job_finish */
  nothing_plans(&job);
  finish(&job);
  job.sequence_length = 1;
  (void)!hr_job_finish(&job, NULL); /* refused, and nobody looked */
  nothing_plans(&job);
  job.sequence_length = 16;
  finish(&job);
  assert_int_equal(hr_plan_create(&job, &plan, NULL), HR_OK);
  hr_plan_destroy(plan);
}

static void test_names(void **state) {
  (void)state;
  assert_string_equal(hr_optimizer_name(HR_OPTIMIZER_MOMENTUM), "momentum");
  assert_string_equal(hr_attention_name(HR_ATTENTION_MATERIALIZED), "materialized");
  assert_string_equal(hr_schedule_name(HR_SCHEDULE_WSD), "wsd");
  assert_string_equal(hr_level_name(HR_LEVEL_BLOCK), "block");
  assert_string_equal(hr_on_nonfinite_name(HR_ON_NONFINITE_STOP), "stop");
  assert_string_equal(hr_on_nonfinite_name(HR_ON_NONFINITE_SKIP), "skip");
  assert_string_equal(hr_on_nonfinite_name((hr_on_nonfinite)7), "unknown");
  assert_string_equal(hr_level_name(HR_LEVEL_COUNT), "unknown");
  assert_string_equal(hr_schedule_name((hr_schedule)77), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_finishing_twice_changes_nothing),
      cmocka_unit_test(test_loss_chunk),
      cmocka_unit_test(test_sqrt),
      cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_clip_excludes_updates_in_the_backward),
      cmocka_unit_test(test_skipping_excludes_updates_in_the_backward),
      cmocka_unit_test(test_accumulation_excludes_updates_in_the_backward),
      cmocka_unit_test(test_recompute_beyond_the_layers),
      cmocka_unit_test(test_rows_beyond_the_positions),
      cmocka_unit_test(test_tf32_is_of_plans_for_gpus),
      cmocka_unit_test(test_wsd_fits_the_steps),
      cmocka_unit_test(test_recompute_texts),
      cmocka_unit_test(test_recompute_errors),
      cmocka_unit_test(test_recompute_round_trip),
      cmocka_unit_test(test_only_finished_jobs_are_planned),
      cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
