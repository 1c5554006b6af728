/* By the first bytes alone: nothing is parsed that a reader of rows would not parse again. */
#include "base/rows.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

static const char *behind_blanks(const char *at, const char *end) {
  while (at < end && *at && strchr(" \t\r\n", *at)) at++;
  return at;
}

/* One object in the line at `at`, and another in the next. */
static bool is_line_by_line(const char *at, const char *end) {
  const char *feed = memchr(at, '\n', (size_t)(end - at)), *last = feed, *next;
  if (!feed) return false;
  while (last > at && strchr(" \t\r\n", *last)) last--;
  next = behind_blanks(feed, end);
  return *last == '}' && next < end && *next == '{';
}

/* The first name within the object at `at` is one of those by which rows are told apart (data/detect.c). */
static bool begins_with_field(const char *at, const char *end) {
  static const char *const fields[] = {"text",        "messages", "conversations", "prompt",    "completion",
                                       "instruction", "chosen",   "rejected",      "input_ids", "question"};
  at = behind_blanks(at + 1, end);
  if (at == end || *at++ != '"') return false;
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const size_t length = strlen(fields[i]);
    if ((size_t)(end - at) > length && memcmp(at, fields[i], length) == 0 && at[length] == '"') return true;
  }
  return false;
}

bool hri_rows_begin(const char *bytes, uint64_t count) {
  const char *end, *at;
  if (count == 0) return false; /* there may be no bytes to point to */
  end = bytes + count;
  at = behind_blanks(bytes + hri_utf8_mark(bytes, count), end);
  if (at < end && *at == '[') {
    at = behind_blanks(at + 1, end);
    return at < end && *at == '{' && begins_with_field(at, end);
  }
  return at < end && *at == '{' && (is_line_by_line(at, end) || begins_with_field(at, end));
}

bool hri_rows_file(const char *path) {
  char head[HRI_ROWS_HEAD_BYTES];
  uint64_t bytes;
  hr_error error;
  bool read;
  int fd;
  if (hri_file_open_regular(path, &fd, &bytes, &error) != HR_OK) return false;
  if (bytes > sizeof head) bytes = sizeof head;
  read = hri_file_pread(fd, path, head, bytes, 0, &error) == HR_OK;
  (void)close(fd);
  return read && hri_rows_begin(head, bytes);
}
