/* JSON in the layout of PyTorch's snapshots: what the viewer takes besides pickles, and what hr_snapshot_export writes.
 * The text lies in memory whole (the scanner decodes strings in place); values go to the decoder as they come. What the
 * profiler writes is told from it by how it begins, and read by profile_read.c. */
#include <string.h>

#include "snapshot/reader.h"

static hr_status read_value(hri_snapshot_decoder *d, hri_json_scan *scan);

static hr_status push(hri_snapshot_decoder *d, hri_decoded v) {
  return hri_values_push(&d->stack, v) ? HR_OK : hri_snapshot_decoder_fail_memory(d);
}

static hr_status read_number(hri_snapshot_decoder *d, hri_json_scan *scan) {
  const hri_json_scan start = *scan;
  bool is_integer = true;
  int64_t integer = 0;
  uint64_t bits = 0;
  double real = 0;
  hri_decoded v;
  if (*scan->next == '-' ||
      hri_json_scan_u64(scan, &bits, NULL) != HR_OK) { /* addresses are above INT64_MAX at times */
    *scan = start;
    HRI_TRY(hri_json_scan_number(scan, &is_integer, &integer, &real, d->error));
    bits = (uint64_t)integer;
  }
  HRI_TRY(is_integer ? hri_value_of_integer(d, bits, integer < 0, &v) : hri_value_of_real(d, real, &v));
  return push(d, v);
}

static hr_status read_string(hri_snapshot_decoder *d, hri_json_scan *scan) {
  char *chars;
  hri_decoded v;
  HRI_TRY(hri_json_scan_string(scan, &chars, d->error));
  HRI_TRY(hri_value_of_string(d, chars, strlen(chars), &v));
  return push(d, v);
}

static hr_status read_array(hri_snapshot_decoder *d, hri_json_scan *scan) {
  uint64_t place = d->stack.count;
  bool more;
  HRI_TRY(push(d, HRI_VALUE_NEW_LIST));
  HRI_TRY(hri_json_scan_array(scan, d->error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(scan, &more, d->error));
    if (!more) return HR_OK;
    HRI_TRY(read_value(d, scan));
    HRI_TRY(hri_list_append(d, &d->stack.items[place], &d->stack.items[place + 1], 1));
    d->stack.count = place + 1;
  }
}

/* A key and its value, onto the stack. */
static hr_status read_member(hri_snapshot_decoder *d, hri_json_scan *scan, const char *key) {
  hri_decoded v;
  HRI_TRY(hri_value_of_string(d, key, strlen(key), &v));
  HRI_TRY(push(d, v));
  return read_value(d, scan);
}

/* What lies above the dict at `place` becomes its members. */
static hr_status end_object(hri_snapshot_decoder *d, uint64_t place) {
  HRI_TRY(hri_dict_add(d, &d->stack.items[place], &d->stack.items[place + 1], (d->stack.count - place - 1) / 2));
  d->stack.count = place + 1;
  return HR_OK;
}

static hr_status read_object(hri_snapshot_decoder *d, hri_json_scan *scan) {
  uint64_t place = d->stack.count;
  char *key;
  HRI_TRY(push(d, HRI_VALUE_NEW_DICT));
  HRI_TRY(hri_json_scan_object(scan, d->error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(scan, &key, d->error));
    if (!key) break;
    HRI_TRY(read_member(d, scan, key));
  }
  return end_object(d, place);
}

/* Reads one value onto the stack. Recursion is bounded by HRI_JSON_DEPTH. */
static hr_status read_value(hri_snapshot_decoder *d, hri_json_scan *scan) {
  char c = hri_json_scan_peek(scan);
  switch (c) {
  case '{': return read_object(d, scan);
  case '[': return read_array(d, scan);
  case '"': return read_string(d, scan);
  case 't':
  case 'f':
  case 'n':
    HRI_TRY(hri_json_scan_skip(scan, d->error));
    return push(d, c == 'n' ? HRI_VALUE_NONE : hri_value_make(HRI_VALUE_BOOL, c == 't'));
  default: break;
  }
  if (c == '-' || (c >= '0' && c <= '9')) return read_number(d, scan);
  return hri_json_scan_skip(scan, d->error); /* fails, and says at what */
}

/* ---- which kind of text ---- */

static bool shows(const hri_json_scan *scan, const char *word) {
  const size_t near = 2048, rest = (size_t)(scan->end - scan->next);
  return memmem(scan->next, rest < near ? rest : near, word, strlen(word)) != NULL;
}

/* The dict of a snapshot, or the object of a Chrome trace: its "traceEvents" tell, wherever they stand. */
static hr_status read_top_object(hri_snapshot_decoder *d, hri_json_scan *scan) {
  double base_ns = 0;
  uint64_t bits;
  bool negative;
  char *key;
  HRI_TRY(push(d, HRI_VALUE_NEW_DICT));
  HRI_TRY(hri_json_scan_object(scan, d->error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(scan, &key, d->error));
    if (!key) break;
    if (strcmp(key, "traceEvents") == 0 && hri_json_scan_peek(scan) == '[')
      return hri_read_chrome_trace(d, scan, true, base_ns);
    HRI_TRY(read_member(d, scan, key));
    if (strcmp(key, "baseTimeNanoseconds") == 0 &&
        hri_value_integer(d, d->stack.items[d->stack.count - 1], &bits, &negative))
      base_ns = (double)(int64_t)bits;
  }
  return end_object(d, 0);
}

/* [times, sizes] of export_memory_timeline: totals by category. */
static hr_status fail_totals(hri_snapshot_decoder *d) {
  hr_status code = hri_fail(d->error, HR_ERROR_INPUT,
                            "%s: a memory timeline of PyTorch's profiler, with totals by category over time and no "
                            "allocations",
                            d->name);
  return hri_hint(
      d->error, code,
      "export_memory_timeline(\"NAME.raw.json.gz\") writes them; export_chrome_trace of the same profile has "
      "stacks, too");
}

/* A bare list: segments; events of a Chrome trace; rows of a raw timeline, or [times, sizes]. */
static hr_status read_top_array(hri_snapshot_decoder *d, hri_json_scan *scan) {
  const char *first = scan->next + 1, *close;
  uint32_t commas = 0;
  while (first < scan->end && (*first == ' ' || *first == '\n' || *first == '\t' || *first == '\r')) first++;
  if (first < scan->end && *first == '{' && shows(scan, "\"ph\"")) return hri_read_chrome_trace(d, scan, false, 0);
  if (first == scan->end || *first != '[') return read_value(d, scan);
  close = memchr(first, ']', (size_t)(scan->end - first));
  for (const char *c = first; close && c < close && commas < 4; c++) commas += *c == ',';
  if (commas != 3) return fail_totals(d);
  for (close++; close < scan->end && strchr(", \n\t\r", *close);) close++;
  if (scan->end - close > 1 && close[0] == '[' && close[1] == '[') return fail_totals(d); /* four instants */
  return hri_read_raw_timeline(d, scan);
}

static hr_status read_top(hri_snapshot_decoder *d, hri_json_scan *scan) {
  const char c = hri_json_scan_peek(scan);
  if (c == '{') return read_top_object(d, scan);
  return c == '[' ? read_top_array(d, scan) : read_value(d, scan);
}

hr_status hri_read_json(hri_snapshot_decoder *d, hri_snapshot_source *source, hri_decoded *whole) {
  hri_json_scan scan;
  char *bytes;
  uint64_t count;
  hr_status status;
  HRI_TRY(hri_snapshot_source_whole(source, &bytes, &count, d->error));
  if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) bytes += 3, count -= 3; /* a byte order mark */
  scan = hri_json_scan_init(bytes, count, d->name, "");
  d->scan = &scan;
  status = read_top(d, &scan);
  if (status == HR_OK) status = hri_json_scan_end(&scan, d->error);
  if (status == HR_OK) *whole = d->stack.count ? d->stack.items[0] : HRI_VALUE_NONE;
  source->next = source->end; /* errors about the whole name its end */
  d->scan = NULL;
  return status;
}
