/* What holds after any sequence of calls: blocks tile segments, nothing overlaps, every statistic equals a recount,
 * addresses lie in memory that the device gave, empty_cache returns exactly what is wholly free, destroy returns
 * everything. */
#include "alloc_world.h"

#include "alloc/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const uint64_t MiB = 1 << 20;

enum { SLOTS = 3000 };

typedef struct slot {
  uint64_t address, bytes, stream;
  bool held;
} slot;

typedef struct run {
  uint64_t seed, random;
  world world;
  hr_alloc *alloc;
  slot slots[SLOTS];
  uint32_t pools[4]; /* 0: not there */
  bool begun[4];
  uint64_t step;
  bool wide; /* request sizes up to the capacity, else those of a training step */
  int streams;
} run;

static uint64_t draw(run *r, uint64_t below) {
  r->random ^= r->random << 13;
  r->random ^= r->random >> 7;
  r->random ^= r->random << 17;
  return (r->random >> 11) % below;
}

static void holds(run *r, hr_status status, const hr_error *e, const char *where) {
  if (status != HR_OK)
    fail_msg("seed %llu, step %llu, %s: %s", (unsigned long long)r->seed, (unsigned long long)r->step, where,
             e->message);
}

static void expect(run *r, bool condition, const char *what) {
  if (!condition) fail_msg("seed %llu, step %llu: %s", (unsigned long long)r->seed, (unsigned long long)r->step, what);
}

static uint64_t some_size(run *r) {
  switch (draw(r, r->wide ? 8 : 7)) {
  case 0: return 1 + draw(r, 512);
  case 1: return 1 + draw(r, 8192);
  case 2: return 1 + draw(r, 200000);
  case 3: return MiB - 600 + draw(r, 1200);
  case 4: return MiB + draw(r, 9 * MiB);
  case 5: return 10 * MiB - 1024 + draw(r, 2048);
  case 6: return draw(r, 4) == 0 ? 10 * MiB + draw(r, 60 * MiB) : 1 + draw(r, 65536);
  default: return 1 + draw(r, 400 * MiB);
  }
}

static void do_malloc(run *r, slot *s) {
  hr_error e = {0};
  const uint64_t bytes = some_size(r), stream = draw(r, (uint64_t)r->streams) * 0x1000;
  const uint32_t pool = r->pools[draw(r, 4)];
  hr_status status = HR_OK;
  uint64_t address = 0;
  hr_alloc_stats before, after;
  hr_alloc_get_stats(r->alloc, &before);
  if (pool != 0 && draw(r, 3) == 0) status = hr_alloc_malloc_in(r->alloc, pool, bytes, stream, &address, &e);
  else status = hr_alloc_malloc(r->alloc, bytes, stream, &address, &e);
  hr_alloc_get_stats(r->alloc, &after);
  if (status != HR_OK) {
    expect(r, status == HR_ERROR_MEMORY, "a request fails for memory only");
    const bool early = strstr(e.message, "at once") != NULL;
    expect(r, after.num_ooms == before.num_ooms + (early ? 0 : 1) && e.requested_bytes >= bytes,
           "a failed request is counted and named");
    expect(r, after.allocation[0].current == before.allocation[0].current, "a failed request changes no allocation");
    return;
  }
  *s = (slot){address, bytes, stream, false};
  const hri_block *b = hri_alloc_find(r->alloc, address);
  expect(r, b != NULL && b->allocated && b->size >= bytes && b->requested == bytes && b->set->stream == stream,
         "the block of a request");
  expect(r, world_inside(&r->world, b->expandable != NULL ? HR_ALLOC_ADOPT_MAP : HR_ALLOC_ADOPT_SEGMENT, b->address, 1),
         "memory of a request");
  expect(r, after.requested_bytes[0].allocated == before.requested_bytes[0].allocated + (int64_t)bytes,
         "requested bytes are counted unrounded");
}

static void do_free(run *r, slot *s) {
  hr_error e = {0};
  if (s->held) {
    holds(r, hr_alloc_free_complete(r->alloc, s->address, &e), &e, "free_complete");
    *s = (slot){0};
    return;
  }
  if (draw(r, 20) == 0) {
    holds(r, hr_alloc_free_begin(r->alloc, s->address, &e), &e, "free_begin");
    s->held = true;
    expect(r, hr_alloc_free(r->alloc, s->address, &e) == HR_ERROR_USAGE, "a second free is refused");
    return;
  }
  holds(r, hr_alloc_free(r->alloc, s->address, &e), &e, "free");
  expect(r, hr_alloc_free(r->alloc, s->address, &e) == HR_ERROR_USAGE, "a second free is refused");
  *s = (slot){0};
}

/* ---- empty_cache ---- */

static bool may_empty(const hri_block *b) {
  const hri_alloc_pool *pool = b->set->half->pool;
  return pool->number == 0 || (pool->live && pool->use_count == 0);
}

static uint64_t emptyable(const hr_alloc *alloc) {
  uint64_t cursor = 0, bytes = 0;
  for (const hri_block *b; (b = hri_alloc_each_block(alloc, &cursor)) != NULL;) {
    if (!b->mapped || hri_block_active(b) || !may_empty(b)) continue;
    if (b->expandable == NULL) {
      bytes += hri_block_split(b) ? 0 : b->size;
      continue;
    }
    const uint64_t chunk = b->expandable->chunk_bytes, from = b->address - b->expandable->address;
    const uint64_t begin = (from + chunk - 1) / chunk * chunk, end = (from + b->size) / chunk * chunk;
    bytes += begin < end ? end - begin : 0;
  }
  return bytes;
}

static void do_empty(run *r) {
  hr_error e = {0};
  bool begun = false;
  for (int i = 0; i < 4; i++) begun = begun || r->begun[i];
  if (!begun) { /* what was put off, then its events */
    hri_streams_poll(r->alloc);
    r->world.done = r->world.marks;
    hri_streams_poll(r->alloc);
  }
  const uint64_t expected = begun ? 0 : emptyable(r->alloc), before = r->world.released_bytes;
  holds(r, hr_alloc_empty_cache(r->alloc, &e), &e, "empty_cache");
  if (begun) return;
  expect(r, r->world.released_bytes - before == expected, "empty_cache returns exactly what is wholly free");
  expect(r, emptyable(r->alloc) == 0, "nothing is left that could be returned");
}

/* ---- pools, streams, settings ---- */

static void do_pool(run *r) {
  hr_error e = {0};
  const uint64_t i = draw(r, 4);
  const uint32_t pool = r->pools[i];
  switch (draw(r, 4)) {
  case 0:
    if (pool == 0) {
      const hr_status status = hr_alloc_pool_create(r->alloc, 7, i + 1, &r->pools[i], &e);
      if (status != HR_OK) r->pools[i] = 0;
      expect(r, status == HR_OK || hri_alloc_pool_find(r->alloc, (hr_pool){{7, i + 1}})->use_count == 0,
             "a pool can be created again when it is empty");
    }
    break;
  case 1:
    if (pool != 0 && !r->begun[i]) {
      holds(r, hr_alloc_pool_begin(r->alloc, pool, draw(r, 2) == 0, &e), &e, "pool_begin");
      r->begun[i] = true;
    }
    break;
  case 2:
    if (r->begun[i]) {
      holds(r, hr_alloc_pool_end(r->alloc, pool, &e), &e, "pool_end");
      r->begun[i] = false;
    }
    break;
  default:
    if (pool != 0 && !r->begun[i]) {
      holds(r, hr_alloc_pool_release(r->alloc, pool, &e), &e, "pool_release");
      r->pools[i] = 0;
    }
  }
}

static void do_record_stream(run *r, const slot *s) {
  hr_error e = {0};
  const hr_status status = hr_alloc_record_stream(r->alloc, s->address, draw(r, WORLD_STREAMS) * 0x1000, &e);
  if (s->held) expect(r, status == HR_ERROR_USAGE, "record_stream of a freed block is refused");
  else holds(r, status, &e, "record_stream");
}

static hr_alloc_config some_config(run *r) {
  hr_alloc_config c = hr_alloc_config_default();
  if (draw(r, 2) == 0) c.expandable_segments = true;
  if (draw(r, 3) == 0) c.max_split_bytes = (21 + draw(r, 60)) * MiB;
  if (draw(r, 3) == 0) c.max_non_split_rounding_bytes = (20 + draw(r, 60)) * MiB;
  if (draw(r, 3) == 0) c.garbage_collection_threshold = 0.2 + 0.1 * (double)draw(r, 7);
  if (draw(r, 3) == 0) c.large_segment_bytes = (10 + 2 * draw(r, 20)) * MiB;
  if (draw(r, 3) == 0) c.throw_on_device_oom = true;
  for (int i = 0; i < HR_ALLOC_DIVISION_COUNT && draw(r, 2) == 0; i++)
    c.roundup_power2_divisions[i] = UINT64_C(1) << draw(r, 6);
  return c;
}

static void do_one(run *r) {
  const uint64_t what = draw(r, 1000);
  slot *s = &r->slots[draw(r, SLOTS)];
  if (what < 2) do_empty(r);
  else if (what < 10) do_pool(r);
  else if (what < 40) r->world.done += draw(r, 4);
  else if (what < 42) hr_alloc_reset_peak_stats(r->alloc);
  else if (what < 80 && s->address != 0) do_record_stream(r, s);
  else if (s->address != 0) do_free(r, s);
  else do_malloc(r, s);
  if (r->world.done > r->world.marks) r->world.done = r->world.marks;
  expect(r, !r->world.broken, "the device got back what it gave");
}

static void finish(run *r) {
  hr_error e = {0};
  for (int i = 0; i < SLOTS; i++)
    while (r->slots[i].address != 0) do_free(r, &r->slots[i]);
  for (int i = 0; i < 4; i++) {
    if (r->begun[i]) holds(r, hr_alloc_pool_end(r->alloc, r->pools[i], &e), &e, "pool_end");
    r->begun[i] = false;
    if (r->pools[i] != 0) holds(r, hr_alloc_pool_release(r->alloc, r->pools[i], &e), &e, "pool_release");
  }
  do_empty(r);
  holds(r, hr_alloc_check(r->alloc, &e), &e, "check at the end");
  hr_alloc_stats stats;
  hr_alloc_get_stats(r->alloc, &stats);
  expect(r, stats.reserved_bytes[0].current == 0 && stats.active[0].current == 0, "nothing is left at the end");
  expect(r, stats.allocated_bytes[0].allocated == stats.allocated_bytes[0].freed, "totals agree at the end");
  expect(r, r->world.used == 0, "the device has everything back");
}

static void run_seed(uint64_t seed, uint64_t steps) {
  static run r;
  hr_error e = {0};
  r = (run){.seed = seed, .random = seed * UINT64_C(0x9E3779B97F4A7C15) | 1};
  r.world = world_new((64 + draw(&r, 4000)) * MiB);
  r.wide = draw(&r, 3) == 0;
  r.streams = 1 + (int)draw(&r, 4);
  hr_alloc_hooks hooks = world_hooks(&r.world);
  const bool changes = draw(&r, 3) == 0;
  hr_alloc_config config = some_config(&r);
  const hr_alloc_order order = config.order = (hr_alloc_order)draw(&r, 3);
  if (draw(&r, 2) == 0) config.memory_fraction = 0.3 + 0.1 * (double)draw(&r, 7);
  holds(&r, hr_alloc_create(&hooks, &config, &r.alloc, &e), &e, "create");
  for (r.step = 0; r.step < steps; r.step++) {
    do_one(&r);
    if (r.step % 512 == 0) holds(&r, hr_alloc_check(r.alloc, &e), &e, "check");
    if (changes && draw(&r, 2000) == 0) {
      config = some_config(&r);
      config.order = order;
      holds(&r, hr_alloc_set_config(r.alloc, &config, &e), &e, "set_config");
    }
  }
  holds(&r, hr_alloc_check(r.alloc, &e), &e, "check");
  if (seed % 2 == 0) finish(&r);
  hr_alloc_destroy(r.alloc);
  expect(&r, !r.world.broken && r.world.used == 0 && r.world.count == 0, "destroy returns everything");
  free(r.world.ranges);
}

static void test_random_operations(void **state) {
  (void)state;
  const char *from = getenv("HR_TEST_SEED");
  const uint64_t first = from != NULL ? strtoull(from, NULL, 10) : 1;
  for (uint64_t seed = first; seed < first + 300; seed++) run_seed(seed, 8000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_operations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
