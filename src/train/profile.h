/* Times of the nodes of training steps: recorded while they run, summed up and written as a trace at the end.
 *
 * All memory of the recording is taken by hri_profile_create: 16 bytes for each node that a step runs (at most 512 KiB)
 * and about 50 KiB for the times by op of the last HRI_PROFILE_STEPS steps. The first step warms up and is left out,
 * unless it stays the only one. */
#ifndef HRI_TRAIN_PROFILE_H
#define HRI_TRAIN_PROFILE_H

#include <headroom/train.h>

#include "plan/plan.h"

typedef struct hri_profile hri_profile;

enum { HRI_PROFILE_STEPS = 64, HRI_PROFILE_EVENTS = 32768 };

/* The plan (of a training job) must outlive the profile. */
hr_status hri_profile_create(const hr_plan *plan, hri_profile **profile, hr_error *error);
void hri_profile_destroy(hri_profile *profile); /* NULL is fine */

/* Around each step; nodes outside of a step (evaluation, saving) are not recorded. */
void hri_profile_begin_step(hri_profile *profile);
void hri_profile_end_step(hri_profile *profile);
/* after_node of hri_executor_options, with the profile as its context. Allocates nothing. */
void hri_profile_node(void *context, const hri_job *job, hri_id node, double seconds);

/* Sums up what was recorded; the rows live as long as the profile. `out->steps` is 0 when no step ended. */
void hri_profile_get(hri_profile *profile, hr_profile *out);

/* Writes the last step in the JSON of Chrome's tracing ("Trace Event Format"), which Perfetto opens as well:
 * an event per node on the track of its lane, an event per layer and phase on the track "layers", a counter of the live
 * device bytes by role as the plan has them, and under "otherData" the profile of hri_profile_get. Atomic. */
hr_status hri_profile_write(hri_profile *profile, const char *path, hr_error *error);

#endif
