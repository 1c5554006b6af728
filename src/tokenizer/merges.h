/* vocab.json and merges.txt of a directory, put together as the text of a tokenizer.json. */
#ifndef HRI_TOKENIZER_MERGES_H
#define HRI_TOKENIZER_MERGES_H

#include <headroom/tokenizer.h>

#include "base/text.h"

typedef struct hri_merges {
  hri_text text;
  bool own[HR_TOKEN_NAMED_COUNT]; /* named tokens that are the class's own, "<|endoftext|>" */
} hri_merges;

bool hri_merges_present(const char *directory); /* both files are there */
bool hri_merges_known(const char *directory);   /* and are of a class that is read, or what says it cannot be read */
/* Released with hri_text_deinit, nothing to release after a failure. INPUT: a class that is not known (named, with the
 * remedy), lines that are no merges; what is wrong with the vocabulary its reader says. */
hr_status hri_merges_read(const char *directory, hri_merges *made, hr_error *error);

#endif
