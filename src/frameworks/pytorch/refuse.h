/* Which jobs and settings there are rules for. */
#ifndef HRI_PYTORCH_REFUSE_H
#define HRI_PYTORCH_REFUSE_H

#include <headroom/job.h>

#include "frameworks/pytorch/settings.h"
#include "frameworks/pytorch/stack.h"

/* UNSUPPORTED names the option, the family or the setting, and what there is; USAGE settings that do not go together. `settings` have the stack's
 * defaults. `ranks` 0 is 1. */
hr_status hri_torch_refuse(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack,
                           uint32_t ranks, hr_error *error);

#endif
