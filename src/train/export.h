/* What a saved model directory holds besides weights: config.json, and the files of the source model that go with
 * it. */
#ifndef HRI_TRAIN_EXPORT_H
#define HRI_TRAIN_EXPORT_H

#include <headroom/model.h>

#include "formats/digest.h"

/* Both write into a directory that is not in its place yet, without syncing it, and add the files that they wrote to
 * `files` (may be NULL). */

/* Writes config.json into an existing directory: that of the source model with its own keys, order and values, where it
 * still says what `model` is, else what `model` alone says. `dtype` ("float32", ...) and, of a text part that now
 * stands by itself, the architecture are set in either case. */
hr_status hri_export_config(const hr_model *model, const char *dtype, const char *directory, hri_file_list *files,
                            hr_error *error);

/* Writes adapter_config.json, as PEFT reads it, of a model with adapters. */
hr_status hri_export_adapter(const hr_model *model, const char *directory, hri_file_list *files, hr_error *error);

/* Copies the tokenizer, template and generation files of `from`, byte for byte: model->directory, or where a tokenizer
 * for it is (then without generation settings, which are of that place's model); from a GGUF file, tokenizer.json and tokenizer_config.json are made. INPUT and UNSUPPORTED: the source is gone, or its tokenizer cannot
 * be taken over; the weights are worth keeping without. */
hr_status hri_export_companions(const hr_model *model, const char *from, const char *directory, hri_file_list *files,
                                hr_error *error);

#endif
