/* Writing a large file piece by piece: gzip where the name ends in ".gz", and atomic, as hri_file_replace is for small
 * files: it grows in a scratch directory beside its name. Whoever writes gathers pieces of some 64 KiB; nothing else is
 * held in memory. */
#ifndef HRI_SNAPSHOT_SINK_H
#define HRI_SNAPSHOT_SINK_H

#include <zlib.h>

#include "base/scratch.h"

enum { HRI_SINK_PIECE_BYTES = 1 << 16 };

typedef struct hri_snapshot_sink {
  const char *path;     /* borrowed */
  hri_scratch *scratch; /* NULL: `path` is a device or a pipe, and is written itself */
  char *temp;           /* in the scratch; takes the place of `path` at the end */
  int fd;
  z_stream *deflate; /* NULL: not compressed */
  unsigned char *packed;
  uint64_t byte_count; /* given so far, before compression */
  hr_status status;    /* sticky: after a failure, pieces are dropped */
  hr_error *error;     /* the caller's, filled at the first failure; may be NULL */
} hri_snapshot_sink;

/* Opens the file that will be `path`, after what killed processes left beside it was removed; a device or a pipe
 * itself. `error` stays in use until the end. */
hr_status hri_sink_init(hri_snapshot_sink *sink, const char *path, hr_error *error);
void hri_sink_put(hri_snapshot_sink *sink, const void *bytes, uint64_t count);
/* Keeps the first failure of whoever fills the sink (memory, say), and returns it. */
hr_status hri_sink_fail(hri_snapshot_sink *sink, hr_status status);
/* Everything on disk under its name, or the first failure and no trace of it. */
hr_status hri_sink_end(hri_snapshot_sink *sink);
/* Removes what was not ended. Fine after a failed init and after end. */
void hri_sink_deinit(hri_snapshot_sink *sink);

#endif
