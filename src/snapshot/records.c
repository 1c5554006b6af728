/* Dicts to records. Which record a dict is, is told by its keys alone, so that a value needs no context: no two kinds
 * share the keys that tell them (`kind_of`). Unknown keys are left out and counted; a known key with a value of another
 * type is an error where the value is needed, and left out and counted where it is not. */
#include <math.h>
#include <string.h>

#include "snapshot/decode.h"

#define BIT(word) (1ull << HRI_KEY_##word)

typedef enum kind {
  KIND_EVENT,
  KIND_SEGMENT,
  KIND_BLOCK,
  KIND_FRAME,
  KIND_HISTORY,
  KIND_ANNOTATION,
  KIND_TOP,
  KIND_SETTINGS,
  KIND_NONE
} kind;

static const char *const kind_names[] = {"event",    "segment",           "block",
                                         "frame",    "history entry",     "annotation",
                                         "snapshot", "allocator setting", ""};

static const uint64_t known_keys[KIND_NONE] = {
    [KIND_EVENT] = BIT(ACTION) | BIT(ADDR) | BIT(DEVICE_FREE) | BIT(SIZE) | BIT(STREAM) | BIT(TIME_US) | BIT(FRAMES) |
                   BIT(COMPILE_CONTEXT) | BIT(USER_METADATA) | BIT(POOL_ID) | BIT(CATEGORY),
    [KIND_SEGMENT] = BIT(DEVICE) | BIT(ADDRESS) | BIT(TOTAL_SIZE) | BIT(STREAM) | BIT(SEGMENT_TYPE) |
                     BIT(SEGMENT_POOL_ID) | BIT(IS_EXPANDABLE) | BIT(FRAMES) | BIT(BLOCKS) | BIT(ALLOCATED_SIZE) |
                     BIT(ACTIVE_SIZE) | BIT(REQUESTED_SIZE),
    [KIND_BLOCK] =
        BIT(ADDRESS) | BIT(SIZE) | BIT(REQUESTED_SIZE) | BIT(STATE) | BIT(FRAMES) | BIT(HISTORY) | BIT(CATEGORY),
    [KIND_FRAME] = BIT(FILENAME) | BIT(NAME) | BIT(LINE),
    [KIND_HISTORY] = BIT(ADDR) | BIT(REAL_SIZE) | BIT(FRAMES),
    [KIND_ANNOTATION] = ~0ull, /* any metadata */
    [KIND_TOP] = BIT(SEGMENTS) | BIT(DEVICE_TRACES) | BIT(ALLOCATOR_SETTINGS) | BIT(EXTERNAL_ANNOTATIONS) |
                 BIT(HOST_SEGMENTS) | BIT(HOST_TRACES),
    [KIND_SETTINGS] = BIT(CUDA_ALLOC_CONF) | BIT(ALLOC_CONF) | BIT(MAX_SPLIT_SIZE) | BIT(GC_THRESHOLD) |
                      BIT(EXPANDABLE_SEGMENTS) | BIT(ROUNDUP_DIVISIONS),
};
static const uint64_t ignored_keys = ((1ull << (HRI_KEY_LAST_KEY + 1)) - 1) & ~((1ull << HRI_KEY_IGNORED) - 1);

static hri_key word_of(hri_decoded v) {
  return hri_value_tag_of(v) == HRI_VALUE_STRING && hri_value_payload(v) < HRI_KEY_COUNT ? (hri_key)hri_value_payload(v)
                                                                                         : HRI_KEY_NONE;
}

static kind kind_of(uint64_t keys) {
  if (keys & BIT(ACTION) && keys & (BIT(ADDR) | BIT(SIZE) | BIT(DEVICE_FREE))) return KIND_EVENT;
  if (keys & BIT(FILENAME) && keys & (BIT(NAME) | BIT(LINE))) return KIND_FRAME;
  if (keys & BIT(BLOCKS) || (keys & BIT(TOTAL_SIZE) && keys & BIT(ADDRESS))) return KIND_SEGMENT;
  if (keys & BIT(STATE) && keys & BIT(SIZE)) return KIND_BLOCK;
  if (keys & BIT(REAL_SIZE)) return KIND_HISTORY;
  if (keys & BIT(STAGE) && keys & BIT(NAME)) return KIND_ANNOTATION;
  if (keys & (BIT(SEGMENTS) | BIT(DEVICE_TRACES))) return KIND_TOP;
  if (keys & (BIT(CUDA_ALLOC_CONF) | BIT(ALLOC_CONF) | BIT(MAX_SPLIT_SIZE) | BIT(GC_THRESHOLD))) return KIND_SETTINGS;
  return KIND_NONE;
}

/* ---- fields: NONE is as good as absent ---- */

typedef struct field {
  hri_snapshot_decoder *d;
  kind kind;
  hri_key word;
  hri_decoded value;
} field;

static hr_status wrong(const field *f, const char *wanted) {
  const hr_snapshot *s = f->d->builder.snapshot;
  const char *key = hr_snapshot_string(s, (uint32_t)f->word);
  char text[80];
  if (f->kind == KIND_EVENT)
    return hri_snapshot_decoder_fail(f->d, "event %llu: '%s' is %s; wanted: %s", (unsigned long long)s->event_count,
                                     key, hri_value_text(f->d, f->value, text), wanted);
  return hri_snapshot_decoder_fail(f->d, "'%s' of a %s is %s; wanted: %s", key, kind_names[f->kind],
                                   hri_value_text(f->d, f->value, text), wanted);
}

/* A handle or an address: above INT64_MAX it may come with a sign (TorchScript's integers are signed). */
static hr_status read_handle(const field *f, uint64_t *to) {
  bool negative;
  if (f->value == HRI_VALUE_NONE) return HR_OK;
  return hri_value_integer(f->d, f->value, to, &negative) ? HR_OK : wrong(f, "an address");
}

static hr_status read_size(const field *f, uint64_t *to) {
  uint64_t bits;
  bool negative;
  if (f->value == HRI_VALUE_NONE) return HR_OK;
  if (!hri_value_integer(f->d, f->value, &bits, &negative) || negative || bits > INT64_MAX)
    return wrong(f, "a number of bytes");
  *to = bits;
  return HR_OK;
}

static hr_status read_time(const field *f, int64_t *to, bool *known) {
  double real;
  uint64_t bits;
  bool negative;
  if (f->value == HRI_VALUE_NONE) return HR_OK;
  if (hri_value_tag_of(f->value) == HRI_VALUE_REAL) {
    memcpy(&real, &f->d->wides.items[hri_value_payload(f->value)], 8);
    if (!(fabs(real) < 0x1p62)) return wrong(f, "microseconds");
    *to = (int64_t)real;
  } else {
    if (!hri_value_integer(f->d, f->value, &bits, &negative)) return wrong(f, "microseconds");
    *to = !negative && bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
  }
  *known = true;
  return HR_OK;
}

static hr_status read_device(const field *f, int32_t *to) {
  uint64_t bits;
  bool negative;
  if (f->value == HRI_VALUE_NONE) return HR_OK;
  if (!hri_value_integer(f->d, f->value, &bits, &negative) || (negative ? bits < (uint64_t)-1 : bits > INT16_MAX))
    return wrong(f, "a device number");
  *to = (int32_t)bits;
  return HR_OK;
}

static uint32_t read_string(const field *f) {
  if (hri_value_tag_of(f->value) == HRI_VALUE_STRING) return (uint32_t)hri_value_payload(f->value);
  if (f->value != HRI_VALUE_NONE) f->d->builder.snapshot->unknown_count++;
  return 0;
}

static bool read_truth(const field *f) {
  uint64_t bits = 0;
  bool negative;
  return hri_value_integer(f->d, f->value, &bits, &negative) && bits != 0;
}

static uint32_t read_stack(const field *f) {
  if (hri_value_tag_of(f->value) == HRI_VALUE_STACK) return (uint32_t)hri_value_payload(f->value);
  if (f->value != HRI_VALUE_NONE && f->value != hri_value_make(HRI_VALUE_LIST, 0))
    f->d->builder.snapshot->unknown_count++;
  return 0;
}

static uint32_t read_pool(const field *f) {
  hri_snapshot_decoder *d = f->d;
  uint64_t pair[2];
  if (f->value == d->last_pool) return d->last_pool_index;
  if (!hri_value_pair(d, f->value, pair)) {
    if (f->value != HRI_VALUE_NONE) d->builder.snapshot->unknown_count++;
    return 0;
  }
  d->last_pool = f->value;
  return d->last_pool_index = hri_snapshot_add_pool(&d->builder, pair[0], pair[1]);
}

static uint16_t read_category(const field *f) {
  uint32_t string = read_string(f);
  uint16_t category;
  if (!string) return 0;
  f->d->builder.snapshot->categories_stated = true;
  category = hri_snapshot_add_category(&f->d->builder, string);
  if (!category) f->d->builder.snapshot->unknown_count++; /* one too many */
  return category;
}

/* ---- records ---- */

static hr_status event_field(const field *f, hr_trace_event *e, hri_decoded *metadata) {
  bool timed = false;
  switch (f->word) {
  case HRI_KEY_ADDR:
    if (f->value != HRI_VALUE_NONE) e->flags &= (uint8_t)~HR_EVENT_NO_ADDRESS;
    return read_handle(f, &e->addr);
  case HRI_KEY_DEVICE_FREE: e->flags &= (uint8_t)~HR_EVENT_NO_ADDRESS; return read_size(f, &e->addr);
  case HRI_KEY_SIZE: return read_size(f, &e->size);
  case HRI_KEY_STREAM: return read_handle(f, &e->stream);
  case HRI_KEY_TIME_US:
    HRI_TRY(read_time(f, &e->time_us, &timed));
    if (timed) e->flags |= HR_EVENT_HAS_TIME;
    return HR_OK;
  case HRI_KEY_FRAMES: e->stack = read_stack(f); return HR_OK;
  case HRI_KEY_POOL_ID: e->pool = read_pool(f); return HR_OK;
  case HRI_KEY_CATEGORY: e->category = read_category(f); return HR_OK;
  case HRI_KEY_COMPILE_CONTEXT:
    if (!e->note && f->value != hri_value_make(HRI_VALUE_STRING, HRI_KEY_NOT_AVAILABLE)) e->note = read_string(f);
    return HR_OK;
  case HRI_KEY_USER_METADATA: *metadata = f->value; return HR_OK;
  default: return HR_OK;
  }
}

static hr_status make_event(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, uint64_t keys,
                            hri_decoded action, hri_decoded *record) {
  hr_snapshot *s = d->builder.snapshot;
  hri_key word = word_of(action);
  hri_decoded metadata = HRI_VALUE_NONE;
  hr_trace_event e = {.flags = HR_EVENT_NO_ADDRESS, .action = HR_TRACE_OTHER};
  if (word >= HRI_KEY_FIRST_ACTION && word < HRI_KEY_ALLOCATED) e.action = (uint8_t)(word - HRI_KEY_FIRST_ACTION);
  for (uint64_t k = 0; k < count; k++) {
    const field f = {d, KIND_EVENT, word_of(pairs[2 * k]), pairs[2 * k + 1]};
    HRI_TRY(event_field(&f, &e, &metadata));
  }
  if (metadata != HRI_VALUE_NONE) {
    const field f = {d, KIND_EVENT, HRI_KEY_USER_METADATA, metadata};
    uint32_t note = read_string(&f);
    if (note) e.note = note, e.flags |= HR_EVENT_NOTE_IS_METADATA;
  }
  if (e.action == HR_TRACE_OOM) e.flags &= (uint8_t)~HR_EVENT_NO_ADDRESS;
  if (e.action == HR_TRACE_SEGMENT_MAP || e.action == HR_TRACE_SEGMENT_UNMAP) d->seen_map = true;
  d->event_keys |= keys;
  d->event_keys_not |= ~keys;
  *record = hri_value_make(HRI_VALUE_EVENT, s->event_count);
  return hri_snapshot_add_event(&d->builder, &e) ? HR_OK : hri_snapshot_decoder_fail_memory(d);
}

static hr_status make_frame(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, hri_decoded *record) {
  uint32_t name = 0, file = 0, line = 0;
  for (uint64_t k = 0; k < count; k++) {
    const field f = {d, KIND_FRAME, word_of(pairs[2 * k]), pairs[2 * k + 1]};
    uint64_t bits;
    bool negative;
    if (f.word == HRI_KEY_NAME) name = read_string(&f);
    else if (f.word == HRI_KEY_FILENAME) file = read_string(&f);
    else if (f.word == HRI_KEY_LINE && hri_value_integer(d, f.value, &bits, &negative) && !negative &&
             bits <= UINT32_MAX)
      line = (uint32_t)bits;
  }
  *record = hri_value_make(HRI_VALUE_FRAME, hri_snapshot_add_frame(&d->builder, name, file, line));
  return d->builder.failed ? hri_snapshot_decoder_fail_memory(d) : HR_OK;
}

static uint8_t read_state(const field *f) {
  switch (word_of(f->value)) {
  case HRI_KEY_ALLOCATED: return HR_BLOCK_ALLOCATED;
  case HRI_KEY_PENDING_FREE:
  case HRI_KEY_AWAITING_FREE: return HR_BLOCK_PENDING_FREE;
  case HRI_KEY_INACTIVE: return HR_BLOCK_INACTIVE;
  default: break;
  }
  f->d->builder.snapshot->unknown_count++;
  return HR_BLOCK_ALLOCATED; /* of a newer version: what is not known to be free is taken */
}

/* Version 2.0: the first entry is of who has the block, the others of who had it. */
static void read_history(const field *f, hri_read_block *b) {
  const hri_value_list *list;
  const hri_history_entry *entry;
  if (hri_value_tag_of(f->value) != HRI_VALUE_LIST) return;
  list = &f->d->lists[hri_value_payload(f->value)];
  if (!hri_list_count(list) || hri_value_tag_of(hri_list_item(list, 0)) != HRI_VALUE_HISTORY) return;
  entry = &f->d->histories[hri_value_payload(hri_list_item(list, 0))];
  if (!b->block.stack) b->block.stack = entry->stack;
  if (!b->has_requested) b->block.requested_size = entry->real_size, b->has_requested = true;
}

static hr_status block_field(const field *f, hri_read_block *b) {
  switch (f->word) {
  case HRI_KEY_ADDRESS: b->has_address = f->value != HRI_VALUE_NONE; return read_handle(f, &b->block.address);
  case HRI_KEY_SIZE: return f->value == HRI_VALUE_NONE ? wrong(f, "a number of bytes") : read_size(f, &b->block.size);
  case HRI_KEY_REQUESTED_SIZE:
    b->has_requested = f->value != HRI_VALUE_NONE;
    return read_size(f, &b->block.requested_size);
  case HRI_KEY_STATE: b->block.state = read_state(f); return HR_OK;
  case HRI_KEY_FRAMES: b->block.stack = read_stack(f); return HR_OK;
  case HRI_KEY_CATEGORY: b->block.category = read_category(f); return HR_OK;
  case HRI_KEY_HISTORY: read_history(f, b); return HR_OK;
  default: return HR_OK;
  }
}

static hr_status make_block(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, uint64_t keys,
                            hri_decoded *record) {
  hri_read_block b = {0};
  for (uint64_t k = 0; k < count; k++) {
    const field f = {d, KIND_BLOCK, word_of(pairs[2 * k]), pairs[2 * k + 1]};
    HRI_TRY(block_field(&f, &b));
  }
  d->block_keys |= keys;
  if (!HRI_DECODER_GROW(d->blocks, d->block_capacity, d->block_count + 1)) return hri_snapshot_decoder_fail_memory(d);
  *record = hri_value_make(HRI_VALUE_BLOCK, d->block_count);
  d->blocks[d->block_count++] = b;
  return HR_OK;
}

static hr_status segment_field(const field *f, hri_read_segment *s) {
  switch (f->word) {
  case HRI_KEY_DEVICE: return read_device(f, &s->segment.device);
  case HRI_KEY_ADDRESS: s->has_address = f->value != HRI_VALUE_NONE; return read_handle(f, &s->segment.address);
  case HRI_KEY_TOTAL_SIZE: return read_size(f, &s->segment.total_size);
  case HRI_KEY_STREAM: return read_handle(f, &s->segment.stream);
  case HRI_KEY_SEGMENT_TYPE:
    s->typed = true;
    s->segment.large = word_of(f->value) == HRI_KEY_LARGE;
    return HR_OK;
  case HRI_KEY_SEGMENT_POOL_ID: s->segment.pool = read_pool(f); return HR_OK;
  case HRI_KEY_IS_EXPANDABLE: s->segment.expandable = read_truth(f); return HR_OK;
  case HRI_KEY_FRAMES: s->segment.stack = read_stack(f); return HR_OK;
  case HRI_KEY_ALLOCATED_SIZE: return read_size(f, &s->stated[0]);
  case HRI_KEY_ACTIVE_SIZE: return read_size(f, &s->stated[1]);
  case HRI_KEY_REQUESTED_SIZE: return read_size(f, &s->stated[2]);
  case HRI_KEY_BLOCKS: s->blocks = f->value; return HR_OK;
  default: return HR_OK;
  }
}

static hr_status make_segment(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, uint64_t keys,
                              hri_decoded *record) {
  hri_read_segment s = {.stated = {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
  for (uint64_t k = 0; k < count; k++) {
    const field f = {d, KIND_SEGMENT, word_of(pairs[2 * k]), pairs[2 * k + 1]};
    HRI_TRY(segment_field(&f, &s));
  }
  d->segment_keys |= keys;
  if (!HRI_DECODER_GROW(d->segments, d->segment_capacity, d->segment_count + 1))
    return hri_snapshot_decoder_fail_memory(d);
  *record = hri_value_make(HRI_VALUE_SEGMENT, d->segment_count);
  d->segments[d->segment_count++] = s;
  return HR_OK;
}

static hr_status make_history(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, hri_decoded *record) {
  hri_history_entry entry = {0};
  for (uint64_t k = 0; k < count; k++) {
    const field f = {d, KIND_HISTORY, word_of(pairs[2 * k]), pairs[2 * k + 1]};
    if (f.word == HRI_KEY_REAL_SIZE) HRI_TRY(read_size(&f, &entry.real_size));
    if (f.word == HRI_KEY_FRAMES) entry.stack = read_stack(&f);
  }
  if (!HRI_DECODER_GROW(d->histories, d->history_capacity, d->history_count + 1))
    return hri_snapshot_decoder_fail_memory(d);
  *record = hri_value_make(HRI_VALUE_HISTORY, d->history_count);
  d->histories[d->history_count++] = entry;
  return HR_OK;
}

static hr_status make_annotation(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count,
                                 hri_decoded *record) {
  hr_annotation a = {0};
  for (uint64_t k = 0; k < count; k++) {
    const field f = {d, KIND_ANNOTATION, word_of(pairs[2 * k]), pairs[2 * k + 1]};
    bool timed;
    if (f.word == HRI_KEY_TIME_US) HRI_TRY(read_time(&f, &a.time_us, &timed));
    if (f.word == HRI_KEY_DEVICE) HRI_TRY(read_device(&f, &a.device));
    if (f.word == HRI_KEY_NAME) a.name = read_string(&f);
    if (f.word == HRI_KEY_STAGE) a.end = word_of(f.value) == HRI_KEY_END;
  }
  if (!HRI_DECODER_GROW(d->annotations, d->annotation_capacity, d->annotation_count + 1))
    return hri_snapshot_decoder_fail_memory(d);
  *record = hri_value_make(HRI_VALUE_ANNOTATION, d->annotation_count);
  d->annotations[d->annotation_count++] = a;
  return HR_OK;
}

static void setting_field(const field *f, hr_snapshot_settings *s) {
  hri_snapshot_decoder *d = f->d;
  uint64_t bits;
  bool negative;
  switch (f->word) {
  case HRI_KEY_CUDA_ALLOC_CONF:
  case HRI_KEY_ALLOC_CONF:
    if (!s->text) s->text = read_string(f);
    return;
  case HRI_KEY_MAX_SPLIT_SIZE: /* unlimited is the largest of some integer type, or -1 */
    if (hri_value_integer(d, f->value, &bits, &negative))
      s->max_split_size = negative || bits >= INT64_MAX ? -1 : (int64_t)bits;
    return;
  case HRI_KEY_GC_THRESHOLD:
    if (hri_value_tag_of(f->value) == HRI_VALUE_REAL)
      memcpy(&s->garbage_collection_threshold, &d->wides.items[hri_value_payload(f->value)], 8);
    else if (hri_value_integer(d, f->value, &bits, &negative) && bits <= 1)
      s->garbage_collection_threshold = (double)bits;
    return;
  case HRI_KEY_EXPANDABLE_SEGMENTS: s->expandable_segments = read_truth(f); return;
  case HRI_KEY_ROUNDUP_DIVISIONS:
    if (hri_value_tag_of(f->value) == HRI_VALUE_DIVISIONS)
      memcpy(s->roundup_power2_divisions, &d->wides.items[hri_value_payload(f->value)],
             sizeof s->roundup_power2_divisions);
    return;
  default: return;
  }
}

static hr_status make_settings(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, hri_decoded *record) {
  hr_snapshot_settings s = {.present = true, .max_split_size = -1};
  for (uint64_t k = 0; k < count; k++) {
    const field f = {d, KIND_SETTINGS, word_of(pairs[2 * k]), pairs[2 * k + 1]};
    setting_field(&f, &s);
  }
  if (!(s.garbage_collection_threshold >= 0 && s.garbage_collection_threshold <= 1)) s.garbage_collection_threshold = 0;
  if (!HRI_DECODER_GROW(d->settings, d->settings_capacity, d->settings_count + 1))
    return hri_snapshot_decoder_fail_memory(d);
  *record = hri_value_make(HRI_VALUE_SETTINGS, d->settings_count);
  d->settings[d->settings_count++] = s;
  return HR_OK;
}

static hr_status make_top(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, uint64_t keys,
                          hri_decoded *record) {
  hri_read_top top = {0};
  for (uint64_t k = 0; k < count; k++) {
    hri_decoded v = pairs[2 * k + 1];
    switch (word_of(pairs[2 * k])) {
    case HRI_KEY_SEGMENTS: top.segments = v; break;
    case HRI_KEY_DEVICE_TRACES: top.traces = v; break;
    case HRI_KEY_ALLOCATOR_SETTINGS: top.settings = v; break;
    case HRI_KEY_EXTERNAL_ANNOTATIONS: top.annotations = v; break;
    case HRI_KEY_HOST_SEGMENTS: top.host_segments = v; break;
    case HRI_KEY_HOST_TRACES: top.host_traces = v; break;
    default: break;
    }
  }
  d->top_keys |= keys;
  if (!HRI_DECODER_GROW(d->tops, d->top_capacity, d->top_count + 1)) return hri_snapshot_decoder_fail_memory(d);
  *record = hri_value_make(HRI_VALUE_TOP, d->top_count);
  d->tops[d->top_count++] = top;
  return HR_OK;
}

hr_status hri_record_of_dict(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, hri_decoded *record) {
  uint64_t keys = 0, unknown = 0;
  hri_decoded action = HRI_VALUE_NONE;
  kind which;
  for (uint64_t k = 0; k < count; k++) {
    hri_key word = word_of(pairs[2 * k]);
    if (word == HRI_KEY_NONE || word > HRI_KEY_LAST_KEY) unknown++;
    else keys |= 1ull << word;
    if (word == HRI_KEY_ACTION) action = pairs[2 * k + 1];
  }
  which = kind_of(keys);
  *record = HRI_VALUE_OPAQUE;
  if (which == KIND_NONE || (which == KIND_EVENT && hri_value_tag_of(action) != HRI_VALUE_STRING)) return HR_OK;
  if (which != KIND_ANNOTATION)
    d->builder.snapshot->unknown_count +=
        unknown + (uint64_t)__builtin_popcountll(keys & ~known_keys[which] & ~ignored_keys);
  switch (which) {
  case KIND_EVENT: return make_event(d, pairs, count, keys, action, record);
  case KIND_SEGMENT: return make_segment(d, pairs, count, keys, record);
  case KIND_BLOCK: return make_block(d, pairs, count, keys, record);
  case KIND_FRAME: return make_frame(d, pairs, count, record);
  case KIND_HISTORY: return make_history(d, pairs, count, record);
  case KIND_ANNOTATION: return make_annotation(d, pairs, count, record);
  case KIND_TOP: return make_top(d, pairs, count, keys, record);
  default: return make_settings(d, pairs, count, record);
  }
}
