/* Character classes, from tables of our own.
 *
 * The reference implementations split text by the Unicode version that their regex engine was built with, so a
 * different version gives different tokens for newer characters. The tables are therefore recorded from the reference
 * package (tests/parity/record_splits.py, `tokenizers` 0.23.3: Unicode 16.0) instead of being taken from whatever
 * library the machine has. They are constant data: no set-up, any number of threads. */
#ifndef HRI_TOKENIZER_UNICODE_H
#define HRI_TOKENIZER_UNICODE_H

#include "base/utf8.h"

/* General categories in the order of the table; CONTROL_SPACE is the part of Cc that is White_Space (U+0009..D,
 * U+0085). */
typedef enum hri_general_category {
  HRI_CATEGORY_LU = 0,
  HRI_CATEGORY_LL,
  HRI_CATEGORY_LT,
  HRI_CATEGORY_LM,
  HRI_CATEGORY_LO,
  HRI_CATEGORY_MN,
  HRI_CATEGORY_MC,
  HRI_CATEGORY_ME,
  HRI_CATEGORY_ND,
  HRI_CATEGORY_NL,
  HRI_CATEGORY_NO,
  HRI_CATEGORY_PC,
  HRI_CATEGORY_PD,
  HRI_CATEGORY_PS,
  HRI_CATEGORY_PE,
  HRI_CATEGORY_PI,
  HRI_CATEGORY_PF,
  HRI_CATEGORY_PO,
  HRI_CATEGORY_SM,
  HRI_CATEGORY_SC,
  HRI_CATEGORY_SK,
  HRI_CATEGORY_SO,
  HRI_CATEGORY_ZS,
  HRI_CATEGORY_ZL,
  HRI_CATEGORY_ZP,
  HRI_CATEGORY_CC,
  HRI_CATEGORY_CF,
  HRI_CATEGORY_CS,
  HRI_CATEGORY_CO,
  HRI_CATEGORY_CN,
  HRI_CATEGORY_CONTROL_SPACE,
  HRI_CATEGORY_COUNT
} hri_general_category;

/* Sets of categories: bit 1 << category. */
#define HRI_SET_LU (1u << HRI_CATEGORY_LU)
#define HRI_SET_LL (1u << HRI_CATEGORY_LL)
#define HRI_SET_LT (1u << HRI_CATEGORY_LT)
#define HRI_SET_LM (1u << HRI_CATEGORY_LM)
#define HRI_SET_LO (1u << HRI_CATEGORY_LO)
#define HRI_SET_L (HRI_SET_LU | HRI_SET_LL | HRI_SET_LT | HRI_SET_LM | HRI_SET_LO)
#define HRI_SET_M (1u << HRI_CATEGORY_MN | 1u << HRI_CATEGORY_MC | 1u << HRI_CATEGORY_ME)
#define HRI_SET_N (1u << HRI_CATEGORY_ND | 1u << HRI_CATEGORY_NL | 1u << HRI_CATEGORY_NO)
#define HRI_SET_P                                                                                                      \
  (1u << HRI_CATEGORY_PC | 1u << HRI_CATEGORY_PD | 1u << HRI_CATEGORY_PS | 1u << HRI_CATEGORY_PE |                     \
   1u << HRI_CATEGORY_PI | 1u << HRI_CATEGORY_PF | 1u << HRI_CATEGORY_PO)
#define HRI_SET_S (1u << HRI_CATEGORY_SM | 1u << HRI_CATEGORY_SC | 1u << HRI_CATEGORY_SK | 1u << HRI_CATEGORY_SO)
#define HRI_SET_Z (1u << HRI_CATEGORY_ZS | 1u << HRI_CATEGORY_ZL | 1u << HRI_CATEGORY_ZP)
#define HRI_SET_SPACE (HRI_SET_Z | 1u << HRI_CATEGORY_CONTROL_SPACE) /* White_Space, what \s means */

enum { HRI_UNICODE_BLOCK_BITS = 8, HRI_UNICODE_END = 0x110000 };
/* Beside the category in a byte of the table: the character may change under a form, by itself or through what stands
 * before it. NFC and NFD: composed and decomposed; COMPAT: NFKC and NFKD change it in addition. */
enum { HRI_UNICODE_CATEGORY = 31, HRI_UNICODE_NFC = 32, HRI_UNICODE_NFD = 64, HRI_UNICODE_COMPAT = 128 };
/* The table in two stages: the block of a code point, and the characters of each block (unicode_tables.c). */
extern const uint8_t hri_unicode_blocks[HRI_UNICODE_END >> HRI_UNICODE_BLOCK_BITS];
extern const uint8_t hri_unicode_categories[][1 << HRI_UNICODE_BLOCK_BITS];

/* Category and form bits; `point` below HRI_UNICODE_END. */
static inline uint8_t hri_unicode_entry(uint32_t point) {
  return hri_unicode_categories[hri_unicode_blocks[point >> HRI_UNICODE_BLOCK_BITS]]
                               [point & ((1u << HRI_UNICODE_BLOCK_BITS) - 1)];
}
/* Surrogates are Cs. */
static inline hri_general_category hri_unicode_category(uint32_t point) {
  return (hri_general_category)(hri_unicode_entry(point) & HRI_UNICODE_CATEGORY);
}
/* The set that holds just the category of `point`: (hri_unicode_set(c) & HRI_SET_L) != 0 asks for a letter. */
static inline uint32_t hri_unicode_set(uint32_t point) { return 1u << hri_unicode_category(point); }
static inline bool hri_unicode_is_space(uint32_t point) { return (hri_unicode_set(point) & HRI_SET_SPACE) != 0; }

/* What components of the reference use beside the categories, each by the tables that it was built with:
 * \w of Rust's regex, Unicode 16 (single_word of added tokens, the Whitespace splitter), char::is_numeric (Digits), and
 * the punctuation of Punctuation and BertPreTokenizer (ASCII punctuation with symbols, else categories of Unicode
 * 8). */
bool hri_unicode_is_word(uint32_t point);
bool hri_unicode_is_numeric(uint32_t point);
bool hri_unicode_is_punctuation(uint32_t point);
bool hri_unicode_is_accent(uint32_t point);     /* what StripAccents removes */
bool hri_unicode_is_nonspacing(uint32_t point); /* what BertNormalizer removes with the accents */
bool hri_unicode_is_extending(uint32_t point);  /* belongs to the grapheme cluster of a letter before it */

/* The code point of valid UTF-8 whose first byte is above 0x7F; *at moves behind it. No checks. */
static inline uint32_t hri_utf8_next(const uint8_t **at) {
  const uint8_t *p = *at;
  uint32_t first = p[0];
  if (first < 0xE0) {
    *at = p + 2;
    return (first & 0x1F) << 6 | (p[1] & 0x3F);
  }
  if (first < 0xF0) {
    *at = p + 3;
    return (first & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  }
  *at = p + 4;
  return (first & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

#endif
