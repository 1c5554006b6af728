/* Protocol 0 writes values as lines of text. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "snapshot/reader.h"

/* A decimal integer; *fits is false when it has more than 64 bits. */
static bool parse_integer(const char *line, uint64_t count, uint64_t *bits, bool *negative, bool *fits) {
  uint64_t magnitude = 0, k = count && *line == '-';
  *negative = k != 0;
  *fits = true;
  if (k == count) return false;
  for (; k < count; k++) {
    if (line[k] < '0' || line[k] > '9') return false;
    *fits = *fits && hri_mul(magnitude, 10, &magnitude) && hri_add(magnitude, (uint64_t)(line[k] - '0'), &magnitude);
  }
  if (*negative && magnitude > (uint64_t)INT64_MAX + 1) *fits = false;
  *negative = *negative && magnitude;
  *bits = *negative ? 0 - magnitude : magnitude;
  return true;
}

static hr_status read_integer(hri_snapshot_decoder *d, int opcode, const char *line, uint64_t count,
                              hri_decoded *value) {
  uint64_t bits;
  bool negative, fits;
  if (opcode == 'I' && count == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1')) {
    *value = hri_value_make(HRI_VALUE_BOOL, line[1] == '1');
    return HR_OK;
  }
  if (opcode == 'L' && count && line[count - 1] == 'L') count--;
  if (!parse_integer(line, count, &bits, &negative, &fits))
    return hri_snapshot_decoder_fail(d, "'%.*s' is no integer", (int)(count < 40 ? count : 40), line);
  *value = HRI_VALUE_OPAQUE;
  return fits ? hri_value_of_integer(d, bits, negative, value) : HR_OK;
}

static hr_status read_slot(hri_snapshot_decoder *d, const char *line, uint64_t count, hri_decoded *value) {
  uint64_t bits;
  bool negative, fits;
  if (!parse_integer(line, count, &bits, &negative, &fits) || negative || !fits || bits > UINT32_MAX)
    return hri_snapshot_decoder_fail(d, "'%.*s' is no memo slot", (int)(count < 40 ? count : 40), line);
  *value = hri_value_make(HRI_VALUE_INT, bits);
  return HR_OK;
}

static hr_status read_real(hri_snapshot_decoder *d, const char *line, uint64_t count, hri_decoded *value) {
  char text[64], *end;
  double real;
  if (!count || count >= sizeof text)
    return hri_snapshot_decoder_fail(d, "a number of %llu characters", (unsigned long long)count);
  memcpy(text, line, count);
  text[count] = 0;
  real = hri_strtod(text, &end);
  if (*end) return hri_snapshot_decoder_fail(d, "'%.40s' is no number", text);
  return hri_value_of_real(d, real, value);
}

/* ---- strings ---- */

static void add_code(hri_text *text, uint32_t code) {
  char bytes[4];
  size_t count = 0;
  if (code >= 0xd800 && code < 0xe000) code = 0xfffd;
  if (code < 0x80) {
    bytes[count++] = (char)code;
  } else if (code < 0x800) {
    bytes[count++] = (char)(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    bytes[count++] = (char)(0xe0 | code >> 12);
    bytes[count++] = (char)(0x80 | (code >> 6 & 63));
  } else {
    bytes[count++] = (char)(0xf0 | (code >> 18 & 7));
    bytes[count++] = (char)(0x80 | (code >> 12 & 63));
    bytes[count++] = (char)(0x80 | (code >> 6 & 63));
  }
  if (code >= 0x80) bytes[count++] = (char)(0x80 | (code & 63));
  hri_text_add_bytes(text, bytes, count);
}

/* `count` digits to base 8 or 16; false when there are fewer. */
static bool digits(const char *at, const char *end, int count, uint32_t base, uint32_t *value) {
  *value = 0;
  if (end - at < count) return false;
  for (int k = 0; k < count; k++) {
    char c = at[k];
    uint32_t digit = c >= '0' && c <= '9'                 ? (uint32_t)(c - '0')
                     : (c | 32) >= 'a' && (c | 32) <= 'f' ? (uint32_t)((c | 32) - 'a') + 10
                                                          : 99;
    if (digit >= base) return false;
    *value = *value * base + digit;
  }
  return true;
}

/* Python's raw-unicode-escape: \uXXXX, \UXXXXXXXX; every other byte is a code point up to U+00FF. */
static void decode_unicode(const char *at, const char *end, hri_text *text) {
  uint32_t code;
  while (at < end) {
    int count = *at == '\\' && end - at > 1 ? at[1] == 'u' ? 4 : at[1] == 'U' ? 8 : 0 : 0;
    if (count && digits(at + 2, end, count, 16, &code) && code < 0x110000) {
      add_code(text, code);
      at += 2 + count;
    } else {
      add_code(text, (unsigned char)*at++);
    }
  }
}

/* repr() of a byte string in Python 2, without its quotes. */
static void decode_repr(const char *at, const char *end, hri_text *text) {
  static const char from[] = "\\'\"nrtabfv", made[] = "\\'\"\n\r\t\a\b\f\v";
  uint32_t code;
  while (at < end) {
    const char *known = *at == '\\' && end - at > 1 ? memchr(from, at[1], sizeof from - 1) : NULL;
    char byte = *at++;
    if (known) {
      byte = made[known - from];
      at++;
    } else if (byte == '\\' && at < end && *at == 'x' && digits(at + 1, end, 2, 16, &code)) {
      byte = (char)code;
      at += 3;
    } else if (byte == '\\' && digits(at, end, 3, 8, &code)) {
      byte = (char)code;
      at += 3;
    }
    hri_text_add_bytes(text, &byte, 1);
  }
}

static hr_status read_string(hri_snapshot_decoder *d, int opcode, const char *line, uint64_t count,
                             hri_decoded *value) {
  hri_text text = {0};
  hr_status status;
  if (count && line[count - 1] == '\r') count--;
  if (opcode == 'S' && (count < 2 || (*line != '\'' && *line != '"') || line[count - 1] != *line))
    return hri_snapshot_decoder_fail(d, "a STRING without its quotes");
  if (opcode == 'S') decode_repr(line + 1, line + count - 1, &text);
  else decode_unicode(line, line + count, &text);
  status = text.failed ? hri_snapshot_decoder_fail_memory(d)
                       : hri_value_of_string(d, hri_text_get(&text), text.length, value);
  hri_text_deinit(&text);
  return status;
}

hr_status hri_read_pickle_text(hri_snapshot_decoder *d, int opcode, const char *line, uint64_t count,
                               hri_decoded *value) {
  switch (opcode) {
  case 'I':
  case 'L': return read_integer(d, opcode, line, count, value);
  case 'F': return read_real(d, line, count, value);
  case 'S':
  case 'V': return read_string(d, opcode, line, count, value);
  default: return read_slot(d, line, count, value);
  }
}
