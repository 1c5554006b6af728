/* Byte-pair encoding of one piece of text.
 *
 * A piece starts as symbols: the tokens of its bytes (byte-level) or of its characters. The adjacent pair of lowest
 * rank, the leftmost of equals, is replaced by its result until no pair is known. Ranks come from a list of merges,
 * from scores (SentencePiece) or from a file of ranks (tiktoken); equal ranks are fine.
 *
 * Two ways to the same ids, by the length of the piece:
 *   - up to 32 symbols: the lowest rank is searched anew after each merge;
 *   - more: a heap of (rank, position), so that a megabyte of one letter takes n log n steps and not n squared.
 * A piece of characters is first cut where no merge reaches across (seams in piece.h), so that a model without
 * pre-tokenizer, as Llama 2, works on words as well. */
#ifndef HRI_TOKENIZER_BPE_H
#define HRI_TOKENIZER_BPE_H

#include "tokenizer/piece.h"

typedef struct hri_bpe_merge {
  uint64_t pair;         /* left id << 32 | right id */
  uint32_t rank, result; /* rank HRI_TOKEN_NONE: an empty place of the table */
} hri_bpe_merge;

typedef struct hri_bpe {
  const hri_vocab *vocab;
  bool byte_level; /* the vocabulary is written in the byte alphabet; pieces are raw bytes */
  bool byte_fallback, fuse_unk, ignore_merges;
  uint32_t unk;          /* HRI_TOKEN_NONE: unknown characters are dropped */
  bool unk_missing;      /* ... or are an error: a token for them is named that the vocabulary does not have */
  char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; NULL when there is none */
  hri_bpe_merge *merges;
  uint64_t merge_count, merge_mask;
  /* derived by hri_bpe_finish */
  uint32_t byte_ids[256];     /* byte-level: the token of each byte, NONE when the vocabulary lacks it */
  uint32_t fallback_ids[256]; /* "<0x00>".. */
  uint32_t ascii_ids[128];    /* characters: the token of each ASCII character without prefix and suffix */
  bool direct;                /* byte-level with all bytes and no prefix or suffix: symbols are byte_ids */
  bool exact_lengths;         /* the bytes of text behind a token follow from its id alone */
  hri_seams seams;
} hri_bpe;

void hri_bpe_deinit(hri_bpe *bpe);

/* Building. Tokens are in the vocabulary before merges are added; then finish once. `rank` below HRI_TOKEN_NONE; the
 * later of two equal pairs counts. */
hr_status hri_bpe_add_merge(hri_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t result,
                            hr_error *error);
/* Adds every pair of tokens whose contents together are a token: its rank is ranks[result], [vocab size]. Tokens of
 * rank
 * HRI_TOKEN_NONE take no part. INPUT for tokens of more than HRI_BPE_PAIR_BYTES. */
enum { HRI_BPE_PAIR_BYTES = 1024 };
hr_status hri_bpe_add_pairs(hri_bpe *bpe, const uint32_t *ranks, hr_error *error);
hr_status hri_bpe_finish(hri_bpe *bpe, hr_error *error);

/* Leaves the ids of a piece (bytes > 0) in work->ids, and their bytes of the piece in work->bytes (0 for all but the last
 * token of a byte that takes several). MEMORY. */
hr_status hri_bpe_encode(const hri_bpe *bpe, hri_piece_work *work, const char *piece, uint32_t bytes, hr_error *error);
/* Bytes of text behind a token, where exact_lengths. */
uint32_t hri_bpe_token_bytes(const hri_bpe *bpe, uint32_t id);

/* The byte alphabet of GPT-2: every byte as a visible character (bytes.c). */
extern const uint16_t hri_byte_chars[256];
/* The byte of a character, -1 when it is none of the alphabet. */
int hri_char_byte(uint32_t character);
/* Appends the bytes in the alphabet. */
void hri_bytes_map(hri_text *text, const char *bytes, uint64_t count);

#endif
