/* What a trace says about the world it was recorded in: its settings, the room that there was, the pools of
 * addresses. */
#include "replay/replay.h"

#include <string.h>

#include "alloc/sizes.h"

/* ---- pools ---- */

/* Events name their pool since 2026; before, the address tells, where a segment of the last state holds it. */
static uint32_t pool_at(const hr_snapshot *s, int32_t device, uint64_t address) {
  uint64_t low = 0, high = s->segment_count;
  while (low < high) { /* the last segment that begins at or below */
    uint64_t middle = low + (high - low) / 2;
    const hr_segment *g = &s->segments[middle];
    if (g->device < device || (g->device == device && g->address <= address)) low = middle + 1;
    else high = middle;
  }
  if (low == 0) return 0;
  return s->segments[low - 1].device == device &&
                 address - s->segments[low - 1].address < s->segments[low - 1].total_size
             ? s->segments[low - 1].pool
             : 0;
}

static hr_status read_pools(const hr_snapshot *s, hri_recording *r, hr_error *error) {
  const hri_lives *l = r->lives;
  bool stated = false;
  if (s->pool_count <= 1) return HR_OK;
  r->event_pool = hri_alloc_zero((size_t)l->event_count + 1, sizeof *r->event_pool);
  if (!r->event_pool) return hri_fail_memory(error, l->event_count * sizeof *r->event_pool, "the pools of a trace");
  for (uint64_t k = 0; k < l->event_count && !stated; k++) stated = l->events[k].pool != 0;
  for (uint64_t k = 0; k < l->event_count; k++) {
    if (stated) r->event_pool[k] = l->events[k].pool;
    else if (l->events[k].action != HR_TRACE_OOM) /* which has no address */
      r->event_pool[k] = pool_at(s, s->traces[l->trace].device, l->events[k].addr);
  }
  return HR_OK;
}

/* ---- streams ---- */

/* Every stream of a pool costs the allocator 27 KiB. */
enum { MOST_PLACES = 4096, PLACE_SLOTS = 4 * MOST_PLACES };

typedef struct places {
  struct {
    uint64_t stream;
    uint32_t pool;
    bool used;
  } slots[PLACE_SLOTS];
  uint32_t count;
} places;

static void meet_place(places *p, uint64_t stream, uint32_t pool) {
  uint64_t at = ((stream ^ (uint64_t)pool << 48) * 0x9e3779b97f4a7c15u >> 40) % PLACE_SLOTS;
  for (; p->slots[at].used; at = (at + 1) % PLACE_SLOTS)
    if (p->slots[at].stream == stream && p->slots[at].pool == pool) return;
  if (p->count++ > MOST_PLACES) return;
  p->slots[at].stream = stream;
  p->slots[at].pool = pool;
  p->slots[at].used = true;
}

static hr_status check_places(const hri_recording *r, hr_error *error) {
  const hri_lives *l = r->lives;
  places *p = hri_alloc_zero(1, sizeof *p);
  uint64_t count;
  if (!p) return hri_fail_memory(error, sizeof *p, "the streams of a trace");
  for (uint64_t k = 0; k < l->event_count && p->count <= MOST_PLACES; k++)
    if (l->events[k].action == HR_TRACE_ALLOC || l->events[k].action == HR_TRACE_OOM)
      meet_place(p, l->events[k].stream, r->event_pool ? r->event_pool[k] : 0);
  for (uint64_t k = 0; k < r->start.segment_count && p->count <= MOST_PLACES; k++)
    meet_place(p, r->start.segments[k].stream, r->start.segments[k].pool);
  count = p->count;
  hri_free(p);
  if (count <= MOST_PLACES && l->snapshot->pool_count <= MOST_PLACES) return HR_OK;
  return hri_fail(error, HR_ERROR_INPUT,
                  "the trace names more than %d streams and pools, more than a device has: it is damaged", MOST_PLACES);
}

/* ---- room ---- */

/* A driver call that failed leaves no event of its own, but its traces: right before a segment was taken, others were
 * returned, in one request (which only stacks tell from an empty_cache before it). There was not room for both, which
 * bounds the capacity from above; what was ever reserved bounds it from below. An out-of-memory event states the free
 * bytes; where they would have served the request, a cap refused it, and what was ever reserved is the least that the
 * cap can be.
 *
 * Garbage collection returns segments in the same way, until what is left is below its threshold of the allowed bytes:
 * it
 * shows the least that can be allowed. */
typedef struct room {
  uint64_t reserved, peak, bound, freed;
  uint32_t stack; /* of the first segment returned */
  uint64_t from_oom;
  bool has_oom, capped;
  uint64_t kept, collected_at; /* after garbage collections, the most; before them, the least */
} room;

static uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Segments were returned and one taken in the same request. */
static void meet_return(room *m, const hri_recording *r, const hr_trace_event *e) {
  uint64_t before = add(m->reserved, m->freed), both = add(before, e->size) - 1;
  if (r->config.garbage_collection_threshold == 0) {
    if (both < m->bound) m->bound = both;
    return;
  }
  if (m->reserved > m->kept) m->kept = m->reserved;
  if (before < m->collected_at) m->collected_at = before;
}

static void meet(room *m, hri_recording *r, uint64_t k) {
  const hr_trace_event *e = &r->lives->events[k];
  const bool absurd = e->size > HRI_ABSURD_BYTES;
  if (absurd && e->action != HR_TRACE_OOM) return; /* damage: lives leave it out too */
  switch (e->action) {
  case HR_TRACE_SEGMENT_FREE:
  case HR_TRACE_SEGMENT_UNMAP:
    if (!m->freed) m->stack = e->stack;
    m->reserved -= e->size < m->reserved ? e->size : m->reserved;
    m->freed = add(m->freed, e->size);
    return;
  case HR_TRACE_SEGMENT_ALLOC:
  case HR_TRACE_SEGMENT_MAP:
    if (m->freed && e->stack && e->stack == m->stack) meet_return(m, r, e);
    m->reserved = add(m->reserved, e->size);
    if (m->reserved > m->peak) m->peak = m->reserved;
    break;
  case HR_TRACE_OOM:
    m->from_oom = add(m->reserved, e->addr);
    m->has_oom = true;
    m->capped = !absurd && e->addr >= hri_alloc_driver_bytes(&r->config, e->size) && r->config.memory_fraction >= 1;
    r->oom_recorded = true;
    r->oom_event = k; /* the last one */
    r->oom_count++;
    break;
  default: break;
  }
  m->freed = 0;
}

/* Own addresses begin above all recorded ones that a device can have. */
static void rise_above(hri_recording *r, uint64_t address, uint64_t bytes) {
  static const uint64_t highest = UINT64_MAX / 4;
  if (address < highest && bytes <= HRI_ABSURD_BYTES && address + bytes > r->above) r->above = address + bytes;
}

static void choose_room(const room *m, const hr_replay_options *o, hri_recording *r) {
  r->capacity_bytes = UINT64_MAX;
  r->capacity_from = "unlimited";
  if (o->capacity_bytes) {
    r->capacity_bytes = o->capacity_bytes;
    r->capacity_from = "given";
  } else if (m->has_oom && m->capped) {
    r->capacity_bytes = m->peak;
    r->capacity_from = "a cap below the device's memory, at least what was reserved";
  } else if (m->has_oom) {
    r->capacity_bytes = m->from_oom > m->peak ? m->from_oom : m->peak;
    r->capacity_from = "out-of-memory event";
  } else if (m->bound != UINT64_MAX && m->bound >= m->peak) {
    r->capacity_bytes = m->bound;
    r->capacity_from = "segments returned to make room";
  }
}

static void choose_allowed(const room *m, hri_recording *r) {
  double bytes;
  if (m->collected_at == UINT64_MAX) return;
  bytes = (double)(m->kept < m->collected_at ? m->kept : m->collected_at - 1) / r->config.garbage_collection_threshold;
  if (bytes >= 0x1p62) return; /* damage */
  r->allowed_bytes = bytes > (double)m->peak ? (uint64_t)bytes : m->peak;
}

static void find_room(const hr_replay_options *o, hri_recording *r) {
  room m = {.reserved = o->empty_start ? 0 : r->lives->start_reserved_bytes,
            .bound = UINT64_MAX,
            .collected_at = UINT64_MAX};
  m.peak = m.reserved;
  for (uint64_t k = 0; k < r->lives->event_count; k++) {
    const hr_trace_event *e = &r->lives->events[k];
    if (e->action != HR_TRACE_OOM) rise_above(r, e->addr, e->size);
    meet(&m, r, k);
  }
  for (uint64_t k = 0; k < r->start.segment_count; k++)
    rise_above(r, r->start.segments[k].address, r->start.segments[k].total_size);
  r->above += (uint64_t)1 << 42; /* the address space that follows the last range of an expandable segment */
  choose_room(&m, o, r);
  choose_allowed(&m, r);
}

/* ---- opening ---- */

/* Host memory that PyTorch pins is another allocator's: powers of two, no segments that are split. Our own runs and a
 * profile have their tensors on the CPU. */
static bool is_pinned(const hr_snapshot *s, uint32_t trace) {
  return s->traces[trace].device < 0 && strncmp(s->format, "pytorch-2", 9) == 0;
}

static uint32_t choose_trace(const hr_snapshot *s) {
  uint32_t best = hri_failed_trace(s);
  if (best != HR_TRACE_MOST) return best;
  best = 0;
  for (uint32_t k = 1; k < s->trace_count; k++)
    if (s->traces[k].count && (s->traces[best].count == 0 || is_pinned(s, k) < is_pinned(s, best) ||
                               (is_pinned(s, k) == is_pinned(s, best) && s->traces[k].count > s->traces[best].count)))
      best = k;
  return best;
}

/* A cap is a share of the device. The recorded program's own, or a wider one, was no obstacle to what it got. */
static hr_status check_fraction(const hri_recording *r, const hr_replay_options *o, hr_error *error) {
  hr_alloc_config asked = r->config;
  hr_status status;
  if (o->alloc_conf == NULL) return HR_OK;
  asked.memory_fraction = 1;
  HRI_TRY(hr_alloc_config_parse(o->alloc_conf, &asked, error));
  if (r->capacity_bytes != UINT64_MAX || asked.memory_fraction >= r->config.memory_fraction) return HR_OK;
  status = hri_fail(error, HR_ERROR_USAGE,
                    "per_process_memory_fraction:%g is a share of the device's memory, and the recording does not tell "
                    "how much that is: no request failed in it",
                    asked.memory_fraction);
  return hri_hint(error, status, "name it with --capacity SIZE, of which the fraction is then taken");
}

hr_status hri_recording_open(const hr_snapshot *s, const hr_replay_options *o, hri_recording *r, hr_error *error) {
  uint32_t trace = o->trace == UINT32_MAX ? choose_trace(s) : o->trace;
  hr_status status;
  *r = (hri_recording){0};
  if (s->trace_count && trace >= s->trace_count)
    return hri_fail(error, HR_ERROR_USAGE, "the snapshot has %u traces; there is no trace %u", s->trace_count, trace);
  if (s->trace_count == 0 || s->traces[trace].count == 0) {
    if (o->trace == UINT32_MAX)
      status = hri_fail(error, HR_ERROR_INPUT, "the snapshot holds no events, only a last state");
    else status = hri_fail(error, HR_ERROR_INPUT, "trace %u of the snapshot holds no events", trace);
    return hri_hint(error, status,
                    "record with torch.cuda.memory._record_memory_history(max_entries=1000000) before the work begins");
  }
  if ((s->events[s->traces[trace].first].flags & HR_EVENT_NO_ADDRESS) || strcmp(s->format, "pytorch-profiler") == 0) {
    status = hri_fail(error, HR_ERROR_INPUT,
                      "the snapshot was made by a profiler: it has no addresses and no segments to replay");
    return hri_hint(error, status, "take one with torch.cuda.memory._dump_snapshot()");
  }
  if (is_pinned(s, trace)) {
    status =
        hri_fail(error, HR_ERROR_INPUT,
                 "trace %u is of pinned host memory, which PyTorch's caching allocator of the device does not manage",
                 trace);
    return hri_hint(error, status, "replay the trace of a device; \"headroom inspect\" shows this one (--device cpu)");
  }
  HRI_TRY(hri_lives_build(s, trace, &r->lives, error));
  status = o->empty_start ? HR_OK : hri_state_at(r->lives, HRI_NEVER, &r->start, error);
  r->config = r->lives->config;
  if (status == HR_OK) status = read_pools(s, r, error);
  if (status == HR_OK) status = check_places(r, error);
  if (status == HR_OK) find_room(o, r);
  if (status == HR_OK) status = check_fraction(r, o, error);
  if (status != HR_OK) hri_recording_close(r);
  return status;
}

void hri_recording_close(hri_recording *r) {
  hri_state_deinit(&r->start);
  hri_lives_destroy(r->lives);
  hri_free(r->event_pool);
  *r = (hri_recording){0};
}
