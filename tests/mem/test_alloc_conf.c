/* Allocator settings: what PyTorch 2.13 itself makes of the same texts (tests/alloc/conf_cases.txt), the keys of its
 * CUDA side by hand, errors that say what is wrong, and print and parse as inverses. */
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
#include "support/roll.h"

static void check_config(const char *text, const hr_alloc_config *c, const char *wanted) {
  uint64_t sizes[3], divisions[HR_ALLOC_DIVISION_COUNT];
  double threshold;
  int expandable, background, used = 0, more = 0;
  assert_int_equal(sscanf(wanted, "%lu %lu %lu %lf %d %d%n", &sizes[0], &sizes[1], &sizes[2], &threshold, &expandable,
                          &background, &used),
                   6);
  for (int k = 0; k < HR_ALLOC_DIVISION_COUNT; k++, used += more)
    assert_int_equal(sscanf(wanted + used, "%lu%n", &divisions[k], &more), 1);
  if (c->large_segment_bytes != sizes[0] || c->max_split_bytes != sizes[1] ||
      c->max_non_split_rounding_bytes != sizes[2] || c->garbage_collection_threshold != threshold ||
      c->expandable_segments != expandable || c->pinned_use_background_threads != background ||
      memcmp(c->roundup_power2_divisions, divisions, sizeof divisions) != 0)
    fail_msg("'%s' is not read as PyTorch reads it: %s", text, wanted);
}

static void reads_as_pytorch_does(void **state) {
  char *bytes, *line, *next;
  uint64_t count;
  int cases = 0, refused = 0;
  (void)state;
  assert_int_equal(hri_file_read(HR_TEST_DATA "/alloc/conf_cases.txt", 1 << 20, &bytes, &count, NULL), HR_OK);
  for (line = bytes; *line; line = next) {
    char *tab = strchr(line, '\t');
    hr_alloc_config config = hr_alloc_config_default();
    hr_error error = {0};
    hr_status status;
    assert_non_null(tab);
    next = strchr(tab, '\n') + 1;
    *tab = next[-1] = 0;
    status = hr_alloc_config_parse(line, &config, &error);
    if (strcmp(tab + 1, "error") == 0) {
      if (status != HR_ERROR_USAGE || !error.message[0]) fail_msg("'%s' should be refused", line);
      refused++;
    } else {
      if (status != HR_OK) fail_msg("'%s' should be read: %s", line, error.message);
      check_config(line, &config, tab + 1);
    }
    cases++;
  }
  assert_true(cases == 151 && refused == 37);
  hri_free(bytes);
}

static hr_alloc_config parsed(const char *text) {
  hr_alloc_config config = hr_alloc_config_default();
  hr_error error = {0};
  if (hr_alloc_config_parse(text, &config, &error) != HR_OK) fail_msg("'%s': %s", text, error.message);
  return config;
}

/* Limits: CUDAAllocatorConfig of 2.12 to 2.15. */
static void reads_the_keys_of_cuda(void **state) {
  hr_alloc_config c;
  (void)state;
  assert_true(parsed("backend:cudaMallocAsync").async_backend);
  assert_true(parsed("backend:hipMallocAsync").async_backend);
  assert_false(parsed("backend:cudaMallocAsync,backend:native").async_backend);
  assert_true(parsed("release_lock_on_cudamalloc:True").release_lock_on_device_malloc);
  assert_true(parsed("release_lock_on_hipmalloc:True").release_lock_on_device_malloc);
  assert_true(parsed("pinned_use_cuda_host_register:True").pinned_use_host_register);
  assert_true(parsed("pinned_use_hip_host_register:True").pinned_use_host_register);
  assert_true(parsed("pinned_free_catch_all:True").pinned_free_catch_all);
  assert_true(parsed("throw_on_cudamalloc_oom:True").throw_on_device_oom);
  assert_true(parsed("graph_capture_record_stream_reuse:True").graph_capture_record_stream_reuse);
  assert_int_equal(parsed("pinned_num_register_threads:128").pinned_num_register_threads, 128);
  assert_int_equal(parsed("pinned_reserve_segment_size_mb:3").pinned_reserve_segment_bytes, 3 << 20);
  assert_true(parsed("per_process_memory_fraction:0").memory_fraction == 0);
  assert_true(parsed("per_process_memory_fraction:1.0").memory_fraction == 1);
  assert_int_equal(parsed("roundup_bypass_threshold_mb:1024").roundup_bypass_bytes, 1 << 30);
  assert_int_equal(parsed("roundup_bypass_threshold_mb:0").roundup_bypass_bytes, 1);
  c = parsed("expandable_segments_reserve:0.5");
  assert_true(c.expandable_reserve_fraction == 0.5 && c.expandable_reserve_bytes == 0);
  c = parsed("expandable_segments_reserve:40G");
  assert_true(c.expandable_reserve_fraction == 0 && c.expandable_reserve_bytes == UINT64_C(40) << 30);
  c = parsed("expandable_segments_reserve:1e20g");
  assert_true(c.expandable_reserve_bytes == UINT64_MAX);
  c = parsed("expandable_segments_reserve_by_class:[serving:0.25,other:8G,]");
  assert_true(c.expandable_reserve_fraction == 0 && c.expandable_reserve_bytes == 0);
}

static void the_default_is_the_default(void **state) {
  hr_alloc_config a = parsed(NULL), b = parsed(""), c = parsed(" \t\n");
  char text[8] = "x";
  (void)state;
  assert_true(a.max_split_bytes == UINT64_MAX && a.max_non_split_rounding_bytes == 20 << 20 &&
              a.large_segment_bytes == 20 << 20);
  assert_true(a.memory_fraction == 1 && a.garbage_collection_threshold == 0 && a.pinned_num_register_threads == 1);
  assert_true(!a.expandable_segments && !a.async_backend && a.max_split_bytes == b.max_split_bytes &&
              b.max_split_bytes == c.max_split_bytes);
  assert_int_equal(hr_alloc_config_print(&a, text, sizeof text), 0);
  assert_string_equal(text, "");
}

static uint64_t rounded(const char *text, uint64_t bytes) {
  hr_alloc_hooks hooks;
  hr_alloc_config config = parsed(text);
  hr_alloc_stats stats;
  hr_alloc *alloc;
  uint64_t address;
  assert_int_equal(hr_alloc_fake_hooks(0, &hooks, NULL), HR_OK);
  assert_int_equal(hr_alloc_create(&hooks, &config, &alloc, NULL), HR_OK);
  assert_int_equal(hr_alloc_malloc(alloc, bytes, 0, &address, NULL), HR_OK);
  hr_alloc_get_stats(alloc, &stats);
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
  return (uint64_t)stats.allocated_bytes[HR_ALLOC_ALL].current;
}

static void the_bypass_of_old_versions_stops_rounding(void **state) {
  const uint64_t mib = 1 << 20;
  (void)state;
  assert_int_equal(rounded("roundup_power2_divisions:4", 9 * mib + 1), 10 * mib);
  assert_int_equal(rounded("roundup_power2_divisions:4,roundup_bypass_threshold_mb:9", 9 * mib + 1), 9 * mib + 512);
  assert_int_equal(rounded("roundup_power2_divisions:4,roundup_bypass_threshold_mb:10", 9 * mib + 1), 10 * mib);
  assert_int_equal(rounded("roundup_power2_divisions:4,roundup_bypass_threshold_mb:0", 5 * mib + 1), 5 * mib + 512);
}

/* What is not named stays. */
static void parses_on_top_of_what_is_there(void **state) {
  hr_alloc_config c = parsed("max_split_size_mb:64,roundup_power2_divisions:8,large_segment_size_mb:32");
  (void)state;
  assert_int_equal(c.max_non_split_rounding_bytes, 32 << 20);
  assert_int_equal(hr_alloc_config_parse("expandable_segments:True,roundup_power2_divisions:[4:2]", &c, NULL), HR_OK);
  assert_true(c.expandable_segments && c.max_split_bytes == 64 << 20 && c.large_segment_bytes == 32 << 20);
  assert_true(c.roundup_power2_divisions[0] == 2 && c.roundup_power2_divisions[2] == 2 &&
              c.roundup_power2_divisions[3] == 0);
}

static void errors_say_what_is_wrong(void **state) {
  static const struct {
    const char *text, *message, *hint;
  } rows[] = {
      {"max_split_size_mb:19", "max_split_size_mb:19: must be at least 20 (MiB)", ""},
      {"large_segment_size_mb:64,max_split_size_mb:63", "max_split_size_mb:63: must be at least 64", ""},
      {"max_split_sizemb:64", "unknown allocator setting 'max_split_sizemb'", "max_split_size_mb"},
      {"expandable_segment:True", "unknown allocator setting", "expandable_segments"},
      {"garbage_collection_treshold:0.5", "unknown allocator setting", "garbage_collection_threshold"},
      {"zzz:1", "unknown allocator setting 'zzz'", "docs/allocator.md"},
      {"expandable_segments:true", "expandable_segments:true: must be True or False", ""},
      {"expandable_segments=True", "expandable_segments=True has no value", "not key=value"},
      {"expandable_segments", "has no value", "key:value"},
      {"expandable_segments:", "a value is wanted", ""},
      {"expandable_segments:True:False", "a ',' is wanted", ""},
      {"expandable_segments:True,,max_split_size_mb:64", "a key is wanted before ','", "key:value"},
      {",max_split_size_mb:64", "a key is wanted", ""},
      {"roundup_power2_divisions:[256:1,512:2", "the list is not closed", ""},
      {"roundup_power2_divisions:[256:1,[512:2]]", "'[' stands inside", ""},
      {"roundup_power2_divisions:[256:1,512]", "must be interval:divisions", ""},
      {"roundup_power2_divisions:[256:3]", "power of two, or 0", ""},
      {"roundup_power2_divisions:[100:4]", "intervals must be powers of two", ""},
      {"roundup_power2_divisions:3", "divisions must be a power of two", ""},
      {"garbage_collection_threshold:1.0", "above 0 and below 1", ""},
      {"per_process_memory_fraction:1.01", "between 0 and 1", ""},
      {"per_process_memory_fraction:-0.01", "between 0 and 1", ""},
      {"pinned_num_register_threads:3", "power of two of at most 128", ""},
      {"pinned_num_register_threads:256", "power of two of at most 128", ""},
      {"pinned_reserve_segment_size_mb:0", "at least 1", ""},
      {"backend:jemalloc", "native or cudaMallocAsync", ""},
      {"max_split_size_mb:1e30", "at least 20", ""},
      {"max_split_size_mb:99999999999999999999", "too large", ""},
      {"max_split_size_mb:[64]", "not a list", ""},
      {"expandable_segments_reserve:-1", "share of the device", ""},
      {"expandable_segments_reserve:G", "a number is wanted", ""},
      {"expandable_segments_reserve_by_class:0.5", "a list is wanted", ""},
      {"expandable_segments_reserve_by_class:[a]", "class:reserve", ""},
      {"expandable_segments_reserve_by_class:[:1G]", "class:reserve", ""},
  };
  (void)state;
  for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
    hr_alloc_config config = hr_alloc_config_default(), before = config;
    hr_error error = {0};
    config.max_split_bytes = before.max_split_bytes = 77 << 20;
    if (hr_alloc_config_parse(rows[k].text, &config, &error) != HR_ERROR_USAGE)
      fail_msg("'%s' should be refused", rows[k].text);
    if (!strstr(error.message, rows[k].message)) fail_msg("'%s': %s", rows[k].text, error.message);
    if (!strstr(error.hint, rows[k].hint)) fail_msg("'%s': hint %s", rows[k].text, error.hint);
    assert_memory_equal(&config, &before, sizeof config);
  }
}

static hr_alloc_config random_config(uint64_t *rng) {
  hr_alloc_config c;
  uint64_t bits = roll(rng);
  memset(&c, 0, sizeof c); /* also between the fields: compared as bytes below */
  c.large_segment_bytes = (bits & 1 ? 20 : 11 + roll(rng) % 100) << 20;
  c.max_split_bytes = bits & 2 ? UINT64_MAX : c.large_segment_bytes + (roll(rng) % 5000 << 20);
  c.max_non_split_rounding_bytes = c.large_segment_bytes + (bits & 4 ? 0 : roll(rng) % 500 << 20);
  c.garbage_collection_threshold = bits & 8 ? 0 : (double)(1 + roll(rng) % 999999) / 1e6;
  for (int k = 0; k < HR_ALLOC_DIVISION_COUNT; k++) {
    uint64_t pick = roll(rng);
    bool repeat = k && bits & 48 && pick % 4;
    c.roundup_power2_divisions[k] = repeat          ? c.roundup_power2_divisions[k - 1]
                                    : pick % 3 == 0 ? 0
                                                    : UINT64_C(1) << (pick >> 8) % 9;
  }
  c.memory_fraction = bits & 64 ? 1 : (double)(roll(rng) % 1000) / 1000;
  c.roundup_bypass_bytes = bits >> 21 & 1 ? 0 : (1 + (bits >> 50)) << 20;
  c.expandable_segments = bits >> 7 & 1;
  c.throw_on_device_oom = bits >> 8 & 1;
  c.graph_capture_record_stream_reuse = bits >> 9 & 1;
  c.release_lock_on_device_malloc = bits >> 10 & 1;
  c.pinned_use_host_register = bits >> 11 & 1;
  c.pinned_use_background_threads = bits >> 12 & 1;
  c.pinned_free_catch_all = bits >> 13 & 1;
  c.async_backend = bits >> 14 & 1;
  c.pinned_num_register_threads = UINT64_C(1) << (bits >> 15 & 7);
  c.pinned_reserve_segment_bytes = bits >> 18 & 1 ? 0 : (bits >> 32 & 255) << 20;
  if (bits >> 19 & 1) c.expandable_reserve_fraction = (double)(1 + (bits >> 40 & 255)) / 100;
  else if (bits >> 20 & 1) c.expandable_reserve_bytes = 1 + (bits >> 24);
  return c;
}

static bool same_config(const hr_alloc_config *a, const hr_alloc_config *b) {
  return a->max_split_bytes == b->max_split_bytes &&
         a->max_non_split_rounding_bytes == b->max_non_split_rounding_bytes &&
         a->garbage_collection_threshold == b->garbage_collection_threshold &&
         memcmp(a->roundup_power2_divisions, b->roundup_power2_divisions, sizeof a->roundup_power2_divisions) == 0 &&
         a->expandable_segments == b->expandable_segments && a->large_segment_bytes == b->large_segment_bytes &&
         a->memory_fraction == b->memory_fraction && a->throw_on_device_oom == b->throw_on_device_oom &&
         a->graph_capture_record_stream_reuse == b->graph_capture_record_stream_reuse &&
         a->release_lock_on_device_malloc == b->release_lock_on_device_malloc &&
         a->pinned_use_host_register == b->pinned_use_host_register &&
         a->pinned_use_background_threads == b->pinned_use_background_threads &&
         a->pinned_free_catch_all == b->pinned_free_catch_all &&
         a->pinned_num_register_threads == b->pinned_num_register_threads &&
         a->pinned_reserve_segment_bytes == b->pinned_reserve_segment_bytes &&
         a->expandable_reserve_fraction == b->expandable_reserve_fraction &&
         a->expandable_reserve_bytes == b->expandable_reserve_bytes && a->async_backend == b->async_backend &&
         a->roundup_bypass_bytes == b->roundup_bypass_bytes;
}

static void print_and_parse_are_inverses(void **state) {
  uint64_t rng = 2026;
  (void)state;
  for (int k = 0; k < 20000; k++) {
    hr_alloc_config config = random_config(&rng), again;
    char text[1024], cut[64];
    int length = hr_alloc_config_print(&config, text, sizeof text);
    assert_true(length == (int)strlen(text) && length < (int)sizeof text);
    again = parsed(text);
    if (!same_config(&config, &again)) fail_msg("round %d: '%s' reads differently", k, text);
    assert_int_equal(hr_alloc_config_print(&config, cut, sizeof cut), length);
    assert_true(strncmp(cut, text, sizeof cut - 1) == 0 && strlen(cut) == (length < 63 ? (size_t)length : 63));
    assert_int_equal(hr_alloc_config_print(&config, NULL, 0), length);
  }
}

static void prints_short_texts(void **state) {
  static const char *const texts[] = {
      "expandable_segments:True",
      "max_split_size_mb:128",
      "expandable_segments:True,max_split_size_mb:512,garbage_collection_threshold:0.8",
      "roundup_power2_divisions:4",
      "roundup_power2_divisions:[256:1,512:2,1024:4,>:4]",
      "backend:cudaMallocAsync",
      "large_segment_size_mb:32",
      "expandable_segments_reserve:40G",
      "per_process_memory_fraction:0.5",
  };
  char text[256];
  (void)state;
  for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
    hr_alloc_config config = parsed(texts[k]);
    (void)hr_alloc_config_print(&config, text, sizeof text);
    assert_string_equal(text, texts[k]);
  }
}

static void survives_refused_memory(void **state) {
  hr_alloc_config config = hr_alloc_config_default();
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  hri_mem_fail_after(1);
  assert_int_equal(hr_alloc_config_parse("expandable_segments:True", &config, &error), HR_ERROR_MEMORY);
  hri_mem_fail_after(0);
  assert_false(config.expandable_segments);
  assert_int_equal(hri_mem_live_bytes(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_as_pytorch_does),
      cmocka_unit_test(reads_the_keys_of_cuda),
      cmocka_unit_test(the_default_is_the_default),
      cmocka_unit_test(parses_on_top_of_what_is_there),
      cmocka_unit_test(errors_say_what_is_wrong),
      cmocka_unit_test(print_and_parse_are_inverses),
      cmocka_unit_test(prints_short_texts),
      cmocka_unit_test(survives_refused_memory),
      cmocka_unit_test(the_bypass_of_old_versions_stops_rounding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
