#include "tokenizer/unicode.h"

#include <string.h>

#include "tokenizer/unicode_tables.h"

static bool in_ranges(const hri_unicode_range *ranges, uint32_t count, uint32_t point) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (ranges[middle].last < point) low = middle + 1;
    else high = middle;
  }
  return low < count && ranges[low].first <= point;
}

bool hri_unicode_is_accent(uint32_t point) {
  return point >= 0x300 && in_ranges(hri_unicode_accents, hri_unicode_accents_count, point);
}

/* Alphabetic, marks, decimal digits, connectors and joiners; of the symbols only the circled and squared letters are
 * Alphabetic (Unicode 16, DerivedCoreProperties). Held against the reference when the tables are made. */
bool hri_unicode_is_word(uint32_t point) {
  const uint32_t set = HRI_SET_L | HRI_SET_M | 1u << HRI_CATEGORY_ND | 1u << HRI_CATEGORY_NL | 1u << HRI_CATEGORY_PC;
  if (hri_unicode_set(point) & set) return true;
  if (point == 0x200C || point == 0x200D || (point >= 0x24B6 && point <= 0x24E9)) return true;
  return (point >= 0x1F130 && point <= 0x1F149) || (point >= 0x1F150 && point <= 0x1F169) || (point >= 0x1F170 && point <= 0x1F189);
}

/* Rust's tables are those of Unicode 17 here: thirteen numbers more than the categories have. */
bool hri_unicode_is_numeric(uint32_t point) {
  if (hri_unicode_set(point) & HRI_SET_N) return true;
  return (point >= 0x11DE0 && point <= 0x11DE9) || (point >= 0x16FF4 && point <= 0x16FF6);
}

bool hri_unicode_is_punctuation(uint32_t point) {
  if (point < 0x80)
    return (point >= '!' && point <= '/') || (point >= ':' && point <= '@') || (point >= '[' && point <= '`') || (point >= '{' && point <= '~');
  return in_ranges(hri_unicode_punctuation, hri_unicode_punctuation_count, point);
}

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
