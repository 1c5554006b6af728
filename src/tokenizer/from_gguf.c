/* The tokenizer inside a GGUF file (ggml-org/ggml, docs/gguf.md; ggml-org/llama.cpp, src/llama-vocab.cpp). "gpt2" is
 * byte-level BPE with merges, "llama" is SentencePiece BPE with scores. */
#include <string.h>

#include "base/text.h"
#include "tokenizer/added.h"
#include "tokenizer/parts.h"
#include "tokenizer/scored.h"

#define KEY(name) "tokenizer.ggml." name

static hr_status refuse(const hr_tokenizer *tokenizer, const char *key, const char *value, const char *known,
                        hr_error *error) {
  hr_status status =
      hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' is '%.60s', known are %s", tokenizer->file, key, value, known);
  return hri_hint(error, status, "use the tokenizer.json of the model");
}

/* Gemma's, of which llama.cpp's converter writes runs of blanks as blanks, and user-defined. Its text has U+2581 where merges
 * look at it, and there runs are tokens like others, merged in the order of ids: so its tokenizer.json has it. */
static bool is_gemma(const hri_gguf *file) {
  const char *architecture = "";
  return hri_gguf_opt_string(file, "general.architecture", &architecture, NULL, NULL) == HR_OK &&
         strncmp(architecture, "gemma", 5) == 0;
}

static bool is_blanks(const char *content, uint64_t bytes) { return bytes > 0 && strspn(content, " ") == bytes; }

/* Tokens by id; with `respells` runs of blanks as U+2581. */
static hr_status add_tokens(const hri_gguf *file, hr_tokenizer *tokenizer, bool respells, hr_error *error) {
  hri_gguf_strings list;
  hri_text blanks = {0};
  const char *content;
  uint64_t bytes, id = 0;
  hr_status status = hri_gguf_get_strings(file, KEY("tokens"), &list, error);
  for (; status == HR_OK && (content = hri_gguf_next(&list, &bytes)); id++) {
    if (!respells || !is_blanks(content, bytes)) {
      status = hri_build_token(tokenizer, content, bytes, id, error);
      continue;
    }
    blanks.length = 0;
    for (uint64_t k = 0; k < bytes; k++) hri_text_add(&blanks, "\xE2\x96\x81");
    status = blanks.failed ? hri_fail_memory(error, 3 * bytes, "a token")
                           : hri_build_token(tokenizer, blanks.chars, blanks.length, id, error);
  }
  hri_text_deinit(&blanks);
  return status;
}

/* An array with one number for each token; left empty when the key is missing. */
static hr_status read_numbers(const hri_gguf *file, const char *key, const hr_tokenizer *tokenizer,
                              hri_gguf_numbers *list, hr_error *error) {
  *list = (hri_gguf_numbers){0};
  if (!hri_gguf_has(file, key)) return HR_OK;
  HRI_TRY(hri_gguf_get_numbers(file, key, list, error));
  if (list->count == tokenizer->vocab.size) return HR_OK;
  return hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' has %llu elements for %u tokens", tokenizer->file, key,
                  (unsigned long long)list->count, tokenizer->vocab.size);
}

static hr_status add_merges(const hri_gguf *file, hr_tokenizer *tokenizer, hr_error *error) {
  hri_gguf_strings list;
  hri_text copy = {0};
  const char *merge;
  uint64_t bytes;
  hr_status status = hri_gguf_get_strings(file, KEY("merges"), &list, error);
  for (uint32_t index = 0; status == HR_OK && (merge = hri_gguf_next(&list, &bytes)); index++) {
    char *blank;
    copy.length = 0;
    hri_text_add_bytes(&copy, merge, bytes);
    if (copy.failed) {
      status = hri_fail_memory(error, bytes, "merges");
      break;
    }
    blank = bytes ? memchr(copy.chars + 1, ' ', bytes - 1) : NULL; /* a part is never empty */
    if (!blank) {
      status = hri_fail(error, HR_ERROR_INPUT,
                        "%s: key '%s': merge %u ('%.60s') must be two parts with one blank between them",
                        tokenizer->file, KEY("merges"), index, merge);
      break;
    }
    *blank = 0;
    status = hri_build_merge(tokenizer, copy.chars, (uint64_t)(blank - copy.chars), blank + 1,
                             (uint64_t)(copy.chars + bytes - blank - 1), index, error);
  }
  hri_text_deinit(&copy);
  return status;
}

/* Control tokens are special; user-defined ones are found in the text as well. */
static hr_status add_marked(hr_tokenizer *tokenizer, const hri_gguf_numbers *types, hr_error *error) {
  for (uint32_t id = 0; id < types->count; id++) {
    int64_t type = hri_gguf_integer_at(types, id);
    hri_added_token flags = {.special = type == HRI_SP_CONTROL};
    if (type != HRI_SP_CONTROL && type != HRI_SP_USER_DEFINED) continue;
    HRI_TRY(
        hri_added_put(tokenizer, hri_vocab_content(&tokenizer->vocab, id), tokenizer->vocab.bytes[id], flags, error));
  }
  return HR_OK;
}

static hr_status build_byte_level(const hri_gguf *file, hr_tokenizer *tokenizer, hr_error *error) {
  const char *pre = "default";
  const hri_pre_type *type;
  hri_gguf_numbers types;
  hri_part_texts parts = {.decoder = "{\"type\":\"ByteLevel\"}"};
  HRI_TRY(hri_gguf_opt_string(file, KEY("pre"), &pre, NULL, error));
  type = hri_pre_type_find(pre);
  if (!type)
    return refuse(tokenizer, KEY("pre"), pre,
                  "gpt-2, llama-bpe, qwen2, smollm, tekken, falcon, gpt-4o, default and others (docs/tokenizers.md)",
                  error);
  HRI_TRY(read_numbers(file, KEY("token_type"), tokenizer, &types, error));
  HRI_TRY(add_merges(file, tokenizer, error));
  HRI_TRY(add_marked(tokenizer, &types, error));
  tokenizer->bpe.ignore_merges = type->ignore_merges;
  parts.pre_tokenizer = type->pre_tokenizer;
  parts.normalizer = type->normalizer;
  return hri_build_parts(tokenizer, &parts, error);
}

/* U+2581 alone. */
static bool is_run(const hri_sp_piece *piece) {
  uint32_t at = 0;
  while (at + 3 <= piece->bytes && memcmp(piece->text + at, "\xE2\x96\x81", 3) == 0) at += 3;
  return at > 0 && at == piece->bytes;
}

/* The pieces in the form of a SentencePiece model; their texts are those of the vocabulary. */
static hr_status read_pieces(const hri_gguf *file, hr_tokenizer *tokenizer, hri_sentencepiece *model, hr_error *error) {
  const bool gemma = is_gemma(file);
  hri_gguf_numbers scores, types;
  HRI_TRY(read_numbers(file, KEY("scores"), tokenizer, &scores, error));
  HRI_TRY(read_numbers(file, KEY("token_type"), tokenizer, &types, error));
  if (scores.count == 0)
    return hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' is missing: the pieces have no scores", tokenizer->file,
                    KEY("scores"));
  for (uint32_t id = 0; id < model->piece_count; id++) {
    int64_t type = types.count ? hri_gguf_integer_at(&types, id) : HRI_SP_NORMAL;
    if (type < HRI_SP_NORMAL || type > HRI_SP_BYTE)
      return hri_fail(error, HR_ERROR_INPUT, "%s: key '%s': token %u has the type %lld, known are 1 to 6",
                      tokenizer->file, KEY("token_type"), id, (long long)type);
    model->pieces[id] = (hri_sp_piece){hri_vocab_content(&tokenizer->vocab, id), tokenizer->vocab.bytes[id],
                                       gemma ? -(float)id : (float)hri_gguf_number_at(&scores, id), (hri_sp_type)type};
    if (gemma && type == HRI_SP_USER_DEFINED && is_run(&model->pieces[id])) model->pieces[id].type = HRI_SP_NORMAL;
    if (type == HRI_SP_BYTE) model->byte_fallback = true;
    if (type == HRI_SP_UNKNOWN && model->unk_id < 0) model->unk_id = (int32_t)id;
  }
  return HR_OK;
}

static hr_status build_scored(const hri_gguf *file, hr_tokenizer *tokenizer, hr_error *error) {
  hri_sentencepiece model = {.piece_count = tokenizer->vocab.size,
                             .unk_id = -1,
                             .bos_id = -1,
                             .eos_id = -1,
                             .pad_id = -1,
                             .add_dummy_prefix = true,
                             .escape_whitespaces = true};
  uint64_t bytes = ((uint64_t)model.piece_count + 1) * sizeof *model.pieces;
  hr_status status;
  model.pieces = hri_alloc(bytes);
  if (!model.pieces) return hri_fail_memory(error, bytes, "the pieces of the tokenizer");
  status = read_pieces(file, tokenizer, &model, error);
  if (status == HR_OK) status = hri_gguf_opt_bool(file, KEY("add_space_prefix"), &model.add_dummy_prefix, error);
  if (status == HR_OK)
    status = hri_gguf_opt_bool(file, KEY("remove_extra_whitespaces"), &model.remove_extra_whitespaces, error);
  if (status == HR_OK) status = hri_build_scored(tokenizer, &model, error);
  hri_free(model.pieces);
  return status;
}

static hr_status read_named(const hri_gguf *file, hr_tokenizer *tokenizer, hr_error *error) {
  static const char *const keys[HR_TOKEN_NAMED_COUNT] = {KEY("bos_token_id"), KEY("eos_token_id"),
                                                         KEY("padding_token_id"), KEY("unknown_token_id")};
  for (uint32_t i = 0; i < HR_TOKEN_NAMED_COUNT; i++) {
    uint64_t id = 0;
    if (!hri_gguf_has(file, keys[i])) continue;
    HRI_TRY(hri_gguf_get_u64(file, keys[i], 0, UINT32_MAX, &id, error));
    if (id == UINT32_MAX) continue; /* written for "none" */
    if (id >= tokenizer->vocab.size)
      return hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' is %llu, but there are %u tokens", tokenizer->file, keys[i],
                      (unsigned long long)id, tokenizer->vocab.size);
    tokenizer->named[i] = (int32_t)id;
  }
  return HR_OK;
}

hr_status hri_build_from_gguf(const hri_gguf *file, hr_tokenizer *tokenizer, hr_error *error) {
  const char *model;
  bool bos, eos = false, scored;
  if (!hri_gguf_has_tokenizer(file)) {
    hri_fail(error, HR_ERROR_INPUT, "%s has no tokenizer", tokenizer->file);
    return hri_hint(error, HR_ERROR_INPUT,
                    "name the model's tokenizer (a directory or another file), or work on token ids: they need none");
  }
  HRI_TRY(hri_gguf_get_string(file, KEY("model"), &model, NULL, error));
  scored = strcmp(model, "llama") == 0;
  if (!scored && strcmp(model, "gpt2") != 0)
    return refuse(tokenizer, KEY("model"), model, "gpt2 and llama (BPE)", error);
  HRI_TRY(add_tokens(file, tokenizer, scored && is_gemma(file), error));
  HRI_TRY(read_named(file, tokenizer, error));
  HRI_TRY(scored ? build_scored(file, tokenizer, error) : build_byte_level(file, tokenizer, error));
  /* Where the file does not say: SentencePiece models and those of Llama 3 and Mistral begin with BOS. */
  bos = scored || tokenizer->bpe.ignore_merges;
  HRI_TRY(hri_gguf_opt_bool(file, KEY("add_bos_token"), &bos, error));
  HRI_TRY(hri_gguf_opt_bool(file, KEY("add_eos_token"), &eos, error));
  return hri_build_template(tokenizer, bos, eos, error);
}
