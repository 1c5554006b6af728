/* Plans: what a job needs, to the byte, before anything runs.
 *
 *   hr_job job; hr_job_init(&job); hr_model_open("gpt2-124m", &job.model, &error); hr_device_find("cpu", ...);
 *   hr_job_finish(&job, &error); hr_plan_create(&job, &plan, &error); hr_plan_get(plan)->tiers[0].reserved_bytes ...
 *
 * A plan needs no weights and reserves nothing. hr_train executes the very same object, so the two cannot differ.
 *
 * Threads: plans may be made at the same time, and a plan does not change once it is made: several threads may read
 * one. */
#ifndef HEADROOM_PLAN_H
#define HEADROOM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/job.h>
#include <headroom/snapshot.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where bytes lie, what they are, when they are used, and what may overlap. Tables in the structs below have one entry
 * for each. */
typedef enum hr_tier { HR_TIER_DEVICE = 0, HR_TIER_HOST, HR_TIER_DISK, HR_TIER_COUNT } hr_tier;
typedef enum hr_role {
  HR_ROLE_WEIGHT = 0,
  HR_ROLE_MASTER_WEIGHT,
  HR_ROLE_GRADIENT,
  HR_ROLE_OPTIMIZER_STATE,
  HR_ROLE_ACTIVATION,
  HR_ROLE_LOGITS,
  HR_ROLE_WORKSPACE,
  HR_ROLE_INPUT,
  HR_ROLE_QUANTIZATION,
  HR_ROLE_COMMUNICATION,
  HR_ROLE_CACHE,
  HR_ROLE_CONTROL,
  HR_ROLE_COUNT
} hr_role;
typedef enum hr_phase {
  HR_PHASE_LOAD = 0,
  HR_PHASE_FORWARD,
  HR_PHASE_LOSS,
  HR_PHASE_BACKWARD,
  HR_PHASE_OPTIMIZER,
  HR_PHASE_EVALUATE,
  HR_PHASE_GENERATE,
  HR_PHASE_SAVE,
  HR_PHASE_COUNT
} hr_phase;
typedef enum hr_lane {
  HR_LANE_COMPUTE = 0,
  HR_LANE_COPY_IN,
  HR_LANE_COPY_OUT,
  HR_LANE_COMMUNICATION,
  HR_LANE_DISK,
  HR_LANE_HOST,
  HR_LANE_COUNT
} hr_lane;

/* Names as JSON writes them: "weight", "master_weight", "gradient", ...; "load", "forward", ...; "compute", ... */
HR_API const char *hr_role_name(uint32_t role);
HR_API const char *hr_phase_name(uint32_t phase);
HR_API const char *hr_lane_name(uint32_t lane);
HR_API const char *hr_tier_name(uint32_t tier);

typedef struct hr_tier_plan {
  uint64_t reserved_bytes; /* the one reservation a run makes: peak rounded up to the granule */
  uint64_t fixed_bytes;    /* what the program cannot own (device tier): runtime, libraries, context */
  bool fixed_measured;
  uint64_t peak_bytes;                     /* highest byte used by the placement */
  uint64_t lower_bound_bytes;              /* most bytes alive at once: no placement can do better */
  uint64_t at_peak_by_role[HR_ROLE_COUNT]; /* live bytes at the tick of the most live bytes */
  uint64_t max_by_role[HR_ROLE_COUNT];     /* over the whole job */
  uint64_t peak_by_phase[HR_PHASE_COUNT];  /* most live bytes while a node of that phase runs; 0 = no such phase */
  uint32_t peak_phase;                     /* where the most bytes are alive */
  int32_t peak_layer;                      /* -1: outside of the layers */
  char peak_node[64];                      /* op and label, e.g. "linear_dx layers.11" */
  char peak_program[16];
  uint32_t live_count; /* entries for hr_plan_live */
} hr_tier_plan;

typedef struct hr_plan_info {
  bool fits;
  uint64_t budget_bytes; /* device tier */
  hr_tier_plan tiers[HR_TIER_COUNT];
  double step_seconds; /* predicted time of one optimizer step (or of one evaluation batch, one token) */
  double lane_seconds[HR_LANE_COUNT];
  double phase_seconds[HR_PHASE_COUNT];
  double flops_per_step;
  uint64_t tokens_per_step;
  bool time_measured;     /* from rates of this machine, else from published or assumed rates */
  bool time_seen;         /* these were seen in earlier runs, not measured by a probe */
  double time_seen_share; /* of the step's time: nodes of kinds and sizes that these runs had; 0 without time_seen */
  hr_products products;   /* of a CPU: what computes products of bf16, and who chose it */
  bool scratch_exact;     /* of the code that runs there; else an estimate by formula, as for devices of the table */
  uint64_t parameter_count, trainable_parameter_count;
  uint32_t program_count, node_count, storage_count;
  uint64_t plan_bytes; /* host memory that the plan itself takes */
  double plan_seconds; /* time it took to make */
} hr_plan_info;

typedef struct hr_plan hr_plan;

/* Compiles and places a finished job (hr_job_finish). The job is copied; its borrowed strings must outlive the plan.
 * A job that does not fit still gives a plan, with info.fits false. Errors: MEMORY, USAGE, UNSUPPORTED, INTERNAL. */
HR_CHECKED hr_status hr_plan_create(const hr_job *job, hr_plan **plan, hr_error *error);
HR_API void hr_plan_destroy(hr_plan *plan);
HR_API const hr_plan_info *hr_plan_get(const hr_plan *plan);
HR_API const hr_job *hr_plan_job(const hr_plan *plan);

/* The index-th storage alive at the peak of a tier, largest first (index < live_count). Strings live as long as the
 * plan. */
typedef struct hr_live {
  const char *name;
  uint32_t role;
  const char *dtype;
  uint32_t rank;
  uint64_t dims[5];
  uint64_t bytes;
  int32_t layer;
} hr_live;
HR_API bool hr_plan_live(const hr_plan *plan, uint32_t tier, uint32_t index, hr_live *live);
/* What is in it, where it holds parameters, their gradients or states: the name of the k-th; NULL behind the last, and
 * for storages that hold no parameters. */
HR_API const char *hr_plan_live_holds(const hr_plan *plan, uint32_t tier, uint32_t index, uint32_t k);

/* Memory and time over the course of the job: one sample per node, program by program in issue order (samples of a
 * program stand together). Live bytes are those while the node runs. Times count from the begin of its program, which
 * runs once: a list schedule over lanes and waits, in which a node begins when its lane is free and what it waits for
 * has ended.
 * The critical nodes of a program follow each other without a gap from its begin to its end. */
typedef struct hr_sample {
  const char *program, *op;
  uint32_t phase;
  int32_t layer;
  uint64_t live_bytes;
  uint64_t by_role[HR_ROLE_COUNT];
  uint32_t lane;
  bool critical;
  double begin_seconds, end_seconds;
} hr_sample;
/* The array is the caller's (hr_free); its strings live as long as the program. USAGE for a tier that does not
 * exist. */
HR_CHECKED hr_status hr_plan_samples(const hr_plan *plan, uint32_t tier, hr_sample **samples, uint32_t *count,
                                     hr_error *error);

/* The same as a snapshot (headroom/snapshot.h): the arena of the device tier as one segment, each storage as a block
 * with its role as category and its name, op, layer and phase as frames; every program once, in the order of the
 * timeline, with predicted times from 0 on. The caller destroys it. */
HR_CHECKED hr_status hr_plan_snapshot(const hr_plan *plan, hr_snapshot **snapshot, hr_error *error);

/* Every program, node, tensor and storage as text or JSON; stable. Storages that no node touches have no place: text lists
 * them apart. Owned by the caller (hr_free). */
HR_CHECKED hr_status hr_plan_dump(const hr_plan *plan, bool json, char **text, hr_error *error);

/* Why a job does not fit: BUDGET error with the phase and the tensors at the peak, of the host where the device has room;
 * HR_OK when it fits. */
HR_CHECKED hr_status hr_plan_verdict(const hr_plan *plan, hr_error *error);

/* Whether a job fits, for who asks that of many: what hr_plan_create says of it, in less time, since nothing is made that only
 * a plan which is shown or run must have, and nothing is placed whose live bytes are too many alone. */
typedef struct hr_fit {
  bool fits;
  uint64_t need_bytes;  /* reserved + fixed, device tier; of a job that does not fit: at least so many */
  uint64_t bound_bytes; /* of the device tier are alive at once: no placement takes less */
  double step_seconds;
  double token_seconds; /* per token of a step */
} hr_fit;
HR_CHECKED hr_status hr_plan_fit(const hr_job *job, hr_fit *fit, hr_error *error);

/* A training plan seen by layer: what makes recompute levels comparable without running or guessing. All bytes are live
 * bytes of the device tier. While layer k runs, the layers below it hold their saved bytes and those above it none, so
 * that `forward_bytes` and `backward_bytes` less the saved bytes below are the layer's own. */
typedef struct hr_layer_share {
  uint64_t saved_bytes;    /* the layer's own tensors that are alive while the loss is computed */
  uint64_t forward_bytes;  /* most bytes alive in the whole job while its forward runs */
  uint64_t backward_bytes; /* ... while its backward runs, with what it makes again and an update inside the backward */
  double seconds;          /* of one optimizer step, all phases */
} hr_layer_share;
typedef struct hr_plan_layers {
  uint32_t count;
  hr_layer_share layers[HR_MAX_LAYERS];
  uint64_t between_bytes; /* most bytes alive after the last forward and before the first backward layer: the loss */
  uint64_t outside_bytes; /* most bytes alive elsewhere: embedding, update after the backward, other programs */
  double outside_seconds;
} hr_plan_layers;
/* USAGE for a plan that is no training. */
HR_CHECKED hr_status hr_plan_layers_get(const hr_plan *plan, hr_plan_layers *layers, hr_error *error);

/* ---- search ---- */

enum { HR_FIX_TEXT_BYTES = 192, HR_MAX_FIXES = 128 };

typedef struct hr_fix {
  char options[HR_FIX_TEXT_BYTES]; /* to be added to the command, e.g. "--recompute block --loss-chunk 1024" */
  bool fits;
  bool changes_algorithm; /* offered, never taken: bf16, another optimizer, no clipping, shorter sequence, ... */
  uint32_t effect_class;  /* an hr_effect (headroom/field.h), from 0 (same bits) to 3 (another algorithm) */
  uint64_t need_bytes;    /* reserved + fixed, device tier */
  double step_seconds;
  double token_seconds; /* per token of a step: comparable where steps have other numbers of tokens */
  hr_job job;           /* the changed job, finished */
} hr_fix;

/* Plans alternatives of a job, each for real. fixes[] (capacity HR_MAX_FIXES) is sorted: those that fit first, by
 * effect class, in a class by seconds per token; then those that do not, smallest first, so that the first non-fitting
 * one says the smallest budget. None is told that another beats in bytes and time without changing more. */
HR_CHECKED hr_status hr_plan_fixes(const hr_job *job, hr_fix *fixes, uint32_t *count, hr_error *error);

/* --recompute auto: the levels, one per layer, that take the least predicted time within the budget, found by a dynamic
 * program over what plans of uniform levels need and cost, and verified by placed plans (src/search/recompute.c). They
 * become the job's (HR_RECOMPUTE_LEVELS), whatever it said of recomputation before. Where nothing fits, they are those
 * of the smallest need that was found. The plan of the changed job is returned in *plan when it is not NULL: its
 * info.fits tells. `job` is finished and a training (USAGE otherwise).
 *
 * `frontier` (NULL: not wanted; capacity HR_MAX_FRONTIER) receives choices from the fewest bytes to the least time,
 * each planned, none beaten by another in both; the chosen one is among them. */
enum { HR_MAX_FRONTIER = 10 };
typedef struct hr_frontier_point {
  hr_recompute recompute;
  uint64_t need_bytes; /* reserved + fixed, device tier */
  double step_seconds;
  bool fits, chosen;
} hr_frontier_point;
typedef struct hr_frontier {
  hr_frontier_point points[HR_MAX_FRONTIER];
  uint32_t count;
} hr_frontier;
HR_CHECKED hr_status hr_plan_recompute(hr_job *job, hr_plan **plan, hr_frontier *frontier, hr_error *error);

/* Chooses micro_batch for a finished job whose rows are OPEN: what fits and takes the least predicted time per token,
 * among equal ones the fewest rows. With batch_tokens every way to split its rows into micro_batch x accumulate, else as
 * many rows as fit beside the job's accumulate. Of an evaluation the fewest rows that take at most 1 % longer. Levels that
 * are to be chosen are chosen for each. Where nothing fits it is what needs least, and the plan says so. The job's plan is returned in *plan where it is not NULL. */
HR_CHECKED hr_status hr_plan_rows(hr_job *job, hr_plan **plan, hr_error *error);

/* What --auto found, and what could not be beaten. Bounds hold for every combination that it may take, however much of
 * the space was looked at:
 *
 * Time. Whatever is chosen, a step does the work of the plan of the same rows with a whole loss, nothing made again and
 * nothing packed, or more of it: recomputation and packing add nodes, and what goes by chunks reads its weights more
 * often. Where times come from published or assumed rates, a node split in two takes no less than the whole. Where rates
 * were measured, each node is taken at the best rate of its kind at any size. The bound is the least over all rows of a
 * micro-step and both places of the update.
 *
 * Bytes. What the programs of a step carry from one to the next (weights, states, gradients of several micro-steps) and
 * what no program owns is needed by every combination; the least over the same choices. */
typedef struct hr_auto {
  double token_seconds;         /* of what is taken */
  double fastest_token_seconds; /* of the fastest that was found to fit */
  double bound_token_seconds;   /* nothing that fits takes less */
  uint64_t bound_bytes;         /* nothing needs less */
  uint64_t smallest_bytes;      /* BUDGET: the smallest need that is known; else 0 */
} hr_auto;

/* --auto: replaces options that were not given by the fastest choice that fits, effect classes 0 and 1 only:
 * recomputation, rows of a micro-step (a step keeps its rows; a given micro_batch without accumulate is the most rows
 * at a time), loss chunk, place of the update, packing of weights. The fastest is never slower than a fix of hr_plan_fixes
 * that changes nothing else; taken is the loss chunk of it that needs least and takes at most 0.1 % longer, where that
 * saves 1 % or more. BUDGET when nothing fits, with what was searched and the smallest need. The plan of the changed job is
 * returned in *plan, and what there is to say of the search in *found, where they are not NULL. */
HR_CHECKED hr_status hr_plan_auto(hr_job *job, hr_plan **plan, hr_auto *found, hr_error *error);

#ifdef __cplusplus
}
#endif
#endif
