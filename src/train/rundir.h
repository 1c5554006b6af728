/* The run directory (docs/run-directory.md): who may write it, what is in it, and that it appears whole or not at all.
 *
 *   lock           RUN/lock, held from before anything is made until the end; readers take none
 *   run.json       train/runfile.h
 *   metrics.jsonl  one line per step; a checkpoint remembers its length and digest
 *   checkpoints/   train/checkpoint.h
 *   final/         grows in a scratch directory (base/scratch.h) and takes its name in one step
 *
 * Nothing is removed but what this run is known to have made: files that this process made when it gives up, entries of
 * manifests and of run.json, scratch directories. What is in the way and is not known is moved aside and said. */
#ifndef HRI_TRAIN_RUNDIR_H
#define HRI_TRAIN_RUNDIR_H

#include "base/lock.h"
#include "base/scratch.h"
#include "formats/digest.h"
#include "train/identity.h"
#include "train/session.h"

typedef struct hri_progress { /* what a checkpoint remembers besides tensors */
  uint64_t step, steps, tokens_total;
  int64_t applied_steps;
  uint64_t data_hash, rows_seen;
  uint64_t skipped_steps; /* steps whose gradients were not finite (--on-nonfinite skip, fp16) */
  uint32_t skipped_in_row;
  double loss_scale;      /* of the next step; 1 where the precision has none */
  int64_t growth_tracker; /* steps since it changed, or since an overflow */
  uint64_t broken_rows;   /* of the training data, passed over: in run.json, not in a checkpoint */
  double best_eval_loss, last_loss;
  double eval_loss;    /* of this very step; NaN: it was not evaluated */
  bool evaluation_due; /* behind this very step: it was stopped, or failed */
} hri_progress;

typedef struct hri_rundir {
  char directory[4096];
  hri_lock *lock;
  hri_scratch *scratch, *checkpoint_scratch; /* of RUN and RUN/checkpoints */
  const hri_session *session;                /* for notes */
  const hr_job *job;
  const hr_run_options *options;
  hri_identity_facts facts;
  bool fresh, made_directory; /* this process began the run; and made its directory */
  size_t above_bytes;         /* of the path of what was there before that */
  bool written;               /* run.json says that this is a run */
  int metrics_fd;
  uint64_t metrics_bytes;   /* written */
  hri_text metrics_waiting; /* for room on the disk, to be written behind those */
  hri_file_digest *metrics_digest;
  hri_text metrics_kept; /* what metrics.jsonl is made of anew, where its digest does not hold */
  bool metrics_anew, metrics_differ;
  hri_file_list final_files;              /* RUN/final as this process writes it */
  hri_file_list final_before, final_next; /* as run.json had it, and as it was about to become */
  bool published;                         /* final_files stand at RUN/final */
  hri_text changes;                       /* JSON: members of "changes", with commas between them */
  char line[2048];                        /* of metrics.jsonl, the last that was appended: 20 figures at most */
  char ended[768];                        /* the message of a failure */
  bool told_kept, told_unlocked, told_full, told_metrics, told_unlinked;
  char best[64]; /* the checkpoint with the least evaluation loss, where this process knows it; else "" */
  bool lost;     /* another process took the directory over: nothing more is written */
} hri_rundir;

/* ---- beginning and ending ---- */

/* For a fresh start: refuses (USAGE) a directory that holds something else, or a run that has a checkpoint or ended
 * well. Changes nothing. */
hr_status hri_rundir_look(const char *directory, hr_error *error);
/* Makes the directory, takes the lock, looks again, and sweeps what killed processes left. `run` is filled; on failure
 * all that was made is taken back. A run without a checkpoint is begun again: USAGE when its identity is another
 * one. */
hr_status hri_rundir_begin(hri_rundir *run, const char *directory, const hri_session *session, const hr_job *job,
                           const hr_run_options *options, const hri_identity_facts *facts, hr_error *error);
/* The lock of a run that goes on. USAGE when there is no run, or another process has it. */
hr_status hri_rundir_resume(hri_rundir *run, const char *directory, const hri_session *session, const hr_job *job,
                            const hr_run_options *options, hr_error *error);
/* Makes checkpoints/ and its scratch directory: behind run.json, so that a directory which holds anything of ours says
 * whose it is. */
hr_status hri_rundir_make_room(hri_rundir *run, hr_error *error);
/* Takes back what a fresh start made, when it could not go on; what is not ours stays. */
void hri_rundir_discard(hri_rundir *run);
void hri_rundir_close(hri_rundir *run); /* gives the lock back; a zeroed one is fine */

/* Free bytes of the file system against what the run will write; said, and BUDGET when it is less. */
hr_status hri_rundir_disk_check(const hri_session *session, const char *directory, const hr_run_options *options,
                                uint64_t steps, uint64_t done, hr_error *error);

/* ---- metrics ---- */

/* Begins metrics.jsonl anew. */
hr_status hri_metrics_begin(hri_rundir *run, hr_error *error);
/* Goes on behind its first `bytes` bytes, which must have the digest: INPUT when they do not. Changes nothing yet. */
hr_status hri_metrics_resume(hri_rundir *run, uint64_t bytes, uint64_t digest, hr_error *error);
/* The same where a checkpoint does not say (schema 1), or where they may differ: behind the whole lines of steps up to
 * `step`. */
hr_status hri_metrics_trim(hri_rundir *run, uint64_t step, hr_error *error);
/* Drops what stands behind, when it is sure that the run goes on. */
hr_status hri_metrics_cut(hri_rundir *run, hr_error *error);
/* While the disk is full lines wait, as many as fit into a MiB; then it is an error. */
hr_status hri_metrics_append(hri_rundir *run, const hr_metrics *metrics, bool evaluation, hr_error *error);
/* Makes what was appended last, all of it, and tells its length and digest. */
hr_status hri_metrics_settle(hri_rundir *run, uint64_t *bytes, uint64_t *digest, hr_error *error);

/* ---- final ---- */

/* Writes RUN/final. path: at least 4096. `before_publish` writes run.json with run->final_files, so that they are known
 * as ours whenever the process ends. */
hr_status hri_rundir_final(hri_rundir *run, hri_session *session, const char *save_dtype,
                           hr_status (*before_publish)(void *context, hr_error *error), void *context, char *path,
                           hr_error *error);

/* After run.json was read: which of its two lists is that of the `final` that stands there. A run that ended between
 * writing down what was about to appear and its appearance leaves both. */
void hri_final_settle(hri_rundir *run);
/* Puts the finished directory `temp` at `path` in one step and syncs the directory above. What stood there is removed
 * when it is, entry by entry and byte by byte, what `known` says; else it is moved to a name of its own beside it, and
 * said. */
hr_status hri_run_publish(hri_rundir *run, hri_scratch *scratch, const char *temp, const char *path,
                          const hri_file_list *known, hr_error *error);
/* Moves PATH to PATH.set-aside-N and says so. */
hr_status hri_set_aside(const hri_rundir *run, const char *path, const char *why, hr_error *error);

#endif
