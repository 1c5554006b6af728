/* Adapters in files as PEFT has them: adapter_config.json and adapter_model.safetensors in a directory (peft
 * tuners/lora/config.py, utils/save_and_load.py). */
#ifndef HRI_MODEL_ADAPTER_H
#define HRI_MODEL_ADAPTER_H

#include <headroom/model.h>

#include "base/text.h"

#define HRI_ADAPTER_CONFIG "adapter_config.json"

/* Reads the description of the adapters in `source` into model->lora and model->adapter: adapter_config.json of a directory,
 * or the head of a GGUF file (model/gguf.h). INPUT names file and field; UNSUPPORTED what of PEFT is not read: other kinds of adapters, targets outside of the layers' linear modules, adapters whose start changed
 * the base (PiSSA, OLoRA, CorDA, LoftQ). */
hr_status hri_adapter_open(const char *source, hr_model *model, hr_error *error);

/* Where the adapter says its base is: base_model_name_or_path. INPUT when it does not say. */
hr_status hri_adapter_base(const char *directory, char out[1024], hr_error *error);

/* The text of adapter_config.json for a model's adapters. `base`: where the model is; NULL: it began from a seed and is
 * nowhere to be loaded from. */
void hri_adapter_text(const hr_model *model, const char *base, hri_text *out);

#endif
