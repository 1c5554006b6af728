/* Any bytes as a tokenizer.json, Tekken's JSON or a vocab.txt, as their content says, and behind a NUL any bytes as a text for it: it is refused or it works; encoding is
 * the same with and without offsets and when it is done again with remembered words; offsets lie in the text; ids
 * decode; nothing leaks. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/build.h"
#include "tokenizer/recognize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void use(const hr_tokenizer *tokenizer, const char *text, size_t count, uint32_t flags) {
  hr_tokens first = {0}, again = {0};
  hr_error error;
  hr_status status = hr_tokenizer_encode(tokenizer, text, count, flags | HR_ENCODE_OFFSETS, &first, &error);
  uint64_t bytes;
  char *decoded;
  for (int round = 0; round < 3 && status == HR_OK; round++) { /* words are remembered once some text has come */
    require(hr_tokenizer_encode(tokenizer, text, count, flags, &again, &error) == HR_OK);
    require(again.count == first.count &&
            (first.count == 0 || memcmp(again.ids, first.ids, first.count * sizeof *first.ids) == 0));
  }
  if (status == HR_OK) {
    for (uint64_t i = 0; i < first.count; i++) require(first.begin[i] <= first.end[i] && first.end[i] <= count);
    status = hr_tokenizer_decode(tokenizer, first.ids, first.count, 0, &decoded, &bytes, &error);
    require(status == HR_OK || status == HR_ERROR_INPUT); /* a regex of a decoder may run into its limits */
    if (status == HR_OK) require(strlen(decoded) <= bytes);
    if (status == HR_OK) hr_free(decoded);
  } else {
    require(status == HR_ERROR_INPUT && error.message[0]);
  }
  hr_tokens_deinit(&first);
  hr_tokens_deinit(&again);
}

/* What a file of these bytes would be; ranks and models are read by fuzz_sentencepiece. */
static hr_status build(char *bytes, size_t count, hr_tokenizer *tokenizer, hr_error *error) {
  hri_tokenizer_kind kind = HRI_TOKENIZER_JSON;
  if (count && hri_tokenizer_recognize_bytes("fuzz/tokenizer", bytes, count, &kind, error) != HR_OK)
    return HR_ERROR_INPUT;
  if (kind == HRI_TOKENIZER_WORDS) return hri_build_parse_words(bytes, count, "/nowhere", tokenizer, error);
  if (kind == HRI_TOKENIZER_JSON && hri_tekken_is(bytes, count))
    return hri_build_parse_tekken(bytes, count, tokenizer, error);
  return hri_build_parse_json(bytes, count, tokenizer, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t live = hri_mem_live_bytes();
  const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
  size_t json_count = cut ? (size_t)(cut - data) : size, count = cut ? size - json_count - 1 : 0;
  char *json = malloc(json_count + 1), *text = malloc(count + !count);
  hr_tokenizer *tokenizer;
  hr_error error = {0};
  hr_status status;
  if (json_count) memcpy(json, data, json_count);
  json[json_count] = 0;
  if (count) memcpy(text, cut + 1, count);
  require(hri_build_begin("fuzz/tokenizer.json", &tokenizer, &error) == HR_OK);
  status = build(json, json_count, tokenizer, &error);
  if (status == HR_OK) status = hri_build_finish(tokenizer, &error);
  require(status == HR_OK || (status == HR_ERROR_INPUT && error.message[0]));
  if (status == HR_OK) {
    use(tokenizer, text, count, HR_ENCODE_SPECIAL);
    use(tokenizer, text, count, HR_ENCODE_PLAIN);
  }
  hr_tokenizer_close(tokenizer);
  free(json);
  free(text);
  require(hri_mem_live_bytes() == live);
  return 0;
}
