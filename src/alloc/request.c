/* A request: rounding, the pool, the search, the split, and the order of attempts when nothing in the cache fits. */
#include "alloc/alloc.h"
#include "base/text.h"

typedef struct request {
  uint64_t bytes, size;   /* as asked; rounded */
  uint64_t segment_bytes; /* what a new segment for it would take; set when the cache has nothing */
  hri_free_set *set;
  hri_block *block; /* out of its free set; NULL: none yet */
} request;

/* ---- sizes ---- */

static uint64_t round_to_division(uint64_t size, uint64_t divisions) {
  if ((size & (size - 1)) == 0) return size;
  const uint64_t step = (UINT64_C(1) << (63 - __builtin_clzll(size))) / divisions;
  return hri_round_up(size, step);
}

static uint64_t round_size(const hr_alloc_config *config, uint64_t bytes) {
  if (bytes < HRI_ALLOC_UNIT) return HRI_ALLOC_UNIT;
  const int interval = 63 - __builtin_clzll(bytes) - 20; /* the first begins at 1 MiB */
  const int index = interval < 0 ? 0 : interval >= HR_ALLOC_DIVISION_COUNT ? HR_ALLOC_DIVISION_COUNT - 1 : interval;
  const uint64_t divisions = config->roundup_power2_divisions[index];
  const bool bypass = config->roundup_bypass_bytes > 0 && bytes > config->roundup_bypass_bytes;
  if (divisions > 1 && !bypass && bytes / HRI_ALLOC_UNIT >= divisions && bytes > HRI_ALLOC_UNIT * divisions)
    return round_to_division(bytes, divisions);
  return (bytes + HRI_ALLOC_UNIT - 1) / HRI_ALLOC_UNIT * HRI_ALLOC_UNIT;
}

/* ---- the search ---- */

/* What the block could grow to: with the address space behind it. */
static uint64_t size_with_growth(const hri_block *b) {
  return b->size + (b->next != NULL && !b->next->mapped ? b->next->size : 0);
}

/* The best fit is an expandable block: the next ones are better while they could grow less; with the setting off, only
 * plain blocks will do. */
static hri_block *choose_expandable(const hr_alloc *alloc, hri_block *b) {
  if (alloc->config.expandable_segments && size_with_growth(b) == b->size) return b; /* the next ones are no smaller */
  hri_block *next = hri_free_set_next(b);
  if (alloc->config.expandable_segments) {
    while (b->expandable != NULL && next != NULL && size_with_growth(next) < size_with_growth(b)) {
      b = next;
      next = hri_free_set_next(b);
    }
    return b;
  }
  while (next != NULL && next->expandable != NULL) next = hri_free_set_next(next);
  return next;
}

static bool collects_garbage(const hr_alloc *alloc) {
  return alloc->allowed_bytes != UINT64_MAX && alloc->config.garbage_collection_threshold > 0;
}

static bool search(hr_alloc *alloc, request *r) {
  if (collects_garbage(alloc)) r->set->half->search_count++;
  hri_block *b = hri_free_set_first(r->set, r->size);
  if (b != NULL && b->expandable != NULL) b = choose_expandable(alloc, b);
  if (b == NULL) return false;
  const uint64_t limit = alloc->config.max_split_bytes;
  if (r->size < limit && b->size >= limit) return false;
  uint64_t most;
  if (r->size >= limit && hri_add(r->size, alloc->config.max_non_split_rounding_bytes, &most) && b->size >= most)
    return false;
  hri_free_set_lend(b);
  r->block = b;
  return true;
}

/* ---- memory from the hooks ---- */

static void enter_segment(hr_alloc *alloc, request *r, uint64_t address) {
  hri_alloc_half *half = r->set->half;
  const uint64_t bytes = r->segment_bytes;
  alloc->reserved_bytes += bytes;
  half->pool->reserved_bytes += bytes;
  r->block = hri_block_take(alloc, r->set, address, bytes);
  hri_block_number(alloc, r->block);
  r->block->segment_label = alloc->label;
  hri_stats_increase(&alloc->stats.segment, half->kind, 1);
  hri_stats_increase(&alloc->stats.reserved_bytes, half->kind, bytes);
  if (bytes >= alloc->config.max_split_bytes) hri_stat_increase(&alloc->stats.oversize_segments, 1);
  alloc->stats.num_device_alloc++;
  if (alloc->history != NULL)
    hri_history_record(alloc, HR_TRACE_SEGMENT_ALLOC, address, bytes, bytes, r->set->stream, half->pool->number,
                       alloc->label);
}

static bool over_allowed(const hr_alloc *alloc, const request *r) {
  return alloc->reserved_bytes > alloc->allowed_bytes ||
         r->segment_bytes > alloc->allowed_bytes - alloc->reserved_bytes;
}

/* throw_on_cudamalloc_oom: what would exceed the device, without asking it. (A cap is checked before, and is answered
 * in the ordinary way.) */
static hr_status reject_early(const hr_alloc *alloc, const request *r, hr_error *error) {
  uint64_t free_bytes = 0, limit = alloc->allowed_bytes;
  if (limit == UINT64_MAX && alloc->hooks.device_memory != NULL) {
    alloc->hooks.device_memory(alloc->hooks.context, &free_bytes, &limit);
    if (limit == 0) limit = UINT64_MAX;
  }
  if (alloc->reserved_bytes <= limit && r->segment_bytes <= limit - alloc->reserved_bytes) return HR_OK;
  char wanted[32], held[32], most[32];
  hri_fail(error, HR_ERROR_MEMORY,
           "refused at once (throw_on_cudamalloc_oom): %s more than the %s that are held would exceed %s",
           hri_size_text(r->segment_bytes, wanted), hri_size_text(alloc->reserved_bytes, held),
           hri_size_text(limit, most));
  if (error != NULL) {
    error->requested_bytes = r->size;
    error->available_bytes = limit > alloc->reserved_bytes ? limit - alloc->reserved_bytes : 0;
  }
  return HR_ERROR_MEMORY;
}

/* Sets r->block unless the device, or the cap, refuses. */
static hr_status obtain(hr_alloc *alloc, request *r, hr_error *error) {
  if (over_allowed(alloc, r)) return HR_OK;
  if (alloc->config.throw_on_device_oom) HRI_TRY(reject_early(alloc, r, error));
  if (alloc->config.expandable_segments) return hri_expandable_allocate(alloc, r->set, r->size, &r->block, error);
  HRI_TRY(hri_alloc_prepare(alloc, 2, error)); /* the segment, and its split */
  const uint64_t address = alloc->hooks.reserve(alloc->hooks.context, r->segment_bytes, r->set->stream);
  if (address != 0) enter_segment(alloc, r, address);
  return HR_OK;
}

/* Nothing in the cache fits. */
static hr_status obtain_with_retries(hr_alloc *alloc, request *r, hr_error *error) {
  if (collects_garbage(alloc)) hri_release_old(alloc);
  HRI_TRY(obtain(alloc, r, error));
  if (r->block != NULL) return HR_OK;
  if (hri_release_oversize(alloc, r->set, r->size)) HRI_TRY(obtain(alloc, r, error));
  if (r->block != NULL || hri_alloc_capturing(alloc)) return HR_OK;
  HRI_TRY(hri_release_cached(alloc, NULL, error));
  alloc->stats.num_alloc_retries++;
  return obtain(alloc, r, error);
}

/* ---- the answer ---- */

static bool should_split(const hr_alloc *alloc, const request *r) {
  const bool fine = r->set->half->small | alloc->config.expandable_segments;
  const uint64_t least = fine ? HRI_ALLOC_UNIT : HRI_ALLOC_SMALL_LIMIT + 1;
  return (r->block->size - r->size >= least) & (fine | (r->size < alloc->config.max_split_bytes));
}

/* Cuts the front off r->block for the request; the rest goes back to the free set. */
static void split(hr_alloc *alloc, request *r) {
  hri_block *rest = r->block;
  const unsigned kind = r->set->half->kind;
  const bool was_split = hri_block_split(rest);
  hri_block *front = hri_block_take(alloc, r->set, rest->address, r->size);
  front->expandable = rest->expandable;
  front->segment_label = rest->segment_label;
  hri_block_number_as(alloc, front, rest);
  front->prev = rest->prev;
  if (front->prev != NULL) front->prev->next = front;
  front->next = rest;
  rest->prev = front;
  rest->address += r->size;
  rest->size -= r->size;
  hri_free_set_insert(rest);
  r->block = front;
  if (front->expandable != NULL) return;
  if (was_split) {
    hri_stats_decrease(&alloc->stats.inactive_split_bytes, kind, front->size);
  } else {
    hri_stats_increase(&alloc->stats.inactive_split_bytes, kind, rest->size);
    hri_stats_increase(&alloc->stats.inactive_split, kind, 1);
  }
}

static void activate(hr_alloc *alloc, request *r) {
  const unsigned kind = r->set->half->kind;
  if (should_split(alloc, r)) {
    split(alloc, r);
  } else if (hri_block_split(r->block) && r->block->expandable == NULL) {
    hri_stats_decrease(&alloc->stats.inactive_split_bytes, kind, r->block->size);
    hri_stats_decrease(&alloc->stats.inactive_split, kind, 1);
  }
  hri_block *b = r->block;
  hri_alloc_stats *stats = &alloc->stats;
  b->allocated = true;
  b->requested = r->bytes;
  b->label = alloc->label;
  if (alloc->history != NULL)
    hri_history_record(alloc, HR_TRACE_ALLOC, b->address, r->bytes, b->size, r->set->stream, r->set->half->pool->number,
                       b->label);
  hri_alloc_insert(alloc, b);
  hri_stats_increase(&stats->allocation, kind, 1);
  hri_stats_increase(&stats->allocated_bytes, kind, b->size);
  hri_stats_increase(&stats->active, kind, 1);
  hri_stats_increase(&stats->active_bytes, kind, b->size);
  hri_stats_increase(&stats->requested_bytes, kind, r->bytes);
  if (b->size >= alloc->config.max_split_bytes) hri_stat_increase(&stats->oversize_allocations, 1);
}

static hr_status fail(hr_alloc *alloc, const request *r, hr_error *error) {
  uint64_t free_bytes = 0, total = 0;
  if (alloc->hooks.device_memory != NULL) alloc->hooks.device_memory(alloc->hooks.context, &free_bytes, &total);
  if (alloc->history != NULL)
    hri_history_record(alloc, HR_TRACE_OOM, free_bytes, r->size, r->size, r->set->stream, r->set->half->pool->number,
                       alloc->label);
  alloc->stats.num_ooms++;
  if (alloc->on_oom != NULL) alloc->on_oom(alloc->on_oom_context, alloc, r->segment_bytes, free_bytes);
  if (error == NULL) return HR_ERROR_MEMORY;
  const hri_alloc_family *live_bytes = &alloc->stats.allocated_bytes;
  char wanted[32], segment[32], held[32], live[32], device_free[32], device[32], cap[32];
  hri_fail(
      error, HR_ERROR_MEMORY,
      "out of memory: a request of %s needs %s from the device, which has %s free of %s; this allocator holds %s (%s in use)%s%s",
      hri_size_text(r->size, wanted), hri_size_text(r->segment_bytes, segment), hri_size_text(free_bytes, device_free),
      hri_size_text(total, device), hri_size_text(alloc->reserved_bytes, held),
      hri_size_text((uint64_t)(live_bytes->current[0] + live_bytes->current[1]), live),
      alloc->allowed_bytes == UINT64_MAX ? "" : " and may hold ",
      alloc->allowed_bytes == UINT64_MAX ? "" : hri_size_text(alloc->allowed_bytes, cap));
  error->requested_bytes = r->size;
  error->available_bytes = free_bytes;
  return HR_ERROR_MEMORY;
}

hr_status hr_alloc_malloc_in(hr_alloc *alloc, uint32_t pool_number, uint64_t bytes, uint64_t stream, uint64_t *address,
                             hr_error *error) {
  if (alloc->history != NULL) hri_history_tick(alloc);
  if (bytes == 0) return hri_fail(error, HR_ERROR_USAGE, "allocator: a request for 0 bytes");
  if (pool_number >= alloc->pools.count || !alloc->pools.items[pool_number]->live)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: there is no pool %u", pool_number);
  if (bytes >= HRI_ALLOC_REQUEST_LIMIT) {
    hri_fail(error, HR_ERROR_MEMORY, "out of memory: a request of %llu bytes is beyond any device",
             (unsigned long long)bytes);
    if (error != NULL) error->requested_bytes = bytes;
    return HR_ERROR_MEMORY;
  }
  if ((alloc->busy_first != NULL || alloc->deferred_first != NULL) && !hri_alloc_capturing(alloc))
    hri_streams_poll(alloc);
  request r = {.bytes = bytes, .size = round_size(&alloc->config, bytes)};
  hri_alloc_pool *pool = alloc->pools.items[pool_number];
  r.set = hri_alloc_half_set(r.size <= HRI_ALLOC_SMALL_LIMIT ? &pool->small : &pool->large, stream);
  if (r.set == NULL) return hri_fail_memory(error, sizeof *r.set, "the free blocks of a stream");
  HRI_TRY(hri_alloc_prepare(alloc, 1, error));
  if (!search(alloc, &r) &&
      !(alloc->hooks.free_memory != NULL && alloc->hooks.free_memory(alloc->hooks.context) && search(alloc, &r))) {
    r.segment_bytes = hri_alloc_segment_bytes(&alloc->config, r.size);
    HRI_TRY(obtain_with_retries(alloc, &r, error));
    if (r.block == NULL) return fail(alloc, &r, error);
  }
  activate(alloc, &r);
  *address = r.block->address;
  return HR_OK;
}

hr_status hr_alloc_malloc(hr_alloc *alloc, uint64_t bytes, uint64_t stream, uint64_t *address, hr_error *error) {
  const uint32_t pool = alloc->captures.count == 0 ? 0 : alloc->captures.items[alloc->captures.count - 1].pool;
  return hr_alloc_malloc_in(alloc, pool, bytes, stream, address, error);
}
