/* ptrace with PTRACE_SYSCALL: at the entry of each system call of each thread, its arguments are looked up in a table
 * that says which of them are paths and descriptors, and those are resolved through /proc. Slow, but a run has few
 * thousand calls. */
#include "torture/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a call names files: by descriptors in arguments (F), paths (P), directory and path (A: two arguments). */
typedef struct call {
  long number;
  const char *name, *how; /* a letter per argument; '-' for one that names nothing */
  int kind; /* shim_kind; UNKNOWN: must not be made on the tree; HARMLESS: reads attributes, changes nothing */
} call;

enum { UNKNOWN = -1, HARMLESS = -2 };

#define ROW(name, how, kind) {SYS_##name, #name, how, kind}
static const call calls[] = {
    ROW(write, "F", SHIM_write),
    ROW(pwrite64, "F", SHIM_pwrite),
    ROW(writev, "F", SHIM_writev),
    ROW(pwritev, "F", SHIM_pwritev),
    ROW(read, "F", SHIM_read),
    ROW(pread64, "F", SHIM_pread),
    ROW(readv, "F", SHIM_readv),
    ROW(preadv, "F", SHIM_preadv),
    ROW(openat, "A", SHIM_open),
    ROW(close, "F", SHIM_close),
    ROW(fsync, "F", SHIM_fsync),
    ROW(fdatasync, "F", SHIM_fdatasync),
    ROW(sync_file_range, "F", SHIM_sync_file_range),
    ROW(fallocate, "F", SHIM_fallocate),
    ROW(ftruncate, "F", SHIM_ftruncate),
    ROW(truncate, "P", SHIM_truncate),
    ROW(renameat2, "A-A-", SHIM_rename),
    ROW(linkat, "A-A-", SHIM_link),
    ROW(symlinkat, "-A", SHIM_symlink),
    ROW(unlinkat, "A", SHIM_unlink),
    ROW(mkdirat, "A", SHIM_mkdir),
    ROW(flock, "F", SHIM_flock),
    ROW(dup, "F", SHIM_dup),
    ROW(fcntl, "F", SHIM_dup),
    ROW(mmap, "----F", SHIM_mmap),
    ROW(copy_file_range, "--F", SHIM_copy_file_range),
    ROW(sendfile, "F", SHIM_sendfile),
    ROW(getdents64, "F", SHIM_readdir),
    ROW(newfstatat, "A", SHIM_stat),
    ROW(fstat, "F", SHIM_stat),
    ROW(statx, "A", SHIM_stat),
    ROW(faccessat, "A", SHIM_stat),
    ROW(readlinkat, "A", SHIM_readlink),
#ifdef SYS_faccessat2
    ROW(faccessat2, "A", SHIM_stat),
#endif
#ifdef SYS_renameat
    ROW(renameat, "A-A-", SHIM_rename),
#endif
#ifdef SYS_dup2
    ROW(dup2, "F", UNKNOWN),
#endif
#ifdef SYS_open /* the old calls, which newer architectures do not have */
    ROW(open, "P", SHIM_open),
    ROW(creat, "P", SHIM_open),
    ROW(rename, "PP", SHIM_rename),
    ROW(link, "PP", SHIM_link),
    ROW(symlink, "-P", SHIM_symlink),
    ROW(unlink, "P", SHIM_unlink),
    ROW(rmdir, "P", SHIM_rmdir),
    ROW(mkdir, "P", SHIM_mkdir),
    ROW(stat, "P", SHIM_stat),
    ROW(lstat, "P", SHIM_stat),
    ROW(access, "P", SHIM_stat),
    ROW(readlink, "P", SHIM_readlink),
    ROW(getdents, "F", SHIM_readdir),
    ROW(chmod, "P", UNKNOWN),
    ROW(chown, "P", UNKNOWN),
    ROW(lchown, "P", UNKNOWN),
    ROW(mknod, "P", UNKNOWN),
    ROW(utimes, "P", UNKNOWN),
#endif
    ROW(lseek, "F", HARMLESS),
    ROW(statfs, "P", HARMLESS),
    ROW(fstatfs, "F", HARMLESS),
    ROW(chdir, "P", HARMLESS),
    ROW(fadvise64, "F", HARMLESS),
    ROW(readahead, "F", HARMLESS),
    ROW(getxattr, "P", HARMLESS),
    ROW(preadv2, "F", UNKNOWN),
    ROW(pwritev2, "F", UNKNOWN),
    ROW(splice, "F-F", UNKNOWN),
    ROW(vmsplice, "F", UNKNOWN),
    ROW(tee, "FF", UNKNOWN),
    ROW(syncfs, "F", UNKNOWN),
    ROW(ioctl, "F", UNKNOWN),
    ROW(dup3, "F", UNKNOWN),
    ROW(fchmod, "F", UNKNOWN),
    ROW(fchmodat, "A", UNKNOWN),
    ROW(fchown, "F", UNKNOWN),
    ROW(fchownat, "A", UNKNOWN),
    ROW(utimensat, "A", UNKNOWN),
    ROW(setxattr, "P", UNKNOWN),
    ROW(fsetxattr, "F", UNKNOWN),
    ROW(removexattr, "P", UNKNOWN),
    ROW(mknodat, "A", UNKNOWN),
    ROW(execve, "P", UNKNOWN),
    ROW(name_to_handle_at, "A", UNKNOWN),
    ROW(io_uring_enter, "F", UNKNOWN),
#ifdef SYS_openat2
    ROW(openat2, "A", UNKNOWN),
#endif
};

shim_kind trace_kind(shim_kind kind) {
#define SHIM_NAME(name, kernel) SHIM_##kernel,
  static const shim_kind seen_as[SHIM_KIND_COUNT] = {SHIM_KINDS(SHIM_NAME)};
#undef SHIM_NAME
  return seen_as[kind];
}

bool trace_is_loose(shim_kind kind) { return kind == SHIM_stat || kind == SHIM_readdir || kind == SHIM_readlink; }

/* ---- what an argument names ---- */

static bool is_in(const char *path, const char *tree) {
  size_t length = strlen(tree);
  return strncmp(path, tree, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static bool link_in(pid_t thread, const char *what, int fd, const char *tree, char path[PATH_MAX]) {
  char link[64];
  ssize_t length;
  if (what) (void)snprintf(link, sizeof link, "/proc/%d/%s", thread, what);
  else (void)snprintf(link, sizeof link, "/proc/%d/fd/%d", thread, fd);
  length = readlink(link, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = 0;
  return is_in(path, tree);
}

static bool fetch_text(pid_t thread, uint64_t address, char out[PATH_MAX]) {
  size_t used = 0;
  while (used < PATH_MAX - 1) { /* page by page: the text may end before a page that is not there */
    size_t want = 4096 - (address + used) % 4096;
    struct iovec here = {out + used, want < PATH_MAX - 1 - used ? want : PATH_MAX - 1 - used},
                 there = {(void *)(uintptr_t)(address + used), here.iov_len};
    ssize_t got = process_vm_readv(thread, &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    used += (size_t)got;
    if (memchr(here.iov_base, 0, (size_t)got)) return true;
  }
  return false;
}

/* Whether a path lies in the tree; the empty one stands for its directory. Links on the way are followed as far as they
 * exist. */
static bool path_in(pid_t thread, int directory, uint64_t address, const char *tree) {
  char text[PATH_MAX], full[2 * PATH_MAX], real[PATH_MAX], *slash;
  if (!fetch_text(thread, address, text)) return false;
  if (text[0] == '/') {
    (void)strcpy(full, text);
  } else {
    bool there = link_in(thread, directory == AT_FDCWD ? "cwd" : NULL, directory, tree, full);
    if (!text[0]) return there;
    (void)snprintf(full + strlen(full), sizeof full - strlen(full), "/%s", text);
  }
  if (is_in(full, tree)) return true;
  slash = strrchr(full, '/'); /* /../ or a link from outside */
  if (!slash || slash == full) return false;
  *slash = 0;
  return realpath(full, real) && is_in(real, tree);
}

static bool names_tree(pid_t thread, const call *c, const uint64_t *arguments, const char *tree) {
  char path[PATH_MAX];
  for (size_t k = 0; c->how[k]; k++) {
    bool found = false;
    switch (c->how[k]) {
    case 'F': found = link_in(thread, NULL, (int)arguments[k], tree, path); break;
    case 'P': found = path_in(thread, AT_FDCWD, arguments[k], tree); break;
    case 'A': found = path_in(thread, (int)arguments[k], arguments[k + 1], tree); break;
    default: break;
    }
    if (found) return true;
  }
  return false;
}

/* ---- following the child ---- */

static void count(trace *t, pid_t thread, const struct __ptrace_syscall_info *info, const char *tree) {
  for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
    const call *c = &calls[k];
    if ((uint64_t)c->number != info->entry.nr) continue;
    if (c->number == SYS_fcntl && info->entry.args[1] != F_DUPFD && info->entry.args[1] != F_DUPFD_CLOEXEC) return;
    if (c->kind == HARMLESS || !names_tree(thread, c, (const uint64_t *)info->entry.args, tree)) return;
    if (c->kind == UNKNOWN) {
      size_t used = strlen(t->unknown_names);
      t->unknown++;
      if (!strstr(t->unknown_names, c->name))
        (void)snprintf(t->unknown_names + used, sizeof t->unknown_names - used, " %s", c->name);
    } else {
      bool directory = c->kind == SHIM_unlink && c->number == SYS_unlinkat && (info->entry.args[2] & AT_REMOVEDIR);
      t->calls[directory ? SHIM_rmdir : c->kind]++;
    }
    return;
  }
}

static void follow(trace *t, pid_t child, const char *tree) {
  for (;;) {
    int status, passed = 0;
    struct __ptrace_syscall_info info;
    pid_t thread = waitpid(-1, &status, __WALL);
    if (thread < 0 && errno == EINTR) continue;
    if (thread < 0) return;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread != child) continue;
      t->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return;
    }
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY)
        count(t, thread, &info, tree);
    } else if (WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != SIGTRAP) {
      passed = WSTOPSIG(status);
    }
    (void)ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(intptr_t)passed);
  }
}

static void start(const char *const *words, char *const *environment, const char *out, const char *err) {
  int to = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600),
      talk = open(err, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (to < 0 || talk < 0 || dup2(to, 1) < 0 || dup2(talk, 2) < 0) _exit(126);
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
  (void)raise(SIGSTOP);
  (void)execve(words[0], (char *const *)(uintptr_t)words, environment);
  _exit(126);
}

trace trace_run(const char *const *words, char *const *environment, const char *tree, const char *out,
                const char *err) {
  trace t = {.possible = true};
  const long options =
      PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
  int status;
  pid_t child;
  (void)fflush(NULL);
  child = fork();
  if (child == 0) start(words, environment, out, err);
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
      ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options) != 0) {
    t.possible = false;
    return t;
  }
  (void)ptrace(PTRACE_SYSCALL, child, NULL, NULL);
  follow(&t, child, tree);
  return t;
}
