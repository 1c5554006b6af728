/* The files of a Hugging Face model beside its weights and config.json, as transformers, mistral-common and tiktoken name
 * them: one list for whoever copies them along or removes them with their model. */
#ifndef HRI_CONVERT_BESIDE_H
#define HRI_CONVERT_BESIDE_H

#include "base/error.h"

typedef enum hri_beside_kind {
  HRI_BESIDE_NONE = 0,
  HRI_BESIDE_TOKENIZER, /* the tokenizer's, and the chat template */
  HRI_BESIDE_MODEL      /* generation_config.json: how this model, and no other of the tokenizer, is asked */
} hri_beside_kind;

/* What a file is by its name: NONE for any other name. */
hri_beside_kind hri_beside_of(const char *name);

typedef hr_status (*hri_beside_each)(void *context, const char *name, hri_beside_kind kind, hr_error *error);
/* Calls `each` for every such file that is in the directory. INPUT: it cannot be opened; IO; else what `each` returns, which
 * ends it. */
hr_status hri_beside_list(const char *directory, hri_beside_each each, void *context, hr_error *error);

#endif
