/* Which jobs and settings the rules are of; and what settings mean for a job, as far as that decides. */
#ifndef HRI_PYTORCH_REFUSE_H
#define HRI_PYTORCH_REFUSE_H

#include <headroom/job.h>

#include "frameworks/pytorch/settings.h"
#include "frameworks/pytorch/stack.h"

/* UNSUPPORTED names the option, the family or the setting, and what there is. */
hr_status hri_torch_refuse(const hr_job *job, const hri_torch_settings *settings, hr_error *error);
/* The same of several ranks; USAGE where settings do not go together. `ranks` 0 is 1. */
hr_status hri_torch_refuse_ranks(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack,
                                 uint32_t ranks, hr_error *error);

hri_torch_quantized hri_torch_quantized_as(hr_quantize quantize);
bool hri_torch_is_eager(const hr_job *job, const hri_torch_settings *settings);
/* The kernel that settings ask for; where they do not, any. */
hri_sdpa hri_torch_kernel_of(const hri_torch_settings *settings);

/* The same of torchtune's recipes. */
hr_status hri_torch_refuse_recipe(const hr_job *job, const hri_torch_settings *settings, uint32_t ranks,
                                  hr_error *error);

/* Settings that only some stacks have, or only beside something else. */
hr_status hri_torch_refuse_stack(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack,
                                 hr_error *error);
/* Which of axolotl's LoRA kernels stand in the model: those that are named, or all where none is. */
typedef struct hri_torch_lora_kernels {
  bool qkv, o, mlp;
} hri_torch_lora_kernels;
hri_torch_lora_kernels hri_torch_lora_kernels_of(const hr_job *job, const hri_torch_settings *settings,
                                                 const hri_torch_stack *stack);

#endif
