/* Names and patterns of quantization_config.llm_int8_skip_modules. */
#ifndef HRI_MODEL_SKIP_H
#define HRI_MODEL_SKIP_H

#include "base/json.h"

/* A list of them, compiled one at a time. */
typedef struct hri_skip hri_skip;

/* Compiles one entry. INPUT names it: no text, no regular expression, or one with what is not understood
 * (base/automaton.h: backreferences, looking behind, flags). hri_skip_close frees it; NULL is fine. */
hr_status hri_skip_open(const hri_json *item, hri_skip **skip, hr_error *error);
void hri_skip_close(hri_skip *skip);
/* Whether transformers leaves a module of this name out because of the entry. */
bool hri_skip_matches(const hri_skip *skip, const char *module);

#endif
