/* tokenizer.json and what lies beside it; tokenizer.model, and vocab.json with merges.txt, where there is none.
 *
 * The file may have 20 MB, nearly all of them vocabulary and merges. Those are scanned in place and stay where they
 * are; the small parts become trees. The scanner decodes strings where they stand, so a part is made a tree before it
 * is passed over.
 *
 * Which tokens are added ones is no matter of that file alone: added_tokens.json and tokenizer_config.json have more of
 * them, by rules that the tokenizer itself follows (tokenizer/config.c). So it is opened and asked. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "convert/lexicon.h"
#include "tokenizer/added.h"
#include "tokenizer/merges.h"
#include "tokenizer/recognize.h"
#include "tokenizer/sentencepiece.h"

#define BLANK "\xE2\x96\x81" /* U+2581 */

enum { FILE_LIMIT = 256 << 20, CONFIG_LIMIT = 64 << 20, MAX_TOKENS = 1 << 24 };

typedef struct reader {
  hri_lexicon *lexicon;
  const char *path;
  hri_json normalizer, pre_tokenizer, post_processor;
  const char *unk, *around[2]; /* what the post-processor puts before a text, and behind it */
  bool byte_fallback, ignore_merges, has_vocabulary;
  bool from_merges; /* vocab.json and merges.txt: what is around a text stands in tokenizer_config.json */
} reader;

static hr_status unsupported(const reader *r, hr_error *error, const char *part, const char *what) {
  hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: %s: %s has no counterpart in GGUF", r->path, part, what);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "convert with --without-tokenizer and keep the tokenizer's own files");
}

/* ---- the model: vocabulary and merges ---- */

static hr_status put_token(reader *r, uint64_t id, const char *text, uint64_t bytes, hri_lex_type type,
                           const hri_json_scan *scan, hr_error *error) {
  hri_lexicon *v = r->lexicon;
  hri_lexicon_token *token;
  if (id >= MAX_TOKENS) {
    if (scan) return hri_json_scan_fail(scan, error, "the id %llu is too large", (unsigned long long)id);
    hri_fail(error, HR_ERROR_INPUT, "%s: added_tokens: the id %llu is too large", r->path, (unsigned long long)id);
    return hri_hint(error, HR_ERROR_INPUT, "ids up to %d make sense", MAX_TOKENS);
  }
  if (!hri_array_reserve(&v->tokens, id + 1)) return hri_fail_memory(error, (id + 1) * sizeof *token, r->path);
  while (v->tokens.count <= id) v->tokens.items[v->tokens.count++] = (hri_lexicon_token){.type = HRI_LEX_UNUSED};
  token = &v->tokens.items[id];
  if (token->text && (token->bytes != bytes || memcmp(token->text, text, bytes) != 0)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: the id %llu belongs to '%.60s' and to '%.60s'", r->path,
             (unsigned long long)id, token->text, text);
    return hri_hint(error, HR_ERROR_INPUT, "the file is damaged; fetch it anew");
  }
  token->text = text;
  token->bytes = (uint32_t)bytes;
  token->type = type;
  return HR_OK;
}

static hr_status read_tokens(reader *r, hri_json_scan *scan, hr_error *error) {
  HRI_TRY(hri_json_scan_object(scan, error));
  for (;;) {
    char *key;
    uint64_t id, bytes;
    HRI_TRY(hri_json_scan_key(scan, &key, error));
    if (!key) return HR_OK;
    bytes = scan->bytes;
    HRI_TRY(hri_json_scan_u64(scan, &id, error));
    HRI_TRY(put_token(r, id, key, bytes, HRI_LEX_NORMAL, scan, error));
  }
}

/* Tokens, and so the parts of merges, may hold U+0000 (InternLM's do), which nothing else may. */
static hr_status read_vocabulary(reader *r, hri_json_scan *scan, hr_error *error) {
  hr_status status;
  r->has_vocabulary = true;
  if (hri_json_scan_peek(scan) == '[')
    return unsupported(r, error, "model.vocab", "a vocabulary with scores (unigram)");
  scan->takes_nul = true;
  status = read_tokens(r, scan, error);
  scan->takes_nul = false;
  return status;
}

/* "a b" or ["a", "b"] */
static hr_status read_merge(hri_json_scan *scan, hri_lexicon_merge *merge, hr_error *error) {
  char *left, *right;
  uint64_t left_bytes, right_bytes;
  bool more;
  if (hri_json_scan_peek(scan) == '[') {
    HRI_TRY(hri_json_scan_array(scan, error));
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) return hri_json_scan_fail(scan, error, "a merge has two parts");
    HRI_TRY(hri_json_scan_string(scan, &left, error));
    left_bytes = scan->bytes;
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) return hri_json_scan_fail(scan, error, "a merge has two parts");
    HRI_TRY(hri_json_scan_string(scan, &right, error));
    right_bytes = scan->bytes;
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (more) return hri_json_scan_fail(scan, error, "a merge has two parts");
  } else {
    HRI_TRY(hri_json_scan_string(scan, &left, error));
    right = memchr(left, ' ', scan->bytes);
    if (!right) return hri_json_scan_fail(scan, error, "a merge has two parts with a blank between them");
    *right++ = 0;
    left_bytes = (uint64_t)(right - left) - 1;
    right_bytes = scan->bytes - left_bytes - 1;
  }
  *merge = (hri_lexicon_merge){left, right, (uint32_t)left_bytes, (uint32_t)right_bytes};
  return HR_OK;
}

static hr_status read_merges(reader *r, hri_json_scan *scan, hr_error *error) {
  bool more;
  HRI_TRY(hri_json_scan_array(scan, error));
  for (;;) {
    hri_lexicon_merge merge;
    hr_status status;
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) return HR_OK;
    scan->takes_nul = true;
    status = read_merge(scan, &merge, error);
    scan->takes_nul = false;
    HRI_TRY(status);
    if (!hri_array_push(&r->lexicon->merges, merge))
      return hri_fail_memory(error, r->lexicon->merges.count * sizeof merge, r->path);
  }
}

/* What merges of some vocabularies put before or behind parts of words. */
static bool is_affix(const char *key) {
  return strcmp(key, "continuing_subword_prefix") == 0 || strcmp(key, "end_of_word_suffix") == 0;
}

static hr_status read_model(reader *r, hri_json_scan *scan, hr_error *error) {
  char *key, *text;
  HRI_TRY(hri_json_scan_object(scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(scan, &key, error));
    if (!key) return HR_OK;
    char first = hri_json_scan_peek(scan);
    if (strcmp(key, "type") == 0) {
      HRI_TRY(hri_json_scan_string(scan, &text, error));
      if (strcmp(text, "BPE") != 0) return unsupported(r, error, "model.type", text);
    } else if (strcmp(key, "vocab") == 0) {
      HRI_TRY(read_vocabulary(r, scan, error));
    } else if (strcmp(key, "merges") == 0) {
      HRI_TRY(read_merges(r, scan, error));
    } else if (strcmp(key, "unk_token") == 0 && first == '"') {
      HRI_TRY(hri_json_scan_string(scan, &text, error));
      r->unk = text;
    } else if (first == '"' && is_affix(key)) {
      HRI_TRY(hri_json_scan_string(scan, &text, error));
      if (*text) return unsupported(r, error, "model", key);
    } else {
      if (strcmp(key, "byte_fallback") == 0) r->byte_fallback = first == 't';
      if (strcmp(key, "ignore_merges") == 0) r->ignore_merges = first == 't';
      HRI_TRY(hri_json_scan_skip(scan, error));
    }
  }
}

/* ---- the file ---- */

/* Where the value at `at` ends; only brackets and strings count, what is wrong in it the parse will tell. */
static const char *value_end(const char *at, const char *end) {
  int depth = 0;
  for (; at < end; at++) {
    if (*at == '"') {
      for (at++; at < end && *at != '"'; at++) at += *at == '\\';
      if (at >= end) return end;
    } else if (*at == '{' || *at == '[') {
      depth++;
    } else if (*at == '}' || *at == ']') {
      if (depth == 0) return at;
      depth--;
    } else if (*at == ',' && depth == 0) {
      return at;
    }
    if (depth == 0 && (*at == '}' || *at == ']' || *at == '"')) return at + 1;
  }
  return end;
}

static hr_status read_file(reader *r, uint64_t bytes, hr_error *error) {
  hri_json_scan scan = hri_json_scan_init(r->lexicon->text, bytes, r->path, "");
  char *key;
  HRI_TRY(hri_json_scan_object(&scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&scan, &key, error));
    if (!key) break;
    (void)hri_json_scan_peek(&scan);
    hri_json *tree = strcmp(key, "normalizer") == 0       ? &r->normalizer
                     : strcmp(key, "pre_tokenizer") == 0  ? &r->pre_tokenizer
                     : strcmp(key, "post_processor") == 0 ? &r->post_processor
                     : strcmp(key, "added_tokens") == 0   ? &r->lexicon->added
                                                          : NULL;
    if (tree && tree->value) return hri_json_scan_fail(&scan, error, "the field '%s' stands there twice", key);
    if (tree)
      HRI_TRY(
          hri_json_parse_file(scan.next, (uint64_t)(value_end(scan.next, scan.end) - scan.next), r->path, tree, error));
    if (strcmp(key, "model") == 0) HRI_TRY(read_model(r, &scan, error));
    else HRI_TRY(hri_json_scan_skip(&scan, error));
  }
  HRI_TRY(hri_json_scan_end(&scan, error));
  if (r->has_vocabulary) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: the field model.vocab is missing", r->path);
  return hri_hint(error, HR_ERROR_INPUT, "the file is damaged; fetch it anew");
}

/* ---- what the parts mean ---- */

static hr_status read_added(reader *r, hr_error *error) {
  for (uint64_t i = 0; i < hri_json_count(&r->lexicon->added); i++) {
    hri_json item = hri_json_item(&r->lexicon->added, i);
    const char *content;
    uint64_t id;
    bool special = false;
    HRI_TRY(hri_json_get_string(&item, "content", &content, error));
    HRI_TRY(hri_json_get_u64(&item, "id", 0, MAX_TOKENS - 1, &id, error));
    HRI_TRY(hri_json_opt_bool(&item, "special", &special, error));
    HRI_TRY(put_token(r, id, content, strlen(content), special ? HRI_LEX_CONTROL : HRI_LEX_USER_DEFINED, NULL, error));
  }
  return HR_OK;
}

/* ---- added tokens ---- */

static uint64_t text_bytes_of_added(const hr_tokenizer *t) {
  uint64_t bytes = 1;
  for (uint32_t id = 0; id < t->vocab.size; id++)
    if (hri_is_added(t, id)) bytes += (uint64_t)t->vocab.bytes[id] + 1;
  return bytes;
}

/* An unknown token and bytes stay what they are. New ones have the score that llama.cpp's converter gives them. */
static hr_status mark_added(reader *r, const hr_tokenizer *t, hr_error *error) {
  hri_lexicon *v = r->lexicon;
  char *next = v->added_text = hri_alloc(text_bytes_of_added(t));
  if (!next) return hri_fail_memory(error, text_bytes_of_added(t), r->path);
  for (uint32_t id = 0; id < t->vocab.size; id++) {
    const bool has = id < v->tokens.count && v->tokens.items[id].text;
    const hri_lex_type type = has ? v->tokens.items[id].type : HRI_LEX_NORMAL;
    const hri_added_token *flags;
    if (!hri_is_added(t, id) || type == HRI_LEX_UNKNOWN || type == HRI_LEX_BYTE) continue;
    memcpy(next, hri_vocab_content(&t->vocab, id), (size_t)t->vocab.bytes[id] + 1);
    HRI_TRY(put_token(r, id, next, t->vocab.bytes[id],
                      hr_tokenizer_is_special(t, (int32_t)id) ? HRI_LEX_CONTROL : HRI_LEX_USER_DEFINED, NULL, error));
    if (!has) v->tokens.items[id].score = -1000;
    flags = hri_added_get(&t->added, id);
    if (flags->lstrip || flags->rstrip || flags->single_word) v->stripping = next;
    next += (size_t)t->vocab.bytes[id] + 1;
  }
  return HR_OK;
}

/* Of merges the class has tokens that no file names. */
static void take_named(reader *r, const hr_tokenizer *t) {
  static const hr_named_token names[HRI_LEXICON_NAMED] = {HR_TOKEN_BOS, HR_TOKEN_EOS, HR_TOKEN_UNK, HR_TOKEN_PAD};
  for (int i = 0; i < HRI_LEXICON_NAMED; i++) r->lexicon->named[i] = hr_tokenizer_named(t, names[i]);
}

static hr_status take_added(reader *r, hr_error *error) {
  hr_tokenizer *t;
  hr_status status;
  HRI_TRY(hr_tokenizer_open(r->path, &t, error));
  status = mark_added(r, t, error);
  if (r->from_merges) take_named(r, t);
  hr_tokenizer_close(t);
  return status;
}

/* ---- components ---- */

static const char *type_of(const hri_json *part) {
  hri_json type = hri_json_member(part, "type");
  return json_is_string(type.value) ? json_string_value(type.value) : "";
}

/* The members of a Sequence, or the part by itself: their number, and the index-th. */
static uint64_t parts_of(const hri_json *part, const char *list) {
  hri_json members = hri_json_member(part, list);
  if (!json_is_object(part->value)) return 0;
  return strcmp(type_of(part), "Sequence") == 0 ? hri_json_count(&members) : 1;
}

static hri_json part_at(const hri_json *part, const char *list, uint64_t index) {
  hri_json members = hri_json_member(part, list);
  return strcmp(type_of(part), "Sequence") == 0 ? hri_json_item(&members, index) : *part;
}

static bool is_true(const hri_json *part, const char *key, bool missing) {
  hri_json member = hri_json_member(part, key);
  return json_is_boolean(member.value) ? json_is_true(member.value) : missing;
}

static bool says(const hri_json *part, const char *key, const char *text) {
  hri_json member = hri_json_member(part, key);
  return json_is_string(member.value) && strcmp(json_string_value(member.value), text) == 0;
}

static hr_status read_byte_level(reader *r, hr_error *error) {
  const char *regex = NULL;
  bool digits = false, byte_level = false, own = false, nfc = json_is_object(r->normalizer.value);
  const hri_lexicon_split *split;
  for (uint64_t i = 0; i < parts_of(&r->pre_tokenizer, "pretokenizers"); i++) {
    hri_json part = part_at(&r->pre_tokenizer, "pretokenizers", i), pattern = hri_json_member(&part, "pattern"),
             text = hri_json_member(&pattern, "Regex");
    const char *type = type_of(&part);
    bool invert = is_true(&part, "invert", false);
    if (byte_level) return unsupported(r, error, "pre_tokenizer", "a part behind ByteLevel");
    if (strcmp(type, "ByteLevel") == 0) {
      byte_level = true;
      own = is_true(&part, "use_regex", true);
      if (is_true(&part, "add_prefix_space", false))
        return unsupported(r, error, "pre_tokenizer", "ByteLevel with add_prefix_space");
    } else if (strcmp(type, "Digits") == 0 && is_true(&part, "individual_digits", false)) {
      digits = true;
    } else if (strcmp(type, "Split") == 0 && json_is_string(text.value) && !regex &&
               says(&part, "behavior", invert ? "Removed" : "Isolated")) {
      regex = json_string_value(text.value);
    } else {
      return unsupported(r, error, "pre_tokenizer", type);
    }
  }
  split = byte_level && own != (regex != NULL) ? hri_lexicon_split_like(regex, digits, r->ignore_merges) : NULL;
  if (!split)
    return unsupported(r, error, "pre_tokenizer",
                       regex ? "its regular expression (with ignore_merges as it is)" : "its sequence");
  if (nfc && (strcmp(type_of(&r->normalizer), "NFC") != 0 || !split->nfc))
    return unsupported(r, error, "normalizer", type_of(&r->normalizer));
  r->lexicon->pre = split->pre;
  return HR_OK;
}

/* Llama 2: a blank in front and U+2581 for blanks, as normalizer or as Metaspace; Gemma: without the blank in front. */
static hr_status read_sentencepiece(reader *r, hr_error *error) {
  hri_json pattern = hri_json_member(&r->pre_tokenizer, "pattern");
  bool replaced = false;
  r->lexicon->sentencepiece = true;
  r->lexicon->pre = "default";
  for (uint64_t i = 0; i < parts_of(&r->normalizer, "normalizers"); i++) {
    hri_json part = part_at(&r->normalizer, "normalizers", i), of = hri_json_member(&part, "pattern");
    if (strcmp(type_of(&part), "Prepend") == 0 && says(&part, "prepend", BLANK)) r->lexicon->space_prefix = true;
    else if (strcmp(type_of(&part), "Replace") == 0 && says(&of, "String", " ") && says(&part, "content", BLANK))
      replaced = true;
    else return unsupported(r, error, "normalizer", type_of(&part));
  }
  if (strcmp(type_of(&r->pre_tokenizer), "Metaspace") == 0 &&
      (says(&r->pre_tokenizer, "replacement", BLANK) || !hri_json_has(&r->pre_tokenizer, "replacement"))) {
    replaced = true;
    r->lexicon->space_prefix = !says(&r->pre_tokenizer, "prepend_scheme", "never");
    r->lexicon->prefix_first = says(&r->pre_tokenizer, "prepend_scheme", "first");
  } else if (strcmp(type_of(&r->pre_tokenizer), "Split") == 0 && says(&pattern, "String", " ")) {
    r->lexicon->gemma = true; /* at blanks, which are gone by then */
  } else if (json_is_object(r->pre_tokenizer.value)) {
    return unsupported(r, error, "pre_tokenizer", type_of(&r->pre_tokenizer));
  }
  return replaced ? HR_OK : unsupported(r, error, "normalizer", "a vocabulary without U+2581 for blanks");
}

/* TemplateProcessing: a special token in front of the sequence and one behind it, or neither. */
static hr_status read_pieces(reader *r, const hri_json *single, hr_error *error) {
  bool behind = false;
  for (uint64_t i = 0; i < hri_json_count(single); i++) {
    hri_json piece = hri_json_item(single, i), special = hri_json_member(&piece, "SpecialToken"),
             id = hri_json_member(&special, "id");
    const char *text = json_is_string(id.value) ? json_string_value(id.value) : NULL;
    if (!text) {
      behind = true;
      continue;
    }
    if (r->around[behind]) return unsupported(r, error, "post_processor", "more than one token on a side of a text");
    r->around[behind] = text;
  }
  return HR_OK;
}

static hr_status read_template(reader *r, hr_error *error) {
  for (uint64_t i = 0; i < parts_of(&r->post_processor, "processors"); i++) {
    hri_json part = part_at(&r->post_processor, "processors", i), single = hri_json_member(&part, "single");
    const char *type = type_of(&part);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
      return unsupported(r, error, "post_processor", type);
    if (strcmp(type, "TemplateProcessing") == 0) HRI_TRY(read_pieces(r, &single, error));
  }
  return HR_OK;
}

static bool is_text(const hri_lexicon_token *t, const char *text) {
  return t->text && t->bytes == strlen(text) && memcmp(t->text, text, t->bytes) == 0;
}

static int64_t find_token(const hri_lexicon *v, const char *text) {
  for (size_t i = 0; text && i < v->tokens.count; i++)
    if (is_text(&v->tokens.items[i], text)) return (int64_t)i;
  return -1;
}

/* Bytes, the unknown token, and scores: a token's is the rank of the first merge that makes it, counted downwards,
 * which gives
 * SentencePiece's order of merging. */
static hr_status finish_sentencepiece(reader *r, hr_error *error) {
  hri_lexicon *v = r->lexicon;
  char name[8];
  for (size_t i = 0; i < v->tokens.count; i++) {
    hri_lexicon_token *t = &v->tokens.items[i];
    unsigned byte;
    if (!t->text) continue;
    if (t->bytes == 6 && sscanf(t->text, "<0x%2X>", &byte) == 1) {
      (void)snprintf(name, sizeof name, "<0x%02X>", byte & 255);
      if (strcmp(name, t->text) == 0) t->type = HRI_LEX_BYTE;
    }
    if (r->unk && is_text(t, r->unk)) t->type = HRI_LEX_UNKNOWN;
  }
  return hri_lexicon_score(v, error);
}

/* ---- beside tokenizer.json ---- */

static hr_status read_config(reader *r, const char *path, hr_error *error) {
  static const char *const names[HRI_LEXICON_NAMED] = {"bos_token", "eos_token", "unk_token", "pad_token"};
  hri_lexicon *v = r->lexicon;
  HRI_TRY(hri_json_read(path, CONFIG_LIMIT, &v->config, error));
  for (int i = 0; i < HRI_LEXICON_NAMED; i++) {
    hri_json member = hri_json_member(&v->config, names[i]);
    if (json_is_object(member.value)) member = hri_json_member(&member, "content");
    if (json_is_string(member.value)) v->named[i] = find_token(v, json_string_value(member.value));
  }
  if (r->has_vocabulary && !r->from_merges)
    return HR_OK; /* tokenizer.json itself says what is put around a text (tokenizer/config.c) */
  v->add_bos = is_true(&v->config, "add_bos_token", v->add_bos);
  v->add_eos = is_true(&v->config, "add_eos_token", v->add_eos);
  return HR_OK;
}

/* GGUF puts bos_token_id before a text and eos_token_id behind it, and no other token: those of the post-processor get
 * these names, also where nothing beside the file gives them. */
static hr_status settle_around(reader *r, hr_error *error) {
  static const char *const keys[2] = {"bos_token", "eos_token"};
  bool *adds[2] = {&r->lexicon->add_bos, &r->lexicon->add_eos};
  char text[200];
  for (int i = 0; i < 2; i++) {
    int64_t *named = &r->lexicon->named[i == 0 ? HRI_LEXICON_BOS : HRI_LEXICON_EOS],
            id = find_token(r->lexicon, r->around[i]);
    *adds[i] = r->around[i] != NULL;
    if (!*adds[i]) continue;
    (void)snprintf(text, sizeof text, "'%.60s' %s a text, which is not the %s of tokenizer_config.json,", r->around[i],
                   i == 0 ? "before" : "behind", keys[i]);
    if (id < 0 || (*named >= 0 && *named != id)) return unsupported(r, error, "post_processor", text);
    *named = id;
  }
  return HR_OK;
}

/* The template of tokenizer_config.json: a text, or a list of named ones, of which "default" counts. */
static void template_in_config(hri_lexicon *v) {
  hri_json member = hri_json_member(&v->config, "chat_template");
  for (uint64_t i = 0; i < hri_json_count(&member); i++) {
    hri_json item = hri_json_item(&member, i), name = hri_json_member(&item, "name");
    if (!json_is_string(name.value) || strcmp(json_string_value(name.value), "default") != 0) continue;
    member = hri_json_member(&item, "template");
    break;
  }
  if (!json_is_string(member.value)) return;
  v->chat_template = json_string_value(member.value);
  v->chat_template_bytes = json_string_length(member.value);
}

static hr_status read_beside(reader *r, const char *directory, hr_error *error) {
  char *config = hri_path_join(directory, "tokenizer_config.json"),
       *jinja = hri_path_join(directory, "chat_template.jinja");
  hr_status status = config && jinja ? HR_OK : hri_fail_memory(error, strlen(directory), "a path");
  if (status == HR_OK && hri_path_exists(config)) status = read_config(r, config, error);
  if (status == HR_OK) template_in_config(r->lexicon);
  if (status == HR_OK && hri_path_exists(jinja)) {
    status = hri_file_read(jinja, CONFIG_LIMIT, &r->lexicon->template_text, &r->lexicon->chat_template_bytes, error);
    r->lexicon->chat_template = r->lexicon->template_text;
  }
  hri_free(config);
  hri_free(jinja);
  return status;
}

static hr_status interpret(reader *r, const char *directory, hr_error *error) {
  HRI_TRY(read_added(r, error));
  HRI_TRY(take_added(r, error));
  HRI_TRY(r->byte_fallback ? read_sentencepiece(r, error) : read_byte_level(r, error));
  HRI_TRY(read_template(r, error));
  if (r->lexicon->sentencepiece) HRI_TRY(finish_sentencepiece(r, error));
  if (!r->from_merges) r->lexicon->named[HRI_LEXICON_UNK] = find_token(r->lexicon, r->unk);
  HRI_TRY(read_beside(r, directory, error));
  return r->from_merges ? HR_OK : settle_around(r, error);
}

/* ---- tokenizer.model, where there is no tokenizer.json ---- */

/* Pieces are tokens as they are, by their numbers; their texts get NULs. */
static hr_status take_pieces(reader *r, const hri_sentencepiece *model, hr_error *error) {
  hri_lexicon *v = r->lexicon;
  const int32_t ids[HRI_LEXICON_NAMED] = {model->bos_id, model->eos_id, model->unk_id, model->pad_id};
  uint64_t bytes = 1;
  char *next;
  for (uint32_t i = 0; i < model->piece_count; i++) bytes += model->pieces[i].bytes + 1;
  next = v->text = hri_alloc(bytes);
  if (!next) return hri_fail_memory(error, bytes, r->path);
  for (uint32_t i = 0; i < model->piece_count; i++) {
    const hri_sp_piece *piece = &model->pieces[i];
    hri_lexicon_token token = {next, piece->bytes, (hri_lex_type)piece->type, piece->score};
    memcpy(next, piece->text, piece->bytes);
    next[piece->bytes] = 0;
    next += piece->bytes + 1;
    if (!hri_array_push(&v->tokens, token)) return hri_fail_memory(error, bytes, r->path);
  }
  for (int i = 0; i < HRI_LEXICON_NAMED; i++) v->named[i] = ids[i];
  return HR_OK;
}

static hr_status read_sentencepiece_model(reader *r, const char *directory, hr_error *error) {
  hri_sentencepiece model = {0};
  hr_status status = hri_sentencepiece_read(r->path, &model, error);
  if (status == HR_OK) status = take_pieces(r, &model, error);
  r->lexicon->sentencepiece = true;
  r->lexicon->pre = "default";
  r->lexicon->space_prefix = model.add_dummy_prefix;
  r->lexicon->add_bos = model.bos_id >= 0; /* as Llama and Gemma; tokenizer_config.json may say otherwise */
  if (status == HR_OK && !model.byte_fallback)
    status = unsupported(r, error, "trainer_spec", "a vocabulary without bytes");
  hri_sentencepiece_deinit(&model);
  if (status == HR_OK) status = take_added(r, error);
  return status == HR_OK ? read_beside(r, directory, error) : status;
}

static hr_status read_json_tokenizer(reader *r, const char *directory, hr_error *error) {
  uint64_t bytes;
  HRI_TRY(hri_file_read(r->path, FILE_LIMIT, &r->lexicon->text, &bytes, error));
  HRI_TRY(read_file(r, bytes, error));
  return interpret(r, directory, error);
}

/* ---- vocab.json and merges.txt, where there is neither ---- */

static hr_status read_merges_tokenizer(reader *r, const char *directory, hr_error *error) {
  hri_merges made;
  HRI_TRY(hri_merges_read(directory, &made, error));
  r->from_merges = true;
  r->lexicon->text = made.text.chars;
  HRI_TRY(read_file(r, made.text.length, error));
  return interpret(r, directory, error);
}

/* ---- a directory ---- */

static hr_status read_any(reader *r, const char *directory, hr_error *error) {
  const char *name = strrchr(r->path, '/') ? strrchr(r->path, '/') + 1 : r->path;
  hri_tokenizer_kind kind;
  if (strcmp(name, "tokenizer.json") == 0) return read_json_tokenizer(r, directory, error);
  if (strcmp(name, "vocab.json") == 0) return read_merges_tokenizer(r, directory, error);
  if (strcmp(name, "vocab.txt") == 0) return unsupported(r, error, "the vocabulary", "WordPiece");
  HRI_TRY(hri_tokenizer_recognize(r->path, &kind, error));
  if (strcmp(name, "tokenizer.model") == 0 && kind == HRI_TOKENIZER_SENTENCEPIECE)
    return read_sentencepiece_model(r, directory, error);
  return unsupported(r, error, "the vocabulary", "a list of ranks");
}

hr_status hri_lexicon_from_directory(const char *directory, hri_lexicon *lexicon, bool *found, hr_error *error) {
  reader r = {.lexicon = lexicon};
  char *path;
  hr_status status = hri_tokenizer_find(directory, &path, error);
  *found = status == HR_OK && path;
  r.path = path;
  if (*found) status = read_any(&r, directory, error);
  hri_json_deinit(&r.normalizer);
  hri_json_deinit(&r.pre_tokenizer);
  hri_json_deinit(&r.post_processor);
  hri_free(path);
  return status;
}
