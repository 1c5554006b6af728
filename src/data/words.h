/* What turns words into tokens for a model: its tokenizer and its chat template, as its directory or GGUF file has
 * them. */
#ifndef HRI_DATA_WORDS_H
#define HRI_DATA_WORDS_H

#include <headroom/data.h>
#include <headroom/tokenizer.h>

#include "data/dataset.h"

typedef struct hri_words {
  hr_tokenizer *tokenizer; /* NULL: bytes are tokens */
  const char *chat; /* where to look for the chat template; NULL: nowhere. Borrowed from the model or the options */
  bool chat_given;
  const char *lacking; /* the directory, where it says of which class its tokenizer is and has none */
  uint64_t identity;   /* of the files that decide what a text becomes */
} hri_words;

/* Models without a directory, or with one that has no tokenizer, are byte-level, unless the options name a tokenizer for
 * them; one that has its own takes no other (USAGE). Close it, also after a failure. */
hr_status hri_words_open(hri_words *words, const hr_model *model, const hr_data_options *options, hr_error *error);
void hri_words_close(hri_words *words);

/* The options of a data set for a model; words must stay open while it is opened. */
hri_dataset_options hri_words_options(const hri_words *words, const hr_model *model, const hr_data_options *options);

#endif
