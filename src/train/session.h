/* A plan that runs: executor, weights, and the feeding of batches. Shared by train, evaluate and generate. */
#ifndef HRI_TRAIN_SESSION_H
#define HRI_TRAIN_SESSION_H

#include <headroom/train.h>

#include "plan/variants.h"
#include "data/dataset.h"
#include "run/executor.h"
#include "train/weights.h"

/* Programs for rows of up to `sequence` tokens. */
typedef struct hri_shape {
  uint32_t sequence;
  const hri_job *job;
  hri_executor *executor;
  hri_variant *variant; /* NULL: the plan's own */
} hri_shape;

typedef struct hri_session {
  hr_plan *plan;
  hri_executor *executor;
  hri_shape shapes[HRI_MAX_VARIANTS + 1]; /* rising; the last is the plan's */
  uint32_t shape_count;
  int32_t *row;  /* HRI_ROW_NUMBERS x sequence: a row on its way into a program's inputs */
  float *logits; /* [V]: where the backend's have no address; made when they are first asked for */
  hri_source source;
  hri_transfer transfer;
  hri_sink *sink;  /* the open sink while the save program runs */
  hri_carry carry; /* of the model's own files, also when a checkpoint was loaded */
  void (*on_event)(void *context, const hr_event *event);
  bool (*should_stop)(void *context); /* asked while data are read and while an evaluation goes on; may be NULL */
  void *context;                      /* of both */
  void (*after_node)(void *context, const hri_job *job, hri_id node,
                     double seconds); /* for the executor; set before it is prepared, may be NULL */
  void *after_node_context;
  bool times;            /* every node is to be measured, whatever it costs; likewise */
  hri_file_list *loaded; /* gets the files that the load read, with their digests; set before the load, may be NULL */
  hri_file_list base;    /* of a run with adapters: the files of the weights beside them, as they were read */
  const char *tokenizer; /* where the model's tokenizer is, when it has none of its own; NULL: as it is. Borrowed */
  char companions[4096]; /* a checkpoint that has the model's own files too, for when its directory is gone; "": none */
  bool growth_told;      /* that memory of the device grew */
  bool one_shape;        /* no shorter shapes, also without packing; set before it is prepared */
} hri_session;

/* Plans, tells the caller, and refuses with BUDGET before anything is read. `options` (tests) may be NULL. */
hr_status hri_session_plan(hri_session *session, const hr_job *job, const hri_compile_options *options,
                           hr_error *error);
/* USAGE when the model has no weights to evaluate or generate with. */
hr_status hri_session_need_weights(const hr_job *job, hr_error *error);
/* Starts the team and makes the code of all matrix products, for all shapes, each after the room for it was proven; then
 * proves the room of the arenas. BUDGET where a limit is in the way. What the executor is to be told (after_node,
 * one_shape) stands in the session before. */
hr_status hri_session_prepare(hri_session *session, hr_error *error);
/* Prepares unless that was done, checks the weight files, reserves the arenas and runs the load program. directory
 * NULL: the model's own. */
hr_status hri_session_load(hri_session *session, const char *directory, const char *states_file, hr_error *error);
void hri_session_close(hri_session *session);

/* Where rows go: ids, targets, positions and document starts among a program's inputs. */
typedef struct hri_inputs {
  hri_id ids, targets, positions, doc_start;
} hri_inputs;
/* The shortest shape for rows of up to `longest` tokens. */
const hri_shape *hri_session_shape(const hri_session *session, uint64_t longest);
/* Row `row` of a data set as the index-th row of a shape's inputs, for the programs launched after it; rows past the
 * end of the data are padding that counts nothing. */
hr_status hri_session_row(const hri_session *session, const hri_shape *shape, hri_dataset *data, uint64_t row,
                          hri_inputs inputs, uint64_t index, uint64_t *counted, hr_error *error);

/* Whether memory of the device grew while programs ran, as the backend says (backend.h); a warning the first time that it
 * did. False: nobody says. `metrics` (may be NULL) goes with the warning. */
bool hri_session_watch(hri_session *session, const hr_metrics *metrics, uint64_t *bytes);
void hri_session_tell(const hri_session *session, hr_event_kind kind, const hr_metrics *metrics, const char *text);

/* Writes config.json, the weight files in `dtype` (HRI_AS_SOURCE: types and shards as the model's own files have them),
 * optimizer states if asked, and the tokenizer files of the model, into an existing directory that holds none of them,
 * and adds them to `files` (may be NULL). Each file is synced; the directory is the caller's to sync and to put in its
 * place. DIVERGED: a weight or state is not finite. */
enum { HRI_AS_SOURCE = HRI_FILE_DTYPE_COUNT };
hr_status hri_session_save(hri_session *session, const char *directory, hri_file_dtype dtype, bool with_states,
                           hri_file_list *files, hr_error *error);

/* Token-weighted mean loss over at most `batches` batches (0 = all) of a data set. INTERRUPTED where should_stop says so
 * between two of them. */
hr_status hri_session_evaluate(hri_session *session, hri_dataset *data, uint64_t batches, double *loss,
                               uint64_t *tokens, hr_error *error);

/* Opens a data set for this session's job; all of it is read, unless should_stop says otherwise (INTERRUPTED). Temporary files without a name grow in `spool` (NULL:
 * TMPDIR). `run`: the run
 * directory, whose data-cache is looked into but not made (hri_dataset_keep does that); NULL, or with a cache directory
 * of its own in `how`: nothing of a run. */
hr_status hri_session_data(const hri_session *session, const char *const *paths, uint32_t count,
                           const hr_data_options *how, const char *spool, const char *run, hri_dataset **data,
                           hr_error *error);

/* Reserved bytes per tier as the run made them; MISMATCH when they are not the planned ones. */
hr_status hri_session_compare(const hri_session *session, uint64_t reserved[HR_TIER_COUNT],
                              uint64_t planned[HR_TIER_COUNT], hr_error *error);

/* ---- generation over a loaded session ---- */

/* Members of hr_generate_options; repetition_penalty 0 is off, too. */
typedef struct hri_sampler {
  double temperature, top_p, min_p, repetition_penalty;
  uint32_t top_k;
  uint64_t seed;
  const int32_t *seen; /* tokens so far, below the vocabulary; for the penalty. Borrowed */
  uint64_t seen_count;
} hri_sampler;

/* Feeds `count` ids behind what the cache holds (starting anew when *length is 0) and returns the next token's logits
 * [V]; valid until the next call. */
hr_status hri_session_feed(hri_session *session, const int32_t *ids, uint64_t count, uint64_t *length,
                           const float **logits, hr_error *error);
/* Draws a token; `index` numbers the draw. Temperature 0 takes the most likely one. */
hr_status hri_sample(const hri_sampler *sampler, const float *logits, uint64_t vocabulary, uint64_t index,
                     int32_t *token, hr_error *error);

#endif
