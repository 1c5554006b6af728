/* Hooks that give addresses without memory, for replay and tests: the same calls give the same addresses on every
 * machine.
 *
 * Ranges are multiples of 2 MiB, as the driver's are, and each goes to the lowest gap that holds it. What counts
 * against the capacity is bytes of segments and mapped bytes of expandable ones; address space is free of charge. */
#include "alloc/hooks.h"

#include <string.h>

enum { GRANULE = 2 << 20 };
static const uint64_t FIRST_ADDRESS = UINT64_C(0x7f0000000000);
static const uint64_t LAST_ADDRESS = UINT64_C(1) << 63; /* nothing reaches beyond it */

typedef struct range {
  uint64_t address, end;
} range;

typedef struct fake {
  uint64_t capacity, used; /* bytes; capacity 0: none */
  HRI_ARRAY(range) ranges; /* taken, by address; they do not overlap */
  size_t dense;            /* before this range no gap is left from FIRST_ADDRESS on */
} fake;

/* Where the search for a gap goes on behind the first k ranges. */
static uint64_t behind(const fake *f, size_t k) {
  const uint64_t end = k ? hri_round_up(f->ranges.items[k - 1].end, GRANULE) : 0;
  return end > FIRST_ADDRESS ? end : FIRST_ADDRESS;
}

static bool insert(fake *f, size_t at, range r) {
  if (!hri_array_reserve(&f->ranges, f->ranges.count + 1)) return false;
  if (at < f->ranges.count)
    memmove(&f->ranges.items[at + 1], &f->ranges.items[at], (f->ranges.count - at) * sizeof *f->ranges.items);
  f->ranges.items[at] = r;
  f->ranges.count++;
  if (at < f->dense) f->dense = at;
  while (f->dense < f->ranges.count && f->ranges.items[f->dense].address < behind(f, f->dense) + GRANULE) f->dense++;
  return true;
}

/* The lowest gap of `bytes`; 0 when there is none or memory was refused. */
static uint64_t take(fake *f, uint64_t bytes) {
  uint64_t at, length = hri_round_up(bytes, GRANULE);
  size_t k = f->dense;
  if (!bytes || length < bytes || length > LAST_ADDRESS - FIRST_ADDRESS) return 0;
  for (; k < f->ranges.count && f->ranges.items[k].address < behind(f, k) + length; k++);
  at = behind(f, k);
  if (at > LAST_ADDRESS - length) return 0;
  return insert(f, k, (range){at, at + length}) ? at : 0;
}

/* The first range at or above `address`. */
static size_t find(const fake *f, uint64_t address) {
  size_t low = 0, high = f->ranges.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (f->ranges.items[middle].address < address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static void give(fake *f, uint64_t address) {
  const size_t at = find(f, address);
  if (at == f->ranges.count || f->ranges.items[at].address != address) return;
  f->ranges.count--;
  memmove(&f->ranges.items[at], &f->ranges.items[at + 1], (f->ranges.count - at) * sizeof *f->ranges.items);
  if (at < f->dense) f->dense = at;
}

static bool charge(fake *f, uint64_t bytes) {
  if (f->capacity && (f->used > f->capacity || bytes > f->capacity - f->used)) return false;
  f->used += bytes;
  return true;
}

static uint64_t reserve(void *context, uint64_t bytes, uint64_t stream) {
  fake *f = context;
  uint64_t address;
  (void)stream;
  if (!charge(f, bytes)) return 0;
  address = take(f, bytes);
  if (!address) f->used -= bytes;
  return address;
}

static void release(void *context, uint64_t address, uint64_t bytes) {
  fake *f = context;
  give(f, address);
  f->used -= bytes;
}

static uint64_t reserve_range(void *context, uint64_t bytes, uint64_t stream) {
  (void)stream;
  return take(context, bytes);
}

static void release_range(void *context, uint64_t address, uint64_t bytes) {
  (void)bytes;
  give(context, address);
}

static bool map(void *context, uint64_t address, uint64_t bytes) {
  (void)address;
  return charge(context, bytes);
}

static void unmap(void *context, uint64_t address, uint64_t bytes) {
  (void)address;
  ((fake *)context)->used -= bytes;
}

static void device_memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  const fake *f = context;
  *total_bytes = f->capacity;
  *free_bytes = f->capacity > f->used ? f->capacity - f->used : 0;
}

/* A recorded state may hold more than the capacity; then nothing more is given. */
static bool adopt(void *context, hr_alloc_adopt kind, uint64_t address, uint64_t bytes) {
  fake *f = context;
  const size_t at = find(f, address);
  if (kind != HR_ALLOC_ADOPT_MAP) {
    if (!bytes || bytes > LAST_ADDRESS || address > LAST_ADDRESS - bytes) return false;
    if (at && f->ranges.items[at - 1].end > address) return false;
    if (at < f->ranges.count && f->ranges.items[at].address < address + bytes) return false;
    if (!insert(f, at, (range){address, address + bytes})) return false;
  }
  if (kind != HR_ALLOC_ADOPT_RANGE) f->used += bytes;
  return true;
}

hr_status hr_alloc_fake_hooks(uint64_t capacity_bytes, hr_alloc_hooks *hooks, hr_error *error) {
  fake *f = hri_alloc_zero(1, sizeof *f);
  if (!f) return hri_fail_memory(error, sizeof *f, "fake addresses");
  f->capacity = capacity_bytes;
  *hooks = (hr_alloc_hooks){.context = f,
                            .reserve = reserve,
                            .release = release,
                            .reserve_range = reserve_range,
                            .release_range = release_range,
                            .map = map,
                            .unmap = unmap,
                            .device_memory = device_memory,
                            .adopt = adopt};
  return HR_OK;
}

bool hri_hooks_are_fake(const hr_alloc_hooks *hooks) { return hooks->reserve == reserve; }

void hri_fake_hooks_destroy(void *context) {
  fake *f = context;
  if (!f) return;
  hri_array_free(&f->ranges);
  hri_free(f);
}
