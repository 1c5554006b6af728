/* Added tokens: found in the text before anything else looks at it. */
#ifndef HRI_TOKENIZER_ADDED_H
#define HRI_TOKENIZER_ADDED_H

#include "tokenizer/types.h"

enum { HRI_ADDED_MAX_BYTES = 1024 }; /* of one that is searched for */

/* Adds or changes one: a content that the vocabulary has keeps its id, another gets the next free one, as in the
 * reference.
 * An empty content is ignored. INPUT when there are too many ids; MEMORY. */
hr_status hri_added_put(hr_tokenizer *tokenizer, const char *content, uint64_t bytes, hri_added_token flags,
                        hr_error *error);
/* Makes both sets of patterns, once, when the normalizer is there. */
hr_status hri_added_finish(hr_tokenizer *tokenizer, hr_error *error);
void hri_added_deinit(hri_added *added);
const hri_added_token *hri_added_get(const hri_added *added, uint32_t id); /* NULL when it is none */

/* A found token: bytes [begin, end) of the text, what lstrip and rstrip take along included. */
typedef struct hri_added_match {
  uint32_t id, begin, end;
} hri_added_match;

/* A match may begin before the end of the one before it, whose rstrip took its white space along; what is left of that is
 * text once more, as in the reference.
 *
 * A walk over the matches in a text; start with {.text, .bytes, .plain}. */
typedef struct hri_added_walk {
  const char *text;
  uint64_t bytes;
  bool plain;         /* special tokens are text */
  uint64_t at, taken; /* searched up to `at`; the last match ends at `taken` */
  uint64_t space_end; /* of the white space that was looked at for rstrip */
} hri_added_walk;
bool hri_added_next(const hri_added *added, const hri_pattern_set *set, hri_added_walk *walk, hri_added_match *match);

#endif
