/* What the directions share: the known ways to split text. Expressions: the tokenizer.json of the models named; names
 * and what is alike: ggml-org/llama.cpp, src/llama-vocab.cpp. */
#include "convert/lexicon.h"

#include <string.h>

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits)                                                                                                 \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                                 \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Words that begin or end with a capital, of o200k_base and Tekken. */
#define CASED(contractions)                                                                                            \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" contractions             \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" contractions
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const hri_lexicon_split splits[] = {
    {.pre = "gpt-2"},
    {.pre = "smollm", .digits = true},
    {.pre = "llama-bpe", .regex = CL100K("\\p{N}{1,3}"), .ignore_merges = true},
    {.pre = "dbrx", .regex = CL100K("\\p{N}{1,3}")},
    {.pre = "qwen2", .regex = CL100K("\\p{N}"), .nfc = true},
    {.pre = "gpt-4o", .regex = CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") "|\\p{N}{1,3}" REST},
    {.pre = "tekken", .regex = CASED("") "|\\p{N}" REST, .ignore_merges = true},
};

static const struct {
  const char *name, *like;
} alike[] = {
    {"gpt2", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"olmo", "gpt-2"},
    {"starcoder", "smollm"},
    {"refact", "smollm"},
    {"codeshell", "smollm"},
    {"llama3", "llama-bpe"},
    {"llama-v3", "llama-bpe"},
    {"falcon3", "llama-bpe"},
    {"pixtral", "llama-bpe"},
    {"deepseek-r1-qwen", "qwen2"},
    {"megrez", "qwen2"},
    {"smaug-bpe", "dbrx"},
    {"llama4", "gpt-4o"},
};

int64_t hri_lexicon_zeroed(const hri_lexicon *v) {
  for (size_t id = 0; id < v->tokens.count; id++)
    if (v->tokens.items[id].text && memchr(v->tokens.items[id].text, 0, v->tokens.items[id].bytes)) return (int64_t)id;
  return -1;
}

const hri_lexicon_split *hri_lexicon_split_named(const char *pre) {
  for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
    if (strcmp(pre, alike[i].name) == 0) pre = alike[i].like;
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
    if (strcmp(pre, splits[i].pre) == 0) return &splits[i];
  return NULL;
}

const hri_lexicon_split *hri_lexicon_split_like(const char *regex, bool digits, bool ignore_merges) {
  if (regex && strcmp(regex, GPT2) == 0) regex = NULL;
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
    bool same = regex && splits[i].regex ? strcmp(regex, splits[i].regex) == 0 : !regex && !splits[i].regex;
    if (same && digits == splits[i].digits && ignore_merges == splits[i].ignore_merges) return &splits[i];
  }
  return NULL;
}

void hri_lexicon_init(hri_lexicon *lexicon) {
  memset(lexicon, 0, sizeof *lexicon);
  for (int i = 0; i < HRI_LEXICON_NAMED; i++) lexicon->named[i] = -1;
}

void hri_lexicon_deinit(hri_lexicon *lexicon) {
  hri_array_free(&lexicon->tokens);
  hri_array_free(&lexicon->merges);
  hri_free(lexicon->text);
  hri_free(lexicon->template_text);
  hri_free(lexicon->added_text);
  hri_json_deinit(&lexicon->config);
  hri_json_deinit(&lexicon->added);
}
