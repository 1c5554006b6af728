/* The loss over data sets: a packed row has the token-weighted loss of its documents alone, and a step over packed rows
 * is the step over the documents one by one; masks decide which labels are in it. Through hr_evaluate and hr_train. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <sys/stat.h>

#include <headroom/train.h>

#include "base/file.h"
#include "support/files.h"

static char model[PATH_BYTES];

static void make_job(const char *source, hr_purpose purpose, hr_packing packing, hr_job *job) {
  hr_error error = {0};
  hr_job_init(job);
  job->purpose = purpose;
  if (hr_model_open(source, &job->model, &error) != HR_OK || hr_device_find("cpu", &job->device, &error) != HR_OK)
    fail_msg("%s", error.message);
  job->packing = packing;
  job->sequence_length = 96;
  job->threads = 1;
}

static void train(const char *source, hr_job *job, const char *data, const hr_data_options *how, const char *out,
                  hr_run_result *result) {
  hr_run_options options = {.data_paths = &data, .data_path_count = 1, .out_directory = out};
  hr_error error = {0};
  if (how) options.data = *how;
  (void)source;
  assert_int_equal(hr_job_finish(job, &error), HR_OK);
  if (hr_train(job, &options, result, &error) != HR_OK) fail_msg("%s", error.message);
}

/* A model that was trained a little, so that losses differ from token to token. */
static int setup(void **state) {
  hr_run_result result;
  hr_job job;
  (void)state;
  if (make_directory(state) != 0) return 1;
  make_job("micro-llama-bytes", HR_PURPOSE_TRAIN, HR_PACKING_PACK, &job);
  job.steps = 5;
  job.learning_rate = 1e-2;
  train("micro-llama-bytes", &job,
        write_text("start.txt",
                   "the quick brown fox jumps over the lazy dog, and the dog does not care at all about the fox"),
        NULL, in_directory("start"), &result);
  (void)snprintf(model, sizeof model, "%s/start/final", directory);
  return 0;
}

static double evaluate(const char *data, hr_packing packing, hr_loss_scope loss, uint64_t *tokens) {
  hr_run_options options = {.data_paths = &data,
                            .data_path_count = 1,
                            .data = {.loss = loss, .chat_template = "chatml"}};
  hr_run_result result;
  hr_job job;
  hr_error error = {0};
  make_job(model, HR_PURPOSE_EVALUATE, packing, &job);
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  if (hr_evaluate(&job, &options, &result, &error) != HR_OK) fail_msg("%s", error.message);
  *tokens = result.eval_tokens;
  return result.eval_loss;
}

static const char *const completions[] = {
    "{\"prompt\": \"the quick\", \"completion\": \" brown fox\"}\n",
    "{\"prompt\": \"over \", \"completion\": \"the lazy dog\"}\n",
    "{\"prompt\": \"a\", \"completion\": \"b\"}\n",
    "{\"prompt\": \"\", \"completion\": \"care at all about\"}\n",
    "{\"prompt\": \"and the dog \", \"completion\": \"!\"}\n",
};
enum { COUNT = sizeof completions / sizeof *completions };

/* The documents alone, weighted by their counted labels. */
static double alone(hr_loss_scope loss, uint64_t *tokens) {
  double sum = 0;
  *tokens = 0;
  for (int i = 0; i < COUNT; i++) {
    uint64_t one;
    double mean = evaluate(write_text("one.jsonl", completions[i]), HR_PACKING_OFF, loss, &one);
    sum += mean * (double)one;
    *tokens += one;
  }
  return sum / (double)*tokens;
}

static const char *write_all(const char *name) {
  char text[1024] = "";
  for (int i = 0; i < COUNT; i++) (void)strcat(text, completions[i]);
  return write_text(name, text);
}

static void packed_loss_is_that_of_the_documents(void **state) {
  static const hr_loss_scope scopes[] = {HR_LOSS_SCOPE_AUTO, HR_LOSS_SCOPE_ALL};
  char data[512];
  double losses[2];
  (void)state;
  (void)snprintf(data, sizeof data, "%s", write_all("all.jsonl"));
  for (int s = 0; s < 2; s++) {
    uint64_t expected_tokens, tokens;
    double expected = alone(scopes[s], &expected_tokens);
    for (hr_packing packing = HR_PACKING_PACK; packing <= HR_PACKING_WRAPPED; packing++) {
      double loss = evaluate(data, packing, scopes[s], &tokens);
      if (packing == HR_PACKING_WRAPPED && tokens != expected_tokens)
        continue; /* a document was cut, and a label lost with it */
      assert_int_equal(tokens, expected_tokens);
      if (fabs(loss - expected) > 2e-6 * expected)
        fail_msg("packing %s: %.9f, alone %.9f", hr_packing_name(packing), loss, expected);
    }
    losses[s] = expected;
  }
  assert_true(fabs(losses[0] - losses[1]) > 1e-3); /* the mask matters */
}

/* One optimizer step over all documents: packed into two rows, or one document per row. */
static void a_packed_step_is_the_step_over_its_documents(void **state) {
  const char *data = write_all("step.jsonl");
  hr_run_result packed, off;
  hr_job job;
  uint64_t tokens;
  double after[2];
  (void)state;
  make_job(model, HR_PURPOSE_TRAIN, HR_PACKING_PACK, &job);
  job.steps = 1;
  job.learning_rate = 1e-3;
  job.clip = 0;
  job.optimizer = HR_OPTIMIZER_SGD;
  job.micro_batch = 1; /* all of it is one row of 96 */
  train(model, &job, data, NULL, in_directory("packed"), &packed);
  make_job(model, HR_PURPOSE_TRAIN, HR_PACKING_OFF, &job);
  job.steps = 1;
  job.learning_rate = 1e-3;
  job.clip = 0;
  job.optimizer = HR_OPTIMIZER_SGD;
  job.accumulate = COUNT;
  train(model, &job, data, NULL, in_directory("off"), &off);
  if (fabs(packed.last_loss - off.last_loss) > 2e-6 * off.last_loss)
    fail_msg("packed %.9f, off %.9f", packed.last_loss, off.last_loss);
  for (int i = 0; i < 2; i++) {
    char kept[512];
    memcpy(kept, model, sizeof kept);
    (void)snprintf(model, sizeof model, "%s/%s/final", directory, i ? "off" : "packed");
    after[i] = evaluate(data, HR_PACKING_OFF, HR_LOSS_SCOPE_AUTO, &tokens);
    memcpy(model, kept, sizeof kept);
  }
  assert_true(after[0] < packed.last_loss);
  if (fabs(after[0] - after[1]) > 2e-6 * after[0])
    fail_msg("after the step: packed %.9f, off %.9f", after[0], after[1]);
}

/* ---- the cache of a run ---- */

static void on_event(void *context, const hr_event *event) {
  if (event->kind == HR_EVENT_NOTE && strstr(event->text, "documents"))
    (void)snprintf(context, 2048, "%s", event->text);
}

static void a_resumed_run_finds_its_tokens_again(void **state) {
  const char *data = write_all("cache.jsonl"), *out = in_directory("cached");
  hr_run_options options = {.data_paths = &data,
                            .data_path_count = 1,
                            .out_directory = out,
                            .save_every = 1,
                            .on_event = on_event};
  hr_run_result first, again;
  char note[2048] = "";
  hr_job job;
  hr_error error = {0};
  (void)state;
  options.context = note;
  make_job(model, HR_PURPOSE_TRAIN, HR_PACKING_PACK, &job);
  job.steps = 2;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  if (hr_train(&job, &options, &first, &error) != HR_OK) fail_msg("%s", error.message);
  if (!strstr(note, "prompts and completions") || strstr(note, "from the cache")) fail_msg("%s", note);
  assert_true(hri_path_is_dir(in_directory("cached/data-cache")));
  options.resume_directory = out;
  if (hr_train(&job, &options, &again, &error) != HR_OK) fail_msg("%s", error.message);
  if (!strstr(note, "from the cache")) fail_msg("%s", note);
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(packed_loss_is_that_of_the_documents),
      TEST(a_packed_step_is_the_step_over_its_documents),
      TEST(a_resumed_run_finds_its_tokens_again),
  };
  return cmocka_run_group_tests_name("data_loss", tests, setup, remove_directory);
}
