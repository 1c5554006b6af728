/* SentencePiece models (tokenizer.model): the protobuf ModelProto, read strictly and in bounds.
 *
 * Layout: google/sentencepiece, src/sentencepiece_model.proto. model_type BPE and unigram are taken; word and char are
 * refused by name. */
#ifndef HRI_TOKENIZER_SENTENCEPIECE_H
#define HRI_TOKENIZER_SENTENCEPIECE_H

#include "base/mem.h"

typedef enum hri_sp_type {
  HRI_SP_NORMAL = 1,
  HRI_SP_UNKNOWN,
  HRI_SP_CONTROL,
  HRI_SP_USER_DEFINED,
  HRI_SP_UNUSED,
  HRI_SP_BYTE
} hri_sp_type;

typedef struct hri_sp_piece {
  const char *text; /* UTF-8, `bytes` long, not NUL-terminated; points into hri_sentencepiece.file */
  uint32_t bytes;
  float score;
  hri_sp_type type;
} hri_sp_piece;

typedef struct hri_sentencepiece {
  hri_sp_piece *pieces; /* index = token id */
  uint32_t piece_count;
  int32_t unk_id, bos_id, eos_id, pad_id; /* -1 when the model has none */
  int32_t byte_ids[256];                  /* of "<0x00>".., when byte_fallback */
  bool unigram;                           /* else BPE */
  bool byte_fallback;
  bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
  bool treat_whitespace_as_suffix;
  const char *charsmap; /* precompiled_charsmap, NULL when the model has none (identity) */
  uint32_t charsmap_bytes;
  const char *normalizer_name; /* "identity", "nmt_nfkc", ...; `normalizer_name_bytes` long, for messages */
  uint32_t normalizer_name_bytes;
  char *file; /* the bytes that everything above points into */
} hri_sentencepiece;

/* Reads a file; release with hri_sentencepiece_deinit, which takes a zeroed struct too. */
hr_status hri_sentencepiece_read(const char *path, hri_sentencepiece *model, hr_error *error);
/* The same from memory: takes `bytes` (hri_alloc'ed) over, also when it fails. `name` stands for the file in errors. */
hr_status hri_sentencepiece_parse(const char *name, char *bytes, uint64_t count, hri_sentencepiece *model,
                                  hr_error *error);
void hri_sentencepiece_deinit(hri_sentencepiece *model);

#endif
