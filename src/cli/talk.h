/* What a run says while it runs, on standard error: the plan before it, notes, warnings, progress. */
#ifndef CLI_TALK_H
#define CLI_TALK_H

#include <headroom/train.h>

#include "cli/json.h"
#include "cli/options.h"

enum { TALK_NOTES = 32 };

typedef struct cli_talk {
  bool quiet, live;             /* live: the progress line may be repainted */
  bool painted;                 /* a progress line stands on the screen, without a line end */
  double painted_at, logged_at; /* seconds of the monotonic clock */
  uint64_t logged_step;
  uint64_t notes[TALK_NOTES]; /* hashes of notes that were shown */
  uint32_t note_count;
} cli_talk;

void talk_begin(cli_talk *talk, const cli_config *config);
/* Ends a painted line, so that what follows starts on a line of its own. */
void talk_clear(cli_talk *talk);
/* on_event of hr_run_options and hr_generate_options; context is a talk. */
void talk_event(void *context, const hr_event *event);
/* A warning of the program itself. */
void talk_warn(void *context, const char *text);

/* Planned and reserved bytes of each tier that has any, as members of `tiers`, or as rows of a table on standard
 * output. */
void talk_write_tiers(json_writer *json, const uint64_t *planned, const uint64_t *reserved);
void talk_print_tiers(const uint64_t *planned, const uint64_t *reserved);

#endif
