/* What kind of tokenizer a file holds, by its content: names say little (Llama 3 calls its ranks tokenizer.model). */
#ifndef HRI_TOKENIZER_RECOGNIZE_H
#define HRI_TOKENIZER_RECOGNIZE_H

#include "base/mem.h"

typedef enum hri_tokenizer_kind {
  HRI_TOKENIZER_GGUF = 0,
  HRI_TOKENIZER_JSON,          /* tokenizer.json, or Tekken's JSON: hri_tekken_is tells */
  HRI_TOKENIZER_RANKS,         /* lines "BASE64 RANK" */
  HRI_TOKENIZER_SENTENCEPIECE, /* what is no text */
  HRI_TOKENIZER_WORDS          /* other text: a token in each line, WordPiece */
} hri_tokenizer_kind;

/* Looks at the first bytes of a file. INPUT for what is known to be something else: an empty file, a Git LFS pointer,
 * merges alone, an archive. */
hr_status hri_tokenizer_recognize(const char *path, hri_tokenizer_kind *kind, hr_error *error);
/* The same for the first `count` bytes in memory; `path` for errors. */
hr_status hri_tokenizer_recognize_bytes(const char *path, const char *bytes, uint64_t count, hri_tokenizer_kind *kind,
                                        hr_error *error);

/* The file of a model's directory that holds its tokenizer, owned by the caller; NULL: it has none. MEMORY. */
hr_status hri_tokenizer_find(const char *directory, char **path, hr_error *error);
/* Whether a model's directory, or its GGUF file, has a tokenizer: as hr_tokenizer_present, but a GGUF file inside of the
 * directory is another model and has another model's. hr_tokenizer_open does not take that one where this is true. */
bool hri_tokenizer_is_models(const char *path);

#endif
