/* A directory of snapshots, one of each rank of a job. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "cli/explain.h"
#include "cli/inspect.h"

#define NO_RANK UINT32_MAX

/* What one rank's snapshot says. */
typedef struct rank_row {
  char *path; /* free */
  uint32_t rank;
  int32_t device;
  uint64_t peak_live_bytes, peak_reserved_bytes;
  uint64_t live_bytes, reserved_bytes; /* at its instant: its last failure, else the peak */
  bool failed;
  int64_t failed_us; /* its last failure, by its own clock; 0: not recorded */
  uint64_t failed_bytes;
} rank_row;

/* A file that looked like a snapshot and cannot be read: damaged, cut off when its process was ended, something else. */
typedef struct unread_file {
  char *path, *message; /* free */
} unread_file;

/* By rank. Places, NO_RANK where there is none. */
struct ranks {
  rank_row *rows; /* free */
  uint32_t count;
  unread_file *unread; /* free */
  uint32_t unread_count;
  bool numbered; /* the numbers are of the names; else they count the files in their order */
  uint32_t highest, lowest, first_failed;
};

/* Whether a path is a directory with snapshots that no run of headroom train has to do with: their names, in order. To be asked
 * before a reading begins: what a file is, is not what its --max-memory is for. The caller frees them, whatever the answer. */
bool ranks_find(const char *path, ranks *all);
/* Reads those that were found: one or more can be read, the others are in `unread`. `at`: the instant, as in
 * hr_inspect_options. */
hr_status ranks_read(reading *r, const char *directory, uint64_t at, ranks *all, hr_error *error);
void ranks_free(ranks *all);

/* The table; JSON's "ranks" with the places' ranks beside it. */
void ranks_print(const ranks *all);
void ranks_write(const ranks *all, json_writer *json);

/* headroom inspect DIR: the table, and what the highest has beyond the lowest. */
hr_status ranks_inspect(const cli_config *config, reading *r, const char *directory, ranks *all, hr_error *error);

#endif
