/* Snapshots of the allocator: the blocks from its structures, the events from its history. */
#include "alloc/history.h"

typedef struct taker {
  hri_history_names names;
  hri_snapshot_builder *builder;
  uint64_t active_bytes;
} taker;

static bool take_segment(void *context, const hri_block *first, uint64_t bytes) {
  taker *t = context;
  uint16_t category;
  const hri_alloc_half *half = first->set->half;
  const hr_segment segment = {.address = first->address,
                              .total_size = bytes,
                              .stream = first->set->stream,
                              .stack = hri_history_stack(&t->names, first->segment_label, &category),
                              .pool = hri_history_pool_index(&t->names, half->pool->number),
                              .large = !half->small,
                              .expandable = first->expandable != NULL};
  return hri_snapshot_add_segment(t->builder, &segment);
}

static bool take_block(void *context, const hri_block *b) {
  taker *t = context;
  hr_block block = {.address = b->address, .size = b->size, .state = HR_BLOCK_INACTIVE};
  if (hri_block_active(b)) {
    block.state = b->allocated ? HR_BLOCK_ALLOCATED : HR_BLOCK_PENDING_FREE;
    block.requested_size = b->requested;
    block.stack = hri_history_stack(&t->names, b->label, &block.category);
    t->active_bytes += b->size;
  }
  return hri_snapshot_add_block(t->builder, &block);
}

static bool take_names(taker *t, const hr_alloc *alloc) {
  for (size_t k = 0; k < alloc->pools.count; k++)
    if (!hri_history_add_pool(&t->names, k, alloc->pools.items[k]->id.id)) return false;
  for (size_t k = 0; alloc->labels && k < alloc->labels->items.count; k++)
    if (!hri_history_add_label(&t->names, alloc->labels->items.items[k])) return false;
  return true;
}

/* The newest events, oldest first. */
static bool take_events(taker *t, const hri_history *h) {
  uint64_t count, at;
  if (!hri_snapshot_add_trace(t->builder, 0)) return false;
  if (!h) return true;
  count = h->count < h->capacity - 1 ? h->count : h->capacity - 1;
  if (count > h->limit) count = h->limit;
  at = (h->count - count) % h->capacity;
  for (uint64_t k = 0; k < count; k++) {
    if (!hri_history_add_event(&t->names, &h->ring[at])) return false;
    if (++at == h->capacity) at = 0;
  }
  return true;
}

hr_status hr_alloc_snapshot(hr_alloc *alloc, hr_snapshot **snapshot, hr_error *error) {
  hri_snapshot_builder builder;
  hri_history_settings *settings = NULL;
  taker *t = hri_alloc_zero(1, sizeof *t);
  hr_status status;
  *snapshot = NULL;
  if (!t) return hri_fail_memory(error, sizeof *t, "a snapshot");
  status = hri_snapshot_build(&builder, error);
  if (status != HR_OK) goto out;
  t->builder = t->names.builder = &builder;
  HRI_TRY_OUT(hri_history_make_settings(alloc, &settings, error));
  hri_history_set_settings(&builder, settings);
  const hri_alloc_visitor visitor = {t, take_segment, take_block};
  if (!take_names(t, alloc) || !hri_alloc_walk(alloc, &visitor) || !take_events(t, alloc->history))
    HRI_TRY_OUT(hri_fail_memory(error, builder.snapshot->event_count * sizeof(hr_trace_event), "a snapshot"));
  builder.snapshot->format = "headroom";
  HRI_TRY_OUT(hri_snapshot_build_end(&builder, snapshot, error));
  if (alloc->history) hri_history_record(alloc, HR_TRACE_SNAPSHOT, 0, t->active_bytes, 0, 0, 0, 0);
out:
  hri_snapshot_build_deinit(&builder);
  hri_history_names_deinit(&t->names);
  hri_free(settings);
  hri_free(t);
  return status;
}
