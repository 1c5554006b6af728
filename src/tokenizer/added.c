/* Added tokens (huggingface/tokenizers: added_vocabulary.rs).
 *
 * Matching is leftmost, and longest at the same place. A match that its token does not allow (single_word, or a special
 * token in plain text) is passed over whole: the search goes on behind it. */
#include "tokenizer/added.h"

#include <stdlib.h>

#include "tokenizer/unicode.h"

const hri_added_token *hri_added_get(const hri_added *added, uint32_t id) {
  if (id >= added->by_id_count || added->by_id[id] == HRI_TOKEN_NONE) return NULL;
  return &added->list.items[added->by_id[id]];
}

static hr_status index_token(hri_added *added, uint32_t id, uint32_t index, hr_error *error) {
  if (id >= added->by_id_count) {
    uint32_t count = id + 1 + id / 2;
    uint32_t *by_id = hri_realloc(added->by_id, count * sizeof *by_id);
    if (!by_id) return hri_fail_memory(error, count * sizeof *by_id, "added tokens");
    for (uint32_t i = added->by_id_count; i < count; i++) by_id[i] = HRI_TOKEN_NONE;
    added->by_id = by_id;
    added->by_id_count = count;
  }
  added->by_id[id] = index;
  return HR_OK;
}

/* The id of a token that the vocabulary does not have: one behind the highest added id, at least the number of the model's
 * tokens. Where their ids have holes the reference gives it the id of one of them, and two tokens are one; no model was
 * trained so, and ids of our own choice would be other ones. */
static hr_status next_id(const hr_tokenizer *tokenizer, const char *content, uint32_t *id, hr_error *error) {
  const hri_vocab *vocab = &tokenizer->vocab;
  const uint32_t next = tokenizer->added.next_id, model = vocab->model_count;
  *id = next > model ? next : model;
  if (*id > HRI_VOCAB_MAX_ID)
    return hri_fail(error, HR_ERROR_INPUT, "added token '%.60s' would get an id above %d", content, HRI_VOCAB_MAX_ID);
  if (!hri_vocab_has(vocab, *id)) return HR_OK;
  return hri_hint(
      error,
      hri_fail(error, HR_ERROR_INPUT,
               "%s: the added token '%.60s' would get the id %u, which is that of '%.60s': the vocabulary has "
               "%u tokens, but their ids have holes",
               tokenizer->file, content, *id, hri_vocab_content(vocab, *id), model),
      "put the added token into the vocabulary with its id, or fill the holes; or fetch the file anew, if it is damaged");
}

hr_status hri_added_put(hr_tokenizer *tokenizer, const char *content, uint64_t bytes, hri_added_token flags,
                        hr_error *error) {
  hri_added *added = &tokenizer->added;
  uint32_t id = hri_vocab_find(&tokenizer->vocab, content, bytes);
  if (bytes == 0) return HR_OK;
  if (id == HRI_TOKEN_NONE) {
    HRI_TRY(next_id(tokenizer, content, &id, error));
    HRI_TRY(hri_vocab_add(&tokenizer->vocab, content, bytes, id, 0, error));
  }
  flags.id = id;
  if (hri_added_get(added, id)) {
    added->list.items[added->by_id[id]] = flags;
  } else {
    if (!hri_array_push(&added->list, flags)) return hri_fail_memory(error, sizeof flags, "added tokens");
    HRI_TRY(index_token(added, id, (uint32_t)(added->list.count - 1), error));
    if (id >= added->next_id) added->next_id = id + 1;
  }
  /* A token that was once special stays so when decoding, as in the reference. */
  tokenizer->vocab.flags[id] |= (uint8_t)(HRI_TOKEN_ADDED | (flags.special ? HRI_TOKEN_SPECIAL : 0));
  return HR_OK;
}

/* ---- Patterns ---- */

static int compare_patterns(const void *left, const void *right) {
  const hri_pattern *a = left, *b = right;
  int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
  if (order != 0) return order;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

static void sort_patterns(hri_pattern_set *set) {
  size_t kept = 0;
  uint32_t starts = 0;
  if (set->list.count) qsort(set->list.items, set->list.count, sizeof *set->list.items, compare_patterns);
  for (size_t i = 0; i < set->list.count; i++) {
    hri_pattern *pattern = &set->list.items[i], *last = kept ? &set->list.items[kept - 1] : NULL;
    if (last && last->bytes == pattern->bytes && memcmp(last->text, pattern->text, pattern->bytes) == 0)
      hri_free(pattern->text);
    else set->list.items[kept++] = *pattern;
  }
  set->list.count = kept;
  set->only = -1;
  for (uint32_t byte = 0, i = 0; byte <= 256; byte++) {
    set->first[byte] = i;
    while (byte < 256 && i < kept && (unsigned char)set->list.items[i].text[0] == byte) i++;
    if (byte < 256 && i > set->first[byte]) {
      starts++;
      set->only = (int)byte;
    }
  }
  if (starts != 1) set->only = -1;
}

/* At each place of a text as many bytes may be looked at as the longest token has. */
static hr_status check_bytes(const hr_tokenizer *tokenizer, const hri_added_token *token, uint64_t bytes,
                             hr_error *error) {
  if (bytes <= HRI_ADDED_MAX_BYTES) return HR_OK;
  return hri_hint(error,
                  hri_fail(error, HR_ERROR_INPUT,
                           "%s: the added token '%.60s...' has %llu bytes, at most %d are supported", tokenizer->file,
                           hri_vocab_content(&tokenizer->vocab, token->id), (unsigned long long)bytes,
                           HRI_ADDED_MAX_BYTES),
                  "take it out of added_tokens: a token of the vocabulary may be longer");
}

static hr_status add_pattern(hri_pattern_set *set, const char *text, uint64_t bytes, uint32_t id, uint32_t order,
                             hr_error *error) {
  hri_pattern pattern = {.bytes = (uint32_t)bytes, .id = id, .order = order};
  if (bytes == 0) return HR_OK;
  pattern.text = hri_alloc(bytes);
  if (!pattern.text) return hri_fail_memory(error, bytes, "added tokens");
  memcpy(pattern.text, text, bytes);
  if (hri_array_push(&set->list, pattern)) return HR_OK;
  hri_free(pattern.text);
  return hri_fail_memory(error, sizeof pattern, "added tokens");
}

/* A normalized token is searched for in normalized text, by its normalized content, and decodes to it. The reference finds
 * one of no characters before each character, where it cuts the text. */
static hr_status add_normalized(hr_tokenizer *tokenizer, hri_added_token *token, const char *text, uint64_t bytes,
                                uint32_t order, hr_error *error) {
  const hri_vocab *vocab = &tokenizer->vocab;
  HRI_TRY(check_bytes(tokenizer, token, bytes, error));
  if (bytes == 0) {
    uint32_t width = vocab->bytes[token->id] < 60 ? vocab->bytes[token->id] : 60;
    return hri_hint(error,
                    hri_fail(error, HR_ERROR_INPUT,
                             "%s: nothing is left of the added token '%.*s' when it is normalized", tokenizer->file,
                             (int)width, hri_vocab_content(vocab, token->id)),
                    "say \"normalized\": false of it, so that it is found as it stands");
  }
  if (bytes != vocab->bytes[token->id] || memcmp(text, hri_vocab_content(vocab, token->id), bytes) != 0) {
    token->decoded = hri_alloc(bytes);
    if (!token->decoded) return hri_fail_memory(error, bytes, "added tokens");
    memcpy(token->decoded, text, bytes);
    token->decoded_bytes = (uint32_t)bytes;
  }
  return add_pattern(&tokenizer->added.normalized, text, bytes, token->id, order, error);
}

static hr_status add_token(hr_tokenizer *tokenizer, hri_added_token *token, uint32_t order, hri_normal *normal,
                           hri_text *mapped, hr_error *error) {
  const char *content = hri_vocab_content(&tokenizer->vocab, token->id);
  uint64_t bytes = tokenizer->vocab.bytes[token->id];
  HRI_TRY(check_bytes(tokenizer, token, bytes, error));
  if (!token->normalized) return add_pattern(&tokenizer->added.raw, content, bytes, token->id, order, error);
  if (token->verbatim) return add_pattern(&tokenizer->added.normalized, content, bytes, token->id, order, error);
  HRI_TRY(hri_normal_begin(normal, content, bytes, false, error));
  HRI_TRY(hri_normalizer_apply(tokenizer->normalizer, normal, error));
  if (!tokenizer->normalizer_maps) return add_normalized(tokenizer, token, normal->text, normal->bytes, order, error);
  mapped->length = 0;
  hri_bytes_map(mapped, normal->text, normal->bytes);
  if (mapped->failed) return hri_fail_memory(error, 2 * normal->bytes, "added tokens");
  return add_normalized(tokenizer, token, hri_text_get(mapped), mapped->length, order, error);
}

static void clear_set(hri_pattern_set *set) {
  for (size_t i = 0; i < set->list.count; i++) hri_free(set->list.items[i].text);
  hri_array_free(&set->list);
}

/* Special tokens come before the others, each in the order of the file. */
hr_status hri_added_finish(hr_tokenizer *tokenizer, hr_error *error) {
  hri_added *added = &tokenizer->added;
  hri_normal normal = {0};
  hri_text mapped = {0};
  hr_status status = HR_OK;
  uint32_t order = 0;
  for (uint32_t round = 0; round < 2 && status == HR_OK; round++)
    for (size_t i = 0; i < added->list.count && status == HR_OK; i++)
      if (added->list.items[i].special == (round == 0))
        status = add_token(tokenizer, &added->list.items[i], order++, &normal, &mapped, error);
  hri_normal_deinit(&normal);
  hri_text_deinit(&mapped);
  HRI_TRY(status);
  sort_patterns(&added->raw);
  sort_patterns(&added->normalized);
  return HR_OK;
}

void hri_added_deinit(hri_added *added) {
  clear_set(&added->raw);
  clear_set(&added->normalized);
  for (size_t i = 0; i < added->list.count; i++) hri_free(added->list.items[i].decoded);
  hri_array_free(&added->list);
  hri_free(added->by_id);
  *added = (hri_added){0};
}

/* ---- Searching ---- */

static bool is_at(const hri_pattern *pattern, const char *text, uint64_t bytes) {
  return pattern->bytes <= bytes && memcmp(pattern->text, text, pattern->bytes) == 0;
}

/* The longest pattern at `text`: among the sorted patterns the range that shares the first bytes is narrowed byte by
 * byte, until one is left. */
static const hri_pattern *longest_at(const hri_pattern_set *set, const char *text, uint64_t bytes) {
  const hri_pattern *items = set->list.items, *best = NULL;
  uint32_t low = set->first[(unsigned char)text[0]], high = set->first[(unsigned char)text[0] + 1];
  for (uint64_t depth = 1; low < high; depth++) {
    uint32_t from = low, to = high, middle;
    unsigned char c;
    if (items[low].bytes == depth) best = &items[low++];
    if (high - low == 1) return is_at(&items[low], text, bytes) ? &items[low] : best;
    if (depth >= bytes || low >= high) break;
    c = (unsigned char)text[depth];
    for (from = low, to = high; from < to;) {
      middle = (from + to) / 2;
      if ((unsigned char)items[middle].text[depth] < c) from = middle + 1;
      else to = middle;
    }
    low = from;
    for (to = high; from < to;) {
      middle = (from + to) / 2;
      if ((unsigned char)items[middle].text[depth] <= c) from = middle + 1;
      else to = middle;
    }
    high = from;
  }
  return best;
}

static const hri_pattern *find_pattern(const hri_pattern_set *set, const char *text, uint64_t bytes, uint64_t *at) {
  for (uint64_t i = *at; i < bytes; i++) {
    const hri_pattern *found;
    if (set->only >= 0) {
      const char *next = memchr(text + i, set->only, bytes - i);
      if (!next) return NULL;
      i = (uint64_t)(next - text);
    } else {
      while (i < bytes && set->first[(unsigned char)text[i]] == set->first[(unsigned char)text[i] + 1]) i++;
      if (i == bytes) return NULL;
    }
    found = longest_at(set, text + i, bytes - i);
    if (found) {
      *at = i;
      return found;
    }
  }
  return NULL;
}

/* The character before `at` (> 0), and where it begins. */
static uint32_t point_before(const char *text, uint64_t at, uint64_t *begin) {
  uint32_t point;
  bool valid;
  *begin = at - 1;
  while (*begin > 0 && at - *begin < 4 && ((unsigned char)text[*begin] & 0xC0) == 0x80) --*begin;
  (void)hri_utf8_decode(text + *begin, at - *begin, &point, &valid);
  return point;
}

static bool word_beside(const hri_added_walk *walk, uint64_t begin, uint64_t end) {
  uint64_t before;
  uint32_t point;
  bool valid;
  if (begin > 0 && hri_unicode_is_word(point_before(walk->text, begin, &before))) return true;
  if (end >= walk->bytes) return false;
  (void)hri_utf8_decode(walk->text + end, walk->bytes - end, &point, &valid);
  return hri_unicode_is_word(point);
}

static uint64_t space_begin(const hri_added_walk *walk, uint64_t at) {
  uint64_t before;
  while (at > walk->taken && hri_unicode_is_space(point_before(walk->text, at, &before))) at = before;
  return at > walk->taken ? at : walk->taken;
}

/* The end of the white space at `at`; what a call before this one found need not be looked at again. */
static uint64_t space_end(hri_added_walk *walk, uint64_t at) {
  if (at < walk->space_end) return walk->space_end;
  while (at < walk->bytes) {
    uint32_t point;
    bool valid;
    size_t width = hri_utf8_decode(walk->text + at, walk->bytes - at, &point, &valid);
    if (!hri_unicode_is_space(point)) break;
    at += width;
  }
  return walk->space_end = at;
}

bool hri_added_next(const hri_added *added, const hri_pattern_set *set, hri_added_walk *walk, hri_added_match *match) {
  const hri_pattern *found;
  if (set->list.count == 0) return false;
  while ((found = find_pattern(set, walk->text, walk->bytes, &walk->at))) {
    const hri_added_token *token = hri_added_get(added, found->id);
    uint64_t begin = walk->at, end = begin + found->bytes;
    walk->at = end;
    if (walk->plain && token->special) continue;
    if (token->single_word && word_beside(walk, begin, end)) continue;
    /* As in the reference: without lstrip a token that lies in the white space which the last match took along is found
     * all the same, and the rest of that white space is text again; with lstrip nothing of it is left to be found. */
    if (token->lstrip) begin = space_begin(walk, begin);
    if (token->rstrip) end = space_end(walk, end);
    if (begin >= end) continue;
    walk->taken = end;
    *match = (hri_added_match){.id = found->id, .begin = (uint32_t)begin, .end = (uint32_t)end};
    return true;
  }
  return false;
}
