/* config.json of what is made of a model: a training's result, its quantized weights. */
#ifndef HRI_MODEL_CONFIG_KEPT_H
#define HRI_MODEL_CONFIG_KEPT_H

#include <headroom/model.h>

#include "base/error.h"

/* hr_model_config_text, with the keys and the order of the config.json in model->directory, where there is one that with
 * these changes means the same. NULL: memory; to be freed by hr_free. *read is INPUT, and `why` says it, when that file
 * cannot be read: the text is then without what only it has. */
char *hri_config_kept(const hr_model *model, const char *dtype, hr_status *read, hr_error *why);

#endif
