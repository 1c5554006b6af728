/* Allocations, their shadow, and the order of operations (memory.h). */
#include "gpu/soft/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/soft/block.h"
#include "gpu/soft/report.h"

/* An operation, or readers that were not ordered among each other: then `clock` says of each lane which of its operations
 * read, and they are over for an operation that knows all of them to be. */
typedef struct operation {
  uint32_t lane, number; /* lane HRI_SOFT_LANES: several readers */
  uint32_t clock[HRI_SOFT_LANES];
  uint32_t joined[2]; /* of which two this is made; so that the same two give the same */
} operation;

struct hri_soft_memory {
  HRI_ARRAY(hri_soft_allocation *) allocations;
  HRI_ARRAY(operation) operations; /* 0 is nobody */
  uint64_t limit, used;
  hri_soft_allocation *last; /* found last */
};

static hri_soft_memory *now;   /* whose operation runs */
static uint32_t now_operation; /* 0: none */

#define SEVERAL UINT32_MAX /* blocks that are none */
#define ATOMIC (UINT32_MAX - 1)
enum { GUARD_BYTE = 0xA5 };

hri_soft_memory *hri_soft_memory_create(uint64_t limit_bytes) {
  hri_soft_memory *memory = hri_alloc_zero(1, sizeof *memory);
  operation nobody = {0};
  if (!memory) return NULL;
  memory->limit = limit_bytes;
  if (hri_array_push(&memory->operations, nobody)) return memory;
  hri_free(memory);
  return NULL;
}

static void check_guards(const hri_soft_allocation *a) {
  for (uint64_t i = 0; i < HRI_SOFT_GUARD; i++)
    if (a->memory[-1 - (int64_t)i] != GUARD_BYTE ||
        a->memory[hri_round_up(a->bytes, HRI_SOFT_GRAIN) + i] != GUARD_BYTE) {
      hri_soft_find(HRI_SOFT_GUARDS, "of the %" PRIu64 " bytes at %p", a->bytes, (void *)a->memory);
      return;
    }
}

static void drop(hri_soft_allocation *a) {
  if (!a->released) check_guards(a);
  hri_free(a->whole);
  hri_free(a->grains);
  hri_free(a);
}

void hri_soft_memory_destroy(hri_soft_memory *memory) {
  if (!memory) return;
  for (size_t i = 0; i < memory->allocations.count; i++) drop(memory->allocations.items[i]);
  if (now == memory) now = NULL, now_operation = 0;
  hri_array_free(&memory->allocations);
  hri_array_free(&memory->operations);
  hri_free(memory);
}

static hri_soft_allocation *make(uint64_t bytes, bool host) {
  uint64_t rounded = hri_round_up(bytes, HRI_SOFT_GRAIN), whole = rounded + 3 * HRI_SOFT_GUARD;
  hri_soft_allocation *a = hri_alloc_zero(1, sizeof *a);
  if (!a) return NULL;
  a->whole = hri_alloc(whole);
  a->grains = hri_alloc_zero(rounded / HRI_SOFT_GRAIN, sizeof *a->grains);
  if (!a->whole || !a->grains) {
    hri_free(a->whole), hri_free(a->grains), hri_free(a);
    return NULL;
  }
  a->bytes = bytes;
  a->host = host;
  a->memory = (unsigned char *)(uintptr_t)hri_round_up((uintptr_t)a->whole + HRI_SOFT_GUARD, HRI_SOFT_GUARD);
  memset(a->whole, GUARD_BYTE, whole);
  memset(a->memory, 0xFF, rounded);
  return a;
}

void *hri_soft_allocate(hri_soft_memory *memory, uint64_t bytes, bool host) {
  hri_soft_allocation *a;
  if (bytes == 0 || (!host && bytes > memory->limit - memory->used)) return NULL;
  a = make(bytes, host);
  if (!a) return NULL;
  if (!hri_array_push(&memory->allocations, a)) {
    hri_free(a->whole), hri_free(a->grains), hri_free(a);
    return NULL;
  }
  if (!host) memory->used += bytes;
  return a->memory;
}

hri_soft_allocation *hri_soft_memory_find(hri_soft_memory *memory, const void *address) {
  uintptr_t at = (uintptr_t)address;
  hri_soft_allocation *a = memory->last;
  if (a && at >= (uintptr_t)a->memory && at - (uintptr_t)a->memory < a->bytes) return a;
  for (size_t i = memory->allocations.count; i-- > 0;) { /* the newest first */
    a = memory->allocations.items[i];
    if (at >= (uintptr_t)a->memory && at - (uintptr_t)a->memory < a->bytes) return memory->last = a;
  }
  return NULL;
}

/* Its bytes stay where they are, so that no other allocation gets the address. */
bool hri_soft_release(hri_soft_memory *memory, const void *address) {
  hri_soft_allocation *a = hri_soft_memory_find(memory, address);
  if (!a || a->released || a->memory != address) return false;
  check_guards(a);
  a->released = true;
  memset(a->memory, 0xFF, a->bytes);
  if (!a->host) memory->used -= a->bytes;
  return true;
}

uint64_t hri_soft_memory_free_bytes(const hri_soft_memory *memory) { return memory->limit - memory->used; }

/* ---- the order of operations ---- */

uint32_t hri_soft_operation_add(hri_soft_memory *memory, uint32_t lane, uint32_t in_lane, const uint32_t *clock) {
  operation o = {.lane = lane, .number = in_lane};
  memcpy(o.clock, clock, sizeof o.clock);
  return hri_array_push(&memory->operations, o) ? (uint32_t)memory->operations.count - 1 : 0;
}

void hri_soft_operation_begin(hri_soft_memory *memory, uint32_t number) {
  now = number ? memory : NULL;
  now_operation = number;
}

/* Whether operation (or readers) a is known to be over when b begins. */
static bool over(const hri_soft_memory *memory, uint32_t a, uint32_t b) {
  const operation *x = &memory->operations.items[a], *y = &memory->operations.items[b];
  if (x->lane < HRI_SOFT_LANES) return y->clock[x->lane] >= x->number;
  for (int i = 0; i < HRI_SOFT_LANES; i++)
    if (x->clock[i] > y->clock[i]) return false;
  return true;
}

static void raise_clock(uint32_t *clock, const operation *o) {
  if (o->lane < HRI_SOFT_LANES) {
    if (clock[o->lane] < o->number) clock[o->lane] = o->number;
    return;
  }
  for (int i = 0; i < HRI_SOFT_LANES; i++)
    if (clock[i] < o->clock[i]) clock[i] = o->clock[i];
}

/* Readers a and, beside them, b. The last entry is looked at first: neighbours in memory are read alike. */
static uint32_t join(hri_soft_memory *memory, uint32_t a, uint32_t b) {
  operation o = {.lane = HRI_SOFT_LANES, .joined = {a, b}};
  for (size_t i = memory->operations.count; i-- > 1;) {
    const operation *x = &memory->operations.items[i];
    if (x->joined[0] == a && x->joined[1] == b) return (uint32_t)i;
  }
  raise_clock(o.clock, &memory->operations.items[a]);
  raise_clock(o.clock, &memory->operations.items[b]);
  return hri_array_push(&memory->operations, o) ? (uint32_t)memory->operations.count - 1 : b;
}

/* ---- accesses ---- */

hri_soft_allocation *hri_soft_global_find(const void *address) {
  hri_soft_allocation *a = now ? hri_soft_memory_find(now, address) : NULL;
  if (!a) {
    hri_soft_find(HRI_SOFT_BOUNDS, "%p lies in no allocation", address);
    return NULL;
  }
  if (a->released) {
    hri_soft_find(HRI_SOFT_FREED, "%" PRIu64 " bytes at %p", a->bytes, (void *)a->memory);
    return NULL;
  }
  return a;
}

static uint64_t offset_of(const hri_soft_allocation *a, const void *address) {
  return (uint64_t)((const unsigned char *)address - a->memory);
}

/* Conflicts of now's read with who wrote. */
static void check_read(const hri_soft_grain *g, uint64_t at, bool strict) {
  if (g->writer == 0) {
    if (strict) hri_soft_find(HRI_SOFT_UNWRITTEN, "byte %" PRIu64 " of its allocation", at);
  } else if (g->writer == now_operation) {
    if (g->writer_block != hri_soft_here.number)
      hri_soft_find(HRI_SOFT_BLOCK_RACE, "byte %" PRIu64 " of its allocation is read, which another block writes", at);
  } else if (!over(now, g->writer, now_operation)) {
    hri_soft_find(HRI_SOFT_WAIT, "byte %" PRIu64 " of its allocation is read while another stream may write it", at);
  }
}

static void note_read(hri_soft_grain *g) {
  if (g->readers == now_operation) {
    if (g->reader_block != hri_soft_here.number) g->reader_block = SEVERAL;
    return;
  }
  g->readers =
      g->readers == 0 || over(now, g->readers, now_operation) ? now_operation : join(now, g->readers, now_operation);
  g->reader_block = hri_soft_here.number;
}

static void check_write(const hri_soft_grain *g, uint64_t at, uint32_t block) {
  bool mine = g->writer == now_operation;
  if (mine && g->writer_block != block) {
    hri_soft_find(HRI_SOFT_BLOCK_RACE, "byte %" PRIu64 " of its allocation is written by two blocks", at);
  } else if (!mine && g->writer && !over(now, g->writer, now_operation)) {
    hri_soft_find(HRI_SOFT_WAIT, "byte %" PRIu64 " of its allocation is written while another stream may write it", at);
  } else if (g->readers == now_operation && g->reader_block != hri_soft_here.number) {
    hri_soft_find(HRI_SOFT_BLOCK_RACE, "byte %" PRIu64 " of its allocation is written, which another block reads", at);
  } else if (g->readers && g->readers != now_operation && !over(now, g->readers, now_operation)) {
    hri_soft_find(HRI_SOFT_WAIT, "byte %" PRIu64 " of its allocation is written while another stream may read it", at);
  }
}

void hri_soft_global_read(hri_soft_allocation *a, const void *address, uint64_t bytes, bool strict) {
  uint64_t at = offset_of(a, address), last = (at + bytes - 1) / HRI_SOFT_GRAIN;
  assert(bytes > 0 && at + bytes <= a->bytes);
  for (uint64_t i = at / HRI_SOFT_GRAIN; i <= last; i++) {
    check_read(&a->grains[i], i * HRI_SOFT_GRAIN, strict);
    note_read(&a->grains[i]);
  }
}

static void write_as(hri_soft_allocation *a, const void *address, uint64_t bytes, uint32_t block) {
  uint64_t at = offset_of(a, address), last = (at + bytes - 1) / HRI_SOFT_GRAIN;
  assert(bytes > 0 && at + bytes <= a->bytes);
  for (uint64_t i = at / HRI_SOFT_GRAIN; i <= last; i++) {
    check_write(&a->grains[i], i * HRI_SOFT_GRAIN, block);
    a->grains[i].writer = now_operation;
    a->grains[i].writer_block = block;
  }
}

void hri_soft_global_write(hri_soft_allocation *a, const void *address, uint64_t bytes) {
  write_as(a, address, bytes, hri_soft_here.number);
}

void hri_soft_global_atomic(hri_soft_allocation *a, const void *address, uint64_t bytes) {
  write_as(a, address, bytes, ATOMIC);
}

void hri_soft_global_bounds(const void *base, int64_t index, int64_t count, uint32_t element_bytes) {
  hri_soft_find(HRI_SOFT_BOUNDS, "element %" PRId64 " of %" PRId64 " (of %u bytes) at %p", index, count, element_bytes,
                base);
}

void hri_soft_global_misaligned(const void *address, uint32_t bytes) {
  hri_soft_find(HRI_SOFT_MISALIGNED, "%u bytes at %p", bytes, address);
}
