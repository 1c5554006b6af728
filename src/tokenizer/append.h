/* Ids of pieces of text, appended to what is there: the models behind one door, and the words that are remembered.
 *
 * Words of at most 15 bytes and few tokens are kept in a table (two ways per set, one cache line), words of at most 31 bytes
 * and those of up to 8 tokens in another (one per line); both are asked for ahead of use. Longer pieces, and the first time
 * of each word, are the model's (bpe.h, unigram.h, wordpiece.h). */
#ifndef HRI_TOKENIZER_APPEND_H
#define HRI_TOKENIZER_APPEND_H

#include "tokenizer/types.h"

/* Appends the ids of a piece (bytes > 0, in the text before work->limit) to `tokens`; with `lengths`, their bytes of
 * the piece to tokens->end (0 for all but the last token of a byte that takes several; see HRI_PIECE_STAYS). MEMORY;
 * INPUT where the model has no token for something. */
hr_status hri_append(const hr_tokenizer *tokenizer, hri_piece_work *work, const char *piece, uint32_t bytes,
                     bool lengths, hr_tokens *tokens, hr_error *error);

/* The same for up to HRI_APPEND_BATCH pieces of a text, without lengths; their words are fetched ahead. */
enum { HRI_APPEND_BATCH = 64 };
hr_status hri_append_all(const hr_tokenizer *tokenizer, hri_piece_work *work, const char *text,
                         const hri_split_piece *pieces, uint32_t count, hr_tokens *tokens, hr_error *error);

/* Room for `more` further tokens; with `offsets` in begin and end too. MEMORY. */
hr_status hri_tokens_reserve(hr_tokens *tokens, uint64_t more, bool offsets, hr_error *error);

#endif
