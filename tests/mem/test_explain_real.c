/* The explainer on snapshots that PyTorch itself recorded (tests/snapshots/real, made by tests/oracle/scenarios.py,
 * whose programs are the truth): cause and certainty of each, with and without the device's total; the user's own
 * lines; figures and shares against the text of the error that the same process raised; and what the text alone is
 * explained to. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <headroom/explain.h>

#define DIRECTORY HR_TEST_DATA "/snapshots/real"
#define COULD(cause) (1u << HR_OOM_##cause)

typedef struct expectation {
  const char *name; /* of the scenario */
  hr_oom_cause cause;
  hr_oom_certainty certainty;
  unsigned could;   /* candidates that an undecided one must name */
  unsigned of_text; /* what the text of the error may be explained to: it does not show how full the pieces are */
  const char *phase;
  const char *says[3]; /* among verdict and reasons; NULL: no more */
  const char *first;   /* in the first advice */
} expectation;

static const expectation expectations[] = {
    /* every second of 24 tensors is freed: 132 MiB in pieces of at most 9 */
    {"fragmented-oom",
     HR_OOM_FRAGMENTED,
     HR_OOM_CERTAIN,
     0,
     COULD(FRAGMENTED),
     "",
     {"132.00 MiB were cached", "scenarios.py:140", "60.00 MiB"},
     "roundup_power2"},
    {"fragmented-expandable",
     HR_OOM_FRAGMENTED,
     HR_OOM_CERTAIN,
     0,
     COULD(FRAGMENTED),
     "",
     {"112.00 MiB were cached", "scenarios.py:140"},
     "in place of what is set"},
    /* a second step with a larger batch; steps whose batches rise */
    {"too-big-oom",
     HR_OOM_TOO_BIG,
     HR_OOM_LIKELY,
     0,
     COULD(TOO_BIG) | COULD(FRAGMENTED),
     "forward",
     {"segment of 20.00 MiB", "scenarios.py:", "but hardly much more"},
     "PYTORCH_ALLOC_CONF"},
    {"backward-oom",
     HR_OOM_TOO_BIG,
     HR_OOM_LIKELY,
     0,
     COULD(TOO_BIG) | COULD(FRAGMENTED),
     "loss",
     {"less than the rest of its step needs", "scenarios.py:48", "but hardly much more"},
     "expandable_segments:True"},
    {"backward-oom-expandable",
     HR_OOM_TOO_BIG,
     HR_OOM_LIKELY,
     0,
     COULD(TOO_BIG),
     "backward",
     {"the batches get larger", "40.00 MiB asked of the driver", "no setting of the allocator helps"},
     "smaller micro-batch"},
    {"optimizer-oom",
     HR_OOM_TOO_BIG,
     HR_OOM_LIKELY,
     0,
     COULD(TOO_BIG),
     "optimizer",
     {"short by 2.17 MiB", "scenarios.py:161"},
     "PYTORCH_ALLOC_CONF"},
    /* set_per_process_memory_fraction leaves no trace in a snapshot: the text has it */
    {"fraction-oom",
     HR_OOM_UNKNOWN,
     HR_OOM_UNDECIDABLE,
     COULD(CAP),
     COULD(CAP),
     "forward",
     {"1.72 GiB >= 24.00 MiB", "set_per_process_memory_fraction"},
     "explain the text of the error too"},
    /* no failure: 2 MiB of each step are kept */
    {"leak", HR_OOM_GROWTH, HR_OOM_LIKELY, 0, 0, NULL, {"2.00 MiB more every step", "scenarios.py:133"}, "loss.item()"},
};

static const expectation quiet = {"", HR_OOM_NO_FAILURE, HR_OOM_CERTAIN, 0, 0, NULL, {"peak of live tensors"}, NULL};

static const expectation *expected_of(const char *scenario) {
  for (size_t k = 0; k < sizeof expectations / sizeof *expectations; k++)
    if (strcmp(expectations[k].name, scenario) == 0) return &expectations[k];
  return &quiet;
}

static bool says(const hr_oom_failure *f, const char *words) {
  char all[HR_OOM_LINE_BYTES * (HR_OOM_MAX_LINES + 1)] = "";
  size_t used = (size_t)snprintf(all, sizeof all, "%s", f->verdict);
  for (uint32_t k = 0; k < f->arithmetic_count; k++)
    used += (size_t)snprintf(all + used, sizeof all - used, "\n%s", f->arithmetic[k]);
  return strstr(all, words) != NULL;
}

static hr_explanation *explain(const hr_snapshot *snapshot, uint64_t total) {
  hr_oom_evidence evidence = {.device_total_bytes = total};
  hr_inspect_options at = {.at = HR_AT_OOM, .trace = hr_explain_trace(snapshot)};
  hr_inspection *inspection = NULL;
  hr_replay replay;
  hr_replay_result *results = NULL;
  hr_explanation *e = NULL;
  hr_error error = {0};
  if (hr_inspect(snapshot, &at, &inspection, &error) != HR_OK) fail_msg("%s", error.message);
  evidence.inspection = inspection;
  if (hr_replay_search(snapshot, &(hr_replay_options){.trace = inspection->trace}, &replay, &results,
                       &evidence.result_count, &error) == HR_OK) {
    evidence.replay = &replay;
    evidence.results = results;
  }
  if (hr_explain_snapshot(&evidence, NULL, &e, &error) != HR_OK) fail_msg("%s", error.message);
  hr_free(results);
  hr_inspection_destroy(inspection);
  return e;
}

static void check_sums(const char *name, const hr_oom_failure *f, uint64_t total) {
  uint64_t sum = 0;
  for (uint32_t k = 0; k < f->share_count; k++) sum += f->shares[k].bytes;
  if (sum != f->share_total_bytes || f->excess_bytes) fail_msg("%s: the shares do not add up", name);
  /* Nothing else is on the fake device: with a failure, what is reserved and free is all of it. */
  if (total && f->figures[HR_OOM_FREE].state == HR_OOM_READ && sum != total)
    fail_msg("%s: the shares are not the device", name);
}

static void check_cause(const char *name, const hr_oom_failure *f, const expectation *x) {
  if (f->cause != x->cause || f->certainty != x->certainty || (f->candidates & x->could) != x->could)
    fail_msg("%s: %s, %s: %s", name, hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty), f->verdict);
  if (x->phase && strcmp(f->phase, x->phase) != 0) fail_msg("%s: in %s", name, f->phase);
  for (int k = 0; k < 3 && x->says[k]; k++)
    if (!says(f, x->says[k])) fail_msg("%s does not say \"%s\"", name, x->says[k]);
  if (x->first && (f->advice_count == 0 || !strstr(f->advice[0].text, x->first)))
    fail_msg("%s: the first advice is \"%s\"", name, f->advice_count ? f->advice[0].text : "");
}

static void same_within_print(const char *name, const hr_oom_failure *text, const hr_oom_failure *f,
                              hr_oom_figure figure) {
  const hr_oom_value *printed = &text->figures[figure], *own = &f->figures[figure];
  uint64_t apart = printed->bytes > own->bytes ? printed->bytes - own->bytes : own->bytes - printed->bytes;
  if (printed->state == HR_OOM_ABSENT || apart > printed->slack_bytes)
    fail_msg("%s: %s is %llu, the error has %llu", name, hr_oom_figure_name(figure), (unsigned long long)own->bytes,
             (unsigned long long)printed->bytes);
}

/* The error's own figures, which PyTorch took from its allocator at the same moment. */
static void check_text(const char *name, const char *message, const hr_oom_failure *f, const expectation *x) {
  hr_explanation *e = NULL;
  hr_error error;
  assert_int_equal(hr_explain_text(message, strlen(message), NULL, &e, &error), HR_OK);
  if (e->failure_count != 1) fail_msg("%s: %u messages in the text", name, e->failure_count);
  if (!(x->of_text >> e->failures[0].cause & 1))
    fail_msg("%s: its text is %s", name, hr_oom_cause_name(e->failures[0].cause));
  same_within_print(name, &e->failures[0], f, HR_OOM_FREE);
  same_within_print(name, &e->failures[0], f, HR_OOM_ALLOCATED);
  same_within_print(name, &e->failures[0], f, HR_OOM_UNALLOCATED);
  hr_explanation_destroy(e);
}

static void check(const char *name, const char *scenario, const hr_snapshot *snapshot, const json_t *facts) {
  const char *message = json_string_value(json_object_get(facts, "error"));
  uint64_t capacity = (uint64_t)json_integer_value(json_object_get(facts, "capacity_bytes"));
  const expectation *x = expected_of(scenario);
  assert_true(capacity > 0);
  if (message && x == &quiet) fail_msg("%s failed, and its cause is not in the table", name);
  for (int with_total = 0; with_total < 2; with_total++) {
    uint64_t total = with_total ? capacity : 0;
    hr_explanation *e = explain(snapshot, total);
    const hr_oom_failure *f = &e->failures[0];
    check_cause(name, f, x);
    check_sums(name, f, total);
    if (message) check_text(name, message, f, x);
    /* PyTorch itself failed under it: fragmented-expandable is the same program. */
    for (uint32_t k = 0; k < f->advice_count && strcmp(scenario, "fragmented-oom") == 0; k++)
      if (f->advice[k].basis == HR_OOM_PROVEN && strstr(f->advice[k].text, "=expandable_segments:True "))
        fail_msg("%s: what fails is called proven", name);
    hr_explanation_destroy(e);
  }
}

static unsigned check_folder(const char *version) {
  static const char end[] = ".pickle.gz";
  char path[512], scenario[128];
  const struct dirent *entry;
  unsigned count = 0;
  DIR *folder;
  (void)snprintf(path, sizeof path, DIRECTORY "/%s", version);
  folder = opendir(path);
  if (!folder) return 0; /* a file beside the folders of versions */
  while ((entry = readdir(folder)) != NULL) {
    const char *dot = strstr(entry->d_name, end);
    hr_snapshot *snapshot = NULL;
    hr_error error = {0};
    json_t *facts;
    char name[256];
    if (!dot) continue;
    (void)snprintf(scenario, sizeof scenario, "%.*s", (int)(dot - entry->d_name), entry->d_name);
    (void)snprintf(name, sizeof name, "%s/%s", version, scenario);
    (void)snprintf(path, sizeof path, DIRECTORY "/%s/%s", version, entry->d_name);
    if (hr_snapshot_read(path, NULL, &snapshot, &error) != HR_OK) fail_msg("%s: %s", name, error.message);
    (void)snprintf(path, sizeof path, DIRECTORY "/%s.json", name);
    facts = json_load_file(path, 0, NULL);
    assert_non_null(facts);
    check(name, scenario, snapshot, facts);
    json_decref(facts);
    hr_snapshot_destroy(snapshot);
    count++;
  }
  (void)closedir(folder);
  return count;
}

static void test_real(void **state) {
  const struct dirent *entry;
  unsigned count = 0;
  DIR *folder = opendir(DIRECTORY);
  (void)state;
  assert_non_null(folder);
  while ((entry = readdir(folder)) != NULL)
    if (entry->d_name[0] != '.') count += check_folder(entry->d_name);
  (void)closedir(folder);
  print_message("%u real snapshots\n", count);
  assert_true(count >= 30);
}

/* The words of ten versions: "VERSION SCRIPT: text" (tests/oracle/messages.py; the scripts are in
 * tests/oracle/scripts.py). */
static void test_messages(void **state) {
  static const struct {
    const char *script;
    unsigned right;
  } scripts[] = {{"fragmented", COULD(TOO_BIG)},                 /* its first failure: 180 + 150 of 256 MiB */
                 {"fraction-0.33", COULD(CAP) | COULD(UNKNOWN)}, /* up to 2.4 the text has no cap */
                 {"pools-tight", COULD(PRIVATE_POOL) | COULD(FRAGMENTED)},
                 {"throw-on-oom", COULD(CAP)}};
  char line[4096];
  unsigned count = 0;
  FILE *file = fopen(DIRECTORY "/messages.txt", "r");
  (void)state;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    char *text = strstr(line, ": "), *script = strchr(line, ' ');
    hr_explanation *e = NULL;
    const hr_oom_failure *f;
    hr_error error;
    assert_true(text && script && script < text);
    *text = 0;
    text += 2;
    assert_int_equal(hr_explain_text(text, strlen(text), NULL, &e, &error), HR_OK);
    assert_int_equal(e->failure_count, 1);
    f = &e->failures[0];
    for (size_t k = 0; k < sizeof scripts / sizeof *scripts; k++) {
      if (strcmp(scripts[k].script, script + 1) != 0) continue;
      count++;
      if (!(scripts[k].right >> f->cause & 1) || (f->cause == HR_OOM_UNKNOWN && !(f->candidates & COULD(CAP))))
        fail_msg("%s: %s, %s", line, hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty));
    }
    assert_int_equal(f->figures[HR_OOM_REQUESTED].state, HR_OOM_READ);
    hr_explanation_destroy(e);
  }
  (void)fclose(file);
  assert_true(count >= 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_real), cmocka_unit_test(test_messages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
