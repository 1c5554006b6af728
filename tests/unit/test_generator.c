/* One generator, many prompts (src/train/generator.c): what the cache keeps changes no token, whatever the prompts have
 * in common; a stop leaves it usable; planned bytes are reserved bytes. The yardstick is hr_generate, which starts from
 * nothing each time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/alloc.h>
#include <headroom/chat.h>
#include <headroom/convert.h>
#include <headroom/field.h>
#include <headroom/merge.h>
#include <headroom/train.h>

#include "base/mem.h"
#include "base/rng.h"

enum { CONTEXT = 400, ANSWER = 24 };

static hr_job job_of(const char *name) {
  hr_job job;
  hr_error error;
  char path[512];
  hr_job_init(&job);
  (void)snprintf(path, sizeof path, "%s/gguf/%s", HR_TEST_DATA, name);
  if (hr_model_open(path, &job.model, &error) != HR_OK) fail_msg("%s", error.message);
  job.purpose = HR_PURPOSE_GENERATE;
  job.context_length = CONTEXT;
  job.threads = 1;
  job.given |= HR_GIVEN_THREADS;
  if (hr_job_finish(&job, &error) != HR_OK) fail_msg("%s", error.message);
  return job;
}

typedef struct answer {
  int32_t tokens[ANSWER];
  uint64_t count, stop_at; /* 0: never */
} answer;

static void on_token(void *context, int32_t token) {
  answer *a = context;
  assert_true(a->count < ANSWER);
  a->tokens[a->count++] = token;
}

static bool should_stop(void *context) {
  const answer *a = context;
  return a->stop_at > 0 && a->count >= a->stop_at;
}

static hr_generate_options options_for(const int32_t *ids, uint64_t count, answer *to) {
  static const int32_t none[1];
  hr_generate_options options;
  hr_generate_options_init(&options);
  *to = (answer){0};
  options.prompt_ids = ids;
  options.prompt_id_count = count;
  options.stop_ids = none;
  options.stop_id_count = 0;
  options.max_tokens = ANSWER;
  options.temperature = 0;
  options.on_token = on_token;
  options.should_stop = should_stop;
  options.context = to;
  return options;
}

static void run(hr_generator *g, const hr_generate_options *options, hr_generate_result *result) {
  hr_error error;
  if (hr_generator_run(g, options, result, &error) != HR_OK) fail_msg("%s", error.message);
  for (int tier = 0; tier < HR_TIER_COUNT; tier++)
    assert_int_equal(result->reserved_bytes[tier], result->planned_bytes[tier]);
  assert_true(result->reserved_bytes[HR_TIER_DEVICE] > 0);
}

static void same_as_from_nothing(const hr_job *job, const hr_generate_options *options, const answer *kept) {
  hr_generate_options fresh = *options;
  hr_generate_result result;
  hr_error error;
  answer whole = {0};
  fresh.context = &whole;
  if (hr_generate(job, &fresh, &result, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(result.kept_tokens, 0);
  assert_int_equal(whole.count, kept->count);
  assert_memory_equal(whole.tokens, kept->tokens, kept->count * sizeof *whole.tokens);
}

/* Prompts of all kinds after each other: longer, shorter, the same, other from the front, in the middle, at the end. */
static void check_cache(const char *name) {
  static const struct {
    uint64_t count, differs; /* from the first prompt from here on; 0: all of it */
  } prompts[] = {{150, 150}, {151, 150}, {290, 150}, {40, 40}, {40, 40}, {1, 1}, {200, 60}, {200, 0}, {300, 299}};
  hr_job job = job_of(name);
  hr_generator *g;
  hr_error error;
  int32_t ids[CONTEXT];
  uint64_t last = 0;
  if (hr_generator_open(&job, NULL, NULL, &g, &error) != HR_OK) fail_msg("%s", error.message);
  for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
    hr_generate_result result;
    answer to;
    for (uint64_t k = 0; k < prompts[i].count; k++)
      ids[k] =
          (int32_t)((k * k * 7 + k + 3 + (k >= prompts[i].differs ? 11 * (i + 1) : 0)) % job.model.vocabulary_size);
    hr_generate_options options = options_for(ids, prompts[i].count, &to);
    run(g, &options, &result);
    assert_int_equal(result.new_tokens, ANSWER);
    assert_true(result.kept_tokens < prompts[i].count);
    if (i == 1) assert_int_equal(result.kept_tokens, 150);
    if (i == 4) assert_int_equal(result.kept_tokens, 39); /* logits are wanted of the last one */
    if (i == 6) assert_int_equal(result.kept_tokens, 1);  /* behind a prompt of one token there was its answer */
    same_as_from_nothing(&job, &options, &to);
    last = prompts[i].count;
  }
  /* A conversation: prompt, answer and more, of which only the new part is computed. */
  {
    hr_generate_result result;
    answer to, next;
    uint64_t count = last - 250;
    hr_generate_options options = options_for(ids, count, &to);
    run(g, &options, &result);
    memcpy(ids + count, to.tokens, to.count * sizeof *ids);
    count += to.count;
    ids[count++] = 5;
    options = options_for(ids, count, &next);
    run(g, &options, &result);
    assert_int_equal(result.kept_tokens, count - 2); /* the answer's last token was not fed, and the new one */
    same_as_from_nothing(&job, &options, &next);
  }
  hr_generator_close(g);
}

static void the_cache_changes_no_token(void **state) {
  (void)state;
  check_cache("llama");
  check_cache("gemma3"); /* layers whose attention slides */
}

static void a_stop_leaves_it_usable(void **state) {
  hr_job job = job_of("llama");
  hr_generator *g;
  hr_generate_result result;
  hr_error error;
  int32_t ids[200];
  answer to, all;
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  for (int k = 0; k < 200; k++) ids[k] = k % 30;
  assert_int_equal(hr_generator_open(&job, NULL, NULL, &g, &error), HR_OK);
  hr_generate_options options = options_for(ids, 200, &to);
  to.stop_at = 5;
  run(g, &options, &result);
  assert_true(result.stopped_by_request);
  assert_int_equal(result.new_tokens, 5);
  options = options_for(ids, 200, &all);
  run(g, &options, &result);
  assert_false(result.stopped_by_request);
  assert_int_equal(result.kept_tokens, 199);
  assert_memory_equal(all.tokens, to.tokens, 5 * sizeof *all.tokens);
  options.max_tokens = CONTEXT - 199; /* one too many, which changes nothing */
  assert_int_equal(hr_generator_run(g, &options, &result, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "the prompt has 200 tokens and 201 are to be made"));
  options = options_for(ids, 200, &to);
  run(g, &options, &result);
  assert_int_equal(result.kept_tokens, 199);
  assert_memory_equal(all.tokens, to.tokens, ANSWER * sizeof *all.tokens);
  hr_generator_close(g);
  assert_int_equal(hri_mem_live_bytes(), live);
}

/* The command line checks its own; a program may hand over any double. */
static void numbers_without_a_meaning_are_refused(void **state) {
  enum { NUMBERS = 4 };
  static const char *const names[NUMBERS] = {"temperature", "top_p", "min_p", "repetition_penalty"};
  static const double bad[] = {NAN, INFINITY, -INFINITY, -0.5};
  hr_job job = job_of("llama");
  hr_generator *g;
  hr_generate_result result;
  hr_error error;
  int32_t ids[8] = {0};
  answer to, again;
  (void)state;
  assert_int_equal(hr_generator_open(&job, NULL, NULL, &g, &error), HR_OK);
  hr_generate_options fine = options_for(ids, 8, &to);
  run(g, &fine, &result);
  for (size_t n = 0; n < NUMBERS; n++)
    for (size_t k = 0; k <= sizeof bad / sizeof *bad; k++) {
      hr_generate_options options = options_for(ids, 8, &again);
      double *const members[NUMBERS] = {&options.temperature, &options.top_p, &options.min_p,
                                        &options.repetition_penalty};
      char value[32];
      if (k == sizeof bad / sizeof *bad && members[n] != &options.top_p && members[n] != &options.min_p) continue;
      *members[n] = k < sizeof bad / sizeof *bad ? bad[k] : 1.5; /* a share */
      (void)snprintf(value, sizeof value, "%s is %g;", names[n], *members[n]);
      error = (hr_error){0};
      assert_int_equal(hr_generator_run(g, &options, &result, &error), HR_ERROR_USAGE);
      if (!strstr(error.message, value) || !strstr(error.hint, names[n]))
        fail_msg("'%s', hint '%s'", error.message, error.hint);
      assert_int_equal(hr_generate(&job, &options, &result, &error), HR_ERROR_USAGE);
      assert_int_equal(again.count, 0);
    }
  fine = options_for(ids, 8, &again); /* and nothing was changed by them */
  fine.repetition_penalty = 0;
  run(g, &fine, &result);
  assert_int_equal(result.kept_tokens, 7);
  assert_memory_equal(again.tokens, to.tokens, ANSWER * sizeof *to.tokens);
  hr_generator_close(g);
}

/* Answers of one generator are other draws, and all of them those of the seed. */
static void each_answer_draws_anew(void **state) {
  hr_job job = job_of("llama");
  answer answers[2][2];
  int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  (void)state;
  for (int round = 0; round < 2; round++) {
    hr_generator *g;
    hr_generate_result result;
    hr_error error;
    assert_int_equal(hr_generator_open(&job, NULL, NULL, &g, &error), HR_OK);
    for (int k = 0; k < 2; k++) {
      hr_generate_options options = options_for(ids, 8, &answers[round][k]);
      options.temperature = 2;
      run(g, &options, &result);
    }
    hr_generator_close(g);
  }
  assert_memory_equal(answers[0], answers[1], sizeof answers[0]);
  assert_memory_not_equal(answers[0][0].tokens, answers[0][1].tokens, sizeof answers[0][0].tokens);
}

/* No layer turns by positions: nothing asks for them. */
static void without_positions(void **state) {
  hr_job job = job_of("smollm3");
  hr_generator *g;
  hr_generate_result result;
  hr_error error;
  answer to;
  int32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  hr_generate_options options = options_for(ids, 9, &to);
  (void)state;
  memset(job.model.no_rope, 1, job.model.layer_count);
  assert_int_equal(hr_generator_open(&job, NULL, NULL, &g, &error), HR_OK);
  run(g, &options, &result);
  assert_int_equal(result.new_tokens, ANSWER);
  same_as_from_nothing(&job, &options, &to);
  hr_generator_close(g);
}

/* What a caller forgot is told, and is no crash. */
static void what_was_forgotten_is_told(void **state) {
  const int32_t one = 1;
  const char *no_path[] = {NULL};
  answer a;
  hr_job job = job_of("llama");
  hr_generate_options options = options_for(&one, 1, &a);
  hr_generate_result result;
  hr_run_options run;
  hr_run_result ran;
  hr_error error = {0};
  (void)state;
  hr_run_options_init(&run);
  run.data_paths = no_path;
  run.data_path_count = 1;
  run.out_directory = "nowhere";
  options.prompt_ids = NULL;
  options.prompt_bytes = 5;
  assert_int_equal(hr_generate(&job, &options, &result, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "NULL"));
  options.prompt_ids = &one;
  options.prompt_id_count = UINT64_C(1) << 62;
  assert_int_equal(hr_generate(&job, &options, &result, &error), HR_ERROR_USAGE);
  job.purpose = HR_PURPOSE_EVALUATE;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_evaluate(&job, &run, &ran, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "data path 0 of 1 is NULL"));
  job.finished = false;
  job.purpose = HR_PURPOSE_GENERATE;
  assert_int_equal(hr_generate(&job, &options, &result, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "hr_job_finish"));
  job.purpose = HR_PURPOSE_EVALUATE;
  assert_int_equal(hr_evaluate(&job, &run, &ran, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "hr_job_finish"));
  job.purpose = HR_PURPOSE_TRAIN;
  assert_int_equal(hr_train(&job, &run, &ran, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "hr_job_finish"));
  hr_data_example_deinit(NULL);
  hr_rendered_deinit(NULL);
}

static void no_value_of_ours_is_told(void **state) {
  const char *no_path[] = {NULL}, *none[] = {"nosuch.txt"};
  hr_job job = job_of("llama");
  hr_convert_options convert;
  hr_convert_result made;
  hr_merge_result merged;
  hr_data_options options;
  hr_data *data;
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
  hr_error error = {0};
  (void)state;
  hr_convert_options_init(&convert);
  convert.quantize = (hr_quantize)99;
  assert_int_equal(hr_convert(job.model.directory, "never", &convert, &made, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "--quantize has no value 99"));
  assert_int_equal(hr_merge("never", no_path, 1, "never", NULL, &merged, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "adapter 0 of 1 is NULL"));
  assert_int_equal(hr_job_set(&job, "lr", NULL, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_data_open(&job.model, none, 1, NULL, 16, &data, &error), HR_ERROR_IO); /* defaults */
  hr_data_options_init(&options);
  options.truncate = (hr_truncate)66;
  assert_int_equal(hr_data_open(&job.model, none, 1, &options, 16, &data, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "truncate 66"));
  assert_int_equal(hr_alloc_fake_hooks(1 << 20, &hooks, NULL), HR_OK);
  assert_int_equal(hr_alloc_create(&hooks, NULL, &alloc, &error), HR_OK);
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_cache_changes_no_token),
      cmocka_unit_test(a_stop_leaves_it_usable),
      cmocka_unit_test(numbers_without_a_meaning_are_refused),
      cmocka_unit_test(each_answer_draws_anew),
      cmocka_unit_test(without_positions),
      cmocka_unit_test(what_was_forgotten_is_told),
      cmocka_unit_test(no_value_of_ours_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
