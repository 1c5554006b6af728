#include "tokenizer/build.h"

#include <stdatomic.h>
#include <stdio.h>

#include "tokenizer/added.h"
#include "tokenizer/parts.h"

hr_status hri_build_begin(const char *file, hr_tokenizer **tokenizer, hr_error *error) {
  static atomic_uint_fast64_t serials;
  hr_tokenizer *made = hri_alloc_zero(1, sizeof *made);
  *tokenizer = NULL;
  if (!made) return hri_fail_memory(error, sizeof *made, file);
  made->bpe.vocab = &made->vocab;
  made->bpe.unk = made->unigram.unk = made->wordpiece.unk = HRI_TOKEN_NONE;
  made->wordpiece.vocab = &made->vocab;
  made->wordpiece.most_characters = HRI_WORDPIECE_MOST;
  made->serial = atomic_fetch_add(&serials, 1) + 1;
  for (uint32_t i = 0; i < HR_TOKEN_NAMED_COUNT; i++) made->named[i] = -1;
  made->file = hri_strdup(file);
  if (!made->file || hri_normalizer_create(&made->normalizer, error) != HR_OK) {
    hr_tokenizer_close(made);
    return hri_fail_memory(error, sizeof *made, file);
  }
  *tokenizer = made;
  return HR_OK;
}

void hr_tokenizer_close(hr_tokenizer *tokenizer) {
  if (!tokenizer) return;
  hri_bpe_deinit(&tokenizer->bpe);
  hri_unigram_deinit(&tokenizer->unigram);
  hri_wordpiece_deinit(&tokenizer->wordpiece);
  hri_vocab_deinit(&tokenizer->vocab);
  hri_added_deinit(&tokenizer->added);
  hri_normalizer_destroy(tokenizer->normalizer);
  for (uint32_t i = 0; i < tokenizer->stage_count; i++) hri_splitter_destroy(tokenizer->stages[i].splitter);
  for (size_t i = 0; i < tokenizer->decoders.count; i++) hri_decoder_deinit(&tokenizer->decoders.items[i]);
  hri_array_free(&tokenizer->decoders);
  hri_array_free(&tokenizer->prefix);
  hri_array_free(&tokenizer->suffix);
  hri_free(tokenizer->file);
  hri_free(tokenizer);
}

hr_status hri_build_token(hr_tokenizer *tokenizer, const char *content, uint64_t bytes, uint64_t id, hr_error *error) {
  const hri_vocab *vocab = &tokenizer->vocab;
  int shown = bytes < 60 ? (int)bytes : 60; /* of a content without NUL */
  if (id > HRI_VOCAB_MAX_ID)
    return hri_fail(error, HR_ERROR_INPUT, "%s: token '%.*s' has the id %llu, at most %d is supported", tokenizer->file,
                    shown, content, (unsigned long long)id, HRI_VOCAB_MAX_ID);
  if (hri_vocab_find(vocab, content, bytes) != HRI_TOKEN_NONE)
    return hri_fail(error, HR_ERROR_INPUT, "%s: token '%.*s' is in the vocabulary twice", tokenizer->file, shown,
                    content);
  if (hri_vocab_has(vocab, (uint32_t)id))
    return hri_fail(error, HR_ERROR_INPUT, "%s: tokens '%.60s' and '%.*s' have the same id %llu", tokenizer->file,
                    hri_vocab_content(vocab, (uint32_t)id), shown, content, (unsigned long long)id);
  return hri_vocab_add(&tokenizer->vocab, content, bytes, (uint32_t)id, HRI_TOKEN_MODEL, error);
}

static hr_status missing_part(const hr_tokenizer *tokenizer, const char *left, const char *right, const char *what,
                              uint32_t index, hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_INPUT, "%s: merge %u ('%.60s' with '%.60s'): %s is not in the vocabulary",
                              tokenizer->file, index, left, right, what);
  return hri_hint(error, status,
                  "the vocabulary and the merges do not belong together, or the file is damaged: fetch it anew");
}

hr_status hri_build_merge(hr_tokenizer *tokenizer, const char *left, uint64_t left_bytes, const char *right,
                          uint64_t right_bytes, uint32_t index, hr_error *error) {
  const hri_vocab *vocab = &tokenizer->vocab;
  uint64_t skip = tokenizer->bpe.prefix ? strlen(tokenizer->bpe.prefix) : 0;
  uint32_t left_id = hri_vocab_find_model(vocab, left, left_bytes),
           right_id = hri_vocab_find_model(vocab, right, right_bytes), result;
  char small[256], *joined = small;
  if (left_bytes == 0 || right_bytes == 0)
    return hri_fail(error, HR_ERROR_INPUT, "%s: merge %u has an empty part", tokenizer->file, index);
  if (left_id == HRI_TOKEN_NONE) return missing_part(tokenizer, left, right, "the first", index, error);
  if (right_id == HRI_TOKEN_NONE) return missing_part(tokenizer, left, right, "the second", index, error);
  if (skip > right_bytes) skip = right_bytes;
  if (left_bytes + right_bytes > sizeof small) joined = hri_alloc(left_bytes + right_bytes);
  if (!joined) return hri_fail_memory(error, left_bytes + right_bytes, "the merges of the tokenizer");
  memcpy(joined, left, left_bytes);
  memcpy(joined + left_bytes, right + skip, right_bytes - skip);
  result = hri_vocab_find_model(vocab, joined, left_bytes + right_bytes - skip);
  if (joined != small) hri_free(joined);
  if (result == HRI_TOKEN_NONE) return missing_part(tokenizer, left, right, "the result", index, error);
  return hri_bpe_add_merge(&tokenizer->bpe, left_id, right_id, index, result, error);
}

/* A part's text as a tree, its path in errors. */
static hr_status parse_part(const hr_tokenizer *tokenizer, const char *text, const char *path, hri_json *json,
                            hr_error *error) {
  *json = (hri_json){0};
  if (!text) text = "null";
  HRI_TRY(hri_json_parse(text, strlen(text), tokenizer->file, json, error));
  (void)snprintf(json->path, sizeof json->path, "%s", path);
  return HR_OK;
}

hr_status hri_build_parts(hr_tokenizer *tokenizer, const hri_part_texts *parts, hr_error *error) {
  hri_json normalizer = {0}, pre_tokenizer = {0}, decoder = {0};
  hr_status status;
  HRI_TRY_OUT(parse_part(tokenizer, parts->normalizer, "normalizer", &normalizer, error));
  HRI_TRY_OUT(parse_part(tokenizer, parts->pre_tokenizer, "pre_tokenizer", &pre_tokenizer, error));
  HRI_TRY_OUT(parse_part(tokenizer, parts->decoder, "decoder", &decoder, error));
  HRI_TRY_OUT(hri_parts_normalizer(tokenizer, &normalizer, error));
  HRI_TRY_OUT(hri_parts_pre_tokenizer(tokenizer, &pre_tokenizer, error));
  HRI_TRY_OUT(hri_parts_decoder(tokenizer, &decoder, error));
out:
  hri_json_deinit(&normalizer);
  hri_json_deinit(&pre_tokenizer);
  hri_json_deinit(&decoder);
  return status;
}

hr_status hri_build_template(hr_tokenizer *tokenizer, bool bos, bool eos, hr_error *error) {
  int32_t begin = tokenizer->named[HR_TOKEN_BOS], end = tokenizer->named[HR_TOKEN_EOS];
  tokenizer->prefix.count = tokenizer->suffix.count = 0;
  tokenizer->trim_offsets = false; /* the template takes the place of the post-processor */
  if (bos && begin >= 0 && !hri_array_push(&tokenizer->prefix, begin))
    return hri_fail_memory(error, sizeof begin, "the template of the tokenizer");
  if (eos && end >= 0 && !hri_array_push(&tokenizer->suffix, end))
    return hri_fail_memory(error, sizeof end, "the template of the tokenizer");
  return HR_OK;
}

hr_status hri_build_finish(hr_tokenizer *tokenizer, hr_error *error) {
  const char *name = strrchr(tokenizer->file, '/');
  const char *kind = tokenizer->kind == HRI_MODEL_UNIGRAM     ? "Unigram"
                     : tokenizer->kind == HRI_MODEL_WORDPIECE ? "WordPiece"
                     : tokenizer->bpe.byte_level              ? "byte-level BPE"
                     : tokenizer->bpe.byte_fallback           ? "BPE with byte fallback"
                                                              : "BPE";
  if (tokenizer->vocab.count == 0)
    return hri_fail(error, HR_ERROR_INPUT, "%s: the vocabulary is empty", tokenizer->file);
  if (tokenizer->kind == HRI_MODEL_BPE) HRI_TRY(hri_bpe_finish(&tokenizer->bpe, error));
  HRI_TRY(hri_added_finish(tokenizer, error));
  for (uint32_t i = 0; i < tokenizer->stage_count; i++)
    if (tokenizer->stages[i].only_first && !hri_normalizer_is_empty(tokenizer->normalizer))
      tokenizer->needs_origins = true;
  (void)snprintf(tokenizer->about, sizeof tokenizer->about, "%s, %u tokens, %.100s", kind, tokenizer->vocab.count,
                 name ? name + 1 : tokenizer->file);
  return HR_OK;
}
