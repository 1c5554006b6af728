/* Where a conversion writes: the target grows in a scratch directory beside its name and takes that at the end.
 *
 * What --force may remove of a directory is decided by names, and narrowly: the regular files that a Hugging Face model
 * directory has as transformers and Headroom write it (config.json, model.safetensors, model-00001-of-00002.safetensors
 * and so on, model.safetensors.index.json, and what convert/beside.h lists), in a directory that is empty or has a
 * config.json.
 * Anything else in it - other names, directories, links - is somebody's, and the conversion is refused. */
#ifndef HRI_CONVERT_TARGET_H
#define HRI_CONVERT_TARGET_H

#include "base/scratch.h"

typedef struct hri_target {
  const char *named; /* as the person wrote it; borrowed */
  bool directory;    /* a directory, else a file */
  bool replace;      /* what stands there gives way */
  char path[4096];   /* without slashes at the end */
  char parent[4096];
  char made[4096]; /* what grows; of a directory, there and empty */
  char kept
      [4096]; /* after publishing: where what stood at the target is kept after all, for what came to lie in it; or "" */
  hri_scratch *scratch;
  bool made_parent;   /* the parent was not there, ... */
  size_t above_bytes; /* ... but so much of its path */
} hri_target;

/* Whether it may be written, before anything is made. USAGE: the name, what stands there; IO. */
hr_status hri_target_init(hri_target *target, const char *path, bool directory, bool replace, hr_error *error);
/* Refuses (USAGE) to replace a directory in which a source lies, or which is it. */
hr_status hri_target_spares(const char *path, const char *source, hr_error *error);
/* Removes what killed conversions left in the parent directory, which is made where it is missing (of a directory), and
 * makes a place to grow. */
hr_status hri_target_begin(hri_target *target, hr_error *error);
/* Gives what grew its name, and makes that last; its files and their directory are synced. USAGE when something came to
 * stand there that may not be replaced: it still stands, then. */
hr_status hri_target_publish(hri_target *target, hr_error *error);
/* Puts the target's name before what failed (IO) while it was written, unless it stands there. */
hr_status hri_target_failed(const hri_target *target, hr_status status, hr_error *error);
/* Removes what is not published, and directories above it that were made for it and hold nothing else. Fine at any time
 * after init. */
void hri_target_end(hri_target *target);

#endif
