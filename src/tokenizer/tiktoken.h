/* tiktoken rank files: lines "BASE64 RANK", a byte string and its rank, which is its token id.
 *
 * The file holds neither pattern nor special tokens. They come from beside it: a tokenizer_config.json that names them,
 * or the family that the number of ranks gives away (hri_tiktoken_family), with the vocabulary's size that config.json
 * says where several have as many. */
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
/* Every byte must be a token, or some text could not be written: INPUT. */
hr_status hri_tiktoken_check_bytes(const char *name, const hri_tiktoken *ranks, hr_error *error);

/* One special token, or `count` of them with neighbouring ids, whose names `content` makes of a number that counts from
 * `number`: %u is the number, %l the language that whisper has there, %t a time of so many fiftieths of a second. */
typedef struct hri_tiktoken_special {
  const char *content;
  uint32_t id, count, number;
} hri_tiktoken_special;

/* What a family adds to its ranks. */
typedef struct hri_tiktoken_family {
  const char *name;
  const char *pattern; /* for hri_splitter_create_regex */
  uint32_t rank_count;
  const hri_tiktoken_special *special;
  uint32_t special_count;
  const char *bos;        /* content of the token that encoding with special tokens begins with; NULL = none */
  const char *normalizer; /* as tokenizer.json spells it; NULL = none */
} hri_tiktoken_family;

/* The family with exactly so many ranks; NULL for others, which need a tokenizer.json. Of several, the one with
 * `vocabulary` ids in all, else the commonest. */
const hri_tiktoken_family *hri_tiktoken_family_find(uint32_t rank_count, uint64_t vocabulary);
bool hri_tiktoken_family_is_single(uint32_t rank_count); /* no vocabulary changes what is found */
/* The single special tokens of a family by index, 0 .. hri_tiktoken_special_total - 1; content goes into `room` when it
 * has to be made. */
uint32_t hri_tiktoken_special_total(const hri_tiktoken_family *family);
hri_tiktoken_special hri_tiktoken_special_at(const hri_tiktoken_family *family, uint32_t index, char room[64]);

/* Base64 as these files have it (padded, unused bits zero): appends the bytes to `out`, a growing array of *capacity
 * that holds *count. False for what is no base64; MEMORY in *refused. Shared with Tekken's JSON. */
bool hri_base64_decode(const char *text, size_t length, uint8_t **out, size_t *capacity, uint64_t *count,
                       bool *refused);

#endif
