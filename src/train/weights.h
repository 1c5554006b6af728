/* Parameters between files and the arena: what the FILL and SINK nodes of a job do at run time.
 *
 * A parameter is assembled from its parts (model/params.h): rows of a fused matrix, transposed where the file is. All
 * conversion happens in the staging storage that the plan gave the node. */
#ifndef HRI_TRAIN_WEIGHTS_H
#define HRI_TRAIN_WEIGHTS_H

#include <headroom/job.h>

#include "base/real.h"
#include "formats/weights.h"
#include "kernel/cpu.h"
#include "model/params.h"

/* ---- loading ---- */

typedef struct hri_source {
  const hr_model *model;
  const hri_job *job;
  const hri_cpu *cpu;
  uint64_t seed;
  hri_weights *weights;   /* NULL: initialise from the seed */
  hri_weights *states;    /* NULL: states start at zero */
  hri_file_dtype dtype;   /* of the weights as loaded; F32 when initialised */
} hri_source;

/* Opens model->directory (or `directory` when not NULL) and checks before anything is read that every part is there with
 * the right shape and a float dtype, and that no unknown tensor is; INPUT names file, tensor and remedy. */
hr_status hri_source_open(hri_source *source, const hr_model *model, const hri_job *job, const hri_cpu *cpu, const char *directory,
                          const char *states_file, uint64_t seed, hr_error *error);
void hri_source_close(hri_source *source);
hr_status hri_source_fill(void *source, uint32_t param, hri_part_kind kind, void *tensor, void *staging, uint64_t staging_bytes, hr_error *error);

/* The initial values of a parameter's `elements` logical elements: the same numbers in either type, rounded for bf16, which
 * goes through the staging. */
void hri_initialise(const hri_cpu *cpu, const hri_param *param, uint64_t seed, uint64_t elements, hri_real real, void *tensor, void *staging, uint64_t staging_bytes);

/* ---- saving ---- */

typedef struct hri_sink {
  const hr_model *model;
  const hri_job *job;
  hri_file_dtype dtype;         /* of the weights */
  hri_weights_writer *weights;
  hri_safetensors_writer *states; /* NULL: states are not saved */
  hri_safetensor *tensors;      /* of the weights, in the order of parameters and parts */
  uint32_t *first_tensor;       /* per parameter */
  char (*names)[96];
  hri_safetensor *state_tensors;
  char (*state_names)[96];
  uint32_t *first_state;
} hri_sink;

/* Starts model.safetensors (or shards) and, with states, optimizer.safetensors in an existing directory. */
hr_status hri_sink_open(hri_sink *sink, const hr_model *model, const hri_job *job, const char *directory, hri_file_dtype dtype, bool with_states, hr_error *error);
hr_status hri_sink_write(void *sink, uint32_t param, hri_part_kind kind, const void *tensor, void *staging, uint64_t staging_bytes, hr_error *error);
hr_status hri_sink_finish(hri_sink *sink, hr_error *error);
void hri_sink_abort(hri_sink *sink); /* also after finish: frees what is left */

#endif
