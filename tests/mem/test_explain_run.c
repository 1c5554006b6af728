/* Run directories: each way in which a run can end, growth of the process, and files that are damaged or lie. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <headroom/explain.h>

#include "base/file.h"
#include "base/mem.h"
#include "snapshot/trail.h"

static char directory[64];

static void put(const char *name, const char *text) {
  char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  assert_int_equal(hri_file_replace(path, text, strlen(text), NULL), HR_OK);
}

static void put_run(const char *state, const char *step) {
  char text[600];
  (void)snprintf(
      text, sizeof text,
      "{\"schema_version\": 1, \"state\": \"%s\", \"step\": %s, \"steps\": 100, \"plan\": {\"budget_bytes\": 1000, \"tiers\": {\"device\": "
      "{\"planned_bytes\": 900, \"reserved_bytes\": 900, \"fixed_bytes\": 50, \"peak_bytes\": 880}, \"host\": {\"planned_bytes\": 0, "
      "\"fixed_bytes\": 0}}}}",
      state, step);
  put("run.json", text);
}

static void put_metrics(uint64_t first, uint64_t last, unsigned lines) {
  char *text = malloc(lines * 200 + 1), path[128];
  size_t used = 0;
  assert_non_null(text);
  for (unsigned k = 0; k < lines; k++)
    used += (size_t)sprintf(text + used,
                            "{\"step\":%u,\"loss\":1.5,\"process_resident_bytes\":%llu,\"process_peak_bytes\":%llu}\n",
                            k + 1, (unsigned long long)(first + (last - first) * k / (lines > 1 ? lines - 1 : 1)),
                            (unsigned long long)last);
  used += (size_t)sprintf(text + used, "{\"step\":%u,\"lo", lines + 1); /* the line that a kill cut */
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
  assert_int_equal(hri_file_replace(path, text, used, NULL), HR_OK);
  free(text);
}

static void put_trail(hri_trail_page page) {
  char path[128];
  hri_trail_page *mapped;
  (void)snprintf(path, sizeof path, "%s/memory", directory);
  assert_int_equal(hri_dir_make(path, NULL), HR_OK);
  (void)snprintf(path, sizeof path, "%s/memory/trail", directory);
  assert_int_equal(hri_trail_open(path, &mapped, NULL), HR_OK);
  memcpy(page.magic, mapped->magic, sizeof page.magic);
  memcpy(mapped, &page, sizeof page);
  hri_trail_close(mapped);
}

static void clear(void) {
  assert_int_equal(hri_dir_remove(directory, NULL), HR_OK);
  assert_int_equal(hri_dir_make(directory, NULL), HR_OK);
}

static hr_run_explanation *explain(void) {
  hr_run_explanation *run = NULL;
  hr_error error = {0};
  if (hr_explain_run(directory, &run, &error) != HR_OK) print_message("%s\n", error.message);
  assert_non_null(run);
  assert_int_equal(run->explanation->failure_count, 1);
  assert_true(run->explanation->failures[0].verdict[0] && run->explanation->failures[0].arithmetic_count &&
              run->explanation->failures[0].advice_count);
  return run;
}

static void expect(hr_run_end end, hr_oom_cause cause, hr_oom_certainty certainty) {
  hr_run_explanation *run = explain();
  const hr_oom_failure *f = &run->explanation->failures[0];
  if (run->end != end || f->cause != cause)
    print_message("%s, %s: %s\n", hr_run_end_name(run->end), hr_oom_cause_name(f->cause), f->verdict);
  assert_int_equal(run->end, end);
  assert_int_equal(f->cause, cause);
  assert_int_equal(f->certainty, certainty);
  hr_run_explanation_destroy(run);
}

static void test_done(void **state) {
  hr_run_explanation *run;
  (void)state;
  clear();
  put_run("finished", "100");
  put_metrics(5000, 5100, 100);
  run = explain();
  assert_int_equal(run->end, HR_RUN_DONE);
  assert_int_equal(run->step, 100);
  assert_int_equal(run->tier_count, 1);
  assert_int_equal(run->tiers[0].planned_bytes, 900);
  assert_int_equal(run->tiers[0].reserved_bytes, 900);
  assert_int_equal(run->first_resident_bytes, 5000);
  assert_int_equal(run->resident_bytes, 5100);
  hr_run_explanation_destroy(run);
  put_run("stopped", "40");
  expect(HR_RUN_STOPPED, HR_OOM_NO_FAILURE, HR_OOM_CERTAIN);
}

static void test_running(void **state) {
  hr_run_explanation *run;
  (void)state;
  clear();
  put_run("running", "0");
  put_metrics(5000, 5100, 7);
  expect(HR_RUN_UNKNOWN, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  put_trail((hri_trail_page){.pid = (uint32_t)getpid(),
                             .step = 100,
                             .steps = 100,
                             .layer = -1,
                             .phase = "sa\033[2Jve",
                             .op = "sink",
                             .program = "save"});
  expect(HR_RUN_RUNNING, HR_OOM_NO_FAILURE, HR_OOM_LIKELY);
  run = explain();
  assert_string_equal(run->last, "sa?[2Jve, sink (save)"); /* no control characters for the terminal */
  assert_string_equal(run->explanation->failures[0].arithmetic[0], "last: step 100 of 100, sa?[2Jve, sink (save)");
  for (uint32_t k = 0; k < run->explanation->failures[0].advice_count; k++) /* two processes in one directory */
    assert_null(strstr(run->explanation->failures[0].advice[k].text, "--resume"));
  hr_run_explanation_destroy(run);
}

enum { NO_PROCESS = 0x7fffffff }; /* above any pid_max */

static void test_killed(void **state) {
  hri_trail_page page = {.pid = NO_PROCESS,
                         .step = 9,
                         .steps = 100,
                         .layer = 3,
                         .phase = "backward",
                         .op = "linear_dx",
                         .program = "train",
                         .resident_bytes = 100000,
                         .peak_resident_bytes = 110000,
                         .usable_bytes = 1000};
  hr_run_explanation *run;
  (void)state;
  clear();
  put_run("running", "0");
  put_metrics(99000, 100000, 9);
  put_trail(page);
  run = explain();
  assert_int_equal(run->end, HR_RUN_KILLED);
  assert_int_equal(run->step, 9);
  assert_string_equal(run->last, "backward, layer 3, linear_dx (train)");
  assert_int_equal(run->explanation->failures[0].cause, HR_OOM_HOST_MEMORY);
  assert_int_equal(run->explanation->failures[0].certainty, HR_OOM_LIKELY);
  hr_run_explanation_destroy(run);
  page.usable_bytes = 900000; /* the machine had plenty */
  put_trail(page);
  expect(HR_RUN_KILLED, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  put_metrics(20000, 100000, 9000); /* 1 MB of metrics: only its ends and its middle are read */
  expect(HR_RUN_KILLED, HR_OOM_GROWTH, HR_OOM_LIKELY);
}

static void test_failed(void **state) {
  hri_trail_page page = {.pid = NO_PROCESS,
                         .state = HRI_TRAIL_FAILED,
                         .status = HR_ERROR_MEMORY,
                         .step = 3,
                         .steps = 100,
                         .message = "the host refused 3.00 GiB"};
  hr_run_explanation *run;
  (void)state;
  clear();
  put_run("running", "0");
  put_trail(page);
  run = explain();
  assert_int_equal(run->end, HR_RUN_FAILED);
  assert_int_equal(run->explanation->failures[0].cause, HR_OOM_HOST_MEMORY);
  assert_non_null(strstr(run->explanation->failures[0].verdict, "the host refused 3.00 GiB"));
  hr_run_explanation_destroy(run);
  page.status = HR_ERROR_IO;
  put_trail(page);
  expect(HR_RUN_FAILED, HR_OOM_NOT_MEMORY, HR_OOM_CERTAIN);
}

static bool advises(const hr_oom_failure *f, const char *words) {
  for (uint32_t k = 0; k < f->advice_count; k++)
    if (strstr(f->advice[k].text, words)) return true;
  return false;
}

/* A run whose disk was full cannot write its end into run.json, which says that it runs: the trail has the error, the checkpoints tell
 * from which step it goes on, the disk how much it has. */
static void test_full_disk(void **state) {
  hri_trail_page page = {.pid = NO_PROCESS,
                         .state = HRI_TRAIL_FAILED,
                         .status = HR_ERROR_IO,
                         .step = 90,
                         .steps = 100,
                         .message = "cannot write run/checkpoints/x/model.safetensors: No space left on device"};
  static const char *const made[] = {"checkpoints", "checkpoints/step-000030", "checkpoints/step-000060",
                                     "checkpoints/step-000090.set-aside-1"};
  char path[128];
  hr_run_explanation *run;
  (void)state;
  clear();
  put_run("running", "0");
  put_trail(page);
  run = explain();
  assert_int_equal(run->saved_step, -1);
  assert_true(advises(&run->explanation->failures[0], "it left no checkpoint"));
  hr_run_explanation_destroy(run);
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
    (void)snprintf(path, sizeof path, "%s/%s", directory, made[i]);
    assert_int_equal(hri_dir_make(path, NULL), HR_OK);
  }
  run = explain();
  assert_int_equal(run->end, HR_RUN_FAILED);
  assert_int_equal(run->explanation->failures[0].cause, HR_OOM_NOT_MEMORY);
  assert_int_equal(run->saved_step, 60);
  assert_true(advises(&run->explanation->failures[0], "last checkpoint, step 60"));
  assert_true(advises(&run->explanation->failures[0], "make room on the disk of the run, which has "));
  hr_run_explanation_destroy(run);
}

/* A run that failed and left no trail: its message alone does not say that it was not for memory, but a disk's does, and a quota leaves
 * less than the disk has free. */
static void test_message_alone(void **state) {
  static const char form[] = "{\"state\": \"failed\"%s, \"step\": 3, \"steps\": 10, \"plan\": {\"tiers\": {}}}";
  static const struct {
    const char *message;
    hr_oom_cause cause;
    hr_oom_certainty certainty;
  } known[] = {{", \"message\": \"cudaMalloc: out of memory\"", HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE},
               {"", HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE},
               {", \"message\": \"cannot write step-5: Disk quota exceeded\"", HR_OOM_NOT_MEMORY, HR_OOM_LIKELY}};
  (void)state;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    char text[256];
    hr_run_explanation *run;
    clear();
    (void)snprintf(text, sizeof text, form, known[i].message);
    put("run.json", text);
    expect(HR_RUN_FAILED, known[i].cause, known[i].certainty);
    run = explain();
    assert_null(strstr(run->explanation->failures[0].verdict, ": ok"));
    assert_int_equal(advises(&run->explanation->failures[0], "make room in the quota"),
                     known[i].cause == HR_OOM_NOT_MEMORY);
    assert_false(advises(&run->explanation->failures[0], "free now"));
    hr_run_explanation_destroy(run);
  }
}

/* What run.json says where the trail is lost. */
static void test_failed_without_trail(void **state) {
  hr_run_explanation *run;
  (void)state;
  clear();
  put("run.json",
      "{\"state\": \"diverged\", \"message\": \"the loss of step 7 is not finite\", \"step\": 7, \"steps\": 100, \"plan\": {\"tiers\": {}}}");
  run = explain();
  assert_int_equal(run->end, HR_RUN_FAILED);
  assert_int_equal(run->explanation->failures[0].cause, HR_OOM_NOT_MEMORY);
  assert_int_equal(run->explanation->failures[0].certainty, HR_OOM_CERTAIN);
  assert_non_null(strstr(run->explanation->failures[0].verdict, "the loss of step 7 is not finite"));
  assert_false(advises(&run->explanation->failures[0], "make room"));
  hr_run_explanation_destroy(run);
}

static void refuses(hr_status code, const char *words) {
  hr_run_explanation *run = NULL;
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  assert_int_equal(hr_explain_run(directory, &run, &error), code);
  assert_null(run);
  if (!strstr(error.message, words)) print_message("%s\n", error.message);
  assert_non_null(strstr(error.message, words));
  assert_int_equal(hri_mem_live_bytes(), live);
}

static void test_refused(void **state) {
  (void)state;
  clear();
  refuses(HR_ERROR_IO, "run.json");
  put("run.json", "{\"state\": \"running\"");
  refuses(HR_ERROR_INPUT, "run.json");
  put_run("asleep", "0");
  refuses(HR_ERROR_INPUT, "field 'state'");
  put_run("running", "-3");
  refuses(HR_ERROR_INPUT, "field 'step'");
  put("run.json", "{\"state\": \"running\", \"plan\": {}}");
  refuses(HR_ERROR_INPUT, "tiers");
  put_run("running", "0");
  put("metrics.jsonl", "no json\n{\"step\": -1}\n\n[]\n{\"step\":2,\"process_resident_bytes\":\"x\"}\n");
  expect(HR_RUN_UNKNOWN, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE); /* what is no line of metrics does not count */
}

/* A trail that is no trail is left out by name; what else the run left is read. */
static void test_torn_trail(void **state) {
  hr_run_explanation *run;
  (void)state;
  clear();
  put_run("running", "0");
  put_metrics(5000, 5100, 100);
  put_trail((hri_trail_page){.pid = 1});
  put("memory/trail", "short");
  run = explain();
  assert_int_equal(run->end, HR_RUN_UNKNOWN);
  assert_int_equal(run->step, 100);
  assert_int_equal(run->resident_bytes, 5100);
  assert_non_null(strstr(run->explanation->failures[0].arithmetic[0], "left out: "));
  assert_non_null(strstr(run->explanation->failures[0].arithmetic[0], "memory/trail"));
  hr_run_explanation_destroy(run);
}

/* A cut under a run loses the trail and not the run; a SIGBUS that somebody sends ends it at once. */
static void test_bus_errors(void **state) {
  (void)state;
  for (int sent = 0; sent < 2; sent++) {
    char path[128];
    int status;
    pid_t child;
    clear();
    (void)snprintf(path, sizeof path, "%s/trail", directory);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      hri_trail_page *page;
      const struct rlimit none = {0, 0};
      (void)setrlimit(RLIMIT_CORE, &none);
      (void)signal(SIGBUS, SIG_DFL); /* the test's own, and a sanitizer's: a trail guards where nobody else does */
      if (hri_trail_open(path, &page, NULL) != HR_OK) _exit(9);
      if (sent) (void)kill(getpid(), SIGBUS);
      else if (truncate(path, 0) != 0) _exit(9);
      page->step = 7;
      _exit(page->step == 7 ? 0 : 9);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (sent) assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    else assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

static void test_refused_memory(void **state) {
  uint64_t live = hri_mem_live_bytes();
  bool done = false;
  (void)state;
  clear();
  put_run("running", "0");
  put_metrics(20000, 100000, 5);
  put_trail((hri_trail_page){.pid = NO_PROCESS, .step = 9, .steps = 100});
  live = hri_mem_live_bytes();
  for (uint64_t nth = 1; !done && nth < 2000; nth++) {
    hr_run_explanation *run = NULL;
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(nth);
    status = hr_explain_run(directory, &run, &error);
    done = status == HR_OK;
    hri_mem_fail_after(0);
    assert_true(status == HR_OK || (error.message[0] && !run));
    hr_run_explanation_destroy(run);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
  assert_true(done);
}

static int set_up(void **state) {
  (void)state;
  (void)snprintf(directory, sizeof directory, "explain-run-%ld", (long)getpid());
  return hri_dir_make(directory, NULL) == HR_OK ? 0 : -1;
}
static int tear_down(void **state) {
  (void)state;
  return hri_dir_remove(directory, NULL) == HR_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_done),
      cmocka_unit_test(test_running),
      cmocka_unit_test(test_killed),
      cmocka_unit_test(test_failed),
      cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_message_alone),
      cmocka_unit_test(test_failed_without_trail),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_torn_trail),
      cmocka_unit_test(test_bus_errors),
      cmocka_unit_test(test_refused_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
