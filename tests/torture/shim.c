/* A library that is preloaded into the program: it counts its file-system calls, makes a chosen one fail, cuts it short
 * or kills the process around it, and keeps a log of changes (shim.h).
 *
 * It hooks calls that the program makes through the dynamic linker. What libc does inside of itself (stdio, opendir)
 * passes it by; opendir, mkdtemp and mkostemp are therefore hooked whole, and that nothing else passes by unseen is
 * checked from outside, by the kernel's count of system calls (trace.c).
 *
 * In log mode one lock is held over a call and its event, so that events stand in the order in which things
 * happened. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "torture/shim.h"

_Static_assert(sizeof(off_t) == 8, "the 64-bit names are aliases");

enum { FD_LIMIT = 1024, LOG_FD = 900 };

static struct {
  shim_area area;
  shim_kind kind;
  uint64_t n;
  shim_way way;
  int number;
} fault = {.area = SHIM_NOWHERE};

static shim_counts *counts; /* NULL: not set up, everything passes */
static struct {
  char path[PATH_MAX];
  size_t length;
} areas[SHIM_AREAS];
static _Atomic unsigned char fd_areas[FD_LIMIT]; /* area + 1; 0: of no interest */
static int log_fd = -1;
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The function that this one stands before. Not as a static initializer: other libraries' constructors may come
 * first. */
#define REAL(name)                                                                                                     \
  static __typeof__(&name) real;                                                                                       \
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

/* libc's syscall(), past our own. */
static long (*raw(void))(long number, ...) {
  static long (*real)(long number, ...);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
  return real;
}

/* ---- where a path or a descriptor is ---- */

static shim_area area_of_absolute(const char *path) {
  for (int a = SHIM_TREE; a <= SHIM_INPUT; a++)
    if (areas[a].length && strncmp(path, areas[a].path, areas[a].length) == 0 &&
        (path[areas[a].length] == '/' || path[areas[a].length] == 0))
      return (shim_area)a;
  return SHIM_NOWHERE;
}

/* Takes out "//", "/./" and "/../" by the letter; links are left alone. */
static void tidy(char *path) {
  char *to = path;
  for (const char *at = path; *at;) {
    const char *end = at + 1;
    while (*end && *end != '/') end++;
    if (end - at == 1 || (end - at == 2 && at[1] == '.')) {
      at = end;
      continue;
    }
    if (end - at == 3 && at[1] == '.' && at[2] == '.') {
      while (to > path && *--to != '/') {}
      at = end;
      continue;
    }
    memmove(to, at, (size_t)(end - at));
    to += end - at;
    at = end;
  }
  *to = 0;
}

static bool fd_path(int fd, char out[PATH_MAX]) {
  char link[32];
  ssize_t length;
  (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  length = raw()(SYS_readlinkat, AT_FDCWD, link, out, (size_t)PATH_MAX - 1);
  out[length > 0 ? length : 0] = 0;
  return length > 0 && out[0] == '/';
}

static bool absolute(int directory, const char *path, char out[PATH_MAX]) {
  size_t length = 0;
  if (!path || !path[0] || strlen(path) >= PATH_MAX) return false;
  if (path[0] != '/') {
    if (directory == AT_FDCWD ? !getcwd(out, PATH_MAX) : !fd_path(directory, out)) return false;
    length = strlen(out);
  }
  if (length + strlen(path) + 2 > PATH_MAX) return false;
  (void)snprintf(out + length, PATH_MAX - length, "%s%s", length ? "/" : "", path);
  tidy(out);
  return true;
}

static shim_area area_at(int directory, const char *path) {
  char full[PATH_MAX];
  int kept = errno;
  shim_area area = counts && absolute(directory, path, full) ? area_of_absolute(full) : SHIM_NOWHERE;
  errno = kept;
  return area;
}

static shim_area area_of(const char *path) { return area_at(AT_FDCWD, path); }

static shim_area area_of_fd(int fd) {
  return counts && fd >= 0 && fd < FD_LIMIT && fd_areas[fd] ? (shim_area)(fd_areas[fd] - 1) : SHIM_NOWHERE;
}

static void remember(int fd, shim_area area) {
  if (fd >= 0 && fd < FD_LIMIT) fd_areas[fd] = (unsigned char)(area == SHIM_NOWHERE ? 0 : area + 1);
}

/* ---- the fault ---- */

static void die(void) {
  (void)raw()(SYS_kill, getpid(), SIGKILL);
  for (;;) (void)pause();
}

/* Where the call came from, for a person who looks at one case. */
static void tell_where(void) {
  void *frames[24];
  if (getenv("HEADROOM_SHIM_TELL")) backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
}

/* Counts a call and says what is to become of it; errno is set when it fails. */
static shim_way meet(shim_area area, shim_kind kind) {
  uint64_t n;
  if (!counts || area == SHIM_NOWHERE) return SHIM_WAY_pass;
  n = atomic_fetch_add(&counts->calls[area][kind], 1) + 1;
  if (area != fault.area || kind != fault.kind || n < fault.n || (n > fault.n && fault.way != SHIM_WAY_on))
    return SHIM_WAY_pass;
  if (atomic_fetch_add(&counts->hits, 1) == 0) tell_where();
  if (fault.way == SHIM_WAY_before) die();
  if (fault.way != SHIM_WAY_fail && fault.way != SHIM_WAY_on) return fault.way;
  errno = fault.number;
  return SHIM_WAY_fail;
}

static void leave(shim_way way) {
  if (way == SHIM_WAY_after || way == SHIM_WAY_half) die();
}

/* How many bytes a call that is cut short may move: at least one, for none means the end of the file. */
static size_t cut(shim_way way, size_t bytes) {
  return (way == SHIM_WAY_short || way == SHIM_WAY_half) && bytes > 1 ? bytes / 2 : bytes;
}

/* ---- the log ---- */

static bool logs(shim_area area) { return log_fd >= 0 && area == SHIM_TREE; }

static void begin_log(shim_area area) {
  if (logs(area)) (void)pthread_mutex_lock(&log_mutex);
}

static void end_log(shim_area area) {
  if (logs(area)) (void)pthread_mutex_unlock(&log_mutex);
}

static void put_event(shim_event event, const char *path, const char *other, const void *data, size_t data_bytes) {
  struct iovec parts[4];
  event.path_bytes = path ? (uint32_t)strlen(path) : 0;
  event.other_bytes = other ? (uint32_t)strlen(other) : 0;
  event.data_bytes = (uint32_t)data_bytes;
  parts[0] = (struct iovec){&event, sizeof event};
  parts[1] = (struct iovec){(void *)(uintptr_t)path, event.path_bytes};
  parts[2] = (struct iovec){(void *)(uintptr_t)other, event.other_bytes};
  parts[3] = (struct iovec){(void *)(uintptr_t)data, data_bytes};
  (void)raw()(SYS_writev, log_fd, parts, 4);
}

/* The path below the tree, with links in its directory resolved; the last name may be a link itself, or gone. */
static const char *in_tree(int directory, const char *path, char out[PATH_MAX]) {
  char full[PATH_MAX], parent[PATH_MAX];
  char *slash;
  if (!absolute(directory, path, full)) return "?";
  if (strcmp(full, areas[SHIM_TREE].path) == 0) return "";
  slash = strrchr(full, '/');
  *slash = 0;
  if (!realpath(full, parent) || strncmp(parent, areas[SHIM_TREE].path, areas[SHIM_TREE].length) != 0) return "?";
  (void)snprintf(out, PATH_MAX, "%.*s%s%.255s", PATH_MAX - 300, parent + areas[SHIM_TREE].length, "/", slash + 1);
  return out + 1;
}

static void log_open(int fd, int flags) {
  char full[PATH_MAX];
  if (!fd_path(fd, full) || area_of_absolute(full) != SHIM_TREE) return;
  put_event((shim_event){.kind = SHIM_EVENT_OPEN, .fd = fd, .flags = flags},
            full + areas[SHIM_TREE].length + (full[areas[SHIM_TREE].length] == '/'), NULL, NULL, 0);
}

static void log_paths(shim_event_kind kind, int directory, const char *path, int other_directory, const char *other) {
  char a[PATH_MAX], b[PATH_MAX];
  const char *first = kind == SHIM_EVENT_SYMLINK ? path : in_tree(directory, path, a);
  put_event((shim_event){.kind = kind, .fd = -1}, first, other ? in_tree(other_directory, other, b) : NULL, NULL, 0);
}

static void log_fd_event(shim_event_kind kind, int fd, uint64_t offset) {
  put_event((shim_event){.kind = kind, .fd = fd, .offset = offset}, NULL, NULL, NULL, 0);
}

/* Where the bytes went: pwrite says it, after a write it is behind the file's position. */
static void log_write(int fd, const void *bytes, ssize_t count, off_t offset) {
  if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - count;
  put_event((shim_event){.kind = SHIM_EVENT_WRITE, .fd = fd, .offset = (uint64_t)offset}, NULL, NULL, bytes,
            (size_t)count);
}

static void log_writev(int fd, const struct iovec *parts, int count, ssize_t put, off_t offset) {
  if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - put;
  for (int k = 0; k < count && put > 0; k++) {
    ssize_t bytes = (ssize_t)parts[k].iov_len < put ? (ssize_t)parts[k].iov_len : put;
    log_write(fd, parts[k].iov_base, bytes, offset);
    offset += bytes;
    put -= bytes;
  }
}

/* ---- set-up ---- */

static void set_area(shim_area area, const char *name) {
  const char *path = getenv(name);
  if (!path || path[0] != '/' || strlen(path) >= PATH_MAX) return;
  (void)strcpy(areas[area].path, path);
  tidy(areas[area].path);
  areas[area].length = strlen(areas[area].path);
}

static int find(const char *const *names, int count, const char *name) {
  for (int k = 0; k < count; k++)
    if (strcmp(names[k], name) == 0) return k;
  (void)fprintf(stderr, "shim: no '%s'\n", name);
  _exit(125);
}

static void set_fault(const char *text) {
  char area[16], kind[24], way[16];
  unsigned long long n;
  int number = 0;
  if (!text) return;
  if (sscanf(text, "%15[^/]/%23[^/]/%llu/%15[^/]/%d", area, kind, &n, way, &number) < 4) find(NULL, 0, text);
  fault.kind = (shim_kind)find(shim_kinds, SHIM_KIND_COUNT, kind);
  fault.way = (shim_way)find(shim_ways, SHIM_WAY_COUNT, way);
  fault.n = n;
  fault.number = number;
  fault.area = (shim_area)find(shim_areas, SHIM_AREAS, area);
}

static ssize_t say(void *cookie, const char *text, size_t bytes) {
  int fd = (int)(intptr_t)cookie;
  if (fd == 2) {
    (void)pthread_mutex_lock(&log_mutex);
    put_event((shim_event){.kind = SHIM_EVENT_SAY, .fd = fd}, NULL, NULL, text, bytes);
    (void)pthread_mutex_unlock(&log_mutex);
  }
  return raw()(SYS_write, fd, text, bytes);
}

/* stdio writes inside of libc; a stream of our own sees what is said, and when. */
static void hear(void) {
  FILE *stream = fopencookie((void *)(intptr_t)2, "w", (cookie_io_functions_t){.write = say});
  if (!stream) return;
  (void)setvbuf(stream, NULL, _IONBF, 0);
  stderr = stream;
}

static void set_log(const char *path) {
  int fd;
  if (!path) return;
  fd = (int)raw()(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  log_fd = fd < 0 ? -1 : (int)raw()(SYS_fcntl, fd, F_DUPFD_CLOEXEC, LOG_FD);
  (void)raw()(SYS_close, fd);
  if (log_fd < 0) find(NULL, 0, path);
  hear();
}

__attribute__((constructor)) static void set_up(void) {
  const char *path = getenv("HEADROOM_SHIM_COUNTS");
  void *page;
  int fd;
  if (!path) return;
  set_area(SHIM_TREE, "HEADROOM_SHIM_TREE");
  set_area(SHIM_INPUT, "HEADROOM_SHIM_INPUT");
  set_fault(getenv("HEADROOM_SHIM_FAULT"));
  fd = (int)raw()(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  page = fd < 0 ? MAP_FAILED
                : (void *)raw()(SYS_mmap, NULL, sizeof(shim_counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
  if (page == MAP_FAILED) find(NULL, 0, path);
  (void)raw()(SYS_close, fd);
  set_log(getenv("HEADROOM_SHIM_LOG"));
  counts = page;
}

/* ---- writing and reading ---- */

/* The body of a call that moves bytes: `bytes` is how many it may move. */
#define MOVE(kind, fd, wanted, call, log)                                                                              \
  shim_area area = area_of_fd(fd);                                                                                     \
  shim_way way = meet(area, kind);                                                                                     \
  size_t bytes = cut(way, wanted);                                                                                     \
  ssize_t moved;                                                                                                       \
  if (way == SHIM_WAY_fail) return -1;                                                                                 \
  begin_log(area);                                                                                                     \
  moved = call;                                                                                                        \
  if (logs(area) && moved > 0) log;                                                                                    \
  end_log(area);                                                                                                       \
  leave(way);                                                                                                          \
  return moved

ssize_t write(int fd, const void *from, size_t count) {
  REAL(write);
  MOVE(SHIM_write, fd, count, real(fd, from, bytes), log_write(fd, from, moved, -1));
}

ssize_t pwrite(int fd, const void *from, size_t count, off_t offset) {
  REAL(pwrite);
  MOVE(SHIM_pwrite, fd, count, real(fd, from, bytes, offset), log_write(fd, from, moved, offset));
}

ssize_t read(int fd, void *to, size_t count) {
  REAL(read);
  MOVE(SHIM_read, fd, count, real(fd, to, bytes), (void)0);
}

ssize_t pread(int fd, void *to, size_t count, off_t offset) {
  REAL(pread);
  MOVE(SHIM_pread, fd, count, real(fd, to, bytes, offset), (void)0);
}

/* Vectors are cut by their number, or to half of the only one. */
static int cut_vector(shim_way way, const struct iovec *parts, int count, struct iovec *first) {
  if ((way != SHIM_WAY_short && way != SHIM_WAY_half) || count == 0) return count;
  if (count > 1) return count / 2;
  *first = parts[0];
  first->iov_len = cut(way, first->iov_len);
  return 0;
}

#define MOVE_VECTOR(kind, fd, call, log)                                                                               \
  shim_area area = area_of_fd(fd);                                                                                     \
  shim_way way = meet(area, kind);                                                                                     \
  struct iovec first;                                                                                                  \
  int kept = cut_vector(way, parts, count, &first), used = kept || !count ? kept : 1;                                  \
  const struct iovec *list = kept || !count ? parts : &first;                                                          \
  ssize_t moved;                                                                                                       \
  if (way == SHIM_WAY_fail) return -1;                                                                                 \
  begin_log(area);                                                                                                     \
  moved = call;                                                                                                        \
  if (logs(area) && moved > 0) log;                                                                                    \
  end_log(area);                                                                                                       \
  leave(way);                                                                                                          \
  return moved

ssize_t writev(int fd, const struct iovec *parts, int count) {
  REAL(writev);
  MOVE_VECTOR(SHIM_writev, fd, real(fd, list, used), log_writev(fd, list, used, moved, -1));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
  REAL(pwritev);
  MOVE_VECTOR(SHIM_pwritev, fd, real(fd, list, used, offset), log_writev(fd, list, used, moved, offset));
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
  REAL(readv);
  MOVE_VECTOR(SHIM_readv, fd, real(fd, list, used), (void)0);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
  REAL(preadv);
  MOVE_VECTOR(SHIM_preadv, fd, real(fd, list, used, offset), (void)0);
}

/* Copies inside of the kernel: what arrived before `end` is read back for the log. */
static void log_copied(int fd, off_t end, ssize_t moved) {
  char block[65536], link[32];
  int from;
  (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  from = (int)raw()(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
  for (off_t at = end - moved; at < end;) {
    ssize_t got =
        raw()(SYS_pread64, from, block, (size_t)(end - at) < sizeof block ? (size_t)(end - at) : sizeof block, at);
    if (got <= 0) break;
    log_write(fd, block, got, at);
    at += got;
  }
  (void)raw()(SYS_close, from);
}

ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t count, unsigned flags) {
  REAL(copy_file_range);
  MOVE(SHIM_copy_file_range, out, count, real(in, in_offset, out, out_offset, bytes, flags),
       log_copied(out, out_offset ? *out_offset : lseek(out, 0, SEEK_CUR), moved));
}

ssize_t sendfile(int out, int in, off_t *offset, size_t count) {
  REAL(sendfile);
  MOVE(SHIM_sendfile, out, count, real(out, in, offset, bytes), log_copied(out, lseek(out, 0, SEEK_CUR), moved));
}

/* ---- opening and closing ---- */

static int open_through(shim_kind kind, int directory, const char *path, int flags, mode_t mode) {
  shim_area area = area_at(directory, path);
  shim_way way = meet(area, kind);
  int fd;
  if (way == SHIM_WAY_fail) return -1;
  begin_log(area);
  fd = (int)raw()(SYS_openat, directory, path, flags, mode);
  remember(fd, area);
  if (fd >= 0 && logs(area)) log_open(fd, flags);
  end_log(area);
  leave(way);
  return fd;
}

#define OPEN_MODE                                                                                                      \
  mode_t mode = 0;                                                                                                     \
  if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                                           \
    va_list more;                                                                                                      \
    va_start(more, flags);                                                                                             \
    mode = va_arg(more, mode_t);                                                                                       \
    va_end(more);                                                                                                      \
  }

int open(const char *path, int flags, ...) {
  OPEN_MODE
  return open_through(SHIM_open, AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...) {
  OPEN_MODE
  return open_through(SHIM_open, directory, path, flags, mode);
}

int creat(const char *path, mode_t mode) {
  return open_through(SHIM_open, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

/* What open becomes where the compiler fortifies it. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags) { return open_through(SHIM_open, AT_FDCWD, path, flags, 0); }
int __openat_2(int directory, const char *path, int flags);
int __openat_2(int directory, const char *path, int flags) {
  return open_through(SHIM_open, directory, path, flags, 0);
}

int mkostemp(char *template, int flags) {
  REAL(mkostemp);
  shim_area area = area_of(template);
  shim_way way = meet(area, SHIM_mkostemp);
  int fd;
  if (way == SHIM_WAY_fail) return -1;
  begin_log(area);
  fd = real(template, flags);
  remember(fd, area);
  if (fd >= 0 && logs(area)) log_open(fd, flags | O_CREAT | O_EXCL | O_RDWR);
  end_log(area);
  leave(way);
  return fd;
}

int mkstemp(char *template) { return mkostemp(template, 0); }

DIR *opendir(const char *path) {
  REAL(opendir);
  shim_area area = area_of(path);
  shim_way way = meet(area, SHIM_opendir);
  DIR *directory;
  if (way == SHIM_WAY_fail) return NULL;
  begin_log(area);
  directory = real(path);
  if (directory) remember(dirfd(directory), area);
  if (directory && logs(area)) log_open(dirfd(directory), O_DIRECTORY);
  end_log(area);
  leave(way);
  return directory;
}

struct dirent *readdir(DIR *directory) {
  REAL(readdir);
  shim_way way = meet(area_of_fd(dirfd(directory)), SHIM_readdir);
  if (way == SHIM_WAY_fail) return NULL;
  leave(way);
  return real(directory);
}

/* A close that fails has closed the file all the same, as in Linux. */
#define CLOSE(kind, descriptor, call)                                                                                  \
  int closed = descriptor;                                                                                             \
  shim_area area = area_of_fd(closed);                                                                                 \
  shim_way way = meet(area, kind);                                                                                     \
  int number = errno, result;                                                                                          \
  begin_log(area);                                                                                                     \
  remember(closed, SHIM_NOWHERE);                                                                                      \
  result = call;                                                                                                       \
  if (logs(area)) log_fd_event(SHIM_EVENT_CLOSE, closed, 0);                                                           \
  end_log(area);                                                                                                       \
  leave(way);                                                                                                          \
  if (way != SHIM_WAY_fail) return result;                                                                             \
  errno = number;                                                                                                      \
  return -1

int close(int fd) {
  REAL(close);
  CLOSE(SHIM_close, fd, real(fd));
}

int closedir(DIR *directory) {
  REAL(closedir);
  CLOSE(SHIM_closedir, dirfd(directory), real(directory));
}

static int duplicate(int fd, int command, int least) {
  shim_area area = area_of_fd(fd);
  shim_way way = meet(area, SHIM_dup);
  int made;
  if (way == SHIM_WAY_fail) return -1;
  begin_log(area);
  made = (int)raw()(SYS_fcntl, fd, command, least);
  remember(made, area);
  if (made >= 0 && logs(area)) log_fd_event(SHIM_EVENT_DUP, made, (uint64_t)fd);
  end_log(area);
  leave(way);
  return made;
}

int dup(int fd) { return duplicate(fd, F_DUPFD, 0); }

int fcntl(int fd, int command, ...) {
  void *argument;
  va_list more;
  va_start(more, command);
  argument = va_arg(more, void *);
  va_end(more);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return duplicate(fd, command, (int)(intptr_t)argument);
  return (int)raw()(SYS_fcntl, fd, command, argument);
}

/* ---- syncing and sizes ---- */

#define CALL(kind, where, call, log)                                                                                   \
  shim_area area = where;                                                                                              \
  shim_way way = meet(area, kind);                                                                                     \
  int result;                                                                                                          \
  if (way == SHIM_WAY_fail) return -1;                                                                                 \
  begin_log(area);                                                                                                     \
  result = call;                                                                                                       \
  if (logs(area) && result == 0) log;                                                                                  \
  end_log(area);                                                                                                       \
  leave(way);                                                                                                          \
  return result

int fsync(int fd) {
  REAL(fsync);
  CALL(SHIM_fsync, area_of_fd(fd), real(fd), log_fd_event(SHIM_EVENT_SYNC, fd, 0));
}

int fdatasync(int fd) {
  REAL(fdatasync);
  CALL(SHIM_fdatasync, area_of_fd(fd), real(fd), log_fd_event(SHIM_EVENT_SYNC, fd, 0));
}

int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) { /* starts writing back; promises nothing */
  REAL(sync_file_range);
  CALL(SHIM_sync_file_range, area_of_fd(fd), real(fd, offset, bytes, flags), (void)0);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  REAL(fallocate);
  CALL(SHIM_fallocate, area_of_fd(fd), real(fd, mode, offset, bytes),
       if (mode == 0) log_fd_event(SHIM_EVENT_GROW, fd, (uint64_t)(offset + bytes)));
}

int posix_fallocate(int fd, off_t offset, off_t bytes) { /* returns the error's number */
  shim_area area = area_of_fd(fd);
  shim_way way = meet(area, SHIM_fallocate);
  REAL(posix_fallocate);
  int result;
  if (way == SHIM_WAY_fail) return fault.number;
  begin_log(area);
  result = real(fd, offset, bytes);
  if (logs(area) && result == 0) log_fd_event(SHIM_EVENT_GROW, fd, (uint64_t)(offset + bytes));
  end_log(area);
  leave(way);
  return result;
}

int ftruncate(int fd, off_t bytes) {
  REAL(ftruncate);
  CALL(SHIM_ftruncate, area_of_fd(fd), real(fd, bytes), log_fd_event(SHIM_EVENT_SIZE, fd, (uint64_t)bytes));
}

static void log_truncate(const char *path, off_t bytes) {
  char where[PATH_MAX];
  put_event((shim_event){.kind = SHIM_EVENT_SIZE, .fd = -1, .offset = (uint64_t)bytes}, in_tree(AT_FDCWD, path, where),
            NULL, NULL, 0);
}

int truncate(const char *path, off_t bytes) {
  REAL(truncate);
  CALL(SHIM_truncate, area_of(path), real(path, bytes), log_truncate(path, bytes));
}

/* ---- names ---- */

/* What has two names counts for the tree when either is in it. */
static shim_area area_of_two(int directory, const char *path, int other_directory, const char *other) {
  shim_area area = area_at(directory, path);
  return area == SHIM_NOWHERE ? area_at(other_directory, other) : area;
}

static int rename_through(shim_kind kind, int directory, const char *path, int other_directory, const char *other,
                          unsigned flags) {
  CALL(kind, area_of_two(directory, path, other_directory, other),
       (int)raw()(SYS_renameat2, directory, path, other_directory, other, flags),
       log_paths(flags & RENAME_EXCHANGE ? SHIM_EVENT_EXCHANGE : SHIM_EVENT_RENAME, directory, path, other_directory,
                 other));
}

int rename(const char *path, const char *other) {
  return rename_through(SHIM_rename, AT_FDCWD, path, AT_FDCWD, other, 0);
}
int renameat(int a, const char *path, int b, const char *other) {
  return rename_through(SHIM_rename, a, path, b, other, 0);
}
int renameat2(int a, const char *path, int b, const char *other, unsigned flags) {
  return rename_through(SHIM_renameat2, a, path, b, other, flags);
}

/* What had no name (O_TMPFILE) is named by its descriptor. */
static void log_link(int a, const char *path, int b, const char *other) {
  char where[PATH_MAX];
  int fd = -1;
  if (!path[0]) fd = a;
  if (fd < 0 && sscanf(path, "/proc/self/fd/%d", &fd) != 1) log_paths(SHIM_EVENT_LINK, a, path, b, other);
  else put_event((shim_event){.kind = SHIM_EVENT_LINK, .fd = fd}, NULL, in_tree(b, other, where), NULL, 0);
}

int linkat(int a, const char *path, int b, const char *other, int flags) {
  REAL(linkat);
  CALL(SHIM_link, area_of_two(a, path, b, other), real(a, path, b, other, flags), log_link(a, path, b, other));
}

int link(const char *path, const char *other) { return linkat(AT_FDCWD, path, AT_FDCWD, other, 0); }

int symlinkat(const char *target, int directory, const char *path) {
  REAL(symlinkat);
  CALL(SHIM_symlink, area_at(directory, path), real(target, directory, path),
       log_paths(SHIM_EVENT_SYMLINK, 0, target, directory, path));
}

int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

int unlinkat(int directory, const char *path, int flags) {
  REAL(unlinkat);
  bool whole = (flags & AT_REMOVEDIR) != 0;
  CALL(whole ? SHIM_rmdir : SHIM_unlink, area_at(directory, path), real(directory, path, flags),
       log_paths(whole ? SHIM_EVENT_RMDIR : SHIM_EVENT_UNLINK, directory, path, 0, NULL));
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

/* libc's own remove() would pass by. */
int remove(const char *path) {
  struct stat info;
  if (lstat(path, &info) != 0) return -1;
  return S_ISDIR(info.st_mode) ? rmdir(path) : unlink(path);
}

int mkdirat(int directory, const char *path, mode_t mode) {
  REAL(mkdirat);
  CALL(SHIM_mkdir, area_at(directory, path), real(directory, path, mode),
       log_paths(SHIM_EVENT_MKDIR, directory, path, 0, NULL));
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

char *mkdtemp(char *template) {
  REAL(mkdtemp);
  shim_area area = area_of(template);
  shim_way way = meet(area, SHIM_mkdtemp);
  char *made;
  if (way == SHIM_WAY_fail) return NULL;
  begin_log(area);
  made = real(template);
  if (made && logs(area)) log_paths(SHIM_EVENT_MKDIR, AT_FDCWD, made, 0, NULL);
  end_log(area);
  leave(way);
  return made;
}

/* ---- looking, locks, maps ---- */

#define LOOK(kind, where, call)                                                                                        \
  shim_way way = meet(where, kind);                                                                                    \
  __typeof__(call) result;                                                                                             \
  if (way == SHIM_WAY_fail) return -1;                                                                                 \
  result = call;                                                                                                       \
  leave(way);                                                                                                          \
  return result

int stat(const char *restrict path, struct stat *restrict info) {
  REAL(stat);
  LOOK(SHIM_stat, area_of(path), real(path, info));
}

int lstat(const char *restrict path, struct stat *restrict info) {
  REAL(lstat);
  LOOK(SHIM_stat, area_of(path), real(path, info));
}

int fstat(int fd, struct stat *info) {
  REAL(fstat);
  LOOK(SHIM_stat, area_of_fd(fd), real(fd, info));
}

int fstatat(int directory, const char *restrict path, struct stat *restrict info, int flags) {
  REAL(fstatat);
  LOOK(SHIM_stat, path[0] ? area_at(directory, path) : area_of_fd(directory), real(directory, path, info, flags));
}

int access(const char *path, int mode) {
  REAL(access);
  LOOK(SHIM_stat, area_of(path), real(path, mode));
}

int faccessat(int directory, const char *path, int mode, int flags) {
  REAL(faccessat);
  LOOK(SHIM_stat, area_at(directory, path), real(directory, path, mode, flags));
}

ssize_t readlinkat(int directory, const char *restrict path, char *restrict out, size_t room) {
  REAL(readlinkat);
  LOOK(SHIM_readlink, area_at(directory, path), real(directory, path, out, room));
}

ssize_t readlink(const char *restrict path, char *restrict out, size_t room) {
  return readlinkat(AT_FDCWD, path, out, room);
}

int flock(int fd, int what) {
  REAL(flock);
  LOOK(SHIM_flock, area_of_fd(fd), real(fd, what));
}

/* Whether code of the program itself is at `address`. */
static bool in_program(const void *address) {
  Dl_info here, program;
  const void *entry = (const void *)getauxval(AT_ENTRY);
  return dladdr(address, &here) && dladdr(entry, &program) && here.dli_fbase == program.dli_fbase;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  shim_area area = !(flags & MAP_ANONYMOUS)                  ? area_of_fd(fd)
                   : in_program(__builtin_return_address(0)) ? SHIM_MEMORY
                                                             : SHIM_LIBRARY;
  shim_way way = meet(area, SHIM_mmap);
  void *map;
  if (way == SHIM_WAY_fail) return MAP_FAILED;
  map = (void *)raw()(SYS_mmap, at, bytes, protection, flags, fd, offset);
  leave(way);
  return map;
}

/* ---- the same under other names ---- */

#define ALIAS(type, name, parameters, target) type name parameters __attribute__((alias(#target)))

ALIAS(int, fcntl64, (int, int, ...), fcntl);
ALIAS(int, open64, (const char *, int, ...), open);
ALIAS(int, openat64, (int, const char *, int, ...), openat);
ALIAS(int, creat64, (const char *, mode_t), creat);
ALIAS(int, mkostemp64, (char *, int), mkostemp);
ALIAS(int, mkstemp64, (char *), mkstemp);
ALIAS(ssize_t, pwrite64, (int, const void *, size_t, off64_t), pwrite);
ALIAS(ssize_t, pread64, (int, void *, size_t, off64_t), pread);
ALIAS(ssize_t, pwritev64, (int, const struct iovec *, int, off64_t), pwritev);
ALIAS(ssize_t, preadv64, (int, const struct iovec *, int, off64_t), preadv);
ALIAS(ssize_t, sendfile64, (int, int, off64_t *, size_t), sendfile);
ALIAS(int, fallocate64, (int, int, off64_t, off64_t), fallocate);
ALIAS(int, posix_fallocate64, (int, off64_t, off64_t), posix_fallocate);
ALIAS(int, ftruncate64, (int, off64_t), ftruncate);
ALIAS(int, truncate64, (const char *, off64_t), truncate);
ALIAS(void *, mmap64, (void *, size_t, int, int, int, off64_t), mmap);

/* readdir64 and the stat64 family have types of their own, of the same shape. */
struct dirent64 *readdir64(DIR *directory) { return (struct dirent64 *)(void *)readdir(directory); }
int stat64(const char *restrict path, struct stat64 *restrict info) { return stat(path, (struct stat *)(void *)info); }
int lstat64(const char *restrict path, struct stat64 *restrict info) {
  return lstat(path, (struct stat *)(void *)info);
}
int fstat64(int fd, struct stat64 *info) { return fstat(fd, (struct stat *)(void *)info); }
int fstatat64(int directory, const char *restrict path, struct stat64 *restrict info, int flags) {
  return fstatat(directory, path, (struct stat *)(void *)info, flags);
}

ssize_t __read_chk(int fd, void *to, size_t count, size_t room);
ssize_t __read_chk(int fd, void *to, size_t count, size_t room) {
  (void)room;
  return read(fd, to, count);
}
ssize_t __pread_chk(int fd, void *to, size_t count, off_t offset, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t count, off_t offset, size_t room) {
  (void)room;
  return pread(fd, to, count, offset);
}
ssize_t __pread64_chk(int fd, void *to, size_t count, off_t offset, size_t room);
ssize_t __pread64_chk(int fd, void *to, size_t count, off_t offset, size_t room) {
  (void)room;
  return pread(fd, to, count, offset);
}

/* ---- the same by number ---- */

/* Numbers of calls that libc had no function for. Anything else goes through; trace.c tells if it concerns the tree. */
static long by_number(long number, const long a[6], bool *ours) {
  *ours = true;
  switch (number) {
  case SYS_renameat2: return renameat2((int)a[0], (const char *)a[1], (int)a[2], (const char *)a[3], (unsigned)a[4]);
  case SYS_openat: return openat((int)a[0], (const char *)a[1], (int)a[2], (mode_t)a[3]);
  case SYS_write: return write((int)a[0], (const void *)a[1], (size_t)a[2]);
  case SYS_pwrite64: return pwrite((int)a[0], (const void *)a[1], (size_t)a[2], a[3]);
  case SYS_read: return read((int)a[0], (void *)a[1], (size_t)a[2]);
  case SYS_pread64: return pread((int)a[0], (void *)a[1], (size_t)a[2], a[3]);
  case SYS_close: return close((int)a[0]);
  case SYS_fsync: return fsync((int)a[0]);
  case SYS_fdatasync: return fdatasync((int)a[0]);
  case SYS_fallocate: return fallocate((int)a[0], (int)a[1], a[2], a[3]);
  case SYS_ftruncate: return ftruncate((int)a[0], a[1]);
  case SYS_linkat: return linkat((int)a[0], (const char *)a[1], (int)a[2], (const char *)a[3], (int)a[4]);
  case SYS_unlinkat: return unlinkat((int)a[0], (const char *)a[1], (int)a[2]);
  case SYS_mkdirat: return mkdirat((int)a[0], (const char *)a[1], (mode_t)a[2]);
  case SYS_flock: return flock((int)a[0], (int)a[1]);
  default: *ours = false; return 0;
  }
}

long syscall(long number, ...) {
  long a[6], result;
  bool ours;
  va_list more;
  va_start(more, number);
  for (int k = 0; k < 6; k++) a[k] = va_arg(more, long); /* more than were given are read, and not used */
  va_end(more);
  result = by_number(number, a, &ours);
  return ours ? result : raw()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
