/* run.json: what a run was asked for, on what machine, how it stands and how it ended. Schema 2; written at the start,
 * when the final model is about to appear, and at the end, always whole and under the lock.
 *
 *   schema_version, run_id, state (running, finished, interrupted, diverged, failed), message
 *   model (name), step, steps, broken_rows, job {...}, plan {...}, machine {...}, versions {...}, result {...}
 *   options {name: text or list}   what --resume takes over;   absolute {name: path or list}
 *   identity {...}                 what decides the result (train/identity.h)
 *   changes [{from_step, machine | allowed}]  where bits may differ, and what was allowed to
 *   final {files: [...]}           RUN/final with its digests
 *   run_digest                     of all bytes before it */
#ifndef HRI_TRAIN_RUNFILE_H
#define HRI_TRAIN_RUNFILE_H

#include <headroom/run.h>

#include "train/identity.h"
#include "train/rundir.h"

#define HRI_RUN_SEAL "run_digest"
enum { HRI_RUN_FILE_BYTES = 16 << 20, HRI_RUN_SCHEMA = 2 };

/* `result` (NULL until the end) adds plan against run. */
hr_status hri_run_write(hri_rundir *run, const hri_progress *progress, const char *state, const hr_run_result *result,
                        hr_error *error);
/* What of an earlier run.json stays: the list of final files, and changes. A run.json that cannot be read is INPUT. */
hr_status hri_run_take_over(hri_rundir *run, hr_error *error);
/* The run goes on from the checkpoint of `step`: what changed behind it is of steps that are set aside, and what did right there is
 * of attempts that left no checkpoint, or whose checkpoints are set aside. What this one differs in is all compared anew. */
void hri_run_changes_cut(hri_rundir *run, uint64_t step);
/* Records that the run goes on differently from here: `kind` is "machine" or "allowed". */
void hri_run_changed(hri_rundir *run, uint64_t from_step, const char *kind, const char *text);
/* What an earlier attempt to go on from the checkpoint of `step` was allowed; nothing where run.json cannot be read, which
 * hri_run_take_over tells. The caller releases it. */
void hri_run_settled(const hri_rundir *run, uint64_t step, hri_settled *settled);
void hri_settled_deinit(hri_settled *settled);
/* That a run without a checkpoint was begun with this identity: USAGE when it was not. */
hr_status hri_run_same(hri_rundir *run, hr_error *error);
hr_status hri_run_ended(const char *directory, bool *ended, hr_error *error); /* its run.json says finished */

#endif
