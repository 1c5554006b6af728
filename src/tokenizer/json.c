/* tokenizer.json (huggingface/tokenizers, tokenizer/serialization.rs). Files have up to some dozen megabytes, nearly
 * all of it vocabulary and merges: the text is scanned in place, with one small record for each token and merge; only
 * the parts in between become trees. */
#include <stdio.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "tokenizer/added.h"
#include "tokenizer/build.h"
#include "tokenizer/decimal.h"
#include "tokenizer/parts.h"

#define MOST_FILE_BYTES ((uint64_t)1 << 30)
enum { MOST_PART_BYTES = 1 << 20, MOST_AFFIX_BYTES = 64 };

typedef struct pair {
  char *left, *right;
  uint64_t left_bytes, right_bytes;
} pair; /* of a merge; they point into the text */
typedef struct far_token {
  char *content;
  uint64_t bytes, id;
} far_token; /* the same; of an id far above the tokens so far */
typedef struct added_entry {
  char *content;
  hri_added_token flags;
} added_entry;

enum { NORMALIZER = 0, PRE_TOKENIZER, POST_PROCESSOR, DECODER, PART_COUNT };
static const char *const part_names[PART_COUNT] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};

typedef struct loader {
  hr_tokenizer *tokenizer;
  hri_json_scan scan;
  HRI_ARRAY(pair) merges;
  HRI_ARRAY(far_token) far;
  HRI_ARRAY(added_entry) added;
  HRI_ARRAY(double) scores; /* of Unigram, by id */
  hri_json parts[PART_COUNT];
  char *type, *unk; /* of the model; they point into the text */
  bool has_model, has_vocab, has_merges, has_prefix, has_most;
  uint64_t unk_id, most_characters; /* unk_id UINT64_MAX: none */
} loader;

/* ---- Small values ---- */

static bool skip_null(loader *l) {
  if (hri_json_scan_peek(&l->scan) != 'n') return false;
  return hri_json_scan_skip(&l->scan, NULL) == HR_OK;
}

static hr_status read_text(loader *l, char **text, hr_error *error) {
  *text = NULL;
  return skip_null(l) ? HR_OK : hri_json_scan_string(&l->scan, text, error);
}

static hr_status read_flag(loader *l, bool *flag, hr_error *error) {
  char first = hri_json_scan_peek(&l->scan);
  *flag = first == 't';
  if (first != 't' && first != 'f' && first != 'n')
    return hri_json_scan_fail(&l->scan, error, "expected true or false");
  return hri_json_scan_skip(&l->scan, error);
}

static hr_status read_affix(loader *l, const char *field, char **affix, hr_error *error) {
  char *text;
  HRI_TRY(read_text(l, &text, error));
  if (!text || !text[0]) return HR_OK;
  if (strlen(text) > MOST_AFFIX_BYTES)
    return hri_json_scan_fail(&l->scan, error, "model.%s has more than %d bytes", field, MOST_AFFIX_BYTES);
  hri_free(*affix);
  *affix = hri_strdup(text);
  return *affix ? HR_OK : hri_fail_memory(error, strlen(text) + 1, field);
}

/* ---- The model ---- */

/* Unigram: [content, score], in the order of ids. */
static hr_status read_scored(loader *l, hr_error *error) {
  bool more, is_integer;
  HRI_TRY(hri_json_scan_array(&l->scan, error));
  for (;;) {
    char *content;
    const char *number;
    uint64_t bytes;
    int64_t integer = 0;
    double score = 0;
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(hri_json_scan_array(&l->scan, error));
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (!more) return hri_json_scan_fail(&l->scan, error, "a token must have a score");
    HRI_TRY(hri_json_scan_string(&l->scan, &content, error));
    bytes = l->scan.bytes;
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (!more) return hri_json_scan_fail(&l->scan, error, "token '%.60s' has no score", content);
    (void)hri_json_scan_peek(&l->scan);
    number = l->scan.next;
    HRI_TRY(hri_json_scan_number(&l->scan, &is_integer, &integer, &score, error));
    score = is_integer ? (double)integer : hri_decimal_read(number);
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (more) return hri_json_scan_fail(&l->scan, error, "token '%.60s' has more than a score", content);
    HRI_TRY(hri_build_token(l->tokenizer, content, bytes, l->scores.count, error));
    if (!hri_array_push(&l->scores, score)) return hri_fail_memory(error, sizeof score, "the scores of the tokenizer");
  }
}

/* Those that had to wait until it was known how many tokens there are. */
static hr_status take_far(loader *l, hr_error *error) {
  const uint64_t tokens = l->tokenizer->vocab.count + l->far.count;
  for (size_t i = 0; i < l->far.count; i++) {
    const far_token *t = &l->far.items[i];
    if (!hri_vocab_may_have(t->id, tokens)) {
      hri_fail(
          error, HR_ERROR_INPUT,
          "%s: token '%.60s' has the id %llu, but the vocabulary has %llu tokens; from %d on an id is less than %d times their number",
          l->tokenizer->file, t->content, (unsigned long long)t->id, (unsigned long long)tokens, HRI_VOCAB_FREE_IDS,
          HRI_VOCAB_SPREAD);
      return hri_hint(error, HR_ERROR_INPUT, "fetch the file anew, if it is damaged");
    }
    HRI_TRY(hri_build_token(l->tokenizer, t->content, t->bytes, t->id, error));
  }
  l->far.count = 0;
  return HR_OK;
}

static hr_status read_numbered(loader *l, hr_error *error) {
  far_token t;
  HRI_TRY(hri_json_scan_object(&l->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&l->scan, &t.content, error));
    if (!t.content) return take_far(l, error);
    HRI_TRY(hri_json_scan_u64(&l->scan, &t.id, error));
    t.bytes = l->scan.bytes;
    if (t.id > HRI_VOCAB_MAX_ID || hri_vocab_may_have(t.id, l->tokenizer->vocab.count))
      HRI_TRY(hri_build_token(l->tokenizer, t.content, t.bytes, t.id, error));
    else if (!hri_array_push(&l->far, t)) return hri_fail_memory(error, sizeof t, "the tokens of the tokenizer");
  }
}

/* Tokens of the model, and so the parts of merges, may hold U+0000, which nothing else may. */
static hr_status read_vocab(loader *l, hr_error *error) {
  hr_status status;
  l->has_vocab = l->scan.takes_nul = true;
  status = hri_json_scan_peek(&l->scan) == '[' ? read_scored(l, error) : read_numbered(l, error);
  l->scan.takes_nul = false;
  return status;
}

static hr_status read_merge(loader *l, hr_error *error) {
  pair merge = {0};
  bool more;
  if (hri_json_scan_peek(&l->scan) == '[') {
    HRI_TRY(hri_json_scan_array(&l->scan, error));
    for (uint32_t i = 0; i < 2; i++) {
      HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
      if (!more) return hri_json_scan_fail(&l->scan, error, "a merge must have two parts");
      HRI_TRY(hri_json_scan_string(&l->scan, i ? &merge.right : &merge.left, error));
      *(i ? &merge.right_bytes : &merge.left_bytes) = l->scan.bytes;
    }
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (more) return hri_json_scan_fail(&l->scan, error, "a merge must have two parts");
  } else {
    char *blank;
    uint64_t bytes;
    HRI_TRY(hri_json_scan_string(&l->scan, &merge.left, error));
    bytes = l->scan.bytes;
    blank = memchr(merge.left, ' ', bytes);
    if (!blank || memchr(blank + 1, ' ', (size_t)(merge.left + bytes - blank - 1)))
      return hri_json_scan_fail(&l->scan, error, "merge '%.60s' must be two parts with one blank between them",
                                merge.left);
    *blank = 0;
    merge.right = blank + 1;
    merge.left_bytes = (uint64_t)(blank - merge.left);
    merge.right_bytes = bytes - merge.left_bytes - 1;
  }
  return hri_array_push(&l->merges, merge) ? HR_OK : hri_fail_memory(error, sizeof merge, "merges");
}

static hr_status read_merges(loader *l, hr_error *error) {
  bool more = true;
  hr_status status = HR_OK;
  l->has_merges = true;
  HRI_TRY(hri_json_scan_array(&l->scan, error));
  while (status == HR_OK) {
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (!more) break;
    l->scan.takes_nul = true;
    status = read_merge(l, error);
    l->scan.takes_nul = false;
  }
  return status;
}

static hr_status read_dropout(loader *l, hr_error *error) {
  bool is_integer;
  int64_t integer = 0;
  double real = 0;
  hr_status status;
  if (skip_null(l)) return HR_OK;
  HRI_TRY(hri_json_scan_number(&l->scan, &is_integer, &integer, &real, error));
  if ((is_integer && integer == 0) || (!is_integer && real == 0)) return HR_OK;
  status =
      hri_fail(error, HR_ERROR_INPUT, "%s: field 'model.dropout' is set: merges left out at random are not supported",
               l->tokenizer->file);
  return hri_hint(error, status, "set model.dropout to null");
}

static hr_status read_model_field(loader *l, const char *key, hr_error *error) {
  hri_bpe *bpe = &l->tokenizer->bpe;
  if (strcmp(key, "type") == 0) return read_text(l, &l->type, error);
  if (strcmp(key, "vocab") == 0) return read_vocab(l, error);
  if (strcmp(key, "merges") == 0) return read_merges(l, error);
  if (strcmp(key, "dropout") == 0) return read_dropout(l, error);
  if (strcmp(key, "unk_token") == 0) return read_text(l, &l->unk, error);
  if (strcmp(key, "byte_fallback") == 0) return read_flag(l, &bpe->byte_fallback, error);
  if (strcmp(key, "fuse_unk") == 0) return read_flag(l, &bpe->fuse_unk, error);
  if (strcmp(key, "ignore_merges") == 0) return read_flag(l, &bpe->ignore_merges, error);
  if (strcmp(key, "unk_id") == 0) return skip_null(l) ? HR_OK : hri_json_scan_u64(&l->scan, &l->unk_id, error);
  if (strcmp(key, "max_input_chars_per_word") == 0) {
    l->has_most = true;
    return hri_json_scan_u64(&l->scan, &l->most_characters, error);
  }
  if (strcmp(key, "continuing_subword_prefix") == 0) {
    l->has_prefix = hri_json_scan_peek(&l->scan) == '"';
    return read_affix(l, key, &bpe->prefix, error);
  }
  if (strcmp(key, "end_of_word_suffix") == 0) return read_affix(l, key, &bpe->suffix, error);
  return hri_json_scan_skip(&l->scan, error);
}

static hr_status check_type(const loader *l, const char *type, hri_model_kind *kind, hr_error *error) {
  static const char *const names[] = {"BPE", "Unigram", "WordPiece"};
  hr_status status;
  for (*kind = HRI_MODEL_BPE; *kind <= HRI_MODEL_WORDPIECE; (*kind)++)
    if (strcmp(type, names[*kind]) == 0) return HR_OK;
  status = hri_fail(error, HR_ERROR_INPUT,
                    "%s: field 'model.type': the model '%.40s' is not supported; BPE, Unigram and WordPiece are",
                    l->tokenizer->file, type);
  return hri_hint(error, status, "use another model, or prepare token ids with its own tools");
}

/* Old files have no type: it follows from what they hold. */
static const char *guess_type(const loader *l) {
  if (l->scores.count) return "Unigram";
  if (!l->has_vocab || l->has_merges) return "BPE";
  return l->has_most ? "WordPiece" : "WordLevel";
}

static hr_status read_model(loader *l, hr_error *error) {
  hri_model_kind kind = HRI_MODEL_BPE;
  char *key;
  l->has_model = true;
  HRI_TRY(hri_json_scan_object(&l->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&l->scan, &key, error));
    if (!key) break;
    HRI_TRY(read_model_field(l, key, error));
    if (l->type) HRI_TRY(check_type(l, l->type, &kind, error)); /* others may hold other things under the same keys */
  }
  HRI_TRY(check_type(l, l->type ? l->type : guess_type(l), &kind, error));
  l->tokenizer->kind = kind;
  if (!l->has_vocab || (kind == HRI_MODEL_BPE && !l->has_merges))
    return hri_fail(error, HR_ERROR_INPUT, "%s: field 'model.%s' is missing", l->tokenizer->file,
                    l->has_vocab ? "merges" : "vocab");
  if ((kind == HRI_MODEL_UNIGRAM) != (l->scores.count > 0))
    return hri_fail(error, HR_ERROR_INPUT, "%s: field 'model.vocab' must be %s", l->tokenizer->file,
                    kind == HRI_MODEL_UNIGRAM ? "a list of tokens with scores" : "an object of tokens and ids");
  return HR_OK;
}

/* ---- Added tokens and parts ---- */

static hr_status read_added_token(loader *l, hr_error *error) {
  added_entry entry = {.flags.normalized = true};
  char *key;
  HRI_TRY(hri_json_scan_object(&l->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&l->scan, &key, error));
    if (!key) break;
    if (strcmp(key, "content") == 0) HRI_TRY(hri_json_scan_string(&l->scan, &entry.content, error));
    else if (strcmp(key, "single_word") == 0) HRI_TRY(read_flag(l, &entry.flags.single_word, error));
    else if (strcmp(key, "lstrip") == 0) HRI_TRY(read_flag(l, &entry.flags.lstrip, error));
    else if (strcmp(key, "rstrip") == 0) HRI_TRY(read_flag(l, &entry.flags.rstrip, error));
    else if (strcmp(key, "normalized") == 0) HRI_TRY(read_flag(l, &entry.flags.normalized, error));
    else if (strcmp(key, "special") == 0) HRI_TRY(read_flag(l, &entry.flags.special, error));
    else HRI_TRY(hri_json_scan_skip(&l->scan, error));
  }
  if (!entry.content) return hri_json_scan_fail(&l->scan, error, "an added token without content");
  return hri_array_push(&l->added, entry) ? HR_OK : hri_fail_memory(error, sizeof entry, "added tokens");
}

static hr_status read_added_tokens(loader *l, hr_error *error) {
  bool more;
  if (skip_null(l)) return HR_OK;
  HRI_TRY(hri_json_scan_array(&l->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(read_added_token(l, error));
  }
}

/* Bytes up to the end of the value that begins here, by brackets and quotes alone. */
static uint64_t value_bytes(const hri_json_scan *scan) {
  const char *at = scan->next;
  uint32_t depth = 0;
  bool quoted = false;
  for (; at < scan->end; at++) {
    if (quoted) {
      if (*at == '\\' && at + 1 < scan->end) at++;
      else if (*at == '"') quoted = false;
    } else if (*at == '"') {
      quoted = true;
    } else if (*at == '{' || *at == '[') {
      depth++;
    } else if (*at == '}' || *at == ']' || (*at == ',' && depth == 0)) {
      if (depth == 0) break;
      depth--;
    }
  }
  return (uint64_t)(at - scan->next);
}

/* The scanner decodes strings where they stand, so a copy becomes the tree; the scan of the rest checks the syntax. */
static hr_status read_part(loader *l, uint32_t which, hr_error *error) {
  uint64_t bytes;
  char *copy;
  hr_status status;
  if (l->parts[which].value) return hri_json_scan_fail(&l->scan, error, "field '%s' is there twice", part_names[which]);
  (void)hri_json_scan_peek(&l->scan);
  bytes = value_bytes(&l->scan);
  if (bytes > MOST_PART_BYTES)
    return hri_json_scan_fail(&l->scan, error, "field '%s' has more than %d MiB", part_names[which],
                              MOST_PART_BYTES >> 20);
  copy = hri_alloc(bytes);
  if (!copy) return hri_fail_memory(error, bytes, part_names[which]);
  memcpy(copy, l->scan.next, bytes);
  status = hri_json_scan_skip(&l->scan, error);
  if (status == HR_OK) status = hri_json_parse(copy, bytes, l->tokenizer->file, &l->parts[which], error);
  (void)snprintf(l->parts[which].path, sizeof l->parts[which].path, "%s", part_names[which]);
  hri_free(copy);
  return status;
}

static hr_status read_version(loader *l, hr_error *error) {
  char *version;
  HRI_TRY(hri_json_scan_string(&l->scan, &version, error));
  if (strcmp(version, "1.0") == 0) return HR_OK;
  return hri_fail(error, HR_ERROR_INPUT, "%s: field 'version' is '%.40s', only 1.0 is supported", l->tokenizer->file,
                  version);
}

static hr_status read_file(loader *l, hr_error *error) {
  char *key;
  HRI_TRY(hri_json_scan_object(&l->scan, error));
  for (;;) {
    uint32_t part = 0;
    HRI_TRY(hri_json_scan_key(&l->scan, &key, error));
    if (!key) break;
    while (part < PART_COUNT && strcmp(key, part_names[part]) != 0) part++;
    if (part < PART_COUNT) HRI_TRY(read_part(l, part, error));
    else if (strcmp(key, "version") == 0) HRI_TRY(read_version(l, error));
    else if (strcmp(key, "added_tokens") == 0) HRI_TRY(read_added_tokens(l, error));
    else if (strcmp(key, "model") == 0 && !l->has_model) HRI_TRY(read_model(l, error));
    else if (strcmp(key, "model") == 0) return hri_json_scan_fail(&l->scan, error, "field 'model' is there twice");
    else HRI_TRY(hri_json_scan_skip(&l->scan, error)); /* truncation and padding are the caller's affair */
  }
  if (!l->has_model)
    return hri_fail(error, HR_ERROR_INPUT, "%s: field 'model' is missing: this is no tokenizer.json",
                    l->tokenizer->file);
  return hri_json_scan_end(&l->scan, error);
}

/* ---- Putting it together ---- */

static hr_status assemble_unigram(loader *l, hr_error *error) {
  hr_tokenizer *tokenizer = l->tokenizer;
  hri_unigram *unigram = &tokenizer->unigram;
  uint32_t count = (uint32_t)l->scores.count, *ids = hri_alloc(((uint64_t)count + 1) * sizeof *ids);
  double least = l->scores.items[0];
  hr_status status = ids ? hri_unigram_begin(unigram, &tokenizer->vocab, error)
                         : hri_fail_memory(error, count * sizeof *ids, "the tokens of the tokenizer");
  for (uint32_t id = 0; id < count && status == HR_OK; id++) {
    unigram->scores[id] = l->scores.items[id];
    if (unigram->scores[id] < least) least = unigram->scores[id];
    ids[id] = id;
  }
  unigram->byte_fallback = tokenizer->bpe.byte_fallback;
  unigram->unk_score = least - 10;
  if (status == HR_OK && l->unk_id != UINT64_MAX && l->unk_id >= count)
    status = hri_fail(error, HR_ERROR_INPUT, "%s: field 'model.unk_id' is %llu, but there are %u tokens",
                      tokenizer->file, (unsigned long long)l->unk_id, count);
  if (l->unk_id < count) {
    unigram->unk = (uint32_t)l->unk_id;
    tokenizer->named[HR_TOKEN_UNK] = (int32_t)l->unk_id;
  }
  if (status == HR_OK) status = hri_unigram_finish(unigram, ids, count, error);
  hri_free(ids);
  return status;
}

static hr_status assemble_wordpiece(loader *l, hr_error *error) {
  hr_tokenizer *tokenizer = l->tokenizer;
  hri_wordpiece *wordpiece = &tokenizer->wordpiece;
  const char *unk = l->unk ? l->unk : "[UNK]";
  wordpiece->prefix = tokenizer->bpe.prefix;
  tokenizer->bpe.prefix = NULL;
  if (l->has_prefix && !wordpiece->prefix && !(wordpiece->prefix = hri_strdup("")))
    return hri_fail_memory(error, 1, "a prefix");
  if (l->has_most) wordpiece->most_characters = l->most_characters;
  wordpiece->unk = hri_vocab_find_model(&tokenizer->vocab, unk, strlen(unk));
  if (wordpiece->unk == HRI_TOKEN_NONE)
    return hri_fail(error, HR_ERROR_INPUT, "%s: field 'model.unk_token': '%.60s' is not in the vocabulary",
                    tokenizer->file, unk);
  tokenizer->named[HR_TOKEN_UNK] = (int32_t)wordpiece->unk;
  return hri_wordpiece_finish(wordpiece, error);
}

static hr_status assemble_bpe(loader *l, hr_error *error) {
  hr_tokenizer *tokenizer = l->tokenizer;
  for (size_t i = 0; i < l->merges.count; i++) {
    const pair *m = &l->merges.items[i];
    HRI_TRY(hri_build_merge(tokenizer, m->left, m->left_bytes, m->right, m->right_bytes, (uint32_t)i, error));
  }
  if (l->unk) {
    uint32_t unk = hri_vocab_find_model(&tokenizer->vocab, l->unk, strlen(l->unk));
    tokenizer->bpe.unk = unk;
    tokenizer->bpe.unk_missing = unk == HRI_TOKEN_NONE;
    tokenizer->named[HR_TOKEN_UNK] = unk == HRI_TOKEN_NONE ? -1 : (int32_t)unk;
  }
  return HR_OK;
}

static hr_status assemble_model(loader *l, hr_error *error) {
  switch (l->tokenizer->kind) {
  case HRI_MODEL_BPE: return assemble_bpe(l, error);
  case HRI_MODEL_UNIGRAM: return assemble_unigram(l, error);
  case HRI_MODEL_WORDPIECE: return assemble_wordpiece(l, error);
  }
  return HR_OK;
}

static hr_status assemble(loader *l, hr_error *error) {
  hr_tokenizer *tokenizer = l->tokenizer;
  HRI_TRY(assemble_model(l, error));
  for (size_t i = 0; i < l->added.count; i++)
    HRI_TRY(hri_added_put(tokenizer, l->added.items[i].content, strlen(l->added.items[i].content),
                          l->added.items[i].flags, error));
  HRI_TRY(hri_parts_normalizer(tokenizer, &l->parts[NORMALIZER], error));
  HRI_TRY(hri_parts_pre_tokenizer(tokenizer, &l->parts[PRE_TOKENIZER], error));
  HRI_TRY(hri_parts_post_processor(tokenizer, &l->parts[POST_PROCESSOR], error));
  HRI_TRY(hri_parts_decoder(tokenizer, &l->parts[DECODER], error));
  if (tokenizer->kind != HRI_MODEL_BPE && tokenizer->bpe.byte_level)
    return hri_fail(error, HR_ERROR_INPUT, "%s: field 'model.type': '%s' behind ByteLevel is not supported",
                    tokenizer->file, l->type ? l->type : guess_type(l));
  if (tokenizer->kind == HRI_MODEL_BPE && l->unk && tokenizer->bpe.unk == HRI_TOKEN_NONE && !tokenizer->bpe.byte_level)
    return hri_fail(error, HR_ERROR_INPUT, "%s: field 'model.unk_token': '%.60s' is not in the vocabulary",
                    tokenizer->file, l->unk);
  return HR_OK;
}

hr_status hri_build_parse_json(char *bytes, uint64_t count, hr_tokenizer *tokenizer, hr_error *error) {
  loader l = {.tokenizer = tokenizer,
              .scan = hri_json_scan_init(bytes, count, tokenizer->file, ""),
              .unk_id = UINT64_MAX};
  hr_status status = read_file(&l, error);
  if (status == HR_OK) status = assemble(&l, error);
  for (uint32_t i = 0; i < PART_COUNT; i++) hri_json_deinit(&l.parts[i]);
  hri_array_free(&l.merges);
  hri_array_free(&l.scores);
  hri_array_free(&l.far);
  hri_array_free(&l.added);
  return status;
}

hr_status hri_build_from_json(const char *path, hr_tokenizer *tokenizer, hr_error *error) {
  char *bytes;
  uint64_t count, skip;
  hr_status status;
  HRI_TRY(hri_file_read(path, MOST_FILE_BYTES, &bytes, &count, error));
  skip = hri_utf8_mark(bytes, count);
  status = hri_tekken_is(bytes + skip, count - skip)
               ? hri_build_parse_tekken(bytes + skip, count - skip, tokenizer, error)
               : hri_build_parse_json(bytes + skip, count - skip, tokenizer, error);
  hri_free(bytes);
  return status;
}
