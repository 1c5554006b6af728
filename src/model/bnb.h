/* How bitsandbytes checkpoints name and describe quantized weights: `quantization_config` of config.json, the tensors
 * beside each weight, and the JSON text in one of them. No weight is read here (convert/bnb.h does).
 *
 *   4-bit   NAME.weight                  bytes [ceil(n/2), 1], or the same in the type of bnb_4bit_quant_storage
 *           NAME.weight.absmax           F32, or U8 with double quantization
 *           NAME.weight.quant_map        F32[16]
 *           NAME.weight.nested_absmax    F32, with NAME.weight.nested_quant_map F32[256]: double quantization
 *           NAME.weight.quant_state.bitsandbytes__nf4 (or __fp4)   bytes of a JSON object
 *   int8    NAME.weight I8 [rows, columns], NAME.SCB F32 [rows], NAME.weight_format U8, 0: by rows
 *
 * Source: bitsandbytes, functional.py (QuantState), nn/modules.py; transformers, integrations/bitsandbytes.py. */
#ifndef HRI_MODEL_BNB_H
#define HRI_MODEL_BNB_H

#include "base/json.h"
#include "formats/dtype.h"
#include "model/params.h"
#include "program/quantization.h"

/* ---- config.json ---- */

/* The kind that a config.json names, HRI_QUANTIZATION_NONE when it has no quantization_config. The weights decide which
 * of them are of it: bitsandbytes leaves out the head and what llm_int8_skip_modules names. INPUT: another method, or
 * one whose weights are 16-bit on disk (llm_int8_has_fp16_weight); malformed. */
hr_status hri_bnb_config_read(const hri_json *root, uint32_t *kind, hr_error *error);
/* The member "quantization_config" as transformers writes it, of a model that is quantized and whose weights were of a
 * type. */
void hri_bnb_config_put(hri_json_writer *writer, const hr_model *model, hri_file_dtype dtype);

/* ---- names ---- */

typedef enum hri_bnb_tensor {
  HRI_BNB_WEIGHT = 0,
  HRI_BNB_ABSMAX, /* in int8: SCB */
  HRI_BNB_MAP,    /* in int8: weight_format */
  HRI_BNB_NESTED_ABSMAX,
  HRI_BNB_NESTED_MAP,
  HRI_BNB_STATE,
  HRI_BNB_TENSORS
} hri_bnb_tensor;

enum { HRI_BNB_NAME_BYTES = 320 };

/* The name of a tensor of the weight `weight` ("... .weight"). False when there is none in this kind, or it is too
 * long. */
bool hri_bnb_name(uint32_t kind, const char *weight, hri_bnb_tensor which, char out[HRI_BNB_NAME_BYTES]);
/* Whether a name can only be that of a tensor beside a weight; then `weight` is that weight's. */
bool hri_bnb_beside(const char *name, char weight[HRI_BNB_NAME_BYTES]);

/* ---- the text of quant_state ---- */

typedef struct hri_bnb_state {
  uint32_t kind;
  hri_file_dtype dtype; /* of the weight before: F32, BF16 or F16 */
  uint64_t rows, columns;
  float offset; /* with double quantization */
} hri_bnb_state;

/* `tensor` and `file` name the text in errors. INPUT: what is malformed, or other blocks than 64 and 256. */
hr_status hri_bnb_state_read(const char *bytes, uint64_t count, const char *file, const char *tensor,
                             hri_bnb_state *state, hr_error *error);
/* As Python writes it, to the byte. */
void hri_bnb_state_put(hri_text *text, const hri_bnb_state *state);

#endif
