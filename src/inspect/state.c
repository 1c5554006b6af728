/* The state at an event, from the last state and what happened since.
 *
 * Segments: what was at an address at the event is told by the first later event that covers it - a release means it
 * was there, a reservation that it was not - and by the last state where no event does. So all ranges of later events
 * and of the last state cut the addresses into cells, events paint cells in their order, and a painted cell keeps its
 * paint (the next unpainted cell is found by path halving). That takes n log n for n ranges, whatever they look like.
 *
 * Blocks: what is live is laid into the segments by address, gaps are free. The large pool of segments that are not
 * expandable splits no remainder of 1 MiB or less off (PyTorch: kSmallSize), so a gap of that size belongs to the block
 * before it; behind a larger gap such a tail cannot be seen, and the block counts as guessed. */
#include "inspect/lives.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/sizes.h"

enum { UNSPLIT_BYTES = HRI_ALLOC_SMALL_LIMIT };

/* ---- segments ---- */

typedef struct range {
  uint64_t from, to;
  uint64_t order;  /* event; the last state's come after all */
  uint64_t source; /* segment of the snapshot, or event */
  bool there;      /* it was there before that event */
  bool from_event;
} range;

typedef struct cells {
  const hri_lives *l;
  HRI_ARRAY(range) ranges;
  uint64_t *cuts, cut_count;
  uint64_t *paint; /* per cell: range + 1 */
  uint64_t *next;  /* per cell: itself while unpainted, else a later one */
} cells;

static bool collect(cells *c, uint64_t event) {
  const hr_snapshot *s = c->l->snapshot;
  uint64_t first = event == HRI_NEVER ? 0 : event + 1;
  for (uint64_t k = first; k < c->l->event_count; k++) {
    const hr_trace_event *e = &c->l->events[k];
    bool release = e->action == HR_TRACE_SEGMENT_FREE || e->action == HR_TRACE_SEGMENT_UNMAP;
    if (e->action < HR_TRACE_SEGMENT_ALLOC || e->action > HR_TRACE_SEGMENT_UNMAP || e->size == 0) continue;
    if (e->size > HRI_ABSURD_BYTES || e->addr > UINT64_MAX - e->size) continue;
    if (!hri_array_push(&c->ranges, ((range){e->addr, e->addr + e->size, k, k, release, true}))) return false;
  }
  for (uint64_t k = 0; k < s->segment_count; k++) {
    const hr_segment *g = &s->segments[k];
    if (g->device != c->l->device || g->total_size == 0 || g->address > UINT64_MAX - g->total_size) continue;
    if (!hri_array_push(&c->ranges, ((range){g->address, g->address + g->total_size, HRI_NEVER, k, true, false})))
      return false;
  }
  return true;
}

static int number_order(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static bool cut(cells *c) {
  uint64_t kept = 0;
  c->cuts = hri_alloc((2 * c->ranges.count + 1) * sizeof *c->cuts);
  if (!c->cuts) return false;
  for (size_t k = 0; k < c->ranges.count; k++)
    c->cuts[2 * k] = c->ranges.items[k].from, c->cuts[2 * k + 1] = c->ranges.items[k].to;
  qsort(c->cuts, 2 * c->ranges.count, sizeof *c->cuts, number_order);
  for (size_t k = 0; k < 2 * c->ranges.count; k++)
    if (!kept || c->cuts[k] != c->cuts[kept - 1]) c->cuts[kept++] = c->cuts[k];
  c->cut_count = kept;
  c->paint = hri_alloc_zero((size_t)kept + 1, sizeof *c->paint);
  c->next = hri_alloc((size_t)(kept + 1) * sizeof *c->next);
  if (!c->paint || !c->next) return false;
  for (uint64_t k = 0; k <= kept; k++) c->next[k] = k;
  return true;
}

static uint64_t cell_of(const cells *c, uint64_t address) {
  uint64_t low = 0, high = c->cut_count - 1;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (c->cuts[middle] < address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static uint64_t unpainted(cells *c, uint64_t cell) {
  while (c->next[cell] != cell) {
    c->next[cell] = c->next[c->next[cell]];
    cell = c->next[cell];
  }
  return cell;
}

/* Ranges were collected in the order of events, the last state's behind them. */
static void paint(cells *c) {
  for (size_t k = 0; k < c->ranges.count; k++) {
    uint64_t last = cell_of(c, c->ranges.items[k].to);
    for (uint64_t cell = unpainted(c, cell_of(c, c->ranges.items[k].from)); cell < last; cell = unpainted(c, cell)) {
      c->paint[cell] = k + 1;
      c->next[cell] = cell + 1;
    }
  }
}

/* Whether the range is large-pool memory is not in events: a small segment has exactly 2 MiB; of expandable memory
 * several chunks are unmapped in one event, large ones have 20 MiB each or what large_segment_size_mb says. */
static hr_segment segment_of(const cells *c, const range *r) {
  const hr_trace_event *e;
  hr_segment g = {0};
  if (!r->from_event) return c->l->snapshot->segments[r->source];
  e = &c->l->events[r->source];
  g.stream = e->stream;
  g.stack = e->stack;
  g.pool = e->pool;
  g.device = c->l->device;
  g.expandable = e->action == HR_TRACE_SEGMENT_UNMAP;
  g.large =
      g.expandable ? e->size % hri_alloc_chunk_bytes(&c->l->config, false) == 0 : e->size != HRI_ALLOC_SMALL_SEGMENT;
  return g;
}

/* Each expandable segment has more address space than the device has memory, so ranges of two never touch. */
static bool same_range(const hr_segment *a, const hr_segment *b) {
  return a->address + a->total_size == b->address && a->expandable && b->expandable && a->stream == b->stream &&
         a->pool == b->pool;
}

static bool take_segments(cells *c, hri_state *state) {
  uint64_t before = 0; /* paint of the segment made last */
  state->segments = hri_alloc_zero((size_t)c->cut_count + 1, sizeof *state->segments);
  if (!state->segments) return false;
  for (uint64_t k = 0; k + 1 < c->cut_count; k++) {
    const range *r = c->paint[k] ? &c->ranges.items[c->paint[k] - 1] : NULL;
    hr_segment *last = state->segment_count ? &state->segments[state->segment_count - 1] : NULL, g;
    if (!r || !r->there) continue;
    g = segment_of(c, r);
    g.address = c->cuts[k];
    g.total_size = c->cuts[k + 1] - c->cuts[k];
    if (last && last->address + last->total_size == g.address && (before == c->paint[k] || same_range(last, &g))) {
      last->total_size += g.total_size;
      last->large = last->large && g.large; /* ten small chunks look like a large one, but not the other way round */
    } else state->segments[state->segment_count++] = g;
    before = c->paint[k];
  }
  return true;
}

static bool find_segments(const hri_lives *l, uint64_t event, hri_state *state) {
  cells c = {.l = l};
  bool ok = collect(&c, event);
  if (ok && c.ranges.count) {
    ok = cut(&c);
    if (ok) paint(&c);
  }
  ok = ok && take_segments(&c, state);
  hri_array_free(&c.ranges);
  hri_free(c.cuts);
  hri_free(c.paint);
  hri_free(c.next);
  return ok;
}

/* ---- blocks ---- */

typedef struct live {
  uint64_t addr, index;
} live;

static int live_order(const void *a, const void *b) {
  const live *x = a, *y = b;
  if (x->addr != y->addr) return x->addr < y->addr ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* Live allocations by address. Those that overlap the one before them are dropped, those in no segment get one of their
 * own (`own`, to be merged with the others). */
typedef struct laying {
  const hri_lives *l;
  uint64_t event;
  hri_state *state;
  live *lives;
  uint64_t count;
} laying;

static hr_status find_live(laying *y, hr_error *error) {
  uint64_t *indexes, end = 0, kept = 0;
  HRI_TRY(hri_lives_at(y->l, y->event, &indexes, &y->count, error));
  y->lives = hri_alloc((size_t)(y->count + 1) * sizeof *y->lives);
  for (uint64_t k = 0; y->lives && k < y->count; k++) y->lives[k] = (live){y->l->lives[indexes[k]].addr, indexes[k]};
  hri_free(indexes);
  if (!y->lives) return hri_fail_memory(error, y->count * sizeof *y->lives, "the live set");
  qsort(y->lives, (size_t)y->count, sizeof *y->lives, live_order);
  for (uint64_t k = 0; k < y->count; k++) {
    const hri_life *life = &y->l->lives[y->lives[k].index];
    if (kept && life->addr < end) {
      y->state->dropped_count++;
      continue;
    }
    end = life->addr + (life->size ? life->size : 1);
    y->lives[kept++] = y->lives[k];
  }
  y->count = kept;
  return HR_OK;
}

/* A segment for a life that lies in none: up to the next life or segment at most. */
static hr_segment own_segment(const laying *y, uint64_t k, const hr_segment *next) {
  const hri_life *life = &y->l->lives[y->lives[k].index];
  uint64_t end = life->addr + life->block_size;
  if (k + 1 < y->count && y->lives[k + 1].addr < end) end = y->lives[k + 1].addr;
  if (next && next->address < end) end = next->address;
  return (hr_segment){.address = life->addr,
                      .total_size = end - life->addr,
                      .stream = life->stream,
                      .pool = life->pool,
                      .device = y->l->device,
                      .large = life->block_size > UNSPLIT_BYTES};
}

/* Adds segments for what lies in none, in order: the known ones move behind the free room and are merged from there. */
static bool house_all(laying *y) {
  hri_state *state = y->state;
  uint64_t at = y->count, end = y->count + state->segment_count, kept = 0;
  hr_segment *all = hri_realloc(state->segments, (size_t)(end + 1) * sizeof *all);
  if (!all) return false;
  state->segments = all;
  memmove(all + at, all, (size_t)state->segment_count * sizeof *all);
  for (uint64_t k = 0; k < y->count; k++) {
    uint64_t addr = y->lives[k].addr;
    while (at < end && all[at].address + all[at].total_size <= addr) all[kept++] = all[at++];
    if (at < end && all[at].address <= addr) continue;
    state->unplaced_count++;
    all[kept++] = own_segment(y, k, at < end ? &all[at] : NULL);
  }
  while (at < end) all[kept++] = all[at++];
  state->segment_count = kept;
  return true;
}

static void add_block(hri_state *state, hr_segment *segment, const hr_block *block, uint64_t life) {
  if (!block->size) return;
  state->block_lives[state->block_count] = life;
  state->blocks[state->block_count++] = *block;
  segment->block_count++;
  if (block->state == HR_BLOCK_ALLOCATED) segment->allocated_size += block->size;
  if (block->state != HR_BLOCK_INACTIVE)
    segment->active_size += block->size, segment->requested_size += block->requested_size;
}

static void add_free(hri_state *state, hr_segment *segment, uint64_t from, uint64_t to) {
  if (to > from)
    add_block(state, segment, &(hr_block){.address = from, .size = to - from, .state = HR_BLOCK_INACTIVE}, HRI_NEVER);
}

/* Bytes of a block that begins at its life's address and may reach to `limit`: the next live block or the segment's
 * end. */
static uint64_t block_bytes(const laying *y, const hr_segment *g, const hri_life *life, uint64_t limit) {
  uint64_t room = limit - life->addr, gap;
  int64_t max_split = y->l->snapshot->settings.max_split_size;
  if (life->block_size >= room) return room;
  gap = room - life->block_size;
  if (life->seen || !g->large || g->expandable) return life->block_size;
  if (gap <= UNSPLIT_BYTES || (max_split >= 0 && life->block_size >= (uint64_t)max_split)) return room;
  y->state->guessed_count++;
  return life->block_size;
}

static void fill(laying *y, hr_segment *g, uint64_t *cursor) {
  uint64_t at = g->address, end = g->address + g->total_size;
  g->first_block = y->state->block_count;
  g->block_count = 0;
  g->allocated_size = g->active_size = g->requested_size = 0;
  for (; *cursor < y->count && y->lives[*cursor].addr < end; ++*cursor) {
    const hri_life *life = &y->l->lives[y->lives[*cursor].index];
    uint64_t limit = *cursor + 1 < y->count && y->lives[*cursor + 1].addr < end ? y->lives[*cursor + 1].addr : end;
    hr_block block = {life->addr, 0, life->size, life->stack, life->category, HR_BLOCK_ALLOCATED};
    block.size = block_bytes(y, g, life, limit);
    if (block.requested_size > block.size) block.requested_size = block.size;
    if (hri_life_pending_at(life, y->event)) block.state = HR_BLOCK_PENDING_FREE;
    add_free(y->state, g, at, life->addr);
    add_block(y->state, g, &block, y->lives[*cursor].index);
    at = life->addr + block.size;
  }
  add_free(y->state, g, at, end);
}

static hr_status lay(laying *y, hr_error *error) {
  hri_state *state = y->state;
  uint64_t cursor = 0, capacity;
  HRI_TRY(find_live(y, error));
  if (!house_all(y)) return hri_fail_memory(error, y->count * sizeof(hr_segment), "the state of an allocator");
  capacity =
      2 * y->count + state->segment_count + 1; /* each live block and the gap behind it, and each segment's first gap */
  state->blocks = hri_alloc((size_t)capacity * sizeof *state->blocks);
  state->block_lives = hri_alloc((size_t)capacity * sizeof *state->block_lives);
  if (!state->blocks || !state->block_lives)
    return hri_fail_memory(error, capacity * sizeof *state->blocks, "the state of an allocator");
  for (uint64_t k = 0; k < state->segment_count; k++) fill(y, &state->segments[k], &cursor);
  return HR_OK;
}

hr_status hri_state_at(const hri_lives *l, uint64_t event, hri_state *state, hr_error *error) {
  laying y = {.l = l, .event = event, .state = state};
  hr_status status;
  *state = (hri_state){0};
  if (!l->has_state) return HR_OK;
  if (!find_segments(l, event, state)) status = hri_fail_memory(error, l->event_count, "the segments of an allocator");
  else status = lay(&y, error);
  hri_free(y.lives);
  if (status != HR_OK) hri_state_deinit(state);
  return status;
}

void hri_state_deinit(hri_state *state) {
  hri_free(state->segments);
  hri_free(state->blocks);
  hri_free(state->block_lives);
  *state = (hri_state){0};
}
