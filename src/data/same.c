/* Whether two data sets have a file in common, by name, by link or as a copy. What a training learned it answers by heart,
 * so that a loss on it says little; that is worth a warning and no more, so a large file is looked at in places. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/source.h"

enum { BLOCK = 64 * 1024, LOOKS = 1024 }; /* of a file above 64 MiB, so many blocks evenly over it */

static hr_status same_block(const int fd[2], char *const block[2], uint64_t at, uint64_t bytes, bool *same) {
  for (int k = 0; k < 2; k++) HRI_TRY(hri_file_pread(fd[k], "", block[k], bytes, at, NULL));
  *same = memcmp(block[0], block[1], bytes) == 0;
  return HR_OK;
}

static bool same_bytes(const int fd[2], uint64_t bytes) {
  char *const block[2] = {hri_alloc(BLOCK), hri_alloc(BLOCK)};
  const uint64_t last = bytes > BLOCK ? bytes - BLOCK : 0, stride = last / LOOKS > BLOCK ? last / LOOKS : BLOCK;
  bool same = block[0] && block[1];
  for (uint64_t at = 0; same && at < last; at += stride)
    if (same_block(fd, block, at, BLOCK, &same) != HR_OK) same = false;
  if (same && same_block(fd, block, last, bytes - last, &same) != HR_OK) same = false;
  hri_free(block[0]);
  hri_free(block[1]);
  return same;
}

/* What cannot be opened any more is no file that two have. */
static bool same_file(const char *a, const char *b) {
  struct stat info[2];
  int fd[2] = {-1, -1};
  hri_file_stamp stamp;
  bool same = hri_stamp_open(a, &fd[0], &stamp, NULL) == HR_OK && hri_stamp_open(b, &fd[1], &stamp, NULL) == HR_OK &&
              fstat(fd[0], &info[0]) == 0 && fstat(fd[1], &info[1]) == 0;
  if (same && (info[0].st_dev != info[1].st_dev || info[0].st_ino != info[1].st_ino))
    same = info[0].st_size == info[1].st_size && same_bytes(fd, (uint64_t)info[0].st_size);
  for (int k = 0; k < 2; k++)
    if (fd[k] >= 0) close(fd[k]);
  return same;
}

bool hri_dataset_shares(const hri_dataset *a, const hri_dataset *b, const char **path_of_a, const char **path_of_b) {
  for (uint32_t i = 0; i < a->source_count; i++)
    for (uint32_t k = 0; k < b->source_count; k++) {
      const hri_data_source *x = &a->sources[i], *y = &b->sources[k];
      if (x->stamp.bytes == 0 || x->stamp.bytes != y->stamp.bytes || !same_file(x->path, y->path)) continue;
      *path_of_a = x->path;
      *path_of_b = y->path;
      return true;
    }
  return false;
}
