/* The syntax of PYTORCH_ALLOC_CONF (and PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF).
 *
 *   settings = item { "," item } [ "," ]        item = key ":" value
 *   value    = word | "[" word ":" word { "," word ":" word } [ "," ] "]"
 *
 * Blanks are dropped wherever they stand, even inside a number, and a number counts as far as it is one ("128MB" is
 * 128): so PyTorch reads its text, and a recorded setting must mean here what it meant there. In two things this parser
 * is stricter than versions from 2.9 on, which skip a wrong separator silently, as their forerunners did not: a missing
 * ':' or ',' is an error, and so is a reserve of expandable segments that PyTorch drops with a warning.
 *
 * Limits: c10/core/AllocatorConfig, c10/cuda/CUDAAllocatorConfig (2.1 to 2.15). tests/alloc/conf_cases.txt holds what
 * 2.13 itself answers. */
#include <headroom/alloc.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

enum { MIB = 1 << 20, LARGE_MIN_MIB = 10, REGISTER_THREADS_MAX = 128, KEY_TEXT = 80 };

typedef struct word {
  const char *chars;
  size_t count;
} word;

typedef struct parser {
  const char *next;
  hr_alloc_config config;
  bool divisions_named, rounding_named; /* by an item before */
  hr_error *error;
} parser;

typedef struct item {
  word key, value; /* value: within the brackets, when `list` */
  bool list;
} item;

hr_alloc_config hr_alloc_config_default(void) {
  return (hr_alloc_config){
      .max_split_bytes = UINT64_MAX,
      .max_non_split_rounding_bytes = UINT64_C(20) * MIB,
      .large_segment_bytes = UINT64_C(20) * MIB,
      .memory_fraction = 1,
      .pinned_num_register_threads = 1,
  };
}

/* ---- errors ---- */

static int shown(word w) { return w.count < KEY_TEXT ? (int)w.count : KEY_TEXT; }

/* "max_split_size_mb:19: must be ..." */
static hr_status refuse(const parser *p, const item *it, const char *rule) {
  return hri_fail(p->error, HR_ERROR_USAGE, "allocator setting %.*s:%s%.*s%s: %s", shown(it->key), it->key.chars,
                  it->list ? "[" : "", shown(it->value), it->value.chars, it->list ? "]" : "", rule);
}

/* ---- words and items ---- */

static bool separator(char c) { return c == ',' || c == ':' || c == '[' || c == ']' || !c; }

static word take_word(parser *p) {
  word w = {p->next, 0};
  while (!separator(p->next[0])) p->next++;
  w.count = (size_t)(p->next - w.chars);
  return w;
}

static bool equals(word w, const char *text) { return strlen(text) == w.count && memcmp(w.chars, text, w.count) == 0; }

/* One item and the comma behind it. */
static hr_status take_item(parser *p, item *it) {
  *it = (item){.key = take_word(p)};
  if (!it->key.count)
    return hri_hint(p->error,
                    hri_fail(p->error, HR_ERROR_USAGE, "allocator settings: a key is wanted before '%c'",
                             p->next[0] ? p->next[0] : ' '),
                    "write key:value,key:value");
  if (p->next[0] != ':')
    return hri_hint(p->error,
                    hri_fail(p->error, HR_ERROR_USAGE, "allocator setting %.*s has no value", shown(it->key),
                             it->key.chars),
                    memchr(it->key.chars, '=', it->key.count) ? "write key:value, not key=value" : "write key:value");
  p->next++;
  it->list = p->next[0] == '[';
  if (it->list) {
    it->value.chars = ++p->next;
    it->value.count = strcspn(p->next, "[]");
    p->next += it->value.count;
    if (p->next[0] != ']')
      return refuse(p, it, p->next[0] ? "a '[' stands inside the list" : "the list is not closed; ']' is missing");
    p->next++;
  } else {
    it->value = take_word(p);
    if (!it->value.count) return refuse(p, it, "a value is wanted behind ':'");
  }
  if (!p->next[0]) return HR_OK;
  if (p->next[0] != ',') return refuse(p, it, "a ',' is wanted behind the value");
  p->next++;
  return HR_OK;
}

/* ---- values ---- */

/* As std::stoull reads it: a sign is allowed (-1 is 2^64 - 1), what follows the digits is not looked at. */
static hr_status number(const parser *p, const item *it, word w, uint64_t *value) {
  char *end;
  errno = 0;
  *value = strtoull(w.chars, &end, 10);
  if (end == w.chars || end > w.chars + w.count) return refuse(p, it, "a whole number is wanted");
  return errno ? refuse(p, it, "the number is too large") : HR_OK;
}

/* As std::stod in the "C" locale. */
static hr_status real(const parser *p, const item *it, word w, double *value) {
  char *end;
  *value = hri_strtod(w.chars, &end);
  return end == w.chars || end > w.chars + w.count ? refuse(p, it, "a number is wanted") : HR_OK;
}

static hr_status single(const parser *p, const item *it) {
  return it->list ? refuse(p, it, "one value is wanted, not a list") : HR_OK;
}

/* A number of MiB of at least `least`; as bytes. */
static hr_status mebibytes(const parser *p, const item *it, uint64_t least, uint64_t *bytes) {
  uint64_t value = 0;
  char rule[96];
  HRI_TRY(single(p, it));
  HRI_TRY(number(p, it, it->value, &value));
  (void)snprintf(rule, sizeof rule, "must be at least %llu (MiB)", (unsigned long long)least);
  if (value < least) return refuse(p, it, rule);
  *bytes = (value < UINT64_MAX / MIB ? value : UINT64_MAX / MIB) * MIB;
  return HR_OK;
}

static bool power_of_two(uint64_t value) { return value && !(value & (value - 1)); }

/* ---- keys ---- */

static hr_status set_large_segment(parser *p, const item *it) {
  return mebibytes(p, it, LARGE_MIN_MIB + 1, &p->config.large_segment_bytes);
}

static hr_status set_max_split(parser *p, const item *it) {
  return mebibytes(p, it, p->config.large_segment_bytes / MIB, &p->config.max_split_bytes);
}

static hr_status set_rounding(parser *p, const item *it) {
  p->rounding_named = true;
  return mebibytes(p, it, p->config.large_segment_bytes / MIB, &p->config.max_non_split_rounding_bytes);
}

static hr_status set_collection(parser *p, const item *it) {
  double value = 0;
  HRI_TRY(single(p, it));
  HRI_TRY(real(p, it, it->value, &value));
  if (!(value > 0 && value < 1)) return refuse(p, it, "must lie above 0 and below 1");
  p->config.garbage_collection_threshold = value;
  return HR_OK;
}

static hr_status set_fraction(parser *p, const item *it) {
  double value = 0;
  HRI_TRY(single(p, it));
  HRI_TRY(real(p, it, it->value, &value));
  if (!(value >= 0 && value <= 1)) return refuse(p, it, "must lie between 0 and 1");
  p->config.memory_fraction = value;
  return HR_OK;
}

static void fill(parser *p, int from, int to, uint64_t value) {
  for (int k = from; k < to; k++) p->config.roundup_power2_divisions[k] = value;
}

/* One "interval:divisions" of the list. The first one also holds for all smaller intervals, ">" for all behind the last
 * one named. */
static hr_status set_interval(parser *p, const item *it, word interval, word divisions, int *last) {
  uint64_t value = 0, mib = 0;
  HRI_TRY(number(p, it, divisions, &value));
  if (value && !power_of_two(value)) return refuse(p, it, "divisions must be a power of two, or 0 for none");
  if (equals(interval, ">")) {
    fill(p, *last < 0 ? 1 : *last + 1, HR_ALLOC_DIVISION_COUNT, value);
    return HR_OK;
  }
  HRI_TRY(number(p, it, interval, &mib));
  if (!power_of_two(mib)) return refuse(p, it, "intervals must be powers of two (MiB)");
  int index = 63 - __builtin_clzll(mib);
  if (index >= HR_ALLOC_DIVISION_COUNT) index = HR_ALLOC_DIVISION_COUNT - 1;
  if (*last < 0) fill(p, 0, index, value);
  p->config.roundup_power2_divisions[index] = value;
  *last = index;
  return HR_OK;
}

static hr_status set_divisions(parser *p, const item *it) {
  uint64_t value = 0;
  int last = -1;
  parser inside = {.next = it->value.chars};
  const char *end = it->value.chars + it->value.count;
  if (!p->divisions_named) fill(p, 0, HR_ALLOC_DIVISION_COUNT, 0);
  p->divisions_named = true;
  if (!it->list) {
    HRI_TRY(number(p, it, it->value, &value));
    if (!power_of_two(value)) return refuse(p, it, "divisions must be a power of two");
    fill(p, 0, HR_ALLOC_DIVISION_COUNT, value);
    return HR_OK;
  }
  while (inside.next < end) {
    word interval = take_word(&inside), divisions;
    if (inside.next[0] != ':') return refuse(p, it, "each entry of the list must be interval:divisions");
    inside.next++;
    divisions = take_word(&inside);
    HRI_TRY(set_interval(p, it, interval, divisions, &last));
    if (inside.next < end && *inside.next++ != ',')
      return refuse(p, it, "a ',' is wanted between the entries of the list");
  }
  return HR_OK;
}

/* 0 stops all rounding to divisions, which 1 byte does here: 0 is "all are rounded". */
static hr_status set_bypass(parser *p, const item *it) {
  HRI_TRY(mebibytes(p, it, 0, &p->config.roundup_bypass_bytes));
  if (!p->config.roundup_bypass_bytes) p->config.roundup_bypass_bytes = 1;
  return HR_OK;
}

static hr_status set_backend(parser *p, const item *it) {
  HRI_TRY(single(p, it));
  p->config.async_backend = equals(it->value, "cudaMallocAsync") || equals(it->value, "hipMallocAsync");
  return p->config.async_backend || equals(it->value, "native") ? HR_OK
                                                                : refuse(p, it, "must be native or cudaMallocAsync");
}

static hr_status set_register_threads(parser *p, const item *it) {
  uint64_t value = 0;
  HRI_TRY(single(p, it));
  HRI_TRY(number(p, it, it->value, &value));
  if (!power_of_two(value) || value > REGISTER_THREADS_MAX)
    return refuse(p, it, "must be a power of two of at most 128");
  p->config.pinned_num_register_threads = value;
  return HR_OK;
}

static hr_status set_pinned_segment(parser *p, const item *it) {
  return mebibytes(p, it, 1, &p->config.pinned_reserve_segment_bytes);
}

/* "0.5" of the device's bytes, or "40G" */
static hr_status reserve(const parser *p, const item *it, word w, double *fraction, uint64_t *bytes) {
  double value = 0;
  bool gib = w.count && (w.chars[w.count - 1] == 'G' || w.chars[w.count - 1] == 'g');
  HRI_TRY(real(p, it, w, &value));
  if (!isfinite(value) || value <= 0)
    return refuse(p, it, "must be a share of the device such as 0.5, or a size such as 40G");
  *fraction = gib ? 0 : value;
  *bytes = !gib ? 0 : value >= 17179869183.0 ? UINT64_MAX : (uint64_t)(value * 1073741824.0);
  return HR_OK;
}

static hr_status set_reserve(parser *p, const item *it) {
  HRI_TRY(single(p, it));
  return reserve(p, it, it->value, &p->config.expandable_reserve_fraction, &p->config.expandable_reserve_bytes);
}

/* Classes of streams exist only where a program names them by a call: checked, and without meaning here. */
static hr_status check_reserve_classes(parser *p, const item *it) {
  parser inside = {.next = it->value.chars};
  const char *end = it->value.chars + it->value.count;
  double fraction;
  uint64_t bytes;
  if (!it->list) return refuse(p, it, "a list is wanted: [class:0.25,class:8G]");
  while (inside.next < end) {
    word name = take_word(&inside);
    if (!name.count || *inside.next++ != ':') return refuse(p, it, "each entry of the list must be class:reserve");
    HRI_TRY(reserve(p, it, take_word(&inside), &fraction, &bytes));
    if (inside.next < end && *inside.next++ != ',')
      return refuse(p, it, "a ',' is wanted between the entries of the list");
  }
  return HR_OK;
}

/* Either `set`, or the place of a bool. */
typedef struct key {
  const char *name;
  hr_status (*set)(parser *p, const item *it);
  size_t flag;
} key;

#define FLAG(name) NULL, offsetof(hr_alloc_config, name)
static const key keys[] = {
    {"max_split_size_mb", set_max_split, 0},
    {"max_non_split_rounding_mb", set_rounding, 0},
    {"garbage_collection_threshold", set_collection, 0},
    {"roundup_power2_divisions", set_divisions, 0},
    {"roundup_bypass_threshold_mb", set_bypass, 0},
    {"expandable_segments", FLAG(expandable_segments)},
    {"backend", set_backend, 0},
    {"large_segment_size_mb", set_large_segment, 0},
    {"per_process_memory_fraction", set_fraction, 0},
    {"throw_on_cudamalloc_oom", FLAG(throw_on_device_oom)},
    {"graph_capture_record_stream_reuse", FLAG(graph_capture_record_stream_reuse)},
    {"release_lock_on_cudamalloc", FLAG(release_lock_on_device_malloc)},
    {"release_lock_on_hipmalloc", FLAG(release_lock_on_device_malloc)},
    {"pinned_use_cuda_host_register", FLAG(pinned_use_host_register)},
    {"pinned_use_hip_host_register", FLAG(pinned_use_host_register)},
    {"pinned_use_background_threads", FLAG(pinned_use_background_threads)},
    {"pinned_free_catch_all", FLAG(pinned_free_catch_all)},
    {"pinned_num_register_threads", set_register_threads, 0},
    {"pinned_reserve_segment_size_mb", set_pinned_segment, 0},
    {"expandable_segments_reserve", set_reserve, 0},
    {"expandable_segments_reserve_by_class", check_reserve_classes, 0},
};
enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

static hr_status unknown_key(const parser *p, word name) {
  const char *names[KEY_COUNT], *near;
  char text[KEY_TEXT + 1];
  hr_status status = hri_fail(p->error, HR_ERROR_USAGE, "unknown allocator setting '%.*s'", shown(name), name.chars);
  (void)snprintf(text, sizeof text, "%.*s", shown(name), name.chars);
  for (int k = 0; k < KEY_COUNT; k++) names[k] = keys[k].name;
  near = hri_nearest(text, names, KEY_COUNT);
  return near ? hri_hint(p->error, status, "did you mean %s?", near)
              : hri_hint(p->error, status, "docs/allocator.md lists the keys");
}

static hr_status apply(parser *p, const item *it) {
  int k = 0;
  while (k < KEY_COUNT && !equals(it->key, keys[k].name)) k++;
  if (k == KEY_COUNT) return unknown_key(p, it->key);
  if (keys[k].set) return keys[k].set(p, it);
  HRI_TRY(single(p, it));
  if (!equals(it->value, "True") && !equals(it->value, "False"))
    return refuse(p, it, "must be True or False, spelled so");
  *(bool *)((char *)&p->config + keys[k].flag) = it->value.chars[0] == 'T';
  return HR_OK;
}

/* The size of large segments first: other limits depend on it, wherever it stands. */
static hr_status parse_items(parser *p, const char *text) {
  item it;
  bool large = false;
  for (p->next = text; *p->next;) {
    HRI_TRY(take_item(p, &it));
    if (!equals(it.key, "large_segment_size_mb")) continue;
    HRI_TRY(set_large_segment(p, &it));
    large = true;
  }
  for (p->next = text; *p->next;) {
    HRI_TRY(take_item(p, &it));
    HRI_TRY(apply(p, &it));
  }
  if (large && !p->rounding_named) p->config.max_non_split_rounding_bytes = p->config.large_segment_bytes;
  return HR_OK;
}

hr_status hr_alloc_config_parse(const char *text, hr_alloc_config *config, hr_error *error) {
  parser p = {.config = *config, .error = error};
  char *dense, *to;
  hr_status status;
  if (!text) return HR_OK;
  to = dense = hri_alloc(strlen(text) + 1);
  if (!dense) return hri_fail_memory(error, strlen(text) + 1, "allocator settings");
  for (; *text; text++)
    if (!strchr(" \t\n\v\f\r", *text)) *to++ = *text;
  *to = 0;
  status = parse_items(&p, dense);
  if (status == HR_OK) *config = p.config;
  hri_free(dense);
  return status;
}
