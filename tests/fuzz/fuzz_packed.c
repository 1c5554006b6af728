/* Packed data: gzip, zstd and Parquet, told by their first bytes (src/data/unpack.h). The input is the file. What it
 * unpacks to must be bounded by its size, and lines of JSON must be lines; what is refused must be refused with the
 * file's name and a remedy. A Parquet file is also read with every column. Nothing may leak. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/unpack.h"
#include "formats/parquet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS = 2000, MOST = 8 << 20 };

static char path[64];
static int fd = -1;

static void require(bool holds) {
  if (!holds) abort();
}

static void write_input(const uint8_t *data, size_t size) {
  if (fd < 0) {
    fd = memfd_create("fuzz", 0);
    require(fd >= 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  }
  require(ftruncate(fd, 0) == 0 && (size == 0 || pwrite(fd, data, size, 0) == (ssize_t)size));
}

static void check_error(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  require(status == HR_ERROR_INPUT && strncmp(error->message, path, strlen(path)) == 0 && error->hint[0]);
}

/* Up to MOST bytes, which 100 rows of a dictionary's longest text may be. */
static void read_content(size_t size) {
  hri_digest digest = {0};
  hri_reader reader;
  hr_error error = {0};
  hr_status status = hri_reader_open(&reader, path, &digest, &error);
  require(status == HR_OK);
  status = hri_reader_unpack(&reader, &error);
  while (status == HR_OK && !reader.at_end && reader.offset < MOST) {
    require(reader.next <= reader.end && *reader.end == 0);
    reader.next = reader.end;
    status = hri_reader_fill(&reader, &error);
  }
  require(reader.raw_bytes <= size);
  check_error(status, &error);
  if (status == HR_OK && reader.at_end) check_error(hri_reader_finish(&reader, &error), &error);
  hri_reader_close(&reader);
}

static bool all(const char *name) {
  (void)name;
  return true;
}

static void read_rows(size_t size) {
  hri_parquet *file = NULL;
  hri_text row = {0};
  hr_error error = {0};
  bool more = true;
  hr_status status = hri_parquet_open(fd, path, size, all, &file, &error);
  for (int k = 0; status == HR_OK && more && k < ROWS; k++) {
    row.length = 0;
    status = hri_parquet_row(file, &row, &more, &error);
    if (status == HR_OK && more)
      require(row.length >= 3 && row.chars[0] == '{' && memcmp(row.chars + row.length - 2, "}\n", 2) == 0 &&
              !memchr(row.chars, '\n', row.length - 1));
  }
  check_error(status, &error);
  hri_parquet_close(file);
  hri_text_deinit(&row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t live = hri_mem_live_bytes();
  write_input(data, size);
  read_content(size);
  read_rows(size);
  require(hri_mem_live_bytes() == live);
  return 0;
}
