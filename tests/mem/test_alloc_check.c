/* hr_alloc_check names what is wrong: each row damages one thing in an allocator that is right, the check says which,
 * and after the damage is undone it is right again. A check that crashes on what it looks for is worth nothing. */
#include "alloc_world.h"

#include "alloc/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

enum { CHANGES = 4, LARGEST = sizeof(uint64_t) };

/* What was overwritten, to be put back. */
typedef struct change {
  void *at;
  char was[LARGEST];
  size_t bytes;
} change;

/* An allocator with something of everything. Sizes of free blocks lie far apart, in words of marks of their own. */
typedef struct fixture {
  world world;
  hr_alloc *alloc;
  hri_block *used, *freed;             /* neighbours in one segment of the small pool; the free one is in its bin */
  hri_block *single;                   /* free, in the large pool: a segment alone, in its bin */
  hri_block *waiting;                  /* freed, with an event on stream 1 */
  hri_block *unmapped;                 /* in an expandable segment */
  hri_free_set *small, *large, *space; /* the small and large pool of stream 0, and where `unmapped` is */
  change changes[CHANGES];
  size_t count;
} fixture;

static uint64_t get_on(fixture *f, uint64_t bytes, uint64_t stream) {
  hr_error e = {0};
  uint64_t address = 0;
  if (hr_alloc_malloc(f->alloc, bytes, stream, &address, &e) != HR_OK) fail_msg("%s", e.message);
  return address;
}

static void put(fixture *f, uint64_t address) {
  hr_error e = {0};
  if (hr_alloc_free(f->alloc, address, &e) != HR_OK) fail_msg("%s", e.message);
}

static void expandable(fixture *f, bool on) {
  hr_error e = {0};
  hr_alloc_config config = hr_alloc_config_default();
  config.expandable_segments = on;
  assert_int_equal(hr_alloc_set_config(f->alloc, &config, &e), HR_OK);
}

static hri_block *unmapped_block(const hr_alloc *alloc) {
  uint64_t cursor = 0;
  hri_block *b;
  while ((b = hri_alloc_each_block(alloc, &cursor)) != NULL && b->mapped);
  return b;
}

static int set_up(void **state) {
  hr_error e = {0};
  fixture *f = calloc(1, sizeof *f);
  const hr_alloc_config config = hr_alloc_config_default();
  f->world = world_new(4096 * MIB);
  const hr_alloc_hooks hooks = world_hooks(&f->world);
  assert_int_equal(hr_alloc_create(&hooks, &config, &f->alloc, &e), HR_OK);

  const uint64_t used = get_on(f, 4 * KIB, 0), freed = get_on(f, 2 * KIB, 0);
  get_on(f, 100 * KIB, 0);
  const uint64_t later = get_on(f, 3 * KIB, 0);
  get_on(f, 5 * KIB, 0);
  f->used = hri_alloc_find(f->alloc, used);
  f->freed = hri_alloc_find(f->alloc, freed);
  put(f, freed);
  put(f, later); /* the block freed last stays outside of the bins; `freed` goes to its own */

  const uint64_t single = get_on(f, 30 * MIB, 0), more = get_on(f, 600 * MIB, 0);
  f->single = hri_alloc_find(f->alloc, single);
  put(f, single);
  put(f, more);

  const uint64_t waiting = get_on(f, 12 * MIB, 1);
  f->waiting = hri_alloc_find(f->alloc, waiting);
  assert_int_equal(hr_alloc_record_stream(f->alloc, waiting, 2, &e), HR_OK);
  put(f, waiting);

  expandable(f, true);
  get_on(f, 50 * MIB, 3);
  f->unmapped = unmapped_block(f->alloc);
  assert_non_null(f->unmapped);

  f->small = f->freed->set;
  f->large = f->single->set;
  f->space = f->unmapped->set;
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  hr_alloc_destroy(f->alloc);
  assert_false(f->world.broken);
  assert_int_equal(f->world.count, 0);
  free(f->world.ranges);
  free(f);
  return 0;
}

static void overwrite(fixture *f, void *at, const void *with, size_t bytes) {
  assert_true(f->count < CHANGES && bytes <= LARGEST);
  change *c = &f->changes[f->count++];
  c->at = at;
  c->bytes = bytes;
  memcpy(c->was, at, bytes);
  memcpy(at, with, bytes);
}

#define DAMAGE(f, place, value)                                                                                        \
  do {                                                                                                                 \
    const __typeof__(place) with_ = (value);                                                                           \
    overwrite(f, &(place), &with_, sizeof(place));                                                                     \
  } while (0)

static void undo(fixture *f) {
  while (f->count > 0) {
    const change *c = &f->changes[--f->count];
    memcpy(c->at, c->was, c->bytes);
  }
}

/* ---- blocks of a segment ---- */

static void size_is_odd(fixture *f) { DAMAGE(f, f->single->size, f->single->size - 1); }
static void size_is_less(fixture *f) { DAMAGE(f, f->used->size, f->used->size - 512); }
static void previous_is_another(fixture *f) { DAMAGE(f, f->freed->prev, f->single); }
static void next_is_spare(fixture *f) { DAMAGE(f, f->freed->in_use, false); }
static void stream_differs(fixture *f) { DAMAGE(f, f->used->set, f->large); }
static void memory_is_gone(fixture *f) { DAMAGE(f, f->used->mapped, false); }
static void neighbours_are_free(fixture *f) { DAMAGE(f, f->used->allocated, false); }
static void expandable_begins_elsewhere(fixture *f) {
  DAMAGE(f, f->unmapped->expandable->address, f->unmapped->expandable->address - 512);
}
static void segments_overlap(fixture *f) { DAMAGE(f, f->single->address, f->used->address + 512); }

/* ---- the table ---- */

static void address_is_not_found(fixture *f) {
  for (uint64_t i = 0; i <= f->alloc->table_mask; i++)
    if (f->alloc->table[i].place == f->used->number + 1) DAMAGE(f, f->alloc->table[i].place, 0);
  assert_int_equal(f->count, 1);
}
static void table_has_one_more(fixture *f) { DAMAGE(f, f->alloc->table_count, f->alloc->table_count + 1); }

/* ---- free sets ---- */

static uint64_t bin_holding(const hri_free_set *set, const hri_block *block) {
  for (uint64_t bin = 0; bin < HRI_BIN_COUNT; bin++)
    if (set->bins[bin] == block) return bin;
  fail_msg("the block is in no bin");
  return 0;
}

static void mark(fixture *f, hri_free_set *set, uint64_t bin, bool summary) {
  DAMAGE(f, set->words[bin / 64], set->words[bin / 64] | UINT64_C(1) << bin % 64);
  if (summary) DAMAGE(f, set->summary, set->summary | UINT64_C(1) << bin / 64);
}

/* Where no search comes by: behind all blocks, and not in the summary. */
static void mark_without_block(fixture *f) { mark(f, f->small, HRI_BIN_COUNT - 1, false); }
/* Where a search for the first block would end. */
static void mark_without_block_before_all(fixture *f) { mark(f, f->small, 0, true); }
static void block_without_mark(fixture *f) {
  const uint64_t bin = bin_holding(f->small, f->freed);
  DAMAGE(f, f->small->words[bin / 64], f->small->words[bin / 64] & ~(UINT64_C(1) << bin % 64));
}
static void summary_lacks_a_word(fixture *f) { DAMAGE(f, f->small->summary, 0); }
static void summary_names_an_empty_word(fixture *f) {
  DAMAGE(f, f->small->summary, f->small->summary | UINT64_C(1) << (HRI_BIN_WORDS - 1));
}
static void used_block_is_in_a_set(fixture *f) { DAMAGE(f, f->large->latest, f->waiting); }
static void free_block_is_in_no_set(fixture *f) { DAMAGE(f, f->large->latest, NULL); }
static void bin_holds_a_smaller_one(fixture *f) {
  const uint64_t bin = bin_holding(f->large, f->single), above = bin + 1;
  assert_null(f->large->bins[above]);
  mark(f, f->large, above, true);
  DAMAGE(f, f->large->bins[above], f->single);
}
static void unmapped_block_has_memory(fixture *f) { DAMAGE(f, f->space->unmapped, f->waiting); }
static void unmapped_block_is_in_no_set(fixture *f) { DAMAGE(f, f->space->unmapped, NULL); }
static void streams_are_out_of_order(fixture *f) { DAMAGE(f, f->large->stream, 7); }

/* ---- events ---- */

static void event_is_lost(fixture *f) { DAMAGE(f, f->waiting->event_count, f->waiting->event_count + 1); }
static void event_of_a_used_block(fixture *f) { DAMAGE(f, f->waiting->allocated, true); }
static void event_of_another_stream(fixture *f) { DAMAGE(f, f->alloc->busy_first->first->stream, 1); }
static void queue_is_not_linked(fixture *f) { DAMAGE(f, f->alloc->busy_first->prev, f->alloc->busy_first); }
static void last_queue_is_missing(fixture *f) { DAMAGE(f, f->alloc->busy_last, NULL); }

/* ---- statistics ---- */

static void requested_is_less(fixture *f) { DAMAGE(f, f->used->requested, f->used->requested - 1); }
static void reserved_is_more(fixture *f) { DAMAGE(f, f->alloc->reserved_bytes, f->alloc->reserved_bytes + 512); }
static void segments_are_fewer(fixture *f) {
  DAMAGE(f, f->alloc->stats.segment.current[0], f->alloc->stats.segment.current[0] - 1);
}
static void oversize_is_counted(fixture *f) {
  DAMAGE(f, f->alloc->stats.oversize_segments.current, f->alloc->stats.oversize_segments.current + 1);
}

static const struct row {
  void (*damage)(fixture *);
  const char *name, *says;
} rows[] = {
#define ROW(damage, says) {damage, #damage, says}
    ROW(size_is_odd, "is no multiple of 512"),
    ROW(size_is_less, "does not reach its neighbour"),
    ROW(previous_is_another, "is not linked back by its neighbour"),
    ROW(next_is_spare, "is not linked back by its neighbour"),
    ROW(stream_differs, "has a neighbour of another pool, stream or segment"),
    ROW(memory_is_gone, "has no memory and should"),
    ROW(neighbours_are_free, "is free like its neighbour and not merged"),
    ROW(expandable_begins_elsewhere, "does not begin its segment"),
    ROW(segments_overlap, "overlaps the segment before"),
    ROW(address_is_not_found, "is not found by its address"),
    ROW(table_has_one_more, "the address table has blocks that are not active"),
    ROW(mark_without_block, "bin 3327 of a free set has a mark and no block"),
    ROW(mark_without_block_before_all, "bin 0 of a free set has a mark and no block"),
    ROW(block_without_mark, "is in a bin without a mark"),
    ROW(summary_lacks_a_word, "the summary of a free set is wrong about word"),
    ROW(summary_names_an_empty_word, "the summary of a free set is wrong about word 51"),
    ROW(used_block_is_in_a_set, "is in a free set and not free"),
    ROW(free_block_is_in_no_set, "free blocks are missing in the free sets"),
    ROW(bin_holds_a_smaller_one, "is out of order in its free set"),
    ROW(unmapped_block_has_memory, "is in the set of unmapped ones"),
    ROW(unmapped_block_is_in_no_set, "free blocks are missing in the free sets"),
    ROW(streams_are_out_of_order, "the streams of a pool are out of order"),
    ROW(event_is_lost, "blocks wait for events that are in no queue"),
    ROW(event_of_a_used_block, "has an event and should not"),
    ROW(event_of_another_stream, "has an event and should not"),
    ROW(queue_is_not_linked, "the queues of events are not linked"),
    ROW(last_queue_is_missing, "blocks wait for events that are in no queue"),
    ROW(requested_is_less, "statistic requested_bytes of kind 0 is"),
    ROW(reserved_is_more, "statistic reserved in all of kind 0 is"),
    ROW(segments_are_fewer, "statistic segment of kind 0 is"),
    ROW(oversize_is_counted, "statistic oversize_segments of kind 0 is"),
};

static void damage_is_named(void **state) {
  fixture *f = *state;
  hr_error e = {0};
  if (hr_alloc_check(f->alloc, &e) != HR_OK) fail_msg("before any damage: %s", e.message);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    rows[i].damage(f);
    e = (hr_error){0};
    if (hr_alloc_check(f->alloc, &e) != HR_ERROR_INTERNAL) fail_msg("%s: not found", rows[i].name);
    if (strstr(e.message, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].name, e.message);
    undo(f);
    if (hr_alloc_check(f->alloc, &e) != HR_OK) fail_msg("%s, undone: %s", rows[i].name, e.message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(damage_is_named, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
