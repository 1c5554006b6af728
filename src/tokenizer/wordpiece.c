/* The vocabulary is one trie; tokens that go on within a word hang below its prefix, so that a word is cut in one walk
 * per token. Lengths are counted in characters, as the reference's limit is. */
#include "tokenizer/wordpiece.h"

void hri_wordpiece_deinit(hri_wordpiece *wordpiece) {
  hri_free(wordpiece->prefix);
  hri_trie_deinit(&wordpiece->trie);
  *wordpiece = (hri_wordpiece){0};
}

hr_status hri_wordpiece_finish(hri_wordpiece *wordpiece, hr_error *error) {
  const hri_vocab *vocab = wordpiece->vocab;
  const char *prefix = hri_wordpiece_prefix(wordpiece);
  uint32_t *ids = hri_alloc(((uint64_t)vocab->size + 1) * sizeof *ids), count = 0;
  hr_status status;
  if (!ids) return hri_fail_memory(error, vocab->size * sizeof *ids, "the tokens of the tokenizer");
  for (uint32_t id = 0; id < vocab->size; id++)
    if (hri_vocab_has(vocab, id) && (vocab->flags[id] & HRI_TOKEN_MODEL)) ids[count++] = id;
  status = hri_trie_build(&wordpiece->trie, vocab, ids, count, error);
  hri_free(ids);
  HRI_TRY(status);
  wordpiece->prefix_bytes = (uint32_t)strlen(prefix);
  wordpiece->inner = HRI_TRIE_ROOT;
  for (; *prefix && wordpiece->inner != HRI_TRIE_NONE; prefix++)
    wordpiece->inner = hri_trie_step(&wordpiece->trie, wordpiece->inner, (uint8_t)*prefix);
  return HR_OK;
}

/* The longest token at the begin of a text, from a node of the trie on: its bytes, 0 when there is none. */
static uint32_t longest(const hri_wordpiece *wordpiece, uint32_t node, const char *text, uint32_t bytes, uint32_t *id) {
  const hri_trie_node *trie = wordpiece->trie.nodes;
  uint32_t length = 0;
  if (node == HRI_TRIE_NONE) return 0;
  for (uint32_t i = 0; i < bytes; i++) {
    uint32_t child = trie[node].base ^ (uint8_t)text[i];
    if (trie[child].parent != node) break;
    node = child;
    if (trie[node].id == HRI_TOKEN_NONE) continue;
    *id = trie[node].id;
    length = i + 1;
  }
  return length;
}

static bool is_too_long(const hri_wordpiece *wordpiece, const char *word, uint32_t bytes) {
  uint64_t characters = 0;
  if (bytes <= wordpiece->most_characters) return false;
  for (uint32_t i = 0; i < bytes; i++) characters += ((unsigned char)word[i] & 0xC0) != 0x80;
  return characters > wordpiece->most_characters;
}

hr_status hri_wordpiece_encode(const hri_wordpiece *wordpiece, hri_piece_work *work, const char *word, uint32_t bytes,
                               hr_error *error) {
  bool known = !is_too_long(wordpiece, word, bytes);
  work->count = 0;
  work->unknown = false;
  for (uint32_t at = 0, length; known && at < bytes; at += length) {
    uint32_t id = HRI_TOKEN_NONE;
    length = longest(wordpiece, at ? wordpiece->inner : HRI_TRIE_ROOT, word + at, bytes - at, &id);
    known = length > 0;
    if (!known) break;
    HRI_TRY(hri_piece_room(work, work->count + 1, error));
    hri_piece_add(work, id, length);
  }
  if (known) return HR_OK;
  work->count = 0;
  work->unknown = true;
  HRI_TRY(hri_piece_room(work, 1, error));
  hri_piece_add(work, wordpiece->unk, bytes);
  return HR_OK;
}
