/* Tekken's JSON (mistral-common, tekken.py): ranks in base64, the pattern that splits words, special tokens.
 *
 * Special tokens have the first ids, 0 .. default_num_special_tokens - 1; those without a name of their own are called
 * <SPECIAL_N>. A token's id is its rank behind them; ranks from default_vocab_size on are in the file, but not used. */
#include <stdio.h>

#include "base/json_scan.h"
#include "tokenizer/added.h"
#include "tokenizer/build.h"
#include "tokenizer/parts.h"
#include "tokenizer/tiktoken.h"

/* Names where the file has none: those of files before version 11. */
static const char *const old_specials[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};
enum { OLD_SPECIALS = sizeof old_specials / sizeof *old_specials };

typedef struct loader {
  hr_tokenizer *tokenizer;
  hri_json_scan scan;
  HRI_ARRAY(char *) tokens;   /* base64 by rank; they point into the text */
  HRI_ARRAY(char *) specials; /* names by id */
  char *pattern;
  uint64_t size, special_count; /* of the ids, special ones included */
  bool has_vocab, has_specials, has_size, has_special_count;
} loader;

/* Passes over a value that is not used. token_str of the byte 0 holds U+0000, which the scanner gives nobody, so that
 * strings are passed over undecoded. */
static hr_status pass_over(loader *l, hr_error *error) {
  char *at;
  if (hri_json_scan_peek(&l->scan) != '"') return hri_json_scan_skip(&l->scan, error);
  for (at = l->scan.next + 1; at < l->scan.end && *at != '"' && (unsigned char)*at >= 0x20; at++)
    if (*at == '\\' && at + 1 < l->scan.end) at++;
  if (at >= l->scan.end || *at != '"') return hri_json_scan_skip(&l->scan, error); /* says what is wrong */
  l->scan.next = at + 1;
  return HR_OK;
}

/* An entry of vocab or special_tokens: its "rank" must be its place. */
static hr_status read_entry(loader *l, const char *field, uint64_t place, char **text, hr_error *error) {
  uint64_t rank = UINT64_MAX;
  char *key;
  *text = NULL;
  HRI_TRY(hri_json_scan_object(&l->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&l->scan, &key, error));
    if (!key) break;
    if (strcmp(key, "rank") == 0) HRI_TRY(hri_json_scan_u64(&l->scan, &rank, error));
    else if (strcmp(key, field) == 0) HRI_TRY(hri_json_scan_string(&l->scan, text, error));
    else HRI_TRY(pass_over(l, error));
  }
  if (!*text) return hri_json_scan_fail(&l->scan, error, "an entry without '%s'", field);
  if (rank != place)
    return hri_json_scan_fail(&l->scan, error, "entry %llu must have the rank %llu", (unsigned long long)place,
                              (unsigned long long)place);
  return HR_OK;
}

static hr_status read_vocab(loader *l, hr_error *error) {
  bool more;
  l->has_vocab = true;
  HRI_TRY(hri_json_scan_array(&l->scan, error));
  for (;;) {
    char *text;
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(read_entry(l, "token_bytes", l->tokens.count, &text, error));
    if (!hri_array_push(&l->tokens, text)) return hri_fail_memory(error, sizeof text, "ranks");
  }
}

static hr_status read_specials(loader *l, hr_error *error) {
  bool more;
  if (hri_json_scan_peek(&l->scan) == 'n') return hri_json_scan_skip(&l->scan, error);
  l->has_specials = true;
  HRI_TRY(hri_json_scan_array(&l->scan, error));
  for (;;) {
    char *text;
    HRI_TRY(hri_json_scan_element(&l->scan, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(read_entry(l, "token_str", l->specials.count, &text, error));
    if (!hri_array_push(&l->specials, text)) return hri_fail_memory(error, sizeof text, "special tokens");
  }
}

static hr_status read_config(loader *l, hr_error *error) {
  char *key;
  HRI_TRY(hri_json_scan_object(&l->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&l->scan, &key, error));
    if (!key) return HR_OK;
    if (strcmp(key, "pattern") == 0) {
      HRI_TRY(hri_json_scan_string(&l->scan, &l->pattern, error));
    } else if (strcmp(key, "default_vocab_size") == 0) {
      l->has_size = true;
      HRI_TRY(hri_json_scan_u64(&l->scan, &l->size, error));
    } else if (strcmp(key, "default_num_special_tokens") == 0) {
      l->has_special_count = true;
      HRI_TRY(hri_json_scan_u64(&l->scan, &l->special_count, error));
    } else {
      HRI_TRY(hri_json_scan_skip(&l->scan, error));
    }
  }
}

static hr_status missing(const loader *l, const char *field, hr_error *error) {
  return hri_fail(error, HR_ERROR_INPUT, "%s: field '%s' is missing", l->tokenizer->file, field);
}

static hr_status read_file(loader *l, hr_error *error) {
  char *key;
  HRI_TRY(hri_json_scan_object(&l->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&l->scan, &key, error));
    if (!key) break;
    if (strcmp(key, "config") == 0) HRI_TRY(read_config(l, error));
    else if (strcmp(key, "vocab") == 0 && !l->has_vocab) HRI_TRY(read_vocab(l, error));
    else if (strcmp(key, "special_tokens") == 0 && !l->has_specials) HRI_TRY(read_specials(l, error));
    else HRI_TRY(hri_json_scan_skip(&l->scan, error)); /* image and audio are not about text */
  }
  HRI_TRY(hri_json_scan_end(&l->scan, error));
  if (!l->has_vocab) return missing(l, "vocab", error);
  if (!l->pattern) return missing(l, "config.pattern", error);
  if (!l->has_size) return missing(l, "config.default_vocab_size", error);
  if (!l->has_special_count) return missing(l, "config.default_num_special_tokens", error);
  return HR_OK;
}

static hr_status check_sizes(const loader *l, hr_error *error) {
  const char *file = l->tokenizer->file;
  if (l->size > HRI_VOCAB_MAX_ID || l->special_count > l->size)
    return hri_fail(error, HR_ERROR_INPUT,
                    "%s: field 'config.default_vocab_size' is %llu, but special tokens (%llu) count and at most %d",
                    file, (unsigned long long)l->size, (unsigned long long)l->special_count, HRI_VOCAB_MAX_ID);
  if (l->special_count / HRI_VOCAB_SPREAD >=
      l->tokens.count) { /* those without a name are made up of this number alone */
    hri_fail(error, HR_ERROR_INPUT,
             "%s: field 'config.default_num_special_tokens' is %llu, but must be less than %d times the ranks, %llu",
             file, (unsigned long long)l->special_count, HRI_VOCAB_SPREAD, (unsigned long long)l->tokens.count);
    return hri_hint(error, HR_ERROR_INPUT, "fetch the file anew, if it is damaged");
  }
  if (l->size - l->special_count > l->tokens.count)
    return hri_fail(error, HR_ERROR_INPUT,
                    "%s: field 'config.default_vocab_size' is %llu, but there are %llu ranks and %llu special tokens",
                    file, (unsigned long long)l->size, (unsigned long long)l->tokens.count,
                    (unsigned long long)l->special_count);
  if (l->specials.count > l->special_count)
    return hri_fail(error, HR_ERROR_INPUT,
                    "%s: field 'special_tokens' has %llu entries, 'config.default_num_special_tokens' says %llu", file,
                    (unsigned long long)l->specials.count, (unsigned long long)l->special_count);
  return HR_OK;
}

/* All special tokens by id; named where the file or its version names them. */
static hr_status add_specials(loader *l, hr_error *error) {
  hr_tokenizer *tokenizer = l->tokenizer;
  for (uint32_t id = 0; id < l->special_count; id++) {
    char room[32];
    const char *name = room;
    (void)snprintf(room, sizeof room, "<SPECIAL_%u>", id);
    if (id < l->specials.count) name = l->specials.items[id];
    else if (!l->has_specials && id < OLD_SPECIALS) name = old_specials[id];
    if (hri_vocab_find(&tokenizer->vocab, name, strlen(name)) != HRI_TOKEN_NONE)
      return hri_fail(error, HR_ERROR_INPUT, "%s: two special tokens are called '%.60s'", tokenizer->file, name);
    HRI_TRY(hri_vocab_add(&tokenizer->vocab, name, strlen(name), id, 0, error));
    HRI_TRY(hri_added_put(tokenizer, name, strlen(name), (hri_added_token){.special = true}, error));
  }
  return HR_OK;
}

static hr_status collect_ranks(const loader *l, hri_tiktoken *ranks, hr_error *error) {
  uint32_t count = (uint32_t)(l->size - l->special_count);
  size_t capacity = 0;
  ranks->tokens = hri_alloc(((uint64_t)count + 1) * sizeof *ranks->tokens);
  if (!ranks->tokens) return hri_fail_memory(error, count * sizeof *ranks->tokens, "ranks");
  for (; ranks->count < count; ranks->count++) {
    const char *text = l->tokens.items[ranks->count];
    uint64_t at = ranks->byte_count;
    bool refused;
    if (!hri_base64_decode(text, strlen(text), &ranks->bytes, &capacity, &ranks->byte_count, &refused))
      return refused ? hri_fail_memory(error, strlen(text), "ranks")
                     : hri_fail(error, HR_ERROR_INPUT, "%s: field 'vocab[%u].token_bytes': '%.60s' is not base64",
                                l->tokenizer->file, ranks->count, text);
    ranks->tokens[ranks->count] = (hri_tiktoken_token){(uint32_t)at, (uint32_t)(ranks->byte_count - at)};
  }
  return hri_tiktoken_check_bytes(l->tokenizer->file, ranks, error);
}

static hr_status add_pattern(const loader *l, hr_error *error) {
  hr_tokenizer *tokenizer = l->tokenizer;
  const hri_part_texts parts = {.decoder = "{\"type\":\"ByteLevel\"}"};
  hri_splitter *splitter;
  hr_status status =
      hri_splitter_create_regex(l->pattern, strlen(l->pattern), HRI_SPLIT_ISOLATED, false, &splitter, error);
  if (status != HR_OK) return hri_context(error, status, "%s: field 'config.pattern': ", tokenizer->file);
  tokenizer->stages[tokenizer->stage_count++] = (hri_stage){.kind = HRI_STAGE_SPLIT, .splitter = splitter};
  return hri_build_parts(tokenizer, &parts, error);
}

/* The tokens that a template needs; a text begins with <s>. */
static hr_status name_tokens(hr_tokenizer *tokenizer, hr_error *error) {
  static const char *const names[HR_TOKEN_NAMED_COUNT] = {"<s>", "</s>", "<pad>", "<unk>"};
  for (uint32_t i = 0; i < HR_TOKEN_NAMED_COUNT; i++) tokenizer->named[i] = hr_tokenizer_find(tokenizer, names[i]);
  return hri_build_template(tokenizer, true, false, error);
}

static hr_status assemble(loader *l, hr_error *error) {
  hri_tiktoken ranks = {0};
  hr_status status;
  HRI_TRY(check_sizes(l, error));
  HRI_TRY(add_specials(l, error));
  status = collect_ranks(l, &ranks, error);
  if (status == HR_OK) status = hri_build_ranks(&ranks, (uint32_t)l->special_count, l->tokenizer, error);
  hri_tiktoken_deinit(&ranks);
  HRI_TRY(status);
  HRI_TRY(add_pattern(l, error));
  return name_tokens(l->tokenizer, error);
}

hr_status hri_build_parse_tekken(char *bytes, uint64_t count, hr_tokenizer *tokenizer, hr_error *error) {
  loader l = {.tokenizer = tokenizer, .scan = hri_json_scan_init(bytes, count, tokenizer->file, "")};
  hr_status status = read_file(&l, error);
  if (status == HR_OK) status = assemble(&l, error);
  hri_array_free(&l.tokens);
  hri_array_free(&l.specials);
  return status;
}
