#include "chat/numbers.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "chat/unicode.h"

/* Without the blanks around. */
static void strip(const char **chars, size_t *bytes) {
  size_t length;
  while (*bytes > 0 && hri_is_space(hri_decode(*chars, &length))) {
    *chars += length;
    *bytes -= length;
  }
  while (*bytes > 0 && hri_is_space(hri_decode_back(*chars + *bytes, &length))) *bytes -= length;
}

static int digit_value(char c) {
  int lower = tolower((unsigned char)c);
  if (lower >= '0' && lower <= '9') return lower - '0';
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

/* "0x" and its like, where the base allows it. Sets the base when it is 0. */
static size_t prefix(const char *chars, size_t bytes, int64_t *base) {
  int64_t named = 0;
  if (bytes > 1 && chars[0] == '0') {
    char c = (char)tolower((unsigned char)chars[1]);
    named = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
  }
  if (named && (*base == 0 || *base == named)) {
    *base = named;
    return bytes > 2 && chars[2] == '_' ? 3 : 2;
  }
  if (*base == 0) *base = 10;
  return 0;
}

hri_parsed hri_parse_integer(const char *chars, size_t bytes, int64_t base, int64_t *out) {
  bool negative = false, digit = false, fits = true;
  int64_t value = 0;
  size_t i;
  strip(&chars, &bytes);
  if (base != 0 && (base < 2 || base > 36)) return HRI_NO_NUMBER;
  if (bytes > 0 && (*chars == '-' || *chars == '+')) {
    negative = *chars == '-';
    chars++;
    bytes--;
  }
  for (i = prefix(chars, bytes, &base); i < bytes; i++) {
    int next;
    if (chars[i] == '_' && digit) {
      digit = false;
      continue;
    }
    next = digit_value(chars[i]);
    if (next >= base) return HRI_NO_NUMBER;
    digit = true;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_sub_overflow(value, (int64_t)next, &value))
      fits = false;
  }
  if (!digit) return HRI_NO_NUMBER;
  if (!fits || (!negative && value == INT64_MIN)) return HRI_TOO_LARGE;
  *out = negative ? value : -value; /* summed up below zero, where there is one value more */
  return HRI_PARSED;
}

static bool is_word(const char *chars, size_t bytes, const char *word) {
  size_t i;
  if (strlen(word) != bytes) return false;
  for (i = 0; i < bytes; i++)
    if (tolower((unsigned char)chars[i]) != word[i]) return false;
  return true;
}

/* A decimal without the sign, as strtod reads it in the C locale; '_' only between digits. */
static bool plain_decimal(const char *chars, size_t bytes, char *copy) {
  size_t i, length = 0, digits = 0;
  bool point = false, exponent = false;
  for (i = 0; i < bytes; i++) {
    char c = chars[i];
    if (c == '_') {
      if (i == 0 || !isdigit((unsigned char)chars[i - 1]) || i + 1 == bytes || !isdigit((unsigned char)chars[i + 1]))
        return false;
      continue;
    }
    if (isdigit((unsigned char)c)) digits++;
    else if (c == '.' && !point && !exponent) point = true;
    else if ((c == 'e' || c == 'E') && !exponent && digits > 0) {
      exponent = true;
      digits = 0;
      if (i + 1 < bytes && (chars[i + 1] == '+' || chars[i + 1] == '-')) copy[length++] = c, c = chars[++i];
    } else return false;
    copy[length++] = c;
  }
  copy[length] = 0;
  return digits > 0;
}

bool hri_parse_float(const char *chars, size_t bytes, double *out) {
  bool negative = false, fine;
  char small[64], *copy = small;
  strip(&chars, &bytes);
  if (bytes > 0 && (*chars == '-' || *chars == '+')) {
    negative = *chars == '-';
    chars++;
    bytes--;
  }
  if (is_word(chars, bytes, "inf") || is_word(chars, bytes, "infinity")) {
    *out = negative ? -INFINITY : INFINITY;
    return true;
  }
  if (is_word(chars, bytes, "nan")) {
    *out = NAN;
    return true;
  }
  if (bytes + 1 > sizeof small && !(copy = hri_alloc(bytes + 1))) return false;
  fine = plain_decimal(chars, bytes, copy);
  if (fine) *out = negative ? -hri_strtod(copy, NULL) : hri_strtod(copy, NULL);
  if (copy != small) hri_free(copy);
  return fine;
}
