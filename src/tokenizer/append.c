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

/* Two tables: a set of two short words in a cache line, and a long word, or a short one of many ids, in one. */
enum { SHORT_BYTES = 15, SHORT_IDS = 4, SHORT_BITS = 16, WAYS = 2, LONG_BYTES = 31, LONG_IDS = 8, LONG_BITS = 14 };

/* The word padded with zeros; its last byte holds the length and, above, the number of ids. Of Unigram the last id is the
 * margin by which the word's path won. */
typedef struct short_word {
  uint64_t key[2];
  int32_t ids[SHORT_IDS];
} short_word;
typedef struct long_word { /* a short word has its own key here, and zeros behind it */
  uint64_t key[4];
  int32_t ids[LONG_IDS];
} long_word;

struct hri_known_words {
  short_word shorts[WAYS << SHORT_BITS];
  long_word longs[1 << LONG_BITS];
};

typedef struct word_key {
  uint64_t words[4];
} word_key;

#define SHORT_COUNT_SHIFT 60
#define LONG_COUNT_SHIFT 61 /* of the number less one; a length has five bits */
#define SHORT_COUNT_MASK ((uint64_t)15 << SHORT_COUNT_SHIFT)
#define LONG_COUNT_MASK ((uint64_t)7 << LONG_COUNT_SHIFT)
#define MULTIPLIER 0x9E3779B97F4A7C15u

/* Made when enough text has come to be worth 5 MiB; the system gives pages as they are touched. */
static void words_begin(const hr_tokenizer *t, hri_piece_work *work) {
  const size_t line = 64;
  if (work->serial != t->serial) {
    if (work->words) memset(work->words, 0, sizeof *work->words);
    work->serial = t->serial;
  }
  if (work->words || work->memory || work->bytes_seen < 256) return;
  work->memory = hri_alloc_zero(1, sizeof *work->words + line);
  if (!work->memory) return; /* slower, not wrong */
  work->words = (struct hri_known_words *)(((uintptr_t)work->memory + line - 1) / line * line);
}

/* The bytes of a word that lie in the first and in the second half of a short key. By table: lengths come in no order, and
 * a branch on them would be guessed wrong. */
#define FIRST(n) (((uint64_t)1 << 8 * (n)) - 1)
static const uint64_t in_key[SHORT_BYTES + 1][2] = {{FIRST(0), 0},          {FIRST(1), 0},
                                                    {FIRST(2), 0},          {FIRST(3), 0},
                                                    {FIRST(4), 0},          {FIRST(5), 0},
                                                    {FIRST(6), 0},          {FIRST(7), 0},
                                                    {UINT64_MAX, FIRST(0)}, {UINT64_MAX, FIRST(1)},
                                                    {UINT64_MAX, FIRST(2)}, {UINT64_MAX, FIRST(3)},
                                                    {UINT64_MAX, FIRST(4)}, {UINT64_MAX, FIRST(5)},
                                                    {UINT64_MAX, FIRST(6)}, {UINT64_MAX, FIRST(7)}};

/* Of a word of at most LONG_BYTES. */
static void make_key(const char *piece, uint32_t bytes, const char *limit, word_key *key) {
  memset(key, 0, sizeof *key);
  if (bytes > SHORT_BYTES) {
    memcpy(key, piece, bytes);
    key->words[3] |= (uint64_t)bytes << 56;
    return;
  }
  if (limit - piece >= 16) memcpy(key, piece, 16);
  else memcpy(key, piece, bytes);
  key->words[0] &= in_key[bytes][0];
  key->words[1] = (key->words[1] & in_key[bytes][1]) | (uint64_t)bytes << 56;
}

static short_word *short_set(const hri_piece_work *work, const word_key *key) {
  const uint64_t *k = key->words, hash = (k[0] ^ (k[1] << 29 | k[1] >> 35)) * MULTIPLIER;
  return work->words->shorts + WAYS * (hash >> (64 - SHORT_BITS));
}

static long_word *long_place(const hri_piece_work *work, const word_key *key) {
  const uint64_t *k = key->words, first = (k[0] ^ (k[1] << 29 | k[1] >> 35)) * MULTIPLIER;
  const uint64_t hash = (first ^ k[2] ^ (k[3] << 29 | k[3] >> 35)) * MULTIPLIER;
  return work->words->longs + (hash >> (64 - LONG_BITS));
}

static bool short_is(const short_word *word, const word_key *key) {
  return word->key[0] == key->words[0] && (word->key[1] & ~SHORT_COUNT_MASK) == key->words[1];
}

static bool long_is(const long_word *word, const word_key *key) {
  return memcmp(word->key, key->words, 3 * sizeof *word->key) == 0 &&
         (word->key[3] & ~LONG_COUNT_MASK) == key->words[3];
}

static void fetch_ahead(const hri_piece_work *work, const word_key *key, uint32_t bytes) {
  if (bytes <= SHORT_BYTES) __builtin_prefetch(short_set(work, key));
  else __builtin_prefetch(long_place(work, key));
}

/* The ids of the piece at hand to a word, -1 behind them, and the margin. */
static void put_ids(const hr_tokenizer *t, const hri_piece_work *work, int32_t *ids, uint32_t room) {
  for (uint32_t i = 0; i < room; i++) ids[i] = i < work->count ? (int32_t)work->ids[i] : -1;
  if (t->kind == HRI_MODEL_UNIGRAM) memcpy(&ids[room - 1], &work->margin, sizeof work->margin);
}

static void remember(const hr_tokenizer *t, hri_piece_work *work, const word_key *key, uint32_t bytes) {
  const uint32_t spare = t->kind == HRI_MODEL_UNIGRAM;
  if (work->count == 0 || work->count + spare > LONG_IDS || work->unknown) return;
  if (bytes <= SHORT_BYTES && work->count + spare <= SHORT_IDS) {
    short_word *set = short_set(work, key);
    if (!short_is(&set[0], key)) set[1] = set[0]; /* of Unigram it may be there, by too small a margin */
    set[0].key[0] = key->words[0];
    set[0].key[1] = key->words[1] | (uint64_t)work->count << SHORT_COUNT_SHIFT;
    put_ids(t, work, set[0].ids, SHORT_IDS);
  } else {
    long_word *word = long_place(work, key);
    memcpy(word->key, key->words, sizeof word->key);
    word->key[3] |= (uint64_t)(work->count - 1) << LONG_COUNT_SHIFT;
    put_ids(t, work, word->ids, LONG_IDS);
  }
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
static bool holds(const hr_tokenizer *t, const hri_piece_work *work, const int32_t *last_id) {
  float margin;
  if (t->kind != HRI_MODEL_UNIGRAM || !t->unigram.seams.on) return true;
  memcpy(&margin, last_id, sizeof margin);
  return hri_unigram_holds(&t->unigram, work, margin);
}

/* The remembered ids of a word, if it is there; there is room for LONG_IDS. */
static bool recall(const hr_tokenizer *t, const hri_piece_work *work, const word_key *key, uint32_t bytes, bool lengths,
                   hr_tokens *tokens) {
  int32_t *to = tokens->ids + tokens->count;
  const short_word *word = short_set(work, key);
  uint64_t count;
  word += !short_is(word, key); /* either way is as likely */
  if (bytes <= SHORT_BYTES && short_is(word, key)) {
    if (!holds(t, work, &word->ids[SHORT_IDS - 1])) return false;
    count = word->key[1] >> SHORT_COUNT_SHIFT;
    memcpy(to, word->ids, sizeof word->ids);
  } else {
    const long_word *other = long_place(work, key);
    if (!long_is(other, key) || !holds(t, work, &other->ids[LONG_IDS - 1])) return false;
    count = (other->key[3] >> LONG_COUNT_SHIFT) + 1;
    memcpy(to, other->ids, sizeof other->ids);
  }
  if (lengths)
    for (uint64_t i = 0; i < count; i++) tokens->end[tokens->count + i] = token_bytes(t, (uint32_t)to[i], i);
  tokens->count += count;
  return true;
}

/* Encodes a piece and remembers it, when there is a key. */
static hr_status append_new(const hr_tokenizer *t, hri_piece_work *work, const char *piece, uint32_t bytes,
                            const word_key *key, bool lengths, hr_tokens *tokens, hr_error *error) {
  HRI_TRY(encode_piece(t, work, tokens, piece, bytes, error));
  if (key) remember(t, work, key, bytes);
  HRI_TRY(hri_tokens_reserve(tokens, work->count, lengths, error));
  if (work->count) memcpy(tokens->ids + tokens->count, work->ids, work->count * sizeof *tokens->ids);
  if (lengths && work->count) memcpy(tokens->end + tokens->count, work->bytes, work->count * sizeof *tokens->end);
  tokens->count += work->count;
  work->summed = tokens->count;
  return HR_OK;
}

static hr_status append_word(const hr_tokenizer *t, hri_piece_work *work, const char *piece, uint32_t bytes,
                             bool lengths, hr_tokens *tokens, hr_error *error) {
  word_key key;
  hr_status status = HR_OK;
  if (!work->words || bytes > LONG_BYTES || (lengths && t->kind == HRI_MODEL_BPE && !t->bpe.exact_lengths)) {
    status = append_new(t, work, piece, bytes, NULL, lengths, tokens, error);
  } else {
    HRI_TRY(hri_tokens_reserve(tokens, LONG_IDS, lengths, error));
    make_key(piece, bytes, work->limit, &key);
    if (!recall(t, work, &key, bytes, lengths, tokens))
      status = append_new(t, work, piece, bytes, &key, lengths, tokens, error);
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
  word_key keys[HRI_APPEND_BATCH];
  bool keyed[HRI_APPEND_BATCH];
  const hri_seams *seams = seams_of(t);
  if (count == 0) return HR_OK;
  begin_words(t, work, pieces[count - 1].end - pieces[0].begin);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t bytes = pieces[i].end - pieces[i].begin;
    keyed[i] = work->words && bytes <= LONG_BYTES && !has_seam(seams, text + pieces[i].begin, bytes);
    if (!keyed[i]) continue;
    make_key(text + pieces[i].begin, bytes, work->limit, &keys[i]);
    fetch_ahead(work, &keys[i], bytes);
  }
  HRI_TRY(hri_tokens_reserve(tokens, (uint64_t)count * LONG_IDS, false, error));
  for (uint32_t i = 0; i < count; i++) {
    const char *piece = text + pieces[i].begin;
    uint32_t bytes = pieces[i].end - pieces[i].begin;
    if (t->kind == HRI_MODEL_UNIGRAM) hri_unigram_piece(work, tokens->count);
    if (keyed[i] && recall(t, work, &keys[i], bytes, false, tokens)) continue;
    if (!keyed[i] && seams->on) HRI_TRY(hri_append(t, work, piece, bytes, false, tokens, error));
    else HRI_TRY(append_new(t, work, piece, bytes, keyed[i] ? &keys[i] : NULL, false, tokens, error));
    HRI_TRY(hri_tokens_reserve(tokens, (uint64_t)(count - i) * LONG_IDS, false, error));
  }
  return HR_OK;
}
