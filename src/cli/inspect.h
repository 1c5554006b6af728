/* Snapshots side by side, as `headroom inspect` shows two files and a directory of ranks. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include <headroom/inspect.h>

#include "cli/json.h"
#include "cli/reading.h"

/* A snapshot with its inspection; both are given back by inspect_close. */
typedef struct inspect_side {
  hr_snapshot *snapshot;
  hr_inspection *inspection;
} inspect_side;

/* Reads a file, or what a run directory holds, and inspects it at --at on --device. */
hr_status inspect_open(const cli_config *config, reading *r, const char *path, inspect_side *s, hr_error *error);
void inspect_close(inspect_side *s);

/* What differs from sides[0] to sides[1], --top rows of it: lines of change, both sides under their titles, and name; a
 * list in JSON. */
hr_status inspect_print_difference(const cli_config *config, const inspect_side *sides, hr_group_by by,
                                   const char *before, const char *after, hr_error *error);
hr_status inspect_write_difference(const cli_config *config, const inspect_side *sides, hr_group_by by,
                                   json_writer *json, const char *key, hr_error *error);

#endif
