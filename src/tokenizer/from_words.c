/* vocab.txt of BERT: a token in each line, its number the id. What is done to text stands beside it, in
 * tokenizer_config.json (do_lower_case, tokenize_chinese_chars, strip_accents), with the defaults of BertTokenizer. */
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/added.h"
#include "tokenizer/build.h"

#define MOST_FILE_BYTES ((uint64_t)256 << 20)
enum { MOST_TOKEN_BYTES = 1 << 16 };

static const char *const specials[] = {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
enum { UNK = 0, PAD = 2 }; /* of them */

/* An empty line is no token, but counts. */
static hr_status add_lines(const char *text, uint64_t count, hr_tokenizer *tokenizer, hr_error *error) {
  const char *end = text + count;
  for (uint64_t id = 0; text < end; id++) {
    const char *stop = memchr(text, '\n', (size_t)(end - text)), *next = stop ? stop + 1 : end;
    if (!stop) stop = end;
    if (stop > text && stop[-1] == '\r') stop--;
    if (stop - text > MOST_TOKEN_BYTES || hri_utf8_valid(text, (size_t)(stop - text)) != (size_t)(stop - text) ||
        memchr(text, 0, (size_t)(stop - text)))
      return hri_fail(error, HR_ERROR_INPUT, "%s: line %llu is no token: UTF-8 of at most 64 KiB without zero bytes",
                      tokenizer->file, (unsigned long long)id + 1);
    if (stop > text) HRI_TRY(hri_build_token(tokenizer, text, (uint64_t)(stop - text), id, error));
    text = next;
  }
  return HR_OK;
}

static hr_status add_specials(hr_tokenizer *tokenizer, hr_error *error) {
  for (uint32_t i = 0; i < sizeof specials / sizeof *specials; i++) {
    int32_t id = hr_tokenizer_find(tokenizer, specials[i]);
    if (id < 0) continue;
    HRI_TRY(hri_added_put(tokenizer, specials[i], strlen(specials[i]), (hri_added_token){.special = true}, error));
    if (i == UNK) tokenizer->named[HR_TOKEN_UNK] = id;
    if (i == PAD) tokenizer->named[HR_TOKEN_PAD] = id; /* [CLS] and [SEP] stand around a text, and are no BOS, EOS */
  }
  return HR_OK;
}

static hr_status add_around(hr_tokenizer *tokenizer, hr_error *error) {
  int32_t cls = hr_tokenizer_find(tokenizer, "[CLS]"), sep = hr_tokenizer_find(tokenizer, "[SEP]");
  if (cls < 0 || sep < 0) return HR_OK;
  if (hri_array_push(&tokenizer->prefix, cls) && hri_array_push(&tokenizer->suffix, sep)) return HR_OK;
  return hri_fail_memory(error, sizeof cls, "the template of the tokenizer");
}

/* The normalizer as tokenizer.json would have it. */
static hr_status put_normalizer(const hri_json *config, char out[256], hr_error *error) {
  bool lower = true, chinese = true, accents = false;
  if (config->value) {
    HRI_TRY(hri_json_opt_bool(config, "do_lower_case", &lower, error));
    HRI_TRY(hri_json_opt_bool(config, "tokenize_chinese_chars", &chinese, error));
    HRI_TRY(hri_json_opt_bool(config, "strip_accents", &accents, error));
  }
  (void)snprintf(out, 256,
                 "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":%s,\"strip_accents\":%s,"
                 "\"lowercase\":%s}",
                 chinese ? "true" : "false",
                 !config->value || !hri_json_has(config, "strip_accents") ? "null"
                 : accents                                                ? "true"
                                                                          : "false",
                 lower ? "true" : "false");
  return HR_OK;
}

static hr_status add_parts(const char *directory, hr_tokenizer *tokenizer, hr_error *error) {
  hri_part_texts parts = {.pre_tokenizer = "{\"type\":\"BertPreTokenizer\"}",
                          .decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"};
  char *path, normalizer[256];
  hri_json config = {0};
  hr_status status = hri_build_read_beside(directory, "tokenizer_config.json", &path, &config, error);
  if (status == HR_OK) status = put_normalizer(&config, normalizer, error);
  parts.normalizer = normalizer;
  if (status == HR_OK) status = hri_build_parts(tokenizer, &parts, error);
  hri_json_deinit(&config);
  hri_free(path);
  return status;
}

/* Whether [UNK] stands alone in a line. */
static bool has_unknown(const char *text, uint64_t count) {
  static const char unknown[] = "[UNK]";
  const char *end = text + count, *at = text;
  while ((at = memmem(at, (size_t)(end - at), unknown, sizeof unknown - 1))) {
    const char *behind = at + sizeof unknown - 1;
    if ((at == text || at[-1] == '\n') && (behind == end || *behind == '\n' || *behind == '\r')) return true;
    at = behind;
  }
  return false;
}

hr_status hri_build_parse_words(const char *text, uint64_t count, const char *directory, hr_tokenizer *tokenizer,
                                hr_error *error) {
  const uint64_t mark = hri_utf8_mark(text, count);
  text += mark;
  count -= mark;
  if (!has_unknown(text, count)) {
    hr_status status =
        hri_fail(error, HR_ERROR_INPUT,
                 "%s is no tokenizer by its content: no JSON, no ranks in base64, no SentencePiece model, "
                 "no GGUF, no lines of tokens with [UNK]",
                 tokenizer->file);
    return hri_hint(error, status, "name a model directory, or the file with its tokenizer");
  }
  HRI_TRY(add_lines(text, count, tokenizer, error));
  tokenizer->kind = HRI_MODEL_WORDPIECE;
  tokenizer->wordpiece.unk = (uint32_t)hr_tokenizer_find(tokenizer, "[UNK]");
  HRI_TRY(hri_wordpiece_finish(&tokenizer->wordpiece, error));
  HRI_TRY(add_specials(tokenizer, error));
  HRI_TRY(add_around(tokenizer, error));
  return add_parts(directory, tokenizer, error);
}

hr_status hri_build_from_words(const char *path, const char *directory, hr_tokenizer *tokenizer, hr_error *error) {
  char *bytes;
  uint64_t count;
  hr_status status;
  HRI_TRY(hri_file_read(path, MOST_FILE_BYTES, &bytes, &count, error));
  status = hri_build_parse_words(bytes, count, directory, tokenizer, error);
  hri_free(bytes);
  return status;
}
