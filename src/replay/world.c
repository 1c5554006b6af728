#include "replay/world.h"

#include <string.h>

enum { MOST_EXPECTED = 1024, MOST_RETURNED = 4096, MOST_HELD = 1 << 16, MOST_RANGES = 1 << 12 };

static const uint64_t granule = 2u << 20;

void hri_world_init(hri_world *w, uint64_t capacity_bytes, uint64_t above, bool follow) {
  uint64_t base = hri_round_up(above, (uint64_t)1 << 30) + ((uint64_t)1 << 30);
  *w = (hri_world){.capacity_bytes = capacity_bytes, .own_base = base, .own_next = base, .follow = follow};
}

void hri_world_deinit(hri_world *w) {
  hri_array_free(&w->expected);
  hri_array_free(&w->returned);
  hri_array_free(&w->held);
  hri_array_free(&w->ranges);
}

void hri_world_close(hri_world *w) { w->closed = true; }

/* A damaged trace can name any address: none above the own ones, none that no driver gives. What a replay that has left
 * the recorded path did not take is forgotten from the oldest on, so that searches stay short. */
void hri_world_expect(hri_world *w, const hri_driver_call *call) {
  if (!w->follow || call->address == 0 || call->address % 512 || call->bytes == 0 || call->address >= w->own_base ||
      call->bytes > w->own_base - call->address)
    return;
  if (w->expected.count >= MOST_EXPECTED) {
    w->expected.count -= MOST_EXPECTED / 2;
    memmove(w->expected.items, w->expected.items + MOST_EXPECTED / 2, w->expected.count * sizeof *w->expected.items);
  }
  if (!hri_array_push(&w->expected, *call)) w->failed = true;
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

static size_t returned_at(const hri_world *w, uint64_t address) {
  size_t low = 0, high = w->returned.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (w->returned.items[middle].address < address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static void give_back(hri_world *w, uint64_t address, uint64_t bytes) {
  hri_range range = {address, hri_round_up(bytes, granule)};
  size_t at = returned_at(w, address);
  if (w->returned.count == MOST_RETURNED) return; /* not used again, which only wastes addresses */
  if (!hri_array_push(&w->returned, range)) {
    w->failed = true;
    return;
  }
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

/* ---- what holds memory now ----
 *
 * A replay that has left the recorded path can still hold what the trace has returned and taken again, so a recorded
 * address is only handed out where nothing lies. Own addresses lie above all recorded ones. */

/* The first held range that ends behind `address`. */
static size_t held_at(const hri_world *w, uint64_t address) {
  size_t low = 0, high = w->held.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (w->held.items[middle].address + w->held.items[middle].bytes <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static bool is_clear(const hri_world *w, uint64_t address, uint64_t bytes) {
  size_t at = held_at(w, address);
  return bytes <= UINT64_MAX - address && (at == w->held.count || w->held.items[at].address >= address + bytes);
}

static void hold(hri_world *w, uint64_t address, uint64_t bytes) {
  size_t at = held_at(w, address);
  hri_range range = {address, bytes};
  if (!w->follow || address >= w->own_base) return;
  if (w->held.count == MOST_HELD) w->strayed = true;
  if (!hri_array_push(&w->held, range)) {
    w->failed = true;
    return;
  }
  memmove(w->held.items + at + 1, w->held.items + at, (w->held.count - 1 - at) * sizeof range);
  w->held.items[at] = range;
}

/* All or a part of what is held; a part in the middle leaves two. */
static void let_go(hri_world *w, uint64_t address, uint64_t bytes) {
  uint64_t end = address + bytes;
  for (size_t at = held_at(w, address); at < w->held.count && w->held.items[at].address < end;
       at = held_at(w, address)) {
    hri_range whole = w->held.items[at];
    uint64_t whole_end = whole.address + whole.bytes;
    memmove(w->held.items + at, w->held.items + at + 1, (w->held.count - at - 1) * sizeof whole);
    w->held.count--;
    if (whole.address < address) hold(w, whole.address, address - whole.address);
    if (whole_end > end) hold(w, end, whole_end - end);
  }
}

/* ---- hooks ---- */

static uint64_t reserve(void *context, uint64_t bytes, uint64_t stream) {
  hri_world *w = context;
  if (!has_room(w, bytes)) return 0;
  for (size_t k = 0; k < w->expected.count; k++) {
    const hri_driver_call *call = &w->expected.items[k];
    uint64_t address = call->address;
    if (call->map || call->bytes != bytes || call->stream != stream || !is_clear(w, address, bytes)) continue;
    drop_call(w, k);
    w->matched_count++;
    hold(w, address, bytes);
    return address;
  }
  return own_address(w, bytes);
}

static void release(void *context, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  if (w->closed) return; /* each would move all ranges behind it */
  w->released_count++;
  let_go(w, address, bytes);
  if (address >= w->own_base) give_back(w, address, bytes); /* recorded ones come back when the trace says so */
}

/* A range that is there already, though nothing may be mapped in it yet. */
static bool begins_range(const hri_world *w, uint64_t address) {
  for (size_t k = 0; k < w->ranges.count; k++)
    if (w->ranges.items[k] == address) return true;
  return false;
}

static void add_range(hri_world *w, uint64_t address) {
  if (w->ranges.count == MOST_RANGES) w->strayed = true;
  if (!hri_array_push(&w->ranges, address)) w->failed = true;
}

/* The first part of a range that is mapped is its beginning. */
static uint64_t reserve_range(void *context, uint64_t bytes, uint64_t stream) {
  hri_world *w = context;
  for (size_t k = 0; k < w->expected.count; k++) {
    const hri_driver_call *call = &w->expected.items[k];
    if (!call->map || call->stream != stream || !is_clear(w, call->address, call->bytes) ||
        begins_range(w, call->address))
      continue;
    add_range(w, call->address);
    return call->address;
  }
  return own_address(w, bytes);
}

static void release_range(void *context, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  (void)bytes;
  for (size_t k = 0; k < w->ranges.count && !w->closed; k++)
    if (w->ranges.items[k] == address) w->ranges.items[k--] = w->ranges.items[--w->ranges.count];
}

static bool map(void *context, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  if (!has_room(w, bytes)) return false;
  if (address < w->own_base && (bytes > w->own_base - address || !is_clear(w, address, bytes)))
    return false; /* a range that grows into another */
  for (size_t k = 0; k < w->expected.count; k++) {
    hri_driver_call *call = &w->expected.items[k];
    if (!call->map || call->address != address || call->bytes < bytes) continue;
    w->matched_count++;
    if (call->bytes == bytes) drop_call(w, k);
    else call->address += bytes, call->bytes -= bytes; /* chunk by chunk */
    break;
  }
  hold(w, address, bytes);
  return true;
}

static void unmap(void *context, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  if (w->closed) return;
  let_go(w, address, bytes);
  w->released_count++;
}

static void device_memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  static const uint64_t most = (uint64_t)1 << 41; /* ranges for more would reach into the own addresses */
  const hri_world *w = context;
  bool known = w->capacity_bytes != UINT64_MAX;
  uint64_t total = w->capacity_bytes < most ? w->capacity_bytes : most, reserved = known ? reserved_bytes(w) : 0;
  *free_bytes = known && reserved < total ? total - reserved : 0;
  *total_bytes = known ? total : 0;
}

/* Imported segments: their bytes are in the allocator's own count. */
static bool adopt(void *context, hr_alloc_adopt kind, uint64_t address, uint64_t bytes) {
  hri_world *w = context;
  if (address >= w->own_base) return false;
  if (kind != HR_ALLOC_ADOPT_RANGE) hold(w, address, bytes);
  else if (w->follow) add_range(w, address);
  return true;
}

static int64_t no_clock(void *context) {
  (void)context;
  return 0;
}

hr_alloc_hooks hri_world_hooks(hri_world *w) {
  return (hr_alloc_hooks){.context = w,
                          .reserve = reserve,
                          .release = release,
                          .reserve_range = reserve_range,
                          .release_range = release_range,
                          .map = map,
                          .unmap = unmap,
                          .device_memory = device_memory,
                          .clock_us = no_clock,
                          .adopt = adopt};
}
