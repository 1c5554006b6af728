/* str(), repr() and json.dumps(). */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "chat/run.h"
#include "chat/unicode.h"

enum { FLOAT_DIGITS = 17 };

/* Adds one to the last of `count` decimal digits; false when they were all nines. */
static bool next_decimal(char *digits, int count) {
  while (count-- > 0) {
    if (digits[count] != '9') {
      digits[count]++;
      return true;
    }
    digits[count] = '0';
  }
  return false;
}

static double assemble(const char *digits, int count, int exponent) {
  char text[FLOAT_DIGITS + 16];
  (void)snprintf(text, sizeof text, "%.*se%d", count, digits, exponent - count + 1);
  return hri_strtod(text, NULL);
}

/* The fewest digits that read back as the same value (> 0), the nearest of those: value = d.ddd * 10^*exponent. Nearest
 * of a given length is what printf gives, but next to a power of two the one above may read back where it does not. */
static int shortest_digits(double value, char digits[FLOAT_DIGITS + 1], int *exponent) {
  int count, i;
  for (count = 1;; count++) {
    char text[48], up[FLOAT_DIGITS + 1];
    (void)hri_snprintf(text, sizeof text, "%.*e", count - 1, value);
    digits[0] = text[0];
    for (i = 1; i < count; i++) digits[i] = text[i + 1]; /* text[1] is the decimal point */
    *exponent = atoi(strchr(text, 'e') + 1);
    if (count == FLOAT_DIGITS || assemble(digits, count, *exponent) == value) return count;
    memcpy(up, digits, sizeof up);
    if (!next_decimal(up, count) || assemble(up, count, *exponent) != value) continue;
    memcpy(digits, up, sizeof up);
    return count;
  }
}

void hri_add_float(hri_text *text, double value) {
  char digits[FLOAT_DIGITS + 1];
  int count, exponent, i;
  if (isnan(value)) {
    hri_text_add(text, "nan");
    return;
  }
  if (signbit(value)) hri_text_add(text, "-");
  value = fabs(value);
  if (isinf(value) || value == 0) {
    hri_text_add(text, isinf(value) ? "inf" : "0.0");
    return;
  }
  count = shortest_digits(value, digits, &exponent);
  while (count > 1 && digits[count - 1] == '0') count--;
  if (exponent < -4 || exponent >= 16) {
    hri_text_add_bytes(text, digits, 1);
    if (count > 1) hri_text_add(text, ".%.*s", count - 1, digits + 1);
    hri_text_add(text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    return;
  }
  if (exponent < 0) hri_text_add(text, "0.");
  for (i = exponent + 1; i < 0; i++) hri_text_add(text, "0");
  for (i = 0; i < count || i <= exponent; i++) {
    if (i == exponent + 1 && exponent >= 0) hri_text_add(text, ".");
    hri_text_add_bytes(text, i < count ? &digits[i] : "0", 1);
  }
  if (count <= exponent + 1) hri_text_add(text, ".0");
}

/* ---- repr ---- */

static void add_repr_code(hri_text *text, uint32_t code, const char *at, size_t bytes, char quote) {
  if (code == (uint32_t)quote || code == '\\') hri_text_add(text, "\\%c", (int)code);
  else if (code == '\n') hri_text_add(text, "\\n");
  else if (code == '\r') hri_text_add(text, "\\r");
  else if (code == '\t') hri_text_add(text, "\\t");
  else if (hri_is_printable(code)) hri_text_add_bytes(text, at, bytes);
  else if (code < 0x100) hri_text_add(text, "\\x%02x", (unsigned)code);
  else if (code < 0x10000) hri_text_add(text, "\\u%04x", (unsigned)code);
  else hri_text_add(text, "\\U%08x", (unsigned)code);
}

static void add_repr_text(hri_text *text, hri_value value) {
  bool single = memchr(value.as.chars, '\'', value.count) != NULL,
       twice = memchr(value.as.chars, '"', value.count) != NULL;
  char quote = single && !twice ? '"' : '\'';
  size_t i, bytes;
  if (value.flag) hri_text_add(text, "Markup(");
  hri_text_add_bytes(text, &quote, 1);
  for (i = 0; i < value.count; i += bytes) {
    uint32_t code = hri_decode(value.as.chars + i, &bytes);
    add_repr_code(text, code, value.as.chars + i, bytes, quote);
  }
  hri_text_add_bytes(text, &quote, 1);
  if (value.flag) hri_text_add(text, ")");
}

static hr_status add_repr_items(hri_run *run, hri_text *text, hri_value value) {
  const hri_items *items = value.as.items;
  bool list = value.kind != HRI_TUPLE;
  uint32_t i;
  hri_text_add(text, list ? "[" : "(");
  for (i = 0; i < items->count; i++) {
    if (i > 0) hri_text_add(text, ", ");
    HRI_TRY(hri_add_repr(run, text, items->at[i]));
  }
  if (!list && items->count == 1) hri_text_add(text, ",");
  hri_text_add(text, list ? "]" : ")");
  return HR_OK;
}

static hr_status add_repr_dict(hri_run *run, hri_text *text, const hri_dict *dict) {
  uint32_t i;
  hri_text_add(text, "{");
  for (i = 0; i < dict->count; i++) {
    if (i > 0) hri_text_add(text, ", ");
    HRI_TRY(hri_add_repr(run, text, dict->pairs[i].key));
    hri_text_add(text, ": ");
    HRI_TRY(hri_add_repr(run, text, dict->pairs[i].value));
  }
  hri_text_add(text, "}");
  return HR_OK;
}

static hr_status add_repr_range(hri_text *text, const hri_items *range) {
  hri_text_add(text, "range(%lld, %lld", (long long)range->start, (long long)range->stop);
  if (range->step != 1) hri_text_add(text, ", %lld", (long long)range->step);
  hri_text_add(text, ")");
  return HR_OK;
}

static hr_status add_repr_inside(hri_run *run, hri_text *text, hri_value value) {
  static const char *const views[] = {"dict_keys(", "dict_values(", "dict_items("};
  hr_status status;
  switch ((hri_kind)value.kind) {
  case HRI_UNDEFINED: hri_text_add(text, "Undefined"); return HR_OK;
  case HRI_NONE: hri_text_add(text, "None"); return HR_OK;
  case HRI_BOOL: hri_text_add(text, value.as.truth ? "True" : "False"); return HR_OK;
  case HRI_INT: hri_text_add(text, "%lld", (long long)value.as.integer); return HR_OK;
  case HRI_FLOAT: hri_add_float(text, value.as.real); return HR_OK;
  case HRI_STRING: add_repr_text(text, value); return HR_OK;
  case HRI_LIST:
  case HRI_TUPLE: return add_repr_items(run, text, value);
  case HRI_RANGE: return add_repr_range(text, value.as.items);
  case HRI_VIEW:
    hri_text_add(text, "%s", views[value.flag]);
    status = add_repr_items(run, text, value);
    hri_text_add(text, ")");
    return status;
  case HRI_DICT: return add_repr_dict(run, text, value.as.dict);
  case HRI_NAMESPACE:
    hri_text_add(text, "<Namespace ");
    status = add_repr_dict(run, text, value.as.dict);
    hri_text_add(text, ">");
    return status;
  default: return hri_run_unsupported(run, "printing a %s", hri_type_name(value));
  }
}

hr_status hri_add_repr(hri_run *run, hri_text *text, hri_value value) {
  hr_status status;
  HRI_TRY(hri_run_steps(run, 1 + (value.kind == HRI_STRING ? value.count / 16 : 0)));
  HRI_TRY(hri_run_text(run, text));
  HRI_TRY(hri_run_deeper(run));
  status = add_repr_inside(run, text, value);
  run->depth--;
  return status;
}

hr_status hri_add_str(hri_run *run, hri_text *text, hri_value value) {
  if (value.kind == HRI_STRING) {
    HRI_TRY(hri_run_steps(run, value.count / 64));
    hri_text_add_bytes(text, value.as.chars, value.count);
    return hri_run_text(run, text);
  }
  if (value.kind == HRI_UNDEFINED) return HR_OK;
  if (value.kind == HRI_LOOP) {
    hri_loop *loop = value.as.other;
    HRI_TRY(hri_loop_fill(run, loop, UINT32_MAX));
    hri_text_add(text, "<LoopContext %u/%u>", loop->index + 1, loop->count);
    return HR_OK;
  }
  return hri_add_repr(run, text, value);
}

hr_status hri_str(hri_run *run, hri_value value, hri_value *out) {
  hri_text text = {0};
  hr_status status;
  if (value.kind == HRI_STRING) {
    *out = value;
    return HR_OK;
  }
  status = hri_add_str(run, &text, value);
  if (status == HR_OK) return hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

/* ---- json.dumps ---- */

static void add_json_code(hri_text *text, uint32_t code, const char *at, size_t bytes, bool ascii) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char *found = code > 0 && code < 0x80 ? strchr(from, (int)code) : NULL;
  if (found) hri_text_add(text, "\\%c", to[found - from]);
  else if (code < 0x20 || (ascii && code > 0x7E && code < 0x10000)) hri_text_add(text, "\\u%04x", (unsigned)code);
  else if (ascii && code >= 0x10000)
    hri_text_add(text, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                 (unsigned)(0xDC00 + ((code - 0x10000) & 0x3FF)));
  else hri_text_add_bytes(text, at, bytes);
}

static void add_json_text(hri_text *text, hri_value value, bool ascii) {
  size_t i, bytes;
  hri_text_add(text, "\"");
  for (i = 0; i < value.count; i += bytes) {
    uint32_t code = hri_decode(value.as.chars + i, &bytes);
    add_json_code(text, code, value.as.chars + i, bytes, ascii);
  }
  hri_text_add(text, "\"");
}

static void add_json_float(hri_text *text, double value) {
  if (isnan(value)) hri_text_add(text, "NaN");
  else if (isinf(value)) hri_text_add(text, value < 0 ? "-Infinity" : "Infinity");
  else hri_add_float(text, value);
}

static hr_status add_json(hri_run *run, hri_text *text, hri_value value, const hri_json_style *style, uint32_t level);

static void json_line(hri_text *text, const hri_json_style *style, uint32_t level) {
  if (!style->indented) return;
  hri_text_add(text, "\n");
  while (level-- > 0) hri_text_add_bytes(text, style->indent.as.chars, style->indent.count);
}

static void json_separator(hri_text *text, hri_value separator) {
  hri_text_add_bytes(text, separator.as.chars, separator.count);
}

/* Keys that are no texts become their JSON in quotes. */
static hr_status add_json_key(hri_run *run, hri_text *text, hri_value key, const hri_json_style *style) {
  if (key.kind == HRI_STRING) {
    add_json_text(text, key, style->ascii);
    return HR_OK;
  }
  if (key.kind != HRI_NONE && key.kind != HRI_BOOL && key.kind != HRI_INT && key.kind != HRI_FLOAT)
    return hri_run_fail(run, "keys must be str, int, float, bool or None, not %s", hri_type_name(key));
  hri_text_add(text, "\"");
  HRI_TRY(add_json(run, text, key, style, 0));
  hri_text_add(text, "\"");
  return HR_OK;
}

static hr_status sort_pairs(hri_run *run, const hri_dict *dict, hri_pair **out) {
  void *memory;
  HRI_TRY(hri_take(run, (uint64_t)dict->count * sizeof **out, &memory));
  *out = memory;
  if (dict->count > 0) memcpy(memory, dict->pairs, dict->count * sizeof **out);
  return hri_sort_pairs(run, *out, dict->count, false);
}

static hr_status add_json_dict(hri_run *run, hri_text *text, const hri_dict *dict, const hri_json_style *style,
                               uint32_t level) {
  hri_pair *pairs = dict->pairs;
  uint32_t i;
  hri_text_add(text, "{");
  if (style->sorted) HRI_TRY(sort_pairs(run, dict, &pairs));
  for (i = 0; i < dict->count; i++) {
    if (i > 0) json_separator(text, style->item);
    json_line(text, style, level + 1);
    HRI_TRY(add_json_key(run, text, pairs[i].key, style));
    json_separator(text, style->key);
    HRI_TRY(add_json(run, text, pairs[i].value, style, level + 1));
  }
  if (dict->count > 0) json_line(text, style, level);
  hri_text_add(text, "}");
  return HR_OK;
}

static hr_status add_json_items(hri_run *run, hri_text *text, const hri_items *items, const hri_json_style *style,
                                uint32_t level) {
  uint32_t i;
  hri_text_add(text, "[");
  for (i = 0; i < items->count; i++) {
    if (i > 0) json_separator(text, style->item);
    json_line(text, style, level + 1);
    HRI_TRY(add_json(run, text, items->at[i], style, level + 1));
  }
  if (items->count > 0) json_line(text, style, level);
  hri_text_add(text, "]");
  return HR_OK;
}

static hr_status add_json_inside(hri_run *run, hri_text *text, hri_value value, const hri_json_style *style,
                                 uint32_t level) {
  switch ((hri_kind)value.kind) {
  case HRI_NONE: hri_text_add(text, "null"); return HR_OK;
  case HRI_BOOL: hri_text_add(text, value.as.truth ? "true" : "false"); return HR_OK;
  case HRI_INT: hri_text_add(text, "%lld", (long long)value.as.integer); return HR_OK;
  case HRI_FLOAT: add_json_float(text, value.as.real); return HR_OK;
  case HRI_STRING: add_json_text(text, value, style->ascii); return HR_OK;
  case HRI_LIST:
  case HRI_TUPLE: return add_json_items(run, text, value.as.items, style, level);
  case HRI_DICT: return add_json_dict(run, text, value.as.dict, style, level);
  default: return hri_run_fail(run, "object of type %s is not JSON serializable", hri_type_name(value));
  }
}

static hr_status add_json(hri_run *run, hri_text *text, hri_value value, const hri_json_style *style, uint32_t level) {
  hr_status status;
  HRI_TRY(hri_run_steps(run, 1 + (value.kind == HRI_STRING ? value.count / 16 : 0)));
  HRI_TRY(hri_run_text(run, text));
  HRI_TRY(hri_run_deeper(run));
  status = add_json_inside(run, text, value, style, level);
  run->depth--;
  return status;
}

hr_status hri_add_json(hri_run *run, hri_text *text, hri_value value, const hri_json_style *style) {
  return add_json(run, text, value, style, 0);
}
