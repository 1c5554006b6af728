/* A model of a disk that keeps only what it must: it replays the log of a run (shim.h) and makes the trees that could
 * be found when the power goes out behind any event of it.
 *
 * What it promises is what POSIX promises and no more:
 *   - fsync of a file keeps its data and size; what was written since may be there, or not, page by page;
 *   - fsync of a directory keeps the names in it; a file's own fsync does not keep its name;
 *   - making, renaming, exchanging and removing a name is one step: all of it is found, or none;
 *   - changes of names that were not synced may be found or not, in any order that is possible: a change is found only
 *     with the earlier ones that it builds upon (the same name in the same directory). */
#ifndef HRI_TORTURE_DISK_H
#define HRI_TORTURE_DISK_H

#include "torture/files.h"

typedef struct disk disk;

/* Ways of losing. NOTHING: of what was not synced, nothing is kept. NAMES: all names, but no data (a file is then
 * empty). ALL: all is kept, the last write is torn. ORDERED: names up to a random moment, no data (a journal). RANDOM:
 * names and pages at random. */
typedef enum loss { LOSS_NOTHING, LOSS_NAMES, LOSS_ALL, LOSS_ORDERED, LOSS_RANDOM, LOSS_COUNT } loss;
extern const char *const loss_names[LOSS_COUNT];

/* How many events a log has; the text of what was said up to the event `until` (free). */
size_t log_count(const bytes *log);
char *log_said(const bytes *log, size_t until);
/* Whether an event changes anything (others make no new state). */
bool log_changes(const bytes *log, size_t event);

/* The disk after the first `until` events upon the tree at `start`. */
disk *disk_replay(const bytes *log, size_t until, const char *start);
void disk_free(disk *d);
/* Writes the tree as it could be found into `root`, an empty directory. The disk is spent. */
void disk_lose(disk *d, loss how, uint64_t random, const char *root);
/* Writes the tree as the running system saw it: for comparing with what the run left. */
void disk_see(const disk *d, const char *root);

#endif
