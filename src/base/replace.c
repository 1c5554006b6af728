/* Atomic writes of small files: what grows in a scratch directory takes the name in one step. Apart from file.c,
 * because reading and plain writing need neither scratch directories nor processes. */
#include <string.h>

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

hr_status hri_file_can_replace(const char *path, hr_error *error) {
  hri_scratch *scratch;
  size_t length = strlen(path);
  if (length >= MOST_PATH) return hri_fail(error, HR_ERROR_USAGE, "the path %.200s is too long", path);
  if (length == 0 || path[length - 1] == '/' || hri_path_is_dir(path))
    return hri_fail(error, HR_ERROR_USAGE, "cannot write %s: it is not the name of a file", length ? path : "''");
  HRI_TRY(open_beside(path, &scratch, error));
  hri_scratch_close(scratch);
  return HR_OK;
}

hr_status hri_file_replace(const char *path, const void *bytes, uint64_t count, hr_error *error) {
  hri_scratch *scratch;
  hr_status status;
  if (strlen(path) >= MOST_PATH) return hri_fail(error, HR_ERROR_USAGE, "the path %.200s is too long", path);
  HRI_TRY(open_beside(path, &scratch, error));
  status = hri_scratch_replace(scratch, path, bytes, count, true, error);
  hri_scratch_close(scratch);
  return status;
}
