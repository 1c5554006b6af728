/* --max-memory: what a command may allocate for a file that somebody else made. */
#ifndef CLI_READING_H
#define CLI_READING_H

#include <sys/stat.h>

#include <headroom/snapshot.h>

#include "base/account.h"
#include "cli/options.h"

typedef struct reading {
  hri_account account;
  hr_snapshot_limits limits; /* the same limit, for hr_snapshot_read */
  char file[1024];           /* what is being worked on, for errors */
  char source[120];          /* whose limit it is, "" when a person chose it */
  struct stat found;         /* the file as it was when its reading began; no mode: it is none */
} reading;

/* From here on, all that this thread allocates counts: reading, what is made of it, texts. */
void reading_begin(reading *r, const cli_config *config, const char *file);
/* What is worked on now is another file. */
void reading_about(reading *r, const char *file);
/* The status of what was done. What is wrong with a file that somebody wrote meanwhile is told with that. Memory that the limit refused is the file's doing: INPUT (exit 5), which names the file,
 * what it needed so far, the limit and the option. */
hr_status reading_end(reading *r, hr_status status, hr_error *error);

/* What a file is called to people: - is standard input. */
const char *reading_name(const char *file);
/* A snapshot from a file, standard input (-) or a pipe of the shell. */
hr_status reading_snapshot(const char *path, const hr_snapshot_limits *limits, hr_snapshot **snapshot, hr_error *error);
/* One from a stream, of which the first bytes were read already. It cannot be opened again: it is read whole, as far as the
 * memory for reading goes. */
hr_status reading_stream(FILE *file, const char *first, size_t first_count, const char *path,
                         const hr_snapshot_limits *limits, hr_snapshot **snapshot, hr_error *error);

#endif
