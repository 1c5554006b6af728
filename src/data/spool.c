#include "data/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

hri_spool hri_spool_init(const char *directory) {
  hri_spool spool = {.directory = directory, .fd = -1};
  return spool;
}

hri_spool hri_spool_borrow(const char *directory, int fd, uint64_t origin, uint64_t bytes) {
  hri_spool spool = {.directory = directory, .fd = fd, .origin = origin, .base = bytes};
  return spool;
}

void hri_spool_deinit(hri_spool *spool) {
  if (spool->fd >= 0) close(spool->fd);
  hri_free(spool->buffer);
  spool->fd = -1;
  spool->buffer = NULL;
}

uint64_t hri_spool_disk_bytes(const hri_spool *spool) { return spool->fd >= 0 ? spool->base : 0; }

static hr_status fail(const hri_spool *spool, int number, const char *verb, hr_error *error) {
  hr_status code = hri_fail_errno(error, number, verb, spool->directory);
  return hri_hint(error, code,
                  "the rows of the data set are kept there while it is in use: make room there, or set TMPDIR to "
                  "a directory that is writable and has room");
}

/* Without a name, so that nothing stays behind, however the process ends; where the file system cannot make such a
 * file, a name that is new is taken for an instant. */
static hr_status make_file(hri_spool *spool, hr_error *error) {
  char path[4096];
  spool->fd = open(spool->directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (spool->fd >= 0) return HR_OK;
  if (snprintf(path, sizeof path, "%s/headroom-data-XXXXXX", spool->directory) >= (int)sizeof path)
    return fail(spool, ENAMETOOLONG, "make a temporary file in", error);
  spool->fd = mkostemp(path, O_CLOEXEC);
  if (spool->fd < 0) return fail(spool, errno, "make a temporary file in", error);
  unlink(path);
  return HR_OK;
}

static hr_status flush(hri_spool *spool, hr_error *error) {
  const char *next = spool->buffer;
  if (spool->fd < 0) HRI_TRY(make_file(spool, error));
  while (spool->used > 0) {
    ssize_t put = pwrite(spool->fd, next, spool->used, (off_t)spool->base);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail(spool, errno, "write a temporary file in", error);
    next += put;
    spool->base += (uint64_t)put;
    spool->used -= (size_t)put;
  }
  return HR_OK;
}

hr_status hri_spool_settle(hri_spool *spool, hr_error *error) {
  if (spool->fd < 0) return HR_OK;
  HRI_TRY(flush(spool, error));
  hri_free(spool->buffer);
  spool->buffer = NULL;
  return HR_OK;
}

hr_status hri_spool_put_slow(hri_spool *spool, const void *bytes, size_t count, hr_error *error) {
  if (!spool->buffer) spool->buffer = hri_alloc(HRI_SPOOL_BYTES);
  if (!spool->buffer) return hri_fail_memory(error, HRI_SPOOL_BYTES, "the rows of the data set");
  if (HRI_SPOOL_BYTES - spool->used < count) HRI_TRY(flush(spool, error));
  memcpy(spool->buffer + spool->used, bytes, count);
  spool->used += count;
  return HR_OK;
}

hr_status hri_spool_grow(hri_spool *spool, uint64_t size, hr_error *error) {
  uint64_t more = size - hri_spool_size(spool);
  if (spool->buffer && more <= HRI_SPOOL_BYTES - spool->used) {
    memset(spool->buffer + spool->used, 0, (size_t)more);
    spool->used += (size_t)more;
    return HR_OK;
  }
  if (spool->used > 0) HRI_TRY(flush(spool, error));
  spool->base = size;
  return HR_OK;
}

void hri_spool_rewind(hri_spool *spool) {
  spool->base = 0;
  spool->used = 0;
}

/* Bytes of the file; zeros where nothing was written yet. */
static hr_status read_file(const hri_spool *spool, uint64_t offset, char *to, size_t count, hr_error *error) {
  while (count > 0) {
    ssize_t got = spool->fd < 0 ? 0 : pread(spool->fd, to, count, (off_t)(spool->origin + offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(spool, errno, "read a temporary file in", error);
    if (got == 0 && spool->origin > 0) { /* an entry of the cache has no holes */
      hri_fail(error, HR_ERROR_INPUT, "an entry of the data cache was cut while it was in use");
      return hri_hint(error, HR_ERROR_INPUT,
                      "leave the data cache alone during a run; remove it (RUN/data-cache, --data-cache) and go on");
    }
    if (got == 0) {
      memset(to, 0, count);
      return HR_OK;
    }
    to += got;
    offset += (uint64_t)got;
    count -= (size_t)got;
  }
  return HR_OK;
}

hr_status hri_spool_read(const hri_spool *spool, uint64_t offset, void *to, size_t count, hr_error *error) {
  char *next = to;
  if (offset < spool->base) {
    size_t part = spool->base - offset < count ? (size_t)(spool->base - offset) : count;
    HRI_TRY(read_file(spool, offset, next, part, error));
    next += part;
    offset += part;
    count -= part;
  }
  if (count > 0) memcpy(next, spool->buffer + (offset - spool->base), count);
  return HR_OK;
}
