#include "snapshot/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

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

static hr_status begin_deflate(hri_sink *sink) {
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

/* Hidden, so that what a kill leaves is not taken for a snapshot. */
static char *temp_name(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  size_t bytes = strlen(path) + 6;
  char *temp = hri_alloc(bytes);
  if (temp) (void)snprintf(temp, bytes, "%.*s.%s.tmp", (int)(name - path), path, name);
  return temp;
}

/* A device or a pipe, which is written to and not replaced. */
static bool is_special(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

static const char *name_of(const hri_sink *sink) { return sink->temp ? sink->temp : sink->path; }

hr_status hri_sink_init(hri_sink *sink, const char *path, hr_error *error) {
  size_t length = strlen(path);
  *sink = (hri_sink){.path = path, .fd = -1, .error = error};
  if (length == 0 || path[length - 1] == '/' || hri_path_is_dir(path))
    return sink->status = hri_fail(error, HR_ERROR_USAGE, "cannot write %s: it is not the name of a file", length ? path : "''");
  if (ends_in_gz(path)) {
    sink->status = begin_deflate(sink);
    if (sink->status != HR_OK) goto failed;
  }
  if (is_special(path)) { /* /dev/null must stay what it is */
    sink->fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO that nobody reads is refused, not waited for */
    if (sink->fd >= 0 && fcntl(sink->fd, F_SETFL, 0) == 0) return HR_OK;
    sink->status = hri_fail_errno(error, errno, "open", path);
    goto failed;
  }
  sink->temp = temp_name(path);
  if (!sink->temp) {
    sink->status = hri_fail_memory(error, length + 6, "a file name");
    goto failed;
  }
  sink->fd = open(sink->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (sink->fd >= 0) return HR_OK;
  sink->status = hri_fail_errno(error, errno, "create", sink->temp);
  hri_free(sink->temp); /* whatever lies there is not ours to remove */
  sink->temp = NULL;
failed:
  hri_sink_deinit(sink);
  return sink->status;
}

/* Feeds what `deflate` was given and writes what comes out. */
static void squeeze(hri_sink *sink, int flush) {
  z_stream *stream = sink->deflate;
  int result;
  do {
    stream->next_out = sink->packed;
    stream->avail_out = HRI_SINK_PIECE_BYTES;
    result = deflate(stream, flush);
    sink->status = hri_file_write_all(sink->fd, name_of(sink), sink->packed, HRI_SINK_PIECE_BYTES - stream->avail_out, sink->error);
  } while (sink->status == HR_OK && (flush == Z_FINISH ? result != Z_STREAM_END : stream->avail_out == 0));
}

void hri_sink_put(hri_sink *sink, const void *bytes, uint64_t count) {
  const unsigned char *next = bytes;
  if (sink->status != HR_OK) return;
  sink->byte_count += count;
  if (!sink->deflate) {
    sink->status = hri_file_write_all(sink->fd, name_of(sink), bytes, count, sink->error);
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

hr_status hri_sink_fail(hri_sink *sink, hr_status status) {
  if (sink->status == HR_OK) sink->status = status;
  return sink->status;
}

static hr_status sync_directory(const hri_sink *sink) {
  const char *slash = strrchr(sink->temp, '/');
  if (!slash) return hri_dir_sync(".", sink->error);
  sink->temp[slash - sink->temp + (slash == sink->temp)] = 0;
  return hri_dir_sync(sink->temp, sink->error);
}

hr_status hri_sink_end(hri_sink *sink) {
  if (sink->status == HR_OK && sink->deflate) squeeze(sink, Z_FINISH);
  if (sink->status == HR_OK && sink->temp && fsync(sink->fd) != 0) sink->status = hri_fail_errno(sink->error, errno, "write", sink->temp);
  if (sink->status == HR_OK) {
    int failed = close(sink->fd);
    sink->fd = -1;
    if (failed) sink->status = hri_fail_errno(sink->error, errno, "write", name_of(sink));
  }
  if (sink->status == HR_OK && sink->temp && rename(sink->temp, sink->path) != 0) sink->status = hri_fail_errno(sink->error, errno, "rename to", sink->path);
  if (sink->status == HR_OK && sink->temp) {
    sink->status = sync_directory(sink);
    hri_free(sink->temp); /* it has its name now: there is nothing to remove */
    sink->temp = NULL;
  }
  hri_sink_deinit(sink);
  return sink->status;
}

void hri_sink_deinit(hri_sink *sink) {
  if (sink->fd >= 0) close(sink->fd);
  if (sink->temp) unlink(sink->temp);
  if (sink->deflate) deflateEnd(sink->deflate);
  hri_free(sink->deflate);
  hri_free(sink->packed);
  hri_free(sink->temp);
  sink->deflate = NULL;
  sink->packed = NULL;
  sink->temp = NULL;
  sink->fd = -1;
}
