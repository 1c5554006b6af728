/* A recorded state goes into an empty allocator, which then answers as the one it was recorded from; what is wrong with
 * it is named; and no refusal of host memory, at whichever allocation, breaks anything. */
#include "alloc_world.h"

#include "alloc/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define BASE UINT64_C(0x7f0000000000)

enum { LIVE = 400, MOST_SEGMENTS = 4000, MOST_BLOCKS = 20000 };

static uint64_t random_state;
static uint64_t draw(uint64_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (random_state >> 11) % below;
}

static hr_alloc *make(world *w, const hr_alloc_config *config) {
  hr_error e;
  hr_alloc *alloc = NULL;
  hr_alloc_hooks hooks = world_hooks(w);
  assert_int_equal(hr_alloc_create(&hooks, config, &alloc, &e), HR_OK);
  return alloc;
}

static void end(world *w, hr_alloc *alloc) {
  hr_alloc_destroy(alloc);
  assert_false(w->broken);
  assert_int_equal(w->used, 0);
  assert_int_equal(w->count, 0);
  free(w->ranges);
  w->ranges = NULL;
}

static void good(hr_status status, const hr_error *e) {
  if (status != HR_OK) fail_msg("%s", e->message);
}

/* ---- a state, as a snapshot has it ---- */

typedef struct state {
  hr_segment segments[MOST_SEGMENTS];
  hr_block blocks[MOST_BLOCKS];
  hr_pool pools[8];
  uint64_t segment_count, block_count;
  uint32_t pool_count;
} state;

static state recorded;

static void record_segment(const hri_block *b) {
  const hri_alloc_half *half = b->set->half;
  hr_segment *s = &recorded.segments[recorded.segment_count++];
  *s = (hr_segment){.address = b->address,
                    .stream = b->set->stream,
                    .first_block = recorded.block_count,
                    .pool = half->pool->number,
                    .large = !half->small,
                    .expandable = b->expandable != NULL};
  for (; b != NULL && b->mapped; b = b->next) {
    const hr_block_state in = b->allocated          ? HR_BLOCK_ALLOCATED
                              : hri_block_active(b) ? HR_BLOCK_PENDING_FREE
                                                    : HR_BLOCK_INACTIVE;
    recorded.blocks[recorded.block_count++] = (hr_block){.address = b->address,
                                                         .size = b->size,
                                                         .requested_size = in == HR_BLOCK_INACTIVE ? 0 : b->requested,
                                                         .state = (uint8_t)in};
    s->total_size += b->size;
    s->block_count++;
  }
}

static void record_state(const hr_alloc *alloc) {
  uint64_t cursor = 0;
  recorded.segment_count = recorded.block_count = 0;
  recorded.pool_count = (uint32_t)alloc->pools.count;
  for (size_t i = 0; i < alloc->pools.count; i++) recorded.pools[i] = alloc->pools.items[i]->id;
  for (const hri_block *b; (b = hri_alloc_each_block(alloc, &cursor)) != NULL;)
    if (b->mapped && (b->prev == NULL || !b->prev->mapped)) record_segment(b);
}

static hr_status import(hr_alloc *alloc, hr_error *e) {
  return hr_alloc_import(alloc, recorded.segments, recorded.segment_count, recorded.blocks, recorded.block_count,
                         recorded.pools, recorded.pool_count, e);
}

/* ---- the same answers afterwards ---- */

static uint64_t some_size(void) {
  const uint64_t kind = draw(4);
  return 1 + (kind == 0 ? draw(4096) : kind == 1 ? draw(MIB) : kind == 2 ? draw(9 * MIB) : draw(30 * MIB));
}

static void step(hr_alloc *a, hr_alloc *b, uint64_t *slot) {
  hr_error e;
  if (*slot != 0) {
    good(hr_alloc_free(a, *slot, &e), &e);
    if (b != NULL) good(hr_alloc_free(b, *slot, &e), &e);
    *slot = 0;
    return;
  }
  const uint64_t bytes = some_size(), stream = draw(3);
  const uint32_t pool = (uint32_t)draw(2);
  uint64_t x = 0, y = 0;
  const hr_status status = hr_alloc_malloc_in(a, pool, bytes, stream, &x, &e);
  if (b != NULL) {
    assert_int_equal(hr_alloc_malloc_in(b, pool, bytes, stream, &y, &e), status);
    assert_int_equal(x, y);
  }
  *slot = x;
}

static void same_currents(const hr_alloc *a, const hr_alloc *b) {
  hr_alloc_stats x, y;
  hr_alloc_get_stats(a, &x);
  hr_alloc_get_stats(b, &y);
  for (int k = 0; k < HR_ALLOC_POOL_KINDS; k++) {
    assert_int_equal(x.allocation[k].current, y.allocation[k].current);
    assert_int_equal(x.segment[k].current, y.segment[k].current);
    assert_int_equal(x.active_bytes[k].current, y.active_bytes[k].current);
    assert_int_equal(x.reserved_bytes[k].current, y.reserved_bytes[k].current);
    assert_int_equal(x.requested_bytes[k].current, y.requested_bytes[k].current);
    assert_int_equal(x.inactive_split_bytes[k].current, y.inactive_split_bytes[k].current);
  }
  assert_int_equal(x.oversize_allocations.current, y.oversize_allocations.current);
  assert_int_equal(x.oversize_segments.current, y.oversize_segments.current);
}

static void continue_from(uint64_t seed, bool expandable) {
  hr_error e;
  uint64_t live[LIVE] = {0};
  uint32_t pool;
  random_state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
  hr_alloc_config config = hr_alloc_config_default();
  config.expandable_segments = expandable;
  if (draw(3) == 0) config.max_split_bytes = 25 * MIB;
  world w = world_new(8000 * MIB), v = world_new(8000 * MIB);
  hr_alloc *a = make(&w, &config), *b = make(&v, &config);
  good(hr_alloc_pool_create(a, 3, 4, &pool, &e), &e);
  uint64_t first[32]; /* keeps the beginning of every expandable segment mapped */
  for (int i = 0; i < 12; i++)
    good(hr_alloc_malloc_in(a, (uint32_t)(i / 6), i % 2 == 0 ? 512 : 5 * MIB, (uint64_t)(i % 6 / 2), &first[i], &e),
         &e);
  for (int i = 0; i < 4000; i++) step(a, NULL, &live[draw(LIVE)]);
  if (draw(2) == 0) good(hr_alloc_empty_cache(a, &e), &e);
  record_state(a);
  v.next = w.next;
  good(import(b, &e), &e);
  good(hr_alloc_check(b, &e), &e);
  same_currents(a, b);
  assert_int_equal(hr_alloc_pool_number(b, 3, 4), 1);
  for (int i = 0; i < 4000; i++) step(a, b, &live[draw(LIVE)]);
  good(hr_alloc_empty_cache(a, &e), &e);
  good(hr_alloc_empty_cache(b, &e), &e);
  good(hr_alloc_check(b, &e), &e);
  same_currents(a, b);
  end(&w, a);
  end(&v, b);
}

static void test_requests_go_on_as_recorded(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 60; seed++) continue_from(seed, seed % 2 == 0);
}

static void test_pending_blocks_wait_to_be_completed(void **unused) {
  (void)unused;
  hr_error e;
  const hr_alloc_config config = hr_alloc_config_default();
  world w = world_new(100 * MIB);
  hr_alloc *alloc = make(&w, &config);
  const hr_segment segment = {.address = BASE, .total_size = 2 * MIB, .block_count = 3};
  const hr_block blocks[] = {{.address = BASE, .size = 512, .requested_size = 7, .state = HR_BLOCK_PENDING_FREE},
                             {.address = BASE + 512, .size = 512, .state = HR_BLOCK_INACTIVE},
                             {.address = BASE + 1024,
                              .size = 2 * MIB - 1024,
                              .state = HR_BLOCK_INACTIVE}}; /* not merged in the file */
  const hr_pool none = {{0, 0}};
  good(hr_alloc_import(alloc, &segment, 1, blocks, 3, &none, 1, &e), &e);
  good(hr_alloc_check(alloc, &e), &e);
  hr_alloc_stats stats;
  hr_alloc_get_stats(alloc, &stats);
  assert_int_equal(stats.allocation[0].current, 0);
  assert_int_equal(stats.active_bytes[0].current, 512);
  assert_int_equal(hr_alloc_free(alloc, BASE, &e), HR_ERROR_USAGE);
  good(hr_alloc_free_complete(alloc, BASE, &e), &e);
  good(hr_alloc_empty_cache(alloc, &e), &e);
  hr_alloc_get_stats(alloc, &stats);
  assert_int_equal(stats.reserved_bytes[0].current, 0);
  assert_int_equal(hr_alloc_import(alloc, &segment, 1, blocks, 3, &none, 1, &e), HR_OK); /* empty again */
  assert_int_equal(hr_alloc_import(alloc, &segment, 1, blocks, 3, &none, 1, &e), HR_ERROR_USAGE);
  end(&w, alloc);
}

/* ---- what is wrong ---- */

static void refuse(const hr_segment *segments, uint64_t segment_count, const hr_block *blocks, uint64_t block_count,
                   const char *word) {
  hr_error e = {0};
  const hr_alloc_config config = hr_alloc_config_default();
  const hr_pool none = {{0, 0}};
  world w = world_new(100 * MIB);
  world_add(&w, HR_ALLOC_ADOPT_SEGMENT, BASE + 64 * MIB, 2 * MIB); /* taken */
  hr_alloc *alloc = make(&w, &config);
  assert_int_equal(hr_alloc_import(alloc, segments, segment_count, blocks, block_count, &none, 1, &e), HR_ERROR_INPUT);
  if (strstr(e.message, word) == NULL) fail_msg("'%s' is not in: %s", word, e.message);
  good(hr_alloc_check(alloc, &e), &e);
  assert_int_equal(alloc->reserved_bytes, 0);
  w.count--;
  end(&w, alloc);
}

static void test_wrong_states_are_refused(void **unused) {
  (void)unused;
  const hr_block whole = {.address = BASE, .size = 2 * MIB};
  hr_segment s = {.address = BASE, .total_size = 2 * MIB, .block_count = 1};
  hr_block b = whole;
  b.size = MIB;
  refuse(&s, 1, &b, 1, "tile");
  b = whole, b.size = 3 * MIB;
  refuse(&s, 1, &b, 1, "tile");
  b = whole, b.address += 512;
  refuse(&s, 1, &b, 1, "tile");
  refuse(&s, 1, &whole, 0, "blocks");
  s.first_block = UINT64_MAX;
  refuse(&s, 1, &whole, 1, "blocks");
  s.first_block = 0, s.pool = 1;
  refuse(&s, 1, &whole, 1, "pool");
  s.pool = 0, s.address = BASE + 1;
  refuse(&s, 1, &whole, 1, "512");
  s.address = 0;
  refuse(&s, 1, &whole, 1, "512");
  s.address = UINT64_MAX - 511, s.total_size = 1024;
  refuse(&s, 1, &whole, 1, "beyond");
  const hr_segment twice[] = {{.address = BASE, .total_size = 2 * MIB, .block_count = 1},
                              {.address = BASE, .total_size = 2 * MIB, .block_count = 1}};
  refuse(twice, 2, &whole, 1, "overlaps");
  const hr_segment odd = {.address = BASE, .total_size = 512, .block_count = 1, .expandable = true};
  const hr_block odd_block = {.address = BASE, .size = 512};
  refuse(&odd, 1, &odd_block, 1, "2 MiB");
  const hr_segment taken[] = {{.address = BASE, .total_size = 2 * MIB, .block_count = 1},
                              {.address = BASE + 64 * MIB, .total_size = 2 * MIB, .first_block = 1, .block_count = 1}};
  const hr_block two[] = {whole, {.address = BASE + 64 * MIB, .size = 2 * MIB}};
  refuse(taken, 2, two, 2, "place");
}

static void test_hooks_without_adopt_cannot_import(void **unused) {
  (void)unused;
  hr_error e;
  world w = world_new(MIB);
  hr_alloc_hooks hooks = world_hooks(&w);
  hooks.adopt = NULL;
  hr_alloc *alloc = NULL;
  const hr_alloc_config config = hr_alloc_config_default();
  good(hr_alloc_create(&hooks, &config, &alloc, &e), &e);
  assert_int_equal(hr_alloc_import(alloc, NULL, 0, NULL, 0, NULL, 0, &e), HR_ERROR_USAGE);
  end(&w, alloc);
}

/* ---- host memory refused at the n-th allocation ---- */

static void script(hr_alloc *alloc, uint64_t *refusals) {
  uint64_t live[LIVE] = {0};
  hr_error e;
  uint32_t pool = 0;
  random_state = 4711;
  for (int i = 0; i < 900; i++) {
    uint64_t *slot = &live[draw(LIVE)];
    const uint64_t bytes = some_size(), stream = draw(40);
    if (i % 90 == 5) *refusals += hr_alloc_pool_create(alloc, 9, 1 + draw(3), &pool, &e) == HR_ERROR_MEMORY;
    if (i % 90 == 80) *refusals += hr_alloc_empty_cache(alloc, &e) == HR_ERROR_MEMORY;
    if (*slot == 0) {
      *refusals += hr_alloc_malloc_in(alloc, pool, bytes, stream % 3, slot, &e) == HR_ERROR_MEMORY;
    } else if (draw(3) == 0) {
      *refusals += hr_alloc_record_stream(alloc, *slot, stream, &e) == HR_ERROR_MEMORY;
    } else {
      good(hr_alloc_free(alloc, *slot, &e), &e); /* never needs memory */
      *slot = 0;
    }
  }
}

static void fault_run(uint64_t nth, bool expandable, uint64_t *refusals, bool *reached) {
  hr_error e;
  hr_alloc_config config = hr_alloc_config_default();
  config.expandable_segments = expandable;
  world w = world_new(8000 * MIB);
  hr_alloc_hooks hooks = world_hooks(&w);
  hr_alloc *alloc = NULL;
  const uint64_t before = hri_mem_allocation_count(), live_before = hri_mem_live_bytes();
  hri_mem_fail_after(nth);
  const hr_status status = hr_alloc_create(&hooks, &config, &alloc, &e);
  if (status == HR_OK) script(alloc, refusals);
  else assert_int_equal(status, HR_ERROR_MEMORY);
  *reached = hri_mem_allocation_count() - before >= nth;
  hri_mem_fail_after(0);
  if (status == HR_OK) good(hr_alloc_check(alloc, &e), &e);
  if (status == HR_OK) script(alloc, refusals); /* and it still works */
  end(&w, alloc);
  assert_int_equal(hri_mem_live_bytes(), live_before);
}

static void test_host_memory_refused_anywhere(void **unused) {
  (void)unused;
  for (int expandable = 0; expandable < 2; expandable++) {
    uint64_t refusals = 0, nth = 1;
    for (bool reached = true; reached; nth++) fault_run(nth, expandable != 0, &refusals, &reached);
    assert_true(nth > 50);
    assert_true(refusals >= nth / 2);
  }
}

static void test_host_memory_refused_in_import(void **unused) {
  (void)unused;
  hr_error e;
  random_state = 99;
  uint64_t live[LIVE] = {0};
  hr_alloc_config config = hr_alloc_config_default();
  for (int expandable = 0; expandable < 2; expandable++) {
    config.expandable_segments = expandable != 0;
    world w = world_new(8000 * MIB);
    uint32_t pool;
    hr_alloc *from = make(&w, &config);
    good(hr_alloc_pool_create(from, 3, 4, &pool, &e), &e);
    memset(live, 0, sizeof live);
    for (int i = 0; i < 3000; i++) step(from, NULL, &live[draw(LIVE)]);
    record_state(from);
    hr_status status = HR_ERROR_MEMORY;
    for (uint64_t nth = 1; status != HR_OK; nth++) {
      assert_true(nth < 5000);
      world v = world_new(8000 * MIB);
      hr_alloc *to = make(&v, &config);
      hri_mem_fail_after(nth);
      status = import(to, &e);
      hri_mem_fail_after(0);
      assert_true(status == HR_OK || status == HR_ERROR_MEMORY);
      good(hr_alloc_check(to, &e), &e);
      if (status != HR_OK) assert_int_equal(v.count, 0);
      if (status != HR_OK) good(import(to, &e), &e);
      end(&v, to);
    }
    end(&w, from);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_requests_go_on_as_recorded),   cmocka_unit_test(test_pending_blocks_wait_to_be_completed),
      cmocka_unit_test(test_wrong_states_are_refused),     cmocka_unit_test(test_hooks_without_adopt_cannot_import),
      cmocka_unit_test(test_host_memory_refused_anywhere), cmocka_unit_test(test_host_memory_refused_in_import),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
