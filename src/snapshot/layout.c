/* Four rules are not plain copying:
 *
 * Addresses. Some devices have theirs at the top of the 64 bits. They are written as negative numbers, as PyTorch's C++
 * pickler does: the viewer's doubles hold those, and its arithmetic stays right.
 *
 * Categories. PyTorch's viewer colours events by `category`, but throws unless some event says "unknown". Where
 * categories are written and none does, one event that states none gets it; if all state one, a `snapshot` event is
 * added at the end.
 *
 * The CPU (device -1). PyTorch's own snapshots since 2026 keep pinned host memory under keys of its own, which go back
 * there. All others (the profiler's, ours) have it as the last device, so that viewers show it.
 *
 * Pools of events were added in 2026: they are written only where some event is in another than the default one. */
#include "snapshot/layout.h"

#include <string.h>

enum { CPU = -1, NO_PLACE = -2, MAX_DEVICES = 4096 };

const char *hri_word_text(hri_word word) {
  static const char *const words[HRI_WORD_COUNT] = {"action",
                                                    "addr",
                                                    "device_free",
                                                    "size",
                                                    "stream",
                                                    "time_us",
                                                    "compile_context",
                                                    "user_metadata",
                                                    "pool_id",
                                                    "category",
                                                    "frames",
                                                    "address",
                                                    "requested_size",
                                                    "state",
                                                    "name",
                                                    "filename",
                                                    "line",
                                                    "device",
                                                    "total_size",
                                                    "allocated_size",
                                                    "active_size",
                                                    "segment_type",
                                                    "segment_pool_id",
                                                    "is_expandable",
                                                    "blocks",
                                                    "segments",
                                                    "device_traces",
                                                    "host_segments",
                                                    "host_traces",
                                                    "allocator_settings",
                                                    "external_annotations",
                                                    "headroom",
                                                    "PYTORCH_CUDA_ALLOC_CONF",
                                                    "max_split_size",
                                                    "garbage_collection_threshold",
                                                    "expandable_segments",
                                                    "roundup_power2_divisions",
                                                    "stage",
                                                    [HRI_WORD_INACTIVE] = "inactive",
                                                    "active_allocated",
                                                    "active_pending_free",
                                                    "small",
                                                    "large",
                                                    "START",
                                                    "END",
                                                    "unknown",
                                                    "1",
                                                    "2",
                                                    "4",
                                                    "8",
                                                    "16",
                                                    "32",
                                                    "64",
                                                    "128",
                                                    "256",
                                                    "512",
                                                    "1024",
                                                    "2048",
                                                    "4096",
                                                    "8192",
                                                    "16384",
                                                    "32768"};
  return words[word] ? words[word] : hr_trace_action_name((hr_trace_action)(word - HRI_WORD_FIRST_ACTION));
}

typedef struct walk {
  const hr_snapshot *s;
  hri_layout_out *out;
  int32_t device_count; /* entries of device_traces */
  bool host_keys;       /* the CPU has its own keys */
  int32_t cpu_place;    /* as the last device; NO_PLACE: it has keys of its own, or there is nothing of it */
  bool event_pools;
  uint64_t unknown_event; /* gets the category "unknown"; UINT64_MAX: none */
  uint32_t unknown_trace; /* gets an added event of that category; UINT32_MAX: none */
} walk;

/* ---- short forms ---- */

static void field_u64(walk *w, hri_word key, uint64_t value) {
  w->out->put_key(w->out, key);
  w->out->put_u64(w->out, value);
}

static void field_i64(walk *w, hri_word key, int64_t value) {
  w->out->put_key(w->out, key);
  w->out->put_i64(w->out, value);
}

static void field_bool(walk *w, hri_word key, bool value) {
  w->out->put_key(w->out, key);
  w->out->put_bool(w->out, value);
}

static void field_word(walk *w, hri_word key, hri_word value) {
  w->out->put_key(w->out, key);
  w->out->put_word(w->out, value);
}

static void field_string(walk *w, hri_word key, uint32_t string) {
  w->out->put_key(w->out, key);
  w->out->put_string(w->out, string);
}

static void field_pool(walk *w, hri_word key, uint32_t pool) {
  w->out->put_key(w->out, key);
  w->out->put_pair(w->out, w->s->pools[pool].id[0], w->s->pools[pool].id[1]);
}

/* ---- stacks ---- */

static void put_frame(walk *w, uint32_t index) {
  const hr_frame *frame = &w->s->frames[index];
  if (w->out->refer(w->out, HRI_SHARED_FRAME, index)) return;
  w->out->begin_map(w->out);
  field_string(w, HRI_WORD_NAME, frame->name);
  field_string(w, HRI_WORD_FILENAME, frame->file);
  field_u64(w, HRI_WORD_LINE, frame->line);
  w->out->end_map(w->out);
}

static void field_stack(walk *w, uint32_t index) {
  const hr_stack stack = w->s->stacks[index];
  w->out->put_key(w->out, HRI_WORD_FRAMES);
  if (w->out->refer(w->out, HRI_SHARED_STACK, index)) return;
  w->out->begin_list(w->out);
  for (uint32_t k = 0; k < stack.count; k++) {
    w->out->item(w->out);
    put_frame(w, w->s->stack_frames[stack.first + k]);
  }
  w->out->end_list(w->out);
}

/* ---- segments ---- */

static int32_t place_of(const walk *w, int32_t device) {
  return device == CPU && w->cpu_place != NO_PLACE ? w->cpu_place : device;
}

static void put_block(walk *w, const hr_block *block) {
  w->out->begin_map(w->out);
  field_i64(w, HRI_WORD_ADDRESS, (int64_t)block->address);
  field_u64(w, HRI_WORD_SIZE, block->size);
  field_u64(w, HRI_WORD_REQUESTED_SIZE, block->requested_size);
  field_word(w, HRI_WORD_STATE, (hri_word)(HRI_WORD_INACTIVE + block->state));
  if (w->s->categories_stated && block->category) field_string(w, HRI_WORD_CATEGORY, w->s->categories[block->category]);
  field_stack(w, block->stack);
  w->out->end_map(w->out);
}

static void put_segment(walk *w, const hr_segment *segment) {
  w->out->begin_map(w->out);
  field_i64(w, HRI_WORD_DEVICE, place_of(w, segment->device));
  field_i64(w, HRI_WORD_ADDRESS, (int64_t)segment->address);
  field_u64(w, HRI_WORD_TOTAL_SIZE, segment->total_size);
  field_u64(w, HRI_WORD_ALLOCATED_SIZE, segment->allocated_size);
  field_u64(w, HRI_WORD_ACTIVE_SIZE, segment->active_size);
  field_u64(w, HRI_WORD_REQUESTED_SIZE, segment->requested_size);
  field_i64(w, HRI_WORD_STREAM, (int64_t)segment->stream);
  field_word(w, HRI_WORD_SEGMENT_TYPE, segment->large ? HRI_WORD_LARGE : HRI_WORD_SMALL);
  field_pool(w, HRI_WORD_SEGMENT_POOL_ID, segment->pool);
  field_bool(w, HRI_WORD_IS_EXPANDABLE, segment->expandable);
  field_stack(w, segment->stack);
  w->out->put_key(w->out, HRI_WORD_BLOCKS);
  w->out->begin_list(w->out);
  for (uint64_t k = 0; k < segment->block_count && !w->out->failed(w->out); k++) {
    w->out->item(w->out);
    put_block(w, &w->s->blocks[segment->first_block + k]);
  }
  w->out->end_list(w->out);
  w->out->end_map(w->out);
}

/* Those under keys of their own, or all others. */
static void put_segments(walk *w, hri_word key, bool host) {
  w->out->put_key(w->out, key);
  w->out->begin_list(w->out);
  for (uint64_t k = 0; k < w->s->segment_count && !w->out->failed(w->out); k++) {
    if ((w->host_keys && w->s->segments[k].device == CPU) != host) continue;
    w->out->item(w->out);
    put_segment(w, &w->s->segments[k]);
  }
  w->out->end_list(w->out);
}

/* ---- events ---- */

static void put_event(walk *w, uint64_t index) {
  const hr_trace_event *e = &w->s->events[index];
  w->out->begin_map(w->out);
  field_word(w, HRI_WORD_ACTION, (hri_word)(HRI_WORD_FIRST_ACTION + e->action));
  field_i64(w, e->action == HR_TRACE_OOM ? HRI_WORD_DEVICE_FREE : HRI_WORD_ADDR, (int64_t)e->addr);
  field_u64(w, HRI_WORD_SIZE, e->size);
  field_i64(w, HRI_WORD_STREAM, (int64_t)e->stream);
  if (e->flags & HR_EVENT_HAS_TIME) field_i64(w, HRI_WORD_TIME_US, e->time_us);
  if (e->note)
    field_string(w, e->flags & HR_EVENT_NOTE_IS_METADATA ? HRI_WORD_USER_METADATA : HRI_WORD_COMPILE_CONTEXT, e->note);
  if (w->event_pools) field_pool(w, HRI_WORD_POOL_ID, e->pool);
  if (index == w->unknown_event) field_word(w, HRI_WORD_CATEGORY, HRI_WORD_UNKNOWN);
  else if (w->s->categories_stated && e->category) field_string(w, HRI_WORD_CATEGORY, w->s->categories[e->category]);
  if (e->stack) field_stack(w, e->stack);
  w->out->end_map(w->out);
}

static uint64_t active_bytes(const hr_snapshot *s, int32_t device) {
  uint64_t bytes = 0;
  for (uint64_t k = 0; k < s->segment_count; k++)
    if (s->segments[k].device == device) bytes += s->segments[k].active_size;
  return bytes;
}

/* What taking a snapshot leaves in a trace. */
static void put_added_event(walk *w, const hr_trace *trace) {
  const hr_trace_event *last = &w->s->events[trace->first + trace->count - 1];
  w->out->item(w->out);
  w->out->begin_map(w->out);
  field_word(w, HRI_WORD_ACTION, (hri_word)(HRI_WORD_FIRST_ACTION + HR_TRACE_SNAPSHOT));
  field_u64(w, HRI_WORD_ADDR, 0);
  field_u64(w, HRI_WORD_SIZE, active_bytes(w->s, trace->device));
  field_u64(w, HRI_WORD_STREAM, 0);
  if (last->flags & HR_EVENT_HAS_TIME) field_i64(w, HRI_WORD_TIME_US, last->time_us);
  if (w->event_pools) field_pool(w, HRI_WORD_POOL_ID, 0);
  field_word(w, HRI_WORD_CATEGORY, HRI_WORD_UNKNOWN);
  w->out->end_map(w->out);
}

/* The list of one device: all its traces, which is one unless a snapshot was put together. */
static void put_trace(walk *w, int32_t device) {
  w->out->item(w->out);
  w->out->begin_list(w->out);
  for (uint32_t t = 0; t < w->s->trace_count; t++) {
    const hr_trace *trace = &w->s->traces[t];
    if (trace->device != device) continue;
    for (uint64_t k = 0; k < trace->count && !w->out->failed(w->out); k++) {
      w->out->item(w->out);
      put_event(w, trace->first + k);
    }
    if (t == w->unknown_trace) put_added_event(w, trace);
  }
  w->out->end_list(w->out);
}

static void put_traces(walk *w) {
  w->out->put_key(w->out, HRI_WORD_DEVICE_TRACES);
  w->out->begin_list(w->out);
  for (int32_t place = 0; place < w->device_count; place++) put_trace(w, place == w->cpu_place ? CPU : place);
  w->out->end_list(w->out);
}

static void put_host(walk *w) {
  put_segments(w, HRI_WORD_HOST_SEGMENTS, true);
  w->out->put_key(w->out, HRI_WORD_HOST_TRACES);
  w->out->begin_list(w->out);
  put_trace(w, CPU);
  w->out->end_list(w->out);
}

/* ---- the rest ---- */

static void put_settings(walk *w) {
  const hr_snapshot_settings *settings = &w->s->settings;
  w->out->put_key(w->out, HRI_WORD_ALLOCATOR_SETTINGS);
  w->out->begin_map(w->out);
  field_string(w, HRI_WORD_ALLOC_CONF, settings->text);
  field_i64(w, HRI_WORD_MAX_SPLIT_SIZE, settings->max_split_size);
  w->out->put_key(w->out, HRI_WORD_GARBAGE_COLLECTION_THRESHOLD);
  w->out->put_double(w->out, settings->garbage_collection_threshold);
  field_bool(w, HRI_WORD_EXPANDABLE_SEGMENTS, settings->expandable_segments);
  w->out->put_key(w->out, HRI_WORD_ROUNDUP_POWER2_DIVISIONS);
  w->out->begin_map(w->out);
  for (int k = 0; k < 16; k++)
    field_u64(w, (hri_word)(HRI_WORD_FIRST_INTERVAL + k), settings->roundup_power2_divisions[k]);
  w->out->end_map(w->out);
  w->out->end_map(w->out);
}

static void put_annotations(walk *w) {
  w->out->put_key(w->out, HRI_WORD_EXTERNAL_ANNOTATIONS);
  w->out->begin_list(w->out);
  for (uint64_t k = 0; k < w->s->annotation_count && !w->out->failed(w->out); k++) {
    const hr_annotation *a = &w->s->annotations[k];
    w->out->item(w->out);
    w->out->begin_map(w->out);
    field_string(w, HRI_WORD_NAME, a->name);
    field_word(w, HRI_WORD_STAGE, a->end ? HRI_WORD_END : HRI_WORD_START);
    field_i64(w, HRI_WORD_DEVICE, place_of(w, a->device));
    field_i64(w, HRI_WORD_TIME_US, a->time_us);
    w->out->end_map(w->out);
  }
  w->out->end_list(w->out);
}

/* ---- what the rules above need to know beforehand ---- */

static bool has_cpu(const hr_snapshot *s) {
  for (uint32_t k = 0; k < s->trace_count; k++)
    if (s->traces[k].device == CPU) return true;
  for (uint64_t k = 0; k < s->segment_count; k++)
    if (s->segments[k].device == CPU) return true;
  return false;
}

static int32_t last_device(const hr_snapshot *s) {
  int32_t last = -1;
  for (uint32_t k = 0; k < s->trace_count; k++)
    if (s->traces[k].device > last) last = s->traces[k].device;
  for (uint64_t k = 0; k < s->segment_count; k++)
    if (s->segments[k].device > last) last = s->segments[k].device;
  return last;
}

static void choose_unknown(walk *w) {
  const hr_snapshot *s = w->s;
  bool any = false;
  uint64_t none = UINT64_MAX; /* an event that states no category; allocations, which are drawn, come first */
  for (uint64_t k = 0; k < s->event_count; k++) {
    const hr_trace_event *e = &s->events[k];
    if (e->category && strcmp(hr_snapshot_category(s, e->category), "unknown") == 0) return;
    any |= e->category != 0;
    if (e->category) continue;
    if (none == UINT64_MAX || (e->action == HR_TRACE_ALLOC && s->events[none].action != HR_TRACE_ALLOC)) none = k;
  }
  if (!any) return;
  w->unknown_event = none;
  for (uint32_t t = 0; t < s->trace_count && none == UINT64_MAX; t++)
    if (s->traces[t].count) w->unknown_trace = t;
}

static walk prepare(const hr_snapshot *s, hri_layout_out *out) {
  walk w = {.s = s, .out = out, .cpu_place = NO_PLACE, .unknown_event = UINT64_MAX, .unknown_trace = UINT32_MAX};
  const bool cpu = has_cpu(s);
  w.host_keys = cpu && strncmp(s->format, "pytorch-2", 9) == 0;
  w.device_count = last_device(s) + 1;
  if (cpu && !w.host_keys) w.cpu_place = w.device_count++;
  for (uint64_t k = 0; k < s->event_count && !w.event_pools; k++) w.event_pools = s->events[k].pool != 0;
  if (s->categories_stated) choose_unknown(&w);
  return w;
}

void hri_layout_walk(const hr_snapshot *snapshot, hri_layout_out *out) {
  walk w = prepare(snapshot, out);
  out->begin_map(out);
  put_traces(&w); /* first: references to their keys are then the shortest */
  put_segments(&w, HRI_WORD_SEGMENTS, false);
  if (w.host_keys) put_host(&w);
  if (snapshot->settings.present) put_settings(&w);
  if (snapshot->annotation_count) put_annotations(&w);
  if (strcmp(snapshot->format, "headroom") == 0) field_u64(&w, HRI_WORD_HEADROOM, 1); /* other tools pass it over */
  out->end_map(out);
}

/* ---- what cannot be written ---- */

typedef struct number {
  const char *name;
  uint64_t value;
  bool is_signed; /* of int64 */
} number;

static hr_status check_numbers(const number *numbers, int count, uint64_t largest, const char *what, uint64_t index,
                               hr_error *error) {
  for (int k = 0; k < count; k++) {
    uint64_t value = numbers[k].value;
    bool negative = numbers[k].is_signed && value > INT64_MAX;
    if ((negative ? 0 - value : value) <= largest) continue;
    hri_fail(error, HR_ERROR_INPUT,
             "%s %llu cannot be written: its %s is %s%llu, and PyTorch's viewer holds no number above %llu exactly",
             what, (unsigned long long)index, numbers[k].name, negative ? "-" : "",
             (unsigned long long)(negative ? 0 - value : value), (unsigned long long)largest);
    return hri_hint(error, HR_ERROR_INPUT, "export it as JSON, which keeps every number as it is");
  }
  return HR_OK;
}

static hr_status check_segment(const hr_snapshot *s, uint64_t index, uint64_t largest, hr_error *error) {
  const hr_segment *segment = &s->segments[index];
  uint64_t end, next = segment->address;
  if (segment->device < CPU || segment->device >= MAX_DEVICES)
    return hri_fail(error, HR_ERROR_INPUT, "segment %llu cannot be written: device %d is out of range (-1 to %d)",
                    (unsigned long long)index, (int)segment->device, MAX_DEVICES - 1);
  for (uint64_t k = 0; k < segment->block_count; k++) {
    const hr_block *block = &s->blocks[segment->first_block + k];
    if (block->address != next || !hri_add(next, block->size, &next))
      return hri_fail(error, HR_ERROR_INPUT,
                      "segment %llu cannot be written: its block %llu is at %#llx, not where the one before it ends",
                      (unsigned long long)index, (unsigned long long)k, (unsigned long long)block->address);
    const number of_block[] = {{"requested size", block->requested_size, false}};
    HRI_TRY(check_numbers(of_block, 1, largest, "block", segment->first_block + k, error));
  }
  if (!hri_add(segment->address, segment->total_size, &end) || end != next)
    return hri_fail(error, HR_ERROR_INPUT, "segment %llu cannot be written: it has %llu bytes and its blocks have %llu",
                    (unsigned long long)index, (unsigned long long)segment->total_size,
                    (unsigned long long)(next - segment->address));
  const number of_segment[] = {{"address", segment->address, true},
                               {"end", end, true},
                               {"size", segment->total_size, false},
                               {"stream", segment->stream, true},
                               {"requested size", segment->requested_size, false},
                               {"pool", s->pools[segment->pool].id[0], false},
                               {"pool", s->pools[segment->pool].id[1], false}};
  return check_numbers(of_segment, 7, largest, "segment", index, error);
}

static hr_status check_trace(const hr_snapshot *s, uint32_t index, uint64_t largest, hr_error *error) {
  const hr_trace *trace = &s->traces[index];
  if (trace->device < CPU || trace->device >= MAX_DEVICES)
    return hri_fail(error, HR_ERROR_INPUT, "trace %u cannot be written: device %d is out of range (-1 to %d)",
                    (unsigned)index, (int)trace->device, MAX_DEVICES - 1);
  for (uint64_t k = 0; k < trace->count; k++) {
    const hr_trace_event *e = &s->events[trace->first + k];
    const number of_event[] = {{"address", e->addr, e->action != HR_TRACE_OOM},
                               {"size", e->size, false},
                               {"stream", e->stream, true},
                               {"time", (uint64_t)e->time_us, true},
                               {"pool", s->pools[e->pool].id[0], false},
                               {"pool", s->pools[e->pool].id[1], false}};
    HRI_TRY(check_numbers(of_event, 6, largest, "event", trace->first + k, error));
  }
  return HR_OK;
}

hr_status hri_layout_check(const hr_snapshot *s, uint64_t largest, hr_error *error) {
  for (uint64_t k = 0; k < s->segment_count; k++) HRI_TRY(check_segment(s, k, largest, error));
  for (uint32_t k = 0; k < s->trace_count; k++) HRI_TRY(check_trace(s, k, largest, error));
  for (uint64_t k = 0; k < s->annotation_count; k++) {
    const number of_annotation[] = {{"time", (uint64_t)s->annotations[k].time_us, true}};
    HRI_TRY(check_numbers(of_annotation, 1, largest, "annotation", k, error));
  }
  for (uint64_t k = 0; k < 16; k++) {
    const number of_interval[] = {{"rounding", s->settings.roundup_power2_divisions[k], false}};
    HRI_TRY(check_numbers(of_interval, 1, largest, "interval", k, error));
  }
  const number split[] = {{"max_split_size", (uint64_t)s->settings.max_split_size, true}};
  return check_numbers(split, 1, largest, "setting", 0, error);
}
