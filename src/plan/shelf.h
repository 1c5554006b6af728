/* What lies where while a placement is made: items with a life and bytes, in order of their offsets. It finds the gap
 * that fits an item best, which is nearly all of the time that a placement takes. The same answers on every machine. */
#ifndef HRI_PLAN_SHELF_H
#define HRI_PLAN_SHELF_H

#include "base/mem.h"

typedef struct hri_shelf_item {
  uint64_t bytes;
  uint64_t low;        /* offset, for hri_shelf_put */
  uint32_t begin, end; /* ticks of its life, both in it */
  uint32_t storage;    /* the caller's */
} hri_shelf_item;

typedef struct hri_shelf {
  const hri_shelf_item *items; /* the caller's */
  uint32_t first_tick, shift;  /* a life is kept in 16 bits, as (tick - first_tick) >> shift */
  uint32_t count;              /* items that lie on it */
  int16_t *begin, *end;        /* by place; behind the last one, what meets nothing */
  uint32_t *item;              /* by place */
  uint64_t *low, *high;        /* where it lies, by item */
} hri_shelf;

/* For items 0 .. capacity - 1. Deinit also takes what init left after an error, and zeros. */
hr_status hri_shelf_init(hri_shelf *shelf, uint64_t capacity, hr_error *error);
void hri_shelf_deinit(hri_shelf *shelf);

/* Empties it, for `items`, whose lives lie between the two ticks and which stay as they are until the next clear. */
void hri_shelf_clear(hri_shelf *shelf, const hri_shelf_item *items, uint32_t first_tick, uint32_t last_tick);
/* Puts an item where it says. */
void hri_shelf_put(hri_shelf *shelf, uint32_t item);
/* Puts an item into the smallest gap between what it may meet that holds it, the lowest of equal ones, or on top of all
 * that it meets. Returns the end of it. */
uint64_t hri_shelf_fit(hri_shelf *shelf, uint32_t item);

#endif
