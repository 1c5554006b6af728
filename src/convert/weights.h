/* The weights of a model on their way from one format to another, a few MiB at a time. Internal to src/convert. */
#ifndef HRI_CONVERT_WEIGHTS_H
#define HRI_CONVERT_WEIGHTS_H

#include "formats/weights.h"
#include "model/gguf.h"

/* Where weights come from: exactly one of both is open. */
typedef struct hri_convert_source {
  const hr_model *model;
  hri_weights *weights; /* Hugging Face */
  hri_gguf *gguf;
} hri_convert_source;

/* The tensor of a part in source->weights, under whatever spelling; HRI_SAFETENSORS_NONE when there is none. */
uint32_t hri_convert_find(const hri_convert_source *source, const char *name);

/* Checks that the source has each tensor of its model in the right shape, and no others. INPUT names the tensor. */
hr_status hri_convert_check(const hri_convert_source *source, hr_error *error);
/* The type of most weights: that of the embedding, or for GGUF that of the most elements; a name of hri_ggml_name. */
hr_status hri_convert_type_of(const hri_convert_source *source, uint32_t *ggml_type, hr_error *error);

/* Refuses (INPUT) what is not finite, and what would not be any more as F16 or BF16. */
hr_status hri_convert_check_values(const float *values, uint64_t count, uint32_t ggml_type, const char *name,
                                   hr_error *error);

/* Rows j and j + D/2 of each head become 2j and 2j + 1. Whole heads are there. `spare` has room for one. */
void hri_convert_interleave(float *rows, uint64_t count, uint64_t columns, uint32_t head_size, float *spare);

/* Writes all weights to a GGUF file beside the keys, or as safetensors into an existing directory. `ggml_type` is one
 * of F32,
 * F16, BF16 and (GGUF) Q8_0: of the matrices; vectors and position tables of a GGUF file are F32, and rows that do not
 * fill blocks F16. INPUT when a value is not finite or does not fit. */
hr_status hri_convert_to_gguf(const hri_convert_source *source, const char *path, const hri_gguf_keys *keys,
                              uint32_t ggml_type, uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error);
hr_status hri_convert_to_weights(const hri_convert_source *source, const char *directory, uint32_t ggml_type,
                                 uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error);

/* Writes the weights of a directory with the matrices of layers quantized to a kind, as bitsandbytes stores them, from
 * the values of their files, and the others as they are. INPUT when a value has no code. */
hr_status hri_convert_to_quantized(const hri_convert_source *source, const char *directory, uint32_t kind,
                                   uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error);

#endif
