/* How steps of a normalizer read and write; see normalize.h. */
#ifndef HRI_TOKENIZER_NORMALIZE_INTERNAL_H
#define HRI_TOKENIZER_NORMALIZE_INTERNAL_H

#include "tokenizer/normalize.h"

/* A character on its way through a form. `change` is what the reference keeps to find the origin: 0 replaces the next
 * character of the text, 1 is inserted, -n replaces one and swallows the n behind it. */
typedef struct hri_normal_char {
  uint32_t point;
  int32_t change;
  uint8_t combining;
} hri_normal_char;

/* The new text of a step, which begins with the bytes before `kept` of the old one. */
typedef struct hri_normal_writer {
  hri_normal *normal;
  struct hri_normal_buffer *out;
  bool failed; /* memory was refused, or the text grows beyond its bound */
  bool grown;  /* the latter */
} hri_normal_writer;

hri_normal_writer hri_normal_write(hri_normal *normal);
/* Old bytes [begin, end), unchanged, with their origins. */
void hri_normal_keep(hri_normal_writer *writer, uint64_t begin, uint64_t end);
/* New bytes that all have one origin. */
void hri_normal_put(hri_normal_writer *writer, const char *bytes, size_t count, hri_split_piece span);
/* The origin of the character that the old byte `at` belongs to. */
hri_split_piece hri_normal_span(const hri_normal *normal, uint64_t at);
/* Makes what was written the text. MEMORY; INPUT when it grew beyond its bound. */
hr_status hri_normal_done(hri_normal_writer *writer, hr_error *error);

/* normalize_forms.c */
hr_status hri_normal_form(hri_normal *normal, hri_normalize_kind kind, hr_error *error);

/* normalize_charsmap.c: the Precompiled normalizer. */
struct hri_charsmap;
hr_status hri_normal_charsmap(const struct hri_charsmap *map, hri_normal *normal, hr_error *error);

/* What a character becomes: *bytes is left alone when it stays, else there are so many in `out`. normalize_bert.c */
typedef void hri_normal_map(uint32_t point, char out[8], int *bytes);
hri_normal_map hri_map_bert_clean, hri_map_bert_chinese, hri_map_bert_accent, hri_map_nmt;

/* sentencepiece_normalize.c: a step with what it needs from the model. */
typedef struct hri_sp_normalizer hri_sp_normalizer;
hr_status hri_sp_normalizer_create(const hri_sentencepiece *model, hri_sp_normalizer **normalizer, hr_error *error);
void hri_sp_normalizer_destroy(hri_sp_normalizer *normalizer);
hr_status hri_sp_normalizer_apply(const hri_sp_normalizer *step, hri_normal *normal, hr_error *error);

#endif
