/* Snapshots that PyTorch itself wrote (tests/oracle/scenarios.py, versions 2.1 to 2.15): what is read, and what the
 * replay makes of it, against the statistics that the same process printed at its end. */
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <headroom/replay.h>

typedef struct recording {
  const char *name; /* "2.15/gpt2" */
  hr_snapshot *snapshot;
  json_t *facts;
} recording;

static int64_t stat_of(const recording *r, const char *key) {
  const json_t *value = json_object_get(json_object_get(r->facts, "stats"), key);
  if (!json_is_integer(value)) fail_msg("%s: no %s", r->name, key);
  return json_integer_value(value);
}

static bool fact(const recording *r, const char *key) { return json_is_true(json_object_get(r->facts, key)); }

#define SAME(r, what, got, wanted)                                                                                     \
  do {                                                                                                                 \
    if ((int64_t)(got) != (int64_t)(wanted))                                                                           \
      fail_msg("%s: %s is %" PRId64 ", PyTorch has %" PRId64, (r)->name, what, (int64_t)(got), (int64_t)(wanted));     \
  } while (0)

static void check_read(const recording *r) {
  uint64_t total = 0, allocated = 0, active = 0, requested = 0;
  for (uint64_t i = 0; i < r->snapshot->segment_count; i++) {
    total += r->snapshot->segments[i].total_size;
    allocated += r->snapshot->segments[i].allocated_size;
    active += r->snapshot->segments[i].active_size;
    requested += r->snapshot->segments[i].requested_size;
  }
  SAME(r, "reserved", total, stat_of(r, "reserved_bytes.all.current"));
  SAME(r, "allocated", allocated, stat_of(r, "allocated_bytes.all.current"));
  SAME(r, "active", active, stat_of(r, "active_bytes.all.current"));
  SAME(r, "requested", requested, stat_of(r, "requested_bytes.all.current"));
  SAME(r, "events", r->snapshot->event_count, json_integer_value(json_object_get(r->facts, "events")));
  SAME(r, "unknown values", r->snapshot->unknown_count, 0);
  SAME(r, "repaired totals", r->snapshot->repaired_count, 0);
  assert_true(r->snapshot->settings.present == (strncmp(r->name, "2.1/", 4) != 0));
}

/* Ones of which a file does not say all: events that were lost; when pools were begun and ended; the cap that garbage
 * collection works with. */
static bool is_complete(const recording *r) {
  return fact(r, "began_empty") && !strstr(r->name, "memory-pool") && !strstr(r->name, "cuda-graph") &&
         !strstr(r->name, "collect");
}

static void check_replay(const recording *r, int *complete) {
  hr_error error = {0};
  hr_replay replay;
  hr_replay_options options = {.trace = UINT32_MAX};
  const json_t *fraction = json_object_get(r->facts, "fraction"); /* a cap is not in the file: the user has to say it */
  if (json_is_real(fraction))
    options.capacity_bytes =
        (uint64_t)(json_real_value(fraction) * (double)json_integer_value(json_object_get(r->facts, "capacity_bytes")));
  if (hr_replay_run(r->snapshot, &options, &replay, &error) != HR_OK) fail_msg("%s: %s", r->name, error.message);
  if (!is_complete(r)) {
    assert_true(fact(r, "began_empty") || replay.trust != HR_REPLAY_EXACT);
    return;
  }
  ++*complete;
  if (replay.trust != HR_REPLAY_EXACT) fail_msg("%s: %s", r->name, replay.trust_reason);
  SAME(r, "addresses", replay.same_address_count, replay.compared_count);
  SAME(r, "replayed reserved peak", replay.recorded.reserved_peak_bytes, stat_of(r, "reserved_bytes.all.peak"));
  SAME(r, "replayed allocated peak", replay.recorded.allocated_peak_bytes, stat_of(r, "allocated_bytes.all.peak"));
  SAME(r, "replayed active peak", replay.recorded.active_peak_bytes, stat_of(r, "active_bytes.all.peak"));
  SAME(r, "replayed reserved end", replay.recorded.reserved_end_bytes, stat_of(r, "reserved_bytes.all.current"));
  SAME(r, "recorded failure", replay.recorded_failed, stat_of(r, "num_ooms") > 0);
  SAME(r, "replayed failure", replay.recorded.failed, stat_of(r, "num_ooms") > 0);
}

static void check_file(const char *folder, const char *file, int *complete) {
  char path[8192], name[600];
  hr_error error = {0};
  recording r = {.name = name};
  snprintf(path, sizeof path, "%s/snapshots/real/%s/%s", HR_TEST_DATA, folder, file);
  snprintf(name, sizeof name, "%s/%.*s", folder, (int)(strlen(file) - strlen(".pickle.gz")), file);
  if (hr_snapshot_read(path, NULL, &r.snapshot, &error) != HR_OK) fail_msg("%s: %s", name, error.message);
  strcpy(strstr(path, ".pickle.gz"), ".json");
  r.facts = json_load_file(path, 0, NULL);
  assert_non_null(r.facts);
  check_read(&r);
  check_replay(&r, complete);
  json_decref(r.facts);
  hr_snapshot_destroy(r.snapshot);
}

static void test_snapshots(void **state) {
  (void)state;
  static const char *const folders[] = {"2.1", "2.9", "2.12", "2.15"};
  int files = 0, complete = 0;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/snapshots/real/%s", HR_TEST_DATA, folders[i]);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
      if (!strstr(entry->d_name, ".pickle.gz")) continue;
      files++;
      check_file(folders[i], entry->d_name, &complete);
    }
    closedir(directory);
  }
  print_message("%d snapshots, %d of them complete: replayed exactly\n", files, complete);
  assert_true(complete >= 25);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_snapshots)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
