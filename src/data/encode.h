/* Text to tokens for data sets: a tokenizer, or bytes for models without one. */
#ifndef HRI_DATA_ENCODE_H
#define HRI_DATA_ENCODE_H

#include <headroom/tokenizer.h>

#include "base/mem.h"

enum { HRI_ENCODE_AROUND = 8, HRI_ENCODE_PART_BYTES = 64 * 1024 };

typedef struct hri_encoder {
  const hr_tokenizer *tokenizer; /* NULL: each byte is a token; borrowed */
  uint64_t vocabulary;           /* of the model: ids are below it */
  int32_t eos;                   /* end of a document; -1: none */
  int32_t before[HRI_ENCODE_AROUND],
      after[HRI_ENCODE_AROUND]; /* what the tokenizer's post-processor puts around a text */
  uint32_t before_count, after_count;
  bool cuts; /* a text may be cut before a line feed that follows a letter, without changing its tokens */
} hri_encoder;

/* `eos` (-1: none) is used when the tokenizer names none; ids outside the vocabulary are none. */
hr_status hri_encoder_init(hri_encoder *encoder, const hr_tokenizer *tokenizer, uint64_t vocabulary, int32_t eos,
                           hr_error *error);

/* The tokens of a text, nothing added, special tokens matched; with the bytes that each stands for if asked. INPUT,
 * with `where` in front, when an id is outside of the vocabulary. */
hr_status hri_encoder_run(const hri_encoder *encoder, const char *where, const char *text, uint64_t bytes, bool offsets,
                          hr_tokens *tokens, hr_error *error);

/* Bytes of the text to tokenize next: a part of bounded length where that changes nothing, else all. */
size_t hri_encode_part(const hri_encoder *encoder, const char *text, size_t bytes);
/* The last place in (0, bytes) where a long text may be cut, 0 when there is none. */
size_t hri_encode_cut(const char *text, size_t bytes);

#endif
