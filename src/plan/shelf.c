/* Who may meet a life is asked of all places, one after the other: lives stand in arrays of their own, halved to 16 bits
 * until all ticks fit (`shift`), and a chunk of 64 is compared at once. Who meets in those may meet; who does not, does
 * not.
 *
 * Counted on a refused 7B job with its 25 fixes: 670 items lie there when one is put, 116 of them meet it. Bounds of the
 * lives of each eight neighbours would tell of half of the groups that none meets; and of one round of the greedy 93 %
 * of the items lie elsewhere in the next, so there is little to skip or to keep. */
#include "plan/shelf.h"

#include <assert.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { CHUNK = 64, TICK_LIMIT = INT16_MAX - 1 };

hr_status hri_shelf_init(hri_shelf *shelf, uint64_t capacity, hr_error *error) {
  const uint64_t places = capacity + CHUNK;
  *shelf = (hri_shelf){.begin = hri_alloc(places * sizeof *shelf->begin),
                       .end = hri_alloc(places * sizeof *shelf->end),
                       .item = hri_alloc(places * sizeof *shelf->item),
                       .low = hri_alloc(capacity * sizeof *shelf->low),
                       .high = hri_alloc(capacity * sizeof *shelf->high),
                       .count = (uint32_t)places};
  if (!shelf->begin || !shelf->end || !shelf->item || !shelf->low || !shelf->high)
    return hri_fail_memory(error, places * (2 * sizeof *shelf->begin + sizeof *shelf->item + 2 * sizeof *shelf->low),
                           "placement");
  hri_shelf_clear(shelf, NULL, 0, 0);
  return HR_OK;
}

void hri_shelf_deinit(hri_shelf *shelf) {
  hri_free(shelf->begin);
  hri_free(shelf->end);
  hri_free(shelf->item);
  hri_free(shelf->low);
  hri_free(shelf->high);
  *shelf = (hri_shelf){0};
}

void hri_shelf_clear(hri_shelf *shelf, const hri_shelf_item *items, uint32_t first_tick, uint32_t last_tick) {
  shelf->items = items;
  shelf->first_tick = first_tick;
  for (shelf->shift = 0; (last_tick - first_tick) >> shelf->shift > TICK_LIMIT;) shelf->shift++;
  for (uint32_t at = 0; at < shelf->count; at++) {
    shelf->begin[at] = INT16_MAX;
    shelf->end[at] = -1;
  }
  shelf->count = 0;
}

static int16_t coarse(const hri_shelf *shelf, uint32_t tick) {
  assert(tick >= shelf->first_tick && (tick - shelf->first_tick) >> shelf->shift <= TICK_LIMIT);
  return (int16_t)((tick - shelf->first_tick) >> shelf->shift);
}

/* ---- who meets ---- */

/* A bit for each of the CHUNK places from `from` on that may be alive together with ticks above `before` and below
 * `behind`. */
#ifdef __SSE2__

static inline __m128i eight_meet(const hri_shelf *shelf, uint32_t from, __m128i before, __m128i behind) {
  const __m128i begin = _mm_loadu_si128((const __m128i *)(const void *)(shelf->begin + from));
  const __m128i end = _mm_loadu_si128((const __m128i *)(const void *)(shelf->end + from));
  return _mm_and_si128(_mm_cmpgt_epi16(end, before), _mm_cmpgt_epi16(behind, begin));
}

static inline uint64_t who_meets(const hri_shelf *shelf, uint32_t from, int16_t before, int16_t behind) {
  const __m128i low = _mm_set1_epi16(before), high = _mm_set1_epi16(behind);
  uint64_t met = 0;
  for (uint32_t i = 0; i < CHUNK; i += 16) {
    const __m128i both =
        _mm_packs_epi16(eight_meet(shelf, from + i, low, high), eight_meet(shelf, from + i + 8, low, high));
    met |= (uint64_t)(uint32_t)_mm_movemask_epi8(both) << i;
  }
  return met;
}

#else

typedef int16_t eight __attribute__((vector_size(16))); /* gcc's and clang's: of no instruction set in particular */
typedef int8_t marks __attribute__((vector_size(8)));
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first mark is the lowest byte");

static inline uint64_t who_meets(const hri_shelf *shelf, uint32_t from, int16_t before, int16_t behind) {
  uint64_t met = 0;
  for (uint32_t i = 0; i < CHUNK; i += 8) {
    eight begin, end;
    marks both;
    uint64_t bytes;
    memcpy(&begin, shelf->begin + from + i, sizeof begin);
    memcpy(&end, shelf->end + from + i, sizeof end);
    both = __builtin_convertvector((end > before) & (begin < behind), marks);
    memcpy(&bytes, &both, sizeof bytes);
    /* the k-th byte's lowest bit to bit 56 + k; no two meet on the way */
    met |= ((bytes & UINT64_C(0x0101010101010101)) * UINT64_C(0x0102040810204080) >> 56) << i;
  }
  return met;
}

#endif

static inline bool really_meets(const hri_shelf_item *a, const hri_shelf_item *b) {
  return a->end >= b->begin && a->begin <= b->end;
}

/* ---- the best gap ---- */

/* Where an item shall lie: its offset, and the place that it then stands before: that of what ends the gap. */
typedef struct gap {
  uint64_t offset;
  uint32_t to;
} gap;

/* Two thirds of the time of a large plan's placement are spent here, on what the life meets; so `exact` is a constant
 * where this is called. Layers are alike, so a gap of just its size is common; nothing is better. */
static inline __attribute__((always_inline)) gap best_gap(const hri_shelf *shelf, const hri_shelf_item *it,
                                                          bool exact) {
  const int16_t before = (int16_t)(coarse(shelf, it->begin) - 1), behind = (int16_t)(coarse(shelf, it->end) + 1);
  const uint32_t count = shelf->count;
  const uint64_t *lows = shelf->low, *highs = shelf->high, bytes = it->bytes;
  uint64_t end = bytes, spare = (uint64_t)1 << 63; /* of it, on top of all so far; bytes that the best gap leaves */
  gap best = {0};
  for (uint32_t from = 0; from < count; from += CHUNK) {
    const uint32_t *item = shelf->item + from;
    for (uint64_t met = who_meets(shelf, from, before, behind); met != 0; met &= met - 1) {
      const uint32_t at = (uint32_t)__builtin_ctzll(met), other = item[at];
      if (!exact && !really_meets(it, &shelf->items[other])) continue;
      const uint64_t rest = lows[other] - end; /* 2^63 and more: too small */
      if (rest < spare) {
        spare = rest;
        best = (gap){end - bytes, from + at};
        if (rest == 0) return best;
      }
      if (highs[other] + bytes > end) end = highs[other] + bytes;
    }
  }
  return spare >> 63 ? (gap){end - bytes, count} : best;
}

static gap find_gap(const hri_shelf *shelf, const hri_shelf_item *it) {
  return shelf->shift == 0 ? best_gap(shelf, it, true) : best_gap(shelf, it, false);
}

/* Behind all that lies as low or lower; what ends the gap does not. */
static uint32_t place_of(const hri_shelf *shelf, gap in) {
  uint32_t low = 0, high = in.to;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (shelf->low[shelf->item[middle]] <= in.offset) low = middle + 1;
    else high = middle;
  }
  return low;
}

static void insert(hri_shelf *shelf, uint32_t item, gap in) {
  const hri_shelf_item *it = &shelf->items[item];
  const uint32_t at = place_of(shelf, in), after = shelf->count++ - at;
  assert(at == 0 || shelf->low[shelf->item[at - 1]] <= in.offset);
  assert(after == 0 || shelf->low[shelf->item[at]] >= in.offset);
  memmove(shelf->begin + at + 1, shelf->begin + at, after * sizeof *shelf->begin);
  memmove(shelf->end + at + 1, shelf->end + at, after * sizeof *shelf->end);
  memmove(shelf->item + at + 1, shelf->item + at, after * sizeof *shelf->item);
  shelf->begin[at] = coarse(shelf, it->begin);
  shelf->end[at] = coarse(shelf, it->end);
  shelf->item[at] = item;
  shelf->low[item] = in.offset;
  shelf->high[item] = in.offset + it->bytes;
}

void hri_shelf_put(hri_shelf *shelf, uint32_t item) {
  insert(shelf, item, (gap){shelf->items[item].low, shelf->count});
}

uint64_t hri_shelf_fit(hri_shelf *shelf, uint32_t item) {
  insert(shelf, item, find_gap(shelf, &shelf->items[item]));
  return shelf->high[item];
}
