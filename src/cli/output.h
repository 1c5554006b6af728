/* Files that a command is told to write: what is there under the name is somebody's, unless it is an earlier one of ours. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <headroom/status.h>

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

#endif
