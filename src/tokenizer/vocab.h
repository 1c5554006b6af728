/* Tokens by id and by content: one pool of characters, one hash table. */
#ifndef HRI_TOKENIZER_VOCAB_H
#define HRI_TOKENIZER_VOCAB_H

#include <string.h>

#include "base/mem.h"

enum {
  HRI_TOKEN_MODEL = 1,   /* known to the merges; an added token that the model lacks has only the next bit */
  HRI_TOKEN_ADDED = 2,   /* found in the text before anything else looks at it */
  HRI_TOKEN_SPECIAL = 4, /* left out of decoded text on request */
  HRI_VOCAB_MAX_ID = (1 << 24) - 1,
  HRI_VOCAB_FREE_IDS = 1 << 20, /* below it an id may stand alone: no vocabulary known has as many */
  HRI_VOCAB_SPREAD = 16         /* from there on so many ids for each token */
};
#define HRI_TOKEN_NONE 0xFFFFFFFFu

typedef struct hri_vocab {
  char *pool; /* contents, a NUL after each */
  uint64_t pool_bytes, pool_capacity;
  uint32_t *start, *bytes;     /* [size] of each content in the pool; start is HRI_TOKEN_NONE for unused ids */
  uint8_t *flags;              /* [size] */
  uint32_t size, capacity;     /* highest id + 1 */
  uint32_t count, model_count; /* tokens, and those with HRI_TOKEN_MODEL */
  uint32_t *slots, slot_mask;  /* id + 1 by content, 0 = empty; NULL until the first token */
} hri_vocab;

void hri_vocab_deinit(hri_vocab *vocab);
/* Adds a token whose id and content are both new; MEMORY. The id is at most HRI_VOCAB_MAX_ID. */
hr_status hri_vocab_add(hri_vocab *vocab, const char *content, uint64_t bytes, uint32_t id, uint8_t flags,
                        hr_error *error);
/* HRI_TOKEN_NONE when there is no such token. */
uint32_t hri_vocab_find(const hri_vocab *vocab, const char *content, uint64_t bytes);
/* The same among the model's tokens. */
static inline uint32_t hri_vocab_find_model(const hri_vocab *vocab, const char *content, uint64_t bytes) {
  uint32_t id = hri_vocab_find(vocab, content, bytes);
  return id != HRI_TOKEN_NONE && (vocab->flags[id] & HRI_TOKEN_MODEL) ? id : HRI_TOKEN_NONE;
}
static inline bool hri_vocab_has(const hri_vocab *vocab, uint32_t id) {
  return id < vocab->size && vocab->start[id] != HRI_TOKEN_NONE;
}
/* Whether a file with so many tokens may have this id: tables are as long as the highest, and three tokens are not worth 150 MB. */
static inline bool hri_vocab_may_have(uint64_t id, uint64_t tokens) {
  return id < HRI_VOCAB_FREE_IDS || id / HRI_VOCAB_SPREAD < tokens;
}
static inline const char *hri_vocab_content(const hri_vocab *vocab, uint32_t id) {
  return vocab->pool + vocab->start[id];
}

/* Bytes of the UTF-8 character that begins with `lead`; 1 for what begins none. The text is valid where this is
 * used. */
static inline uint32_t hri_char_bytes(char lead) {
  unsigned char c = (unsigned char)lead;
  return c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

#endif
