#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#ifndef __wasi__
#include <sys/resource.h>
#include <sys/statvfs.h>
#endif
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

#ifdef __wasi__ /* one thread, and no limits */
static const char *reason_of(int number, char *buffer, size_t bytes) {
  (void)buffer;
  (void)bytes;
  return strerror(number);
}

static bool size_limit(unsigned long long *bytes) {
  *bytes = 0;
  return false;
}
#else
static const char *reason_of(int number, char *buffer, size_t bytes) { return strerror_r(number, buffer, bytes); }

static bool size_limit(unsigned long long *bytes) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  *bytes = limit.rlim_cur;
  return true;
}
#endif

#ifdef __wasi__
static bool files_are_used_up(const char *path) {
  (void)path;
  return false;
}
#else
/* Each file takes an entry of a table that many file systems make once, and which can be full while there are bytes. Those
 * that have no such table say 0. */
static bool files_are_used_up(const char *path) {
  struct statvfs fs;
  char directory[4096];
  hri_path_nearest(path, directory);
  return statvfs(directory, &fs) == 0 && fs.f_files > 0 && (geteuid() == 0 ? fs.f_ffree : fs.f_favail) == 0 &&
         fs.f_bavail > 0;
}
#endif

/* Behind what makes room, in every hint of it. */
static const char elsewhere[] = ", or name another directory";

/* Asked at once: what was begun is taken back after a failure, and leaves room. */
static const char *room_remedy(int number, const char *path) {
  if (number == EDQUOT) return "make room in the quota, which may be of bytes or of files (quota -s)";
  if (files_are_used_up(path)) return "remove files there: the file system takes no more of them, of any size (df -i)";
  return "free some disk space";
}

static hr_status explain(hr_error *error, int number, const char *verb, const char *path) {
  hr_status code = number == ENOMEM ? HR_ERROR_MEMORY : HR_ERROR_IO;
  unsigned long long limit;
  char reason[128];
  const char *text = reason_of(number, reason, sizeof reason);
  hri_fail(error, code, "cannot %s %s: %s", verb, path, text);
  switch (number) {
  case ENOENT: return hri_hint(error, code, "check the path");
  case EACCES:
  case EPERM: return hri_hint(error, code, "check the permissions of the file and its directory");
  case EROFS:
    return hri_hint(error, code, "nothing can be written there: name a place elsewhere, or copy the directory to one");
  case ENOTDIR: return hri_hint(error, code, "a part of the path is no directory: name another place");
  case EISDIR: return hri_hint(error, code, "it is a directory: name a file, or move the directory away");
  case EEXIST: return hri_hint(error, code, "something else stands there: move it away, or name another place");
  case ELOOP:
    return hri_hint(error, code, "it is a symbolic link, or one leads back to itself: put the file itself there");
  case ENAMETOOLONG: return hri_hint(error, code, "take shorter names");
  case EMFILE: return hri_hint(error, code, "raise the number of files that a process may open: ulimit -n 1024");
  case ENFILE: return hri_hint(error, code, "the machine has too many files open: end other programs");
  case EIO: return hri_hint(error, code, "the disk, or the way to it, fails: look at the kernel's messages (dmesg)");
  case ESTALE: return hri_hint(error, code, "the file's server has it no more: mount the file system again");
  case ENXIO: return hri_hint(error, code, "a pipe needs its reader first: start that, then this");
  case EFBIG:
    if (!size_limit(&limit)) return hri_hint(error, code, "name another file system, one that takes larger files");
    hri_fail(error, code, "cannot %s %s: the file-size limit (ulimit -f) allows no more than %llu bytes", verb, path,
             limit);
    return hri_hint(error, code, "lift it with ulimit -f unlimited");
  case ENOSPC:
  case EDQUOT: return hri_hint(error, code, "%s%s", room_remedy(number, path), elsewhere);
  default: return code;
  }
}

hr_status(hri_fail_errno)(hr_error *error, int number, const char *verb, const char *path) {
  hr_status code = explain(error, number, verb, path);
  if (error) error->system_error = number;
  return code;
}

bool hri_is_full(const hr_error *error) {
  return error->code == HR_ERROR_IO && (error->system_error == ENOSPC || error->system_error == EDQUOT);
}

void hri_hint_in_place(const hr_error *error, char out[HR_ERROR_HINT_BYTES]) {
  size_t length = strlen(error->hint);
  const size_t tail = sizeof elsewhere - 1;
  if (length >= tail && strcmp(error->hint + length - tail, elsewhere) == 0) length -= tail;
  (void)snprintf(out, HR_ERROR_HINT_BYTES, "%.*s", (int)length, error->hint);
}

static const char *kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISDIR(mode)) return "a directory";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

/* Why a name could not be opened, where that is about what it names. */
static hr_status unopened(const char *path, int number, hr_error *error) {
  struct stat info;
  bool there = lstat(path, &info) == 0;
  if (number == ENOENT && there && S_ISLNK(info.st_mode))
    return hri_fail(error, HR_ERROR_INPUT, "%s is a link to a file that is not there", path);
  if (number == ELOOP) return hri_fail(error, HR_ERROR_INPUT, "%s is a link that leads back to itself", path);
  if (number == ENXIO) return hri_fail(error, HR_ERROR_INPUT, "%s is a socket or a device, not a regular file", path);
  return hri_fail_errno(error, number, "open", path);
}

/* O_NONBLOCK: a FIFO that nobody writes to would keep open() waiting. Regular files do not know it. */
hr_status hri_file_open_regular(const char *path, int *fd, uint64_t *bytes, hr_error *error) {
  struct stat info;
  hr_status status;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (*fd < 0) return unopened(path, errno, error);
  if (fstat(*fd, &info) != 0) { /* a file server that went away: nothing is known of the file */
    status = hri_fail_errno(error, errno, "read", path);
  } else if (S_ISREG(info.st_mode)) {
    if (bytes) *bytes = (uint64_t)info.st_size;
    return HR_OK;
  } else {
    hri_fail(error, HR_ERROR_INPUT, "%s is %s, not a regular file", path, kind_of(info.st_mode));
    status = hri_hint(error, HR_ERROR_INPUT, "name a file; write a stream to a file first");
  }
  (void)close(*fd);
  *fd = -1;
  return status;
}

hr_status hri_file_read(const char *path, uint64_t limit, char **bytes, uint64_t *count, hr_error *error) {
  hr_status status = HR_OK;
  char *buffer = NULL;
  uint64_t size;
  int fd;
  HRI_TRY(hri_file_open_regular(path, &fd, &size, error));
  if (size > limit) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s has %llu bytes; at most %llu make sense for such a file", path,
                      (unsigned long long)size, (unsigned long long)limit);
    goto out;
  }
  buffer = hri_alloc((size_t)size + 1);
  if (!buffer) {
    status = hri_fail_memory(error, size + 1, path);
    goto out;
  }
  HRI_TRY_OUT(hri_file_pread(fd, path, buffer, size, 0, error));
  buffer[size] = 0;
  *bytes = buffer;
  *count = size;
  buffer = NULL;
out:
  hri_free(buffer);
  close(fd);
  return status;
}

/* What one call reads or writes at most: systems take less than 2 GiB. */
static size_t piece_of(uint64_t bytes) { return (size_t)(bytes < (1u << 30) ? bytes : (1u << 30)); }

hr_status hri_file_pread(int fd, const char *path, void *to, uint64_t bytes, uint64_t offset, hr_error *error) {
  char *next = to;
  while (bytes > 0) {
    ssize_t got = pread(fd, next, piece_of(bytes), (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return hri_fail_errno(error, errno, "read", path);
    if (got == 0)
      return hri_fail(error, HR_ERROR_INPUT, "%s ended at byte %llu, %llu bytes early", path,
                      (unsigned long long)offset, (unsigned long long)bytes);
    next += got;
    offset += (uint64_t)got;
    bytes -= (uint64_t)got;
  }
  return HR_OK;
}

hr_status hri_file_pwrite(int fd, const char *path, const void *from, uint64_t bytes, uint64_t offset,
                          hr_error *error) {
  const char *next = from;
  while (bytes > 0) {
    ssize_t put = pwrite(fd, next, piece_of(bytes), (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return hri_fail_errno(error, errno, "write", path);
    next += put;
    offset += (uint64_t)put;
    bytes -= (uint64_t)put;
  }
  return HR_OK;
}

#ifdef __wasi__ /* the file is sized only, as on file systems that cannot */
static int allocate(int fd, uint64_t bytes) {
  (void)fd;
  (void)bytes;
  return ENOTSUP;
}
#else
static int allocate(int fd, uint64_t bytes) { return fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno; }
#endif

hr_status hri_file_reserve(int fd, const char *path, uint64_t bytes, hr_error *error) {
  int failed;
  do {
    failed = allocate(fd, bytes);
  } while (failed == EINTR);
  if (failed == 0) return HR_OK;
  if (failed == ENOSPC || failed == EDQUOT || failed == EFBIG) {
    hr_status code = hri_fail_errno(error, failed, "reserve the space of", path);
    char size[32];
    hri_size_text(bytes, size);
    return failed == EFBIG
               ? hri_hint(error, code,
                          "the file needs %s; lift the file-size limit (ulimit -f), or name another directory", size)
               : hri_hint(error, code, "the file needs %s; %s%s", size, room_remedy(failed, path), elsewhere);
  }
  return ftruncate(fd, (off_t)bytes) == 0 ? HR_OK : hri_fail_errno(error, errno, "write", path);
}

hr_status hri_file_write_all(int fd, const char *path, const void *from, uint64_t bytes, hr_error *error) {
  const char *next = from;
  while (bytes > 0) {
    ssize_t put = write(fd, next, piece_of(bytes));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return hri_fail_errno(error, errno, "write", path);
    next += put;
    bytes -= (uint64_t)put;
  }
  return HR_OK;
}

hr_status hri_file_create(const char *path, int *fd, hr_error *error) {
  *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  return *fd < 0 ? hri_fail_errno(error, errno, "create", path) : HR_OK;
}

hr_status hri_file_finish(int fd, const char *path, hr_status status, hr_error *error) {
  if (status == HR_OK && fsync(fd) != 0) status = hri_fail_errno(error, errno, "write", path);
  if (close(fd) != 0 && status == HR_OK) status = hri_fail_errno(error, errno, "write", path);
  if (status != HR_OK) (void)unlink(path);
  return status;
}

hr_status hri_file_write_new(const char *path, const void *bytes, uint64_t count, hr_error *error) {
  int fd;
  HRI_TRY(hri_file_create(path, &fd, error));
  return hri_file_finish(fd, path, hri_file_write_all(fd, path, bytes, count, error), error);
}

void hri_path_parent(const char *path, char out[4096]) {
  const char *slash = strrchr(path, '/');
  (void)snprintf(out, 4096, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
}

/* A directory that a crash takes back, takes all in it along: so its entry is made to last in the one above it. */
static hr_status make_one(const char *path, hr_error *error) {
  char parent[4096];
  if (mkdir(path, 0755) != 0)
    return errno == EEXIST && hri_path_is_dir(path) ? HR_OK : hri_fail_errno(error, errno, "create directory", path);
  hri_path_parent(path, parent);
  return hri_dir_sync(parent, error);
}

hr_status hri_dir_make(const char *path, hr_error *error) {
  char part[4096];
  size_t i, length = strlen(path);
  if (length == 0 || length >= sizeof part)
    return hri_fail(error, HR_ERROR_USAGE, "the path '%.80s' is empty or too long", path);
  memcpy(part, path, length + 1);
  for (i = 1; i <= length; i++) {
    char kept = part[i];
    if (kept != '/' && kept != 0) continue;
    part[i] = 0;
    HRI_TRY(make_one(part, error));
    part[i] = kept;
    while (part[i] == '/' && part[i + 1] == '/') i++;
  }
  return HR_OK;
}

void hri_dir_unmake(const char *path, size_t above_bytes) {
  char part[4096];
  size_t length = strlen(path);
  if (length >= sizeof part) return;
  memcpy(part, path, length + 1);
  while (length > 0 && part[length - 1] == '/') part[--length] = 0;
  while (length > above_bytes && rmdir(part) == 0) {
    while (length > 0 && part[length - 1] != '/') length--;
    while (length > 0 && part[length - 1] == '/') length--;
    part[length] = 0;
    if (length == 0) break;
  }
}

static _Atomic bool weak_syncs;

bool hri_dir_syncs_are_weak(void) { return weak_syncs; }

/* Some file systems do not sync directories (EINVAL), some directories may be written and not read (EACCES): then the
 * order of what the disk gets is the file system's, and there is nothing better to do. */
hr_status hri_dir_sync(const char *path, hr_error *error) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), number = 0;
  if (fd < 0 && errno != EACCES) return hri_fail_errno(error, errno, "open directory", path);
  if (fd < 0 || fsync(fd) != 0) number = errno;
  if (fd >= 0) (void)close(fd);
  if (number == 0) return HR_OK;
  if (number != EINVAL && number != EACCES) return hri_fail_errno(error, number, "sync directory", path);
  weak_syncs = true;
  return HR_OK;
}

hr_status hri_dir_next(DIR *dir, const char *path, const char **name, hr_error *error) {
  struct dirent *entry;
  do {
    errno = 0;
    entry = readdir(dir);
  } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
  *name = entry ? entry->d_name : NULL;
  return entry || errno == 0 ? HR_OK : hri_fail_errno(error, errno, "read directory", path);
}

hr_status hri_dir_remove(const char *path, hr_error *error) {
  struct dirent *entry;
  struct stat self;
  hr_status status = HR_OK;
  DIR *dir;
  if (lstat(path, &self) != 0) return errno == ENOENT ? HR_OK : hri_fail_errno(error, errno, "remove", path);
  if (!S_ISDIR(self.st_mode))
    return unlink(path) == 0 ? HR_OK : hri_fail_errno(error, errno, "remove", path); /* a link, not its target */
  dir = opendir(path);
  if (!dir) return hri_fail_errno(error, errno, "open directory", path);
  while (status == HR_OK && (entry = readdir(dir))) {
    char child[4096];
    struct stat info;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (snprintf(child, sizeof child, "%s/%s", path, entry->d_name) >= (int)sizeof child) {
      status = hri_fail(error, HR_ERROR_IO, "the path %.200s/... is too long", path);
    } else if (lstat(child, &info) == 0 && S_ISDIR(info.st_mode)) {
      status = hri_dir_remove(child, error);
    } else if (unlink(child) != 0 && errno != ENOENT) {
      status = hri_fail_errno(error, errno, "remove", child);
    }
  }
  closedir(dir);
  if (status == HR_OK && rmdir(path) != 0 && errno != ENOENT) status = hri_fail_errno(error, errno, "remove", path);
  return status;
}

void hri_path_nearest(const char *path, char out[4096]) {
  (void)snprintf(out, 4096, "%.4095s", path);
  while (!hri_path_is_dir(out)) {
    char *slash = strrchr(out, '/');
    if (!slash) (void)strcpy(out, ".");
    else if (slash == out) out[1] = 0;
    else *slash = 0;
    if (strcmp(out, ".") == 0 || strcmp(out, "/") == 0) return;
  }
}

hr_status hri_path_at(char path[4096], const char *dir, const char *name, hr_error *error) {
  if (snprintf(path, 4096, "%s/%s", dir, name) < 4096) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "the path %.100s/... is too long", dir);
}

char *hri_path_join(const char *dir, const char *name) {
  size_t a = strlen(dir), b = strlen(name);
  char *path = hri_alloc(a + b + 2);
  if (!path) return NULL;
  memcpy(path, dir, a);
  if (a > 0 && dir[a - 1] != '/') path[a++] = '/';
  memcpy(path + a, name, b + 1);
  return path;
}

bool hri_path_exists(const char *path) {
  struct stat info;
  if (lstat(path, &info) == 0) return true;
#ifdef __wasi__
  if (errno == ENOTCAPABLE) return false; /* outside of the directories that this program was given, there is nothing */
#endif
  return errno != ENOENT &&
         errno != ENOTDIR; /* what cannot be looked at is not taken for absent: opening it will say why */
}

bool hri_path_is_dir(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}
