/* PyTorch's policy, rule by rule, on a device with fake addresses: segments begin at BASE and follow one another. Each
 * test is a row of the table in docs/allocator.md. */
#include "alloc_world.h"

#include "alloc/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define BASE UINT64_C(0x7f0000000000)

typedef struct fixture {
  world world;
  hr_alloc *alloc;
  hr_alloc_config config;
  hr_error error;
} fixture;

static void open_with(fixture *f, uint64_t capacity, const hr_alloc_config *config) {
  *f = (fixture){.world = world_new(capacity), .config = *config};
  hr_alloc_hooks hooks = world_hooks(&f->world);
  assert_int_equal(hr_alloc_create(&hooks, config, &f->alloc, &f->error), HR_OK);
}

static void open_plain(fixture *f) {
  const hr_alloc_config config = hr_alloc_config_default();
  open_with(f, 4 * GIB, &config);
}

static void close_it(fixture *f) {
  if (hr_alloc_check(f->alloc, &f->error) != HR_OK) fail_msg("%s", f->error.message);
  hr_alloc_destroy(f->alloc);
  assert_false(f->world.broken);
  assert_int_equal(f->world.count, 0);
  assert_int_equal(f->world.used, 0);
  free(f->world.ranges);
}

static uint64_t get_on(fixture *f, uint64_t bytes, uint64_t stream) {
  uint64_t address = 0;
  if (hr_alloc_malloc(f->alloc, bytes, stream, &address, &f->error) != HR_OK)
    fail_msg("%llu: %s", (unsigned long long)bytes, f->error.message);
  return address;
}

static uint64_t get(fixture *f, uint64_t bytes) { return get_on(f, bytes, 0); }
static void put(fixture *f, uint64_t address) { assert_int_equal(hr_alloc_free(f->alloc, address, &f->error), HR_OK); }

static void refused(fixture *f, uint64_t bytes) {
  uint64_t address = 0;
  assert_int_equal(hr_alloc_malloc(f->alloc, bytes, 0, &address, &f->error), HR_ERROR_MEMORY);
}

static hr_alloc_stats stats(const fixture *f) {
  hr_alloc_stats s;
  hr_alloc_get_stats(f->alloc, &s);
  return s;
}

static uint64_t block_size(const fixture *f, uint64_t address) { return hri_alloc_find(f->alloc, address)->size; }
static uint64_t reserved(const fixture *f) { return (uint64_t)stats(f).reserved_bytes[HR_ALLOC_ALL].current; }

/* ---- rounding ---- */

static void test_rounding_is_to_512_bytes(void **state) {
  (void)state;
  static const uint64_t rows[][2] = {{1, 512},     {511, 512},   {512, 512},        {513, 1024},
                                     {1024, 1024}, {1025, 1536}, {1000000, 1000448}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fixture f;
    open_plain(&f);
    assert_int_equal(block_size(&f, get(&f, rows[i][0])), rows[i][1]);
    const hr_alloc_stats s = stats(&f);
    assert_int_equal(s.requested_bytes[HR_ALLOC_ALL].current, rows[i][0]);
    assert_int_equal(s.allocated_bytes[HR_ALLOC_SMALL].current, rows[i][1]);
    close_it(&f);
  }
}

/* d parts between powers of two, but only for what is larger than 512 * d; d by the power of two of the size, from 1
 * MiB on */
static void test_rounding_to_divisions(void **state) {
  (void)state;
  static const struct row {
    uint64_t divisions, bytes, rounded;
  } rows[] = {{4, 1200, 1536},           {4, 2048, 2048},           {4, 2049, 2560},           {4, 2561, 3072},
              {4, 4097, 5120},           {4, 5000, 5120},           {8, 4097, 4608},           {8, 4000, 4096},
              {16, 8192, 8192},          {16, 8193, 8704},          {1, 5000, 5120},           {0, 5000, 5120},
              {2, 1025, 1536},           {2, 3 * KIB, 3 * KIB},     {2, 3 * KIB + 1, 4 * KIB}, {4, MIB + 1, 1280 * KIB},
              {4, 5 * MIB + 1, 6 * MIB}, {4, 7 * MIB + 1, 8 * MIB}, {2, 100 * MIB, 128 * MIB}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fixture f;
    hr_alloc_config config = hr_alloc_config_default();
    for (int k = 0; k < HR_ALLOC_DIVISION_COUNT; k++) config.roundup_power2_divisions[k] = rows[i].divisions;
    config.expandable_segments = true; /* so that the block is as large as the rounded request */
    open_with(&f, GIB, &config);
    assert_int_equal(block_size(&f, get(&f, rows[i].bytes)), rows[i].rounded);
    close_it(&f);
  }
}

static void test_each_interval_has_its_divisions(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.expandable_segments = true;
  config.roundup_power2_divisions[0] = 2;  /* up to 2 MiB */
  config.roundup_power2_divisions[3] = 4;  /* 8 to 16 MiB */
  config.roundup_power2_divisions[15] = 2; /* 32 GiB and beyond */
  open_with(&f, 400 * GIB, &config);
  assert_int_equal(block_size(&f, get(&f, 5 * KIB)), 6 * KIB);
  assert_int_equal(block_size(&f, get(&f, 5 * MIB + 5)), 5 * MIB + 512);
  assert_int_equal(block_size(&f, get(&f, 9 * MIB)), 10 * MIB);
  assert_int_equal(block_size(&f, get(&f, 65 * GIB)), 96 * GIB);
  close_it(&f);
}

/* ---- pools and segments ---- */

static void test_segment_sizes(void **state) {
  (void)state;
  static const struct row {
    uint64_t bytes, segment;
    bool small;
  } rows[] = {{1, 2 * MIB, true},          {MIB, 2 * MIB, true},
              {MIB + 1, 20 * MIB, false},  {10 * MIB - 512, 20 * MIB, false},
              {10 * MIB, 10 * MIB, false}, {10 * MIB + 1, 12 * MIB, false},
              {12 * MIB, 12 * MIB, false}, {100 * MIB + 1, 102 * MIB, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fixture f;
    open_plain(&f);
    assert_int_equal(get(&f, rows[i].bytes), BASE);
    const hr_alloc_stats s = stats(&f);
    assert_int_equal(s.reserved_bytes[rows[i].small ? HR_ALLOC_SMALL : HR_ALLOC_LARGE].current, rows[i].segment);
    assert_int_equal(s.reserved_bytes[rows[i].small ? HR_ALLOC_LARGE : HR_ALLOC_SMALL].current, 0);
    assert_int_equal(s.num_device_alloc, 1);
    close_it(&f);
  }
}

static void test_large_segment_size_is_a_setting(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.large_segment_bytes = 64 * MIB;
  open_with(&f, GIB, &config);
  get(&f, 2 * MIB);
  assert_int_equal(reserved(&f), 64 * MIB);
  get(&f, 10 * MIB); /* fits into what is left of it */
  assert_int_equal(reserved(&f), 64 * MIB);
  get(&f, 60 * MIB); /* and has its own otherwise, as ever */
  assert_int_equal(reserved(&f), 124 * MIB);
  close_it(&f);
}

/* ---- splitting and merging ---- */

static void test_small_blocks_split_from_512_bytes_on(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  assert_int_equal(get(&f, 100), BASE);
  assert_int_equal(get(&f, 100), BASE + 512);
  assert_int_equal(get(&f, MIB), BASE + 1024);
  assert_int_equal(get(&f, MIB - 1024), BASE + 1024 + MIB); /* takes the rest whole */
  assert_int_equal(stats(&f).inactive_split[HR_ALLOC_ALL].current, 0);
  close_it(&f);
}

static void test_large_blocks_split_when_more_than_1_mib_remains(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  const uint64_t a = get(&f, 19 * MIB); /* segment of 20 MiB; 1 MiB remains: not split */
  assert_int_equal(block_size(&f, a), 20 * MIB);
  const uint64_t b = get(&f, 9 * MIB); /* 20 MiB, 11 remain: split */
  assert_int_equal(block_size(&f, b), 9 * MIB);
  assert_int_equal(stats(&f).inactive_split_bytes[HR_ALLOC_LARGE].current, 11 * MIB);
  const uint64_t c = get(&f, 10 * MIB - 512); /* of the 11 more than 1 MiB remains: split */
  assert_int_equal(block_size(&f, c), 10 * MIB - 512);
  close_it(&f);
}

static void test_free_neighbours_merge_at_once(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  const uint64_t a = get(&f, 1000), b = get(&f, 1000), c = get(&f, 1000);
  get(&f, 1000);
  put(&f, a);
  put(&f, c);
  assert_int_equal(stats(&f).inactive_split[HR_ALLOC_ALL].current, 3); /* a, c, the rest */
  put(&f, b);
  assert_int_equal(stats(&f).inactive_split[HR_ALLOC_ALL].current, 2);
  assert_int_equal(get(&f, 3000), a); /* one block of three */
  close_it(&f);
}

static void test_blocks_of_different_segments_never_merge(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  const uint64_t a = get(&f, 10 * MIB), b = get(&f, 10 * MIB); /* neighbours by address */
  assert_int_equal(b, a + 10 * MIB);
  put(&f, a);
  put(&f, b);
  assert_int_equal(get(&f, 20 * MIB), b + 10 * MIB);
  close_it(&f);
}

/* ---- best fit ---- */

static void test_best_fit_is_the_smallest_then_the_lowest(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  uint64_t hole[4];
  static const uint64_t sizes[4] = {4096, 2048, 2048, 8192};
  for (int i = 0; i < 4; i++) {
    hole[i] = get(&f, sizes[i]);
    get(&f, 512); /* keeps the holes apart */
  }
  for (int i = 4; i-- > 0;) put(&f, hole[i]);
  assert_int_equal(get(&f, 1500), hole[1]);
  assert_int_equal(get(&f, 1500), hole[2]);
  assert_int_equal(get(&f, 4096), hole[0]);
  assert_int_equal(get(&f, 4608), hole[3]);
  close_it(&f);
}

/* 2.12 alone: of equal sizes the block whose record is oldest; a split makes a record for its front, the rest keeps the
 * old one */
static void test_best_fit_of_2_12_is_the_oldest(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.order = HR_ALLOC_ORDER_BLOCK;
  open_with(&f, GIB, &config);
  const uint64_t a = get(&f, 4096);
  get(&f, 512);
  put(&f, a);
  const uint64_t low = get(&f, 1024); /* front of the hole: a new record; its rest keeps the record of a */
  const uint64_t b = get(&f, 2048);
  assert_int_equal(b, low + 1024);
  const uint64_t c = get(&f, 1024); /* what is left of the hole: no split, the record of a */
  get(&f, 1024);
  put(&f, low);
  put(&f, c);
  assert_true(c > low);
  assert_int_equal(get(&f, 1024), c);
  assert_int_equal(get(&f, 1024), low);
  config.order = HR_ALLOC_ORDER_ADDRESS;
  assert_int_equal(hr_alloc_set_config(f.alloc, &config, &f.error), HR_ERROR_USAGE);
  close_it(&f);
}

static void test_a_block_is_used_again_on_its_stream_only(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  const uint64_t a = get_on(&f, 20 * MIB, 0);
  put(&f, a);
  const uint64_t b = get_on(&f, 20 * MIB, 0x10);
  assert_int_not_equal(b, a);
  assert_int_equal(get_on(&f, 20 * MIB, 0), a);
  close_it(&f);
}

/* ---- max_split_size ---- */

static void test_oversize_blocks_serve_oversize_requests_only(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.max_split_bytes = 30 * MIB;
  open_with(&f, GIB, &config);
  const uint64_t big = get(&f, 40 * MIB);
  assert_int_equal(stats(&f).oversize_segments.current, 1);
  assert_int_equal(stats(&f).oversize_allocations.current, 1);
  put(&f, big);
  assert_int_equal(stats(&f).oversize_allocations.current, 0);
  assert_int_not_equal(get(&f, 12 * MIB), big); /* below the limit: not from a block of the limit or more */
  const uint64_t rounded = get(&f, 30 * MIB);   /* 40 < 30 + 20: taken, and not split */
  assert_int_equal(rounded, big);
  assert_int_equal(block_size(&f, rounded), 40 * MIB);
  close_it(&f);
}

static void test_oversize_rounding_has_a_limit(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.max_split_bytes = 30 * MIB;
  open_with(&f, GIB, &config);
  const uint64_t big = get(&f, 50 * MIB);
  put(&f, big);
  assert_int_not_equal(get(&f, 30 * MIB), big); /* 50 is not below 30 + 20 */
  assert_int_equal(get(&f, 30 * MIB + 512), big);
  close_it(&f);
}

static void test_oversize_blocks_go_back_first(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.max_split_bytes = 30 * MIB;
  open_with(&f, 200 * MIB, &config);
  const uint64_t a = get(&f, 60 * MIB), b = get(&f, 80 * MIB), small = get(&f, 20 * MIB);
  put(&f, a);
  put(&f, b);
  put(&f, small);
  f.world.releases = 0;
  get(&f, 35 * MIB); /* 40 MiB are left */
  assert_int_equal(f.world.releases, 0);
  get(&f, 70 * MIB); /* b fits, 80 < 70 + 20 */
  assert_int_equal(f.world.releases, 0);
  get(&f, 36 * MIB); /* a would round too far: one block is returned for it, nothing else */
  assert_int_equal(f.world.releases, 1);
  assert_int_equal(f.world.released_bytes, 60 * MIB);
  assert_int_equal(stats(&f).num_alloc_retries, 0);
  close_it(&f);
}

static void test_several_oversize_blocks_from_the_largest(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.max_split_bytes = 30 * MIB;
  open_with(&f, 200 * MIB, &config);
  const uint64_t a = get(&f, 40 * MIB), b = get(&f, 60 * MIB), c = get(&f, 80 * MIB);
  put(&f, a);
  put(&f, b);
  put(&f, c);
  get(&f, 120 * MIB); /* 80 and 60 are enough */
  assert_int_equal(f.world.released_bytes, 140 * MIB);
  assert_int_equal(get(&f, 40 * MIB), a);
  close_it(&f);
}

/* ---- order of attempts ---- */

static void test_a_failed_segment_returns_the_cache_and_retries(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = hr_alloc_config_default();
  open_with(&f, 100 * MIB, &config);
  const uint64_t whole = get(&f, 40 * MIB), split = get(&f, 15 * MIB), small = get(&f, 512);
  put(&f, whole);
  assert_int_equal(get(&f, 2 * MIB), whole); /* a piece: no longer a whole segment */
  assert_int_equal(reserved(&f), 58 * MIB);
  refused(&f, 50 * MIB);
  assert_int_equal(stats(&f).num_alloc_retries, 1);
  assert_int_equal(stats(&f).num_ooms, 1);
  assert_int_equal(stats(&f).num_sync_all_streams, 1);
  put(&f, whole);
  put(&f, small);
  get(&f, 50 * MIB); /* now both can go */
  assert_int_equal(stats(&f).num_alloc_retries, 2);
  assert_int_equal(f.world.released_bytes, 42 * MIB);
  assert_int_equal(stats(&f).num_device_free, 2);
  put(&f, split);
  close_it(&f);
}

static void note_oom(void *context, hr_alloc *alloc, uint64_t segment_bytes, uint64_t free_bytes) {
  (void)alloc;
  ((uint64_t *)context)[0] = segment_bytes;
  ((uint64_t *)context)[1] = free_bytes;
}

static void test_out_of_memory_says_what_was_wanted(void **state) {
  (void)state;
  fixture f;
  uint64_t seen[2] = {0};
  const hr_alloc_config config = hr_alloc_config_default();
  open_with(&f, 30 * MIB, &config);
  hr_alloc_on_oom(f.alloc, note_oom, seen);
  get(&f, 3 * MIB);
  get(&f, 17 * MIB);
  refused(&f, 3 * MIB + 1);
  assert_int_equal(f.error.requested_bytes, 3 * MIB + 512); /* rounded; PyTorch's message has the segment: */
  assert_int_equal(seen[0], 20 * MIB);
  assert_int_equal(seen[1], 10 * MIB);
  assert_int_equal(f.error.available_bytes, 10 * MIB);
  assert_non_null(strstr(f.error.message, "20.00 MiB"));
  close_it(&f);
}

static bool free_something(void *context) {
  world *w = context;
  w->capacity += GIB; /* what a callback frees is outside of the allocator */
  return true;
}

static void test_callbacks_come_before_the_device(void **state) {
  (void)state;
  fixture f = {.world = world_new(2 * MIB)};
  hr_alloc_hooks hooks = world_hooks(&f.world);
  hooks.free_memory = free_something;
  const hr_alloc_config config = hr_alloc_config_default();
  assert_int_equal(hr_alloc_create(&hooks, &config, &f.alloc, &f.error), HR_OK);
  get(&f, 30 * MIB);
  assert_int_equal(stats(&f).num_alloc_retries, 0);
  close_it(&f);
}

static void test_a_cap_counts_like_a_full_device(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.memory_fraction = 0.5;
  open_with(&f, 100 * MIB, &config);
  const uint64_t a = get(&f, 40 * MIB);
  f.world.reserves = 0;
  refused(&f, 12 * MIB);
  assert_int_equal(f.world.reserves, 0); /* the device is not asked */
  get(&f, 10 * MIB);                     /* exactly the cap */
  hr_alloc_set_allowed(f.alloc, 0);
  get(&f, 12 * MIB);
  put(&f, a);
  close_it(&f);
}

static void test_throw_on_oom_refuses_before_anything_else(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.throw_on_device_oom = true;
  open_with(&f, 100 * MIB, &config);
  put(&f, get(&f, 80 * MIB));
  f.world.reserves = 0;
  refused(&f, 90 * MIB);
  assert_int_equal(f.world.reserves + f.world.releases, 0);
  assert_int_equal(stats(&f).num_ooms + stats(&f).num_alloc_retries, 0);
  close_it(&f);
}

/* ---- garbage collection ---- */

static void test_old_blocks_are_collected_above_the_threshold(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.garbage_collection_threshold = 0.5;
  open_with(&f, GIB, &config);
  hr_alloc_set_allowed(f.alloc, 400 * MIB);
  const uint64_t a = get(&f, 40 * MIB), b = get(&f, 50 * MIB), young = get(&f, 60 * MIB);
  get(&f, 60 * MIB);
  put(&f, a);
  put(&f, b);
  put(&f, young);
  for (int i = 0; i < 10; i++) put(&f, get(&f, 60 * MIB)); /* ten searches age a and b */
  get(&f, 70 * MIB); /* nothing fits, and 210 MiB are above 200: what is older than the mean goes, without a retry */
  assert_int_equal(f.world.released_bytes, 90 * MIB);
  assert_int_equal(stats(&f).num_alloc_retries, 0);
  close_it(&f);
}

static void test_nothing_is_collected_without_a_cap(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = hr_alloc_config_default();
  config.garbage_collection_threshold = 0.1;
  open_with(&f, 400 * MIB, &config);
  put(&f, get(&f, 40 * MIB));
  get(&f, 70 * MIB);
  assert_int_equal(f.world.releases, 0);
  close_it(&f);
}

/* ---- streams ---- */

static void test_a_block_used_on_another_stream_waits_for_it(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  const uint64_t a = get(&f, 20 * MIB);
  assert_int_equal(hr_alloc_record_stream(f.alloc, a, 0, &f.error), HR_OK); /* its own stream: nothing to wait for */
  assert_int_equal(hr_alloc_record_stream(f.alloc, a, 0x10, &f.error), HR_OK);
  assert_int_equal(hr_alloc_record_stream(f.alloc, a, 0x10, &f.error), HR_OK);
  put(&f, a);
  assert_int_equal(f.world.marks, 1);
  assert_int_equal(stats(&f).allocation[0].current, 0);
  assert_int_equal(stats(&f).active_bytes[0].current, 20 * MIB);
  assert_int_equal(hr_alloc_free(f.alloc, a, &f.error), HR_ERROR_USAGE);
  const uint64_t b = get(&f, 20 * MIB);
  assert_int_not_equal(b, a);
  f.world.done = 1;
  assert_int_equal(get(&f, 20 * MIB), a);
  close_it(&f);
}

static void test_events_of_a_stream_end_in_order(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  uint64_t a[3];
  for (int i = 0; i < 3; i++) {
    a[i] = get(&f, 20 * MIB);
    assert_int_equal(hr_alloc_record_stream(f.alloc, a[i], i == 2 ? 0x20 : 0x10, &f.error), HR_OK);
  }
  for (int i = 0; i < 3; i++) put(&f, a[i]);
  f.world.done = 1;
  assert_int_equal(get(&f, 20 * MIB), a[0]);
  assert_int_equal(stats(&f).active[0].current, 3);
  f.world.done = 3;
  assert_int_equal(get(&f, 20 * MIB), a[1]);
  close_it(&f);
}

static void test_retry_waits_for_events(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = hr_alloc_config_default();
  open_with(&f, 50 * MIB, &config);
  const uint64_t a = get(&f, 40 * MIB);
  assert_int_equal(hr_alloc_record_stream(f.alloc, a, 0x10, &f.error), HR_OK);
  put(&f, a);
  get(&f, 44 * MIB);
  assert_int_equal(f.world.waits, 1);
  close_it(&f);
}

/* ---- private pools ---- */

static void test_a_private_pool_keeps_its_memory(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  uint32_t pool, again;
  assert_int_equal(hr_alloc_pool_create(f.alloc, 0, 7, &pool, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_begin(f.alloc, pool, true, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_begin(f.alloc, pool, true, &f.error), HR_ERROR_USAGE);
  const uint64_t a = get(&f, 20 * MIB);
  assert_int_equal(hr_alloc_pool_end(f.alloc, pool, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_end(f.alloc, pool, &f.error), HR_ERROR_USAGE);
  put(&f, a);
  assert_int_not_equal(get(&f, 20 * MIB), a); /* not for the default pool */
  uint64_t b;
  assert_int_equal(hr_alloc_malloc_in(f.alloc, pool, 20 * MIB, 0, &b, &f.error), HR_OK);
  assert_int_equal(b, a);
  put(&f, b);
  assert_int_equal(hr_alloc_empty_cache(f.alloc, &f.error), HR_OK);
  assert_int_equal(f.world.releases, 0); /* somebody still uses it */
  assert_int_equal(hr_alloc_pool_create(f.alloc, 0, 7, &again, &f.error), HR_OK);
  assert_int_equal(again, pool);
  assert_int_equal(hr_alloc_pool_release(f.alloc, pool, &f.error), HR_OK);
  assert_int_equal(hr_alloc_empty_pool(f.alloc, pool, &f.error), HR_OK);
  assert_int_equal(f.world.releases, 0);
  assert_int_equal(hr_alloc_pool_release(f.alloc, pool, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_create(f.alloc, 0, 7, &again, &f.error), HR_ERROR_USAGE); /* released, with memory */
  assert_int_equal(hr_alloc_pool_number(f.alloc, 0, 7), pool);
  assert_int_equal(hr_alloc_empty_pool(f.alloc, pool, &f.error), HR_OK);
  assert_int_equal(f.world.releases, 1);
  assert_int_equal(hr_alloc_pool_number(f.alloc, 0, 7), 0);
  assert_int_equal(hr_alloc_pool_release(f.alloc, pool, &f.error), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_pool_create(f.alloc, 0, 7, &again, &f.error), HR_OK);
  close_it(&f);
}

static void test_the_last_pool_begun_comes_first(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  uint32_t outer, inner;
  assert_int_equal(hr_alloc_pool_create(f.alloc, 1, 0, &outer, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_create(f.alloc, 2, 0, &inner, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_begin(f.alloc, outer, false, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_begin(f.alloc, inner, false, &f.error), HR_OK);
  const uint64_t a = get(&f, 512);
  assert_int_equal(hr_alloc_pool_end(f.alloc, inner, &f.error), HR_OK);
  const uint64_t b = get(&f, 512);
  assert_int_equal(hri_alloc_find(f.alloc, a)->set->half->pool->number, inner);
  assert_int_equal(hri_alloc_find(f.alloc, b)->set->half->pool->number, outer);
  assert_int_equal(hr_alloc_pool_create(f.alloc, 0, 0, &inner, &f.error), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_pool_begin(f.alloc, 9, false, &f.error), HR_ERROR_USAGE);
  close_it(&f);
}

static void test_a_capture_neither_polls_nor_returns(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = hr_alloc_config_default();
  open_with(&f, 60 * MIB, &config);
  uint32_t pool;
  const uint64_t a = get(&f, 20 * MIB), b = get(&f, 12 * MIB);
  put(&f, b);
  assert_int_equal(hr_alloc_pool_create(f.alloc, 1, 0, &pool, &f.error), HR_OK);
  assert_int_equal(hr_alloc_pool_begin(f.alloc, pool, true, &f.error), HR_OK);
  refused(&f, 40 * MIB); /* b could go */
  assert_int_equal(f.world.releases, 0);
  assert_int_equal(hr_alloc_record_stream(f.alloc, a, 0x10, &f.error), HR_OK);
  put(&f, a);
  assert_int_equal(f.world.marks, 0); /* put off */
  assert_int_equal(hr_alloc_pool_end(f.alloc, pool, &f.error), HR_OK);
  assert_int_equal(get(&f, 20 * MIB), a); /* the graph orders streams recorded in the capture: no event either */
  assert_int_equal(f.world.marks, 0);
  close_it(&f);
}

/* ---- expandable segments ---- */

static hr_alloc_config expandable(void) {
  hr_alloc_config config = hr_alloc_config_default();
  config.expandable_segments = true;
  return config;
}

static void test_an_expandable_segment_grows_by_chunks(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = expandable();
  open_with(&f, GIB, &config);
  const uint64_t a = get(&f, 3 * MIB);
  assert_int_equal(a, BASE);
  assert_int_equal(reserved(&f), 20 * MIB);
  assert_int_equal(f.world.ranges[0].bytes, (GIB + GIB / 8 + 20 * MIB - 1) / (20 * MIB) * (20 * MIB));
  const uint64_t b = get(&f, 30 * MIB); /* 17 MiB are there, 13 more: one chunk */
  assert_int_equal(b, a + 3 * MIB);
  assert_int_equal(reserved(&f), 40 * MIB);
  get(&f, 512); /* the small pool has its own, with chunks of 2 MiB */
  assert_int_equal(stats(&f).reserved_bytes[HR_ALLOC_SMALL].current, 2 * MIB);
  assert_int_equal(stats(&f).segment[HR_ALLOC_ALL].current, 0); /* segments are plain ones */
  assert_int_equal(stats(&f).inactive_split[HR_ALLOC_ALL].current, 0);
  assert_int_equal(stats(&f).num_device_alloc, 3);
  close_it(&f);
}

static void test_expandable_blocks_split_from_512_bytes_on(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = expandable();
  open_with(&f, GIB, &config);
  assert_int_equal(block_size(&f, get(&f, 19 * MIB)), 19 * MIB);
  assert_int_equal(get(&f, MIB + 1), BASE + 19 * MIB);
  close_it(&f);
}

/* of two free blocks the larger one fits best when the smaller one could grow more */
static void test_best_fit_counts_the_space_to_grow(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = expandable();
  open_with(&f, GIB, &config);
  const uint64_t a = get(&f, 18 * MIB), b = get(&f, 12 * MIB); /* 10 MiB free at the end, with all the address space */
  put(&f, a);
  assert_int_equal(get(&f, 9 * MIB), a);
  (void)b;
  close_it(&f);
}

static void test_whole_chunks_are_unmapped(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = expandable();
  open_with(&f, 200 * MIB, &config);
  const uint64_t a = get(&f, 50 * MIB), b = get(&f, 5 * MIB), c = get(&f, 25 * MIB);
  assert_int_equal(reserved(&f), 80 * MIB);
  put(&f, a);
  put(&f, c);
  assert_int_equal(hr_alloc_empty_cache(f.alloc, &f.error), HR_OK); /* 0..40 of a, 60..80 of c */
  assert_int_equal(f.world.released_bytes, 60 * MIB);
  assert_int_equal(reserved(&f), 20 * MIB);
  assert_int_equal(get(&f, 10 * MIB), BASE + 40 * MIB); /* what was left of a */
  assert_int_equal(get(&f, 20 * MIB), BASE);            /* the lowest gap is mapped again */
  put(&f, b);
  close_it(&f);
}

static void test_an_expandable_segment_ends_when_it_is_empty(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = expandable();
  open_with(&f, 200 * MIB, &config);
  put(&f, get(&f, 50 * MIB));
  assert_int_equal(f.world.count, 2);
  assert_int_equal(hr_alloc_empty_cache(f.alloc, &f.error), HR_OK);
  assert_int_equal(f.world.count, 0);
  close_it(&f);
}

static void test_a_refused_map_keeps_what_was_mapped(void **state) {
  (void)state;
  fixture f;
  const hr_alloc_config config = expandable();
  open_with(&f, 50 * MIB, &config);
  get(&f, 15 * MIB);
  refused(&f, 40 * MIB);
  assert_int_equal(stats(&f).num_ooms, 1);
  assert_int_equal(get(&f, 25 * MIB), BASE + 15 * MIB);
  close_it(&f);
}

static void test_expandable_blocks_are_left_when_it_is_turned_off(void **state) {
  (void)state;
  fixture f;
  hr_alloc_config config = expandable();
  open_with(&f, GIB, &config);
  const uint64_t a = get(&f, 15 * MIB);
  put(&f, a);
  config.expandable_segments = false;
  assert_int_equal(hr_alloc_set_config(f.alloc, &config, &f.error), HR_OK);
  const uint64_t b = get(&f, 15 * MIB);
  assert_null(hri_alloc_find(f.alloc, b)->expandable);
  config.expandable_segments = true;
  assert_int_equal(hr_alloc_set_config(f.alloc, &config, &f.error), HR_OK);
  assert_int_equal(get(&f, 15 * MIB), a);
  close_it(&f);
}

/* ---- statistics ---- */

static void test_peaks_and_resets(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  put(&f, get(&f, 30 * MIB));
  hr_alloc_stats s = stats(&f);
  assert_int_equal(s.allocated_bytes[0].peak, 30 * MIB);
  assert_int_equal(s.allocated_bytes[0].current, 0);
  hr_alloc_reset_peak_stats(f.alloc);
  hr_alloc_reset_accumulated_stats(f.alloc);
  s = stats(&f);
  assert_int_equal(s.allocated_bytes[0].peak, 0);
  assert_int_equal(s.reserved_bytes[0].peak, 30 * MIB);
  assert_int_equal(s.allocated_bytes[0].allocated + s.allocated_bytes[0].freed + s.num_device_alloc, 0);
  assert_int_equal(s.max_split_size, -1);
  close_it(&f);
}

/* ---- bad arguments ---- */

static void test_bad_arguments_are_refused(void **state) {
  (void)state;
  fixture f;
  open_plain(&f);
  uint64_t address;
  const uint64_t a = get(&f, 4096);
  assert_int_equal(hr_alloc_free(f.alloc, a + 512, &f.error), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_free(f.alloc, 0, &f.error), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_free_complete(f.alloc, a, &f.error), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_record_stream(f.alloc, a + 1, 1, &f.error), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_malloc(f.alloc, 0, 0, &address, &f.error), HR_ERROR_USAGE);
  assert_int_equal(hr_alloc_malloc_in(f.alloc, 1, 1, 0, &address, &f.error), HR_ERROR_USAGE);
  static const uint64_t absurd[] = {UINT64_MAX,        UINT64_MAX - 511,  UINT64_MAX - 512,
                                    UINT64_C(1) << 63, UINT64_C(1) << 60, (UINT64_C(1) << 60) - 1};
  for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) refused(&f, absurd[i]);
  assert_int_equal(stats(&f).num_ooms, 1); /* from 1 EiB on PyTorch does not even try */
  close_it(&f);
}

static void test_bad_settings_are_refused(void **state) {
  (void)state;
  world w = world_new(GIB);
  hr_alloc_hooks hooks = world_hooks(&w);
  hr_alloc *alloc = NULL;
  hr_error error;
  hr_alloc_config c = hr_alloc_config_default();
  c.async_backend = true;
  assert_int_equal(hr_alloc_create(&hooks, &c, &alloc, &error), HR_ERROR_UNSUPPORTED);
  c = hr_alloc_config_default(), c.large_segment_bytes = 9 * MIB;
  assert_int_equal(hr_alloc_create(&hooks, &c, &alloc, &error), HR_ERROR_USAGE);
  c = hr_alloc_config_default(), c.roundup_power2_divisions[2] = 3;
  assert_int_equal(hr_alloc_create(&hooks, &c, &alloc, &error), HR_ERROR_USAGE);
  c = hr_alloc_config_default(), c.garbage_collection_threshold = 1;
  assert_int_equal(hr_alloc_create(&hooks, &c, &alloc, &error), HR_ERROR_USAGE);
  c = hr_alloc_config_default(), c.memory_fraction = -0.1;
  assert_int_equal(hr_alloc_create(&hooks, &c, &alloc, &error), HR_ERROR_USAGE);
  c = hr_alloc_config_default(), c.memory_fraction = 0.5; /* of nothing known it would cap nothing */
  hooks.device_memory = NULL;
  assert_int_equal(hr_alloc_create(&hooks, &c, &alloc, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "per_process_memory_fraction:0.5"));
  hooks.map = NULL;
  c = expandable();
  assert_int_equal(hr_alloc_create(&hooks, &c, &alloc, &error), HR_ERROR_USAGE);
  assert_null(alloc);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rounding_is_to_512_bytes),
      cmocka_unit_test(test_rounding_to_divisions),
      cmocka_unit_test(test_each_interval_has_its_divisions),
      cmocka_unit_test(test_segment_sizes),
      cmocka_unit_test(test_large_segment_size_is_a_setting),
      cmocka_unit_test(test_small_blocks_split_from_512_bytes_on),
      cmocka_unit_test(test_large_blocks_split_when_more_than_1_mib_remains),
      cmocka_unit_test(test_free_neighbours_merge_at_once),
      cmocka_unit_test(test_blocks_of_different_segments_never_merge),
      cmocka_unit_test(test_best_fit_is_the_smallest_then_the_lowest),
      cmocka_unit_test(test_best_fit_of_2_12_is_the_oldest),
      cmocka_unit_test(test_a_block_is_used_again_on_its_stream_only),
      cmocka_unit_test(test_oversize_blocks_serve_oversize_requests_only),
      cmocka_unit_test(test_oversize_rounding_has_a_limit),
      cmocka_unit_test(test_oversize_blocks_go_back_first),
      cmocka_unit_test(test_several_oversize_blocks_from_the_largest),
      cmocka_unit_test(test_a_failed_segment_returns_the_cache_and_retries),
      cmocka_unit_test(test_out_of_memory_says_what_was_wanted),
      cmocka_unit_test(test_callbacks_come_before_the_device),
      cmocka_unit_test(test_a_cap_counts_like_a_full_device),
      cmocka_unit_test(test_throw_on_oom_refuses_before_anything_else),
      cmocka_unit_test(test_old_blocks_are_collected_above_the_threshold),
      cmocka_unit_test(test_nothing_is_collected_without_a_cap),
      cmocka_unit_test(test_a_block_used_on_another_stream_waits_for_it),
      cmocka_unit_test(test_events_of_a_stream_end_in_order),
      cmocka_unit_test(test_retry_waits_for_events),
      cmocka_unit_test(test_a_private_pool_keeps_its_memory),
      cmocka_unit_test(test_the_last_pool_begun_comes_first),
      cmocka_unit_test(test_a_capture_neither_polls_nor_returns),
      cmocka_unit_test(test_an_expandable_segment_grows_by_chunks),
      cmocka_unit_test(test_expandable_blocks_split_from_512_bytes_on),
      cmocka_unit_test(test_best_fit_counts_the_space_to_grow),
      cmocka_unit_test(test_whole_chunks_are_unmapped),
      cmocka_unit_test(test_an_expandable_segment_ends_when_it_is_empty),
      cmocka_unit_test(test_a_refused_map_keeps_what_was_mapped),
      cmocka_unit_test(test_expandable_blocks_are_left_when_it_is_turned_off),
      cmocka_unit_test(test_peaks_and_resets),
      cmocka_unit_test(test_bad_arguments_are_refused),
      cmocka_unit_test(test_bad_settings_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
