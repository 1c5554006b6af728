/* Bytes to read front to back: memory, a file, or gzip of either, through a window that moves.
 *
 * Files are read and not mapped: a map of a file that someone cuts short kills the process, and its pages count as
 * memory of this one. The window is 256 KiB unless one piece (a long string, a whole JSON text) needs more. */
#ifndef HRI_SNAPSHOT_SOURCE_H
#define HRI_SNAPSHOT_SOURCE_H

#include <zlib.h>

#include "base/mem.h"

typedef struct hri_snapshot_source {
  const unsigned char *next, *end; /* what is there to read; the reader moves `next` */
  uint64_t end_offset;             /* of `end`, from the beginning of the (decompressed) bytes */
  const char *name;
  uint64_t total_limit; /* of all (decompressed) bytes */
  unsigned char *window;
  uint64_t capacity;
  int fd; /* -1: memory */
  uint64_t file_bytes;
  bool done; /* nothing comes behind `end` */
  bool gzip;
  z_stream zip;
  unsigned char *input; /* compressed bytes of a file */
} hri_snapshot_source;

/* Takes the file or borrows the memory; looks at the first bytes. gzip is undone. */
hr_status hri_snapshot_source_open(hri_snapshot_source *s, const char *path, uint64_t total_limit, hr_error *error);
hr_status hri_snapshot_source_of_memory(hri_snapshot_source *s, const void *bytes, uint64_t count, const char *name,
                                        uint64_t total_limit, hr_error *error);
void hri_snapshot_source_close(hri_snapshot_source *s);

/* Makes end - next at least `count`, or all there is. IO, INPUT for damaged gzip or above total_limit, MEMORY. */
hr_status hri_snapshot_source_want(hri_snapshot_source *s, uint64_t count, hr_error *error);
/* The same for the whole rest, which then lies in the window (writable, behind it a zero). */
hr_status hri_snapshot_source_whole(hri_snapshot_source *s, char **bytes, uint64_t *count, hr_error *error);
static inline uint64_t hri_snapshot_source_offset(const hri_snapshot_source *s) {
  return s->end_offset - (uint64_t)(s->end - s->next);
}

#endif
