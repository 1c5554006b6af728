/* From a model description to forward programs: weights as tensors, one node per op, pure SSA, no technique applied. */
#ifndef HRI_MODEL_BUILD_H
#define HRI_MODEL_BUILD_H

#include <headroom/job.h>

#include "program/job.h"

/* What the head pass needs of a forward program. */
typedef struct hri_forward {
  bool present;
  uint8_t program, phase;
  hri_id hidden;       /* [M, C] after the final norm */
  hri_id targets;      /* [M] int32, already shifted; HRI_NONE in generation */
  hri_id head;         /* weight [V, C], the embedding when tied */
  uint64_t vocabulary; /* logical V */
  uint32_t unit;       /* the head's */
  bool with_gradient;
} hri_forward;

/* Builds every program that the purpose of `spec` needs into an initialised job: parameters, inputs, control block, and
 * the forward parts, listed in `forwards` (HRI_PROGRAM_COUNT entries, indexed by program kind). Also load and save. */
hr_status hri_build(hri_job *job, const hr_job *spec, hri_forward *forwards, hr_error *error);

/* Bytes of the staging buffer that one load or save node may use for a parameter of `bytes`. */
uint64_t hri_staging_bytes(uint64_t bytes);

#endif
