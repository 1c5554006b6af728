/* BertNormalizer and Nmt (tokenizers, normalizers/bert.rs and unicode.rs), character by character. What the first takes
 * for control characters and for marks is older than the categories of unicode.h (Unicode 8), so that both were recorded
 * from the reference. */
#include "tokenizer/normalize_internal.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_tables.h"

static int put(char out[8], char byte) { return out[0] = byte, 1; }

void hri_map_bert_clean(uint32_t point, char out[8], int *bytes) {
  static const hri_unicode_range control[] = {{0x0, 0x8},          {0xB, 0xC},         {0xE, 0x1F},
                                              {0x7F, 0x9F},        {0xAD, 0xAD},       {0x600, 0x605},
                                              {0x61C, 0x61C},      {0x6DD, 0x6DD},     {0x70F, 0x70F},
                                              {0x180E, 0x180E},    {0x200B, 0x200F},   {0x202A, 0x202E},
                                              {0x2060, 0x2064},    {0x2066, 0x206F},   {0xE000, 0xF8FF},
                                              {0xFEFF, 0xFEFF},    {0xFFF9, 0xFFFB},   {0xFFFD, 0xFFFD},
                                              {0x110BD, 0x110BD},  {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
                                              {0xE0001, 0xE0001},  {0xE0020, 0xE007F}, {0xF0000, 0xFFFFD},
                                              {0x100000, 0x10FFFD}};
  if (hri_unicode_in_ranges(control, sizeof control / sizeof *control, point)) *bytes = 0;
  else if (point != ' ' && hri_unicode_is_space(point)) *bytes = put(out, ' ');
}

void hri_map_bert_chinese(uint32_t point, char out[8], int *bytes) {
  static const hri_unicode_range ideographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                                 {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                                 {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  if (!hri_unicode_in_ranges(ideographs, sizeof ideographs / sizeof *ideographs, point)) return;
  *bytes = put(out, ' ');
  *bytes += (int)hri_utf8_encode(point, out + 1);
  out[(*bytes)++] = ' ';
}

void hri_map_bert_accent(uint32_t point, char out[8], int *bytes) {
  (void)out;
  if (hri_unicode_is_nonspacing(point)) *bytes = 0;
}

void hri_map_nmt(uint32_t point, char out[8], int *bytes) {
  if ((point >= 0x1 && point <= 0x8) || point == 0xB || (point >= 0xE && point <= 0x1F) || point == 0x7F ||
      point == 0x8F || point == 0x9F)
    *bytes = 0;
  else if (point == 0x9 || point == 0xA || point == 0xC || point == 0xD || point == 0x1680 ||
           (point >= 0x200B && point <= 0x200F) || point == 0x2028 || point == 0x2029 || point == 0x2581 ||
           point == 0xFEFF || point == 0xFFFD)
    *bytes = put(out, ' ');
}
