/* The end of reading: the lists of the whole file become traces, segments and blocks. Blocks are believed: their sizes
 * say where they lie and how long a segment is; what the file states otherwise is counted as repaired. */
#include <stdlib.h>
#include <string.h>

#include "snapshot/decode.h"

enum { MAX_TRACES = 65536, CPU = -1 };
static const uint64_t small_segment_bytes = 2u << 20; /* of PyTorch's small pool */

/* ---- lists ---- */

/* The list that `v` is, of items of kind `tag`. Nothing stated gives the empty list. */
static hr_status get_list(hri_snapshot_decoder *d, hri_decoded v, hri_value_tag tag, const char *name,
                          const char *items, const hri_value_list **list) {
  hri_value_list *found;
  char text[80];
  *list = &d->lists[0];
  if (v == HRI_VALUE_NONE || v == hri_value_make(HRI_VALUE_LIST, 0)) return HR_OK;
  if (hri_value_tag_of(v) != HRI_VALUE_LIST)
    return hri_snapshot_decoder_fail(d, "'%s' is %s; wanted: a list of %s", name, hri_value_text(d, v, text), items);
  found = &d->lists[hri_value_payload(v)];
  if (hri_value_tag_of(hri_list_item(found, 0)) != tag)
    return hri_snapshot_decoder_fail(d, "'%s' holds %s; wanted: a list of %s", name,
                                     hri_value_text(d, hri_list_item(found, 0), text), items);
  if (found->used) return hri_snapshot_decoder_fail(d, "'%s' is a list that stands in the snapshot twice", name);
  found->used = true;
  *list = found;
  return HR_OK;
}

/* ---- traces ---- */

static hr_status add_trace(hri_snapshot_decoder *d, hri_decoded v, int32_t device) {
  hr_snapshot *s = d->builder.snapshot;
  const hri_value_list *list;
  uint64_t count;
  HRI_TRY(get_list(d, v, HRI_VALUE_EVENT, "device_traces", "lists of events", &list));
  if (s->trace_count == MAX_TRACES)
    return hri_snapshot_decoder_fail(d, "the file has more than %d traces", (int)MAX_TRACES);
  if (!hri_snapshot_add_trace(&d->builder, device)) return hri_snapshot_decoder_fail_memory(d);
  count = hri_list_count(list);
  if (list->run)
    s->traces[s->trace_count - 1].first = hri_value_payload(list->first), s->traces[s->trace_count - 1].count = count;
  for (uint64_t k = 0; !list->run && k < count; k++) { /* out of order or shared with another list: copies */
    const hr_trace_event event = s->events[hri_value_payload(list->items.items[k])];
    if (!hri_snapshot_add_event(&d->builder, &event)) return hri_snapshot_decoder_fail_memory(d);
  }
  return HR_OK;
}

/* One list per device, or (host_traces) one list of events. */
static hr_status add_traces(hri_snapshot_decoder *d, hri_decoded v, const char *name, bool host) {
  const hri_value_list *list;
  if (hri_value_tag_of(v) == HRI_VALUE_LIST && hri_value_payload(v) &&
      hri_value_tag_of(hri_list_item(&d->lists[hri_value_payload(v)], 0)) == HRI_VALUE_EVENT)
    return add_trace(d, v, host ? CPU : 0);
  HRI_TRY(get_list(d, v, HRI_VALUE_LIST, name, "lists of events", &list));
  for (uint64_t k = 0; k < hri_list_count(list); k++) {
    if (host && hri_list_item(list, k) == hri_value_make(HRI_VALUE_LIST, 0)) continue;
    HRI_TRY(add_trace(d, hri_list_item(list, k), host ? CPU : (int32_t)k));
  }
  return HR_OK;
}

/* Traces follow each other in the array of events without a gap; where a file brought them otherwise, they are
 * moved. */
static hr_status pack_events(hri_snapshot_decoder *d) {
  hr_snapshot *s = d->builder.snapshot;
  uint64_t total = 0, capacity = 0;
  hr_trace_event *events = NULL;
  bool packed = true;
  for (uint32_t k = 0; k < s->trace_count; k++) {
    packed &= s->traces[k].first == total || !s->traces[k].count;
    total += s->traces[k].count; /* no overflow: each list is used once */
  }
  if (!packed || total != s->event_count) {
    if (!HRI_DECODER_GROW(events, capacity, total ? total : 1)) return hri_snapshot_decoder_fail_memory(d);
  }
  total = 0;
  for (uint32_t k = 0; k < s->trace_count; k++) {
    hr_trace *trace = &s->traces[k];
    if (events && trace->count) memcpy(events + total, s->events + trace->first, (size_t)trace->count * sizeof *events);
    trace->first = total;
    total += trace->count;
  }
  if (events) {
    hri_free(s->events);
    s->events = events;
    s->event_count = total;
    d->builder.event_capacity = capacity;
  }
  return HR_OK;
}

/* ---- segments ---- */

static hr_status add_block(hri_snapshot_decoder *d, const hri_read_block *read, uint64_t address, uint64_t *total) {
  hr_snapshot *s = d->builder.snapshot;
  hr_block block = read->block;
  uint64_t end;
  if (!block.size) return s->repaired_count++, HR_OK;
  if (!hri_add(address, *total, &block.address) || !hri_add(block.address, block.size - 1, &end))
    return hri_snapshot_decoder_fail(d, "the segment at 0x%llx has blocks that end above 2^64",
                                     (unsigned long long)address);
  s->repaired_count += read->has_address && read->block.address != block.address;
  if (block.state == HR_BLOCK_INACTIVE) block.requested_size = 0;
  else if (!read->has_requested) block.requested_size = block.size;
  if (block.requested_size > block.size) block.requested_size = block.size, s->repaired_count++;
  if (!hri_add(*total, block.size, total)) return hri_snapshot_decoder_fail(d, "a segment has blocks of 2^64 bytes");
  return hri_snapshot_add_block(&d->builder, &block) ? HR_OK : hri_snapshot_decoder_fail_memory(d);
}

static hr_status add_blocks(hri_snapshot_decoder *d, const hri_read_segment *read, uint64_t address, uint64_t *total) {
  const hri_value_list *list;
  HRI_TRY(get_list(d, read->blocks, HRI_VALUE_BLOCK, "blocks", "blocks", &list));
  for (uint64_t k = 0; k < hri_list_count(list); k++)
    HRI_TRY(add_block(d, &d->blocks[hri_value_payload(hri_list_item(list, k))], address, total));
  if (!*total && read->segment.total_size) { /* no blocks: nobody has it */
    const hri_read_block whole = {.block = {.size = read->segment.total_size}};
    d->builder.snapshot->repaired_count++;
    return add_block(d, &whole, address, total);
  }
  return HR_OK;
}

/* How many of the segment's stated sums its blocks contradict. */
static uint64_t contradictions(const hr_snapshot *s, const hri_read_segment *read) {
  const hr_segment *segment = &s->segments[s->segment_count - 1];
  uint64_t sums[3] = {0}, count = 0;
  for (uint64_t k = segment->first_block; k < segment->first_block + segment->block_count; k++) {
    const hr_block *b = &s->blocks[k];
    sums[0] += b->state == HR_BLOCK_ALLOCATED ? b->size : 0;
    sums[1] += b->state != HR_BLOCK_INACTIVE ? b->size : 0;
    sums[2] += b->state != HR_BLOCK_INACTIVE ? b->requested_size : 0;
  }
  for (int k = 0; k < 3; k++) count += read->stated[k] != UINT64_MAX && read->stated[k] != sums[k];
  return count;
}

static hr_status add_segment(hri_snapshot_decoder *d, const hri_read_segment *read, int32_t device) {
  hr_snapshot *s = d->builder.snapshot;
  hr_segment segment = read->segment;
  uint64_t total = 0;
  if (!read->has_address && hri_value_tag_of(read->blocks) == HRI_VALUE_LIST && hri_value_payload(read->blocks)) {
    hri_decoded first = hri_list_item(&d->lists[hri_value_payload(read->blocks)], 0);
    if (hri_value_tag_of(first) == HRI_VALUE_BLOCK) segment.address = d->blocks[hri_value_payload(first)].block.address;
  }
  segment.device = device;
  if (!read->typed) segment.large = segment.total_size > small_segment_bytes;
  if (!hri_snapshot_add_segment(&d->builder, &segment)) return hri_snapshot_decoder_fail_memory(d);
  HRI_TRY(add_blocks(d, read, segment.address, &total));
  s->segments[s->segment_count - 1].total_size = total;
  s->repaired_count += total != segment.total_size;
  s->repaired_count += contradictions(s, read);
  if (!total) s->segment_count--; /* it holds nothing, nor has it blocks */
  return HR_OK;
}

static hr_status add_segments(hri_snapshot_decoder *d, hri_decoded v, const char *name, int32_t cpu_place, bool host) {
  const hri_value_list *list;
  HRI_TRY(get_list(d, v, HRI_VALUE_SEGMENT, name, "segments", &list));
  for (uint64_t k = 0; k < hri_list_count(list); k++) {
    const hri_read_segment *read = &d->segments[hri_value_payload(hri_list_item(list, k))];
    HRI_TRY(add_segment(d, read, host || read->segment.device == cpu_place ? CPU : read->segment.device));
  }
  return HR_OK;
}

/* ---- the whole ---- */

static hr_status add_annotations(hri_snapshot_decoder *d, hri_decoded v) {
  const hri_value_list *list;
  HRI_TRY(get_list(d, v, HRI_VALUE_ANNOTATION, "external_annotations", "annotations", &list));
  for (uint64_t k = 0; k < hri_list_count(list); k++)
    if (!hri_snapshot_add_annotation(&d->builder, &d->annotations[hri_value_payload(hri_list_item(list, k))]))
      return hri_snapshot_decoder_fail_memory(d);
  return HR_OK;
}

static bool has(uint64_t keys, hri_key key) { return keys >> key & 1; }

/* torch/cuda/_memory_viz.py makes these from a profile: every event has frames, allocations have categories, nothing
 * has times, segments have no type. The last device is the CPU. */
static bool from_profiler(const hri_snapshot_decoder *d) {
  return !has(d->top_keys, HRI_KEY_HEADROOM) && has(d->event_keys, HRI_KEY_CATEGORY) &&
         !has(d->event_keys, HRI_KEY_TIME_US) && !has(d->event_keys_not, HRI_KEY_FRAMES) &&
         !has(d->segment_keys, HRI_KEY_SEGMENT_TYPE) && !has(d->top_keys, HRI_KEY_ALLOCATOR_SETTINGS);
}

/* By the keys that came with each version. */
static const char *format_of(const hri_snapshot_decoder *d) {
  if (has(d->top_keys, HRI_KEY_HEADROOM)) return "headroom";
  if (from_profiler(d)) return "pytorch-profiler";
  if (has(d->top_keys, HRI_KEY_HOST_SEGMENTS) || has(d->top_keys, HRI_KEY_HOST_TRACES) ||
      has(d->event_keys, HRI_KEY_POOL_ID))
    return "pytorch-2.14";
  if (has(d->event_keys, HRI_KEY_USER_METADATA)) return "pytorch-2.10";
  if (has(d->event_keys, HRI_KEY_COMPILE_CONTEXT)) return "pytorch-2.7";
  if (has(d->top_keys, HRI_KEY_EXTERNAL_ANNOTATIONS)) return "pytorch-2.6";
  if (has(d->top_keys, HRI_KEY_ALLOCATOR_SETTINGS)) return "pytorch-2.4";
  if (has(d->event_keys, HRI_KEY_TIME_US)) return "pytorch-2.2";
  if (has(d->block_keys, HRI_KEY_ADDRESS) || has(d->segment_keys, HRI_KEY_SEGMENT_POOL_ID) ||
      has(d->segment_keys, HRI_KEY_IS_EXPANDABLE) || d->seen_map)
    return "pytorch-2.1";
  return "pytorch-2.0";
}

static hr_status find_top(hri_snapshot_decoder *d, hri_decoded whole, hri_read_top *top) {
  const bool empty = hri_value_tag_of(whole) == HRI_VALUE_NEW_DICT; /* complete it is none */
  char text[80];
  HRI_TRY(hri_value_finish(d, &whole, HRI_KEY_NONE));
  *top = (hri_read_top){0};
  if (hri_value_tag_of(whole) == HRI_VALUE_TOP) *top = d->tops[hri_value_payload(whole)];
  else if (hri_value_tag_of(whole) == HRI_VALUE_LIST) top->segments = whole;
  else {
    hr_status status = hri_snapshot_decoder_fail(
        d, "the file holds %s; wanted: a dict with 'segments' and 'device_traces', or a list of segments",
        empty ? "an empty dict" : hri_value_text(d, whole, text));
    return hri_hint(d->error, status,
                    "it was read to its end and is no memory snapshot; torch.cuda.memory._dump_snapshot makes one");
  }
  return HR_OK;
}

hr_status hri_snapshot_decoder_end(hri_snapshot_decoder *d, hri_decoded whole, uint64_t byte_count,
                                   hr_snapshot **snapshot) {
  hr_snapshot *s = d->builder.snapshot;
  hri_read_top top;
  int32_t cpu_place = CPU;
  HRI_TRY(find_top(d, whole, &top));
  s->trace_count = 0;
  HRI_TRY(add_traces(d, top.traces, "device_traces", false));
  if (from_profiler(d) && s->trace_count) {
    cpu_place = (int32_t)s->trace_count - 1;
    s->traces[cpu_place].device = CPU;
  }
  HRI_TRY(add_traces(d, top.host_traces, "host_traces", true));
  HRI_TRY(pack_events(d));
  HRI_TRY(add_segments(d, top.segments, "segments", cpu_place, false));
  HRI_TRY(add_segments(d, top.host_segments, "host_segments", cpu_place, true));
  HRI_TRY(add_annotations(d, top.annotations));
  if (hri_value_tag_of(top.settings) == HRI_VALUE_SETTINGS) s->settings = d->settings[hri_value_payload(top.settings)];
  else if (top.settings != HRI_VALUE_NONE) s->unknown_count++;
  s->format = format_of(d);
  s->byte_count = byte_count;
  return hri_snapshot_build_end(&d->builder, snapshot, d->error);
}
