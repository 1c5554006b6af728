/* Checkpoints: RUN/checkpoints/step-N, and the links `last` and `best`.
 *
 * A checkpoint grows in a scratch directory. Each of its files is written once and synced once, with its digest taken
 * on the way; then metrics.jsonl is synced, state.json written (with the length and digest of the metrics), then the
 * manifest; then the directory is synced, takes its name, and the parent is synced: from then on it is announced. Older
 * ones go only after that.
 *
 * state.json, schema 2: step, steps, tokens_total, applied_steps, rows_seen, skipped_steps, skipped_in_row, data_hash,
 * best_eval_loss, eval_loss, last_loss, evaluation_due (true, where it is), metrics {bytes, digest}, identity {...}, machine {...}, ways [...] of products
 * where a library chose them (hri_backend.put_ways). Schema 1 has no
 * manifest beside it. */
#ifndef HRI_TRAIN_CHECKPOINT_H
#define HRI_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/rundir.h"

typedef struct hri_checkpoint { /* one that a run goes on from */
  char path[4096];              /* RUN/checkpoints/step-N */
  bool verified;                /* it has a manifest: what was read so far is whole */
  hri_file_list files;          /* of its manifest */
  hri_progress progress;
  bool has_metrics;
  uint64_t metrics_bytes, metrics_digest;
  bool has_order, shuffled; /* whether its rows are shuffled, as its identity says */
  char instruction_set[16]; /* as machine.instruction_set has it; "": it does not say */
  hri_json ways;            /* of products, as the backend wrote them; no value: there are none */
  char ways_file[4160];     /* where they stand */
  char products[64];        /* what computed its products, as machine.libraries has it; "": it does not say */
  hri_text machine_differs; /* for people; empty: the same machine */
  hri_text allowed;         /* what differs and may */
  uint64_t settled_steps;   /* as many as an attempt to go on from here was allowed to have; 0: there was none */
} hri_checkpoint;

void hri_checkpoint_asked(const char *text,
                          char out[64]); /* the name of the one that --from means: step-2 is step-000002 */
hr_status hri_checkpoint_any(const char *directory, bool *any, hr_error *error); /* of a run: at least one */
/* "RUN/checkpoints/step-N" of the newest; false: there is none. */
bool hri_checkpoint_newest(const char *directory, char path[4096]);

/* Writes checkpoints/step-N and points `last` (and `best`) at it; then it may be announced. path: at least 4096.
 * DIVERGED: a weight or state is not
 * finite; nothing was published, and nothing is where the error says that the disk is full (hri_is_full). */
hr_status hri_checkpoint_write(hri_rundir *run, hri_session *session, const hri_progress *progress, bool best,
                               char *path, hr_error *error);
/* Removes what `keep` (0: all are kept) does not hold, once the new one was announced: nobody hears of none. */
void hri_checkpoint_retire(hri_rundir *run, uint32_t keep);

/* Finds the newest checkpoint, or options->resume_from, reads its state, and verifies everything but the tensors, which
 * the load does (hri_checkpoint_check_tensors). Damage is INPUT, and the hint names the newest whole one. */
hr_status hri_checkpoint_open(hri_rundir *run, hri_checkpoint *checkpoint, hr_error *error);
void hri_checkpoint_close(hri_checkpoint *checkpoint);
/* That it is this job's: USAGE names what differs. */
hr_status hri_checkpoint_check_identity(const hri_rundir *run, hri_checkpoint *checkpoint, const char *instruction_set,
                                        const char *libraries, hr_error *error);
/* The digests that the load took, against the manifest. */
hr_status hri_checkpoint_check_tensors(const hri_rundir *run, const hri_checkpoint *checkpoint,
                                       const hri_file_list *loaded, hr_error *error);
/* After the load: the weights beside which adapters stand are those of the run. INPUT names the file. */
hr_status hri_checkpoint_check_base(const hri_rundir *run, const hri_checkpoint *checkpoint, hr_error *error);
/* To a load's error: where the checkpoint is damaged, that is the error (INPUT); and what to go on from instead. */
hr_status hri_checkpoint_explain(const hri_rundir *run, const hri_checkpoint *checkpoint, hr_status status,
                                 hr_error *error);

/* When it is sure that the run goes on from here: later checkpoints are moved aside, and the links made anew. */
hr_status hri_checkpoint_settle(hri_rundir *run, const hri_checkpoint *checkpoint, hr_error *error);

/* Steps of the checkpoints of a run, newest first; the caller frees. */
hr_status hri_checkpoint_list(const char *parent, uint64_t **steps, size_t *count, hr_error *error);
void hri_checkpoint_name(uint64_t step, char out[64]);

#endif
