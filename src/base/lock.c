/* The order that makes a lock file safe: make it whole (written and synced before it has a name), lock the open file,
 * then look whether the path still leads to it. A holder that gives a directory up unlinks the file while it holds it,
 * so whoever locked the orphan finds another inode (or none) at the path and begins again. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

enum { LINE_BYTES = 512, PATH_BYTES = 4096, POLL_MS = 50, ATTEMPTS = 1000, LOOKS = 2 };

struct hri_lock {
  int fd;
  bool fresh;
  char id[20];
  char path[PATH_BYTES];
  char exclusive[PATH_BYTES]; /* "" with flock */
  char exclusive_id[20];
  char how[PATH_BYTES + 160];
};

static void unique_id(char out[20]) {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    bits = (uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec << 20 ^ (uint64_t)getpid() << 44;
  }
  (void)snprintf(out, 20, "%016" PRIx64, bits);
}

/* ---- what the file says ---- */

#define HEAD "{\"headroom_lock\":1,\"id\":\""

/* All lines have one length and their fields one place, so that a line which was written over another one only half is
 * still one: what must never be lost is the id. */
static int line_of(const char *id, char out[LINE_BYTES]) {
  char host[65] = "", when[32];
  time_t now = time(NULL);
  struct tm utc;
  (void)gethostname(host, sizeof host - 1);
  for (char *c = host; *c; c++)
    if ((unsigned char)*c < 0x21 || *c == '"' || *c == '\\') *c = '?';
  (void)gmtime_r(&now, &utc);
  (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return snprintf(out, LINE_BYTES, HEAD "%s\",\"pid\":%10ld,\"started\":\"%s\",\"host\":\"%s\"}%*s\n", id,
                  (long)getpid(), when, host, (int)(64 - strlen(host)), "");
}

static void take_text(const hri_json *root, const char *key, char *out, size_t room) {
  const char *text;
  if (hri_json_get_string(root, key, &text, NULL) == HR_OK) (void)snprintf(out, room, "%s", text);
}

static hri_lock_owner parse(const char *line, size_t count) {
  const char *end = memchr(line, '\n', count);
  size_t head = strlen(HEAD);
  hri_lock_owner owner = {0};
  hri_json root = {0};
  if (count < head + 16 || memcmp(line, HEAD, head) != 0 || strspn(line + head, "0123456789abcdef") < 16) return owner;
  memcpy(owner.id, line + head, 16);
  if (hri_json_parse(line, end ? (uint64_t)(end - line) : count, "lock", &root, NULL) != HR_OK) return owner;
  take_text(&root, "host", owner.host, sizeof owner.host);
  take_text(&root, "started", owner.started, sizeof owner.started);
  owner.known = hri_json_get_i64(&root, "pid", 1, INT64_MAX, &owner.pid, NULL) == HR_OK;
  hri_json_deinit(&root);
  return owner;
}

/* *empty: nothing was ever written to it. */
static hri_lock_owner read_fd(int fd, bool *empty) {
  char line[LINE_BYTES + 1];
  ssize_t got;
  do got = pread(fd, line, LINE_BYTES, 0);
  while (got < 0 && errno == EINTR);
  *empty = got == 0;
  line[got > 0 ? got : 0] = 0;
  return got > 0 ? parse(line, (size_t)got) : (hri_lock_owner){0};
}

hri_lock_owner hri_lock_read(const char *path) {
  hri_lock_owner owner = {0};
  bool empty;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return owner;
  owner = read_fd(fd, &empty);
  (void)close(fd);
  return owner;
}

/* ---- making the file ---- */

static hr_status write_line(int fd, const char *path, const char *id, hr_error *error) {
  char line[LINE_BYTES];
  int length = line_of(id, line);
  HRI_TRY(hri_file_pwrite(fd, path, line, (uint64_t)length, 0, error));
  if (ftruncate(fd, length) != 0) return hri_fail_errno(error, errno, "write", path);
  return HR_OK;
}

/* The file appears with its text in it where the file system can do that (O_TMPFILE); else it is empty for a moment. */
static bool make_whole(const char *path, const char *id) {
  char directory[PATH_BYTES], link[64];
  const char *slash = strrchr(path, '/');
  int fd;
  bool made = false;
  (void)snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
                 slash ? path : ".");
  fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (write_line(fd, path, id, NULL) == HR_OK && fsync(fd) == 0)
    made = linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
  (void)close(fd);
  return made;
}

/* Opens the file, made if missing; fresh says by whom. -1 with errno. */
static int open_file(const char *path, bool *fresh) {
  char id[20];
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  *fresh = false;
  if (fd >= 0 || errno != ENOENT) return fd;
  unique_id(id);
  *fresh = make_whole(path, id);
  fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd >= 0 || errno != ENOENT) return fd;
  fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  *fresh = fd >= 0;
  if (fd < 0 && errno == EEXIST) fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  return fd;
}

static bool no_such_locks(int number) {
  return number == ENOLCK || number == ENOSYS || number == EOPNOTSUPP || number == EINVAL;
}

/* ---- taking it ---- */

typedef enum outcome { TAKEN, HELD, AGAIN, FAILED } outcome;

static hr_status in_use(const char *path, const char *what, const hri_lock_owner *other, hr_error *error) {
  hr_status status;
  if (other->known)
    status = hri_fail(error, HR_ERROR_USAGE, "%s is in use: host %s, process %lld, since %s", what, other->host,
                      (long long)other->pid, other->started);
  else
    status = hri_fail(error, HR_ERROR_USAGE, "%s is in use by another process, which %s does not name yet", what, path);
  return hri_hint(error, status, "wait until it has ended, or stop that process");
}

static hr_status refuse(const hri_lock *lock, const char *what, const hri_lock_owner *other, hr_error *error) {
  const hr_status status = in_use(lock->path, what, other, error);
  if (!lock->exclusive[0]) return status;
  return hri_hint(
      error, status,
      "wait for it; when that process has ended without a word, remove %s (this file system has no locks that end with their process)",
      lock->exclusive);
}

/* The fallback: whoever makes the file has the lock. */
static outcome take_exclusive(hri_lock *lock, hri_lock_owner *other, hr_error *error) {
  int fd;
  if (snprintf(lock->exclusive, sizeof lock->exclusive, "%s.exclusive", lock->path) >= PATH_BYTES) {
    (void)hri_fail(error, HR_ERROR_USAGE, "the path %.200s is too long", lock->path);
    return FAILED;
  }
  fd = open(lock->exclusive, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0 && errno == EEXIST) {
    *other = hri_lock_read(lock->exclusive);
    return HELD;
  }
  unique_id(lock->exclusive_id);
  if (fd < 0 || write_line(fd, lock->exclusive, lock->exclusive_id, error) != HR_OK) {
    if (fd < 0) (void)hri_fail_errno(error, errno, "create", lock->exclusive);
    if (fd >= 0) {
      (void)close(fd);
      (void)unlink(lock->exclusive);
    }
    return FAILED;
  }
  (void)close(fd);
  (void)snprintf(
      lock->how, sizeof lock->how,
      "this file system has no locks that end with their process: %s stands for one; when a run was killed, remove it",
      lock->exclusive);
  return TAKEN;
}

static bool path_leads_here(const hri_lock *lock) {
  struct stat here, there;
  return fstat(lock->fd, &here) == 0 && lstat(lock->path, &there) == 0 && here.st_ino == there.st_ino &&
         here.st_dev == there.st_dev;
}

static hr_status taken_over(const char *path, const char *what, const hri_lock_owner *other, hr_error *error) {
  hr_status status = other->known
                         ? hri_fail(error, HR_ERROR_USAGE, "%s was taken over: host %s, process %lld, since %s", what,
                                    other->host, (long long)other->pid, other->started)
                         : hri_fail(error, HR_ERROR_USAGE, "%s was taken over: %s is another file now", what, path);
  return hri_hint(error, status, "the lock file was removed while it was in use; nothing more is written there");
}

/* The fallback's file is whose id it has; one without a whole line is being written, or cannot be read just now. */
static bool is_anothers(const hri_lock *lock, hri_lock_owner *other) {
  *other = hri_lock_read(lock->exclusive);
  return other->known && strcmp(other->id, lock->exclusive_id) != 0;
}

static hr_status check_exclusive(const hri_lock *lock, const char *what, bool *gone, hr_error *error) {
  hri_lock_owner other;
  struct stat there;
  if (lstat(lock->exclusive, &there) != 0) {
    *gone = errno == ENOENT;
    return HR_OK;
  }
  return is_anothers(lock, &other) ? taken_over(lock->exclusive, what, &other, error) : HR_OK;
}

hr_status hri_lock_check(const hri_lock *lock, const char *what, bool *gone, hr_error *error) {
  struct stat here, there;
  hri_lock_owner other, holder;
  *gone = false;
  if (lock->how[0]) return check_exclusive(lock, what, gone, error);
  if (fstat(lock->fd, &here) != 0) return HR_OK; /* a failing disk is no other process */
  if (lstat(lock->path, &there) != 0) {
    *gone = errno == ENOENT;
    return HR_OK;
  }
  if (here.st_ino == there.st_ino && here.st_dev == there.st_dev) return HR_OK;
  other = hri_lock_read(lock->path);
  *gone = strcmp(other.id, lock->id) == 0 && !hri_lock_is_held(lock->path, &holder);
  return *gone ? HR_OK : taken_over(lock->path, what, &other, error);
}

/* Writes who holds it, under the id that the file has. */
static outcome sign(hri_lock *lock, hr_error *error) {
  bool empty;
  hri_lock_owner before = read_fd(lock->fd, &empty);
  if (!before.id[0] && !empty) {
    hr_status status = hri_fail(error, HR_ERROR_USAGE, "%s is not a lock file of Headroom", lock->path);
    (void)hri_hint(error, status, "move it away, or name another directory");
    return FAILED;
  }
  if (before.id[0]) memcpy(lock->id, before.id, sizeof lock->id);
  else unique_id(lock->id);
  if (write_line(lock->fd, lock->path, lock->id, error) != HR_OK) {
    if (lock->fresh) (void)unlink(lock->path); /* on a full disk: an empty file would be all that this call did */
    return FAILED;
  }
  if (!before.id[0] && fsync(lock->fd) != 0) {
    (void)hri_fail_errno(error, errno, "write", lock->path);
    return FAILED;
  }
  return TAKEN;
}

static void give_up(hri_lock *lock) {
  hri_lock_owner other;
  if (lock->how[0] && !is_anothers(lock, &other)) (void)unlink(lock->exclusive);
  lock->exclusive[0] = lock->how[0] = 0;
  if (lock->fd >= 0) (void)close(lock->fd);
  lock->fd = -1;
}

static outcome lock_once(hri_lock *lock, hri_lock_owner *other, hr_error *error) {
  struct stat info;
  outcome got = TAKEN;
  bool empty;
  lock->fd = open_file(lock->path, &lock->fresh);
  if (lock->fd < 0) {
    if (errno == ENOENT || errno == EEXIST) return AGAIN; /* its directory went, or it came and went */
    (void)hri_fail_errno(error, errno, "open", lock->path);
    return FAILED;
  }
  if (fstat(lock->fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    (void)hri_fail(error, HR_ERROR_USAGE, "%s is not a regular file", lock->path);
    return FAILED;
  }
  while (flock(lock->fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      *other = read_fd(lock->fd, &empty);
      return HELD;
    }
    if (!no_such_locks(errno)) {
      (void)hri_fail_errno(error, errno, "lock", lock->path);
      return FAILED;
    }
    got = take_exclusive(lock, other, error);
    break;
  }
  if (got != TAKEN) return got;
  return path_leads_here(lock) ? sign(lock, error) : AGAIN;
}

static void pause_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  (void)nanosleep(&t, NULL);
}

static hr_status take(const char *path, const char *what, bool wait, bool (*goes_on)(void *, const hri_lock_owner *),
                      void *context, hri_lock **out, hr_error *error) {
  hri_lock *lock = hri_alloc_zero(1, sizeof *lock);
  hr_error own = {0};
  hri_lock_owner other = {0};
  outcome got = FAILED;
  bool left = false;
  int looks = 0;
  if (!lock) return hri_fail_memory(error, sizeof *lock, "a lock");
  lock->fd = -1;
  if (snprintf(lock->path, sizeof lock->path, "%s", path) >= PATH_BYTES - 16) {
    hri_free(lock);
    return hri_fail(error, HR_ERROR_USAGE, "the path %.200s is too long", path);
  }
  for (int attempt = 0; attempt < ATTEMPTS && !left;) {
    got = lock_once(lock, &other, &own);
    if (got == TAKEN || got == FAILED || (got == HELD && !wait && ++looks > LOOKS))
      break; /* who only looks (hri_lock_is_held) holds it for an instant */
    give_up(lock);
    if (got == AGAIN) attempt++;
    else {
      left = wait && goes_on && !goes_on(context, &other);
      if (!left) pause_ms(POLL_MS);
    }
  }
  if (got == TAKEN) {
    *out = lock;
    return HR_OK;
  }
  if (left) (void)hri_fail(&own, HR_ERROR_INTERRUPTED, "stopped while %s was in use by another process", what);
  else if (got == HELD) (void)refuse(lock, what, &other, &own);
  if (got == AGAIN) (void)hri_fail_errno(&own, ENOENT, "lock", path);
  give_up(lock);
  hri_free(lock);
  if (error) *error = own;
  return own.code;
}

hr_status hri_lock_take(const char *path, const char *what, hri_lock **lock, hr_error *error) {
  return take(path, what, false, NULL, NULL, lock, error);
}

hr_status hri_lock_wait(const char *path, const char *what, bool (*goes_on)(void *, const hri_lock_owner *),
                        void *context, hri_lock **lock, hr_error *error) {
  return take(path, what, true, goes_on, context, lock, error);
}

void hri_lock_release(hri_lock *lock, bool remove) {
  if (!lock) return;
  if (remove) (void)unlink(lock->path);
  give_up(lock);
  hri_free(lock);
}

const char *hri_lock_id(const hri_lock *lock) { return lock->id; }
bool hri_lock_is_new(const hri_lock *lock) { return lock->fresh; }
const char *hri_lock_how(const hri_lock *lock) { return lock->how[0] ? lock->how : NULL; }

bool hri_lock_is_held(const char *path, hri_lock_owner *owner) {
  char exclusive[PATH_BYTES];
  bool empty, held;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  held = flock(fd, LOCK_SH | LOCK_NB) != 0 && (errno == EWOULDBLOCK || no_such_locks(errno));
  if (held && errno != EWOULDBLOCK)
    held = snprintf(exclusive, sizeof exclusive, "%s.exclusive", path) < PATH_BYTES && hri_path_exists(exclusive);
  if (owner) *owner = read_fd(fd, &empty);
  (void)close(fd);
  return held;
}

hr_status hri_lock_refuse_held(const char *path, const char *what, hr_error *error) {
  hri_lock_owner other;
  return hri_lock_is_held(path, &other) ? in_use(path, what, &other, error) : HR_OK;
}
