/* Normalizers of tokenizer.json: a list of steps from text to text that keeps track of where each byte came from.
 *
 * Read are Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, Nmt, Precompiled and
 * BertNormalizer; others are refused by name. Decompositions, combining classes
 * and case mappings are tables recorded from the reference (see unicode.h). A normalizer is immutable: any number of
 * threads may apply it, each with its own hri_normal. */
#ifndef HRI_TOKENIZER_NORMALIZE_H
#define HRI_TOKENIZER_NORMALIZE_H

#include "base/json.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/split.h"

typedef struct hri_normalizer hri_normalizer;

typedef enum hri_normalize_kind {
  HRI_NORMALIZE_NFC = 0,
  HRI_NORMALIZE_NFD,
  HRI_NORMALIZE_NFKC,
  HRI_NORMALIZE_NFKD,
  HRI_NORMALIZE_LOWERCASE,
  HRI_NORMALIZE_STRIP_ACCENTS,
  HRI_NORMALIZE_NMT,
  HRI_NORMALIZE_BERT_CLEAN, /* the parts of BertNormalizer */
  HRI_NORMALIZE_BERT_CHINESE,
  HRI_NORMALIZE_BERT_ACCENTS /* behind NFD */
} hri_normalize_kind;

/* An empty list of steps; text passes unchanged. */
hr_status hri_normalizer_create(hri_normalizer **normalizer, hr_error *error);
void hri_normalizer_destroy(hri_normalizer *normalizer); /* NULL is fine */

/* Steps, in order. All arguments are copied. */
hr_status hri_normalizer_add(hri_normalizer *normalizer, hri_normalize_kind kind, hr_error *error);
hr_status hri_normalizer_add_strip(hri_normalizer *normalizer, bool left, bool right, hr_error *error);
/* `literal` chooses between a plain text and a regex; matches become `content`. */
hr_status hri_normalizer_add_replace(hri_normalizer *normalizer, const char *pattern, size_t pattern_bytes,
                                     bool literal, const char *content, size_t content_bytes, hr_error *error);
hr_status hri_normalizer_add_prepend(hri_normalizer *normalizer, const char *prefix, size_t bytes, hr_error *error);
/* A precompiled character map, as tokenizer.json has it (decoded). INPUT when it is malformed. */
hr_status hri_normalizer_add_charsmap(hri_normalizer *normalizer, const void *map, uint32_t bytes, hr_error *error);
/* All that a SentencePiece model does to text before its model, in one step: the rules of its charsmap, removal of extra
 * whitespace, the dummy prefix, blanks as U+2581; user-defined pieces are kept as they are. What it needs is copied.
 * Pieces may be left out (piece_count 0) where none is user-defined. INPUT for a malformed charsmap. */
hr_status hri_normalizer_add_sentencepiece(hri_normalizer *normalizer, const hri_sentencepiece *model, hr_error *error);

/* Appends the steps of a "normalizer" value of tokenizer.json (null adds nothing). INPUT names file, field and
 * value. */
hr_status hri_normalizer_read(hri_normalizer *normalizer, const hri_json *json, hr_error *error);
/* No steps: callers may skip the whole machinery. */
bool hri_normalizer_is_empty(const hri_normalizer *normalizer);

/* Text under normalization. Start from {0}; kept memory is used again; release with hri_normal_deinit.
 * `text` is the input itself while nothing was changed, else memory of this struct. */
typedef struct hri_normal {
  const char *text;
  uint64_t bytes;
  uint64_t most;   /* bytes that the text may grow to */
  bool changed;    /* text is not the input */
  bool with_spans; /* asked for */
  const hri_split_piece
      *spans; /* per byte of text, bytes [begin, end) of the input that its character stands for; NULL =
                           * nothing was changed: byte i stands for input byte i. Inserted characters have the span
                           * of a neighbour, as in the reference. */
  struct hri_normal_buffer {
    char *bytes;
    hri_split_piece *spans;
    size_t count, capacity, span_capacity;
  } buffers[2];
  struct hri_normal_char *chars, *sorted; /* the characters of the part at hand, for the forms */
  size_t char_count, char_capacity, sorted_capacity;
  hri_split split; /* for Replace */
} hri_normal;

/* Takes `bytes` bytes (at most 4 GiB - 1) as the input. Invalid UTF-8 becomes U+FFFD, one for each maximal part. The
 * input must outlive the use of normal->text. with_spans false leaves spans NULL throughout. */
hr_status hri_normal_begin(hri_normal *normal, const char *text, uint64_t bytes, bool with_spans, hr_error *error);
/* Runs the steps on normal->text in place. An empty text stays empty (Prepend too). INPUT when the text grows beyond 256
 * times the input and 1 MiB, or 4 GiB: steps that each double it make gigabytes of a line. */
hr_status hri_normalizer_apply(const hri_normalizer *normalizer, hri_normal *normal, hr_error *error);
void hri_normal_deinit(hri_normal *normal);

#endif
