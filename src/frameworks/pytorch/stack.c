/* Defaults of the stacks (stack.h). Sources: trl 1.16 (trainer/base_config.py, sft_config.py, sft_trainer.py), axolotl 0.19
 * (utils/config, utils/schemas, loaders/model.py, cli/main.py, core/builders/causal.py), LLaMA-Factory 0.9.5 (hparams, model/patcher.py,
 * model/adapter.py, model_utils/checkpointing.py, train/sft/workflow.py). */
#include "frameworks/pytorch/stack.h"

static const hri_torch_stack stacks[HR_PYTORCH_STACKS] = {
    [HR_PYTORCH_TRAINER] = {.name = "trainer", .title = "Trainer", .trainer = true},
    [HR_PYTORCH_PLAIN] = {.name = "plain", .title = "a plain loop"},
    [HR_PYTORCH_TRL] = {.name = "trl",
                        .title = "TRL's SFTTrainer",
                        .version = "trl 1.16",
                        .trainer = true,
                        .checkpointing = true,
                        .fused_head = true,
                        .prepared = HRI_PREPARED_BY_TRL},
    [HR_PYTORCH_AXOLOTL] = {.name = "axolotl",
                            .title = "axolotl",
                            .version = "axolotl 0.19",
                            .trainer = true,
                            .reentrant = true,
                            .half_weights = true,
                            .prepared = HRI_PREPARED_BY_AXOLOTL,
                            .loading = HRI_LOADED_BY_MAP,
                            .empties_cache = true,
                            .adapted_input = true,
                            .lora_kernels = true,
                            .packs = true,
                            .evaluates_as_trains = true,
                            .keeps_losses = true,
                            .unused_stay = true,
                            .counts_tokens = true,
                            .alloc_conf = "expandable_segments:True"},
    [HR_PYTORCH_LLAMA_FACTORY] = {.name = "llama-factory",
                                  .title = "LLaMA-Factory",
                                  .version = "LLaMA-Factory 0.9.5",
                                  .trainer = true,
                                  .checkpointing = true,
                                  .reentrant = true,
                                  .prepared = HRI_PREPARED_BY_NOBODY,
                                  .loading = HRI_LOADED_BY_MAP,
                                  .checkpoints_trained = true,
                                  .wide_trained = true,
                                  .upcasts_norms = true,
                                  .adapters_alike = true,
                                  .keeps_losses = true,
                                  .unused_stay_adapted = true},
    [HR_PYTORCH_TORCHTUNE] = {.name = "torchtune",
                              .title = "a recipe of torchtune's for one device",
                              .version = "torchtune 0.6",
                              .recipes = true},
};

const hri_torch_stack *hri_torch_stack_of(hr_pytorch_stack stack) {
  return &stacks[(unsigned)stack < HR_PYTORCH_STACKS ? stack : HR_PYTORCH_TRAINER];
}

const char *hr_pytorch_stack_name(hr_pytorch_stack stack) {
  return (unsigned)stack < HR_PYTORCH_STACKS ? stacks[stack].name : "unknown";
}

const char *hr_pytorch_stack_title(hr_pytorch_stack stack) { return hri_torch_stack_of(stack)->title; }

const char *hr_pytorch_stack_alloc_conf(hr_pytorch_stack stack) { return hri_torch_stack_of(stack)->alloc_conf; }

bool hr_pytorch_stack_checkpoints(hr_pytorch_stack stack) { return hri_torch_stack_of(stack)->checkpointing; }

/* The Trainer does unless it checkpoints a model of transformers itself, which one of PEFT's is not. */
bool hri_torch_stack_finds_unused(const hri_torch_stack *stack, bool adapted, bool checkpoint) {
  if (!stack->trainer || stack->unused_stay || (adapted && stack->unused_stay_adapted)) return false;
  return adapted || !checkpoint;
}

/* The Trainer's own checkpointing has been without reentry since 5. */
void hri_torch_stack_defaults(const hri_torch_stack *stack, const hr_job *job, hri_torch_settings *s) {
  bool older = stack->trainer && s->version >= HRI_TRANSFORMERS_4_57;
  bool partly = stack->half_weights && (job->freeze || job->train_only); /* axolotl's unfrozen_parameters */
  s->checkpoints_trained = stack->checkpoints_trained;
  if (!s->reentrant_named) s->reentrant = (stack->reentrant && !partly) || older;
  s->checkpointing =
      job->recompute.kind != HR_RECOMPUTE_NONE || (stack->checkpointing && !(job->given & HR_GIVEN_RECOMPUTE));
}

/* A recipe's key says which AdamW. */
static hri_torch_optim recipe_optim_of(const hr_job *job, const hri_torch_settings *settings) {
  hri_torch_optim optim = settings->optim;
  if (optim == HRI_OPTIM_OF_JOB && job->optimizer == HR_OPTIMIZER_SGD) optim = HRI_OPTIM_SGD;
  if (optim == HRI_OPTIM_OF_JOB && job->optimizer == HR_OPTIMIZER_ADAMW8BIT) optim = HRI_OPTIM_ADAMW_BNB_8BIT;
  if (optim != HRI_OPTIM_OF_JOB && optim != HRI_OPTIM_ADAMW_TORCH) return optim;
  return settings->recipe.fused == HRI_FALSE ? HRI_OPTIM_ADAMW_TORCH : HRI_OPTIM_ADAMW_TORCH_FUSED;
}

hri_torch_optim hri_torch_stack_optim(const hri_torch_stack *stack, const hr_job *job,
                                      const hri_torch_settings *settings) {
  if (stack->recipes) return recipe_optim_of(job, settings);
  if (settings->optim != HRI_OPTIM_OF_JOB) return settings->optim;
  if (job->optimizer == HR_OPTIMIZER_SGD || job->optimizer == HR_OPTIMIZER_MOMENTUM) return HRI_OPTIM_SGD;
  if (job->optimizer == HR_OPTIMIZER_ADAMW8BIT) return HRI_OPTIM_ADAMW_BNB_8BIT;
  if (job->optimizer == HR_OPTIMIZER_ADAFACTOR) return stack->trainer ? HRI_OPTIM_ADAFACTOR : HRI_OPTIM_ADAFACTOR_TORCH;
  return stack->trainer && settings->version <= HRI_TRANSFORMERS_4_57 ? HRI_OPTIM_ADAMW_TORCH_FUSED
                                                                      : HRI_OPTIM_ADAMW_TORCH;
}
