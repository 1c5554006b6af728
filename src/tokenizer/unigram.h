/* Unigram: of all ways to cut a piece into tokens the one with the greatest sum of scores (Kudo 2018), found by Viterbi.
 *
 * The references are `tokenizers` (models/unigram/model.rs) and `sentencepiece` (src/unigram_model.cc), which differ: the
 * one sums doubles and takes every token of the vocabulary, the other rounds each sum to float and takes normal and
 * user-defined pieces only.
 *
 * Sums run from the begin of a piece. A word in the middle of a long piece is worked on alone (see seams in piece.h), and
 * what it becomes is remembered; but rounding depends on the sum before it, so that a near tie may be decided otherwise.
 * So a word is remembered with the margin by which its path won; where that is within the rounding of the sum at hand,
 * the sum is made up to there and the word is worked on with it, as the references do. */
#ifndef HRI_TOKENIZER_UNIGRAM_H
#define HRI_TOKENIZER_UNIGRAM_H

#include "tokenizer/piece.h"
#include "tokenizer/trie.h"

typedef struct hri_unigram {
  const hri_vocab *vocab;
  bool byte_fallback;
  bool single;    /* sums are float, as SentencePiece's */
  double *scores; /* [score_count] by id, what a token adds */
  uint32_t score_count;
  uint32_t unk;     /* HRI_TOKEN_NONE: text with an unknown character is refused */
  double unk_score; /* of an unknown character */
  /* derived by hri_unigram_finish */
  hri_trie trie;
  hri_seams seams;
  uint32_t fallback_ids[256];
  double error_per_byte; /* how far two sums may be apart by rounding, for each byte before them */
  double most;           /* greatest |score| for each byte of a token */
} hri_unigram;

/* The best path to a place of the piece. */
typedef struct hri_unigram_node {
  double score, margin; /* of it, and by how much the second is worse */
  uint32_t from, id;    /* its last token and where that begins; HRI_TOKEN_NONE: no path ends here */
} hri_unigram_node;

void hri_unigram_deinit(hri_unigram *unigram);
/* Room for the scores of the vocabulary, which has all its tokens; filled with zeros. */
hr_status hri_unigram_begin(hri_unigram *unigram, const hri_vocab *vocab, hr_error *error);
/* `ids` [count]: the tokens that may stand in a path; sorted meanwhile. */
hr_status hri_unigram_finish(hri_unigram *unigram, uint32_t *ids, uint32_t count, hr_error *error);

/* A piece of which words are encoded one after another begins; its tokens come behind the `count` that are there. */
void hri_unigram_piece(hri_piece_work *work, uint64_t count);
/* Leaves the ids of a word in work->ids and ->bytes, and the sum behind it in work->base. */
hr_status hri_unigram_encode(const hri_unigram *unigram, hri_piece_work *work, const hr_tokens *tokens,
                             const char *word, uint32_t bytes, hr_error *error);
/* Whether a remembered word whose path won by so much would win here too. */
bool hri_unigram_holds(const hri_unigram *unigram, const hri_piece_work *work, float margin);

#endif
