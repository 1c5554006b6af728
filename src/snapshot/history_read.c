/* Reading a history file: header, notes, the last state, events. The file is believed only as far as it was checked;
 * any bytes
 * give an answer or an INPUT error, in time and memory in proportion to their number. */
#include "snapshot/history_format.h"

#include <string.h>

enum { POOL_LIMIT = 65536 };

typedef struct reader {
  const unsigned char *bytes;
  uint64_t count;
  const char *name;
  hri_history_header head; /* a copy, checked */
  hri_history_names names;
  uint64_t oldest;     /* number of the first event that the ring keeps */
  uint64_t note_bytes; /* of the chunks read so far */
  hr_error *error;
} reader;

static hr_status bad(const reader *r, uint64_t offset, const char *what, uint64_t found) {
  return hri_hint(r->error,
                  hri_fail(r->error, HR_ERROR_INPUT, "%s: history: byte %llu: %s (found %llu)", r->name,
                           (unsigned long long)offset, what, (unsigned long long)found),
                  "the file is damaged or cut off; copy it again from the run that made it");
}

static bool inside(const reader *r, const hri_history_extent *e) {
  return e->offset % 8 == 0 && e->offset <= r->count && e->bytes <= r->count - e->offset;
}

#define FIELD(member) offsetof(hri_history_header, member)

static hr_status read_header(reader *r) {
  hri_history_header *h = &r->head;
  uint64_t room;
  if (r->count < HRI_HISTORY_HEADER_BYTES)
    return bad(r, r->count, "the header is cut off; it has 4096 bytes", r->count);
  memcpy(h, r->bytes, sizeof *h);
  if (!hri_history_recognise(h->magic, sizeof h->magic))
    return bad(r, 0, "no history file begins like this", (unsigned char)h->magic[0]);
  if (h->order != HRI_HISTORY_ORDER)
    return bad(r, FIELD(order), "the file was written by a machine with another byte order", h->order);
  if (h->version != HRI_HISTORY_VERSION)
    return bad(r, FIELD(version), "this version reads histories of version 1", h->version);
  if (h->header_bytes != HRI_HISTORY_HEADER_BYTES)
    return bad(r, FIELD(header_bytes), "the header must have 4096 bytes", h->header_bytes);
  if (h->event_bytes != sizeof(hri_history_event))
    return bad(r, FIELD(event_bytes), "an event must have 48 bytes", h->event_bytes);
  if (h->device < -1 || h->device > INT16_MAX)
    return bad(r, FIELD(device), "a device is -1 (the CPU) to 32767", (uint32_t)h->device);
  if (h->ring_offset % 8 || h->ring_offset > r->count)
    return bad(r, FIELD(ring_offset), "the ring must begin within the file", h->ring_offset);
  room = (r->count - h->ring_offset) / sizeof(hri_history_event);
  if (h->ring_capacity < 2 || h->ring_capacity > room)
    return bad(r, FIELD(ring_capacity), "the ring must lie within the file", h->ring_capacity);
  if (h->published > INT64_MAX) return bad(r, FIELD(published), "more events than can be", h->published);
  if (h->chunk_count > HRI_HISTORY_CHUNK_LIMIT)
    return bad(r, FIELD(chunk_count), "there are at most 48 chunks of notes", h->chunk_count);
  r->oldest = h->published > h->ring_capacity - 1 ? h->published - (h->ring_capacity - 1) : 0;
  return HR_OK;
}

/* ---- notes ---- */

static hr_status read_label(reader *r, const unsigned char *at, uint64_t offset, uint64_t bytes) {
  const hri_history_label *label = (const void *)at;
  uint64_t text;
  if (bytes < sizeof *label) return bad(r, offset, "a label must have at least 24 bytes", bytes);
  text = (uint64_t)label->category_bytes + label->phase_bytes + label->name_bytes;
  if (text > bytes - sizeof *label) return bad(r, offset, "the texts of a label must lie within its note", text);
  return hri_history_add_label(&r->names, label) ? HR_OK : hri_fail_memory(r->error, bytes, "the labels of a history");
}

static hr_status read_pool(reader *r, const unsigned char *at, uint64_t offset, uint64_t bytes) {
  hri_history_pool_note pool;
  if (bytes < sizeof pool) return bad(r, offset, "a pool must have 32 bytes", bytes);
  memcpy(&pool, at, sizeof pool);
  if (pool.number != r->names.pools.count) return bad(r, offset, "pools must be numbered in order", pool.number);
  if (pool.number >= POOL_LIMIT) return bad(r, offset, "more pools than events can name", pool.number);
  if (hri_history_add_pool(&r->names, pool.number, pool.id)) return HR_OK;
  return hri_fail_memory(r->error, bytes, "the pools of a history");
}

static hr_status read_settings(reader *r, const unsigned char *at, uint64_t offset, uint64_t bytes) {
  const hri_history_settings *settings = (const void *)at;
  if (bytes < sizeof *settings) return bad(r, offset, "settings must have at least 160 bytes", bytes);
  if (settings->text_bytes > bytes - sizeof *settings)
    return bad(r, offset, "the text of settings must lie within their note", settings->text_bytes);
  hri_history_set_settings(r->names.builder, settings);
  return HR_OK;
}

static hr_status read_chunk(reader *r, uint64_t index) {
  const hri_history_extent extent = r->head.chunks[index].extent;
  const uint64_t used = r->head.chunks[index].used, field = FIELD(chunks) + index * sizeof r->head.chunks[0];
  uint64_t at = 0;
  if (!inside(r, &extent)) return bad(r, field, "a chunk of notes must lie within the file", extent.offset);
  if (used > extent.bytes || used % 8) return bad(r, field, "a chunk cannot hold more than its size", used);
  r->note_bytes += used; /* at most 48 times the file */
  if (r->note_bytes > r->count) return bad(r, field, "chunks of notes lie over each other", extent.offset);
  while (at < used) {
    const unsigned char *place = r->bytes + extent.offset + at;
    hri_history_note note;
    if (used - at < sizeof note) return bad(r, extent.offset + at, "a note must have at least 8 bytes", used - at);
    memcpy(&note, place, sizeof note);
    if (note.bytes < sizeof note || note.bytes % 8 || note.bytes > used - at)
      return bad(r, extent.offset + at, "a note must end within its chunk", note.bytes);
    switch (note.kind) {
    case HRI_HISTORY_LABEL: HRI_TRY(read_label(r, place, extent.offset + at, note.bytes)); break;
    case HRI_HISTORY_POOL: HRI_TRY(read_pool(r, place, extent.offset + at, note.bytes)); break;
    case HRI_HISTORY_SETTINGS: HRI_TRY(read_settings(r, place, extent.offset + at, note.bytes)); break;
    default: r->names.builder->snapshot->unknown_count++;
    }
    at += note.bytes;
  }
  return HR_OK;
}

/* ---- state and events ---- */

static const hri_history_event *ring_of(const reader *r) { return (const void *)(r->bytes + r->head.ring_offset); }

/* Segments and blocks; none when the events since the last state were overwritten within one call of the allocator. */
static hr_status read_state(reader *r) {
  const hri_history_header *h = &r->head;
  const uint64_t which = h->state & 1, begin = (h->state >> 1) - 1, field = FIELD(states) + which * sizeof h->states[0];
  const hri_history_extent extent = h->states[which];
  hri_history_since since = {ring_of(r), h->ring_capacity, 0, 0};
  hri_history_state state;
  uint64_t room;
  if (!h->state) return HR_OK;
  if (begin > h->published) return bad(r, FIELD(state), "the state cannot be newer than the last event", begin);
  if (!inside(r, &extent) || extent.bytes < sizeof state)
    return bad(r, field, "the state must lie within the file", extent.offset);
  memcpy(&state, r->bytes + extent.offset, sizeof state);
  room = extent.bytes - sizeof state;
  if (state.segment_count > room / sizeof(hri_history_segment))
    return bad(r, extent.offset, "more segments than the state has room for", state.segment_count);
  room -= state.segment_count * sizeof(hri_history_segment);
  if (state.block_count > room / sizeof(hri_history_block))
    return bad(r, extent.offset + 8, "more blocks than the state has room for", state.block_count);
  if (begin < r->oldest) return r->names.builder->snapshot->unknown_count++, HR_OK;
  const hri_history_segment *segments = (const void *)(r->bytes + extent.offset + sizeof state);
  since.first = begin % h->ring_capacity;
  since.count = h->published - begin;
  return hri_history_rebuild(&r->names, segments, state.segment_count, (const void *)(segments + state.segment_count),
                             state.block_count, &since, h->device, r->error);
}

static hr_status read_events(reader *r) {
  const hri_history_header *h = &r->head;
  const uint64_t kept = h->published - r->oldest,
                 count = h->event_limit && h->event_limit < kept ? h->event_limit : kept;
  const hri_history_event *ring = ring_of(r);
  uint64_t at = (h->published - count) % h->ring_capacity;
  hri_snapshot_builder *b = r->names.builder;
  if (!hri_snapshot_add_trace(b, h->device))
    return hri_fail_memory(r->error, count * sizeof *ring, "the events of a history");
  for (uint64_t k = 0; k < count; k++) {
    hri_history_event event = ring[at];
    if (!hri_history_add_event(&r->names, &event))
      return hri_fail_memory(r->error, count * sizeof *ring, "the events of a history");
    if (++at == h->ring_capacity) at = 0;
  }
  return HR_OK;
}

hr_status hri_history_parse(const void *bytes, uint64_t count, const char *name, hr_snapshot **snapshot,
                            hr_error *error) {
  hri_snapshot_builder builder;
  reader *r = hri_alloc_zero(1, sizeof *r);
  void *aligned = NULL; /* a copy, where the caller's bytes are not */
  hr_status status;
  *snapshot = NULL;
  if (!r) return hri_fail_memory(error, sizeof *r, "a history");
  *r = (reader){.bytes = bytes, .count = count, .name = name, .error = error};
  status = hri_snapshot_build(&builder, error);
  if (status != HR_OK) goto out;
  if ((uintptr_t)bytes % 8 && count) {
    aligned = hri_alloc((size_t)count);
    if (!aligned) HRI_TRY_OUT(hri_fail_memory(error, count, name));
    r->bytes = memcpy(aligned, bytes, (size_t)count);
  }
  r->names.builder = &builder;
  HRI_TRY_OUT(read_header(r));
  for (uint64_t k = 0; k < r->head.chunk_count; k++) HRI_TRY_OUT(read_chunk(r, k));
  HRI_TRY_OUT(read_state(r));
  HRI_TRY_OUT(read_events(r));
  builder.snapshot->format = "headroom";
  builder.snapshot->byte_count = count;
  status = hri_snapshot_build_end(&builder, snapshot, error);
out:
  hri_snapshot_build_deinit(&builder);
  hri_history_names_deinit(&r->names);
  hri_free(aligned);
  hri_free(r);
  return status;
}
