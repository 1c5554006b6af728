#include "replay/world.h"

#include <string.h>

static const uint64_t granule = 2u << 20;

void hri_world_init(hri_world *w, uint64_t capacity_bytes, uint64_t above, bool follow) {
  uint64_t base = hri_round_up(above, (uint64_t)1 << 30) + ((uint64_t)1 << 30);
  *w = (hri_world){.capacity_bytes = capacity_bytes, .own_base = base, .own_next = base, .follow = follow};
}

void hri_world_deinit(hri_world *w) {
  hri_array_free(&w->expected);
  hri_array_free(&w->returned);
}

void hri_world_expect(hri_world *w, const hri_driver_call *call) {
  if (w->follow && !hri_array_push(&w->expected, *call)) w->failed = true;
}

static void drop_call(hri_world *w, size_t at) {
  memmove(w->expected.items + at, w->expected.items + at + 1, (w->expected.count - at - 1) * sizeof *w->expected.items);
  w->expected.count--;
}

static uint64_t reserved_bytes(const hri_world *w) {
  hr_alloc_stats stats;
  if (!w->alloc) return 0; /* a memory fraction asks while the allocator is being made */
  hr_alloc_get_stats(w->alloc, &stats);
  return (uint64_t)stats.reserved_bytes[HR_ALLOC_ALL].current;
}

static bool has_room(hri_world *w, uint64_t bytes) {
  uint64_t reserved = w->capacity_bytes == UINT64_MAX ? 0 : reserved_bytes(w);
  if (bytes <= w->capacity_bytes && reserved <= w->capacity_bytes - bytes) return true;
  w->refused_count++;
  return false;
}

/* ---- own addresses: the lowest returned range that is large enough, else new ones ---- */

static uint64_t own_address(hri_world *w, uint64_t bytes) {
  uint64_t size = hri_round_up(bytes, granule), address;
  for (size_t k = 0; k < w->returned.count; k++) {
    hri_range *r = &w->returned.items[k];
    if (r->bytes < size) continue;
    address = r->address;
    r->address += size;
    r->bytes -= size;
    if (r->bytes == 0) {
      memmove(r, r + 1, (w->returned.count - k - 1) * sizeof *r);
      w->returned.count--;
    }
    return address;
  }
  if (w->own_next > UINT64_MAX - size) return 0;
  address = w->own_next;
  w->own_next += size;
  return address;
}

static void give_back(hri_world *w, uint64_t address, uint64_t bytes) {
  hri_range range = {address, hri_round_up(bytes, granule)};
  size_t at = 0;
  if (!hri_array_push(&w->returned, range)) {
    w->failed = true; /* the range is lost, which only wastes addresses */
    return;
  }
  while (w->returned.items[at].address < address) at++;
  memmove(w->returned.items + at + 1, w->returned.items + at, (w->returned.count - 1 - at) * sizeof range);
  w->returned.items[at] = range;
  if (at + 1 < w->returned.count && range.address + range.bytes == w->returned.items[at + 1].address) {
    w->returned.items[at].bytes += w->returned.items[at + 1].bytes;
    memmove(w->returned.items + at + 1, w->returned.items + at + 2, (w->returned.count - at - 2) * sizeof range);
    w->returned.count--;
  }
  if (at > 0 && w->returned.items[at - 1].address + w->returned.items[at - 1].bytes == w->returned.items[at].address) {
    w->returned.items[at - 1].bytes += w->returned.items[at].bytes;
    memmove(w->returned.items + at, w->returned.items + at + 1, (w->returned.count - at - 1) * sizeof range);
    w->returned.count--;
  }
}

/* ---- hooks ---- */

static uint64_t reserve(void *context, uint64_t bytes, uint64_t stream) {
  hri_world *w = context;
  if (!has_room(w, bytes)) return 0;
  for (size_t k = 0; k < w->expected.count; k++) {
    const hri_driver_call *call = &w->expected.items[k];
    uint64_t address = call->address;
    if (call->map || call->bytes != bytes || call->stream != stream) continue;
    drop_call(w, k);
    w->matched_count++;
    return address;
  }
  return own_address(w, bytes);
}

static void release(void *context, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  w->released_count++;
  if (address >= w->own_base) give_back(w, address, bytes); /* recorded ones come back when the trace says so */
}

/* The first part of a range that is mapped is its beginning. */
static uint64_t reserve_range(void *context, uint64_t bytes, uint64_t stream) {
  hri_world *w = context;
  for (size_t k = 0; k < w->expected.count; k++)
    if (w->expected.items[k].map && w->expected.items[k].stream == stream) return w->expected.items[k].address;
  return own_address(w, bytes);
}

static void release_range(void *context, uint64_t address, uint64_t bytes) { (void)context, (void)address, (void)bytes; }

static bool map(void *context, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  if (!has_room(w, bytes)) return false;
  for (size_t k = 0; k < w->expected.count; k++) {
    hri_driver_call *call = &w->expected.items[k];
    if (!call->map || call->address != address || call->bytes < bytes) continue;
    w->matched_count++;
    if (call->bytes == bytes) drop_call(w, k);
    else call->address += bytes, call->bytes -= bytes; /* chunk by chunk */
    break;
  }
  return true;
}

static void unmap(void *context, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  (void)address, (void)bytes;
  w->released_count++;
}

static void device_memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  const hri_world *w = context;
  bool known = w->capacity_bytes != UINT64_MAX;
  uint64_t reserved = known ? reserved_bytes(w) : 0;
  *free_bytes = known && reserved < w->capacity_bytes ? w->capacity_bytes - reserved : 0;
  *total_bytes = known ? w->capacity_bytes : 0;
}

/* Imported segments need nothing: their bytes are in the allocator's own count, and own addresses lie above them. */
static bool adopt(void *context, hr_alloc_adopt kind, uint64_t address, uint64_t bytes) {
  (void)context, (void)kind, (void)address, (void)bytes;
  return true;
}

static int64_t no_clock(void *context) {
  (void)context;
  return 0;
}

hr_alloc_hooks hri_world_hooks(hri_world *w) {
  return (hr_alloc_hooks){.context = w, .reserve = reserve, .release = release, .reserve_range = reserve_range, .release_range = release_range,
                          .map = map, .unmap = unmap, .device_memory = device_memory, .clock_us = no_clock, .adopt = adopt};
}
