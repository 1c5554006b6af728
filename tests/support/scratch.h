/* Files and directories for tests: a scratch directory that is removed again, whole files, a walk over a tree; what errors
 * say. Failing to prepare is a failing test (assert), so that callers stay short. */
#ifndef HRI_TEST_SCRATCH_H
#define HRI_TEST_SCRATCH_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/scratch.h"

enum { PATH_BYTES = 1024 };

/* A new directory below TMPDIR that other users may enter; the name stays until the process ends. */
static inline const char *scratch_make(const char *name) {
  static char paths[16][PATH_BYTES];
  static int used;
  const char *parent = getenv("TMPDIR");
  char *path = paths[used++ % 16];
  (void)snprintf(path, PATH_BYTES, "%s/headroom-%s-XXXXXX", parent && *parent ? parent : "/tmp", name);
  assert_non_null(mkdtemp(path));
  assert_int_equal(chmod(path, 0755), 0);
  return path;
}

static inline void scratch_remove(const char *path) {
  hr_error error = {0};
  if (hri_dir_remove(path, &error) != HR_OK) fail_msg("%s", error.message);
}

/* "directory/name" with printf, in one of a few static buffers. */
__attribute__((format(printf, 1, 2))) static inline const char *path_of(const char *format, ...) {
  static char paths[32][PATH_BYTES];
  static int used;
  char *path = paths[used++ % 32];
  va_list args;
  va_start(args, format);
  assert_true(vsnprintf(path, PATH_BYTES, format, args) < PATH_BYTES);
  va_end(args);
  return path;
}

static inline void put_file(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *path, const char *text) { put_file(path, text, strlen(text)); }

/* A whole file in new memory (free), with a NUL behind it; NULL when there is no such file. */
static inline char *get_file(const char *path, size_t *count) {
  FILE *file = fopen(path, "rb");
  char *bytes;
  long size;
  if (!file) return NULL;
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  size = ftell(file);
  assert_true(size >= 0);
  rewind(file);
  bytes = malloc((size_t)size + 1);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, (size_t)size, file), (size_t)size);
  bytes[size] = 0;
  (void)fclose(file);
  if (count) *count = (size_t)size;
  return bytes;
}

static inline void assert_says(const hr_error *error, const char *part) {
  if (!strstr(error->message, part)) fail_msg("'%s' is not in '%s'", part, error->message);
}

static inline bool exists(const char *path) { return access(path, F_OK) == 0; }

static inline void assert_same_file(const char *a, const char *b) {
  size_t x = 0, y = 0;
  char *first = get_file(a, &x), *second = get_file(b, &y);
  if (!first || !second || x != y || memcmp(first, second, x) != 0)
    fail_msg("%s (%zu bytes) and %s (%zu bytes) differ", a, x, b, y);
  free(first);
  free(second);
}

/* Calls `visit` for every file and directory below `path`; hidden directories (names with a dot in front) are not
 * entered: what is being written stands there under a temporary name. */
static inline void walk(const char *path, void (*visit)(const char *path, const char *name)) {
  DIR *dir = opendir(path);
  struct dirent *entry;
  if (!dir) return;
  while ((entry = readdir(dir))) {
    char child[PATH_BYTES];
    struct stat info;
    if (entry->d_name[0] == '.') continue;
    assert_true(snprintf(child, sizeof child, "%s/%s", path, entry->d_name) < PATH_BYTES);
    visit(child, entry->d_name);
    if (lstat(child, &info) == 0 && S_ISDIR(info.st_mode)) walk(child, visit);
  }
  closedir(dir);
}

/* Nothing that grew there was left behind. */
static inline void assert_no_scratch(const char *directory) {
  DIR *dir = opendir(directory);
  struct dirent *entry;
  while (dir && (entry = readdir(dir)))
    if (hri_scratch_is(directory, entry->d_name)) fail_msg("%s/%s was left", directory, entry->d_name);
  if (dir) closedir(dir);
}

/* Some English-looking text of `count` bytes, the same for the same seed. */
static inline void put_words(const char *path, size_t count, unsigned seed) {
  static const char *const words[] = {"memory ", "of ", "the ",  "step ",  "is ",     "planned ",
                                      "and ",    "a ",  "byte ", "lives ", "once.\n", "then "};
  char *text = malloc(count + 16);
  size_t used = 0;
  assert_non_null(text);
  while (used < count) {
    const char *word;
    seed = seed * 1103515245u + 12345u;
    word = words[(seed >> 16) % (sizeof words / sizeof *words)];
    memcpy(text + used, word, strlen(word));
    used += strlen(word);
  }
  put_file(path, text, count);
  free(text);
}

static inline bool quick(void) {
  const char *value = getenv("HEADROOM_TEST_QUICK");
  return value && *value && strcmp(value, "0") != 0;
}

#endif
