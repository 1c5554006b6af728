/* A team of threads that share the work of one loop at a time, for kernels and loaders.
 *
 * A loop over [0, count) is dealt out in chunks. Each thread takes chunks of its own share first (so that it meets the
 * same rows again in the next loop) and then what others have left; a thread that the system does not let run holds
 * up no more than the one chunk in its hands, and none at all when it had not begun. Nobody may rely on which thread
 * does what: a result must not depend on it, and there is no barrier inside a loop - what needs all of the loop before
 * is the next loop.
 *
 * Threads wait for work by looking for it for a bounded time (HRI_TEAM_SPIN_NS) and then sleep in the kernel, so a team
 * costs nothing while its owner does other things, and little on a machine whose cores are wanted by others too. No
 * OpenMP and no setting of the process is involved: a host program's own threads, settings and signal handlers stay
 * what they are. After a fork the child's copy of a team does all loops in the calling thread, unless it is started there
 * first: then its threads are the child's own.
 *
 * The work runs in the calling thread alone, as thread 0, when the team is NULL or has not been started, when its loop
 * is a single chunk, and when the team is busy - a loop inside a loop, or one of another thread of the host. */
#ifndef HRI_TEAM_TEAM_H
#define HRI_TEAM_TEAM_H

#include <stdint.h>

#include "base/error.h"

typedef struct hri_team hri_team;

/* Does the items [begin, end). `thread` < hri_team_threads(team); no two that run at once have the same, except in
 * loops of several callers that run alone (see above), whose scratch is the callers' own. */
typedef void hri_team_body(void *context, int64_t begin, int64_t end, int thread);

enum {
  HRI_TEAM_STACK_BYTES = 1 << 20, /* of each thread; the most that kernels were seen to use is 16 KiB */
  HRI_TEAM_SPIN_NS = 50000
};

/* A team of `threads` (>= 1; the caller of a loop is one of them) that has no threads yet. MEMORY. */
hr_status hri_team_create(uint32_t threads, hri_team **team, hr_error *error);
/* Starts its threads; nothing happens when they run. BUDGET when the system refuses one; then none runs. Their signals
 * are all blocked. */
hr_status hri_team_start(hri_team *team, hr_error *error);
/* Ends its threads. NULL is fine; no loop may be running. */
void hri_team_destroy(hri_team *team);

/* As created, whether it was started or not; 1 for NULL. */
int hri_team_threads(const hri_team *team);
/* Address space and private memory that starting it will take; 0 when it runs. */
uint64_t hri_team_start_bytes(const hri_team *team);

/* Runs `body` over [0, count) in chunks of at least `grain` items (>= 1; the last may be smaller) and returns when all
 * is done. What the caller wrote before is seen by the bodies, and what they wrote by the caller. */
void hri_team_each(hri_team *team, int64_t count, int64_t grain, hri_team_body *body, void *context);

/* The same, one item at a time and in order: when `body` is called for an item, it has been called for all before it.
 * For items of uneven work, and for such that wait for earlier ones - which are done or in hand, never to come. */
void hri_team_in_order(hri_team *team, int64_t count, hri_team_body *body, void *context);

#endif
