/* tokenizer.json and tokenizer_config.json from what GGUF says.
 *
 * GGUF names a way to split text and lists tokens with their kinds; the components of tokenizer.json follow from that.
 * Control
 * tokens become special added tokens, user-defined ones plain added tokens; all stand in the vocabulary too, so that
 * ids follow from it wherever in the list they are. */
#include <string.h>

#include "base/file.h"
#include "convert/lexicon.h"

#define BLANK "\xE2\x96\x81"
#define JSON_DECODER "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}"
#define JSON_BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define JSON_REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" BLANK "\"}"
#define JSON_BACK "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" BLANK "\"},\"content\":\" \"}"

/* A part that never changes. */
static void put_constant(hri_json_writer *w, const char *json) {
  hri_json tree = {0};
  if (hri_json_parse(json, strlen(json), "constant", &tree, NULL) == HR_OK) {
    hri_json_put_tree(w, tree.value);
  } else {
    hri_json_put_null(w);
    w->text->failed = true; /* memory: the text is well formed */
  }
  hri_json_deinit(&tree);
}

static void field_constant(hri_json_writer *w, const char *key, const char *json) {
  hri_json_key(w, key);
  put_constant(w, json);
}

/* Runs of blanks in a Gemma vocabulary are stored as blanks, and are U+2581 to its merges. They become ordinary tokens,
 * which the merges make, as transformers has it. The texts live in lexicon->text, which only directories fill
 * otherwise. */
static hr_status respell_blanks(hri_lexicon *v, hr_error *error) {
  uint64_t bytes = 0;
  char *next;
  for (int pass = 0; pass < 2; pass++) {
    next = v->text;
    for (size_t id = 0; id < v->tokens.count; id++) {
      hri_lexicon_token *t = &v->tokens.items[id];
      if (t->type != HRI_LEX_USER_DEFINED || t->bytes == 0 || strspn(t->text, " ") != t->bytes) continue;
      if (pass == 0) {
        bytes += 3 * (uint64_t)t->bytes + 1;
        continue;
      }
      *t = (hri_lexicon_token){next, 3 * t->bytes, HRI_LEX_NORMAL, t->score};
      for (uint32_t i = 0; i < t->bytes; i += 3) memcpy(next + i, BLANK, 3);
      next[t->bytes] = 0;
      next += t->bytes + 1;
    }
    if (bytes == 0 || v->text) return HR_OK;
    v->text = hri_alloc(bytes);
    if (!v->text) return hri_fail_memory(error, bytes, "tokens of blanks");
  }
  return HR_OK;
}

bool hri_lexicon_is_added(const hri_lexicon *v, const hri_lexicon_token *t) {
  return t->type == HRI_LEX_USER_DEFINED || t->type == HRI_LEX_CONTROL ||
         (v->sentencepiece && t->type == HRI_LEX_UNKNOWN);
}

/* Tokens of no use in GGUF fill ids that have none; one that has a name of its own, as <pad>'s, is of use. */
static bool is_token(const hri_lexicon *v, size_t id) {
  const hri_lexicon_token *t = &v->tokens.items[id];
  for (int i = 0; i < HRI_LEXICON_NAMED; i++)
    if (v->named[i] == (int64_t)id) return t->text != NULL;
  return t->text && !(t->type == HRI_LEX_UNUSED && strncmp(t->text, "[PAD", 4) == 0);
}

static void put_added(hri_json_writer *w, const hri_lexicon *v) {
  hri_json_key(w, "added_tokens");
  hri_json_begin_array(w);
  for (size_t id = 0; id < v->tokens.count; id++) {
    const hri_lexicon_token *t = &v->tokens.items[id];
    if (!is_token(v, id) || !hri_lexicon_is_added(v, t)) continue;
    hri_json_begin_object(w);
    hri_json_field_u64(w, "id", id);
    hri_json_key(w, "content");
    hri_json_put_chars(w, t->text, t->bytes);
    hri_json_field_bool(w, "single_word", false);
    hri_json_field_bool(w, "lstrip", false);
    hri_json_field_bool(w, "rstrip", false);
    hri_json_field_bool(w, "normalized", false);
    hri_json_field_bool(w, "special", t->type != HRI_LEX_USER_DEFINED);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_split(hri_json_writer *w, const hri_lexicon_split *split) {
  if (!split->regex && !split->digits) {
    field_constant(w, "pre_tokenizer", JSON_BYTE_LEVEL);
    return;
  }
  hri_json_key(w, "pre_tokenizer");
  hri_json_begin_object(w);
  hri_json_field_string(w, "type", "Sequence");
  hri_json_key(w, "pretokenizers");
  hri_json_begin_array(w);
  if (split->digits) put_constant(w, "{\"type\":\"Digits\",\"individual_digits\":true}");
  if (split->regex) {
    hri_json_begin_object(w);
    hri_json_field_string(w, "type", "Split");
    hri_json_key(w, "pattern");
    hri_json_begin_object(w);
    hri_json_field_string(w, "Regex", split->regex);
    hri_json_end_object(w);
    hri_json_field_string(w, "behavior", "Isolated");
    hri_json_field_bool(w, "invert", false);
    hri_json_end_object(w);
  }
  put_constant(w, split->regex
                      ? "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
                      : JSON_BYTE_LEVEL);
  hri_json_end_array(w);
  hri_json_end_object(w);
}

static void put_pieces(hri_json_writer *w, const hri_lexicon *v, bool pair) {
  const hri_lexicon_token *bos =
      v->add_bos && v->named[HRI_LEXICON_BOS] >= 0 ? &v->tokens.items[v->named[HRI_LEXICON_BOS]] : NULL;
  const hri_lexicon_token *eos =
      v->add_eos && v->named[HRI_LEXICON_EOS] >= 0 ? &v->tokens.items[v->named[HRI_LEXICON_EOS]] : NULL;
  hri_json_begin_array(w);
  for (uint64_t sequence = 0; sequence < (pair ? 2 : 1); sequence++)
    for (int place = 0; place < 3; place++) {
      const hri_lexicon_token *special = place == 0 ? bos : place == 2 ? eos : NULL;
      if (place != 1 && !special) continue;
      hri_json_begin_object(w);
      hri_json_key(w, special ? "SpecialToken" : "Sequence");
      hri_json_begin_object(w);
      hri_json_field_string(w, "id", special ? special->text : sequence == 0 ? "A" : "B");
      hri_json_field_u64(w, "type_id", sequence);
      hri_json_end_object(w);
      hri_json_end_object(w);
    }
  hri_json_end_array(w);
}

static void put_template(hri_json_writer *w, const hri_lexicon *v) {
  const bool adds[2] = {v->add_bos && v->named[HRI_LEXICON_BOS] >= 0, v->add_eos && v->named[HRI_LEXICON_EOS] >= 0};
  hri_json_begin_object(w);
  hri_json_field_string(w, "type", "TemplateProcessing");
  hri_json_key(w, "single");
  put_pieces(w, v, false);
  hri_json_key(w, "pair");
  put_pieces(w, v, true);
  hri_json_key(w, "special_tokens");
  hri_json_begin_object(w);
  for (int i = 0; i < 2; i++) {
    const char *text = adds[i] ? v->tokens.items[v->named[i]].text : NULL;
    if (!text || (i == 1 && adds[0] && v->named[0] == v->named[1])) continue;
    hri_json_key(w, text);
    hri_json_begin_object(w);
    hri_json_field_string(w, "id", text);
    hri_json_key(w, "ids");
    hri_json_begin_array(w);
    hri_json_put_i64(w, v->named[i]);
    hri_json_end_array(w);
    hri_json_key(w, "tokens");
    hri_json_begin_array(w);
    hri_json_put_string(w, text);
    hri_json_end_array(w);
    hri_json_end_object(w);
  }
  hri_json_end_object(w);
  hri_json_end_object(w);
}

static void put_post_processor(hri_json_writer *w, const hri_lexicon *v) {
  bool adds = (v->add_bos && v->named[HRI_LEXICON_BOS] >= 0) || (v->add_eos && v->named[HRI_LEXICON_EOS] >= 0);
  hri_json_key(w, "post_processor");
  if (!adds) {
    put_constant(w,
                 v->sentencepiece
                     ? "null"
                     : "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true}");
  } else if (v->sentencepiece) {
    put_template(w, v);
  } else {
    hri_json_begin_object(w);
    hri_json_field_string(w, "type", "Sequence");
    hri_json_key(w, "processors");
    hri_json_begin_array(w);
    put_constant(w, "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true}");
    put_template(w, v);
    hri_json_end_array(w);
    hri_json_end_object(w);
  }
}

static void put_components(hri_json_writer *w, const hri_lexicon *v, const hri_lexicon_split *split) {
  if (!v->sentencepiece) {
    field_constant(w, "normalizer", split->nfc ? "{\"type\":\"NFC\"}" : "null");
    put_split(w, split);
  } else {
    field_constant(w, "normalizer",
                   v->space_prefix
                       ? "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" BLANK
                         "\"}," JSON_REPLACE "]}"
                       : JSON_REPLACE);
    field_constant(w, "pre_tokenizer", "null");
  }
  put_post_processor(w, v);
  if (!v->sentencepiece) field_constant(w, "decoder", JSON_DECODER);
  else if (v->space_prefix)
    field_constant(
        w, "decoder",
        "{\"type\":\"Sequence\",\"decoders\":[" JSON_BACK
        ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}");
  else
    field_constant(w, "decoder",
                   "{\"type\":\"Sequence\",\"decoders\":[" JSON_BACK
                   ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}");
}

static void put_vocabulary(hri_json_writer *w, const hri_lexicon *v) {
  hri_json_key(w, "vocab");
  hri_json_begin_object(w);
  for (size_t id = 0; id < v->tokens.count; id++) {
    const hri_lexicon_token *t = &v->tokens.items[id];
    if (!is_token(v, id)) continue;
    hri_json_key_chars(w, t->text, t->bytes);
    hri_json_put_u64(w, id);
  }
  hri_json_end_object(w);
}

static void put_model(hri_json_writer *w, const hri_lexicon *v, const hri_lexicon_split *split) {
  const hri_lexicon_token *unk =
      v->sentencepiece && v->named[HRI_LEXICON_UNK] >= 0 ? &v->tokens.items[v->named[HRI_LEXICON_UNK]] : NULL;
  hri_json_key(w, "model");
  hri_json_begin_object(w);
  hri_json_field_string(w, "type", "BPE");
  field_constant(w, "dropout", "null");
  hri_json_key(w, "unk_token");
  if (unk) hri_json_put_chars(w, unk->text, unk->bytes);
  else hri_json_put_null(w);
  field_constant(w, "continuing_subword_prefix", "null");
  field_constant(w, "end_of_word_suffix", "null");
  hri_json_field_bool(w, "fuse_unk", v->sentencepiece);
  hri_json_field_bool(w, "byte_fallback", v->sentencepiece);
  hri_json_field_bool(w, "ignore_merges", split && split->ignore_merges);
  put_vocabulary(w, v);
  hri_json_key(w, "merges");
  hri_json_begin_array(w);
  for (size_t i = 0; i < v->merges.count; i++) {
    const hri_lexicon_merge *m = &v->merges.items[i];
    hri_json_begin_array(w);
    hri_json_put_chars(w, m->left, m->left_bytes);
    hri_json_put_chars(w, m->right, m->right_bytes);
    hri_json_end_array(w);
  }
  hri_json_end_array(w);
  hri_json_end_object(w);
}

static hr_status write_text(const char *directory, const char *name, hri_text *text, hr_error *error) {
  char *path = hri_path_join(directory, name);
  hr_status status = path && !text->failed ? HR_OK : hri_fail_memory(error, text->length, name);
  if (status == HR_OK) status = hri_file_write_new(path, text->chars, text->length, error);
  hri_free(path);
  hri_text_deinit(text);
  return status;
}

static hr_status write_tokenizer(const hri_lexicon *v, const hri_lexicon_split *split, const char *directory,
                                 hr_error *error) {
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 0);
  hri_json_begin_object(&w);
  hri_json_field_string(&w, "version", "1.0");
  field_constant(&w, "truncation", "null");
  field_constant(&w, "padding", "null");
  put_added(&w, v);
  put_components(&w, v, split);
  put_model(&w, v, split);
  hri_json_end_object(&w);
  return write_text(directory, "tokenizer.json", &text, error);
}

static hr_status write_config(const hri_lexicon *v, const char *directory, uint64_t max_positions, hr_error *error) {
  static const char *const names[HRI_LEXICON_NAMED] = {"bos_token", "eos_token", "unk_token", "pad_token"};
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 2);
  hri_json_begin_object(&w);
  hri_json_field_bool(&w, "add_bos_token", v->add_bos);
  hri_json_field_bool(&w, "add_eos_token", v->add_eos);
  for (int i = 0; i < HRI_LEXICON_NAMED; i++) {
    hri_json_key(&w, names[i]);
    if (v->named[i] >= 0) hri_json_put_chars(&w, v->tokens.items[v->named[i]].text, v->tokens.items[v->named[i]].bytes);
    else hri_json_put_null(&w);
  }
  if (v->chat_template) {
    hri_json_key(&w, "chat_template");
    hri_json_put_chars(&w, v->chat_template, v->chat_template_bytes);
  }
  hri_json_field_bool(&w, "clean_up_tokenization_spaces", false);
  hri_json_field_u64(&w, "model_max_length", max_positions);
  hri_json_field_string(&w, "tokenizer_class", "PreTrainedTokenizerFast");
  hri_json_end_object(&w);
  hri_text_add(&text, "\n");
  return write_text(directory, "tokenizer_config.json", &text, error);
}

hr_status hri_lexicon_to_directory(hri_lexicon *v, const char *directory, uint64_t max_positions, hr_error *error) {
  const hri_lexicon_split *split = v->sentencepiece ? NULL : hri_lexicon_split_named(v->pre);
  if (!v->sentencepiece && !split) {
    hri_fail(error, HR_ERROR_UNSUPPORTED, "tokenizer.ggml.pre is '%.40s', which is not supported", v->pre);
    return hri_hint(
        error, HR_ERROR_UNSUPPORTED,
        "gpt-2, smollm, llama-bpe, dbrx, qwen2, gpt-4o and tekken are; convert with --without-tokenizer and take the tokenizer from the original model");
  }
  if (v->gemma) HRI_TRY(respell_blanks(v, error));
  if (v->sentencepiece && v->merges.count == 0) HRI_TRY(hri_lexicon_derive_merges(v, error));
  HRI_TRY(write_tokenizer(v, split, directory, error));
  return write_config(v, directory, max_positions, error);
}
