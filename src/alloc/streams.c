/* Blocks used on more than the stream they belong to.
 *
 * Freeing such a block records an event on each of those streams; it is free when all events are over. Events wait in
 * one queue per stream, first in first out, as PyTorch has it: an event that is not over holds back those behind it, of
 * its stream only. During a capture no event may be asked for, so frees are put off until it ends; streams recorded
 * during the capture are then left out, because the graph itself orders them.
 *
 * The node of an event is the node that hr_alloc_record_stream made, so a free takes no memory and cannot fail. */
#include "alloc/alloc.h"

#include <string.h>

/* ---- queues ---- */

static size_t queue_place(const hr_alloc *alloc, uint64_t stream) {
  size_t low = 0, high = alloc->queues.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (alloc->queues.items[middle]->stream < stream) low = middle + 1;
    else high = middle;
  }
  return low;
}

static bool ensure_queue(hr_alloc *alloc, uint64_t stream) {
  const size_t place = queue_place(alloc, stream), count = alloc->queues.count;
  if (place < count && alloc->queues.items[place]->stream == stream) return true;
  if (!hri_array_reserve(&alloc->queues, count + 1)) return false;
  hri_stream_queue *queue = hri_alloc_zero(1, sizeof *queue);
  if (queue == NULL) return false;
  queue->stream = stream;
  memmove(&alloc->queues.items[place + 1], &alloc->queues.items[place], (count - place) * sizeof *alloc->queues.items);
  alloc->queues.items[place] = queue;
  alloc->queues.count++;
  return true;
}

static void enqueue(hr_alloc *alloc, hri_stream_use *event) {
  hri_stream_queue *queue = alloc->queues.items[queue_place(alloc, event->stream)];
  event->next = NULL;
  if (queue->first != NULL) {
    queue->last->next = event;
  } else {
    queue->first = event;
    queue->prev = alloc->busy_last;
    queue->next = NULL;
    *(alloc->busy_last != NULL ? &alloc->busy_last->next : &alloc->busy_first) = queue;
    alloc->busy_last = queue;
  }
  queue->last = event;
}

static void leave_busy(hr_alloc *alloc, hri_stream_queue *queue) {
  *(queue->prev != NULL ? &queue->prev->next : &alloc->busy_first) = queue->next;
  *(queue->next != NULL ? &queue->next->prev : &alloc->busy_last) = queue->prev;
}

static void give_use(hr_alloc *alloc, hri_stream_use *use) {
  use->next = alloc->spare_uses;
  alloc->spare_uses = use;
}

/* ---- the streams of one block ---- */

hr_status hr_alloc_record_stream(hr_alloc *alloc, uint64_t address, uint64_t stream, hr_error *error) {
  hri_block *block = hri_alloc_find(alloc, address);
  if (block == NULL || !block->allocated)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: no live block at 0x%llx to record a stream of",
                    (unsigned long long)address);
  const bool in_capture = hri_alloc_capturing(alloc);
  if (block->set->stream == stream) return HR_OK;
  hri_stream_use **link = &block->uses;
  for (; *link != NULL; link = &(*link)->next) {
    if ((*link)->stream != stream) continue;
    (*link)->in_capture = (*link)->in_capture || in_capture;
    return HR_OK;
  }
  hri_stream_use *use = alloc->spare_uses;
  if (!ensure_queue(alloc, stream) || (use == NULL && (use = hri_alloc(sizeof *use)) == NULL))
    return hri_fail_memory(error, sizeof *use, "a stream that a block is used on");
  if (use == alloc->spare_uses) alloc->spare_uses = use->next;
  *use = (hri_stream_use){.block = block, .stream = stream, .in_capture = in_capture};
  *link = use;
  return HR_OK;
}

void hri_streams_forget(hr_alloc *alloc, hri_block *block) {
  while (block->uses != NULL) {
    hri_stream_use *use = block->uses;
    block->uses = use->next;
    give_use(alloc, use);
  }
}

static void insert_events(hr_alloc *alloc, hri_block *block) {
  hri_stream_use *use = block->uses;
  block->uses = NULL;
  while (use != NULL) {
    hri_stream_use *next = use->next;
    use->mark = alloc->hooks.record_event != NULL ? alloc->hooks.record_event(alloc->hooks.context, use->stream) : 0;
    block->event_count++;
    enqueue(alloc, use);
    use = next;
  }
}

void hri_streams_defer(hr_alloc *alloc, hri_block *block) {
  if (!hri_alloc_capturing(alloc)) {
    insert_events(alloc, block);
    return;
  }
  block->waits = true;
  hri_free_set_settle(block->set); /* child[] is needed below */
  block->child[1] = NULL;
  *(alloc->deferred_last != NULL ? &alloc->deferred_last->child[1] : &alloc->deferred_first) = block;
  alloc->deferred_last = block;
}

static void drop_uses_in_capture(hr_alloc *alloc, hri_block *block) {
  hri_stream_use **link = &block->uses;
  bool any = false;
  for (hri_stream_use *use = block->uses; use != NULL; use = use->next) any = any || use->in_capture;
  if (!any) return;
  while (*link != NULL) {
    hri_stream_use *use = *link;
    if (!use->in_capture) {
      link = &use->next;
      continue;
    }
    *link = use->next;
    give_use(alloc, use);
  }
}

static void resume_deferred(hr_alloc *alloc) {
  while (alloc->deferred_first != NULL) {
    hri_block *block = alloc->deferred_first;
    alloc->deferred_first = block->child[1];
    if (alloc->deferred_first == NULL) alloc->deferred_last = NULL;
    block->waits = false;
    drop_uses_in_capture(alloc, block);
    insert_events(alloc, block);
    if (block->event_count == 0) hri_block_free(alloc, block);
  }
}

/* ---- events that are over ---- */

static void event_over(hr_alloc *alloc, hri_stream_use *event) {
  hri_block *block = event->block;
  give_use(alloc, event);
  if (--block->event_count == 0) hri_block_free(alloc, block);
}

void hri_streams_poll(hr_alloc *alloc) {
  resume_deferred(alloc);
  for (hri_stream_queue *queue = alloc->busy_first, *next; queue != NULL; queue = next) {
    next = queue->next;
    while (queue->first != NULL) {
      hri_stream_use *event = queue->first;
      if (alloc->hooks.event_done != NULL && !alloc->hooks.event_done(alloc->hooks.context, event->mark)) break;
      queue->first = event->next;
      event_over(alloc, event);
    }
    if (queue->first == NULL) leave_busy(alloc, queue);
  }
}

void hri_streams_wait(hr_alloc *alloc, const hri_alloc_pool *pool) {
  alloc->stats.num_sync_all_streams++;
  resume_deferred(alloc);
  for (hri_stream_queue *queue = alloc->busy_first, *next; queue != NULL; queue = next) {
    next = queue->next;
    hri_stream_use **link = &queue->first, *kept = NULL;
    while (*link != NULL) {
      hri_stream_use *event = *link;
      if (pool != NULL && event->block->set->half->pool != pool) {
        kept = event;
        link = &event->next;
        continue;
      }
      *link = event->next;
      if (alloc->hooks.event_wait != NULL) alloc->hooks.event_wait(alloc->hooks.context, event->mark);
      event_over(alloc, event);
    }
    queue->last = kept;
    if (queue->first == NULL) leave_busy(alloc, queue);
  }
}

void hri_streams_destroy(hr_alloc *alloc) {
  for (size_t i = 0; i < alloc->queues.count; i++) {
    hri_stream_queue *queue = alloc->queues.items[i];
    while (queue->first != NULL) {
      hri_stream_use *event = queue->first;
      queue->first = event->next;
      hri_free(event);
    }
    hri_free(queue);
  }
  hri_array_free(&alloc->queues);
  while (alloc->spare_uses != NULL) {
    hri_stream_use *use = alloc->spare_uses;
    alloc->spare_uses = use->next;
    hri_free(use);
  }
}
