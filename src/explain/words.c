/* Changes of a job in the user's own words: framework x technique. The frameworks' documentation names these settings;
 * where
 * one has no setting for a technique, PyTorch's own words are given. */
#include <inttypes.h>
#include <stdio.h>

#include "explain/message.h"

typedef struct words {
  const char *framework;
  const char *of[HR_TECHNIQUE_COUNT]; /* with at most one % for the value */
} words;

/* In a format, "%" followed by "N" stands for the value. */
static const words tables[] = {
    {"transformers",
     {[HR_TECHNIQUE_MICRO_BATCH] = "TrainingArguments(per_device_train_batch_size=%N)",
      [HR_TECHNIQUE_ACCUMULATE] = "TrainingArguments(gradient_accumulation_steps=%N)",
      [HR_TECHNIQUE_CHECKPOINTING] = "TrainingArguments(gradient_checkpointing=True)",
      [HR_TECHNIQUE_SEQUENCE] = "tokenizer(..., truncation=True, max_length=%N), or max_length=%N in SFTConfig",
      [HR_TECHNIQUE_LOSS_CHUNK] = "TrainingArguments(use_liger_kernel=True): logits are never whole",
      [HR_TECHNIQUE_BF16] = "TrainingArguments(bf16=True)",
      [HR_TECHNIQUE_FP16] = "TrainingArguments(fp16=True)",
      [HR_TECHNIQUE_BF16_PURE] =
          "from_pretrained(..., dtype=torch.bfloat16), torch_dtype before 4.56, with TrainingArguments(bf16=True)",
      [HR_TECHNIQUE_8BIT] = "TrainingArguments(optim=\"adamw_bnb_8bit\")",
      [HR_TECHNIQUE_SGD] = "TrainingArguments(optim=\"sgd\")",
      [HR_TECHNIQUE_ADAFACTOR] = "TrainingArguments(optim=\"adafactor\")"}},
    {"deepspeed",
     {[HR_TECHNIQUE_MICRO_BATCH] = "\"train_micro_batch_size_per_gpu\": %N",
      [HR_TECHNIQUE_ACCUMULATE] = "\"gradient_accumulation_steps\": %N",
      [HR_TECHNIQUE_CHECKPOINTING] =
          "deepspeed.checkpointing.checkpoint(...) around each block (model.gradient_checkpointing_enable() with transformers)",
      [HR_TECHNIQUE_BF16] = "\"bf16\": {\"enabled\": true}",
      [HR_TECHNIQUE_FP16] = "\"fp16\": {\"enabled\": true}",
      [HR_TECHNIQUE_BF16_PURE] =
          "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, \"bf16_optimizer_states\": true}",
      [HR_TECHNIQUE_SGD] = "\"optimizer\": {\"type\": \"SGD\"}"}},
    {"fsdp",
     {[HR_TECHNIQUE_CHECKPOINTING] =
          "apply_activation_checkpointing(model, ...); with accelerate fsdp_activation_checkpointing: true",
      [HR_TECHNIQUE_BF16] = "MixedPrecision(param_dtype=torch.bfloat16)"}},
    {"axolotl",
     {[HR_TECHNIQUE_MICRO_BATCH] = "micro_batch_size: %N",
      [HR_TECHNIQUE_ACCUMULATE] = "gradient_accumulation_steps: %N",
      [HR_TECHNIQUE_CHECKPOINTING] = "gradient_checkpointing: true",
      [HR_TECHNIQUE_SEQUENCE] = "sequence_len: %N",
      [HR_TECHNIQUE_LOSS_CHUNK] = "plugins: liger, with liger_fused_linear_cross_entropy: true",
      [HR_TECHNIQUE_BF16] = "bf16: true",
      [HR_TECHNIQUE_FP16] = "fp16: true",
      [HR_TECHNIQUE_8BIT] = "optimizer: adamw_bnb_8bit",
      [HR_TECHNIQUE_SGD] = "optimizer: sgd",
      [HR_TECHNIQUE_ADAFACTOR] = "optimizer: adafactor"}},
    {"llama-factory",
     {[HR_TECHNIQUE_MICRO_BATCH] = "per_device_train_batch_size: %N",
      [HR_TECHNIQUE_ACCUMULATE] = "gradient_accumulation_steps: %N",
      [HR_TECHNIQUE_CHECKPOINTING] = "disable_gradient_checkpointing: false",
      [HR_TECHNIQUE_SEQUENCE] = "cutoff_len: %N",
      [HR_TECHNIQUE_LOSS_CHUNK] = "enable_liger_kernel: true",
      [HR_TECHNIQUE_BF16] = "bf16: true",
      [HR_TECHNIQUE_FP16] = "fp16: true",
      [HR_TECHNIQUE_BF16_PURE] = "pure_bf16: true",
      [HR_TECHNIQUE_8BIT] = "optim: adamw_bnb_8bit",
      [HR_TECHNIQUE_SGD] = "optim: sgd",
      [HR_TECHNIQUE_ADAFACTOR] = "optim: adafactor"}},
    {"torchtune",
     {[HR_TECHNIQUE_MICRO_BATCH] = "batch_size=%N",
      [HR_TECHNIQUE_ACCUMULATE] = "gradient_accumulation_steps=%N",
      [HR_TECHNIQUE_CHECKPOINTING] = "enable_activation_checkpointing=True",
      [HR_TECHNIQUE_SEQUENCE] = "tokenizer.max_seq_len=%N",
      [HR_TECHNIQUE_LOSS_CHUNK] = "loss._component_=torchtune.modules.loss.LinearCrossEntropyLoss",
      [HR_TECHNIQUE_BF16_PURE] = "dtype=bf16",
      [HR_TECHNIQUE_IN_BACKWARD] = "optimizer_in_bwd=True",
      [HR_TECHNIQUE_8BIT] = "optimizer._component_=bitsandbytes.optim.AdamW8bit",
      [HR_TECHNIQUE_SGD] = "optimizer._component_=torch.optim.SGD",
      [HR_TECHNIQUE_ADAFACTOR] = "optimizer._component_=torch.optim.Adafactor"}},
    {"lightning",
     {[HR_TECHNIQUE_MICRO_BATCH] = "DataLoader(batch_size=%N)",
      [HR_TECHNIQUE_ACCUMULATE] = "Trainer(accumulate_grad_batches=%N)",
      [HR_TECHNIQUE_BF16] = "Trainer(precision=\"bf16-mixed\")",
      [HR_TECHNIQUE_FP16] = "Trainer(precision=\"16-mixed\")",
      [HR_TECHNIQUE_BF16_PURE] = "Trainer(precision=\"bf16-true\")"}},
    {"accelerate",
     {[HR_TECHNIQUE_ACCUMULATE] = "Accelerator(gradient_accumulation_steps=%N)",
      [HR_TECHNIQUE_BF16] = "Accelerator(mixed_precision=\"bf16\")",
      [HR_TECHNIQUE_FP16] = "Accelerator(mixed_precision=\"fp16\")"}},
};

static const char *const plain[HR_TECHNIQUE_COUNT] = {
    [HR_TECHNIQUE_MICRO_BATCH] = "batch size %N per device",
    [HR_TECHNIQUE_ACCUMULATE] = "gradients accumulated over %N backward passes",
    [HR_TECHNIQUE_CHECKPOINTING] = "torch.utils.checkpoint around each block",
    [HR_TECHNIQUE_SELECTIVE] =
        "torch.utils.checkpoint with a selective policy: norms and activations again, products kept",
    [HR_TECHNIQUE_SEQUENCE] = "sequences of %N tokens",
    [HR_TECHNIQUE_LOSS_CHUNK] = "a loss over %N tokens at a time, so that logits are never whole",
    [HR_TECHNIQUE_BF16] = "torch.autocast(\"cuda\", dtype=torch.bfloat16)",
    [HR_TECHNIQUE_FP16] = "torch.autocast(\"cuda\", dtype=torch.float16) with torch.amp.GradScaler(\"cuda\")",
    [HR_TECHNIQUE_BF16_PURE] = "model.to(torch.bfloat16)",
    [HR_TECHNIQUE_8BIT] = "bitsandbytes.optim.AdamW8bit",
    [HR_TECHNIQUE_MOMENTUM] = "torch.optim.SGD(momentum=0.9)",
    [HR_TECHNIQUE_SGD] = "torch.optim.SGD",
    [HR_TECHNIQUE_ADAFACTOR] = "torch.optim.Adafactor",
    [HR_TECHNIQUE_IN_BACKWARD] = "the optimizer's step in each parameter's register_post_accumulate_grad_hook",
};

int hr_technique_words(hr_technique technique, uint64_t value, const char *framework, char *text, size_t capacity) {
  const char *format = (unsigned)technique < HR_TECHNIQUE_COUNT ? plain[technique] : "";
  size_t used = 0;
  for (size_t i = 0; (unsigned)technique < HR_TECHNIQUE_COUNT && i < sizeof tables / sizeof *tables; i++)
    if (framework && strcmp(tables[i].framework, framework) == 0 && tables[i].of[technique])
      format = tables[i].of[technique];
  if (capacity) text[0] = 0;
  for (; *format; format++) {
    char number[24] = {*format, 0};
    if (format[0] == '%' && format[1] == 'N') {
      (void)snprintf(number, sizeof number, "%" PRIu64, value);
      format++;
    }
    if (used < capacity) (void)snprintf(text + used, capacity - used, "%s", number);
    used += strlen(number);
  }
  return (int)used;
}
