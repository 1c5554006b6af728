/* The one name of a place, however a path spells it. Apart from file.c, because not every system that reads files can say where
 * links lead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* One more name behind a settled path. */
static bool settle_name(char out[4096], const char *name, size_t bytes) {
  size_t used = strlen(out);
  if (bytes == 0 || (bytes == 1 && name[0] == '.')) return true;
  if (bytes == 2 && memcmp(name, "..", 2) == 0) {
    char *slash = strrchr(out, '/');
    slash[slash == out] = 0;
    return true;
  }
  if (used == 1) used = 0; /* the root */
  if (used + bytes + 2 > 4096) return false;
  out[used] = '/';
  memcpy(out + used + 1, name, bytes);
  out[used + 1 + bytes] = 0;
  return true;
}

bool hri_path_settle(const char *path, char out[4096]) {
  char head[4096];
  size_t there = strlen(path);
  if (there >= sizeof head) return false;
  for (;;) { /* the longest beginning that is there */
    (void)snprintf(head, sizeof head, "%.*s", (int)there, path);
    if (realpath(there ? head : path[0] == '/' ? "/" : ".", out)) break;
    if (there == 0) return false;
    while (there > 0 && path[there - 1] == '/') there--;
    while (there > 0 && path[there - 1] != '/') there--;
  }
  for (path += there; *path; path += strspn(path, "/")) {
    size_t bytes = strcspn(path, "/");
    if (!settle_name(out, path, bytes)) return false;
    path += bytes;
  }
  return true;
}

bool hri_path_inside(const char *path, const char *dir) {
  char inner[4096], outer[4096];
  size_t length;
  if (!hri_path_settle(path, inner) || !hri_path_settle(dir, outer)) return false;
  length = strlen(outer);
  return strncmp(inner, outer, length) == 0 && (length == 1 || !inner[length] || inner[length] == '/');
}
