/* A file read from begin to end through one fixed buffer, with a digest of all its bytes. */
#ifndef HRI_DATA_READER_H
#define HRI_DATA_READER_H

#include <sys/types.h>
#include <time.h>

#include "base/mem.h"

/* A 64-bit digest of a stream of bytes, independent of how it is cut into calls. Tells data sets apart; it is no
 * defence against somebody who wants two to look alike. Start from zero. */
typedef struct hri_digest {
  uint64_t state, word, count; /* word: the last count % 8 bytes */
} hri_digest;

void hri_digest_add(hri_digest *digest, const void *bytes, size_t count);
void hri_digest_add_u64(hri_digest *digest, uint64_t value);
uint64_t hri_digest_value(const hri_digest *digest);

/* Tells whether a file is still the one that was read. */
typedef struct hri_file_stamp {
  uint64_t bytes;
  struct timespec changed;
} hri_file_stamp;

/* Opens a regular file for reading. The descriptor is the caller's to close. */
hr_status hri_stamp_open(const char *path, int *fd, hri_file_stamp *stamp, hr_error *error);
/* INPUT when size or modification time differ from the stamp. */
hr_status hri_stamp_check(const hri_file_stamp *stamp, int fd, const char *path, hr_error *error);

enum { HRI_READER_BYTES = 128 * 1024 };

struct hri_unpack;

typedef struct hri_reader {
  const char *path;   /* borrowed */
  char *buffer;       /* HRI_READER_BYTES + 1 */
  char *next, *end;   /* not yet consumed; *end is always 0 */
  uint64_t offset;    /* of `end` in the content: in the file, or in what it unpacks to */
  uint64_t raw_bytes; /* of the file, read so far */
  hri_digest *digest;
  hri_file_stamp stamp;
  int fd;
  bool at_end;               /* `end` is the end of the content */
  struct hri_unpack *unpack; /* between file and buffer; NULL: the content is the file */
} hri_reader;

/* Opens and fills the buffer. Close it, also after a failure. */
hr_status hri_reader_open(hri_reader *reader, const char *path, hri_digest *digest, hr_error *error);
/* Whether the file just opened is packed in a form that is read (data/unpack.h): then the content is what it unpacks
 * to, from its first byte on. The digest stays that of the file. */
hr_status hri_reader_unpack(hri_reader *reader, hr_error *error);
/* Bytes of the file itself, for what unpacks it; *got is 0 at its end. */
hr_status hri_reader_raw(hri_reader *reader, char *to, size_t room, size_t *got, hr_error *error);
/* A reader over `count` bytes in memory, behind which one byte is writable; nothing to close, no digest. */
hri_reader hri_reader_memory(const char *path, char *bytes, size_t count);
/* Keeps what is not consumed, moved to the front, and reads behind it until the buffer is full or the file ends. */
hr_status hri_reader_fill(hri_reader *reader, hr_error *error);
/* Fails when the file was changed while it was read. */
hr_status hri_reader_finish(hri_reader *reader, hr_error *error);
void hri_reader_close(hri_reader *reader);

static inline size_t hri_reader_left(const hri_reader *reader) { return (size_t)(reader->end - reader->next); }
/* Offset of `next` in the content. */
static inline uint64_t hri_reader_position(const hri_reader *reader) {
  return reader->offset - hri_reader_left(reader);
}

#endif
