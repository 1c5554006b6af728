/* Takes over a recorded state.
 *
 * A snapshot shows a plain segment whole, but of an expandable one only its mapped ranges: neither its address space
 * nor that ranges belong together. Ranges of the same pool, size class and stream that follow one another are taken for
 * parts of one segment as long as its address space (1 1/8 of the device) can hold them; it begins at the first and
 * ends before whatever is recorded above. So requests continue in it as they did where it was recorded, unless its
 * beginning was unmapped then.
 *
 * First everything is checked and the places are planned, then the hooks adopt them, then the blocks are made: what
 * fails before the last step leaves no trace, and what fails in it (host memory) is taken back as a whole. */
#include "alloc/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A plain segment, or an expandable one with its mapped ranges: sorted[first .. first + count). */
typedef struct place {
  uint64_t first, count;
  uint64_t address, size, chunk_bytes; /* chunk 0: plain */
} place;

typedef struct import {
  hr_alloc *alloc;
  const hr_segment **sorted; /* by address */
  uint64_t count;
  const hr_block *blocks;
  uint64_t block_count;
  hri_alloc_pool **pools; /* of the recorded ones */
  HRI_ARRAY(place) places;
} import;

/* ---- checks ---- */

static int by_address(const void *a, const void *b) {
  const hr_segment *x = *(const hr_segment *const *)a, *y = *(const hr_segment *const *)b;
  return x->address < y->address ? -1 : x->address > y->address;
}

static hr_status refuse(const hr_segment *s, const char *what, hr_error *error) {
  return hri_fail(error, HR_ERROR_INPUT, "segment at 0x%llx of %llu bytes: %s", (unsigned long long)s->address,
                  (unsigned long long)s->total_size, what);
}

static hr_status check_segment(const import *im, const hr_segment *s, uint32_t pool_count, hr_error *error) {
  uint64_t end, at = s->address;
  if (s->address == 0 || s->total_size == 0 || s->address % HRI_ALLOC_UNIT != 0 || s->total_size % HRI_ALLOC_UNIT != 0)
    return refuse(s, "address and size must be multiples of 512 above 0", error);
  if (!hri_add(s->address, s->total_size, &end) || s->total_size > HRI_ALLOC_REQUEST_LIMIT)
    return refuse(s, "it reaches beyond the address space", error);
  if (s->pool >= pool_count && s->pool != 0) return refuse(s, "its pool is not listed", error);
  if (s->first_block > im->block_count || s->block_count > im->block_count - s->first_block)
    return refuse(s, "its blocks are not listed", error);
  for (uint64_t i = 0; i < s->block_count; i++) {
    const hr_block *b = &im->blocks[s->first_block + i];
    if (b->address != at || b->size == 0 || b->size % HRI_ALLOC_UNIT != 0 || b->size > end - at)
      return refuse(s, "its blocks do not tile it", error);
    at += b->size;
  }
  return at == end ? HR_OK : refuse(s, "its blocks do not tile it", error);
}

static hr_status sort_and_check(import *im, const hr_segment *segments, uint32_t pool_count, hr_error *error) {
  im->sorted = hri_alloc(im->count * sizeof *im->sorted);
  if (im->sorted == NULL) return hri_fail_memory(error, im->count * sizeof *im->sorted, "the list of segments");
  for (uint64_t i = 0; i < im->count; i++) {
    HRI_TRY(check_segment(im, &segments[i], pool_count, error));
    im->sorted[i] = &segments[i];
  }
  if (im->count > 0) qsort(im->sorted, im->count, sizeof *im->sorted, by_address);
  for (uint64_t i = 1; i < im->count; i++)
    if (im->sorted[i]->address - im->sorted[i - 1]->address < im->sorted[i - 1]->total_size)
      return refuse(im->sorted[i], "it overlaps the segment before", error);
  return HR_OK;
}

/* ---- places ---- */

static bool belongs(const place *p, const hr_segment *first, const hr_segment *s) {
  return s->expandable && s->pool == first->pool && s->large == first->large && s->stream == first->stream &&
         (s->address - p->address) % p->chunk_bytes == 0 && s->total_size % p->chunk_bytes == 0 &&
         s->address - p->address <= p->size && s->total_size <= p->size - (s->address - p->address);
}

static hr_status plan_expandable(import *im, place *p, hr_error *error) {
  const hr_segment *first = im->sorted[p->first], *last = first;
  const hr_alloc *alloc = im->alloc;
  uint64_t free_bytes = 0, total = 0, above = UINT64_MAX;
  if (alloc->hooks.device_memory != NULL) alloc->hooks.device_memory(alloc->hooks.context, &free_bytes, &total);
  p->chunk_bytes = hri_alloc_chunk_bytes(&alloc->config, !first->large);
  if (first->total_size % p->chunk_bytes != 0)
    p->chunk_bytes = HRI_ALLOC_SMALL_SEGMENT; /* recorded with other chunks */
  if (first->total_size % p->chunk_bytes != 0)
    return refuse(first, "an expandable one must be a multiple of 2 MiB", error);
  p->size = hri_round_up(hri_expandable_space(&alloc->config, total), p->chunk_bytes);
  if (p->size < first->total_size) p->size = first->total_size;
  while (p->first + p->count < im->count && belongs(p, first, im->sorted[p->first + p->count]))
    last = im->sorted[p->first + p->count++];
  if (p->first + p->count < im->count) above = im->sorted[p->first + p->count]->address;
  if (p->size > above - p->address) p->size = (above - p->address) / p->chunk_bytes * p->chunk_bytes;
  if (p->size < last->address + last->total_size - p->address) p->size = last->address + last->total_size - p->address;
  return HR_OK;
}

static hr_status plan(import *im, hr_error *error) {
  for (uint64_t i = 0; i < im->count;) {
    const hr_segment *s = im->sorted[i];
    place p = {.first = i, .count = 1, .address = s->address, .size = s->total_size};
    if (s->expandable) HRI_TRY(plan_expandable(im, &p, error));
    if (!hri_array_push(&im->places, p)) return hri_fail_memory(error, sizeof p, "the places of segments");
    i += p.count;
  }
  return HR_OK;
}

/* ---- the hooks' part ---- */

static void give_back(const import *im, const place *p, uint64_t mapped) {
  const hr_alloc_hooks *hooks = &im->alloc->hooks;
  if (p->chunk_bytes == 0) {
    hooks->release(hooks->context, p->address, p->size);
    return;
  }
  for (uint64_t i = 0; i < mapped; i++) {
    const hr_segment *s = im->sorted[p->first + i];
    hooks->unmap(hooks->context, s->address, s->total_size);
  }
  hooks->release_range(hooks->context, p->address, p->size);
}

static bool adopt(const import *im, const place *p) {
  const hr_alloc_hooks *hooks = &im->alloc->hooks;
  if (p->chunk_bytes == 0) return hooks->adopt(hooks->context, HR_ALLOC_ADOPT_SEGMENT, p->address, p->size);
  if (!hooks->adopt(hooks->context, HR_ALLOC_ADOPT_RANGE, p->address, p->size)) return false;
  for (uint64_t i = 0; i < p->count; i++) {
    const hr_segment *s = im->sorted[p->first + i];
    if (hooks->adopt(hooks->context, HR_ALLOC_ADOPT_MAP, s->address, s->total_size)) continue;
    give_back(im, p, i);
    return false;
  }
  return true;
}

static hr_status adopt_all(const import *im, hr_error *error) {
  for (size_t i = 0; i < im->places.count; i++) {
    if (adopt(im, &im->places.items[i])) continue;
    const hr_status status = refuse(im->sorted[im->places.items[i].first], "its place is taken already", error);
    while (i-- > 0) give_back(im, &im->places.items[i], im->places.items[i].count);
    return status;
  }
  return HR_OK;
}

/* ---- blocks ---- */

/* Segments are numbered by address: in which order they were taken is not recorded. */
static void link_after(hr_alloc *alloc, hri_block *block, hri_block *last) {
  block->prev = last;
  if (last == NULL) {
    hri_block_number(alloc, block);
  } else {
    last->next = block;
    hri_block_number_as(alloc, block, last);
  }
}

static void count_block(hr_alloc *alloc, const hri_block *b, unsigned kind) {
  hri_alloc_stats *stats = &alloc->stats;
  if (!hri_block_active(b)) return;
  hri_stats_increase(&stats->active, kind, 1);
  hri_stats_increase(&stats->active_bytes, kind, b->size);
  hri_stats_increase(&stats->requested_bytes, kind, b->requested);
  if (!b->allocated) return;
  hri_stats_increase(&stats->allocation, kind, 1);
  hri_stats_increase(&stats->allocated_bytes, kind, b->size);
  if (b->size >= alloc->config.max_split_bytes) hri_stat_increase(&stats->oversize_allocations, 1);
}

/* Appends the blocks of a recorded range to *last; neighbours that are both free become one. */
static hr_status add_range(import *im, const hr_segment *s, hri_free_set *set, hri_expandable *expandable,
                           hri_block **last, hr_error *error) {
  hr_alloc *alloc = im->alloc;
  for (uint64_t i = 0; i < s->block_count; i++) {
    const hr_block *from = &im->blocks[s->first_block + i];
    const bool is_free = from->state == HR_BLOCK_INACTIVE;
    if (is_free && *last != NULL && (*last)->mapped && !hri_block_active(*last)) {
      (*last)->size += from->size;
      continue;
    }
    HRI_TRY(hri_alloc_prepare(alloc, 1, error));
    hri_block *block = hri_block_take(alloc, set, from->address, from->size);
    block->expandable = expandable;
    link_after(alloc, block, *last);
    *last = block;
    if (is_free) continue;
    block->allocated = from->state == HR_BLOCK_ALLOCATED;
    block->held = block->waits = !block->allocated;
    block->requested = from->requested_size;
    hri_alloc_insert(alloc, block);
  }
  alloc->reserved_bytes += s->total_size;
  hri_stats_increase(&alloc->stats.reserved_bytes, set->half->kind, s->total_size);
  set->half->pool->reserved_bytes += s->total_size;
  return HR_OK;
}

/* Address space without memory from the end of *last, or from the start of the place, up to `end`. */
static hr_status add_gap(hr_alloc *alloc, hri_free_set *set, hri_expandable *segment, uint64_t end, hri_block **last,
                         hr_error *error) {
  assert(*last != NULL); /* blocks tile a segment, which is not empty: check_segment */
  const uint64_t begin = (*last)->address + (*last)->size;
  if (begin == end) return HR_OK;
  HRI_TRY(hri_alloc_prepare(alloc, 1, error));
  hri_block *block = hri_block_take(alloc, set, begin, end - begin);
  block->mapped = false;
  block->expandable = segment;
  link_after(alloc, block, *last);
  *last = block;
  return HR_OK;
}

/* Free blocks go into their sets when their final size is known. */
static void finish_place(hr_alloc *alloc, hri_block *first) {
  const unsigned kind = first->set->half->kind;
  if (first->expandable == NULL) {
    uint64_t bytes = 0;
    for (const hri_block *b = first; b != NULL; b = b->next) bytes += b->size;
    hri_stats_increase(&alloc->stats.segment, kind, 1);
    if (bytes >= alloc->config.max_split_bytes) hri_stat_increase(&alloc->stats.oversize_segments, 1);
  }
  for (hri_block *b = first; b != NULL; b = b->next) {
    count_block(alloc, b, kind);
    if (!b->mapped) {
      hri_unmapped_insert(b);
    } else if (!hri_block_active(b)) {
      hri_free_set_insert(b);
      if (b->expandable != NULL || !hri_block_split(b)) continue;
      hri_stats_increase(&alloc->stats.inactive_split, kind, 1);
      hri_stats_increase(&alloc->stats.inactive_split_bytes, kind, b->size);
    }
  }
}

static hr_status add_place(import *im, const place *p, hr_error *error) {
  hr_alloc *alloc = im->alloc;
  const hr_segment *s = im->sorted[p->first];
  hri_alloc_pool *pool = s->pool == 0 ? alloc->pools.items[0] : im->pools[s->pool];
  hri_free_set *set = hri_alloc_half_set(s->large ? &pool->large : &pool->small, s->stream);
  if (set == NULL) return hri_fail_memory(error, sizeof *set, "the free blocks of a stream");
  hri_expandable *expandable = NULL;
  if (p->chunk_bytes > 0 && (expandable = hri_expandable_add(alloc, p->address, p->size, p->chunk_bytes)) == NULL)
    return hri_fail_memory(error, sizeof *expandable, "an expandable segment");
  hri_block *last = NULL;
  for (uint64_t i = 0; i < p->count; i++) {
    const hr_segment *range = im->sorted[p->first + i];
    if (last != NULL) HRI_TRY(add_gap(alloc, set, expandable, range->address, &last, error));
    HRI_TRY(add_range(im, range, set, expandable, &last, error));
  }
  if (expandable != NULL) HRI_TRY(add_gap(alloc, set, expandable, p->address + p->size, &last, error));
  assert(last != NULL); /* as in add_gap */
  while (last->prev != NULL) last = last->prev;
  finish_place(alloc, last);
  return HR_OK;
}

/* ---- all of it ---- */

static hr_status add_pools(import *im, const hr_pool *pools, uint32_t count, hr_error *error) {
  im->pools = hri_alloc_zero(count + (size_t)1, sizeof *im->pools);
  if (im->pools == NULL) return hri_fail_memory(error, count * sizeof *im->pools, "the list of pools");
  for (uint64_t i = 0; i < im->count; i++) {
    const uint32_t number = im->sorted[i]->pool;
    if (number == 0 || im->pools[number] != NULL) continue;
    im->pools[number] = hri_alloc_pool_find(im->alloc, pools[number]);
    if (im->pools[number] == NULL) HRI_TRY(hri_alloc_pool_add(im->alloc, pools[number], &im->pools[number], error));
  }
  return HR_OK;
}

static void clear_half(hri_alloc_half *half) {
  for (size_t i = 0; i < half->sets.count; i++)
    *half->sets.items[i] = (hri_free_set){.stream = half->sets.items[i]->stream, .half = half};
}

/* Back to an empty allocator, without the hooks. */
static void forget(hr_alloc *alloc) {
  uint64_t cursor = 0;
  for (hri_block *b; (b = hri_alloc_each_block(alloc, &cursor)) != NULL;) hri_block_give(alloc, b);
  while (alloc->expandables != NULL) hri_expandable_drop(alloc, alloc->expandables);
  while (alloc->pools.count > 1) hri_alloc_pool_destroy(alloc->pools.items[--alloc->pools.count]);
  clear_half(&alloc->pools.items[0]->small);
  clear_half(&alloc->pools.items[0]->large);
  alloc->pools.items[0]->reserved_bytes = 0;
  if (alloc->table != NULL) memset(alloc->table, 0, (alloc->table_mask + 1) * sizeof *alloc->table);
  alloc->table_count = alloc->reserved_bytes = 0;
  alloc->stats = (hri_alloc_stats){.max_split_size = alloc->stats.max_split_size};
}

static bool is_empty(const hr_alloc *alloc) {
  uint64_t cursor = 0;
  return alloc->pools.count == 1 && hri_alloc_each_block(alloc, &cursor) == NULL;
}

static hr_status build(import *im, const hr_pool *pools, uint32_t pool_count, hr_error *error) {
  HRI_TRY(add_pools(im, pools, pool_count, error));
  for (size_t i = 0; i < im->places.count; i++) HRI_TRY(add_place(im, &im->places.items[i], error));
  return HR_OK;
}

hr_status hr_alloc_import(hr_alloc *alloc, const hr_segment *segments, uint64_t segment_count, const hr_block *blocks,
                          uint64_t block_count, const hr_pool *pools, uint32_t pool_count, hr_error *error) {
import im = {.alloc = alloc, .count = segment_count, .blocks = blocks, .block_count = block_count };
  hr_status status = HR_OK;
  if (!is_empty(alloc))
    return hri_fail(error, HR_ERROR_USAGE, "allocator: a recorded state goes into an empty one only");
  if (alloc->hooks.adopt == NULL)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: these hooks cannot take over recorded addresses");
  HRI_TRY_OUT(sort_and_check(&im, segments, pool_count, error));
  HRI_TRY_OUT(plan(&im, error));
  HRI_TRY_OUT(adopt_all(&im, error));
  status = build(&im, pools, pool_count, error);
  if (status != HR_OK) {
    for (size_t i = 0; i < im.places.count; i++) give_back(&im, &im.places.items[i], im.places.items[i].count);
    forget(alloc);
  } else if (alloc->history != NULL) {
    hri_history_renew(alloc);
  }
out:
  hri_free(im.sorted);
  hri_free(im.pools);
  hri_array_free(&im.places);
  return status;
}
