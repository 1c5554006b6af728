/* Where the reserved bytes are, and whether a request would fit: sums over one state's segments and blocks. */
#include "inspect/inside.h"
#include "inspect/shortage.h"

#include <stdlib.h>

#include "alloc/sizes.h"

#define MIB ((uint64_t)1 << 20)

/* The whole chunks of an expandable segment that a free block covers; a mapped range begins at a chunk's boundary. */
static uint64_t chunks_in(const hri_lives *lives, const hr_segment *g, const hr_block *b) {
  const uint64_t chunk = hri_alloc_chunk_bytes(&lives->config, !g->large);
  const uint64_t from = (b->address - g->address + chunk - 1) / chunk, to = (b->address + b->size - g->address) / chunk;
  return b->state == HR_BLOCK_INACTIVE && to > from ? (to - from) * chunk : 0;
}

/* Bytes that empty_cache would return from a segment: all of it when nothing in it is live, of expandable ones the free
 * chunks. */
static uint64_t returnable(const hri_lives *lives, const hri_state *state, const hr_segment *g) {
  uint64_t sum = 0;
  if (g->active_size == 0) return g->total_size;
  for (uint64_t k = g->first_block; g->expandable && k < g->first_block + g->block_count; k++)
    sum += chunks_in(lives, g, &state->blocks[k]);
  return sum;
}

void hri_memory_sums(const hri_lives *lives, const hri_state *state, uint64_t event, hr_memory_sums *sums) {
  *sums = (hr_memory_sums){0};
  if (!lives->has_state) {
    for (uint64_t k = 0; k < lives->count; k++)
      if (hri_life_at(&lives->lives[k], event) && !hri_life_pending_at(&lives->lives[k], event))
        sums->requested_bytes += lives->lives[k].size, sums->live_count++;
    sums->reserved_bytes = sums->requested_bytes;
    return;
  }
  for (uint64_t k = 0; k < state->segment_count; k++) {
    const hr_segment *g = &state->segments[k];
    uint64_t back = returnable(lives, state, g), free_bytes = g->total_size - g->active_size;
    sums->reserved_bytes += g->total_size;
    sums->segment_count++;
    sums->free_returnable_bytes += back;
    sums->free_pinned_bytes += free_bytes - back;
    if (g->pool) sums->private_pool_bytes += g->total_size, sums->private_pool_free_bytes += free_bytes;
    for (uint64_t n = g->first_block; n < g->first_block + g->block_count; n++) {
      const hr_block *b = &state->blocks[n];
      if (b->state == HR_BLOCK_PENDING_FREE) sums->pending_bytes += b->size;
      if (b->state == HR_BLOCK_INACTIVE && !g->pool && b->size > sums->largest_free_bytes)
        sums->largest_free_bytes = b->size;
      if (b->state != HR_BLOCK_ALLOCATED) continue;
      sums->requested_bytes += b->requested_size;
      sums->rounding_bytes += b->size - b->requested_size;
      sums->live_count++;
    }
  }
}

const char *hr_memory_part_name(hr_memory_part part) {
  static const char *const names[HR_PART_COUNT] = {"live tensors", "rounding of their blocks",
                                                   "freed, waiting for other streams",
                                                   "cached, in segments that hold live blocks",
                                                   "cached, in wholly free segments"};
  return (unsigned)part < HR_PART_COUNT ? names[part] : "unknown";
}

uint64_t hr_memory_part_bytes(const hr_memory_sums *sums, hr_memory_part part) {
  switch (part) {
  case HR_PART_LIVE: return sums->requested_bytes;
  case HR_PART_ROUNDING: return sums->rounding_bytes;
  case HR_PART_PENDING: return sums->pending_bytes;
  case HR_PART_FREE_PINNED: return sums->free_pinned_bytes;
  case HR_PART_FREE_RETURNABLE: return sums->free_returnable_bytes;
  default: return 0;
  }
}

/* ---- would it fit ---- */

static int pinned_order(const void *a, const void *b) {
  const hr_pinned_segment *x = a, *y = b;
  if (x->free_bytes != y->free_bytes) return x->free_bytes > y->free_bytes ? -1 : 1;
  return (x->address > y->address) - (x->address < y->address);
}

static hr_pinned_segment pin(const hri_inside *in, const hr_segment *g) {
  hr_pinned_segment p = {.address = g->address,
                         .total_bytes = g->total_size,
                         .free_bytes = g->total_size - g->active_size,
                         .live_bytes = g->active_size};
  uint64_t largest = 0;
  for (uint64_t k = g->first_block; k < g->first_block + g->block_count; k++) {
    const hr_block *b = &in->state.blocks[k];
    if (b->state == HR_BLOCK_INACTIVE) {
      if (b->size > p.largest_free_bytes) p.largest_free_bytes = b->size;
      continue;
    }
    p.live_count++;
    if (b->size <= largest) continue;
    largest = b->size;
    p.stack = b->stack;
    p.category = in->public.life_category[in->state.block_lives[k]];
  }
  return p;
}

enum { MAX_PINNED = 64 };

static hr_status list_pinned(hri_inside *in, hr_fragmentation *f, hr_error *error) {
  uint64_t count = 0;
  hr_pinned_segment *all = hri_alloc((size_t)(in->state.segment_count + 1) * sizeof *all);
  if (!all) return hri_fail_memory(error, in->state.segment_count * sizeof *all, "the pinned segments");
  for (uint64_t k = 0; k < in->state.segment_count; k++) {
    const hr_segment *g = &in->state.segments[k];
    if (g->active_size && g->active_size < g->total_size) all[count++] = pin(in, g);
  }
  qsort(all, (size_t)count, sizeof *all, pinned_order);
  f->pinned = all;
  f->pinned_count = (uint32_t)(count < MAX_PINNED ? count : MAX_PINNED);
  return HR_OK;
}

/* The free memory that a request of this size, stream and pool could be given as things stand. */
static void search_pool(const hri_inside *in, const hr_trace_event *oom, hr_fragmentation *f) {
  bool large = f->request_bytes > MIB;
  for (uint64_t k = 0; k < in->state.segment_count; k++) {
    const hr_segment *g = &in->state.segments[k];
    if (g->large != large || g->stream != oom->stream || g->pool != oom->pool) continue;
    for (uint64_t n = g->first_block; n < g->first_block + g->block_count; n++) {
      const hr_block *b = &in->state.blocks[n];
      if (b->state != HR_BLOCK_INACTIVE) continue;
      f->pool_free_bytes += b->size;
      if (b->size > f->pool_largest_free_bytes) f->pool_largest_free_bytes = b->size;
    }
  }
}

/* What the device would have to give for a request. */
typedef struct demand {
  uint64_t bytes;      /* a segment, or what an expandable one lacks: whole chunks behind the free block at its end */
  uint64_t grows_from; /* of that free block, the chunks that could be returned: they cannot do both */
} demand;

static demand demand_of(const hri_inside *in, const hr_trace_event *oom, uint64_t rounded) {
  const hr_alloc_config *config = &in->lives->config;
  bool expandable = config->expandable_segments;
  uint64_t edge = 0;
  demand d = {0};
  for (uint64_t k = 0; k < in->state.segment_count; k++) {
    const hr_segment *g = &in->state.segments[k];
    const hr_block *last;
    if (!g->expandable || g->large != (rounded > MIB) || g->stream != oom->stream || g->pool != oom->pool ||
        !g->block_count)
      continue;
    expandable = true;
    last = &in->state.blocks[g->first_block + g->block_count - 1];
    if (last->state != HR_BLOCK_INACTIVE || last->size <= edge) continue;
    edge = last->size;
    d.grows_from = g->pool == 0 ? chunks_in(in->lives, g, last) : 0;
  }
  if (!expandable) d.bytes = hri_alloc_segment_bytes(config, rounded);
  else d.bytes = hri_round_up(rounded - (edge < rounded ? edge : 0), hri_alloc_chunk_bytes(config, rounded <= MIB));
  return d;
}

hr_status hri_fragmentation_find(hri_inside *in, const hr_oom_event *oom, hr_error *error) {
  hr_inspection *p = &in->public;
  hr_fragmentation *f = &p->fragmentation;
  demand asked;
  uint64_t free_bytes = p->at.free_returnable_bytes + p->at.free_pinned_bytes - p->at.private_pool_free_bytes;
  uint64_t back = 0;
  HRI_TRY(list_pinned(in, f, error));
  if (!oom) return HR_OK;
  f->request_bytes = oom->size;
  f->device_free_known = true;
  f->device_free_bytes = oom->device_free_bytes;
  search_pool(in, &in->lives->events[oom->event], f);
  asked = demand_of(in, &in->lives->events[oom->event], oom->size);
  f->segment_bytes = asked.bytes;
  for (uint64_t k = 0; k < in->state.segment_count; k++)
    if (!in->state.segments[k].pool) back += returnable(in->lives, &in->state, &in->state.segments[k]);
  f->returnable_bytes = back - asked.grows_from;
  f->in_private_pool = in->lives->events[oom->event].pool != 0;
  if (f->in_private_pool) free_bytes = f->pool_free_bytes;
  f->fits_block = f->pool_largest_free_bytes >= f->request_bytes;
  f->fits_contiguous = f->pool_free_bytes >= f->request_bytes;
  f->fits_after_return =
      f->device_free_bytes >= asked.bytes || f->returnable_bytes >= asked.bytes - f->device_free_bytes;
  f->fits_compacted = f->device_free_bytes >= f->request_bytes || free_bytes >= f->request_bytes - f->device_free_bytes;
  return HR_OK;
}
