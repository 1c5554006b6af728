/* A growing sequence of bytes of any length: the end of it in one small buffer, the rest in a temporary file without a
 * name, which is made only when the buffer is full for the first time. */
#ifndef HRI_DATA_SPOOL_H
#define HRI_DATA_SPOOL_H

#include <string.h>

#include "base/mem.h"

enum { HRI_SPOOL_BYTES = 64 * 1024 };

typedef struct hri_spool {
  const char *directory; /* where the file goes; borrowed */
  char *buffer;          /* HRI_SPOOL_BYTES, from the first use on */
  size_t used;           /* in the buffer: bytes [base, base + used) of the sequence */
  uint64_t base;         /* bytes before those: in the file; what was skipped there reads as zeros */
  uint64_t origin;       /* where the sequence begins in the file: 0 but for a borrowed one */
  int fd;
} hri_spool;

hri_spool hri_spool_init(const char *directory);
/* A sequence that lies in a file already, for reading: `bytes` bytes from `origin` on. Takes the descriptor. */
hri_spool hri_spool_borrow(const char *directory, int fd, uint64_t origin, uint64_t bytes);
void hri_spool_deinit(hri_spool *spool);

static inline uint64_t hri_spool_size(const hri_spool *spool) { return spool->base + spool->used; }
uint64_t hri_spool_disk_bytes(const hri_spool *spool);
/* Gives the buffer back if there is a file: nothing is appended any more. */
hr_status hri_spool_settle(hri_spool *spool, hr_error *error);

hr_status hri_spool_put_slow(hri_spool *spool, const void *bytes, size_t count, hr_error *error);
/* Appends `count` bytes, at most HRI_SPOOL_BYTES. */
static inline hr_status hri_spool_put(hri_spool *spool, const void *bytes, size_t count, hr_error *error) {
  if (!spool->buffer || HRI_SPOOL_BYTES - spool->used < count) return hri_spool_put_slow(spool, bytes, count, error);
  memcpy(spool->buffer + spool->used, bytes, count);
  spool->used += count;
  return HR_OK;
}

/* Appends zeros up to `size`, which is not below the present size; on disk they are a hole. */
hr_status hri_spool_grow(hri_spool *spool, uint64_t size, hr_error *error);
/* Empties it; its file stays for use again. */
void hri_spool_rewind(hri_spool *spool);
/* Reads [offset, offset + count), which lies within the size. */
hr_status hri_spool_read(const hri_spool *spool, uint64_t offset, void *to, size_t count, hr_error *error);

#endif
