/* Defaults of the stacks (stack.h). Sources: trl 1.16 (trainer/base_config.py, sft_config.py, sft_trainer.py), axolotl 0.19
 * (utils/config, utils/schemas, loaders/model.py, cli/main.py), LLaMA-Factory 0.9.5 (hparams, model/patcher.py, model/adapter.py,
 * model_utils/checkpointing.py). */
#include "frameworks/pytorch/stack.h"

static const hri_torch_stack stacks[HR_PYTORCH_STACKS] = {
    [HR_PYTORCH_TRAINER] = {.name = "trainer", .title = "Trainer", .trainer = true, .recorded = true},
    [HR_PYTORCH_PLAIN] = {.name = "plain", .title = "a plain loop", .recorded = true},
    [HR_PYTORCH_TRL] = {.name = "trl",
                        .title = "TRL's SFTTrainer",
                        .version = "trl 1.16",
                        .trainer = true,
                        .checkpointing = true,
                        .fused_head = true,
                        .prepared = HRI_PREPARED_BY_TRL,
                        .recorded = true},
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
                            .unused_stay = true,
                            .counts_tokens = true,
                            .alloc_conf = "expandable_segments:True",
                            .recorded = true},
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
                                  .unused_stay_adapted = true,
                                  .recorded = true},
    [HR_PYTORCH_TORCHTUNE] = {.name = "torchtune",
                              .title = "a recipe of torchtune's for one device",
                              .version = "torchtune 0.6",
                              .recipes = true,
                              .recorded = true},
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
