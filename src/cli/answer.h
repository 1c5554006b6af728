/* An answer as it is made, on standard output: what generate and chat share. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include <headroom/train.h>

#include "cli/speech.h"
#include "cli/talk.h"

typedef struct cli_answer {
  cli_talk talk;
  const cli_speech *speech; /* borrowed */
  cli_listener listener;
  char **stops; /* texts that end it, unescaped */
  uint32_t stop_count;
  char *held; /* text that may be the beginning of one of them: not yet said */
  size_t held_bytes;
  bool stopped;              /* by one of them */
  bool silent;               /* nothing is said, for --json */
  bool (*should_stop)(void); /* a wish from elsewhere; may be NULL */
} cli_answer;

/* Fills what the command line says about sampling and calls back into `answer`, whose speech is open. USAGE for a stop
 * text that cannot be looked for. Close it, also after a failure. */
hr_status answer_begin(cli_answer *answer, const cli_config *config, const cli_speech *speech,
                       hr_generate_options *options, hr_error *error);
/* Says what is still held back and ends the line. */
void answer_end(cli_answer *answer);
/* What was said, without the stop text and what follows it, in new memory (free). NULL: the model has no words. */
char *answer_text(const cli_answer *answer, size_t *bytes);
/* Ready for the next one. */
void answer_reset(cli_answer *answer);
void answer_close(cli_answer *answer);

/* on_event of a generation; the context is an answer. */
void answer_event(void *context, const hr_event *event);

#endif
