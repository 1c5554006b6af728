/* JSON in the layout of PyTorch's snapshots: what the viewer takes besides pickles, and what hr_snapshot_export writes.
 * The
 * text lies in memory whole (the scanner decodes strings in place); values go to the decoder as they come. */
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

static hr_status read_object(hri_snapshot_decoder *d, hri_json_scan *scan) {
  uint64_t place = d->stack.count;
  char *key;
  hri_decoded v;
  HRI_TRY(push(d, HRI_VALUE_NEW_DICT));
  HRI_TRY(hri_json_scan_object(scan, d->error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(scan, &key, d->error));
    if (!key) break;
    HRI_TRY(hri_value_of_string(d, key, strlen(key), &v));
    HRI_TRY(push(d, v));
    HRI_TRY(read_value(d, scan));
  }
  HRI_TRY(hri_dict_add(d, &d->stack.items[place], &d->stack.items[place + 1], (d->stack.count - place - 1) / 2));
  d->stack.count = place + 1;
  return HR_OK;
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

hr_status hri_read_json(hri_snapshot_decoder *d, hri_snapshot_source *source, hri_decoded *whole) {
  hri_json_scan scan;
  char *bytes;
  uint64_t count;
  hr_status status;
  HRI_TRY(hri_snapshot_source_whole(source, &bytes, &count, d->error));
  if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) bytes += 3, count -= 3; /* a byte order mark */
  scan = hri_json_scan_init(bytes, count, d->name, "");
  d->scan = &scan;
  status = read_value(d, &scan);
  if (status == HR_OK) status = hri_json_scan_end(&scan, d->error);
  if (status == HR_OK) *whole = d->stack.items[0];
  source->next = source->end; /* errors about the whole name its end */
  d->scan = NULL;
  return status;
}
