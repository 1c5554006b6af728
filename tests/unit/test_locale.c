/* A program that works in its user's language: setlocale(LC_ALL, "") with a decimal comma. Nothing that the library reads,
 * writes or remembers may depend on it. The locale is made for the test, where localedef and its sources are. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/alloc.h>
#include <headroom/chat.h>
#include <headroom/explain.h>
#include <headroom/field.h>
#include <headroom/plan.h>

#include "base/number.h"
#include "base/text.h"
#include "support/scratch.h"

static const char source[] = "comment_char %\nescape_char /\n"
                             "LC_CTYPE\ncopy \"POSIX\"\nEND LC_CTYPE\nLC_COLLATE\ncopy \"POSIX\"\nEND LC_COLLATE\n"
                             "LC_MONETARY\ncopy \"POSIX\"\nEND LC_MONETARY\nLC_TIME\ncopy \"POSIX\"\nEND LC_TIME\n"
                             "LC_MESSAGES\ncopy \"POSIX\"\nEND LC_MESSAGES\n"
                             "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";

static char directory[PATH_BYTES];

static bool comma(void) {
  char text[16];
  (void)snprintf(text, sizeof text, "%.1f", 1.5);
  return strcmp(text, "1,5") == 0;
}

static int set_up(void **state) {
  (void)state;
  (void)snprintf(directory, sizeof directory, "%s", scratch_make("locale"));
  put_text(path_of("%s/source", directory), source);
  if (system(path_of("localedef --no-archive -c -i %s/source -f ANSI_X3.4-1968 %s/xx >%s/out 2>&1", directory,
                     directory, directory)) >= 0 &&
      setenv("LOCPATH", directory, 1) == 0)
    (void)setlocale(LC_ALL, "xx");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  (void)setlocale(LC_ALL, "C");
  scratch_remove(directory);
  return 0;
}

static void needs_a_comma(void) {
  if (!comma()) skip(); /* no localedef, or no sources of locales */
}

static void jobs_read_and_write_points(void **state) {
  static const char *const values[][2] = {{"lr", "0.0015"},
                                          {"betas", "0.9,0.95"},
                                          {"warmup", "0.1"},
                                          {"lora", "r=4,alpha=2.5,dropout=0.05"},
                                          {"budget", "1.5GiB"}};
  char text[200];
  hr_job job;
  hr_plan *plan;
  hr_error error = {0};
  (void)state;
  needs_a_comma();
  hr_job_init(&job);
  assert_true(job.learning_rate == 5e-5 && job.beta2 == 0.999);
  assert_int_equal(hr_model_open("custom:layers=1,hidden=16,heads=2,vocab=256,positions=64", &job.model, &error),
                   HR_OK);
  for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
    if (hr_job_set(&job, values[k][0], values[k][1], &error) != HR_OK) fail_msg("%s", error.message);
    assert_true(hr_job_get(&job, values[k][0], text, sizeof text));
    if (k < 4) assert_string_equal(text, values[k][1]);
  }
  assert_true(job.learning_rate == 0.0015 && job.budget_bytes == UINT64_C(3) << 29);
  if (hr_job_finish(&job, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(job.model.lora.alpha == 2.5);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  hr_plan_destroy(plan);
  job.learning_rate = 1000.5;
  assert_int_equal(hr_job_finish(&job, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "1000.5"));
  assert_true(comma()); /* the program's locale is as it was */
}

static void templates_print_points(void **state) {
  static const char template[] = "{{ 1.5 }} {{ 0.1 + 0.2 }} {{ '%.2f'|format(2.5) }} {{ '{:.1f}'.format(3.25) }}";
  const char *path = path_of("%s/t.jinja", directory), *messages = "[{\"role\":\"user\",\"content\":\"x\"}]";
  hr_chat *chat;
  hr_rendered out;
  hr_error error = {0};
  (void)state;
  needs_a_comma();
  put_text(path, template);
  if (hr_chat_open(path, NULL, &chat, &error) != HR_OK) fail_msg("%s", error.message);
  if (hr_chat_render(chat, messages, strlen(messages), false, &out, &error) != HR_OK) fail_msg("%s", error.message);
  assert_string_equal(out.text, "1.5 0.30000000000000004 2.50 3.2");
  hr_rendered_deinit(&out);
  hr_chat_close(chat);
}

static void words_for_people_have_points(void **state) {
  static const char message[] =
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0; 23.65 GiB total "
      "capacity; 20.10 GiB already allocated; 1.20 GiB free; 21.00 GiB reserved in total by PyTorch)";
  char size[32], conf[200];
  hr_alloc_config config = hr_alloc_config_default();
  hr_explanation *explanation;
  (void)state;
  needs_a_comma();
  assert_string_equal(hri_size_text(UINT64_C(3) << 29, size), "1.50 GiB");
  assert_true(hri_strtod("1.5", NULL) == 1.5);
  assert_int_equal(hr_alloc_config_parse("garbage_collection_threshold:0.8", &config, NULL), HR_OK);
  assert_true(hr_alloc_config_print(&config, conf, sizeof conf) > 0);
  assert_string_equal(conf, "garbage_collection_threshold:0.8");
  assert_int_equal(hr_explain_text(message, sizeof message - 1, NULL, &explanation, NULL), HR_OK);
  assert_true(explanation->failures[0].figures[HR_OOM_REQUESTED].bytes == UINT64_C(5) << 29);
  assert_non_null(strstr(explanation->failures[0].verdict, "409.60 MiB"));
  hr_explanation_destroy(explanation);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(jobs_read_and_write_points),
      cmocka_unit_test(templates_print_points),
      cmocka_unit_test(words_for_people_have_points),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
