/* Categories come from utf8proc; the tables hold what Python adds: digits that are no decimals, characters that count
 * as lower or upper case by property rather than by category, and characters whose upper or title case is a text of its
 * own (Unicode 14: DerivedNumericType, PropList, SpecialCasing). */
#include "chat/unicode.h"

#include <string.h>
#include <utf8proc.h>

typedef struct range {
  uint32_t first, last;
} range;

static const range digits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                               {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                               {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                               {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                               {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
static const range lowers[] = {{0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
                               {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
                               {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
                               {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
                               {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
                               {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
static const range uppers[] = {{0x2160, 0x216F},
                               {0x24B6, 0x24CF},
                               {0x1F130, 0x1F149},
                               {0x1F150, 0x1F169},
                               {0x1F170, 0x1F189}};
static const struct {
  uint32_t code;
  const char *upper, *title;
} specials[] = {
    {0xDF, "\x53\x53", "\x53\x73"},
    {0x149, "\xCA\xBC\x4E", "\xCA\xBC\x4E"},
    {0x1F0, "\x4A\xCC\x8C", "\x4A\xCC\x8C"},
    {0x390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x3B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    {0x1E96, "\x48\xCC\xB1", "\x48\xCC\xB1"},
    {0x1E97, "\x54\xCC\x88", "\x54\xCC\x88"},
    {0x1E98, "\x57\xCC\x8A", "\x57\xCC\x8A"},
    {0x1E99, "\x59\xCC\x8A", "\x59\xCC\x8A"},
    {0x1E9A, "\x41\xCA\xBE", "\x41\xCA\xBE"},
    {0x1F50, "\xCE\xA5\xCC\x93", "\xCE\xA5\xCC\x93"},
    {0x1F52, "\xCE\xA5\xCC\x93\xCC\x80", "\xCE\xA5\xCC\x93\xCC\x80"},
    {0x1F54, "\xCE\xA5\xCC\x93\xCC\x81", "\xCE\xA5\xCC\x93\xCC\x81"},
    {0x1F56, "\xCE\xA5\xCC\x93\xCD\x82", "\xCE\xA5\xCC\x93\xCD\x82"},
    {0x1F80, "\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88"},
    {0x1F81, "\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89"},
    {0x1F82, "\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A"},
    {0x1F83, "\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B"},
    {0x1F84, "\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C"},
    {0x1F85, "\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D"},
    {0x1F86, "\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E"},
    {0x1F87, "\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F"},
    {0x1F88, "\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88"},
    {0x1F89, "\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89"},
    {0x1F8A, "\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A"},
    {0x1F8B, "\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B"},
    {0x1F8C, "\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C"},
    {0x1F8D, "\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D"},
    {0x1F8E, "\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E"},
    {0x1F8F, "\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F"},
    {0x1F90, "\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98"},
    {0x1F91, "\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99"},
    {0x1F92, "\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A"},
    {0x1F93, "\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B"},
    {0x1F94, "\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C"},
    {0x1F95, "\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D"},
    {0x1F96, "\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E"},
    {0x1F97, "\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F"},
    {0x1F98, "\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98"},
    {0x1F99, "\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99"},
    {0x1F9A, "\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A"},
    {0x1F9B, "\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B"},
    {0x1F9C, "\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C"},
    {0x1F9D, "\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D"},
    {0x1F9E, "\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E"},
    {0x1F9F, "\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F"},
    {0x1FA0, "\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8"},
    {0x1FA1, "\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9"},
    {0x1FA2, "\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA"},
    {0x1FA3, "\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB"},
    {0x1FA4, "\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC"},
    {0x1FA5, "\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD"},
    {0x1FA6, "\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE"},
    {0x1FA7, "\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF"},
    {0x1FA8, "\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8"},
    {0x1FA9, "\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9"},
    {0x1FAA, "\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA"},
    {0x1FAB, "\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB"},
    {0x1FAC, "\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC"},
    {0x1FAD, "\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD"},
    {0x1FAE, "\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE"},
    {0x1FAF, "\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF"},
    {0x1FB2, "\xE1\xBE\xBA\xCE\x99", "\xE1\xBE\xBA\xCD\x85"},
    {0x1FB3, "\xCE\x91\xCE\x99", "\xE1\xBE\xBC"},
    {0x1FB4, "\xCE\x86\xCE\x99", "\xCE\x86\xCD\x85"},
    {0x1FB6, "\xCE\x91\xCD\x82", "\xCE\x91\xCD\x82"},
    {0x1FB7, "\xCE\x91\xCD\x82\xCE\x99", "\xCE\x91\xCD\x82\xCD\x85"},
    {0x1FBC, "\xCE\x91\xCE\x99", "\xE1\xBE\xBC"},
    {0x1FC2, "\xE1\xBF\x8A\xCE\x99", "\xE1\xBF\x8A\xCD\x85"},
    {0x1FC3, "\xCE\x97\xCE\x99", "\xE1\xBF\x8C"},
    {0x1FC4, "\xCE\x89\xCE\x99", "\xCE\x89\xCD\x85"},
    {0x1FC6, "\xCE\x97\xCD\x82", "\xCE\x97\xCD\x82"},
    {0x1FC7, "\xCE\x97\xCD\x82\xCE\x99", "\xCE\x97\xCD\x82\xCD\x85"},
    {0x1FCC, "\xCE\x97\xCE\x99", "\xE1\xBF\x8C"},
    {0x1FD2, "\xCE\x99\xCC\x88\xCC\x80", "\xCE\x99\xCC\x88\xCC\x80"},
    {0x1FD3, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x1FD6, "\xCE\x99\xCD\x82", "\xCE\x99\xCD\x82"},
    {0x1FD7, "\xCE\x99\xCC\x88\xCD\x82", "\xCE\x99\xCC\x88\xCD\x82"},
    {0x1FE2, "\xCE\xA5\xCC\x88\xCC\x80", "\xCE\xA5\xCC\x88\xCC\x80"},
    {0x1FE3, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x1FE4, "\xCE\xA1\xCC\x93", "\xCE\xA1\xCC\x93"},
    {0x1FE6, "\xCE\xA5\xCD\x82", "\xCE\xA5\xCD\x82"},
    {0x1FE7, "\xCE\xA5\xCC\x88\xCD\x82", "\xCE\xA5\xCC\x88\xCD\x82"},
    {0x1FF2, "\xE1\xBF\xBA\xCE\x99", "\xE1\xBF\xBA\xCD\x85"},
    {0x1FF3, "\xCE\xA9\xCE\x99", "\xE1\xBF\xBC"},
    {0x1FF4, "\xCE\x8F\xCE\x99", "\xCE\x8F\xCD\x85"},
    {0x1FF6, "\xCE\xA9\xCD\x82", "\xCE\xA9\xCD\x82"},
    {0x1FF7, "\xCE\xA9\xCD\x82\xCE\x99", "\xCE\xA9\xCD\x82\xCD\x85"},
    {0x1FFC, "\xCE\xA9\xCE\x99", "\xE1\xBF\xBC"},
    {0xFB00, "\x46\x46", "\x46\x66"},
    {0xFB01, "\x46\x49", "\x46\x69"},
    {0xFB02, "\x46\x4C", "\x46\x6C"},
    {0xFB03, "\x46\x46\x49", "\x46\x66\x69"},
    {0xFB04, "\x46\x46\x4C", "\x46\x66\x6C"},
    {0xFB05, "\x53\x54", "\x53\x74"},
    {0xFB06, "\x53\x54", "\x53\x74"},
    {0xFB13, "\xD5\x84\xD5\x86", "\xD5\x84\xD5\xB6"},
    {0xFB14, "\xD5\x84\xD4\xB5", "\xD5\x84\xD5\xA5"},
    {0xFB15, "\xD5\x84\xD4\xBB", "\xD5\x84\xD5\xAB"},
    {0xFB16, "\xD5\x8E\xD5\x86", "\xD5\x8E\xD5\xB6"},
    {0xFB17, "\xD5\x84\xD4\xBD", "\xD5\x84\xD5\xAD"},
};

enum { SIGMA = 0x3A3, FINAL_SIGMA = 0x3C2, SMALL_SIGMA = 0x3C3, DOTTED_I = 0x130 };

uint32_t hri_decode(const char *at, size_t *bytes) {
  const unsigned char *c = (const unsigned char *)at;
  if (c[0] < 0x80) {
    *bytes = 1;
    return c[0];
  }
  if (c[0] < 0xE0) {
    *bytes = 2;
    return (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu);
  }
  if (c[0] < 0xF0) {
    *bytes = 3;
    return (c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
  }
  *bytes = 4;
  return (c[0] & 0x07u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
}

uint32_t hri_decode_back(const char *at, size_t *bytes) {
  const char *begin = at - 1;
  while (((unsigned char)*begin & 0xC0) == 0x80) begin--;
  return hri_decode(begin, bytes);
}

size_t hri_encode(uint32_t code, char out[4]) {
  return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

uint64_t hri_count_codes(const char *chars, size_t bytes) {
  uint64_t count = 0;
  size_t i;
  for (i = 0; i < bytes; i++) count += ((unsigned char)chars[i] & 0xC0) != 0x80;
  return count;
}

size_t hri_code_offset(const char *chars, size_t bytes, uint64_t index) {
  size_t i;
  for (i = 0; i < bytes; i++)
    if (((unsigned char)chars[i] & 0xC0) != 0x80 && index-- == 0) return i;
  return bytes;
}

static bool within(const range *ranges, size_t count, uint32_t code) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (code > ranges[middle].last) low = middle + 1;
    else high = middle;
  }
  return low < count && code >= ranges[low].first;
}

static utf8proc_category_t category(uint32_t code) { return utf8proc_category((utf8proc_int32_t)code); }

bool hri_is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool hri_is_line_end(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool hri_is_alpha(uint32_t code) {
  utf8proc_category_t kind = category(code);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool hri_is_decimal(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }

bool hri_is_digit(uint32_t code) {
  return (code >= '0' && code <= '9') || hri_is_decimal(code) || within(digits, sizeof digits / sizeof *digits, code);
}

bool hri_is_alnum(uint32_t code) {
  utf8proc_category_t kind = category(code);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) ||
         (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

bool hri_is_lower(uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || within(lowers, sizeof lowers / sizeof *lowers, code);
}

bool hri_is_upper(uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU || within(uppers, sizeof uppers / sizeof *uppers, code);
}

bool hri_is_title(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_LT; }

/* What repr() shows as it is: no control, format, private, surrogate or unassigned character, no blank but U+0020. */
bool hri_is_printable(uint32_t code) {
  switch (category(code)) {
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP: return false;
  case UTF8PROC_CATEGORY_ZS: return code == ' ';
  default: return true;
  }
}

static void add_code(hri_text *text, uint32_t code) {
  char bytes[4];
  hri_text_add_bytes(text, bytes, hri_encode(code, bytes));
}

void hri_add_cased(hri_text *text, uint32_t code, hri_case to) {
  size_t i;
  if (to == HRI_LOWER) {
    if (code == DOTTED_I) hri_text_add_bytes(text, "i\xCC\x87", 3);
    else add_code(text, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
    return;
  }
  if (code >= 0x80)
    for (i = 0; i < sizeof specials / sizeof *specials; i++) {
      const char *cased = to == HRI_UPPER ? specials[i].upper : specials[i].title;
      if (specials[i].code != code) continue;
      hri_text_add_bytes(text, cased, strlen(cased));
      return;
    }
  add_code(text, (uint32_t)(to == HRI_UPPER ? utf8proc_toupper((utf8proc_int32_t)code)
                                            : utf8proc_totitle((utf8proc_int32_t)code)));
}

/* Characters that do not count when one looks for a cased neighbour (Case_Ignorable, Unicode 15, 3.13). */
static bool case_ignorable(uint32_t code) {
  utf8proc_category_t kind = category(code);
  if (kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
      kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK)
    return true;
  return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x387 || code == 0x55F ||
         code == 0x5F4 || code == 0x2018 || code == 0x2019 || code == 0x2024 || code == 0x2027 || code == 0xFE13 ||
         code == 0xFE52 || code == 0xFE55 || code == 0xFF07 || code == 0xFF0E || code == 0xFF1A;
}

static bool cased(uint32_t code) { return hri_is_lower(code) || hri_is_upper(code) || hri_is_title(code); }

/* A sigma is final behind a cased character with none behind it. */
static bool final_sigma(const char *chars, size_t begin, size_t end, size_t bytes) {
  size_t at = begin, length;
  bool before = false;
  while (at > 0) {
    uint32_t code = hri_decode_back(chars + at, &length);
    at -= length;
    if (case_ignorable(code)) continue;
    before = cased(code);
    break;
  }
  if (!before) return false;
  for (at = end; at < bytes; at += length) {
    uint32_t code = hri_decode(chars + at, &length);
    if (!case_ignorable(code)) return !cased(code);
  }
  return true;
}

void hri_add_lower(hri_text *text, const char *chars, size_t bytes, size_t from, size_t to) {
  size_t i, length;
  for (i = from; i < to; i += length) {
    uint32_t code = hri_decode(chars + i, &length);
    if (code == SIGMA) add_code(text, final_sigma(chars, i, i + length, bytes) ? FINAL_SIGMA : SMALL_SIGMA);
    else hri_add_cased(text, code, HRI_LOWER);
  }
}
