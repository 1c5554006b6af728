/* Bottom-up merge sort, and what names are sorted for: finding one, and finding that one stands there twice. */
#include "formats/order.h"

#include <string.h>

/* Merges from[begin, middle) and from[middle, end) into `to`. */
static void merge(const void *items, const uint32_t *from, uint32_t *to, uint64_t begin, uint64_t middle, uint64_t end,
                  hri_order_compare compare) {
  uint64_t a = begin, b = middle, out = begin;
  if (middle == end || compare(items, from[middle - 1], from[middle]) <= 0) {
    memcpy(to + begin, from + begin, (size_t)(end - begin) * sizeof *to);
    return;
  }
  while (a < middle && b < end) to[out++] = compare(items, from[a], from[b]) <= 0 ? from[a++] : from[b++];
  memcpy(to + out, from + a, (size_t)(middle - a) * sizeof *to);
  out += middle - a;
  memcpy(to + out, from + b, (size_t)(end - b) * sizeof *to);
}

hr_status hri_order_sort(const void *items, uint32_t *order, uint32_t count, hri_order_compare compare,
                         hr_error *error) {
  uint32_t *spare, *from = order, *to;
  uint64_t width, begin;
  if (count < 2) return HR_OK;
  spare = to = hri_alloc((uint64_t)count * sizeof *spare);
  if (!spare) return hri_fail_memory(error, (uint64_t)count * sizeof *spare, "sorting");
  for (width = 1; width < count; width *= 2) {
    uint32_t *swap;
    for (begin = 0; begin < count; begin += 2 * width) {
      uint64_t middle = begin + width < count ? begin + width : count;
      uint64_t end = middle + width < count ? middle + width : count;
      merge(items, from, to, begin, middle, end, compare);
    }
    swap = from;
    from = to;
    to = swap;
  }
  if (from != order) memcpy(order, from, (size_t)count * sizeof *order);
  hri_free(spare);
  return HR_OK;
}

hr_status hri_order_make(const void *items, uint32_t count, hri_order_compare compare, uint32_t **order,
                         hr_error *error) {
  uint32_t i, *made = hri_alloc((uint64_t)count * sizeof *made);
  hr_status status;
  if (!made) return hri_fail_memory(error, (uint64_t)count * sizeof *made, "sorting");
  for (i = 0; i < count; i++) made[i] = i;
  status = hri_order_sort(items, made, count, compare, error);
  if (status != HR_OK) {
    hri_free(made);
    return status;
  }
  *order = made;
  return HR_OK;
}

typedef struct named {
  const void *items;
  hri_order_name name_of;
} named;

static int compare_names(const void *items, uint32_t a, uint32_t b) {
  const named *n = items;
  return strcmp(n->name_of(n->items, a), n->name_of(n->items, b));
}

hr_status hri_order_names(const void *items, uint32_t count, hri_order_name name_of, uint32_t **order, uint32_t *twice,
                          hr_error *error) {
  named n = {items, name_of};
  HRI_TRY(hri_order_make(&n, count, compare_names, order, error));
  *twice = HRI_ORDER_NONE;
  for (uint32_t i = 1; i < count && *twice == HRI_ORDER_NONE; i++)
    if (compare_names(&n, (*order)[i - 1], (*order)[i]) == 0) *twice = (*order)[i];
  return HR_OK;
}

uint32_t hri_order_find(const void *items, uint32_t count, hri_order_name name_of, const uint32_t *order,
                        const char *name) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2, index = order ? order[middle] : middle;
    int side = strcmp(name, name_of(items, index));
    if (side == 0) return index;
    if (side < 0) high = middle;
    else low = middle + 1;
  }
  return HRI_ORDER_NONE;
}
