#include "torture/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void broken(const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)fprintf(stderr, "torture: the test itself: ");
  (void)vfprintf(stderr, format, args);
  (void)fprintf(stderr, " (%s)\n", strerror(errno));
  va_end(args);
  _exit(99);
}

const char *pathf(const char *format, ...) {
  static char buffers[64][PATH_ROOM];
  static int used;
  char *buffer = buffers[used++ % 64];
  va_list args;
  va_start(args, format);
  if (vsnprintf(buffer, PATH_ROOM, format, args) >= PATH_ROOM) broken("the path %.80s... is too long", buffer);
  va_end(args);
  return buffer;
}

bool there(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0;
}

bool is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool get_bytes(const char *path, bytes *out) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t used = 0;
  *out = (bytes){NULL, 0};
  if (fd < 0) return false;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    (void)close(fd);
    return false;
  }
  out->at = malloc((size_t)info.st_size + 1);
  if (!out->at) broken("no memory for %s", path);
  while (used < (size_t)info.st_size) {
    ssize_t got = read(fd, out->at + used, (size_t)info.st_size - used);
    if (got <= 0) break;
    used += (size_t)got;
  }
  out->at[used] = 0;
  out->count = used;
  (void)close(fd);
  return true;
}

void put_bytes(const char *path, const void *from, size_t count) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) broken("cannot create %s", path);
  for (size_t put = 0; put < count;) {
    ssize_t moved = write(fd, (const char *)from + put, count - put);
    if (moved <= 0) broken("cannot write %s", path);
    put += (size_t)moved;
  }
  if (close(fd) != 0) broken("cannot write %s", path);
}

void put_string(const char *path, const char *text) { put_bytes(path, text, strlen(text)); }

bool same_bytes(const char *path, const char *other) {
  bytes a, b;
  bool first = get_bytes(path, &a), second = get_bytes(other, &b);
  bool same = first && second && a.count == b.count && memcmp(a.at, b.at, a.count) == 0;
  free(a.at);
  free(b.at);
  return same;
}

void make_directory(const char *path) {
  if (mkdir(path, 0755) != 0 && errno != EEXIST) broken("cannot make %s", path);
}

/* Recursion goes through buffers of its own: those of pathf come round again. */
typedef struct path {
  char text[PATH_ROOM];
} path;

static path joined(const char *parent, const char *name) {
  path p;
  if (snprintf(p.text, sizeof p.text, "%s/%s", parent, name) >= PATH_ROOM)
    broken("the path %.80s/... is too long", parent);
  return p;
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static void remove_any(const path *p) {
  DIR *directory;
  struct dirent *entry;
  struct stat info;
  if (lstat(p->text, &info) != 0) return;
  if (!S_ISDIR(info.st_mode)) {
    if (unlink(p->text) != 0) broken("cannot remove %s", p->text);
    return;
  }
  directory = opendir(p->text);
  while (directory && (entry = readdir(directory))) {
    path child = joined(p->text, entry->d_name);
    if (!is_dots(entry->d_name)) remove_any(&child);
  }
  if (directory) (void)closedir(directory);
  if (rmdir(p->text) != 0) broken("cannot remove %s", p->text);
}

void remove_tree(const char *root) {
  path p = joined(root, ".");
  p.text[strlen(root)] = 0;
  remove_any(&p);
}

static void copy_any(const path *from, const path *to) {
  DIR *directory;
  struct dirent *entry;
  struct stat info;
  bytes content;
  if (lstat(from->text, &info) != 0) broken("cannot copy %s", from->text);
  if (S_ISLNK(info.st_mode)) {
    path target = {{0}};
    if (readlink(from->text, target.text, PATH_ROOM - 1) < 0 || symlink(target.text, to->text) != 0)
      broken("cannot make the link %s", to->text);
  } else if (!S_ISDIR(info.st_mode)) {
    if (!get_bytes(from->text, &content)) broken("cannot read %s", from->text);
    put_bytes(to->text, content.at, content.count);
    free(content.at);
  } else {
    make_directory(to->text);
    directory = opendir(from->text);
    while (directory && (entry = readdir(directory))) {
      path child = joined(from->text, entry->d_name), copy = joined(to->text, entry->d_name);
      if (!is_dots(entry->d_name)) copy_any(&child, &copy);
    }
    if (directory) (void)closedir(directory);
  }
}

void copy_tree(const char *from, const char *to) {
  path a = joined(from, "."), b = joined(to, ".");
  a.text[strlen(from)] = b.text[strlen(to)] = 0;
  copy_any(&a, &b);
}

static void list_into(names *list, const path *root, const char *relative) {
  path here = joined(root->text, relative);
  DIR *directory = opendir(here.text);
  struct dirent *entry;
  while (directory && (entry = readdir(directory))) {
    path child = joined(here.text, entry->d_name);
    struct stat info;
    char *name;
    bool enter;
    if (is_dots(entry->d_name)) continue;
    enter = lstat(child.text, &info) == 0 && S_ISDIR(info.st_mode);
    list->at = realloc(list->at, (list->count + 1) * sizeof *list->at);
    if (!list->at || asprintf(&name, "%s%s%s", relative, entry->d_name, enter ? "/" : "") < 0) broken("no memory");
    list->at[list->count++] = name;
    if (enter) list_into(list, root, name);
  }
  if (directory) (void)closedir(directory);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

names list_tree(const char *root) {
  names list = {0};
  path p = joined(root, ".");
  p.text[strlen(root)] = 0;
  list_into(&list, &p, "");
  if (list.count) qsort(list.at, list.count, sizeof *list.at, by_name);
  return list;
}

void free_names(names *list) {
  for (size_t k = 0; k < list->count; k++) free(list->at[k]);
  free(list->at);
  *list = (names){0};
}

bool has_name(const names *list, const char *name) {
  for (size_t k = 0; k < list->count; k++)
    if (strcmp(list->at[k], name) == 0) return true;
  return false;
}
