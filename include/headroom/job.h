/* A job in words: what to train and how. The options of `headroom plan`, `train`, `evaluate` and `generate` are the
 * fields below, one to one, so that a plan predicts exactly what a run does.
 *
 * hr_job is plain data plus borrowed strings (paths), which must outlive the call they are passed to.
 *
 * Threads: a job is plain data of its owner; the functions touch nothing but their arguments. */
#ifndef HEADROOM_JOB_H
#define HEADROOM_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/device.h>
#include <headroom/model.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_purpose { HR_PURPOSE_TRAIN = 0, HR_PURPOSE_EVALUATE, HR_PURPOSE_GENERATE } hr_purpose;
/* X(enumerator, word of --optimizer) */
#define HR_OPTIMIZERS(X)                                                                                               \
  X(ADAMW, "adamw")                                                                                                    \
  X(SGD, "sgd")                                                                                                        \
  X(MOMENTUM, "momentum")                                                                                              \
  X(ADAMW8BIT, "adamw8bit")                                                                                            \
  X(LION, "lion")                                                                                                      \
  X(LION8BIT, "lion8bit")                                                                                              \
  X(ADAFACTOR, "adafactor")
#define HR_OPTIMIZER_ENUMERATOR(id, word) HR_OPTIMIZER_##id,
typedef enum hr_optimizer { HR_OPTIMIZERS(HR_OPTIMIZER_ENUMERATOR) HR_OPTIMIZER_COUNT } hr_optimizer;
typedef enum hr_attention { HR_ATTENTION_FLASH = 0, HR_ATTENTION_MATERIALIZED } hr_attention;
typedef enum hr_update { HR_UPDATE_AFTER = 0, HR_UPDATE_IN_BACKWARD } hr_update;
/* What a step does whose loss or gradient norm is infinite or NaN. STOP: the run ends. SKIP: weights, optimizer states
 * and the count of applied steps (Adam's t) stay as they are, its rows count as seen, and the run goes on. */
typedef enum hr_on_nonfinite { HR_ON_NONFINITE_STOP = 0, HR_ON_NONFINITE_SKIP } hr_on_nonfinite;
typedef enum hr_schedule {
  HR_SCHEDULE_CONSTANT = 0,
  HR_SCHEDULE_LINEAR,
  HR_SCHEDULE_COSINE,
  HR_SCHEDULE_WSD
} hr_schedule;
/* What weights, activations and gradients are made of; arithmetic and statistics are fp32 in all of them.
 *   BF16       bf16 weights and activations; fp32 master weights hold the truth, and the weights are their high halves; fp32
 *              gradients and moments
 *   BF16_PURE  no master weights: the update rounds stochastically to the bf16 weights
 *   FP16       fp16 weights and activations, masters whole beside them, else as BF16; the loss is scaled by a number that
 *              finds its level by itself (loss_scale): a step whose gradients overflow is skipped. What a loss that is not
 *              finite does is on_nonfinite's to say
 *   TF32       as FP32 in all that is stored; products are computed from 10 bits of mantissa, as GPUs' matrix units do from
 *              NVIDIA's Ampere on. Of plans for such devices alone: only the predicted time is another one
 *   AUTO       until hr_job_finish: BF16 on a GPU that has it, else FP32 (hr_precision_of)
 * Vectors (norm weights, biases) stay fp32. */
typedef enum hr_precision {
  HR_PRECISION_FP32 = 0,
  HR_PRECISION_BF16,
  HR_PRECISION_BF16_PURE,
  HR_PRECISION_FP16,
  HR_PRECISION_TF32,
  HR_PRECISION_AUTO
} hr_precision;
/* What optimizer states are kept in; bf16 states are rounded stochastically too (BF16_PURE only). */
typedef enum hr_moments { HR_MOMENTS_FP32 = 0, HR_MOMENTS_BF16 } hr_moments;
/* What has 8-bit states under an optimizer of 8 bits, of the tensors with 4,096 elements or more: all but embeddings and
 * norms, or those too. Programs built op by op have them for all. */
typedef enum hr_states_8bit { HR_STATES_8BIT_WEIGHTS = 0, HR_STATES_8BIT_ALL } hr_states_8bit;
/* Weights (and, in bf16 and fp16, the inputs of weight gradients) rearranged for matrix products, on the CPU: before each use
 * where it pays (TRANSIENT), the same where the bytes are free as well (AUTO), never, or also the weights once per
 * optimizer step for all its micro-steps. Same bits. */
typedef enum hr_weight_packing {
  HR_WEIGHT_PACKING_AUTO = 0,
  HR_WEIGHT_PACKING_OFF,
  HR_WEIGHT_PACKING_TRANSIENT,
  HR_WEIGHT_PACKING_PERSISTENT
} hr_weight_packing;
/* What a GPU's library of products may have beside operands, each product in turn: as the device has it usually, none, 4
 * MiB, 32 MiB. Less may be slower, and sums come in another order. */
typedef enum hr_workspace {
  HR_WORKSPACE_AUTO = 0,
  HR_WORKSPACE_NONE,
  HR_WORKSPACE_4MIB,
  HR_WORKSPACE_32MIB
} hr_workspace;
/* How documents share a row: whole ones by best fit, one per row, or one behind the other and cut where a row ends. */
typedef enum hr_packing { HR_PACKING_PACK = 0, HR_PACKING_OFF, HR_PACKING_WRAPPED } hr_packing;

/* How much of a layer's forward is kept for its backward, from everything to nothing but its input. */
typedef enum hr_level {
  HR_LEVEL_KEEP = 0,  /* all that the backward reads */
  HR_LEVEL_CHEAP,     /* drop what is cheap to make again: norms, activations */
  HR_LEVEL_MLP,       /* also drop the hidden of the MLP */
  HR_LEVEL_ATTENTION, /* keep only the layer input and the attention output */
  HR_LEVEL_BLOCK,     /* keep only the layer input */
  HR_LEVEL_COUNT
} hr_level;

typedef enum hr_recompute_kind {
  HR_RECOMPUTE_NONE = 0,
  HR_RECOMPUTE_BLOCK,
  HR_RECOMPUTE_EVERY,
  HR_RECOMPUTE_SQRT,
  HR_RECOMPUTE_LEVELS,
  HR_RECOMPUTE_SELECTIVE, /* every layer at HR_LEVEL_CHEAP: no matrix product is made twice */
  HR_RECOMPUTE_AUTO /* to be replaced by LEVELS for the budget: hr_plan_recompute; it cannot be planned as it is */
} hr_recompute_kind;

typedef struct hr_recompute {
  hr_recompute_kind kind;
  uint32_t
      every; /* EVERY: keep the input of each every-th layer; SQRT: set by hr_job_finish, sqrt(layers) to the nearest */
  uint8_t levels[HR_MAX_LAYERS]; /* LEVELS: hr_level of each layer; missing layers repeat the last given */
  uint32_t level_count;
} hr_recompute;

#define HR_MICRO_BATCH_AUTO 0u       /* chosen by hr_plan_rows */
#define HR_LOSS_CHUNK_AUTO 0u        /* decided by the size of the logits */
#define HR_LOSS_CHUNK_OFF UINT32_MAX /* all tokens of a micro-batch at once */

/* OPEN: micro_batch was HR_MICRO_BATCH_AUTO, and is 1 until hr_plan_rows (or, with batch_tokens, hr_plan_auto) has
 * CHOSEN; before that it is neither planned nor run, here or by PyTorch's rules (headroom/pytorch.h). */
typedef enum hr_rows_choice { HR_ROWS_GIVEN = 0, HR_ROWS_OPEN, HR_ROWS_CHOSEN } hr_rows_choice;

typedef struct hr_job {
  hr_model model;
  hr_device device;
  hr_purpose purpose;

  uint32_t sequence_length; /* --seq: tokens per row; 0: of the model */
  uint32_t micro_batch;     /* rows per micro-step */
  uint32_t accumulate;      /* micro-steps per optimizer step */
  uint64_t
      batch_tokens; /* tokens per optimizer step, of which hr_job_finish makes `accumulate`; 0: as `accumulate` says */
  uint64_t budget_bytes;      /* --budget: device tier; 0 = what is usable now, refused with HR_GIVEN_BUDGET */
  double budget_share;        /* a share of what is usable instead: hr_job_finish makes bytes of it; 0: none */
  uint64_t host_budget_bytes; /* of the host tier, by the C API alone; 0 = no limit stated */
  hr_precision precision;
  hr_moments moments;
  hr_weight_packing weight_packing;
  hr_workspace workspace;
  hr_recompute recompute;
  hr_attention attention;
  uint32_t loss_chunk; /* --loss-chunk: tokens per chunk, HR_LOSS_CHUNK_AUTO or _OFF */
  hr_optimizer optimizer;
  hr_states_8bit states_8bit;
  hr_update update;
  double beta1, beta2, epsilon, weight_decay, momentum;
  double adafactor_decay;                    /* the power of the step whose part of the second moment is new; <= 0 */
  double adafactor_epsilon, adafactor_least; /* least second moment's root; least root mean square of a weight */
  double adafactor_clip;                     /* largest root mean square of an update, before the learning rate */
  double learning_rate;
  hr_schedule schedule;
  double warmup;       /* steps, or a share of the steps when < 1 */
  double decay;        /* wsd: steps of the final decay, or a share when < 1 */
  double min_lr_ratio; /* cosine, linear, wsd: floor as a share of the learning rate */
  double clip;    /* largest global gradient norm; 0 = off, as it is with IN_BACKWARD unless HR_GIVEN_CLIP is set */
  double dropout; /* probability, wherever the family's modeling code has dropout, in training; HR_DROPOUT_CONFIG: by
                   * place, as model.dropout says */
  double neftune_alpha;   /* uniform noise of alpha / sqrt(sequence x hidden) on embeddings, in training */
  double label_smoothing; /* share of the target that every token of the vocabulary has alike, in training */
  hr_on_nonfinite on_nonfinite;
  uint32_t max_skipped; /* SKIP, FP16: at most so many steps in a row, then the run ends */
  /* FP16, as torch.amp.GradScaler: the first scale (its init_scale), and after how many steps in a row without overflow
   * it doubles (growth_interval); an overflow halves it. */
  double loss_scale;
  uint32_t growth_interval;
  uint64_t steps; /* optimizer steps; 0 = from epochs */
  double epochs;
  uint64_t seed;
  bool shuffle;       /* false without HR_GIVEN_SHUFFLE (hr_job_set sets the bit): then rows of JSON are shuffled */
  hr_packing packing; /* OFF: rows have many lengths; a run also has programs for shorter rows (at most six lengths) */
  uint32_t threads;   /* the team; 0 = the cores allowed, a CPU quota counted */
  uint32_t rows_choice; /* hr_rows_choice: whose micro_batch it is */
  bool levels_chosen;   /* recompute was AUTO, and is what a planner made of it */
  bool automatic;       /* --auto: the planner chooses what `given` does not hold */
  uint64_t given;       /* bit set of HR_GIVEN_*: options the user fixed */

  const char
      *lora; /* --lora: train adapters instead of the weights; hr_job_finish reads it into model.lora. NULL: no */

  const char *freeze, *train_only; /* --freeze, --train-only: lists of words (src/model/freeze.h); NULL */
  hr_quantize quantize;
  const char *
      adapter; /* --adapter: a directory or GGUF file of adapters to begin with, which hr_job_finish reads into the model */

  /* generation: context = prompt + new tokens; the compiler chooses the rows of a prefill chunk */
  uint32_t context_length; /* --context (generate), or sequence_length when sampling during training */
  uint32_t position_count; /* rows of the tables of rotary positions; 0 = as many as the longest sequence */
  bool with_generation;    /* train: the job also holds the prefill and decode programs (--sample) */
  bool check;              /* --check: dead storage is poisoned, guard zones are verified */

  uint32_t filled_chunk, filled_context; /* what hr_job_finish made of AUTO and of no context; 0: they were given */
  bool finished; /* by hr_job_finish, whose last call accepted the job: no other is planned or run */
} hr_job;

enum {
  HR_GIVEN_SEQUENCE = 1 << 0,
  HR_GIVEN_MICRO_BATCH = 1 << 1,
  HR_GIVEN_ACCUMULATE = 1 << 2,
  HR_GIVEN_RECOMPUTE = 1 << 3,
  HR_GIVEN_LOSS_CHUNK = 1 << 4,
  HR_GIVEN_UPDATE = 1 << 5,
  HR_GIVEN_ATTENTION = 1 << 6,
  HR_GIVEN_OPTIMIZER = 1 << 7,
  HR_GIVEN_CLIP = 1 << 8,
  HR_GIVEN_BATCH_TOKENS = 1 << 9,
  HR_GIVEN_PRECISION = 1 << 10,
  HR_GIVEN_WEIGHT_PACKING = 1 << 11,
  HR_GIVEN_THREADS = 1 << 12,
  HR_GIVEN_BUDGET = 1 << 13,
  HR_GIVEN_SHUFFLE = 1 << 14
};

/* Defaults of every field (the values that `headroom plan MODEL` uses), those of the table of fields
 * (headroom/field.h); the model is left empty, the device is the name "cpu". A job is always made by this function: it
 * grows. */
HR_API void hr_job_init(hr_job *job);

/* Checks ranges and the legality table (pairs of options that exclude each other, each with its reason) and fills what
 * depends on other fields (a device of which only the name is there, sequence and context from the model, accumulate
 * from batch_tokens, every from sqrt, loss_chunk and precision from AUTO, budget from the device, threads). USAGE names
 * the option; `job` is then unchanged, but not `finished`. Who changes a field of a finished job finishes it again: a loss
 * chunk and a context that nobody gave follow the new rows; what else was filled in stays (sequence, accumulate, precision,
 * clip, budget, threads), and is filled in anew by who sets it to 0 or AUTO before. */
HR_CHECKED hr_status hr_job_finish(hr_job *job, hr_error *error);

/* What HR_PRECISION_AUTO stands for on a device: bf16 with fp32 master weights where a GPU computes it, which is what
 * trainings on GPUs are run in; on a CPU, and on a GPU without bf16, fp32. */
HR_API hr_precision hr_precision_of(const hr_device *device);
/* Rows, or a context, beyond the positions that the model was made for: legal where positions are rotary, and a sentence
 * says in `out` what follows. False, and "": there are none. */
HR_API bool hr_job_beyond_positions(const hr_job *job, char *out, uint64_t out_bytes);

/* Reads the value of --recompute: "none", "selective", "auto", "block", "every:K", "sqrt", "levels:keep*4,cheap*8,...".
 * USAGE
 * on error. */
HR_CHECKED hr_status hr_recompute_parse(const char *text, hr_recompute *recompute, hr_error *error);
/* Writes it back, shortest form, into out (at least 256 bytes; long lists are run-length coded). Returns out. */
HR_API char *hr_recompute_text(const hr_recompute *recompute, uint32_t layer_count, char *out, uint64_t out_bytes);

/* What excludes what, as hr_job_finish refuses it: two options (or an option and what it meets), why, and what to do. */
typedef struct hr_exclusion {
  const char *a, *b, *reason, *hint;
} hr_exclusion;
HR_API uint32_t hr_exclusion_count(void);
HR_API bool hr_exclusion_get(uint32_t index, hr_exclusion *exclusion); /* false behind the last */

HR_API const char *hr_precision_name(hr_precision value);
HR_API const char *hr_moments_name(hr_moments value);
HR_API const char *hr_states_8bit_name(hr_states_8bit value);
HR_API const char *hr_weight_packing_name(hr_weight_packing value);
HR_API const char *hr_workspace_name(hr_workspace value);
HR_API const char *hr_optimizer_name(hr_optimizer value);
HR_API const char *hr_attention_name(hr_attention value);
HR_API const char *hr_on_nonfinite_name(hr_on_nonfinite value);
HR_API const char *hr_schedule_name(hr_schedule value);
HR_API const char *hr_level_name(hr_level value);

#ifdef __cplusplus
}
#endif
#endif
