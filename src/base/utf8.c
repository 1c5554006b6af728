/* One decoder; everything else about UTF-8 asks it. */
#include "base/utf8.h"

#include <string.h>

/* What the second byte of a sequence may be, by the first (Unicode 16, table 3-7). */
static bool second_fits(uint8_t first, uint8_t second) {
  switch (first) {
  case 0xE0: return second >= 0xA0 && second <= 0xBF;
  case 0xED: return second >= 0x80 && second <= 0x9F;
  case 0xF0: return second >= 0x90 && second <= 0xBF;
  case 0xF4: return second >= 0x80 && second <= 0x8F;
  default: return (second & 0xC0) == 0x80;
  }
}

size_t hri_utf8_decode(const char *bytes, size_t count, uint32_t *point, bool *valid) {
  const uint8_t *p = (const uint8_t *)bytes;
  size_t wanted, have;
  uint32_t value;
  *valid = true;
  if (p[0] < 0x80) return *point = p[0], 1;
  wanted = p[0] < 0xC2 || p[0] > 0xF4 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
  value = wanted == 0 ? 0 : p[0] & (0x7Fu >> wanted);
  for (have = 1; have < wanted && have < count; have++) {
    if (have == 1 ? !second_fits(p[0], p[1]) : (p[have] & 0xC0) != 0x80) break;
    value = value << 6 | (p[have] & 0x3Fu);
  }
  *valid = wanted != 0 && have == wanted;
  *point = *valid ? value : HRI_REPLACEMENT;
  return have;
}

size_t hri_utf8_encode(uint32_t point, char out[4]) {
  if (point < 0x80) return out[0] = (char)point, 1;
  if (point < 0x800) {
    out[0] = (char)(0xC0 | point >> 6);
    out[1] = (char)(0x80 | (point & 0x3F));
    return 2;
  }
  if (point < 0x10000) {
    out[0] = (char)(0xE0 | point >> 12);
    out[1] = (char)(0x80 | (point >> 6 & 0x3F));
    out[2] = (char)(0x80 | (point & 0x3F));
    return 3;
  }
  out[0] = (char)(0xF0 | point >> 18);
  out[1] = (char)(0x80 | (point >> 12 & 0x3F));
  out[2] = (char)(0x80 | (point >> 6 & 0x3F));
  out[3] = (char)(0x80 | (point & 0x3F));
  return 4;
}

size_t hri_utf8_valid(const char *bytes, size_t count) {
  size_t at = 0;
  while (at < count) {
    uint32_t point;
    bool valid;
    size_t step;
    uint64_t eight;
    while (count - at >= 8 && (memcpy(&eight, bytes + at, 8), (eight & 0x8080808080808080u) == 0)) at += 8;
    if (at == count) break;
    step = hri_utf8_decode(bytes + at, count - at, &point, &valid);
    if (!valid) break;
    at += step;
  }
  return at;
}

size_t hri_utf8_sequence(const char *bytes, size_t count) {
  uint32_t point;
  bool valid;
  size_t length = hri_utf8_decode(bytes, count, &point, &valid);
  return valid ? length : 0;
}

bool hri_utf8_whole(const char *text) {
  size_t count = strlen(text);
  return hri_utf8_valid(text, count) == count;
}
