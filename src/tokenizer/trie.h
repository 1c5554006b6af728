/* The tokens of a vocabulary by their bytes, for walks byte by byte: which tokens begin a text.
 *
 * A double array (Aoe 1989): the child of node n for byte b is node base[n] ^ b if that one says that n is its parent.
 * Blocks of 256 nodes are whole, so that a walk needs no check of bounds. */
#ifndef HRI_TOKENIZER_TRIE_H
#define HRI_TOKENIZER_TRIE_H

#include "tokenizer/vocab.h"

typedef struct hri_trie_node {
  uint32_t base, parent, id; /* id: of the token that ends here, HRI_TOKEN_NONE when none does */
} hri_trie_node;

typedef struct hri_trie {
  hri_trie_node *nodes;
  uint32_t count, capacity; /* whole blocks */
} hri_trie;

enum { HRI_TRIE_ROOT = 0 };
#define HRI_TRIE_NONE 0xFFFFFFFFu

/* Makes it of the tokens `ids` [count], which is sorted by content meanwhile. MEMORY; INPUT when it would not fit. */
hr_status hri_trie_build(hri_trie *trie, const hri_vocab *vocab, uint32_t *ids, uint32_t count, hr_error *error);
void hri_trie_deinit(hri_trie *trie);

/* The child of a node, HRI_TRIE_NONE when there is none. */
static inline uint32_t hri_trie_step(const hri_trie *trie, uint32_t node, uint8_t byte) {
  uint32_t child = trie->nodes[node].base ^ byte;
  return trie->nodes[child].parent == node ? child : HRI_TRIE_NONE;
}

#endif
