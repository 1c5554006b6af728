/* Jobs inside the library. */
#ifndef HRI_JOB_JOB_H
#define HRI_JOB_JOB_H

#include <headroom/job.h>

/* Tokens per loss chunk that a job uses, at most its rows; also for jobs that hr_job_finish has not seen. */
uint64_t hri_loss_chunk(const hr_job *job);

#endif
