/* Statistics as text: keys, order and the summary table against what torch.cuda itself prints for the same numbers
 * (tests/alloc/summaries.txt), and as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/alloc.h>

#include "base/file.h"
#include "base/json.h"

enum { KEY_COUNT = 122, CASE_COUNT = 11 };

typedef struct entry {
  char key[64];
  int64_t value;
} entry;

/* Every number of hr_alloc_stats with the key that PyTorch gives it, written out a second way. */
static int64_t *place(hr_alloc_stats *s, const char *key) {
  static const char *const families[] = {"allocation",      "segment",        "active",       "inactive_split",
                                         "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
                                         "requested_bytes"};
  static const char *const pools[] = {"all", "small_pool", "large_pool"}, *const measures[] = {"current", "peak",
                                                                                               "allocated", "freed"};
  hr_alloc_stat *const stats[] = {s->allocation,      s->segment,        s->active,       s->inactive_split,
                                  s->allocated_bytes, s->reserved_bytes, s->active_bytes, s->inactive_split_bytes,
                                  s->requested_bytes};
  char name[64];
  for (int f = 0; f < 9; f++)
    for (int p = 0; p < 3; p++)
      for (int m = 0; m < 4; m++) {
        (void)snprintf(name, sizeof name, "%s.%s.%s", families[f], pools[p], measures[m]);
        if (strcmp(name, key) == 0) return &stats[f][p].current + m;
      }
  for (int m = 0; m < 4; m++) {
    (void)snprintf(name, sizeof name, "oversize_allocations.%s", measures[m]);
    if (strcmp(name, key) == 0) return &s->oversize_allocations.current + m;
    (void)snprintf(name, sizeof name, "oversize_segments.%s", measures[m]);
    if (strcmp(name, key) == 0) return &s->oversize_segments.current + m;
  }
  if (strcmp(key, "num_alloc_retries") == 0) return &s->num_alloc_retries;
  if (strcmp(key, "num_ooms") == 0) return &s->num_ooms;
  if (strcmp(key, "num_sync_all_streams") == 0) return &s->num_sync_all_streams;
  if (strcmp(key, "num_device_alloc") == 0) return &s->num_device_alloc;
  if (strcmp(key, "num_device_free") == 0) return &s->num_device_free;
  if (strcmp(key, "max_split_size") == 0) return &s->max_split_size;
  fail_msg("unknown key %s", key);
  return NULL;
}

typedef struct walk {
  const entry *wanted;
  int count;
} walk;

static void compare(void *context, const char *key, int64_t value) {
  walk *w = context;
  assert_true(w->count < KEY_COUNT);
  assert_string_equal(key, w->wanted[w->count].key);
  if (value != w->wanted[w->count].value)
    fail_msg("%s: %ld, not %ld", key, (long)value, (long)w->wanted[w->count].value);
  w->count++;
}

static char *next_line(char **at) {
  char *line = *at, *end = strchr(line, '\n');
  if (!*line) return NULL;
  *end = 0;
  *at = end + 1;
  return line;
}

static void prints_what_pytorch_prints(void **state) {
  char *bytes, *at, *line, name[64], kind[32];
  uint64_t count;
  int cases = 0, device;
  (void)state;
  assert_int_equal(hri_file_read(HR_TEST_DATA "/alloc/summaries.txt", 1 << 20, &bytes, &count, NULL), HR_OK);
  at = bytes;
  while ((line = next_line(&at))) {
    entry entries[KEY_COUNT];
    hr_alloc_stats stats;
    walk w = {entries, 0};
    char *text, *from;
    memset(&stats, 0x55, sizeof stats);
    assert_int_equal(sscanf(line, "case %63s %d %31s", name, &device, kind), 3);
    for (int k = 0; k < KEY_COUNT; k++) {
      assert_int_equal(sscanf(next_line(&at), "%63s %ld", entries[k].key, &entries[k].value), 2);
      *place(&stats, entries[k].key) = entries[k].value;
    }
    hr_alloc_stats_each(&stats, compare, &w);
    assert_int_equal(w.count, KEY_COUNT);
    assert_int_equal(hr_alloc_summary(&stats, device, strcmp(kind, "abbreviated") == 0, &text, NULL), HR_OK);
    from = text;
    while (*at == '|') {
      line = next_line(&at);
      if (strncmp(from, line, strlen(line)) != 0 || from[strlen(line)] != '\n')
        fail_msg("%s: want %s\nat %.80s", name, line, from);
      from += strlen(line) + 1;
    }
    assert_string_equal(from, "");
    hr_free(text);
    cases++;
  }
  assert_int_equal(cases, CASE_COUNT);
  hri_free(bytes);
}

static void number_each(void *context, const char *key, int64_t value) {
  hr_alloc_stats *stats = context;
  static int64_t number = 1;
  (void)value;
  number++;
  *place(stats, key) = number * (number % 2 ? -1 : 1000000007);
}

typedef struct json_walk {
  const hri_json *root;
  int count;
} json_walk;

static void in_json(void *context, const char *key, int64_t value) {
  json_walk *w = context;
  int64_t found = 0;
  assert_int_equal(hri_json_get_i64(w->root, key, INT64_MIN, INT64_MAX, &found, NULL), HR_OK);
  assert_int_equal(found, value);
  w->count++;
}

static void writes_json(void **state) {
  hr_alloc_stats stats, filled;
  hri_json root;
  json_walk w = {&root, 0};
  char *text;
  (void)state;
  memset(&stats, 0, sizeof stats);
  hr_alloc_stats_each(&stats, number_each, &filled);
  assert_int_equal(hr_alloc_stats_json(&filled, &text, NULL), HR_OK);
  assert_int_equal(hri_json_parse(text, strlen(text), "stats", &root, NULL), HR_OK);
  hr_alloc_stats_each(&filled, in_json, &w);
  assert_int_equal(w.count, KEY_COUNT);
  assert_int_equal(json_object_size(root.value), KEY_COUNT);
  hri_json_deinit(&root);
  hr_free(text);
}

static void survives_refused_memory(void **state) {
  hr_alloc_stats stats = {0};
  uint64_t live = hri_mem_live_bytes(), nth = 1;
  int done = 0;
  (void)state;
  for (; done < 2; nth++) {
    char *text = (char *)&stats;
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(nth);
    status = done ? hr_alloc_stats_json(&stats, &text, &error) : hr_alloc_summary(&stats, 0, false, &text, &error);
    hri_mem_fail_after(0);
    if (status == HR_OK) {
      hr_free(text);
      done++;
      assert_true(nth > 1);
      nth = 0;
    } else {
      assert_int_equal(status, HR_ERROR_MEMORY);
      assert_null(text);
    }
    assert_int_equal(hri_mem_live_bytes(), live);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(prints_what_pytorch_prints), cmocka_unit_test(writes_json),
                                     cmocka_unit_test(survives_refused_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
