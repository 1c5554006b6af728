/* Files of named tensors: nothing is mapped and nothing is kept, pieces go by pread and pwrite to and from the caller's
 * memory. */
#include "formats/tensor_file.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

typedef unsigned long long ull; /* for printing */

#define MAX_DATA_BYTES ((uint64_t)1 << 60) /* far from what off_t holds */

/* ---- Reading ---- */

static hr_status look(hri_tensor_file *file, const char *path, hr_error *error) {
  struct stat info;
  file->path = hri_strdup(path);
  if (!file->path) return hri_fail_memory(error, strlen(path) + 1, path);
  if (fstat(file->fd, &info) != 0) return hri_fail_errno(error, errno, "read", path);
  if (!S_ISREG(info.st_mode)) return hri_fail(error, HR_ERROR_INPUT, "%s is not a regular file", path);
  file->file_bytes = (uint64_t)info.st_size;
  return HR_OK;
}

hr_status hri_tensor_file_open(size_t struct_bytes, int fd, const char *path, hri_tensor_file **opened,
                               hr_error *error) {
  hri_tensor_file *file = hri_alloc_zero(1, struct_bytes);
  hr_status status;
  assert(struct_bytes >= sizeof *file);
  if (!file) {
    close(fd);
    return hri_fail_memory(error, struct_bytes, path);
  }
  file->fd = fd;
  status = look(file, path, error);
  if (status != HR_OK) {
    hri_tensor_file_close(file);
    return status;
  }
  *opened = file;
  return HR_OK;
}

void hri_tensor_file_close(hri_tensor_file *file) {
  close(file->fd);
  hri_free(file->path);
  hri_free(file);
}

hr_status hri_tensor_file_read(const hri_tensor_file *file, hri_tensor_range tensor, uint64_t offset, uint64_t bytes,
                               void *to, uint64_t *at, hr_error *error) {
  hr_status status;
  if (offset > tensor.bytes || bytes > tensor.bytes - offset)
    return hri_fail(error, HR_ERROR_INTERNAL, "%s: bytes %llu+%llu were asked of tensor '%.200s', which has %llu",
                    file->path, (ull)offset, (ull)bytes, tensor.name, (ull)tensor.bytes);
  offset += file->data_begin + tensor.begin;
  if (at) *at = offset;
  status = hri_file_pread(file->fd, file->path, to, bytes, offset, error);
  return status == HR_OK ? HR_OK : hri_context(error, status, "tensor '%.200s': ", tensor.name);
}

/* ---- Writing ---- */

hr_status hri_tensor_writer_create(size_t struct_bytes, const char *path, uint32_t count, hri_tensor_writer **created,
                                   hr_error *error) {
  hri_tensor_writer *writer = hri_alloc_zero(1, struct_bytes);
  uint64_t bytes = struct_bytes + (uint64_t)count * sizeof *writer->places;
  assert(struct_bytes >= sizeof *writer);
  if (!writer) return hri_fail_memory(error, bytes, path);
  writer->fd = -1;
  writer->count = count;
  writer->path = hri_strdup(path);
  writer->places = hri_alloc_zero(count, sizeof *writer->places);
  *created = writer;
  if (writer->path && writer->places) return HR_OK;
  hri_tensor_writer_abort(writer);
  return hri_fail_memory(error, bytes, path);
}

hr_status hri_tensor_writer_put(hri_tensor_writer *writer, uint32_t index, const char *name, uint64_t bytes,
                                uint32_t alignment, hr_error *error) {
  hri_tensor_place *place = &writer->places[index];
  assert(index < writer->count && writer->fd < 0);
  place->name = name;
  place->begin = writer->data_bytes;
  place->bytes = bytes;
  if (!hri_add(writer->data_bytes, bytes, &writer->data_bytes) || writer->data_bytes > MAX_DATA_BYTES)
    return hri_fail(error, HR_ERROR_USAGE, "%s: the tensors together are too large for a file", writer->path);
  writer->data_bytes = hri_round_up(writer->data_bytes, alignment);
  return HR_OK;
}

uint64_t hri_tensor_writer_file_bytes(const hri_tensor_writer *writer) {
  return writer->data_begin + writer->data_bytes;
}

static hr_status put(hri_tensor_writer *writer, uint64_t at, const void *bytes, uint64_t count, hr_error *error) {
  if (writer->tap)
    HRI_TRY(
        writer->tap(writer, at, bytes, count, error)); /* first: it finds values in the cache and leaves them there */
  return hri_file_pwrite(writer->fd, writer->path, bytes, count, at, error);
}

hr_status hri_tensor_writer_start(hri_tensor_writer *writer, const void *head, uint64_t bytes, hr_error *error) {
  writer->data_begin = bytes;
  HRI_TRY(hri_file_create(writer->path, &writer->fd, error));
  HRI_TRY(hri_file_reserve(writer->fd, writer->path, hri_tensor_writer_file_bytes(writer), error));
  return put(writer, 0, head, bytes, error);
}

hr_status hri_tensor_writer_write(hri_tensor_writer *writer, uint32_t index, uint64_t offset, const void *data,
                                  uint64_t bytes, hr_error *error) {
  hri_tensor_place *place;
  hr_status status;
  uint64_t before;
  if (index >= writer->count)
    return hri_fail(error, HR_ERROR_INTERNAL, "%s has no tensor of index %u", writer->path, index);
  place = &writer->places[index];
  before = atomic_fetch_add(&place->written, bytes); /* taken back when the piece is not written */
  if (offset > place->bytes || bytes > place->bytes - offset || before > place->bytes || bytes > place->bytes - before)
    status = hri_fail(error, HR_ERROR_INTERNAL,
                      "%s: tensor '%.200s' of %llu bytes, %llu of them written, got bytes %llu+%llu", writer->path,
                      place->name, (ull)place->bytes, (ull)before, (ull)offset, (ull)bytes);
  else status = put(writer, writer->data_begin + place->begin + offset, data, bytes, error);
  if (status != HR_OK) (void)atomic_fetch_sub(&place->written, bytes);
  return status;
}

hr_status hri_tensor_writer_check(const hri_tensor_writer *writer, hr_error *error) {
  for (uint32_t i = 0; i < writer->count; i++) {
    const hri_tensor_place *place = &writer->places[i];
    if (place->written != place->bytes)
      return hri_fail(error, HR_ERROR_INTERNAL, "%s: tensor '%.200s' got %llu of its %llu bytes", writer->path,
                      place->name, (ull)place->written, (ull)place->bytes);
  }
  return HR_OK;
}

hr_status hri_tensor_writer_end(hri_tensor_writer *writer, hr_status so_far, hr_error *error) {
  hr_status status = hri_file_finish(writer->fd, writer->path, so_far, error);
  writer->fd = -1;
  return status;
}

void hri_tensor_writer_abort(hri_tensor_writer *writer) {
  if (writer->fd >= 0) (void)hri_tensor_writer_end(writer, HR_ERROR_INTERRUPTED, NULL);
  hri_free(writer->places);
  hri_free(writer->path);
  hri_free(writer);
}
