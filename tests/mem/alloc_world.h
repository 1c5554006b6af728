/* A device for tests of the allocator: fake addresses, a capacity, events that end when the test says so. It remembers
 * what it gave and fails the test when something else comes back. */
#ifndef TESTS_MEM_ALLOC_WORLD_H
#define TESTS_MEM_ALLOC_WORLD_H

#include <headroom/alloc.h>

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { WORLD_STREAMS = 8 };

typedef struct world_range {
  uint64_t address, bytes;
  int kind; /* hr_alloc_adopt */
} world_range;

typedef struct world {
  uint64_t capacity, used;
  uint64_t next; /* address */
  world_range *ranges;
  size_t count, room;
  uint64_t marks, done; /* marks up to `done` are over */
  uint64_t refuse;      /* the n-th reserve or map from now is refused; 0: none */
  uint64_t reserves, releases, waits, released_bytes;
  bool broken; /* something was returned that was not given, or gave an overlap */
} world;

static void world_add(world *w, int kind, uint64_t address, uint64_t bytes) {
  if (w->count == w->room) {
    w->room = w->room ? w->room * 2 : 64;
    w->ranges = realloc(w->ranges, w->room * sizeof *w->ranges);
  }
  w->ranges[w->count++] = (world_range){address, bytes, kind};
}

static bool world_inside(const world *w, int kind, uint64_t address, uint64_t bytes) {
  for (size_t i = 0; i < w->count; i++) {
    const world_range *r = &w->ranges[i];
    if (r->kind == kind && address >= r->address && address + bytes <= r->address + r->bytes) return true;
  }
  return false;
}

static bool world_overlaps(const world *w, int kind, uint64_t address, uint64_t bytes) {
  for (size_t i = 0; i < w->count; i++) {
    const world_range *r = &w->ranges[i];
    if ((r->kind == HR_ALLOC_ADOPT_MAP) == (kind == HR_ALLOC_ADOPT_MAP) && address < r->address + r->bytes &&
        r->address < address + bytes)
      return true;
  }
  return false;
}

static bool world_take(world *w, uint64_t bytes) {
  w->reserves++;
  if (w->refuse > 0 && --w->refuse == 0) return false;
  if (w->used > w->capacity || bytes > w->capacity - w->used) return false;
  w->used += bytes;
  return true;
}

static uint64_t world_reserve(void *context, uint64_t bytes, uint64_t stream) {
  world *w = context;
  (void)stream;
  if (!world_take(w, bytes)) return 0;
  const uint64_t address = w->next;
  w->next += (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  world_add(w, HR_ALLOC_ADOPT_SEGMENT, address, bytes);
  return address;
}

/* Cuts [address, +bytes) out of ranges of a kind; all of it must be there. */
static void world_cut(world *w, int kind, uint64_t address, uint64_t bytes) {
  while (bytes > 0) {
    size_t i = 0;
    while (i < w->count && !(w->ranges[i].kind == kind && address - w->ranges[i].address < w->ranges[i].bytes)) i++;
    if (i == w->count) {
      w->broken = true;
      return;
    }
    const world_range r = w->ranges[i];
    const uint64_t end = r.address + r.bytes, cut_end = address + bytes < end ? address + bytes : end;
    if (kind != HR_ALLOC_ADOPT_MAP && (address != r.address || address + bytes != end)) w->broken = true;
    w->ranges[i] = w->ranges[--w->count];
    if (r.address < address) world_add(w, kind, r.address, address - r.address);
    if (cut_end < end) world_add(w, kind, cut_end, end - cut_end);
    bytes -= cut_end - address;
    address = cut_end;
  }
}

static void world_release(void *context, uint64_t address, uint64_t bytes) {
  world *w = context;
  world_cut(w, HR_ALLOC_ADOPT_SEGMENT, address, bytes);
  w->used -= bytes;
  w->releases++;
  w->released_bytes += bytes;
}

static uint64_t world_reserve_range(void *context, uint64_t bytes, uint64_t stream) {
  world *w = context;
  (void)stream;
  const uint64_t address = w->next;
  w->next += (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  world_add(w, HR_ALLOC_ADOPT_RANGE, address, bytes);
  return address;
}

static void world_release_range(void *context, uint64_t address, uint64_t bytes) {
  world *w = context;
  if (world_overlaps(w, HR_ALLOC_ADOPT_MAP, address, bytes)) w->broken = true;
  world_cut(w, HR_ALLOC_ADOPT_RANGE, address, bytes);
}

static bool world_map(void *context, uint64_t address, uint64_t bytes) {
  world *w = context;
  if (!world_inside(w, HR_ALLOC_ADOPT_RANGE, address, bytes) || world_overlaps(w, HR_ALLOC_ADOPT_MAP, address, bytes))
    w->broken = true;
  if (!world_take(w, bytes)) return false;
  world_add(w, HR_ALLOC_ADOPT_MAP, address, bytes);
  return true;
}

static void world_unmap(void *context, uint64_t address, uint64_t bytes) {
  world *w = context;
  world_cut(w, HR_ALLOC_ADOPT_MAP, address, bytes);
  w->used -= bytes;
  w->releases++;
  w->released_bytes += bytes;
}

static void world_memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  const world *w = context;
  *total_bytes = w->capacity;
  *free_bytes = w->capacity > w->used ? w->capacity - w->used : 0;
}

static uint64_t world_record(void *context, uint64_t stream) {
  (void)stream;
  return ++((world *)context)->marks;
}

static bool world_done(void *context, uint64_t mark) { return mark <= ((world *)context)->done; }

static void world_wait(void *context, uint64_t mark) {
  world *w = context;
  w->waits++;
  if (mark == 0 || mark > w->marks) w->broken = true;
}

static bool world_adopt(void *context, hr_alloc_adopt kind, uint64_t address, uint64_t bytes) {
  world *w = context;
  if (world_overlaps(w, (int)kind, address, bytes)) return false;
  if (kind != HR_ALLOC_ADOPT_RANGE) w->used += bytes;
  world_add(w, (int)kind, address, bytes);
  return true;
}

static hr_alloc_hooks world_hooks(world *w) {
  return (hr_alloc_hooks){.context = w,
                          .reserve = world_reserve,
                          .release = world_release,
                          .reserve_range = world_reserve_range,
                          .release_range = world_release_range,
                          .map = world_map,
                          .unmap = world_unmap,
                          .device_memory = world_memory,
                          .record_event = world_record,
                          .event_done = world_done,
                          .event_wait = world_wait,
                          .adopt = world_adopt};
}

static world world_new(uint64_t capacity) { return (world){.capacity = capacity, .next = UINT64_C(0x7f0000000000)}; }

#endif
