/* Accounts of memory: what is counted is what malloc gave, the limit refuses and nothing else, and readers need what
 * they are said to: a file that took N bytes is read with N and a little, and refused with less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <malloc.h>

#include <headroom/explain.h>
#include <headroom/inspect.h>
#include <headroom/replay.h>
#include <headroom/snapshot.h>

#include "base/account.h"
#include "made_snapshot.h"
#include "support/scratch.h"

static const char *scratch;

/* Blocks come a few bytes larger when the heap has a hole of that size, and by whole pages when they are mapped. */
enum { SLACK = 256 << 10 };

static void test_counts_blocks(void **state) {
  hri_account a;
  char *p, *q, *old = hri_alloc(5000);
  (void)state;
  hri_account_begin(&a, 1 << 20);
  p = hri_alloc(1000);
  assert_int_equal(a.held_bytes, malloc_usable_size(p) + sizeof(size_t));
  p = hri_realloc(p, 200000);
  assert_int_equal(a.held_bytes, malloc_usable_size(p) + sizeof(size_t));
  q = hri_alloc_zero(10, 10);
  assert_int_equal(a.held_bytes, malloc_usable_size(p) + malloc_usable_size(q) + 2 * sizeof(size_t));
  hri_free(p), hri_free(q);
  assert_int_equal(a.held_bytes, 0);
  assert_true(a.peak_bytes >= 200100 && a.peak_bytes < 210000);
  hri_free(old); /* from before: it makes no room */
  assert_true(a.held_bytes < -5000);
  assert_null(hri_alloc((1 << 20) + 1));
  assert_int_equal(a.refused_bytes, (1 << 20) + 1);
  assert_int_equal(a.refused_held, 0);
  assert_int_equal(hri_account_end(&a, HR_OK, "x", NULL), HR_OK);
}

static void test_refuses_beyond(void **state) {
  hri_account outer, inner;
  hr_error error = {0};
  char *p, *q;
  (void)state;
  hri_account_begin(&outer, 1 << 20);
  p = hri_alloc(600 << 10);
  hri_account_begin(&inner, 1 << 20);
  q = hri_alloc(300 << 10);
  assert_non_null(q);
  assert_null(hri_alloc(300 << 10)); /* the outer one's */
  assert_int_equal(inner.refused_bytes, 0);
  assert_int_equal(outer.refused_bytes, 300 << 10);
  assert_null(hri_realloc(q, 800 << 10));
  assert_null(hri_alloc_zero(1 << 10, 900));
  assert_null(hri_alloc_zero(UINT64_MAX, 2));
  assert_int_equal(hri_account_end(&inner, HR_ERROR_MEMORY, "FILE", &error), HR_ERROR_MEMORY);
  assert_non_null(strstr(error.message, "FILE: needs more memory than the 1.00 MiB")); /* its own, too, at last */
  assert_int_equal(hri_account_end(&outer, HR_ERROR_MEMORY, "OUTER", &error), HR_ERROR_MEMORY);
  assert_non_null(strstr(error.message, "OUTER: needs more memory than the 1.00 MiB"));
  assert_int_equal(error.available_bytes, 1 << 20);
  hri_free(p), hri_free(q);
  assert_null(hri_account_open);
  p = hri_alloc(2 << 20); /* nobody counts any more */
  assert_non_null(p);
  hri_free(p);
  hri_account_begin(&outer, 1 << 20);
  hri_mem_fail_after(1);
  assert_null(hri_alloc(16));
  hri_mem_fail_after(0);
  assert_int_equal(hri_account_end(&outer, HR_ERROR_MEMORY, "FILE", &error), HR_ERROR_MEMORY);
  assert_non_null(strstr(error.message, "FILE: the system refused more memory")); /* not the limit's doing */
}

/* ---- readers ---- */

static hr_status read_only(const char *path, hr_error *error) {
  hr_snapshot *s = NULL;
  hr_status status = hr_snapshot_read(path, NULL, &s, error);
  hr_snapshot_destroy(s);
  return status;
}

/* All that inspect, explain and replay do with a file. */
static hr_status read_and_judge(const char *path, hr_error *error) {
  hr_snapshot *s = NULL;
  hr_inspection *p = NULL;
  hr_replay replay;
  hr_replay_result *results = NULL;
  hr_explanation *explanation = NULL;
  uint32_t count = 0;
  hr_oom_evidence evidence = {0};
  char *text = NULL;
  hr_status status = hr_snapshot_read(path, NULL, &s, error);
  if (status == HR_OK) status = hr_inspect(s, NULL, &p, error);
  if (status == HR_OK) status = hr_inspect_json(p, 10, &text, error);
  if (status == HR_OK) status = hr_replay_search(s, NULL, &replay, &results, &count, error);
  if (status == HR_OK) {
    evidence = (hr_oom_evidence){.inspection = p, .replay = &replay, .results = results, .result_count = count};
    status = hr_explain_snapshot(&evidence, NULL, &explanation, error);
  }
  hr_explanation_destroy(explanation);
  hr_free(results);
  hr_free(text);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
  return status;
}

static hr_status within(uint64_t limit, hr_status (*work)(const char *, hr_error *), const char *path, hr_error *error,
                        uint64_t *peak) {
  hri_account a;
  hr_status status;
  hri_account_begin(&a, limit);
  status = work(path, error);
  *peak = a.peak_bytes > 0 ? (uint64_t)a.peak_bytes : 0;
  assert_true(*peak <= limit + 65536u); /* blocks are rounded up after the request was allowed */
  assert_int_equal(a.held_bytes, 0);
  return hri_account_end(&a, status, path, error);
}

static void check_need(hr_status (*work)(const char *, hr_error *), const char *path) {
  uint64_t need, peak;
  hr_error error = {0};
  if (within(INT64_MAX, work, path, &error, &need) != HR_OK) fail_msg("%s", error.message);
  assert_true(need > 4 * SLACK);
  if (within(need + SLACK, work, path, &error, &peak) != HR_OK) fail_msg("%s", error.message);
  for (uint64_t part = 1; part <= 8; part++) { /* wherever the limit is met, it is an answer */
    const uint64_t limit = (need - SLACK) * part / 8;
    assert_int_equal(within(limit, work, path, &error, &peak), HR_ERROR_MEMORY);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "needs more memory than the"));
    assert_true(error.hint[0] && error.available_bytes == limit);
  }
}

/* One snapshot in each form that is read. */
static void test_files_need_what_they_took(void **state) {
  const made_options how = {.seed = 5,
                            .event_count = 20000,
                            .device_count = 1,
                            .segment_count = 40,
                            .slot_count = 30,
                            .stack_count = 300,
                            .stack_depth = 20,
                            .times = true,
                            .began_empty = true,
                            .format = "pytorch-2.14"};
  hr_snapshot *s = make_snapshot(&how);
  const char *plain = path_of("%s/plain.pickle", scratch), *packed = path_of("%s/packed.pickle.gz", scratch),
             *json = path_of("%s/all.json", scratch);
  (void)state;
  assert_non_null(s);
  assert_int_equal(hr_snapshot_write(s, plain, NULL, NULL), HR_OK);
  assert_int_equal(hr_snapshot_write(s, packed, NULL, NULL), HR_OK);
  assert_int_equal(hr_snapshot_export(s, HR_EXPORT_JSON, 0, 0, json, NULL), HR_OK);
  hr_snapshot_destroy(s);
  check_need(read_only, plain);
  check_need(read_only, packed);
  check_need(read_only, json);
  check_need(read_and_judge, plain);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts_blocks), cmocka_unit_test(test_refuses_beyond),
                                     cmocka_unit_test(test_files_need_what_they_took)};
  int failed;
  scratch = scratch_make("account");
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  scratch_remove(scratch);
  return failed;
}
