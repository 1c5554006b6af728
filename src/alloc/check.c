/* Everything about an allocator that can be checked from its structures alone: tiling, links, free sets, the table,
 * queues, and every current statistic against a recount. */
#include "alloc/alloc.h"

#include <stdlib.h>

typedef struct recount {
  int64_t allocation, segment, active, inactive_split, allocated_bytes, reserved_bytes, active_bytes,
      inactive_split_bytes, requested_bytes;
} recount;

typedef struct check {
  const hr_alloc *alloc;
  hr_error *error;
  recount count[HR_ALLOC_POOL_KINDS]; /* [HR_ALLOC_ALL] is summed up at the end */
  int64_t oversize_allocations, oversize_segments;
  uint64_t free_count, unmapped_count, active_count, event_count;
  HRI_ARRAY(const hri_block *) first; /* of every segment */
} check;

static hr_status wrong(const check *c, const hri_block *b, const char *what) {
  return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: the block at 0x%llx of %llu bytes %s",
                  (unsigned long long)b->address, (unsigned long long)b->size, what);
}

/* ---- one segment ---- */

static hr_status check_links(const check *c, const hri_block *b) {
  const hri_block *n = b->next;
  if (b->size == 0 || b->size % HRI_ALLOC_UNIT != 0 || b->address % HRI_ALLOC_UNIT != 0)
    return wrong(c, b, "is no multiple of 512");
  if (!b->mapped && (b->expandable == NULL || hri_block_active(b))) return wrong(c, b, "has no memory and should");
  if (n == NULL) return HR_OK;
  if (!n->in_use || n->prev != b) return wrong(c, b, "is not linked back by its neighbour");
  if (n->address != b->address + b->size) return wrong(c, b, "does not reach its neighbour");
  if (n->set != b->set || n->expandable != b->expandable)
    return wrong(c, b, "has a neighbour of another pool, stream or segment");
  if (!hri_block_active(b) && !hri_block_active(n) && b->mapped == n->mapped)
    return wrong(c, b, "is free like its neighbour and not merged");
  return HR_OK;
}

static hr_status count_block(check *c, const hri_block *b) {
  recount *r = &c->count[b->set->half->small ? HR_ALLOC_SMALL : HR_ALLOC_LARGE];
  if (!b->mapped) {
    c->unmapped_count++;
    return HR_OK;
  }
  r->reserved_bytes += (int64_t)b->size;
  c->event_count += b->event_count;
  if (hri_block_active(b)) {
    c->active_count++;
    r->active++;
    r->active_bytes += (int64_t)b->size;
    r->requested_bytes += (int64_t)b->requested;
    if (hri_alloc_find(c->alloc, b->address) != b) return wrong(c, b, "is not found by its address");
  } else {
    c->free_count++;
    if (b->expandable == NULL && hri_block_split(b)) {
      r->inactive_split++;
      r->inactive_split_bytes += (int64_t)b->size;
    }
  }
  if (!b->allocated) return HR_OK;
  r->allocation++;
  r->allocated_bytes += (int64_t)b->size;
  c->oversize_allocations += b->size >= c->alloc->config.max_split_bytes;
  return HR_OK;
}

static hr_status check_segment(check *c, const hri_block *first) {
  uint64_t bytes = 0;
  for (const hri_block *b = first; b != NULL; b = b->next) {
    HRI_TRY(check_links(c, b));
    HRI_TRY(count_block(c, b));
    bytes += b->size;
  }
  if (first->expandable != NULL)
    return first->expandable->address == first->address && first->expandable->size == bytes
               ? HR_OK
               : wrong(c, first, "does not begin its segment");
  c->count[first->set->half->small ? HR_ALLOC_SMALL : HR_ALLOC_LARGE].segment++;
  c->oversize_segments += bytes >= c->alloc->config.max_split_bytes;
  return HR_OK;
}

static int by_address(const void *a, const void *b) {
  const hri_block *x = *(const hri_block *const *)a, *y = *(const hri_block *const *)b;
  return x->address < y->address ? -1 : x->address > y->address;
}

static hr_status check_segments(check *c) {
  uint64_t cursor = 0;
  for (const hri_block *b; (b = hri_alloc_each_block(c->alloc, &cursor)) != NULL;) {
    if (b->prev != NULL) continue;
    if (!hri_array_push(&c->first, b)) return hri_fail_memory(c->error, sizeof b, "a check of the allocator");
    HRI_TRY(check_segment(c, b));
  }
  if (c->first.count > 0) qsort(c->first.items, c->first.count, sizeof *c->first.items, by_address);
  for (size_t i = 1; i < c->first.count; i++) {
    const hri_block *last = c->first.items[i - 1];
    while (last->next != NULL) last = last->next;
    if (last->address + last->size > c->first.items[i]->address)
      return wrong(c, c->first.items[i], "overlaps the segment before");
  }
  return HR_OK;
}

/* ---- free sets, table, queues ---- */

static bool comes_before(const hri_block *a, const hri_block *b) {
  if (a->size != b->size) return a->size < b->size;
  if (a->order != b->order) return a->order < b->order;
  return a->address < b->address;
}

/* Blocks, marks and the summary of marks agree. Before anything searches the set: a search follows marks. */
static hr_status check_marks(const check *c, const hri_free_set *set) {
  for (uint64_t bin = 0; bin < HRI_BIN_COUNT; bin++) {
    const bool any = set->bins[bin] != NULL, bit = (set->words[bin / 64] >> bin % 64 & 1) != 0;
    if (any && !bit) return wrong(c, set->bins[bin], "is in a bin without a mark");
    if (bit && !any)
      return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: bin %llu of a free set has a mark and no block",
                      (unsigned long long)bin);
  }
  for (uint64_t word = 0; word < HRI_BIN_WORDS; word++)
    if ((set->words[word] != 0) != (set->summary >> word & 1))
      return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: the summary of a free set is wrong about word %llu",
                      (unsigned long long)word);
  return HR_OK;
}

static hr_status check_set(check *c, hri_free_set *set) {
  const hri_block *before = NULL;
  HRI_TRY(check_marks(c, set));
  for (const hri_block *b = hri_free_set_first(set, 0); b != NULL; before = b, b = hri_free_set_next(b)) {
    if (!b->in_use || b->set != set || !b->mapped || hri_block_active(b))
      return wrong(c, b, "is in a free set and not free");
    if (before != NULL && !comes_before(before, b)) return wrong(c, b, "is out of order in its free set");
    if (before != NULL && hri_free_set_previous(b) != before)
      return wrong(c, b, "has another one before it in its free set");
    c->free_count--;
  }
  for (const hri_block *b = hri_unmapped_at_least(set, 0); b != NULL; b = hri_unmapped_at_least(set, b->address + 1)) {
    if (!b->in_use || b->set != set || b->mapped) return wrong(c, b, "is in the set of unmapped ones");
    c->unmapped_count--;
  }
  return HR_OK;
}

static hr_status check_half(check *c, const hri_alloc_half *half) {
  for (size_t i = 0; i < half->sets.count; i++) {
    if (i > 0 && half->sets.items[i - 1]->stream >= half->sets.items[i]->stream)
      return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: the streams of a pool are out of order");
    HRI_TRY(check_set(c, half->sets.items[i]));
  }
  return HR_OK;
}

static hr_status check_events(check *c) {
  const hri_stream_queue *before = NULL;
  for (const hri_stream_queue *q = c->alloc->busy_first; q != NULL; before = q, q = q->next) {
    if (q->first == NULL || q->prev != before)
      return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: the queues of events are not linked");
    for (const hri_stream_use *e = q->first; e != NULL; e = e->next) {
      if (e->stream != q->stream || !e->block->in_use || e->block->allocated)
        return wrong(c, e->block, "has an event and should not");
      c->event_count--;
    }
  }
  return c->event_count == 0 && c->alloc->busy_last == before
             ? HR_OK
             : hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: blocks wait for events that are in no queue");
}

/* ---- statistics ---- */

static hr_status compare(const check *c, const char *name, int kind, int64_t have, int64_t counted) {
  if (have == counted) return HR_OK;
  return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: statistic %s of kind %d is %lld, a recount gives %lld", name,
                  kind, (long long)have, (long long)counted);
}

static hr_status check_stats(const check *c) {
  hr_alloc_stats stats;
  const hr_alloc_stats *s = &stats;
  hr_alloc_get_stats(c->alloc, &stats);
  for (int k = 0; k < HR_ALLOC_POOL_KINDS; k++) {
    const recount *r = &c->count[k];
    HRI_TRY(compare(c, "allocation", k, s->allocation[k].current, r->allocation));
    HRI_TRY(compare(c, "segment", k, s->segment[k].current, r->segment));
    HRI_TRY(compare(c, "active", k, s->active[k].current, r->active));
    HRI_TRY(compare(c, "inactive_split", k, s->inactive_split[k].current, r->inactive_split));
    HRI_TRY(compare(c, "allocated_bytes", k, s->allocated_bytes[k].current, r->allocated_bytes));
    HRI_TRY(compare(c, "reserved_bytes", k, s->reserved_bytes[k].current, r->reserved_bytes));
    HRI_TRY(compare(c, "active_bytes", k, s->active_bytes[k].current, r->active_bytes));
    HRI_TRY(compare(c, "inactive_split_bytes", k, s->inactive_split_bytes[k].current, r->inactive_split_bytes));
    HRI_TRY(compare(c, "requested_bytes", k, s->requested_bytes[k].current, r->requested_bytes));
  }
  HRI_TRY(compare(c, "reserved in all", 0, (int64_t)c->alloc->reserved_bytes, c->count[HR_ALLOC_ALL].reserved_bytes));
  if (c->alloc->split_limit_changed) return HR_OK;
  HRI_TRY(compare(c, "oversize_allocations", 0, s->oversize_allocations.current, c->oversize_allocations));
  return compare(c, "oversize_segments", 0, s->oversize_segments.current, c->oversize_segments);
}

static void sum_up(check *c) {
  int64_t *all = (int64_t *)&c->count[HR_ALLOC_ALL];
  const int64_t *small = (const int64_t *)&c->count[HR_ALLOC_SMALL],
                *large = (const int64_t *)&c->count[HR_ALLOC_LARGE];
  for (size_t i = 0; i < sizeof(recount) / sizeof(int64_t); i++) all[i] = small[i] + large[i];
}

static hr_status check_all(check *c) {
  HRI_TRY(check_segments(c));
  if (c->active_count != c->alloc->table_count)
    return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: the address table has blocks that are not active");
  for (size_t i = 0; i < c->alloc->pools.count; i++) {
    HRI_TRY(check_half(c, &c->alloc->pools.items[i]->small));
    HRI_TRY(check_half(c, &c->alloc->pools.items[i]->large));
  }
  if (c->free_count != 0 || c->unmapped_count != 0)
    return hri_fail(c->error, HR_ERROR_INTERNAL, "allocator: free blocks are missing in the free sets");
  HRI_TRY(check_events(c));
  sum_up(c);
  return check_stats(c);
}

hr_status hr_alloc_check(const hr_alloc *alloc, hr_error *error) {
  check c = {.alloc = alloc, .error = error};
  const hr_status status = check_all(&c);
  hri_array_free(&c.first);
  return status;
}
