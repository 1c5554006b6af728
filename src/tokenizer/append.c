/* From a piece of text to ids: the table of known words first, else the model of the tokenizer, and what it made is
 * remembered where that holds anywhere (for Unigram: by the margin of its path). */
#include "tokenizer/append.h"

/* ---- The model of a tokenizer ---- */

static hr_status encode_piece(const hr_tokenizer *t, hri_piece_work *work, const hr_tokens *tokens, const char *piece,
                              uint32_t bytes, hr_error *error) {
  switch (t->kind) {
  case HRI_MODEL_BPE: return hri_bpe_encode(&t->bpe, work, piece, bytes, error);
  case HRI_MODEL_UNIGRAM: return hri_unigram_encode(&t->unigram, work, tokens, piece, bytes, error);
  case HRI_MODEL_WORDPIECE: return hri_wordpiece_encode(&t->wordpiece, work, piece, bytes, error);
  }
  return HR_OK;
}

static const hri_seams *seams_of(const hr_tokenizer *t) {
  static const hri_seams none = {0};
  return t->kind == HRI_MODEL_BPE ? &t->bpe.seams : t->kind == HRI_MODEL_UNIGRAM ? &t->unigram.seams : &none;
}

/* Bytes of text behind the index-th token of a remembered word. */
static uint32_t token_bytes(const hr_tokenizer *t, uint32_t id, uint64_t index) {
  switch (t->kind) {
  case HRI_MODEL_BPE: return hri_bpe_token_bytes(&t->bpe, id);
  case HRI_MODEL_UNIGRAM: return t->vocab.bytes[id];
  case HRI_MODEL_WORDPIECE: return t->vocab.bytes[id] - (index ? t->wordpiece.prefix_bytes : 0);
  }
  return 0;
}

/* ---- Remembered words ---- */

enum { WORD_BYTES = 15, WORD_IDS = 4, SET_BITS = 15, WAYS = 2 };

/* The word padded with zeros; its last byte holds the length and, above, the number of ids. Of Unigram the last id is the
 * margin by which the word's path won. */
typedef struct hri_known_word {
  uint64_t key[2];
  int32_t ids[WORD_IDS];
} hri_known_word;

#define COUNT_SHIFT 60
#define COUNT_MASK ((uint64_t)15 << COUNT_SHIFT)

/* Made when enough text has come to be worth 2 MiB; the system gives pages as they are touched. */
static void words_begin(const hr_tokenizer *t, hri_piece_work *work) {
  const size_t bytes = sizeof(hri_known_word) * WAYS << SET_BITS, line = 64;
  if (work->serial != t->serial) {
    if (work->words) memset(work->words, 0, bytes);
    work->serial = t->serial;
  }
  if (work->words || work->memory || work->bytes_seen < 256) return;
  work->memory = hri_alloc_zero(1, bytes + line);
  if (!work->memory) return; /* slower, not wrong */
  work->words = (hri_known_word *)(((uintptr_t)work->memory + line - 1) / line * line);
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

static hri_known_word *word_set(const hri_piece_work *work, const uint64_t key[2]) {
  uint64_t hash = (key[0] ^ (key[1] << 29 | key[1] >> 35)) * 0x9E3779B97F4A7C15u;
  return work->words + WAYS * (hash >> (64 - SET_BITS));
}

static bool word_is(const hri_known_word *word, const uint64_t key[2]) {
  return word->key[0] == key[0] && (word->key[1] & ~COUNT_MASK) == key[1];
}

static void remember(const hr_tokenizer *t, hri_piece_work *work, const uint64_t key[2]) {
  hri_known_word *set = word_set(work, key);
  const uint32_t most = t->kind == HRI_MODEL_UNIGRAM ? WORD_IDS - 1 : WORD_IDS;
  if (work->count == 0 || work->count > most || work->unknown) return;
  if (!word_is(&set[0], key)) set[1] = set[0]; /* of Unigram it may be there, by too small a margin */
  set[0].key[0] = key[0];
  set[0].key[1] = key[1] | (uint64_t)work->count << COUNT_SHIFT;
  for (uint32_t i = 0; i < WORD_IDS; i++) set[0].ids[i] = i < work->count ? (int32_t)work->ids[i] : -1;
  if (t->kind == HRI_MODEL_UNIGRAM) memcpy(&set[0].ids[WORD_IDS - 1], &work->margin, sizeof work->margin);
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

/* Of Unigram a word counts where its path would win with the sum at hand too. */
static bool holds(const hr_tokenizer *t, const hri_piece_work *work, const hri_known_word *word) {
  float margin;
  if (t->kind != HRI_MODEL_UNIGRAM || !t->unigram.seams.on) return true;
  memcpy(&margin, &word->ids[WORD_IDS - 1], sizeof margin);
  return hri_unigram_holds(&t->unigram, work, margin);
}

/* The remembered ids of a word, if it is there. */
static bool recall(const hr_tokenizer *t, const hri_piece_work *work, const uint64_t key[2], bool lengths,
                   hr_tokens *tokens) {
  const hri_known_word *word = word_set(work, key);
  uint64_t count;
  if (!word_is(word, key) && !word_is(++word, key)) return false;
  if (!holds(t, work, word)) return false;
  count = word->key[1] >> COUNT_SHIFT;
  memcpy(tokens->ids + tokens->count, word->ids, sizeof word->ids);
  if (lengths)
    for (uint64_t i = 0; i < count; i++) tokens->end[tokens->count + i] = token_bytes(t, (uint32_t)word->ids[i], i);
  tokens->count += count;
  return true;
}

/* Encodes a piece and remembers it, when there is a key. */
static hr_status append_new(const hr_tokenizer *t, hri_piece_work *work, const char *piece, uint32_t bytes,
                            const uint64_t key[2], bool lengths, hr_tokens *tokens, hr_error *error) {
  HRI_TRY(encode_piece(t, work, tokens, piece, bytes, error));
  if (key) remember(t, work, key);
  HRI_TRY(hri_tokens_reserve(tokens, work->count, lengths, error));
  if (work->count) memcpy(tokens->ids + tokens->count, work->ids, work->count * sizeof *tokens->ids);
  if (lengths && work->count) memcpy(tokens->end + tokens->count, work->bytes, work->count * sizeof *tokens->end);
  tokens->count += work->count;
  work->summed = tokens->count;
  return HR_OK;
}

static hr_status append_word(const hr_tokenizer *t, hri_piece_work *work, const char *piece, uint32_t bytes,
                             bool lengths, hr_tokens *tokens, hr_error *error) {
  uint64_t key[2];
  hr_status status = HR_OK;
  if (!work->words || bytes > WORD_BYTES || (lengths && t->kind == HRI_MODEL_BPE && !t->bpe.exact_lengths)) {
    status = append_new(t, work, piece, bytes, NULL, lengths, tokens, error);
  } else {
    HRI_TRY(hri_tokens_reserve(tokens, WORD_IDS, lengths, error));
    word_key(piece, bytes, work->limit, key);
    if (!recall(t, work, key, lengths, tokens)) status = append_new(t, work, piece, bytes, key, lengths, tokens, error);
  }
  work->spent += bytes;
  return status;
}

static void begin_words(const hr_tokenizer *t, hri_piece_work *work, uint64_t bytes) {
  if (work->serial != t->serial || !work->words) words_begin(t, work);
  work->bytes_seen += bytes;
}

hr_status hri_append(const hr_tokenizer *t, hri_piece_work *work, const char *piece, uint32_t bytes, bool lengths,
                     hr_tokens *tokens, hr_error *error) {
  const char *end = piece + bytes, *at = piece;
  const hri_seams *seams = seams_of(t);
  begin_words(t, work, bytes);
  hri_unigram_piece(work, tokens->count);
  while (seams->on && (at = memchr(at + 1, '\xE2', (size_t)(end - at - 1)))) {
    if (!hri_seam_at(seams, piece, at, end)) continue;
    HRI_TRY(append_word(t, work, piece, (uint32_t)(at - piece), lengths, tokens, error));
    piece = at;
  }
  return append_word(t, work, piece, (uint32_t)(end - piece), lengths, tokens, error);
}

/* Whether a piece has to be cut at seams. */
static bool has_seam(const hri_seams *seams, const char *piece, uint32_t bytes) {
  return seams->on && bytes > 1 && memchr(piece + 1, '\xE2', bytes - 1);
}

hr_status hri_append_all(const hr_tokenizer *t, hri_piece_work *work, const char *text, const hri_split_piece *pieces,
                         uint32_t count, hr_tokens *tokens, hr_error *error) {
  uint64_t keys[HRI_APPEND_BATCH][2];
  bool keyed[HRI_APPEND_BATCH];
  const hri_seams *seams = seams_of(t);
  if (count == 0) return HR_OK;
  begin_words(t, work, pieces[count - 1].end - pieces[0].begin);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t bytes = pieces[i].end - pieces[i].begin;
    keyed[i] = work->words && bytes <= WORD_BYTES && !has_seam(seams, text + pieces[i].begin, bytes);
    if (!keyed[i]) continue;
    word_key(text + pieces[i].begin, bytes, work->limit, keys[i]);
    __builtin_prefetch(word_set(work, keys[i]));
  }
  HRI_TRY(hri_tokens_reserve(tokens, (uint64_t)count * WORD_IDS, false, error));
  for (uint32_t i = 0; i < count; i++) {
    const char *piece = text + pieces[i].begin;
    uint32_t bytes = pieces[i].end - pieces[i].begin;
    if (t->kind == HRI_MODEL_UNIGRAM) hri_unigram_piece(work, tokens->count);
    if (keyed[i] && recall(t, work, keys[i], false, tokens)) continue;
    if (!keyed[i] && seams->on) HRI_TRY(hri_append(t, work, piece, bytes, false, tokens, error));
    else HRI_TRY(append_new(t, work, piece, bytes, keyed[i] ? keys[i] : NULL, false, tokens, error));
    HRI_TRY(hri_tokens_reserve(tokens, (uint64_t)(count - i) * WORD_IDS, false, error));
  }
  return HR_OK;
}
