/* From a model description to forward programs: weights as tensors, one node per op, pure SSA, no technique applied. */
#ifndef HRI_MODEL_BUILD_H
#define HRI_MODEL_BUILD_H

#include <headroom/job.h>

#include "model/params.h"
#include "program/job.h"

/* What the head pass needs of a forward program. */
typedef struct hri_forward {
  bool present;
  uint8_t program, phase;
  hri_id hidden;        /* [M, C] after the final norm */
  hri_id targets;       /* [M] int32, already shifted; HRI_NONE in generation */
  hri_id head;          /* weight [V, C], the embedding when tied */
  hri_id head_bias;     /* [V], or HRI_NONE */
  uint64_t vocabulary;  /* logical V */
  double logit_softcap; /* 0: none */
  uint32_t unit;        /* the head's */
  bool with_gradient;
} hri_forward;

/* Builds every program that the purpose of `spec` needs into an initialised job: parameters, inputs, control block, and
 * the forward parts, listed in `forwards` (HRI_PROGRAM_COUNT entries, indexed by program kind). Also load and save. */
hr_status hri_build(hri_job *job, const hr_job *spec, hri_forward *forwards, hr_error *error);

/* ---- pieces, also for programs that are built op by op ---- */

/* The programs that a job has (set of HRI_IN). */
uint16_t hri_programs_of(const hr_job *spec);

/* A part of a parameter that is asked for: see hri_part. */
typedef struct hri_part_request {
  const char *name;
  uint64_t row, rows;
  bool trainable, decay;
  hr_optimizer state_kind;
  uint8_t quantization; /* hri_quantization; alike in all parts of a parameter, which is then frozen */
  uint8_t type;         /* of blocks that are kept: their hri_dtype */
} hri_part_request;

typedef struct hri_param_request {
  const char *name;
  int32_t layer; /* -1 outside of layers */
  uint32_t unit, rank;
  uint64_t dims[2], stored[2];
  const hri_part_request *parts; /* all rows, in order; in a job that does not train nothing is trainable */
  uint32_t part_count;
  hri_init init;
  double init_std;
  uint32_t spec; /* index in the model's parameter table, HRI_NONE */
  uint32_t site; /* of its random numbers */
  bool wide;     /* stays fp32 in every precision */
} hri_param_request;

/* Weight of one parameter, its parts, ranges and runs with their gradients and states; returns its index (HRI_NONE when
 * memory is refused). */
uint32_t hri_build_parameter(hri_job *job, const hr_job *spec, const hri_param_request *request);
void hri_build_control(hri_job *job, uint16_t programs);
/* The load or save program: one node per range and thing that it has (saved is what trains where `trained`), each with a staging of its own, which lies in the
 * tier that the host addresses. Master weights are moved where there are any, and rounded to the weights that the
 * products read. */
void hri_build_transfers(hri_job *job, bool load, bool trained, hri_tier staging_tier);
/* Behind the loads: DoRA's magnitudes of a model whose adapters begin here are the lengths of the rows of its weights;
 * those that a checkpoint brought stay. */
void hri_build_magnitudes(hri_job *job, const hr_job *spec);
/* With several micro-steps every gradient is added to: `begin` makes them zero, one node per run until layout gathers
 * them. */
void hri_build_zero_gradients(hri_job *job);

/* Bytes of the staging buffer that one load or save node may use for a parameter of `bytes`; its team shares them
 * out. */
uint64_t hri_staging_bytes(uint64_t bytes, uint32_t team);

#endif
