#include "snapshot/sink.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/publish.h"

/* Events repeat themselves so much that higher levels cost time and hardly save bytes. */
enum { GZIP_LEVEL = 2, GZIP_WINDOW = 15 + 16 };

static void *take(void *context, unsigned count, unsigned bytes_each) {
  (void)context;
  return hri_alloc_zero(count, bytes_each);
}

static void give_back(void *context, void *memory) {
  (void)context;
  hri_free(memory);
}

static bool ends_in_gz(const char *path) {
  size_t length = strlen(path);
  return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

static hr_status begin_deflate(hri_snapshot_sink *sink) {
  z_stream *stream = hri_alloc_zero(1, sizeof *stream);
  sink->packed = hri_alloc(HRI_SINK_PIECE_BYTES);
  if (stream && sink->packed) {
    stream->zalloc = take;
    stream->zfree = give_back;
    if (deflateInit2(stream, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) == Z_OK) {
      sink->deflate = stream;
      return HR_OK;
    }
  }
  hri_free(stream);
  return hri_fail_memory(sink->error, HRI_SINK_PIECE_BYTES, "a gzip stream");
}

enum { PATH_BYTES = 4096 };

static hr_status open_temp(hri_snapshot_sink *sink) {
  char parent[PATH_BYTES], temp[PATH_BYTES];
  hr_status status;
  hri_path_parent(sink->path, parent);
  (void)hri_scratch_sweep(parent);
  status = hri_scratch_open(parent, true, &sink->scratch, sink->error);
  if (status == HR_ERROR_IO) return hri_context(sink->error, status, "cannot write %.300s: ", sink->path);
  HRI_TRY(status);
  HRI_TRY(hri_scratch_path(sink->scratch, "file", temp, sink->error));
  sink->temp = hri_strdup(temp);
  if (!sink->temp) return hri_fail_memory(sink->error, strlen(temp) + 1, "a file name");
  return hri_file_create(sink->temp, &sink->fd, sink->error);
}

hr_status hri_sink_init(hri_snapshot_sink *sink, const char *path, hr_error *error) {
  bool special;
  *sink = (hri_snapshot_sink){.path = path, .fd = -1, .error = error};
  sink->status = hri_file_name_check(path, &special, error);
  if (sink->status != HR_OK) return sink->status;
  if (ends_in_gz(path)) sink->status = begin_deflate(sink);
  if (sink->status == HR_OK) /* /dev/null must stay what it is */
    sink->status = special ? hri_special_open(path, &sink->fd, error) : open_temp(sink);
  if (sink->status != HR_OK) hri_sink_deinit(sink);
  return sink->status;
}

/* Feeds what `deflate` was given and writes what comes out. */
static void squeeze(hri_snapshot_sink *sink, int flush) {
  z_stream *stream = sink->deflate;
  int result;
  do {
    stream->next_out = sink->packed;
    stream->avail_out = HRI_SINK_PIECE_BYTES;
    result = deflate(stream, flush);
    sink->status =
        hri_file_write_all(sink->fd, sink->path, sink->packed, HRI_SINK_PIECE_BYTES - stream->avail_out, sink->error);
  } while (sink->status == HR_OK && (flush == Z_FINISH ? result != Z_STREAM_END : stream->avail_out == 0));
}

void hri_sink_put(hri_snapshot_sink *sink, const void *bytes, uint64_t count) {
  const unsigned char *next = bytes;
  if (sink->status != HR_OK) return;
  sink->byte_count += count;
  if (!sink->deflate) {
    sink->status = hri_file_write_all(sink->fd, sink->path, bytes, count, sink->error);
    return;
  }
  while (count > 0 && sink->status == HR_OK) {
    unsigned piece = count < 1u << 30 ? (unsigned)count : 1u << 30; /* zlib counts in unsigned */
    sink->deflate->next_in = (unsigned char *)(uintptr_t)next;
    sink->deflate->avail_in = piece;
    squeeze(sink, Z_NO_FLUSH);
    next += piece;
    count -= piece;
  }
}

hr_status hri_sink_fail(hri_snapshot_sink *sink, hr_status status) {
  if (sink->status == HR_OK) sink->status = status;
  return sink->status;
}

static hr_status publish(hri_snapshot_sink *sink) {
  HRI_TRY(hri_publish_over(sink->temp, sink->path, sink->error));
  return hri_publish_settle(sink->path, sink->error);
}

static hr_status finish(hri_snapshot_sink *sink) {
  int fd = sink->fd;
  sink->fd = -1;
  if (sink->scratch) return hri_file_finish(fd, sink->temp, sink->status, sink->error);
  if (close(fd) != 0 && sink->status == HR_OK) return hri_fail_errno(sink->error, errno, "write", sink->path);
  return sink->status;
}

hr_status hri_sink_end(hri_snapshot_sink *sink) {
  if (sink->status == HR_OK && sink->deflate) squeeze(sink, Z_FINISH);
  if (sink->fd >= 0) sink->status = finish(sink);
  if (sink->status == HR_OK && sink->scratch) sink->status = publish(sink);
  hri_sink_deinit(sink);
  return sink->status;
}

void hri_sink_deinit(hri_snapshot_sink *sink) {
  if (sink->fd >= 0) (void)close(sink->fd);
  hri_scratch_close(sink->scratch);
  if (sink->deflate) deflateEnd(sink->deflate);
  hri_free(sink->deflate);
  hri_free(sink->packed);
  hri_free(sink->temp);
  sink->deflate = NULL;
  sink->packed = NULL;
  sink->temp = NULL;
  sink->scratch = NULL;
  sink->fd = -1;
}
