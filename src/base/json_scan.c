#include "base/json_scan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"

hri_json_scan hri_json_scan_init(char *bytes, uint64_t count, const char *file, const char *part) {
  hri_json_scan scan =
      {.next = bytes, .end = bytes + count, .line_start = bytes, .line = 1, .file = file, .part = part};
  return scan;
}

hr_status(hri_json_scan_fail)(const hri_json_scan *scan, hr_error *error, const char *format, ...) {
  char text[400];
  hr_status code;
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  code = hri_fail(error, HR_ERROR_INPUT, "%s: %sline %llu, column %llu: %s", scan->file, scan->part,
                  (unsigned long long)scan->line, (unsigned long long)(scan->next - scan->line_start) + 1, text);
  return hri_hint(error, code, "correct the file, or fetch it anew if it is damaged");
}

/* Newlines are legal only here, so lines are counted here alone; strings decoded in place do not disturb the count. */
char hri_json_scan_peek(hri_json_scan *scan) {
  for (; scan->next < scan->end; scan->next++) {
    char c = *scan->next;
    if (c == '\n') {
      scan->line++;
      scan->line_start = scan->next + 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return c;
    }
  }
  return 0;
}

/* "expected WANTED, found ..." for what stands at the current position. */
static hr_status unexpected(hri_json_scan *scan, const char *wanted, hr_error *error) {
  unsigned char c = (unsigned char)hri_json_scan_peek(scan);
  if (scan->next >= scan->end) return hri_json_scan_fail(scan, error, "expected %s, found the end of the text", wanted);
  if (c < 0x20 || c >= 0x7F)
    return hri_json_scan_fail(scan, error, "expected %s, found the byte 0x%02x", wanted, (unsigned)c);
  return hri_json_scan_fail(scan, error, "expected %s, found '%c'", wanted, c);
}

/* ---- Strings ---- */

static bool read_hex4(const char *at, const char *end, uint32_t *value) {
  int i;
  if (end - at < 4) return false;
  for (*value = 0, i = 0; i < 4; i++) {
    char c = at[i];
    uint32_t digit;
    if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
    else if ((c | 32) >= 'a' && (c | 32) <= 'f') digit = (uint32_t)((c | 32) - 'a') + 10;
    else return false;
    *value = *value << 4 | digit;
  }
  return true;
}

static char *put_utf8(char *to, uint32_t code) {
  if (code < 0x80) {
    *to++ = (char)code;
    return to;
  }
  if (code < 0x800) {
    *to++ = (char)(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      *to++ = (char)(0xE0 | code >> 12);
    } else {
      *to++ = (char)(0xF0 | code >> 18);
      *to++ = (char)(0x80 | (code >> 12 & 63));
    }
    *to++ = (char)(0x80 | (code >> 6 & 63));
  }
  *to++ = (char)(0x80 | (code & 63));
  return to;
}

/* \uXXXX, or a pair of them; scan->next stands behind the u. At most 3 bytes per 6 are made, so `to` stays behind. */
static hr_status read_unicode(hri_json_scan *scan, char **to, hr_error *error) {
  uint32_t code, low;
  if (!read_hex4(scan->next, scan->end, &code))
    return hri_json_scan_fail(scan, error, "\\u needs four hexadecimal digits");
  scan->next += 4;
  if (code == 0 && !scan->takes_nul)
    return hri_json_scan_fail(scan, error, "a string may not hold the character U+0000");
  if (code >= 0xDC00 && code <= 0xDFFF) return hri_json_scan_fail(scan, error, "a lone surrogate \\u%04x", code);
  if (code >= 0xD800 && code <= 0xDBFF) {
    if (scan->end - scan->next < 6 || scan->next[0] != '\\' || scan->next[1] != 'u' ||
        !read_hex4(scan->next + 2, scan->end, &low) || low < 0xDC00 || low > 0xDFFF)
      return hri_json_scan_fail(scan, error, "a lone surrogate \\u%04x", code);
    scan->next += 6;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  *to = put_utf8(*to, code);
  return HR_OK;
}

static hr_status read_escape(hri_json_scan *scan, char **to, hr_error *error) {
  static const char from[] = "\"\\/bfnrt", made[] = "\"\\/\b\f\n\r\t";
  const char *at;
  if (++scan->next >= scan->end) return unexpected(scan, "the rest of a string", error);
  if (*scan->next == 'u') {
    scan->next++;
    return read_unicode(scan, to, error);
  }
  at = memchr(from, *scan->next, sizeof from - 1);
  if (!at) return hri_json_scan_fail(scan, error, "an unknown escape in a string");
  scan->next++;
  *(*to)++ = made[at - from];
  return HR_OK;
}

hr_status hri_json_scan_string(hri_json_scan *scan, char **value, hr_error *error) {
  char *to;
  if (hri_json_scan_peek(scan) != '"') return unexpected(scan, "a string", error);
  *value = to = ++scan->next;
  for (;;) {
    size_t length;
    unsigned char c;
    if (scan->next >= scan->end) return unexpected(scan, "the rest of a string", error);
    c = (unsigned char)*scan->next;
    if (c == '"') break;
    if (c == '\\') {
      HRI_TRY(read_escape(scan, &to, error));
      continue;
    }
    if (c < 0x20) return hri_json_scan_fail(scan, error, "the control character 0x%02x in a string", (unsigned)c);
    length = hri_utf8_sequence(scan->next, (size_t)(scan->end - scan->next));
    if (length == 0) return hri_json_scan_fail(scan, error, "the byte 0x%02x is not UTF-8", (unsigned)c);
    for (; length > 0; length--) *to++ = *scan->next++;
  }
  *to = 0; /* at the closing quote or before it */
  scan->bytes = (uint64_t)(to - *value);
  scan->next++;
  scan->first = false;
  return HR_OK;
}

/* ---- Numbers, literals, anything ---- */

static bool digit_at(const hri_json_scan *scan) {
  return scan->next < scan->end && *scan->next >= '0' && *scan->next <= '9';
}

hr_status hri_json_scan_u64(hri_json_scan *scan, uint64_t *value, hr_error *error) {
  char c = hri_json_scan_peek(scan);
  uint64_t number = 0;
  if (c < '0' || c > '9') return unexpected(scan, "a non-negative integer", error);
  do {
    uint64_t digit = (uint64_t)(*scan->next - '0');
    if (!hri_mul(number, 10, &number) || !hri_add(number, digit, &number))
      return hri_json_scan_fail(scan, error, "the integer does not fit 64 bits");
    scan->next++;
  } while (c != '0' && digit_at(scan)); /* nothing may follow a leading zero */
  if (digit_at(scan)) return hri_json_scan_fail(scan, error, "an integer with a leading zero");
  if (scan->next < scan->end && (*scan->next == '.' || *scan->next == 'e' || *scan->next == 'E'))
    return hri_json_scan_fail(scan, error, "expected an integer, found a fraction or an exponent");
  *value = number;
  scan->first = false;
  return HR_OK;
}

static hr_status skip_digits(hri_json_scan *scan, hr_error *error) {
  if (!digit_at(scan)) return unexpected(scan, "a digit", error);
  while (digit_at(scan)) scan->next++;
  return HR_OK;
}

static hr_status skip_number(hri_json_scan *scan, hr_error *error) {
  if (*scan->next == '-') scan->next++;
  if (scan->next < scan->end && *scan->next == '0') {
    scan->next++;
    if (digit_at(scan)) return hri_json_scan_fail(scan, error, "a number with a leading zero");
  } else {
    HRI_TRY(skip_digits(scan, error));
  }
  if (scan->next < scan->end && *scan->next == '.') {
    scan->next++;
    HRI_TRY(skip_digits(scan, error));
  }
  if (scan->next < scan->end && (*scan->next == 'e' || *scan->next == 'E')) {
    scan->next++;
    if (scan->next < scan->end && (*scan->next == '+' || *scan->next == '-')) scan->next++;
    HRI_TRY(skip_digits(scan, error));
  }
  scan->first = false;
  return HR_OK;
}

static hr_status read_real(const hri_json_scan *scan, const char *at, double *real, hr_error *error) {
  *real = hri_strtod(at, NULL);
  return isfinite(*real) ? HR_OK : hri_json_scan_fail(scan, error, "the number is too large for a double");
}

hr_status hri_json_scan_number(hri_json_scan *scan, bool *is_integer, int64_t *integer, double *real, hr_error *error) {
  char c = hri_json_scan_peek(scan), *at = scan->next, *digit;
  uint64_t magnitude = 0;
  bool negative = c == '-', fits = true;
  if (!negative && (c < '0' || c > '9')) return unexpected(scan, "a number", error);
  HRI_TRY(skip_number(scan, error));
  for (digit = at + negative; digit < scan->next && *digit >= '0' && *digit <= '9'; digit++)
    fits = fits && hri_mul(magnitude, 10, &magnitude) && hri_add(magnitude, (uint64_t)(*digit - '0'), &magnitude);
  fits = fits && magnitude <= (uint64_t)INT64_MAX + negative;
  *is_integer = digit == scan->next && (fits || !scan->takes_wide);
  if (!*is_integer) return read_real(scan, at, real, error);
  if (!fits) return hri_json_scan_fail(scan, error, "the integer does not fit 64 bits with a sign");
  *integer = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
  return HR_OK;
}

static hr_status skip_word(hri_json_scan *scan, const char *word, hr_error *error) {
  size_t length = strlen(word);
  if ((size_t)(scan->end - scan->next) < length || memcmp(scan->next, word, length) != 0)
    return unexpected(scan, "a value", error);
  scan->next += length;
  scan->first = false;
  return HR_OK;
}

static hr_status skip_object(hri_json_scan *scan, hr_error *error) {
  char *key;
  HRI_TRY(hri_json_scan_object(scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(scan, &key, error));
    if (!key) return HR_OK;
    HRI_TRY(hri_json_scan_skip(scan, error));
  }
}

static hr_status skip_array(hri_json_scan *scan, hr_error *error) {
  bool more = false;
  HRI_TRY(hri_json_scan_array(scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(hri_json_scan_skip(scan, error));
  }
}

/* Recursion is bounded by HRI_JSON_DEPTH. */
hr_status hri_json_scan_skip(hri_json_scan *scan, hr_error *error) {
  char c = hri_json_scan_peek(scan), *string;
  switch (c) {
  case '{': return skip_object(scan, error);
  case '[': return skip_array(scan, error);
  case '"': return hri_json_scan_string(scan, &string, error);
  case 't': return skip_word(scan, "true", error);
  case 'f': return skip_word(scan, "false", error);
  case 'n': return skip_word(scan, "null", error);
  default: break;
  }
  if (c == '-' || (c >= '0' && c <= '9')) return skip_number(scan, error);
  return unexpected(scan, "a value", error);
}

/* ---- Containers ---- */

static hr_status open_container(hri_json_scan *scan, char mark, const char *wanted, hr_error *error) {
  if (hri_json_scan_peek(scan) != mark) return unexpected(scan, wanted, error);
  if (scan->depth >= HRI_JSON_DEPTH)
    return hri_json_scan_fail(scan, error, "nested deeper than %d levels", HRI_JSON_DEPTH);
  scan->next++;
  scan->depth++;
  scan->first = true;
  return HR_OK;
}

/* Takes a comma or the closing mark; a comma must be followed by another member, which the caller then reads. */
static hr_status next_member(hri_json_scan *scan, char close, const char *wanted, bool *more, hr_error *error) {
  char c = hri_json_scan_peek(scan);
  if (c == close) {
    scan->next++;
    scan->depth--;
    scan->first = false;
    *more = false;
    return HR_OK;
  }
  if (!scan->first) {
    if (c != ',') return unexpected(scan, wanted, error);
    scan->next++;
  }
  *more = true;
  return HR_OK;
}

hr_status hri_json_scan_object(hri_json_scan *scan, hr_error *error) {
  return open_container(scan, '{', "an object", error);
}

hr_status hri_json_scan_key(hri_json_scan *scan, char **key, hr_error *error) {
  bool more = false;
  *key = NULL;
  HRI_TRY(next_member(scan, '}', "',' or '}'", &more, error));
  if (!more) return HR_OK;
  HRI_TRY(hri_json_scan_string(scan, key, error));
  if (hri_json_scan_peek(scan) != ':') return unexpected(scan, "':'", error);
  scan->next++;
  return HR_OK;
}

hr_status hri_json_scan_array(hri_json_scan *scan, hr_error *error) {
  return open_container(scan, '[', "an array", error);
}

hr_status hri_json_scan_element(hri_json_scan *scan, bool *more, hr_error *error) {
  return next_member(scan, ']', "',' or ']'", more, error);
}

hr_status hri_json_scan_end(hri_json_scan *scan, hr_error *error) {
  (void)hri_json_scan_peek(scan);
  return scan->next == scan->end ? HR_OK : unexpected(scan, "the end of the text", error);
}
