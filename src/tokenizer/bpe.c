#include "tokenizer/bpe.h"

/* ---- The table of merges: open addressing, at most half full ---- */

static uint64_t pair_slot(uint64_t pair, uint64_t mask) {
  uint64_t hash = pair * 0x9E3779B97F4A7C15u;
  return (hash ^ hash >> 32) & mask;
}

static hri_bpe_merge *merge_place(hri_bpe_merge *merges, uint64_t mask, uint64_t pair) {
  uint64_t slot = pair_slot(pair, mask);
  while (merges[slot].rank != HRI_TOKEN_NONE && merges[slot].pair != pair) slot = (slot + 1) & mask;
  return &merges[slot];
}

static const hri_bpe_merge *merge_find(const hri_bpe *bpe, uint32_t left, uint32_t right) {
  return merge_place(bpe->merges, bpe->merge_mask, (uint64_t)left << 32 | right);
}

static hr_status grow_merges(hri_bpe *bpe, hr_error *error) {
  uint64_t old_count = bpe->merges ? bpe->merge_mask + 1 : 0, count = old_count ? 2 * old_count : 64;
  hri_bpe_merge *merges = hri_alloc(count * sizeof *merges), *old = bpe->merges;
  if (!merges) return hri_fail_memory(error, count * sizeof *merges, "the merges of the tokenizer");
  for (uint64_t i = 0; i < count; i++) merges[i] = (hri_bpe_merge){.rank = HRI_TOKEN_NONE};
  for (uint64_t i = 0; i < old_count; i++)
    if (old[i].rank != HRI_TOKEN_NONE) *merge_place(merges, count - 1, old[i].pair) = old[i];
  hri_free(old);
  bpe->merges = merges;
  bpe->merge_mask = count - 1;
  return HR_OK;
}

hr_status hri_bpe_add_merge(hri_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t result,
                            hr_error *error) {
  uint64_t pair = (uint64_t)left << 32 | right;
  hri_bpe_merge *place;
  if (!bpe->merges || bpe->merge_count >= bpe->merge_mask / 2) HRI_TRY(grow_merges(bpe, error));
  place = merge_place(bpe->merges, bpe->merge_mask, pair);
  bpe->merge_count += place->rank == HRI_TOKEN_NONE;
  *place = (hri_bpe_merge){.pair = pair, .rank = rank, .result = result};
  return HR_OK;
}

hr_status hri_bpe_add_pairs(hri_bpe *bpe, const uint32_t *ranks, hr_error *error) {
  const hri_vocab *vocab = bpe->vocab;
  for (uint32_t id = 0; id < vocab->size; id++) {
    const char *content;
    if (!hri_vocab_has(vocab, id) || ranks[id] == HRI_TOKEN_NONE) continue;
    content = hri_vocab_content(vocab, id);
    if (vocab->bytes[id] > HRI_BPE_PAIR_BYTES) /* all ways to cut it are tried: the square of its length */
      return hri_fail(error, HR_ERROR_INPUT,
                      "token %u has %u bytes; at most %d are supported where merges follow from the tokens", id,
                      vocab->bytes[id], HRI_BPE_PAIR_BYTES);
    for (uint32_t at = hri_char_bytes(content[0]); at < vocab->bytes[id]; at += hri_char_bytes(content[at])) {
      uint32_t left = hri_vocab_find(vocab, content, at), right;
      if (left == HRI_TOKEN_NONE || ranks[left] == HRI_TOKEN_NONE) continue;
      right = hri_vocab_find(vocab, content + at, vocab->bytes[id] - at);
      if (right == HRI_TOKEN_NONE || ranks[right] == HRI_TOKEN_NONE) continue;
      HRI_TRY(hri_bpe_add_merge(bpe, left, right, ranks[id], id, error));
    }
  }
  return HR_OK;
}

/* ---- Finishing: what follows from vocabulary and merges ---- */

static uint32_t put_character(char *to, uint32_t c) {
  if (c < 0x80) {
    to[0] = (char)c;
    return 1;
  }
  to[0] = (char)(0xC0 | c >> 6); /* the byte alphabet ends below U+0800 */
  to[1] = (char)(0x80 | (c & 63));
  return 2;
}

static void find_bytes(hri_bpe *bpe) {
  bool all = true;
  for (uint32_t i = 0; i < 256; i++) {
    static const char hex[] = "0123456789ABCDEF";
    char name[7] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>', 0}, character[2];
    uint32_t bytes = put_character(character, hri_byte_chars[i]);
    bpe->byte_ids[i] = hri_vocab_find_model(bpe->vocab, character, bytes);
    bpe->fallback_ids[i] = hri_vocab_find_model(bpe->vocab, name, 6);
    if (i < 128) bpe->ascii_ids[i] = hri_vocab_find_model(bpe->vocab, &(char){(char)i}, 1);
    all = all && bpe->byte_ids[i] != HRI_TOKEN_NONE;
  }
  bpe->direct = bpe->byte_level && all && !bpe->prefix && !bpe->suffix;
}

static bool is_fallback(const hri_bpe *bpe, uint32_t id) {
  const char *content = hri_vocab_content(bpe->vocab, id);
  if (!bpe->byte_fallback || bpe->vocab->bytes[id] != 6 || memcmp(content, "<0x", 3) != 0) return false;
  for (uint32_t i = 0; i < 256; i++)
    if (bpe->fallback_ids[i] == id) return true;
  return false;
}

/* ---- Seams ----
 *
 * A piece may be cut before U+2581, the blank of SentencePiece, when no merge joins something that ends in the
 * character before it to something that begins with U+2581: whatever is merged on either side, the two sides never
 * meet, so that each gives the same ids alone. The characters for which such a merge exists ("blockers") are few,
 * mostly U+2581 itself. */
static const char seam_mark[] = "\xE2\x96\x81";
enum { SEAM_BYTES = 3 };

static bool at_mark(const char *text, uint64_t bytes) {
  return bytes >= SEAM_BYTES && memcmp(text, seam_mark, SEAM_BYTES) == 0;
}

/* The last character before `end` as its bytes in one number. */
static uint32_t character_before(const char *begin, const char *end) {
  uint32_t packed = 0;
  const char *at = end;
  do at--;
  while (at > begin && ((unsigned char)*at & 0xC0) == 0x80 && end - at < 4);
  for (; at < end; at++) packed = packed << 8 | (unsigned char)*at;
  return packed;
}

/* The place of a character among the sorted blockers, or where it belongs. */
static uint32_t blocker_place(const hri_bpe *bpe, uint32_t character) {
  uint32_t low = 0, high = bpe->seam_blocker_count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (bpe->seam_blockers[middle] < character) low = middle + 1;
    else high = middle;
  }
  return low;
}

static bool is_blocker(const hri_bpe *bpe, uint32_t character) {
  uint32_t place = blocker_place(bpe, character);
  return place < bpe->seam_blocker_count && bpe->seam_blockers[place] == character;
}

enum { MOST_BLOCKERS = 256 };

/* False when there are too many to be worth it. */
static bool add_blocker(hri_bpe *bpe, uint32_t character) {
  uint32_t place = blocker_place(bpe, character);
  if (place < bpe->seam_blocker_count && bpe->seam_blockers[place] == character) return true;
  if (bpe->seam_blocker_count == MOST_BLOCKERS) return false;
  memmove(bpe->seam_blockers + place + 1, bpe->seam_blockers + place,
          (bpe->seam_blocker_count - place) * sizeof(uint32_t));
  bpe->seam_blockers[place] = character;
  bpe->seam_blocker_count++;
  return true;
}

/* Tokens that stand for a byte or for an unknown character end in something else than their content says. */
static bool find_blockers(hri_bpe *bpe) {
  const hri_vocab *vocab = bpe->vocab;
  if (hri_vocab_find_model(vocab, seam_mark, SEAM_BYTES) == HRI_TOKEN_NONE) return false;
  for (uint64_t i = 0; i <= bpe->merge_mask; i++) {
    uint32_t left = (uint32_t)(bpe->merges[i].pair >> 32), right = (uint32_t)bpe->merges[i].pair;
    const char *content = hri_vocab_content(vocab, left);
    if (bpe->merges[i].rank == HRI_TOKEN_NONE) continue;
    if (is_fallback(bpe, left) || is_fallback(bpe, right) || left == bpe->unk || right == bpe->unk) return false;
    if (!at_mark(hri_vocab_content(vocab, right), vocab->bytes[right])) continue;
    if (!add_blocker(bpe, character_before(content, content + vocab->bytes[left]))) return false;
  }
  return true;
}

hr_status hri_bpe_finish(hri_bpe *bpe, hr_error *error) {
  if (!bpe->merges) HRI_TRY(grow_merges(bpe, error));
  find_bytes(bpe);
  bpe->exact_lengths = !bpe->prefix && !bpe->suffix && (!bpe->byte_level || bpe->direct);
  if (bpe->byte_level || bpe->ignore_merges || bpe->prefix || bpe->suffix) return HR_OK;
  bpe->seam_blockers = hri_alloc(MOST_BLOCKERS * sizeof *bpe->seam_blockers);
  if (!bpe->seam_blockers)
    return hri_fail_memory(error, MOST_BLOCKERS * sizeof *bpe->seam_blockers, "the merges of the tokenizer");
  bpe->seams = find_blockers(bpe);
  if (!bpe->seams) bpe->exact_lengths = false; /* it may be that bytes or unknown characters merge */
  return HR_OK;
}

void hri_bpe_deinit(hri_bpe *bpe) {
  hri_free(bpe->merges);
  hri_free(bpe->prefix);
  hri_free(bpe->suffix);
  hri_free(bpe->seam_blockers);
  *bpe = (hri_bpe){0};
}

void hri_bpe_scratch_deinit(hri_bpe_scratch *scratch) {
  hri_free(scratch->ids);
  hri_free(scratch->bytes);
  hri_free(scratch->next);
  hri_free(scratch->prior);
  hri_free(scratch->heap);
  hri_free(scratch->memory);
  hri_text_deinit(&scratch->mapped);
  *scratch = (hri_bpe_scratch){0};
}

/* ---- Symbols of a piece ---- */

static hr_status grow_symbols(hri_bpe_scratch *scratch, uint64_t want, hr_error *error) {
  uint64_t capacity = scratch->capacity < 64 ? 64 : scratch->capacity;
  uint32_t **arrays[4] = {&scratch->ids, &scratch->bytes, &scratch->next, &scratch->prior};
  if (want <= scratch->capacity) return HR_OK;
  while (capacity < want) capacity *= 2;
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t *grown = hri_realloc(*arrays[i], capacity * sizeof *grown);
    if (!grown) return hri_fail_memory(error, capacity * sizeof *grown, "a long piece of text");
    *arrays[i] = grown;
  }
  scratch->capacity = capacity;
  return HR_OK;
}

static void add_symbol(hri_bpe_scratch *scratch, uint32_t id, uint32_t bytes) {
  scratch->ids[scratch->count] = id;
  scratch->bytes[scratch->count++] = bytes;
}

static hr_status direct_symbols(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes,
                                hr_error *error) {
  HRI_TRY(grow_symbols(scratch, bytes, error));
  for (uint32_t i = 0; i < bytes; i++) {
    scratch->ids[i] = bpe->byte_ids[(unsigned char)piece[i]];
    scratch->bytes[i] = 1;
  }
  scratch->count = bytes;
  return HR_OK;
}

enum { AFFIX_BYTES = 64 };

/* The bytes of a character, each as its own token; false when one of them is missing. */
static bool fall_back(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *character, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i++)
    if (bpe->fallback_ids[(unsigned char)character[i]] == HRI_TOKEN_NONE) return false;
  for (uint32_t i = 0; i < bytes; i++)
    add_symbol(scratch, bpe->fallback_ids[(unsigned char)character[i]], bpe->byte_level ? i + 1 == bytes : 1);
  return true;
}

/* Pieces by character (by byte, when the vocabulary is in the byte alphabet), with prefix, suffix, bytes and unknown.
 * As in
 * the reference, an unknown character waits for the next known one, so that it comes behind bytes that follow it. */
static hr_status general_symbols(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes,
                                 hr_error *error) {
  uint32_t prefix = bpe->prefix ? (uint32_t)strlen(bpe->prefix) : 0,
           suffix = bpe->suffix ? (uint32_t)strlen(bpe->suffix) : 0;
  uint32_t unknown = 0, width; /* bytes of text of unknown characters not yet written */
  for (uint32_t at = 0; at < bytes; at += width) {
    char symbol[2 * AFFIX_BYTES + 8];
    uint32_t length = 0, id;
    width = bpe->byte_level ? 1 : hri_char_bytes(piece[at]);
    if (width > bytes - at) width = bytes - at;
    HRI_TRY(grow_symbols(scratch, scratch->count + prefix + suffix + 8, error));
    if (at > 0) memcpy(symbol, bpe->prefix ? bpe->prefix : "", length = prefix);
    if (bpe->byte_level) length += put_character(symbol + length, hri_byte_chars[(unsigned char)piece[at]]);
    else
      for (uint32_t i = 0; i < width; i++) symbol[length++] = piece[at + i];
    if (at + width == bytes && suffix) {
      memcpy(symbol + length, bpe->suffix, suffix);
      length += suffix;
    }
    id = length == 1 ? bpe->ascii_ids[symbol[0] & 127] : hri_vocab_find_model(bpe->vocab, symbol, length);
    if (id == HRI_TOKEN_NONE && bpe->byte_fallback && fall_back(bpe, scratch, symbol, length)) continue;
    if (unknown && (id != HRI_TOKEN_NONE || !bpe->fuse_unk)) {
      add_symbol(scratch, bpe->unk, unknown);
      unknown = 0;
    }
    if (id != HRI_TOKEN_NONE) add_symbol(scratch, id, width);
    else if (bpe->unk != HRI_TOKEN_NONE) unknown += width;
    scratch->unknown = scratch->unknown || unknown;
  }
  HRI_TRY(grow_symbols(scratch, scratch->count + 1, error));
  if (unknown) add_symbol(scratch, bpe->unk, unknown);
  return HR_OK;
}

/* ---- Merging ---- */

enum { FEW = 32 };

static void merge_few(const hri_bpe *bpe, hri_bpe_scratch *scratch) {
  uint32_t *ids = scratch->ids, *bytes = scratch->bytes, count = (uint32_t)scratch->count;
  uint32_t rank[FEW], result[FEW]; /* of symbols i and i + 1 */
  for (uint32_t i = 0; i + 1 < count; i++)
    __builtin_prefetch(&bpe->merges[pair_slot((uint64_t)ids[i] << 32 | ids[i + 1], bpe->merge_mask)]);
  for (uint32_t i = 0; i + 1 < count; i++) {
    const hri_bpe_merge *merge = merge_find(bpe, ids[i], ids[i + 1]);
    rank[i] = merge->rank;
    result[i] = merge->result;
  }
  while (count > 1) {
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < count; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == HRI_TOKEN_NONE) break;
    ids[best] = result[best];
    bytes[best] += bytes[best + 1];
    count--;
    for (uint32_t i = best + 1; i < count; i++) {
      ids[i] = ids[i + 1];
      bytes[i] = bytes[i + 1];
      rank[i - 1] = rank[i];
      result[i - 1] = result[i];
    }
    for (uint32_t i = best ? best - 1 : 0; i <= best && i + 1 < count; i++) {
      const hri_bpe_merge *merge = merge_find(bpe, ids[i], ids[i + 1]);
      rank[i] = merge->rank;
      result[i] = merge->result;
    }
  }
  scratch->count = count;
}

/* A heap of rank << 32 | position, the least on top. Entries whose symbols have changed since are dropped when they
 * come up. */
static void heap_sink(uint64_t *heap, uint64_t count, uint64_t at) {
  uint64_t value = heap[at], child;
  while ((child = 2 * at + 1) < count) {
    if (child + 1 < count && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= value) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = value;
}

static void heap_push(hri_bpe_scratch *scratch, uint64_t value) {
  uint64_t at = scratch->heap_count++;
  for (; at > 0 && scratch->heap[(at - 1) / 2] > value; at = (at - 1) / 2)
    scratch->heap[at] = scratch->heap[(at - 1) / 2];
  scratch->heap[at] = value;
}

static void push_pair(const hri_bpe *bpe, hri_bpe_scratch *scratch, uint32_t at) {
  const hri_bpe_merge *merge = merge_find(bpe, scratch->ids[at], scratch->ids[scratch->next[at]]);
  if (merge->rank != HRI_TOKEN_NONE) heap_push(scratch, (uint64_t)merge->rank << 32 | at);
}

/* Links the symbols and fills the heap. Each merge takes one entry and makes two at most, and there are fewer merges
 * than symbols: twice their number is room enough. */
static hr_status heap_begin(const hri_bpe *bpe, hri_bpe_scratch *scratch, hr_error *error) {
  uint64_t count = scratch->count;
  if (scratch->heap_capacity < 2 * count) {
    uint64_t *heap = hri_realloc(scratch->heap, 2 * scratch->capacity * sizeof *heap);
    if (!heap) return hri_fail_memory(error, 2 * scratch->capacity * sizeof *heap, "a long piece of text");
    scratch->heap = heap;
    scratch->heap_capacity = 2 * scratch->capacity;
  }
  scratch->heap_count = 0;
  for (uint64_t i = 0; i < count; i++) {
    scratch->prior[i] = i ? (uint32_t)(i - 1) : HRI_TOKEN_NONE;
    scratch->next[i] = i + 1 < count ? (uint32_t)(i + 1) : HRI_TOKEN_NONE;
    if (i + 1 < count) {
      const hri_bpe_merge *merge = merge_find(bpe, scratch->ids[i], scratch->ids[i + 1]);
      if (merge->rank != HRI_TOKEN_NONE) scratch->heap[scratch->heap_count++] = (uint64_t)merge->rank << 32 | i;
    }
  }
  for (uint64_t i = scratch->heap_count / 2; i-- > 0;) heap_sink(scratch->heap, scratch->heap_count, i);
  return HR_OK;
}

/* A symbol that was merged into its left neighbour has no bytes and the id NONE. */
static hr_status merge_many(const hri_bpe *bpe, hri_bpe_scratch *scratch, hr_error *error) {
  uint32_t *ids = scratch->ids, *next = scratch->next, *prior = scratch->prior;
  uint64_t kept = 0;
  HRI_TRY(heap_begin(bpe, scratch, error));
  while (scratch->heap_count) {
    uint64_t top = scratch->heap[0];
    uint32_t at = (uint32_t)top, right;
    const hri_bpe_merge *merge;
    scratch->heap[0] = scratch->heap[--scratch->heap_count];
    if (scratch->heap_count) heap_sink(scratch->heap, scratch->heap_count, 0);
    if (ids[at] == HRI_TOKEN_NONE || next[at] == HRI_TOKEN_NONE) continue;
    right = next[at];
    merge = merge_find(bpe, ids[at], ids[right]);
    if (merge->rank != top >> 32) continue;
    ids[at] = merge->result;
    ids[right] = HRI_TOKEN_NONE;
    scratch->bytes[at] += scratch->bytes[right];
    next[at] = next[right];
    if (next[at] != HRI_TOKEN_NONE) {
      prior[next[at]] = at;
      push_pair(bpe, scratch, at);
    }
    if (prior[at] != HRI_TOKEN_NONE) push_pair(bpe, scratch, prior[at]);
  }
  for (uint64_t i = 0; i < scratch->count; i++) {
    if (ids[i] == HRI_TOKEN_NONE) continue;
    ids[kept] = ids[i];
    scratch->bytes[kept++] = scratch->bytes[i];
  }
  scratch->count = kept;
  return HR_OK;
}

/* A piece that is a token as it stands; only asked for with ignore_merges. */
static uint32_t whole_token(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes) {
  if (!bpe->byte_level) return hri_vocab_find_model(bpe->vocab, piece, bytes);
  scratch->mapped.length = 0;
  hri_bytes_map(&scratch->mapped, piece, bytes);
  if (scratch->mapped.failed) return HRI_TOKEN_NONE;
  return hri_vocab_find_model(bpe->vocab, scratch->mapped.chars, scratch->mapped.length);
}

/* Leaves the ids of a piece in scratch->ids and ->bytes. */
static hr_status encode_piece(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes,
                              hr_error *error) {
  scratch->count = 0;
  scratch->unknown = false;
  if (bpe->ignore_merges) {
    uint32_t whole = whole_token(bpe, scratch, piece, bytes);
    if (scratch->mapped.failed) return hri_fail_memory(error, 2 * (uint64_t)bytes, "a long piece of text");
    if (whole != HRI_TOKEN_NONE) {
      HRI_TRY(grow_symbols(scratch, 1, error));
      add_symbol(scratch, whole, bytes);
      return HR_OK;
    }
  }
  if (bpe->direct) HRI_TRY(direct_symbols(bpe, scratch, piece, bytes, error));
  else HRI_TRY(general_symbols(bpe, scratch, piece, bytes, error));
  if (scratch->count > FEW) return merge_many(bpe, scratch, error);
  merge_few(bpe, scratch);
  return HR_OK;
}

/* ---- Remembered words ---- */

enum { WORD_BYTES = 15, WORD_IDS = 4, SET_BITS = 15, WAYS = 2 };

/* The word padded with zeros; its last byte holds the length and, above, the number of ids. */
typedef struct hri_bpe_word {
  uint64_t key[2];
  int32_t ids[WORD_IDS];
} hri_bpe_word;

#define COUNT_SHIFT 60
#define COUNT_MASK ((uint64_t)15 << COUNT_SHIFT)

/* Made when enough text has come to be worth 2 MiB; the system gives pages as they are touched. */
static void words_begin(const hri_bpe *bpe, hri_bpe_scratch *scratch) {
  const size_t bytes = sizeof(hri_bpe_word) * WAYS << SET_BITS, line = 64;
  if (scratch->serial != bpe->serial) {
    if (scratch->words) memset(scratch->words, 0, bytes);
    scratch->serial = bpe->serial;
  }
  if (scratch->words || scratch->memory || scratch->bytes_seen < 256) return;
  scratch->memory = hri_alloc_zero(1, bytes + line);
  if (!scratch->memory) return; /* slower, not wrong */
  scratch->words = (hri_bpe_word *)(((uintptr_t)scratch->memory + line - 1) / line * line);
}

static void word_key(const char *piece, uint32_t bytes, const char *limit, uint64_t key[2]) {
  if (limit - piece >= 16) {
    memcpy(key, piece, 16);
    if (bytes < 8) {
      key[0] &= ((uint64_t)1 << 8 * bytes) - 1;
      key[1] = 0;
    } else {
      key[1] &= ((uint64_t)1 << 8 * (bytes - 8)) - 1;
    }
  } else {
    char padded[16] = {0};
    memcpy(padded, piece, bytes);
    memcpy(key, padded, 16);
  }
  key[1] |= (uint64_t)bytes << 56;
}

static hri_bpe_word *word_set(const hri_bpe_scratch *scratch, const uint64_t key[2]) {
  uint64_t hash = (key[0] ^ (key[1] << 29 | key[1] >> 35)) * 0x9E3779B97F4A7C15u;
  return scratch->words + WAYS * (hash >> (64 - SET_BITS));
}

static bool word_is(const hri_bpe_word *word, const uint64_t key[2]) {
  return word->key[0] == key[0] && (word->key[1] & ~COUNT_MASK) == key[1];
}

static void remember(hri_bpe_scratch *scratch, const uint64_t key[2]) {
  hri_bpe_word *set = word_set(scratch, key);
  if (scratch->count == 0 || scratch->count > WORD_IDS || scratch->unknown) return;
  set[1] = set[0];
  set[0].key[0] = key[0];
  set[0].key[1] = key[1] | (uint64_t)scratch->count << COUNT_SHIFT;
  for (uint32_t i = 0; i < WORD_IDS; i++) set[0].ids[i] = i < scratch->count ? (int32_t)scratch->ids[i] : -1;
}

/* ---- Appending ---- */

static hr_status grow_tokens(hr_tokens *tokens, uint64_t want, hr_error *error) {
  uint64_t capacity = tokens->capacity < 64 ? 64 : tokens->capacity;
  int32_t *ids;
  while (capacity < want) capacity += capacity / 2;
  ids = hri_realloc(tokens->ids, capacity * sizeof *ids);
  if (!ids) return hri_fail_memory(error, capacity * sizeof *ids, "token ids");
  tokens->ids = ids;
  if (tokens->begin) { /* kept as long as ids */
    uint32_t *begin = hri_realloc(tokens->begin, capacity * sizeof *begin), *end;
    if (!begin) return hri_fail_memory(error, capacity * sizeof *begin, "token offsets");
    tokens->begin = begin;
    end = hri_realloc(tokens->end, capacity * sizeof *end);
    if (!end) return hri_fail_memory(error, capacity * sizeof *end, "token offsets");
    tokens->end = end;
  }
  tokens->capacity = capacity;
  return HR_OK;
}

hr_status hri_tokens_reserve(hr_tokens *tokens, uint64_t more, bool offsets, hr_error *error) {
  if (tokens->count + more > tokens->capacity) HRI_TRY(grow_tokens(tokens, tokens->count + more, error));
  if (offsets && !tokens->begin) {
    tokens->end = hri_alloc(tokens->capacity * sizeof *tokens->end);
    tokens->begin = tokens->end ? hri_alloc(tokens->capacity * sizeof *tokens->begin) : NULL;
    if (!tokens->begin) {
      hri_free(tokens->end);
      tokens->end = NULL;
      return hri_fail_memory(error, tokens->capacity * sizeof *tokens->end, "token offsets");
    }
  }
  return HR_OK;
}

/* Bytes of text behind a token of exact length. */
static uint32_t token_length(const hri_bpe *bpe, uint32_t id) {
  const char *content = hri_vocab_content(bpe->vocab, id);
  uint32_t bytes = bpe->vocab->bytes[id], count = 0;
  if (!bpe->byte_level) return is_fallback(bpe, id) ? 1 : bytes;
  for (uint32_t i = 0; i < bytes; i++) count += ((unsigned char)content[i] & 0xC0) != 0x80;
  return count;
}

/* The remembered ids of a word, if it is there. */
static bool recall(const hri_bpe *bpe, const hri_bpe_scratch *scratch, const uint64_t key[2], bool lengths,
                   hr_tokens *tokens) {
  const hri_bpe_word *word = word_set(scratch, key);
  uint64_t count;
  if (!word_is(word, key) && !word_is(++word, key)) return false;
  count = word->key[1] >> COUNT_SHIFT;
  memcpy(tokens->ids + tokens->count, word->ids, sizeof word->ids);
  if (lengths)
    for (uint64_t i = 0; i < count; i++) tokens->end[tokens->count + i] = token_length(bpe, (uint32_t)word->ids[i]);
  tokens->count += count;
  return true;
}

/* Encodes a piece and remembers it, when there is a key. */
static hr_status append_new(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes,
                            const uint64_t key[2], bool lengths, hr_tokens *tokens, hr_error *error) {
  HRI_TRY(encode_piece(bpe, scratch, piece, bytes, error));
  if (key) remember(scratch, key);
  HRI_TRY(hri_tokens_reserve(tokens, scratch->count, lengths, error));
  if (scratch->count) memcpy(tokens->ids + tokens->count, scratch->ids, scratch->count * sizeof *tokens->ids);
  if (lengths && scratch->count)
    memcpy(tokens->end + tokens->count, scratch->bytes, scratch->count * sizeof *tokens->end);
  tokens->count += scratch->count;
  return HR_OK;
}

static hr_status append_word(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes,
                             bool lengths, hr_tokens *tokens, hr_error *error) {
  uint64_t key[2];
  if (!scratch->words || bytes > WORD_BYTES || (lengths && !bpe->exact_lengths))
    return append_new(bpe, scratch, piece, bytes, NULL, lengths, tokens, error);
  HRI_TRY(hri_tokens_reserve(tokens, WORD_IDS, lengths, error));
  word_key(piece, bytes, scratch->limit, key);
  if (recall(bpe, scratch, key, lengths, tokens)) return HR_OK;
  return append_new(bpe, scratch, piece, bytes, key, lengths, tokens, error);
}

static void begin_words(const hri_bpe *bpe, hri_bpe_scratch *scratch, uint64_t bytes) {
  if (scratch->serial != bpe->serial || !scratch->words) words_begin(bpe, scratch);
  scratch->bytes_seen += bytes;
}

hr_status hri_bpe_append(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *piece, uint32_t bytes, bool lengths,
                         hr_tokens *tokens, hr_error *error) {
  const char *end = piece + bytes, *at = piece;
  begin_words(bpe, scratch, bytes);
  while (bpe->seams && (at = memchr(at + 1, seam_mark[0], (size_t)(end - at - 1)))) {
    if (!at_mark(at, (uint64_t)(end - at)) || is_blocker(bpe, character_before(piece, at))) continue;
    HRI_TRY(append_word(bpe, scratch, piece, (uint32_t)(at - piece), lengths, tokens, error));
    piece = at;
  }
  return append_word(bpe, scratch, piece, (uint32_t)(end - piece), lengths, tokens, error);
}

hr_status hri_bpe_append_all(const hri_bpe *bpe, hri_bpe_scratch *scratch, const char *text,
                             const hri_split_piece *pieces, uint32_t count, hr_tokens *tokens, hr_error *error) {
  uint64_t keys[HRI_BPE_BATCH][2];
  if (count == 0) return HR_OK;
  begin_words(bpe, scratch, pieces[count - 1].end - pieces[0].begin);
  if (bpe->seams || !scratch->words || count > HRI_BPE_BATCH) {
    for (uint32_t i = 0; i < count; i++)
      HRI_TRY(
          hri_bpe_append(bpe, scratch, text + pieces[i].begin, pieces[i].end - pieces[i].begin, false, tokens, error));
    return HR_OK;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t bytes = pieces[i].end - pieces[i].begin;
    if (bytes > WORD_BYTES) continue;
    word_key(text + pieces[i].begin, bytes, scratch->limit, keys[i]);
    __builtin_prefetch(word_set(scratch, keys[i]));
  }
  HRI_TRY(hri_tokens_reserve(tokens, (uint64_t)count * WORD_IDS, false, error));
  for (uint32_t i = 0; i < count; i++) {
    uint32_t bytes = pieces[i].end - pieces[i].begin;
    const uint64_t *key = bytes > WORD_BYTES ? NULL : keys[i];
    if (key && recall(bpe, scratch, key, false, tokens)) continue;
    HRI_TRY(append_new(bpe, scratch, text + pieces[i].begin, bytes, key, false, tokens, error));
    HRI_TRY(hri_tokens_reserve(tokens, (uint64_t)(count - i) * WORD_IDS, false, error));
  }
  return HR_OK;
}
