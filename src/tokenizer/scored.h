/* Vocabularies with a score for each piece: SentencePiece models, also inside GGUF. */
#ifndef HRI_TOKENIZER_SCORED_H
#define HRI_TOKENIZER_SCORED_H

#include "tokenizer/build.h"
#include "tokenizer/sentencepiece.h"

/* The pieces are in the vocabulary by their ids: adds merges (higher scores first) or Unigram, added tokens, normalizer and
 * decoder. */
hr_status hri_build_scored(hr_tokenizer *tokenizer, const hri_sentencepiece *model, hr_error *error);

#endif
