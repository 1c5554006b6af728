/* The SentencePiece and tiktoken readers on any bytes. What is read must hold together, and the normalizer of a model
 * that was read, and the tokenizer made of it (BPE or Unigram), must take any text, the file itself among them, in bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/normalize.h"
#include "tokenizer/scored.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static bool within(const void *part, uint64_t bytes, const hri_sentencepiece *model, size_t size) {
  const char *at = part;
  return at >= model->file && at <= model->file + size && bytes <= (uint64_t)(model->file + size - at);
}

static void check_model(const hri_sentencepiece *model, size_t size) {
  uint32_t unknowns = 0;
  for (uint32_t i = 0; i < model->piece_count; i++) {
    const hri_sp_piece *piece = &model->pieces[i];
    require(piece->bytes > 0 && within(piece->text, piece->bytes, model, size) &&
            hri_utf8_valid(piece->text, piece->bytes) == piece->bytes);
    require(piece->type >= HRI_SP_NORMAL && piece->type <= HRI_SP_BYTE && piece->score == piece->score);
    unknowns += piece->type == HRI_SP_UNKNOWN;
  }
  require(unknowns == 1 && model->unk_id >= 0 && (uint32_t)model->unk_id < model->piece_count);
  require(model->bos_id < (int32_t)model->piece_count && model->eos_id < (int32_t)model->piece_count &&
          model->pad_id < (int32_t)model->piece_count);
  require(!model->charsmap || within(model->charsmap, model->charsmap_bytes, model, size));
  for (uint32_t i = 0; i < 256; i++)
    require(model->byte_ids[i] < (int32_t)model->piece_count && (model->byte_ids[i] >= 0) == model->byte_fallback);
}

static void normalize_with(const hri_sentencepiece *model, const char *text, size_t bytes) {
  hri_normalizer *normalizer;
  hri_normal normal = {0};
  hr_error error;
  require(hri_normalizer_create(&normalizer, &error) == HR_OK);
  if (hri_normalizer_add_sentencepiece(normalizer, model, &error) == HR_OK) {
    require(hri_normal_begin(&normal, text, bytes, true, &error) == HR_OK);
    require(hri_normalizer_apply(normalizer, &normal, &error) == HR_OK);
    for (uint64_t i = 0; normal.spans && i < normal.bytes; i++)
      require(normal.spans[i].begin <= normal.spans[i].end && normal.spans[i].end <= bytes);
  } else {
    require(error.code == HR_ERROR_INPUT && error.message[0]);
  }
  hri_normal_deinit(&normal);
  hri_normalizer_destroy(normalizer);
}

/* Ids are the same with offsets and without, and when words are remembered; offsets lie in the text. */
static void encode_with(const hri_sentencepiece *model, const char *text, size_t bytes) {
  hr_tokenizer *tokenizer;
  hr_tokens first = {0}, again = {0};
  hr_error error;
  hr_status status = hri_build_begin("input", &tokenizer, &error);
  require(status == HR_OK);
  for (uint32_t id = 0; id < model->piece_count && status == HR_OK; id++)
    status = hri_build_token(tokenizer, model->pieces[id].text, model->pieces[id].bytes, id, &error);
  if (status == HR_OK) status = hri_build_scored(tokenizer, model, &error);
  if (status == HR_OK) status = hri_build_finish(tokenizer, &error);
  if (status == HR_OK) {
    require(hr_tokenizer_encode(tokenizer, text, bytes, HR_ENCODE_OFFSETS, &first, &error) == HR_OK);
    for (uint64_t i = 0; i < first.count; i++) require(first.begin[i] <= first.end[i] && first.end[i] <= bytes);
    for (int round = 0; round < 3; round++) {
      require(hr_tokenizer_encode(tokenizer, text, bytes, 0, &again, &error) == HR_OK && again.count == first.count);
      require(first.count == 0 || memcmp(first.ids, again.ids, first.count * sizeof *first.ids) == 0);
    }
  } else {
    require(status == HR_ERROR_INPUT && error.message[0]);
  }
  hr_tokens_deinit(&first);
  hr_tokens_deinit(&again);
  hr_tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char text[] = "  Hello <tag> w\xC3\xB6rld\xE3\x80\x80 ab abs \xEF\xAC\x81 \xFF ";
  char *copy = hri_alloc(size);
  hri_sentencepiece model;
  hri_tiktoken ranks;
  hr_error error;
  require(copy != NULL);
  if (size > 0) memcpy(copy, data, size);
  if (hri_sentencepiece_parse("input", copy, size, &model, &error) == HR_OK) {
    check_model(&model, size);
    normalize_with(&model, text, sizeof text - 1);
    normalize_with(&model, (const char *)data, size < 4096 ? size : 4096);
    encode_with(&model, text, sizeof text - 1);
    encode_with(&model, (const char *)data, size < 4096 ? size : 4096);
    hri_sentencepiece_deinit(&model);
  } else {
    require(error.code == HR_ERROR_INPUT && error.message[0]);
  }
  if (hri_tiktoken_parse("input", (const char *)data, size, &ranks, &error) == HR_OK) {
    for (uint32_t i = 0; i < ranks.count; i++)
      require(ranks.tokens[i].at + (uint64_t)ranks.tokens[i].bytes <= ranks.byte_count);
    hri_tiktoken_deinit(&ranks);
  } else {
    require(error.code == HR_ERROR_INPUT && error.message[0]);
  }
  return 0;
}
