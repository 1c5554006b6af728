/* Runs that meet what is not finite: stop with the right words and nothing saved, or pass over a bounded number of
 * steps; `best` never takes such an evaluation; steps without a label are said. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/run.h>
#include <headroom/train.h>

#include "base/file.h"
#include "support/scratch.h"
#include "support/trap_model.h"

static const char *directory;
static int run_count;

typedef struct heard {
  char warnings[8192];
  uint32_t skipped;
} heard;

static void listen_to(void *context, const hr_event *event) {
  heard *h = context;
  size_t used = strlen(h->warnings);
  if (event->kind == HR_EVENT_WARNING)
    (void)snprintf(h->warnings + used, sizeof h->warnings - used, "%s\n", event->text);
  if (event->kind == HR_EVENT_STEP && event->metrics->skipped) h->skipped++;
}

/* Rows of 8 bytes; `bad` of them, from row `first` on, hold the byte that the model cannot bear. */
static const char *rows(const char *name, int count, int first, int bad) {
  const char *path = path_of("%s/%s", directory, name);
  char *text = malloc((size_t)count * 8 + 1);
  assert_non_null(text);
  for (int r = 0; r < count; r++)
    (void)snprintf(text + r * 8, 9, "%s", r >= first && r < first + bad ? "ab~defg " : "abcdefg ");
  put_file(path, text, (size_t)count * 8);
  free(text);
  return path;
}

typedef struct attempt {
  const char *model, *data, *held, *resume;
  hr_on_nonfinite how;
  uint32_t max_skipped, keep;
  uint64_t steps, save_every;
  double clip;
  hr_data_format format;
  /* out */
  char run[PATH_BYTES];
  hr_run_result result;
  hr_error error;
  heard heard;
} attempt;

static hr_status train(attempt *a) {
  hr_run_options options = {.data_paths = &a->data,
                            .data_path_count = 1,
                            .eval_paths = &a->held,
                            .eval_path_count = a->held ? 1 : 0,
                            .eval_every = a->held ? a->save_every : 0,
                            .save_every = a->save_every,
                            .keep = a->keep,
                            .data = {.format = a->format},
                            .resume_directory = a->resume,
                            .on_event = listen_to,
                            .context = &a->heard};
  hr_status status;
  hr_job job;
  hr_job_init(&job);
  if (!a->resume) (void)snprintf(a->run, sizeof a->run, "%s/run-%d", directory, run_count++);
  options.out_directory = a->resume ? a->resume : a->run;
  memset(&a->error, 0, sizeof a->error);
  status = hr_model_open(a->model, &job.model, &a->error);
  if (status == HR_OK) status = hr_device_find("cpu", &job.device, &a->error);
  job.sequence_length = 8;
  job.packing = HR_PACKING_WRAPPED;
  job.threads = 1;
  job.steps = a->steps;
  job.clip = a->clip;
  job.schedule = HR_SCHEDULE_CONSTANT;
  job.on_nonfinite = a->how;
  if (a->max_skipped) job.max_skipped = a->max_skipped;
  if (status == HR_OK) status = hr_job_finish(&job, &a->error);
  return status == HR_OK ? hr_train(&job, &options, &a->result, &a->error) : status;
}

static const char *trap(void) {
  static char path[PATH_BYTES];
  if (path[0]) return path;
  (void)snprintf(path, sizeof path, "%s/trap", directory);
  assert_int_equal(mkdir(path, 0755), 0);
  make_trap_model(path, '~');
  return path;
}

static void says(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

static void test_a_run_that_diverges_stops_and_saves_nothing_of_it(void **state) {
  attempt a = {.model = trap(), .data = rows("bad", 12, 6, 1), .steps = 12, .save_every = 2, .keep = 1, .clip = 1};
  hr_run_record *run;
  char *text;
  (void)state;
  assert_int_equal(train(&a), HR_ERROR_DIVERGED);
  assert_int_equal(hr_status_exit_code(HR_ERROR_DIVERGED), 7);
  says(a.error.message, "step 7");
  says(a.error.message, "loss ");
  says(a.error.message, "gradient norm ");
  says(a.error.message, "not finite: "); /* the update had run: which tensor is named */
  says(a.error.hint, "step-000006");
  assert_true(exists(path_of("%s/checkpoints/step-000006/manifest.json", a.run)));
  assert_false(exists(path_of("%s/checkpoints/step-000008", a.run)) || exists(path_of("%s/final", a.run)));
  text = get_file(path_of("%s/metrics.jsonl", a.run), NULL);
  says(text, "\"step\":7,\"loss\":null");
  free(text);
  assert_int_equal(hr_run_open(a.run, NULL, &run, NULL), HR_OK);
  assert_string_equal(hr_run_state(run), "diverged");
  hr_run_close(run);
}

/* Without clipping there is no norm; the loss tells, and where it does not, the pass that saves. */
static void test_without_a_norm_it_is_noticed_too(void **state) {
  attempt a = {.model = trap(), .data = rows("bad", 12, 6, 1), .steps = 12, .save_every = 2, .clip = 0};
  (void)state;
  assert_int_equal(train(&a), HR_ERROR_DIVERGED);
  says(a.error.message, "step 7");
}

static void test_skipped_steps_are_counted_and_the_run_goes_on(void **state) {
  attempt a = {.model = trap(),
               .data = rows("bad", 12, 6, 2),
               .steps = 12,
               .save_every = 3,
               .clip = 1,
               .how = HR_ON_NONFINITE_SKIP},
          b = a;
  char *text;
  (void)state;
  assert_int_equal(train(&a), HR_OK);
  assert_int_equal(a.result.skipped_steps, 2);
  assert_int_equal(a.heard.skipped, 2);
  assert_true(isfinite(a.result.last_loss));
  says(a.heard.warnings, "step 7 is skipped");
  says(a.heard.warnings, "2 so far, 2 in a row of at most 20");
  text = get_file(path_of("%s/checkpoints/step-000009/state.json", a.run), NULL);
  says(text, "\"skipped_steps\": 2");
  says(text, "\"skipped_in_row\": 0");
  says(text, "\"applied_steps\": 7"); /* of nine */
  says(text, "\"rows_seen\": 9");
  free(text);
  /* A run that stops between the two goes on to the same bits: the count in a row is in the checkpoint. */
  b.steps = 7;
  b.save_every = 1;
  assert_int_equal(train(&b), HR_OK);
  text = get_file(path_of("%s/checkpoints/step-000007/state.json", b.run), NULL);
  says(text, "\"skipped_in_row\": 1");
  free(text);
  b.resume = b.run;
  b.steps = 12;
  if (train(&b) != HR_OK) fail_msg("%s", b.error.message);
  assert_int_equal(b.result.skipped_steps, 2);
  assert_same_file(path_of("%s/final/model.safetensors", a.run), path_of("%s/final/model.safetensors", b.run));
}

static void test_only_so_many_in_a_row(void **state) {
  attempt a = {.model = trap(),
               .data = rows("bad", 12, 4, 4),
               .steps = 12,
               .clip = 0,
               .how = HR_ON_NONFINITE_SKIP,
               .max_skipped = 4},
          b = a;
  (void)state;
  assert_int_equal(train(&a), HR_OK); /* four are at most four */
  b.max_skipped = 3;
  assert_int_equal(train(&b), HR_ERROR_DIVERGED);
  says(b.error.message, "step 8");
  says(b.error.message, "too many steps in a row");
  says(b.error.message, "weights and states are still finite");
  /* The way of dealing with it is part of the identity. */
  b.resume = a.run;
  b.max_skipped = 5;
  assert_int_equal(train(&b), HR_ERROR_USAGE);
  says(b.error.message, "max-skipped was 4 and is 5");
}

static void test_the_best_is_finite(void **state) {
  attempt a = {.model = trap(),
               .data = rows("good", 12, 0, 0),
               .held = rows("bad-held", 6, 3, 1),
               .steps = 4,
               .save_every = 2,
               .clip = 1};
  (void)state;
  assert_int_equal(train(&a), HR_OK);
  says(a.heard.warnings, "the evaluation's loss is not finite: it is not the best");
  assert_true(isnan(a.result.best_eval_loss));
  assert_false(exists(path_of("%s/checkpoints/best", a.run)));
}

static void test_a_step_without_labels_is_said(void **state) {
  attempt a = {.model = "micro-llama-bytes", .data = path_of("%s/labels.jsonl", directory), .steps = 4, .clip = 1};
  (void)state;
  put_text(a.data, "{\"input_ids\":[1,2,3,4,5,6,7,8],\"labels\":[1,2,3,4,5,6,7,8]}\n"
                   "{\"input_ids\":[1,2,3,4,5,6,7,8],\"labels\":[-100,-100,-100,-100,-100,-100,-100,-100]}\n"
                   "{\"input_ids\":[1,2,3,4,5,6,7,8],\"labels\":[-100,-100,-100,-100,-100,-100,-100,-100]}\n"
                   "{\"input_ids\":[1,2,3,4,5,6,7,8],\"labels\":[1,2,3,4,5,6,7,8]}\n");
  if (train(&a) != HR_OK) fail_msg("%s", a.error.message);
  says(a.heard.warnings, "no label counts in step 2");
  says(a.heard.warnings, "2 steps had no label");
  assert_true(isfinite(a.result.last_loss));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_run_that_diverges_stops_and_saves_nothing_of_it),
      cmocka_unit_test(test_without_a_norm_it_is_noticed_too),
      cmocka_unit_test(test_skipped_steps_are_counted_and_the_run_goes_on),
      cmocka_unit_test(test_only_so_many_in_a_row),
      cmocka_unit_test(test_the_best_is_finite),
      cmocka_unit_test(test_a_step_without_labels_is_said),
  };
  int failed;
  directory = scratch_make("diverge");
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  scratch_remove(directory);
  return failed;
}
