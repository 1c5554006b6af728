/* Pairing. Events are read once, forwards, with a table of the addresses that are open (allocated and not yet freed, as
 * far as the trace tells). A free whose address is not open belongs to an allocation from before the trace. At the end
 * the open ones are held against the last state: what it holds and nobody opened is from before as well; what was
 * opened and it does not hold contradicts the trace, and is closed by the last event, so that the lives after the last
 * event are always exactly the last state's blocks.
 *
 * Lives are noted in the orders in which they end and in which their free was requested, so that walking all levels needs no
 * table again. */
#include "inspect/lives.h"

#include <stdlib.h>
#include <string.h>

#include "base/mix.h"

/* ---- the table of open addresses: open addressing, linear probing, deletion by shifting back ---- */

#define BEFORE ((uint64_t)1 << 63) /* in an index: of the array of those from before the trace */

typedef struct slot {
  uint64_t addr, index; /* index HRI_NEVER: free */
} slot;

typedef struct builder {
  hri_lives *l;
  slot *slots;
  uint64_t mask, open_count;
  HRI_ARRAY(hri_life) before;
  uint64_t made;      /* lives from within the trace */
  bool requests_only; /* free_completed was not recorded */
} builder;

static uint64_t home(uint64_t addr, uint64_t mask) { return hri_mix(addr) & mask; }

static slot *find(const builder *b, uint64_t addr) {
  uint64_t at = home(addr, b->mask);
  while (b->slots[at].index != HRI_NEVER && b->slots[at].addr != addr) at = (at + 1) & b->mask;
  return &b->slots[at];
}

static bool widen(builder *b) {
  uint64_t slots = b->slots ? (b->mask + 1) * 2 : 1024, old_count = b->slots ? b->mask + 1 : 0;
  slot *old = b->slots, *fresh = hri_alloc((size_t)slots * sizeof *fresh);
  if (!fresh) return false;
  memset(fresh, 0xff, (size_t)slots * sizeof *fresh);
  b->slots = fresh;
  b->mask = slots - 1;
  for (uint64_t k = 0; k < old_count; k++)
    if (old[k].index != HRI_NEVER) *find(b, old[k].addr) = old[k];
  hri_free(old);
  return true;
}

static bool open_address(builder *b, uint64_t addr, uint64_t index) {
  if ((b->open_count + 1) * 2 > b->mask && !widen(b)) return false;
  *find(b, addr) = (slot){addr, index};
  b->open_count++;
  return true;
}

static void close_slot(builder *b, slot *gone) {
  uint64_t hole = (uint64_t)(gone - b->slots), at = hole;
  for (;;) {
    at = (at + 1) & b->mask;
    if (b->slots[at].index == HRI_NEVER) break;
    if (((at - home(b->slots[at].addr, b->mask)) & b->mask) >= ((at - hole) & b->mask))
      b->slots[hole] = b->slots[at], hole = at;
  }
  b->slots[hole].index = HRI_NEVER;
  b->open_count--;
}

/* ---- events ---- */

static bool absurd(uint64_t addr, uint64_t size) { return size > HRI_ABSURD_BYTES || addr > UINT64_MAX - size; }

uint64_t hri_round_request(const hr_snapshot_settings *settings, uint64_t size) {
  uint64_t interval, divisions, step;
  int log;
  if (size <= 512) return 512;
  log = 63 - __builtin_clzll(size);
  interval = log > 20 ? (uint64_t)log - 20 : 0; /* the first is for 1 MiB and below, the last for 32 GiB and above */
  divisions = settings->roundup_power2_divisions[interval < 16 ? interval : 15];
  if (divisions < 2 || divisions > 1 << 20 || size <= 512 * divisions) return hri_round_up(size, 512);
  step = ((uint64_t)1 << log) >> (63 - __builtin_clzll(divisions));
  return step ? hri_round_up(size, step) : hri_round_up(size, 512);
}

static hri_life *life_of(builder *b, uint64_t index) {
  return index & BEFORE ? &b->before.items[index & ~BEFORE] : &b->l->lives[index];
}

static hri_life make_life(const builder *b, const hr_trace_event *e) {
  return (hri_life){HRI_NEVER,   HRI_NEVER, HRI_NEVER,
                    e->addr,     e->size,   hri_round_request(&b->l->snapshot->settings, e->size),
                    e->stack,    e->pool,   e->stream,
                    e->category, false,     false};
}

/* From here on the program no longer holds it. */
static void request_free(builder *b, uint64_t index, uint64_t event) {
  hri_life *life = life_of(b, index);
  if (life->request != HRI_NEVER || life->pending_before) return;
  life->request = event;
  b->l->freed[b->l->freed_count++] = index;
}

static void end_life(builder *b, uint64_t index, uint64_t event) {
  life_of(b, index)->end = event;
  b->l->ended[b->l->ended_count++] = index;
  request_free(b, index, event);
}

static bool on_alloc(builder *b, const hr_trace_event *e, uint64_t event) {
  slot *at = find(b, e->addr);
  if (at->index != HRI_NEVER) {
    b->l->odd_count++;
    end_life(b, at->index, event);
    close_slot(b, at);
  }
  b->l->lives[b->made] = make_life(b, e);
  b->l->lives[b->made].alloc = event;
  return open_address(b, e->addr, b->made++);
}

/* A life that the trace first hears of when it is freed. What the free says about stacks is where it was freed, not
 * made. */
static bool add_before(builder *b, const hr_trace_event *e, uint64_t *index) {
  hri_life life = make_life(b, e);
  life.stack = 0;
  *index = b->before.count | BEFORE;
  return hri_array_push(&b->before, life) && open_address(b, e->addr, *index);
}

static bool on_free(builder *b, const hr_trace_event *e, uint64_t event) {
  bool requested = e->action == HR_TRACE_FREE_REQUESTED && !b->requests_only;
  slot *at = find(b, e->addr);
  uint64_t index = at->index;
  hri_life *life;
  if (index == HRI_NEVER) {
    if (!add_before(b, e, &index)) return false;
    life_of(b, index)->pending_before = e->action == HR_TRACE_FREE_COMPLETED;
  }
  life = life_of(b, index);
  if (life->size != e->size) b->l->odd_count++;
  if (requested && (life->request != HRI_NEVER || life->pending_before)) b->l->odd_count++;
  if (requested) return request_free(b, index, event), true;
  end_life(b, index, event);
  close_slot(b, find(b, e->addr));
  return true;
}

static bool read_events(builder *b) {
  for (uint64_t k = 0; k < b->l->event_count; k++) {
    const hr_trace_event *e = &b->l->events[k];
    bool ok = true;
    if (e->action > HR_TRACE_SEGMENT_UNMAP) continue;
    if (absurd(e->addr, e->size)) b->l->odd_count++;
    else if (e->action == HR_TRACE_ALLOC) ok = on_alloc(b, e, k);
    else if (e->action == HR_TRACE_FREE_REQUESTED || e->action == HR_TRACE_FREE_COMPLETED) ok = on_free(b, e, k);
    if (!ok) return false;
  }
  return true;
}

/* ---- frees of one event ---- */

/* PyTorch leaves the events out that skip_actions of _record_memory_history names. A block whose free was requested and
 * that waits no longer was freed for good: where more were requested than wait in the end, and none of them completed,
 * such events were not recorded. */
static bool lacks_completed(const hri_lives *l) {
  const hr_snapshot *s = l->snapshot;
  uint64_t requested = 0, pending = 0;
  for (uint64_t k = 0; k < l->event_count; k++) {
    if (l->events[k].action == HR_TRACE_FREE_COMPLETED) return false;
    requested += l->events[k].action == HR_TRACE_FREE_REQUESTED;
  }
  for (uint64_t k = 0; k < s->segment_count && requested; k++) {
    const hr_segment *g = &s->segments[k];
    for (uint64_t n = 0; g->device == l->device && n < g->block_count; n++)
      pending += s->blocks[g->first_block + n].state == HR_BLOCK_PENDING_FREE;
  }
  return requested > pending;
}

/* Where what the trace itself allocated is freed without a request, requests were not recorded: then no block waited. */
static void request_when_completed(builder *b) {
  hri_lives *l = b->l;
  bool own = false;
  for (uint64_t k = 0; k < l->event_count; k++)
    if (l->events[k].action == HR_TRACE_FREE_REQUESTED) return;
  for (uint64_t k = 0; k < l->ended_count && !own; k++)
    own = !(l->ended[k] & BEFORE) && l->events[life_of(b, l->ended[k])->end].action == HR_TRACE_FREE_COMPLETED;
  if (!own) return;
  for (uint64_t k = 0; k < l->ended_count; k++) {
    hri_life *life = life_of(b, l->ended[k]);
    life->request = life->end;
    life->pending_before = false;
    l->freed[k] = l->ended[k];
  }
  l->freed_count = l->ended_count;
  l->single_frees = true;
}

/* ---- the last state ---- */

/* `seen` marks what the last state confirms; a life seen twice is two blocks at one address. */
static bool hold_block(builder *b, const hr_segment *segment, const hr_block *block) {
  slot *at = find(b, block->address);
  uint64_t index = at->index, requested = block->requested_size <= block->size ? block->requested_size : block->size;
  hri_life *life;
  if (absurd(block->address, block->size) || (index != HRI_NEVER && life_of(b, index)->seen))
    return b->l->odd_count++, true;
  if (index == HRI_NEVER) {
    hri_life from_block = {HRI_NEVER,
                           HRI_NEVER,
                           HRI_NEVER,
                           block->address,
                           requested,
                           block->size,
                           block->stack,
                           segment->pool,
                           segment->stream,
                           block->category,
                           block->state == HR_BLOCK_PENDING_FREE,
                           true};
    index = b->before.count | BEFORE;
    return hri_array_push(&b->before, from_block) && open_address(b, block->address, index);
  }
  life = life_of(b, index);
  life->seen = true;
  life->block_size = block->size;
  if (life->size > block->size) life->size = requested, b->l->odd_count++;
  if (!life->stack) life->stack = block->stack;
  if (!life->category) life->category = block->category;
  if (!life->pool) life->pool = segment->pool;
  return true;
}

static bool hold_state(builder *b) {
  const hr_snapshot *s = b->l->snapshot;
  /* A profiler's one segment spans all addresses that it saw: nobody reserved that. */
  bool reserved = strcmp(s->format, "pytorch-profiler") != 0;
  for (uint64_t k = 0; k < s->segment_count; k++) {
    const hr_segment *segment = &s->segments[k];
    if (segment->device != b->l->device) continue;
    if (reserved) b->l->has_state = true, b->l->start_reserved_bytes += segment->total_size;
    for (uint64_t n = 0; n < segment->block_count; n++) {
      const hr_block *block = &s->blocks[segment->first_block + n];
      if (block->state != HR_BLOCK_INACTIVE && !hold_block(b, segment, block)) return false;
    }
  }
  return true;
}

/* Open lives that the last state does not hold end with the last event. */
static void close_unseen(builder *b) {
  uint64_t last = b->l->event_count - 1;
  for (uint64_t k = 0; k <= b->mask; k++) {
    if (b->slots[k].index == HRI_NEVER || life_of(b, b->slots[k].index)->seen) continue;
    b->l->odd_count++;
    end_life(b, b->slots[k].index, last);
  }
}

/* ---- order ---- */

typedef struct placed {
  hri_life life;
  uint64_t was;
} placed;

static int placed_order(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->life.addr != y->life.addr) return x->life.addr < y->life.addr ? -1 : 1;
  return x->was < y->was ? -1 : 1;
}

/* Puts those from before in front, by address, and renumbers what refers to them. */
static bool join(builder *b) {
  hri_lives *l = b->l;
  uint64_t count = b->before.count, *now = hri_alloc_zero(count + 1, sizeof *now);
  placed *rows = hri_alloc_zero(count + 1, sizeof *rows);
  hri_life *all = now && rows ? hri_realloc(l->lives, (size_t)(count + b->made + 1) * sizeof *all) : NULL;
  if (all) {
    l->lives = all;
    memmove(all + count, all, (size_t)b->made * sizeof *all);
    for (uint64_t k = 0; k < count; k++) rows[k] = (placed){b->before.items[k], k};
    qsort(rows, (size_t)count, sizeof *rows, placed_order);
    for (uint64_t k = 0; k < count; k++) all[k] = rows[k].life, now[rows[k].was] = k;
    for (uint64_t k = 0; k < l->ended_count; k++)
      l->ended[k] = l->ended[k] & BEFORE ? now[l->ended[k] & ~BEFORE] : l->ended[k] + count;
    for (uint64_t k = 0; k < l->freed_count; k++)
      l->freed[k] = l->freed[k] & BEFORE ? now[l->freed[k] & ~BEFORE] : l->freed[k] + count;
    l->before_count = count;
    l->count = count + b->made;
  }
  hri_free(rows);
  hri_free(now);
  return all != NULL;
}

/* ---- levels ---- */

/* What an event adds to the reserved bytes; 0 for others and for damaged ones. */
static int64_t reserved_change(const hr_trace_event *e) {
  if (e->action < HR_TRACE_SEGMENT_ALLOC || e->action > HR_TRACE_SEGMENT_UNMAP || absurd(e->addr, e->size)) return 0;
  return e->action == HR_TRACE_SEGMENT_ALLOC || e->action == HR_TRACE_SEGMENT_MAP ? (int64_t)e->size
                                                                                  : -(int64_t)e->size;
}

/* Going back from what is reserved at the end. Without a last state the least start is taken that keeps every level
 * from falling below nothing. */
__extension__ typedef __int128 wide; /* ten million damaged sizes overflow 64 bits */

static void find_start(hri_lives *l) {
  wide level = 0, lowest = 0, end = l->start_reserved_bytes;
  for (uint64_t k = 0; k < l->event_count; k++) {
    int64_t change = reserved_change(&l->events[k]);
    if (change) l->has_state = true;
    level += change;
    if (level < lowest) lowest = level;
  }
  if (end - level < -lowest) l->odd_count += end > 0;
  else lowest = level - end;
  l->start_reserved_bytes = (uint64_t)-lowest;
  for (uint64_t k = 0; k < l->before_count; k++)
    if (!l->lives[k].pending_before) l->start_live_bytes += l->lives[k].size, l->start_live_count++;
  l->began_empty = l->before_count == 0 && l->start_reserved_bytes == 0;
}

void hri_lives_walk(const hri_lives *l, void (*each)(void *context, const hri_level *level), void *context) {
  hri_level now = {0, l->start_live_bytes, l->start_reserved_bytes, l->start_live_count};
  uint64_t freed = 0, made = l->before_count;
  for (uint64_t k = 0; k < l->event_count; k++) {
    now.event = k;
    now.reserved_bytes += (uint64_t)reserved_change(&l->events[k]);
    for (; freed < l->freed_count && l->lives[l->freed[freed]].request == k; freed++) {
      const hri_life *life = &l->lives[l->freed[freed]];
      if (life->alloc != k) now.live_bytes -= life->size, now.live_count--;
    }
    if (made < l->count && l->lives[made].alloc == k) {
      if (l->lives[made].request != k) now.live_bytes += l->lives[made].size, now.live_count++;
      made++;
    }
    each(context, &now);
  }
}

static void keep_peaks(void *context, const hri_level *level) {
  hri_lives *l = context;
  if (level->live_bytes > l->peak_live_bytes) l->peak_live_bytes = level->live_bytes, l->peak_event = level->event;
  if (level->reserved_bytes > l->peak_reserved_bytes)
    l->peak_reserved_bytes = level->reserved_bytes, l->peak_reserved_event = level->event;
}

/* ---- the whole ---- */

static int32_t device_of(const hr_snapshot *s, uint32_t trace) {
  uint64_t best = 0, run = 0;
  int32_t device = 0;
  if (trace < s->trace_count) return s->traces[trace].device;
  for (uint64_t k = 0; k < s->segment_count; k++) { /* segments are sorted by device */
    run = k && s->segments[k].device == s->segments[k - 1].device ? run + 1 : 1;
    if (run > best) best = run, device = s->segments[k].device;
  }
  return device;
}

uint32_t hri_failed_trace(const hr_snapshot *snapshot) {
  uint32_t best = HR_TRACE_MOST;
  for (uint32_t t = 0; t < snapshot->trace_count; t++) {
    const hr_trace *trace = &snapshot->traces[t];
    uint64_t k = 0;
    if (best != HR_TRACE_MOST && trace->count <= snapshot->traces[best].count) continue;
    while (k < trace->count && snapshot->events[trace->first + k].action != HR_TRACE_OOM) k++;
    if (k < trace->count) best = t;
  }
  return best;
}

static bool build(builder *b) {
  hri_lives *l = b->l;
  uint64_t allocs = 0;
  for (uint64_t k = 0; k < l->event_count; k++) allocs += l->events[k].action == HR_TRACE_ALLOC;
  l->lives = hri_alloc((size_t)(allocs + 1) * sizeof *l->lives);
  /* Every life that ends was begun by an alloc, or first heard of by a free: at most one for each event. */
  l->ended = hri_alloc((size_t)(l->event_count + 1) * sizeof *l->ended);
  l->freed = hri_alloc((size_t)(l->event_count + 1) * sizeof *l->freed);
  if (!l->lives || !l->ended || !l->freed || !widen(b)) return false;
  l->single_frees = b->requests_only = lacks_completed(l);
  if (!read_events(b)) return false;
  request_when_completed(b);
  if (!hold_state(b)) return false;
  if (l->has_state && l->event_count) close_unseen(b);
  return join(b);
}

hr_status hri_lives_build(const hr_snapshot *snapshot, uint32_t trace, hri_lives **lives, hr_error *error) {
  builder b = {0};
  hri_lives *l = b.l = hri_alloc_zero(1, sizeof *l);
  bool built;
  *lives = NULL;
  if (!l) return hri_fail_memory(error, sizeof *l, "the lives of a trace");
  l->snapshot = snapshot;
  l->trace = trace;
  l->device = device_of(snapshot, trace);
  if (trace < snapshot->trace_count) {
    l->events = snapshot->events + snapshot->traces[trace].first;
    l->event_count = snapshot->traces[trace].count;
  }
  hri_recorded_settings(snapshot, l->events, l->event_count, &l->config);
  built = build(&b);
  hri_free(b.slots);
  hri_array_free(&b.before);
  if (!built) {
    hri_lives_destroy(l);
    return hri_fail_memory(error, snapshot->event_count * sizeof(hri_life), "the lives of a trace");
  }
  find_start(l);
  l->peak_event = l->peak_reserved_event = HRI_NEVER;
  l->peak_live_bytes = l->start_live_bytes;
  l->peak_reserved_bytes = l->start_reserved_bytes;
  hri_lives_walk(l, keep_peaks, l);
  *lives = l;
  return HR_OK;
}

void hri_lives_destroy(hri_lives *l) {
  if (!l) return;
  hri_free(l->lives);
  hri_free(l->ended);
  hri_free(l->freed);
  hri_free(l);
}

hr_status hri_lives_at(const hri_lives *l, uint64_t event, uint64_t **indexes, uint64_t *count, hr_error *error) {
  uint64_t found = 0;
  for (uint64_t k = 0; k < l->count; k++) found += hri_life_at(&l->lives[k], event);
  *count = 0;
  *indexes = hri_alloc((size_t)(found + 1) * sizeof **indexes);
  if (!*indexes) return hri_fail_memory(error, (found + 1) * sizeof **indexes, "the live set");
  for (uint64_t k = 0; k < l->count; k++)
    if (hri_life_at(&l->lives[k], event)) (*indexes)[(*count)++] = k;
  return HR_OK;
}
