/* Taking a name: what grew in a scratch directory moves to where it was made for, in one step, or not at all. */
#ifndef HRI_BASE_PUBLISH_H
#define HRI_BASE_PUBLISH_H

#include "base/scratch.h"

/* Moves the file or directory `made` to `path`, at which nothing stands, within one file system. USAGE ("PATH exists"),
 * also when something came to stand there a moment ago; IO. */
hr_status hri_publish_new(const char *made, const char *path, hr_error *error);
/* The file `made` takes the place of whatever file or link stands at `path`, if any. */
hr_status hri_publish_over(const char *made, const char *path, hr_error *error);
/* The directory `made`, in the scratch, takes the place of what stands at `path`, in the scratch's parent; that goes to
 * the path `old`, in the scratch, and with it unless it is moved on. Where the file system cannot exchange two names
 * there is a moment without the target: whoever removes the scratch ends it by putting the old one back. `old` is ""
 * when nothing stood there. */
hr_status hri_publish_exchange(hri_scratch *scratch, const char *made, const char *path, char old[4096],
                               hr_error *error);

/* Behind one of these, or a rename of one's own: makes the entry of `path` last, by a sync of the directory that holds it. What
 * fails says that the target is there, for whoever finds it after an error. */
hr_status hri_publish_settle(const char *path, hr_error *error);

/* Refuses with IO, naming both, when the file system of `directory` has less than `bytes` bytes free and says so. */
hr_status hri_publish_room(const char *directory, uint64_t bytes, hr_error *error);

/* For tests: as on file systems that only have rename. */
void hri_publish_plainly(bool plainly);

#endif
