/* Long texts are tokenized in parts. A part ends between a letter and a line feed: no splitting rule of the known
 * tokenizers looks back, and none joins letters and a following line feed, so the parts have the tokens of the whole.
 * Tokenizers that put something in front of each text (SentencePiece's dummy prefix) or do not split at all do not keep that promise; a
 * trial at the start and a look at the vocabulary tell. */
#include "data/encode.h"

#include <string.h>

#include <headroom/model.h>
#include <utf8proc.h>

static hr_status grow(hr_tokens *tokens, uint64_t want, hr_error *error) {
  uint64_t capacity = tokens->capacity * 2 > want ? tokens->capacity * 2 : want + 64;
  int32_t *ids;
  uint32_t *begin, *end;
  if (want <= tokens->capacity) return HR_OK;
  ids = hri_realloc(tokens->ids, capacity * sizeof *ids);
  if (ids) tokens->ids = ids;
  begin = hri_realloc(tokens->begin, capacity * sizeof *begin);
  if (begin) tokens->begin = begin;
  end = hri_realloc(tokens->end, capacity * sizeof *end);
  if (end) tokens->end = end;
  if (!ids || !begin || !end) return hri_fail_memory(error, capacity * 3 * sizeof *ids, "the tokens of a document");
  tokens->capacity = capacity;
  return HR_OK;
}

static hr_status encode_bytes(const char *text, uint64_t bytes, hr_tokens *tokens, hr_error *error) {
  tokens->count = 0;
  HRI_TRY(grow(tokens, bytes, error));
  for (uint64_t i = 0; i < bytes; i++) {
    tokens->ids[i] = (unsigned char)text[i];
    tokens->begin[i] = (uint32_t)i;
    tokens->end[i] = (uint32_t)i + 1;
  }
  tokens->count = bytes;
  return HR_OK;
}

static hr_status outside(const hri_encoder *e, const char *where, int32_t id, hr_error *error) {
  hr_status code;
  unsigned long long vocabulary = (unsigned long long)e->vocabulary;
  if (!e->tokenizer) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s: this model's vocabulary of %llu has no byte tokens", where, vocabulary);
    return hri_hint(error, code, "give pre-tokenized JSONL, a model with a tokenizer, or --tokenizer DIR");
  }
  code = hri_fail(error, HR_ERROR_INPUT, "%s: the tokenizer makes id %d, and the model's vocabulary has %llu", where,
                  id, vocabulary);
  return hri_hint(error, code,
                  "name the tokenizer that belongs to the model (--tokenizer), or put it into its directory");
}

hr_status hri_encoder_run(const hri_encoder *e, const char *where, const char *text, uint64_t bytes, bool offsets,
                          hr_tokens *tokens, hr_error *error) {
  uint32_t largest = 0;
  if (e->tokenizer)
    HRI_TRY(hr_tokenizer_encode(e->tokenizer, text, bytes, offsets ? HR_ENCODE_OFFSETS : 0, tokens, error));
  else HRI_TRY(encode_bytes(text, bytes, tokens, error));
  for (uint64_t i = 0; i < tokens->count; i++)
    largest = (uint32_t)tokens->ids[i] > largest ? (uint32_t)tokens->ids[i] : largest;
  if (tokens->count > 0 && (largest >= e->vocabulary || (!e->tokenizer && e->vocabulary < 256)))
    return outside(e, where, (int32_t)largest, error);
  return HR_OK;
}

/* ---- what the tokenizer adds, and whether texts may be cut ---- */

static bool same(const int32_t *a, const int32_t *b, uint64_t count) { return memcmp(a, b, count * sizeof *a) == 0; }

static hr_status try_around(hri_encoder *e, hr_tokens *plain, hr_tokens *whole, hr_error *error) {
  HRI_TRY(hr_tokenizer_encode(e->tokenizer, "a", 1, 0, plain, error));
  HRI_TRY(hr_tokenizer_encode(e->tokenizer, "a", 1, HR_ENCODE_SPECIAL, whole, error));
  if (whole->count < plain->count || whole->count - plain->count > HRI_ENCODE_AROUND) return HR_OK;
  for (uint32_t at = 0; at + plain->count <= whole->count; at++) {
    if (!same(whole->ids + at, plain->ids, plain->count)) continue;
    e->before_count = at;
    e->after_count = (uint32_t)(whole->count - at - plain->count);
    memcpy(e->before, whole->ids, at * sizeof *e->before);
    memcpy(e->after, whole->ids + at + plain->count, e->after_count * sizeof *e->after);
    return HR_OK;
  }
  return HR_OK;
}

/* A letter ends at `end`. */
static bool letter_before(const char *text, size_t end) {
  const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
  utf8proc_int32_t code;
  utf8proc_category_t category;
  size_t begin = end - 1;
  if (bytes[begin] < 0x80) return (bytes[begin] | 32) >= 'a' && (bytes[begin] | 32) <= 'z';
  while (begin > 0 && end - begin < 4 && (bytes[begin] & 0xC0) == 0x80) begin--;
  if (utf8proc_iterate(bytes + begin, (utf8proc_ssize_t)(end - begin), &code) != (utf8proc_ssize_t)(end - begin))
    return false;
  category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

/* A token of the vocabulary goes from a letter to a line feed behind it: merges may cross a cut. */
static hr_status joins_lines(const hr_tokenizer *tokenizer, bool *joins, hr_error *error) {
  int32_t size = (int32_t)hr_tokenizer_size(tokenizer);
  for (int32_t id = 0; id < size && !*joins; id++) {
    uint64_t bytes = 0;
    const char *content = hr_tokenizer_token(tokenizer, id, &bytes);
    char *text;
    if (!content || bytes < 2 || !(memchr(content, '\n', bytes) || memmem(content, bytes, "\xC4\x8A", 2)))
      continue; /* the latter: byte-level */
    HRI_TRY(hr_tokenizer_decode(tokenizer, &id, 1, 0, &text, &bytes, error));
    for (size_t at = 1; at < bytes; at++) *joins = *joins || (text[at] == '\n' && letter_before(text, at));
    hr_free(text);
  }
  return HR_OK;
}

static hr_status try_cut(hri_encoder *e, hr_tokens *part, hr_tokens *whole, hr_error *error) {
  static const char text[] = "some words\n  and a second line";
  const uint64_t cut = 10, bytes = sizeof text - 1;
  bool joins = false;
  HRI_TRY(joins_lines(e->tokenizer, &joins, error));
  if (joins) return HR_OK;
  HRI_TRY(hr_tokenizer_encode(e->tokenizer, text, bytes, 0, whole, error));
  HRI_TRY(hr_tokenizer_encode(e->tokenizer, text, cut, 0, part, error));
  if (part->count > whole->count || !same(part->ids, whole->ids, part->count)) return HR_OK;
  whole->count -= part->count;
  memmove(whole->ids, whole->ids + part->count, whole->count * sizeof *whole->ids);
  HRI_TRY(hr_tokenizer_encode(e->tokenizer, text + cut, bytes - cut, 0, part, error));
  e->cuts = part->count == whole->count && same(part->ids, whole->ids, part->count);
  return HR_OK;
}

hr_status hri_encoder_init(hri_encoder *e, const hr_tokenizer *tokenizer, uint64_t vocabulary, int32_t eos,
                           hr_error *error) {
  hri_encoder fresh = {.tokenizer = tokenizer, .vocabulary = vocabulary, .eos = eos, .cuts = !tokenizer};
  hr_tokens one = {0}, two = {0};
  hr_status status = HR_OK;
  *e = fresh;
  if (tokenizer && hr_tokenizer_named(tokenizer, HR_TOKEN_EOS) >= 0)
    e->eos = hr_tokenizer_named(tokenizer, HR_TOKEN_EOS);
  if (e->eos < 0 || (uint64_t)e->eos >= vocabulary) e->eos = -1;
  if (tokenizer) status = try_around(e, &one, &two, error);
  if (tokenizer && status == HR_OK) status = try_cut(e, &one, &two, error);
  hr_tokens_deinit(&one);
  hr_tokens_deinit(&two);
  for (uint32_t i = 0; status == HR_OK && i < e->before_count; i++)
    if ((uint64_t)e->before[i] >= vocabulary) status = outside(e, "the tokenizer's first token", e->before[i], error);
  for (uint32_t i = 0; status == HR_OK && i < e->after_count; i++)
    if ((uint64_t)e->after[i] >= vocabulary) status = outside(e, "the tokenizer's last token", e->after[i], error);
  return status;
}

size_t hri_encode_cut(const char *text, size_t bytes) {
  for (size_t at = bytes; at-- > 1;)
    if (text[at] == '\n' && letter_before(text, at)) return at;
  return 0;
}

size_t hri_encode_part(const hri_encoder *e, const char *text, size_t bytes) {
  size_t cut;
  if (bytes <= HRI_ENCODE_PART_BYTES) return bytes;
  if (!e->tokenizer) return HRI_ENCODE_PART_BYTES;
  cut = e->cuts ? hri_encode_cut(text, HRI_ENCODE_PART_BYTES) : 0;
  return cut > 0 ? cut : bytes;
}
