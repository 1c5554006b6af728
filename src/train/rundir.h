/* The run directory: run.json, metrics.jsonl, checkpoints, final model. Everything appears whole or not at all: files and
 * directories are written under a temporary name, synced and renamed. */
#ifndef HRI_TRAIN_RUNDIR_H
#define HRI_TRAIN_RUNDIR_H

#include "train/session.h"

typedef struct hri_progress { /* what a checkpoint remembers besides tensors */
  uint64_t step, steps, tokens_total;
  int64_t applied_steps;
  uint64_t data_hash, rows_seen;
  uint64_t broken_rows;   /* of the training data, passed over: in run.json, not in a checkpoint */
  double best_eval_loss, last_loss;
} hri_progress;

/* Creates a fresh run directory; USAGE when it already holds a run. Proves that it is writable. */
hr_status hri_rundir_create(const char *directory, hr_error *error);

/* Takes back what create made when the run could not start; anything else in the directory stays. */
void hri_rundir_discard(const char *directory);

/* run.json: the job with every final value, the plan, machine and versions; `result` (NULL while running) adds plan
 * against run. */
hr_status hri_rundir_write_run(const char *directory, const hri_session *session, const hri_progress *progress, const char *state, const hr_run_result *result, hr_error *error);

hr_status hri_rundir_append_metrics(const char *directory, const hr_metrics *metrics, bool evaluation, hr_error *error);
/* Drops metrics of steps past `step` (what a killed run wrote after its last checkpoint). */
hr_status hri_rundir_trim_metrics(const char *directory, uint64_t step, hr_error *error);

/* Writes checkpoints/step-N, points `last` (and `best`) at it, removes what `keep` does not hold. path: at least 4096. */
hr_status hri_rundir_checkpoint(const char *directory, hri_session *session, const hri_progress *progress, bool best, uint32_t keep, char *path, hr_error *error);
/* The newest complete checkpoint; INPUT when there is none. Reads its progress and checks that it belongs to this job. */
hr_status hri_rundir_resume(const char *directory, const hr_job *job, char *path, hri_progress *progress, hr_error *error);

/* Writes RUN/final. */
hr_status hri_rundir_final(const char *directory, hri_session *session, const char *save_dtype, char *path, hr_error *error);

#endif
