/* Adapters on their way to a GGUF file. Internal to src/convert. */
#ifndef HRI_CONVERT_ADAPTER_H
#define HRI_CONVERT_ADAPTER_H

#include "convert/weights.h"

/* Writes the adapters of a model (source->model's lora, source->weights their file) to the new file `path`, whose matrices are of
 * `ggml_type` (`file_type`: llama.cpp's number for it); rows that do not fill blocks are F16. INPUT names the tensor:
 * one that is missing, of another shape, of no adapted module, or with values that are not finite or do not fit. INTERRUPTED once
 * somebody asks for it. */
hr_status hri_convert_adapter(const hri_convert_source *source, const char *path, uint32_t ggml_type,
                              uint32_t file_type, uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error);

#endif
