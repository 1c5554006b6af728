#include "tokenizer/unicode.h"

#include "tokenizer/unicode_tables.h"

bool hri_unicode_in_ranges(const hri_unicode_range *ranges, uint32_t count, uint32_t point) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (ranges[middle].last < point) low = middle + 1;
    else high = middle;
  }
  return low < count && ranges[low].first <= point;
}

bool hri_unicode_is_accent(uint32_t point) {
  return point >= 0x300 && hri_unicode_in_ranges(hri_unicode_accents, hri_unicode_accents_count, point);
}

bool hri_unicode_is_nonspacing(uint32_t point) {
  return point >= 0x300 && hri_unicode_in_ranges(hri_unicode_nonspacing, hri_unicode_nonspacing_count, point);
}

bool hri_unicode_is_extending(uint32_t point) {
  return point >= 0x300 && hri_unicode_in_ranges(hri_unicode_extending, hri_unicode_extending_count, point);
}

/* Alphabetic, marks, decimal digits, connectors and joiners; of the symbols only the circled and squared letters are
 * Alphabetic (Unicode 16, DerivedCoreProperties). Held against the reference when the tables are made. */
bool hri_unicode_is_word(uint32_t point) {
  const uint32_t set = HRI_SET_L | HRI_SET_M | 1u << HRI_CATEGORY_ND | 1u << HRI_CATEGORY_NL | 1u << HRI_CATEGORY_PC;
  if (hri_unicode_set(point) & set) return true;
  if (point == 0x200C || point == 0x200D || (point >= 0x24B6 && point <= 0x24E9)) return true;
  return (point >= 0x1F130 && point <= 0x1F149) || (point >= 0x1F150 && point <= 0x1F169) ||
         (point >= 0x1F170 && point <= 0x1F189);
}

/* Rust's tables are those of Unicode 17 here: thirteen numbers more than the categories have. */
bool hri_unicode_is_numeric(uint32_t point) {
  if (hri_unicode_set(point) & HRI_SET_N) return true;
  return (point >= 0x11DE0 && point <= 0x11DE9) || (point >= 0x16FF4 && point <= 0x16FF6);
}

bool hri_unicode_is_punctuation(uint32_t point) {
  if (point < 0x80)
    return (point >= '!' && point <= '/') || (point >= ':' && point <= '@') || (point >= '[' && point <= '`') ||
           (point >= '{' && point <= '~');
  return hri_unicode_in_ranges(hri_unicode_punctuation, hri_unicode_punctuation_count, point);
}
