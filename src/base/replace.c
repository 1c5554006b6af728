/* Atomic writes of small files: what grows in a scratch directory takes the name in one step. Apart from file.c,
 * because reading and plain writing need neither scratch directories nor processes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/scratch.h"

enum { MOST_PATH = 4096 };

/* What a kill left there goes first. The message names what was asked for, not only what is made on the way. */
static hr_status open_beside(const char *path, hri_scratch **scratch, hr_error *error) {
  char parent[MOST_PATH];
  hr_status status;
  hri_path_parent(path, parent);
  (void)hri_scratch_sweep(parent);
  status = hri_scratch_open(parent, false, scratch, error);
  return status == HR_ERROR_IO ? hri_context(error, status, "cannot write %.300s: ", path) : status;
}

hr_status hri_file_name_check(const char *path, bool *special, hr_error *error) {
  size_t length = strlen(path);
  struct stat there, itself;
  bool any = stat(path, &there) == 0, link = lstat(path, &itself) == 0 && S_ISLNK(itself.st_mode);
  *special = any && !S_ISREG(there.st_mode);
  if (length >= MOST_PATH) return hri_fail_errno(error, ENAMETOOLONG, "create", path);
  if (length == 0 || path[length - 1] == '/' || (any && S_ISDIR(there.st_mode)))
    return hri_fail(error, HR_ERROR_USAGE, "cannot write %s: it is not the name of a file", length ? path : "''");
  if (*special || !link) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "cannot write %s: it is a link, and neither it nor what it leads to is replaced",
           path);
  return hri_hint(error, HR_ERROR_USAGE, "name the file itself, or remove the link first");
}

hr_status hri_special_open(const char *path, int *fd, hr_error *error) {
  struct stat there;
  *fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (*fd < 0) return hri_fail_errno(error, errno, "open", path);
  if (fcntl(*fd, F_SETFL, 0) == 0 && fstat(*fd, &there) == 0 && !S_ISREG(there.st_mode)) return HR_OK;
  (void)close(*fd);
  *fd = -1;
  return hri_fail(error, HR_ERROR_IO, "cannot write %s: a file took the place of what was there", path);
}

/* Of a pipe nothing is opened: its reader would take the closing for the end. */
hr_status hri_file_can_replace(const char *path, hr_error *error) {
  hri_scratch *scratch;
  bool special;
  HRI_TRY(hri_file_name_check(path, &special, error));
  if (special) return access(path, W_OK) == 0 ? HR_OK : hri_fail_errno(error, errno, "write", path);
  HRI_TRY(open_beside(path, &scratch, error));
  hri_scratch_close(scratch);
  return HR_OK;
}

static hr_status write_special(const char *path, const void *bytes, uint64_t count, hr_error *error) {
  hr_status status;
  int fd;
  HRI_TRY(hri_special_open(path, &fd, error));
  status = hri_file_write_all(fd, path, bytes, count, error);
  if (close(fd) != 0 && status == HR_OK) return hri_fail_errno(error, errno, "write", path);
  return status;
}

hr_status hri_file_replace(const char *path, const void *bytes, uint64_t count, hr_error *error) {
  hri_scratch *scratch;
  hr_status status;
  bool special;
  HRI_TRY(hri_file_name_check(path, &special, error));
  if (special) return write_special(path, bytes, count, error);
  HRI_TRY(open_beside(path, &scratch, error));
  status = hri_scratch_replace(scratch, path, bytes, count, true, error);
  hri_scratch_close(scratch);
  return status;
}
