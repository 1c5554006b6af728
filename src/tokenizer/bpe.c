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

/* ---- Seams: where no merge reaches across ---- */

/* Tokens that stand for a byte or for an unknown character end in something else than their content says. */
static bool find_blockers(hri_bpe *bpe) {
  const hri_vocab *vocab = bpe->vocab;
  if (hri_vocab_find_model(vocab, "\xE2\x96\x81", HRI_SEAM_BYTES) == HRI_TOKEN_NONE) return false;
  for (uint64_t i = 0; i <= bpe->merge_mask; i++) {
    uint32_t left = (uint32_t)(bpe->merges[i].pair >> 32), right = (uint32_t)bpe->merges[i].pair;
    const char *content = hri_vocab_content(vocab, left);
    if (bpe->merges[i].rank == HRI_TOKEN_NONE) continue;
    if (is_fallback(bpe, left) || is_fallback(bpe, right) || left == bpe->unk || right == bpe->unk) return false;
    if (!hri_seam_mark(hri_vocab_content(vocab, right), vocab->bytes[right])) continue;
    if (!hri_seams_block(&bpe->seams, content, content + vocab->bytes[left])) return false;
  }
  return true;
}

hr_status hri_bpe_finish(hri_bpe *bpe, hr_error *error) {
  if (!bpe->merges) HRI_TRY(grow_merges(bpe, error));
  find_bytes(bpe);
  bpe->exact_lengths = !bpe->prefix && !bpe->suffix && (!bpe->byte_level || bpe->direct);
  if (bpe->byte_level || bpe->ignore_merges || bpe->prefix || bpe->suffix) return HR_OK;
  HRI_TRY(hri_seams_begin(&bpe->seams, error));
  bpe->seams.on = find_blockers(bpe);
  if (!bpe->seams.on) bpe->exact_lengths = false; /* it may be that bytes or unknown characters merge */
  return HR_OK;
}

void hri_bpe_deinit(hri_bpe *bpe) {
  hri_free(bpe->merges);
  hri_free(bpe->prefix);
  hri_free(bpe->suffix);
  hri_seams_deinit(&bpe->seams);
  *bpe = (hri_bpe){0};
}

/* ---- Symbols of a piece ---- */

static hr_status direct_symbols(const hri_bpe *bpe, hri_piece_work *work, const char *piece, uint32_t bytes,
                                hr_error *error) {
  HRI_TRY(hri_piece_room(work, bytes, error));
  for (uint32_t i = 0; i < bytes; i++) {
    work->ids[i] = bpe->byte_ids[(unsigned char)piece[i]];
    work->bytes[i] = 1;
  }
  work->count = bytes;
  return HR_OK;
}

enum { AFFIX_BYTES = 64 };

/* The bytes of a character, each as its own token; false when one of them is missing. */
static bool fall_back(const hri_bpe *bpe, hri_piece_work *work, const char *character, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i++)
    if (bpe->fallback_ids[(unsigned char)character[i]] == HRI_TOKEN_NONE) return false;
  for (uint32_t i = 0; i < bytes; i++)
    hri_piece_add(work, bpe->fallback_ids[(unsigned char)character[i]], bpe->byte_level ? i + 1 == bytes : 1);
  return true;
}

static hr_status fail_unknown(const char *symbol, uint32_t length, hr_error *error) {
  (void)hri_fail(error, HR_ERROR_INPUT,
                 "the tokenizer has no token for '%.*s', and model.unk_token is not in its vocabulary either",
                 (int)length, symbol);
  return hri_hint(error, HR_ERROR_INPUT,
                  "give model.vocab the characters that texts have, or correct model.unk_token in tokenizer.json");
}

/* Pieces by character (by byte, when the vocabulary is in the byte alphabet), with prefix, suffix, bytes and unknown.
 * As in
 * the reference, an unknown character waits for the next known one, so that it comes behind bytes that follow it. */
static hr_status general_symbols(const hri_bpe *bpe, hri_piece_work *work, const char *piece, uint32_t bytes,
                                 hr_error *error) {
  uint32_t prefix = bpe->prefix ? (uint32_t)strlen(bpe->prefix) : 0,
           suffix = bpe->suffix ? (uint32_t)strlen(bpe->suffix) : 0;
  uint32_t unknown = 0, width; /* bytes of text of unknown characters not yet written */
  for (uint32_t at = 0; at < bytes; at += width) {
    char symbol[2 * AFFIX_BYTES + 8];
    uint32_t length = 0, id;
    width = bpe->byte_level ? 1 : hri_char_bytes(piece[at]);
    if (width > bytes - at) width = bytes - at;
    HRI_TRY(hri_piece_room(work, work->count + prefix + suffix + 8, error));
    if (at > 0) memcpy(symbol, bpe->prefix ? bpe->prefix : "", length = prefix);
    if (bpe->byte_level) length += put_character(symbol + length, hri_byte_chars[(unsigned char)piece[at]]);
    else
      for (uint32_t i = 0; i < width; i++) symbol[length++] = piece[at + i];
    if (at + width == bytes && suffix) {
      memcpy(symbol + length, bpe->suffix, suffix);
      length += suffix;
    }
    id = length == 1 ? bpe->ascii_ids[symbol[0] & 127] : hri_vocab_find_model(bpe->vocab, symbol, length);
    if (id == HRI_TOKEN_NONE && bpe->byte_fallback && fall_back(bpe, work, symbol, length)) continue;
    if (unknown && (id != HRI_TOKEN_NONE || !bpe->fuse_unk)) {
      hri_piece_add(work, bpe->unk, unknown);
      unknown = 0;
    }
    if (id != HRI_TOKEN_NONE) hri_piece_add(work, id, width);
    else if (bpe->unk != HRI_TOKEN_NONE) unknown += width;
    else if (bpe->unk_missing) return fail_unknown(symbol, length, error);
    work->unknown = work->unknown || unknown;
  }
  HRI_TRY(hri_piece_room(work, work->count + 1, error));
  if (unknown) hri_piece_add(work, bpe->unk, unknown);
  return HR_OK;
}

/* ---- Merging ---- */

enum { FEW = 32 };

static void merge_few(const hri_bpe *bpe, hri_piece_work *work) {
  uint32_t *ids = work->ids, *bytes = work->bytes, count = (uint32_t)work->count;
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
  work->count = count;
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

static void heap_push(hri_piece_work *work, uint64_t value) {
  uint64_t at = work->heap_count++;
  for (; at > 0 && work->heap[(at - 1) / 2] > value; at = (at - 1) / 2) work->heap[at] = work->heap[(at - 1) / 2];
  work->heap[at] = value;
}

static void push_pair(const hri_bpe *bpe, hri_piece_work *work, uint32_t at) {
  const hri_bpe_merge *merge = merge_find(bpe, work->ids[at], work->ids[work->next[at]]);
  if (merge->rank != HRI_TOKEN_NONE) heap_push(work, (uint64_t)merge->rank << 32 | at);
}

/* Links the symbols and fills the heap. Each merge takes one entry and makes two at most, and there are fewer merges
 * than symbols: twice their number is room enough. */
static hr_status heap_begin(const hri_bpe *bpe, hri_piece_work *work, hr_error *error) {
  uint64_t count = work->count;
  if (work->heap_capacity < 2 * count) {
    uint64_t *heap = hri_realloc(work->heap, 2 * work->capacity * sizeof *heap);
    if (!heap) return hri_fail_memory(error, 2 * work->capacity * sizeof *heap, "a long piece of text");
    work->heap = heap;
    work->heap_capacity = 2 * work->capacity;
  }
  work->heap_count = 0;
  for (uint64_t i = 0; i < count; i++) {
    work->prior[i] = i ? (uint32_t)(i - 1) : HRI_TOKEN_NONE;
    work->next[i] = i + 1 < count ? (uint32_t)(i + 1) : HRI_TOKEN_NONE;
    if (i + 1 < count) {
      const hri_bpe_merge *merge = merge_find(bpe, work->ids[i], work->ids[i + 1]);
      if (merge->rank != HRI_TOKEN_NONE) work->heap[work->heap_count++] = (uint64_t)merge->rank << 32 | i;
    }
  }
  for (uint64_t i = work->heap_count / 2; i-- > 0;) heap_sink(work->heap, work->heap_count, i);
  return HR_OK;
}

/* A symbol that was merged into its left neighbour has no bytes and the id NONE. */
static hr_status merge_many(const hri_bpe *bpe, hri_piece_work *work, hr_error *error) {
  uint32_t *ids = work->ids, *next = work->next, *prior = work->prior;
  uint64_t kept = 0;
  HRI_TRY(heap_begin(bpe, work, error));
  while (work->heap_count) {
    uint64_t top = work->heap[0];
    uint32_t at = (uint32_t)top, right;
    const hri_bpe_merge *merge;
    work->heap[0] = work->heap[--work->heap_count];
    if (work->heap_count) heap_sink(work->heap, work->heap_count, 0);
    if (ids[at] == HRI_TOKEN_NONE || next[at] == HRI_TOKEN_NONE) continue;
    right = next[at];
    merge = merge_find(bpe, ids[at], ids[right]);
    if (merge->rank != top >> 32) continue;
    ids[at] = merge->result;
    ids[right] = HRI_TOKEN_NONE;
    work->bytes[at] += work->bytes[right];
    next[at] = next[right];
    if (next[at] != HRI_TOKEN_NONE) {
      prior[next[at]] = at;
      push_pair(bpe, work, at);
    }
    if (prior[at] != HRI_TOKEN_NONE) push_pair(bpe, work, prior[at]);
  }
  for (uint64_t i = 0; i < work->count; i++) {
    if (ids[i] == HRI_TOKEN_NONE) continue;
    ids[kept] = ids[i];
    work->bytes[kept++] = work->bytes[i];
  }
  work->count = kept;
  return HR_OK;
}

/* A piece that is a token as it stands; only asked for with ignore_merges. */
static uint32_t whole_token(const hri_bpe *bpe, hri_piece_work *work, const char *piece, uint32_t bytes) {
  if (!bpe->byte_level) return hri_vocab_find_model(bpe->vocab, piece, bytes);
  work->mapped.length = 0;
  hri_bytes_map(&work->mapped, piece, bytes);
  if (work->mapped.failed) return HRI_TOKEN_NONE;
  return hri_vocab_find_model(bpe->vocab, work->mapped.chars, work->mapped.length);
}

hr_status hri_bpe_encode(const hri_bpe *bpe, hri_piece_work *work, const char *piece, uint32_t bytes, hr_error *error) {
  work->count = 0;
  work->unknown = false;
  if (bpe->ignore_merges) {
    uint32_t whole = whole_token(bpe, work, piece, bytes);
    if (work->mapped.failed) return hri_fail_memory(error, 2 * (uint64_t)bytes, "a long piece of text");
    if (whole != HRI_TOKEN_NONE) {
      HRI_TRY(hri_piece_room(work, 1, error));
      hri_piece_add(work, whole, bytes);
      return HR_OK;
    }
  }
  if (bpe->direct) HRI_TRY(direct_symbols(bpe, work, piece, bytes, error));
  else HRI_TRY(general_symbols(bpe, work, piece, bytes, error));
  if (work->count > FEW) return merge_many(bpe, work, error);
  merge_few(bpe, work);
  return HR_OK;
}

uint32_t hri_bpe_token_bytes(const hri_bpe *bpe, uint32_t id) {
  const char *content = hri_vocab_content(bpe->vocab, id);
  uint32_t bytes = bpe->vocab->bytes[id], count = 0;
  if (!bpe->byte_level) return is_fallback(bpe, id) ? 1 : bytes;
  for (uint32_t i = 0; i < bytes; i++) count += ((unsigned char)content[i] & 0xC0) != 0x80;
  return count;
}
