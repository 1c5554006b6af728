/* Tokenizers: text to token ids and back, exactly as the reference implementations do.
 *
 * Read are tokenizer.json (huggingface/tokenizers: BPE, Unigram, WordPiece), SentencePiece models (BPE and Unigram),
 * tiktoken rank files, Tekken's JSON, vocab.json with merges.txt, vocab.txt of BERT, and the tokenizer inside a GGUF file.
 *
 * Threads: a tokenizer is immutable once it is open: several threads may use one, each with its own hr_tokens. */
#ifndef HEADROOM_TOKENIZER_H
#define HEADROOM_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_tokenizer hr_tokenizer;

/* Token ids with the bytes of the text that each stands for. Start from {0}; encoding empties it first and keeps its
 * memory, so that it can be used again; release it with hr_tokens_deinit. */
typedef struct hr_tokens {
  int32_t *ids;
  uint32_t *begin, *end; /* bytes [begin, end) of the encoded text; begin == end for tokens that were added */
  uint64_t count, capacity;
  struct hr_tokens_work *work; /* working memory and remembered words, kept for the next text */
} hr_tokens;

/* Opens a directory (its tokenizer.json, else tokenizer.model, tekken.json, the only *.tiktoken, vocab.json with merges.txt,
 * vocab.txt, the only *.gguf;
 * tokenizer_config.json and special_tokens_map.json beside it are taken into account as transformers does), or one of
 * these files, whatever its name. INPUT names file, field and remedy: unknown components, merges of unknown tokens,
 * ... */
HR_CHECKED hr_status hr_tokenizer_open(const char *path, hr_tokenizer **tokenizer, hr_error *error);
/* Whether there is something to open: a directory with one of these files, or a file. */
HR_API bool hr_tokenizer_present(const char *path);
HR_API void hr_tokenizer_close(hr_tokenizer *tokenizer); /* NULL is fine */

/* What it is, in a few words for people: "byte-level BPE, 49152 tokens, tokenizer.json". Borrowed. */
HR_API const char *hr_tokenizer_about(const hr_tokenizer *tokenizer);
/* Highest token id + 1, added tokens included. */
HR_API uint32_t hr_tokenizer_size(const hr_tokenizer *tokenizer);
/* The id of a token by its content as it stands in the file ("<|im_end|>", "\xC4\xA0the"), -1 when there is none; and
 * the content of an id (borrowed, NUL-terminated, *bytes without the NUL; NULL when the id is unused). */
HR_API int32_t hr_tokenizer_find(const hr_tokenizer *tokenizer, const char *content);
HR_API const char *hr_tokenizer_token(const hr_tokenizer *tokenizer, int32_t id, uint64_t *bytes);
HR_API bool hr_tokenizer_is_special(const hr_tokenizer *tokenizer, int32_t id);
/* Named tokens as tokenizer_config.json, special_tokens_map.json or GGUF give them; -1 when there is none. */
typedef enum hr_named_token {
  HR_TOKEN_BOS = 0,
  HR_TOKEN_EOS,
  HR_TOKEN_PAD,
  HR_TOKEN_UNK,
  HR_TOKEN_NAMED_COUNT
} hr_named_token;
HR_API int32_t hr_tokenizer_named(const hr_tokenizer *tokenizer, hr_named_token which);

enum {
  HR_ENCODE_SPECIAL = 1 << 0, /* add what the post-processor adds (beginning-of-sequence, ...) */
  HR_ENCODE_PLAIN = 1 << 1,   /* special tokens in the text are text: for text that nobody vouches for */
  HR_ENCODE_OFFSETS = 1 << 2, /* fill begin and end, else they stay NULL */
  HR_DECODE_SKIP_SPECIAL = 1 << 8
};

/* Encodes `bytes` bytes (at most 4 GiB - 1) of UTF-8; invalid bytes are taken as U+FFFD, as the reference does. */
HR_CHECKED hr_status hr_tokenizer_encode(const hr_tokenizer *tokenizer, const char *text, uint64_t bytes,
                                         uint32_t flags, hr_tokens *tokens, hr_error *error);
/* Decodes to NUL-terminated text, owned by the caller (hr_free); *bytes (may be NULL) without the NUL. INPUT for ids
 * that the tokenizer does not have. */
HR_CHECKED hr_status hr_tokenizer_decode(const hr_tokenizer *tokenizer, const int32_t *ids, uint64_t count,
                                         uint32_t flags, char **text, uint64_t *bytes, hr_error *error);

HR_API void hr_tokens_deinit(hr_tokens *tokens);

#ifdef __cplusplus
}
#endif
#endif
