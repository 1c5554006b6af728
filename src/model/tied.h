/* A tied model whose file has a head of its own all the same. */
#ifndef HRI_MODEL_TIED_H
#define HRI_MODEL_TIED_H

#include <headroom/model.h>

#include "formats/weights.h"

/* A config that ties the head to the embedding makes a reader drop the file's lm_head.weight. That is right only when
 * it is the embedding once more: INPUT when it is not, as another model would be trained without a word (transformers 5
 * keeps such a head and warns). Reads both tensors when both are there, and nothing otherwise. */
hr_status hri_tied_head_check(const hr_model *model, const hri_weights *weights, hr_error *error);

#endif
