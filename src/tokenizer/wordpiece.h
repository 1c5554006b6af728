/* WordPiece: from the begin of a word the longest token, again and again (tokenizers, models/wordpiece/mod.rs). Tokens
 * that go on within a word are written with a prefix, "##". A word that cannot be cut so is one unknown token. */
#ifndef HRI_TOKENIZER_WORDPIECE_H
#define HRI_TOKENIZER_WORDPIECE_H

#include "tokenizer/piece.h"
#include "tokenizer/trie.h"

enum { HRI_WORDPIECE_MOST = 100 }; /* max_input_chars_per_word where nobody says */

typedef struct hri_wordpiece {
  const hri_vocab *vocab;
  char *prefix; /* continuing_subword_prefix; NULL: "##" */
  uint32_t unk;
  uint64_t most_characters; /* of a word; longer ones are unknown */
  /* derived by hri_wordpiece_finish */
  hri_trie trie;
  uint32_t inner, prefix_bytes; /* where tokens within a word begin in the trie; HRI_TRIE_NONE: there are none */
} hri_wordpiece;

void hri_wordpiece_deinit(hri_wordpiece *wordpiece);
hr_status hri_wordpiece_finish(hri_wordpiece *wordpiece, hr_error *error);
/* Leaves the ids of a word in work->ids and ->bytes. */
hr_status hri_wordpiece_encode(const hri_wordpiece *wordpiece, hri_piece_work *work, const char *word, uint32_t bytes,
                               hr_error *error);
static inline const char *hri_wordpiece_prefix(const hri_wordpiece *wordpiece) {
  return wordpiece->prefix ? wordpiece->prefix : "##";
}

#endif
