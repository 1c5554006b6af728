/* Running jobs: train, evaluate, generate. Everything that a person sees comes through callbacks; the library is quiet.
 *
 * Threads: callbacks come on the calling thread, and must not call back into the same run. A run has its own team of
 * threads. Runs of one process may overlap, but each is planned as if it had the process, and its fixed bytes, for
 * itself. */
#ifndef HEADROOM_TRAIN_H
#define HEADROOM_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/data.h>
#include <headroom/job.h>
#include <headroom/plan.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_event_kind {
  HR_EVENT_PLANNED = 0, /* plan is set; nothing was read yet */
  HR_EVENT_LOADED,      /* weights are in place; text says from where */
  HR_EVENT_STEP,        /* metrics are set; text is the line of metrics.jsonl, with its end */
  HR_EVENT_EVALUATED,   /* metrics.eval_loss is set; text likewise */
  HR_EVENT_SAVED,       /* text is the path */
  HR_EVENT_SAMPLE,      /* text is generated text */
  HR_EVENT_WARNING,     /* text */
  HR_EVENT_NOTE,        /* text: facts about data and model worth knowing */
  HR_EVENT_PROFILED     /* profile is set; text is the path of the trace */
} hr_event_kind;

typedef struct hr_metrics {
  uint64_t step, steps; /* finished optimizer steps; total */
  double loss,
      /* grad_norm is NaN when no norm is taken (clip off); loss is NaN in a step without a label that counts */
      grad_norm;
  bool skipped; /* gradients were not finite: weights and states are those of the step before (on_nonfinite, fp16) */
  double loss_scale; /* of this step, in fp16; NaN: it has none */
  double learning_rate;
  uint64_t tokens, tokens_total;          /* counted labels of this step; all so far */
  double step_seconds, tokens_per_second; /* of input tokens */
  double eta_seconds, epoch;
  double eval_loss, best_eval_loss; /* NaN when there is none */
  uint64_t device_reserved_bytes, device_peak_bytes, device_budget_bytes;
  uint64_t process_resident_bytes, process_peak_bytes; /* of the host's memory */
  bool device_is_host;         /* the device's memory is the host's: process_resident_bytes is of it */
  uint64_t device_held_bytes;  /* else: what the driver says that this process holds of it; 0: it does not say */
  bool device_grown_known;     /* what is held of the device was compared with what was held when the run began */
  uint64_t device_grown_bytes; /* then: what it grew by since, at most; 0 unless somebody beside Headroom took memory */
} hr_metrics;

/* Where the time of training steps went. Times are medians over the recorded steps (at most the last 64), per step. */
typedef struct hr_profile_row {
  const char *op;           /* as in a dump of the plan: "linear_dw" */
  bool recomputed;          /* made a second time, for the backward pass */
  uint64_t calls;           /* per step */
  double seconds, share;    /* share of the step */
  double flops, bytes;      /* per step: arithmetic; operands read and written */
  bool by_arithmetic;       /* the rate to look at: FLOP/s of products and attention, else bytes/s */
  double predicted_seconds; /* by the cost model */
} hr_profile_row;

typedef struct hr_profile {
  uint64_t steps; /* recorded; the first step of a run warms up and counts only when it is the only one */
  bool warm_up_only;
  double step_seconds; /* of whole steps; what no row has is the feeding of data and the executor */
  double predicted_seconds;
  bool prediction_measured; /* from rates measured on this machine, or seen in earlier runs */
  bool prediction_seen;     /* the latter */
  uint32_t row_count;
  const hr_profile_row *rows; /* the longest first */
} hr_profile;

typedef struct hr_event {
  hr_event_kind kind;
  const hr_plan *plan;
  const hr_metrics *metrics;
  const char *text;
  const hr_profile *profile; /* valid during the call */
} hr_event;

typedef struct hr_run_options {
  const char *const *data_paths; /* files or directories (docs/data.md) */
  uint32_t data_path_count;
  const char *const *eval_paths;
  uint32_t eval_path_count;
  double eval_share; /* instead: this share of the documents of data_paths is held back, chosen by their content and the
                      * seed, whatever their order and files; 0: none */
  bool eval_first;   /* an evaluation before the first step, when there is data for one */
  hr_data_options data;     /* how they are read */
  const char *model_source; /* what a person named: remembered for a resume; NULL: the model's directory or name */
  const char *out_directory;
  const char *resume_directory; /* a run directory; NULL = start anew */
  const char *resume_from;      /* "step-000100": this checkpoint; NULL: the newest */
  const char
      *allow_different; /* names with commas: what may differ from the run that goes on (docs/run-directory.md) */
  bool same_bits;       /* refuse to go on where bits may differ: another instruction set, library, team, version */
  uint64_t eval_every, save_every; /* steps; 0 = only at the end */
  uint64_t eval_batches;           /* at most so many batches per evaluation; 0 = all */
  uint32_t keep;                   /* newest checkpoints to keep besides best; 0 = all */
  const char *save_dtype;          /* of RUN/final: "source" (as loaded; F32 from scratch), "f32", "bf16", "f16" */
  const char *profile_path;        /* a trace of the last step and a profile of all, written at the end; NULL = none */
  bool record_memory;              /* RUN/memory/snapshot.pickle.gz: the last steps as they ran, written at the end */
  bool measure_rates;              /* where no probe is stored: what the steps tell of this machine, for later plans */
  const char
      *sample_prompt; /* continued after each evaluation, without evaluation data at the end, when not NULL (needs
                                    * job.with_generation) */
  void (*on_event)(void *context, const hr_event *event); /* may be NULL; called on the calling thread */
  /* Polled while data are read, after every step, between its micro-batches and between the batches of an evaluation:
   * true = save and return INTERRUPTED (before the first step there is nothing to save); may be NULL. */
  bool (*should_stop)(void *context);
  void *context;
} hr_run_options;
/* Defaults: those of the table of fields (headroom/field.h), and nothing named. */
HR_API void hr_run_options_init(hr_run_options *options);

typedef struct hr_run_result {
  uint64_t steps;
  uint64_t steps_before; /* train: those of them that the run had done when it went on here; 0 of a new run */
  double last_loss, eval_loss, best_eval_loss, perplexity;
  uint64_t skipped_steps; /* train: whose gradients were not finite (on_nonfinite, fp16) */
  uint64_t eval_tokens;
  double seconds, tokens_per_second;
  uint64_t reserved_bytes[HR_TIER_COUNT], planned_bytes[HR_TIER_COUNT];
  uint64_t process_peak_bytes;
  bool device_grown_known; /* train: as hr_metrics, of the whole run */
  uint64_t device_grown_bytes;
  double predicted_step_seconds; /* train: as planned */
  bool prediction_measured;      /* ... from rates measured on this machine, or seen in earlier runs */
  bool prediction_seen;          /* the latter */
  double
      /* train: median of the steps of this run, at most its last 256, the first one left out; NaN without steps */
      step_seconds;
} hr_run_result;

/* Trains a finished job. Plans; refuses with BUDGET before any weight is read when it does not fit; else runs and
 * writes the run directory (docs/run-directory.md). RUN/final is written atomically at the end. INTERRUPTED after a
 * stop request, with a checkpoint written; DIVERGED when a loss, gradient, weight or state is not finite: nothing of it
 * is saved.
 * On any error nothing on disk is half-written. */
HR_CHECKED hr_status hr_train(const hr_job *job, const hr_run_options *options, hr_run_result *result, hr_error *error);

/* Mean token loss over data_paths (purpose EVALUATE). DIVERGED when it is not finite. */
HR_CHECKED hr_status hr_evaluate(const hr_job *job, const hr_run_options *options, hr_run_result *result,
                                 hr_error *error);

enum { HR_MAX_STOP_TOKENS = 8 };

/* The tokens that end a text of this model: eos_token_id in its config.json and generation_config.json (an id or a
 * list), or the end-of-text and end-of-turn tokens of a GGUF file. Ids outside of the vocabulary are none. */
HR_CHECKED hr_status hr_stop_tokens(const hr_model *model, int32_t tokens[HR_MAX_STOP_TOKENS], uint32_t *count,
                                    hr_error *error);

typedef struct hr_generate_options {
  const uint8_t *prompt; /* bytes; one token each (byte models), or token ids below */
  uint64_t prompt_bytes;
  const int32_t *prompt_ids; /* used when not NULL */
  uint64_t prompt_id_count;
  const int32_t *stop_ids; /* tokens that end the text; NULL: those of hr_stop_tokens */
  uint32_t stop_id_count;
  uint64_t max_tokens;
  /* As transformers has them, in this order: the penalty on the scores, then temperature, top_k, top_p, min_p. Finite and at least 0;
   * top_p and min_p at most 1. Anything else is USAGE, before a token is read. */
  double
      repetition_penalty; /* of tokens in prompt and answer: scores above 0 are divided by it, others multiplied; 1 and 0 = off */
  double temperature; /* 0 = always the most likely token */
  uint32_t top_k;     /* 0 = off */
  double top_p;       /* 1 = off */
  double min_p;       /* leaves out what is less likely than min_p times the most likely token; 0 = off */
  uint64_t seed;
  void (*on_event)(void *context, const hr_event *event);
  void (*on_token)(void *context, int32_t token); /* each new token as it is made */
  bool (*should_stop)(void *context); /* polled before each token and each chunk of the prompt; may be NULL */
  void *context;
} hr_generate_options;
/* Defaults: 128 tokens at a temperature of 0.8, as the command line. */
HR_API void hr_generate_options_init(hr_generate_options *options);

typedef struct hr_generate_result {
  uint64_t prompt_tokens, new_tokens;
  uint64_t kept_tokens; /* of the prompt, which were in the cache already */
  double prefill_seconds, decode_seconds;
  bool stopped_by_end;     /* the end-of-text token was made */
  bool stopped_by_request; /* should_stop */
  uint64_t reserved_bytes[HR_TIER_COUNT], planned_bytes[HR_TIER_COUNT];
} hr_generate_result;

/* Generates with the prefill and decode programs and a planned KV cache (purpose GENERATE; job.context_length holds
 * prompt + new tokens). DIVERGED when the model's scores are not finite. */
HR_CHECKED hr_status hr_generate(const hr_job *job, const hr_generate_options *options, hr_generate_result *result,
                                 hr_error *error);

/* The same for one prompt after the other. The cache keeps what it holds: of a prompt only what is not there yet is
 * computed, from the first token on that differs. One caller at a time. */
typedef struct hr_generator hr_generator;

/* Plans, refuses what does not fit before a weight is read, reserves and loads. on_event may be NULL. */
HR_CHECKED hr_status hr_generator_open(const hr_job *job, void (*on_event)(void *context, const hr_event *event),
                                       void *context, hr_generator **generator, hr_error *error);
/* options->on_event is not called. After an error the cache is empty and the generator as usable as before. */
HR_CHECKED hr_status hr_generator_run(hr_generator *generator, const hr_generate_options *options,
                                      hr_generate_result *result, hr_error *error);
HR_API void hr_generator_close(hr_generator *generator); /* NULL is fine */

/* Token id -> bytes of a byte-level model; -1 when the id is no byte (end of text). */
HR_API int hr_byte_of_token(const hr_model *model, int32_t token);

#ifdef __cplusplus
}
#endif
#endif
