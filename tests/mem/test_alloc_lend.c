/* A block that is taken for a request stays in its bin until its free set is searched or changed (free_set.c). Nothing
 * outside may tell: one random program runs on two allocators, in one of which nothing stays lent for longer than a
 * call, and all addresses, statistics and events must be the same. */
#include "alloc_world.h"

#include "alloc/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

enum { SLOTS = 300, STEPS = 4000, SEEDS = 60 };

typedef struct side {
  world world;
  hr_alloc *alloc;
} side;

typedef struct twins {
  side plain, settled; /* in the second one, each call ends with nothing lent */
  uint64_t random, live[SLOTS];
  bool begun[SLOTS]; /* freed by the first half of a free */
  uint32_t pool;
  bool capturing;
  uint64_t rejoined; /* frees that found their block still in its bin */
} twins;

static uint64_t draw(twins *t, uint64_t below) {
  t->random ^= t->random << 13;
  t->random ^= t->random >> 7;
  t->random ^= t->random << 17;
  return (t->random >> 11) % below;
}

static uint64_t draw_size(twins *t) {
  static const uint64_t usual[] = {512, 4096, 70000, MIB, 3 * MIB, 12 * MIB, 40 * MIB};
  if (draw(t, 2) == 0) return usual[draw(t, 7)];
  return draw(t, 2) == 0 ? 1 + draw(t, MIB) : 1 + draw(t, 30 * MIB);
}

static void settle_half(const hri_alloc_half *half) {
  for (size_t i = 0; i < half->sets.count; i++) hri_free_set_settle(half->sets.items[i]);
}

/* After each call. */
static void compare(twins *t, hr_status a, hr_status b) {
  assert_int_equal(a, b);
  for (size_t i = 0; i < t->settled.alloc->pools.count; i++) {
    settle_half(&t->settled.alloc->pools.items[i]->small);
    settle_half(&t->settled.alloc->pools.items[i]->large);
  }
}

static void side_open(side *s, const hr_alloc_config *config) {
  hr_error e;
  s->world = world_new(2048 * MIB);
  const hr_alloc_hooks hooks = world_hooks(&s->world);
  assert_int_equal(hr_alloc_create(&hooks, config, &s->alloc, &e), HR_OK);
  if (config->garbage_collection_threshold > 0) hr_alloc_set_allowed(s->alloc, 1024 * MIB);
  assert_int_equal(hr_alloc_history_start(s->alloc, NULL, &e), HR_OK);
}

static void side_close(side *s) {
  hr_error e;
  if (hr_alloc_check(s->alloc, &e) != HR_OK) fail_msg("%s", e.message);
  hr_alloc_destroy(s->alloc);
  assert_false(s->world.broken);
  assert_int_equal(s->world.count, 0);
  free(s->world.ranges);
}

static void request(twins *t, uint64_t *slot) {
  hr_error e;
  const uint64_t bytes = draw_size(t), stream = draw(t, 8) == 0;
  uint64_t a = 0, b = 0;
  compare(t, hr_alloc_malloc(t->plain.alloc, bytes, stream, &a, &e),
          hr_alloc_malloc(t->settled.alloc, bytes, stream, &b, &e));
  assert_int_equal(a, b);
  *slot = a;
}

static void give(twins *t, uint64_t *slot) {
  hr_error e;
  const hri_block *block = hri_alloc_find(t->plain.alloc, *slot);
  t->rejoined += block->allocated && hri_free_set_lent(block);
  compare(t, hr_alloc_free(t->plain.alloc, *slot, &e), hr_alloc_free(t->settled.alloc, *slot, &e));
  *slot = 0;
}

static void give_in_halves(twins *t, size_t i) {
  hr_error e;
  if (!t->begun[i]) {
    compare(t, hr_alloc_free_begin(t->plain.alloc, t->live[i], &e),
            hr_alloc_free_begin(t->settled.alloc, t->live[i], &e));
    t->begun[i] = true;
    if (draw(t, 2) == 0) return;
  }
  compare(t, hr_alloc_free_complete(t->plain.alloc, t->live[i], &e),
          hr_alloc_free_complete(t->settled.alloc, t->live[i], &e));
  t->begun[i] = false;
  t->live[i] = 0;
}

static void capture(twins *t) {
  hr_error e;
  if (t->capturing)
    compare(t, hr_alloc_pool_end(t->plain.alloc, t->pool, &e), hr_alloc_pool_end(t->settled.alloc, t->pool, &e));
  else
    compare(t, hr_alloc_pool_begin(t->plain.alloc, t->pool, true, &e),
            hr_alloc_pool_begin(t->settled.alloc, t->pool, true, &e));
  t->capturing = !t->capturing;
}

static void step(twins *t) {
  hr_error e;
  const size_t i = draw(t, SLOTS);
  const uint64_t kind = draw(t, 100);
  if (kind == 0) compare(t, hr_alloc_empty_cache(t->plain.alloc, &e), hr_alloc_empty_cache(t->settled.alloc, &e));
  else if (kind < 3) capture(t);
  else if (t->begun[i]) give_in_halves(t, i);
  else if (t->live[i] == 0) request(t, &t->live[i]);
  else if (kind < 10) give_in_halves(t, i);
  else if (kind < 80) give(t, &t->live[i]);
  else if (kind < 90)
    compare(t, hr_alloc_record_stream(t->plain.alloc, t->live[i], 2, &e),
            hr_alloc_record_stream(t->settled.alloc, t->live[i], 2, &e));
  if (kind < 50 || kind >= 90) return;
  uint64_t temporary = 0; /* what this is for: requested and freed at once, at times on two streams */
  request(t, &temporary);
  if (temporary == 0) return;
  if (kind >= 85)
    compare(t, hr_alloc_record_stream(t->plain.alloc, temporary, 3, &e),
            hr_alloc_record_stream(t->settled.alloc, temporary, 3, &e));
  give(t, &temporary);
}

static int by_address(const void *a, const void *b) {
  const hr_block *x = a, *y = b;
  return x->address < y->address ? -1 : x->address > y->address;
}

static void same_snapshot(const twins *t) {
  hr_error e;
  hr_snapshot *a, *b;
  assert_int_equal(hr_alloc_snapshot(t->plain.alloc, &a, &e), HR_OK);
  assert_int_equal(hr_alloc_snapshot(t->settled.alloc, &b, &e), HR_OK);
  assert_int_equal(a->segment_count, b->segment_count);
  assert_int_equal(a->block_count, b->block_count);
  qsort(a->blocks, a->block_count, sizeof *a->blocks, by_address); /* segments come in no order */
  qsort(b->blocks, b->block_count, sizeof *b->blocks, by_address);
  for (uint64_t i = 0; i < a->block_count; i++) {
    assert_int_equal(a->blocks[i].address, b->blocks[i].address);
    assert_int_equal(a->blocks[i].size, b->blocks[i].size);
    assert_int_equal(a->blocks[i].state, b->blocks[i].state);
  }
  assert_int_equal(a->event_count, b->event_count);
  for (uint64_t i = 0; i < a->event_count; i++) {
    assert_int_equal(a->events[i].action, b->events[i].action);
    assert_int_equal(a->events[i].addr, b->events[i].addr);
    assert_int_equal(a->events[i].size, b->events[i].size);
  }
  hr_snapshot_destroy(a);
  hr_snapshot_destroy(b);
}

static uint64_t run(uint64_t seed, const hr_alloc_config *config) {
  hr_error e;
  twins t = {.random = seed * 2654435761u + 88172645463325252u};
  uint32_t number;
  side_open(&t.plain, config);
  side_open(&t.settled, config);
  assert_int_equal(hr_alloc_pool_create(t.plain.alloc, 0, 7, &t.pool, &e), HR_OK);
  assert_int_equal(hr_alloc_pool_create(t.settled.alloc, 0, 7, &number, &e), HR_OK);
  for (int i = 0; i < STEPS; i++) {
    step(&t);
    if (draw(&t, 16) == 0) t.plain.world.done = t.settled.world.done = t.plain.world.marks;
    if (i % 64 != 0) continue;
    hr_alloc_stats a, b;
    hr_alloc_get_stats(t.plain.alloc, &a);
    hr_alloc_get_stats(t.settled.alloc, &b);
    assert_memory_equal(&a, &b, sizeof a);
  }
  same_snapshot(&t);
  side_close(&t.plain);
  side_close(&t.settled);
  return t.rejoined;
}

static void nobody_can_tell(void **unused) {
  (void)unused;
  uint64_t rejoined = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    hr_alloc_config config = hr_alloc_config_default();
    config.order = (hr_alloc_order)(seed % 3);
    config.expandable_segments = seed / 3 % 2 == 1;
    if (seed / 6 % 3 == 1) config.max_split_bytes = 24 * MIB;
    if (seed / 6 % 3 == 2 && !config.expandable_segments) config.garbage_collection_threshold = 0.5;
    rejoined += run(seed + 1, &config);
  }
  assert_true(rejoined > SEEDS * STEPS / 20); /* else this tests nothing */
}

/* ---- the two cases by hand ---- */

static void block_stays_in_its_bin(void **unused) {
  (void)unused;
  hr_error e;
  hr_alloc_config config = hr_alloc_config_default();
  side s;
  side_open(&s, &config);
  uint64_t first, second, third;
  for (int whole = 0; whole < 2; whole++) {
    const uint64_t bytes = whole ? 30 * MIB : 12 * MIB;
    assert_int_equal(hr_alloc_malloc(s.alloc, 30 * MIB, 0, &first, &e), HR_OK);
    assert_int_equal(hr_alloc_malloc(s.alloc, 60 * MIB, 0, &second, &e), HR_OK);
    assert_int_equal(hr_alloc_free(s.alloc, first, &e), HR_OK);
    assert_int_equal(hr_alloc_free(s.alloc, second, &e), HR_OK); /* the first one has gone to its bin */
    hri_free_set *set = s.alloc->pools.items[0]->large.sets.items[0];
    const hri_block *binned = hri_free_set_first(set, 30 * MIB);
    assert_int_equal(hr_alloc_malloc(s.alloc, bytes, 0, &third, &e), HR_OK);
    assert_int_equal(third, first);
    assert_ptr_equal(set->lent, binned);
    assert_int_equal(hr_alloc_free(s.alloc, third, &e), HR_OK);
    assert_null(set->lent);
    assert_ptr_equal(hri_free_set_first(set, 30 * MIB), binned);
    assert_int_equal(binned->size, 30 * MIB);
    assert_int_equal(hr_alloc_check(s.alloc, &e), HR_OK);
    assert_int_equal(hr_alloc_empty_cache(s.alloc, &e), HR_OK);
  }
  side_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nobody_can_tell),
      cmocka_unit_test(block_stays_in_its_bin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
