/* The memory of a placed job as a snapshot (headroom/snapshot.h): each storage of the device tier is a block of the one
 * arena, with its role as category and its name, op, layer and phase as frames. From the plan alone, with predicted
 * times, or from what a run recorded. */
#ifndef HRI_PLAN_TIMELINE_H
#define HRI_PLAN_TIMELINE_H

#include "plan/plan.h"
#include "snapshot/build.h"

typedef struct hri_timeline {
  const hr_plan *plan;
  hri_snapshot_builder build;
  hri_id *births, *deaths; /* storages of the device tier by begin and by end of their lives */
  uint32_t count;
  uint32_t *stacks;     /* per storage; UINT32_MAX: not made yet */
  uint16_t *categories; /* per role */
  bool *alive;          /* per storage */
  uint64_t base;        /* address of the arena */
  bool repeats;         /* a run: what the load program made stays to the end */
} hri_timeline;

/* `base` is the arena's address; 0 takes one that no process has. The plan must outlive the timeline. */
hr_status hri_timeline_begin(hri_timeline *timeline, const hr_plan *plan, uint64_t base, bool repeats, int64_t time_us,
                             hr_error *error);
/* One run of a program: storages are born and die at their ticks. `time_of` gives the time after the index-th node of
 * the program's issue order. */
bool hri_timeline_program(hri_timeline *timeline, hri_program_kind kind,
                          int64_t (*time_of)(void *context, uint32_t index), void *context);
bool hri_timeline_mark(hri_timeline *timeline, const char *name, bool end, int64_t time_us);
hr_status hri_timeline_end(hri_timeline *timeline, hr_snapshot **snapshot, hr_error *error); /* also after a failure */
void hri_timeline_deinit(hri_timeline *timeline);

#endif
