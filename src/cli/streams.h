/* What a run writes for other programs while it goes: lines of JSON, TensorBoard's event files, Prometheus' text. */
#ifndef CLI_STREAMS_H
#define CLI_STREAMS_H

#include <headroom/train.h>

#include "cli/options.h"
#include "cli/tensorboard.h"

typedef struct cli_streams {
  const char *run;     /* the run's directory */
  const char *log;     /* --log-json; NULL: none, or it failed */
  const char *metrics; /* --metrics-file; likewise */
  int log_fd;          /* -1: not open */
  bool log_anew;       /* its first line takes the place of what is there */
  bool log_made;       /* nothing was there */
  tensorboard board;
  char board_directory[4096];    /* "": none */
  bool log_in_run, board_in_run; /* to be opened when the run directory is there */
  double replaced;               /* when the metrics file was, in seconds of the clock */
  hr_metrics last;
  bool stepped; /* `last` is of a step */
} cli_streams;

/* Where --tensorboard writes, "" without it. */
hr_status streams_board(const cli_config *config, const char *run, char path[4096], hr_error *error);
/* Opens what was asked for, or refuses before the run begins. */
hr_status streams_open(cli_streams *streams, const cli_config *config, const char *run, hr_error *error);
/* A stream that fails is named once and left; the run goes on. `warn` says it. */
void streams_event(cli_streams *streams, const hr_event *event, void (*warn)(void *context, const char *text),
                   void *context);
void streams_close(cli_streams *streams, void (*warn)(void *context, const char *text), void *context);
/* Whether standard output is a stream, and no place for anything else. */
static inline bool streams_take_output(const cli_config *config) {
  return config->own.log_json && config->own.log_json[0] == '-' && !config->own.log_json[1];
}

#endif
