/* Event files as TensorBoard reads them: scalars over steps. */
#ifndef CLI_TENSORBOARD_H
#define CLI_TENSORBOARD_H

#include <stdio.h>

#include <headroom/train.h>

#include "base/error.h"

typedef struct tensorboard {
  FILE *file; /* NULL: none is written */
  char path[4096];
  size_t above_bytes; /* so much of the path was there before */
  bool used;          /* there are figures in it */
  double flushed;     /* when, in seconds of the clock */
} tensorboard;

/* Makes `directory` and in it a file of a name of its own, so that a run that goes on adds one. IO names the path. */
hr_status tensorboard_open(tensorboard *board, const char *directory, hr_error *error);
/* A step's figures, or those of an evaluation. They reach the disk once a second, at evaluations and at the end. */
hr_status tensorboard_put(tensorboard *board, const hr_metrics *metrics, bool evaluation, hr_error *error);
hr_status tensorboard_close(tensorboard *board, hr_error *error); /* one that was never opened is fine */

#endif
