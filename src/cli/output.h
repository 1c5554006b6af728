/* Files that a command is told to write: what is there under the name is somebody's, unless it is an earlier one of ours. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <headroom/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum output_kind {
  OUTPUT_PAGE = 0,   /* of inspect --html */
  OUTPUT_SPEEDSCOPE, /* of inspect --export */
  OUTPUT_PROFILE,    /* of train --profile */
  OUTPUT_LOG,        /* of train --log-json */
  OUTPUT_METRICS,    /* of train --metrics-file */
  OUTPUT_OTHER       /* has no sign that Headroom wrote it */
} output_kind;

/* Whether `option` may write `path`: nothing is there, or nothing is in it, or it is a device or a pipe, or a file that
 * shows that Headroom wrote it as the same kind. USAGE names the option, the file and what to do. */
hr_status output_check(const char *option, const char *path, output_kind kind, hr_error *error);

/* The same for a directory that is to be made, which `what` names for people ("--out", "the target"): only that - is none.
 * `path` may be NULL. */
hr_status output_check_directory(const char *what, const char *path, hr_error *error);

/* A run directory, and whether the command makes it later: what writes a place in it is then opened when it is there. */
typedef struct output_run {
  const char *directory;
  bool made_later;
} output_run;

/* Whether a place lies in a run that is made later. USAGE for names that a run has itself, now or later, and for a file below a
 * directory that nobody makes. */
hr_status output_in_run(const char *option, const char *path, const output_run *run, bool directory, bool *in_run,
                        hr_error *error);

/* Whether two paths are one file or directory, there or yet to be made. */
bool output_same(const char *a, const char *b);

/* One option and the file that it writes, or the directory that it makes; path NULL: it was not given. */
typedef struct output_file {
  const char *option, *path;
  bool directory;
} output_file;

/* USAGE when two of a command's options would write one file, or one below what another writes as a file; a device or a pipe may
 * take both, and so may a directory. */
hr_status outputs_check_apart(const output_file *files, size_t count, hr_error *error);

#endif
