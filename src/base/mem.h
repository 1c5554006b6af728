/* Heap, checked sizes and growable arrays.
 *
 * All host bookkeeping memory goes through hri_alloc, so that tests can make the n-th allocation fail and count bytes.
 * Device arenas do not: they are reserved once, by the backends. */
#ifndef HRI_BASE_MEM_H
#define HRI_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Byte counts have 64 bits also where an address has 32: what no memory could hold is refused, never cut short. */
void *hri_alloc(uint64_t bytes);                           /* NULL on failure; bytes 0 gives a unique pointer */
void *hri_alloc_zero(uint64_t count, uint64_t bytes_each); /* zeroed; overflow checked */
void *hri_realloc(void *memory, uint64_t bytes);
void hri_free(void *memory);        /* NULL is fine */
char *hri_strdup(const char *text); /* NULL on failure or for NULL */

/* Between begin and end (they may nest) this thread keeps the large blocks that it frees and takes new ones from them: for
 * those who make and drop the like of it a thousand times, where the kernel would map and clear the same pages each time.
 * They count as freed. */
void hri_mem_keep(bool begin);
/* Gives the system back what free blocks of malloc hold: a search for a plan leaves a MiB and more of them, which would
 * be resident beside the arena that the plan reserves. Where the C library has no such call, nothing. */
void hri_mem_trim(void);

/* Test hooks: fail the n-th allocation from now (1 = next; 0 = off), and count what is live. */
void hri_mem_fail_after(uint64_t nth);
uint64_t hri_mem_allocation_count(void);
uint64_t hri_mem_live_bytes(void);
uint64_t hri_mem_peak_bytes(void);

/* Checked arithmetic on byte counts: false on overflow. */
static inline bool hri_mul(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool hri_add(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }
/* Rounds up to a multiple of `unit` (> 0); saturates at UINT64_MAX / unit * unit. */
static inline uint64_t hri_round_up(uint64_t number, uint64_t unit) {
  uint64_t rest = number % unit;
  if (rest == 0) return number;
  return number > UINT64_MAX - unit ? UINT64_MAX / unit * unit : number - rest + unit;
}

/* A growable array: HRI_ARRAY(int) numbers = {0}; push returns false when memory is refused (the array stays valid). */
#define HRI_ARRAY(type)                                                                                                \
  struct {                                                                                                             \
    type *items;                                                                                                       \
    size_t count, capacity;                                                                                            \
  }
#define hri_array_push(array, value)                                                                                   \
  (hri_array_reserve_((void **)&(array)->items, &(array)->capacity, (array)->count + 1, sizeof *(array)->items)        \
       ? ((array)->items[(array)->count++] = (value), true)                                                            \
       : false)
#define hri_array_reserve(array, want)                                                                                 \
  hri_array_reserve_((void **)&(array)->items, &(array)->capacity, (want), sizeof *(array)->items)
#define hri_array_free(array)                                                                                          \
  (hri_free((array)->items), (array)->items = NULL, (array)->count = 0, (array)->capacity = 0)
bool hri_array_reserve_(void **items, size_t *capacity, size_t want, size_t bytes_each);

#endif
