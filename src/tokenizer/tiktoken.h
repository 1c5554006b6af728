/* tiktoken rank files: lines "BASE64 RANK", a byte string and its rank, which is its token id.
 *
 * The file holds neither pattern nor special tokens. They come from beside it: a tokenizer_config.json that names them,
 * or the family that the number of ranks gives away (hri_tiktoken_family). */
#ifndef HRI_TOKENIZER_TIKTOKEN_H
#define HRI_TOKENIZER_TIKTOKEN_H

#include "base/mem.h"

typedef struct hri_tiktoken_token {
  uint32_t at, bytes; /* into hri_tiktoken.bytes; bytes == 0: the rank has no token */
} hri_tiktoken_token;

typedef struct hri_tiktoken {
  hri_tiktoken_token *tokens; /* index = rank = id */
  uint32_t count;             /* highest rank + 1 */
  uint8_t *bytes;             /* all tokens behind one another */
  uint64_t byte_count;
} hri_tiktoken;

hr_status hri_tiktoken_read(const char *path, hri_tiktoken *ranks, hr_error *error);
hr_status hri_tiktoken_parse(const char *name, const char *text, uint64_t count, hri_tiktoken *ranks, hr_error *error);
void hri_tiktoken_deinit(hri_tiktoken *ranks);

typedef struct hri_tiktoken_special {
  const char *content;
  uint32_t id;
} hri_tiktoken_special;

/* What a family adds to its ranks. */
typedef struct hri_tiktoken_family {
  const char *name;    /* "llama3", "qwen2", "gpt2", "cl100k", "o200k" */
  const char *pattern; /* for hri_splitter_create_regex */
  uint32_t rank_count;
  const hri_tiktoken_special *special; /* the tokens with a meaning */
  uint32_t special_count;
  uint32_t total_count; /* highest id + 1 */
  bool reserves;        /* the ids between that have no name are <|reserved_special_token_N|>, N from 0 on (Llama-3) */
  const char *bos;      /* content of the token that encoding with special tokens begins with; NULL = none */
} hri_tiktoken_family;

/* The family with exactly so many ranks: 128,000 Llama-3, 151,643 Qwen2/2.5/3, 50,256 GPT-2, 100,256 cl100k, 199,998
 * o200k; NULL for others, which need a tokenizer.json. */
const hri_tiktoken_family *hri_tiktoken_family_find(uint32_t rank_count);
/* The special tokens of a family by index, 0 .. hri_tiktoken_special_total - 1, reserved ones included; content goes
 * into `room` when it has to be made. */
uint32_t hri_tiktoken_special_total(const hri_tiktoken_family *family);
hri_tiktoken_special hri_tiktoken_special_at(const hri_tiktoken_family *family, uint32_t index, char room[64]);

#endif
