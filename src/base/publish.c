/* renameat2 can refuse to replace, and can exchange; not every file system has it (NFS, some of FUSE's, old kernels).
 * What stands in for it there never replaces a file that is not to be replaced, but for the instant between looking and renaming on a
 * file system that has no hard links either; an empty directory may give way, which loses nothing. */
#include "base/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

static _Atomic bool plain_only;

void hri_publish_plainly(bool plainly) { plain_only = plainly; }

/* 0 or errno; EINVAL: there is no such rename here. */
static int rename_with(unsigned flags, const char *from, const char *to) {
  if (plain_only) return EINVAL;
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) == 0) return 0;
  return errno == ENOSYS ? EINVAL : errno;
}

static bool stands(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0;
}

/* A directory never takes the place of a file, nor of a directory that holds something. */
static int move_directory(const char *made, const char *path) {
  if (stands(path)) return EEXIST;
  if (rename(made, path) == 0) return 0;
  return errno == ENOTEMPTY || errno == ENOTDIR ? EEXIST : errno;
}

static int move_file(const char *made, const char *path) {
  if (link(made, path) == 0) {
    (void)unlink(made); /* the scratch goes, and this name with it */
    return 0;
  }
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK) return errno;
  if (stands(path)) return EEXIST;
  return rename(made, path) == 0 ? 0 : errno;
}

hr_status hri_publish_new(const char *made, const char *path, hr_error *error) {
  int failed = rename_with(RENAME_NOREPLACE, made, path);
  hr_status status;
  if (failed == EINVAL) failed = hri_path_is_dir(made) ? move_directory(made, path) : move_file(made, path);
  if (failed == 0) return HR_OK;
  if (failed != EEXIST) return hri_fail_errno(error, failed, "rename to", path);
  status = hri_fail(error, HR_ERROR_USAGE, "%s exists", path);
  return hri_hint(error, status, "it was made a moment ago: name another target");
}

hr_status hri_publish_over(const char *made, const char *path, hr_error *error) {
  return rename(made, path) == 0 ? HR_OK : hri_fail_errno(error, errno, "rename to", path);
}

hr_status hri_publish_settle(const char *path, hr_error *error) {
  char parent[4096];
  hr_status status;
  hri_path_parent(path, parent);
  status = hri_dir_sync(parent, error);
  if (status == HR_OK) return status;
  return hri_context(error, status, "%s was put in its place whole, which a power cut may undo: ", path);
}

hr_status hri_publish_exchange(hri_scratch *scratch, const char *made, const char *path, char old[4096],
                               hr_error *error) {
  const char *slash = strrchr(path, '/');
  int failed = rename_with(RENAME_EXCHANGE, made, path);
  old[0] = 0;
  if (failed == ENOENT || !stands(path)) return hri_publish_new(made, path, error);
  if (failed == 0) {
    (void)snprintf(old, 4096, "%s", made);
    return HR_OK;
  }
  if (failed != EINVAL) {
    hr_status status = hri_fail_errno(error, failed, "exchange with", path);
    return failed == EXDEV ? hri_hint(error, status,
                                      "this file system cannot move that directory: remove it, or name another target")
                           : status;
  }
  HRI_TRY(hri_scratch_set_aside(scratch, slash ? slash + 1 : path, old, error));
  return hri_publish_new(made, path, error);
}

hr_status hri_publish_room(const char *directory, uint64_t bytes, hr_error *error) {
  struct statvfs fs;
  uint64_t room;
  char need[32], has[32];
  hr_status status;
  if (statvfs(directory, &fs) != 0 || fs.f_blocks == 0)
    return HR_OK; /* not known: some file systems have no such figure */
  if (!hri_mul(geteuid() == 0 ? fs.f_bfree : fs.f_bavail, fs.f_frsize, &room) || bytes <= room) return HR_OK;
  status = hri_fail(error, HR_ERROR_IO, "%s is needed in %s, where %s is free", hri_size_text(bytes, need), directory,
                    hri_size_text(room, has));
  return hri_hint(error, status, "free some disk space or name another directory");
}
