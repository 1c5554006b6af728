/* The functions that a template finds under a name: those of Jinja and those that transformers adds. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "chat/run.h"

static hr_status need_integer(hri_run *run, hri_value value, int64_t *out) {
  if (hri_as_integer(value, out)) return HR_OK;
  if (value.kind == HRI_UNDEFINED) return hri_fail_undefined(run, value);
  return hri_run_fail(run, "'%s' object cannot be interpreted as an integer", hri_type_name(value));
}

static hr_status global_range(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t start = 0, stop, step = 1, i;
  uint64_t span, stride, count = 0;
  (void)self;
  HRI_TRY(need_integer(run, values[0], &stop));
  if (values[1].kind != HRI_ABSENT) {
    start = stop;
    HRI_TRY(need_integer(run, values[1], &stop));
  }
  if (values[2].kind != HRI_ABSENT) HRI_TRY(need_integer(run, values[2], &step));
  if (step == 0) return hri_run_fail(run, "range() arg 3 must not be zero");
  if (step > 0 ? start < stop : start > stop) {
    span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    count = (span - 1) / stride + 1;
  }
  if (count > HRI_LIMIT_RANGE)
    return hri_run_fail(run, "the range has %llu elements, more than %d", (unsigned long long)count, HRI_LIMIT_RANGE);
  HRI_TRY(hri_items_new(run, HRI_RANGE, count, out));
  for (i = 0; i < (int64_t)count; i++) out->as.items->at[i] = hri_int(start + i * step);
  out->as.items->start = start;
  out->as.items->stop = stop;
  out->as.items->step = step;
  return HR_OK;
}

/* Pairs of an iterable, as dict() takes them. */
static hr_status add_pairs(hri_run *run, hri_value source, hri_dict *dict) {
  hri_value *at, *pair;
  uint32_t count, i, two;
  if (source.kind == HRI_DICT) {
    for (i = 0; i < source.as.dict->count; i++)
      HRI_TRY(hri_dict_put(run, dict, source.as.dict->pairs[i].key, source.as.dict->pairs[i].value));
    return HR_OK;
  }
  HRI_TRY(hri_iterate(run, source, &at, &count));
  for (i = 0; i < count; i++) {
    HRI_TRY(hri_iterate(run, at[i], &pair, &two));
    if (two != 2)
      return hri_run_fail(run, "dictionary update sequence element #%u has length %u; 2 is required", i, two);
    if (!hri_hashable(pair[0])) return hri_run_fail(run, "unhashable type: '%s'", hri_type_name(pair[0]));
    HRI_TRY(hri_dict_put(run, dict, pair[0], pair[1]));
  }
  return HR_OK;
}

static hr_status make_dict(hri_run *run, const hri_arguments *arguments, hri_dict **out) {
  uint32_t i;
  HRI_TRY(hri_dict_new(run, arguments->named_count, out));
  if (arguments->count > 1) return hri_run_fail(run, "dict expected at most 1 argument, got %u", arguments->count);
  if (arguments->count == 1) HRI_TRY(add_pairs(run, arguments->at[0], *out));
  for (i = 0; i < arguments->named_count; i++)
    HRI_TRY(hri_dict_put(run, *out, arguments->named[i].name, arguments->named[i].value));
  return HR_OK;
}

static hr_status global_dict(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  hri_dict *dict;
  (void)self;
  HRI_TRY(make_dict(run, arguments, &dict));
  *out = (hri_value){.kind = HRI_DICT, .as.dict = dict};
  return HR_OK;
}

static hr_status global_namespace(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  hri_dict *dict;
  uint32_t i;
  (void)self;
  HRI_TRY(make_dict(run, arguments, &dict));
  for (i = 0; i < dict->count; i++)
    if (dict->pairs[i].key.kind == HRI_STRING && dict->pairs[i].key.count > 0 && dict->pairs[i].key.as.chars[0] == '_')
      return hri_run_fail(run, "a namespace cannot hold the name '%.*s', which begins with '_'",
                          (int)dict->pairs[i].key.count, dict->pairs[i].key.as.chars);
  *out = (hri_value){.kind = HRI_NAMESPACE, .as.dict = dict};
  return HR_OK;
}

static hr_status global_raise(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value text;
  (void)self;
  (void)out;
  HRI_TRY(hri_str(run, values[0], &text));
  return hri_run_fail(run, "the template refuses this conversation: %.*s", (int)(text.count < 400 ? text.count : 400),
                      text.as.chars);
}

/* The format as datetime hands it to C: %f is Python's, microseconds, and a datetime without a zone has no %z and %Z. */
static hr_status time_format(hri_run *run, hri_value given, long microseconds, hri_text *to) {
  const char *chars = given.as.chars;
  for (size_t i = 0; i < given.count; i++) {
    const char next = i + 1 < given.count ? chars[i + 1] : 0;
    if (chars[i] != '%' || !next) {
      hri_text_add_bytes(to, chars + i, 1);
      continue;
    }
    i++;
    if (next == 'f') hri_text_add(to, "%06ld", microseconds);
    else if (next != 'z' && next != 'Z') hri_text_add_bytes(to, chars + i - 1, 2);
  }
  return hri_run_text(run, to);
}

/* As Python does it: with a buffer of 1,024 bytes and twice as much again and again, until the text fits; what does not
 * fit into 256 bytes for each character of the format (%9999d) is no text at all. */
static hr_status write_time(hri_run *run, const char *format, const struct tm *local, const char **made,
                            size_t *length) {
  const size_t characters = strlen(format);
  size_t bytes = 512;
  void *memory;
  *length = 0;
  *made = "";
  while (*length == 0 && characters > 0) {
    bytes *= 2;
    HRI_TRY(hri_take(run, bytes, &memory));
    *length = strftime(memory, bytes, format, local);
    *made = memory;
    if (bytes >= 256 * characters) break;
  }
  return hri_run_steps(run, *length / 8);
}

/* datetime.now().strftime(format). */
static hr_status global_strftime(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_text format = {0};
  const char *made = "";
  struct timespec now;
  struct tm local;
  size_t i, length = 0;
  hr_status status;
  (void)self;
  if (values[0].kind != HRI_STRING)
    return hri_run_fail(run, "strftime() argument 1 must be str, not %s", hri_type_name(values[0]));
  HRI_TRY(hri_run_steps(run, values[0].count / 8));
  (void)clock_gettime(CLOCK_REALTIME, &now);
  if (!localtime_r(&now.tv_sec, &local)) return hri_run_fail(run, "the clock of this machine gives no local time");
  status = time_format(run, values[0], now.tv_nsec / 1000, &format);
  if (status == HR_OK) status = write_time(run, hri_text_get(&format), &local, &made, &length);
  hri_text_deinit(&format);
  HRI_TRY(status);
  for (i = 0; i < length;) { /* names of days come from the locale, in its own encoding */
    size_t bytes = hri_utf8_sequence(made + i, length - i);
    if (bytes == 0) return hri_run_unsupported(run, "a locale whose names of days and months are not UTF-8");
    i += bytes;
  }
  return hri_text_value(run, made, length, out);
}

static hr_status global_cycler(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  hri_cycler *cycler;
  hri_value copy;
  void *memory;
  (void)self;
  if (arguments->count == 0 || arguments->named_count > 0)
    return hri_run_fail(run, "at least one item has to be provided");
  HRI_TRY(hri_items_new(run, HRI_LIST, arguments->count, &copy));
  memcpy(copy.as.items->at, arguments->at, arguments->count * sizeof *arguments->at);
  HRI_TRY(hri_take(run, sizeof *cycler, &memory));
  cycler = memory;
  *cycler = (hri_cycler){.at = copy.as.items->at, .count = arguments->count};
  *out = (hri_value){.kind = HRI_CYCLER, .as.other = cycler};
  return HR_OK;
}

static hr_status global_joiner(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_joiner *joiner;
  void *memory;
  (void)self;
  HRI_TRY(hri_take(run, sizeof *joiner, &memory));
  joiner = memory;
  *joiner = (hri_joiner){.separator = values[0].kind == HRI_ABSENT ? hri_chars(", ", 2) : values[0]};
  *out = (hri_value){.kind = HRI_JOINER, .as.other = joiner};
  return HR_OK;
}

static const hri_builtin globals[] = {
    {"namespace", NULL, NULL, global_namespace},
    {"raise_exception", "message", global_raise, NULL},
    {"range", "/start,stop=,step=", global_range, NULL},
    {"strftime_now", "format", global_strftime, NULL},
    {"dict", NULL, NULL, global_dict},
    {"cycler", NULL, NULL, global_cycler},
    {"joiner", "sep=", global_joiner, NULL},
};

bool hri_global_find(const char *name, size_t bytes, hri_value *out) {
  size_t i;
  for (i = 0; i < sizeof globals / sizeof *globals; i++)
    if (strlen(globals[i].name) == bytes && memcmp(globals[i].name, name, bytes) == 0) {
      *out = (hri_value){.kind = HRI_FUNCTION, .as.other = (void *)(uintptr_t)&globals[i]};
      return true;
    }
  return false;
}
