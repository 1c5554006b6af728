/* Parameters between files and the arena: what the FILL and SINK nodes of a job do at run time.
 *
 * A parameter is assembled from its parts (model/params.h): rows of a fused matrix, transposed where the file is. The
 * parts go straight to their place, or through the staging storage that the plan gave the node
 * (train/weights_move.h). */
#ifndef HRI_TRAIN_WEIGHTS_H
#define HRI_TRAIN_WEIGHTS_H

#include <headroom/job.h>

#include "backend/backend.h"
#include "base/real.h"
#include "formats/weights.h"
#include "model/gguf.h"
#include "model/params.h"

/* ---- loading ---- */

typedef struct hri_source {
  const hr_model *model;
  const hri_job *job;
  const hri_elements *elements;
  uint64_t seed;
  hri_weights *weights; /* where the weights are; both NULL: initialise from the seed */
  hri_gguf *gguf;
  hri_weights *adapter; /* where a model's adapters are; both NULL: initialise them */
  hri_gguf *adapter_gguf;
  hri_weights *states;              /* NULL: states start at zero */
  struct hri_bnb_weight *quantized; /* [parameter of the model][part]: of quantized files; NULL */
  bool tuned;                       /* `weights` are an adapter's file */
  hri_file_dtype dtype;             /* of the weights as loaded; F32 when initialised or quantized */
} hri_source;

/* Opens model->directory, or `directory` when not NULL (safetensors or a GGUF file; of a model with adapters those
 * alone, which model->adapter names otherwise: a directory or a GGUF file), and checks before anything is read
 * that every part is there once, with the right shape and a type that is decoded, and that no unknown tensor is; INPUT
 * names file, tensor and remedy. */
hr_status hri_source_open(hri_source *source, const hr_model *model, const hri_job *job, const hri_elements *elements,
                          const char *directory, const char *states_file, uint64_t seed, hr_error *error);
void hri_source_close(hri_source *source);
/* After loading: closes what nobody needs any more. A source stays open (its states' file does not) while the arena has
 * some frozen tensor in fewer bits than its file: a save copies those from there, whatever became of the names. */
hr_status hri_source_settle(hri_source *source, hr_error *error);
/* From now on the digests of the weight files and of the states' file are taken as they are read (a GGUF file's is
 * not), and told after all was filled, by name, for a comparison with what a manifest says of them; `base` (may be NULL)
 * gets those of the weights beside which adapters stand, for which a GGUF file is read once more. Errors as of
 * hri_safetensors_digest_begin and _end. */
hr_status hri_source_digest_begin(hri_source *source, hr_error *error);
hr_status hri_source_digest_end(hri_source *source, hri_file_list *files, hri_file_list *base, hr_error *error);
hr_status hri_source_fill(void *source, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                          uint64_t staging_bytes, hr_error *error);

/* The initial values of a range's logical elements: the same numbers in either type, however the parameter is cut into
 * ranges; rounded for bf16. What is rounded, or has no address, goes through the staging. */
hr_status hri_initialise(const hri_elements *with, const hri_job *job, uint32_t range, uint64_t seed, hri_real real,
                         const hri_window *tensor, void *staging, uint64_t staging_bytes, hr_error *error);
/* Zeros to `bytes` of a tensor from an offset on. */
hr_status hri_window_zero(const hri_elements *with, const hri_window *tensor, uint64_t offset, uint64_t bytes,
                          void *staging, uint64_t staging_bytes, hr_error *error);

/* ---- shared with saving ---- */

/* The tensor of a part in source->weights, under whatever spelling; HRI_SAFETENSORS_NONE when there is none. */
uint32_t hri_source_find(const hri_source *source, const hri_param_part *part);

/* Of an open source with adapters: where their file brings the embedding too, it is that of `base`. UNSUPPORTED. */
hr_status hri_source_check_embedding(const hri_source *source, const hri_source *base, hr_error *error);

/* Whether the k-th part of a range is frozen and was rounded as it was loaded; then *move says where its values are. */
struct hri_move;
hr_status hri_source_original(const hri_source *source, uint32_t range, uint32_t k, struct hri_move *move,
                              bool *rounded, hr_error *error);

/* Shape of a part in its file; returns the rank. */
uint32_t hri_part_shape(const hri_param_spec *spec, const hri_param_part *part, uint64_t shape[2]);
/* A tensor of optimizer.safetensors, and where its entries are in the state of a range. A parameter that is one range
 * has one, under its own name, whatever segments there are; of others each part has one, under the part's. */
typedef struct hri_state_file {
  char name[128];
  uint64_t entries, at;
  uint32_t rank;
  uint64_t shape[2];
} hri_state_file;
/* The k-th tensor that holds some of a range's state; false when there are no more. */
bool hri_state_file_of(const hri_job *job, uint32_t range, const hri_param_spec *spec, uint32_t tensor, uint32_t k,
                       hri_state_file *file);

/* Whether what FILL and SINK move are codes: bytes, which are no numbers. */
bool hri_is_codes(const hri_job *job, uint32_t range, uint32_t what);
/* The type of what FILL and SINK move that is no codes: of the master where there is one. */
hri_real hri_real_of(const hri_job *job, uint32_t range, uint32_t what);
/* The type of a range's state in its file. */
hri_file_dtype hri_state_dtype(const hri_job *job, uint32_t range, uint32_t tensor);
/* F32, BF16 or F16 as a type of hri_move. */
uint32_t hri_move_type(hri_file_dtype dtype);

/* What the weight files of a source say beside values, for a result like them: the type of each tensor (in the order of
 * parameters and parts), which shard it is in, and metadata. */
typedef struct hri_carry {
  hri_file_dtype dtype;   /* of most weights; F32 when there was no file */
  hri_file_dtype *dtypes; /* NULL when there is nothing to be like: `dtype` for all, shards by size */
  uint32_t *shard_of, shard_count;
  hri_safetensors_pair *metadata; /* owned; without a format other than pt, which is what is written */
  uint32_t metadata_count;
} hri_carry;

/* The metadata key by which a checkpoint, whose weights are F32, remembers the type that its run began with. */
#define HRI_SOURCE_DTYPE_KEY "headroom.source_dtype"

/* The metadata key by which adapters remember beside which quantized weights they were trained ("nf4+dq"); PEFT does not
 * read metadata. */
#define HRI_QUANTIZATION_KEY "headroom.quantization"

/* Fills a zeroed carry from an open source. */
hr_status hri_carry_take(hri_carry *carry, const hri_source *source, hr_error *error);
void hri_carry_deinit(hri_carry *carry);

/* ---- saving ---- */

#define HRI_SHARD_BYTES 5000000000u /* decimal, as huggingface_hub */

typedef struct hri_sink_options {
  const hri_carry *carry;
  const hri_source *originals; /* settled: where frozen tensors are that the arena has rounded; NULL: it has none */
  bool as_source;              /* types and shards of the carry; else `dtype`, and shards by size */
  hri_file_dtype dtype;
  bool states;              /* a checkpoint: optimizer.safetensors too, and the carry's type is remembered */
  const char *quantization; /* with adapters: of the weights beside them; NULL: none */
  uint64_t max_shard_bytes; /* 0: HRI_SHARD_BYTES */
} hri_sink_options;

typedef struct hri_sink {
  const hr_model *model;
  const hri_job *job;
  const hri_elements *elements;
  hri_sink_options options;
  hri_weights_writer *weights;
  hri_safetensors_writer *states; /* NULL: states are not saved */
  hri_safetensor *tensors; /* of the weights, in the order of parameters and parts; with adapters of those alone */
  uint32_t *tensor_of;     /* per part of the job: its tensor, HRI_NONE */
  char (*names)[96];
  hri_safetensor *state_tensors;
  char (*state_names)[128];
  uint32_t tensor_count, state_count;
  uint32_t *first_state; /* per range: of its states, tensor by tensor, part by part */
  hr_error changed;      /* why a frozen tensor was saved as the arena has it after all; no message: none was */
} hri_sink;

/* Starts model.safetensors (or shards) and, with states, optimizer.safetensors in an existing directory that has none
 * of them and is not in its place yet. The carry must outlive the sink. */
hr_status hri_sink_open(hri_sink *sink, const hr_model *model, const hri_job *job, const hri_elements *elements,
                        const char *directory, const hri_sink_options *options, hr_error *error);
/* DIVERGED: a value is not finite; the tensor and the element are named. */
hr_status hri_sink_write(void *sink, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                         uint64_t staging_bytes, hr_error *error);
/* Completes the files, and adds them to `files` (may be NULL). The directory is the caller's to sync and to publish. */
hr_status hri_sink_finish(hri_sink *sink, hri_file_list *files, hr_error *error);
void hri_sink_abort(hri_sink *sink); /* also after finish: frees what is left */

#endif
