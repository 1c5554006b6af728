/* Adapters against PEFT (tests/parity/README.md): adapters as PEFT saved them, opened by --adapter, trained for ten
 * steps; losses, norms, gradients and final A and B. Truth is a double reference, and a result passes when its error is
 * at most 4 times that of PEFT in float32, or with --precision bf16 of PEFT beside a bfloat16 base. Everything goes
 * through hr_train and the files that it writes.
 *
 * A gradient is what one step of SGD takes away: with a rate of 512 little of it is rounded off but in its own last place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/train.h>

#include "support/parity_case.h"
#include "support/scratch.h"

static const struct {
  const char *name, *base;
  bool fp32_only; /* what trains whole is of the base's type in PEFT, and nothing to compare with in bfloat16 */
} cases[] = {{"llama", "llama-a", false},         {"llama-rslora", "llama-b", false},
             {"llama-layers", "llama-c", false},  {"gpt2", "gpt2-a", false},
             {"phi3", "phi3-short", false},       {"llama-dora", "llama-b", false},
             {"gpt2-dora", "gpt2-a", false},      {"llama-saved", "llama-b", true},
             {"gpt2-saved", "gpt2-a", true},      {"llama-embedding", "llama-b", false},
             {"gpt2-embedding", "gpt2-a", false}, {"gemma3-embedding", "gemma3", true}};
enum { CASES = sizeof cases / sizeof *cases, STEPS = 10 };

#define GRADIENT_RATE 512.0

static const char *work;

typedef struct course {
  double loss[STEPS], norm[STEPS];
  uint64_t steps;
} course;

static void on_event(void *context, const hr_event *event) {
  course *c = context;
  if (event->kind != HR_EVENT_STEP) return;
  assert_true(c->steps < STEPS);
  c->loss[c->steps] = event->metrics->loss;
  c->norm[c->steps++] = event->metrics->grad_norm;
}

static double of_run(const parity_case *c, const char *key, int64_t index) {
  char path[300];
  (void)snprintf(path, sizeof path, "runs/adamw/%s", key);
  return parity_number(c, path, index);
}

static void base_job(parity_case *c, hr_precision precision, hr_job *job) {
  char adapter[600];
  hr_job_init(job);
  job->model = c->model;
  HOLDS(hr_device_find("cpu", &job->device, error));
  (void)snprintf(adapter, sizeof adapter, "%s/adapter", c->directory);
  job->adapter = strcpy(parity_buffer(c, sizeof adapter), adapter);
  job->sequence_length = c->sequence;
  job->schedule = HR_SCHEDULE_CONSTANT;
  job->threads = 1;
  job->precision = precision;
  job->given = HR_GIVEN_CLIP | HR_GIVEN_SHUFFLE; /* rows in the order that PEFT had them */
}

/* Trains in a directory of its own; *final gets the adapters that it ends with. */
static course train(parity_case *c, hr_job *job, hri_weights **final) {
  static int count;
  const char *out = path_of("%s/run-%d", work, count++), *data = c->jsonl;
  course made = {0};
  hr_run_options options;
  hr_run_result result;
  hr_run_options_init(&options);
  options.data_paths = &data;
  options.data_path_count = 1;
  options.out_directory = out;
  options.on_event = on_event;
  options.context = &made;
  HOLDS(hr_job_finish(job, error));
  HOLDS(hr_train(job, &options, &result, error));
  assert_int_equal(result.planned_bytes[HR_TIER_DEVICE], result.reserved_bytes[HR_TIER_DEVICE]);
  HOLDS(hri_weights_open(path_of("%s/final/adapter_model.safetensors", out), final, error));
  return made;
}

static hri_weights *start_of(const parity_case *c) {
  hri_weights *start;
  HOLDS(hri_weights_open(path_of("%s/adapter/adapter_model.safetensors", c->directory), &start, error));
  return start;
}

/* Names of the start are those of the end, and no others. */
static void assert_same_names(const hri_weights *start, const hri_weights *end) {
  assert_int_equal(hri_weights_count(start), hri_weights_count(end));
  for (uint32_t i = 0; i < hri_weights_count(start); i++)
    if (hri_weights_find(end, hri_weights_get(start, i)->name) == HRI_SAFETENSORS_NONE)
      fail_msg("%s is not there any more", hri_weights_get(start, i)->name);
}

/* ---- ten steps ---- */

static void ten_steps(parity_case *c, hr_precision precision, const char *yardstick, parity_margin *margin) {
  hri_weights *start = start_of(c), *end;
  hr_job job;
  course made;
  char path[200];
  base_job(c, precision, &job);
  job.micro_batch = (uint32_t)of_run(c, "micro_batch", -1);
  job.accumulate = (uint32_t)of_run(c, "accumulate", -1);
  job.steps = (uint64_t)of_run(c, "steps", -1);
  job.learning_rate = of_run(c, "learning_rate", -1);
  job.weight_decay = of_run(c, "weight_decay", -1);
  job.beta1 = of_run(c, "betas", 0);
  job.beta2 = of_run(c, "betas", 1);
  job.epsilon = of_run(c, "eps", -1);
  job.clip = of_run(c, "clip", -1);
  made = train(c, &job, &end);
  assert_int_equal(made.steps, STEPS);
  for (int s = 0; s < STEPS; s++) {
    (void)snprintf(path, sizeof path, "loss_%s", yardstick);
    parity_within(c, margin, yardstick, "loss", parity_relative(made.loss[s], of_run(c, "losses", s)),
                  of_run(c, path, s));
    (void)snprintf(path, sizeof path, "grad_norm_%s", yardstick);
    parity_within(c, margin, yardstick, "grad_norm", parity_relative(made.norm[s], of_run(c, "grad_norms", s)),
                  of_run(c, path, s));
  }
  assert_same_names(start, end);
  for (uint32_t i = 0; i < hri_weights_count(start); i++) {
    const char *name = hri_weights_get(start, i)->name;
    uint64_t count, same;
    double *from = parity_weight(c, start, name, &count), *got = parity_weight(c, end, name, &same), *truth;
    char final[200];
    assert_int_equal(same, count);
    (void)snprintf(final, sizeof final, "adamw.final.%s", name);
    truth = parity_expected(c, final, &same);
    assert_int_equal(same, count);
    (void)snprintf(path, sizeof path, "tensors/%s/%s", name, yardstick);
    parity_within(c, margin, yardstick, final, parity_distance(got, truth, from, count), of_run(c, path, -1));
  }
  hri_weights_close(start);
  hri_weights_close(end);
}

/* ---- gradients ---- */

static void gradients(parity_case *c, hr_precision precision, const char *yardstick, parity_margin *margin) {
  hri_weights *start = start_of(c), *end;
  hr_job job;
  course made;
  char path[240];
  base_job(c, precision, &job);
  job.micro_batch = c->batch;
  job.steps = 1;
  job.optimizer = HR_OPTIMIZER_SGD;
  job.learning_rate = GRADIENT_RATE;
  job.clip = 0;
  made = train(c, &job, &end);
  (void)snprintf(path, sizeof path, "first_batch/%s", yardstick);
  parity_within(c, margin, yardstick, "first loss",
                parity_relative(made.loss[0], parity_number(c, "first_batch/loss", -1)), parity_number(c, path, -1));
  for (uint32_t i = 0; i < hri_weights_count(start); i++) {
    const char *name = hri_weights_get(start, i)->name;
    uint64_t count, same;
    double *from = parity_weight(c, start, name, &count), *got = parity_weight(c, end, name, &same), *truth;
    for (uint64_t k = 0; k < count; k++) got[k] = (from[k] - got[k]) / GRADIENT_RATE;
    (void)snprintf(path, sizeof path, "grad.%s", name);
    truth = parity_expected(c, path, &same);
    assert_int_equal(same, count);
    (void)snprintf(path, sizeof path, "gradient/tensors/%s/%s", name, yardstick);
    parity_within(c, margin, yardstick, path, parity_distance(got, truth, NULL, count), parity_number(c, path, -1));
  }
  hri_weights_close(start);
  hri_weights_close(end);
}

static void all_cases(hr_precision precision, const char *const *yardsticks, size_t count) {
  for (size_t k = 0; k < CASES; k++)
    for (size_t y = 0; y < count; y++) {
      parity_case *c;
      parity_margin margin = {0};
      if (cases[k].fp32_only && precision != HR_PRECISION_FP32) continue;
      c = parity_open_in("peft", cases[k].name, cases[k].base);
      gradients(c, precision, yardsticks[y], &margin);
      ten_steps(c, precision, yardsticks[y], &margin);
      print_message("%-13s %-20s %3u values, at most %.0f %% of the tolerance (%s)\n", c->name, yardsticks[y],
                    margin.compared, 100 * margin.share, margin.what);
      assert_true(margin.compared > 2 * STEPS + 8);
      parity_close(c);
    }
}

static void in_float32(void **state) {
  static const char *const yardsticks[] = {"fp32_error"};
  (void)state;
  all_cases(HR_PRECISION_FP32, yardsticks, 1);
}

/* The base rounded to bfloat16, A and B in float32: PEFT outside of autocast is the same thing; under autocast A and B
 * are rounded too. */
static void beside_bfloat16(void **state) {
  static const char *const yardsticks[] = {"bf16_error_outside", "bf16_error_autocast"};
  (void)state;
  all_cases(HR_PRECISION_BF16, yardsticks, 2);
}

static int set_up(void **state) {
  (void)state;
  work = scratch_make("peft");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(work);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_float32), cmocka_unit_test(beside_bfloat16)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
