/* What recordings hold (recorded.h): a list of what was left out of them, by the words of the job as it runs. */
#include "frameworks/pytorch/recorded.h"

/* tests/memory/README.md says how. */
static const char *const versions[HRI_TRANSFORMERS_VERSIONS] = {"PyTorch 2.14, transformers 5",
                                                                "PyTorch 2.14, transformers 4.57",
                                                                "PyTorch 2.14, transformers 4.49",
                                                                "PyTorch 2.14, transformers 4.46"};

const char *hri_torch_recorded_versions(const hri_torch_settings *settings, const hri_torch_stack *stack) {
  return stack->recipes ? "PyTorch 2.14, torchtune 0.6" : versions[settings->version];
}

/* What was recorded of several ranks; else the rules are those of one, and of the source. */
static bool ranks_were_recorded(const hri_torch_job *job, const hri_torch_settings *settings,
                                const hri_torch_stack *stack) {
  bool adamw = job->optimizer <= HRI_TORCH_ADAMW_LOOP, own_kernel = job->kernel_forced;
  if (job->ranks == 1) return true;
  if (!adamw || own_kernel || job->version != HRI_TRANSFORMERS_5 || stack->version) return false;
  if (job->evaluation.middle || settings->predict) return false;
  if (job->quantized == HRI_TORCH_INT8 || (job->quantized && !job->trainer && job->sharing < HRI_TORCH_ZERO))
    return false;
  if (job->sharing == HRI_TORCH_DDP) return !job->resumed && !job->model->lora.dora && !job->model->lora.saved;
  if (job->sharing >= HRI_TORCH_ZERO) return true;
  return !(job->trainer && job->fsdp.offload) && !(job->fsdp.flat && job->scaler);
}

/* What tests/memory/stacks.json has of axolotl and LLaMA-Factory; beside it their rules are the Trainer's, and their source's. */
static bool stack_was_recorded(const hri_torch_job *job, const hri_torch_stack *stack) {
  bool axolotl = stack->half_weights, frozen = job->frozen.freeze || job->frozen.train_only;
  bool optimizer = job->optimizer == HRI_TORCH_ADAMW_FUSED || job->optimizer == HRI_TORCH_ADAMW_8BIT;
  if (job->version != HRI_TRANSFORMERS_5 || job->model->family == HR_FAMILY_GPT2 || !optimizer) return false;
  if (job->evaluation.batches || job->resumed || job->padded || job->kernel_forced) return false;
  if (job->scaler && !job->quantized) return false;
  if (job->model->lora.rank && job->weights == HRI_F32)
    return false; /* LLaMA-Factory's base keeps the type of its file */
  if (job->packed && (job->liger || job->autocast == HRI_F32)) return false;
  return !job->model->lora.saved && !(axolotl && (frozen || job->model->lora.dora));
}

/* Of cuDNN's kernels and those of the package flash_attn there are no recordings; TRL was recorded with the newest transformers. Recipes are
 * refused where tests/memory/tune.json has nothing like them. */
bool hri_torch_is_recorded(const hri_torch_job *job, const hri_torch_settings *s, const hri_torch_stack *stack) {
  bool trl = job->fused_head, own_defaults = stack->version != NULL;
  if (stack->recipes) return true;
  if (trl && (s->version != HRI_TRANSFORMERS_5 || job->quantized == HRI_TORCH_INT8)) return false;
  if (own_defaults && !trl && !stack_was_recorded(job, stack)) return false;
  if (s->kernel == HRI_KERNEL_CUDNN || s->implementation == HRI_IMPLEMENTATION_FLASH_2) return false;
  return ranks_were_recorded(job, s, stack);
}
