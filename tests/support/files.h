/* A directory of the test program's own - made before its tests (or before each of them), removed behind them - and files
 * in it by name. */
#ifndef HRI_TEST_FILES_H
#define HRI_TEST_FILES_H

#include "support/scratch.h"

static const char *directory;

/* Set-up and tear-down of cmocka's. */
static inline int make_directory(void **state) {
  (void)state;
  directory = scratch_make("test");
  return 0;
}

static inline int remove_directory(void **state) {
  (void)state;
  return hri_dir_remove(directory, NULL) == HR_OK ? 0 : -1;
}

/* The path of a file in it, the same string each time, as long as the program runs. */
static inline const char *in_directory(const char *name) {
  static struct known {
    struct known *next;
    char path[PATH_BYTES];
  } *all;
  const char *path = path_of("%s/%s", directory, name);
  struct known *k = all;
  while (k && strcmp(k->path, path) != 0) k = k->next;
  if (k) return k->path;
  k = malloc(sizeof *k);
  assert_non_null(k);
  (void)strcpy(k->path, path);
  k->next = all;
  return (all = k)->path;
}

static inline const char *write_file(const char *name, const void *bytes, size_t count) {
  const char *path = in_directory(name);
  put_file(path, bytes, count);
  return path;
}

static inline const char *write_text(const char *name, const char *text) {
  return write_file(name, text, strlen(text));
}

#endif
