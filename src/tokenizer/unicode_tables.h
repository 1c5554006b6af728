/* The recorded tables behind unicode.h and normalize.c (unicode_tables.c is made by tests/parity/record_splits.py). All
 * lists are sorted by code point. */
#ifndef HRI_TOKENIZER_UNICODE_TABLES_H
#define HRI_TOKENIZER_UNICODE_TABLES_H

#include "tokenizer/unicode.h"

typedef struct hri_unicode_range {
  uint32_t first, last;
} hri_unicode_range;
/* Ranges by their points, none of which overlap. */
bool hri_unicode_in_ranges(const hri_unicode_range *ranges, uint32_t count, uint32_t point);
typedef struct hri_unicode_class_range {
  uint32_t first, last;
  uint8_t combining;
} hri_unicode_class_range;
/* `count` code points from hri_unicode_decomposed[at]: the full decomposition, in canonical order. */
typedef struct hri_unicode_decomposition {
  uint32_t point;
  uint16_t at;
  uint8_t count;
} hri_unicode_decomposition;
typedef struct hri_unicode_pair {
  uint32_t left, right, whole;
} hri_unicode_pair; /* sorted by (left, right) */
typedef struct hri_unicode_mapping {
  uint32_t from, to;
} hri_unicode_mapping;

/* Punctuation above U+007F as the Punctuation splitter takes it; what StripAccents removes. */
extern const hri_unicode_range hri_unicode_punctuation[], hri_unicode_accents[];
extern const uint32_t hri_unicode_punctuation_count, hri_unicode_accents_count;
/* What does not begin a grapheme cluster behind a letter. */
extern const hri_unicode_range hri_unicode_extending[];
extern const uint32_t hri_unicode_extending_count;
/* What BertNormalizer takes for a mark that needs no room (Mn of Unicode 8). */
extern const hri_unicode_range hri_unicode_nonspacing[];
extern const uint32_t hri_unicode_nonspacing_count;
/* Combining classes other than 0. */
extern const hri_unicode_class_range hri_unicode_combining[];
extern const uint32_t hri_unicode_combining_count;
/* Hangul syllables are computed instead. `compatible` lists what differs from `canonical` only. */
extern const hri_unicode_decomposition hri_unicode_canonical[], hri_unicode_compatible[];
extern const uint32_t hri_unicode_canonical_count, hri_unicode_compatible_count;
extern const uint32_t hri_unicode_decomposed[];
extern const hri_unicode_pair hri_unicode_pairs[];
extern const uint32_t hri_unicode_pairs_count;
/* Lower case of one code point; U+0130, which becomes two, is not in the list. */
extern const hri_unicode_mapping hri_unicode_lower[];
extern const uint32_t hri_unicode_lower_count;

#endif
