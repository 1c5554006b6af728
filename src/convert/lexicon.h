/* A tokenizer between two formats: what both tokenizer.json and GGUF say. Internal to src/convert. */
#ifndef HRI_CONVERT_LEXICON_H
#define HRI_CONVERT_LEXICON_H

#include "base/json.h"
#include "formats/gguf.h"

/* The numbers are those of tokenizer.ggml.token_type. */
typedef enum hri_lex_type {
  HRI_LEX_NORMAL = 1,
  HRI_LEX_UNKNOWN,
  HRI_LEX_CONTROL,
  HRI_LEX_USER_DEFINED,
  HRI_LEX_UNUSED,
  HRI_LEX_BYTE
} hri_lex_type;

typedef struct hri_lexicon_token {
  const char *text; /* borrowed; NULL: the id has no token */
  uint32_t bytes;
  hri_lex_type type;
  float score; /* sentencepiece */
} hri_lexicon_token;

typedef struct hri_lexicon_merge {
  const char *left, *right; /* borrowed */
  uint32_t left_bytes, right_bytes;
} hri_lexicon_merge;

enum { HRI_LEXICON_BOS = 0, HRI_LEXICON_EOS, HRI_LEXICON_UNK, HRI_LEXICON_PAD, HRI_LEXICON_NAMED };

typedef struct hri_lexicon {
  bool sentencepiece;                  /* characters with byte fallback, else the byte alphabet of gpt2 */
  const char *pre;                     /* "llama-bpe", ...; of sentencepiece "default" */
  HRI_ARRAY(hri_lexicon_token) tokens; /* by id */
  HRI_ARRAY(hri_lexicon_merge) merges; /* in order of rank */
  int64_t named[HRI_LEXICON_NAMED];    /* ids; -1: none */
  bool add_bos, add_eos, space_prefix, gemma;
  const char *chat_template; /* borrowed; NULL: none */
  uint64_t chat_template_bytes;
  /* What GGUF does not say: an added token that takes blanks beside it, or stands alone as a word (NULL: none); and that
   * the blank of space_prefix stands in front of a text only, not behind each special token too. */
  const char *stripping;
  bool prefix_first;
  /* what the texts above are borrowed from */
  char *text, *template_text, *added_text;
  hri_json config, added;
} hri_lexicon;

void hri_lexicon_init(hri_lexicon *lexicon);
void hri_lexicon_deinit(hri_lexicon *lexicon);

/* Whether tokenizer.json has the token among its added ones. */
bool hri_lexicon_is_added(const hri_lexicon *lexicon, const hri_lexicon_token *token);
/* The first token whose text holds U+0000: readers of GGUF that take texts for C strings, as llama.cpp does, cut it there.
 * -1: none does. */
int64_t hri_lexicon_zeroed(const hri_lexicon *lexicon);

/* A splitting of text into words that both formats know: its name in GGUF, its regular expression (NULL: the built-in
 * one of
 * ByteLevel), digits split off one by one before it; and what llama.cpp does for that name besides: bring text to NFC
 * (or not care), take a word that is a token at once. */
typedef struct hri_lexicon_split {
  const char *pre, *regex;
  bool digits, nfc, ignore_merges;
} hri_lexicon_split;
/* By name (also the names that llama.cpp treats alike), or by what tokenizer.json has; NULL when it is unknown. */
const hri_lexicon_split *hri_lexicon_split_named(const char *pre);
const hri_lexicon_split *hri_lexicon_split_like(const char *regex, bool digits, bool ignore_merges);

/* Merges and scores say the same of a sentencepiece vocabulary. Scores from merges: a token's is the rank of the first
 * merge that makes it, counted downwards. Merges from scores, where there are none: all splits of a token into two
 * tokens, the tokens by falling score (Gemma's: by rising id). */
hr_status hri_lexicon_score(hri_lexicon *lexicon, hr_error *error);
hr_status hri_lexicon_derive_merges(hri_lexicon *lexicon, hr_error *error);

/* From a Hugging Face directory: tokenizer.json, else tokenizer.model, else vocab.json with merges.txt; what lies beside it
 * (tokenizer_config.json, added_tokens.json, special_tokens_map.json, chat_template.jinja). *found is false when there is no
 * tokenizer. INPUT, and UNSUPPORTED for what GGUF has no word for, tokenizers of other kinds among them. */
hr_status hri_lexicon_from_directory(const char *directory, hri_lexicon *lexicon, bool *found, hr_error *error);
/* The same from the keys of a GGUF file, which must stay open; *found is false when it has no tokenizer. */
hr_status hri_lexicon_from_gguf(const hri_gguf *file, hri_lexicon *lexicon, bool *found, hr_error *error);

/* Puts the tokenizer.* keys; ids up to `size` that have no token become [PADn]. INPUT when there are more tokens than
 * that. */
hr_status hri_lexicon_to_gguf(const hri_lexicon *lexicon, uint32_t size, hri_gguf_keys *keys, hr_error *error);
/* Writes tokenizer.json and tokenizer_config.json into a directory. */
hr_status hri_lexicon_to_directory(hri_lexicon *lexicon, const char *directory, uint64_t max_positions,
                                   hr_error *error);

#endif
