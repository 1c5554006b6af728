/* Sorting of indices: stable, O(n log n) whatever the input, quick on sorted input, and through our allocator (the C
 * library's qsort may allocate by itself and promises no bound). */
#ifndef HRI_FORMATS_ORDER_H
#define HRI_FORMATS_ORDER_H

#include "base/mem.h"

/* Negative, zero or positive, as strcmp, for the items with indices a and b. */
typedef int (*hri_order_compare)(const void *items, uint32_t a, uint32_t b);

/* Makes the array of 0..count-1 in rising order of the items; owned by the caller (hri_free). MEMORY. */
hr_status hri_order_make(const void *items, uint32_t count, hri_order_compare compare, uint32_t **order, hr_error *error);
/* Sorts an existing array of indices; items that compare equal keep their order. MEMORY, the array then as it was. */
hr_status hri_order_sort(const void *items, uint32_t *order, uint32_t count, hri_order_compare compare, hr_error *error);

#endif
