#include "tokenizer/parts.h"

#include "tokenizer/unicode.h"

typedef hr_status (*read_part)(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error);
typedef struct part {
  const char *type;
  read_part read;
} part;

/* Finds the reader of json's "type" in a table; refuses others by name. */
static hr_status read_typed(hr_tokenizer *tokenizer, const hri_json *json, const part *table, const char *what,
                            hr_error *error) {
  const char *type;
  hr_status status;
  HRI_TRY(hri_json_get_string(json, "type", &type, error));
  for (; table->type; table++)
    if (strcmp(table->type, type) == 0) return table->read(tokenizer, json, error);
  status = hri_fail(error, HR_ERROR_INPUT, "%s: field '%s': %s '%.60s' is not supported", json->file, json->path, what,
                    type);
  return hri_hint(error, status,
                  "docs/tokenizers.md lists what is; use another tokenizer, or prepare token ids with its own tools");
}

static hr_status read_sequence(hr_tokenizer *tokenizer, const hri_json *json, const char *key, read_part read,
                               hr_error *error) {
  hri_json list;
  HRI_TRY(hri_json_get_array(json, key, &list, error));
  for (uint64_t i = 0; i < hri_json_count(&list); i++) {
    hri_json item = hri_json_item(&list, i);
    HRI_TRY(read(tokenizer, &item, error));
  }
  return HR_OK;
}

/* ---- Normalizers ---- */

static bool is_type(const json_t *value, const char *type) {
  const char *name = json_string_value(json_object_get(value, "type"));
  return name && strcmp(name, type) == 0;
}

hr_status hri_parts_normalizer(hr_tokenizer *tokenizer, hri_json *json, hr_error *error) {
  json_t *list = is_type(json->value, "Sequence") ? json_object_get(json->value, "normalizers") : NULL;
  size_t count = json_array_size(list);
  if (is_type(json->value, "ByteLevel")) {
    tokenizer->normalizer_maps = tokenizer->bpe.byte_level = true;
    return HR_OK;
  }
  if (count > 0 && is_type(json_array_get(list, count - 1), "ByteLevel")) {
    tokenizer->normalizer_maps = tokenizer->bpe.byte_level = true;
    (void)json_array_remove(list, count - 1);
  }
  return hri_normalizer_read(tokenizer->normalizer, json, error);
}

/* ---- Pre-tokenizers ---- */

static bool maps_already(const hr_tokenizer *tokenizer) {
  for (uint32_t i = 0; i < tokenizer->stage_count; i++)
    if (tokenizer->stages[i].kind == HRI_STAGE_MAP) return true;
  return tokenizer->normalizer_maps;
}

/* Takes the stage's splitter over, also when it fails. */
static hr_status add_stage(hr_tokenizer *tokenizer, hri_stage stage, const hri_json *json, hr_error *error) {
  const char *reason = NULL;
  if (tokenizer->stage_count == HRI_MAX_STAGES) reason = "has more pre-tokenizers than are supported";
  else if (stage.kind != HRI_STAGE_SPLIT && maps_already(tokenizer))
    reason = "changes text after ByteLevel, which is not supported";
  if (!reason) {
    tokenizer->stages[tokenizer->stage_count++] = stage;
    return HR_OK;
  }
  hri_splitter_destroy(stage.splitter);
  return hri_fail(error, HR_ERROR_INPUT, "%s: field '%s' %s", json->file, json->path, reason);
}

static hr_status add_split(hr_tokenizer *tokenizer, hri_splitter *splitter, const hri_json *json, hr_error *error) {
  return add_stage(tokenizer, (hri_stage){.kind = HRI_STAGE_SPLIT, .splitter = splitter}, json, error);
}

static hr_status read_behavior(const hri_json *json, const char *initial, hri_split_behavior *behavior,
                               hr_error *error) {
  const char *name = initial;
  HRI_TRY(hri_json_opt_string(json, "behavior", &name, error));
  if (name && hri_split_behavior_parse(name, behavior)) return HR_OK;
  return hri_fail(
      error, HR_ERROR_INPUT,
      "%s: field '%s.behavior' is '%.40s', known are Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous",
      json->file, json->path, name ? name : "missing");
}

/* "pattern": {"String": text} or {"Regex": text} */
static hr_status read_pattern(const hri_json *json, const char **pattern, bool *literal, hr_error *error) {
  hri_json object;
  HRI_TRY(hri_json_get_object(json, "pattern", &object, error));
  *literal = hri_json_has(&object, "String");
  return hri_json_get_string(&object, *literal ? "String" : "Regex", pattern, error);
}

static hr_status name_field(const hri_json *json, const char *key, hr_status status, hr_error *error) {
  return status == HR_OK ? status : hri_context(error, status, "%s: field '%s.%s': ", json->file, json->path, key);
}

static hr_status pre_split(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *pattern;
  bool literal, invert = false;
  hri_split_behavior behavior;
  hri_splitter *splitter;
  HRI_TRY(read_pattern(json, &pattern, &literal, error));
  HRI_TRY(read_behavior(json, NULL, &behavior, error));
  HRI_TRY(hri_json_opt_bool(json, "invert", &invert, error));
  HRI_TRY(name_field(json, "pattern",
                     literal ? hri_splitter_create_literal(pattern, strlen(pattern), behavior, invert, &splitter, error)
                             : hri_splitter_create_regex(pattern, strlen(pattern), behavior, invert, &splitter, error),
                     error));
  return add_split(tokenizer, splitter, json, error);
}

static hr_status pre_class(hr_tokenizer *tokenizer, const hri_json *json, hri_split_class which,
                           hri_split_behavior behavior, hr_error *error) {
  hri_splitter *splitter;
  HRI_TRY(hri_splitter_create_class(which, behavior, false, &splitter, error));
  return add_split(tokenizer, splitter, json, error);
}

static hr_status pre_digits(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  bool individual = false;
  HRI_TRY(hri_json_opt_bool(json, "individual_digits", &individual, error));
  return pre_class(tokenizer, json, HRI_SPLIT_DIGITS, individual ? HRI_SPLIT_ISOLATED : HRI_SPLIT_CONTIGUOUS, error);
}

static hr_status pre_punctuation(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  hri_split_behavior behavior;
  HRI_TRY(read_behavior(json, "Isolated", &behavior, error));
  return pre_class(tokenizer, json, HRI_SPLIT_PUNCTUATION, behavior, error);
}

static hr_status pre_spaces(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  return pre_class(tokenizer, json, HRI_SPLIT_SPACES, HRI_SPLIT_REMOVED, error);
}

static hr_status pre_bert(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  hri_splitter *splitter;
  HRI_TRY(hri_splitter_create_words(&splitter, error));
  return add_split(tokenizer, splitter, json, error);
}

/* \w+|[^\w\s]+ : white space goes, then runs of word characters and runs of others. */
static hr_status pre_words(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  HRI_TRY(pre_spaces(tokenizer, json, error));
  return pre_class(tokenizer, json, HRI_SPLIT_WORDS, HRI_SPLIT_CONTIGUOUS, error);
}

static hr_status pre_delimiter(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *delimiter;
  hri_splitter *splitter;
  HRI_TRY(hri_json_get_string(json, "delimiter", &delimiter, error));
  HRI_TRY(
      name_field(json, "delimiter",
                 hri_splitter_create_literal(delimiter, strlen(delimiter), HRI_SPLIT_REMOVED, false, &splitter, error),
                 error));
  return add_split(tokenizer, splitter, json, error);
}

static hr_status pre_byte_level(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  bool prefix = true, regex = true;
  hri_splitter *splitter;
  HRI_TRY(hri_json_opt_bool(json, "add_prefix_space", &prefix, error));
  HRI_TRY(hri_json_opt_bool(json, "use_regex", &regex, error));
  if (prefix)
    HRI_TRY(add_stage(tokenizer, (hri_stage){.kind = HRI_STAGE_PREFIX, .text = " ", .text_bytes = 1}, json, error));
  if (regex) {
    HRI_TRY(hri_splitter_create_byte_level(&splitter, error));
    HRI_TRY(add_split(tokenizer, splitter, json, error));
  }
  tokenizer->bpe.byte_level = true;
  return add_stage(tokenizer, (hri_stage){.kind = HRI_STAGE_MAP}, json, error);
}

/* prepend_scheme, or the older add_prefix_space. */
static hr_status read_scheme(const hri_json *json, const char **scheme, hr_error *error) {
  bool prefix = true;
  *scheme = "always";
  HRI_TRY(hri_json_opt_bool(json, "add_prefix_space", &prefix, error));
  if (!prefix) *scheme = "never";
  HRI_TRY(hri_json_opt_string(json, "prepend_scheme", scheme, error));
  if (strcmp(*scheme, "always") == 0 || strcmp(*scheme, "never") == 0 || strcmp(*scheme, "first") == 0) return HR_OK;
  return hri_fail(error, HR_ERROR_INPUT, "%s: field '%s.prepend_scheme' is '%.40s', known are always, never and first",
                  json->file, json->path, *scheme);
}

static hr_status read_character(const hri_json *json, const char *key, const char *initial, const char **character,
                                hr_error *error) {
  *character = initial;
  HRI_TRY(hri_json_opt_string(json, key, character, error));
  if ((*character)[0] && strlen(*character) == hri_char_bytes((*character)[0])) return HR_OK;
  return hri_fail(error, HR_ERROR_INPUT, "%s: field '%s.%s' must be one character, found '%.40s'", json->file,
                  json->path, key, *character);
}

static hr_status pre_metaspace(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *scheme, *character;
  bool split = true;
  hri_stage stage = {.kind = HRI_STAGE_BLANKS};
  hri_splitter *splitter;
  HRI_TRY(read_scheme(json, &scheme, error));
  HRI_TRY(read_character(json, "replacement", "\xE2\x96\x81", &character, error));
  HRI_TRY(hri_json_opt_bool(json, "split", &split, error));
  stage.text_bytes = (uint32_t)strlen(character);
  memcpy(stage.text, character, stage.text_bytes);
  HRI_TRY(add_stage(tokenizer, stage, json, error));
  stage.kind = HRI_STAGE_PREFIX;
  stage.only_first = strcmp(scheme, "first") == 0;
  if (strcmp(scheme, "never") != 0) HRI_TRY(add_stage(tokenizer, stage, json, error));
  if (!split) return HR_OK;
  HRI_TRY(
      hri_splitter_create_literal(character, stage.text_bytes, HRI_SPLIT_MERGED_WITH_NEXT, false, &splitter, error));
  return add_split(tokenizer, splitter, json, error);
}

static hr_status read_pre_tokenizer(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error);
static hr_status pre_sequence(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  return read_sequence(tokenizer, json, "pretokenizers", read_pre_tokenizer, error);
}

/* Recursion is bounded by the depth of JSON. */
static hr_status read_pre_tokenizer(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  static const part table[] = {{"Sequence", pre_sequence},
                               {"ByteLevel", pre_byte_level},
                               {"Split", pre_split},
                               {"Digits", pre_digits},
                               {"Punctuation", pre_punctuation},
                               {"Metaspace", pre_metaspace},
                               {"WhitespaceSplit", pre_spaces},
                               {"Whitespace", pre_words},
                               {"BertPreTokenizer", pre_bert},
                               {"CharDelimiterSplit", pre_delimiter},
                               {NULL, NULL}};
  return read_typed(tokenizer, json, table, "pre-tokenizer", error);
}

hr_status hri_parts_pre_tokenizer(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  if (!json->value || json_is_null(json->value)) return HR_OK;
  HRI_TRY(read_pre_tokenizer(tokenizer, json, error));
  /* Nobody looks at the mapped text: the merges work on bytes. */
  if (tokenizer->stage_count && tokenizer->stages[tokenizer->stage_count - 1].kind == HRI_STAGE_MAP)
    tokenizer->stage_count--;
  return HR_OK;
}

/* ---- Post-processors ---- */

/* What trims offsets: it sees the tokens that processors before it put around. One that does not trim takes nothing back. */
static hr_status post_trim(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  bool trims = true, prefix_space = true;
  HRI_TRY(hri_json_opt_bool(json, "trim_offsets", &trims, error));
  HRI_TRY(hri_json_opt_bool(json, "add_prefix_space", &prefix_space, error));
  if (!trims) return HR_OK;
  tokenizer->trim_offsets = true;
  tokenizer->trim_prefix_space = prefix_space;
  tokenizer->trim_after_template = tokenizer->prefix.count > 0;
  return HR_OK;
}

/* The reference hands what a template made on in pieces, each of which a processor behind it surrounds by itself. */
static hr_status refuse_pieces(const hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  if (!tokenizer->in_pieces) return HR_OK;
  return hri_hint(error,
                  hri_fail(error, HR_ERROR_INPUT,
                           "%s: field '%s' adds tokens behind a template that adds some, which is not supported",
                           json->file, json->path),
                  "make one template of both");
}

/* Each processor of a sequence puts its tokens around those of the ones before it: of `prefix` what begins at `from` moves
 * to the front. */
static void move_to_front(hr_tokenizer *tokenizer, size_t from) {
  int32_t *ids = tokenizer->prefix.items;
  size_t count = tokenizer->prefix.count;
  for (; from > 0 && from < count; from--) {
    int32_t old = ids[from - 1];
    memmove(ids + from - 1, ids + from, (count - from) * sizeof *ids);
    ids[--count] = old;
  }
}

/* The ids of a special token of the template, appended to one side of the text. */
static hr_status add_special(hr_tokenizer *tokenizer, const hri_json *tokens, const hri_json *piece, bool before,
                             hr_error *error) {
  const char *name;
  hri_json entry, ids;
  HRI_TRY(hri_json_get_string(piece, "id", &name, error));
  HRI_TRY(hri_json_get_object(tokens, name, &entry, error));
  HRI_TRY(hri_json_get_array(&entry, "ids", &ids, error));
  for (uint64_t i = 0; i < hri_json_count(&ids); i++) {
    hri_json id = hri_json_item(&ids, i);
    json_int_t value = json_integer_value(id.value);
    if (!json_is_integer(id.value) || value < 0 || value >= tokenizer->vocab.size ||
        !hri_vocab_has(&tokenizer->vocab, (uint32_t)value))
      return hri_json_fail(&id, error, "the id of a token of the vocabulary");
    if (!(before ? hri_array_push(&tokenizer->prefix, (int32_t)value)
                 : hri_array_push(&tokenizer->suffix, (int32_t)value)))
      return hri_fail_memory(error, sizeof(int32_t), "the template of the post-processor");
  }
  return HR_OK;
}

static hr_status post_template(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  hri_json single, special = hri_json_member(json, "special_tokens");
  bool before = true;
  size_t inner = tokenizer->prefix.count, outer = tokenizer->suffix.count;
  HRI_TRY(refuse_pieces(tokenizer, json, error));
  HRI_TRY(hri_json_get_array(json, "single", &single, error));
  for (uint64_t i = 0; i < hri_json_count(&single); i++) {
    hri_json item = hri_json_item(&single, i), piece;
    if (hri_json_has(&item, "Sequence")) {
      const char *name;
      HRI_TRY(hri_json_get_object(&item, "Sequence", &piece, error));
      HRI_TRY(hri_json_get_string(&piece, "id", &name, error));
      if (!before || strcmp(name, "A") != 0)
        return hri_json_fail(&single, error, "a template with the sequence A once");
      before = false;
    } else {
      HRI_TRY(hri_json_get_object(&item, "SpecialToken", &piece, error));
      HRI_TRY(add_special(tokenizer, &special, &piece, before, error));
    }
  }
  tokenizer->in_pieces = tokenizer->prefix.count > inner || tokenizer->suffix.count > outer;
  move_to_front(tokenizer, inner);
  return before ? hri_json_fail(&single, error, "a template with the sequence A once") : HR_OK;
}

/* "sep" and "cls" as [content, id] around the text. */
static hr_status read_around(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  static const char *const keys[] = {"cls", "sep"};
  size_t inner = tokenizer->prefix.count;
  HRI_TRY(refuse_pieces(tokenizer, json, error));
  for (uint32_t i = 0; i < 2; i++) {
    hri_json pair, id;
    json_int_t value;
    HRI_TRY(hri_json_get_array(json, keys[i], &pair, error));
    id = hri_json_item(&pair, 1);
    value = json_integer_value(id.value);
    if (hri_json_count(&pair) != 2 || !json_is_integer(id.value) || value < 0 || value >= tokenizer->vocab.size ||
        !hri_vocab_has(&tokenizer->vocab, (uint32_t)value))
      return hri_json_fail(&pair, error, "a token of the vocabulary and its id");
    if (!(i == 0 ? hri_array_push(&tokenizer->prefix, (int32_t)value)
                 : hri_array_push(&tokenizer->suffix, (int32_t)value)))
      return hri_fail_memory(error, sizeof(int32_t), "the template of the post-processor");
  }
  move_to_front(tokenizer, inner);
  return HR_OK;
}

/* Offsets are trimmed before the tokens are put around. */
static hr_status post_roberta(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  HRI_TRY(post_trim(tokenizer, json, error));
  return read_around(tokenizer, json, error);
}

static hr_status read_post_processor(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error);
static hr_status post_sequence(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  return read_sequence(tokenizer, json, "processors", read_post_processor, error);
}

static hr_status read_post_processor(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  static const part table[] = {{"Sequence", post_sequence},           {"ByteLevel", post_trim},
                               {"TemplateProcessing", post_template}, {"BertProcessing", read_around},
                               {"RobertaProcessing", post_roberta},   {NULL, NULL}};
  return read_typed(tokenizer, json, table, "post-processor", error);
}

hr_status hri_parts_post_processor(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  if (!json->value || json_is_null(json->value)) return HR_OK;
  return read_post_processor(tokenizer, json, error);
}

/* ---- Decoders ---- */

void hri_decoder_deinit(hri_decoder *decoder) {
  hri_splitter_destroy(decoder->splitter);
  hri_free(decoder->content);
  *decoder = (hri_decoder){0};
}

/* Takes the splitter over and copies the content. */
static hr_status add_decoder(hr_tokenizer *tokenizer, hri_decoder decoder, const char *content, hr_error *error) {
  decoder.content = hri_strdup(content);
  if (decoder.content && hri_array_push(&tokenizer->decoders, decoder)) return HR_OK;
  hri_decoder_deinit(&decoder);
  return hri_fail_memory(error, sizeof decoder, "the decoder");
}

static hr_status decode_byte_level(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  (void)json;
  return add_decoder(tokenizer, (hri_decoder){.kind = HRI_DECODE_BYTE_LEVEL}, "", error);
}
static hr_status decode_byte_fallback(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  (void)json;
  return add_decoder(tokenizer, (hri_decoder){.kind = HRI_DECODE_BYTE_FALLBACK}, "", error);
}
static hr_status decode_fuse(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  (void)json;
  return add_decoder(tokenizer, (hri_decoder){.kind = HRI_DECODE_FUSE}, "", error);
}

static hr_status decode_replace(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *pattern, *content;
  bool literal;
  hri_decoder decoder = {.kind = HRI_DECODE_REPLACE};
  HRI_TRY(read_pattern(json, &pattern, &literal, error));
  HRI_TRY(hri_json_get_string(json, "content", &content, error));
  HRI_TRY(name_field(json, "pattern",
                     literal ? hri_splitter_create_literal(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false,
                                                           &decoder.splitter, error)
                             : hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false,
                                                         &decoder.splitter, error),
                     error));
  return add_decoder(tokenizer, decoder, content, error);
}

static hr_status decode_strip(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *content;
  hri_decoder decoder = {.kind = HRI_DECODE_STRIP};
  HRI_TRY(read_character(json, "content", " ", &content, error));
  HRI_TRY(hri_json_opt_u64(json, "start", 0, UINT32_MAX, &decoder.left, error));
  HRI_TRY(hri_json_opt_u64(json, "stop", 0, UINT32_MAX, &decoder.right, error));
  return add_decoder(tokenizer, decoder, content, error);
}

static hr_status decode_metaspace(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *scheme, *content;
  hri_decoder decoder = {.kind = HRI_DECODE_METASPACE};
  HRI_TRY(read_scheme(json, &scheme, error));
  HRI_TRY(read_character(json, "replacement", "\xE2\x96\x81", &content, error));
  decoder.left = strcmp(scheme, "never") != 0;
  return add_decoder(tokenizer, decoder, content, error);
}

static hr_status decode_wordpiece(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *prefix = "##";
  hri_decoder decoder = {.kind = HRI_DECODE_WORDPIECE};
  bool cleanup = true;
  HRI_TRY(hri_json_opt_string(json, "prefix", &prefix, error));
  HRI_TRY(hri_json_opt_bool(json, "cleanup", &cleanup, error));
  decoder.left = cleanup;
  return add_decoder(tokenizer, decoder, prefix, error);
}

static hr_status decode_bpe(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  const char *suffix = "</w>";
  HRI_TRY(hri_json_opt_string(json, "suffix", &suffix, error));
  if (!suffix[0]) return hri_json_fail(json, error, "a BPEDecoder whose suffix is not empty");
  return add_decoder(tokenizer, (hri_decoder){.kind = HRI_DECODE_BPE}, suffix, error);
}

static hr_status read_decoder(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error);
static hr_status decode_sequence(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  return read_sequence(tokenizer, json, "decoders", read_decoder, error);
}

static hr_status read_decoder(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  static const part table[] = {{"Sequence", decode_sequence},   {"ByteLevel", decode_byte_level},
                               {"Replace", decode_replace},     {"ByteFallback", decode_byte_fallback},
                               {"Fuse", decode_fuse},           {"Strip", decode_strip},
                               {"Metaspace", decode_metaspace}, {"BPEDecoder", decode_bpe},
                               {"WordPiece", decode_wordpiece}, {NULL, NULL}};
  return read_typed(tokenizer, json, table, "decoder", error);
}

hr_status hri_parts_decoder(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error) {
  tokenizer->joins_with_blanks = !json->value || json_is_null(json->value);
  return tokenizer->joins_with_blanks ? HR_OK : read_decoder(tokenizer, json, error);
}
