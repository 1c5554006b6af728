/* The end of a block's life: the free itself, and the return to the free set with its free neighbours merged. */
#include "alloc/alloc.h"

static void record(hr_alloc *alloc, hr_trace_action action, const hri_block *b) {
  if (alloc->history != NULL)
    hri_history_record(alloc, action, b->address, b->requested, b->size, b->set->stream, b->set->half->pool->number,
                       b->label);
}

uint64_t hri_block_merge(hr_alloc *alloc, hri_block *block, hri_block *other) {
  if (other == NULL || hri_block_active(other) || other->mapped != block->mapped) return 0;
  if (other->mapped) hri_free_set_remove(other);
  else hri_unmapped_remove(other);
  if (block->prev == other) {
    block->address = other->address;
    block->prev = other->prev;
    if (block->prev != NULL) block->prev->next = block;
    if (alloc->labels != NULL) block->segment_label = other->segment_label;
  } else {
    block->next = other->next;
    if (block->next != NULL) block->next->prev = block;
  }
  const uint64_t bytes = other->size;
  block->size += bytes;
  hri_block_give(alloc, other);
  return bytes;
}

/* Bytes and count by which a change of free parts of plain segments moves the statistic. */
static void count_inactive_split(hr_alloc *alloc, unsigned kind, int64_t blocks, int64_t bytes) {
  if (blocks > 0) hri_stats_increase(&alloc->stats.inactive_split, kind, (uint64_t)blocks);
  if (blocks < 0) hri_stats_decrease(&alloc->stats.inactive_split, kind, (uint64_t)-blocks);
  if (bytes > 0) hri_stats_increase(&alloc->stats.inactive_split_bytes, kind, (uint64_t)bytes);
  if (bytes < 0) hri_stats_decrease(&alloc->stats.inactive_split_bytes, kind, (uint64_t)-bytes);
}

/* Back into the bin that it never left, with the rest that a split left of it. The record of the rest stays, as it is
 * the one in the bin: no matter where the order is not that of the records. Bytes of the rest. */
static uint64_t rejoin(hr_alloc *alloc, hri_block **block) {
  hri_block *front = *block, *lent = front->set->lent;
  uint64_t rest = 0;
  if (lent != front) {
    rest = lent->size;
    lent->address = front->address;
    lent->size += front->size;
    lent->prev = front->prev;
    if (lent->prev != NULL) lent->prev->next = lent;
    hri_block_give(alloc, front);
    *block = lent;
  }
  hri_free_set_insert(lent);
  lent->set->lent = NULL;
  return rest;
}

static void release(hr_alloc *alloc, hri_block *block) {
  hri_alloc_remove(alloc, block);
  block->label = 0;
  const uint64_t size = block->size, requested = block->requested;
  const unsigned kind = block->set->half->kind;
  int64_t blocks = 0, bytes = 0;
  if (hri_free_set_lent(block) && (block == block->set->lent || alloc->config.order != HR_ALLOC_ORDER_BLOCK)) {
    const uint64_t won = rejoin(alloc, &block);
    blocks -= won > 0;
    bytes -= (int64_t)won;
  } else {
    hri_block *const neighbours[2] = {block->prev, block->next};
    for (int i = 0; i < 2; i++) {
      const uint64_t won = hri_block_merge(alloc, block, neighbours[i]);
      blocks -= won > 0;
      bytes -= (int64_t)won;
    }
    hri_free_set_insert(block);
  }
  if (hri_block_split(block)) {
    blocks++;
    bytes += (int64_t)block->size;
  }
  if (block->expandable == NULL) count_inactive_split(alloc, kind, blocks, bytes);
  hri_stats_decrease(&alloc->stats.active, kind, 1);
  hri_stats_decrease(&alloc->stats.active_bytes, kind, size);
  hri_stats_decrease(&alloc->stats.requested_bytes, kind, requested);
}

void hri_block_free(hr_alloc *alloc, hri_block *block) {
  record(alloc, HR_TRACE_FREE_COMPLETED, block);
  release(alloc, block);
}

/* What the program's part of a free changes. */
static hr_status begin(hr_alloc *alloc, uint64_t address, hri_block **out, hr_error *error) {
  if (alloc->history != NULL) hri_history_tick(alloc);
  hri_block *block = hri_alloc_find(alloc, address);
  if (block == NULL)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: free of 0x%llx, where no block begins",
                    (unsigned long long)address);
  if (!block->allocated)
    return hri_fail(error, HR_ERROR_USAGE,
                    "allocator: free of 0x%llx, which is freed already and waits for its streams",
                    (unsigned long long)address);
  const unsigned kind = block->set->half->kind;
  __builtin_prefetch(block->prev); /* will be looked at for merging */
  __builtin_prefetch(block->next);
  block->allocated = false;
  hri_stats_decrease(&alloc->stats.allocation, kind, 1);
  hri_stats_decrease(&alloc->stats.allocated_bytes, kind, block->size);
  if (block->size >= alloc->config.max_split_bytes) hri_stat_decrease(&alloc->stats.oversize_allocations, 1);
  *out = block;
  return HR_OK;
}

hr_status hr_alloc_free(hr_alloc *alloc, uint64_t address, hr_error *error) {
  hri_block *block;
  HRI_TRY(begin(alloc, address, &block, error));
  if (block->uses != NULL) {
    record(alloc, HR_TRACE_FREE_REQUESTED, block);
    hri_streams_defer(alloc, block);
    return HR_OK;
  }
  if (alloc->history != NULL) hri_history_record_free(alloc, block);
  release(alloc, block);
  return HR_OK;
}

hr_status hr_alloc_free_begin(hr_alloc *alloc, uint64_t address, hr_error *error) {
  hri_block *block;
  HRI_TRY(begin(alloc, address, &block, error));
  record(alloc, HR_TRACE_FREE_REQUESTED, block);
  hri_streams_forget(alloc, block);
  block->held = block->waits = true;
  return HR_OK;
}

hr_status hr_alloc_free_complete(hr_alloc *alloc, uint64_t address, hr_error *error) {
  if (alloc->history != NULL) hri_history_tick(alloc);
  hri_block *block = hri_alloc_find(alloc, address);
  if (block == NULL || !block->held)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: no free of 0x%llx was begun", (unsigned long long)address);
  block->held = block->waits = false;
  hri_block_free(alloc, block);
  return HR_OK;
}
