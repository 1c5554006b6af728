#include "data/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/unpack.h"

/* ---- Digest: eight bytes at a time, each folded in by one multiplication and one shift ---- */

static inline uint64_t fold(uint64_t state, uint64_t word) {
  state = (state ^ word) * 0x9E3779B97F4A7C15u;
  return state ^ state >> 32;
}

void hri_digest_add(hri_digest *digest, const void *bytes, size_t count) {
  const unsigned char *next = bytes, *end = next + count;
  uint64_t state = digest->state, word = digest->word;
  unsigned held = (unsigned)(digest->count % 8);
  digest->count += count;
  while (next < end) {
    if (held == 0 && end - next >= 8) {
      uint64_t whole = 0;
      for (unsigned i = 0; i < 8; i++) whole |= (uint64_t)next[i] << 8 * i; /* one load on little-endian machines */
      state = fold(state, whole);
      next += 8;
      continue;
    }
    word |= (uint64_t)*next++ << 8 * held;
    held = (held + 1) % 8;
    if (held == 0) {
      state = fold(state, word);
      word = 0;
    }
  }
  digest->state = state;
  digest->word = word;
}

void hri_digest_add_u64(hri_digest *digest, uint64_t value) {
  unsigned char bytes[8];
  for (unsigned i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> 8 * i);
  hri_digest_add(digest, bytes, sizeof bytes);
}

uint64_t hri_digest_value(const hri_digest *digest) {
  return fold(fold(fold(digest->state, digest->word), digest->count), 0x5851F42D4C957F2Du);
}

/* ---- Stamps ---- */

static hri_file_stamp stamp_of(const struct stat *info) {
  hri_file_stamp stamp = {.bytes = (uint64_t)info->st_size, .changed = info->st_mtim};
  return stamp;
}

hr_status hri_stamp_open(const char *path, int *fd, hri_file_stamp *stamp, hr_error *error) {
  struct stat info;
  int opened;
  HRI_TRY(hri_file_open_regular(path, &opened, NULL, error));
  if (fstat(opened, &info) != 0) {
    close(opened);
    return hri_fail_errno(error, errno, "read", path);
  }
  *stamp = stamp_of(&info);
  *fd = opened;
  return HR_OK;
}

hr_status hri_stamp_check(const hri_file_stamp *stamp, int fd, const char *path, hr_error *error) {
  struct stat info;
  hri_file_stamp now;
  hr_status code;
  if (fstat(fd, &info) != 0) return hri_fail_errno(error, errno, "read", path);
  now = stamp_of(&info);
  if (now.bytes == stamp->bytes && now.changed.tv_sec == stamp->changed.tv_sec &&
      now.changed.tv_nsec == stamp->changed.tv_nsec)
    return HR_OK;
  code = hri_fail(error, HR_ERROR_INPUT, "%s was changed while it was in use (%llu bytes, now %llu)", path,
                  (unsigned long long)stamp->bytes, (unsigned long long)now.bytes);
  return hri_hint(error, code, "leave data files alone during a run; start it again");
}

/* ---- Reader ---- */

hr_status hri_reader_open(hri_reader *reader, const char *path, hri_digest *digest, hr_error *error) {
  hri_reader fresh = {.path = path, .digest = digest, .fd = -1};
  *reader = fresh;
  HRI_TRY(hri_stamp_open(path, &reader->fd, &reader->stamp, error));
  reader->buffer = hri_alloc(HRI_READER_BYTES + 1);
  if (!reader->buffer) return hri_fail_memory(error, HRI_READER_BYTES + 1, "reading data");
  reader->next = reader->end = reader->buffer;
  return hri_reader_fill(reader, error);
}

hri_reader hri_reader_memory(const char *path, char *bytes, size_t count) {
  hri_reader reader =
      {.path = path, .buffer = bytes, .next = bytes, .end = bytes + count, .offset = count, .fd = -1, .at_end = true};
  bytes[count] = 0;
  return reader;
}

hr_status hri_reader_raw(hri_reader *reader, char *to, size_t room, size_t *got, hr_error *error) {
  ssize_t count;
  do count = read(reader->fd, to, room);
  while (count < 0 && errno == EINTR);
  if (count < 0) return hri_fail_errno(error, errno, "read", reader->path);
  *got = (size_t)count;
  reader->raw_bytes += *got;
  hri_digest_add(reader->digest, to, *got);
  return HR_OK;
}

hr_status hri_reader_unpack(hri_reader *reader, hr_error *error) {
  static const struct {
    const char *magic;
    size_t bytes;
    hr_status (*make)(hri_reader *reader, hri_unpack **unpack, hr_error *error);
  } forms[] = {{"\x1F\x8B\x08", 3, hri_unpack_gzip},
               {"\x28\xB5\x2F\xFD", 4, hri_unpack_zstd},
               {"PAR1", 4, hri_unpack_parquet}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (hri_reader_left(reader) < forms[i].bytes || memcmp(reader->next, forms[i].magic, forms[i].bytes) != 0) continue;
    HRI_TRY(forms[i].make(reader, &reader->unpack, error));
    reader->next = reader->end = reader->buffer;
    reader->offset = 0;
    reader->at_end = false;
    return hri_reader_fill(reader, error);
  }
  return HR_OK;
}

hr_status hri_reader_fill(hri_reader *reader, hr_error *error) {
  size_t kept = hri_reader_left(reader);
  if (kept > 0) memmove(reader->buffer, reader->next, kept);
  reader->next = reader->buffer;
  reader->end = reader->buffer + kept;
  *reader->end = 0;
  while (!reader->at_end && reader->end < reader->buffer + HRI_READER_BYTES) {
    size_t room = (size_t)(reader->buffer + HRI_READER_BYTES - reader->end), got;
    if (reader->unpack) HRI_TRY(hri_unpack_more(reader->unpack, reader->end, room, &got, error));
    else HRI_TRY(hri_reader_raw(reader, reader->end, room, &got, error));
    reader->at_end = got == 0;
    reader->end += got;
    reader->offset += got;
  }
  *reader->end = 0;
  return HR_OK;
}

hr_status hri_reader_finish(hri_reader *reader, hr_error *error) {
  hri_file_stamp seen = {.bytes = reader->raw_bytes, .changed = reader->stamp.changed};
  return hri_stamp_check(&seen, reader->fd, reader->path, error);
}

void hri_reader_close(hri_reader *reader) {
  if (reader->unpack) reader->unpack->close(reader->unpack);
  reader->unpack = NULL;
  if (reader->fd >= 0) close(reader->fd);
  hri_free(reader->buffer);
  reader->fd = -1;
  reader->buffer = reader->next = reader->end = NULL;
}
