/* Putting a tokenizer together. Every kind of file comes down to the same steps:
 *
 *   begin; tokens of the model; merges; added tokens; parts (parts.h, from JSON); named tokens; finish
 *
 * A tokenizer that failed on the way is closed with hr_tokenizer_close. */
#ifndef HRI_TOKENIZER_BUILD_H
#define HRI_TOKENIZER_BUILD_H

#include "base/json.h"
#include "formats/gguf.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/types.h"

/* An empty tokenizer; `file` names it in errors and is copied. */
hr_status hri_build_begin(const char *file, hr_tokenizer **tokenizer, hr_error *error);
/* A token of the model. INPUT when the id is out of range or the id or content was there before. */
hr_status hri_build_token(hr_tokenizer *tokenizer, const char *content, uint64_t bytes, uint64_t id, hr_error *error);
/* Merge number `index`, by contents that are no longer than the file. INPUT when a part or the result is no model
 * token. */
hr_status hri_build_merge(hr_tokenizer *tokenizer, const char *left, uint64_t left_bytes, const char *right,
                          uint64_t right_bytes, uint32_t index, hr_error *error);
/* The parts from their JSON texts; NULL stands for null. */
typedef struct hri_part_texts {
  const char *normalizer, *pre_tokenizer, *decoder;
} hri_part_texts;
hr_status hri_build_parts(hr_tokenizer *tokenizer, const hri_part_texts *parts, hr_error *error);
/* Adds bos and eos around a text, as add_bos_token and add_eos_token say; the tokens are named already. */
hr_status hri_build_template(hr_tokenizer *tokenizer, bool bos, bool eos, hr_error *error);
/* Last step. */
hr_status hri_build_finish(hr_tokenizer *tokenizer, hr_error *error);

/* Whole tokenizers, without what lies beside the file (config.h); not finished yet. */
hr_status hri_build_from_json(const char *path, hr_tokenizer *tokenizer, hr_error *error);
/* The same from memory, which is written to; a NUL stands behind it. */
hr_status hri_build_parse_json(char *bytes, uint64_t count, hr_tokenizer *tokenizer, hr_error *error);
/* Whether JSON (unchanged yet) is Tekken's and not a tokenizer.json; and from it, as above. */
bool hri_tekken_is(const char *bytes, uint64_t count);
hr_status hri_build_parse_tekken(char *bytes, uint64_t count, hr_tokenizer *tokenizer, hr_error *error);
hr_status hri_build_from_sentencepiece(const char *path, hr_tokenizer *tokenizer, hr_error *error);
/* Ranks become tokens in the byte alphabet: a rank is the order of merging, and behind `first` the id. */
hr_status hri_build_ranks(const hri_tiktoken *ranks, uint32_t first, hr_tokenizer *tokenizer, hr_error *error);
/* With the vocabulary's size of the directory's config.json, where the ranks do not say whose they are. */
hr_status hri_build_from_tiktoken(const char *path, const char *directory, hr_tokenizer *tokenizer, hr_error *error);
/* vocab.txt, with what tokenizer_config.json in the directory says about text; the same from memory. */
hr_status hri_build_from_words(const char *path, const char *directory, hr_tokenizer *tokenizer, hr_error *error);
hr_status hri_build_parse_words(const char *text, uint64_t count, const char *directory, hr_tokenizer *tokenizer,
                                hr_error *error);
/* vocab.json and merges.txt (merges.h), and what lies beside them (hri_build_config). */
hr_status hri_build_from_merges(const char *directory, hr_tokenizer *tokenizer, hr_error *error);
/* From the tokenizer.ggml keys of an open GGUF file. */
hr_status hri_build_from_gguf(const hri_gguf *file, hr_tokenizer *tokenizer, hr_error *error);

/* A JSON file of the directory, an object; `root` stays zeroed when there is none. *path lives in the tree's errors: the
 * caller frees it last, and both whatever the outcome. */
hr_status hri_build_read_beside(const char *directory, const char *name, char **path, hri_json *root, hr_error *error);
/* tokenizer_config.json and what else lies in the directory; missing files are fine. `template`: add_bos_token and
 * add_eos_token count. */
hr_status hri_build_config(const char *directory, bool template, hr_tokenizer *tokenizer, hr_error *error);

/* Pre-tokenizers by the names of tokenizer.ggml.pre, as the JSON of tokenizer.json; NULL when the name is not known. */
typedef struct hri_pre_type {
  const char *name, *pre_tokenizer, *normalizer; /* normalizer NULL: none */
  bool ignore_merges;
} hri_pre_type;
const hri_pre_type *hri_pre_type_find(const char *name);

#endif
