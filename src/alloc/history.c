/* Recording of events: the same ring in memory and in a mapped file.
 *
 * Recording one event is one store of 48 bytes, a clock read (one for both events of a free that waits for nothing) and
 * the store that publishes it. All that a mapped history needs besides happens at the beginning of a call
 * (hri_history_tick), when the structures agree with the events: each time half of the ring was written, the whole
 * state goes into the file, so that what the ring loses is not needed to know the last state. The ring has at least
 * 16,384 places, whatever number of events was asked for, so that this stays rare. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/history.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { RING_MIN = 16384, LIMIT_DEFAULT = 1000000, SETTINGS_TEXT = 1024, PAGES_AHEAD = 1 << 20 };

/* Pages of the ring are taken a mebibyte at a time, which costs a fifth of taking each on its first touch. Where the
 * system cannot do that, they are taken so. */
static void take_pages(hri_history *h) {
  const uint64_t count = PAGES_AHEAD / sizeof *h->ring, rest = h->capacity - h->slot;
  const uintptr_t begin = (uintptr_t)&h->ring[h->slot], end = begin + (rest < count ? rest : count) * sizeof *h->ring,
                  page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t from = (begin + page - 1) / page * page, to = end / page * page;
  if (from < to) (void)madvise((void *)from, to - from, MADV_POPULATE_WRITE);
  h->ahead = rest > count ? h->slot + count : UINT64_MAX;
}

static inline void record(hri_history *h, const hri_history_event *event) {
  if (__builtin_expect(h->slot == h->ahead, 0)) take_pages(h);
  h->ring[h->slot] = *event;
  if (++h->slot == h->capacity) h->slot = 0;
  __atomic_store_n(h->published, ++h->count, __ATOMIC_RELEASE);
}

static inline int64_t now_us(const hr_alloc *alloc) {
  return alloc->hooks.clock_us ? alloc->hooks.clock_us(alloc->hooks.context) : hri_clock_us(&alloc->history->clock);
}

void hri_history_record(hr_alloc *alloc, hr_trace_action action, uint64_t address, uint64_t size, uint64_t block_bytes,
                        uint64_t stream, uint32_t pool, uint64_t label) {
  if (alloc->history->stopped) return;
  const hri_history_event event = {.addr = address,
                                   .size = size,
                                   .stream = stream,
                                   .time_us = now_us(alloc),
                                   .label = label,
                                   .rest = hri_history_rest((uint32_t)action, pool, block_bytes)};
  record(alloc->history, &event);
}

void hri_history_record_free(hr_alloc *alloc, const hri_block *b) {
  if (alloc->history->stopped) return;
  const uint32_t pool = b->set->half->pool->number;
  hri_history_event event = {.addr = b->address,
                             .size = b->requested,
                             .stream = b->set->stream,
                             .time_us = now_us(alloc),
                             .label = b->label,
                             .rest = hri_history_rest(HR_TRACE_FREE_REQUESTED, pool, b->size)};
  record(alloc->history, &event);
  event.rest = hri_history_rest(HR_TRACE_FREE_COMPLETED, pool, b->size);
  record(alloc->history, &event);
}

/* ---- the mapped file ---- */

/* Nothing more can be recorded: what the file has stays true, and hr_alloc_history_stop says why. */
static void give_up(hri_history *h, const hr_error *error) {
  h->file->failure = *error;
  h->file->header->flags |= HRI_HISTORY_GAVE_UP;
  h->stopped = true;
}

hr_status hri_history_note_label(hr_alloc *alloc, const hri_history_label *label, hr_error *error) {
  hri_history *h = alloc->history;
  if (!h || !h->file || h->stopped) return HR_OK;
  return hri_history_file_note(h->file, &label->note, error);
}

static hr_status note_pools(const hr_alloc *alloc, hri_history *h, hr_error *error) {
  while (h->pool_count < alloc->pools.count && h->pool_count < 65536) {
    const hr_pool *pool = &alloc->pools.items[h->pool_count]->id;
    const hri_history_pool_note note = {{HRI_HISTORY_POOL, sizeof note}, h->pool_count, {pool->id[0], pool->id[1]}};
    HRI_TRY(hri_history_file_note(h->file, &note.note, error));
    h->pool_count++;
  }
  return HR_OK;
}

hr_status hri_history_make_settings(const hr_alloc *alloc, hri_history_settings **note, hr_error *error) {
  const hr_alloc_config *c = &alloc->config;
  char text[SETTINGS_TEXT];
  const int length = hr_alloc_config_print(c, text, sizeof text);
  const uint32_t kept = length < SETTINGS_TEXT ? (uint32_t)length : SETTINGS_TEXT - 1;
  const uint32_t bytes = (uint32_t)(sizeof **note + kept + 7) / 8 * 8;
  *note = hri_alloc_zero(1, bytes);
  if (!*note) return hri_fail_memory(error, bytes, "the settings of a history");
  **note = (hri_history_settings){.note = {HRI_HISTORY_SETTINGS, bytes},
                                  .max_split_size = c->max_split_bytes > INT64_MAX ? -1 : (int64_t)c->max_split_bytes,
                                  .garbage_collection_threshold = c->garbage_collection_threshold,
                                  .expandable = c->expandable_segments,
                                  .text_bytes = kept};
  memcpy((*note)->divisions, c->roundup_power2_divisions, sizeof(*note)->divisions);
  memcpy((*note)->text, text, kept);
  return HR_OK;
}

static hr_status note_settings(const hr_alloc *alloc, hri_history *h, hr_error *error) {
  hri_history_settings *note;
  hr_status status;
  HRI_TRY(hri_history_make_settings(alloc, &note, error));
  status = hri_history_file_note(h->file, &note->note, error);
  hri_free(note);
  memcpy(&h->config, &alloc->config, sizeof h->config); /* compared as bytes */
  return status;
}

/* ---- states ---- */

typedef struct rows {
  uint64_t segment_count, block_count; /* when counting: so far; when filling: left */
  hri_history_segment *segment;        /* NULL: counting */
  hri_history_block *block;
} rows;

static bool take_segment(void *context, const hri_block *first, uint64_t bytes) {
  rows *r = context;
  const hri_alloc_half *half = first->set->half;
  if (!r->segment) return r->segment_count++, true;
  const uint32_t flags = (first->expandable ? HRI_HISTORY_EXPANDABLE : 0u) | (half->small ? 0u : HRI_HISTORY_LARGE);
  *r->segment++ =
      (hri_history_segment){first->address, bytes, first->set->stream, first->segment_label, half->pool->number, flags};
  return true;
}

static bool take_block(void *context, const hri_block *b) {
  rows *r = context;
  if (!hri_block_active(b)) return true;
  if (!r->block) return r->block_count++, true;
  *r->block++ = (hri_history_block){b->address, b->size, b->requested, b->label, !b->allocated};
  return true;
}

static hr_status write_state(const hr_alloc *alloc, hri_history *h, hr_error *error) {
  rows r = {0};
  const hri_alloc_visitor visitor = {&r, take_segment, take_block};
  hri_history_state *state;
  (void)hri_alloc_walk(alloc, &visitor);
  HRI_TRY(hri_history_file_state(h->file, r.segment_count, r.block_count, &state, error));
  r.segment = (hri_history_segment *)(void *)(state + 1);
  r.block = (hri_history_block *)(void *)(r.segment + r.segment_count);
  (void)hri_alloc_walk(alloc, &visitor);
  hri_history_file_publish(h->file, h->count);
  h->state_due = h->count + h->capacity / 2;
  return HR_OK;
}

/* Not part of the tick itself: an hr_error is more than a kilobyte to clear. */
static __attribute__((noinline)) void keep_file(hr_alloc *alloc, hri_history *h) {
  hr_error error = {0};
  hr_status status = HR_OK;
  if (h->pool_count < alloc->pools.count) status = note_pools(alloc, h, &error);
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): what is compared was copied as bytes
  if (status == HR_OK && memcmp(&h->config, &alloc->config, sizeof h->config) != 0)
    status = note_settings(alloc, h, &error);
  if (status == HR_OK && h->count >= h->state_due) status = write_state(alloc, h, &error);
  if (status != HR_OK) give_up(h, &error);
}

void hri_history_tick(hr_alloc *alloc) {
  hri_history *h = alloc->history;
  if (!h->file || h->stopped) return;
  const bool same = h->pool_count >= alloc->pools.count && h->count < h->state_due;
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): as above
  if (!same || memcmp(&h->config, &alloc->config, sizeof h->config) != 0) keep_file(alloc, h);
}

void hri_history_renew(hr_alloc *alloc) {
  if (!alloc->history->file) return;
  alloc->history->state_due = 0;
  hri_history_tick(alloc);
}

/* ---- life ---- */

static void destroy(hri_history *h) {
  if (!h) return;
  if (h->file) hri_history_file_close(h->file);
  else hri_free(h->ring);
  hri_free(h);
}

static hr_status fill_file(hr_alloc *alloc, hri_history *h, hr_error *error) {
  HRI_TRY(note_settings(alloc, h, error));
  HRI_TRY(note_pools(alloc, h, error));
  for (size_t k = 0; alloc->labels && k < alloc->labels->items.count; k++)
    HRI_TRY(hri_history_file_note(h->file, &alloc->labels->items.items[k]->note, error));
  return write_state(alloc, h, error);
}

static hr_status begin_file(hr_alloc *alloc, hri_history *h, const char *path, hr_error *error) {
  hr_status status;
  HRI_TRY(hri_history_file_make(path, h->capacity, h->limit, &h->file, error));
  h->ring = hri_history_file_ring(h->file);
  h->published = &h->file->header->published;
  h->pool_count = 0;
  status = fill_file(alloc, h, error);
  return status == HR_OK ? hri_history_file_begin(h->file, error) : status; /* the caller closes it */
}

static hr_status begin_memory(hri_history *h, hr_error *error) {
  uint64_t bytes;
  if (hri_mul(h->capacity, sizeof *h->ring, &bytes) && bytes < SIZE_MAX / 2) h->ring = hri_alloc((size_t)bytes);
  return h->ring ? HR_OK : hri_fail_memory(error, h->capacity * sizeof *h->ring, "a history of events");
}

void hr_alloc_history_options_init(hr_alloc_history_options *options) { *options = (hr_alloc_history_options){0}; }

hr_status hr_alloc_history_start(hr_alloc *alloc, const hr_alloc_history_options *options, hr_error *error) {
  const hr_alloc_history_options none = {0};
  hri_history *h;
  hr_status status;
  if (!options) options = &none;
  if (alloc->history && !alloc->history->stopped)
    return hri_hint(error, hri_fail(error, HR_ERROR_USAGE, "allocator: history is being recorded already"),
                    "stop it first");
  h = hri_alloc_zero(1, sizeof *h);
  if (!h) return hri_fail_memory(error, sizeof *h, "a history");
  h->limit = options->event_limit ? options->event_limit : LIMIT_DEFAULT;
  h->capacity = options->path && h->limit < RING_MIN ? RING_MIN : h->limit;
  h->capacity += h->capacity < UINT64_MAX; /* the place that may be half written */
  h->published = &h->own_published;
  h->state_due = UINT64_MAX;
  h->pool_count = UINT32_MAX;
  status = options->path ? begin_file(alloc, h, options->path, error) : begin_memory(h, error);
  if (status != HR_OK) {
    destroy(h);
    return status;
  }
  destroy(alloc->history);
  alloc->history = h;
  return HR_OK;
}

hr_status hr_alloc_history_stop(hr_alloc *alloc, hr_error *error) {
  hri_history *h = alloc->history;
  if (!h) return hri_fail(error, HR_ERROR_USAGE, "allocator: no history is being recorded");
  if (h->file && h->file->failure.code != HR_OK) {
    if (error) *error = h->file->failure;
    return h->file->failure.code;
  }
  if (h->file && !h->stopped) {
    hri_history_tick(alloc);
    h->file->header->flags |= HRI_HISTORY_STOPPED;
  }
  h->stopped = true;
  return HR_OK;
}

void hri_history_destroy(hr_alloc *alloc) {
  destroy(alloc->history);
  hri_labels_destroy(alloc->labels);
  alloc->history = NULL;
  alloc->labels = NULL;
}
