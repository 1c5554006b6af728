/* Learning-rate schedules with transformers' meaning (optimization.py): step s counts from 0, warm-up w steps, T steps
 * in all; the factor of a warm-up step is s / w, so that the first update has rate 0 when w > 0. */
#ifndef HRI_TRAIN_SCHEDULE_H
#define HRI_TRAIN_SCHEDULE_H

#include <headroom/job.h>

/* Factor on the learning rate at step `step` (0-based) of `steps`. Warm-up and decay below 1 are shares of `steps`. */
double hri_schedule_factor(const hr_job *job, uint64_t step, uint64_t steps);

#endif
