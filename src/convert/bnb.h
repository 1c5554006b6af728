/* Weights of bitsandbytes checkpoints: found, read into our layout and written, each byte as it is. Our codes, absmax
 * and nested entries are theirs (program/quantization.h); only the mean of double quantization stands elsewhere, in the
 * text of quant_state. */
#ifndef HRI_CONVERT_BNB_H
#define HRI_CONVERT_BNB_H

#include "formats/weights.h"
#include "model/bnb.h"

/* A weight of a file. */
typedef struct hri_bnb_weight {
  uint32_t kind;           /* HRI_QUANTIZATION_NONE: it is not quantized, or not there; nothing below means anything */
  hri_file_dtype dtype;    /* of the values that were quantized; F16 in int8, which does not say */
  hri_quant_layout layout; /* of one part */
  float offset;            /* with double quantization */
  uint32_t weight, absmax, nested; /* indices in the weights; nested HRI_SAFETENSORS_NONE without */
} hri_bnb_weight;

/* Looks a weight of `rows` x `columns` up (as [out, in], also where the 16-bit file has [in, out]: GPT-2) and reads the
 * small tensors beside it, each of their bytes once: call it once a weight where a digest is taken. Files by quantizers
 * on GPUs and of other versions are fine: their maps may differ from ours in the last bits (a linspace rounded
 * otherwise), which is let pass below 2^-20 of an entry; values are then those of our maps. INPUT names file and tensor:
 * what is missing, malformed, of other blocks, another map or shape, or of a layout that is not by rows. */
hr_status hri_bnb_find(const hri_weights *weights, const char *name, uint64_t rows, uint64_t columns,
                       hri_bnb_weight *out, hr_error *error);
/* Reads codes, absmax and (with dq, else NULL) nested with the offset behind it; sizes are those of the layout. INPUT
 * when a scale is NaN, infinite or negative. */
hr_status hri_bnb_read(const hri_weights *weights, const hri_bnb_weight *weight, uint8_t *codes, void *absmax,
                       float *nested, hr_error *error);

/* INPUT names the first of scales [first, first + count) of a tensor that is NaN, infinite or negative. */
hr_status hri_bnb_check_scales(const hri_weights *weights, uint32_t index, const float *scales, uint64_t first,
                               uint64_t count, hr_error *error);

/* The tensors of one weight, to be written. Their names stand in it: it stays where it is until all is written. */
typedef struct hri_bnb_entries {
  uint32_t count;
  hri_safetensor tensors[HRI_BNB_TENSORS];
  hri_bnb_tensor which[HRI_BNB_TENSORS];
  char names[HRI_BNB_TENSORS][HRI_BNB_NAME_BYTES];
  hri_bnb_state state;
  hri_quant_layout layout;
  char text[256]; /* of quant_state */
} hri_bnb_entries;

/* `name` is the weight's, `state` says all of it (with dq the offset, which decides how long the text is). INTERNAL:
 * a kind or size that does not exist; USAGE: a name that is too long, or in int8 does not end with ".weight". */
hr_status hri_bnb_entries_init(hri_bnb_entries *entries, const char *name, const hri_bnb_state *state, hr_error *error);
/* Writes all of them; `first` is the index of tensors[0] in the list given to the writer. */
hr_status hri_bnb_write(hri_weights_writer *writer, uint32_t first, const hri_bnb_entries *entries,
                        const uint8_t *codes, const void *absmax, const float *nested, hr_error *error);

#endif
