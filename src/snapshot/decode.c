#include "snapshot/decode.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"

enum { KEPT_ITEMS = 512, TEXT_BYTES = 2048 };

/* In the order of hri_key. */
static const char *const words[HRI_KEY_COUNT] = {"",
                                                 "action",
                                                 "addr",
                                                 "device_free",
                                                 "size",
                                                 "stream",
                                                 "time_us",
                                                 "frames",
                                                 "compile_context",
                                                 "user_metadata",
                                                 "pool_id",
                                                 "category",
                                                 "filename",
                                                 "name",
                                                 "line",
                                                 "address",
                                                 "requested_size",
                                                 "state",
                                                 "history",
                                                 "real_size",
                                                 "device",
                                                 "total_size",
                                                 "segment_type",
                                                 "segment_pool_id",
                                                 "is_expandable",
                                                 "blocks",
                                                 "allocated_size",
                                                 "active_size",
                                                 "stage",
                                                 "segments",
                                                 "device_traces",
                                                 "allocator_settings",
                                                 "external_annotations",
                                                 "host_segments",
                                                 "host_traces",
                                                 "headroom",
                                                 "PYTORCH_CUDA_ALLOC_CONF",
                                                 "PYTORCH_ALLOC_CONF",
                                                 "max_split_size",
                                                 "garbage_collection_threshold",
                                                 "expandable_segments",
                                                 "roundup_power2_divisions",
                                                 "cpp_frames",
                                                 "forward_frames",
                                                 "internal_metadata",
                                                 "fx_node_op",
                                                 "fx_node_name",
                                                 "fx_original_trace",
                                                 "fx_node_info",
                                                 "pinned_num_register_threads",
                                                 "release_lock_on_cudamalloc",
                                                 "pinned_use_cuda_host_register",
                                                 "graph_capture_record_stream_reuse",
                                                 "max_round_threshold",
                                                 "max_cached_size",
                                                 "segment_pool",
                                                 "alloc",
                                                 "free_requested",
                                                 "free_completed",
                                                 "segment_alloc",
                                                 "segment_free",
                                                 "segment_map",
                                                 "segment_unmap",
                                                 "snapshot",
                                                 "oom",
                                                 "active_allocated",
                                                 "active_pending_free",
                                                 "active_awaiting_free",
                                                 "inactive",
                                                 "large",
                                                 "START",
                                                 "END",
                                                 "N/A"};

hr_status hri_snapshot_decoder_init(hri_snapshot_decoder *d, const char *name, hr_error *error) {
  *d = (hri_snapshot_decoder){.name = name, .error = error};
  HRI_TRY(hri_snapshot_build(&d->builder, error));
  for (uint32_t k = 1; k < HRI_KEY_COUNT; k++)
    if (hri_snapshot_add_string(&d->builder, words[k], strlen(words[k])) != k)
      return hri_snapshot_decoder_fail_memory(d);
  /* Events go to this trace while they come; the real ones are cut from it at the end. */
  if (!hri_snapshot_add_trace(&d->builder, 0) || !HRI_DECODER_GROW(d->lists, d->list_capacity, 1) ||
      !HRI_DECODER_GROW(d->stack.items, d->stack.capacity, 64))
    return hri_snapshot_decoder_fail_memory(d);
  d->lists[d->list_count++] = (hri_value_list){0};
  return HR_OK;
}

void hri_snapshot_decoder_deinit(hri_snapshot_decoder *d) {
  for (uint64_t k = 0; k < d->open_count; k++) hri_free(d->open[k].list.items.items), hri_free(d->open[k].frames);
  for (uint64_t k = 0; k < d->list_count; k++) hri_free(d->lists[k].items.items);
  hri_free(d->open);
  hri_free(d->lists);
  hri_free(d->stack.items);
  hri_free(d->memo.items);
  hri_free(d->wides.items);
  hri_free(d->blocks);
  hri_free(d->segments);
  hri_free(d->annotations);
  hri_free(d->histories);
  hri_free(d->settings);
  hri_free(d->tops);
  hri_snapshot_build_deinit(&d->builder);
}

/* ---- memory and errors ---- */

bool hri_snapshot_decoder_grow(void **items, uint64_t *capacity, uint64_t want, uint64_t each) {
  uint64_t next = *capacity ? *capacity + *capacity / 2 : 8, bytes;
  void *memory;
  if (want <= *capacity) return true;
  if (next < want) next = want;
  if (!hri_mul(next, each, &bytes) || bytes > SIZE_MAX / 2) return false;
  memory = hri_realloc(*items, bytes);
  if (!memory) return false;
  *items = memory;
  *capacity = next;
  return true;
}

hr_status hri_snapshot_decoder_fail(const hri_snapshot_decoder *d, const char *format, ...) {
  char text[400];
  hr_status code;
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  hri_plain_text(text, "");
  if (d->scan) return hri_json_scan_fail(d->scan, d->error, "%s", text);
  code = hri_fail(d->error, HR_ERROR_INPUT, "%s: byte %llu: %s", d->name, (unsigned long long)d->at, text);
  return hri_hint(d->error, code,
                  "the file is damaged or no memory snapshot; take it anew with torch.cuda.memory._dump_snapshot");
}

/* How much was asked for and what is held is told by the account that reading works on. */
hr_status hri_snapshot_decoder_fail_memory(const hri_snapshot_decoder *d) {
  return hri_fail(d->error, HR_ERROR_MEMORY, "%s: memory was refused", d->name);
}

/* ---- scalars ---- */

hr_status hri_value_of_integer(hri_snapshot_decoder *d, uint64_t bits, bool negative, hri_decoded *value) {
  const uint64_t half = 1ull << (HRI_VALUE_SMALL_BITS - 1);
  if (negative ? bits >= (uint64_t)0 - half : bits < half) {
    *value = hri_value_make(HRI_VALUE_INT, bits & ((1ull << HRI_VALUE_SMALL_BITS) - 1));
    return HR_OK;
  }
  *value = hri_value_make(HRI_VALUE_WIDE, d->wides.count << 1 | (!negative && bits > INT64_MAX));
  return hri_values_push(&d->wides, bits) ? HR_OK : hri_snapshot_decoder_fail_memory(d);
}

hr_status hri_value_of_real(hri_snapshot_decoder *d, double real, hri_decoded *value) {
  uint64_t bits;
  memcpy(&bits, &real, 8);
  *value = hri_value_make(HRI_VALUE_REAL, d->wides.count);
  return hri_values_push(&d->wides, bits) ? HR_OK : hri_snapshot_decoder_fail_memory(d);
}

static bool is_ascii(const char *chars, uint64_t count) {
  uint64_t word, bits = 0;
  for (; count >= 8; chars += 8, count -= 8) memcpy(&word, chars, 8), bits |= word;
  for (; count; count--) bits |= (unsigned char)*chars++;
  return !(bits & 0x8080808080808080u);
}

/* C++ symbol names may hold any byte. */
static hr_status add_mended(hri_snapshot_decoder *d, const char *chars, uint64_t count, uint32_t *string) {
  hri_text text = {0};
  uint64_t plain = 0;
  for (uint64_t k = 0; k < count;) {
    size_t length = hri_utf8_sequence(chars + k, (size_t)(count - k));
    if (length) {
      k += length;
      continue;
    }
    hri_text_add_bytes(&text, chars + plain, (size_t)(k - plain));
    hri_text_add_bytes(&text, "\xEF\xBF\xBD", 3);
    plain = ++k;
  }
  hri_text_add_bytes(&text, chars + plain, (size_t)(count - plain));
  if (!text.failed) *string = hri_snapshot_add_string(&d->builder, text.chars, text.length);
  hri_text_deinit(&text);
  return text.failed || d->builder.failed ? hri_snapshot_decoder_fail_memory(d) : HR_OK;
}

hr_status hri_value_of_string(hri_snapshot_decoder *d, const char *chars, uint64_t count, hri_decoded *value) {
  uint32_t string = 0;
  if (is_ascii(chars, count)) {
    string = hri_snapshot_add_string(&d->builder, chars, count);
    if (d->builder.failed) return hri_snapshot_decoder_fail_memory(d);
  } else {
    HRI_TRY(add_mended(d, chars, count, &string));
  }
  *value = hri_value_make(HRI_VALUE_STRING, string);
  return HR_OK;
}

hr_status hri_value_of_tuple(hri_snapshot_decoder *d, const hri_decoded *items, uint64_t count, hri_decoded *value) {
  uint64_t first, second;
  bool a, b;
  *value = HRI_VALUE_OPAQUE;
  if (count != 2 || !hri_value_integer(d, items[0], &first, &a) || !hri_value_integer(d, items[1], &second, &b))
    return HR_OK;
  if (!a && !b && first < 1u << 29 && second < 1u << 29) {
    *value = hri_value_make(HRI_VALUE_SMALL_PAIR, first << 29 | second);
    return HR_OK;
  }
  *value = hri_value_make(HRI_VALUE_PAIR, d->wides.count);
  return hri_values_push(&d->wides, first) && hri_values_push(&d->wides, second) ? HR_OK
                                                                                 : hri_snapshot_decoder_fail_memory(d);
}

static double real_of(const hri_snapshot_decoder *d, hri_decoded v) {
  double real;
  memcpy(&real, &d->wides.items[hri_value_payload(v)], 8);
  return real;
}

bool hri_value_integer(const hri_snapshot_decoder *d, hri_decoded v, uint64_t *bits, bool *negative) {
  double real;
  switch (hri_value_tag_of(v)) {
  case HRI_VALUE_BOOL: *bits = hri_value_payload(v), *negative = false; return true;
  case HRI_VALUE_INT: *bits = (uint64_t)((int64_t)v >> HRI_VALUE_TAG_BITS), *negative = (int64_t)v < 0; return true;
  case HRI_VALUE_WIDE:
    *bits = d->wides.items[hri_value_payload(v) >> 1];
    *negative = !(hri_value_payload(v) & 1) && *bits > INT64_MAX;
    return true;
  case HRI_VALUE_REAL: /* JavaScript knows no other numbers */
    real = real_of(d, v);
    if (!(real >= 0 && real < 0x1p64) || floor(real) < real) return false;
    *bits = (uint64_t)real, *negative = false;
    return true;
  default: return false;
  }
}

bool hri_value_pair(const hri_snapshot_decoder *d, hri_decoded v, uint64_t pair[2]) {
  uint64_t payload = hri_value_payload(v);
  if (hri_value_tag_of(v) == HRI_VALUE_SMALL_PAIR) pair[0] = payload >> 29, pair[1] = payload & ((1u << 29) - 1);
  else if (hri_value_tag_of(v) == HRI_VALUE_PAIR) memcpy(pair, &d->wides.items[payload], 16);
  else return false;
  return true;
}

const char *hri_value_text(const hri_snapshot_decoder *d, hri_decoded v, char out[80]) {
  static const char *const names[] =
      {"None",          "a boolean",        "an integer", "an integer",     "a number",
       "a string",      "a pair",           "a pair",     "something else", "something unfinished",
       "a list",        "a dict",           "a list",     "a dict",         "a list",
       "a frame",       "a list of frames", "an event",   "a block",        "a segment",
       "an annotation", "a history entry",  "a dict",     "the settings",   "a snapshot"};
  uint64_t bits;
  bool negative;
  if (hri_value_tag_of(v) == HRI_VALUE_STRING)
    (void)snprintf(out, 80, "the string '%.60s'",
                   hr_snapshot_string(d->builder.snapshot, (uint32_t)hri_value_payload(v)));
  else if (hri_value_tag_of(v) == HRI_VALUE_REAL) (void)hri_snprintf(out, 80, "%.17g", real_of(d, v));
  else if (hri_value_integer(d, v, &bits, &negative))
    (void)snprintf(out, 80, negative ? "%lld" : "%llu", (long long)bits);
  else (void)snprintf(out, 80, "%s", names[hri_value_tag_of(v)]);
  return out;
}

/* ---- open containers ---- */

static hr_status open_container(hri_snapshot_decoder *d, uint64_t memo, uint64_t *index) {
  if (d->open_free) {
    *index = d->open_free - 1;
    d->open_free = d->open[*index].next_free;
  } else {
    if (!HRI_DECODER_GROW(d->open, d->open_capacity, d->open_count + 1)) return hri_snapshot_decoder_fail_memory(d);
    *index = d->open_count++;
    d->open[*index] = (hri_open_container){0};
  }
  d->open[*index].memo = memo;
  return HR_OK;
}

/* Its arrays are kept for the next one unless they are large. */
static void close_container(hri_snapshot_decoder *d, uint64_t index) {
  hri_open_container *c = &d->open[index];
  if (c->list.items.capacity > KEPT_ITEMS) {
    hri_free(c->list.items.items);
    c->list.items = (hri_values){0};
  }
  if (c->frame_capacity > KEPT_ITEMS) {
    hri_free(c->frames);
    c->frames = NULL;
    c->frame_capacity = 0;
  }
  c->list.run = c->list.items.count = c->frame_count = c->memo = 0;
  c->mixed = false;
  c->next_free = d->open_free;
  d->open_free = index + 1;
}

void hri_value_drop(hri_snapshot_decoder *d, hri_decoded value) {
  hri_value_tag tag = hri_value_tag_of(value);
  if (tag == HRI_VALUE_OPEN_LIST || tag == HRI_VALUE_OPEN_DICT) close_container(d, hri_value_payload(value));
}

uint64_t hri_list_count(const hri_value_list *list) { return list->run ? list->run : list->items.count; }

/* Frames come forty at a time and are finished. *taken says how many of the items are; all the first ones. */
static hr_status push_frames(hri_snapshot_decoder *d, hri_open_container *c, const hri_decoded *items, uint64_t count,
                             uint64_t *taken) {
  uint32_t *to;
  uint64_t k;
  *taken = 0;
  if (hri_value_tag_of(*items) != HRI_VALUE_FRAME || c->mixed || c->list.run || c->list.items.count) return HR_OK;
  if (!HRI_DECODER_GROW(c->frames, c->frame_capacity, c->frame_count + count))
    return hri_snapshot_decoder_fail_memory(d);
  to = c->frames + c->frame_count;
  for (k = 0; k < count && hri_value_tag_of(items[k]) == HRI_VALUE_FRAME; k++)
    to[k] = (uint32_t)hri_value_payload(items[k]);
  c->frame_count += k;
  *taken = k;
  return HR_OK;
}

static hr_status push_item(hri_snapshot_decoder *d, hri_open_container *c, hri_decoded v) {
  hri_value_list *list = &c->list;
  hri_value_tag tag = hri_value_tag_of(v);
  c->mixed |= c->frame_count != 0;
  if (c->mixed) return HR_OK;
  if (!list->items.count && tag > HRI_VALUE_FRAME) {
    if (!list->run) list->first = v;
    if (v == list->first + (list->run << HRI_VALUE_TAG_BITS)) return list->run++, HR_OK;
  }
  for (uint64_t k = 0; k < list->run; k++)
    if (!hri_values_push(&list->items, list->first + (k << HRI_VALUE_TAG_BITS)))
      return hri_snapshot_decoder_fail_memory(d);
  list->run = 0;
  return hri_values_push(&list->items, v) ? HR_OK : hri_snapshot_decoder_fail_memory(d);
}

hr_status hri_list_append(hri_snapshot_decoder *d, hri_decoded *list, hri_decoded *items, uint64_t count) {
  uint64_t index, taken;
  if (!count) return HR_OK;
  if (hri_value_tag_of(*list) == HRI_VALUE_NEW_LIST) {
    HRI_TRY(open_container(d, hri_value_payload(*list), &index));
    *list = hri_value_make(HRI_VALUE_OPEN_LIST, index);
  } else if (hri_value_tag_of(*list) != HRI_VALUE_OPEN_LIST) {
    char text[80];
    return hri_snapshot_decoder_fail(d, "items are added to %s, which is no list or is complete already",
                                     hri_value_text(d, *list, text));
  }
  index = hri_value_payload(*list);
  for (uint64_t k = 0; k < count; k += taken) {
    HRI_TRY(hri_value_finish(d, &items[k], HRI_KEY_NONE));
    HRI_TRY(push_frames(d, &d->open[index], items + k, count - k, &taken));
    if (taken) continue;
    HRI_TRY(push_item(d, &d->open[index], items[k]));
    taken = 1;
  }
  return HR_OK;
}

hr_status hri_dict_add(hri_snapshot_decoder *d, hri_decoded *dict, hri_decoded *pairs, uint64_t count) {
  hri_value_tag tag = hri_value_tag_of(*dict);
  uint64_t index, memo = hri_value_payload(*dict);
  char text[80];
  if (tag != HRI_VALUE_NEW_DICT && tag != HRI_VALUE_OPEN_DICT)
    return hri_snapshot_decoder_fail(d, "keys are added to %s, which is no dict or is complete already",
                                     hri_value_text(d, *dict, text));
  for (uint64_t k = 0; k < count; k++) {
    hri_decoded key = pairs[2 * k];
    HRI_TRY(hri_value_finish(d, &pairs[2 * k], HRI_KEY_NONE));
    HRI_TRY(hri_value_finish(d, &pairs[2 * k + 1],
                             hri_value_tag_of(key) == HRI_VALUE_STRING && hri_value_payload(key) < HRI_KEY_COUNT
                                 ? (hri_key)hri_value_payload(key)
                                 : HRI_KEY_NONE));
  }
  if (tag == HRI_VALUE_NEW_DICT && count > 1) {
    hri_decoded record;
    HRI_TRY(hri_record_of_dict(d, pairs, count, &record));
    if (record != HRI_VALUE_OPAQUE) {
      if (memo) d->memo.items[memo - 1] = record;
      *dict = record;
      return HR_OK;
    }
  }
  if (!count) return HR_OK;
  if (tag == HRI_VALUE_NEW_DICT) {
    HRI_TRY(open_container(d, memo, &index));
    *dict = hri_value_make(HRI_VALUE_OPEN_DICT, index);
  }
  index = hri_value_payload(*dict);
  for (uint64_t k = 0; k < 2 * count; k++)
    if (!hri_values_push(&d->open[index].list.items, pairs[k])) return hri_snapshot_decoder_fail_memory(d);
  return HR_OK;
}

/* ---- finishing ---- */

/* A list of frames becomes a stack. */
static hr_status finish_frames(hri_snapshot_decoder *d, const hri_open_container *c, hri_decoded *value) {
  uint32_t stack;
  *value = HRI_VALUE_OPAQUE;
  if (c->mixed || c->frame_count >= UINT32_MAX) return HR_OK;
  stack = hri_snapshot_add_stack(&d->builder, c->frames, (uint32_t)c->frame_count);
  if (d->builder.failed) return hri_snapshot_decoder_fail_memory(d);
  *value = hri_value_make(HRI_VALUE_STACK, stack);
  return HR_OK;
}

static bool all_of_kind(const hri_value_list *list) {
  hri_value_tag tag = hri_value_tag_of(list->run ? list->first : list->items.items[0]);
  if (list->run) return true;
  if (tag != HRI_VALUE_LIST && tag <= HRI_VALUE_FRAME) return false;
  for (uint64_t k = 1; k < list->items.count; k++)
    if (hri_value_tag_of(list->items.items[k]) != tag) return false;
  return true;
}

static hr_status finish_list(hri_snapshot_decoder *d, hri_open_container *c, hri_decoded *value) {
  hri_value_list *list = &c->list;
  if (c->frame_count) return finish_frames(d, c, value);
  if (!all_of_kind(list)) return hri_value_of_tuple(d, list->items.items, list->items.count, value);
  if (!HRI_DECODER_GROW(d->lists, d->list_capacity, d->list_count + 1)) return hri_snapshot_decoder_fail_memory(d);
  *value = hri_value_make(HRI_VALUE_LIST, d->list_count);
  d->lists[d->list_count++] = *list;
  list->items = (hri_values){0}; /* they moved */
  return HR_OK;
}

/* A dict of metadata becomes a flat JSON object, cut where it gets long; containers within show as "...". */
static void put_metadata(const hri_snapshot_decoder *d, hri_json_writer *writer, hri_decoded v) {
  const char *chars;
  uint64_t bits;
  bool negative;
  switch (hri_value_tag_of(v)) {
  case HRI_VALUE_NONE: hri_json_put_null(writer); return;
  case HRI_VALUE_BOOL: hri_json_put_bool(writer, hri_value_payload(v) != 0); return;
  case HRI_VALUE_REAL: hri_json_put_double(writer, real_of(d, v)); return;
  case HRI_VALUE_STRING:
    chars = hr_snapshot_string(d->builder.snapshot, (uint32_t)hri_value_payload(v));
    hri_json_put_chars(writer, chars, strnlen(chars, TEXT_BYTES));
    return;
  default: break;
  }
  if (!hri_value_integer(d, v, &bits, &negative)) hri_json_put_string(writer, "...");
  else if (negative) hri_json_put_i64(writer, (int64_t)bits);
  else hri_json_put_u64(writer, bits);
}

static hr_status finish_metadata(hri_snapshot_decoder *d, const hri_values *pairs, hri_decoded *value) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 0);
  uint32_t string = 0;
  hri_json_begin_object(&writer);
  for (uint64_t k = 0; k + 1 < pairs->count && text.length < TEXT_BYTES; k += 2) {
    hri_decoded key = pairs->items[k];
    bool named = hri_value_tag_of(key) == HRI_VALUE_STRING;
    const char *chars = named ? hr_snapshot_string(d->builder.snapshot, (uint32_t)hri_value_payload(key)) : "...";
    if (strnlen(chars, TEXT_BYTES) == TEXT_BYTES) chars = "...";
    hri_json_key(&writer, chars);
    put_metadata(d, &writer, pairs->items[k + 1]);
  }
  hri_json_end_object(&writer);
  if (!text.failed) string = hri_snapshot_add_string(&d->builder, text.chars, text.length);
  hri_text_deinit(&text);
  if (text.failed || d->builder.failed) return hri_snapshot_decoder_fail_memory(d);
  *value = hri_value_make(HRI_VALUE_STRING, string);
  return HR_OK;
}

/* {"1": d, "2": d, ..., "32768": d}: divisions from 1 MiB to 32 GiB. */
static hr_status finish_divisions(hri_snapshot_decoder *d, const hri_values *pairs, hri_decoded *value) {
  *value = hri_value_make(HRI_VALUE_DIVISIONS, d->wides.count);
  for (uint32_t k = 0; k < 16; k++)
    if (!hri_values_push(&d->wides, 0)) return hri_snapshot_decoder_fail_memory(d);
  for (uint64_t k = 0; k + 1 < pairs->count; k += 2) {
    hri_decoded key = pairs->items[k];
    uint64_t divisions;
    bool negative;
    if (hri_value_tag_of(key) != HRI_VALUE_STRING ||
        !hri_value_integer(d, pairs->items[k + 1], &divisions, &negative) || negative)
      continue;
    for (uint32_t power = 0; power < 16; power++) {
      char name[16];
      (void)snprintf(name, sizeof name, "%u", 1u << power);
      if (strcmp(name, hr_snapshot_string(d->builder.snapshot, (uint32_t)hri_value_payload(key))) == 0)
        d->wides.items[hri_value_payload(*value) + power] = divisions;
    }
  }
  return HR_OK;
}

static hr_status finish_dict(hri_snapshot_decoder *d, const hri_values *pairs, hri_key key, hri_decoded *value) {
  HRI_TRY(hri_record_of_dict(d, pairs->items, pairs->count / 2, value));
  if (*value != HRI_VALUE_OPAQUE) return HR_OK;
  if (key == HRI_KEY_USER_METADATA || key == HRI_KEY_COMPILE_CONTEXT) return finish_metadata(d, pairs, value);
  if (key == HRI_KEY_ROUNDUP_DIVISIONS) return finish_divisions(d, pairs, value);
  return HR_OK;
}

hr_status hri_value_finish(hri_snapshot_decoder *d, hri_decoded *value, hri_key key) {
  hri_value_tag tag = hri_value_tag_of(*value);
  hri_decoded made = HRI_VALUE_NONE;
  uint64_t index = hri_value_payload(*value), memo = index;
  hr_status status;
  if (tag < HRI_VALUE_NEW_LIST || tag > HRI_VALUE_OPEN_DICT) return HR_OK;
  if (tag == HRI_VALUE_NEW_LIST) {
    made = hri_value_make(HRI_VALUE_LIST, 0);
  } else if (tag != HRI_VALUE_NEW_DICT) {
    memo = d->open[index].memo;
    status = tag == HRI_VALUE_OPEN_LIST ? finish_list(d, &d->open[index], &made)
                                        : finish_dict(d, &d->open[index].list.items, key, &made);
    close_container(d, index);
    if (status != HR_OK) return status;
  }
  if (memo) d->memo.items[memo - 1] = made;
  *value = made;
  return HR_OK;
}
