/* --freeze and --train-only: which tensors of a model keep the values that they were loaded with. */
#ifndef HRI_MODEL_FREEZE_H
#define HRI_MODEL_FREEZE_H

#include "model/params.h"

/* What `freeze` and `train_only` (either may be NULL) leave to train of a part. Both are lists of words with commas
 * between them:
 *   embed, head         the embeddings; the head (with tied embeddings they are one tensor)
 *   norms, biases       of all layers, and the final norm
 *   layers.3, layers.0-15
 *   any pattern with *, ? or [...] for names of tensors as files have them: model.layers.*.mlp.*
 * A part is trained when no word of `freeze` has it and, with `train_only`, some word of that does. */
bool hri_part_trains(const hr_model *model, const hri_param_spec *spec, const hri_param_part *part, const char *freeze,
                     const char *train_only);

/* USAGE when a word means no tensor of the model, or nothing is left to train; names the word and what there is. */
hr_status hri_freeze_check(const hr_model *model, const char *freeze, const char *train_only, hr_error *error);

#endif
