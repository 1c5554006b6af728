/* Jobs inside the library. */
#ifndef HRI_JOB_JOB_H
#define HRI_JOB_JOB_H

#include <headroom/job.h>

/* The fewest rows of a micro-step whose loss is cut into chunks by itself, so that they may need less than fewer rows; 0
 * where the chunk was given. */
uint64_t hri_job_cut_rows(const hr_job *job);

/* Tokens per loss chunk that a job uses, at most its rows; also for jobs that hr_job_finish has not seen. */
uint64_t hri_loss_chunk(const hr_job *job);

/* Tokens that an optimizer step, a batch of an evaluation, or a pass of generation is for: times are compared by
 * them. */
uint64_t hri_job_tokens(const hr_job *job);

/* Whether a step whose gradients are not finite is skipped; else the run ends with it. */
bool hri_job_skips(const hr_job *job);

/* USAGE for a job that neither hr_job_finish nor hri_job_finish_graph accepted: what a plan divides by may be 0 in it. */
hr_status hri_job_finished(const hr_job *job, hr_error *error);

/* What hr_job_finish does for a job whose programs a caller built op by op, so that there is no model to check: ranges
 * of all fields, the device of which only the name is there, threads, budget, every from sqrt (of model.layer_count
 * layers). */
hr_status hri_job_finish_graph(hr_job *job, hr_error *error);

#endif
