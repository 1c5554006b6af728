/* Settings as people write them (arguments.h). */
#include "frameworks/pytorch/arguments.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void add(hri_torch_arguments *out, const char *format, ...) {
  char *text = out->texts[out->count - 1];
  size_t used = strlen(text);
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text + used, HRI_ARGUMENT_BYTES - used, format, args);
  va_end(args);
}

__attribute__((format(printf, 2, 3))) static void begin(hri_torch_arguments *out, const char *format, ...) {
  char *text = out->texts[out->count++];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, HRI_ARGUMENT_BYTES, format, args);
  va_end(args);
}

static const char *dtype_name(hri_ten_type type) {
  return type == HRI_BF16 ? "torch.bfloat16" : type == HRI_F16 ? "torch.float16" : "torch.float32";
}

static void write_model(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  const char *attention = of->settings->implementation == HRI_IMPLEMENTATION_FLASH_2 ? "flash_attention_2"
                          : t->attention == HRI_TORCH_EAGER                          ? "eager"
                                                                                     : "sdpa";
  const char *type = of->settings->version == HRI_TRANSFORMERS_5 ? "dtype" : "torch_dtype"; /* its older name */
  begin(out, "from_pretrained(..., %s=%s, attn_implementation=\"%s\"", type, dtype_name(t->weights), attention);
  if (t->quantized)
    add(out,
        ", quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"%s\", "
        "bnb_4bit_use_double_quant=%s, bnb_4bit_compute_dtype=%s)",
        of->job->quantize == HR_QUANTIZE_FP4 || of->job->quantize == HR_QUANTIZE_FP4_DQ ? "fp4" : "nf4",
        t->quantized == HRI_TORCH_NF4_DOUBLE ? "True" : "False", dtype_name(t->weights));
  add(out, ")");
}

static const char *target_name(const hr_model *m, int module) {
  static const char *const llama[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  static const char *const gpt2[] = {"c_attn", NULL, NULL, "attn.c_proj", "c_fc", NULL, "mlp.c_proj"};
  static const char *const phi3[] = {"qkv_proj", NULL, NULL, "o_proj", "gate_up_proj", NULL, "down_proj"};
  if (m->family == HR_FAMILY_GPT2) return gpt2[module];
  return m->family == HR_FAMILY_PHI3 ? phi3[module] : llama[module];
}

static void write_adapters(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hr_model *m = of->torch->model;
  uint8_t all = 0;
  bool first = true;
  if (!m->lora.rank) return;
  for (uint32_t i = 0; i < m->layer_count; i++) all |= m->lora.modules[i];
  begin(out, "LoraConfig(r=%u, lora_dropout=%g, task_type=\"CAUSAL_LM\", target_modules=[", m->lora.rank,
        m->lora.dropout);
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    const char *name = all & (1u << k) ? target_name(m, k) : NULL;
    if (!name) continue;
    add(out, "%s\"%s\"", first ? "" : ", ", name);
    first = false;
  }
  add(out, "])");
}

static void write_trainer(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  begin(out, "%s(per_device_train_batch_size=%u, gradient_accumulation_steps=%u",
        of->stack == HR_PYTORCH_TRL ? "SFTConfig" : "TrainingArguments", (unsigned)t->batch, t->accumulate);
  if (t->autocast != HRI_F32) add(out, ", %s=True", t->autocast == HRI_BF16 ? "bf16" : "fp16");
  if (of->job->precision == HR_PRECISION_TF32) add(out, ", tf32=True");
  if (t->checkpoint)
    add(out, ", gradient_checkpointing=True, gradient_checkpointing_kwargs={\"use_reentrant\": %s}",
        t->reentrant ? "True" : "False");
  add(out, ", optim=\"%s\", max_grad_norm=%g", hri_torch_optim_name(of->optim), of->job->clip);
  if (t->evaluation.batches) add(out, ", per_device_eval_batch_size=%u", (unsigned)t->evaluation.rows);
  if (t->evaluation.to_host) add(out, ", eval_accumulation_steps=%u", t->evaluation.to_host);
  add(out, ")");
}

static void write_loop(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  static const char *const optims[HRI_OPTIMS] = {"",
                                                 "torch.optim.AdamW(model.parameters(), foreach=True)",
                                                 "torch.optim.AdamW(model.parameters(), fused=True)",
                                                 "bitsandbytes.optim.AdamW8bit(model.parameters())",
                                                 "bitsandbytes.optim.PagedAdamW8bit(model.parameters())",
                                                 "torch.optim.SGD(model.parameters())",
                                                 "transformers.optimization.Adafactor(model.parameters())",
                                                 "torch.optim.Adafactor(model.parameters())"};
  const hri_torch_job *t = of->torch;
  if (t->checkpoint)
    begin(out, "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": %s})",
          t->reentrant ? "True" : "False");
  begin(out, "%s", optims[of->optim]);
  begin(out, "batches of %u rows, %u of them for each optimizer.step()", (unsigned)t->batch, t->accumulate);
  if (t->autocast != HRI_F32)
    add(out, ", under torch.autocast(\"cuda\", dtype=%s)%s", dtype_name(t->autocast),
        t->scaler ? " with torch.amp.GradScaler()" : "");
}

/* Lines of a configuration file. */
static void write_axolotl(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  begin(out, "micro_batch_size: %u", (unsigned)t->batch);
  begin(out, "gradient_accumulation_steps: %u", t->accumulate);
  begin(out, "sequence_len: %u", (unsigned)t->tokens);
  begin(out, "%s", t->autocast == HRI_BF16 ? "bf16: true" : t->autocast == HRI_F16 ? "fp16: true" : "bf16: false");
  begin(out, "optimizer: %s", hri_torch_optim_name(of->optim));
  begin(out, "gradient_checkpointing: %s", t->checkpoint ? "true" : "false");
  if (t->checkpoint && !t->reentrant) begin(out, "gradient_checkpointing_kwargs: {use_reentrant: false}");
}

static void write_llama_factory(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  begin(out, "per_device_train_batch_size: %u", (unsigned)t->batch);
  begin(out, "gradient_accumulation_steps: %u", t->accumulate);
  begin(out, "cutoff_len: %u", (unsigned)t->tokens);
  begin(out, "%s",
        t->autocast == HRI_BF16  ? "bf16: true"
        : t->autocast == HRI_F16 ? "fp16: true"
        : t->weights == HRI_BF16 ? "pure_bf16: true"
                                 : "bf16: false");
  begin(out, "optim: %s", hri_torch_optim_name(of->optim));
  begin(out, "disable_gradient_checkpointing: %s", t->checkpoint ? "false" : "true");
  if (t->checkpoint && !t->reentrant) begin(out, "use_reentrant_gc: false");
}

void hri_torch_arguments_write(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  memset(out, 0, sizeof *out);
  if (of->stack == HR_PYTORCH_AXOLOTL) {
    write_axolotl(of, out);
  } else if (of->stack == HR_PYTORCH_LLAMA_FACTORY) {
    write_llama_factory(of, out);
  } else {
    write_model(of, out);
    write_adapters(of, out);
    if (of->stack == HR_PYTORCH_PLAIN) write_loop(of, out);
    else write_trainer(of, out);
  }
  if (of->alloc_conf && *of->alloc_conf) begin(out, "PYTORCH_ALLOC_CONF=%s", of->alloc_conf);
}
