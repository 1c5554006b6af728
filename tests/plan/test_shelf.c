/* A shelf finds what its definition says, looked at plainly: all that lies there, by offset, who meets the life, the gaps
 * between them. Random items of few sizes (so that gaps of just a size come up), at spans of ticks that fit into 16 bits
 * and that do not. The seed of a failure is printed; HEADROOM_TEST_SEED repeats it. */
#include "plan/shelf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"

#define DICE_STREAM 17
#include "support/dice.h"

enum { ITEMS = 400, SEEDS = 300 };

/* How often each kind of answer came, so that a test of none shows. */
typedef struct census {
  uint64_t exact, gap, top, empty;
} census;

static int by_offset(const void *a, const void *b) {
  const hri_shelf_item *x = a, *y = b;
  return x->low < y->low ? -1 : x->low > y->low;
}

/* The definition. */
static uint64_t plain_fit(hri_shelf_item *others, size_t count, const hri_shelf_item *it, census *seen) {
  uint64_t top = 0, best = 0, least = UINT64_MAX;
  bool any = false;
  qsort(others, count, sizeof *others, by_offset);
  for (size_t i = 0; i < count; i++) {
    const hri_shelf_item *o = &others[i];
    if (o->end < it->begin || o->begin > it->end) continue;
    if (o->low > top && o->low - top >= it->bytes && o->low - top < least) {
      least = o->low - top;
      best = top;
    }
    if (o->low + o->bytes > top) top = o->low + o->bytes;
    any = true;
  }
  if (least != UINT64_MAX) {
    if (least == it->bytes) seen->exact++;
    else seen->gap++;
    return best;
  }
  if (any) seen->top++;
  else seen->empty++;
  return top;
}

typedef struct span {
  uint32_t begin, end;
} span;

static span some_span(dice *d) {
  static const uint32_t ticks[] = {1, 2, 40, 1000, INT16_MAX, INT16_MAX + 1, 200000};
  const uint32_t begin = roll(d, 2) ? 0 : roll(d, 100000);
  return (span){begin, begin + ticks[roll(d, 7)] - 1};
}

static hri_shelf_item some_item(dice *d, span within) {
  static const uint64_t usual[] = {512, 512 * 3, 512 * 8, 512 * 100, UINT64_C(512) << 30};
  const uint32_t ticks = within.end - within.begin + 1;
  const uint32_t length = roll(d, 3) == 0 ? roll(d, ticks) : roll(d, 1 + ticks / 30);
  hri_shelf_item it = {.begin = within.begin + roll(d, ticks), .low = 512 * (uint64_t)roll(d, 1000)};
  it.end = within.end - it.begin < length ? within.end : it.begin + length;
  it.bytes = roll(d, 4) ? usual[roll(d, 5)] : 512 * (uint64_t)(1 + roll(d, 200));
  return it;
}

/* Some items where they say, which may lie over one another; then all others find their places. */
static void fill(dice *d, hri_shelf *shelf, uint32_t count, census *seen) {
  const span within = some_span(d);
  const uint32_t fixed = roll(d, 10);
  hri_shelf_item items[ITEMS] = {0}, others[ITEMS];
  for (uint32_t i = 0; i < count; i++) items[i] = some_item(d, within);
  hri_shelf_clear(shelf, items, within.begin, within.end);
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t item = count - 1 - i; /* in any order */
    others[i] = items[item];
    if (i < fixed) {
      hri_shelf_put(shelf, item);
    } else {
      const uint64_t low = plain_fit(others, i, &items[item], seen),
                     found = hri_shelf_fit(shelf, item) - items[item].bytes;
      if (found != low)
        fail_msg("seed %llu, item %u: %llu, not %llu", (unsigned long long)d->seed, item, (unsigned long long)found,
                 (unsigned long long)low);
      others[i].low = low;
    }
    assert_int_equal(shelf->count, i + 1);
    assert_int_equal(shelf->low[item], others[i].low);
    assert_int_equal(shelf->high[item], others[i].low + others[i].bytes);
  }
}

static void one_seed(uint64_t seed, census *seen) {
  dice d = {seed, 0};
  hri_shelf shelf;
  hr_error error = {0};
  assert_int_equal(hri_shelf_init(&shelf, ITEMS, &error), HR_OK);
  for (int use = 0; use < 3; use++)
    fill(&d, &shelf, roll(&d, 4) ? 1 + roll(&d, ITEMS) : ITEMS, seen); /* cleared each time */
  hri_shelf_deinit(&shelf);
}

static void finds_what_the_definition_says(void **state) {
  const char *given = getenv("HEADROOM_TEST_SEED");
  census seen = {0};
  (void)state;
  if (given) {
    one_seed(strtoull(given, NULL, 0), &seen);
    return;
  }
  for (uint64_t seed = 1; seed <= SEEDS; seed++) one_seed(seed, &seen);
  assert_true(seen.exact > 1000 && seen.gap > 1000 && seen.top > 1000 && seen.empty > 100);
}

static void memory_is_refused(void **state) {
  hr_error error;
  hri_shelf shelf;
  (void)state;
  const uint64_t before = hri_mem_live_bytes();
  for (uint64_t nth = 1; nth <= 4; nth++) {
    error = (hr_error){0};
    hri_mem_fail_after(nth);
    assert_int_equal(hri_shelf_init(&shelf, ITEMS, &error), HR_ERROR_MEMORY);
    hri_mem_fail_after(0);
    hri_shelf_deinit(&shelf);
    assert_int_equal(hri_mem_live_bytes(), before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_the_definition_says),
                                     cmocka_unit_test(memory_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
