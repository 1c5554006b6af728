/* Settings back to text. What equals the default is left out, so that the default prints as "".
 *
 * Divisions are printed so that all versions read them alike: before 2.9 the entry ">" also covered the last interval
 * named before it, later versions begin behind that one. The interval where the tail begins is therefore named with the
 * tail's own value. */
#include <headroom/alloc.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

typedef struct printer {
  char *text;
  size_t capacity;
  int length; /* of the whole text, also of what did not fit */
} printer;

static void add(printer *out, const char *format, ...) HRI_PRINTF(2, 3);
static void add(printer *out, const char *format, ...) {
  size_t at = (size_t)out->length < out->capacity ? (size_t)out->length : out->capacity;
  va_list arguments;
  int count;
  va_start(arguments, format);
  count = hri_vsnprintf(at < out->capacity ? out->text + at : NULL, out->capacity - at, format, arguments);
  va_end(arguments);
  if (count > 0) out->length += count;
}

static void add_key(printer *out, const char *key) { add(out, "%s%s:", out->length ? "," : "", key); }

static void add_flag(printer *out, const char *key, bool value) {
  if (!value) return;
  add_key(out, key);
  add(out, "True");
}

static void add_number(printer *out, const char *key, uint64_t value, uint64_t otherwise, uint64_t unit) {
  if (value == otherwise) return;
  add_key(out, key);
  add(out, "%llu", (unsigned long long)(value / unit));
}

/* Few digits that read back as the same number, without an exponent where that can be; with a point whatever the
 * locale. */
static void add_real(printer *out, const char *key, double value, double otherwise) {
  char digits[40], plain[40];
  int precision = 0;
  if (!(value < otherwise) && !(value > otherwise)) return;
  do {
    (void)snprintf(digits, sizeof digits, "%.*g", ++precision, value);
  } while (precision < 17 && (strtod(digits, NULL) < value || strtod(digits, NULL) > value));
  (void)snprintf(plain, sizeof plain, "%.*g", precision < 10 ? 10 : precision, value);
  if (strchr(digits, 'e') && !strchr(plain, 'e')) memcpy(digits, plain, sizeof digits);
  for (char *c = digits; *c; c++)
    if (!strchr("0123456789+-e", *c)) *c = '.';
  add_key(out, key);
  add(out, "%s", digits);
}

static void add_divisions(printer *out, const uint64_t d[HR_ALLOC_DIVISION_COUNT]) {
  int first = 0, tail = HR_ALLOC_DIVISION_COUNT - 1, last;
  while (first + 1 < HR_ALLOC_DIVISION_COUNT && d[first + 1] == d[0]) first++;
  while (tail > 0 && d[tail - 1] == d[HR_ALLOC_DIVISION_COUNT - 1]) tail--;
  if (tail == 0 && d[0] == 0) return;
  add_key(out, "roundup_power2_divisions");
  if (tail == 0) {
    add(out, "%llu", (unsigned long long)d[0]);
    return;
  }
  /* From `tail` on ">" holds, where that is shorter than naming each; an interval that is not named has no
   * divisions. */
  last = d[tail] && tail < HR_ALLOC_DIVISION_COUNT - 1 ? tail : HR_ALLOC_DIVISION_COUNT - 1;
  add(out, "[%llu:%llu", 1ULL << first, (unsigned long long)d[first]);
  for (int k = first + 1; k <= last; k++)
    if (d[k]) add(out, ",%llu:%llu", 1ULL << k, (unsigned long long)d[k]);
  if (last < HR_ALLOC_DIVISION_COUNT - 1) add(out, ",>:%llu", (unsigned long long)d[tail]);
  add(out, "]");
}

static void add_reserve(printer *out, const hr_alloc_config *config) {
  if (config->expandable_reserve_bytes) {
    add_real(out, "expandable_segments_reserve", (double)config->expandable_reserve_bytes / 1073741824.0, 0);
    add(out, "G");
  } else {
    add_real(out, "expandable_segments_reserve", config->expandable_reserve_fraction, 0);
  }
}

int hr_alloc_config_print(const hr_alloc_config *config, char *text, size_t capacity) {
  const hr_alloc_config normal = hr_alloc_config_default();
  const uint64_t mib = 1 << 20;
  printer out = {text, capacity, 0};
  if (capacity) text[0] = 0;
  if (config->async_backend) add(&out, "backend:cudaMallocAsync");
  add_flag(&out, "expandable_segments", config->expandable_segments);
  add_number(&out, "large_segment_size_mb", config->large_segment_bytes, normal.large_segment_bytes, mib);
  add_number(&out, "max_split_size_mb", config->max_split_bytes, UINT64_MAX, mib);
  /* this one's default is the size of large segments */
  add_number(&out, "max_non_split_rounding_mb", config->max_non_split_rounding_bytes, config->large_segment_bytes, mib);
  add_real(&out, "garbage_collection_threshold", config->garbage_collection_threshold, 0);
  add_divisions(&out, config->roundup_power2_divisions);
  add_number(&out, "roundup_bypass_threshold_mb", config->roundup_bypass_bytes, 0, mib);
  add_reserve(&out, config);
  add_real(&out, "per_process_memory_fraction", config->memory_fraction, 1);
  add_flag(&out, "throw_on_cudamalloc_oom", config->throw_on_device_oom);
  add_flag(&out, "graph_capture_record_stream_reuse", config->graph_capture_record_stream_reuse);
  add_flag(&out, "release_lock_on_cudamalloc", config->release_lock_on_device_malloc);
  add_flag(&out, "pinned_use_cuda_host_register", config->pinned_use_host_register);
  add_flag(&out, "pinned_use_background_threads", config->pinned_use_background_threads);
  add_flag(&out, "pinned_free_catch_all", config->pinned_free_catch_all);
  add_number(&out, "pinned_num_register_threads", config->pinned_num_register_threads,
             normal.pinned_num_register_threads, 1);
  add_number(&out, "pinned_reserve_segment_size_mb", config->pinned_reserve_segment_bytes, 0, mib);
  return out.length;
}
