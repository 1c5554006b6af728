/* Byte-pair encoding of one piece of text.
 *
 * A piece starts as symbols: the tokens of its bytes (byte-level) or of its characters. The adjacent pair of lowest
 * rank, the leftmost of equals, is replaced by its result until no pair is known. Ranks come from a list of merges,
 * from scores (SentencePiece) or from a file of ranks (tiktoken); equal ranks are fine.
 *
 * Three ways to the same ids, by the length of the piece:
 *   - words of at most 15 bytes and 4 tokens are remembered in a small table (two ways per set, one cache line);
 *   - up to 32 symbols: the lowest rank is searched anew after each merge;
 *   - more: a heap of (rank, position), so that a megabyte of one letter takes n log n steps and not n squared.
 * A piece of characters is first cut where no merge reaches across (see seams in bpe.c), so that a model without
 * pre-tokenizer, as Llama 2, works on words as well. */
#ifndef HRI_TOKENIZER_BPE_H
#define HRI_TOKENIZER_BPE_H

#include <headroom/tokenizer.h>

#include "base/text.h"
#include "tokenizer/split.h"
#include "tokenizer/vocab.h"

typedef struct hri_bpe_merge {
  uint64_t pair;         /* left id << 32 | right id */
  uint32_t rank, result; /* rank HRI_TOKEN_NONE: an empty place of the table */
} hri_bpe_merge;

typedef struct hri_bpe {
  const hri_vocab *vocab;
  uint64_t serial; /* tells the tokenizers of a process apart */
  bool byte_level; /* the vocabulary is written in the byte alphabet; pieces are raw bytes */
  bool byte_fallback, fuse_unk, ignore_merges;
  uint32_t unk;          /* HRI_TOKEN_NONE: unknown characters are dropped */
  char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; NULL when there is none */
  hri_bpe_merge *merges;
  uint64_t merge_count, merge_mask;
  /* derived by hri_bpe_finish */
  uint32_t byte_ids[256];     /* byte-level: the token of each byte, NONE when the vocabulary lacks it */
  uint32_t fallback_ids[256]; /* "<0x00>".. */
  uint32_t ascii_ids[128];    /* characters: the token of each ASCII character without prefix and suffix */
  bool direct;                /* byte-level with all bytes and no prefix or suffix: symbols are byte_ids */
  bool exact_lengths;         /* the bytes of text behind a token follow from its id alone */
  bool seams;
  uint32_t *seam_blockers, seam_blocker_count; /* characters before U+2581 across which a merge may reach; sorted */
} hri_bpe;

/* Working memory and remembered words of one hr_tokens; grows to what the longest piece needs (32 bytes a symbol). */
typedef struct hri_bpe_scratch {
  uint64_t serial; /* of the tokenizer whose words are remembered */
  uint64_t bytes_seen;
  const char *limit; /* end of readable memory behind the text at hand */
  uint32_t *ids, *bytes, *next, *prior;
  uint64_t *heap, heap_count;
  uint64_t count, capacity, heap_capacity;
  bool unknown;               /* the symbols at hand hold the unknown token */
  void *memory;               /* of the table */
  struct hri_bpe_word *words; /* aligned; NULL until enough text has come */
  hri_text mapped;            /* a piece in the byte alphabet */
} hri_bpe_scratch;

void hri_bpe_deinit(hri_bpe *bpe);
void hri_bpe_scratch_deinit(hri_bpe_scratch *scratch);

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

/* Appends the ids of a piece (bytes > 0, in the text before scratch->limit) to `tokens`; with `lengths`, their bytes of
 * the piece to tokens->end (0 for all but the last token of a byte that takes several). MEMORY. */
hr_status hri_bpe_append(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes, bool lengths,
                         hr_tokens *tokens, hr_error *error);

/* The same for up to HRI_BPE_BATCH pieces of a text, without lengths; their words are fetched ahead. */
enum { HRI_BPE_BATCH = 64 };
hr_status hri_bpe_append_all(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *text,
                             const hri_split_piece *pieces, uint32_t count, hr_tokens *tokens, hr_error *error);

/* Room for `more` further tokens; with `offsets` in begin and end too. MEMORY. */
hr_status hri_tokens_reserve(hr_tokens *tokens, uint64_t more, bool offsets, hr_error *error);

/* The byte alphabet of GPT-2: every byte as a visible character (bytes.c). */
extern const uint16_t hri_byte_chars[256];
/* The byte of a character, -1 when it is none of the alphabet. */
int hri_char_byte(uint32_t character);
/* Appends the bytes in the alphabet. */
void hri_bytes_map(hri_text *text, const char *bytes, uint64_t count);

#endif
