/* Sorting of indices: stable, O(n log n) whatever the input, quick on sorted input, and through our allocator (the C
 * library's qsort may allocate by itself and promises no bound). */
#ifndef HRI_FORMATS_ORDER_H
#define HRI_FORMATS_ORDER_H

#include "base/mem.h"

/* Negative, zero or positive, as strcmp, for the items with indices a and b. */
typedef int (*hri_order_compare)(const void *items, uint32_t a, uint32_t b);

/* Makes the array of 0..count-1 in rising order of the items; owned by the caller (hri_free). MEMORY. */
hr_status hri_order_make(const void *items, uint32_t count, hri_order_compare compare, uint32_t **order,
                         hr_error *error);
/* Sorts an existing array of indices; items that compare equal keep their order. MEMORY, the array then as it was. */
hr_status hri_order_sort(const void *items, uint32_t *order, uint32_t count, hri_order_compare compare,
                         hr_error *error);

#define HRI_ORDER_NONE 0xFFFFFFFFu
/* The name of the item with this index, borrowed. */
typedef const char *(*hri_order_name)(const void *items, uint32_t index);

/* The same by names. *twice is the index of an item that has another's name, HRI_ORDER_NONE when all differ. */
hr_status hri_order_names(const void *items, uint32_t count, hri_order_name name_of, uint32_t **order, uint32_t *twice,
                          hr_error *error);
/* The index of the item with this name, or HRI_ORDER_NONE; O(log n). `order` is theirs by names, NULL when they stand
 * in it. */
uint32_t hri_order_find(const void *items, uint32_t count, hri_order_name name_of, const uint32_t *order,
                        const char *name);

#endif
