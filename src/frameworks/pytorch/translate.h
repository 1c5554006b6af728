/* A job of ours in the framework's terms: what an hr_job, the settings and the stack mean for a training as PyTorch runs it (loop.h), and what is
 * said of it to people on the way.
 *
 * Settings have the stack's defaults, and there are rules for the job with them (refuse.h). Nothing fails. */
#ifndef HRI_PYTORCH_TRANSLATE_H
#define HRI_PYTORCH_TRANSLATE_H

#include "base/error.h"
#include "frameworks/pytorch/loop.h"
#include "frameworks/pytorch/settings.h"
#include "frameworks/pytorch/stack.h"

typedef struct hri_torch_asked {
  const hr_job *job;
  const hri_torch_settings *settings;
  const hri_torch_stack *stack;
  uint32_t ranks;         /* 0 is 1 */
  const char *alloc_conf; /* NULL: the stack's */
} hri_torch_asked;

typedef struct hri_torch_translation {
  hri_torch_job job;                    /* its model is that of the job that was asked for */
  char settings[HR_PYTORCH_TEXT_BYTES]; /* hr_pytorch_info.settings, .unlike */
  char unlike[HR_PYTORCH_TEXT_BYTES];
} hri_torch_translation;

void hri_torch_translate(const hri_torch_asked *asked, hri_torch_translation *out);

/* ---- single settings, for those who judge them or write them down ---- */

hri_torch_quantized hri_torch_quantized_as(hr_quantize quantize);
bool hri_torch_is_eager(const hr_job *job, const hri_torch_settings *settings);
/* The kernel that settings ask for; where they do not, any. */
hri_sdpa hri_torch_kernel_of(const hri_torch_settings *settings);
/* attn_implementation by its name. */
const char *hri_torch_attention_name(const hri_torch_job *job, const hri_torch_settings *settings);
/* Which of axolotl's LoRA kernels stand in the model: those that are named, or all where none is. */
typedef struct hri_torch_lora_kernels {
  bool qkv, o, mlp;
} hri_torch_lora_kernels;
hri_torch_lora_kernels hri_torch_lora_kernels_of(const hr_job *job, const hri_torch_settings *settings,
                                                 const hri_torch_stack *stack);

/* ---- for its parts (translate_recipe.c) ---- */

/* torchtune's recipes. */
void hri_torch_translate_recipe(const hri_torch_asked *asked, hri_torch_translation *out);
/* Adds to what is said: to the settings, and to what is unlike the job. What is longer than their room is cut. */
void hri_torch_say(hri_torch_translation *out, const char *format, ...) HRI_PRINTF(2, 3);
void hri_torch_say_unlike(hri_torch_translation *out, const char *what);
void hri_torch_set_optimizer(hri_torch_translation *out, hri_torch_optim optim, bool momentum);
/* Options of the job that no stack has a counterpart for. */
void hri_torch_say_left_out(hri_torch_translation *out, const hr_job *job);

#endif
