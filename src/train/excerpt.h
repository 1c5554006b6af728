/* --sample: the text that a run continues after its evaluations, to show what the model writes by now. */
#ifndef HRI_TRAIN_EXCERPT_H
#define HRI_TRAIN_EXCERPT_H

#include "train/session.h"

typedef struct hri_excerpt {
  const char *prompt;      /* borrowed; NULL: nothing is continued */
  hr_tokenizer *tokenizer; /* NULL: tokens are bytes */
  hr_tokens ids;           /* of the prompt */
} hri_excerpt;

/* Reads the tokenizer (`named` as hr_data_options.tokenizer) and makes the prompt's tokens. USAGE when they cannot be
 * continued: there are none, the model's vocabulary lacks one, or the planned context has no room behind them. `prompt`
 * NULL: nothing happens. Deinit it, also after a failure. */
hr_status hri_excerpt_init(hri_excerpt *excerpt, const hr_job *job, const char *prompt, const char *named,
                           hr_error *error);
void hri_excerpt_deinit(hri_excerpt *excerpt);

/* The prompt with what the model writes behind it, up to its end of text, a number of tokens or the end of the context.
 * `step` decides the random numbers. `should_stop` (may be NULL) is asked before each token: then *left. DIVERGED when the
 * model's scores are not finite. */
hr_status hri_excerpt_write(const hri_excerpt *excerpt, hri_session *session, uint64_t step,
                            bool (*should_stop)(void *context), void *context, bool *left, hri_text *text,
                            hr_error *error);

#endif
