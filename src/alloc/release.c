/* Memory back to the hooks: garbage collection by age, oversize blocks, and everything that is cached.
 * Only blocks that are a whole segment can be released; of expandable segments, whole chunks. */
#include "alloc/alloc.h"

static void release_block(hr_alloc *alloc, hri_block *block) {
  hri_alloc_half *half = block->set->half;
  alloc->stats.num_device_free++;
  if (alloc->history != NULL)
    hri_history_record(alloc, HR_TRACE_SEGMENT_FREE, block->address, block->size, block->size, block->set->stream,
                       half->pool->number,
                       alloc->label ? alloc->label
                                    : block->segment_label); /* of the call that returns it, as PyTorch's stacks */
  alloc->hooks.release(alloc->hooks.context, block->address, block->size);
  alloc->reserved_bytes -= block->size;
  half->pool->reserved_bytes -= block->size;
  hri_stats_decrease(&alloc->stats.segment, half->kind, 1);
  hri_stats_decrease(&alloc->stats.reserved_bytes, half->kind, block->size);
  if (block->size >= alloc->config.max_split_bytes) hri_stat_decrease(&alloc->stats.oversize_segments, 1);
  hri_free_set_remove(block);
  hri_block_give(alloc, block);
}

/* ---- garbage collection ---- */

/* Searches of its pool since it became free. */
static uint64_t age(const hri_block *b) { return (uint64_t)(b->set->half->search_count - b->age_base); }

/* One round over the large half: releases the blocks of at least this age. Bytes released. */
static uint64_t release_aged(hr_alloc *alloc, hri_alloc_half *half, double threshold, uint64_t *total_age,
                             uint64_t *count) {
  uint64_t released = 0;
  for (size_t i = 0; i < half->sets.count; i++) {
    for (hri_block *b = hri_free_set_first(half->sets.items[i], 0), *next; b != NULL; b = next) {
      next = hri_free_set_next(b);
      if (hri_block_split(b) || b->expandable != NULL || (double)age(b) < threshold) continue;
      released += b->size;
      *total_age -= age(b);
      (*count)--;
      release_block(alloc, b);
    }
  }
  return released;
}

void hri_release_old(hr_alloc *alloc) {
  const uint64_t limit = (uint64_t)(alloc->config.garbage_collection_threshold * (double)alloc->allowed_bytes);
  if (alloc->reserved_bytes <= limit) return;
  const uint64_t target = alloc->reserved_bytes - limit;
  hri_alloc_half *half = &alloc->pools.items[0]->large;
  uint64_t total_age = 0, count = 0, released = 0, won = 1;
  for (size_t i = 0; i < half->sets.count; i++) {
    for (hri_block *b = hri_free_set_first(half->sets.items[i], 0); b != NULL; b = hri_free_set_next(b)) {
      if (hri_block_split(b)) continue;
      total_age += age(b);
      count++;
    }
  }
  while (released < target && won > 0 && count > 0) {
    won = release_aged(alloc, half, (double)total_age / (double)count, &total_age, &count);
    released += won;
  }
}

/* ---- oversize blocks ---- */

/* A plain block of a changed limit, or of a larger segment size than the limit, can be split; PyTorch does not look. */
static bool whole_segment(const hri_block *b) { return b->expandable == NULL && !hri_block_split(b); }

bool hri_release_oversize(hr_alloc *alloc, hri_free_set *set, uint64_t size) {
  const uint64_t limit = alloc->config.max_split_bytes;
  if (limit == UINT64_MAX) return false;
  if (size < limit) size = limit;
  hri_block *fits = hri_free_set_first(set, size);
  if (fits != NULL && whole_segment(fits)) {
    release_block(alloc, fits);
    return true;
  }
  /* no single one: several, from the largest below on */
  uint64_t released = 0;
  hri_block *b = hri_free_set_before(set, size, 0, 0);
  while (b != NULL && released < size && b->size >= limit) {
    hri_block *next = hri_free_set_previous(b);
    if (whole_segment(b)) {
      released += b->size;
      release_block(alloc, b);
    }
    b = next;
  }
  return released >= size;
}

/* ---- everything ---- */

static hr_status release_half(hr_alloc *alloc, hri_alloc_half *half, hr_error *error) {
  for (size_t i = 0; i < half->sets.count; i++) {
    for (hri_block *b = hri_free_set_first(half->sets.items[i], 0), *next; b != NULL; b = next) {
      next = hri_free_set_next(b);
      if (whole_segment(b)) release_block(alloc, b);
    }
  }
  /* Unmapping leaves at most parts smaller than a chunk behind, which come before the block in order: the walk goes on
   * after its old place. */
  for (size_t i = 0; i < half->sets.count; i++) {
    hri_free_set *set = half->sets.items[i];
    for (hri_block *b = hri_free_set_first(set, 0), *next; b != NULL; b = next) {
      next = hri_free_set_next(b);
      if (b->expandable != NULL) HRI_TRY(hri_expandable_unmap(alloc, b, error));
    }
  }
  return HR_OK;
}

hr_status hri_release_cached(hr_alloc *alloc, hri_alloc_pool *only, hr_error *error) {
  hri_alloc_pool *main = alloc->pools.items[0];
  if (only == NULL && !hri_alloc_capturing(alloc)) {
    hri_streams_wait(alloc, NULL);
    HRI_TRY(release_half(alloc, &main->large, error));
    HRI_TRY(release_half(alloc, &main->small, error));
  }
  for (size_t i = 1; i < alloc->pools.count; i++) {
    hri_alloc_pool *pool = alloc->pools.items[i];
    if (!pool->live || pool->use_count > 0 || (only != NULL && only != pool)) continue;
    if (only != NULL && !hri_alloc_capturing(alloc)) hri_streams_wait(alloc, pool);
    HRI_TRY(release_half(alloc, &pool->small, error));
    HRI_TRY(release_half(alloc, &pool->large, error));
    if (pool->reserved_bytes == 0) pool->live = false;
  }
  return HR_OK;
}

hr_status hr_alloc_empty_cache(hr_alloc *alloc, hr_error *error) {
  if (alloc->history != NULL) hri_history_tick(alloc);
  return hri_release_cached(alloc, NULL, error);
}

hr_status hr_alloc_empty_pool(hr_alloc *alloc, uint32_t pool, hr_error *error) {
  if (alloc->history != NULL) hri_history_tick(alloc);
  if (pool == 0 || pool >= alloc->pools.count)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: there is no private pool %u", pool);
  return hri_release_cached(alloc, alloc->pools.items[pool], error);
}
