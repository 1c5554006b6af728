/* The settings of a run in the framework's own words, to be copied: how the model is loaded, adapters, the trainer's or the loop's. */
#ifndef HRI_PYTORCH_ARGUMENTS_H
#define HRI_PYTORCH_ARGUMENTS_H

#include <headroom/pytorch.h>

#include "base/text.h"
#include "frameworks/pytorch/loop.h"
#include "frameworks/pytorch/settings.h"

typedef struct hri_torch_arguments {
  HRI_ARRAY(hri_text) texts;
  bool failed; /* memory was refused: some are missing */
} hri_torch_arguments;

/* What the run was made from: `torch` is the job as it ran, `alloc_conf` may be NULL. */
typedef struct hri_torch_arguments_of {
  const hr_job *job;
  const hri_torch_job *torch;
  const hri_torch_settings *settings;
  hri_torch_optim optim;
  hr_pytorch_stack stack;
  const char *alloc_conf;
} hri_torch_arguments_of;
/* False: memory. What was written is `out`'s in any case. */
bool hri_torch_arguments_write(const hri_torch_arguments_of *of, hri_torch_arguments *out);
void hri_torch_arguments_deinit(hri_torch_arguments *arguments);

#endif
