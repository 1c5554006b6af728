/* Tokenizers as keys of GGUF files, both ways. Keys: ggml-org/ggml, docs/gguf.md. */
#include <stdio.h>
#include <string.h>

#include "convert/lexicon.h"
#include "formats/order.h"
#include "tokenizer/unicode.h"

static const char *const named_keys[HRI_LEXICON_NAMED] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                                          "tokenizer.ggml.unknown_token_id",
                                                          "tokenizer.ggml.padding_token_id"};

/* U+2581 stands for a blank in sentencepiece vocabularies. */
#define BLANK "\xE2\x96\x81"

/* ---- reading ---- */

static hr_status bad_token(const hri_gguf *file, uint64_t id, const char *what, hr_error *error) {
  hri_fail(error, HR_ERROR_INPUT, "%s: tokenizer.ggml.tokens: element %llu %s", hri_gguf_path(file),
           (unsigned long long)id, what);
  return hri_hint(
      error, HR_ERROR_INPUT,
      "tokenizer.json cannot hold it: convert with --without-tokenizer and take the tokenizer from the original model");
}

static int compare_texts(const void *items, uint32_t a, uint32_t b) {
  const hri_lexicon_token *x = (const hri_lexicon_token *)items + a, *y = (const hri_lexicon_token *)items + b;
  int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
  return order ? order : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The vocabulary of tokenizer.json has its tokens as keys: texts, each of them once. Those of the model may hold U+0000,
 * added ones may not. */
static hr_status check_texts(const hri_gguf *file, const hri_lexicon *v, hr_error *error) {
  const hri_lexicon_token *tokens = v->tokens.items;
  uint32_t *order;
  hr_status status = HR_OK;
  for (size_t id = 0; id < v->tokens.count; id++)
    if (hri_utf8_valid(tokens[id].text, tokens[id].bytes) != tokens[id].bytes)
      return bad_token(file, id, "is no UTF-8 text", error);
    else if (hri_lexicon_is_added(v, &tokens[id]) && memchr(tokens[id].text, 0, tokens[id].bytes))
      return bad_token(file, id, "is no token of the model, and holds a NUL", error);
  HRI_TRY(hri_order_make(tokens, (uint32_t)v->tokens.count, compare_texts, &order, error));
  for (size_t i = 1; i < v->tokens.count && status == HR_OK; i++)
    if (compare_texts(tokens, order[i - 1], order[i]) == 0)
      status = bad_token(file, order[i], "has the same text as another one", error);
  hri_free(order);
  return status;
}

static hr_status read_tokens(const hri_gguf *file, hri_lexicon *v, hr_error *error) {
  hri_gguf_strings tokens;
  hri_gguf_numbers types = {0}, scores = {0};
  const char *text;
  uint64_t bytes;
  HRI_TRY(hri_gguf_get_strings(file, "tokenizer.ggml.tokens", &tokens, error));
  if (hri_gguf_has(file, "tokenizer.ggml.token_type"))
    HRI_TRY(hri_gguf_get_numbers(file, "tokenizer.ggml.token_type", &types, error));
  if (hri_gguf_has(file, "tokenizer.ggml.scores"))
    HRI_TRY(hri_gguf_get_numbers(file, "tokenizer.ggml.scores", &scores, error));
  if ((types.count && types.count != tokens.count) || (scores.count && scores.count != tokens.count)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: tokenizer.ggml.tokens has %llu elements, token_type %llu, scores %llu",
             hri_gguf_path(file), (unsigned long long)tokens.count, (unsigned long long)types.count,
             (unsigned long long)scores.count);
    return hri_hint(error, HR_ERROR_INPUT, "the file contradicts itself; convert the model anew");
  }
  while ((text = hri_gguf_next(&tokens, &bytes))) {
    uint64_t id = v->tokens.count;
    int64_t type = types.count ? hri_gguf_integer_at(&types, id) : HRI_LEX_NORMAL;
    hri_lexicon_token token = {text, (uint32_t)bytes,
                               type >= HRI_LEX_NORMAL && type <= HRI_LEX_BYTE ? (hri_lex_type)type : HRI_LEX_NORMAL,
                               scores.count ? (float)hri_gguf_number_at(&scores, id) : 0};
    if (!hri_array_push(&v->tokens, token)) return hri_fail_memory(error, bytes, hri_gguf_path(file));
  }
  return check_texts(file, v, error);
}

static hr_status read_merges(const hri_gguf *file, hri_lexicon *v, hr_error *error) {
  hri_gguf_strings merges;
  const char *text, *blank;
  uint64_t bytes;
  if (!hri_gguf_has(file, "tokenizer.ggml.merges")) return HR_OK;
  HRI_TRY(hri_gguf_get_strings(file, "tokenizer.ggml.merges", &merges, error));
  while ((text = hri_gguf_next(&merges, &bytes))) {
    hri_lexicon_merge merge;
    blank = bytes > 2 ? memchr(text + 1, ' ', bytes - 2) : NULL; /* neither part is empty */
    if (!blank) {
      hri_fail(error, HR_ERROR_INPUT, "%s: tokenizer.ggml.merges: element %llu, '%.60s', has no two parts",
               hri_gguf_path(file), (unsigned long long)v->merges.count, text);
      return hri_hint(error, HR_ERROR_INPUT, "the file is damaged; fetch it anew");
    }
    merge = (hri_lexicon_merge){text, blank + 1, (uint32_t)(blank - text), (uint32_t)(text + bytes - blank - 1)};
    if (!hri_array_push(&v->merges, merge)) return hri_fail_memory(error, bytes, hri_gguf_path(file));
  }
  return HR_OK;
}

static hr_status read_named(const hri_gguf *file, hri_lexicon *v, hr_error *error) {
  const hri_lexicon_split *split = v->sentencepiece ? NULL : hri_lexicon_split_named(v->pre);
  const char *text = NULL;
  for (int i = 0; i < HRI_LEXICON_NAMED; i++) {
    uint64_t id = 0;
    if (!hri_gguf_has(file, named_keys[i])) continue;
    HRI_TRY(hri_gguf_get_u64(file, named_keys[i], 0, UINT32_MAX, &id, error));
    if (id == UINT32_MAX) continue; /* written for "none" */
    if (id >= v->tokens.count) {
      hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' is %llu, but there are %zu tokens", hri_gguf_path(file),
               named_keys[i], (unsigned long long)id, v->tokens.count);
      return hri_hint(error, HR_ERROR_INPUT, "the file contradicts itself; convert the model anew");
    }
    v->named[i] = (int64_t)id;
  }
  v->space_prefix = v->sentencepiece; /* llama.cpp's defaults of a file that says nothing */
  v->add_bos = v->sentencepiece || (split && split->ignore_merges);
  HRI_TRY(hri_gguf_opt_bool(file, "tokenizer.ggml.add_bos_token", &v->add_bos, error));
  HRI_TRY(hri_gguf_opt_bool(file, "tokenizer.ggml.add_eos_token", &v->add_eos, error));
  HRI_TRY(hri_gguf_opt_bool(file, "tokenizer.ggml.add_space_prefix", &v->space_prefix, error));
  HRI_TRY(hri_gguf_opt_string(file, "tokenizer.chat_template", &text, &v->chat_template_bytes, error));
  v->chat_template = text;
  return HR_OK;
}

static hr_status read_kind(const hri_gguf *file, hri_lexicon *v, hr_error *error) {
  const char *model, *architecture = "";
  v->pre = "default";
  HRI_TRY(hri_gguf_get_string(file, "tokenizer.ggml.model", &model, NULL, error));
  HRI_TRY(hri_gguf_opt_string(file, "tokenizer.ggml.pre", &v->pre, NULL, error));
  HRI_TRY(hri_gguf_opt_string(file, "general.architecture", &architecture, NULL, error));
  v->sentencepiece = strcmp(model, "llama") == 0;
  v->gemma = v->sentencepiece && strncmp(architecture, "gemma", 5) == 0;
  if (v->sentencepiece || strcmp(model, "gpt2") == 0) return HR_OK;
  hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: tokenizer.ggml.model is '%.40s'; gpt2 and llama are supported",
           hri_gguf_path(file), model);
  return hri_hint(error, HR_ERROR_UNSUPPORTED,
                  "convert with --without-tokenizer and take the tokenizer from the original model");
}

hr_status hri_lexicon_from_gguf(const hri_gguf *file, hri_lexicon *lexicon, bool *found, hr_error *error) {
  *found = hri_gguf_has_tokenizer(file);
  if (!*found) return HR_OK;
  HRI_TRY(read_kind(file, lexicon, error));
  HRI_TRY(read_tokens(file, lexicon, error));
  HRI_TRY(read_merges(file, lexicon, error));
  return read_named(file, lexicon, error);
}

/* ---- writing ---- */

/* Blanks in tokens that are matched in raw text are blanks. */
static void put_token(hri_gguf_keys *keys, const hri_lexicon *v, const hri_lexicon_token *t, uint32_t id) {
  char padding[24];
  hri_text raw = {0};
  if (!t) {
    (void)snprintf(padding, sizeof padding, "[PAD%u]", id);
    hri_gguf_add_string(keys, padding, strlen(padding));
    return;
  }
  if (!v->sentencepiece || t->type != HRI_LEX_USER_DEFINED || !memmem(t->text, t->bytes, BLANK, 3)) {
    hri_gguf_add_string(keys, t->text, t->bytes);
    return;
  }
  for (const char *at = t->text, *end = at + t->bytes; at < end;) {
    bool blank = end - at >= 3 && memcmp(at, BLANK, 3) == 0;
    hri_text_add_bytes(&raw, blank ? " " : at, 1);
    at += blank ? 3 : 1;
  }
  hri_gguf_add_string(keys, hri_text_get(&raw), raw.length);
  keys->text.failed = keys->text.failed || raw.failed;
  hri_text_deinit(&raw);
}

static const hri_lexicon_token *token_at(const hri_lexicon *v, uint32_t id) {
  return id < v->tokens.count && v->tokens.items[id].text ? &v->tokens.items[id] : NULL;
}

static void put_merges(hri_gguf_keys *keys, const hri_lexicon *v) {
  hri_text merge = {0};
  hri_gguf_put_array(keys, "tokenizer.ggml.merges", HRI_GGUF_STRING, v->merges.count);
  for (size_t i = 0; i < v->merges.count; i++) {
    const hri_lexicon_merge *m = &v->merges.items[i];
    merge.length = 0;
    hri_text_add_bytes(&merge, m->left, m->left_bytes);
    hri_text_add_bytes(&merge, " ", 1);
    hri_text_add_bytes(&merge, m->right, m->right_bytes);
    hri_gguf_add_string(keys, hri_text_get(&merge), merge.length);
  }
  keys->text.failed = keys->text.failed || merge.failed;
  hri_text_deinit(&merge);
}

hr_status hri_lexicon_to_gguf(const hri_lexicon *v, uint32_t size, hri_gguf_keys *keys, hr_error *error) {
  if (v->tokens.count > size) {
    hri_fail(error, HR_ERROR_INPUT, "the tokenizer has %zu tokens, the model's vocabulary %u", v->tokens.count, size);
    return hri_hint(error, HR_ERROR_INPUT, "they do not belong together; check tokenizer.json and config.json");
  }
  hri_gguf_put_string(keys, "tokenizer.ggml.model", v->sentencepiece ? "llama" : "gpt2", v->sentencepiece ? 5 : 4);
  hri_gguf_put_string(keys, "tokenizer.ggml.pre", v->pre, strlen(v->pre));
  hri_gguf_put_array(keys, "tokenizer.ggml.tokens", HRI_GGUF_STRING, size);
  for (uint32_t i = 0; i < size; i++) put_token(keys, v, token_at(v, i), i);
  if (v->sentencepiece) {
    hri_gguf_put_array(keys, "tokenizer.ggml.scores", HRI_GGUF_F32, size);
    for (uint32_t i = 0; i < size; i++) hri_gguf_add_f32(keys, token_at(v, i) ? token_at(v, i)->score : -10000.0f);
  }
  hri_gguf_put_array(keys, "tokenizer.ggml.token_type", HRI_GGUF_I32, size);
  for (uint32_t i = 0; i < size; i++)
    hri_gguf_add_i32(keys, token_at(v, i) ? (int32_t)token_at(v, i)->type : HRI_LEX_UNUSED);
  if (!v->sentencepiece || v->merges.count > 0) put_merges(keys, v); /* readers of the former want the key */
  for (int i = 0; i < HRI_LEXICON_NAMED; i++)
    if (v->named[i] >= 0) hri_gguf_put_u32(keys, named_keys[i], (uint32_t)v->named[i]);
  hri_gguf_put_bool(keys, "tokenizer.ggml.add_bos_token", v->add_bos);
  hri_gguf_put_bool(keys, "tokenizer.ggml.add_eos_token", v->add_eos);
  if (v->sentencepiece) hri_gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", v->space_prefix);
  if (v->chat_template) hri_gguf_put_string(keys, "tokenizer.chat_template", v->chat_template, v->chat_template_bytes);
  return HR_OK;
}
