/* The shadow of shared memory, and asynchronous copies into it (shared.h). */
#include "gpu/soft/shared.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/soft/block.h"
#include "gpu/soft/report.h"

/* Epochs are barriers (hri_soft_here.epoch); turns are warp barriers within one. */
typedef struct grain {
  uint32_t write_epoch, read_epoch;
  uint16_t writer, write_turn;
  uint16_t reader, read_turn; /* the last one */
  uint16_t other_turn;        /* the last turn in which another lane of its warp read, plus 1; 0: none did */
  bool several_warps;         /* read in this epoch by more than one */
  bool pending;               /* a copy that was not waited for */
} grain;

typedef struct copy {
  uint32_t offset, bytes, valid, thread, group;
  const void *from; /* NULL: `data` was read when it began */
  unsigned char data[16];
  const char *name;
} copy;

typedef struct variable {
  const void *key;
  uint32_t offset, bytes;
} variable;

enum { VARIABLES = 32 };

static struct {
  _Alignas(128) unsigned char bytes[HRI_SOFT_SHARED_BYTES];
  grain grains[HRI_SOFT_SHARED_BYTES / HRI_SOFT_SHARED_GRAIN + 1];
  variable variables[VARIABLES];
  uint32_t variable_count, used, limit, statics, dynamic;
  HRI_ARRAY(copy) copies; /* begun and not waited for */
  uint64_t random;
} shared = {.random = 0x9E3779B97F4A7C15u};

void hri_soft_shared_launch(uint32_t dynamic_bytes, uint32_t limit) {
  shared.variable_count = 0;
  shared.statics = 0;
  shared.limit = limit;
  shared.dynamic = dynamic_bytes;
  shared.used = (uint32_t)hri_round_up(dynamic_bytes, 128);
}

void hri_soft_shared_begin(void) {
  for (size_t i = 0; i < shared.copies.count; i++) { /* of a block that was left, or that ended without waiting */
    const copy *c = &shared.copies.items[i];
    for (uint32_t k = 0; k < c->bytes; k += HRI_SOFT_SHARED_GRAIN)
      shared.grains[(c->offset + k) / HRI_SOFT_SHARED_GRAIN].pending = false;
  }
  shared.copies.count = 0;
  memset(shared.bytes, 0xFF, shared.used);
}

uint32_t hri_soft_shared_dynamic(uint32_t offset, uint32_t bytes, const char *name) {
  if (offset <= shared.dynamic && bytes <= shared.dynamic - offset) return offset;
  hri_soft_find(HRI_SOFT_SHARED_BOUNDS, "%s lies at %u to %u of %u bytes that the launch asked for", name, offset,
                offset + bytes, shared.dynamic);
  hri_soft_block_leave();
  return 0;
}

void hri_soft_shared_bounds(int64_t index, int64_t count, const char *name) {
  hri_soft_find(HRI_SOFT_SHARED_BOUNDS, "element %lld of %s, which has %lld", (long long)index, name, (long long)count);
}

void hri_soft_shared_misaligned(uint32_t offset, uint32_t bytes, const char *name) {
  hri_soft_find(HRI_SOFT_MISALIGNED, "%u bytes at byte %u of shared memory (%s)", bytes, offset, name);
}

uint32_t hri_soft_shared_static(const void *key, uint32_t bytes, const char *name) {
  variable *v = shared.variables;
  for (uint32_t i = 0; i < shared.variable_count; i++)
    if (v[i].key == key) return v[i].offset;
  if (shared.variable_count == VARIABLES || shared.statics + bytes > HRI_SOFT_SHARED_STATIC ||
      shared.used + bytes > shared.limit) {
    hri_soft_find(HRI_SOFT_LAUNCH, "%s of %u bytes finds no room in %u bytes of shared memory", name, bytes,
                  shared.limit);
    hri_soft_block_leave();
  }
  v += shared.variable_count++;
  *v = (variable){.key = key, .offset = shared.used, .bytes = bytes};
  shared.used += (uint32_t)hri_round_up(bytes, 128);
  shared.statics += bytes;
  memset(shared.bytes + v->offset, 0xFF, bytes);
  return v->offset;
}

/* Whether what thread a did in turn `turn` of this epoch is known to thread t. */
static bool before(uint32_t a, uint32_t turn, const hri_soft_thread *t) {
  return a == t->linear || (a / HRI_SOFT_WARP == t->linear / HRI_SOFT_WARP && turn < t->turn);
}

/* Whether anybody's read of this epoch may still be going on when t writes. */
static bool read_meanwhile(const grain *g, const hri_soft_thread *t) {
  if (g->read_epoch != hri_soft_here.epoch) return false;
  if (g->several_warps || !before(g->reader, g->read_turn, t)) return true;
  return g->other_turn > t->turn; /* another lane, in the turn that is not over */
}

static void note_read(grain *g, const hri_soft_thread *t) {
  if (g->read_epoch != hri_soft_here.epoch) {
    g->read_epoch = hri_soft_here.epoch;
    g->several_warps = false;
    g->other_turn = 0;
  } else if (g->reader != t->linear) {
    if (g->reader / HRI_SOFT_WARP != t->linear / HRI_SOFT_WARP) g->several_warps = true;
    else g->other_turn = (uint16_t)(g->read_turn + 1);
  }
  g->reader = (uint16_t)t->linear;
  g->read_turn = (uint16_t)t->turn;
}

static void note_write(grain *g, const hri_soft_thread *t) {
  g->write_epoch = hri_soft_here.epoch;
  g->writer = (uint16_t)t->linear;
  g->write_turn = (uint16_t)t->turn;
}

static void check_read(grain *g, const hri_soft_thread *t, uint32_t offset, const char *name) {
  if (g->pending) {
    hri_soft_find(HRI_SOFT_COPY, "%s, byte %u of shared memory", name, offset);
  } else if (g->write_epoch < hri_soft_here.first_epoch) {
    hri_soft_find(HRI_SOFT_SHARED_UNWRITTEN, "%s, byte %u of shared memory", name, offset);
  } else if (g->write_epoch == hri_soft_here.epoch && !before(g->writer, g->write_turn, t)) {
    hri_soft_find(HRI_SOFT_SHARED_RACE, "%s, byte %u: thread %u reads what thread %u writes", name, offset, t->linear,
                  g->writer);
  }
  note_read(g, t);
}

static void check_write(grain *g, const hri_soft_thread *t, uint32_t offset, const char *name) {
  if (g->pending) {
    hri_soft_find(HRI_SOFT_COPY, "%s, byte %u of shared memory is written", name, offset);
  } else if (g->write_epoch == hri_soft_here.epoch && g->write_epoch >= hri_soft_here.first_epoch &&
             !before(g->writer, g->write_turn, t)) {
    hri_soft_find(HRI_SOFT_SHARED_RACE, "%s, byte %u: threads %u and %u write it", name, offset, g->writer, t->linear);
  } else if (read_meanwhile(g, t)) {
    hri_soft_find(HRI_SOFT_SHARED_RACE, "%s, byte %u: thread %u writes what thread %u reads", name, offset, t->linear,
                  g->reader);
  }
  note_write(g, t);
}

static void read_as(const hri_soft_thread *t, uint32_t offset, uint32_t bytes, void *to, const char *name) {
  assert(offset + bytes <= HRI_SOFT_SHARED_BYTES);
  for (uint32_t k = 0; k < bytes; k += HRI_SOFT_SHARED_GRAIN)
    check_read(&shared.grains[(offset + k) / HRI_SOFT_SHARED_GRAIN], t, offset + k, name);
  memcpy(to, shared.bytes + offset, bytes);
}

void hri_soft_shared_read(uint32_t offset, uint32_t bytes, void *to, const char *name) {
  read_as(hri_soft_now, offset, bytes, to, name);
}

void hri_soft_shared_read_as(uint32_t linear, uint32_t offset, uint32_t bytes, void *to, const char *name) {
  const hri_soft_thread *t = hri_soft_now;
  read_as(t - t->linear + linear, offset, bytes, to, name);
}

void hri_soft_shared_write(uint32_t offset, uint32_t bytes, const void *from, const char *name) {
  assert(offset + bytes <= HRI_SOFT_SHARED_BYTES);
  for (uint32_t k = 0; k < bytes; k += HRI_SOFT_SHARED_GRAIN)
    check_write(&shared.grains[(offset + k) / HRI_SOFT_SHARED_GRAIN], hri_soft_now, offset + k, name);
  memcpy(shared.bytes + offset, from, bytes);
}

void hri_soft_copy_begin(uint32_t offset, uint32_t bytes, const void *from, uint32_t valid, const char *name) {
  const hri_soft_thread *t = hri_soft_now;
  copy c = {.offset = offset, .bytes = bytes, .valid = valid, .thread = t->linear, .group = t->committed, .name = name};
  assert(bytes <= sizeof c.data && valid <= bytes && offset + bytes <= HRI_SOFT_SHARED_BYTES);
  for (uint32_t k = 0; k < bytes; k += HRI_SOFT_SHARED_GRAIN) {
    grain *g = &shared.grains[(offset + k) / HRI_SOFT_SHARED_GRAIN];
    check_write(g, t, offset + k, name);
    g->pending = true;
  }
  memset(shared.bytes + offset, 0xFF, bytes);
  if (hri_soft_draw(&shared.random, 2) == 0) c.from = valid ? from : NULL;
  else if (valid) memcpy(c.data, from, valid);
  if (!hri_array_push(&shared.copies, c)) {
    hri_soft_find(HRI_SOFT_LAUNCH, "no memory on the host for a copy into %s", name);
    hri_soft_block_leave();
  }
}

void hri_soft_copy_commit(void) { hri_soft_now->committed++; }

/* The data arrive: written by the thread that waits, now. */
static void arrive(copy *c, const hri_soft_thread *t) {
  if (c->from) memcpy(c->data, c->from, c->valid);
  memcpy(shared.bytes + c->offset, c->data, c->bytes);
  for (uint32_t k = 0; k < c->bytes; k += HRI_SOFT_SHARED_GRAIN) {
    grain *g = &shared.grains[(c->offset + k) / HRI_SOFT_SHARED_GRAIN];
    g->pending = false;
    note_write(g, t);
  }
}

void hri_soft_copy_wait(uint32_t pending_groups) {
  hri_soft_thread *t = hri_soft_now;
  size_t kept = 0;
  if (t->committed <= t->waited + pending_groups) return; /* nothing new is known to have arrived */
  t->waited = t->committed - pending_groups;
  for (size_t i = 0; i < shared.copies.count; i++) {
    copy *c = &shared.copies.items[i];
    if (c->thread == t->linear && c->group < t->waited) arrive(c, t);
    else shared.copies.items[kept++] = *c;
  }
  shared.copies.count = kept;
}
