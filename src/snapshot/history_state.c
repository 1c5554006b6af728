/* The last state of a history: that of a recorded state with the events since then.
 *
 * No state is kept while the events go by. Blocks and plain segments are facts about an address, in order; sorted by
 * address, the last facts of each say what is there now. Mapped ranges of expandable segments overlap in any way, so
 * they are painted from the newest to the oldest onto the line of all their ends: what is painted already stays, and a
 * union-find over the painted parts skips them. Both take n log n time, whatever the file says. Free blocks are the
 * gaps that active ones leave, since free neighbours are always merged. */
#include "snapshot/history_format.h"

#include <stdlib.h>

/* Something known about an address: from the state (order 0), or from event order - 1. */
typedef struct fact {
  uint64_t address, order, index; /* index into the state's rows when order is 0 */
} fact;

typedef struct range {
  uint64_t address, size, stream, label;
  uint32_t pool;
  bool expandable, mapped, large;
} range;

typedef struct rebuild {
  hri_history_names *names;
  const hri_history_segment *segments;
  const hri_history_block *blocks;
  const hri_history_since *since;
  HRI_ARRAY(fact) facts;
  HRI_ARRAY(range) painted; /* maps and unmaps, oldest first */
  HRI_ARRAY(range) found;   /* segments as they are now */
  HRI_ARRAY(hr_block) live; /* active blocks as they are now, by address */
  int32_t device;
} rebuild;

static const hri_history_event *event_at(const rebuild *r, uint64_t k) {
  return &r->since->ring[(r->since->first + k) % r->since->capacity];
}

static int fact_order(const void *a, const void *b) {
  const fact *x = a, *y = b;
  if (x->address != y->address) return x->address < y->address ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static void contradiction(const rebuild *r) { r->names->builder->snapshot->repaired_count++; }

static bool sane(uint64_t address, uint64_t size) { return size && size <= UINT64_MAX - address; }

/* ---- blocks ---- */

static bool collect_blocks(rebuild *r, uint64_t block_count) {
  r->facts.count = 0;
  for (uint64_t k = 0; k < block_count; k++)
    if (!hri_array_push(&r->facts, ((fact){r->blocks[k].address, 0, k}))) return false;
  for (uint64_t k = 0; k < r->since->count; k++) {
    uint32_t action = hri_history_action(event_at(r, k));
    if (action != HR_TRACE_ALLOC && action != HR_TRACE_FREE_REQUESTED && action != HR_TRACE_FREE_COMPLETED) continue;
    if (!hri_array_push(&r->facts, ((fact){event_at(r, k)->addr, k + 1, 0}))) return false;
  }
  if (r->facts.count) qsort(r->facts.items, r->facts.count, sizeof *r->facts.items, fact_order);
  return true;
}

static hr_block block_of_state(rebuild *r, const hri_history_block *b) {
  hr_block block = {.address = b->address, .size = b->size, .requested_size = b->requested};
  block.state = b->pending ? HR_BLOCK_PENDING_FREE : HR_BLOCK_ALLOCATED;
  block.stack = hri_history_stack(r->names, b->label, &block.category);
  return block;
}

static hr_block block_of_event(rebuild *r, const hri_history_event *e) {
  hr_block block = {.address = e->addr,
                    .size = hri_history_block_bytes(e),
                    .requested_size = e->size,
                    .state = HR_BLOCK_ALLOCATED};
  block.stack = hri_history_stack(r->names, e->label, &block.category);
  return block;
}

/* The block that facts [from, to) of one address leave there; size 0: none. */
static hr_block last_block(rebuild *r, uint64_t from, uint64_t to) {
  uint64_t made = to;
  bool pending = false;
  for (uint64_t k = from; k < to; k++) {
    const fact *f = &r->facts.items[k];
    uint32_t action = f->order ? hri_history_action(event_at(r, f->order - 1)) : HR_TRACE_ALLOC;
    if (action == HR_TRACE_ALLOC) made = k, pending = false;
    else if (action == HR_TRACE_FREE_REQUESTED) pending = true;
    else made = to;
  }
  if (made == to) return (hr_block){0};
  const fact *f = &r->facts.items[made];
  hr_block block = f->order ? block_of_event(r, event_at(r, f->order - 1)) : block_of_state(r, &r->blocks[f->index]);
  if (pending) block.state = HR_BLOCK_PENDING_FREE;
  return block;
}

static bool find_live(rebuild *r) {
  for (uint64_t from = 0, to; from < r->facts.count; from = to) {
    hr_block block;
    for (to = from + 1; to < r->facts.count && r->facts.items[to].address == r->facts.items[from].address;) to++;
    block = last_block(r, from, to);
    if (block.size && !hri_array_push(&r->live, block)) return false;
  }
  return true;
}

/* ---- plain segments ---- */

static range range_of_state(const hri_history_segment *s) {
  const bool expandable = s->flags & HRI_HISTORY_EXPANDABLE, large = s->flags & HRI_HISTORY_LARGE;
  return (range){s->address, s->size, s->stream, s->label, s->pool, expandable, true, large};
}

/* Small pools take 2 MiB at a time, large ones more. */
static range range_of_event(const hri_history_event *e, bool expandable, bool mapped) {
  return (range){e->addr, e->size, e->stream, e->label, hri_history_pool(e), expandable, mapped, e->size > 2 << 20};
}

static bool find_plain(rebuild *r, uint64_t segment_count) {
  r->facts.count = 0;
  for (uint64_t k = 0; k < segment_count; k++)
    if (!(r->segments[k].flags & HRI_HISTORY_EXPANDABLE) &&
        !hri_array_push(&r->facts, ((fact){r->segments[k].address, 0, k})))
      return false;
  for (uint64_t k = 0; k < r->since->count; k++) {
    uint32_t action = hri_history_action(event_at(r, k));
    if (action != HR_TRACE_SEGMENT_ALLOC && action != HR_TRACE_SEGMENT_FREE) continue;
    if (!hri_array_push(&r->facts, ((fact){event_at(r, k)->addr, k + 1, 0}))) return false;
  }
  if (r->facts.count) qsort(r->facts.items, r->facts.count, sizeof *r->facts.items, fact_order);
  for (uint64_t k = 0; k < r->facts.count; k++) {
    const fact *f = &r->facts.items[k];
    if (k + 1 < r->facts.count && r->facts.items[k + 1].address == f->address) continue;
    if (f->order && hri_history_action(event_at(r, f->order - 1)) == HR_TRACE_SEGMENT_FREE) continue;
    const range now =
        f->order ? range_of_event(event_at(r, f->order - 1), false, true) : range_of_state(&r->segments[f->index]);
    if (!hri_array_push(&r->found, now)) return false;
  }
  return true;
}

/* ---- mapped ranges ---- */

static bool collect_mapped(rebuild *r, uint64_t segment_count) {
  for (uint64_t k = 0; k < segment_count; k++)
    if ((r->segments[k].flags & HRI_HISTORY_EXPANDABLE) &&
        !hri_array_push(&r->painted, range_of_state(&r->segments[k])))
      return false;
  for (uint64_t k = 0; k < r->since->count; k++) {
    uint32_t action = hri_history_action(event_at(r, k));
    if (action != HR_TRACE_SEGMENT_MAP && action != HR_TRACE_SEGMENT_UNMAP) continue;
    if (!hri_array_push(&r->painted, range_of_event(event_at(r, k), true, action == HR_TRACE_SEGMENT_MAP)))
      return false;
  }
  return true;
}

static int number_order(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static uint64_t place_of(const uint64_t *ends, uint64_t count, uint64_t value) {
  uint64_t low = 0, high = count;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (ends[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* The first part at or after k that is not painted; paths are halved on the way. */
static uint64_t unpainted(uint64_t *next, uint64_t k) {
  while (next[k] != k) k = next[k] = next[next[k]];
  return k;
}

/* owner[k]: which range was last over the part between ends k and k + 1; UINT64_MAX: none. */
static void paint(const rebuild *r, const uint64_t *ends, uint64_t count, uint64_t *owner, uint64_t *next) {
  for (uint64_t k = 0; k < count; k++) owner[k] = UINT64_MAX, next[k] = k;
  next[count] = count;
  for (uint64_t k = r->painted.count; k-- > 0;) {
    const range *p = &r->painted.items[k];
    if (!sane(p->address, p->size)) continue;
    uint64_t to = place_of(ends, count, p->address + p->size);
    for (uint64_t at = unpainted(next, place_of(ends, count, p->address)); at < to; at = unpainted(next, at)) {
      owner[at] = k;
      next[at] = at + 1;
    }
  }
}

static bool take_painted(rebuild *r, const uint64_t *ends, uint64_t count, const uint64_t *owner) {
  bool open = false; /* the last found range may go on */
  for (uint64_t k = 0; k + 1 < count; k++) {
    const range *p = owner[k] == UINT64_MAX ? NULL : &r->painted.items[owner[k]];
    range *last = open ? &r->found.items[r->found.count - 1] : NULL;
    if (!p || !p->mapped) {
      open = false;
    } else if (last && last->stream == p->stream && last->pool == p->pool && last->large == p->large) {
      last->size += ends[k + 1] - ends[k];
    } else {
      range fresh = *p;
      fresh.address = ends[k];
      fresh.size = ends[k + 1] - ends[k];
      if (!hri_array_push(&r->found, fresh)) return false;
      open = true;
    }
  }
  return true;
}

static bool find_mapped(rebuild *r) {
  const uint64_t room = 2 * r->painted.count + 1;
  uint64_t *ends = hri_alloc_zero(room, sizeof *ends), *owner = hri_alloc_zero(room, sizeof *owner),
           *next = hri_alloc_zero(room + 1, sizeof *next);
  uint64_t count = 0, distinct = 0;
  bool fine = ends && owner && next;
  for (uint64_t k = 0; fine && k < r->painted.count; k++) {
    const range *p = &r->painted.items[k];
    if (!sane(p->address, p->size)) {
      contradiction(r);
      continue;
    }
    ends[count++] = p->address;
    ends[count++] = p->address + p->size;
  }
  if (fine && count) {
    qsort(ends, count, sizeof *ends, number_order);
    for (uint64_t k = 0; k < count; k++)
      if (!k || ends[k] != ends[k - 1]) ends[distinct++] = ends[k];
    paint(r, ends, distinct, owner, next);
    fine = take_painted(r, ends, distinct, owner);
  }
  hri_free(ends);
  hri_free(owner);
  hri_free(next);
  return fine;
}

/* ---- the whole ---- */

static int range_order(const void *a, const void *b) {
  const range *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

static bool add_gap(hri_snapshot_builder *b, uint64_t from, uint64_t to) {
  const hr_block gap = {.address = from, .size = to - from, .state = HR_BLOCK_INACTIVE};
  return from == to || hri_snapshot_add_block(b, &gap);
}

/* One segment with the blocks from *next on that lie in it, and the gaps between them. */
static bool add_segment(rebuild *r, const range *s, uint64_t *next) {
  hri_snapshot_builder *b = r->names->builder;
  const uint64_t end = s->address + s->size;
  uint64_t at = s->address;
  uint16_t category;
  const hr_segment segment = {.address = s->address,
                              .total_size = s->size,
                              .stream = s->stream,
                              .stack = hri_history_stack(r->names, s->label, &category),
                              .pool = hri_history_pool_index(r->names, s->pool),
                              .device = r->device,
                              .large = s->large,
                              .expandable = s->expandable};
  if (!hri_snapshot_add_segment(b, &segment)) return false;
  for (; *next < r->live.count && r->live.items[*next].address < end; (*next)++) {
    const hr_block *block = &r->live.items[*next];
    if (block->address < at || block->size > end - block->address) {
      contradiction(r);
      continue;
    }
    if (!add_gap(b, at, block->address) || !hri_snapshot_add_block(b, block)) return false;
    at = block->address + block->size;
  }
  return add_gap(b, at, end);
}

static bool add_all(rebuild *r) {
  uint64_t next = 0, end = 0;
  if (r->found.count) qsort(r->found.items, r->found.count, sizeof *r->found.items, range_order);
  for (uint64_t k = 0; k < r->found.count; k++) {
    const range *s = &r->found.items[k];
    if (!sane(s->address, s->size) || s->address < end) {
      contradiction(r);
      continue;
    }
    for (; next < r->live.count && r->live.items[next].address < s->address; next++) contradiction(r);
    if (!add_segment(r, s, &next)) return false;
    end = s->address + s->size;
  }
  for (; next < r->live.count; next++) contradiction(r);
  return true;
}

hr_status hri_history_rebuild(hri_history_names *names, const hri_history_segment *segments, uint64_t segment_count,
                              const hri_history_block *blocks, uint64_t block_count, const hri_history_since *since,
                              int32_t device, hr_error *error) {
  rebuild r = {.names = names, .segments = segments, .blocks = blocks, .since = since, .device = device};
  bool fine = collect_blocks(&r, block_count) && find_live(&r) && find_plain(&r, segment_count) &&
              collect_mapped(&r, segment_count) && find_mapped(&r) && add_all(&r);
  hri_array_free(&r.facts);
  hri_array_free(&r.painted);
  hri_array_free(&r.found);
  hri_array_free(&r.live);
  return fine && !names->builder->failed
             ? HR_OK
             : hri_fail_memory(error, block_count * sizeof *blocks, "the state of a history");
}
