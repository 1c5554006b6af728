/* The marker is locked for as long as the process lives, so that what is in use is told from what was left. Where the
 * file system has no flock, the host and process that the marker names decide: only a process of this host that has
 * ended left it.
 *
 * The parent may be moved meanwhile, and the scratch with it (a run sets a folder aside into which something is being
 * converted). It is held open, so that the scratch is found where it went; and what is removed is known by its marker,
 * which is the very file that was made, and never by its name. */
#include "base/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/publish.h"

enum { PATH_BYTES = 4096, MARKER_BYTES = 256, ATTEMPTS = 100, LOOKS = 4 };

#define PREFIX ".headroom-"
#define MARKER "marker"
#define ASIDE "aside"
#define ASIDE_NAME "aside-name" /* holds the name of what is aside, and is there before it */
#define MARKER_TEXT "Headroom scratch directory: all that is in it may be removed when no process of Headroom runs. "

struct hri_scratch {
  int fd;     /* of the marker; -1: there is none yet */
  int parent; /* -1: it could not be held open */
  char directory[PATH_BYTES];
};

static hr_status long_path(const char *path, hr_error *error) {
  return hri_fail(error, HR_ERROR_USAGE, "the path %.200s/... is too long", path);
}

static void host_name(char out[65]) {
  out[0] = out[64] = 0;
  (void)gethostname(out, 64);
}

static bool is_file_of(int fd, const char *path) {
  struct stat here, there;
  return fstat(fd, &here) == 0 && lstat(path, &there) == 0 && here.st_ino == there.st_ino &&
         here.st_dev == there.st_dev;
}

/* Locked, and still the file of that path: a sweep may have taken it for one that a kill left, before it was locked. A
 * sweep holds the lock while it removes, so waiting for it shows which came first; a file system without locks has the
 * marker's host and process. */
static bool is_ours(int fd, const char *path) {
  while (flock(fd, LOCK_EX) != 0 && errno == EINTR) continue;
  return is_file_of(fd, path);
}

/* NAME/marker and NAME below the directory `in`, if the marker is ours or there is none. Nothing is opened: descriptors may
 * be what there is none of. rmdir takes nothing from anybody. */
static void remove_begun_at(const hri_scratch *s, int in, const char *name) {
  char marker[PATH_BYTES];
  struct stat here, there;
  if (s->fd >= 0 && snprintf(marker, sizeof marker, "%s/" MARKER, name) < PATH_BYTES && fstat(s->fd, &here) == 0 &&
      fstatat(in, marker, &there, AT_SYMLINK_NOFOLLOW) == 0 && here.st_ino == there.st_ino &&
      here.st_dev == there.st_dev)
    (void)unlinkat(in, marker, 0);
  (void)unlinkat(in, name, AT_REMOVEDIR);
}

/* Of one whose making failed, so that nothing but the marker is in it; its parent may have been moved before or behind the
 * moment in which it was opened. */
static void give_up(hri_scratch *s) {
  const char *name = strrchr(s->directory, '/');
  if (name && s->parent >= 0) remove_begun_at(s, s->parent, name + 1);
  if (name) remove_begun_at(s, AT_FDCWD, s->directory);
  if (s->fd >= 0) (void)close(s->fd);
  if (s->parent >= 0) (void)close(s->parent);
  s->fd = s->parent = -1;
  s->directory[0] = 0;
}

/* Makes the directory and its empty marker. A sweep of another process may take the directory away before there is a
 * marker in it, as what a kill left, or it moves away with its parent: then the next one is made. */
static hr_status make_directory(hri_scratch *s, const char *parent, hr_error *error) {
  char path[PATH_BYTES];
  int number;
  for (int attempt = 1;; attempt++) {
    s->parent = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(s->directory, sizeof s->directory, "%.3800s/" PREFIX "XXXXXX", parent);
    if (!mkdtemp(s->directory)) {
      s->directory[0] = 0;
      return hri_fail_errno(error, errno, "make a directory in", parent);
    }
    HRI_TRY(hri_scratch_path(s, MARKER, path, error));
    s->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (s->fd >= 0 && is_ours(s->fd, path)) return HR_OK;
    number = s->fd >= 0 ? ENOENT : errno;
    if (number != ENOENT || attempt == ATTEMPTS) return hri_fail_errno(error, number, "create", path);
    give_up(s);
  }
}

static hr_status write_marker(hri_scratch *s, bool durable, hr_error *error) {
  char path[PATH_BYTES], text[MARKER_BYTES], host[65];
  int length;
  host_name(host);
  HRI_TRY(hri_scratch_path(s, MARKER, path, error));
  length = snprintf(text, sizeof text, MARKER_TEXT "%s %ld\n", host, (long)getpid());
  HRI_TRY(hri_file_write_all(s->fd, path, text, (uint64_t)length, error));
  if (!durable) return HR_OK;
  if (fsync(s->fd) != 0) return hri_fail_errno(error, errno, "write", path);
  return hri_dir_sync(s->directory, error);
}

static void end(hri_scratch *s) {
  if (s->fd >= 0) (void)close(s->fd);
  if (s->parent >= 0) (void)close(s->parent);
  hri_free(s);
}

hr_status hri_scratch_open(const char *parent, bool durable, hri_scratch **scratch, hr_error *error) {
  hri_scratch *s = hri_alloc_zero(1, sizeof *s);
  hr_status status;
  *scratch = NULL;
  if (!s) return hri_fail_memory(error, sizeof *s, "a scratch directory");
  s->fd = s->parent = -1;
  status = strlen(parent) < PATH_BYTES - 296 ? make_directory(s, parent, error) : long_path(parent, error);
  if (status == HR_OK) status = write_marker(s, durable, error);
  if (status == HR_OK) {
    *scratch = s;
    return HR_OK;
  }
  give_up(s);
  end(s);
  return status;
}

const char *hri_scratch_directory(const hri_scratch *s) { return s->directory; }

hr_status hri_scratch_path(const hri_scratch *s, const char *name, char path[4096], hr_error *error) {
  return snprintf(path, PATH_BYTES, "%s/%s", s->directory, name) < PATH_BYTES ? HR_OK : long_path(s->directory, error);
}

/* The marker goes last: a kill in between leaves something that is still known. */
static bool empty_out(const char *directory) {
  char path[PATH_BYTES];
  DIR *dir = opendir(directory);
  struct dirent *entry;
  bool all = dir != NULL;
  while (dir && (entry = readdir(dir))) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || strcmp(entry->d_name, MARKER) == 0)
      continue;
    if (snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) >= PATH_BYTES ||
        hri_dir_remove(path, NULL) != HR_OK)
      all = false;
  }
  if (dir) closedir(dir);
  return all;
}

static bool is_name(const char *text) {
  return text[0] && !strchr(text, '/') && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

/* What was moved aside for something that did not take its place goes back. False when it could not: then the scratch
 * stays. */
static bool put_back(const char *directory) {
  char aside[PATH_BYTES], path[PATH_BYTES], name[PATH_BYTES], parent[PATH_BYTES];
  struct stat info;
  char *text;
  uint64_t count;
  hr_status status;
  const char *slash = strrchr(directory, '/');
  if (!slash || snprintf(aside, sizeof aside, "%s/" ASIDE, directory) >= PATH_BYTES || lstat(aside, &info) != 0)
    return true;
  if (snprintf(path, sizeof path, "%s/" ASIDE_NAME, directory) >= PATH_BYTES ||
      hri_file_read(path, 255, &text, &count, NULL) != HR_OK)
    return false;
  (void)snprintf(name, sizeof name, "%s", text);
  hri_free(text);
  (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - directory), directory);
  if (!is_name(name) || snprintf(path, sizeof path, "%.3800s/%s", parent, name) >= PATH_BYTES) return false;
  if (lstat(path, &info) == 0) return true;
  status = hri_publish_new(aside, path, NULL);
  if (status == HR_OK) (void)hri_dir_sync(parent, NULL);
  return status == HR_OK || lstat(path, &info) == 0;
}

static bool remove_whole(const char *directory) {
  char path[PATH_BYTES];
  if (!put_back(directory)) return false;
  if (!empty_out(directory) || snprintf(path, sizeof path, "%s/" MARKER, directory) >= PATH_BYTES) return false;
  (void)unlink(path);
  return rmdir(directory) == 0;
}

hr_status hri_scratch_set_aside(hri_scratch *s, const char *name, char aside[4096], hr_error *error) {
  char path[PATH_BYTES], from[PATH_BYTES];
  HRI_TRY(hri_scratch_path(s, ASIDE, aside, error));
  HRI_TRY(hri_scratch_path(s, ASIDE_NAME, path, error));
  if (snprintf(from, sizeof from, "%.*s/%s", (int)(strrchr(s->directory, '/') - s->directory), s->directory, name) >=
      PATH_BYTES)
    return long_path(name, error);
  (void)unlink(path); /* of one that is gone */
  HRI_TRY(hri_file_write_new(path, name, strlen(name), error));
  HRI_TRY(hri_dir_sync(s->directory, error));
  return rename(from, aside) == 0 ? HR_OK : hri_fail_errno(error, errno, "move aside", from);
}

static bool has_marker(const hri_scratch *s, const char *directory) {
  char path[PATH_BYTES];
  return snprintf(path, sizeof path, "%s/" MARKER, directory) < PATH_BYTES && is_file_of(s->fd, path);
}

/* Where the scratch is by now: at its path, or in its parent wherever that is. False: neither. */
static bool find(const hri_scratch *s, char now[PATH_BYTES]) {
  (void)snprintf(now, PATH_BYTES, "%s", s->directory);
  if (!s->directory[0]) return false;
  if (s->fd < 0 || has_marker(s, now)) return true;
  (void)snprintf(now, PATH_BYTES, "/proc/self/fd/%d%s", s->parent, strrchr(s->directory, '/'));
  return has_marker(s, now);
}

void hri_scratch_abandon(hri_scratch *s) {
  char now[PATH_BYTES], path[PATH_BYTES];
  if (find(s, now) && snprintf(path, sizeof path, "%s/" MARKER, now) < PATH_BYTES) (void)unlink(path);
  end(s);
}

/* Its parent may go between the look and the removal, and between two steps of that: then the look is worth another one,
 * and without a marker what is left is an empty directory. Looking into a directory takes a descriptor, which may be what
 * ended the work: the parent's is given back for it, where the scratch is still at its path. */
void hri_scratch_close(hri_scratch *s) {
  char now[PATH_BYTES];
  bool gone = false;
  if (!s) return;
  for (int attempt = 0; attempt < LOOKS && !gone && find(s, now); attempt++) {
    errno = 0;
    gone = remove_whole(now);
    if (gone || (errno != EMFILE && errno != ENFILE) || s->parent < 0 || strcmp(now, s->directory) != 0) continue;
    (void)close(s->parent);
    s->parent = -1;
  }
  if (!gone && s->parent >= 0) (void)unlinkat(s->parent, strrchr(s->directory, '/') + 1, AT_REMOVEDIR);
  end(s);
}

hr_status hri_scratch_replace(hri_scratch *s, const char *path, const void *bytes, uint64_t count, bool sync_parent,
                              hr_error *error) {
  char fresh[PATH_BYTES];
  hr_status status;
  int fd;
  HRI_TRY(hri_scratch_path(s, "file", fresh, error));
  fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return hri_fail_errno(error, errno, "create", fresh);
  status = hri_file_write_all(fd, path, bytes, count, error);
  if (status == HR_OK && fsync(fd) != 0) status = hri_fail_errno(error, errno, "write", path);
  if (close(fd) != 0 && status == HR_OK) status = hri_fail_errno(error, errno, "write", path);
  if (status == HR_OK && rename(fresh, path) != 0) status = hri_fail_errno(error, errno, "rename to", path);
  if (status != HR_OK) {
    (void)unlink(fresh);
    return status;
  }
  return sync_parent ? hri_publish_settle(path, error) : HR_OK;
}

/* ---- what others left ---- */

static bool process_has_ended(const char *text) {
  char host[65], theirs[65];
  long pid;
  host_name(host);
  if (sscanf(text + strlen(MARKER_TEXT), "%64s %ld", theirs, &pid) != 2 || strcmp(host, theirs) != 0 || pid <= 0)
    return false;
  return kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

/* Opens a marker that is whole: *text gets what it says. -1: it is none. */
static int open_marker(const char *directory, char text[MARKER_BYTES]) {
  char path[PATH_BYTES];
  struct stat info;
  ssize_t got;
  int fd;
  if (snprintf(path, sizeof path, "%s/" MARKER, directory) >= PATH_BYTES) return -1;
  fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return -1;
  got = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? pread(fd, text, MARKER_BYTES - 1, 0) : -1;
  if (got < (ssize_t)strlen(MARKER_TEXT) || memcmp(text, MARKER_TEXT, strlen(MARKER_TEXT)) != 0) {
    (void)close(fd);
    return -1;
  }
  text[got] = 0;
  return fd;
}

bool hri_scratch_is_named(const char *name) {
  return strncmp(name, PREFIX, strlen(PREFIX)) == 0 && strlen(name) == strlen(PREFIX) + 6;
}

bool hri_scratch_is(const char *parent, const char *name) {
  char path[PATH_BYTES], text[MARKER_BYTES];
  struct stat info;
  int fd;
  if (!hri_scratch_is_named(name) || snprintf(path, sizeof path, "%s/%s", parent, name) >= PATH_BYTES) return false;
  if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  fd = open_marker(path, text);
  if (fd >= 0) (void)close(fd);
  return fd >= 0;
}

/* A kill while the marker was written leaves a part of its text, and nothing beside it. */
static bool remove_begun(const char *directory) {
  char path[PATH_BYTES], text[MARKER_BYTES];
  struct stat info;
  struct dirent *entry;
  uint32_t others = 0;
  ssize_t got;
  DIR *dir = opendir(directory);
  int fd;
  while (dir && (entry = readdir(dir)))
    others += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, MARKER) != 0;
  if (!dir || others > 0) {
    if (dir) (void)closedir(dir);
    return false;
  }
  (void)closedir(dir);
  if (snprintf(path, sizeof path, "%s/" MARKER, directory) >= PATH_BYTES) return false;
  fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return rmdir(directory) == 0; /* empty: rmdir cannot take anything from anybody */
  got = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? pread(fd, text, sizeof text, 0) : -1;
  if (got < 0 || got > (ssize_t)strlen(MARKER_TEXT) || memcmp(text, MARKER_TEXT, (size_t)got) != 0 ||
      flock(fd, LOCK_EX | LOCK_NB) != 0)
    got = -1;
  if (got >= 0) (void)unlink(path);
  (void)close(fd);
  return got >= 0 && rmdir(directory) == 0;
}

static bool sweep_one(const char *directory) {
  char text[MARKER_BYTES];
  struct stat info;
  bool removed = false;
  int fd;
  if (lstat(directory, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return false;
  fd = open_marker(directory, text);
  if (fd < 0) return remove_begun(directory);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && process_has_ended(text)))
    removed = remove_whole(directory);
  (void)close(fd);
  return removed;
}

uint32_t hri_scratch_sweep(const char *parent) {
  char path[PATH_BYTES];
  DIR *dir = opendir(parent);
  struct dirent *entry;
  uint32_t removed = 0;
  while (dir && (entry = readdir(dir)))
    if (hri_scratch_is_named(entry->d_name) && snprintf(path, sizeof path, "%s/%s", parent, entry->d_name) < PATH_BYTES)
      removed += sweep_one(path);
  if (dir) closedir(dir);
  return removed;
}
