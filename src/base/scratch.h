/* Scratch directories: where files and directories grow before they take their names, and where those that gave way go.
 *
 * A scratch directory is "PARENT/.headroom-XXXXXX", made new by this process, with a file "marker" in it that says so
 * and is locked (flock) while the process lives. All that is in it was put there by this program, so it may be removed
 * whole; and what a killed process left is told from other people's hidden files by the marker's text and its free
 * lock, never by its name alone.
 * Taking a name is a rename within the same file system: old or new, nothing between. */
#ifndef HRI_BASE_SCRATCH_H
#define HRI_BASE_SCRATCH_H

#include "base/mem.h"

typedef struct hri_scratch hri_scratch;

/* Makes one in an existing directory. `durable`: the marker is synced, for what may grow large. */
hr_status hri_scratch_open(const char *parent, bool durable, hri_scratch **scratch, hr_error *error);
/* Removes it with all that is left in it, also where its parent was moved meanwhile; NULL is fine. */
void hri_scratch_close(hri_scratch *scratch);
const char *hri_scratch_directory(const hri_scratch *scratch);
/* "SCRATCH/name" into a buffer of 4096 bytes; USAGE when too long. */
hr_status hri_scratch_path(const hri_scratch *scratch, const char *name, char path[4096], hr_error *error);

/* Writes a small file atomically: grows in the scratch, is synced, takes its name `path` (same file system) and the
 * directory of `path` is synced when `sync_parent`. */
hr_status hri_scratch_replace(hri_scratch *scratch, const char *path, const void *bytes, uint64_t count,
                              bool sync_parent, hr_error *error);

/* Moves `name` of the parent directory into the scratch, to the path `aside`. Whoever removes the scratch - this
 * process, or one that sweeps after a kill - puts it back first if nothing stands at its name by then. One at a time:
 * what was moved before is gone. */
hr_status hri_scratch_set_aside(hri_scratch *scratch, const char *name, char aside[4096], hr_error *error);
/* Gives the scratch up with all that is in it, which stays for good: it is nobody's scratch any more. */
void hri_scratch_abandon(hri_scratch *scratch);

/* Removes what killed processes left in `parent`: directories named so whose marker says so and is not locked. Returns
 * how many. */
uint32_t hri_scratch_sweep(const char *parent);
/* Whether `parent/name` is a scratch directory of ours, in use or left behind. */
bool hri_scratch_is(const char *parent, const char *name);
bool hri_scratch_is_named(const char *name); /* whether it is called as one: no proof of anything */

#endif
