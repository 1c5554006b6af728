#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t allocation_count, live_bytes, peak_bytes, fail_at;

static bool refuse(void) {
  uint64_t n = atomic_fetch_add(&allocation_count, 1) + 1, at = atomic_load(&fail_at);
  return at != 0 && n >= at;
}

static void account(void *memory) {
  uint64_t now, peak;
  if (!memory) return;
  now = atomic_fetch_add(&live_bytes, malloc_usable_size(memory)) + malloc_usable_size(memory);
  peak = atomic_load(&peak_bytes);
  while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
  }
}

void *hri_alloc(size_t bytes) {
  void *memory;
  if (refuse()) return NULL;
  memory = malloc(bytes ? bytes : 1);
  account(memory);
  return memory;
}

void *hri_alloc_zero(size_t count, size_t bytes_each) {
  void *memory;
  if (refuse()) return NULL;
  memory = calloc(count ? count : 1, bytes_each ? bytes_each : 1);
  account(memory);
  return memory;
}

void *hri_realloc(void *memory, size_t bytes) {
  void *moved;
  size_t old = memory ? malloc_usable_size(memory) : 0;
  if (refuse()) return NULL;
  moved = realloc(memory, bytes ? bytes : 1);
  if (!moved) return NULL;
  atomic_fetch_sub(&live_bytes, old);
  account(moved);
  return moved;
}

void hri_free(void *memory) {
  if (!memory) return;
  atomic_fetch_sub(&live_bytes, malloc_usable_size(memory));
  free(memory);
}

void hr_free(void *memory) { hri_free(memory); }

char *hri_strdup(const char *text) {
  size_t bytes;
  char *copy;
  if (!text) return NULL;
  bytes = strlen(text) + 1;
  copy = hri_alloc(bytes);
  if (copy) memcpy(copy, text, bytes);
  return copy;
}

/* From the nth allocation on, all fail: a refused allocation rarely comes alone. */
void hri_mem_fail_after(uint64_t nth) { atomic_store(&fail_at, nth ? atomic_load(&allocation_count) + nth : 0); }
uint64_t hri_mem_allocation_count(void) { return atomic_load(&allocation_count); }
uint64_t hri_mem_live_bytes(void) { return atomic_load(&live_bytes); }
uint64_t hri_mem_peak_bytes(void) { return atomic_load(&peak_bytes); }

bool hri_array_reserve_(void **items, size_t *capacity, size_t want, size_t bytes_each) {
  size_t grown;
  uint64_t bytes;
  void *moved;
  if (want <= *capacity) return true;
  grown = *capacity < 8 ? 8 : *capacity + *capacity / 2;
  if (grown < want) grown = want;
  if (!hri_mul(grown, bytes_each, &bytes)) return false;
  moved = hri_realloc(*items, bytes);
  if (!moved) return false;
  *items = moved;
  *capacity = grown;
  return true;
}
