#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"

static atomic_uint_fast64_t allocation_count, live_bytes, peak_bytes, fail_at;

/* What malloc keeps in front of each block. */
enum { HEADER = sizeof(size_t) };

/* Whether a request fails before malloc is asked: by a test's wish, or by the account that the thread works on. */
static bool refuse(uint64_t more_bytes) {
  uint64_t n = atomic_fetch_add(&allocation_count, 1) + 1, at = atomic_load(&fail_at);
  if (at != 0 && n >= at) return true;
  return hri_account_open && !hri_account_allows(more_bytes);
}

static void account(void *memory) {
  uint64_t now, peak, bytes;
  if (!memory) return;
  bytes = malloc_usable_size(memory);
  if (hri_account_open) hri_account_count((int64_t)bytes + HEADER);
  now = atomic_fetch_add(&live_bytes, bytes) + bytes;
  peak = atomic_load(&peak_bytes);
  while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {}
}

static void account_freed(uint64_t bytes) {
  if (hri_account_open) hri_account_count(-(int64_t)bytes - HEADER);
  atomic_fetch_sub(&live_bytes, bytes);
}

/* ---- large blocks that a thread keeps (hri_mem_keep) ---- */

#if defined(__SANITIZE_ADDRESS__)
enum { KEEPS = 0 }; /* what is freed must be seen to be */
#else
enum { KEEPS = 1 };
#endif
enum { KEPT = 48, LARGE = 1 << 15 };

static _Thread_local struct {
  unsigned depth, count;
  void *blocks[KEPT];
} keeper;

static void release(void *memory) {
  if (KEEPS && keeper.depth && keeper.count < KEPT && malloc_usable_size(memory) >= LARGE)
    keeper.blocks[keeper.count++] = memory;
  else free(memory);
}

/* The smallest kept block of at least so many bytes, if it is not far too large for them; NULL. For what grows, the
 * largest: it will grow again, and then stays where it is. */
static void *reuse(uint64_t bytes, bool grows) {
  unsigned best = KEPT;
  size_t most = 0;
  void *memory;
  if (keeper.count == 0 || bytes < LARGE) return NULL;
  for (unsigned k = 0; k < keeper.count; k++) {
    size_t has = malloc_usable_size(keeper.blocks[k]);
    if (has < bytes || has / 16 > bytes || (best != KEPT && (grows ? has <= most : has >= most))) continue;
    best = k;
    most = has;
  }
  if (best == KEPT) return NULL;
  memory = keeper.blocks[best];
  keeper.blocks[best] = keeper.blocks[--keeper.count];
  return memory;
}

void hri_mem_keep(bool begin) {
  if (begin) keeper.depth++;
  else keeper.depth--;
  while (keeper.depth == 0 && keeper.count) free(keeper.blocks[--keeper.count]);
}

void hri_mem_trim(void) {
#if defined(__GLIBC__)
  (void)malloc_trim(0);
#endif
}

/* ---- */

void *hri_alloc(uint64_t bytes) {
  void *memory;
  if (refuse(bytes) || bytes > SIZE_MAX) return NULL;
  memory = reuse(bytes, false);
  if (!memory) memory = malloc(bytes ? (size_t)bytes : 1);
  account(memory);
  return memory;
}

void *hri_alloc_zero(uint64_t count, uint64_t bytes_each) {
  uint64_t bytes;
  void *memory;
  if (!hri_mul(count, bytes_each, &bytes)) bytes = UINT64_MAX;
  if (refuse(bytes) || bytes > SIZE_MAX || bytes == UINT64_MAX) return NULL;
  memory = bytes ? reuse(bytes, false) : NULL;
  if (memory) memset(memory, 0, (size_t)bytes);
  else memory = calloc(1, bytes ? (size_t)bytes : 1);
  account(memory);
  return memory;
}

void *hri_realloc(void *memory, uint64_t bytes) {
  void *moved;
  size_t old = memory ? malloc_usable_size(memory) : 0;
  if (refuse(bytes > old ? bytes - old : 0) || bytes > SIZE_MAX) return NULL;
  if (keeper.depth && memory && bytes > LARGE && bytes <= old)
    return memory; /* a block that was kept has room to grow */
  moved = reuse(bytes, true);
  if (moved && memory) {
    memcpy(moved, memory, old < bytes ? old : (size_t)bytes);
    release(memory);
  } else if (!moved) {
    moved = realloc(memory, bytes ? (size_t)bytes : 1);
  }
  if (!moved) return NULL;
  if (memory) account_freed(old);
  account(moved);
  return moved;
}

void hri_free(void *memory) {
  if (!memory) return;
  account_freed(malloc_usable_size(memory));
  release(memory);
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
