/* Precompiled character maps of SentencePiece: keys, found in a trie, and what they become (src/normalizer.cc).
 *
 * The map is a length, a double-array trie of keys (Darts-clone: units of 32 bits) and the texts that keys become, each
 * ending in a zero byte. A unit of the trie: bits 0..7 and 31 its label, bit 8 says that a key ends here, bits 10.. its
 * offset, shifted by eight more if bit 9 is set. The child for byte b is at position ^ offset ^ b; the value of a key is
 * the unit at position ^ offset. All positions are checked against the end. */
#ifndef HRI_TOKENIZER_CHARSMAP_H
#define HRI_TOKENIZER_CHARSMAP_H

#include "base/mem.h"

typedef struct hri_charsmap {
  uint32_t *units; /* NULL: no keys */
  uint32_t unit_count;
  char *texts; /* what keys become; the last byte is 0 */
  uint32_t text_bytes;
  bool ascii[128]; /* whether something that begins with this byte and goes on in ASCII, or ends, is a key */
} hri_charsmap;

/* Copies a map. INPUT when its sizes are wrong, with `field` as its name. */
hr_status hri_charsmap_load(hri_charsmap *map, const void *bytes, uint32_t count, const char *field, hr_error *error);
void hri_charsmap_deinit(hri_charsmap *map);
/* The longest key, or the shortest, at the begin of a text: its bytes, 0 when there is none; *text is what it becomes. */
uint32_t hri_charsmap_find(const hri_charsmap *map, const char *bytes, uint64_t count, bool longest, const char **text);

#endif
