#include "snapshot/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { WINDOW_BYTES = 256 << 10, INPUT_BYTES = 64 << 10 };

static void *zip_alloc(void *context, unsigned count, unsigned each) {
  (void)context;
  return hri_alloc_zero(count, each);
}
static void zip_free(void *context, void *memory) {
  (void)context;
  hri_free(memory);
}

static hr_status read_file(hri_snapshot_source *s, unsigned char *to, uint64_t room, uint64_t *got, hr_error *error) {
  ssize_t count;
  do count = read(s->fd, to, room < (1u << 30) ? (size_t)room : (1u << 30));
  while (count < 0 && errno == EINTR);
  if (count < 0) return hri_fail_errno(error, errno, "read", s->name);
  *got = (uint64_t)count;
  return HR_OK;
}

static hr_status fail_zip(const hri_snapshot_source *s, hr_error *error) {
  hr_status code =
      hri_fail(error, HR_ERROR_INPUT, "%s: the gzip data is damaged or cut short after %llu decompressed bytes",
               s->name, (unsigned long long)s->end_offset);
  return hri_hint(error, code, "fetch the file anew; \"gzip -t\" tells whether a copy is whole");
}

/* Compressed bytes for zlib; none at the end of the file. */
static hr_status feed(hri_snapshot_source *s, hr_error *error) {
  uint64_t got = 0;
  if (s->zip.avail_in || s->fd < 0) return HR_OK;
  HRI_TRY(read_file(s, s->input, INPUT_BYTES, &got, error));
  s->zip.next_in = s->input;
  s->zip.avail_in = (unsigned)got;
  return HR_OK;
}

static hr_status inflate_more(hri_snapshot_source *s, unsigned char *to, uint64_t room, uint64_t *got,
                              hr_error *error) {
  unsigned want = room < (1u << 30) ? (unsigned)room : 1u << 30;
  s->zip.next_out = to;
  s->zip.avail_out = want;
  while (s->zip.avail_out == want) {
    int result;
    HRI_TRY(feed(s, error));
    if (!s->zip.avail_in) return fail_zip(s, error);
    result = inflate(&s->zip, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) return hri_fail_memory(error, 32768, s->name);
    if (result == Z_STREAM_END) {
      HRI_TRY(feed(s, error));
      if (!s->zip.avail_in || *s->zip.next_in != 0x1f) { /* no other member follows */
        s->done = true;
        break;
      }
      if (inflateReset(&s->zip) != Z_OK) return fail_zip(s, error);
    } else if (result != Z_OK) {
      return fail_zip(s, error);
    }
  }
  *got = want - s->zip.avail_out;
  return HR_OK;
}

/* Twice as much, but no more than a file holds: a text that is read whole then takes no more than itself. */
static uint64_t wider(const hri_snapshot_source *s, uint64_t want) {
  uint64_t capacity = s->capacity ? s->capacity * 2 : WINDOW_BYTES;
  if (s->fd >= 0 && !s->gzip && capacity > s->file_bytes + 1) capacity = s->file_bytes + 1;
  return capacity > want ? capacity : want;
}

static hr_status widen(hri_snapshot_source *s, uint64_t want, hr_error *error) {
  const uint64_t capacity = wider(s, want), at = s->window ? (uint64_t)(s->next - s->window) : 0,
                 have = s->window ? (uint64_t)(s->end - s->next) : 0;
  unsigned char *memory = hri_realloc(s->window, capacity + 1); /* one for a zero behind a text */
  if (!memory) return hri_fail_memory(error, capacity, s->name);
  s->next = memory + at;
  s->end = s->next + have;
  s->window = memory;
  s->capacity = capacity;
  return HR_OK;
}

hr_status hri_snapshot_source_want(hri_snapshot_source *s, uint64_t count, hr_error *error) {
  /* What the file cannot hold is not waited for: a damaged length would take the whole rest into memory. */
  if (s->fd >= 0 && !s->gzip && count > s->file_bytes && count != UINT64_MAX) return HR_OK;
  while (!s->done && (uint64_t)(s->end - s->next) < count) {
    uint64_t have = (uint64_t)(s->end - s->next), got = 0;
    if (s->next > s->window) {
      memmove(s->window, s->next, (size_t)have);
      s->next = s->window;
      s->end = s->window + have;
    }
    if (have == s->capacity) HRI_TRY(widen(s, have + 1, error));
    if (s->gzip) {
      HRI_TRY(inflate_more(s, s->window + have, s->capacity - have, &got, error));
    } else {
      HRI_TRY(read_file(s, s->window + have, s->capacity - have, &got, error));
      s->done = got == 0;
    }
    s->end += got;
    s->end_offset += got;
    if (s->end_offset > s->total_limit) {
      hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s: more than %llu bytes (decompressed)", s->name,
                                (unsigned long long)s->total_limit);
      return hri_hint(error, code,
                      "no snapshot that the memory for reading holds is as long; if it is one, allow more with "
                      "--max-memory SIZE");
    }
  }
  return HR_OK;
}

hr_status hri_snapshot_source_whole(hri_snapshot_source *s, char **bytes, uint64_t *count, hr_error *error) {
  if (!s->window) { /* memory of the caller, which is not ours to write into */
    const unsigned char *from = s->next;
    uint64_t size = (uint64_t)(s->end - from);
    s->window = hri_alloc((size_t)size + 1);
    if (!s->window) return hri_fail_memory(error, size, s->name);
    if (size) memcpy(s->window, from, (size_t)size);
    s->capacity = size;
    s->next = s->window;
    s->end = s->window + size;
  }
  HRI_TRY(hri_snapshot_source_want(s, UINT64_MAX, error));
  *count = (uint64_t)(s->end - s->next);
  *bytes = (char *)s->window + (s->next - s->window);
  (*bytes)[*count] = 0;
  return HR_OK;
}

/* ---- opening ---- */

static hr_status start_zip(hri_snapshot_source *s, hr_error *error) {
  s->zip.zalloc = zip_alloc;
  s->zip.zfree = zip_free;
  if (inflateInit2(&s->zip, 15 + 16) != Z_OK) return hri_fail_memory(error, 32768, s->name);
  s->gzip = true;
  return HR_OK;
}

hr_status hri_snapshot_source_of_memory(hri_snapshot_source *s, const void *bytes, uint64_t count, const char *name,
                                        uint64_t total_limit, hr_error *error) {
  const unsigned char *first = bytes;
  *s = (hri_snapshot_source){.next = first,
                             .end = count ? first + count : first,
                             .end_offset = count,
                             .name = name,
                             .total_limit = total_limit,
                             .fd = -1,
                             .done = true};
  if (count < 2 || first[0] != 0x1f || first[1] != 0x8b) return HR_OK;
  if (count > UINT32_MAX) return hri_fail(error, HR_ERROR_INPUT, "%s: more than 4 GiB of gzip data in memory", name);
  s->next = s->end = NULL;
  s->end_offset = 0;
  s->done = false;
  HRI_TRY(start_zip(s, error));
  s->zip.next_in = (unsigned char *)(uintptr_t)first; /* zlib does not write there */
  s->zip.avail_in = (unsigned)count;
  return hri_snapshot_source_want(s, 1, error);
}

hr_status hri_snapshot_source_open(hri_snapshot_source *s, const char *path, uint64_t total_limit, hr_error *error) {
  unsigned char first[2];
  *s = (hri_snapshot_source){.name = path, .total_limit = total_limit, .fd = -1};
  HRI_TRY(hri_file_open_regular(path, &s->fd, &s->file_bytes, error));
  if (hri_file_pread(s->fd, path, first, 2, 0, NULL) == HR_OK && first[0] == 0x1f && first[1] == 0x8b) {
    HRI_TRY(start_zip(s, error));
    s->input = hri_alloc(INPUT_BYTES);
    if (!s->input) return hri_fail_memory(error, INPUT_BYTES, path);
  }
  return hri_snapshot_source_want(s, 1, error);
}

void hri_snapshot_source_close(hri_snapshot_source *s) {
  if (s->gzip) (void)inflateEnd(&s->zip);
  if (s->fd >= 0) close(s->fd);
  hri_free(s->window);
  hri_free(s->input);
  *s = (hri_snapshot_source){.fd = -1};
}
