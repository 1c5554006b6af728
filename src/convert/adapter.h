/* Adapters on their way to a GGUF file. Internal to src/convert. */
#ifndef HRI_CONVERT_ADAPTER_H
#define HRI_CONVERT_ADAPTER_H

#include "formats/weights.h"
#include "model/gguf.h"

/* Writes the adapters of a model (model->lora, `weights` their file) to the new file `path`, whose matrices are of
 * `ggml_type` (`file_type`: llama.cpp's number for it); rows that do not fill blocks are F16. INPUT names the tensor:
 * one that is missing, of another shape, of no adapted module, or with values that are not finite or do not fit. */
hr_status hri_convert_adapter(const hr_model *model, const hri_weights *weights, const char *path, uint32_t ggml_type,
                              uint32_t file_type, uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error);

#endif
