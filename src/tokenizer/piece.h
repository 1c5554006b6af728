/* What the models share: working memory for the ids of one piece of text, and where a long piece may be cut. */
#ifndef HRI_TOKENIZER_PIECE_H
#define HRI_TOKENIZER_PIECE_H

#include <headroom/tokenizer.h>

#include "base/text.h"
#include "tokenizer/vocab.h"

/* A symbol that begins where the one before it began: tokens of the bytes of a character, or of several characters,
 * stand for all of them. The other bits are its bytes of text; the last of such symbols has the bytes alone. */
#define HRI_PIECE_STAYS 0x80000000u

/* Working memory and remembered words of one hr_tokens; grows to what the longest piece needs. */
typedef struct hri_piece_work {
  uint64_t serial; /* of the tokenizer whose words are remembered */
  uint64_t bytes_seen;
  const char *limit; /* end of readable memory behind the text at hand */
  uint32_t *ids, *bytes, *next, *prior;
  uint64_t *heap, heap_count;
  uint64_t count, capacity, heap_capacity;
  bool unknown; /* the symbols at hand do not follow from the word alone, or their bytes not from their contents */
  void *memory; /* of the table */
  struct hri_known_words *words; /* aligned; NULL until enough text has come */
  hri_text mapped;               /* a piece in the byte alphabet */
  /* Unigram: scores of the path up to here, see unigram.h */
  struct hri_unigram_node *nodes;
  uint64_t node_capacity;
  double base;  /* of the tokens up to number `summed` */
  float margin; /* by which the path at hand won */
  uint64_t summed;
  uint32_t spent;        /* bytes of the piece before the word at hand */
  uint32_t spent_summed; /* ... when base was summed */
} hri_piece_work;

/* Room for `want` symbols. MEMORY. */
hr_status hri_piece_room(hri_piece_work *work, uint64_t want, hr_error *error);
static inline void hri_piece_add(hri_piece_work *work, uint32_t id, uint32_t bytes) {
  work->ids[work->count] = id;
  work->bytes[work->count++] = bytes;
}
void hri_piece_deinit(hri_piece_work *work);

/* Seams: a piece may be cut before U+2581, the blank of SentencePiece, when no token reaches across: each side gives the
 * same ids alone. Characters behind which a token may go on with U+2581 ("blockers") are few, mostly U+2581 itself. */
typedef struct hri_seams {
  bool on;
  uint32_t *blockers, count; /* bytes of each character in one number; sorted */
} hri_seams;

enum { HRI_SEAM_BYTES = 3 };
hr_status hri_seams_begin(hri_seams *seams, hr_error *error);
/* The character that ends at `end` is a blocker. False when there are too many to be worth it. */
bool hri_seams_block(hri_seams *seams, const char *begin, const char *end);
void hri_seams_deinit(hri_seams *seams);
/* Whether U+2581 stands at `text`; whether it does at `at`, in begin .. end, and the text may be cut there. */
bool hri_seam_mark(const char *text, uint64_t bytes);
bool hri_seam_at(const hri_seams *seams, const char *begin, const char *at, const char *end);

#endif
