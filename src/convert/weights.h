/* The weights of a model on their way from one format to another, a few MiB at a time. Internal to src/convert. */
#ifndef HRI_CONVERT_WEIGHTS_H
#define HRI_CONVERT_WEIGHTS_H

#include "convert/blocks.h"
#include "formats/weights.h"
#include "model/gguf.h"

/* Where weights come from: exactly one of both is open. */
typedef struct hri_convert_source {
  const hr_model *model;
  hri_weights *weights; /* Hugging Face */
  hri_gguf *gguf;
  bool (*should_stop)(void *context); /* of hr_convert_options; may be NULL */
  void *context;
} hri_convert_source;

/* INTERRUPTED once somebody asks for it. */
hr_status hri_convert_go_on(const hri_convert_source *source, hr_error *error);

/* The tensor of a part in source->weights, under whatever spelling; HRI_SAFETENSORS_NONE when there is none. */
uint32_t hri_convert_find(const hri_convert_source *source, const char *name);

/* Checks that the source has each tensor of its model in the right shape, and no others. INPUT names the tensor. */
hr_status hri_convert_check(const hri_convert_source *source, hr_error *error);
/* The type of most weights: that of the embedding, or for GGUF that of the most elements; a name of hri_ggml_name. */
hr_status hri_convert_type_of(const hri_convert_source *source, uint32_t *ggml_type, hr_error *error);

/* "q4_K", as the command line has it. */
void hri_convert_type_name(uint32_t ggml_type, char out[16]);
/* Refuses (INPUT) what is not finite, and what would not be any more in that type. */
hr_status hri_convert_check_values(const float *values, uint64_t count, uint32_t ggml_type, const char *name,
                                   hr_error *error);

/* Rows j and j + D/2 of each head become 2j and 2j + 1. Whole heads are there. `spare` has room for one. */
void hri_convert_interleave(float *rows, uint64_t count, uint64_t columns, uint32_t head_size, float *spare);

/* What was written to a GGUF file. */
typedef struct hri_convert_written {
  uint32_t tensors, in_blocks, fallbacks; /* of all: in blocks; in another type than was asked for */
  uint64_t data_bytes;
  hri_block_loss loss; /* of all that is in blocks */
  double worst;        /* hri_block_loss_share of one tensor, the largest ... */
  char worst_name[64]; /* ... and its name */
} hri_convert_written;

/* Writes all weights to a GGUF file beside the keys. Matrices are of `type` (hri_ggml_encodes); `mixed`: as llama.cpp's
 * mixes Q4_K_M and Q5_K_M have it, some of them of a type with more bits. Vectors and position tables are F32. Rows that do
 * not fill blocks have the type that llama.cpp falls back to: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, and F16 for
 * others and where that does not fit either. INPUT when a value is not finite or does not fit. */
typedef struct hri_convert_kind {
  uint32_t type;
  bool mixed; /* Q4_K and Q5_K only */
} hri_convert_kind;
hr_status hri_convert_to_gguf(const hri_convert_source *source, const char *path, const hri_gguf_keys *keys,
                              hri_convert_kind kind, hri_convert_written *written, hr_error *error);
/* Writes all weights as safetensors into an existing directory, as F32, F16 or BF16. */
hr_status hri_convert_to_weights(const hri_convert_source *source, const char *directory, uint32_t ggml_type,
                                 uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error);

/* Writes the weights of a directory with the matrices of layers quantized to a kind, as bitsandbytes stores them, from
 * the values of their files, and the others as they are. INPUT when a value has no code, or is not finite. */
hr_status hri_convert_to_quantized(const hri_convert_source *source, const char *directory, uint32_t kind,
                                   uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error);

#endif
